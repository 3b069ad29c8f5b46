/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch and take: is there such a tensor, does it fit, and the wait for it. A rank that can't go
 * on still begins a way, to tell the others why. What happens on the way is stash_way.c's. */
#include "live/stash.h"

#include <inttypes.h>
#include <string.h>

/* The piece, or NULL and why there is none. */
static rsi_piece *find_piece(const rsd_stash *s, const rsd_stashed *saved, rsi_stash_head *head)
{
    rsi_piece *p = saved->slot < s->nslots ? &s->piece[saved->slot] : NULL;

    *head = (rsi_stash_head){ .number = saved->number };
    if (!p || saved->number == 0 || p->number != saved->number || p->taken) {
        head->reason =
            saved->number == 0 || saved->number > s->saves ? RSI_STASH_NEVER : RSI_STASH_TAKEN;
        return NULL;
    }
    head->dtype = (int32_t)p->dtype;
    head->ndim = p->ndim;
    head->whole = p->whole;
    memcpy(head->shape, p->shape, sizeof(head->shape));
    head->offset = p->offset;
    return p;
}

/* Also says if the buffer will do; a head with a reason leaves no piece. */
static rsi_piece *find_fitting(const rsd_stash *s, const rsd_stashed *saved, const void *data,
                               size_t bytes, rsi_stash_head *head)
{
    rsi_piece *p = find_piece(s, saved, head);

    if (!p || p->bytes == 0 || (data && bytes >= (size_t)p->bytes))
        return p;
    head->reason = RSI_STASH_SMALL;
    head->have = data ? (int64_t)bytes : 0;
    return NULL;
}

rsd_err rsi_stash_prefetch(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err)
{
    rsd_stash     *s = saved->stash;
    rsi_stash_head head;
    rsi_piece     *p = find_fitting(s, saved, data, bytes, &head);
    rsi_way       *way;
    rsd_err        rc = rsi_stash_is_failed(s, err);

    if (rc)
        return rc;
    if (p && p->data)
        return rsi_fail(err, RSD_E_INVALID, "tensor %" PRIu64 " of the stash is under way already",
                        saved->number);
    if (!s->comm) {
        if (p)
            p->data = data;
        return rsi_stash_fail(s->rank, &head, err);
    }
    if (p)
        p->data = data;
    if (s->ahead < RSI_STASH_AHEAD)
        rc = rsi_way_begin(s, p, &head, data, &way, err);
    if (!rc && p)
        rc = rsi_way_drive(s, err);
    if (rc || p)
        return rc;
    rc = rsi_stash_fail(s->rank, &head, err);
    err->rank = s->rank;
    err->nfailed = 1;
    return rc;
}

static void count_out(rsd_stash *s, rsi_piece *p)
{
    p->taken = true;
    s->reserved -= (int64_t)p->room;
    s->stats.tensors--;
    s->stats.bytes_held -= (int64_t)p->held;
    rsi_room_give(s, (size_t)(p - s->piece));
}

static rsd_err take_local(rsd_stash *s, rsi_piece *p, const rsi_stash_head *head, void *data,
                          rsd_error *err)
{
    if (!p)
        return rsi_stash_fail(s->rank, head, err);
    if (p->bytes > 0)
        memcpy(data, s->arena + p->offset, (size_t)p->bytes);
    count_out(s, p);
    p->number = 0;
    return RSD_OK;
}

static rsd_err wait_for(rsd_stash *s, rsi_way *way, rsd_error *err)
{
    rsd_err rc;

    s->taking = way;
    for (;;) {
        rc = rsi_way_drive(s, err);
        if (!rc)
            rc = rsi_way_verdict(s, way, err);
        if (rc || rsi_way_is_done(s, way))
            break;
        rc = rsi_way_wait(s, err);
        if (rc)
            break;
    }
    s->taking = NULL;
    return rc;
}

rsd_err rsi_stash_take(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err)
{
    rsd_stash     *s = saved->stash;
    rsi_stash_head head;
    rsi_piece     *p = find_piece(s, saved, &head);
    rsi_way       *way = p ? p->way : NULL;
    rsd_err        rc = rsi_stash_is_failed(s, err);

    if (rc)
        return rc;
    if (p && p->data) {
        if (data && data != p->data)
            return rsi_fail(err, RSD_E_INVALID,
                            "tensor %" PRIu64 " of the stash is being brought into other memory",
                            saved->number);
        data = p->data;
    } else {
        p = find_fitting(s, saved, data, bytes, &head);
    }
    if (!s->comm)
        return take_local(s, p, &head, data, err);
    if (!way)
        rc = rsi_way_begin(s, p, &head, data, &way, err);
    if (!rc)
        rc = wait_for(s, way, err);
    if (rc)
        return rc;
    way->taken = true;
    s->ahead--;
    count_out(s, p);
    rsi_way_close(s, way);
    return rsi_way_drive(s, err);
}
