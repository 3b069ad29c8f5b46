/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a Hugging Face file in Python, against the libraries that people load it with; all in one
 * process, peers/load_hf.py, which says what each is asked to do. A peer that $PYTHON lacks is
 * named.
 */
#include "bench.h"
#include "bench_data.h"
#include "bench_peer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const double bytes = 1073741824.0;

typedef struct loader {
    bench_peer *peer;
    const char *command, *path;
    double      seconds; /* of the last turn; < 0: it failed */
} loader;

static void load_once(void *arg)
{
    loader *l = arg;

    l->seconds = bench_peer_ask(l->peer, l->command, l->path);
    bench_took(l->seconds);
}

static bool against(const char *ours, const char *theirs, bench_result *out)
{
    static bench_peer peer;
    static char       path[PATH_MAX];
    loader            both[2];
    const bench_work  work[] = { load_once, load_once };
    void *const       arg[] = { &both[0], &both[1] };
    double            seconds[2], ratio[2];
    char              folder[PATH_MAX], size[32];

    bench_path("", folder, sizeof(folder));
    bench_path("hf.safetensors", path, sizeof(path));
    snprintf(size, sizeof(size), "%.0f", bytes);
    if (!bench_peer_start(&peer, "load_hf.py", folder, size, out->note, sizeof(out->note)))
        return false;
    both[0] = (loader){ &peer, ours, path, 0 };
    both[1] = (loader){ &peer, theirs, path, 0 };
    if (bench_peer_ask(&peer, "make", path) < 0 ||
        (strcmp(theirs, "tensorstore") == 0 &&
         bench_peer_ask(&peer, "tensorstore.make", path) < 0) ||
        bench_peer_ask(&peer, ours, path) < 0 || bench_peer_ask(&peer, theirs, path) < 0) {
        snprintf(out->note, sizeof(out->note), "no peer: $PYTHON lacks the package or %.40s",
                 theirs);
        bench_peer_end(&peer);
        return false;
    }
    bench_turns(2, work, arg, 5, seconds, ratio);
    bench_peer_end(&peer);
    if (both[0].seconds < 0 || both[1].seconds < 0) {
        snprintf(out->note, sizeof(out->note), "a turn failed; BENCH_VERBOSE=1 shows why");
        return false;
    }
    out->unit = "GB/s";
    out->value = bytes / seconds[0] / 1e9;
    out->peer_value = bytes / seconds[1] / 1e9;
    out->vs_peer = ratio[1];
    return true;
}

static bool with_safetensors(bench_result *out)
{
    return against("ours", "safetensors", out);
}

static bool with_fastsafetensors(bench_result *out)
{
    return against("ours", "fastsafetensors", out);
}

static bool with_runai(bench_result *out)
{
    return against("ours", "runai", out);
}

static bool with_tensorstore(bench_result *out)
{
    return against("ours", "tensorstore", out);
}

static bool own_memory(bench_result *out)
{
    return against("ours.own", "safetensors.own", out);
}

static bool reused(bench_result *out)
{
    return against("ours.reused", "safetensors", out);
}

const bench_case hf_cases[] = {
    { "hf.load@safetensors", with_safetensors },
    { "hf.load@fastsafetensors", with_fastsafetensors },
    { "hf.load@runai", with_runai },
    { "hf.load@tensorstore", with_tensorstore },
    { "hf.load.own@safetensors", own_memory },
    { "hf.load.reused@safetensors", reused },
    { NULL, NULL },
};
