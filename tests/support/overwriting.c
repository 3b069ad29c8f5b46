/* SPDX-License-Identifier: Apache-2.0 */
#include "overwriting.h"
#include "fault_row.h"

#include "comm/comm.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TENSORS = 6, ROWS = 16, COLS = 8, WRITERS = 4, MANY = 300 };

const overwriting_kind overwriting_kinds[OVERWRITING_KINDS] = {
    { .name = "dcp" },
    { .name = "proved", .verify = RSD_ALWAYS },
    { .name = "bare", .checksum = RSD_NEVER },
    { .name = "st", .format = RSD_FORMAT_SAFETENSORS, .distributed = true, .checksum = RSD_NEVER },
    { .name = "one.safetensors" },
    { .name = "one.pt", .verify = RSD_ALWAYS },
};

typedef struct content {
    int32_t          data[TENSORS][ROWS * COLS];
    rsd_state       *state;
    rsd_values      *values;
    const rsd_value *step;
} content;

static void content_free(content *c)
{
    rsd_state_free(c->state);
    rsd_values_free(c->values);
}

/* `parts` > 0: rows are sharded over so many ranks, and this process has all of them. Otherwise
 * columns [first, first + n) are wanted. */
static rsd_err content_make(content *c, const overwriting_kind *kind, int parts, int first, int n,
                            rsd_error *err)
{
    const int64_t shape[] = { ROWS, COLS };
    rsd_view      view = { .box = { .ndim = 2, .off = { 0, first }, .len = { ROWS, n } } };
    rsd_layout   *layout = NULL;
    rsd_rules    *rules = NULL;
    char          name[32];
    rsd_err       rc;

    memset(c, 0, sizeof(*c));
    rc = rsd_state_create(&c->state, err);
    if (!rc)
        rc = rsd_values_create(&c->values, err);
    if (!rc && parts)
        rc = rsd_rules_parse("mesh n=4; * shard(0)@n", &rules, err);
    if (!rc && parts)
        rc = rsd_rules_layout(rules, "x", RSD_I32, 2, shape, &layout, err);
    for (int t = 0; t < TENSORS && !rc; t++) {
        view.data = c->data[t];
        snprintf(name, sizeof(name), "t%d", t);
        rc = rsd_state_tensor(c->state, name, layout, RSD_I32, 2, shape, 1, &view, err);
    }
    if (!rc && !parts && kind->format != RSD_FORMAT_SAFETENSORS &&
        !strstr(kind->name, ".safetensors"))
        rc = rsd_state_want(c->state, "step", c->values, &c->step, err);
    rsd_layout_free(layout);
    rsd_rules_free(rules);
    return rc;
}

/* ---- writing ---- */

static rsd_err save(const overwriting_kind *kind, const char *path, int64_t number, rsd_error *err)
{
    rsd_save_opts opts = { .size = sizeof(opts),
                           .format = kind->format,
                           .distributed = kind->distributed,
                           .overwrite = true,
                           .sync = RSD_NEVER,
                           .threads = 1,
                           .checksum = kind->checksum };
    content       c;
    rsd_err       rc = content_make(&c, kind, WRITERS, 0, COLS, err);

    for (int t = 0; t < TENSORS; t++)
        for (int i = 0; i < ROWS * COLS; i++)
            c.data[t][i] = (int32_t)number;
    if (!rc)
        rc = rsd_value_create_int(c.values, number, &c.step, err);
    if (!rc && kind->format != RSD_FORMAT_SAFETENSORS && !strstr(kind->name, ".safetensors"))
        rc = rsd_state_value(c.state, "step", c.step, err);
    if (!rc)
        rc = rsd_save(path, NULL, c.state, &opts, err);
    content_free(&c);
    return rc;
}

bool overwriting_save(const overwriting_kind *kind, const char *path, int64_t number)
{
    rsd_error err = { 0 };

    if (!save(kind, path, number & 0x7fffffff, &err))
        return true;
    fprintf(stderr, "a save failed: %s\n", err.msg);
    return false;
}

static int64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int overwriting_write(const overwriting_kind *kind, const char *path, _Atomic int64_t *published,
                      const char *stop)
{
    while (!stop || access(stop, F_OK) != 0) {
        int64_t us = now_us();

        if (!overwriting_save(kind, path, atomic_load(published) * 4 + getpid() % 4))
            return 1;
        us = now_us() - us;
        if (us > atomic_load(&published[1]))
            atomic_store(&published[1], us);
        atomic_fetch_add(published, 1);
    }
    return 0;
}

bool overwriting_begin(overwriting *o, const overwriting_kind *kind, const char *folder,
                       int writers)
{
    rsd_error err = { 0 };

    *o = (overwriting){ .kind = kind, .n = writers };
    snprintf(o->path, sizeof(o->path), "%s/%s", folder, kind->name);
    o->published = mmap(NULL, 2 * sizeof(*o->published), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (o->published == MAP_FAILED || save(kind, o->path, 0, &err)) {
        fprintf(stderr, "could not begin: %s\n", err.msg);
        return false;
    }
    for (int i = 0; i < writers; i++) {
        o->writer[i] = fork();
        if (o->writer[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(overwriting_write(kind, o->path, o->published, NULL));
        }
    }
    return true;
}

bool overwriting_end(overwriting *o)
{
    bool ok = true;

    for (int i = 0; i < o->n; i++) {
        int status;

        kill(o->writer[i], SIGKILL);
        ok = waitpid(o->writer[i], &status, 0) == o->writer[i] && WIFSIGNALED(status) && ok;
    }
    munmap((void *)o->published, 2 * sizeof(*o->published));
    return ok;
}

/* ---- loading ---- */

rsd_err overwriting_load(const overwriting *o, rsd_comm *comm, int64_t nth, int64_t *number,
                         rsd_error *err)
{
    rsd_load_opts opts = { .size = sizeof(opts),
                           .store = o->store,
                           .verify = o->kind->verify,
                           .threads = 1,
                           .cooperate = nth % 2 ? RSD_NEVER : RSD_DEFAULT };
    int           ranks = comm ? comm->size : 1, n = COLS / ranks;
    int64_t ends[2] = { INT64_MAX, INT64_MAX }; /* the least, and the greatest as a negative */
    content c;
    rsd_err rc = content_make(&c, o->kind, 0, (comm ? comm->rank : 0) * n, n, err);

    memset(c.data, 0xee, sizeof(c.data));
    if (!rc)
        rc = rsd_load(o->path, comm, c.state, &opts, err);
    for (int t = 0; t < TENSORS && !rc; t++)
        for (int i = 0; i < ROWS * n; i++) {
            ends[0] = c.data[t][i] < ends[0] ? c.data[t][i] : ends[0];
            ends[1] = -c.data[t][i] < ends[1] ? -c.data[t][i] : ends[1];
        }
    if (!rc && c.step) {
        int64_t step = rsd_value_int(c.step);

        ends[0] = step < ends[0] ? step : ends[0];
        ends[1] = -step < ends[1] ? -step : ends[1];
    }
    if (!rc && comm)
        rc = rsi_allreduce(comm, RSI_OP_MIN, ends, 2, err);
    *number = ends[0] == -ends[1] ? ends[0] : -1;
    content_free(&c);
    return rc;
}

rsd_err overwriting_loads(const overwriting *o, rsd_comm *comm, int64_t loads,
                          overwriting_counts *counts, rsd_error *err)
{
    int64_t first = atomic_load(o->published), go = 1;

    *counts = (overwriting_counts){ 0 };
    atomic_store(&o->published[1], 0);
    while (go) {
        int64_t us = now_us(), number;
        rsd_err rc = overwriting_load(o, comm, counts->tried++, &number, err);

        us = now_us() - us;
        counts->longest_load = us > counts->longest_load ? us : counts->longest_load;
        counts->hung += us > FAULT_HUNG * (int64_t)1000000;
        counts->whole += !rc && number >= 0;
        counts->mixed += !rc && number < 0;
        counts->refused += rc != RSD_OK;
        if (rc && rc != RSD_E_MISMATCH) /* no other answer is a clear one */
            return rc;
        go = counts->tried < loads || atomic_load(o->published) - first < loads / 10;
        if (comm && rsi_allreduce(comm, RSI_OP_MAX, &go, 1, err))
            return RSD_E_COMM;
    }
    counts->published = atomic_load(o->published) - first;
    counts->longest_save = atomic_load(&o->published[1]);
    return RSD_OK;
}

bool overwriting_ok(const overwriting_counts *counts)
{
    int64_t least = counts->tried < MANY ? 1 : (counts->tried * 99 + 99) / 100;

    return counts->mixed == 0 && counts->whole >= least;
}

void overwriting_row(const char *fault, const overwriting_counts *counts)
{
    fault_row_print(&(fault_row){ .fault = fault,
                                  .tried = (int)counts->tried,
                                  .found_new = (int)counts->whole,
                                  .refused = (int)counts->refused,
                                  .silent = (int)counts->mixed,
                                  .hung = (int)counts->hung });
    if (counts->published)
        printf("    longest load %.1f ms; %" PRId64 " saves meanwhile, the longest %.1f ms\n",
               (double)counts->longest_load / 1e3, counts->published,
               (double)counts->longest_save / 1e3);
    fflush(stdout);
}
