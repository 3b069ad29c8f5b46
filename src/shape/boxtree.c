/* SPDX-License-Identifier: Apache-2.0 */
/* A balanced tree of bounding boxes, split at the median of the widest dimension; stored in flat
 * arrays. */
#include "shape/boxtree.h"
#include "base/checked.h"
#include "shape/box.h"

#include <string.h>

#define LEAF 8 /* boxes in a range that is not split further */

rsd_box rsi_boxes_get(const rsi_boxes *boxes, size_t i)
{
    const int64_t *at = boxes->at + 2 * (size_t)boxes->ndim * i;
    rsd_box        box = { .ndim = boxes->ndim };

    memcpy(box.off, at, (size_t)boxes->ndim * sizeof(*at));
    memcpy(box.len, at + boxes->ndim, (size_t)boxes->ndim * sizeof(*at));
    return box;
}

void rsi_boxes_set(rsi_boxes *boxes, size_t i, const rsd_box *box)
{
    int64_t *at = boxes->at + 2 * (size_t)boxes->ndim * i;

    memcpy(at, box->off, (size_t)boxes->ndim * sizeof(*at));
    memcpy(at + boxes->ndim, box->len, (size_t)boxes->ndim * sizeof(*at));
}

static int64_t start_of(const rsi_boxes *boxes, uint32_t i, int d)
{
    return boxes->at[2 * (size_t)boxes->ndim * i + (size_t)d];
}

/* Stores the bounding box of order[lo .. hi-1] in node k; returns the dimension in which the starts
 * spread most. */
static int bound(rsi_boxtree *tree, size_t k, size_t lo, size_t hi)
{
    const rsi_boxes *boxes = tree->boxes;
    int64_t         *low = tree->node + 2 * (size_t)boxes->ndim * k;
    int64_t         *high = low + boxes->ndim;
    int64_t          widest = -1;
    int              best = 0;

    for (int d = 0; d < boxes->ndim; d++) {
        int64_t last = INT64_MIN;

        low[d] = INT64_MAX;
        high[d] = INT64_MIN;
        for (size_t i = lo; i < hi; i++) {
            int64_t start = start_of(boxes, tree->order[i], d);

            low[d] = rsi_min(low[d], start);
            last = rsi_max(last, start);
            high[d] = rsi_max(high[d], start + start_of(boxes, tree->order[i], boxes->ndim + d));
        }
        if (last - low[d] > widest) {
            widest = last - low[d];
            best = d;
        }
    }
    return best;
}

/* Quickselect: moves the boxes with the lower starts in dimension d before `mid`. */
static void halve(const rsi_boxes *boxes, uint32_t *order, size_t lo, size_t hi, size_t mid, int d)
{
    while (hi - lo > 1) {
        int64_t  pivot = start_of(boxes, order[lo + (hi - lo - 1) / 2], d); /* never the last box */
        size_t   i = lo, j = hi - 1;
        uint32_t swap;

        for (;;) {
            while (start_of(boxes, order[i], d) < pivot)
                i++;
            while (start_of(boxes, order[j], d) > pivot)
                j--;
            if (i >= j)
                break;
            swap = order[i];
            order[i++] = order[j];
            order[j--] = swap;
        }
        /* order[lo .. j] <= pivot <= order[j+1 .. hi-1] */
        if (mid <= j)
            hi = j + 1;
        else
            lo = j + 1;
    }
}

static void build(rsi_boxtree *tree, size_t k, size_t lo, size_t hi)
{
    int    d = bound(tree, k, lo, hi);
    size_t mid = lo + (hi - lo) / 2;

    if (hi - lo <= LEAF)
        return;
    halve(tree->boxes, tree->order, lo, hi, mid, d);
    build(tree, 2 * k, lo, mid);
    build(tree, 2 * k + 1, mid, hi);
}

rsd_err rsi_boxtree_build(rsi_boxtree *tree, const rsi_boxes *boxes, rsi_arena *mem, rsd_error *err)
{
    size_t nodes = 2;

    if (boxes->n > INT32_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "%zu boxes in one layout are too many", boxes->n);
    for (size_t n = boxes->n; n > LEAF; n = n - n / 2)
        nodes *= 2;
    *tree = (rsi_boxtree){ .boxes = boxes, .nodes = nodes };
    tree->order = rsi_arena_array(mem, boxes->n, sizeof(tree->order[0]));
    tree->node = rsi_arena_array(mem, nodes, 2 * (size_t)boxes->ndim * sizeof(tree->node[0]));
    if (!tree->order || !tree->node)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for an index of %zu boxes", boxes->n);
    for (size_t i = 0; i < boxes->n; i++)
        tree->order[i] = (uint32_t)i;
    if (boxes->n > 0)
        build(tree, 1, 0, boxes->n);
    return RSD_OK;
}

static bool meets(const int64_t *low, const int64_t *high, const rsd_box *query)
{
    for (int d = 0; d < query->ndim; d++)
        if (query->off[d] >= high[d] || low[d] >= query->off[d] + query->len[d])
            return false;
    return true;
}

static bool search(const rsi_boxtree *tree, size_t k, size_t lo, size_t hi, const rsd_box *query,
                   bool (*hit)(void *arg, uint32_t i), void *arg)
{
    const int64_t *low = tree->node + 2 * (size_t)query->ndim * k;
    size_t         mid = lo + (hi - lo) / 2;

    if (!meets(low, low + query->ndim, query))
        return true;
    if (hi - lo > LEAF)
        return search(tree, 2 * k, lo, mid, query, hit, arg) &&
               search(tree, 2 * k + 1, mid, hi, query, hit, arg);
    for (size_t i = lo; i < hi; i++) {
        rsd_box box = rsi_boxes_get(tree->boxes, tree->order[i]);

        if (rsd_box_intersect(&box, query, NULL) && !hit(arg, tree->order[i]))
            return false;
    }
    return true;
}

void rsi_boxtree_find(const rsi_boxtree *tree, const rsd_box   *query,
                      bool (*hit)(void *arg, uint32_t i), void *arg)
{
    if (tree->boxes->n > 0)
        search(tree, 1, 0, tree->boxes->n, query, hit, arg);
}

static bool note_other(void *arg, uint32_t i)
{
    uint32_t *pair = arg;

    pair[1] = i;
    return i == pair[0];
}

bool rsi_boxtree_overlap(const rsi_boxtree *tree, uint32_t pair[2], char *a, char *b)
{
    for (uint32_t i = 0; i < tree->boxes->n; i++) {
        rsd_box box = rsi_boxes_get(tree->boxes, i), other;

        pair[0] = pair[1] = i;
        rsi_boxtree_find(tree, &box, note_other, pair);
        if (pair[1] == i)
            continue;
        other = rsi_boxes_get(tree->boxes, pair[1]);
        rsd_box_text(&box, a, RSI_BOX_TEXT);
        rsd_box_text(&other, b, RSI_BOX_TEXT);
        return true;
    }
    return false;
}
