/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a suite of cases for ranks, each on forked processes of its own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm_suite.h"
#include "forked_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct suite_run {
    const comm_case *what;
    int32_t          ranks;
    int              how;
    char             name[128];
} suite_run;

static rsd_err run_case(void *arg, rsd_comm *comm, rsd_error *err)
{
    const suite_run *run = arg;

    return run->what->run(comm, err);
}

static void suite(void **state)
{
    suite_run       *run = *state;
    const forked_job job = { run->ranks, run->how, run_case, run, -1, 0, NULL };

    if (!forked_well(&job))
        fail_msg("see above");
}

int forked_suite(const char *name, size_t kinds, const int *kind, const struct CMUnitTest *own,
                 size_t nown)
{
    static const int32_t     ranks[] = { 1, 2, 3, 4, 7 };
    static const char *const label[] = { "near", "far", "ucx" };
    size_t                   n = 0, most = 0;
    struct CMUnitTest       *test;
    suite_run               *run;
    int                      failed;

    while (comm_suite(most))
        most++;
    most *= kinds * sizeof(ranks) / sizeof(ranks[0]);
    test = calloc(nown + most, sizeof(test[0]));
    run = calloc(most, sizeof(run[0]));
    for (size_t r = 0; r < kinds * sizeof(ranks) / sizeof(ranks[0]); r++)
        for (size_t i = 0; comm_suite(i); i++) {
            const comm_case *what = comm_suite(i);
            int32_t          count = ranks[r / kinds];

            if (count < what->min_ranks || (what->slow && count > 4))
                continue;
            run[n] = (suite_run){ .what = what, .ranks = count, .how = kind[r % kinds] };
            snprintf(run[n].name, sizeof(run[n].name), "%s %d: %s", label[run[n].how], (int)count,
                     what->name);
            test[n] = (struct CMUnitTest){ .name = run[n].name, .test_func = suite };
            test[n].initial_state = &run[n];
            n++;
        }
    if (nown > 0)
        memcpy(test + n, own, nown * sizeof(own[0]));
    failed = _cmocka_run_group_tests(name, test, n + nown, NULL, NULL);
    free(test);
    free(run);
    return failed;
}
