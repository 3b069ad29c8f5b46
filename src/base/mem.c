/* SPDX-License-Identifier: Apache-2.0 */
/* malloc and friends with counters and a fault that tests can set. */
#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t calls;
static _Atomic uint64_t fail_at;
static _Atomic int      fail_for_ever;
static _Atomic int64_t  bytes_now;
static _Atomic int64_t  bytes_peak;

static int must_fail(void)
{
    uint64_t nth = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
    uint64_t at = atomic_load_explicit(&fail_at, memory_order_relaxed);

    return at && (nth == at || (nth > at && fail_for_ever));
}

static void *took(void *p)
{
    int64_t now, peak;

    if (!p)
        return NULL;
    now = atomic_fetch_add_explicit(&bytes_now, (int64_t)malloc_usable_size(p),
                                    memory_order_relaxed) +
          (int64_t)malloc_usable_size(p);
    peak = atomic_load_explicit(&bytes_peak, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak(&bytes_peak, &peak, now))
        ;
    return p;
}

static void gave(void *p)
{
    if (p)
        atomic_fetch_sub_explicit(&bytes_now, (int64_t)malloc_usable_size(p), memory_order_relaxed);
}

void *rsi_calloc(size_t n, size_t size)
{
    if (must_fail())
        return NULL;
    return took(calloc(n ? n : 1, size ? size : 1)); /* calloc refuses an overflowing product */
}

void *rsi_realloc(void *old, size_t n, size_t size)
{
    size_t  bytes;
    int64_t was = old ? (int64_t)malloc_usable_size(old) : 0;
    void   *p;

    if (must_fail() || __builtin_mul_overflow(n, size, &bytes))
        return NULL;
    p = realloc(old, bytes ? bytes : 1);
    if (p)
        atomic_fetch_sub_explicit(&bytes_now, was, memory_order_relaxed);
    return took(p);
}

void *rsi_alloc_aligned(size_t align, size_t bytes)
{
    void *p = NULL;

    if (must_fail() ||
        posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, bytes ? bytes : 1) != 0)
        return NULL;
    return took(p);
}

char *rsi_strdup(const char *text)
{
    size_t len = strlen(text) + 1;
    char  *copy = rsi_calloc(len, 1);

    if (copy)
        memcpy(copy, text, len);
    return copy;
}

void rsi_free(void *p)
{
    gave(p);
    free(p);
}

bool rsi_grow(void *array, size_t n, size_t *cap, size_t size)
{
    size_t more = *cap + *cap / 2 + 16;
    void  *old, *bigger;

    if (n < *cap)
        return true;
    memcpy(&old, array, sizeof(old)); /* *array has a type that is not known here */
    bigger = rsi_realloc(old, more, size);
    if (!bigger)
        return false;
    memcpy(array, &bigger, sizeof(bigger));
    *cap = more;
    return true;
}

void rsi_mem_fail_at(uint64_t nth, int for_ever)
{
    atomic_store(&fail_for_ever, for_ever);
    atomic_store(&calls, 0);
    atomic_store(&fail_at, nth);
    atomic_store(&bytes_peak, atomic_load(&bytes_now));
}

rsi_mem_stats rsi_mem_stats_get(void)
{
    return (rsi_mem_stats){ .calls = calls, .bytes = bytes_now, .peak = bytes_peak };
}
