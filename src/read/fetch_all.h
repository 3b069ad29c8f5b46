/* SPDX-License-Identifier: Apache-2.0 */
/* Many reads from one checkpoint, sharing one set of threads and buffers. */
#ifndef RSI_FETCH_ALL_H
#define RSI_FETCH_ALL_H

#include "read/fetch.h"

#include <reshard/reshard_folder.h>

/* One box of a tensor and its destination. */
typedef struct rsi_want {
    size_t           t;     /* number in the checkpoint */
    rsd_dtype        dtype; /* of the view; cast if the tensor's differs */
    const rsd_view  *view;  /* strides are set */
    const rsi_taker *taker; /* not NULL: gets the elements of the view's box as stored */
} rsi_want;

/* Fills them all, in an order of the library's choosing. */
rsd_err rsi_fetch_all(rsd_ckpt *ckpt, const rsi_want *want, size_t n, const rsd_read_opts *opts,
                      rsd_error *err);
/* The same for the caller's list: checks it, sets strides, detects files that changed. */
rsd_err rsi_fetch_many(rsd_ckpt *ckpt, size_t n, const rsd_read *reads, const rsd_read_opts *opts,
                       rsd_error *err);

#endif
