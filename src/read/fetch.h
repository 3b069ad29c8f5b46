/* SPDX-License-Identifier: Apache-2.0 */
/* Reads parts of tensors out of an opened checkpoint: only the bytes that are needed. */
#ifndef RSI_FETCH_H
#define RSI_FETCH_H

#include "base/pool.h"
#include "base/workers.h"
#include "read/extents.h"

/* Who takes blocks as they are read instead of a view. Any thread, in any order; `packed` is gone
 * afterwards. */
typedef struct rsi_taker {
    rsd_err (*take)(void *arg, const rsd_box *box, const void *packed, rsd_error *err);
    void *arg;
} rsi_taker;

/* What reads of one load or conversion share. */
typedef struct rsi_fetch_tools {
    rsi_pool        *pool;    /* made by rsi_fetch_pool */
    rsi_workers     *workers; /* NULL: the caller's thread does it */
    const rsi_taker *taker;   /* NULL: the view says where the bytes go */
    rsi_extents     *extents; /* remembers between reads; may be NULL */
} rsi_fetch_tools;
/* Buffers of at most `staging` bytes together; 0: 64 MiB. */
rsd_err rsi_fetch_pool(size_t staging, rsi_pool **out, rsd_error *err);

/* Fills *into with its box of tensor t, whatever the chunks are. */
rsd_err rsi_fetch(rsd_ckpt *ckpt, size_t t, const rsd_view *into, const rsd_read_opts *opts,
                  rsd_error *err);
/* The same with tools that are there already. Any thread, if the workers are NULL. */
rsd_err rsi_fetch_with(const rsi_fetch_tools *tools, rsd_ckpt *ckpt, size_t t, const rsd_view *into,
                       const rsd_read_opts *opts, rsd_error *err);
/* Compares all that is stored for chunk i of tensor t and was not seen yet with its checksums. */
rsd_err rsi_fetch_prove(const rsi_fetch_tools *tools, rsd_ckpt *ckpt, size_t t, size_t i,
                        rsd_error *err);

#endif
