/* SPDX-License-Identifier: Apache-2.0 */
/* test_vote.c - sums that do not wait: what every rank learns, and that nobody learns it before all
 * have come. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/vote.h"
#include "comm_suite.h"
#include "plan_fixture.h"

#include <pthread.h>
#include <string.h>

#define CHECK COMM_CHECK

enum { MOST = 12, TAG = 5 };

static void run(int32_t n, rsd_err (*fn)(void *arg, rsd_comm *comm, rsd_error *err), void *arg)
{
    rsd_error err = { 0 };

    if (rsd_comm_run_threads(n, fn, arg, &err))
        fail_msg("%d ranks: %s", (int)n, err.msg);
}

static rsd_err vote(rsd_comm *comm, int32_t tag, int64_t mine, int64_t *sum, rsd_error *err)
{
    rsi_vote v;
    bool     done = false;
    rsd_err  rc = rsi_vote_begin(&v, comm, tag, mine, err);

    if (!rc)
        rc = rsi_vote_step(&v, true, &done, err);
    *sum = v.sum;
    CHECK(rc || done);
    CHECK(rsi_vote_drop(&v));
    return rc;
}

/* Powers of ten, so that each rank's is seen, counted once. */
static rsd_err sum_powers(void *arg, rsd_comm *comm, rsd_error *err)
{
    int64_t mine = 1, want = 0, power = 1, sum;
    rsd_err rc;

    (void)arg;
    for (int32_t r = 0; r < comm->size; r++, power *= 10) {
        mine = r == comm->rank ? power : mine;
        want += power;
    }
    for (int again = 1; again <= 3; again++) { /* the tag is free again */
        rc = vote(comm, TAG, mine * again, &sum, err);
        if (rc)
            return rc;
        CHECK(sum == want * again);
    }
    return RSD_OK;
}

static void every_rank_learns_the_sum_of_all(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= MOST; n++)
        run(n, sum_powers, NULL);
}

static rsd_err sum_signs(void *arg, rsd_comm *comm, rsd_error *err)
{
    int64_t sum;
    rsd_err rc = vote(comm, TAG, comm->rank % 2 ? INT64_MIN / 8 : INT64_MAX / 8, &sum, err);

    (void)arg;
    CHECK(rc || sum == (comm->size / 2) * (INT64_MIN / 8) +
                           (comm->size - comm->size / 2) * (INT64_MAX / 8));
    return rc;
}

static void large_and_negative_votes_are_added(void **state)
{
    (void)state;
    for (int32_t n = 2; n <= 8; n++)
        run(n, sum_signs, NULL);
}

/* ---- a barrier too ---- */

typedef struct waiting {
    pthread_barrier_t here;
    int32_t           late;
} waiting;

/* All but one vote and look; it begins after they have looked. */
static rsd_err one_comes_late(void *arg, rsd_comm *comm, rsd_error *err)
{
    waiting *w = arg;
    rsi_vote v = { 0 };
    bool     done = false, early = false;
    rsd_err  rc = RSD_OK;

    if (comm->rank != w->late)
        rc = rsi_vote_begin(&v, comm, TAG, 1, err);
    for (int i = 0; i < 20 && !rc && comm->rank != w->late; i++) {
        rc = rsi_vote_step(&v, false, &done, err);
        early = early || done;
    }
    pthread_barrier_wait(&w->here);
    if (!rc && comm->rank == w->late)
        rc = rsi_vote_begin(&v, comm, TAG, 1, err);
    while (!rc && !done)
        rc = rsi_vote_step(&v, false, &done, err);
    CHECK(!early);
    CHECK(rc || v.sum == comm->size);
    return rc;
}

static void nobody_is_done_before_all_have_come(void **state)
{
    (void)state;
    for (int32_t n = 2; n <= 7; n++) {
        for (int32_t late = 0; late < n; late++) {
            waiting w = { .late = late };

            pthread_barrier_init(&w.here, NULL, (unsigned)n);
            run(n, one_comes_late, &w);
            pthread_barrier_destroy(&w.here);
        }
    }
}

/* Odd ranks begin with the other one. */
static rsd_err two_in_turn(void *arg, rsd_comm *comm, rsd_error *err)
{
    rsi_vote v[2];
    bool     done[2] = { false, false };
    rsd_err  rc = rsi_vote_begin(&v[0], comm, TAG, 1, err);

    (void)arg;
    if (!rc)
        rc = rsi_vote_begin(&v[1], comm, TAG + 1, 100, err);
    for (int i = comm->rank % 2; !rc && !(done[0] && done[1]); i = !i)
        rc = rsi_vote_step(&v[i], false, &done[i], err);
    CHECK(rc || (v[0].sum == comm->size && v[1].sum == 100 * comm->size));
    return rc;
}

static void votes_with_other_tags_do_not_mix(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 5; n++)
        run(n, two_in_turn, NULL);
}

static void a_rank_alone_has_its_own_vote(void **state)
{
    rsd_comm *comm;
    rsi_vote  v;
    bool      done = false;

    (void)state;
    for (int32_t n = 1; n <= 3; n++) {
        assert_int_equal(rsd_comm_create_self(n - 1, n, &comm, NULL), RSD_OK);
        assert_int_equal(rsi_vote_begin(&v, comm, TAG, 7, NULL), RSD_OK);
        assert_int_equal(rsi_vote_step(&v, false, &done, NULL), RSD_OK);
        assert_true(done);
        assert_int_equal(v.sum, 7);
        assert_true(rsi_vote_drop(&v));
        rsd_comm_free(comm);
    }
}

/* ---- ends before the end ---- */

static rsd_err give_up(void *arg, rsd_comm *comm, rsd_error *err)
{
    waiting *w = arg;
    rsi_vote v = { 0 };
    bool     done = false, given_back = true;
    rsd_err  rc = RSD_OK;

    if (comm->rank != w->late)
        rc = rsi_vote_begin(&v, comm, TAG, 1, err);
    if (!rc && comm->rank != w->late)
        rc = rsi_vote_step(&v, false, &done, err);
    given_back = rsi_vote_drop(&v); /* also one that was never begun */
    pthread_barrier_wait(&w->here);
    CHECK(rc || (!done && given_back));
    for (int i = 0; i < 5; i++)
        CHECK(!v.request[i]);
    return rc;
}

static void a_vote_can_be_given_up(void **state)
{
    waiting w = { .late = 1 };

    (void)state;
    pthread_barrier_init(&w.here, NULL, 4);
    run(4, give_up, &w);
    pthread_barrier_destroy(&w.here);
}

static rsd_err one_leaves(void *arg, rsd_comm *comm, rsd_error *err)
{
    const int32_t *absent = arg;
    int64_t        sum;

    if (comm->rank == *absent)
        return RSD_OK; /* its comm is freed, which the others see at once */
    CHECK(vote(comm, TAG, 1, &sum, err) == RSD_E_COMM);
    return RSD_OK;
}

static void a_rank_that_leaves_ends_the_vote_of_all(void **state)
{
    (void)state;
    for (int32_t absent = 0; absent < 4; absent++)
        run(4, one_leaves, &absent);
}

/* Waits are short, but the verdict waits for all that are to come; see comm_suite_end.c. */
static rsd_err one_is_silent(void *arg, rsd_comm *comm, rsd_error *err)
{
    waiting *w = arg;
    int64_t  sum;
    rsd_err  rc = RSD_OK;

    comm->grace_ms = 60000;
    comm->present = comm->size - 1;
    comm->timeout_ms = 20;
    if (comm->rank != w->late)
        rc = vote(comm, TAG, 1, &sum, err);
    pthread_barrier_wait(&w->here);
    CHECK(comm->rank == w->late || (rc == RSD_E_TIMEOUT && err->rank == w->late));
    CHECK(comm->rank == w->late || strstr(err->msg, "vote: rank "));
    return RSD_OK;
}

static void a_rank_that_does_not_vote_is_named(void **state)
{
    (void)state;
    for (int32_t late = 0; late < 3; late++) {
        waiting w = { .late = late };

        pthread_barrier_init(&w.here, NULL, 3);
        run(3, one_is_silent, &w);
        pthread_barrier_destroy(&w.here);
    }
}

static rsd_err vote_or_break(void *arg, rsd_comm *comm, rsd_error *err)
{
    int64_t sum;

    (void)arg;
    return rsi_break(comm, vote(comm, TAG, 1, &sum, err), err);
}

static rsd_err vote_together(void *arg, rsd_error *err)
{
    return rsd_comm_run_threads(3, vote_or_break, arg, err);
}

static void every_allocation_that_fails_is_told(void **state)
{
    (void)state;
    assert_survives_no_memory(vote_together, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_learns_the_sum_of_all),
        cmocka_unit_test(large_and_negative_votes_are_added),
        cmocka_unit_test(nobody_is_done_before_all_have_come),
        cmocka_unit_test(votes_with_other_tags_do_not_mix),
        cmocka_unit_test(a_rank_alone_has_its_own_vote),
        cmocka_unit_test(a_vote_can_be_given_up),
        cmocka_unit_test(a_rank_that_leaves_ends_the_vote_of_all),
        cmocka_unit_test(a_rank_that_does_not_vote_is_named),
        cmocka_unit_test(every_allocation_that_fails_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
