/* SPDX-License-Identifier: Apache-2.0 */
/* One side of a plan, source or target, as one rank sees it: which ranks hold a piece, and which
 * holder serves which receiver.
 *
 * Holders of a piece are numbered 0 .. n-1: along the mesh axes that don't shard (row-major), or by
 * their index in the table's row. A closed form of numbers known to every rank selects the holder
 * that serves, so no rank has to ask. */
#ifndef RSI_PIECE_HOLDERS_H
#define RSI_PIECE_HOLDERS_H

#include "shape/layout.h"

/* Some axes of a mesh, combined into one counter. */
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
    rsi_axes          copies; /* axes along which holders have the same data, */
    rsi_axes          parts;  /* and axes along which each has its own contribution (Partial) */
    int64_t           my_copy, my_part, my_chunk;
    int64_t           my_where; /* what my pieces have as rsi_overlap.where */
} rsi_side;

/* `parts_apart`: Partial axes are contributions; else they count as copies. */
void rsi_side_make(rsi_side *side, const rsd_layout *layout, int32_t rank, bool parts_apart);

/* The chunk that my box number `my_box` is, and my index among its holders. */
void rsi_side_mine(const rsi_side *side, size_t my_box, int64_t *chunk, int64_t *copy);
/* Number of holders of the piece at `where` (rsi_overlap.where), for one contribution. */
int64_t rsi_side_copies(const rsi_side *side, int64_t where);
/* The rank of holder `copy` of contribution `part`. */
int32_t rsi_side_holder(const rsi_side *side, int64_t where, int64_t copy, int64_t part);
/* True if `rank` holds contribution `part` of the piece at `where`. */
bool rsi_side_holds(const rsi_side *side, int64_t where, int64_t part, int32_t rank);
/* The same for my own rank. */
bool rsi_side_have(const rsi_side *side, int64_t where, int64_t part);

#endif
