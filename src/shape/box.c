/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes: intersect, compare, print, check. No state, no memory. Next: placement.c. */
#include "shape/box.h"
#include "base/checked.h"
#include "base/text.h"

#include <reshard/reshard_live.h>
#include <assert.h>
#include <inttypes.h>
#include <string.h>

int64_t rsd_box_count(const rsd_box *box)
{
    int64_t count = 1;

    for (int d = 0; d < box->ndim; d++)
        count *= box->len[d];
    return count;
}

bool rsd_box_intersect(const rsd_box *a, const rsd_box *b, rsd_box *out)
{
    rsd_box hit = { .ndim = a->ndim };

    if (a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++) {
        int64_t lo = rsi_max(a->off[d], b->off[d]);
        int64_t hi = rsi_min(a->off[d] + a->len[d], b->off[d] + b->len[d]);

        if (hi <= lo)
            return false;
        hit.off[d] = lo;
        hit.len[d] = hi - lo;
    }
    if (out)
        *out = hit;
    return true;
}

bool rsd_box_overlap(const rsd_box *saved, const rsd_box *wanted, rsd_overlap *out)
{
    rsd_box hit;

    if (!rsd_box_intersect(saved, wanted, &hit))
        return false;
    for (int32_t d = 0; d < hit.ndim; d++)
        out[d] = (rsd_overlap){ .dim = d,
                                .saved_off = hit.off[d] - saved->off[d],
                                .wanted_off = hit.off[d] - wanted->off[d],
                                .len = hit.len[d] };
    return true;
}

size_t rsd_box_text(const rsd_box *box, char *buf, size_t cap)
{
    rsi_text text = rsi_text_begin(buf, cap);

    rsi_text_add(&text, "[");
    for (int d = 0; d < box->ndim && d < RSD_MAX_NDIM; d++) {
        int64_t end;

        if (!rsi_add(box->off[d], box->len[d], &end))
            end = INT64_MAX; /* the box may not have been checked yet */
        rsi_text_add(&text, "%s%" PRId64 ":%" PRId64, d ? ", " : "", box->off[d], end);
    }
    rsi_text_add(&text, "]");
    return text.len;
}

bool rsi_box_equal(const rsd_box *a, const rsd_box *b)
{
    size_t bytes = (size_t)a->ndim * sizeof(a->off[0]);

    return a->ndim == b->ndim && memcmp(a->off, b->off, bytes) == 0 &&
           memcmp(a->len, b->len, bytes) == 0;
}

int rsi_box_order(const rsd_box *a, const rsd_box *b)
{
    assert(a->ndim == b->ndim);
    for (int d = 0; d < a->ndim; d++)
        if (a->off[d] != b->off[d])
            return a->off[d] < b->off[d] ? -1 : 1;
    return 0;
}

rsd_err rsi_shape_check(rsd_dtype dtype, int ndim, const int64_t *shape, int64_t *elems,
                        rsd_error *err)
{
    int64_t bytes;

    if (rsd_dtype_size(dtype) == 0)
        return rsi_fail(err, RSD_E_INVALID, "%d is not a dtype", (int)dtype);
    if (ndim < 0)
        return rsi_fail(err, RSD_E_INVALID, "a tensor can't have %d dimensions", ndim);
    if (ndim > RSD_MAX_NDIM)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "a tensor of %d dimensions is not supported: the maximum is %d", ndim,
                        RSD_MAX_NDIM);
    if (ndim > 0 && !shape)
        return rsi_fail(err, RSD_E_INVALID, "a tensor of %d dimensions needs a shape", ndim);
    for (int d = 0; d < ndim; d++)
        if (shape[d] < 0)
            return rsi_fail(err, RSD_E_INVALID, "dimension %d has the size %" PRId64, d, shape[d]);
    if (!rsi_product(ndim, shape, (int64_t)rsd_dtype_size(dtype), &bytes))
        return rsi_fail(err, RSD_E_INVALID, "the bytes of the tensor don't fit into 64 bits");
    *elems = bytes / (int64_t)rsd_dtype_size(dtype);
    return RSD_OK;
}

rsd_err rsi_box_check(const rsd_box *box, int ndim, const int64_t *shape, rsd_error *err)
{
    char text[RSI_BOX_TEXT];

    if (box->ndim != ndim)
        return rsi_fail(err, RSD_E_INVALID, "it has %d dimensions, the tensor has %d",
                        (int)box->ndim, ndim);
    for (int d = 0; d < ndim; d++) {
        int64_t end;

        if (box->len[d] < 0)
            return rsi_fail(err, RSD_E_INVALID, "its size in dimension %d is %" PRId64, d,
                            box->len[d]);
        if (box->off[d] < 0 || !rsi_add(box->off[d], box->len[d], &end) || end > shape[d]) {
            rsd_box_text(box, text, sizeof(text));
            return rsi_fail(err, RSD_E_INVALID,
                            "%s falls outside the tensor, dimension %d has the size %" PRId64, text,
                            d, shape[d]);
        }
    }
    return RSD_OK;
}

void rsi_strides(int ndim, const int64_t *len, int64_t elem_bytes, int64_t *stride)
{
    int64_t bytes = elem_bytes;

    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = bytes;
        bytes *= len[d];
    }
}

int64_t rsi_range_box(int ndim, const int64_t *shape, int64_t at, int64_t end, rsd_box *out)
{
    int64_t row[RSD_MAX_NDIM]; /* elements per step in dimension d */
    int64_t left = at, rows;
    int     d = 0;

    rsi_strides(ndim, shape, 1, row);
    *out = (rsd_box){ .ndim = ndim };
    if (ndim == 0)
        return 1;
    while (at % row[d] != 0 || row[d] > end - at)
        d++;
    for (int k = 0; k < ndim; k++) {
        out->off[k] = left / row[k];
        out->len[k] = k < d ? 1 : shape[k];
        left -= out->off[k] * row[k];
    }
    rows = rsi_min((end - at) / row[d], shape[d] - out->off[d]);
    out->len[d] = rows;
    return rows * row[d];
}
