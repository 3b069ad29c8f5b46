/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and loading on four ranks against PyTorch with the same model, files and folder: 2 GiB of
 * bfloat16 in 16 tensors, or 20,000 tensors of 4 KiB. Our ranks are threads, PyTorch's processes on
 * gloo. Contenders take turns; the peer measures itself, from barrier to barrier. */
#include "bench.h"
#include "bench_data.h"
#include "bench_peer.h"

#include <reshard/reshard.h>

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4 };

typedef struct model {
    const char *name; /* the peer's word for it */
    int64_t     tensors;
    int64_t     shape[2];
    int         dim; /* that is sharded */
} model;

typedef struct ckpt_bench {
    model         m;
    rsd_state    *state[RANKS];
    char         *memory; /* of all ranks */
    const char   *command;
    char          path[PATH_MAX], peer_path[PATH_MAX];
    rsd_save_opts save;
    bool          is_save;
    bench_peer    peer;
    double        peer_seconds; /* of the last turn */
    double        dd_seconds;
    rsd_err       rc;
    rsd_error     err;
} ckpt_bench;

static const model large = { "large", 16, { 8192, 8192 }, 0 };
static const model small = { "small", 20000, { 64, 32 }, 0 };

static size_t model_bytes(const model *m)
{
    return (size_t)(m->tensors * m->shape[0] * m->shape[1]) * 2;
}

/* The state of each rank, over memory that is laid out tensor by tensor. */
static rsd_err make_states(ckpt_bench *b)
{
    char        rule[64];
    rsd_rules  *rules = NULL;
    rsd_layout *layout = NULL;
    size_t      part = model_bytes(&b->m) / RANKS, step = part / (size_t)b->m.tensors;
    rsd_err     rc;

    snprintf(rule, sizeof(rule), "mesh dp=%d; * shard(%d)@dp", RANKS, b->m.dim);
    b->memory = bench_memory(part * RANKS);
    rc = rsd_rules_parse(rule, &rules, &b->err);
    if (!rc)
        rc = rsd_rules_layout(rules, "t", RSD_BF16, 2, b->m.shape, &layout, &b->err);
    for (int r = 0; r < RANKS && !rc; r++) {
        rc = rsd_state_create(&b->state[r], &b->err);
        for (int64_t t = 0; t < b->m.tensors && !rc; t++) {
            rsd_view view = { .data = b->memory + part * (size_t)r + step * (size_t)t };
            char     name[32];

            snprintf(name, sizeof(name), "model.t%" PRId64, t);
            rsd_layout_boxes(layout, r, &view.box, 1);
            rc = rsd_state_tensor(b->state[r], name, layout, RSD_BF16, 2, b->m.shape, 1, &view,
                                  &b->err);
        }
    }
    rsd_layout_free(layout);
    rsd_rules_free(rules);
    return rc;
}

static rsd_err one_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    ckpt_bench *b = arg;
    int         r = rsd_comm_rank(comm);

    if (b->is_save)
        return rsd_save(b->path, comm, b->state[r], &b->save, err);
    return rsd_load(b->path, comm, b->state[r], NULL, err);
}

static void run_shell(const char *line)
{
    if (system(line) != 0)
        fprintf(stderr, "bench: failed: %s\n", line);
}

/* As with the peer, what is there is removed first, not measured: nor is what the disk has to do
 * for that. */
static void make_room(const char *path)
{
    char line[2 * PATH_MAX];

    snprintf(line, sizeof(line), "rm -rf %s && sync", path);
    run_shell(line);
}

static void ours(void *arg)
{
    ckpt_bench *b = arg;
    double      start;

    if (b->rc)
        return;
    if (b->is_save)
        make_room(b->path);
    start = bench_now();
    b->rc = rsd_comm_run_threads(RANKS, one_rank, b, &b->err);
    bench_took(bench_now() - start);
}

static void without_sums(void *arg)
{
    ckpt_bench *b = arg;

    b->save.checksum = RSD_NEVER;
    ours(b);
    b->save.checksum = RSD_DEFAULT;
}

static void theirs(void *arg)
{
    ckpt_bench *b = arg;

    if (!b->peer.pid)
        return;
    b->peer_seconds = bench_peer_ask(&b->peer, b->command, b->peer_path);
    bench_took(b->peer_seconds);
}

/* Writes as many bytes past the cache, one file after the other. */
static void direct(void *arg)
{
    ckpt_bench *b = arg;
    char        path[PATH_MAX + 8], line[2 * PATH_MAX];
    double      start;

    snprintf(path, sizeof(path), "%s.dd", b->path);
    make_room(path);
    snprintf(line, sizeof(line),
             "dd if=/dev/zero of=%s bs=4M count=%zu oflag=direct conv=fsync 2>/dev/null", path,
             model_bytes(&b->m) >> 22);
    start = bench_now();
    run_shell(line);
    bench_took(bench_now() - start);
}

static void remove_all(const ckpt_bench *b)
{
    char line[4 * PATH_MAX];

    snprintf(line, sizeof(line), "rm -rf %s %s.dd %s", b->path, b->path, b->peer_path);
    run_shell(line);
}

static bool prepare(ckpt_bench *b, const model *m, const char *ours_name, const char *peer_name,
                    bench_result *out)
{
    char folder[PATH_MAX];

    b->m = *m;
    bench_path("", folder, sizeof(folder));
    bench_path(ours_name, b->path, sizeof(b->path));
    bench_path(peer_name, b->peer_path, sizeof(b->peer_path));
    bench_peer_start(&b->peer, "torch_ckpt.py", folder, m->name, out->note, sizeof(out->note));
    b->rc = make_states(b);
    return true;
}

static bool finish(ckpt_bench *b, const double *seconds, const double *ratio, int peer,
                   bench_result *out)
{
    size_t bytes = model_bytes(&b->m);

    bench_peer_end(&b->peer);
    if (b->rc) {
        snprintf(out->note, sizeof(out->note), "%.150s", b->err.msg);
        return false;
    }
    if (bytes > (size_t)1 << 30) {
        out->unit = "GB/s";
        out->value = (double)bytes / seconds[0] / 1e9;
        out->peer_value = b->peer_seconds > 0 ? (double)bytes / seconds[peer] / 1e9 : 0;
    } else {
        out->unit = "s";
        out->value = seconds[0];
        out->peer_value = b->peer_seconds > 0 ? seconds[peer] : 0;
    }
    out->vs_peer = b->peer_seconds > 0 ? ratio[peer] : 0;
    return true;
}

/* Loads what the peer wrote, or without one what we wrote ourselves. */
static bool load_case(const model *m, int dim, const char *command, bench_result *out)
{
    static ckpt_bench b;
    const bench_work  work[] = { ours, theirs };
    void *const       arg[] = { &b, &b };
    double            seconds[2], ratio[2];
    char              name[64];

    snprintf(name, sizeof(name), "peer.%s", m->name);
    prepare(&b, m, name, name, out);
    if (access(b.path, F_OK) != 0) {
        b.is_save = true;
        if (b.peer.pid)
            bench_peer_ask(&b.peer, "make", b.path);
        else
            ours(&b);
        b.is_save = false;
    }
    bench_warm(b.path);
    if (dim != b.m.dim && !b.rc) {
        free(b.memory);
        b.m.dim = dim;
        b.rc = make_states(&b);
    }
    b.command = command;
    bench_turns(2, work, arg, m == &small ? 3 : 5, seconds, ratio);
    return finish(&b, seconds, ratio, 1, out);
}

static bool save_case(const model *m, bench_result *out)
{
    static ckpt_bench b;
    const bench_work  work[] = { ours, theirs, direct };
    void *const       arg[] = { &b, &b, &b };
    bool              disk = model_bytes(m) > (size_t)1 << 30;
    double            seconds[3], ratio[3];

    prepare(&b, m, "save.ours", "save.peer", out);
    b.is_save = true;
    b.command = "save";
    b.save = (rsd_save_opts){ .size = sizeof(b.save) };
    bench_turns(disk ? 3 : 2, work, arg, disk ? 7 : 3, seconds, ratio);
    if (disk) {
        out->ideal = (double)model_bytes(m) / seconds[2] / 1e9;
        out->of_ideal = ratio[2];
        snprintf(out->note, sizeof(out->note), "ideal: dd oflag=direct");
    }
    remove_all(&b);
    return finish(&b, seconds, ratio, 1, out);
}

/* What the side file's checksums cost: the peer is the same save without them. */
static bool save_sums(bench_result *out)
{
    static ckpt_bench b;
    const bench_work  work[] = { ours, without_sums };
    void *const       arg[] = { &b, &b };
    double            seconds[2], ratio[2];

    b = (ckpt_bench){ .m = large, .is_save = true, .save = { .size = sizeof(b.save) } };
    bench_path("save.ours", b.path, sizeof(b.path));
    bench_path("save.none", b.peer_path, sizeof(b.peer_path));
    b.rc = make_states(&b);
    bench_turns(2, work, arg, 21, seconds, ratio);
    b.peer_seconds = seconds[1];
    snprintf(out->note, sizeof(out->note), "peer: without checksums, which cost %.1f %%",
             100 / ratio[1] - 100);
    remove_all(&b);
    return finish(&b, seconds, ratio, 1, out);
}

static bool load_reshard(bench_result *out)
{
    return load_case(&large, 1, "reshard", out);
}

static bool load_same(bench_result *out)
{
    return load_case(&large, 0, "same", out);
}

static bool load_small(bench_result *out)
{
    return load_case(&small, 0, "same", out);
}

static bool save_durable(bench_result *out)
{
    return save_case(&large, out);
}

static bool save_small(bench_result *out)
{
    return save_case(&small, out);
}

const bench_case ckpt_cases[] = {
    { "load.reshard@torch", load_reshard },
    { "load.same@torch", load_same },
    { "load.small@torch", load_small },
    { "save.durable@torch", save_durable },
    { "save.small@torch", save_small },
    { "save.sums", save_sums },
    { NULL, NULL },
};
