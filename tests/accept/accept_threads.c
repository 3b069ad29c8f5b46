/* SPDX-License-Identifier: Apache-2.0 */
/* Runs acceptance cases as tests, on threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "accept_cases.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

static char    folder[] = "/tmp/reshard-accept-XXXXXX";
static int32_t threads;

static rsd_err run_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    const accept_case *what = arg;

    return what->run(comm, folder, err);
}

static void run_case(void **state)
{
    rsd_error err = { 0 };

    if (rsd_comm_run_threads(threads, run_rank, *state, &err))
        fail_msg("%s", err.msg);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int accept_threads(const accept_case *cases, int32_t n)
{
    struct CMUnitTest tests[16] = { { 0 } };
    size_t            count = 0;

    threads = n;
    for (; cases[count].name && count < 16; count++)
        tests[count] = (struct CMUnitTest){ .name = cases[count].name,
                                            .test_func = run_case,
                                            .initial_state = (void *)(uintptr_t)&cases[count] };
    return _cmocka_run_group_tests("accept", tests, count, make_folder, remove_folder);
}
