/* SPDX-License-Identifier: Apache-2.0 */
/* A short list of extents with least-recently-used eviction, and a set of places, both behind one
 * lock. */
#include "read/extents.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "format/decoded.h"

#include <pthread.h>
#include <string.h>

#define NEAR ((size_t)8 << 20)  /* bytes between threads that read a tensor together */
#define OWN  ((size_t)20 << 20) /* bytes of decoders that a checkpoint keeps for its user */
enum { KEPT = 256 };            /* extents; few target rows need more chunks than this */

typedef struct known {
    rsi_extent extent; /* first member: the pointer that users get */
    size_t     t, i;
    size_t     bytes; /* that `decoded` takes */
    uint64_t   used;  /* call number of the last use */
    unsigned   users; /* 0 and never used: free slot */
    bool       busy;  /* a thread is locating it */
} known;

struct rsi_extents {
    rsd_ckpt       *ckpt;
    pthread_mutex_t lock;
    pthread_cond_t  found;
    size_t          limit, decoded; /* bytes */
    uint64_t        calls;
    known           list[KEPT];
    rsi_map         first; /* places already claimed for checking */
    rsi_arena       mem;   /* for the keys of `first` */
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
        rsi_decoded_free(x->list[k].extent.decoded);
    rsi_map_release(&x->first);
    rsi_arena_release(&x->mem);
    pthread_cond_destroy(&x->found);
    pthread_mutex_destroy(&x->lock);
    rsi_free(x);
}

rsd_err rsi_ckpt_extents(rsd_ckpt *ckpt, rsi_extents **out, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    pthread_mutex_lock(&ckpt->sums.lock);
    if (!ckpt->extents)
        rc = rsi_extents_create(ckpt, OWN, &ckpt->extents, err);
    *out = ckpt->extents;
    pthread_mutex_unlock(&ckpt->sums.lock);
    return rc;
}

static void drop(rsi_extents *x, known *k)
{
    x->decoded -= k->bytes;
    rsi_decoded_free(k->extent.decoded);
    *k = (known){ 0 };
}

/* A free slot, or the least recently used one without users; NULL: none. `decoded`: only slots that
 * hold decoded bytes. */
static known *oldest(rsi_extents *x, bool decoded)
{
    known *old = NULL;

    for (size_t k = 0; k < KEPT; k++) {
        known *at = &x->list[k];

        if (at->users == 0 && (!decoded || at->bytes) && (!old || at->used < old->used))
            old = at;
    }
    return old;
}

static known *find(rsi_extents *x, size_t t, size_t i)
{
    for (size_t k = 0; k < KEPT; k++)
        if ((x->list[k].users || x->list[k].used) && x->list[k].t == t && x->list[k].i == i)
            return &x->list[k];
    return NULL;
}

/* Threads that read a tensor in order are close together in it; of a chunk that has part of each
 * row they then need that part. */
static size_t window_of(rsd_ckpt *ckpt, size_t t, size_t i)
{
    double          window = NEAR;
    rsd_tensor_info info;
    rsd_chunk       chunk;
    uint32_t        file;

    ckpt->ops->tensor(ckpt, t, &info);
    ckpt->ops->chunk(ckpt, t, i, &chunk, &file);
    for (int d = 1; d < info.ndim; d++)
        window *= (double)chunk.box.len[d] / (double)info.shape[d];
    return (size_t)window;
}

/* Locates a chunk that is not in the list. Called with the lock held; releases it while
 * locating. */
static rsd_err look(rsi_extents *x, size_t t, size_t i, known **out, rsd_error *err)
{
    rsi_extent extent = { 0 };
    known     *k, *old;
    rsd_err    rc;

    while (!(k = oldest(x, false)))
        rsi_pulse_wait(&x->found, &x->lock);
    drop(x, k);
    *k = (known){ .t = t, .i = i, .users = 1, .busy = true };
    pthread_mutex_unlock(&x->lock);
    rc = x->ckpt->ops->locate(x->ckpt, t, i, false, &extent, err);
    if (!rc && extent.decoded)
        rc = rsi_decoded_widen(extent.decoded, window_of(x->ckpt, t, i), err);
    pthread_mutex_lock(&x->lock);
    k->busy = false;
    pthread_cond_broadcast(&x->found);
    if (rc) {
        rsi_decoded_free(extent.decoded);
        *k = (known){ 0 };
        return rc;
    }
    k->extent = extent;
    if (extent.decoded)
        k->bytes = rsi_decoded_memory(extent.decoded);
    x->decoded += k->bytes;
    while (x->decoded > x->limit && (old = oldest(x, true)))
        drop(x, old);
    *out = k;
    return RSD_OK;
}

rsd_err rsi_extents_get(rsi_extents *x, size_t t, size_t i, const rsi_extent **out, rsd_error *err)
{
    known  *k;
    rsd_err rc = RSD_OK;

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

void rsi_extents_put(rsi_extents *x, const rsi_extent *extent)
{
    known *k = (known *)(uintptr_t)extent;

    pthread_mutex_lock(&x->lock);
    k->users--;
    if (x->decoded > x->limit && k->users == 0 && k->bytes)
        drop(x, k);
    if (k->users == 0)
        pthread_cond_signal(&x->found);
    pthread_mutex_unlock(&x->lock);
}

rsd_err rsi_extents_first(rsi_extents *x, uint32_t file, uint64_t off, bool *first, rsd_error *err)
{
    const uint64_t key[2] = { file, off };
    uint64_t       value = 0, *kept;
    bool           good = true;

    *first = true;
    if (!x)
        return RSD_OK;
    pthread_mutex_lock(&x->lock);
    if (rsi_map_get(&x->first, key, sizeof(key), &value)) {
        *first = false;
    } else {
        kept = rsi_arena_array(&x->mem, 2, sizeof(kept[0]));
        if (kept)
            memcpy(kept, key, sizeof(key));
        good = kept && rsi_map_add(&x->first, kept, sizeof(key), &value, NULL);
    }
    pthread_mutex_unlock(&x->lock);
    return good ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for what is checked");
}
