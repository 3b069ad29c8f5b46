/* SPDX-License-Identifier: Apache-2.0 */
/* The tool from the start of its process to the end: inspect of 1,000 tensors, diff and verify of
 * 1 GiB against `cat` of the same files to /dev/null, files in memory. */
#include "bench.h"
#include "bench_data.h"

#include <reshard/reshard.h>

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TENSORS = 4, N = 11584, SMALL = 1000 }; /* bfloat16 [N, N]: 256 MiB each */
#define BYTES ((size_t)N * N * 2)

/* n tensors of `rows` rows and columns that share their bytes, cut by the rules. */
static bool make(const char *path, int n, int64_t rows, const char *text)
{
    const int64_t shape[] = { rows, rows };
    const size_t  bytes = (size_t)(rows * rows) * 2;
    rsd_view      view = { .box = { 2, { 0 }, { rows, rows } }, .data = bench_memory(bytes) };
    rsd_rules    *rules;
    rsd_layout   *layout;
    rsd_state    *state;
    rsd_error     err;
    rsd_err       rc = rsd_rules_parse(text, &rules, &err);

    for (size_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)view.data)[i] = i * 0x9e3779b97f4a7c15u;
    if (!rc)
        rc = rsd_rules_layout(rules, "w", RSD_BF16, 2, shape, &layout, &err);
    if (!rc)
        rc = rsd_state_create(&state, &err);
    for (int i = 0; i < n && !rc; i++) {
        char name[64];

        snprintf(name, sizeof(name), "model.layers.%d.weight", i);
        rc = rsd_state_tensor(state, name, layout, RSD_BF16, 2, shape, 1, &view, &err);
    }
    return !rc && rsd_save(path, NULL, state, NULL, &err) == RSD_OK;
}

static bool make_rows(const char *path)
{
    return make(path, TENSORS, N, "mesh dp=4; * shard(0)@dp");
}

static bool make_columns(const char *path)
{
    return make(path, TENSORS, N, "mesh tp=4; * shard(1)@tp");
}

static bool make_many(const char *path)
{
    return make(path, SMALL, 16, "mesh dp=8; * shard(0)@dp");
}

/* A program with its arguments; `failed` is set if it did not end with 0. */
typedef struct running {
    const char *argv[8];
    bool        failed;
} running;

static void run(void *arg)
{
    running *r = arg;
    int      status;
    pid_t    pid = fork();

    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);

        dup2(null, STDOUT_FILENO);
        execvp(r->argv[0], (char *const *)(uintptr_t)r->argv);
        _exit(3);
    }
    r->failed = r->failed || waitpid(pid, &status, 0) != pid || status != 0;
}

/* The tool stands in the folder above this program's. */
static const char *tool(void)
{
    static char path[PATH_MAX + 16];
    char        self[PATH_MAX] = "";

    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return "reshard";
    snprintf(path, sizeof(path), "%s/reshard", dirname(dirname(self)));
    return path;
}

static bool inspect(bench_result *out)
{
    char             path[PATH_MAX];
    running          ours = { .argv = { tool(), "inspect", path, NULL } };
    const bench_work work[] = { run };
    void *const      arg[] = { &ours };
    double           seconds;

    bench_path("tool.many", path, sizeof(path));
    if (!bench_prepare(path, make_many))
        return false;
    bench_turns(1, work, arg, 41, &seconds, NULL);
    out->value = seconds * 1e3;
    out->unit = "ms";
    snprintf(out->note, sizeof(out->note), "1,000 tensors in 8,000 chunks; 30 ms at most");
    return !ours.failed;
}

/* `ours` against cat of the files, `bytes` of them. */
static bool measure(running *ours, const char *files, double bytes, bench_result *out)
{
    running          cat = { .argv = { "sh", "-c", files, NULL } };
    const bench_work work[] = { run, run };
    void *const      arg[] = { ours, &cat };
    double           seconds[2], ratio[2];

    bench_turns(2, work, arg, 7, seconds, ratio);
    if (ours->failed || cat.failed) {
        snprintf(out->note, sizeof(out->note), "%s failed", ours->failed ? ours->argv[1] : "cat");
        return false;
    }
    out->unit = "GB/s";
    out->value = bytes / seconds[0] / 1e9;
    out->ideal = bytes / seconds[1] / 1e9;
    out->of_ideal = ratio[1];
    return true;
}

static bool diff(bench_result *out)
{
    char    a[PATH_MAX], b[PATH_MAX], files[2 * PATH_MAX + 32];
    running ours = { .argv = { tool(), "diff", "-q", a, b, NULL } };

    bench_path("tool.rows", a, sizeof(a));
    bench_path("tool.columns", b, sizeof(b));
    if (!bench_prepare(a, make_rows) || !bench_prepare(b, make_columns))
        return false;
    bench_warm(a);
    bench_warm(b);
    snprintf(files, sizeof(files), "cat '%s'/* '%s'/*", a, b);
    snprintf(out->note, sizeof(out->note), "1 GiB by rows and by columns; ideal: cat of both");
    return measure(&ours, files, 2.0 * TENSORS * (double)BYTES, out);
}

static bool verify(bench_result *out)
{
    char    path[PATH_MAX], files[PATH_MAX + 32];
    running ours = { .argv = { tool(), "verify", "-q", path, NULL } };

    bench_path("tool.rows", path, sizeof(path));
    if (!bench_prepare(path, make_rows))
        return false;
    bench_warm(path);
    snprintf(files, sizeof(files), "cat '%s'/*", path);
    snprintf(out->note, sizeof(out->note), "1 GiB with a side file and CRC32s; ideal: cat");
    return measure(&ours, files, TENSORS * (double)BYTES, out);
}

const bench_case tool_cases[] = {
    { "tool.inspect", inspect },
    { "tool.diff", diff },
    { "tool.verify", verify },
    { 0 },
};
