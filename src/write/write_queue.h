/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks on their way into files: one thread's end of it. A few writes are under way at a time, and
 * no more than there are buffers in the pool that all threads share; a file is synced and closed by
 * whoever writes the last block of it. */
#ifndef RSI_WRITE_QUEUE_H
#define RSI_WRITE_QUEUE_H

#include "base/pool.h"
#include "store/store.h"

#include <stdatomic.h>

/* A file that is being written. */
typedef struct rsi_queued_file {
    rsi_file     *file;
    atomic_size_t left; /* blocks that are not in it yet; whoever brings it to 0 closes the file */
} rsi_queued_file;

typedef struct rsi_write_queue {
    rsd_store               *store;
    rsi_pool                *pool;
    rsi_queue               *queue;
    struct rsi_queued_write *io;   /* [nio] */
    struct rsi_queued_write *idle; /* those that are free */
    size_t                   nio, under_way;
    bool                     sync;  /* each file, once (C3) */
    bool                     order; /* the store takes bytes only one behind the other */
    bool                     plain; /* no queue: who writes a block waits for it */
} rsi_write_queue;

/* The pool's buffers have the size of the largest block. */
rsd_err rsi_write_queue_open(rsi_write_queue *spool, rsd_store *store, rsi_pool *pool, bool sync,
                             rsd_error *err);
/* The same without a queue, and so without threads or rings; one write at a time. */
void rsi_write_queue_open_plain(rsi_write_queue *spool, rsd_store *store, rsi_pool *pool,
                                bool sync);
/* Waits for what is under way; results are dropped. */
void rsi_write_queue_close(rsi_write_queue *spool);
/* A buffer of the pool; waits until writes give one back. */
rsd_err rsi_write_queue_buffer(rsi_write_queue *spool, void **out, rsd_error *err);
/* Takes the buffer over. */
rsd_err rsi_write_queue_add(rsi_write_queue *spool, rsi_queued_file *to, uint64_t off, void *buf,
                            size_t len, rsd_error *err);
/* True: a file could not be opened because too many are, and those of this end's blocks are closed
 * now, so that it can be tried again. */
bool rsi_write_queue_relieve(rsi_write_queue *spool, const rsd_error *why);
/* Waits until all of this end's blocks are in their files. */
rsd_err rsi_write_queue_drain(rsi_write_queue *spool, rsd_error *err);
/* One block less is left of a file; syncs and closes it if that was the last. */
rsd_err rsi_write_queue_done(const rsi_write_queue *spool, rsi_queued_file *file, rsd_error *err);

#endif
