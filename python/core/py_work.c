/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the library that take time. They run in a thread of their own while the caller, who
 * released the GIL, looks for signals and reports progress every few milliseconds: so Ctrl-C works
 * whatever the library is doing, and no thread but the caller's ever runs Python. */
#include "py_core.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define TICK  0.05 /* seconds between looks at signals and progress */
#define GRACE 0.5  /* seconds in which work that was asked to stop may end */
#define LAST  30.0 /* more of them when the program ends, until the next Ctrl-C */

work *work_new(size_t size, rsd_err (*run)(work *, rsd_error *), void (*release)(work *))
{
    pthread_condattr_t attr;
    work              *w = calloc(1, size);

    if (!w) {
        PyErr_NoMemory();
        return NULL;
    }
    w->run = run;
    w->free = release;
    w->err.rank = -1;
    w->process = getpid();
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->change, &attr);
    pthread_condattr_destroy(&attr);
    return w;
}

int work_progress(void *arg, int64_t done, int64_t total)
{
    work *w = arg;

    atomic_store(&w->total, total);
    atomic_store(&w->at, done);
    return atomic_load(&w->cancel);
}

void work_reach(work *w, int phase)
{
    pthread_mutex_lock(&w->lock);
    w->phase = phase;
    pthread_cond_broadcast(&w->change);
    pthread_mutex_unlock(&w->lock);
}

static void *thread_main(void *arg)
{
    work *w = arg;

    w->rc = w->run(w, &w->err);
    work_reach(w, WORK_DONE);
    return NULL;
}

/* Blocks signals in the thread: they are for Python's. */
static int start(core *c, work *w)
{
    sigset_t all, was;
    int      sys;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    sys = pthread_create(&w->thread, NULL, thread_main, w);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    w->started = sys == 0;
    return sys == 0 ? 0 : work_inline(c, w);
}

/* Joins at the end, so that no thread is left when memory is given back. */
static int reached(work *w, double seconds)
{
    struct timespec until;
    int             phase, sys = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&w->lock);
    phase = w->phase;
    if (phase != WORK_DONE && seconds > 0)
        sys = pthread_cond_timedwait(&w->change, &w->lock, &until);
    (void)sys; /* woken or not, what counts is the phase */
    phase = w->phase;
    pthread_mutex_unlock(&w->lock);
    if (phase == WORK_DONE && w->started && !w->joined) {
        pthread_join(w->thread, NULL);
        w->joined = true;
    }
    return phase;
}

static int wait_without_gil(work *w, int phase, double seconds)
{
    int now = 0;

    Py_BEGIN_ALLOW_THREADS for (double left = seconds; now < phase && left > -TICK; left -= TICK)
        now = reached(w, left < TICK ? left > 0 ? left : 0 : TICK);
    Py_END_ALLOW_THREADS return now;
}

void work_join(work *w)
{
    while (wait_without_gil(w, WORK_DONE, TICK) < WORK_DONE)
        continue;
}

static int tell(work *w, PyObject *progress, long long *last)
{
    const long long at = atomic_load(&w->at), total = atomic_load(&w->total);
    PyObject       *result;

    if (progress == Py_None || !progress || at == *last)
        return 0;
    *last = at;
    result = PyObject_CallFunction(progress, "LL", at, total);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

int work_wait(core *c, work *w, int phase, double seconds, PyObject *progress)
{
    long long last = -1;
    double    gone = 0;
    int       now = 0;

    if (w->process != getpid()) {
        PyErr_SetString(PyExc_RuntimeError, "this operation belongs to the parent process");
        return -1;
    }
    for (;;) {
        const double left = seconds < 0 || seconds - gone > TICK ? TICK : seconds - gone;

        now = wait_without_gil(w, phase, left > 0 ? left : 0);
        gone += TICK;
        if (PyErr_CheckSignals() < 0 || tell(w, progress, &last) < 0)
            return -1;
        if (now >= phase)
            break;
        if (seconds >= 0 && gone >= seconds)
            return 0;
    }
    if (now == WORK_DONE && w->rc)
        return fail_with(c, &w->err);
    return 1;
}

/* Frees what has ended since. */
static void reap(core *c)
{
    for (work **p = &c->abandoned; *p;) {
        work *w = *p;

        if (wait_without_gil(w, WORK_DONE, 0) == WORK_DONE) {
            *p = w->next;
            work_free(c, w);
        } else {
            p = &w->next;
        }
    }
}

int work_inline(core *c, work *w)
{
    Py_BEGIN_ALLOW_THREADS w->rc = w->run(w, &w->err);
    w->phase = WORK_DONE;
    Py_END_ALLOW_THREADS return w->rc ? fail_with(c, &w->err) : 0;
}

int work_run(core *c, work *w, int phase, PyObject *progress)
{
    PyObject *type, *value, *trace;

    reap(c);
    if (start(c, w) < 0)
        return -1;
    if (work_wait(c, w, phase, -1, progress) == 1)
        return 0;
    PyErr_Fetch(&type, &value, &trace);
    atomic_store(&w->cancel, true);
    if (w->comm && !w->joined) /* the other ranks would wait for this one */
        rsd_comm_abort(w->comm, "its call was interrupted");
    wait_without_gil(w, WORK_DONE, GRACE);
    PyErr_Restore(type, value, trace);
    return -1;
}

static work *next_writer(const core *c)
{
    work *w = c->abandoned;

    while (w && !w->writes)
        w = w->next;
    return w;
}

/* settle(): at the end of the program, lets interrupted work remove what it has begun to write. */
PyObject *core_settle(PyObject *module, PyObject *none)
{
    core *c = PyModule_GetState(module);
    work *w;

    (void)none;
    reap(c);
    for (double gone = 0; (w = next_writer(c)) && gone < LAST; gone += TICK) {
        wait_without_gil(w, WORK_DONE, TICK);
        if (PyErr_CheckSignals() < 0)
            return NULL;
        reap(c);
    }
    return Py_NewRef(Py_None);
}

/* Keeps a work that still runs. */
static void abandon(core *c, work *w)
{
    PyObject *type, *value, *trace, *own, *settle, *atexit, *done;

    w->next = c->abandoned;
    c->abandoned = w;
    if (!w->writes || c->settles)
        return;
    c->settles = true;
    PyErr_Fetch(&type, &value, &trace);
    own = PyImport_ImportModule("reshard._core");
    settle = own ? PyObject_GetAttrString(own, "settle") : NULL;
    atexit = settle ? PyImport_ImportModule("atexit") : NULL;
    done = atexit ? PyObject_CallMethod(atexit, "register", "O", settle) : NULL;
    Py_XDECREF(own);
    Py_XDECREF(settle);
    Py_XDECREF(atexit);
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace); /* without it a tree may be left, for the next save */
}

void work_free(core *c, work *w)
{
    if (!w)
        return;
    if (w->started && !w->joined) {
        abandon(c, w);
        return;
    }
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->lock);
    w->free(w);
}
