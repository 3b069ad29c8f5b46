/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch and take: check that the tensor exists and fits, then wait for it. A rank that can't
 * continue still tells the others why. Next: stash_peers.c. */
#include "live/stash.h"

#include <inttypes.h>
#include <string.h>

/* The tensor, or NULL with the reason. */
static rsi_stash_tensor *find(const rsd_stash *s, const rsd_stashed *saved, rsi_stash_head *head)
{
    rsi_stash_tensor *t = saved->slot < s->nslots ? &s->tensor[saved->slot] : s->first;
    bool              never = saved->number == 0 || saved->number > s->saves;

    while (!s->arena && t && t->head.number != saved->number)
        t = t->next;
    if (t && !never && t->head.number == saved->number && !t->taken) {
        *head = t->head;
        return t;
    }
    *head = (rsi_stash_head){ .number = saved->number };
    head->reason = never ? RSI_STASH_NEVER : RSI_STASH_TAKEN;
    return NULL;
}

/* The same tensor if the buffer is suitable, else NULL with the reason. */
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
    if (s->arena)
        rsi_while(err, rc, "rank %" PRId32, r);
    err->rank = s->comm ? r : -1;
    err->nfailed = s->comm ? 1 : 0;
    return rc;
}

/* Implements prefetch and take. */
static rsd_err bring(const rsd_stashed *saved, void *data, size_t bytes, bool take, rsd_error *err)
{
    rsd_stash        *s = rsi_stash_or_loose(saved ? saved->stash : NULL);
    rsi_stash_head    head;
    rsi_stash_tensor *t;
    rsi_stash_way    *way;
    rsd_error         local;
    rsd_err           rc = rsi_stash_is_failed(s, err = err ? err : &local);

    if (rc || !saved)
        return rc ? rc : rsi_fail(err, RSD_E_INVALID, "the handle of a saved tensor is needed");
    t = find(s, saved, &head);
    if (t && t->data && (!take || (data && data != t->data)))
        return rsi_fail(err, RSD_E_INVALID, "tensor %" PRIu64 "%s is %s", saved->number,
                        s->arena ? " of the stash" : "",
                        take ? "being brought into other memory" : "under way already");
    if (t && !t->data) {
        t = fit(t, data, bytes, &head);
        if (t)
            t->data = data;
    }
    way = t ? t->way : NULL;
    if (s->comm && !way && (take || s->ahead < RSI_STASH_AHEAD))
        rc = rsi_way_begin(s, t, &head, &way, err);
    if (!rc && s->comm && take)
        rc = rsi_way_take(s, way, err);
    else if (!rc)
        rc = rsi_stash_fail(s, s->rank, &head, err);
    if (rc)
        return rc;
    if (take && !s->comm && t->bytes > 0)
        memcpy(t->data, t->at, (size_t)t->bytes);
    if (take)
        rsi_stash_release(s, t);
    return rsi_stash_drive(s, err);
}

rsd_err rsd_stash_prefetch(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err)
{
    return bring(saved, data, bytes, false, err);
}

rsd_err rsd_stash_take(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err)
{
    return bring(saved, data, bytes, true, err);
}
