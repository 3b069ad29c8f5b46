/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's moves in the order in which they are made.
 *
 * Data that several ranks get alike would leave its holder once for each of them. Instead a piece
 * is cut into as many parts as there are receivers; each gets its part first and passes it on to
 * the others afterwards, so nobody sends more than about once what he has, and each byte still
 * arrives exactly once. Contributions that are reduced go the same way: a receiver combines its
 * part only. Who the receivers are is a closed form of the layouts, so both ends cut alike. */
#ifndef RSI_ROUTE_H
#define RSI_ROUTE_H

#include "plan/planner.h"

/* A part of a piece on its way. */
typedef struct rsi_hop {
    uint32_t far; /* copies: the distance to the peer; else 0 */
    uint32_t tensor, piece;
    uint32_t part;      /* which contribution, or whose; copies: 0 */
    uint32_t cut, cuts; /* which of how many parts; 0 of 1: the whole piece */
    int32_t  peer;      /* where it goes to or comes from; myself: no message */
    uint32_t seq;       /* for the exchange: its number among those of the peer and phase */
} rsi_hop;

typedef struct rsi_hops {
    rsi_hop *at;
    size_t   n, cap;
} rsi_hops;

typedef struct rsi_route_opts {
    int32_t size;        /* ranks of the comm */
    int64_t cut_min;     /* bytes of a piece from which on it is cut; negative: never */
    bool    cut_reduced; /* cut only what is reduced: copies are cheap for the holder */
} rsi_route_opts;

/* All but `local` are sorted by distance, then tensor, then piece, then part. Of copies, rank r
 * sends to r + 1 first, then to r + 2, and receives from r - 1, r - 2. So both ends of a message
 * stand at the same place of one order over all ranks, and however few of them are under way, the
 * first can always finish. */
typedef struct rsi_route {
    const rsd_plan *plan;
    rsi_route_opts  opts;
    rsi_hops        local;            /* copies within this rank */
    rsi_hops        send[2], recv[2]; /* [phase] in phase 1 from target to target */
    rsi_hops        give, take;       /* contributions; my own are among those taken */
} rsi_route;

rsd_err rsi_route_make(rsi_route *route, const rsd_plan *plan, const rsi_route_opts *opts,
                       rsd_error *err);
void    rsi_route_release(rsi_route *route);

/* The box of a hop, which may be empty; returns which of my boxes it lies in. `given`: it is in
 * send[0] or give, so cut out of my source; else of my target. */
size_t rsi_hop_box(const rsi_route *route, const rsi_hop *hop, bool given, rsd_box *out);
/* Both are of the same piece of the same tensor. */
static inline bool rsi_hop_same(const rsi_hop *a, const rsi_hop *b)
{
    return a->tensor == b->tensor && a->piece == b->piece;
}
/* Combined with others or divided, not merely copied. */
bool rsi_class_computes(const rsi_class *c);

#endif
