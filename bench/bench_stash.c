/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and taking an activation on four threads, against a bare allgather of the same bytes in
 * the same run; and how long ranks wait when they fetch ahead and compute in between. */
#include "bench.h"
#include "comm/comm.h"

#include <reshard/reshard_live.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, ROWS = 4096, COLS = 2048 };
#define BYTES ((size_t)ROWS * COLS * 4)

typedef struct team team;
typedef void (*team_work)(team *t, int rank);

/* Rank 0 is the thread that measures; the others do what it does. */
struct team {
    pthread_barrier_t begin, end;
    pthread_t         thread[RANKS];
    rsd_comm         *comm[RANKS];
    rsd_stash        *stash[RANKS];
    char             *tensor[RANKS], *back[RANKS];
    team_work         work; /* NULL: go home */
    int32_t           dim;
    _Atomic int       failed;
};

typedef struct member {
    team *t;
    int   rank;
} member;

static void make(team *t, int rank)
{
    rsd_stash_opts opts = { .size = sizeof(opts), .dim = t->dim, .budget = BYTES, .handles = 4 };

    t->tensor[rank] = bench_memory(BYTES);
    t->back[rank] = bench_memory(BYTES);
    if (rsd_stash_create(t->comm[rank], &opts, &t->stash[rank], NULL))
        t->failed = 1;
}

static void unmake(team *t, int rank)
{
    rsd_stash_free(t->stash[rank]);
    free(t->tensor[rank]);
    free(t->back[rank]);
}

static void gather(team *t, int rank)
{
    size_t part = BYTES / RANKS;

    if (rsi_allgather(t->comm[rank], t->tensor[rank] + (size_t)rank * part, part, t->back[rank],
                      NULL))
        t->failed = 1;
}

static void roundtrip(team *t, int rank)
{
    const int64_t shape[] = { ROWS, COLS };
    rsd_stashed   saved;

    if (rsd_stash_save(t->stash[rank], RSD_F32, 2, shape, t->tensor[rank], true, &saved, NULL) ||
        rsd_stash_take(&saved, t->back[rank], BYTES, NULL))
        t->failed = 1;
}

static void *follow(void *arg)
{
    member *m = arg;

    for (;;) {
        pthread_barrier_wait(&m->t->begin);
        if (!m->t->work)
            return NULL;
        m->t->work(m->t, m->rank);
        pthread_barrier_wait(&m->t->end);
    }
}

static void lead(team *t, team_work work)
{
    t->work = work;
    pthread_barrier_wait(&t->begin);
    if (!work)
        return;
    work(t, 0);
    pthread_barrier_wait(&t->end);
}

static void all_gather(void *arg)
{
    lead(arg, gather);
}

static void all_roundtrip(void *arg)
{
    lead(arg, roundtrip);
}

static bool with_team(int32_t dim, void (*measure)(team *t, bench_result *out), bench_result *out)
{
    static team   t;
    static member m[RANKS];

    t.dim = dim;
    if (rsd_comm_create_threads(RANKS, t.comm, NULL)) {
        snprintf(out->note, sizeof(out->note), "no comm");
        return false;
    }
    pthread_barrier_init(&t.begin, NULL, RANKS);
    pthread_barrier_init(&t.end, NULL, RANKS);
    for (int r = 1; r < RANKS; r++) {
        m[r] = (member){ &t, r };
        if (pthread_create(&t.thread[r], NULL, follow, &m[r]) != 0)
            exit(3);
    }
    lead(&t, make);
    if (!t.failed)
        measure(&t, out);
    lead(&t, unmake);
    lead(&t, NULL);
    for (int r = 1; r < RANKS; r++)
        pthread_join(t.thread[r], NULL);
    for (int r = 0; r < RANKS; r++)
        rsd_comm_free(t.comm[r]);
    if (t.failed)
        snprintf(out->note, sizeof(out->note), "the stash failed");
    return !t.failed;
}

static void measure_roundtrip(team *t, bench_result *out)
{
    const bench_work work[] = { all_roundtrip, all_gather };
    void *const      arg[] = { t, t };
    double           seconds[2], ratio[2];

    bench_turns(2, work, arg, 15, seconds, ratio);
    out->unit = "GB/s";
    out->value = (double)BYTES / seconds[0] / 1e9;
    out->ideal = (double)BYTES / seconds[1] / 1e9;
    out->of_ideal = ratio[1];
    snprintf(out->note, sizeof(out->note),
             "float32 [%d, %d] cut along dimension %d on %d threads; ideal: a bare allgather", ROWS,
             COLS, (int)t->dim, RANKS);
}

static bool rows(bench_result *out)
{
    return with_team(0, measure_roundtrip, out);
}

static bool columns(bench_result *out)
{
    return with_team(1, measure_roundtrip, out);
}

/* Stands for the layers between prefetch and take. */
static void compute(team *t, int rank)
{
    float *x = (float *)(void *)t->tensor[rank];

    for (int pass = 0; pass < 4; pass++)
        for (size_t i = 0; i < BYTES / 4; i++)
            x[i] = x[i] * 0.5f + 1;
}

static void fetch_ahead(team *t, int rank)
{
    const int64_t shape[] = { ROWS, COLS };
    rsd_stashed   saved;

    if (rsd_stash_save(t->stash[rank], RSD_F32, 2, shape, t->tensor[rank], true, &saved, NULL) ||
        rsd_stash_prefetch(&saved, t->back[rank], BYTES, NULL))
        t->failed = 1;
    compute(t, rank);
    if (rsd_stash_take(&saved, NULL, 0, NULL))
        t->failed = 1;
}

static void all_fetch_ahead(void *arg)
{
    lead(arg, fetch_ahead);
}

static void all_compute(void *arg)
{
    lead(arg, compute);
}

static void measure_wait(team *t, bench_result *out)
{
    enum { ROUNDS = 9 };
    const bench_work work[] = { all_fetch_ahead, all_compute };
    void *const      arg[] = { t, t };
    double           seconds[2], ratio[2], waited;
    rsd_stash_stats  stats = { .size = sizeof(stats) };

    bench_turns(2, work, arg, ROUNDS, seconds, ratio);
    rsd_stash_stats_get(t->stash[0], &stats, NULL);
    waited = (double)stats.wait_ns * 1e-9 / (ROUNDS + 1); /* one more than is counted */
    out->unit = "ms";
    out->value = seconds[0] * 1e3;
    out->ideal = seconds[1] * 1e3;
    out->of_ideal = ratio[1];
    snprintf(out->note, sizeof(out->note),
             "save, prefetch, compute, take; ideal: compute alone; rank 0 waits %.1f ms, %.1f %%",
             waited * 1e3, 100 * waited / seconds[0]);
}

static bool prefetch(bench_result *out)
{
    return with_team(0, measure_wait, out);
}

const bench_case stash_cases[] = {
    { "stash.roundtrip", rows },
    { "stash.columns", columns },
    { "stash.prefetch", prefetch },
    { 0 },
};
