/* SPDX-License-Identifier: Apache-2.0 */
/* Converting 2 GiB of bfloat16 in four row or column shards (DCP) into one safetensors file against
 * `cp` of the same files: in memory, and on disk with sync; and into a torch.save file against
 * PyTorch's own dcp_to_torch_save; and 2 GiB with recipes: QKV fused, rows permuted, matrices
 * transposed, experts stacked. The table shows the peak memory of each. */
#include "bench.h"
#include "bench_data.h"
#include "bench_peer.h"

#include <reshard/reshard_recipe.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TENSORS = 64, N = 4096 }; /* bfloat16 [N, N]: 32 MiB each */
#define BYTES ((size_t)N * N * 2)

static bool make(const char *path, const char *text)
{
    const int64_t shape[] = { N, N };
    rsd_view      view = { .box = { 2, { 0 }, { N, N } }, .data = bench_memory(BYTES) };
    rsd_save_opts opts = { .size = sizeof(opts), .sync = RSD_NEVER, .max_memory = (size_t)8 << 20 };
    rsd_rules    *rules;
    rsd_layout   *layout;
    rsd_state    *state;
    rsd_error     err;
    rsd_err       rc = rsd_rules_parse(text, &rules, &err);

    for (size_t i = 0; i < BYTES / 8; i++)
        ((uint64_t *)view.data)[i] = i * 0x9e3779b97f4a7c15u;
    if (!rc)
        rc = rsd_rules_layout(rules, "w", RSD_BF16, 2, shape, &layout, &err);
    if (!rc)
        rc = rsd_state_create(&state, &err);
    for (int i = 0; i < TENSORS && !rc; i++) {
        char name[64];

        snprintf(name, sizeof(name), "model.layers.%d.weight", i);
        rc = rsd_state_tensor(state, name, layout, RSD_BF16, 2, shape, 1, &view, &err);
    }
    return !rc && rsd_save(path, NULL, state, &opts, &err) == RSD_OK;
}

static bool make_rows(const char *path)
{
    return make(path, "mesh dp=4; * shard(0)@dp");
}

static bool make_columns(const char *path)
{
    return make(path, "mesh tp=4; * shard(1)@tp");
}

/* ---- sources for recipes: one safetensors file with names as Hugging Face's ---- */

typedef struct named {
    const char *name; /* with the numbers of layer and expert */
    int64_t     rows;
} named;

static bool make_hf(const char *path, int layers, int experts, const named *list, size_t n)
{
    void         *data = bench_memory(BYTES);
    rsd_save_opts opts = { .size = sizeof(opts), .sync = RSD_NEVER, .max_memory = (size_t)8 << 20 };
    rsd_state    *state;
    rsd_error     err;
    rsd_err       rc = rsd_state_create(&state, &err);

    for (size_t i = 0; i < BYTES / 8; i++)
        ((uint64_t *)data)[i] = i * 0x9e3779b97f4a7c15u;
    for (int l = 0; l < layers; l++)
        for (int e = 0; e < experts; e++)
            for (size_t k = 0; k < n && !rc; k++) {
                const int64_t  shape[] = { list[k].rows, N };
                const rsd_view view = { .box = { 2, { 0 }, { list[k].rows, N } }, .data = data };
                char           name[96];

                snprintf(name, sizeof(name), "model.layers.%d.%s%d.%s", l,
                         experts > 1 ? "experts." : "self_attn.", e, list[k].name);
                if (experts == 1)
                    snprintf(name, sizeof(name), "model.layers.%d.self_attn.%s", l, list[k].name);
                rc = rsd_state_tensor(state, name, NULL, RSD_BF16, 2, shape, 1, &view, &err);
            }
    return !rc && rsd_save(path, NULL, state, &opts, &err) == RSD_OK;
}

static bool make_attention(const char *path)
{
    const named list[] = { { "q_proj.weight", N },
                           { "k_proj.weight", N / 4 },
                           { "v_proj.weight", N / 4 } };

    return make_hf(path, TENSORS * 2 / 3, 1, list, 3);
}

static bool make_experts(const char *path)
{
    const named list[] = { { "w1.weight", N }, { "w3.weight", N } };

    return make_hf(path, TENSORS / 16, 8, list, 2);
}

static const char fuse_qkv[] = "model.layers.{i}.self_attn.q_proj.weight[(g r d) h],"
                               " model.layers.{i}.self_attn.{k,v}_proj.weight[(g d) h]"
                               " -> layers.{i}.qkv[(g (r d + d + d)) h] where g = 8";
static const char permute[] =
    "model.layers.{i}.self_attn.q_proj.weight[(n j 2) h] -> q.{i}[(n 2 j) h]"
    " where j = 64; model.layers.{i}.self_attn.{k,v}_proj.weight"
    "[(n j 2) h] -> {k,v}.{i}[(n 2 j) h] where j = 64";
static const char turn[] = "model.layers.{i}.self_attn.q_proj.weight[x h] -> q.{i}[h x]\n"
                           "model.layers.{i}.self_attn.{*s}_proj.weight[x h] -> {*s}.{i}[h x]";
static const char stack_experts[] = "model.layers.{i}.experts.{e}.{w1,w3}.weight[x h]"
                                    " -> fc1.{i}[e (x + x) h]";

typedef struct converting {
    char             folder[PATH_MAX], from[PATH_MAX], to[PATH_MAX + 32], copy[PATH_MAX + 32];
    rsd_convert_opts opts;
    rsd_recipe      *recipe;
    bench_peer       peer;
    bool             failed;
    char             why[160];
} converting;

/* Runs a program; false if it did not end with 0. */
static bool run(const char *const *argv)
{
    int   status;
    pid_t pid = fork();

    if (pid == 0) {
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(3);
    }
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static void clear(const char *path)
{
    char              side[PATH_MAX + 64];
    const char *const argv[] = { "rm", "-rf", path, side, NULL };

    snprintf(side, sizeof(side), "%s.reshard-sums", path);
    run(argv);
}

static void ours(void *arg)
{
    converting *c = arg;
    rsd_ckpt   *ckpt;
    rsd_error   err;
    double      start;
    rsd_err     rc;

    clear(c->to);
    start = bench_now();
    rc = rsd_ckpt_open(NULL, c->from, &ckpt, &err);
    if (!rc) {
        rc = rsd_convert(ckpt, c->to, NULL, &c->opts, &err);
        rsd_ckpt_close(ckpt);
    }
    bench_took(bench_now() - start);
    clear(c->to);
    if (rc) {
        c->failed = true;
        snprintf(c->why, sizeof(c->why), "%.150s", err.msg);
    }
}

static void copy(void *arg)
{
    converting       *c = arg;
    const char *const cp[] = { "cp", "-r", c->from, c->copy, NULL };
    const char *const sync[] = { "sync", "-f", c->copy, NULL };
    double            start;

    clear(c->copy);
    start = bench_now();
    c->failed = !run(cp) || (c->opts.sync != RSD_NEVER && !run(sync)) || c->failed;
    bench_took(bench_now() - start);
    clear(c->copy);
}

static void peer(void *arg)
{
    converting *c = arg;
    double      seconds;

    clear(c->copy);
    seconds = bench_peer_ask(&c->peer, "convert", c->copy);
    bench_took(seconds);
    clear(c->copy);
    c->failed = c->failed || seconds < 0;
}

/* Memory if there is a file system for it, else, or for `disk`, where the other data are. */
static bool prepare(converting *c, const char *name, bool (*make_source)(const char *), bool disk,
                    const char *end)
{
    if (!disk && access("/dev/shm", W_OK) == 0)
        snprintf(c->folder, sizeof(c->folder), "/dev/shm/reshard-bench-%ld", (long)getpid());
    else
        bench_path("convert", c->folder, sizeof(c->folder));
    run((const char *const[]){ "mkdir", "-p", c->folder, NULL });
    snprintf(c->from, sizeof(c->from), "%.4000s/%s", c->folder, name);
    snprintf(c->to, sizeof(c->to), "%.4000s/to%s", c->folder, end);
    snprintf(c->copy, sizeof(c->copy), "%.4000s/copy%s", c->folder, end);
    c->opts = (rsd_convert_opts){ .size = sizeof(c->opts), .sync = disk ? RSD_DEFAULT : RSD_NEVER };
    if (!bench_prepare(c->from, make_source))
        return false;
    bench_warm(c->from);
    return true;
}

static bool measure(bench_result *out, const char *name, bool (*make_source)(const char *),
                    bool disk)
{
    converting       c = { 0 };
    const bench_work work[] = { ours, copy };
    void *const      arg[] = { &c, &c };
    double           seconds[2], ratio[2];

    if (!prepare(&c, name, make_source, disk, ".safetensors"))
        return false;
    bench_turns(2, work, arg, 9, seconds, ratio);
    clear(c.folder);
    out->unit = "GB/s";
    out->value = (double)TENSORS * BYTES / seconds[0] / 1e9;
    out->ideal = (double)TENSORS * BYTES / seconds[1] / 1e9;
    out->of_ideal = ratio[1];
    snprintf(out->note, sizeof(out->note), "%s", c.failed ? c.why : "2 GiB; ideal: cp");
    return !c.failed;
}

static bool rows(bench_result *out)
{
    return measure(out, "rows", make_rows, false);
}

static bool columns(bench_result *out)
{
    return measure(out, "columns", make_columns, false);
}

static bool rows_on_disk(bench_result *out)
{
    return measure(out, "rows", make_rows, true);
}

static bool against_torch(bench_result *out)
{
    converting       c = { 0 };
    const bench_work work[] = { ours, peer };
    void *const      arg[] = { &c, &c };
    double           seconds[2], ratio[2];

    if (!prepare(&c, "rows", make_rows, false, ".pt"))
        return false;
    if (!bench_peer_start(&c.peer, "torch_convert.py", c.from, "", out->note, sizeof(out->note))) {
        clear(c.folder);
        return false;
    }
    bench_turns(2, work, arg, 3, seconds, ratio);
    bench_peer_end(&c.peer);
    clear(c.folder);
    out->unit = "s";
    out->value = seconds[0];
    out->peer_value = seconds[1];
    out->vs_peer = ratio[1];
    snprintf(out->note, sizeof(out->note), "%s",
             c.failed ? c.why : "2 GiB; torch: dcp_to_torch_save");
    return !c.failed;
}

/* ---- recipes ---- */

static bool with_recipe(bench_result *out, const char *name, bool (*make_source)(const char *),
                        const char *text, bool torch)
{
    converting       c = { 0 };
    const bench_work work[] = { ours, torch ? peer : copy };
    void *const      arg[] = { &c, &c };
    double           seconds[2], ratio[2];
    rsd_error        err;

    if (rsd_recipe_parse(text, false, &c.recipe, &err) ||
        !prepare(&c, name, make_source, false, ".safetensors"))
        return false;
    c.opts.recipe = c.recipe;
    if (torch &&
        !bench_peer_start(&c.peer, "torch_recipe.py", c.from, "", out->note, sizeof(out->note))) {
        clear(c.folder);
        return false;
    }
    bench_turns(2, work, arg, 5, seconds, ratio);
    if (torch)
        bench_peer_end(&c.peer);
    clear(c.folder);
    rsd_recipe_free(c.recipe);
    out->unit = torch ? "s" : "GB/s";
    out->value = torch ? seconds[0] : (double)TENSORS * BYTES / seconds[0] / 1e9;
    out->ideal = torch ? 0 : (double)TENSORS * BYTES / seconds[1] / 1e9;
    out->of_ideal = torch ? 0 : ratio[1];
    out->peer_value = torch ? seconds[1] : 0;
    out->vs_peer = torch ? ratio[1] : 0;
    snprintf(out->note, sizeof(out->note), "%s",
             c.failed ? c.why
             : torch  ? "2 GiB; torch: safe_open, a layer at a time"
                      : "2 GiB; ideal: cp");
    return !c.failed;
}

static bool qkv(bench_result *out)
{
    return with_recipe(out, "qkv.safetensors", make_attention, fuse_qkv, false);
}

static bool rope(bench_result *out)
{
    return with_recipe(out, "qkv.safetensors", make_attention, permute, false);
}

static bool transpose(bench_result *out)
{
    return with_recipe(out, "qkv.safetensors", make_attention, turn, false);
}

static bool experts(bench_result *out)
{
    return with_recipe(out, "experts.safetensors", make_experts, stack_experts, false);
}

static bool qkv_against_torch(bench_result *out)
{
    return with_recipe(out, "qkv.safetensors", make_attention, fuse_qkv, true);
}

const bench_case convert_cases[] = {
    { "convert.row@cp", rows },
    { "convert.col@cp", columns },
    { "convert.row.sync@cp", rows_on_disk },
    { "convert.row@torch", against_torch },
    { "recipe.qkv@cp", qkv },
    { "recipe.rope@cp", rope },
    { "recipe.transpose@cp", transpose },
    { "recipe.experts@cp", experts },
    { "recipe.qkv@torch", qkv_against_torch },
    { 0 },
};
