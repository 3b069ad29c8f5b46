/* SPDX-License-Identifier: Apache-2.0 */
/* One side of a plan, source or target, as one rank sees it: who holds a piece, and which of the
 * holders serves whom.
 *
 * Holders of a piece are numbered 0 .. n-1: along the mesh axes that don't shard (row-major), or by
 * their place in the table's row. The holder that serves is a closed form of numbers that every
 * rank knows, so nobody has to ask. */
#ifndef RSI_PIECE_HOLDERS_H
#define RSI_PIECE_HOLDERS_H

#include "shape/layout.h"

/* Some axes of a mesh, taken together as one counter. */
typedef struct rsi_axes {
    int     n;
    int     axis[RSD_MAX_NDIM];
    int64_t size[RSD_MAX_NDIM];
    int64_t stride[RSD_MAX_NDIM]; /* in places */
    int64_t count;                /* product of the sizes; 1 if there are none */
} rsi_axes;

typedef struct rsi_side {
    const rsd_layout *layout;
    int32_t           rank;
    bool              inside; /* a mesh that I am in */
    int64_t           coord[RSD_MAX_NDIM];
    rsi_axes          copies; /* axes along which holders have the same, */
    rsi_axes          parts;  /* and axes along which each has its own contribution (Partial) */
    int64_t           my_copy, my_part, my_chunk;
    int64_t           my_where; /* what my pieces have as rsi_overlap.where */
} rsi_side;

/* `parts_apart`: Partial axes are contributions; else they count as copies. */
void rsi_side_make(rsi_side *side, const rsd_layout *layout, int32_t rank, bool parts_apart);

/* Which chunk my box number `my_box` is, and which of its holders I am. */
void rsi_side_mine(const rsi_side *side, size_t my_box, int64_t *chunk, int64_t *copy);
/* How many hold the piece at `where` (rsi_overlap.where), for one contribution. */
int64_t rsi_side_copies(const rsi_side *side, int64_t where);
/* The rank of holder `copy` of contribution `part`. */
int32_t rsi_side_holder(const rsi_side *side, int64_t where, int64_t copy, int64_t part);
/* Does `rank` hold contribution `part` of the piece at `where`? */
bool rsi_side_holds(const rsi_side *side, int64_t where, int64_t part, int32_t rank);
/* Do I? */
bool rsi_side_have(const rsi_side *side, int64_t where, int64_t part);

#endif
