/* SPDX-License-Identifier: Apache-2.0 */
/* The suite of live_suite.c, which has PyTorch's cases of ShardedTensor.reshard and all pairs of
 * placements, on one rank and on threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "live/exchange.h"
#include "live_suite.h"

#include <stdio.h>
#include <string.h>

typedef struct suite_run {
    const comm_case *what;
    int32_t          ranks;
    bool             tiny; /* pieces are cut and buffers small, so that there are many rounds */
    char             name[160];
} suite_run;

static rsd_err run_case(void *arg, rsd_comm *comm, rsd_error *err)
{
    const suite_run *run = arg;

    return run->what->run(comm, err);
}

static void suite(void **state)
{
    const suite_run *run = *state;
    rsd_error        err = { 0 };
    int64_t          before = rsi_mem_stats_get().bytes;
    rsd_err          rc;

    rsi_exchange_cut_min = run->tiny ? 1 : 64 << 10;
    rsi_exchange_memory_min = run->tiny ? 5120 : 64 << 10;
    rc = rsd_comm_run_threads(run->ranks, run_case, (void *)run, &err);
    if (rc)
        fail_msg("%s: %s", rsd_err_name(rc), err.msg);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

int main(void)
{
    static const int32_t     ranks[] = { 1, 2, 3, 4, 5, 7, 8, 12 };
    static suite_run         run[512];
    static struct CMUnitTest tests[512];
    size_t                   n = 0;

    for (size_t r = 0; r < 2 * sizeof(ranks) / sizeof(ranks[0]); r++)
        for (size_t i = 0; comm_suite(i) && n < 512; i++) {
            const comm_case *c = comm_suite(i);

            run[n] = (suite_run){ .what = c, .ranks = ranks[r / 2], .tiny = r % 2 };
            if (c->min_ranks > run[n].ranks || (c->slow && (run[n].ranks > 4 || run[n].tiny)))
                continue;
            snprintf(run[n].name, sizeof(run[n].name), "threads %d%s: %s", run[n].ranks,
                     run[n].tiny ? ", tiny" : "", c->name);
            tests[n] = (struct CMUnitTest){ run[n].name, suite, NULL, NULL, &run[n] };
            n++;
        }
    return _cmocka_run_group_tests("live_reshard", tests, n, NULL, NULL);
}
