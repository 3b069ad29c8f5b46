/* SPDX-License-Identifier: Apache-2.0 */
/* malloc and friends, and pages, with counters and fault injection for tests. */
#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES ((size_t)4096)
#define HUGE_BYTES ((size_t)2 << 20)

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

static void count(int64_t bytes)
{
    int64_t now = atomic_fetch_add_explicit(&bytes_now, bytes, memory_order_relaxed) + bytes;
    int64_t peak = atomic_load_explicit(&bytes_peak, memory_order_relaxed);

    while (now > peak && !atomic_compare_exchange_weak(&bytes_peak, &peak, now))
        ;
}

static void *took(void *p)
{
    if (p)
        count((int64_t)malloc_usable_size(p));
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
    return took(calloc(n ? n : 1, size ? size : 1)); /* calloc checks the product for overflow */
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

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
}

/* Reserves extra space, since the kernel chooses the address, and returns what alignment leaves
 * over. */
void *rsi_pages_alloc(size_t bytes)
{
    size_t len = whole_pages(bytes), room = len + PAGE_BYTES + HUGE_BYTES, front;
    char  *all, *p;

    if (must_fail() || len < bytes || room < len)
        return NULL;
    all = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    front = HUGE_BYTES - (uintptr_t)all % HUGE_BYTES;
    p = all + front;
    munmap(all, front);
    if (front < HUGE_BYTES)
        munmap(p + len + PAGE_BYTES, HUGE_BYTES - front);
    if (mprotect(p, len, PROT_READ | PROT_WRITE) != 0) {
        munmap(p, len + PAGE_BYTES);
        return NULL;
    }
    madvise(p, len, MADV_HUGEPAGE); /* a hint: small pages work too */
    count((int64_t)len);
    return p;
}

void rsi_pages_free(void *p, size_t bytes)
{
    if (!p)
        return;
    munmap(p, whole_pages(bytes) + PAGE_BYTES);
    count(-(int64_t)whole_pages(bytes));
}

bool rsi_grow(void *array, size_t n, size_t *cap, size_t size)
{
    size_t more = *cap + *cap / 2 + 16;
    void  *old, *bigger;

    if (n < *cap)
        return true;
    memcpy(&old, array, sizeof(old)); /* the type of *array is unknown here */
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
