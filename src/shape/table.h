/* SPDX-License-Identifier: Apache-2.0 */
/* The irregular kind of layout: a table of boxes and their holders. Equal boxes are one row with
 * several holders. */
#ifndef RSI_TABLE_H
#define RSI_TABLE_H

#include "base/arena.h"
#include "shape/boxtree.h"

typedef struct rsi_table {
    rsi_boxes   boxes; /* distinct, ordered by offset (rsi_box_order) */
    rsi_boxtree tree;
    size_t     *hold_first; /* [boxes.n + 1] holders of box b are holder[hold_first[b]] .. */
    int32_t    *holder;     /* ranks, ascending for each box */
    size_t      nranks;
    int32_t    *rank;       /* [nranks] ascending */
    size_t     *part_first; /* [nranks + 1] rank[r]'s part is part[part_first[r]] .. */
    uint32_t   *part;       /* rows of `boxes`, in the order given */
    int64_t    *part_elems; /* [part] elements in the rank's earlier boxes */
    rsi_arena   mem;
} rsi_table;

/* A box from a caller, before it is checked. */
typedef struct rsi_given {
    int32_t owner;
    rsd_box box;
} rsi_given;

/* Refuses boxes outside `shape`, boxes that overlap without being equal, a box given twice to one
 * rank and, if they must `cover` the tensor, holes; names the first bad one. Empty boxes are
 * skipped. On error nothing is kept. */
rsd_err rsi_table_build(rsi_table *table, int ndim, const int64_t *shape, size_t n,
                        const rsi_given *given, bool cover, rsd_error *err);
void    rsi_table_release(rsi_table *table);

/* A rank's rows are part[first .. first + n - 1], in the order given; returns n. */
size_t rsi_table_part(const rsi_table *table, int32_t rank, size_t *first);
/* The holders of a row, ascending. */
const int32_t *rsi_table_holders(const rsi_table *table, size_t row, size_t *n);
/* A rank's index among the holders of a row; -1 if it is not one of them. */
int64_t rsi_table_holder_index(const rsi_table *table, size_t row, int32_t rank);

#endif
