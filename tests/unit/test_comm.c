/* SPDX-License-Identifier: Apache-2.0 */
/* The suite of comm_suite.c on one rank and on threads, and what only these comms do. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "comm/comm.h"
#include "comm_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the suite ---- */

typedef struct suite_run {
    const comm_case *what;
    int32_t          ranks; /* 0: the self comm */
    char             name[128];
} suite_run;

static rsd_err run_case(void *arg, rsd_comm *comm, rsd_error *err)
{
    const suite_run *run = arg;

    return run->what->run(comm, err);
}

static void suite(void **state)
{
    suite_run *run = *state;
    rsd_error  err = { 0 };
    rsd_comm  *comm;
    rsd_err    rc;

    if (run->ranks > 0) {
        rc = rsd_comm_run_threads(run->ranks, run_case, run, &err);
    } else {
        assert_int_equal(rsd_comm_create_self(0, 1, &comm, &err), RSD_OK);
        rc = run->what->run(comm, &err);
        rsd_comm_free(comm);
    }
    if (rc)
        fail_msg("%s: %s", rsd_err_name(rc), err.msg);
}

/* ---- one rank ---- */

static rsd_comm *rank_3_of_8(void)
{
    rsd_comm *comm;

    assert_int_equal(rsd_comm_create_self(3, 8, &comm, NULL), RSD_OK);
    return comm;
}

static void a_rank_played_alone_knows_its_place(void **state)
{
    rsd_comm *comm = rank_3_of_8();

    (void)state;
    assert_int_equal(rsd_comm_rank(comm), 3);
    assert_int_equal(rsd_comm_size(comm), 8);
    rsd_comm_free(comm);
}

static void a_rank_played_alone_agrees_with_itself(void **state)
{
    rsd_comm *comm = rank_3_of_8();
    rsd_error err = { 0 };
    int64_t   value = 5;

    (void)state;
    assert_int_equal(rsi_barrier(comm, &err), RSD_OK);
    assert_int_equal(rsi_agree(comm, RSD_OK, &err), RSD_OK);
    assert_int_equal(rsi_broadcast(comm, 3, &value, sizeof(value), &err), RSD_OK);
    assert_int_equal(rsi_allreduce(comm, RSI_OP_SUM, &value, 1, &err), RSD_OK);
    assert_int_equal(value, 5);
    rsi_fail(&err, RSD_E_IO, "no disk");
    assert_int_equal(rsi_agree(comm, RSD_E_IO, &err), RSD_E_IO);
    assert_string_equal(err.msg, "rank 3: no disk");
    assert_int_equal(err.rank, 3);
    assert_int_equal(rsd_comm_failures(comm, &err, 1), 1);
    assert_string_equal(err.msg, "no disk");
    rsd_comm_free(comm);
}

static void a_rank_played_alone_has_no_bytes_of_others(void **state)
{
    rsd_comm    *comm = rank_3_of_8();
    rsd_error    err = { 0 };
    char         c = 0, all[8];
    void        *request, *p;
    rsi_gathered any;
    rsd_exposed  what;

    (void)state;
    assert_int_equal(rsi_send(comm, 4, 0, &c, 1, &request, &err), RSD_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "played alone"));
    assert_int_equal(rsi_recv(comm, 4, 0, &c, 1, &request, &err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_broadcast(comm, 0, &c, 1, &err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_allgather(comm, &c, 1, all, &err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_allgather_any(comm, &c, 1, &any, &err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_expose(comm, &c, 1, &what, &err), RSD_OK);
    assert_int_equal(rsi_reach(comm, 4, &what, &p, &err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_reach(comm, 3, &what, &p, &err), RSD_OK);
    assert_ptr_equal(p, &c);
    rsd_comm_free(comm);
}

static void a_group_of_a_rank_played_alone_is_played_alone(void **state)
{
    rsd_comm *comm = rank_3_of_8(), *group = NULL;
    int32_t   ranks[3] = { 7, 3, 1 };

    (void)state;
    assert_int_equal(rsd_comm_split(comm, 3, ranks, &group, NULL), RSD_OK);
    assert_int_equal(rsd_comm_rank(group), 1);
    assert_int_equal(rsd_comm_size(group), 3);
    assert_int_equal(rsi_barrier(group, NULL), RSD_OK);
    rsd_comm_abort(comm, "both");
    assert_int_equal(rsi_send(group, 1, 0, "", 0, &(void *){ NULL }, NULL), RSD_E_COMM);
    rsd_comm_free(group);
    assert_int_equal(rsd_comm_split(comm, 0, NULL, &group, NULL), RSD_E_COMM);
    rsd_comm_free(comm);
}

static void a_message_to_itself_that_nobody_sends_times_out(void **state)
{
    rsd_comm *comm;
    rsd_error err;
    char      c;
    void     *request;
    int32_t   peer = 0;

    (void)state;
    assert_int_equal(rsd_comm_create_self(0, 1, &comm, &err), RSD_OK);
    assert_int_equal(rsd_comm_set_timeout(comm, 1, &err), RSD_OK);
    assert_int_equal(rsi_recv(comm, 0, 0, &c, 1, &request, &err), RSD_OK);
    assert_int_equal(rsi_wait_some(comm, 1, &request, &peer, "exchange", &err), RSD_E_TIMEOUT);
    assert_true(rsi_drop(comm, 1, &request));
    rsd_comm_free(comm);
}

/* ---- creation ---- */

static void impossible_comms_are_refused(void **state)
{
    rsd_comm    *comm = NULL;
    rsd_error    err;
    rsd_comm_ops ops = { .size = sizeof(ops), .name = "half" };

    (void)state;
    assert_int_equal(rsd_comm_create_self(1, 1, &comm, &err), RSD_E_INVALID);
    assert_int_equal(rsd_comm_create_self(-1, 1, &comm, &err), RSD_E_INVALID);
    assert_int_equal(rsd_comm_create_threads(0, &comm, &err), RSD_E_INVALID);
    assert_int_equal(rsd_comm_run_threads(0, run_case, NULL, &err), RSD_E_INVALID);
    assert_int_equal(rsd_comm_run_threads(1, NULL, NULL, &err), RSD_E_INVALID);
    assert_int_equal(rsd_comm_create_custom(&ops, NULL, &comm, &err), RSD_E_INVALID);
    assert_non_null(strstr(err.msg, "\"half\" lacks"));
    ops.size = 8;
    assert_int_equal(rsd_comm_create_custom(&ops, NULL, &comm, &err), RSD_E_INVALID);
    assert_null(comm);
    rsd_comm_free(NULL);
}

/* ---- threads ---- */

static rsd_err fail_as_2(void *arg, rsd_comm *comm, rsd_error *err)
{
    (void)arg;
    if (comm->rank == 2)
        return rsi_fail(err, RSD_E_IO, "no disk");
    return rsi_barrier(comm, err);
}

static void ranks_that_wait_for_one_that_left_are_woken(void **state)
{
    rsd_error err = { 0 };

    (void)state;
    assert_int_equal(rsd_comm_run_threads(4, fail_as_2, NULL, &err), RSD_E_IO);
    assert_string_equal(err.msg, "rank 2: no disk"); /* and not what that did to the others */
    assert_int_equal(err.rank, 2);
}

/* Rank 0 leaves at once; what it sent before still arrives, what it did not is an error. */
static rsd_err leave(void *arg, rsd_comm *comm, rsd_error *err)
{
    int32_t value = 42, peer = 0;
    char    big[20000] = "";
    void   *request[3] = { NULL };
    rsd_err rc;

    (void)arg;
    if (comm->rank == 0)
        return rsi_send(comm, 1, 0, &value, sizeof(value), &request[0], err);
    value = 0;
    rc = rsi_recv(comm, 0, 0, &value, sizeof(value), &request[0], err);
    if (!rc)
        rc = rsi_wait_all(comm, 1, request, &peer, "first", err);
    if (rc)
        return rc;
    COMM_CHECK(value == 42);
    rc = rsi_recv(comm, 0, 0, &value, sizeof(value), &request[0], err);
    while (!rc)
        rc = rsi_test(comm, &request[0], err);
    COMM_CHECK(rc == RSD_E_COMM && strcmp(err->msg, "rank 0 has left") == 0);
    rc = rsi_send(comm, 0, 0, big, sizeof(big), &request[1], err);
    while (!rc)
        rc = rsi_test(comm, &request[1], err);
    COMM_CHECK(rc == RSD_E_COMM);
    COMM_CHECK(rsi_drop(comm, 2, request));
    return RSD_OK;
}

static void what_a_rank_sent_before_it_left_arrives(void **state)
{
    rsd_error err = { 0 };

    (void)state;
    if (rsd_comm_run_threads(2, leave, NULL, &err))
        fail_msg("%s", err.msg);
}

/* A long message that finds its receiver waiting, or waits for it, is never held twice. */
static rsd_err send_long(void *arg, rsd_comm *comm, rsd_error *err)
{
    enum { BYTES = 8 << 20 };
    char   *data = calloc(1, BYTES);
    void   *request = NULL;
    int32_t peer = 1 - comm->rank;
    rsd_err rc;

    (void)arg;
    rc = comm->rank ? rsi_send(comm, peer, 0, data, BYTES, &request, err)
                    : rsi_recv(comm, peer, 0, data, BYTES, &request, err);
    if (!rc)
        rc = rsi_wait_all(comm, 1, &request, &peer, "long", err);
    free(data);
    return rc;
}

static void long_messages_take_no_memory_of_their_own(void **state)
{
    int64_t   before = rsi_mem_stats_get().bytes;
    rsd_error err;

    (void)state;
    rsi_mem_fail_at(0, 0);
    assert_int_equal(rsd_comm_run_threads(2, send_long, NULL, &err), RSD_OK);
    assert_true(rsi_mem_stats_get().peak - before < 65536);
}

/* Comms that the caller's own threads would use, freed in any order. */
static void ends_can_be_freed_in_any_order(void **state)
{
    rsd_comm *comm[3];

    (void)state;
    assert_int_equal(rsd_comm_create_threads(3, comm, NULL), RSD_OK);
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(rsd_comm_rank(comm[i]), i);
        assert_int_equal(rsd_comm_size(comm[i]), 3);
        rsd_comm_free(comm[i]);
    }
}

/* ---- no memory ---- */

static rsd_err use_all(void *arg, rsd_comm *comm, rsd_error *err)
{
    int32_t       ranks[8], n = 0;
    unsigned char mine[5] = { 1 }, all[5 * 8];
    rsi_gathered  any = { 0 };
    rsd_comm     *group = NULL;
    void         *data = NULL;
    rsd_err       rc;

    (void)arg;
    rc = rsi_barrier(comm, err);
    if (!rc)
        rc = rsi_allgather(comm, mine, sizeof(mine), all, err);
    if (!rc)
        rc = rsi_allgather_any(comm, mine, (size_t)comm->rank, &any, err);
    rsi_gathered_release(&any);
    if (!rc)
        rc = rsd_comm_alloc(comm, 100, &data, err);
    if (!rc)
        rsd_comm_dealloc(comm, data);
    for (int32_t r = comm->rank % 2; r < comm->size; r += 2)
        ranks[n++] = r;
    if (!rc)
        rc = rsd_comm_split(comm, n, ranks, &group, err);
    if (!rc)
        rc = rsi_barrier(group, err);
    rsd_comm_free(group);
    if (!rc && rsi_agree(comm, comm->rank ? RSD_OK : RSD_E_FORMAT, err) != RSD_E_FORMAT)
        rc = RSD_E_NOMEM; /* the agreement itself ran out of it */
    return rc;
}

static rsd_err all_on_self(rsd_error *err)
{
    rsd_comm *comm;
    rsd_err   rc = rsd_comm_create_self(0, 1, &comm, err);

    if (rc)
        return rc;
    rc = use_all(NULL, comm, err);
    rsd_comm_free(comm);
    return rc;
}

static rsd_err all_on_threads(rsd_error *err)
{
    return rsd_comm_run_threads(5, use_all, NULL, err);
}

static void fail_each_allocation(rsd_err (*run)(rsd_error *err), int for_ever)
{
    int64_t   before = rsi_mem_stats_get().bytes;
    uint64_t  nth = 0, calls;
    rsd_error err;
    rsd_err   rc;

    /* Which thread comes first decides which allocation is the nth, so a run may do with fewer. */
    do {
        memset(&err, 0, sizeof(err));
        rsi_mem_fail_at(++nth, for_ever);
        rc = run(&err);
        calls = rsi_mem_stats_get().calls;
        rsi_mem_fail_at(0, 0);
        assert_int_equal(rsi_mem_stats_get().bytes, before);
        if (rc) {
            assert_int_equal(rc, RSD_E_NOMEM);
            assert_non_null(strstr(err.msg, "no memory"));
        }
    } while (calls >= nth);
    assert_true(nth > 10);
    assert_int_equal(rc, RSD_OK);
}

static void a_rank_without_memory_fails_cleanly(void **state)
{
    (void)state;
    fail_each_allocation(all_on_self, 0);
    fail_each_allocation(all_on_self, 1);
}

static void threads_without_memory_fail_together(void **state)
{
    (void)state;
    fail_each_allocation(all_on_threads, 0);
    fail_each_allocation(all_on_threads, 1);
}

enum { AGAIN = 20 };

/* Between two ranks that one thread plays: half of the messages come before they are asked for. */
static void exchange_some(rsd_comm *const *rank)
{
    const int32_t peer[2 * AGAIN] = { 0 };
    char          in[2 * AGAIN][64], out[64] = "";
    void         *request[2 * AGAIN] = { NULL }, *sent = NULL;

    for (int i = 0; i < 2 * AGAIN; i++) {
        int tag = i % AGAIN;

        /* first those with even tags are sent and those with odd ones asked for */
        if (tag % 2 == i / AGAIN)
            assert_int_equal(rsi_send(rank[0], 1, tag, out, sizeof(out), &sent, NULL), RSD_OK);
        else
            assert_int_equal(rsi_recv(rank[1], 0, tag, in[tag], 64, &request[tag], NULL), RSD_OK);
    }
    assert_int_equal(rsi_wait_all(rank[1], 2 * AGAIN, request, peer, "test", NULL), RSD_OK);
}

static void who_had_as_many_messages_before_takes_no_memory_for_them(void **state)
{
    rsd_comm *rank[2];
    uint64_t  before;

    (void)state;
    assert_int_equal(rsd_comm_create_threads(2, rank, NULL), RSD_OK);
    exchange_some(rank);
    before = rsi_mem_stats_get().calls;
    exchange_some(rank);
    assert_int_equal(rsi_mem_stats_get().calls, before);
    rsd_comm_free(rank[0]);
    rsd_comm_free(rank[1]);
}

int main(void)
{
    static const int32_t    ranks[] = { 0, 1, 2, 3, 4, 7, 12 };
    const struct CMUnitTest own[] = {
        cmocka_unit_test(a_rank_played_alone_knows_its_place),
        cmocka_unit_test(a_rank_played_alone_agrees_with_itself),
        cmocka_unit_test(a_rank_played_alone_has_no_bytes_of_others),
        cmocka_unit_test(a_group_of_a_rank_played_alone_is_played_alone),
        cmocka_unit_test(a_message_to_itself_that_nobody_sends_times_out),
        cmocka_unit_test(impossible_comms_are_refused),
        cmocka_unit_test(ranks_that_wait_for_one_that_left_are_woken),
        cmocka_unit_test(what_a_rank_sent_before_it_left_arrives),
        cmocka_unit_test(long_messages_take_no_memory_of_their_own),
        cmocka_unit_test(who_had_as_many_messages_before_takes_no_memory_for_them),
        cmocka_unit_test(ends_can_be_freed_in_any_order),
        cmocka_unit_test(a_rank_without_memory_fails_cleanly),
        cmocka_unit_test(threads_without_memory_fail_together),
    };
    size_t             nown = sizeof(own) / sizeof(own[0]), n = 0, most = 0;
    struct CMUnitTest *test;
    suite_run         *run;
    int                failed;

    while (comm_suite(most))
        most++;
    most *= sizeof(ranks) / sizeof(ranks[0]);
    test = calloc(nown + most, sizeof(test[0]));
    run = calloc(most, sizeof(run[0]));
    for (size_t r = 0; r < sizeof(ranks) / sizeof(ranks[0]); r++)
        for (size_t i = 0; comm_suite(i); i++) {
            const comm_case *what = comm_suite(i);

            if ((ranks[r] ? ranks[r] : 1) < what->min_ranks || (what->slow && ranks[r] == 12))
                continue;
            run[n] = (suite_run){ .what = what, .ranks = ranks[r] };
            snprintf(run[n].name, sizeof(run[n].name), "%s %d: %s", ranks[r] ? "threads" : "self",
                     ranks[r] ? ranks[r] : 1, what->name);
            test[n] = (struct CMUnitTest){ .name = run[n].name, .test_func = suite };
            test[n].initial_state = &run[n];
            n++;
        }
    memcpy(test + n, own, sizeof(own));
    failed = _cmocka_run_group_tests("comm", test, n + nown, NULL, NULL);
    free(test);
    free(run);
    return failed;
}
