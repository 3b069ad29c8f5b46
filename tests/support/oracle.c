/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.c - lists of indices, cut by hand. See oracle.h; test_random_plans.c compares the library
 * with it. */
#include "oracle.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The indices that are left of one dimension. */
typedef struct list {
    int64_t  n;
    int64_t *at;
} list;

static void *zeros(int64_t n, size_t size)
{
    void *p = calloc(n > 0 ? (size_t)n : 1, size);

    if (!p)
        abort();
    return p;
}

static void start(oracle *o, int32_t world, int ndim, const int64_t *shape)
{
    o->count = 1;
    for (int d = 0; d < ndim; d++)
        o->count *= shape[d];
    o->world = world;
    o->parts = 1;
    o->held = zeros(world, sizeof(*o->held));
    o->part = zeros(world, sizeof(*o->part));
    o->pos = zeros(world * o->count, sizeof(*o->pos));
    memset(o->pos, 0xff, sizeof(*o->pos) * (size_t)(world * o->count)); /* all -1 */
}

void oracle_free(oracle *o)
{
    free(o->held);
    free(o->part);
    free(o->pos);
    memset(o, 0, sizeof(*o));
}

int64_t oracle_pos(const oracle *o, int32_t rank, int64_t e)
{
    assert(rank >= 0 && rank < o->world && e >= 0 && e < o->count);
    return o->pos[rank * o->count + e];
}

/* The rank's next element in memory is e. */
static void append(oracle *o, int32_t rank, int64_t e)
{
    assert(oracle_pos(o, rank, e) < 0);
    o->pos[rank * o->count + e] = o->held[rank]++;
}

int64_t oracle_element(int ndim, const int64_t *shape, const int64_t *index)
{
    int64_t e = 0;

    for (int d = 0; d < ndim; d++)
        e = e * shape[d] + index[d];
    return e;
}

bool oracle_first(const rsd_box *box, int64_t *index)
{
    for (int d = 0; d < box->ndim; d++) {
        if (box->len[d] <= 0)
            return false;
        index[d] = box->off[d];
    }
    return true;
}

bool oracle_next(const rsd_box *box, int64_t *index)
{
    for (int d = box->ndim - 1; d >= 0; d--) {
        if (++index[d] < box->off[d] + box->len[d])
            return true;
        index[d] = box->off[d];
    }
    return false;
}

bool oracle_holds(const rsd_box *outer, const rsd_box *inner)
{
    bool in = outer->ndim == inner->ndim;

    for (int d = 0; in && d < outer->ndim; d++)
        in = inner->len[d] > 0 && inner->off[d] >= outer->off[d] &&
             inner->off[d] + inner->len[d] <= outer->off[d] + outer->len[d];
    return in;
}

bool oracle_same(const rsd_box *a, const rsd_box *b)
{
    return oracle_holds(a, b) && oracle_holds(b, a);
}

bool oracle_starts_before(const rsd_box *a, const rsd_box *b)
{
    for (int d = 0; d < a->ndim; d++)
        if (a->off[d] != b->off[d])
            return a->off[d] < b->off[d];
    return false;
}

/* torch.chunk: where piece i of n in k pieces starts; it ends where piece i + 1 starts. */
static int64_t chunk_start(int64_t n, int64_t k, int64_t i)
{
    int64_t each = n / k + (n % k > 0);

    return each * i < n ? each * i : n;
}

/* Cuts the list into `split` pieces and each of these into k; keeps the i-th of each. What is kept
 * moves to the front only, so it can be done in place. */
static void cut(list *l, int64_t split, int64_t k, int64_t i)
{
    int64_t kept = 0;

    for (int64_t s = 0; s < split; s++) {
        int64_t outer = chunk_start(l->n, split, s);
        int64_t n = chunk_start(l->n, split, s + 1) - outer;

        for (int64_t j = chunk_start(n, k, i); j < chunk_start(n, k, i + 1); j++)
            l->at[kept++] = l->at[outer + j];
    }
    l->n = kept;
}

/* Applies the placements, in axis order, to the lists of the rank at `coord`. */
static void cut_lists(list *lists, int ndim, int axes, const int64_t *mesh, const int64_t *coord,
                      const rsd_placement *place)
{
    for (int a = 0; a < axes; a++) {
        int d = place[a].dim < 0 ? place[a].dim + ndim : place[a].dim;

        if (place[a].kind == RSD_SHARD)
            cut(&lists[d], 1, mesh[a], coord[a]);
        else if (place[a].kind == RSD_STRIDED)
            cut(&lists[d], place[a].split, mesh[a], coord[a]);
    }
}

/* The rank holds every combination of the indices in its lists, in row-major order. */
static void append_lists(oracle *o, int32_t rank, int ndim, const int64_t *shape, const list *lists)
{
    rsd_box local = { .ndim = ndim };
    int64_t i[RSD_MAX_NDIM], index[RSD_MAX_NDIM];

    for (int d = 0; d < ndim; d++)
        local.len[d] = lists[d].n;
    if (!oracle_first(&local, i))
        return;
    do {
        for (int d = 0; d < ndim; d++)
            index[d] = lists[d].at[i[d]];
        append(o, rank, oracle_element(ndim, shape, index));
    } while (oracle_next(&local, i));
}

/* Numbers the contributions by the coordinates on the Partial axes. */
static int32_t part_of(int axes, const int64_t *mesh, const int64_t *coord,
                       const rsd_placement *place)
{
    int64_t part = 0;

    for (int a = 0; a < axes; a++)
        if (place[a].kind == RSD_PARTIAL)
            part = part * mesh[a] + coord[a];
    return (int32_t)part;
}

void oracle_mesh(oracle *o, int32_t world, int ndim, const int64_t *shape, int axes,
                 const int64_t *mesh, const int32_t *ranks, const rsd_placement *place)
{
    rsd_box grid = { .ndim = axes };
    list    lists[RSD_MAX_NDIM];
    int64_t coord[RSD_MAX_NDIM];

    assert(axes <= RSD_MAX_NDIM);
    start(o, world, ndim, shape);
    for (int32_t r = 0; r < world; r++)
        o->part[r] = -1;
    for (int a = 0; a < axes; a++) {
        grid.len[a] = mesh[a];
        if (place[a].kind == RSD_PARTIAL)
            o->parts *= (int32_t)mesh[a];
    }
    for (int d = 0; d < ndim; d++)
        lists[d].at = zeros(shape[d], sizeof(*lists[d].at));
    oracle_first(&grid, coord);
    do {
        int32_t rank = ranks[oracle_element(axes, mesh, coord)];

        for (int d = 0; d < ndim; d++)
            for (lists[d].n = 0; lists[d].n < shape[d]; lists[d].n++)
                lists[d].at[lists[d].n] = lists[d].n;
        cut_lists(lists, ndim, axes, mesh, coord, place);
        append_lists(o, rank, ndim, shape, lists);
        o->part[rank] = part_of(axes, mesh, coord, place);
    } while (oracle_next(&grid, coord));
    for (int d = 0; d < ndim; d++)
        free(lists[d].at);
}

void oracle_boxes(oracle *o, int32_t world, int ndim, const int64_t *shape, size_t n,
                  const int32_t *owner, const rsd_box *box)
{
    int64_t index[RSD_MAX_NDIM];

    start(o, world, ndim, shape);
    for (size_t i = 0; i < n; i++) {
        if (!oracle_first(&box[i], index))
            continue;
        do
            append(o, owner[i], oracle_element(ndim, shape, index));
        while (oracle_next(&box[i], index));
    }
}

void oracle_ranges(oracle *o, int32_t world, int ndim, const int64_t *shape, size_t n,
                   const int32_t *owner, const int64_t *first, const int64_t *count)
{
    start(o, world, ndim, shape);
    for (size_t i = 0; i < n; i++)
        for (int64_t e = first[i]; e < first[i] + count[i]; e++)
            append(o, owner[i], e);
}
