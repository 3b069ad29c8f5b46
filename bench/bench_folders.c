/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of rank files into one Hugging Face folder, at equal dtype and without sync: eight ranks
 * of ZeRO-3 with Adam's state, under a limit of 256 MiB of address space, against DeepSpeed's
 * zero_to_fp32, without one; four ranks' DTensors against loading and concatenating in torch. From
 * the page cache into memory: a disk would make both the same. */
#include "bench.h"
#include "bench_data.h"
#include "bench_peer.h"

#include <reshard/reshard.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct folders {
    char       from[PATH_MAX], to[PATH_MAX];
    rlim_t     most;      /* bytes of address space; 0: no limit */
    bool       unchecked; /* as the peers: CRCs are not compared, no checksum file is written */
    bench_peer peer;
    bool       failed;
    long       peak_kib;
} folders;

static void clear(const char *path)
{
    pid_t pid = fork();

    if (pid == 0) {
        execlp("rm", "rm", "-rf", path, (char *)NULL);
        _exit(3);
    }
    waitpid(pid, NULL, 0);
}

static int convert(const folders *f)
{
    const struct rlimit limit = { f->most, f->most };
    const char *const   state[] = { "optim.*", "deepspeed.*" };
    rsd_convert_opts    opts = { .size = sizeof(opts),
                                 .format = RSD_FORMAT_SAFETENSORS,
                                 .sync = RSD_NEVER,
                                 .verify = f->unchecked ? RSD_NEVER : RSD_DEFAULT,
                                 .checksum = f->unchecked ? RSD_NEVER : RSD_DEFAULT,
                                 .exclude = state,
                                 .nexclude = 2 };
    rsd_error           err = { .msg = "no memory limit" };
    rsd_ckpt           *ckpt;
    rsd_err             rc = RSD_OK;

    if (f->most && setrlimit(RLIMIT_AS, &limit) != 0)
        rc = RSD_E_IO;
    rc = rc ? rc : rsd_ckpt_open(NULL, f->from, &ckpt, &err);
    rc = rc ? rc : rsd_convert(ckpt, f->to, NULL, &opts, &err);
    if (rc)
        fprintf(stderr, "bench: %s\n", err.msg);
    return rc ? 1 : 0;
}

/* In a process of its own, for the limit and the peak. */
static void ours(void *arg)
{
    folders      *f = arg;
    struct rusage usage = { .ru_maxrss = 0 };
    int           status = 1;
    double        start;
    pid_t         pid;

    clear(f->to);
    start = bench_now();
    pid = fork();
    if (pid == 0)
        _exit(convert(f));
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || status != 0)
        f->failed = true;
    bench_took(bench_now() - start);
    f->peak_kib = usage.ru_maxrss > f->peak_kib ? usage.ru_maxrss : f->peak_kib;
    clear(f->to);
}

static void peer(void *arg)
{
    folders *f = arg;
    double   seconds;

    clear(f->to);
    seconds = bench_peer_ask(&f->peer, "convert", f->to);
    bench_took(seconds);
    clear(f->to);
    f->failed = f->failed || seconds < 0;
}

static bool measure(bench_result *out, const char *name, const char *script, const char *last,
                    rlim_t most, bool unchecked)
{
    folders          f = { .most = most, .unchecked = unchecked };
    const bench_work work[] = { ours, peer };
    void *const      arg[] = { &f, &f };
    double           seconds[2], ratio[2];
    char             whole[PATH_MAX + 64];

    bench_path(name, f.from, sizeof(f.from));
    bench_path("folders", f.to, sizeof(f.to));
    if (access("/dev/shm", W_OK) == 0)
        snprintf(f.to, sizeof(f.to), "/dev/shm/reshard-bench-%ld", (long)getpid());
    if (!bench_peer_start(&f.peer, script, f.from, "", out->note, sizeof(out->note)))
        return false;
    snprintf(whole, sizeof(whole), "%s/%s", f.from, last);
    if (access(whole, F_OK) != 0) {
        clear(f.from);
        f.failed = bench_peer_ask(&f.peer, "make", f.from) < 0;
    }
    bench_warm(f.from);
    if (!f.failed)
        bench_turns(2, work, arg, 3, seconds, ratio);
    bench_peer_end(&f.peer);
    snprintf(out->note, sizeof(out->note), "it could not be measured");
    if (f.failed)
        return false;
    out->unit = "s";
    out->value = seconds[0];
    out->peer_value = seconds[1];
    out->vs_peer = ratio[1];
    snprintf(out->note, sizeof(out->note), "peak of ours alone: %ld MiB", f.peak_kib / 1024);
    return true;
}

static bool zero(bench_result *out)
{
    return measure(out, "zero", "zero_deepspeed.py", "latest", (rlim_t)256 << 20, false);
}

static bool ranks_of(bench_result *out, bool unchecked)
{
    return measure(out, "ranks", "ranks_torch.py", "model_world_size_4_rank_3.pt", 0, unchecked);
}

static bool ranks(bench_result *out)
{
    return ranks_of(out, false);
}

static bool ranks_unchecked(bench_result *out)
{
    return ranks_of(out, true);
}

const bench_case folder_cases[] = {
    { "zero.hf@deepspeed", zero },
    { "ranks.hf@torch", ranks },
    { "ranks.hf.unchecked@torch", ranks_unchecked },
    { 0 },
};
