/* SPDX-License-Identifier: Apache-2.0 */
/* Runs requests on the store's threads and in the caller of reap. One lock serves all queues of a
 * store; a thread takes several small requests at once, so there is little contention. */
#include "store/io_queue.h"
#include "base/mem.h"

#include <pthread.h>

enum {
    BATCH = 16,              /* requests that a thread takes at a time, */
    BATCH_BYTES = 256 * 1024 /* unless they have more bytes than this */
};

struct rsi_io_threads {
    pthread_mutex_t lock;
    pthread_cond_t  work; /* there is work, or it is time to stop */
    void (*transfer)(void *self, rsd_io *io);
    void       *self;
    rsi_io_list waiting; /* not yet taken */
    int         idle;    /* threads that wait for work */
    bool        stop;
    int         n;
    pthread_t   thread[];
};

struct rsi_io_queue {
    rsi_io_threads *threads;
    pthread_cond_t  more; /* `done` has grown */
    rsi_io_list     done;
    size_t          under_way; /* submitted and not yet in `done` */
};

/* Called and returns with the lock held. Leaves the other threads their share. */
static void work(rsi_io_threads *t)
{
    rsi_io_list mine = { 0 };
    rsd_io     *io;
    size_t      share = t->waiting.n / ((size_t)t->n + 1), bytes = 0;

    share = share < 1 ? 1 : share > BATCH ? BATCH : share;
    while (mine.n < share && bytes < BATCH_BYTES && (io = rsi_io_list_take(&t->waiting))) {
        bytes += io->len;
        rsi_io_list_add(&mine, io);
    }
    pthread_mutex_unlock(&t->lock);
    for (io = mine.head; io; io = io->own[0])
        t->transfer(t->self, io);
    pthread_mutex_lock(&t->lock);
    while ((io = rsi_io_list_take(&mine))) {
        rsi_io_queue *q = io->own[1];

        q->under_way--;
        rsi_io_list_add(&q->done, io);
        pthread_cond_signal(&q->more);
    }
}

static void *thread_main(void *arg)
{
    rsi_io_threads *t = arg;

    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->stop && t->waiting.n == 0) {
            t->idle++;
            pthread_cond_wait(&t->work, &t->lock);
            t->idle--;
        }
        if (t->stop)
            break;
        work(t);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

rsd_err rsi_io_threads_create(int threads, void (*transfer)(void *self, rsd_io *io), void *self,
                              rsi_io_threads **out, rsd_error *err)
{
    rsi_io_threads *t;

    t = rsi_calloc(1, sizeof(*t) + (size_t)(threads - 1) * sizeof(t->thread[0]));
    if (!t)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %d threads", threads);
    t->transfer = transfer;
    t->self = self;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    while (t->n < threads - 1) {
        int rc;

        /* Under the lock, since thread_main may already run and reads n. */
        pthread_mutex_lock(&t->lock);
        rc = pthread_create(&t->thread[t->n], NULL, thread_main, t);
        if (rc == 0)
            t->n++;
        pthread_mutex_unlock(&t->lock);
        if (rc != 0)
            break;
    }
    *out = t;
    return RSD_OK;
}

void rsi_io_threads_free(rsi_io_threads *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->n; i++)
        pthread_join(t->thread[i], NULL);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    rsi_free(t);
}

rsd_err rsi_io_queue_open(rsi_io_threads *threads, rsi_io_queue **out, rsd_error *err)
{
    rsi_io_queue *q = rsi_calloc(1, sizeof(*q));

    if (!q)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a queue");
    q->threads = threads;
    pthread_cond_init(&q->more, NULL);
    *out = q;
    return RSD_OK;
}

void rsi_io_queue_close(rsi_io_queue *q)
{
    rsd_io *gone;

    while (rsi_io_queue_reap(q, 1, 1, &gone) > 0)
        ;
    pthread_cond_destroy(&q->more);
    rsi_free(q);
}

void rsi_io_queue_submit(rsi_io_queue *q, rsd_io *io, size_t n)
{
    rsi_io_threads *t = q->threads;

    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < n; i++) {
        io[i].own[1] = q;
        rsi_io_list_add(&t->waiting, &io[i]);
    }
    q->under_way += n;
    for (size_t i = 0; i < n && i < (size_t)t->idle; i++)
        pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->lock);
}

size_t rsi_io_queue_reap(rsi_io_queue *q, size_t min, size_t cap, rsd_io **out)
{
    rsi_io_threads *t = q->threads;
    size_t          n = 0;

    pthread_mutex_lock(&t->lock);
    if (t->n == 0 && q->done.n == 0 && t->waiting.n > 0)
        work(t); /* no other thread will, not even for a caller that only polls */
    while (q->done.n < min && q->under_way > 0) {
        if (t->waiting.n > 0)
            work(t);
        else
            pthread_cond_wait(&q->more, &t->lock);
    }
    while (n < cap && (out[n] = rsi_io_list_take(&q->done)))
        n++;
    pthread_mutex_unlock(&t->lock);
    return n;
}
