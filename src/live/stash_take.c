/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch and take: is there such a tensor, does it fit, and the wait for it. A rank that can't go
 * on still tells the others why. Next: stash_peers.c. */
#include "live/stash.h"

#include <inttypes.h>
#include <string.h>

/* The tensor, or NULL and why there is none. */
static rsi_stash_tensor *find(const rsd_stash *s, const rsd_stashed *saved, rsi_stash_head *head)
{
    rsi_stash_tensor *t = saved->slot < s->nslots ? &s->tensor[saved->slot] : NULL;
    bool              never = saved->number == 0 || saved->number > s->saves;

    if (t && !never && t->head.number == saved->number && !t->taken) {
        *head = t->head;
        return t;
    }
    *head = (rsi_stash_head){ .number = saved->number };
    head->reason = never ? RSI_STASH_NEVER : RSI_STASH_TAKEN;
    return NULL;
}

/* The same tensor if the buffer will do, else NULL and the reason. */
static rsi_stash_tensor *fit(rsi_stash_tensor *t, const void *data, size_t bytes,
                             rsi_stash_head *head)
{
    if (!t || t->bytes == 0 || (data && bytes >= (size_t)t->bytes))
        return t;
    head->reason = RSI_STASH_SMALL;
    head->have = data ? (int64_t)bytes : 0;
    return NULL;
}

rsd_err rsi_stash_fail(const rsd_stash *s, int32_t r, const rsi_stash_head *head, rsd_error *err)
{
    rsd_err rc = head->reason == RSI_STASH_SMALL ? RSD_E_INVALID : RSD_E_NOTFOUND;
    char    text[RSI_STASH_TEXT];

    if (head->reason == RSI_STASH_FINE)
        return RSD_OK;
    if (head->reason == RSI_STASH_NEVER)
        rsi_fail(err, rc, "tensor %" PRIu64 " was never saved %s", head->number,
                 s->arena ? "in this stash" : "by this thread");
    else if (head->reason == RSI_STASH_TAKEN)
        rsi_fail(err, rc, "tensor %" PRIu64 " was taken%s already", head->number,
                 s->arena ? " from the stash" : "");
    else
        rsi_fail(
            err, rc, "%s, tensor %" PRIu64 "%s, does not fit into a buffer of %" PRId64 " bytes",
            rsi_stash_text(head, text), head->number, s->arena ? " of the stash" : "", head->have);
    return s->arena ? rsi_while(err, rc, "rank %" PRId32, r) : rc;
}

static rsd_err check(const rsd_stashed *saved, rsd_error *err)
{
    if (!saved)
        return rsi_fail(err, RSD_E_INVALID, "the handle of a saved tensor is needed");
    return rsi_stash_is_failed(rsi_stash_or_loose(saved->stash), err);
}

rsd_err rsd_stash_prefetch(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err)
{
    rsd_stash        *s;
    rsi_stash_head    head;
    rsi_stash_tensor *t;
    rsi_stash_way    *way;
    rsd_error         local;
    rsd_err           rc = check(saved, err = err ? err : &local);

    if (rc)
        return rc;
    s = rsi_stash_or_loose(saved->stash);
    t = fit(find(s, saved, &head), data, bytes, &head);
    if (t && t->data)
        return rsi_fail(err, RSD_E_INVALID, "tensor %" PRIu64 "%s is under way already",
                        saved->number, s->arena ? " of the stash" : "");
    if (t)
        t->data = data;
    if (s->comm && s->ahead < RSI_STASH_AHEAD)
        rc = rsi_way_begin(s, t, &head, data, &way, err);
    if (rc || t)
        return rc ? rc : rsi_stash_drive(s, err);
    rc = rsi_stash_fail(s, s->rank, &head, err);
    err->rank = s->comm ? s->rank : -1;
    err->nfailed = s->comm ? 1 : 0;
    return rc;
}

rsd_err rsd_stash_take(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err)
{
    rsd_stash        *s;
    rsi_stash_head    head;
    rsi_stash_tensor *t;
    rsd_error         local;
    rsd_err           rc = check(saved, err = err ? err : &local);

    if (rc)
        return rc;
    s = rsi_stash_or_loose(saved->stash);
    t = find(s, saved, &head);
    if (t && t->data && data && data != t->data)
        return rsi_fail(err, RSD_E_INVALID,
                        "tensor %" PRIu64 "%s is being brought into other memory", saved->number,
                        s->arena ? " of the stash" : "");
    if (t && t->data)
        data = t->data;
    else
        t = fit(t, data, bytes, &head);
    if (s->comm)
        rc = rsi_way_take(s, t, &head, data, err);
    else if (!t)
        rc = rsi_stash_fail(s, s->rank, &head, err);
    else if (t->bytes > 0)
        memcpy(data, t->at, (size_t)t->bytes);
    if (rc)
        return rc;
    rsi_stash_release(s, t);
    return rsi_stash_drive(s, err);
}
