/* SPDX-License-Identifier: Apache-2.0 */
#include "forked_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KILL_SECONDS = 120, KEY_MAX = 512 };

/* Shared by all processes of a job. */
typedef struct board {
    pid_t      pid[FORKED_MAX];
    forked_end end[FORKED_MAX];
} board;

typedef struct place {
    char    folder[KEY_MAX - 64];
    int32_t rank;
    int     wire[FORKED_MAX][FORKED_MAX]; /* [a][b]: a's end of the socket to b */
    void (*met)(int32_t rank);
} place;

static board *shared;

pid_t forked_pid(int32_t rank)
{
    return shared->pid[rank];
}

/* ---- a meeting in a folder ---- */

static rsd_err put(void *arg, const char *key, const void *data, size_t bytes, rsd_error *err)
{
    const place *p = arg;
    char         temp[KEY_MAX], path[KEY_MAX];
    FILE        *f;

    snprintf(temp, sizeof(temp), "%s/.%d-%s", p->folder, (int)p->rank, key);
    snprintf(path, sizeof(path), "%s/%s", p->folder, key);
    f = fopen(temp, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0 || rename(temp, path) != 0) {
        snprintf(err->msg, sizeof(err->msg), "could not put %s", key);
        return RSD_E_IO;
    }
    return RSD_OK;
}

static rsd_err get(void *arg, const char *key, int64_t timeout_ms,
                   void (*take)(void *to, const void *data, size_t bytes), void *to, rsd_error *err)
{
    const place *p = arg;
    char         path[KEY_MAX];
    struct stat  st;
    FILE        *f;
    void        *data;

    snprintf(path, sizeof(path), "%s/%s", p->folder, key);
    while (!(f = fopen(path, "rb"))) {
        if (timeout_ms-- <= 0) {
            snprintf(err->msg, sizeof(err->msg), "nobody put %s", key);
            return RSD_E_TIMEOUT;
        }
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    fstat(fileno(f), &st);
    data = malloc((size_t)st.st_size + 1);
    if (fread(data, 1, (size_t)st.st_size, f) == (size_t)st.st_size)
        take(to, data, (size_t)st.st_size);
    free(data);
    fclose(f);
    if (p->met && strstr(key, ".all"))
        p->met(p->rank);
    return RSD_OK;
}

static rsd_err dial(void *arg, int32_t n, const int32_t *rank, int *fd, rsd_error *err)
{
    place *p = arg;

    (void)err;
    for (int32_t i = 0; i < n; i++) {
        fd[i] = p->wire[p->rank][rank[i]];
        p->wire[p->rank][rank[i]] = -1;
    }
    return RSD_OK;
}

/* ---- ranks ---- */

/* Closes the ends of the others: a rank's death is seen only if nobody else has them. */
static void keep_own(place *p, int32_t ranks)
{
    for (int32_t a = 0; a < ranks; a++)
        for (int32_t b = 0; b < ranks; b++)
            if (a != b && a != p->rank)
                close(p->wire[a][b]);
}

static void be_rank(const forked_job *job, place *p)
{
    forked_end *end = &shared->end[p->rank];
    rsd_meeting with = { .size = sizeof(with), .arg = p, .put = put, .get = get };
    rsd_comm   *comm = NULL;

    alarm(KILL_SECONDS);
    if (job->how == FORKED_FAR) {
        with.dial = dial;
        with.near = RSD_NEVER;
        keep_own(p, job->ranks);
    }
    with.timeout_ms = job->timeout_ms;
    end->err.rank = -1;
    end->rc = job->how == FORKED_UCX
                  ? rsd_comm_create_ucx(p->rank, job->ranks, &with, &comm, &end->err)
                  : rsd_comm_create_processes(p->rank, job->ranks, &with, &comm, &end->err);
    if (!end->rc)
        end->rc = job->run(job->arg, comm, &end->err);
    rsd_comm_free(comm);
    end->ended = true;
    _exit(0);
}

static void make_wires(place *p, int32_t ranks)
{
    for (int32_t a = 0; a < ranks; a++)
        for (int32_t b = 0; b < a; b++) {
            int two[2] = { -1, -1 };

            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, two) != 0)
                perror("socketpair");
            p->wire[a][b] = two[0];
            p->wire[b][a] = two[1];
        }
}

static void remove_folder(const char *folder)
{
    char command[KEY_MAX];

    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0)
        perror(folder);
}

void forked_run(const forked_job *job, forked_end *out)
{
    place p = { .folder = "/tmp/reshard-forked-XXXXXX", .met = job->met };
    int   status[FORKED_MAX] = { 0 };
    bool  stopped[FORKED_MAX] = { false };

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !mkdtemp(p.folder))
        abort();
    if (job->how == FORKED_FAR)
        make_wires(&p, job->ranks);
    fflush(NULL);
    for (p.rank = 0; p.rank < job->ranks; p.rank++) {
        pid_t pid = p.rank == job->absent ? 0 : fork();

        if (pid == 0 && p.rank != job->absent)
            be_rank(job, &p);
        shared->pid[p.rank] = pid;
    }
    p.rank = -1;
    if (job->how == FORKED_FAR)
        keep_own(&p, job->ranks);
    for (int32_t r = 0; r < job->ranks; r++)
        if (shared->pid[r] > 0)
            stopped[r] =
                waitpid(shared->pid[r], &status[r], WUNTRACED) > 0 && WIFSTOPPED(status[r]);
    for (int32_t r = 0; r < job->ranks; r++) {
        if (stopped[r]) {
            kill(shared->pid[r], SIGKILL);
            waitpid(shared->pid[r], &status[r], 0);
        }
        shared->end[r].signal = WIFSIGNALED(status[r]) ? WTERMSIG(status[r]) : 0;
        out[r] = shared->end[r];
    }
    munmap(shared, sizeof(*shared));
    remove_folder(p.folder);
}

bool forked_well(const forked_job *job)
{
    forked_end end[FORKED_MAX];
    bool       good = true;

    forked_run(job, end);
    for (int32_t r = 0; r < job->ranks; r++) {
        if (end[r].ended && !end[r].rc)
            continue;
        good = false;
        fprintf(stderr, "rank %d of %d: %s, signal %d: %s: %s\n", (int)r, (int)job->ranks,
                end[r].ended ? "ended" : "did not end", end[r].signal, rsd_err_name(end[r].rc),
                end[r].err.msg);
    }
    return good;
}
