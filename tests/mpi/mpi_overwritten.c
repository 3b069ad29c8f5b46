/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are processes load a checkpoint that another process overwrites all the time, and one
 * of 1,500 files with 256 descriptors each: mpi_overwritten FOLDER. The folder is removed by the
 * caller; the number of saves that all look at is in a file there. RESHARD_LOADS says how many
 * loads. */
#include "launched.h"
#include "comm/comm.h"
#include "overwriting.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { FILES = 1500, LIMIT = 256 };

static _Atomic int64_t *map_count(const char *folder)
{
    char  path[512];
    int   fd;
    void *at;

    snprintf(path, sizeof(path), "%s/published", folder);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 2 * sizeof(int64_t)) < 0)
        return NULL;
    at = mmap(NULL, 2 * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

/* ---- overwritten while it is loaded ---- */

/* A process of its own: this one can't fork under MPI. */
static int writer(const char *kind, const char *folder)
{
    const overwriting_kind *k = &overwriting_kinds[atoi(kind)];
    _Atomic int64_t        *count = map_count(folder);
    char                    path[512];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(path, sizeof(path), "%s/%s", folder, k->name);
    return count ? overwriting_write(k, path, count, NULL) : 1;
}

static pid_t start_writer(int kind, const char *folder)
{
    char        text[8], at[512], self[] = "mpi_overwritten", word[] = "write";
    char *const args[] = { self, word, text, at, NULL };
    pid_t       pid;

    snprintf(text, sizeof(text), "%d", kind);
    snprintf(at, sizeof(at), "%s", folder);
    return posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ) == 0 ? pid : -1;
}

static rsd_err try_kind(int kind, const char *folder, rsd_comm *comm, int64_t loads, rsd_error *err)
{
    overwriting        o = { .kind = &overwriting_kinds[kind], .published = map_count(folder) };
    char               label[64];
    overwriting_counts counts;
    pid_t              pid = -1;
    rsd_err            rc = o.published ? RSD_OK : rsi_fail(err, RSD_E_IO, "no count");

    snprintf(o.path, sizeof(o.path), "%s/%s", folder, o.kind->name);
    if (!rc && comm->rank == 0 && overwriting_save(o.kind, o.path, 1))
        pid = start_writer(kind, folder);
    if (!rc && comm->rank == 0 && pid < 0)
        rc = rsi_fail(err, RSD_E_IO, "could not start a writer");
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = overwriting_loads(&o, comm, loads, &counts, err);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    if (rc)
        return rsi_while(err, rc, "%s", o.kind->name);
    snprintf(label, sizeof(label), "read while overwritten, %s, %d MPI ranks", o.kind->name,
             comm->size);
    if (comm->rank == 0)
        overwriting_row(label, &counts);
    if (!overwriting_ok(&counts))
        return rsi_fail(err, RSD_E_BUG, "%s: %d of %d loads were mixed, %d were refused",
                        o.kind->name, (int)counts.mixed, (int)counts.tried, (int)counts.refused);
    return RSD_OK;
}

/* ---- few descriptors ---- */

static int32_t rows[FILES];

static rsd_err make_state(rsd_state **out, bool sharded, rsd_error *err)
{
    const int64_t n = FILES;
    rsd_view      view = { .box = { .ndim = 1, .len = { FILES } }, .data = rows };
    rsd_layout   *layout = NULL;
    rsd_rules    *rules = NULL;
    char          text[64];
    rsd_err       rc = rsd_state_create(out, err);

    snprintf(text, sizeof(text), "mesh n=%d; * shard(0)@n", FILES);
    if (!rc && sharded)
        rc = rsd_rules_parse(text, &rules, err);
    if (!rc && sharded)
        rc = rsd_rules_layout(rules, "w", RSD_I32, 1, &n, &layout, err);
    if (!rc)
        rc = rsd_state_tensor(*out, "w", layout, RSD_I32, 1, &n, 1, &view, err);
    rsd_layout_free(layout);
    rsd_rules_free(rules);
    return rc;
}

static rsd_err load_many(const char *folder, rsd_comm *comm, rsd_error *err)
{
    const rsd_save_opts save = { .size = sizeof(save), .sync = RSD_NEVER };
    const rsd_load_opts load = { .size = sizeof(load), .cooperate = RSD_NEVER };
    struct rlimit       limit;
    rsd_state          *state = NULL;
    char                path[512];
    rsd_err             rc = RSD_OK;

    snprintf(path, sizeof(path), "%s/many", folder);
    for (int i = 0; i < FILES; i++)
        rows[i] = i;
    if (comm->rank == 0)
        rc = make_state(&state, true, err);
    if (!rc && comm->rank == 0)
        rc = rsd_save(path, NULL, state, &save, err);
    rsd_state_free(state);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max = LIMIT; /* nobody can raise it */
    setrlimit(RLIMIT_NOFILE, &limit);
    rc = rsi_agree(comm, rc, err);
    if (rc)
        return rc;
    memset(rows, 0, sizeof(rows));
    rc = make_state(&state, false, err);
    if (!rc)
        rc = rsd_load(path, comm, state, &load, err);
    for (int i = 0; i < FILES && !rc; i++)
        if (rows[i] != i)
            rc = rsi_fail(err, RSD_E_BUG, "row %d has %d", i, (int)rows[i]);
    rsd_state_free(state);
    return rsi_agree(comm, rc, err);
}

static rsd_err run_all(rsd_comm *comm, const char *folder, int *passed, rsd_error *err)
{
    const char *text = getenv("RESHARD_LOADS");
    int64_t     loads = text ? strtoll(text, NULL, 10) : 200;

    for (int k = 0; k < OVERWRITING_KINDS; k++) {
        rsd_err rc = try_kind(k, folder, comm, loads / OVERWRITING_KINDS, err);

        if (rc)
            return rc;
        ++*passed;
    }
    *passed += 1;
    return load_many(folder, comm, err);
}

int main(int argc, char **argv)
{
    rsd_error err = { .rank = -1 };
    rsd_comm *comm;
    int       passed = 0;
    rsd_err   rc;

    if (argc == 4 && strcmp(argv[1], "write") == 0)
        return writer(argv[2], argv[3]);
    comm = launched_comm("mpi_overwritten FOLDER");
    if (!comm || argc != 2)
        return 1;
    rc = run_all(comm, argv[1], &passed, &err);
    return launched_end(comm, "mpi_overwritten", rc, &err, passed);
}
