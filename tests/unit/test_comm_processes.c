/* SPDX-License-Identifier: Apache-2.0 */
/* The suite of comm_suite.c on forked processes, on one machine and as if each were on its own, and
 * what only such comms do. Built a second time with ON_UCX. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/comm.h"
#include "comm/processes.h"
#include "comm_suite.h"
#include "forked_ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef ON_UCX
enum { KINDS = 1, NEAR = FORKED_UCX, FAR = FORKED_UCX };
#else
enum { KINDS = 2, NEAR = FORKED_NEAR, FAR = FORKED_FAR };
#endif
static const int kind[] = { NEAR, FAR };

/* ---- long messages ---- */

enum { LONG_BYTES = 5000001 };

/* To the next rank, in both orders; with memory that can't be read the bytes are sent. */
static rsd_err long_ring(void *arg, rsd_comm *comm, rsd_error *err)
{
    rsi_group     *g = comm->self;
    int32_t        to = (comm->rank + 1) % comm->size;
    int32_t        from = (comm->rank + comm->size - 1) % comm->size, peer[2] = { to, from };
    unsigned char *out = suite_message(comm->rank, 3, LONG_BYTES), *in = malloc(LONG_BYTES);
    rsd_err        rc = RSD_OK;

    for (int32_t r = 0; r < comm->size && *(bool *)arg; r++)
        g->house->wire[r].reads = false;
    for (int late = 0; late < 2 && !rc; late++) {
        void *request[2] = { NULL, NULL };

        memset(in, 0, LONG_BYTES);
        if (!late)
            rc = rsi_recv(comm, from, 1, in, LONG_BYTES, &request[1], err);
        if (!rc)
            rc = rsi_barrier(comm, err);
        if (!rc)
            rc = rsi_send(comm, to, 1, out, LONG_BYTES, &request[0], err);
        if (!rc && late)
            rc = rsi_barrier(comm, err);
        if (!rc && late)
            rc = rsi_recv(comm, from, 1, in, LONG_BYTES, &request[1], err);
        if (!rc)
            rc = rsi_wait_all(comm, 2, request, peer, "ring", err);
        if (!rc && !suite_is_message(in, from, 3, LONG_BYTES))
            rc = rsi_fail(err, RSD_E_BUG, "other bytes came");
    }
    free(out);
    free(in);
    return rc;
}

static void long_messages_arrive_by_reading_memory(void **state)
{
    bool             never = false;
    const forked_job job = { 3, NEAR, long_ring, &never, -1, 0, NULL };

    (void)state;
    assert_true(forked_well(&job));
}

static void long_messages_arrive_where_memory_can_not_be_read(void **state)
{
    bool             never = true;
    const forked_job job = { 3, NEAR, long_ring, &never, -1, 0, NULL };

    (void)state;
    assert_true(forked_well(&job));
}

/* ---- ranks that go ---- */

enum { DOOMED = 2 };

/* Rank 2 is killed between two collectives; the others name it, long before the timeout. */
static rsd_err die(void *arg, rsd_comm *comm, rsd_error *err)
{
    rsd_err rc = rsi_barrier(comm, err);

    (void)arg;
    if (!rc && comm->rank == DOOMED)
        kill(getpid(), SIGKILL);
    for (int i = 0; i < 100 && !rc; i++)
        rc = rsi_barrier(comm, err);
    COMM_CHECK(rc == RSD_E_COMM);
    COMM_CHECK(err->rank == DOOMED && err->nfailed == 1);
    COMM_CHECK(strstr(err->msg, "rank 2 is gone"));
    COMM_CHECK(rsi_barrier(comm, err) == RSD_E_COMM && err->rank == DOOMED);
    return RSD_OK;
}

static void check_doomed(int how, rsd_err (*run)(void *, rsd_comm *, rsd_error *))
{
    const forked_job job = { 4, how, run, NULL, -1, 0, NULL };
    forked_end       end[FORKED_MAX];

    forked_run(&job, end);
    assert_int_equal(end[DOOMED].signal, SIGKILL);
    for (int32_t r = 0; r < job.ranks; r++)
        if (r != DOOMED && (!end[r].ended || end[r].rc))
            fail_msg("rank %d: %s", (int)r, end[r].err.msg);
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    check_doomed(NEAR, die);
}

static void a_killed_rank_of_another_machine_is_named(void **state)
{
    (void)state;
    check_doomed(FAR, die);
}

static int test_lives[2]; /* a pipe that ends with the test */

/* The rank leaves a child behind, which has its sockets. */
static rsd_err die_with_child(void *arg, rsd_comm *comm, rsd_error *err)
{
    char byte;

    if (comm->rank == DOOMED && fork() == 0) {
        close(test_lives[1]);
        _exit((int)read(test_lives[0], &byte, 1));
    }
    return die(arg, comm, err);
}

static void a_killed_rank_with_a_living_child_is_named(void **state)
{
    (void)state;
    assert_int_equal(pipe(test_lives), 0);
    check_doomed(NEAR, die_with_child);
    close(test_lives[0]);
    close(test_lives[1]);
}

/* A rank that is stopped by SIGSTOP sends no signs of life; then it is killed. */
static rsd_err stop(void *arg, rsd_comm *comm, rsd_error *err)
{
    rsd_err rc;

    (void)arg;
    comm->grace_ms = 60000;
    comm->present = comm->size - 1;
    rc = rsi_barrier(comm, err);
    if (!rc)
        rc = rsd_comm_set_timeout(comm, 200, err);
    if (!rc && comm->rank == DOOMED)
        kill(getpid(), SIGSTOP);
    while (!rc)
        rc = rsi_barrier(comm, err);
    if (comm->rank == 0)
        kill(forked_pid(DOOMED), SIGKILL);
    COMM_CHECK(rc == RSD_E_TIMEOUT && err->rank == DOOMED);
    COMM_CHECK(strstr(err->msg, "rank 2 did not come"));
    return RSD_OK;
}

static void a_stopped_rank_is_a_timeout_that_names_it(void **state)
{
    (void)state;
    check_doomed(NEAR, stop);
}

static void a_stopped_rank_of_another_machine_is_a_timeout(void **state)
{
    (void)state;
    check_doomed(FAR, stop);
}

/* Rank 0 leaves at once; what it sent before still arrives, what it did not is an error. */
static rsd_err leave(void *arg, rsd_comm *comm, rsd_error *err)
{
    int32_t value = 42, peer = 0;
    void   *request = NULL;
    rsd_err rc;

    (void)arg;
    if (comm->rank == 0)
        return rsi_send(comm, 1, 0, &value, sizeof(value), &request, err);
    rc = rsi_recv(comm, 0, 0, &value, sizeof(value), &request, err);
    if (!rc)
        rc = rsi_wait_all(comm, 1, &request, &peer, "first", err);
    if (rc)
        return rc;
    COMM_CHECK(value == 42);
    rc = rsi_recv(comm, 0, 0, &value, sizeof(value), &request, err);
    while (!rc)
        rc = rsi_test(comm, &request, err);
    COMM_CHECK(rc == RSD_E_COMM && strcmp(err->msg, "rank 0 has left") == 0);
    COMM_CHECK(rsi_drop(comm, 1, &request));
    return RSD_OK;
}

static void what_a_rank_sent_before_it_left_arrives(void **state)
{
    const forked_job near = { 2, NEAR, leave, NULL, -1, 0, NULL },
                     far = { 2, FAR, leave, NULL, -1, 0, NULL };

    (void)state;
    assert_true(forked_well(&near));
    assert_true(forked_well(&far));
}

/* ---- others ---- */

static rsd_err nothing(void *arg, rsd_comm *comm, rsd_error *err)
{
    (void)arg;
    return rsi_barrier(comm, err);
}

static void a_meeting_without_a_rank_names_it(void **state)
{
    const forked_job job = { 4, NEAR, nothing, NULL, 3, 3000, NULL };
    forked_end       end[FORKED_MAX];

    (void)state;
    forked_run(&job, end);
    for (int32_t r = 0; r < 3; r++) {
        assert_int_equal(end[r].rc, RSD_E_TIMEOUT);
        assert_int_equal(end[r].err.rank, 3);
        assert_non_null(strstr(end[r].err.msg, "rank 3 did not come"));
    }
}

static void stop_doomed(int32_t rank)
{
    if (rank == DOOMED)
        kill(getpid(), SIGSTOP);
}

static void kill_doomed(int32_t rank)
{
    if (rank == DOOMED)
        kill(getpid(), SIGKILL);
}

static void check_met(void (*met)(int32_t))
{
    const forked_job job = { 4, NEAR, nothing, NULL, -1, 2000, met };
    forked_end       end[FORKED_MAX];

    forked_run(&job, end);
    for (int32_t r = 0; r < job.ranks; r++)
        if (r != DOOMED && (!end[r].rc || end[r].err.rank != DOOMED))
            fail_msg("rank %d, signal %d: %s", (int)r, end[r].signal, end[r].err.msg);
}

static void a_rank_killed_after_it_has_met_is_named(void **state)
{
    (void)state;
    check_met(kill_doomed);
}

static void a_rank_stopped_after_it_has_met_is_named(void **state)
{
    (void)state;
    check_met(stop_doomed);
}

static rsd_err use_in_child(void *arg, rsd_comm *comm, rsd_error *err)
{
    int   status = 0;
    pid_t child = fork();

    (void)arg;
    if (child == 0) {
        rsd_err rc = rsi_barrier(comm, err);

        rsd_comm_free(comm);
        _exit(rc == RSD_E_INVALID && strstr(err->msg, "forked") ? 0 : 1);
    }
    waitpid(child, &status, 0);
    COMM_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return rsi_barrier(comm, err); /* and the parent is none the worse */
}

static void a_forked_child_can_not_use_it(void **state)
{
    const forked_job job = { 2, NEAR, use_in_child, NULL, -1, 0, NULL };

    (void)state;
    assert_true(forked_well(&job));
}

/* Those behind the first seven concern sockets that the comm made itself. */
static const struct CMUnitTest own[] = {
    cmocka_unit_test(long_messages_arrive_by_reading_memory),
    cmocka_unit_test(a_killed_rank_is_named),
    cmocka_unit_test(a_stopped_rank_is_a_timeout_that_names_it),
    cmocka_unit_test(a_meeting_without_a_rank_names_it),
    cmocka_unit_test(a_forked_child_can_not_use_it),
    cmocka_unit_test(a_rank_killed_after_it_has_met_is_named),
    cmocka_unit_test(a_rank_stopped_after_it_has_met_is_named),
    cmocka_unit_test(a_killed_rank_with_a_living_child_is_named),
    cmocka_unit_test(long_messages_arrive_where_memory_can_not_be_read),
    cmocka_unit_test(a_killed_rank_of_another_machine_is_named),
    cmocka_unit_test(a_stopped_rank_of_another_machine_is_a_timeout),
    cmocka_unit_test(what_a_rank_sent_before_it_left_arrives),
};

int main(void)
{
    return forked_suite("comm_processes", KINDS, kind, own,
                        KINDS == 1 ? 7 : sizeof(own) / sizeof(own[0]));
}
