/* SPDX-License-Identifier: Apache-2.0 */
/* doomed_rank.c - stands before the calls of a comm. See doomed_rank.h. */
#include "doomed_rank.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    GRACE_MS = 120000, /* for the others to come to the roll call, which ends when all have */
    TELL_MS = 10000    /* for the other ranks to tell how it ended */
};

static struct {
    const doom  *is;
    rsd_comm_ops ops; /* as they were */
    atomic_long *calls;
    pid_t        process;
    pthread_t    thread;
    const char  *phase;
} now;

bool doom_parse(const char *what, const char *rank, const char *at, doom *out)
{
    const char *colon = strchr(at, ':');
    char       *end_rank, *end_at;

    memset(out, 0, sizeof(*out));
    if (colon && colon - at < (ptrdiff_t)sizeof(out->in))
        memcpy(out->in, at, (size_t)(colon - at));
    at = colon ? colon + 1 : at;
    out->signal = strcmp(what, "kill") == 0   ? SIGKILL
                  : strcmp(what, "stop") == 0 ? SIGSTOP
                  : strcmp(what, "cut") == 0  ? 0
                                              : -1;
    out->rank = (int32_t)strtol(rank, &end_rank, 10);
    out->at = strtol(at, &end_at, 10);
    return out->signal >= 0 && end_rank > rank && end_at > at && !*end_rank && !*end_at;
}

static void write_note(const char *phase, const char *call)
{
    char line[64];
    int  n = snprintf(line, sizeof(line), "%s %s\n", phase, call);
    int  fd = open(now.is->note, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (fd < 0 || write(fd, line, (size_t)n) != n)
        fprintf(stderr, "could not write \"%s\"\n", now.is->note);
    if (fd >= 0)
        close(fd);
}

/* Returns what is left of the milliseconds. */
static int wait_for(const char *path, int ms)
{
    for (; ms > 0 && access(path, F_OK) != 0; ms--)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return ms;
}

static void wait_for_cut(void)
{
    char path[256];

    snprintf(path, sizeof(path), "%s.cut", now.is->note);
    wait_for(path, GRACE_MS);
}

void doom_told(const rsd_comm *comm)
{
    char path[256];
    int  fd, ms = TELL_MS;

    if (!now.is || access(now.is->note, F_OK) != 0)
        return;
    snprintf(path, sizeof(path), "%s.told.%d", now.is->note, (int)comm->rank);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0)
        close(fd);
    for (int32_t r = 0; r < comm->size; r++) {
        snprintf(path, sizeof(path), "%s.told.%d", now.is->note, (int)r);
        if (r != now.is->rank || !now.is->signal)
            ms = wait_for(path, ms);
    }
}

void doom_watch(const char *call, void *arg)
{
    bool        own = getpid() == now.process && pthread_equal(pthread_self(), now.thread);
    const char *phase = own ? now.phase : "write";

    (void)arg;
    if ((now.is->in[0] && strcmp(now.is->in, phase) != 0) ||
        atomic_fetch_add(now.calls, 1) + 1 != now.is->at)
        return;
    write_note(phase, call);
    if (now.is->signal)
        kill(now.process, now.is->signal);
    else
        wait_for_cut();
}

static rsd_err counted_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                            void **request, rsd_error *err)
{
    doom_watch("send", NULL);
    return now.ops.send(self, to, tag, data, bytes, request, err);
}

static rsd_err counted_recv(void *self, int32_t from, int32_t tag, void *data, size_t bytes,
                            void **request, rsd_error *err)
{
    doom_watch("recv", NULL);
    return now.ops.recv(self, from, tag, data, bytes, request, err);
}

static rsd_err patient_wait_some(void *self, size_t n, void **request, int64_t timeout_ms,
                                 rsd_error *err)
{
    rsd_err rc;

    do
        rc = now.ops.wait_some(self, n, request, timeout_ms, err);
    while (rc == RSD_E_TIMEOUT && err->rank < 0 && timeout_ms > 0 &&
           access(now.is->note, F_OK) != 0);
    return rc;
}

bool doom_begin(const doom *d, rsd_comm *comm, int64_t ms)
{
    void *shared =
        mmap(NULL, sizeof(*now.calls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (shared == MAP_FAILED)
        return false;
    now.is = d;
    now.ops = comm->ops;
    now.calls = shared;
    now.process = getpid();
    now.thread = pthread_self();
    now.phase = "begin";
    comm->timeout_ms = ms;
    comm->grace_ms = GRACE_MS;
    comm->present = d->signal ? comm->size - 1 : comm->size / 2;
    comm->ops.wait_some = patient_wait_some;
    if (comm->rank == d->rank) {
        comm->ops.send = counted_send;
        comm->ops.recv = counted_recv;
    }
    return true;
}

void doom_phase(const char *phase)
{
    now.phase = phase;
}

long doom_calls(void)
{
    return atomic_load(now.calls);
}
