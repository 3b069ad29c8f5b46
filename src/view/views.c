/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the memory that callers provide for their boxes, and moves boxes between it and packed
 * bytes. exchange.c keeps one list of views for each side of a plan. */
#include "view/views.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "shape/box.h"

#include <inttypes.h>
#include <string.h>

static bool has_strides(const rsd_view *view)
{
    for (int d = 0; d < view->box.ndim; d++)
        if (view->stride[d] != 0)
            return true;
    return false;
}

static rsd_err check_view(const rsd_view *view, const rsd_layout *layout, bool write,
                          rsd_error *err)
{
    rsd_err rc = rsi_box_check(&view->box, layout->ndim, layout->shape, err);

    if (rc)
        return rc;
    if (rsd_box_count(&view->box) > 0 && !view->data && (write ? !view->put : !view->get))
        return rsi_fail(err, RSD_E_INVALID, "it has neither memory nor a %s",
                        write ? "put" : "get");
    return RSD_OK;
}

/* The first view before `n` that also shares elements with `part`; n if there is none. */
static size_t shared_with(const rsi_views *views, const rsd_box *part, size_t n)
{
    size_t i = 0;

    while (i < n && !rsd_box_intersect(&views->view[i].box, part, NULL))
        i++;
    return i;
}

/* Views may be cut differently from the layout's boxes, as long as they hold the same elements. */
rsd_err rsi_views_cover(const rsi_views *views, const rsd_box *box, bool read, rsd_error *err)
{
    int64_t have = 0, want = rsd_box_count(box);
    char    text[RSI_BOX_TEXT];

    for (size_t i = 0; i < views->n; i++) {
        rsd_box part;
        size_t  other;

        if (!rsd_box_intersect(&views->view[i].box, box, &part))
            continue;
        if (read && !views->view[i].data && !views->view[i].get)
            return rsi_fail(err, RSD_E_INVALID, "view %zu has neither memory nor a get", i);
        other = shared_with(views, &part, i);
        if (other < i)
            return rsi_fail(err, RSD_E_MISMATCH, "the views %zu and %zu overlap", other, i);
        have += rsd_box_count(&part);
    }
    if (have == want)
        return RSD_OK;
    rsd_box_text(box, text, sizeof(text));
    return rsi_fail(err, RSD_E_MISMATCH,
                    "the views have %" PRId64 " of the %" PRId64 " elements of %s", have, want,
                    text);
}

static rsd_err check_inside(const rsd_view *view, size_t n, const rsd_box *box, rsd_error *err)
{
    int64_t held = 0;
    char    text[RSI_BOX_TEXT];

    for (size_t i = 0; i < n; i++) {
        rsd_box part;

        if (rsd_box_intersect(&view->box, &box[i], &part))
            held += rsd_box_count(&part);
    }
    if (held == rsd_box_count(&view->box))
        return RSD_OK;
    rsd_box_text(&view->box, text, sizeof(text));
    return rsi_fail(err, RSD_E_MISMATCH,
                    "the rank holds %" PRId64 " of the %" PRId64 " elements of %s", held,
                    rsd_box_count(&view->box), text);
}

static rsd_err check_boxes(const rsi_views *views, const rsd_layout *layout, int32_t rank,
                           rsd_error *err)
{
    size_t   n = rsd_layout_boxes(layout, rank, NULL, 0);
    rsd_box *box = rsi_calloc(n, sizeof(box[0]));
    rsd_err  rc = RSD_OK;

    if (!box)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to check %zu boxes", n);
    rsd_layout_boxes(layout, rank, box, n);
    for (size_t i = 0; i < n && !rc; i++)
        if (views->n != n || !rsi_box_equal(&views->view[i].box, &box[i]))
            rc = rsi_views_cover(views, &box[i], false, err);
    for (size_t i = 0; i < views->n && !rc; i++) {
        if (views->n != n || !rsi_box_equal(&views->view[i].box, &box[i]))
            rc = check_inside(&views->view[i], n, box, err);
        if (rc)
            rsi_while(err, rc, "view %zu", i);
    }
    rsi_free(box);
    return rc;
}

rsd_err rsi_views_make(rsi_views *views, const rsd_layout *layout, int32_t rank, size_t n,
                       const rsd_view *view, bool write, rsi_arena *mem, rsd_error *err)
{
    rsd_view *copy;
    rsd_err   rc = RSD_OK;

    if (n > 0 && !view)
        return rsi_fail(err, RSD_E_INVALID, "%zu views given, but the list is NULL", n);
    copy = rsi_arena_array(mem, n, sizeof(copy[0]));
    if (!copy)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu views", n);
    for (size_t i = 0; i < n; i++) {
        copy[i] = view[i];
        rc = check_view(&view[i], layout, write, err);
        if (rc)
            return rsi_while(err, rc, "view %zu", i);
        if (!has_strides(&view[i]))
            rsi_strides(layout->ndim, view[i].box.len, layout->elem_bytes, copy[i].stride);
    }
    *views = (rsi_views){ .view = copy, .n = n, .elem_bytes = layout->elem_bytes };
    return check_boxes(views, layout, rank, err);
}

bool rsi_views_readable(const rsi_views *views)
{
    for (size_t i = 0; i < views->n; i++)
        if (!views->view[i].data && !views->view[i].get)
            return false;
    return true;
}

static bool holds(const rsd_box *outer, const rsd_box *inner)
{
    for (int d = 0; d < inner->ndim; d++)
        if (inner->off[d] < outer->off[d] ||
            inner->off[d] + inner->len[d] > outer->off[d] + outer->len[d])
            return false;
    return true;
}

const rsd_view *rsi_views_find(const rsi_views *views, const rsd_box *box, size_t hint)
{
    if (hint < views->n && holds(&views->view[hint].box, box))
        return &views->view[hint];
    for (size_t i = 0; i < views->n; i++)
        if (holds(&views->view[i].box, box))
            return &views->view[i];
    return NULL;
}

rsi_area rsi_view_area(const rsd_view *view)
{
    rsi_area area = { .box = view->box, .data = view->data };

    memcpy(area.stride, view->stride, sizeof(area.stride));
    return area;
}

void *rsi_view_extent(const rsd_view *view, int64_t elem_bytes, size_t *bytes, int64_t *first)
{
    int64_t lo = 0, hi = elem_bytes;

    for (int d = 0; d < view->box.ndim; d++) {
        int64_t reach = (view->box.len[d] - 1) * view->stride[d];

        lo += reach < 0 ? reach : 0;
        hi += reach > 0 ? reach : 0;
    }
    *bytes = (size_t)(hi - lo);
    *first = -lo;
    return (unsigned char *)view->data + lo;
}

unsigned char *rsi_views_direct(const rsi_views *views, const rsd_box *box, size_t hint)
{
    const rsd_view *view = rsi_views_find(views, box, hint);
    rsi_loops       loops;

    if (!view || !view->data)
        return NULL;
    rsi_loops_make(&loops, box->ndim, box->len, views->elem_bytes, NULL, view->stride);
    if (loops.n > 0)
        return NULL;
    return (unsigned char *)view->data + rsi_box_offset(box, &view->box, view->stride);
}

/* For each run of `part`, which lies in two packed boxes: calls the view's get or put at the run's
 * offset in the view, with the matching bytes of `packed`. */
static rsd_err each_run(const rsi_views *views, const rsd_view *view, const rsd_box *part,
                        const rsd_box *whole, unsigned char *packed, bool put)
{
    int64_t far[RSD_MAX_NDIM], near[RSD_MAX_NDIM], at[RSD_MAX_NDIM] = { 0 };
    int64_t run = views->elem_bytes, off, mem;
    int     n = part->ndim;

    rsi_strides(part->ndim, view->box.len, views->elem_bytes, far);
    rsi_strides(part->ndim, whole->len, views->elem_bytes, near);
    off = rsi_box_offset(part, &view->box, far);
    mem = rsi_box_offset(part, whole, near);
    while (n > 0 && ((far[n - 1] == run && near[n - 1] == run) || part->len[n - 1] == 1))
        run *= part->len[--n];
    for (;;) {
        rsd_err rc = put ? view->put(view->arg, (uint64_t)off, packed + mem, (size_t)run)
                         : view->get(view->arg, (uint64_t)off, packed + mem, (size_t)run);
        int     d = n - 1;

        rsi_beat();
        if (rc)
            return rc;
        for (; d >= 0 && ++at[d] == part->len[d]; d--) {
            off -= (part->len[d] - 1) * far[d];
            mem -= (part->len[d] - 1) * near[d];
            at[d] = 0;
        }
        if (d < 0)
            return RSD_OK;
        off += far[d];
        mem += near[d];
    }
}

rsd_err rsi_views_pack(const rsi_views *views, const rsd_box *box, size_t hint, void *packed,
                       rsd_error *err)
{
    const rsd_view *view = rsi_views_find(views, box, hint);
    rsi_area        to = { .box = *box, .data = packed }, from;

    rsi_strides(box->ndim, box->len, views->elem_bytes, to.stride);
    if (view && view->data) {
        from = rsi_view_area(view);
        (views->pack_past ? rsi_copy_box_past : rsi_copy_box)(box, views->elem_bytes, &to, &from);
        return RSD_OK;
    }
    for (size_t i = 0; i < views->n; i++) {
        rsd_err rc = RSD_OK;
        rsd_box part;

        view = &views->view[i];
        if (!rsd_box_intersect(&view->box, box, &part))
            continue;
        from = rsi_view_area(view);
        if (view->data)
            rsi_copy_box(&part, views->elem_bytes, &to, &from);
        else
            rc = each_run(views, view, &part, box, packed, false);
        if (rc)
            return rsi_fail(err, rc, "the caller's get failed: %s", rsd_err_name(rc));
    }
    return RSD_OK;
}

typedef struct giving {
    const rsd_view      *view;
    const unsigned char *next;
} giving;

static rsd_err give_run(void *arg, int64_t offset, int64_t bytes)
{
    giving *g = arg;
    rsd_err rc = g->view->put(g->view->arg, (uint64_t)offset, g->next, (size_t)bytes);

    g->next += bytes;
    rsi_beat();
    return rc;
}

static rsd_err put_failed(rsd_err rc, rsd_error *err)
{
    return rc ? rsi_fail(err, rc, "the caller's put failed: %s", rsd_err_name(rc)) : RSD_OK;
}

rsd_err rsi_view_put(const rsd_view *view, const rsd_box *box, int64_t elem_bytes,
                     const void *packed, rsd_error *err)
{
    giving  g = { .view = view, .next = packed };
    int64_t stride[RSD_MAX_NDIM];

    rsi_strides(box->ndim, view->box.len, elem_bytes, stride);
    return put_failed(rsi_runs_each(box, &view->box, stride, elem_bytes, give_run, &g), err);
}

static rsd_err unpack_part(const rsi_views *views, const rsd_view *view, const rsd_box *part,
                           const rsd_box *whole, const void *packed, rsd_error *err)
{
    rsi_area from = { .box = *whole, .data = (unsigned char *)(uintptr_t)packed };
    rsi_area to = rsi_view_area(view);

    if (view->data) {
        rsi_strides(whole->ndim, whole->len, views->elem_bytes, from.stride);
        (views->unpack_past ? rsi_copy_box_past : rsi_copy_box)(part, views->elem_bytes, &to,
                                                                &from);
        return RSD_OK;
    }
    return put_failed(each_run(views, view, part, whole, from.data, true), err);
}

rsd_err rsi_views_unpack(const rsi_views *views, const rsd_box *box, size_t hint,
                         const void *packed, rsd_error *err)
{
    const rsd_view *view = rsi_views_find(views, box, hint);
    rsd_err         rc = RSD_OK;

    if (rsd_box_count(box) == 0)
        return RSD_OK;
    if (view)
        return unpack_part(views, view, box, box, packed, err);
    for (size_t i = 0; i < views->n && !rc; i++) {
        rsd_box part;

        if (rsd_box_intersect(&views->view[i].box, box, &part))
            rc = unpack_part(views, &views->view[i], &part, box, packed, err);
    }
    return rc;
}
