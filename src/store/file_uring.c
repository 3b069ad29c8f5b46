/* SPDX-License-Identifier: Apache-2.0 */
/* The file store's queues on io_uring: many requests per system call, none of them on our threads.
 * Containers often forbid it, so opening a queue may be refused; if a ring stops working later,
 * plain calls finish its requests. */
#include "store/file.h"
#include "base/mem.h"
#include "store/io_queue.h"

#include <errno.h>
#include <sched.h>

#ifdef RSI_HAVE_URING
#include <liburing.h>

enum {
    DEPTH_MAX = 256,
    ASYNC_MIN = 256 * 1024 /* bytes: copying this much from the cache is worth a kernel thread;
                              below, submit copies itself */
};

typedef struct slot {
    rsd_io      *io; /* NULL: free */
    rsi_io_piece piece;
} slot;

typedef struct ring_queue {
    rsi_fs         *fs;
    struct io_uring ring;
    rsi_io_list     waiting;   /* no slot yet */
    rsi_io_list     done;      /* not reaped yet */
    size_t          prepared;  /* entries not yet taken by the kernel */
    size_t          in_kernel; /* taken, no result yet */
    bool            broken;    /* the ring is no longer used */
    unsigned        depth, nfree;
    slot           *slot;  /* [depth] */
    unsigned       *spare; /* [nfree] free slots */
} ring_queue;

static bool ring_can(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool                   can = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
               io_uring_opcode_supported(probe, IORING_OP_WRITE);

    io_uring_free_probe(probe);
    return can;
}

static void free_ring(ring_queue *q)
{
    rsi_free(q->slot);
    rsi_free(q->spare);
    rsi_free(q);
}

rsd_err rsi_fs_ring_open(rsi_fs *fs, size_t depth, void **out, rsd_error *err)
{
    ring_queue *q = rsi_calloc(1, sizeof(*q));
    int         failed;

    if (!q)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a queue");
    if (rsi_fs_limited()) { /* then SIGXFSZ could come in any system call */
        rsi_free(q);
        return rsi_fail(err, RSD_E_UNSUPPORTED, "files have a limit of size");
    }
    q->fs = fs;
    q->depth = depth < DEPTH_MAX ? (unsigned)depth : DEPTH_MAX;
    q->slot = rsi_calloc(q->depth, sizeof(q->slot[0]));
    q->spare = rsi_calloc(q->depth, sizeof(q->spare[0]));
    if (!q->slot || !q->spare) {
        free_ring(q);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a queue of %zu requests", depth);
    }
    while (q->nfree < q->depth) {
        q->spare[q->nfree] = q->nfree;
        q->nfree++;
    }
    failed = fs->sys->ring_init(q->depth, &q->ring);
    if (failed == 0 && (rsi_fs_scarce(q->ring.ring_fd) || !ring_can(&q->ring))) {
        io_uring_queue_exit(&q->ring);
        failed = -ENOSYS;
    }
    if (failed < 0) {
        free_ring(q);
        return rsi_fail_errno(err, RSD_E_UNSUPPORTED, -failed, "could not set up io_uring");
    }
    *out = q;
    return RSD_OK;
}

/* Adds the next piece of a slot's request to the ring, which has room for every slot. */
static void prepare(ring_queue *q, unsigned i)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&q->ring);
    slot                *s = &q->slot[i];
    rsi_io_piece        *p = &s->piece;

    *p = rsi_fs_piece(q->fs, s->io);
    if (s->io->op == RSD_IO_READ)
        io_uring_prep_read(sqe, p->fd, p->buf, (unsigned)p->len, (uint64_t)p->off);
    else
        io_uring_prep_write(sqe, p->fd, p->buf, (unsigned)p->len, (uint64_t)p->off);
    io_uring_sqe_set_data64(sqe, i);
    if (!p->direct && p->len >= ASYNC_MIN)
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    q->prepared++;
}

/* Moves waiting requests into free slots. */
static void fill_slots(ring_queue *q)
{
    while (q->nfree > 0 && q->waiting.n > 0) {
        rsd_io  *io = rsi_io_list_take(&q->waiting);
        unsigned i = q->spare[q->nfree - 1];

        if (!rsi_fs_io_begin(io)) {
            rsi_io_list_add(&q->done, io);
            continue;
        }
        q->nfree--;
        q->slot[i].io = io;
        prepare(q, i);
    }
}

static void finish_slot(ring_queue *q, unsigned i)
{
    rsi_io_list_add(&q->done, q->slot[i].io);
    q->slot[i].io = NULL;
    q->spare[q->nfree++] = i;
}

/* Collects what the kernel has finished. */
static void collect(ring_queue *q)
{
    struct io_uring_cqe *cqe;

    while (q->in_kernel > 0 && io_uring_peek_cqe(&q->ring, &cqe) == 0) {
        unsigned i = (unsigned)io_uring_cqe_get_data64(cqe);
        int      res = q->fs->sys->ring_result(cqe->res);
        slot    *s = &q->slot[i];

        io_uring_cqe_seen(&q->ring, cqe);
        q->in_kernel--;
        if (res == -EAGAIN || res == -ECANCELED || res == -ENOMEM) { /* the ring's problem */
            rsi_fs_transfer(q->fs, s->io);
            finish_slot(q, i);
        } else if (rsi_fs_piece_done(s->io, &s->piece, res)) {
            finish_slot(q, i);
        } else if (!q->broken) {
            prepare(q, i);
        }
    }
}

/* The kernel accepts no more: waits for what it has (it may still write to the buffers), then
 * completes the rest with plain calls. Results are posted by the time a system call returns to us.
 */
static void fall_back(ring_queue *q)
{
    q->broken = true;
    while (q->in_kernel > 0) {
        collect(q);
        sched_yield();
    }
    io_uring_queue_exit(&q->ring);
    q->prepared = 0;
    for (unsigned i = 0; i < q->depth; i++) {
        if (!q->slot[i].io)
            continue;
        rsi_fs_transfer(q->fs, q->slot[i].io);
        finish_slot(q, i);
    }
}

/* Submits prepared entries to the kernel and waits for `wait` results, 0 or 1. */
static void push(ring_queue *q, unsigned wait)
{
    int n = q->fs->sys->ring_submit(&q->ring, wait);

    if (n >= 0) {
        q->prepared -= (size_t)n;
        q->in_kernel += (size_t)n;
        return;
    }
    if (n == -EINTR || ((n == -EAGAIN || n == -EBUSY) && q->in_kernel > 0))
        return; /* retry when there is room */
    fall_back(q);
}

void rsi_fs_ring_submit(void *self, void *queue, rsd_io *io, size_t n)
{
    ring_queue *q = queue;

    (void)self;
    for (size_t i = 0; i < n; i++)
        rsi_io_list_add(&q->waiting, &io[i]);
    if (q->broken)
        return; /* reap does it */
    fill_slots(q);
    if (q->prepared > 0)
        push(q, 0);
}

/* Makes one step towards more results. */
static void progress(ring_queue *q, bool wait)
{
    size_t before = q->done.n;

    if (q->broken) {
        rsd_io *io = rsi_io_list_take(&q->waiting);

        rsi_fs_transfer(q->fs, io);
        rsi_io_list_add(&q->done, io);
        return;
    }
    collect(q);
    fill_slots(q);
    wait = wait && q->done.n == before;
    if (q->prepared > 0 || (wait && q->in_kernel > 0))
        push(q, wait);
}

static bool under_way(const ring_queue *q)
{
    return q->waiting.n > 0 || q->nfree < q->depth;
}

size_t rsi_fs_ring_reap(void *self, void *queue, size_t min, size_t cap, rsd_io **out)
{
    ring_queue *q = queue;
    size_t      n = 0;

    (void)self;
    if (under_way(q))
        progress(q, false);
    while (q->done.n < min && under_way(q))
        progress(q, true);
    while (n < cap && (out[n] = rsi_io_list_take(&q->done)))
        n++;
    return n;
}

void rsi_fs_ring_close(void *self, void *queue)
{
    ring_queue *q = queue;
    rsd_io     *gone;

    while (rsi_fs_ring_reap(self, q, 1, 1, &gone) > 0)
        ;
    if (!q->broken)
        io_uring_queue_exit(&q->ring);
    free_ring(q);
}

#else

rsd_err rsi_fs_ring_open(rsi_fs *fs, size_t depth, void **out, rsd_error *err)
{
    (void)fs;
    (void)depth;
    (void)out;
    return rsi_fail(err, RSD_E_UNSUPPORTED, "built without io_uring");
}

/* Never called, since no queue is ever opened. */
void rsi_fs_ring_submit(void *self, void *queue, rsd_io *io, size_t n)
{
    (void)self;
    (void)queue;
    (void)io;
    (void)n;
}

size_t rsi_fs_ring_reap(void *self, void *queue, size_t min, size_t cap, rsd_io **out)
{
    (void)self;
    (void)queue;
    (void)min;
    (void)cap;
    (void)out;
    return 0;
}

void rsi_fs_ring_close(void *self, void *queue)
{
    (void)self;
    (void)queue;
}

#endif
