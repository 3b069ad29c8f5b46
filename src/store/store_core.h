/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by store.c, store_open.c and record.c. */
#ifndef RSI_STORE_CORE_H
#define RSI_STORE_CORE_H

#include "store/io_queue.h"
#include "store/store.h"

struct rsd_store {
    rsd_store_ops   ops;
    void           *self;
    pthread_mutex_t lock;    /* for `threads`, which the first queue creates */
    rsi_io_threads *threads; /* NULL before the first queue, or if the backend has its own */
};

/* Callers may pass NULL; backends always get an error to fill in. */
#define RSI_PLACE(err) ((err) ? (err) : &(rsd_error){ .rank = -1 })

#endif
