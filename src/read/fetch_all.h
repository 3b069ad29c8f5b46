/* SPDX-License-Identifier: Apache-2.0 */
/* Many reads out of one checkpoint, on one set of threads and buffers. */
#ifndef RSI_FETCH_ALL_H
#define RSI_FETCH_ALL_H

#include "read/fetch.h"

/* One box of a tensor and where it goes. */
typedef struct rsi_want {
    size_t           t;     /* number in the checkpoint */
    rsd_dtype        dtype; /* that the view has; cast if it is another than the tensor's */
    const rsd_view  *view;  /* strides are set */
    const rsi_taker *taker; /* not NULL: gets the elements of the view's box as they are stored */
} rsi_want;

/* Fills them all; the order is the library's. */
rsd_err rsi_fetch_all(rsd_ckpt *ckpt, const rsi_want *want, size_t n, const rsd_read_opts *opts,
                      rsd_error *err);

#endif
