/* SPDX-License-Identifier: Apache-2.0 */
/* A save spread over calls. begin does everything that needs other ranks before the first byte
 * (plan, tree) and stages; a thread or a child process (snapshot.c) writes and syncs this rank's
 * files without communicating; when it has ended, test and wait vote and publish on the caller's
 * thread (outcome.c). So only calling threads ever use the transport, and no other call is
 * disturbed. */
#include "save/async.h"
#include "base/mem.h"
#include "commit/outcome.h"
#include "save/snapshot.h"
#include "save/stage.h"
#include "write/write_together.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

typedef struct rsi_async async;

struct rsi_async {
    rsi_save_job      job;
    rsd_op           *op;               /* until the caller owns it */
    char             *path, *transform; /* copies: the caller's may be gone by then */
    const rsd_state  *home;             /* the caller's state */
    rsd_stage_way     how;
    rsi_stage         stage;
    rsi_stage_memory *kept_in;
    rsi_kept          kept; /* of jointly written files */
    rsi_snapshot      child;
    pthread_t         thread;
    bool              started; /* a thread or child must be waited for */
    pthread_mutex_t   lock;    /* guards the next four, which the thread sets */
    pthread_cond_t    change;
    rsi_beats         beats; /* of the thread */
    bool              written;
    rsd_err           write_rc;
    rsd_error         write_err;
    atomic_bool       cancel;
    bool              voted, done;
    rsi_outcome       outcome;
    rsd_err           rc; /* valid once done */
    rsd_error         err;
    async            *next; /* in the list of those in progress */
};

/* Saves in progress in this process, so that the next one on the same comm or state waits. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static async          *under_way;

static void enlist(async *a)
{
    pthread_mutex_lock(&list_lock);
    a->next = under_way;
    under_way = a;
    pthread_mutex_unlock(&list_lock);
}

static void delist(async *a)
{
    pthread_mutex_lock(&list_lock);
    for (async **p = &under_way; *p; p = &(*p)->next)
        if (*p == a) {
            *p = a->next;
            break;
        }
    pthread_mutex_unlock(&list_lock);
}

static async *find(const rsd_comm *comm, const rsd_state *state)
{
    async *a;

    pthread_mutex_lock(&list_lock);
    for (a = under_way; a; a = a->next)
        if ((comm && a->job.commit.comm == comm) || a->home == state)
            break;
    pthread_mutex_unlock(&list_lock);
    return a;
}

/* ---- the background ---- */

/* Also called as the last check before the name is published. */
static rsd_err canceled(void *arg, rsd_error *err)
{
    const async *a = arg;

    return atomic_load(&a->cancel) ? rsi_fail(err, RSD_E_CANCELED, "canceled by the caller")
                                   : RSD_OK;
}

/* Wraps the caller's on_progress. */
static int on_progress(void *arg, int64_t done, int64_t total)
{
    async               *a = arg;
    const rsd_save_opts *opts = &a->job.opts;

    if (atomic_load(&a->cancel))
        return 1;
    return opts->on_progress ? opts->on_progress(opts->arg, done, total) : 0;
}

static rsd_err write_files(async *a, rsd_error *err)
{
    rsi_save_job *job = &a->job;

    if (job->shared)
        return rsi_kept_write(&a->kept, &job->commit.image, job->commit.store, &job->commit.flush,
                              err);
    return rsi_write_files(&job->commit.image, job->state, job->commit.rank, job->commit.store,
                           &job->commit.flush, err);
}

static void *thread_main(void *arg)
{
    async    *a = arg;
    rsd_error err = { .rank = -1 };
    rsd_err   rc;

    rsi_pulse_set(rsi_beats_pulse(&a->beats));
    rc = write_files(a, &err);
    pthread_mutex_lock(&a->lock);
    a->written = true;
    a->write_rc = rc;
    a->write_err = err;
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* Blocks signals: they are for the caller's threads. */
static rsd_err start_thread(async *a, rsd_error *err)
{
    sigset_t all, was;
    int      sys;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    sys = pthread_create(&a->thread, NULL, thread_main, a);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (sys)
        return rsi_fail_errno(err, RSD_E_NOMEM, sys, "could not start a thread that writes");
    return RSD_OK;
}

/* True if it has ended; write_rc has the result. */
static bool look_thread(async *a, bool wait)
{
    rsi_beats *before;
    bool       ended;

    before = rsi_crew_set(&a->beats);
    pthread_mutex_lock(&a->lock);
    while (wait && !a->written)
        rsi_pulse_wait(&a->change, &a->lock);
    ended = a->written;
    pthread_mutex_unlock(&a->lock);
    rsi_crew_set(before);
    rsi_beats_pass(&a->beats);
    if (ended) {
        pthread_join(a->thread, NULL);
        a->started = false;
    }
    return ended;
}

static bool look(async *a, bool wait)
{
    bool ended = false;

    if (!a->started)
        return true;
    if (a->how == RSD_STAGE_COPY)
        return look_thread(a, wait);
    a->write_rc = rsi_snapshot_look(&a->child, &a->job, wait, &ended, &a->write_err);
    a->started = !ended;
    return ended;
}

/* ---- progress ---- */

/* Releases everything but the op itself, which keeps the result. */
static void finish(async *a, rsd_err rc, rsd_error *err)
{
    rsi_free(a->kept.block);
    a->kept = (rsi_kept){ 0 };
    rsi_stage_give(a->home, a->kept_in);
    a->kept_in = NULL;
    rsi_stage_end(&a->stage, &a->job, a->home);
    if (!rsi_outcome_end(&a->outcome))
        a->job.commit.sums = (rsi_sums){ 0 }; /* still used by the transport: never freed */
    a->job.commit.path = a->path;
    a->rc = rsi_save_end(&a->job, rc, err);
    if (rc)
        a->err = *err;
    a->done = true;
    delist(a);
}

/* Advances as far as possible; `wait`: to the end. */
static void advance(async *a, bool wait)
{
    rsd_error err = { .rank = -1 };
    bool      done = false;
    rsd_err   rc;

    if (!look(a, wait))
        return;
    if (!a->voted) {
        rc = a->write_rc;
        if (!rc || a->how == RSD_STAGE_FORK)
            rc = canceled(a, &a->write_err) ? RSD_E_CANCELED : rc;
        rsi_outcome_vote(&a->outcome, rc, &a->write_err);
        a->voted = true;
    }
    rc = rsi_outcome_go(&a->outcome, wait, &done, &err);
    if (done)
        finish(a, rc, &err);
}

static void go(async *a, bool wait)
{
    rsi_pulse before;

    if (a->done)
        return;
    before = rsi_comm_enter(a->job.commit.comm);
    advance(a, wait);
    rsi_comm_leave(before, RSD_OK);
}

static rsd_err result(const async *a, rsd_error *err)
{
    if (a->rc && err)
        *err = a->err;
    return a->rc;
}

static rsd_err test_async(void *self, rsd_phase phase, bool *done, rsd_error *err)
{
    async *a = self;

    go(a, false);
    *done = a->done || phase == RSD_STAGED;
    return a->done ? result(a, err) : RSD_OK;
}

static rsd_err wait_async(void *self, rsd_phase phase, rsd_error *err)
{
    async *a = self;

    if (phase == RSD_DURABLE)
        go(a, true);
    return a->done ? result(a, err) : RSD_OK; /* staged since the beginning */
}

static void cancel_async(void *self)
{
    async *a = self;

    atomic_store(&a->cancel, true);
    if (a->how == RSD_STAGE_FORK)
        rsi_snapshot_cancel(&a->child);
}

void rsi_async_free(async *a)
{
    if (!a)
        return;
    rsd_op_free(a->op);
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
    rsi_snapshot_end(&a->child);
    rsi_free(a->path);
    rsi_free(a->transform);
    rsi_free(a);
}

static void free_async(void *self)
{
    async    *a = self;
    rsd_error err = { .rank = -1 };

    if (!a->done) {
        cancel_async(a);
        look(a, true);
        rsi_fail(&err, RSD_E_CANCELED, "a save was freed before it had finished");
        if (a->outcome.peers)
            rsi_break(a->job.commit.comm, RSD_E_CANCELED, &err);
        finish(a, RSD_E_CANCELED, &err);
    }
    rsi_async_free(a);
}

static const rsi_op_ops async_ops = { test_async, wait_async, cancel_async, free_async };

/* ---- beginning ---- */

rsd_err rsi_async_create(const char *path, rsd_stage_way how, const rsd_save_opts *opts,
                         rsi_async **out, rsd_error *err)
{
    async  *a = rsi_calloc(1, sizeof(*a));
    rsd_err rc;

    if (!a)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a save");
    pthread_mutex_init(&a->lock, NULL);
    rsi_pulse_cond(&a->change);
    a->how = how;
    a->child = (rsi_snapshot){ .line = -1 };
    a->path = rsi_strdup(path);
    a->transform = opts->transform ? rsi_strdup(opts->transform) : NULL;
    rc = a->path && (a->transform || !opts->transform)
             ? rsi_op_create(&async_ops, NULL, &a->op, err)
             : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    if (rc)
        rsi_async_free(a);
    else
        *out = a;
    return rc;
}

/* Gathers this rank's share of jointly written files now, so that the background needs no other
 * rank. [collective] */
static rsd_err gather_now(async *a, rsd_error *err)
{
    rsi_commit    *c = &a->job.commit;
    rsi_write_opts flush = c->flush;
    size_t         bytes = rsi_kept_bytes(&c->image, c->comm->size);
    rsd_err        rc = rsi_stage_take(a->home, bytes, &a->kept_in, err);

    if (!rc)
        a->kept = (rsi_kept){ .mem = a->kept_in->at, .bytes = bytes };
    flush.on_progress = NULL; /* called while the files are written */
    rc = rsi_agree(c->comm, rc, err);
    return rc ? rc
              : rsi_write_together(&c->image, a->job.state, c->comm, c->store, &flush, &a->kept,
                                   err);
}

/* Copies, or forks. [local], or [collective] for jointly written files. */
static rsd_err stage(async *a, rsd_error *err)
{
    rsi_save_job *job = &a->job;

    rsi_save_how(job);
    job->commit.flush.on_progress = on_progress;
    job->commit.flush.arg = a;
    if (a->how == RSD_STAGE_FORK)
        return rsi_snapshot_check(job, err);
    if (job->shared)
        return gather_now(a, err);
    return rsi_stage_make(&a->stage, job, a->home, err);
}

/* No rank waits here for slower ones: a failure to start counts as the result of writing. */
static void start(async *a)
{
    rsd_error err = { .rank = -1 };
    rsd_err   rc = a->how == RSD_STAGE_COPY ? start_thread(a, &err)
                                            : rsi_snapshot_start(&a->child, &a->job, &err);

    a->started = !rc;
    if (rc) { /* else the thread owns them */
        a->write_rc = rc;
        a->write_err = err;
    }
}

static rsd_err prepare(async *a, rsd_comm *comm, const rsd_save_opts *opts, rsd_error *err)
{
    rsd_save_opts known = *opts;
    rsd_err       rc;

    known.transform = a->transform;
    rc = rsi_save_plan(&a->job, a->path, comm, a->home, &known, err);
    if (!rc)
        rc = rsi_commit_agree(&a->job.commit, rsi_outcome_begin(&a->outcome, &a->job.commit, err),
                              err);
    if (!rc)
        rc = rsi_commit_open(&a->job.commit, err);
    if (rc)
        return rc; /* on all ranks; to agree again would name other ranks */
    rc = stage(a, err);
    if (!rc || !a->job.shared) /* shared files have already agreed */
        rc = rsi_commit_agree(&a->job.commit, rc, err);
    return rc;
}

rsd_err rsi_async_begin(async *a, rsd_comm *comm, const rsd_state *state, const rsd_save_opts *opts,
                        rsd_op **out, rsd_error *err)
{
    async  *before;
    rsd_err rc;

    err = err ? err : &(rsd_error){ .rank = -1 };
    while ((before = find(comm, state)))
        go(before, true); /* its result is reported when it is waited for */
    a->home = state;
    rc = prepare(a, comm, opts, err);
    if (rc) {
        finish(a, rc, err);
        rc = a->rc;
        rsi_async_free(a);
        return rc;
    }
    a->outcome.last = canceled;
    a->outcome.arg = a;
    start(a);
    enlist(a);
    rsi_op_set(a->op, a);
    *out = a->op;
    a->op = NULL;
    return RSD_OK;
}
