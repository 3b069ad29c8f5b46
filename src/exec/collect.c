/* SPDX-License-Identifier: Apache-2.0 */
/* Puts boxes together out of views: memory with strides, or callbacks. */
#include "exec/collect.h"
#include "base/pulse.h"
#include "plan/copy.h"
#include "shape/box.h"

#include <inttypes.h>
#include <string.h>

/* The view before `n` that shares elements of `part` too; n: none. */
static size_t shared_with(const rsi_state_tensor *tensor, const rsd_box *part, size_t n)
{
    size_t i = 0;

    while (i < n && !rsd_box_intersect(&tensor->view[i].box, part, NULL))
        i++;
    return i;
}

rsd_err rsi_collect_check(const rsi_state_tensor *tensor, const rsd_box *box, rsd_error *err)
{
    int64_t have = 0;
    char    text[RSI_BOX_TEXT];

    if (tensor->pull)
        return RSD_OK;
    for (size_t i = 0; i < tensor->nviews; i++) {
        rsd_box part;

        if (!rsd_box_intersect(&tensor->view[i].box, box, &part))
            continue;
        if (!tensor->view[i].data && !tensor->view[i].get)
            return rsi_fail(err, RSD_E_INVALID, "view %zu has neither memory nor a get", i);
        if (shared_with(tensor, &part, i) < i)
            return rsi_fail(err, RSD_E_MISMATCH, "the views %zu and %zu overlap",
                            shared_with(tensor, &part, i), i);
        have += rsd_box_count(&part);
    }
    if (have == rsd_box_count(box))
        return RSD_OK;
    rsd_box_text(box, text, sizeof(text));
    return rsi_fail(err, RSD_E_MISMATCH,
                    "the views have %" PRId64 " of the %" PRId64 " elements of %s", have,
                    rsd_box_count(box), text);
}

static rsi_area area_of(const rsd_view *view)
{
    rsi_area area = { .box = view->box, .data = view->data };

    memcpy(area.stride, view->stride, sizeof(area.stride));
    return area;
}

const unsigned char *rsi_collect_direct(const rsi_state_tensor *tensor, const rsd_box *box)
{
    for (size_t i = 0; i < tensor->nviews; i++) {
        const rsd_view *view = &tensor->view[i];
        rsi_loops       loops;
        rsd_box         part;

        if (!view->data || !rsd_box_intersect(&view->box, box, &part) || !rsi_box_equal(&part, box))
            continue;
        rsi_loops_make(&loops, box->ndim, box->len, tensor->elem_bytes, NULL, view->stride);
        if (loops.n > 0)
            return NULL;
        return (const unsigned char *)view->data + rsi_box_offset(box, &view->box, view->stride);
    }
    return NULL;
}

/* Asks a callback for the runs of `part`, which lie packed in view->box, and puts them where the
 * packed `box` has them. */
static rsd_err ask_box(const rsi_state_tensor *tensor, const rsd_view *view, const rsd_box *part,
                       const rsd_box *box, unsigned char *out)
{
    int64_t from[RSD_MAX_NDIM], to[RSD_MAX_NDIM], at[RSD_MAX_NDIM] = { 0 };
    int64_t run = tensor->elem_bytes, off, dst;
    int     n = part->ndim;

    rsi_strides(part->ndim, view->box.len, tensor->elem_bytes, from);
    rsi_strides(part->ndim, box->len, tensor->elem_bytes, to);
    off = rsi_box_offset(part, &view->box, from);
    dst = rsi_box_offset(part, box, to);
    while (n > 0 && ((from[n - 1] == run && to[n - 1] == run) || part->len[n - 1] == 1))
        run *= part->len[--n];
    for (;;) {
        rsd_err rc = view->get(view->arg, (uint64_t)off, out + dst, (size_t)run);
        int     d = n - 1;

        rsi_beat();
        if (rc)
            return rc;
        for (; d >= 0 && ++at[d] == part->len[d]; d--) {
            off -= (part->len[d] - 1) * from[d];
            dst -= (part->len[d] - 1) * to[d];
            at[d] = 0;
        }
        if (d < 0)
            return RSD_OK;
        off += from[d];
        dst += to[d];
    }
}

rsd_err rsi_collect(const rsi_state_tensor *tensor, const rsd_box *box, unsigned char *out,
                    rsd_error *err)
{
    rsi_area to = { .box = *box, .data = out };

    rsi_strides(box->ndim, box->len, tensor->elem_bytes, to.stride);
    for (size_t i = 0; i < tensor->nviews; i++) {
        const rsd_view *view = &tensor->view[i];
        rsd_box         part;
        rsd_err         rc = RSD_OK;

        if (!rsd_box_intersect(&view->box, box, &part))
            continue;
        if (view->data) {
            rsi_area from = area_of(view);

            rsi_copy_box(&part, tensor->elem_bytes, &to, &from);
        } else {
            rc = ask_box(tensor, view, &part, box, out);
        }
        if (rc)
            return rsi_fail(err, rc, "the caller's get failed: %s", rsd_err_name(rc));
    }
    return RSD_OK;
}

rsd_err rsi_collect_range(const rsi_state_tensor *tensor, const rsd_box *box, uint64_t off,
                          size_t len, unsigned char *out, rsd_error *err)
{
    int64_t at = (int64_t)off / tensor->elem_bytes, end = at + (int64_t)len / tensor->elem_bytes;
    rsd_err rc = RSD_OK;

    if (tensor->pull)
        return tensor->pull(tensor->pull_arg, tensor->number, box, off, len, out, err);
    while (at < end && !rc) {
        rsd_box part;
        int64_t n = rsi_range_box(box->ndim, box->len, at, end, &part);

        for (int d = 0; d < box->ndim; d++)
            part.off[d] += box->off[d];
        rc = rsi_collect(tensor, &part, out, err);
        out += n * tensor->elem_bytes;
        at += n;
    }
    return rc;
}
