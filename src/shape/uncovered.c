/* SPDX-License-Identifier: Apache-2.0 */
/* Disjoint boxes leave a hole exactly when their volumes add up to less than the tensor's. To name
 * it, the tensor is swept one dimension at a time: the first slab whose cross-section is not full
 * contains the first hole. */
#include "shape/uncovered.h"
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"
#include "shape/box.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Where a box's cross-section starts or stops counting. */
typedef struct edge {
    int64_t at, area; /* area < 0: the box ends */
} edge;

static int by_place(const void *a, const void *b)
{
    const edge *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

static int64_t area_behind(int ndim, const int64_t *len, int d)
{
    int64_t area = 1;

    for (int k = d + 1; k < ndim; k++)
        area *= len[k];
    return area;
}

/* The first index in dimension d at which the boxes live[0..n-1] don't fill the cross-section of
 * `shape`. */
static int64_t first_gap(const rsi_boxes *boxes, const uint32_t *live, size_t n, int d,
                         const int64_t *shape, edge *edges)
{
    int64_t full = area_behind(boxes->ndim, shape, d);
    int64_t area = 0, at = 0;

    for (size_t i = 0; i < n; i++) {
        rsd_box box = rsi_boxes_get(boxes, live[i]);
        int64_t mine = area_behind(boxes->ndim, box.len, d);

        edges[2 * i] = (edge){ .at = box.off[d], .area = mine };
        edges[2 * i + 1] = (edge){ .at = box.off[d] + box.len[d], .area = -mine };
    }
    qsort(edges, 2 * n, sizeof(edges[0]), by_place);
    for (size_t i = 0; i < 2 * n;) {
        if (edges[i].at > at && area < full)
            return at;
        at = edges[i].at;
        while (i < 2 * n && edges[i].at == at)
            area += edges[i++].area;
    }
    return at;
}

static void find_hole(const rsi_boxes *boxes, const int64_t *shape, uint32_t *live, edge *edges,
                      int64_t *hole)
{
    size_t n = boxes->n;

    for (size_t i = 0; i < n; i++)
        live[i] = (uint32_t)i;
    for (int d = 0; d < boxes->ndim; d++) {
        size_t kept = 0;

        hole[d] = first_gap(boxes, live, n, d, shape, edges);
        for (size_t i = 0; i < n; i++) {
            rsd_box box = rsi_boxes_get(boxes, live[i]);

            if (box.off[d] <= hole[d] && hole[d] < box.off[d] + box.len[d])
                live[kept++] = live[i];
        }
        n = kept;
    }
}

rsd_err rsi_refuse_hole(const rsi_boxes *boxes, const int64_t *shape, rsd_error *err)
{
    int64_t   all = 1, held = 0, hole[RSD_MAX_NDIM];
    char      where[RSI_BOX_TEXT];
    rsi_text  text = rsi_text_begin(where, sizeof(where));
    uint32_t *live;
    edge     *edges;

    for (int d = 0; d < boxes->ndim; d++)
        all *= shape[d];
    for (size_t i = 0; i < boxes->n; i++) {
        rsd_box box = rsi_boxes_get(boxes, i);

        held += rsd_box_count(&box);
    }
    if (held == all)
        return RSD_OK;
    live = rsi_calloc(boxes->n, sizeof(live[0]));
    edges = rsi_calloc(boxes->n, 2 * sizeof(edges[0]));
    if (live && edges) {
        find_hole(boxes, shape, live, edges, hole);
        for (int d = 0; d < boxes->ndim; d++)
            rsi_text_add(&text, "%s%" PRId64, d ? ", " : "", hole[d]);
    }
    rsi_free(live);
    rsi_free(edges);
    if (!live || !edges)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to find the hole that %zu boxes leave",
                        boxes->n);
    return rsi_fail(err, RSD_E_INVALID,
                    "the boxes leave a hole: no box holds element [%s]; they cover %" PRId64
                    " of %" PRId64 " elements",
                    where, held, all);
}
