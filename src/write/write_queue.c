/* SPDX-License-Identifier: Apache-2.0 */
/* A store queue and the buffers in it. */
#include "write/write_queue.h"
#include "base/mem.h"

#include <errno.h>

/* More writes in flight are no faster, and their buffers need extra pages. */
enum { REAP = 16, DEPTH = 3 };

typedef struct rsi_queued_write {
    rsd_io                   io;
    rsi_queued_file         *to;
    void                    *buf;
    struct rsi_queued_write *next; /* idle */
} rsi_queued_write;

rsd_err rsi_write_queue_open(rsi_write_queue *spool, rsd_store *store, rsi_pool *pool, bool sync,
                             rsd_error *err)
{
    size_t  n = rsi_pool_count(pool) < DEPTH ? rsi_pool_count(pool) : DEPTH;
    rsd_err rc;

    *spool = (rsi_write_queue){ .store = store, .pool = pool, .sync = sync };
    spool->order = !(rsi_store_flags(store) & RSD_STORE_RANDOM_WRITE);
    spool->io = rsi_calloc(n, sizeof(spool->io[0]));
    if (!spool->io)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu writes", n);
    rc = rsi_queue_open(store, n, &spool->queue, err);
    if (rc) {
        rsi_free(spool->io);
        *spool = (rsi_write_queue){ 0 };
        return rc;
    }
    spool->nio = n;
    for (size_t i = 0; i < n; i++) {
        spool->io[i].next = spool->idle;
        spool->idle = &spool->io[i];
    }
    return RSD_OK;
}

void rsi_write_queue_open_plain(rsi_write_queue *spool, rsd_store *store, rsi_pool *pool, bool sync)
{
    *spool = (rsi_write_queue){ .store = store, .pool = pool, .sync = sync, .plain = true };
}

rsd_err rsi_write_queue_done(const rsi_write_queue *spool, rsi_queued_file *file, rsd_error *err)
{
    rsd_err rc, closed;

    if (atomic_fetch_sub(&file->left, 1) > 1)
        return RSD_OK;
    rc = spool->sync ? rsi_file_sync(file->file, err) : RSD_OK; /* C3 */
    closed = rsi_file_close(file->file, rc ? NULL : err);
    file->file = NULL;
    return rc ? rc : closed;
}

/* Waits until at least `min` writes have ended; keeps the first error and returns all buffers. */
static rsd_err reap(rsi_write_queue *spool, size_t min, rsd_error *err)
{
    rsd_io *ended[REAP];
    rsd_err rc = RSD_OK;
    size_t  n = rsi_queue_reap(spool->queue, min < REAP ? min : REAP, REAP, ended);

    for (size_t i = 0; i < n; i++) {
        rsi_queued_write *io = ended[i]->tag;

        if (!rc)
            rc = rsi_io_check(io->to->file, &io->io, err);
        rsi_pool_put(spool->pool, io->buf);
        if (!rc)
            rc = rsi_write_queue_done(spool, io->to, err);
        io->next = spool->idle;
        spool->idle = io;
    }
    spool->under_way -= n;
    return rc;
}

rsd_err rsi_write_queue_buffer(rsi_write_queue *spool, void **out, rsd_error *err)
{
    rsd_err rc = spool->under_way ? reap(spool, spool->idle ? 0 : 1, err) : RSD_OK;

    *out = NULL;
    while (!rc && !*out) {
        rc = rsi_pool_try(spool->pool, out, err);
        if (rc || *out)
            break;
        /* Other threads return their buffers without our help; our own need reaping. */
        rc = spool->under_way ? reap(spool, 1, err) : rsi_pool_get(spool->pool, out, err);
    }
    return rc;
}

rsd_err rsi_write_queue_add(rsi_write_queue *spool, rsi_queued_file *to, uint64_t off, void *buf,
                            size_t len, rsd_error *err)
{
    rsi_queued_write *io;
    rsd_err           rc = RSD_OK;

    if (spool->plain && len > 0) {
        rc = rsi_file_write(to->file, off, buf, len, err);
        len = 0;
    }
    if (len > 0 && !spool->idle)
        rc = reap(spool, 1, err);
    if (rc) {
        rsi_pool_put(spool->pool, buf);
        return rc;
    }
    if (len == 0) {
        rsi_pool_put(spool->pool, buf);
        return rsi_write_queue_done(spool, to, err);
    }
    io = spool->idle;
    spool->idle = io->next;
    *io = (rsi_queued_write){ .to = to, .buf = buf };
    io->io = (rsd_io){
        .op = RSD_IO_WRITE, .file = to->file->handle, .off = off, .buf = buf, .len = len, .tag = io
    };
    spool->under_way++;
    rsi_queue_submit(spool->queue, &io->io, 1);
    return spool->order ? rsi_write_queue_drain(spool, err) : RSD_OK;
}

rsd_err rsi_write_queue_drain(rsi_write_queue *spool, rsd_error *err)
{
    rsd_err rc = RSD_OK, one;

    while (spool->under_way) {
        one = reap(spool, 1, rc ? NULL : err);
        rc = rc ? rc : one;
    }
    return rc;
}

bool rsi_write_queue_relieve(rsi_write_queue *spool, const rsd_error *why)
{
    if (!why || (why->sys_errno != EMFILE && why->sys_errno != ENFILE) || !spool->under_way)
        return false;
    return rsi_write_queue_drain(spool, NULL) == RSD_OK;
}

void rsi_write_queue_close(rsi_write_queue *spool)
{
    if (!spool->queue)
        return;
    rsi_write_queue_drain(spool, NULL);
    rsi_queue_close(spool->queue);
    rsi_free(spool->io);
    *spool = (rsi_write_queue){ 0 };
}
