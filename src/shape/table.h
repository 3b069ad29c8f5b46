/* SPDX-License-Identifier: Apache-2.0 */
/* The irregular kind of layout: a table of boxes and who holds them. Equal boxes are one row with
 * several holders. */
#ifndef RSI_TABLE_H
#define RSI_TABLE_H

#include "base/arena.h"
#include "shape/boxtree.h"

typedef struct rsi_table {
    rsi_boxes   boxes; /* different ones only, by offset (rsi_box_order) */
    rsi_boxtree tree;
    size_t     *hold_first; /* [boxes.n + 1] holders of box b are holder[hold_first[b]] .. */
    int32_t    *holder;     /* ranks, rising for each box */
    size_t      nranks;
    int32_t    *rank;       /* [nranks] rising */
    size_t     *part_first; /* [nranks + 1] the part of rank[r] is part[part_first[r]] .. */
    uint32_t   *part;       /* rows of `boxes`, in the order they were given */
    int64_t    *part_elems; /* [part] elements of the rank's boxes before this one */
    rsi_arena   mem;
} rsi_table;

/* A box that somebody gave, before it is believed. */
typedef struct rsi_given {
    int32_t owner;
    rsd_box box;
} rsi_given;

/* Refuses boxes outside `shape`, boxes that overlap without being equal, a box given twice to one
 * rank and, if they must `cover` the tensor, holes; names the first bad one. Empty boxes are left
 * out. On error nothing is kept. */
rsd_err rsi_table_build(rsi_table *table, int ndim, const int64_t *shape, size_t n,
                        const rsi_given *given, bool cover, rsd_error *err);
void    rsi_table_release(rsi_table *table);

/* The rows that a rank holds are part[first .. first + n - 1], in the order they were given;
 * returns n. */
size_t rsi_table_part(const rsi_table *table, int32_t rank, size_t *first);
/* The holders of a row, rising. */
const int32_t *rsi_table_holders(const rsi_table *table, size_t row, size_t *n);
/* The place of a rank among the holders of a row; -1 if it does not hold it. */
int64_t rsi_table_holder_index(const rsi_table *table, size_t row, int32_t rank);

#endif
