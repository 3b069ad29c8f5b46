/* SPDX-License-Identifier: Apache-2.0 */
/* Reads parts of tensors from an opened checkpoint: only the bytes that are needed. */
#ifndef RSI_FETCH_H
#define RSI_FETCH_H

#include "base/pool.h"
#include "base/workers.h"
#include "read/extents.h"
#include "read/record_crcs.h"
#include "read/row_streams.h"

/* Receives blocks as they are read, instead of a view. Any thread, in any order; `packed` is valid
 * only during the call. */
typedef struct rsi_taker {
    rsd_err (*take)(void *arg, const rsd_box *box, const void *packed, rsd_error *err);
    void *arg;
} rsi_taker;

/* Shared by the reads of one load or conversion. */
typedef struct rsi_fetch_tools {
    rsi_pool        *pool;    /* made by rsi_fetch_pool */
    rsi_workers     *workers; /* NULL: use the caller's thread */
    const rsi_taker *taker;   /* NULL: the view says where the bytes go */
    rsi_extents     *extents; /* cache across reads; may be NULL */
    /* Rows and records that are read in parts; NULL: these are read once more. */
    rsi_row_streams *streams;
    rsi_record_crcs *records;
} rsi_fetch_tools;
/* Buffers of at most `staging` bytes in total; 0: 64 MiB. */
rsd_err rsi_fetch_pool(size_t staging, rsi_pool **out, rsd_error *err);

/* Fills *into with its box of tensor t, however the tensor is chunked. */
rsd_err rsi_fetch(rsd_ckpt *ckpt, size_t t, const rsd_view *into, const rsd_read_opts *opts,
                  rsd_error *err);
/* The same with existing tools. Any thread, if the workers are NULL. */
rsd_err rsi_fetch_with(const rsi_fetch_tools *tools, rsd_ckpt *ckpt, size_t t, const rsd_view *into,
                       const rsd_read_opts *opts, rsd_error *err);
/* Compares everything stored for chunk i of tensor t with its checksums, except what has already
 * been checked. */
rsd_err rsi_fetch_prove(const rsi_fetch_tools *tools, rsd_ckpt *ckpt, size_t t, size_t i,
                        rsd_error *err);

#endif
