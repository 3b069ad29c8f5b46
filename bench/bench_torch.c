/* SPDX-License-Identifier: Apache-2.0 */
/* reshard.torch.save, load and async_save against torch.distributed.checkpoint, both in the same
 * four processes of peers/torch_reshard.py, which take turns. $PYTHON must have the package. */
#include "bench.h"
#include "bench_data.h"
#include "bench_peer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct side {
    bench_peer *ranks;
    const char *command;
    char        path[PATH_MAX];
    double      seconds; /* of the last turn; < 0: it failed */
} side;

static void take_turn(void *arg)
{
    side *s = arg;

    s->seconds = bench_peer_ask(s->ranks, s->command, s->path);
    bench_took(s->seconds);
}

/* `loads`: both load what ours saved; otherwise each writes to a path of its own. */
static bool run(const char *model, const char *ours, const char *theirs, bool loads,
                bench_result *out)
{
    static bench_peer ranks;
    static side       both[2];
    const bench_work  work[] = { take_turn, take_turn };
    void *const       arg[] = { &both[0], &both[1] };
    double            seconds[2], ratio[2];
    char              folder[PATH_MAX], line[3 * PATH_MAX];

    bench_path("", folder, sizeof(folder));
    if (!bench_peer_start(&ranks, "torch_reshard.py", folder, model, out->note, sizeof(out->note)))
        return false;
    for (int i = 0; i < 2; i++) {
        both[i] = (side){ .ranks = &ranks, .command = i ? theirs : ours };
        bench_path(i && !loads ? "torch.theirs" : "torch.ours", both[i].path, sizeof(both[i].path));
    }
    if (loads)
        bench_peer_ask(&ranks, "our_save", both[0].path);
    bench_turns(2, work, arg, 3, seconds, ratio);
    bench_peer_end(&ranks);
    snprintf(line, sizeof(line), "rm -rf '%s' '%s'", both[0].path, both[1].path);
    if (system(line) != 0)
        fprintf(stderr, "bench: failed: %s\n", line);
    if (both[0].seconds < 0 || both[1].seconds < 0) {
        snprintf(out->note, sizeof(out->note),
                 "a turn failed; does $PYTHON have the package? BENCH_VERBOSE=1 shows why");
        return false;
    }
    out->unit = "s";
    out->value = seconds[0];
    out->peer_value = seconds[1];
    out->vs_peer = ratio[1];
    return true;
}

static bool load_small(bench_result *out)
{
    return run("small", "our_same", "same", true, out);
}

static bool save_small(bench_result *out)
{
    return run("small", "our_save", "save", false, out);
}

static bool stall_fork(bench_result *out)
{
    return run("large", "our_stall", "stall", false, out);
}

static bool stall_copy(bench_result *out)
{
    return run("large", "our_copy", "stall", false, out);
}

const bench_case torch_cases[] = {
    { "py.load.small.own@torch", load_small },
    { "py.save.small.own@torch", save_small },
    { "py.async.stall@torch", stall_fork },
    { "py.async.copy@torch", stall_copy },
    { NULL, NULL },
};
