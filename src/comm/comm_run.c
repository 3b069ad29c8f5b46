/* SPDX-License-Identifier: Apache-2.0 */
/* Creates comms of threads, and runs the threads for callers that have none. The transport is
 * comm_threads.c. */
#include "comm/comm_threads.h"
#include "base/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#define THREADS_MAX 4096

rsd_err rsd_comm_create_threads(int32_t n, rsd_comm **out, rsd_error *err)
{
    void     **self = NULL; /* [n] */
    rsd_comm **comm = NULL; /* [n] */
    int32_t    made = 0;
    rsd_err    rc;

    if (!out || n < 1 || n > THREADS_MAX)
        return rsi_fail(err, RSD_E_INVALID,
                        "a comm can't have %" PRId32 " threads: 1 to %d are possible", n,
                        THREADS_MAX);
    self = rsi_calloc((size_t)n, sizeof(self[0]));
    comm = rsi_calloc((size_t)n, sizeof(comm[0]));
    if (!self || !comm) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a comm of %" PRId32 " threads", n);
        goto out;
    }
    rc = rsi_threads_open(n, self, err);
    if (rc)
        goto out;
    while (!rc && made < n) {
        rc = rsd_comm_create_custom(&rsi_threads_ops, self[made], &comm[made], err);
        made += !rc;
    }
    if (!rc)
        memcpy(out, comm, (size_t)n * sizeof(out[0]));
    for (int32_t i = 0; i < n && rc; i++)
        if (i < made)
            rsd_comm_free(comm[i]);
        else
            rsi_threads_ops.close(self[i]);
out:
    rsi_free(self);
    rsi_free(comm);
    return rc;
}

typedef struct run run;

typedef struct rank_thread {
    run      *run;
    rsd_comm *comm;
    pthread_t thread;
} rank_thread;

struct run {
    rsd_err (*fn)(void *arg, rsd_comm *comm, rsd_error *err);
    void           *arg;
    pthread_mutex_t lock; /* of the two below */
    rsd_err         rc;   /* of the rank that failed first in time: most others */
    rsd_error       err;  /* fail because of it */
};

static void *rank_main(void *arg)
{
    rank_thread *t = arg;
    run         *all = t->run;
    int32_t      rank = rsd_comm_rank(t->comm);
    rsd_error    err = { .rank = -1 };
    rsd_err      rc = all->fn(all->arg, t->comm, &err);

    if (rc) {
        if (err.rank < 0) {
            rsi_while(&err, rc, "rank %" PRId32, rank);
            err.rank = rank;
            err.nfailed = 1;
        }
        pthread_mutex_lock(&all->lock);
        if (!all->rc) {
            all->rc = rc;
            all->err = err;
        }
        pthread_mutex_unlock(&all->lock);
    }
    rsd_comm_free(t->comm); /* also tells ranks that still wait for this one */
    return NULL;
}

/* Starts all threads and returns how many the system granted. */
static int32_t start(run *all, int32_t n, rank_thread *thread, rsd_comm **comm)
{
    int32_t started = 0;

    while (started < n) {
        rank_thread *t = &thread[started];

        *t = (rank_thread){ .run = all, .comm = comm[started] };
        if (pthread_create(&t->thread, NULL, rank_main, t) != 0)
            break;
        started++;
    }
    return started;
}

rsd_err rsd_comm_run_threads(int32_t n, rsd_err (*fn)(void *arg, rsd_comm *comm, rsd_error *err),
                             void *arg, rsd_error *err)
{
    run          all = { .fn = fn, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER };
    rsd_comm   **comm = NULL;   /* [n] */
    rank_thread *thread = NULL; /* [n] */
    int32_t      started;
    rsd_err      rc;

    if (!fn || n < 1 || n > THREADS_MAX)
        return rsi_fail(err, RSD_E_INVALID,
                        "%" PRId32 " threads can't be run: give 1 to %d and a function", n,
                        THREADS_MAX);
    comm = rsi_calloc((size_t)n, sizeof(comm[0]));
    thread = rsi_calloc((size_t)n, sizeof(thread[0]));
    if (!comm || !thread) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %" PRId32 " threads", n);
        goto out;
    }
    rc = rsd_comm_create_threads(n, comm, err);
    if (rc)
        goto out;
    started = start(&all, n, thread, comm);
    for (int32_t i = started; i < n; i++)
        rsd_comm_free(comm[i]);
    for (int32_t i = 0; i < started; i++)
        pthread_join(thread[i].thread, NULL);
    rc = all.rc;
    if (started < n)
        rc = rsi_fail(err, RSD_E_NOMEM,
                      "the system gave %" PRId32 " of %" PRId32 " threads, no memory for more",
                      started, n);
    else if (rc && err)
        *err = all.err;
out:
    rsi_free(comm);
    rsi_free(thread);
    return rc;
}
