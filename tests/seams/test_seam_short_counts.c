/* SPDX-License-Identifier: Apache-2.0 */
/* A call of the system may move less than asked. Linux moves at most 2 GiB of another process'
 * memory in one; here the limit is lowered, and ranks that are threads read each other as processes
 * do, because their custom table exposes no memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/comm_threads.h"
#include "live/exchange.h"
#include "live_case.h"
#include "plan_fixture.h"

#include <pthread.h>

enum { RANKS = 2, PART = 1000 };

static const int64_t shape[] = { 64, 2048 };

typedef struct reader {
    rsd_comm         *comm;
    live_tensor       tensor;
    rsd_reshard_stats stats;
    rsd_err           rc;
    rsd_error         err;
    pthread_t         thread;
} reader;

static void *run(void *arg)
{
    reader        *r = arg;
    const live_how how = { .direct = true, .count = true };

    r->stats.size = sizeof(r->stats);
    r->rc = live_run(r->comm, 1, &r->tensor, &how, &r->stats, &r->err);
    rsd_comm_free(r->comm);
    return NULL;
}

/* Reshards between ranks that can't expose memory, so that each reads the other's process. */
static void move(const char *from, const char *to)
{
    rsd_layout  *src = fixture_layout(from, 2, shape), *dst = fixture_layout(to, 2, shape);
    reader       rank[RANKS] = { 0 };
    void        *self[RANKS];
    rsd_comm_ops ops = rsi_threads_ops;
    rsd_error    err;

    ops.expose = NULL;
    ops.reach = NULL;
    assert_int_equal(rsi_threads_open(RANKS, self, &err), RSD_OK);
    for (int i = 0; i < RANKS; i++) {
        rank[i].tensor = (live_tensor){ .src = src, .dst = dst, .parts = 1 };
        assert_int_equal(rsd_comm_create_custom(&ops, self[i], &rank[i].comm, &err), RSD_OK);
    }
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&rank[i].thread, NULL, run, &rank[i]), 0);
    for (int i = 0; i < RANKS; i++)
        pthread_join(rank[i].thread, NULL);
    for (int i = 0; i < RANKS; i++) {
        if (rank[i].rc)
            fail_msg("%s", rank[i].err.msg);
        assert_true(rank[i].stats.bytes_reached > PART);
    }
    rsd_layout_free(src);
    rsd_layout_free(dst);
}

static void a_run_longer_than_one_call_moves_is_read_whole(void **state)
{
    (void)state;
    rsi_reach_part_bytes = PART;
    move("mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
}

static void runs_of_which_one_call_moves_some_are_read_whole(void **state)
{
    (void)state;
    rsi_reach_part_bytes = 3 * 1024 * sizeof(float) + PART; /* of 1,024 elements each */
    move("mesh a=2; * shard(0)@a", "mesh a=2; * shard(1)@a");
    rsi_reach_part_bytes = PART;
    move("mesh a=2; * shard(0)@a", "mesh a=2; * shard(1)@a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_longer_than_one_call_moves_is_read_whole),
        cmocka_unit_test(runs_of_which_one_call_moves_some_are_read_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
