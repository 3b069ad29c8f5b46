/* SPDX-License-Identifier: Apache-2.0 */
/* The moves of a plan in the order of execution.
 *
 * Data that several ranks receive would leave their holder once for each of them. Instead a piece
 * is cut into as many parts as there are receivers; each receives its part first and then passes it
 * on to the others, so no rank sends much more than its own data once, and each byte still arrives
 * exactly once. Contributions to be reduced take the same route: a receiver combines only its part.
 * The receivers are a closed form of the layouts, so both ends cut alike.
 *
 * With several machines, a receiver gets a copy from a holder on its own machine if there is one.
 * Otherwise the piece comes to that machine once: its receivers there share it, cut or whole, and
 * pass it on among themselves. */
#ifndef RSI_ROUTE_H
#define RSI_ROUTE_H

#include "plan/planner.h"

/* Part of a piece in transit. */
typedef struct rsi_hop {
    uint32_t far; /* copies: the distance to the peer; else 0 */
    uint32_t tensor, piece;
    uint32_t part;      /* number of the contribution, or its owner; copies: 0 */
    uint32_t cut, cuts; /* which of how many parts; 0 of 1: the whole piece */
    int32_t  peer;      /* destination or source; myself: no message */
    uint32_t seq;       /* for the exchange: its number among the peer's hops in this phase */
} rsi_hop;

typedef struct rsi_hops {
    rsi_hop *at;
    size_t   n, cap;
} rsi_hops;

typedef struct rsi_route_opts {
    int32_t        size;        /* ranks of the comm */
    int64_t        cut_min;     /* bytes at which a piece is cut; negative: never */
    bool           cut_reduced; /* cut only reduced pieces: copies are cheap for the holder */
    int32_t        hosts;       /* machines */
    const int32_t *host_of;     /* [size] the machine of each rank; NULL: all are on one */
} rsi_route_opts;

/* The ranks of one machine that have or get a piece. */
typedef struct rsi_team {
    int64_t holders;  /* in the source */
    int64_t members;  /* receivers */
    int64_t assigned; /* receivers that have been visited */
} rsi_team;

/* The ranks of my machine that hold a chunk of a target, in the order of all its holders. */
typedef struct rsi_near {
    const rsi_class *c;
    int64_t          where, part;
    int32_t         *rank; /* [n] of [opts.size] */
    int64_t          n;
} rsi_near;

/* All but `local` are sorted by distance, then tensor, then piece, then part. For copies, rank r
 * sends to r + 1 first, then to r + 2, and receives from r - 1, r - 2. So both ends of a message
 * are at the same position in one order over all ranks, and however few messages are in flight, the
 * first can always finish. */
typedef struct rsi_route {
    const rsd_plan *plan;
    rsi_route_opts  opts;
    rsi_hops        local;            /* copies within this rank */
    rsi_hops        send[2], recv[2]; /* [phase] in phase 1 from target to target */
    rsi_hops        give, take;       /* contributions; `take` includes my own */
    rsi_team       *team;             /* [opts.hosts] of the current piece, while it is made */
    rsi_near        near;             /* of the last piece, while it is made */
} rsi_route;

rsd_err rsi_route_make(rsi_route *route, const rsd_plan *plan, const rsi_route_opts *opts,
                       rsd_error *err);
void    rsi_route_release(rsi_route *route);

/* Calls fn with other ranks that receive what this one does, until it returns false: with machines
 * left out, they may pass it on to each other. Some are named more than once. */
void rsi_route_mates(const rsd_plan *plan, bool (*fn)(void *arg, int32_t rank), void *arg);

/* The box of a hop, which may be empty; returns the number of my box that contains it. `given`: the
 * hop is in send[0] or give, so it is cut from my source; else from my target. */
size_t rsi_hop_box(const rsi_route *route, const rsi_hop *hop, bool given, rsd_box *out);
/* True if both belong to the same piece of the same tensor. */
static inline bool rsi_hop_same(const rsi_hop *a, const rsi_hop *b)
{
    return a->tensor == b->tensor && a->piece == b->piece;
}
/* True if its data are combined or divided, not merely copied. */
bool rsi_class_computes(const rsi_class *c);

#endif
