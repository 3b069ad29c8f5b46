/* SPDX-License-Identifier: Apache-2.0 */
/* Builds and checks tables of boxes: sorts, merges replicas, refuses overlaps and holes.
 * uncovered.c finds the holes. */
#include "shape/table.h"
#include "base/checked.h"
#include "base/mem.h"
#include "shape/box.h"
#include "shape/uncovered.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Boxes while they are being sorted. */
typedef struct sorting {
    const rsi_given *given;
    size_t           n;     /* boxes that are not empty */
    size_t          *order; /* [n] indices into `given`, by box, then by owner */
    uint32_t        *row;   /* [given] the row of each box */
} sorting;

static int by_box_and_owner(const void *a, const void *b, void *arg)
{
    const rsi_given *given = arg;
    size_t           i = *(const size_t *)a, j = *(const size_t *)b;
    const rsi_given *x = &given[i], *y = &given[j];
    int              order = rsi_box_order(&x->box, &y->box);

    for (int d = 0; order == 0 && d < x->box.ndim; d++)
        order = (x->box.len[d] > y->box.len[d]) - (x->box.len[d] < y->box.len[d]);
    if (order == 0)
        order = (x->owner > y->owner) - (x->owner < y->owner);
    return order ? order : (i > j) - (i < j);
}

static rsd_err check_given(int ndim, const int64_t *shape, size_t n, const rsi_given *given,
                           sorting *sort, rsd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        rsd_err rc = rsi_box_check(&given[i].box, ndim, shape, err);

        if (rc)
            return rsi_while(err, rc, "box %zu of rank %" PRId32, i, given[i].owner);
        if (given[i].owner < 0 || given[i].owner == INT32_MAX)
            return rsi_fail(err, RSD_E_INVALID, "box %zu can't belong to rank %" PRId32, i,
                            given[i].owner);
        if (rsd_box_count(&given[i].box) > 0)
            sort->order[sort->n++] = i;
    }
    return RSD_OK;
}

/* Makes rows and holders from the sorted boxes. */
static rsd_err merge(rsi_table *table, sorting *sort, rsd_error *err)
{
    size_t rows = 0;
    char   text[RSI_BOX_TEXT];

    for (size_t i = 0; i < sort->n; i++) {
        const rsi_given *now = &sort->given[sort->order[i]];
        const rsi_given *before = i ? &sort->given[sort->order[i - 1]] : NULL;
        bool             same = before && rsi_box_equal(&before->box, &now->box);

        if (same && before->owner == now->owner) {
            rsd_box_text(&now->box, text, sizeof(text));
            return rsi_fail(err, RSD_E_INVALID, "rank %" PRId32 " is given the box %s twice",
                            now->owner, text);
        }
        if (!same) {
            table->hold_first[rows] = i;
            rsi_boxes_set(&table->boxes, rows++, &now->box);
        }
        table->holder[i] = now->owner;
        sort->row[sort->order[i]] = (uint32_t)(rows - 1);
    }
    table->hold_first[rows] = sort->n;
    table->boxes.n = rows;
    return RSD_OK;
}

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

static size_t rank_index(const rsi_table *table, int32_t rank)
{
    const int32_t *hit =
        table->nranks ? bsearch(&rank, table->rank, table->nranks, sizeof(rank), by_value) : NULL;

    return hit ? (size_t)(hit - table->rank) : table->nranks;
}

/* Lists each rank's rows, in the order given. */
static void make_parts(rsi_table *table, const sorting *sort, size_t ngiven)
{
    memcpy(table->rank, table->holder, sort->n * sizeof(table->rank[0]));
    qsort(table->rank, sort->n, sizeof(table->rank[0]), by_value);
    for (size_t i = 0; i < sort->n; i++)
        if (i == 0 || table->rank[i] != table->rank[table->nranks - 1])
            table->rank[table->nranks++] = table->rank[i];
    for (size_t i = 0; i < sort->n; i++)
        table->part_first[rank_index(table, table->holder[i]) + 1]++;
    for (size_t r = 0; r < table->nranks; r++)
        table->part_first[r + 1] += table->part_first[r];
    for (size_t i = 0; i < ngiven; i++)
        if (rsd_box_count(&sort->given[i].box) > 0)
            table->part[table->part_first[rank_index(table, sort->given[i].owner)]++] =
                sort->row[i];
    /* Each start has moved to the next rank's; shift them back. */
    for (size_t r = table->nranks; r > 0; r--)
        table->part_first[r] = table->part_first[r - 1];
    table->part_first[0] = 0;
}

/* Computes where each part's boxes lie in memory. */
static void place_parts(rsi_table *table)
{
    for (size_t r = 0; r < table->nranks; r++) {
        int64_t elems = 0;

        for (size_t i = table->part_first[r]; i < table->part_first[r + 1]; i++) {
            rsd_box box = rsi_boxes_get(&table->boxes, table->part[i]);

            table->part_elems[i] = elems;
            elems += rsd_box_count(&box);
        }
    }
}

static rsd_err refuse_overlaps(const rsi_table *table, rsd_error *err)
{
    char     a[RSI_BOX_TEXT], b[RSI_BOX_TEXT];
    uint32_t pair[2];

    if (!rsi_boxtree_overlap(&table->tree, pair, a, b))
        return RSD_OK;
    return rsi_fail(
        err, RSD_E_INVALID, "the box %s of rank %" PRId32 " overlaps the box %s of rank %" PRId32,
        a, table->holder[table->hold_first[pair[0]]], b, table->holder[table->hold_first[pair[1]]]);
}

static bool take_memory(rsi_table *table, int ndim, size_t kept)
{
    table->boxes.ndim = ndim;
    table->boxes.at =
        rsi_arena_array(&table->mem, kept, 2 * (size_t)ndim * sizeof(table->boxes.at[0]));
    table->hold_first = rsi_arena_array(&table->mem, kept + 1, sizeof(table->hold_first[0]));
    table->holder = rsi_arena_array(&table->mem, kept, sizeof(table->holder[0]));
    table->rank = rsi_arena_array(&table->mem, kept, sizeof(table->rank[0]));
    table->part_first = rsi_arena_array(&table->mem, kept + 1, sizeof(table->part_first[0]));
    table->part = rsi_arena_array(&table->mem, kept, sizeof(table->part[0]));
    table->part_elems = rsi_arena_array(&table->mem, kept, sizeof(table->part_elems[0]));
    return table->boxes.at && table->hold_first && table->holder && table->rank &&
           table->part_first && table->part && table->part_elems;
}

static rsd_err fill(rsi_table *table, int ndim, const int64_t *shape, size_t n, bool cover,
                    sorting *sort, rsd_error *err)
{
    rsd_err rc = check_given(ndim, shape, n, sort->given, sort, err);

    if (rc)
        return rc;
    if (!take_memory(table, ndim, sort->n))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a layout of %zu boxes", n);
    qsort_r(sort->order, sort->n, sizeof(sort->order[0]), by_box_and_owner,
            (void *)(uintptr_t)sort->given);
    rc = merge(table, sort, err);
    if (rc)
        return rc;
    make_parts(table, sort, n);
    place_parts(table);
    rc = rsi_boxtree_build(&table->tree, &table->boxes, &table->mem, err);
    if (!rc)
        rc = refuse_overlaps(table, err);
    if (!rc && cover)
        rc = rsi_refuse_hole(&table->boxes, shape, err);
    return rc;
}

rsd_err rsi_table_build(rsi_table *table, int ndim, const int64_t *shape, size_t n,
                        const rsi_given *given, bool cover, rsd_error *err)
{
    sorting sort = { .given = given };
    rsd_err rc;

    *table = (rsi_table){ 0 };
    sort.order = rsi_calloc(n, sizeof(sort.order[0]));
    sort.row = rsi_calloc(n, sizeof(sort.row[0]));
    if (!sort.order || !sort.row)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to sort %zu boxes", n);
    else if (n > INT32_MAX)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED, "%zu boxes in one layout are too many", n);
    else
        rc = fill(table, ndim, shape, n, cover, &sort, err);
    rsi_free(sort.order);
    rsi_free(sort.row);
    if (rc)
        rsi_table_release(table);
    return rc;
}

void rsi_table_release(rsi_table *table)
{
    rsi_arena_release(&table->mem);
    *table = (rsi_table){ 0 };
}

size_t rsi_table_part(const rsi_table *table, int32_t rank, size_t *first)
{
    size_t r = rank_index(table, rank);

    *first = r < table->nranks ? table->part_first[r] : 0;
    return r < table->nranks ? table->part_first[r + 1] - *first : 0;
}

const int32_t *rsi_table_holders(const rsi_table *table, size_t row, size_t *n)
{
    *n = table->hold_first[row + 1] - table->hold_first[row];
    return table->holder + table->hold_first[row];
}

int64_t rsi_table_holder_index(const rsi_table *table, size_t row, int32_t rank)
{
    size_t         n;
    const int32_t *holder = rsi_table_holders(table, row, &n);
    const int32_t *hit = bsearch(&rank, holder, n, sizeof(rank), by_value);

    return hit ? hit - holder : -1;
}
