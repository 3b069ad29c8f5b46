/* SPDX-License-Identifier: Apache-2.0 */
/* What is saved where no stash was pushed: a copy in memory of its own, for the thread that saved
 * it, since ranks can be threads. The table is freed with the last copy in it. */
#include "live/stash_loose.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

typedef struct copy {
    uint64_t       number; /* 0: the slot is free */
    size_t         bytes;
    unsigned char *kept;
    void          *data; /* where prefetch was told to bring it */
} copy;

static _Thread_local struct loose {
    copy           *copy; /* [n] */
    size_t          n, cap;
    uint64_t        saves;
    rsd_stash_stats stats;
} loose;

static rsd_err nomem(const rsi_piece *what, rsd_error *err)
{
    char text[RSI_PIECE_TEXT];

    rsi_piece_text(what->dtype, what->ndim, what->shape, text);
    return rsi_fail(err, RSD_E_NOMEM, "no memory for %" PRId64 " bytes to keep %s whole",
                    what->bytes, text);
}

static void free_last(void)
{
    if (loose.stats.tensors > 0)
        return;
    rsi_free(loose.copy);
    loose.copy = NULL;
    loose.n = loose.cap = 0;
}

rsd_err rsi_loose_save(const rsi_piece *what, const void *data, rsd_stashed *out, rsd_error *err)
{
    unsigned char *kept = rsi_alloc_aligned(64, (size_t)what->bytes);
    size_t         slot = 0;

    while (slot < loose.n && loose.copy[slot].number)
        slot++;
    if (!kept || (slot == loose.n && !rsi_grow(&loose.copy, loose.n, &loose.cap, sizeof(copy)))) {
        rsi_free(kept);
        free_last();
        return nomem(what, err);
    }
    loose.n += slot == loose.n;
    if (what->bytes > 0)
        memcpy(kept, data, (size_t)what->bytes);
    loose.copy[slot] = (copy){ .number = ++loose.saves, .bytes = (size_t)what->bytes };
    loose.copy[slot].kept = kept;
    loose.stats.tensors++;
    loose.stats.bytes_saved += what->bytes;
    loose.stats.bytes_held += what->bytes;
    if (loose.stats.bytes_held > loose.stats.bytes_peak)
        loose.stats.bytes_peak = loose.stats.bytes_held;
    *out = (rsd_stashed){ .number = loose.saves, .slot = slot };
    return RSD_OK;
}

static rsd_err find(const rsd_stashed *saved, copy **out, rsd_error *err)
{
    copy *c = saved->slot < loose.n ? &loose.copy[saved->slot] : NULL;

    if (saved->number == 0 || saved->number > loose.saves)
        return rsi_fail(err, RSD_E_NOTFOUND, "tensor %" PRIu64 " was never saved by this thread",
                        saved->number);
    if (!c || c->number != saved->number)
        return rsi_fail(err, RSD_E_NOTFOUND, "tensor %" PRIu64 " was taken already", saved->number);
    *out = c;
    return RSD_OK;
}

static rsd_err check_fit(const copy *c, const void *data, size_t bytes, rsd_error *err)
{
    if (c->bytes > 0 && (!data || bytes < c->bytes))
        return rsi_fail(err, RSD_E_INVALID,
                        "tensor %" PRIu64 " of %zu bytes does not fit into a buffer of %zu bytes",
                        c->number, c->bytes, data ? bytes : 0);
    return RSD_OK;
}

rsd_err rsi_loose_prefetch(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err)
{
    copy   *c = NULL;
    rsd_err rc = find(saved, &c, err);

    if (!rc)
        rc = check_fit(c, data, bytes, err);
    if (!rc && c->data)
        rc = rsi_fail(err, RSD_E_INVALID, "tensor %" PRIu64 " is under way already", c->number);
    if (!rc)
        c->data = data;
    return rc;
}

rsd_err rsi_loose_take(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err)
{
    copy   *c = NULL;
    rsd_err rc = find(saved, &c, err);

    if (rc)
        return rc;
    if (c->data && data && data != c->data)
        return rsi_fail(err, RSD_E_INVALID, "tensor %" PRIu64 " is being brought into other memory",
                        c->number);
    if (c->data)
        data = c->data;
    else
        rc = check_fit(c, data, bytes, err);
    if (rc)
        return rc;
    if (c->bytes > 0)
        memcpy(data, c->kept, c->bytes);
    rsi_free(c->kept);
    c->number = 0;
    loose.stats.tensors--;
    loose.stats.bytes_held -= (int64_t)c->bytes;
    free_last();
    return RSD_OK;
}

void rsi_loose_stats(rsd_stash_stats *out)
{
    *out = loose.stats;
}
