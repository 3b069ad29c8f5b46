/* SPDX-License-Identifier: Apache-2.0 */
/* A short list of extents, those used last first to be found and last to be dropped. */
#include "read/extents.h"
#include "base/mem.h"
#include "base/pulse.h"

#include <pthread.h>

enum { KEPT = 256 }; /* extents; a target row is seldom made of more chunks */

typedef struct known {
    rsi_extent extent; /* first: it is what users get */
    size_t     t, i;
    size_t     bytes; /* decoded */
    uint64_t   used;  /* when, in calls */
    unsigned   users;
    bool       taken, busy; /* busy: somebody looks for it */
} known;

struct rsi_extents {
    rsd_ckpt       *ckpt;
    pthread_mutex_t lock;
    pthread_cond_t  found;
    size_t          limit, decoded; /* bytes */
    uint64_t        calls;
    known           list[KEPT];
};

rsd_err rsi_extents_create(rsd_ckpt *ckpt, size_t limit, rsi_extents **out, rsd_error *err)
{
    rsi_extents *x = rsi_calloc(1, sizeof(*x));

    if (!x)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the places of chunks");
    x->ckpt = ckpt;
    x->limit = limit;
    pthread_mutex_init(&x->lock, NULL);
    rsi_pulse_cond(&x->found);
    *out = x;
    return RSD_OK;
}

void rsi_extents_free(rsi_extents *x)
{
    if (!x)
        return;
    for (size_t k = 0; k < KEPT; k++)
        rsi_free(x->list[k].extent.decoded);
    pthread_cond_destroy(&x->found);
    pthread_mutex_destroy(&x->lock);
    rsi_free(x);
}

static void drop(rsi_extents *x, known *k)
{
    x->decoded -= k->bytes;
    rsi_free(k->extent.decoded);
    *k = (known){ 0 };
}

/* The unused one that was used longest ago; NULL: none. `decoded`: only those that hold bytes. */
static known *oldest(rsi_extents *x, bool decoded)
{
    known *old = NULL;

    for (size_t k = 0; k < KEPT; k++) {
        known *at = &x->list[k];

        if (at->taken && at->users == 0 && (!decoded || at->bytes) &&
            (!old || at->used < old->used))
            old = at;
    }
    return old;
}

static known *find(rsi_extents *x, size_t t, size_t i)
{
    for (size_t k = 0; k < KEPT; k++)
        if (x->list[k].taken && x->list[k].t == t && x->list[k].i == i)
            return &x->list[k];
    return NULL;
}

/* A free place; waits until there is one. */
static known *take(rsi_extents *x)
{
    for (;;) {
        known *old;

        for (size_t k = 0; k < KEPT; k++)
            if (!x->list[k].taken)
                return &x->list[k];
        old = oldest(x, false);
        if (old)
            drop(x, old);
        else
            rsi_pulse_wait(&x->found, &x->lock);
    }
}

/* Looks for a chunk that is not in the list; the lock is held, but not while it looks. */
static rsd_err look(rsi_extents *x, size_t t, size_t i, known **out, rsd_error *err)
{
    known     *k = take(x);
    rsi_extent extent = { 0 };
    known     *old;
    rsd_err    rc;

    *k = (known){ .t = t, .i = i, .users = 1, .taken = true, .busy = true };
    pthread_mutex_unlock(&x->lock);
    rc = x->ckpt->ops->locate(x->ckpt, t, i, false, &extent, err);
    pthread_mutex_lock(&x->lock);
    k->busy = false;
    pthread_cond_broadcast(&x->found);
    if (rc) {
        *k = (known){ 0 };
        return rc;
    }
    k->extent = extent;
    if (extent.decoded)
        k->bytes = (size_t)(extent.record + extent.record_bytes);
    x->decoded += k->bytes;
    while (x->decoded > x->limit && (old = oldest(x, true)))
        drop(x, old);
    *out = k;
    return RSD_OK;
}

rsd_err rsi_extents_get(void *arg, size_t t, size_t i, const rsi_extent **out, rsd_error *err)
{
    rsi_extents *x = arg;
    known       *k;
    rsd_err      rc = RSD_OK;

    pthread_mutex_lock(&x->lock);
    while ((k = find(x, t, i)) && k->busy)
        rsi_pulse_wait(&x->found, &x->lock);
    if (k)
        k->users++;
    else
        rc = look(x, t, i, &k, err);
    if (!rc) {
        k->used = ++x->calls;
        *out = &k->extent;
    }
    pthread_mutex_unlock(&x->lock);
    return rc;
}

void rsi_extents_put(void *arg, const rsi_extent *extent)
{
    rsi_extents *x = arg;
    known       *k = (known *)(uintptr_t)extent;

    pthread_mutex_lock(&x->lock);
    k->users--;
    if (x->decoded > x->limit && k->users == 0 && k->bytes)
        drop(x, k);
    if (k->users == 0)
        pthread_cond_signal(&x->found);
    pthread_mutex_unlock(&x->lock);
}
