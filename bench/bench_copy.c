/* SPDX-License-Identifier: Apache-2.0 */
/* Strided copies on one core, as a part of memcpy's speed for as many bytes in the same run. */
#include "bench.h"
#include "plan/copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOURCE ((size_t)256 << 20)

typedef struct copying {
    unsigned char *from, *to;
    size_t         bytes; /* that are moved */
    rsi_loops      loops;
} copying;

static void ours(void *arg)
{
    const copying *c = arg;

    rsi_copy(&c->loops, c->to, c->from);
}

static void plain_memcpy(void *arg)
{
    const copying *c = arg;

    memcpy(c->to, c->from, c->bytes);
}

/* `runs` runs of `run` bytes with `pitch` between their starts, into a packed target. */
static bool rows(int64_t run, int64_t pitch, bench_result *out)
{
    int64_t          len[] = { (int64_t)SOURCE / pitch, run }, from[] = { pitch, 1 };
    copying          c = { .bytes = (size_t)(len[0] * run) };
    const bench_work work[] = { ours, plain_memcpy };
    void *const      arg[] = { &c, &c };
    double           seconds[2], ratio[2];

    c.from = bench_memory(SOURCE);
    c.to = bench_memory(c.bytes);
    rsi_loops_make(&c.loops, 2, len, 1, NULL, from);
    bench_turns(2, work, arg, 15, seconds, ratio);
    out->unit = "GB/s";
    out->value = (double)c.bytes / seconds[0] / 1e9;
    out->ideal = (double)c.bytes / seconds[1] / 1e9;
    out->of_ideal = ratio[1];
    snprintf(out->note, sizeof(out->note), "runs of %d bytes, every %d; ideal: memcpy", (int)run,
             (int)pitch);
    free(c.from);
    free(c.to);
    return true;
}

static bool run4k(bench_result *out)
{
    return rows(4096, 4 * 4096, out);
}

static bool run64(bench_result *out)
{
    return rows(64, 4 * 64, out);
}

/* A column of 4 values of 2 bytes: a call of memcpy for each costs more than its bytes. */
static bool run8(bench_result *out)
{
    return rows(8, 4 * 8, out);
}

/* A transposed matrix of 64 MiB with rows of 16 KiB: the source's rows are the target's columns. */
static bool transposed(int64_t elem_bytes, bench_result *out)
{
    int64_t          pitch = 16384, n = pitch / elem_bytes;
    int64_t          len[] = { n, 4096 }, from[] = { elem_bytes, pitch };
    copying          c = { .bytes = (size_t)(4096 * pitch) };
    const bench_work work[] = { ours, plain_memcpy };
    void *const      arg[] = { &c, &c };
    double           seconds[2], ratio[2];

    c.from = bench_memory(c.bytes);
    c.to = bench_memory(c.bytes);
    rsi_loops_make(&c.loops, 2, len, elem_bytes, NULL, from);
    bench_turns(2, work, arg, 15, seconds, ratio);
    out->unit = "GB/s";
    out->value = (double)c.bytes / seconds[0] / 1e9;
    out->ideal = (double)c.bytes / seconds[1] / 1e9;
    out->of_ideal = ratio[1];
    snprintf(out->note, sizeof(out->note),
             "elements of %d bytes, [4096, %d] transposed; ideal: memcpy", (int)elem_bytes, (int)n);
    free(c.from);
    free(c.to);
    return true;
}

static bool transpose(bench_result *out)
{
    return transposed(4, out);
}

static bool transpose_bytes(bench_result *out)
{
    return transposed(1, out);
}

static bool transpose_halves(bench_result *out)
{
    return transposed(2, out);
}

static bool transpose_doubles(bench_result *out)
{
    return transposed(8, out);
}

const bench_case copy_cases[] = {
    { "copy.run4k", run4k },
    { "copy.run64", run64 },
    { "copy.run8", run8 },
    { "copy.transpose", transpose },
    { "copy.transpose8", transpose_bytes },
    { "copy.transpose16", transpose_halves },
    { "copy.transpose64", transpose_doubles },
    { 0 },
};
