/* SPDX-License-Identifier: Apache-2.0 */
/* A parallel for. Threads take jobs one at a time from a counter, which balances uneven ones. */
#include "base/workers.h"
#include "base/mem.h"
#include "base/pulse.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

struct rsi_workers {
    pthread_mutex_t lock;
    pthread_cond_t  work; /* there is work, or it is time to stop */
    pthread_cond_t  idle; /* the last busy thread has finished */
    int             nthreads;
    rsi_beats       beats; /* of the threads, for the caller to pass on */
    bool            stop;
    uint64_t        round; /* counts calls of run: tells a thread that there is a new one */

    rsi_job   job;
    void     *arg;
    size_t    n, next; /* jobs; the first one not yet taken */
    int       busy;    /* threads inside a job loop */
    size_t    failed;  /* lowest job that failed; n: none */
    rsd_err   rc;
    rsd_error err;

    pthread_t thread[];
};

/* Called and returns with the lock held. */
static void work(rsi_workers *w)
{
    while (w->next < w->n) {
        size_t    i = w->next++;
        rsd_error err = { .rank = -1 };
        rsd_err   rc;

        pthread_mutex_unlock(&w->lock);
        rc = w->job(w->arg, i, &err);
        pthread_mutex_lock(&w->lock);
        if (rc && i < w->failed) {
            w->failed = i;
            w->rc = rc;
            w->err = err;
        }
        if (rc)
            w->next = w->n;
    }
}

static void *thread_main(void *arg)
{
    rsi_workers *w = arg;
    uint64_t     seen = 0;

    rsi_pulse_set(rsi_beats_pulse(&w->beats));
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->stop && w->round == seen)
            pthread_cond_wait(&w->work, &w->lock);
        if (w->stop)
            break;
        seen = w->round;
        w->busy++;
        work(w);
        if (--w->busy == 0)
            pthread_cond_signal(&w->idle);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int rsi_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

rsd_err rsi_workers_create(int threads, rsi_workers **out, rsd_error *err)
{
    rsi_workers *w;

    if (threads < 0)
        return rsi_fail(err, RSD_E_INVALID, "%d threads asked for", threads);
    if (threads == 0)
        threads = rsi_cpus();
    w = rsi_calloc(1, sizeof(*w) + (size_t)(threads - 1) * sizeof(w->thread[0]));
    if (!w)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %d worker threads", threads);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->work, NULL);
    rsi_pulse_cond(&w->idle);
    while (w->nthreads < threads - 1 &&
           pthread_create(&w->thread[w->nthreads], NULL, thread_main, w) == 0)
        w->nthreads++;
    *out = w;
    return RSD_OK;
}

void rsi_workers_free(rsi_workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < w->nthreads; i++)
        pthread_join(w->thread[i], NULL);
    pthread_cond_destroy(&w->idle);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    rsi_free(w);
}

int rsi_workers_count(const rsi_workers *workers)
{
    return workers ? workers->nthreads + 1 : 1;
}

static rsd_err run_alone(size_t n, rsi_job job, void *arg, rsd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        rsd_err rc = job(arg, i, err);

        if (rc)
            return rc;
    }
    return RSD_OK;
}

rsd_err rsi_workers_run(rsi_workers *w, size_t n, rsi_job job, void *arg, rsd_error *err)
{
    rsi_beats *before;
    rsd_err    rc;

    if (!w || w->nthreads == 0 || n < 2)
        return run_alone(n, job, arg, err);
    pthread_mutex_lock(&w->lock);
    w->job = job;
    w->arg = arg;
    w->n = n;
    w->next = 0;
    w->failed = n;
    w->rc = RSD_OK;
    w->round++;
    w->busy++;
    pthread_cond_broadcast(&w->work);
    before = rsi_crew_set(&w->beats);
    work(w);
    w->busy--;
    while (w->busy > 0)
        rsi_pulse_wait(&w->idle, &w->lock);
    rsi_crew_set(before);
    rc = w->rc;
    if (rc && err)
        *err = w->err;
    pthread_mutex_unlock(&w->lock);
    return rc;
}
