/* SPDX-License-Identifier: Apache-2.0 */
/* The one door to malloc. Tests make the nth call fail and see what is in use. Objects keep their
 * metadata in an arena (arena.h), bytes under way live in a pool (pool.h). */
#ifndef RSI_MEM_H
#define RSI_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL when there is no memory or n * size overflows. Zeroed. n == 0 gives a pointer that can be
 * freed. */
void *rsi_calloc(size_t n, size_t size);
/* Not zeroed beyond what was there. On failure `old` is still valid. */
void *rsi_realloc(void *old, size_t n, size_t size);
/* Not zeroed; `align` is a power of two. */
void *rsi_alloc_aligned(size_t align, size_t bytes);
char *rsi_strdup(const char *text);
void  rsi_free(void *p);
/* Zeroed pages of a mapping of their own, huge ones where the kernel grants them: a disk that is
 * written past the cache takes one piece of 2 MiB much faster than 512 of 4 KiB. The page behind
 * them can't be touched. To be freed with the same `bytes`. */
void *rsi_pages_alloc(size_t bytes);
void  rsi_pages_free(void *p, size_t bytes);
/* Room for one more item of `size` bytes behind `n` in *array, which grows by half. False: no
 * memory. */
bool rsi_grow(void *array, size_t n, size_t *cap, size_t size);

/* For tests. From now on the nth allocation (1: the next) fails: once, or it and all after it. 0
 * switches it off. */
void rsi_mem_fail_at(uint64_t nth, int for_ever);
/* Calls since the last rsi_mem_fail_at, and bytes in use now and at most since then. */
typedef struct rsi_mem_stats {
    uint64_t calls;
    int64_t  bytes, peak;
} rsi_mem_stats;
rsi_mem_stats rsi_mem_stats_get(void);

#endif
