/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors of a load are read once for several ranks, and what the pieces of them are. Every
 * rank knows what all want and works out the same. read_for_threads.c runs it where ranks reach
 * each other's memory, read_and_send.c elsewhere. */
#ifndef RSI_WANTED_BY_SEVERAL_H
#define RSI_WANTED_BY_SEVERAL_H

#include "comm/comm.h"
#include "read/fetch_all.h"

/* One view of one rank, as all ranks know it. */
typedef struct rsi_ref {
    int32_t        rank;
    uint32_t       want; /* number among that rank's */
    const int64_t *box;  /* [2 * ndim] offsets, sizes; if ranks reach each other's memory, then */
} rsi_ref;               /* [5 + ndim]: what is exposed, bytes before the first element, strides */

typedef struct rsi_share {
    rsd_ckpt    *ckpt;
    rsi_gathered words; /* what the ranks told each other */
    rsi_ref     *ref;   /* by tensor, then rank, then number */
    size_t      *first; /* [ntensors + 1] those of tensor t are ref[first[t] .. first[t+1]-1] */
    bool        *once;  /* [ntensors] its pieces are read once */
    size_t       nonce; /* tensors that are, */
    uint64_t     bytes; /* and what is wanted of them, each byte once */
    bool         reach; /* the views' memory is exposed */
    int64_t      piece; /* bytes of a piece, at most */
} rsi_share;

/* Part of a piece that one view wants. */
typedef struct rsi_hit {
    int32_t        rank;
    uint32_t       want;
    const rsi_ref *ref;
    rsd_box        box;
} rsi_hit;

/* What is read at once: all that is wanted of a block of a chunk, which is a box itself. */
typedef struct rsi_piece {
    size_t  t;
    int64_t elem_bytes;
    rsd_box box;
    size_t  first, n; /* of rsi_pieces.hit; sorted by rank */
    size_t  at;       /* for read_and_send.c: bytes from the start of its parcel */
} rsi_piece;

typedef struct rsi_pieces {
    rsi_piece *piece;
    size_t     n, cap;
    rsi_hit   *hit;
    size_t     nhits, hit_cap;
} rsi_pieces;

/* Where one stands among the pieces of tensors t .. end-1. */
typedef struct rsi_share_at {
    size_t  t, chunk, end;
    int64_t block;
} rsi_share_at;

/* Tells all ranks what each wants and finds the tensors that are read once: where the ranks want at
 * least 1.25 times the bytes that there are, or bytes that lie scattered and `reach` each other's
 * memory, or `always` wherever several want some. `reach`: every view is memory that the comm
 * exposes, of the tensor's own dtype. [collective] */
rsd_err rsi_share_make(rsi_share *share, rsd_comm *comm, rsd_ckpt *ckpt, const rsi_want *want,
                       size_t n, bool always, bool reach, rsd_error *err);
void    rsi_share_release(rsi_share *share);

/* Adds the next piece that somebody wants; *more is false when there is none any more. */
rsd_err rsi_share_next(const rsi_share *share, rsi_share_at *at, rsi_pieces *out, bool *more,
                       rsd_error *err);
void    rsi_pieces_release(rsi_pieces *pieces);

#endif
