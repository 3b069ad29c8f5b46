/* SPDX-License-Identifier: Apache-2.0 */
/* reshard.torch.redistribute against DTensor.redistribute: a float32 matrix of 1 GiB from rows to
 * columns, in the same four processes of peers/live_torch.py, which take turns. $PYTHON must have
 * the package. */
#include "bench.h"
#include "bench_peer.h"

#include <stdio.h>

#define SIDE "16384"

typedef struct turn {
    bench_peer *ranks;
    const char *command;
    double      seconds; /* of the last one; < 0: it failed */
} turn;

static void take_turn(void *arg)
{
    turn *t = arg;

    t->seconds = bench_peer_ask(t->ranks, t->command, "-");
    bench_took(t->seconds);
}

static bool redistribute(bench_result *out)
{
    static bench_peer ranks;
    static turn       both[2] = { { &ranks, "ours", 0 }, { &ranks, "run", 0 } };
    const bench_work  work[] = { take_turn, take_turn };
    void *const       arg[] = { &both[0], &both[1] };
    double            seconds[2], ratio[2];

    if (!bench_peer_start(&ranks, "live_torch.py", "4", SIDE, out->note, sizeof(out->note)))
        return false;
    bench_turns(2, work, arg, 3, seconds, ratio);
    bench_peer_end(&ranks);
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

const bench_case redistribute_cases[] = {
    { "py.redistribute@torch", redistribute },
    { NULL, NULL },
};
