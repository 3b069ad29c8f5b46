/* SPDX-License-Identifier: Apache-2.0 */
/* The bounded pool of staging buffers, which hold all bytes in transit between tensors, files and
 * ranks. A get waits for a put when all are in use, which bounds the memory. Any thread. */
#ifndef RSI_POOL_H
#define RSI_POOL_H

#include "base/error.h"

typedef struct rsi_pool rsi_pool;

/* As many page-aligned buffers of `buffer_bytes` as fit into `limit` bytes; at least one must. They
 * are allocated on first use and kept, since touching fresh memory is 10 to 20 times slower than
 * touching used memory. */
rsd_err rsi_pool_create(size_t limit, size_t buffer_bytes, rsi_pool **out, rsd_error *err);
void    rsi_pool_free(rsi_pool *pool); /* all buffers must be back */
size_t  rsi_pool_count(const rsi_pool *pool);

/* Waits until one is available. RSD_E_NOMEM only if a new buffer can't be allocated. */
rsd_err rsi_pool_get(rsi_pool *pool, void **out, rsd_error *err);
/* The same without waiting: *out is NULL if all are in use. */
rsd_err rsi_pool_try(rsi_pool *pool, void **out, rsd_error *err);
void    rsi_pool_put(rsi_pool *pool, void *buffer);

#endif
