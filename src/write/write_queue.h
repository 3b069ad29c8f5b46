/* SPDX-License-Identifier: Apache-2.0 */
/* One thread's queue of blocks being written to files. A few writes are in flight at a time,
 * limited by the buffers in the pool that all threads share. The thread that writes a file's last
 * block syncs and closes it. */
#ifndef RSI_WRITE_QUEUE_H
#define RSI_WRITE_QUEUE_H

#include "base/pool.h"
#include "store/store.h"

#include <stdatomic.h>

/* A file that is being written. */
typedef struct rsi_queued_file {
    rsi_file     *file;
    atomic_size_t left; /* blocks not yet written; the thread that brings it to 0 closes the file */
} rsi_queued_file;

typedef struct rsi_write_queue {
    rsd_store               *store;
    rsi_pool                *pool;
    rsi_queue               *queue;
    struct rsi_queued_write *io;   /* [nio] */
    struct rsi_queued_write *idle; /* the free ones */
    size_t                   nio, under_way;
    bool                     sync;  /* each file, once (C3) */
    bool                     order; /* the store only accepts consecutive bytes */
    bool                     plain; /* no queue: each write is waited for */
} rsi_write_queue;

/* The pool's buffers are as large as the largest block. */
rsd_err rsi_write_queue_open(rsi_write_queue *spool, rsd_store *store, rsi_pool *pool, bool sync,
                             rsd_error *err);
/* The same without a queue, and so without threads or rings; one write at a time. */
void rsi_write_queue_open_plain(rsi_write_queue *spool, rsd_store *store, rsi_pool *pool,
                                bool sync);
/* Waits for writes in flight; their results are dropped. */
void rsi_write_queue_close(rsi_write_queue *spool);
/* Gets a buffer from the pool; waits until a write returns one. */
rsd_err rsi_write_queue_buffer(rsi_write_queue *spool, void **out, rsd_error *err);
/* Takes ownership of the buffer. */
rsd_err rsi_write_queue_add(rsi_write_queue *spool, rsi_queued_file *to, uint64_t off, void *buf,
                            size_t len, rsd_error *err);
/* True if a file could not be opened because too many are open; this queue's blocks are written and
 * their files closed now, so the caller can retry. */
bool rsi_write_queue_relieve(rsi_write_queue *spool, const rsd_error *why);
/* Waits until all blocks of this queue are in their files. */
rsd_err rsi_write_queue_drain(rsi_write_queue *spool, rsd_error *err);
/* Counts one block of a file as written; syncs and closes the file if it was the last. */
rsd_err rsi_write_queue_done(const rsi_write_queue *spool, rsi_queued_file *file, rsd_error *err);

#endif
