/* SPDX-License-Identifier: Apache-2.0 */
/* Do the chunks of a tensor tile it? Nearly always they are consecutive slices or a grid; both are
 * recognized in one pass. Anything else is checked with a tree of boxes, which can also say what is
 * wrong. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/ckpt.h"
#include "shape/box.h"
#include "shape/uncovered.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct tiling {
    int            ndim;
    const int64_t *shape;
    size_t         n;
    void (*get)(const void *arg, size_t i, rsd_box *out);
    const void *arg;
} tiling;

/* The first non-empty box from number *i on; false: none. */
static bool next_box(const tiling *t, size_t *i, rsd_box *box)
{
    for (; *i < t->n; ++*i) {
        t->get(t->arg, *i, box);
        if (rsd_box_count(box) > 0)
            return true;
    }
    return false;
}

/* True if the chunks cut one dimension only, in order and without gaps. */
static bool are_slices(const tiling *t)
{
    int64_t next = 0;
    int     cut = -1;
    rsd_box box;

    for (size_t i = 0; next_box(t, &i, &box); i++) {
        for (int d = 0; d < t->ndim; d++) {
            if (box.off[d] == 0 && box.len[d] == t->shape[d])
                continue;
            if (cut >= 0 && cut != d)
                return false;
            cut = d;
        }
        if (cut < 0) /* this chunk is the whole tensor */
            return t->n == 1;
        if (box.off[cut] != next)
            return false;
        next += box.len[cut];
    }
    return cut >= 0 && next == t->shape[cut];
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The distinct starts of the chunks in dimension d, rising, into edge[]; returns how many. */
static size_t find_edges(const tiling *t, int d, int64_t *edge)
{
    size_t  n = 0, kept = 0;
    rsd_box box;

    for (size_t i = 0; next_box(t, &i, &box); i++)
        edge[n++] = box.off[d];
    qsort(edge, n, sizeof(edge[0]), by_value);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || edge[i] != edge[kept - 1])
            edge[kept++] = edge[i];
    return kept;
}

/* The chunk's cell in the grid of all edges; false if the chunk does not end at the next edge in
 * some dimension. */
static bool cell_of(const tiling *t, const rsd_box *box, int64_t *const *edge, const size_t *nedges,
                    size_t *out)
{
    size_t cell = 0;

    for (int d = 0; d < t->ndim; d++) {
        const int64_t *hit = bsearch(&box->off[d], edge[d], nedges[d], sizeof(int64_t), by_value);
        size_t         k = hit ? (size_t)(hit - edge[d]) : 0;
        int64_t        end = k + 1 < nedges[d] ? edge[d][k + 1] : t->shape[d];

        if (!hit || box->off[d] + box->len[d] != end)
            return false;
        cell = cell * nedges[d] + k;
    }
    *out = cell;
    return true;
}

/* True if the chunks are exactly the cells of a grid, each once. Also false if there is no memory
 * to find out. */
static bool are_grid(const tiling *t)
{
    int64_t       *edge[RSD_MAX_NDIM] = { 0 };
    size_t         nedges[RSD_MAX_NDIM], cells = 1, found = 0, cell;
    unsigned char *seen = NULL;
    rsd_box        box;
    bool           ok = t->ndim > 0;

    for (int d = 0; ok && d < t->ndim; d++) {
        edge[d] = rsi_calloc(t->n, sizeof(int64_t));
        nedges[d] = edge[d] ? find_edges(t, d, edge[d]) : 0;
        ok = nedges[d] > 0 && edge[d][0] == 0 &&
             !__builtin_mul_overflow(cells, nedges[d], &cells) && cells <= t->n;
    }
    seen = ok ? rsi_calloc(cells, 1) : NULL;
    ok = seen != NULL;
    for (size_t i = 0; ok && next_box(t, &i, &box); i++) {
        ok = cell_of(t, &box, edge, nedges, &cell) && !seen[cell];
        if (ok)
            seen[cell] = 1;
        found += ok;
    }
    for (int d = 0; d < t->ndim; d++)
        rsi_free(edge[d]);
    rsi_free(seen);
    return ok && found == cells;
}

static rsd_err look_closely(const tiling *t, rsd_error *err)
{
    rsi_boxes   boxes = { .ndim = t->ndim };
    rsi_boxtree tree;
    rsi_arena   mem = { 0 };
    rsd_box     box;
    char        a[RSI_BOX_TEXT], b[RSI_BOX_TEXT];
    uint32_t    pair[2];
    rsd_err     rc;

    boxes.at = rsi_arena_array(&mem, t->n, 2 * (size_t)t->ndim * sizeof(boxes.at[0]));
    if (!boxes.at)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to check %zu chunks", t->n);
    for (size_t i = 0; next_box(t, &i, &box); i++)
        rsi_boxes_set(&boxes, boxes.n++, &box);
    rc = rsi_boxtree_build(&tree, &boxes, &mem, err);
    if (!rc && rsi_boxtree_overlap(&tree, pair, a, b))
        rc = rsi_fail(err, RSD_E_FORMAT, "the chunks %s and %s overlap", a, b);
    if (!rc && rsi_refuse_hole(&boxes, t->shape, err))
        rc = rsi_while(err, RSD_E_FORMAT, "chunks");
    if (rc && err)
        err->code = (int32_t)rc;
    rsi_arena_release(&mem);
    return rc;
}

rsd_err rsi_refuse_bad_tiles(int ndim, const int64_t *shape, size_t n,
                             void (*get)(const void *arg, size_t i, rsd_box *out), const void *arg,
                             rsd_error *err)
{
    tiling t = { .ndim = ndim, .shape = shape, .n = n, .get = get, .arg = arg };

    return are_slices(&t) || are_grid(&t) ? RSD_OK : look_closely(&t, err);
}
