/* SPDX-License-Identifier: Apache-2.0 */
/* The time limit of a comm is for silence, not for work. The cases are in support/slow_rank.c; here
 * ranks are threads, through the library's own comm and through a custom table. mpi/mpi_slow.c runs
 * them under mpirun. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/comm_threads.h"
#include "slow_rank.h"

#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4 };

typedef struct rank {
    rsd_comm        *comm;
    slow_page       *page;
    const slow_case *c;
    char             path[128];
    rsd_err          rc;
    rsd_error        err;
    pthread_t        thread;
} rank;

static void *run(void *arg)
{
    rank *r = arg;

    slow_begin(r->page, r->comm);
    r->rc = r->c->run(r->comm, r->path, &r->err);
    rsd_comm_free(r->comm);
    return NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void run_case(const slow_case *c, bool custom)
{
    char         top[] = "/tmp/reshard-slow-XXXXXX";
    slow_page    page = { .now = 1 };
    rank         r[RANKS] = { 0 };
    void        *self[RANKS];
    rsd_comm_ops ops = rsi_threads_ops;

    ops.name = "custom";
    ops.expose = custom ? NULL : ops.expose;
    ops.reach = custom ? NULL : ops.reach;
    assert_non_null(mkdtemp(top));
    assert_int_equal(rsi_threads_open(RANKS, self, NULL), RSD_OK);
    for (int i = 0; i < RANKS; i++) {
        r[i].page = &page;
        r[i].c = c;
        snprintf(r[i].path, sizeof(r[i].path), "%s/ck", top);
        assert_int_equal(rsd_comm_create_custom(&ops, self[i], &r[i].comm, NULL), RSD_OK);
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&r[i].thread, NULL, run, &r[i]), 0);
    for (int i = 0; i < RANKS; i++)
        pthread_join(r[i].thread, NULL);
    nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    for (int i = 0; i < RANKS; i++)
        if (r[i].rc)
            fail_msg("rank %d: %s: %s", i, rsd_err_name(r[i].rc), r[i].err.msg);
}

static void on_threads(void **state)
{
    run_case(*state, false);
}

static void on_a_custom_table(void **state)
{
    run_case(*state, true);
}

int main(void)
{
    struct CMUnitTest tests[2 * 16] = { 0 };
    size_t            n = 0;

    for (const slow_case *c = slow_cases; c->name; c++) {
        if (c->processes)
            continue;
        tests[n++] = (struct CMUnitTest){ c->name, on_threads, NULL, NULL, (void *)(uintptr_t)c };
        tests[n++] =
            (struct CMUnitTest){ c->name, on_a_custom_table, NULL, NULL, (void *)(uintptr_t)c };
    }
    return _cmocka_run_group_tests("slow_rank", tests, n, NULL, NULL);
}
