/* SPDX-License-Identifier: Apache-2.0 */
/* The Python package against torch.distributed.checkpoint, both in the same four processes of
 * peers/torch_ckpt.py, which take turns: what a trainer gains that changes one line. */
#include "bench.h"
#include "bench_data.h"
#include "bench_peer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct contender {
    bench_peer *peer;
    const char *command;
    char        path[PATH_MAX];
    double      seconds; /* of the last turn; < 0: it failed */
} contender;

static void turn(void *arg)
{
    contender *c = arg;

    c->seconds = bench_peer_ask(c->peer, c->command, c->path);
    bench_took(c->seconds);
}

/* True if the peer's interpreter has the package. */
static bool has_package(bench_peer *peer, bench_result *out)
{
    if (!peer->pid)
        return false;
    if (bench_peer_ask(peer, "package", "-") >= 0)
        return true;
    snprintf(out->note, sizeof(out->note), "no package: install the wheel into $PYTHON");
    bench_peer_end(peer);
    return false;
}

/* `bytes` 0: the result is in seconds. */
static bool compare(contender *both, double bytes, int rounds, bench_result *out)
{
    const bench_work work[] = { turn, turn };
    void *const      arg[] = { &both[0], &both[1] };
    double           seconds[2], ratio[2];

    bench_turns(2, work, arg, rounds, seconds, ratio);
    bench_peer_end(both[0].peer);
    if (both[0].seconds < 0 || both[1].seconds < 0) {
        snprintf(out->note, sizeof(out->note), "a turn failed; BENCH_VERBOSE=1 shows why");
        return false;
    }
    out->unit = bytes > 0 ? "GB/s" : "s";
    out->value = bytes > 0 ? bytes / seconds[0] / 1e9 : seconds[0];
    out->peer_value = bytes > 0 ? bytes / seconds[1] / 1e9 : seconds[1];
    out->vs_peer = ratio[1];
    return true;
}

static bool start(const char *model, bench_peer *peer, bench_result *out)
{
    char folder[PATH_MAX];

    bench_path("", folder, sizeof(folder));
    return bench_peer_start(peer, "torch_ckpt.py", folder, model, out->note, sizeof(out->note)) &&
           has_package(peer, out);
}

/* Both load what torch saved. */
static bool load_case(const char *model, const char *ours, const char *theirs, double bytes,
                      bench_result *out)
{
    static bench_peer peer;
    static contender  both[2];
    char              name[64];

    if (!start(model, &peer, out))
        return false;
    snprintf(name, sizeof(name), "peer.%s", model);
    for (int i = 0; i < 2; i++) {
        both[i] = (contender){ .peer = &peer, .command = i ? theirs : ours };
        bench_path(name, both[i].path, sizeof(both[i].path));
    }
    if (access(both[0].path, F_OK) != 0)
        bench_peer_ask(&peer, "make", both[0].path);
    bench_warm(both[0].path);
    return compare(both, bytes, bytes > 0 ? 5 : 3, out);
}

static bool save_case(const char *model, const char *ours, const char *theirs, double bytes,
                      bench_result *out)
{
    static bench_peer peer;
    static contender  both[2];
    char              line[3 * PATH_MAX];
    bool              done;

    if (!start(model, &peer, out))
        return false;
    for (int i = 0; i < 2; i++) {
        both[i] = (contender){ .peer = &peer, .command = i ? theirs : ours };
        bench_path(i ? "save.peer" : "save.ours", both[i].path, sizeof(both[i].path));
    }
    done = compare(both, bytes, 3, out);
    snprintf(line, sizeof(line), "rm -rf %s %s", both[0].path, both[1].path);
    if (system(line) != 0)
        fprintf(stderr, "bench: failed: %s\n", line);
    return done;
}

static const double large = 2147483648.0; /* bytes of the model of that name */

static bool load_reshard(bench_result *out)
{
    return load_case("large", "reader.reshard", "reshard", large, out);
}

static bool load_small(bench_result *out)
{
    return load_case("small", "reader.same", "same", 0, out);
}

static bool save_durable(bench_result *out)
{
    return save_case("large", "writer.save", "save", large, out);
}

static bool save_small(bench_result *out)
{
    return save_case("small", "writer.save", "save", 0, out);
}

const bench_case py_cases[] = {
    { "py.load.reshard@torch", load_reshard },
    { "py.load.small@torch", load_small },
    { "py.save.durable@torch", save_durable },
    { "py.save.small@torch", save_small },
    { NULL, NULL },
};
