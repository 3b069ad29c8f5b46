/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for callers of live resharding: views of a layout's memory, torch's shards. */
#include "shape/box.h"
#include "shape/layout.h"

#include <reshard/reshard_live.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

size_t rsd_layout_views(const rsd_layout *layout, int32_t rank, void *data, rsd_view *out,
                        size_t cap)
{
    size_t n = rsd_layout_boxes(layout, rank, NULL, 0);

    for (size_t i = 0; out && i < n && i < cap; i++) {
        rsd_local local;

        if (rsd_layout_local(layout, rank, i, &local, NULL) != RSD_OK)
            return i;
        out[i] = (rsd_view){ .box = local.box, .data = (char *)data + local.offset };
        memcpy(out[i].stride, local.stride, sizeof(local.stride));
    }
    return n;
}

static int by_rank(const void *a, const void *b)
{
    const rsd_shard *x = a, *y = b;

    return (x->rank > y->rank) - (x->rank < y->rank);
}

rsd_err rsd_chunk_shards(int32_t dim, size_t n, const int32_t *ranks, int ndim,
                         const int64_t *shape, rsd_shard *out, rsd_error *err)
{
    int64_t elems, each, start = 0;
    rsd_err rc;

    if (n == 0 || !ranks || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: ranks or output for their shards");
    rc = rsi_shape_check(RSD_U8, ndim, shape, &elems, err);
    if (rc)
        return rc;
    if (dim < -ndim || dim >= ndim)
        return rsi_fail(err, RSD_E_INVALID,
                        "dimension %" PRId32 " is out of range for %d dimensions", dim, ndim);
    dim += dim < 0 ? ndim : 0;
    each = shape[dim] / (int64_t)n + (shape[dim] % (int64_t)n != 0);
    for (size_t i = 0; i < n; i++) {
        int64_t left = shape[dim] - start;

        out[i] = (rsd_shard){ .rank = ranks[i], .box.ndim = ndim };
        memcpy(out[i].box.len, shape, (size_t)ndim * sizeof(shape[0]));
        out[i].box.off[dim] = start;
        out[i].box.len[dim] = each < left ? each : left;
        start += out[i].box.len[dim];
    }
    qsort(out, n, sizeof(out[0]), by_rank);
    for (size_t i = 1; i < n; i++)
        if (out[i].rank == out[i - 1].rank)
            return rsi_fail(err, RSD_E_INVALID, "rank %" PRId32 " is listed twice", out[i].rank);
    return RSD_OK;
}
