/* SPDX-License-Identifier: Apache-2.0 */
/* How long an async save keeps its caller: from the call until the tensors may be changed, 2 GiB
 * over 4 ranks, against PyTorch's async_save as it comes and against its DefaultStager that stages
 * in a thread. Our ranks are processes under Open MPI, PyTorch's on gloo. */
#include "bench.h"
#include "bench_data.h"
#include "bench_peer.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct async_bench {
    bench_peer  ranks, torch;
    char        path[PATH_MAX], peer_path[PATH_MAX];
    const char *how, *command; /* of ours, of the peer */
    bool        failed;
} async_bench;

static bool start_ranks(async_bench *b)
{
    char    self[PATH_MAX] = "", program[PATH_MAX + 16];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char    mpirun[] = "mpirun.openmpi", root[] = "--allow-run-as-root", over[] = "--oversubscribe",
         np[] = "-n", four[] = "4";
    char *const argv[] = { mpirun, root, over, np, four, program, NULL };

    if (n < 0)
        return false;
    snprintf(program, sizeof(program), "%s/async_ranks", dirname(self));
    return access(program, X_OK) == 0 && bench_peer_launch(&b->ranks, mpirun, argv);
}

static void ours(void *arg)
{
    async_bench *b = arg;
    double       seconds = b->failed ? -1 : bench_peer_ask(&b->ranks, b->how, b->path);

    b->failed = seconds < 0;
    bench_took(seconds);
}

static void theirs(void *arg)
{
    async_bench *b = arg;

    if (b->torch.pid)
        bench_took(bench_peer_ask(&b->torch, b->command, b->peer_path));
}

static bool run(const char *how, const char *command, bench_result *out)
{
    static async_bench b;
    const bench_work   work[] = { ours, theirs };
    void *const        arg[] = { &b, &b };
    double             seconds[2], ratio[2];
    char               folder[PATH_MAX], line[3 * PATH_MAX];
    bool               peer;

    b = (async_bench){ .how = how, .command = command };
    bench_path("", folder, sizeof(folder));
    bench_path("async.ours", b.path, sizeof(b.path));
    bench_path("async.peer", b.peer_path, sizeof(b.peer_path));
    if (!start_ranks(&b)) {
        snprintf(out->note, sizeof(out->note), "needs Open MPI, and its mpirun.openmpi to start");
        return false;
    }
    peer =
        bench_peer_start(&b.torch, "torch_ckpt.py", folder, "large", out->note, sizeof(out->note));
    bench_turns(peer ? 2 : 1, work, arg, 3, seconds, ratio);
    bench_peer_end(&b.ranks);
    bench_peer_end(&b.torch);
    snprintf(line, sizeof(line), "rm -rf '%s' '%s'", b.path, b.peer_path);
    if (system(line) != 0)
        fprintf(stderr, "bench: failed: %s\n", line);
    if (b.failed) {
        snprintf(out->note, sizeof(out->note), "the ranks ended early");
        return false;
    }
    out->unit = "s";
    out->value = seconds[0];
    if (peer) {
        out->peer_value = seconds[1];
        out->vs_peer = ratio[1];
    }
    return true;
}

static bool fork_stall(bench_result *out)
{
    return run("fork", "stall", out);
}

static bool fork_stage(bench_result *out)
{
    return run("fork", "stage", out);
}

static bool copy_stall(bench_result *out)
{
    return run("copy", "stall", out);
}

static bool copy_stage(bench_result *out)
{
    return run("copy", "stage", out);
}

const bench_case async_cases[] = {
    { "async.stall@torch", fork_stall },
    { "async.stall@stager", fork_stage },
    { "async.copy@torch", copy_stall },
    { "async.copy@stager", copy_stage },
    { NULL, NULL },
};
