/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of open files with a clock hand: a file used since the hand last passed is spared once,
 * then the next idle one is closed. Each file counts its users, -1 when it is closed, so that
 * reading takes no lock. */
#include "store/handles.h"

#include <errno.h>
#include <sys/resource.h>
#include <time.h>

enum { CLOSED = -1, LEAST = 4, TURNS = 4, WAITS = 30000 /* milliseconds */ };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rsi_file       *hand; /* NULL: none is open */
static size_t          nopen;

static atomic_int         writing; /* files open for writing, in all threads */
static _Thread_local int  mine;    /* those opened by this one */
static atomic_int         opening; /* threads that have a turn to open a file */
static _Thread_local bool to_write_now;

static void wait_ms(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

/* Half of the process's limit: the rest is for folders, locks and the program itself. */
static size_t most(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return limit.rlim_cur / 2 < LEAST ? LEAST : (size_t)limit.rlim_cur / 2;
}

/* The lock is held. */
static void take_out(rsi_file *file)
{
    if (!file->next)
        return;
    hand = file->next == file ? NULL : hand == file ? file->next : hand;
    file->next->prev = file->prev;
    file->prev->next = file->next;
    file->next = file->prev = NULL;
    nopen--;
}

/* The lock is held. Closes one idle file. False: all are in use. */
static bool close_one(void)
{
    for (size_t i = 0; i < 2 * nopen; i++) {
        rsi_file *file = hand;
        int       idle = 0;

        hand = file->next;
        if (atomic_exchange(&file->recent, false) ||
            !atomic_compare_exchange_strong(&file->users, &idle, CLOSED))
            continue;
        take_out(file);
        rsi_file_shut(file);
        return true;
    }
    return false;
}

void rsi_handles_add(rsi_file *file)
{
    size_t limit = most();

    pthread_mutex_lock(&lock);
    while (nopen >= limit && close_one())
        ;
    if (!hand) {
        file->next = file->prev = hand = file;
    } else { /* behind the hand, which reaches this one last */
        file->next = hand;
        file->prev = hand->prev;
        hand->prev->next = file;
        hand->prev = file;
    }
    nopen++;
    pthread_mutex_unlock(&lock);
}

void rsi_handles_drop(rsi_file *file)
{
    pthread_mutex_lock(&lock);
    take_out(file);
    pthread_mutex_unlock(&lock);
}

bool rsi_handle_take(rsi_file *file)
{
    int users = atomic_load(&file->users);

    while (users != CLOSED)
        if (atomic_compare_exchange_weak(&file->users, &users, users + 1))
            return true;
    pthread_mutex_lock(&lock); /* whoever marked it may still be closing it */
    pthread_mutex_unlock(&lock);
    return false;
}

void rsi_handle_leave(rsi_file *file)
{
    atomic_store_explicit(&file->recent, true, memory_order_relaxed);
    atomic_fetch_sub(&file->users, 1);
}

void rsi_handles_writing(int change)
{
    atomic_fetch_add(&writing, change);
    mine += change;
}

void rsi_handles_turn_begin(bool to_write)
{
    const size_t turns = most() / TURNS + 1;

    to_write_now = to_write;
    for (int tries = 0;; tries++) {
        if ((size_t)atomic_fetch_add(&opening, 1) < turns || mine > 0 || tries == WAITS)
            return;
        atomic_fetch_sub(&opening, 1);
        wait_ms();
    }
}

void rsi_handles_turn_end(void)
{
    to_write_now = false;
    atomic_fetch_sub(&opening, 1);
}

bool rsi_handles_spare(bool to_write, int tries)
{
    const int kept = errno;
    bool      wait, closed;

    to_write = to_write || to_write_now;
    pthread_mutex_lock(&lock);
    closed = (!to_write || nopen > 1) && close_one();
    wait =
        !closed && tries < WAITS && !(to_write && mine > 0) && (hand || atomic_load(&writing) > 0);
    pthread_mutex_unlock(&lock);
    if (wait)
        wait_ms();
    errno = kept;
    return closed || wait;
}
