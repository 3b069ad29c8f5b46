/* SPDX-License-Identifier: Apache-2.0 */
/* A stack of equal buffers guarded by one lock. */
#include "base/pool.h"
#include "base/mem.h"
#include "base/pulse.h"

#include <pthread.h>

#define PAGE_BYTES 4096
#define HUGE_BYTES ((size_t)2 << 20)

struct rsi_pool {
    pthread_mutex_t lock;
    pthread_cond_t  back; /* a buffer was put back */
    size_t          buffer_bytes;
    size_t          most;   /* buffers that may exist */
    size_t          made;   /* buffers that exist */
    size_t          nfree;  /* of these, available */
    void           *free[]; /* [most] last in, first out: its pages are warm */
};

static void *make(size_t bytes)
{
    return bytes < HUGE_BYTES ? rsi_alloc_aligned(PAGE_BYTES, bytes) : rsi_pages_alloc(bytes);
}

static void drop(void *buffer, size_t bytes)
{
    if (bytes < HUGE_BYTES)
        rsi_free(buffer);
    else
        rsi_pages_free(buffer, bytes);
}

rsd_err rsi_pool_create(size_t limit, size_t buffer_bytes, rsi_pool **out, rsd_error *err)
{
    size_t    most = buffer_bytes ? limit / buffer_bytes : 0;
    rsi_pool *pool = NULL;

    if (most == 0)
        return rsi_fail(err, RSD_E_INVALID, "a pool of %zu bytes has no room for a buffer of %zu",
                        limit, buffer_bytes);
    if (most <= (SIZE_MAX - sizeof(*pool)) / sizeof(pool->free[0]))
        pool = rsi_calloc(1, sizeof(*pool) + most * sizeof(pool->free[0]));
    if (!pool)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a pool of %zu buffers", most);
    pthread_mutex_init(&pool->lock, NULL);
    rsi_pulse_cond(&pool->back);
    pool->buffer_bytes = buffer_bytes;
    pool->most = most;
    *out = pool;
    return RSD_OK;
}

void rsi_pool_free(rsi_pool *pool)
{
    if (!pool)
        return;
    for (size_t i = 0; i < pool->nfree; i++)
        drop(pool->free[i], pool->buffer_bytes);
    pthread_cond_destroy(&pool->back);
    pthread_mutex_destroy(&pool->lock);
    rsi_free(pool);
}

size_t rsi_pool_count(const rsi_pool *pool)
{
    return pool->most;
}

static rsd_err get(rsi_pool *pool, bool wait, void **out, rsd_error *err)
{
    void   *buffer = NULL;
    rsd_err rc = RSD_OK;

    pthread_mutex_lock(&pool->lock);
    while (wait && pool->nfree == 0 && pool->made == pool->most)
        rsi_pulse_wait(&pool->back, &pool->lock);
    if (pool->nfree > 0) {
        buffer = pool->free[--pool->nfree];
    } else if (pool->made < pool->most) {
        buffer = make(pool->buffer_bytes);
        if (buffer)
            pool->made++;
        else
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer of %zu bytes",
                          pool->buffer_bytes);
    }
    pthread_mutex_unlock(&pool->lock);
    if (!rc)
        *out = buffer;
    return rc;
}

rsd_err rsi_pool_get(rsi_pool *pool, void **out, rsd_error *err)
{
    return get(pool, true, out, err);
}

rsd_err rsi_pool_try(rsi_pool *pool, void **out, rsd_error *err)
{
    return get(pool, false, out, err);
}

void rsi_pool_put(rsi_pool *pool, void *buffer)
{
    pthread_mutex_lock(&pool->lock);
    pool->free[pool->nfree++] = buffer;
    pthread_cond_signal(&pool->back);
    pthread_mutex_unlock(&pool->lock);
}
