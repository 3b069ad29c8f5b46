/* SPDX-License-Identifier: Apache-2.0 */
/* How long one rank needs for its plan: make it and visit every move. */
#include "bench.h"

#include <reshard/reshard_live.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TENSORS 1024

typedef struct planning {
    size_t      n;
    rsd_layout *src[MOST_TENSORS], *dst[MOST_TENSORS];
    int32_t     rank;
    int64_t     moves;
    size_t      plan_bytes;
    uint64_t    hash; /* of the last round's moves, in their order */
} planning;

static void must(rsd_err rc, const rsd_error *err)
{
    if (!rc)
        return;
    fprintf(stderr, "bench: %s\n", err->msg);
    exit(3);
}

static void add(planning *p, const char *src, const char *dst, rsd_dtype dtype, int ndim,
                const int64_t *shape)
{
    rsd_rules *rules;
    rsd_error  err;

    must(rsd_rules_parse(src, &rules, &err), &err);
    must(rsd_rules_layout(rules, "t", dtype, ndim, shape, &p->src[p->n], &err), &err);
    rsd_rules_free(rules);
    must(rsd_rules_parse(dst, &rules, &err), &err);
    must(rsd_rules_layout(rules, "t", dtype, ndim, shape, &p->dst[p->n], &err), &err);
    rsd_rules_free(rules);
    p->n++;
}

static rsd_err hash_move(void *arg, const rsd_move *move)
{
    planning *p = arg;
    uint64_t  h = p->hash;

    h = (h ^ (uint64_t)move->tensor) * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)(uint32_t)move->from << 32 ^ (uint32_t)move->to) * 0x9e3779b97f4a7c15u;
    for (int d = 0; d < move->box.ndim; d++)
        h = (h ^ (uint64_t)move->box.off[d] << 24 ^ (uint64_t)move->box.len[d]) *
            0x9e3779b97f4a7c15u;
    p->hash = h ^ h >> 29;
    p->moves++;
    return RSD_OK;
}

static void make_and_visit(void *arg)
{
    planning      *p = arg;
    rsd_plan      *plan;
    rsd_plan_stats stats = { .size = sizeof(stats) };
    rsd_error      err;

    p->moves = 0;
    p->hash = 0;
    must(rsd_plan_create(p->n, (const rsd_layout *const *)p->src, (const rsd_layout *const *)p->dst,
                         p->rank, &plan, &err),
         &err);
    must(rsd_plan_each(plan, hash_move, p, &err), &err);
    rsd_plan_stats_get(plan, &stats, NULL);
    p->plan_bytes = stats.plan_bytes;
    rsd_plan_free(plan);
}

static bool measure(planning *p, bench_result *out)
{
    const bench_work work[] = { make_and_visit };
    void *const      arg[] = { p };
    double           seconds;

    bench_turns(1, work, arg, 9, &seconds, NULL);
    out->value = seconds * 1e3;
    out->unit = "ms";
    snprintf(out->note, sizeof(out->note), "%" PRId64 " moves, %.1f bytes a move, hash %016" PRIx64,
             p->moves, (double)p->plan_bytes / (double)p->moves, p->hash);
    for (size_t i = 0; i < p->n; i++) {
        rsd_layout_free(p->src[i]);
        rsd_layout_free(p->dst[i]);
    }
    return true;
}

/* 32 layers, hidden 4096, ff 14336, kv 1024, vocabulary 128256: 291 tensors. */
static bool llama8b_1024(bench_result *out)
{
    static const int64_t layer[][2] = { { 4096, 4096 }, { 1024, 4096 },  { 1024, 4096 },
                                        { 4096, 4096 }, { 14336, 4096 }, { 4096, 14336 },
                                        { 14336, 4096 } };
    static const int64_t vocab[] = { 128256, 4096 }, norm[] = { 4096 };
    static planning      p = { .rank = 517 };
    const char *const rows = "mesh dp=1024; * shard(0)@dp", *const cols =
                                                                "mesh dp=1024; * shard(1)@dp";

    add(&p, rows, cols, RSD_BF16, 2, vocab);
    for (int l = 0; l < 32; l++) {
        for (size_t t = 0; t < sizeof(layer) / sizeof(layer[0]); t++)
            add(&p, rows, cols, RSD_BF16, 2, layer[t]);
        add(&p, rows, rows, RSD_BF16, 1, norm);
        add(&p, rows, rows, RSD_BF16, 1, norm);
    }
    add(&p, rows, rows, RSD_BF16, 1, norm);
    add(&p, rows, cols, RSD_BF16, 2, vocab);
    return measure(&p, out);
}

static bool many_ranks(int64_t ranks, bench_result *out)
{
    static const int64_t shape[] = { 8192, 8192 };
    static planning      p;
    char                 src[96], dst[96];

    p.rank = (int32_t)(ranks / 3);
    snprintf(src, sizeof(src), "mesh dp=%" PRId64 " tp=8; * shard(0)@dp shard(1)@tp", ranks / 8);
    snprintf(dst, sizeof(dst), "mesh dp=%" PRId64 " tp=4; * shard(0)@dp shard(1)@tp", ranks / 4);
    for (int t = 0; t < 1000; t++)
        add(&p, src, dst, RSD_BF16, 2, shape);
    return measure(&p, out);
}

static bool ranks_1k(bench_result *out)
{
    return many_ranks(1024, out);
}

static bool ranks_16k(bench_result *out)
{
    return many_ranks(16384, out);
}

static bool ranks_64k(bench_result *out)
{
    return many_ranks(65536, out);
}

const bench_case plan_cases[] = {
    { "plan.llama8b.1024", llama8b_1024 },
    { "plan.1k", ranks_1k },
    { "plan.16k", ranks_16k },
    { "plan.64k", ranks_64k },
    { 0 },
};
