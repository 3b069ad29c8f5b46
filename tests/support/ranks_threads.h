/* SPDX-License-Identifier: Apache-2.0 */
/* For cmocka: the cases of ranks_case.h on threads. */
#ifndef RESHARD_TESTS_RANKS_THREADS_H
#define RESHARD_TESTS_RANKS_THREADS_H

#include "base/mem.h"
#include "ranks_case.h"

static rsd_err run_one_case(void *arg, rsd_comm *comm, rsd_error *err)
{
    return ((const comm_case *)arg)->run(comm, err);
}

static void run_case(void **state)
{
    static const int32_t ranks[] = { 1, 2, 4, 7 };
    const comm_case     *c = *state;
    int64_t              before = rsi_mem_stats_get().bytes;

    for (size_t i = 0; i < 4; i++) {
        rsd_error err = { .rank = -1 };
        rsd_err   rc = RSD_OK;

        if (ranks[i] >= c->min_ranks)
            rc = rsd_comm_run_threads(ranks[i], run_one_case, (void *)(uintptr_t)c, &err);
        if (rc)
            fail_msg("%d ranks: %s: %s", (int)ranks[i], rsd_err_name(rc), err.msg);
    }
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

static int run_suite(const char *name, const comm_case *list)
{
    struct CMUnitTest tests[64];
    size_t            n = 0;

    for (; list[n].name; n++)
        tests[n] = (struct CMUnitTest){ .name = list[n].name,
                                        .test_func = run_case,
                                        .initial_state = (void *)(uintptr_t)&list[n] };
    return _cmocka_run_group_tests(name, tests, n, NULL, NULL);
}

#endif
