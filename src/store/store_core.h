/* SPDX-License-Identifier: Apache-2.0 */
/* What store.c and store_open.c share. */
#ifndef RSI_STORE_CORE_H
#define RSI_STORE_CORE_H

#include "store/io_queue.h"
#include "store/store.h"

struct rsd_store {
    rsd_store_ops   ops;
    void           *self;
    pthread_mutex_t lock;    /* of `threads`, which the first queue makes */
    rsi_io_threads *threads; /* NULL as long as there was no queue, or the backend has its own */
};

/* A caller may pass NULL, a backend gets a place to write to. */
#define RSI_PLACE(err) ((err) ? (err) : &(rsd_error){ .rank = -1 })

#endif
