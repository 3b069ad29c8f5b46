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

/* A caller's list of reads, checked, with strides. */
typedef struct rsi_reads {
    rsd_view *view;
    rsi_want *want; /* [n] those that are not empty */
    size_t    n;
} rsi_reads;
/* Released in any case. */
rsd_err rsi_reads_take(rsi_reads *out, const rsd_ckpt *ckpt, size_t n, const rsd_read *reads,
                       rsd_error *err);
void    rsi_reads_release(rsi_reads *reads);
/* Holding a file does not protect it from being written in place: data read from it are then
 * useless, valid or not. `rc` is the result of reading. */
rsd_err rsi_reads_ended(const rsd_ckpt *ckpt, rsd_err rc, rsd_error *err);
/* Fills such a list. */
rsd_err rsi_fetch_many(rsd_ckpt *ckpt, size_t n, const rsd_read *reads, const rsd_read_opts *opts,
                       rsd_error *err);

#endif
