/* SPDX-License-Identifier: Apache-2.0 */
/* Parcels: a few pieces of what several ranks want, with the rank that reads them. Dealt out round
 * by round, the same on all ranks of a machine. read_once.c reads them and passes them on. */
#ifndef RSI_PARCELS_H
#define RSI_PARCELS_H

#include "load/wanted_by_several.h"

typedef struct rsi_read_parcel {
    int32_t reader;
    size_t  first, end; /* pieces, packed one after the other */
    size_t  bytes;
    size_t  at; /* bytes of those before it with the same reader in this round */
} rsi_read_parcel;

typedef struct rsi_parcels {
    const rsi_share *share;
    bool             anyone; /* a rank may read what it does not want */
    size_t           most; /* bytes that a rank reads or gets in a round; a parcel may exceed it, */
    size_t           room; /* or, if not 0, bytes that a rank exceeds only by a single piece */
    uint64_t         full; /* bytes at which a parcel is full */
    rsi_share_at     at;
    bool             more;   /* there may be another round */
    uint64_t        *shares; /* [size] bytes that each rank has read in all rounds, */
    size_t          *load;   /* and needs in this one */

    rsi_read_parcel *parcel; /* [n] of this round; */
    size_t           n, cap;
    rsi_pieces       pieces; /* theirs */
} rsi_parcels;

rsd_err rsi_parcels_begin(rsi_parcels *parcels, const rsi_share *share, rsd_error *err);
/* The next round. If views are reached, only this rank's own parcels are kept. */
rsd_err rsi_parcels_next(rsi_parcels *parcels, rsd_error *err);
/* True if the rank wants something of the parcel. */
bool rsi_parcel_wanted(const rsi_parcels *parcels, const rsi_read_parcel *parcel, int32_t rank);
void rsi_parcels_release(rsi_parcels *parcels);

/* Bytes of a box of the piece. */
static inline size_t rsi_piece_bytes(const rsi_piece *piece, const rsd_box *box)
{
    return (size_t)(rsd_box_count(box) * piece->elem_bytes);
}

#endif
