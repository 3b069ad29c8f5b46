/* SPDX-License-Identifier: Apache-2.0 */
/* An index over a fixed set of boxes: finds those that intersect a given one without visiting the
 * others. For irregular layouts; regular ones use arithmetic (placement.h). */
#ifndef RSI_BOXTREE_H
#define RSI_BOXTREE_H

#include "base/arena.h"
#include "base/error.h"

/* Boxes without their unused dimensions: box i has its offsets at at[2 * ndim * i], followed by its
 * lengths. */
typedef struct rsi_boxes {
    int32_t  ndim;
    size_t   n;
    int64_t *at; /* [n][2][ndim] */
} rsi_boxes;

rsd_box rsi_boxes_get(const rsi_boxes *boxes, size_t i);
void    rsi_boxes_set(rsi_boxes *boxes, size_t i, const rsd_box *box);

typedef struct rsi_boxtree {
    const rsi_boxes *boxes;
    uint32_t        *order; /* [n] box numbers, so that nearby boxes are adjacent */
    int64_t *node; /* [nodes][2][ndim] lowest and highest corner of a range of `order`; node 1 is
                      the root, the halves of node k are nodes 2k and 2k + 1 */
    size_t nodes;
} rsi_boxtree;

/* O(n log n); `boxes` and `mem` must outlive the tree. At most 2^31 boxes. */
rsd_err rsi_boxtree_build(rsi_boxtree *tree, const rsi_boxes *boxes, rsi_arena *mem,
                          rsd_error *err);
/* Calls `hit` for every box that shares an element with `query`, in no particular order, until it
 * returns false. */
void rsi_boxtree_find(const rsi_boxtree *tree, const rsd_box   *query,
                      bool (*hit)(void *arg, uint32_t i), void *arg);
/* Finds the first two boxes that share an element and writes their texts, RSI_BOX_TEXT bytes each.
 */
bool rsi_boxtree_overlap(const rsi_boxtree *tree, uint32_t pair[2], char *a, char *b);

#endif
