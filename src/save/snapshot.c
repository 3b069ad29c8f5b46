/* SPDX-License-Identifier: Apache-2.0 */
/* Forks; the child writes with write_files.c on its only thread with plain calls: no queues (their
 * threads and rings belong to the parent), no comm, no exit handlers. It allocates a little memory,
 * which the C library's fork allows. A socket joins the two: the child sends its results over it
 * and exits when the parent does; if the child dies, the parent sees the socket close. The child
 * shares the parent's lock on the temporary tree, so no other process removes it. */
#include "save/snapshot.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "commit/outcome.h"
#include "write/block.h"
#include "save/stage.h"
#include "format/transform.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_MS = 1000, READ = 64 << 10 }; /* between checks that the child is alive; bytes */
#define COMPLETE UINT64_C(0x72736420736e6170)

/* The child's first message; rows of checksums and places of items follow. */
typedef struct head {
    uint64_t  complete; /* COMPLETE */
    uint64_t  nsums, nplaces;
    rsd_error err; /* .code 0: everything is written and synced */
} head;

/* ---- checks ---- */

static rsd_err check_views(const rsd_state *state, rsd_error *err)
{
    for (size_t t = 0; t < state->ntensors; t++)
        for (size_t i = 0; i < state->tensor[t].views.n; i++)
            if (!state->tensor[t].views.view[i].data && state->tensor[t].views.view[i].get)
                return rsi_fail(err, RSD_E_UNSUPPORTED,
                                "tensor \"%s\" is read through a callback, which a forked process "
                                "can't call: stage with RSD_STAGE_COPY",
                                state->tensor[t].spot.name);
    return RSD_OK;
}

/* True if the view has bytes in [lo, hi). */
static bool touches(const rsi_state_tensor *tensor, const rsd_view *view, uintptr_t lo,
                    uintptr_t hi)
{
    uintptr_t at = (uintptr_t)view->data, end = at + (uintptr_t)tensor->views.elem_bytes;

    if (!view->data || rsd_box_count(&view->box) == 0)
        return false;
    for (int d = 0; d < tensor->ndim; d++) {
        int64_t span = (view->box.len[d] - 1) * view->stride[d];

        if (span < 0)
            at -= (uintptr_t)-span;
        else
            end += (uintptr_t)span;
    }
    return at < hi && end > lo;
}

static rsd_err check_range(const rsd_state *state, uintptr_t lo, uintptr_t hi, rsd_error *err)
{
    for (size_t t = 0; t < state->ntensors; t++)
        for (size_t i = 0; i < state->tensor[t].views.n; i++)
            if (touches(&state->tensor[t], &state->tensor[t].views.view[i], lo, hi))
                return rsi_fail(err, RSD_E_UNSUPPORTED,
                                "tensor \"%s\" lies in memory that is shared between processes, "
                                "which fork does not copy: stage with RSD_STAGE_COPY",
                                state->tensor[t].spot.name);
    return RSD_OK;
}

/* Changes to shared mappings reach the child too. Without /proc they can't be detected. */
static rsd_err check_maps(const rsd_state *state, rsd_error *err)
{
    FILE   *maps = fopen("/proc/self/maps", "re");
    char    line[512];
    bool    whole = true; /* the previous line was read to its end */
    rsd_err rc = RSD_OK;

    while (maps && !rc && fgets(line, sizeof(line), maps)) {
        char     *end = line;
        uintptr_t lo = (uintptr_t)strtoull(line, &end, 16), hi = 0;

        if (whole && *end == '-')
            hi = (uintptr_t)strtoull(end + 1, &end, 16);
        if (hi > lo && strlen(end) > 5 && end[4] == 's') /* " rw-s" */
            rc = check_range(state, lo, hi, err);
        whole = strchr(line, '\n') != NULL;
    }
    if (maps)
        fclose(maps);
    return rc;
}

rsd_err rsi_snapshot_check(const rsi_save_job *job, rsd_error *err)
{
    rsd_err rc;

    if (job->commit.comm && job->commit.comm->ops.flags & RSD_COMM_THREADS)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "the ranks are threads of one process, which can't each fork: stage with "
                        "RSD_STAGE_COPY");
    if (job->shared)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "a file that all ranks write together has to be gathered first: stage with "
                        "RSD_STAGE_COPY");
    if (!(rsi_store_flags(job->commit.store) & RSD_STORE_SHARED))
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "what a forked process writes to a %s store stays its own: stage with "
                        "RSD_STAGE_COPY",
                        rsi_store_kind(job->commit.store));
    rc = check_views(job->state, err);
    if (!rc)
        rc = check_maps(job->state, err);
    return rc ? rc : rsi_stage_check(job, err);
}

/* ---- the child ---- */

static bool send_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* An on_progress: true if the parent is gone or has canceled. */
static int must_stop(void *arg, int64_t done, int64_t total)
{
    struct pollfd line = { .fd = *(const int *)arg, .events = POLLIN | POLLRDHUP };

    (void)done;
    (void)total;
    return poll(&line, 1, 0) > 0;
}

static void send_result(int fd, const rsi_commit *c, rsd_error *err)
{
    head            h = { .complete = COMPLETE };
    rsi_item_place *place = NULL;

    if (!err->code) {
        h.nsums = c->sums.n;
        h.nplaces = rsi_places_list(c, NULL);
        place = rsi_calloc((size_t)h.nplaces, sizeof(place[0]));
        if (!place)
            rsi_fail(err, RSD_E_NOMEM, "no memory for the places of %zu items", (size_t)h.nplaces);
    }
    h.err = *err;
    if (err->code)
        h.nsums = h.nplaces = 0;
    else
        rsi_places_list(c, place);
    if (send_all(fd, &h, sizeof(h)) &&
        send_all(fd, c->sums.row, (size_t)h.nsums * sizeof(c->sums.row[0])))
        send_all(fd, place, (size_t)h.nplaces * sizeof(place[0]));
}

static void child_main(int fd, rsi_save_job *job, rsi_beats *beats)
{
    rsi_write_opts flush = job->commit.flush;
    rsd_error      err = { .rank = -1 };
    rsd_err        rc;

    rsi_pulse_set(beats ? rsi_beats_pulse(beats) : (rsi_pulse){ 0 });
    flush.plain = true;
    flush.staging = (size_t)2 * RSI_BLOCK_BYTES;
    flush.on_progress = must_stop;
    flush.arg = &fd;
    rc = rsi_write_files(&job->commit.image, job->state, job->commit.rank, job->commit.store,
                         &flush, &err);
    if (rc && err.code != (int32_t)rc)
        rsi_fail(&err, rc, "%s", rsd_err_name(rc));
    send_result(fd, &job->commit, &err);
    _exit(0);
}

/* Without them the parent can't see that the child is working; the child writes regardless. */
static rsi_beats *shared_beats(void)
{
    void *p =
        mmap(NULL, sizeof(rsi_beats), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

rsd_err rsi_snapshot_start(rsi_snapshot *child, rsi_save_job *job, rsd_error *err)
{
    sigset_t all, was;
    int      line[2], sys;
    pid_t    pid;

    *child = (rsi_snapshot){ .line = -1, .beats = shared_beats() };
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) < 0)
        return rsi_fail_errno(err, RSD_E_IO, errno, "could not make a socket to a child");
    rsi_crc32(0, "", 0); /* so that the child never sees a half-built table */
    rsi_transform_lock(true);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was); /* the child must not run the caller's handlers */
    pid = fork();
    sys = errno;
    if (pid == 0) {
        rsi_transform_lock(false);
        close(line[0]);
        child_main(line[1], job, child->beats);
    }
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    rsi_transform_lock(false);
    close(line[1]);
    if (pid < 0) {
        close(line[0]);
        return rsi_fail_errno(err, RSD_E_NOMEM, sys, "could not fork");
    }
    child->pid = pid;
    child->line = line[0];
    return RSD_OK;
}

/* ---- the parent ---- */

/* True: the socket is at its end; false: nothing more for now. */
static bool hear(rsi_snapshot *child)
{
    for (;;) {
        void   *to = rsi_bytes_more(&child->heard, READ);
        ssize_t n = to ? recv(child->line, to, READ, MSG_DONTWAIT) : 0;

        child->heard.len -= to ? READ - (size_t)(n > 0 ? n : 0) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    }
}

/* True if the child has ended. If another waiter reaped it, its status is unknown. */
static bool reap(rsi_snapshot *child, bool wait)
{
    pid_t pid;

    if (child->reaped)
        return true;
    do
        pid = waitpid(child->pid, &child->status, wait ? 0 : WNOHANG);
    while (pid < 0 && errno == EINTR);
    child->reaped = pid != 0;
    if (pid < 0)
        child->status = 0;
    return child->reaped;
}

static rsd_err cut_short(const rsi_snapshot *child, rsd_error *err)
{
    if (child->heard.lost)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the rows of a save");
    if (WIFSIGNALED(child->status))
        return rsi_fail(err, RSD_E_IO, "the process that writes was killed by signal %d",
                        WTERMSIG(child->status));
    return rsi_fail(err, RSD_E_IO, "the process that writes ended before it was done");
}

static rsd_err apply(const rsi_snapshot *child, rsi_commit *c, rsd_error *err)
{
    rsi_reader     r = { .at = child->heard.at, .end = child->heard.at + child->heard.len };
    rsi_sum_row    row;
    rsi_item_place place;
    head           h;
    rsd_err        rc = RSD_OK;

    if (!rsi_read_copy(&r, &h, sizeof(h)) || child->heard.lost || h.complete != COMPLETE)
        return cut_short(child, err);
    if (h.err.code) {
        if (err)
            *err = h.err;
        return (rsd_err)h.err.code;
    }
    for (uint64_t i = 0; i < h.nsums && !rc && rsi_read_copy(&r, &row, sizeof(row)); i++)
        rc = rsi_sums_join(&c->sums, &row, 1, err);
    for (uint64_t i = 0; i < h.nplaces && !rc && rsi_read_copy(&r, &place, sizeof(place)); i++)
        rc = rsi_places_set(c, &place, 1, err);
    return rc || (!r.cut && r.at == r.end) ? rc : cut_short(child, err);
}

rsd_err rsi_snapshot_look(rsi_snapshot *child, rsi_save_job *job, bool wait, bool *ended,
                          rsd_error *err)
{
    struct pollfd line = { .fd = child->line, .events = POLLIN };
    bool          last;

    do {
        /* Another process may have inherited the other end; then the socket stays open. */
        last = reap(child, false);
        *ended = hear(child) || last;
        if (child->beats)
            rsi_beats_pass(child->beats);
        if (!*ended && wait)
            poll(&line, 1, (int)rsi_pulse_every(LOOK_MS));
    } while (!*ended && wait);
    if (!*ended)
        return RSD_OK;
    if (child->heard.lost && !child->reaped)
        shutdown(child->line, SHUT_RDWR);
    reap(child, true);
    return apply(child, &job->commit, err);
}

void rsi_snapshot_cancel(rsi_snapshot *child)
{
    if (child->line >= 0)
        shutdown(child->line, SHUT_WR);
}

void rsi_snapshot_end(rsi_snapshot *child)
{
    if (child->line >= 0)
        close(child->line);
    rsi_free(child->heard.at);
    if (child->beats)
        munmap(child->beats, sizeof(*child->beats));
    *child = (rsi_snapshot){ .line = -1 };
}
