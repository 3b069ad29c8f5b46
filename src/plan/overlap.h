/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's part of a layout, cut along the boxes of another layout: the pieces that can move.
 *
 * Between two meshes the pieces are a product: each dimension is cut separately, and every
 * combination of cuts is one piece. So a thousand pieces take a few hundred bytes, and disjoint
 * pairs of boxes are never examined. With a table on either side the pieces are listed
 * individually, found through the table's tree. Either way they are numbered by their offset, first
 * dimension first, and both ends of a move cut out the same boxes. */
#ifndef RSI_OVERLAP_H
#define RSI_OVERLAP_H

#include "base/arena.h"
#include "shape/layout.h"

/* A run of indices in one dimension that one of my runs shares with one owner in the other layout.
 */
typedef struct rsi_overlap_cut {
    int64_t start, len;
    int64_t place;  /* what the owner's coordinates in this dimension add to its mesh place */
    int64_t chunk;  /* and to its chunk number */
    size_t  my_run; /* which of my runs in this dimension */
} rsi_overlap_cut;

typedef struct rsi_overlap {
    rsd_box box;
    size_t  my_box; /* which of my boxes contains it */
    int64_t
        where; /* in the other layout: place of the holders without replicas, or row of the table */
    int64_t chunk; /* chunk of the other layout: the same number on every rank */
} rsi_overlap;

typedef struct rsi_overlaps {
    const rsd_layout *mine, *other;
    int32_t           rank;
    size_t            n;

    bool             product;            /* false: listed */
    size_t           ncut[RSD_MAX_NDIM]; /* [ndim] */
    rsi_overlap_cut *cut[RSD_MAX_NDIM];  /* [ndim][ncut] ascending */
    size_t           nrun[RSD_MAX_NDIM]; /* [ndim] my runs */
    rsi_run         *run[RSD_MAX_NDIM];  /* [ndim][nrun] ascending; mesh layouts only */

    rsi_overlap *list; /* [n] */
} rsi_overlaps;

/* `mem` provides the memory and must outlive the pieces. */
rsd_err rsi_overlaps_make(rsi_overlaps *pieces, const rsd_layout *mine, const rsd_layout *other,
                          int32_t rank, rsi_arena *mem, rsd_error *err);
/* Gets the box of piece i < n; returns which of my boxes contains it. */
size_t rsi_overlaps_get(const rsi_overlaps *pieces, size_t i, rsd_box *out);
/* Its rsi_overlap.where. */
int64_t rsi_overlaps_where(const rsi_overlaps *pieces, size_t i);
/* Which of my boxes contains `box`; one of them must. */
size_t rsi_overlaps_my_box(const rsi_overlaps *pieces, const rsd_box *box);
/* The number of the chunk at mesh coordinates, as in `chunk` of its pieces. */
int64_t rsi_layout_chunk(const rsd_layout *layout, const int64_t *mesh_coord);

/* Iterates over the pieces in order, cheaply. */
typedef struct rsi_overlap_iter {
    const rsi_overlaps *pieces;
    size_t              i;                       /* the current piece; n: the end */
    size_t              at[RSD_MAX_NDIM];        /* product: the cut in each dimension */
    int64_t             place[RSD_MAX_NDIM + 1]; /* product: sums over the preceding dimensions */
    int64_t             chunk[RSD_MAX_NDIM + 1];
    int64_t             count[RSD_MAX_NDIM + 1]; /* and their products: elements */
} rsi_overlap_iter;

void    rsi_iter_begin(rsi_overlap_iter *it, const rsi_overlaps *pieces);
void    rsi_iter_next(rsi_overlap_iter *it);
int64_t rsi_iter_where(const rsi_overlap_iter *it);
int64_t rsi_iter_chunk(const rsi_overlap_iter *it);
size_t  rsi_iter_my_box(const rsi_overlap_iter *it); /* for listed pieces; else 0 */
int64_t rsi_iter_count(const rsi_overlap_iter *it);  /* elements */

#endif
