/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a stash: how a tensor is cut into chunks, their places in the arena, and save.
 * Backward reverses the order of forward, so a stack would do; other orders leave gaps, which are
 * filled first and compacted when nothing else helps. A tensor saved when no stash was pushed has
 * its own memory, in a list of the thread. Next: stash_take.c. */
#include "base/mem.h"
#include "base/opts.h"
#include "base/text.h"
#include "live/stash.h"
#include "shape/box.h"
#include "shape/placement.h"

#include <inttypes.h>
#include <string.h>

static _Thread_local rsd_stash loose = {
    .size = 1, .dim = RSD_NO_DIM, .budget = SIZE_MAX, .handles = SIZE_MAX
};

rsd_stash *rsi_stash_or_loose(rsd_stash *s)
{
    return s ? s : &loose;
}

/* ---- tensors ---- */

const char *rsi_stash_text(const rsi_stash_head *head, char out[RSI_STASH_TEXT])
{
    const char *name = rsd_dtype_name((rsd_dtype)head->dtype);
    rsi_text    text = rsi_text_begin(out, RSI_STASH_TEXT);

    rsi_text_add(&text, "%s [", name ? name : "?");
    for (int d = 0; d < head->ndim; d++)
        rsi_text_add(&text, "%s%" PRId64, d ? ", " : "", head->shape[d]);
    rsi_text_add(&text, "]");
    return out;
}

int64_t rsi_stash_elem(const rsi_stash_head *head)
{
    return (int64_t)rsd_dtype_size((rsd_dtype)head->dtype);
}

rsi_area rsi_stash_area(const rsi_stash_head *head, const void *data)
{
    rsi_area area = { .data = (unsigned char *)data, .box.ndim = head->ndim };

    memcpy(area.box.len, head->shape, sizeof(head->shape));
    rsi_strides(head->ndim, head->shape, rsi_stash_elem(head), area.stride);
    return area;
}

int64_t rsi_stash_chunk(const rsd_stash *s, const rsi_stash_head *head, int32_t r, rsd_box *out)
{
    *out = (rsd_box){ .ndim = head->ndim };
    memcpy(out->len, head->shape, sizeof(head->shape));
    if (!head->whole)
        out->len[s->dim] = rsi_chunk(head->shape[s->dim], s->size, r, &out->off[s->dim]);
    return rsd_box_count(out) * rsi_stash_elem(head);
}

/* Sets how the stash will keep a tensor. */
static rsd_err describe(const rsd_stash *s, rsd_dtype dtype, int ndim, const int64_t *shape,
                        bool replicated, rsi_stash_tensor *t, rsd_error *err)
{
    int64_t elems;
    rsd_box box;
    char    text[RSI_STASH_TEXT];
    rsd_err rc = rsi_shape_check(dtype, ndim, shape, &elems, err);

    if (rc)
        return rc;
    *t = (rsi_stash_tensor){ .head = { .dtype = (int32_t)dtype, .ndim = ndim } };
    for (int d = 0; d < ndim; d++)
        t->head.shape[d] = shape[d];
    t->bytes = elems * rsi_stash_elem(&t->head);
    t->head.whole = s->size == 1 || s->dim < 0 || !replicated || elems < s->size;
    if (!t->head.whole && s->dim >= ndim)
        return rsi_fail(err, RSD_E_INVALID, "%s can't be cut along dimension %" PRId32,
                        rsi_stash_text(&t->head, text), s->dim);
    for (int d = 0; d < s->dim && !t->head.whole; d++)
        t->apart = t->apart || shape[d] > 1;
    t->room = (size_t)rsi_stash_chunk(s, &t->head, 0, &box); /* the first is the largest */
    t->held = (size_t)rsi_stash_chunk(s, &t->head, s->rank, &box);
    return RSD_OK;
}

/* ---- places in the arena, which has room for the budget and the alignment of every chunk ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + RSI_STASH_ALIGN - 1) / RSI_STASH_ALIGN * RSI_STASH_ALIGN;
}

/* Gives a tensor whose room is set a place in the arena. False: no contiguous space. */
static bool take_room(rsd_stash *s, rsi_stash_tensor *t)
{
    rsi_stash_tensor **link = &s->first;
    unsigned char     *at = s->arena;

    for (; *link && (*link)->at - at < (ptrdiff_t)t->room; link = &(*link)->next)
        at = (*link)->at + aligned((*link)->room);
    if ((ptrdiff_t)t->room > s->arena + s->arena_bytes - at)
        return false;
    t->at = at;
    t->next = *link;
    *link = t;
    return true;
}

static void give_room(rsd_stash *s, rsi_stash_tensor *t)
{
    rsi_stash_tensor **link = &s->first;

    while (*link != t)
        link = &(*link)->next;
    *link = t->next;
}

/* Compacts everything that is not in flight. */
static void compact(rsd_stash *s)
{
    unsigned char *at = s->arena;

    for (rsi_stash_tensor *t = s->first; t; t = t->next) {
        if (!t->way && t->at != at) { /* others know where it lies while in flight */
            memmove(at, t->at, t->held);
            t->at = at;
        }
        at = t->at + aligned(t->room);
    }
}

/* ---- saving ---- */

/* Refuses what all ranks must refuse alike. */
static rsd_err check_budget(const rsd_stash *s, const rsi_stash_tensor *t, rsd_error *err)
{
    char   text[RSI_STASH_TEXT];
    size_t left = s->budget - s->reserved;

    if ((size_t)s->stats.tensors == s->handles)
        return rsi_fail(err, RSD_E_NOMEM,
                        "no handle is left for %s: the stash holds at most %zu tensors",
                        rsi_stash_text(&t->head, text), s->handles);
    if (t->room > left)
        return rsi_fail(
            err, RSD_E_NOMEM,
            "%s takes %zu bytes on each rank%s, but the budget of %zu bytes has only %zu left",
            rsi_stash_text(&t->head, text), t->room, t->head.whole ? ", as it is kept whole" : "",
            s->budget, left);
    return RSD_OK;
}

/* Separate memory for a tensor outside any stash. */
static rsd_err place_loose(const rsi_stash_tensor *what, rsi_stash_tensor **out, rsd_error *err)
{
    size_t            head = aligned(sizeof(*what));
    rsi_stash_tensor *t = rsi_alloc_aligned(RSI_STASH_ALIGN, head + what->room);
    char              text[RSI_STASH_TEXT];

    if (!t)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %" PRId64 " bytes to keep %s whole",
                        what->bytes, rsi_stash_text(&what->head, text));
    *t = *what;
    t->at = (unsigned char *)t + head;
    t->next = loose.first;
    *out = loose.first = t;
    return RSD_OK;
}

/* Finds a place in the arena. It depends only on the calls made, not on how fast others read, so
 * that all ranks find room or none does. */
static rsd_err place(rsd_stash *s, rsi_stash_tensor *t, rsd_error *err)
{
    rsd_err rc;

    if (take_room(s, t))
        return rsi_stash_settle(s, t->at, t->room, err);
    rc = rsi_stash_settle(s, s->arena, s->arena_bytes, err);
    if (rc)
        return rc;
    compact(s);
    if (!take_room(s, t))
        return rsi_fail(err, RSD_E_NOMEM,
                        "%zu bytes of the budget of %zu are left, but not in one piece while "
                        "tensors are in flight",
                        s->budget - s->reserved, s->budget);
    return RSD_OK;
}

static rsd_err keep(rsd_stash *s, const rsi_stash_tensor *what, const void *data, rsd_stashed *out,
                    rsd_error *err)
{
    rsi_area          from = rsi_stash_area(&what->head, data);
    rsi_stash_tensor *t = s->tensor;
    rsd_box           box;
    rsd_err           rc = check_budget(s, what, err);

    if (!rc)
        rc = rsi_stash_drive(s, err);
    if (!rc && s->arena) {
        while (t->head.number) /* there are enough slots for all handles and ways */
            t++;
        *t = *what;
        rc = place(s, t, err);
    } else if (!rc) {
        rc = place_loose(what, &t, err);
    }
    if (rc)
        return rc;
    t->head.number = ++s->saves;
    rsi_stash_chunk(s, &t->head, s->rank, &box);
    rsi_pack(&box, rsi_stash_elem(&t->head), t->at, &from);
    s->reserved += t->room;
    s->stats.tensors++;
    s->stats.bytes_saved += t->bytes;
    s->stats.bytes_held += (int64_t)t->held;
    if (s->stats.bytes_held > s->stats.bytes_peak)
        s->stats.bytes_peak = s->stats.bytes_held;
    *out = (rsd_stashed){ .stash = s->arena ? s : NULL, .number = s->saves };
    out->slot = s->arena ? (size_t)(t - s->tensor) : 0;
    return RSD_OK;
}

void rsi_stash_release(rsd_stash *s, rsi_stash_tensor *t)
{
    s->reserved -= t->room;
    s->stats.tensors--;
    s->stats.bytes_held -= (int64_t)t->held;
    give_room(s, t);
    t->taken = true;
    if (!s->comm)
        t->head.number = 0;
    if (!s->arena)
        rsi_free(t);
}

/* ---- each thread's stack of stashes ---- */

#define DEPTH_MAX 64

static _Thread_local struct stack {
    rsd_stash *stash[DEPTH_MAX];
    int        n;
} stack;

rsd_err rsd_stash_push(rsd_stash *s, rsd_error *err)
{
    if (stack.n == DEPTH_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "no more than %d stashes can be pushed", DEPTH_MAX);
    stack.stash[stack.n++] = s;
    return RSD_OK;
}

rsd_err rsd_stash_pop(rsd_stash *s, rsd_error *err)
{
    if (stack.n == 0)
        return rsi_fail(err, RSD_E_INVALID, "no stash was pushed by this thread");
    if (stack.stash[stack.n - 1] != s)
        return rsi_fail(err, RSD_E_MISMATCH, "the stash that is popped is not the one on top");
    stack.n--;
    return RSD_OK;
}

rsd_err rsd_stash_save(rsd_stash *s, rsd_dtype dtype, int ndim, const int64_t *shape,
                       const void *data, bool replicated, rsd_stashed *out, rsd_error *err)
{
    rsi_stash_tensor what;
    rsd_error        local;
    rsd_err          rc;

    err = err ? err : &local;
    if (!out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: output pointer for the handle");
    if (!s && stack.n > 0)
        s = stack.stash[stack.n - 1];
    s = rsi_stash_or_loose(s);
    rc = describe(s, dtype, ndim, shape, replicated, &what, err);
    if (!rc && !data && what.bytes > 0)
        rc = rsi_fail(err, RSD_E_INVALID, "a tensor without data can't be saved");
    return rc ? rc : keep(s, &what, data, out, err);
}

rsd_err rsd_stash_stats_get(const rsd_stash *s, rsd_stash_stats *out, rsd_error *err)
{
    rsd_err rc = rsi_result_check(out, "rsd_stash_stats", err);

    if (!rc)
        rsi_result_give(out, s ? &s->stats : &loose.stats, sizeof(loose.stats));
    return rc;
}
