/* SPDX-License-Identifier: Apache-2.0 */
/* The stash section of reshard.h: argument checks, and the stack of stashes that each thread has.
 * The work is done in live/stash.c, live/stash_way.c and live/stash_loose.c. */
#include "base/opts.h"
#include "live/stash.h"
#include "live/stash_loose.h"

#define DEPTH_MAX 64

static _Thread_local struct stack {
    rsd_stash *stash[DEPTH_MAX];
    int        n;
} stack;

rsd_err rsd_stash_create(rsd_comm *comm, const rsd_stash_opts *opts, rsd_stash **out,
                         rsd_error *err)
{
    rsd_stash_opts known = { .size = sizeof(known) };
    rsd_err        rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_stash_opts", err);

    if (!rc && (!out || !opts))
        rc = rsi_fail(err, RSD_E_INVALID, "a stash needs its options and a place");
    if (!rc && !comm && known.dim >= 0)
        rc = rsi_fail(err, RSD_E_INVALID, "a stash that cuts tensors needs a comm");
    return rsi_stash_create(comm, &known, rc, out, err);
}

void rsd_stash_free(rsd_stash *stash)
{
    rsi_stash_free(stash);
}

rsd_err rsd_stash_save(rsd_stash *stash, rsd_dtype dtype, int ndim, const int64_t *shape,
                       const void *data, bool replicated, rsd_stashed *out, rsd_error *err)
{
    rsi_piece piece;
    rsd_error local;
    rsd_err   rc;

    err = err ? err : &local;
    if (!out)
        return rsi_fail(err, RSD_E_INVALID, "a place for the handle is needed");
    if (!stash && stack.n > 0)
        stash = stack.stash[stack.n - 1];
    rc = rsi_piece_make(dtype, ndim, shape, stash ? stash->dim : RSD_NO_DIM,
                        stash ? stash->size : 1, replicated, &piece, err);
    if (rc)
        return rc;
    if (!data && piece.bytes > 0)
        return rsi_fail(err, RSD_E_INVALID, "a tensor without data can't be saved");
    if (!stash)
        return rsi_loose_save(&piece, data, out, err);
    return rsi_stash_save(stash, &piece, data, out, err);
}

rsd_err rsd_stash_prefetch(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err)
{
    rsd_error local;

    err = err ? err : &local;
    if (!saved)
        return rsi_fail(err, RSD_E_INVALID, "the handle of a saved tensor is needed");
    return (saved->stash ? rsi_stash_prefetch : rsi_loose_prefetch)(saved, data, bytes, err);
}

rsd_err rsd_stash_take(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err)
{
    rsd_error local;

    err = err ? err : &local;
    if (!saved)
        return rsi_fail(err, RSD_E_INVALID, "the handle of a saved tensor is needed");
    return (saved->stash ? rsi_stash_take : rsi_loose_take)(saved, data, bytes, err);
}

void rsd_stash_stats_get(const rsd_stash *stash, rsd_stash_stats *out)
{
    if (stash)
        *out = stash->stats;
    else
        rsi_loose_stats(out);
}

rsd_err rsd_stash_push(rsd_stash *stash, rsd_error *err)
{
    if (stack.n == DEPTH_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "no more than %d stashes can be pushed", DEPTH_MAX);
    stack.stash[stack.n++] = stash;
    return RSD_OK;
}

rsd_err rsd_stash_pop(rsd_stash *stash, rsd_error *err)
{
    if (stack.n == 0)
        return rsi_fail(err, RSD_E_INVALID, "no stash was pushed by this thread");
    if (stack.stash[stack.n - 1] != stash)
        return rsi_fail(err, RSD_E_MISMATCH, "the stash that is popped is not the one on top");
    stack.n--;
    return RSD_OK;
}
