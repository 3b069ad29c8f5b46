/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch and take: check that the tensor exists and fits, then wait for it. A rank that can't
 * continue still tells the others why. Next: stash_peers.c. */
#include "live/stash.h"

#include <inttypes.h>
#include <string.h>

/* The tensor if it is kept and fits into the buffer; else NULL with the error. */
static rsi_stash_tensor *find(const rsd_stash *s, const rsd_stashed *saved, const void *data,
                              size_t bytes, rsd_error *err)
{
    rsi_stash_tensor *t = saved->slot < s->nslots ? &s->tensor[saved->slot] : s->first;
    uint64_t          number = saved->number;
    char              text[RSI_STASH_TEXT];

    while (!s->arena && t && t->head.number != number)
        t = t->next;
    if (number == 0 || number > s->saves)
        rsi_fail(err, RSD_E_NOTFOUND, "tensor %" PRIu64 " was never saved in the stash", number);
    else if (!t || t->head.number != number || t->taken)
        rsi_fail(err, RSD_E_NOTFOUND, "tensor %" PRIu64 " of the stash was already taken", number);
    else if (!t->data && t->bytes > 0 && (!data || bytes < (size_t)t->bytes))
        rsi_fail(err, RSD_E_INVALID,
                 "a buffer of %zu bytes is too small for tensor %" PRIu64 " of the stash, %s",
                 data ? bytes : 0, number, rsi_stash_text(&t->head, text));
    else
        return t;
    return NULL;
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
        return rc ? rc : rsi_fail(err, RSD_E_INVALID, "no handle of a saved tensor given");
    t = find(s, saved, data, bytes, err);
    if (t && t->data && (!take || (data && data != t->data)))
        return rsi_fail(err, RSD_E_INVALID, "tensor %" PRIu64 " of the stash is already being %s",
                        saved->number, take ? "restored into other memory" : "restored");
    if (t && !t->data)
        t->data = data;
    head = t ? t->head : (rsi_stash_head){ .number = saved->number, .code = err->code };
    if (!t)
        memcpy(head.why, err->msg, sizeof(head.why) - 1);
    way = t ? t->way : NULL;
    if (s->comm && !way && (take || s->ahead < RSI_STASH_AHEAD))
        rc = rsi_way_begin(s, t, &head, &way, err);
    if (!rc && s->comm && take)
        rc = rsi_way_take(s, way, err);
    else if (!rc && !t)
        rc = rsi_fail(err, (rsd_err)head.code, "%s", head.why);
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
