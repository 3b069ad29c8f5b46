/* SPDX-License-Identifier: Apache-2.0 */
/* Live reshards under Open MPI: starts live_ranks with mpirun and reads what it prints. The peers:
 * MPI_Alltoallw with subarray types in the same run, and DTensor.redistribute on gloo in a run of
 * its own. Memory is that of the ranks, which the harness does not see. */
#include "bench.h"
#include "bench_peer.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 17408, SIDE_CYCLIC = 12288, ROUNDS = 7 };

/* The last line of a command that begins with `word`. */
static bool ask(const char *command, const char *word, char *line, size_t cap)
{
    FILE *out = popen(command, "r");
    char  next[256];
    bool  found = false;

    while (out && fgets(next, sizeof(next), out))
        if (strncmp(next, word, strlen(word)) == 0) {
            snprintf(line, cap, "%s", next + strlen(word));
            found = true;
        }
    return out && pclose(out) == 0 && found;
}

static bool own_folder(char *out, size_t cap)
{
    char    path[1024];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

    if (n <= 0)
        return false;
    path[n] = '\0';
    snprintf(out, cap, "%s", dirname(path));
    return true;
}

static bool run(const char *what, int ranks, int side, bench_result *out)
{
    char   folder[1024], command[1400], line[256];
    double ours, peer, copy, vs_peer, of_copy, bytes = 4.0 * side * side;
    long   reached;

    if (!own_folder(folder, sizeof(folder)))
        return false;
    snprintf(command, sizeof(command),
             "mpirun.openmpi --allow-run-as-root --oversubscribe -n %d '%s/live_ranks' %s %d %d "
             "2>/dev/null",
             ranks, folder, what, side, ROUNDS);
    if (!ask(command, "live ", line, sizeof(line)) ||
        sscanf(line, "%lf %lf %lf %lf %lf %ld %lf", &ours, &peer, &copy, &vs_peer, &of_copy,
               &reached, &out->spread) != 7) {
        snprintf(out->note, sizeof(out->note), "needs Open MPI, and its mpirun.openmpi to start");
        return false;
    }
    out->unit = "GB/s";
    out->value = bytes / ours / 1e9;
    out->ideal = bytes / copy / 1e9;
    out->of_ideal = of_copy;
    if (peer > 0) {
        out->peer_value = bytes / peer / 1e9;
        out->vs_peer = vs_peer;
    }
    snprintf(out->note, sizeof(out->note), "float32 [%d, %d], %d ranks%s; ideal: memcpy on all",
             side, side, ranks, reached ? "" : ", by messages");
    return true;
}

static bool rows_4(bench_result *out)
{
    return run("rows", 4, SIDE, out);
}

static bool rows_2(bench_result *out)
{
    return run("rows", 2, SIDE, out);
}

static bool malloc_4(bench_result *out)
{
    return run("malloc", 4, SIDE, out);
}

static bool mesh_2x2(bench_result *out)
{
    return run("mesh", 4, SIDE, out);
}

static bool cyclic(bench_result *out)
{
    return run("cyclic", 4, SIDE_CYCLIC, out);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool rows_4_torch(bench_result *out)
{
    bench_peer peer = { 0 };
    char       side[16], why[sizeof(out->note)];
    double     seconds[3];

    if (!run("rows", 4, SIDE, out))
        return false;
    out->peer_value = out->vs_peer = 0;
    snprintf(side, sizeof(side), "%d", SIDE);
    if (!bench_peer_start(&peer, "live_torch.py", "4", side, why, sizeof(why))) {
        snprintf(out->note, sizeof(out->note), "%s", why);
        return true;
    }
    bench_peer_ask(&peer, "run", "-"); /* touches the memory */
    for (int i = 0; i < 3; i++)
        seconds[i] = bench_peer_ask(&peer, "run", "-");
    bench_peer_end(&peer);
    qsort(seconds, 3, sizeof(seconds[0]), by_value);
    if (seconds[0] > 0) {
        out->peer_value = 4.0 * SIDE * SIDE / seconds[1] / 1e9;
        out->vs_peer = out->value / out->peer_value;
    }
    return true;
}

const bench_case live_cases[] = {
    { "live.rows_to_cols.4@alltoallw", rows_4 },
    { "live.rows_to_cols.2@alltoallw", rows_2 },
    { "live.rows_to_cols.4@torch", rows_4_torch },
    { "live.malloc.4@alltoallw", malloc_4 },
    { "live.mesh2x2", mesh_2x2 },
    { "live.cyclic", cyclic },
    { 0 },
};
