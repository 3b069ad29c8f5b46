/* SPDX-License-Identifier: Apache-2.0 */
/* The only access to malloc. Tests make the nth call fail and see how much is in use. Objects keep
 * their metadata in an arena (arena.h), data in transit lives in a pool (pool.h). */
#ifndef RSI_MEM_H
#define RSI_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL if memory runs out or n * size overflows. Zeroed. n == 0 gives a pointer that can be freed.
 */
void *rsi_calloc(size_t n, size_t size);
/* The added part is not zeroed. On failure `old` is still valid. */
void *rsi_realloc(void *old, size_t n, size_t size);
/* Not zeroed; `align` is a power of two. */
void *rsi_alloc_aligned(size_t align, size_t bytes);
char *rsi_strdup(const char *text);
void  rsi_free(void *p);
/* Zeroed pages in a mapping of their own, huge ones if the kernel grants them: direct I/O of one 2
 * MiB piece is much faster than of 512 pieces of 4 KiB. An inaccessible guard page follows. Free
 * them with the same `bytes`. */
void *rsi_pages_alloc(size_t bytes);
void  rsi_pages_free(void *p, size_t bytes);
/* Makes room for one more item of `size` bytes after the `n` items of *array, growing it by half.
 * False: no memory. */
bool rsi_grow(void *array, size_t n, size_t *cap, size_t size);

/* For tests. From now on the nth allocation (1: the next) fails: only it, or it and all later ones.
 * 0 switches this off. */
void rsi_mem_fail_at(uint64_t nth, int for_ever);
/* Calls since the last rsi_mem_fail_at, bytes in use now, and their peak since then. */
typedef struct rsi_mem_stats {
    uint64_t calls;
    int64_t  bytes, peak;
} rsi_mem_stats;
rsi_mem_stats rsi_mem_stats_get(void);

#endif
