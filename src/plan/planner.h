/* SPDX-License-Identifier: Apache-2.0 */
/* The plan: what one rank copies, sends and receives, in rows by peer.
 *
 * Tensors with equal layouts share one class, which knows their pieces; a move is then two numbers,
 * the tensor and the piece, and its row identifies the peer. Rows list moves by tensor, then by
 * piece, and both ends number the pieces alike, so a message is simply its row's pieces in order
 * and needs no header. */
#ifndef RSI_PLANNER_H
#define RSI_PLANNER_H

#include "base/arena.h"
#include "plan/overlap.h"
#include "plan/piece_holders.h"

#include <reshard/reshard_live.h>

typedef struct rsi_class {
    uint64_t     key[2]; /* hashes of the two layouts */
    rsi_side     src, dst;
    rsi_overlaps send; /* my part of src, cut along dst */
    rsi_overlaps recv; /* my part of dst, cut along src */
    rsd_reduce   reduce;
    int64_t      share;   /* rsd_move.share */
    bool         matched; /* Partial to the same Partial: each contribution goes to its own place */
} rsi_class;

typedef struct rsi_entry {
    uint32_t tensor, piece;
} rsi_entry;

typedef struct rsi_rows {
    rsi_entry *entry;
    size_t
        *first; /* [npeers + 1] the row of peer p is entry[first[p]] .. entry[first[p + 1] - 1] */
} rsi_rows;

struct rsd_plan {
    int32_t      rank;
    size_t       n; /* tensors */
    rsd_layout **src, **dst;
    uint32_t    *class_of; /* [n] */
    rsi_class **class;     /* [nclasses] */
    size_t nclasses;

    size_t     npeers;
    int32_t   *peer;  /* [npeers] ascending, without myself */
    rsi_entry *local; /* [nlocal] pieces of class->recv that I already have */
    size_t     nlocal;
    rsi_rows   send, recv;

    rsd_plan_stats stats;
    rsi_arena      mem;
};

static inline const rsi_class *rsi_plan_class(const rsd_plan *plan, size_t tensor)
{
    return plan->class[plan->class_of[tensor]];
}
/* Fills peers, rows and stats from the classes. */
rsd_err rsi_plan_rows(rsd_plan *plan, rsd_error *err);
/* Expands an entry. `sends`: it is in a send row, else in a receive row or local. */
void rsi_plan_move(const rsd_plan *plan, rsi_entry entry, int32_t peer, bool sends, rsd_move *out);

#endif
