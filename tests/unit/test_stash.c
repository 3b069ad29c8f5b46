/* SPDX-License-Identifier: Apache-2.0 */
/* The suites of stash_suite.c on threads, with arenas that all, some or no others can reach, and
 * what only threads can show. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "comm/comm_threads.h"
#include "live/stash.h"
#include "stash_suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the suites ---- */

typedef enum how { REACHED, MESSAGES, MIXED } how;

typedef struct suite_run {
    const comm_case *what;
    int32_t          ranks;
    how              how;
    char             name[160];
} suite_run;

/* As if two ranks each were on one machine. */
static rsd_err reach_neighbour(void *self, int32_t owner, const rsd_exposed *what, void **out,
                               rsd_error *err)
{
    if (owner / 2 != rsi_threads_ops.rank(self) / 2)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "far away");
    return rsi_threads_ops.reach(self, owner, what, out, err);
}

static rsd_err run_case(void *arg, rsd_comm *comm, rsd_error *err)
{
    const suite_run *run = arg;

    if (run->how == MESSAGES)
        comm->ops.expose = NULL, comm->ops.reach = NULL;
    else if (run->how == MIXED)
        comm->ops.reach = reach_neighbour;
    return run->what->run(comm, err);
}

static void suite(void **state)
{
    suite_run *run = *state;
    int64_t    before = rsi_mem_stats_get().bytes;
    rsd_error  err = { 0 };
    rsd_err    rc = rsd_comm_run_threads(run->ranks, run_case, run, &err);

    if (rc)
        fail_msg("%s: %s", rsd_err_name(rc), err.msg);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

/* ---- memory ---- */

enum { RANKS = 4, LAYERS = 6, STEPS = 20 };

typedef struct counting {
    pthread_barrier_t together;
    uint64_t          calls[RANKS]; /* of the allocator, after each rank's steps */
    uint64_t          before;
} counting;

static rsd_err train(rsd_stash *stash, int step, rsd_error *err)
{
    float         x[30], back[LAYERS][30];
    const int64_t shape[] = { 5, 6 };
    rsd_stashed   saved[LAYERS];
    rsd_err       rc = RSD_OK;

    for (int l = 0; l < LAYERS && !rc; l++) {
        for (int i = 0; i < 30; i++)
            x[i] = (float)(step * 1000 + l * 100 + i);
        rc = rsd_stash_save(stash, RSD_F32, 2, shape, x, true, &saved[l], err);
    }
    for (int l = LAYERS - 1; l >= 0 && !rc; l--) {
        if (l == LAYERS - 1)
            rc = rsd_stash_prefetch(&saved[l], back[l], sizeof(back[l]), err);
        if (!rc && l > 0)
            rc = rsd_stash_prefetch(&saved[l - 1], back[l - 1], sizeof(back[l]), err);
        if (!rc)
            rc = rsd_stash_take(&saved[l], back[l], sizeof(back[l]), err);
        for (int i = 0; i < 30; i++)
            COMM_CHECK(rc || back[l][i] == (float)(step * 1000 + l * 100 + i));
    }
    return rc;
}

static rsd_err count_calls(void *arg, rsd_comm *comm, rsd_error *err)
{
    counting  *c = arg;
    rsd_stash *stash;
    rsd_err    rc = stash_make(comm, 1, 4096, LAYERS, &stash, err);

    pthread_barrier_wait(&c->together);
    if (comm->rank == 0)
        c->before = rsi_mem_stats_get().calls;
    pthread_barrier_wait(&c->together);
    for (int i = 0; i < STEPS && !rc; i++)
        rc = train(stash, i, err);
    pthread_barrier_wait(&c->together);
    c->calls[comm->rank] = rsi_mem_stats_get().calls;
    pthread_barrier_wait(&c->together);
    if (!rc)
        rsd_stash_free(stash);
    return rc;
}

static void save_prefetch_and_take_allocate_nothing(void **state)
{
    counting  c = { 0 };
    rsd_error err;

    (void)state;
    pthread_barrier_init(&c.together, NULL, RANKS);
    assert_int_equal(rsd_comm_run_threads(RANKS, count_calls, &c, &err), RSD_OK);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(c.calls[r], c.before);
    pthread_barrier_destroy(&c.together);
}

static rsd_err make_and_use(void *arg, rsd_comm *comm, rsd_error *err)
{
    rsd_stash *stash;
    rsd_err    rc = stash_make(comm, 1, 4096, LAYERS, &stash, err);

    (void)arg;
    if (rc)
        return rc;
    rc = train(stash, 0, err);
    rsd_stash_free(stash);
    return rc;
}

static void without_memory_all_ranks_fail_and_nothing_leaks(void **state)
{
    int64_t before = rsi_mem_stats_get().bytes;

    (void)state;
    for (int how_long = 0; how_long < 2; how_long++) {
        rsd_err rc = RSD_E_NOMEM;

        for (uint64_t nth = 1; rc; nth++) {
            rsd_error err = { 0 };

            rsi_mem_fail_at(nth, how_long);
            rc = rsd_comm_run_threads(3, make_and_use, NULL, &err);
            rsi_mem_fail_at(0, 0);
            assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
            assert_int_equal(rsi_mem_stats_get().bytes, before);
            assert_true(nth < 20000);
        }
    }
}

/* Rank 0 makes room while rank 1 has still to read the chunk that both have begun to restore. */
static rsd_err compact_while_read(void *arg, rsd_comm *comm, rsd_error *err)
{
    const stash_tensor t = { RSD_U8, 2, { 2, 4096 } }, large = { RSD_U8, 2, { 2, 5000 } };
    unsigned char      data[8193];
    rsd_stash         *stash;
    rsd_stashed        saved[5];
    rsd_err            rc = stash_make(comm, 0, 4 * 4096, 5, &stash, err);

    for (size_t i = 0; i < 4 && !rc; i++)
        rc = stash_save(stash, &t, i, &saved[i], err);
    for (size_t i = 0; i < 4 && !rc; i += 2)
        rc = stash_take(&saved[i], &t, i, err);
    data[8192] = 0x5a;
    if (comm->rank == 1 && !rc)
        rc = rsd_stash_prefetch(&saved[1], data, 8192, err);
    pthread_barrier_wait(arg);
    if (comm->rank == 0 && !rc)
        rc = rsd_stash_prefetch(&saved[1], data, 8192, err);
    if (comm->rank == 0 && !rc)
        rc = stash_save(stash, &large, 4, &saved[4], err);
    pthread_barrier_wait(arg);
    if (comm->rank == 1 && !rc)
        rc = stash_save(stash, &large, 4, &saved[4], err);
    if (!rc)
        rc = rsd_stash_take(&saved[1], NULL, 0, err);
    if (!rc)
        rc = stash_check(&t, 1, data, err);
    if (!rc)
        rc = stash_take(&saved[3], &t, 3, err);
    if (!rc)
        rc = stash_take(&saved[4], &large, 4, err);
    rsd_stash_free(stash);
    return rc;
}

static void gaps_are_closed_around_what_is_under_way(void **state)
{
    pthread_barrier_t both;
    rsd_error         err = { 0 };

    (void)state;
    pthread_barrier_init(&both, NULL, 2);
    if (rsd_comm_run_threads(2, compact_while_read, &both, &err))
        fail_msg("%s", err.msg);
    pthread_barrier_destroy(&both);
}

/* ---- ranks that fail ---- */

static rsd_err one_leaves(void *arg, rsd_comm *comm, rsd_error *err)
{
    const stash_tensor t = { RSD_F32, 2, { 4, 8 } };
    rsd_stash         *stash;
    rsd_stashed        saved;
    rsd_err            rc = stash_make(comm, 0, 4096, 2, &stash, err);

    if (!rc)
        rc = stash_save(stash, &t, 1, &saved, err);
    if (rc)
        return rc;
    pthread_barrier_wait(arg); /* all have one now */
    if (comm->rank == 1) {
        rsd_comm_abort(comm, "no more electricity");
        rsd_stash_free(stash);
        return RSD_OK;
    }
    rc = stash_take(&saved, &t, 1, err);
    rsd_stash_free(stash);
    COMM_CHECK(rc == RSD_E_COMM && strstr(err->msg, "rank 1 gave up: no more electricity"));
    return RSD_OK;
}

static void a_rank_that_gives_up_wakes_those_who_take(void **state)
{
    pthread_barrier_t made;
    rsd_error         err = { 0 };

    (void)state;
    pthread_barrier_init(&made, NULL, 4);
    if (rsd_comm_run_threads(4, one_leaves, &made, &err))
        fail_msg("%s", err.msg);
    pthread_barrier_destroy(&made);
}

static rsd_err one_never_comes(void *arg, rsd_comm *comm, rsd_error *err)
{
    pthread_barrier_t *done = arg;
    const stash_tensor t = { RSD_F32, 2, { 4, 8 } };
    rsd_stash         *stash;
    rsd_stashed        saved;
    rsd_err            rc = stash_make(comm, 0, 4096, 2, &stash, err);

    if (!rc)
        rc = stash_save(stash, &t, 1, &saved, err);
    if (rc)
        return rc;
    stash->comm->timeout_ms = 50;
    stash->comm->grace_ms = 60000;
    stash->comm->present =
        2; /* the verdict comes when the two have told, however slowly they run */
    if (comm->rank != 2)
        rc = stash_take(&saved, &t, 1, err);
    pthread_barrier_wait(done);
    rsd_stash_free(stash);
    COMM_CHECK(comm->rank == 2 || (rc == RSD_E_TIMEOUT && err->rank == 2));
    return RSD_OK;
}

static void a_rank_that_does_not_take_is_named(void **state)
{
    pthread_barrier_t done;
    rsd_error         err = { 0 };

    (void)state;
    pthread_barrier_init(&done, NULL, 3);
    if (rsd_comm_run_threads(3, one_never_comes, &done, &err))
        fail_msg("%s", err.msg);
    pthread_barrier_destroy(&done);
}

/* ---- scopes ---- */

static void the_stash_on_top_gets_what_is_saved(void **state)
{
    const stash_tensor t = { RSD_F32, 2, { 4, 8 } };
    rsd_stash         *outer, *inner;
    rsd_stashed        saved[4];

    (void)state;
    assert_int_equal(stash_make(NULL, RSD_NO_DIM, 4096, 4, &outer, NULL), RSD_OK);
    assert_int_equal(stash_make(NULL, RSD_NO_DIM, 4096, 4, &inner, NULL), RSD_OK);
    rsd_stash_push(outer, NULL);
    rsd_stash_push(inner, NULL);
    assert_int_equal(stash_save(NULL, &t, 0, &saved[0], NULL), RSD_OK);
    assert_int_equal(rsd_stash_pop(outer, NULL), RSD_E_MISMATCH);
    assert_int_equal(rsd_stash_pop(inner, NULL), RSD_OK);
    assert_int_equal(stash_save(NULL, &t, 1, &saved[1], NULL), RSD_OK);
    rsd_stash_push(NULL, NULL);
    assert_int_equal(stash_save(NULL, &t, 2, &saved[2], NULL), RSD_OK);
    rsd_stash_pop(NULL, NULL);
    assert_int_equal(rsd_stash_pop(outer, NULL), RSD_OK);
    assert_int_equal(rsd_stash_pop(outer, NULL), RSD_E_INVALID);
    assert_int_equal(stash_save(NULL, &t, 3, &saved[3], NULL), RSD_OK);
    assert_ptr_equal(saved[0].stash, inner);
    assert_ptr_equal(saved[1].stash, outer);
    assert_null(saved[2].stash);
    assert_null(saved[3].stash);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(stash_take(&saved[i], &t, i, NULL), RSD_OK);
    rsd_stash_free(outer);
    rsd_stash_free(inner);
}

static void no_more_than_64_can_be_pushed(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++)
        assert_int_equal(rsd_stash_push(NULL, NULL), RSD_OK);
    assert_int_equal(rsd_stash_push(NULL, NULL), RSD_E_UNSUPPORTED);
    for (int i = 0; i < 64; i++)
        assert_int_equal(rsd_stash_pop(NULL, NULL), RSD_OK);
}

/* Where none was pushed: whole, counted, and freed with the last. */
static void a_tensor_outside_of_any_stash_is_kept_whole(void **state)
{
    const stash_tensor t = { RSD_F32, 2, { 4, 8 } };
    int64_t            before = rsi_mem_stats_get().bytes;
    unsigned char      data[129];
    rsd_stashed        a, b;
    rsd_stash_stats    stats = { .size = sizeof(stats) };

    (void)state;
    assert_int_equal(stash_save(NULL, &t, 1, &a, NULL), RSD_OK);
    assert_int_equal(stash_save(NULL, &t, 2, &b, NULL), RSD_OK);
    rsd_stash_stats_get(NULL, &stats, NULL);
    assert_int_equal(stats.tensors, 2);
    assert_int_equal(stats.bytes_held, 256);
    assert_int_equal(rsd_stash_take(&a, data, 127, NULL), RSD_E_INVALID);
    data[128] = 0x5a;
    assert_int_equal(rsd_stash_prefetch(&a, data, 128, NULL), RSD_OK);
    assert_int_equal(rsd_stash_prefetch(&a, data, 128, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_stash_take(&a, data + 1, 128, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_stash_take(&a, NULL, 0, NULL), RSD_OK);
    assert_int_equal(stash_check(&t, 1, data, NULL), RSD_OK);
    assert_int_equal(stash_take(&a, &t, 1, NULL), RSD_E_NOTFOUND);
    assert_int_equal(stash_take(&b, &t, 2, NULL), RSD_OK);
    assert_int_equal(stash_take(&b, &t, 2, NULL), RSD_E_NOTFOUND);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

static void nonsense_is_refused(void **state)
{
    const int64_t  shape[] = { 4 };
    float          x[4] = { 0 };
    rsd_stash_opts opts = { .size = sizeof(opts), .dim = RSD_NO_DIM, .budget = 64, .handles = 1 };
    rsd_stash     *stash;
    rsd_stashed    saved;

    (void)state;
    assert_int_equal(rsd_stash_create(NULL, NULL, &stash, NULL), RSD_E_INVALID);
    opts.dim = 0;
    assert_int_equal(rsd_stash_create(NULL, &opts, &stash, NULL), RSD_E_INVALID);
    opts.dim = RSD_NO_DIM;
    opts.handles = 0;
    assert_int_equal(rsd_stash_create(NULL, &opts, &stash, NULL), RSD_E_INVALID);
    opts.handles = 1;
    opts.budget = SIZE_MAX;
    assert_int_equal(rsd_stash_create(NULL, &opts, &stash, NULL), RSD_E_INVALID);
    opts.budget = 64;
    assert_int_equal(rsd_stash_create(NULL, &opts, &stash, NULL), RSD_OK);
    assert_int_equal(rsd_stash_save(stash, RSD_F32, 1, shape, NULL, true, &saved, NULL),
                     RSD_E_INVALID);
    assert_int_equal(rsd_stash_save(stash, RSD_F32, 1, NULL, x, true, &saved, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_stash_save(stash, (rsd_dtype)99, 1, shape, x, true, &saved, NULL),
                     RSD_E_INVALID);
    assert_int_equal(rsd_stash_take(NULL, x, 16, NULL), RSD_E_INVALID);
    rsd_stash_free(stash);
    rsd_stash_free(NULL);
}

static rsd_err save_a_vector(void *arg, rsd_comm *comm, rsd_error *err)
{
    const stash_tensor vector = { RSD_F32, 1, { 64 } };
    rsd_stash         *stash;
    rsd_stashed        saved;
    rsd_err            rc = stash_make(comm, 1, 4096, 1, &stash, err);

    (void)arg;
    if (rc)
        return rc;
    rc = stash_save(stash, &vector, 0, &saved, err);
    rsd_stash_free(stash);
    COMM_CHECK(rc == RSD_E_INVALID && strstr(err->msg, "float32 [64] can't be cut along"));
    return RSD_OK;
}

static void a_dimension_that_a_tensor_has_not_is_refused(void **state)
{
    (void)state;
    assert_int_equal(rsd_comm_run_threads(2, save_a_vector, NULL, NULL), RSD_OK);
}

/* ---- all ---- */

static const struct CMUnitTest own[] = {
    cmocka_unit_test(save_prefetch_and_take_allocate_nothing),
    cmocka_unit_test(without_memory_all_ranks_fail_and_nothing_leaks),
    cmocka_unit_test(gaps_are_closed_around_what_is_under_way),
    cmocka_unit_test(a_rank_that_gives_up_wakes_those_who_take),
    cmocka_unit_test(a_rank_that_does_not_take_is_named),
    cmocka_unit_test(the_stash_on_top_gets_what_is_saved),
    cmocka_unit_test(no_more_than_64_can_be_pushed),
    cmocka_unit_test(a_tensor_outside_of_any_stash_is_kept_whole),
    cmocka_unit_test(nonsense_is_refused),
    cmocka_unit_test(a_dimension_that_a_tensor_has_not_is_refused),
};

enum { NOWN = sizeof(own) / sizeof(own[0]), MOST_RUNS = 1000 };

static size_t add_suite(const comm_case *part, struct CMUnitTest *test, suite_run *run, size_t n)
{
    static const char *const names[] = { "reached", "messages", "mixed" };

    for (int32_t ranks = 1; ranks <= 8; ranks++)
        for (int way = 0; way < 3; way++)
            for (const comm_case *c = part; c->name; c++) {
                if (ranks < c->min_ranks || (ranks == 1 && way > 0) || n == MOST_RUNS)
                    continue;
                run[n] = (suite_run){ .what = c, .ranks = ranks, .how = (how)way };
                snprintf(run[n].name, sizeof(run[n].name), "threads %d, %s: %s", (int)ranks,
                         names[way], c->name);
                test[n] = (struct CMUnitTest){ .name = run[n].name, .test_func = suite };
                test[n].initial_state = &run[n];
                n++;
            }
    return n;
}

int main(void)
{
    struct CMUnitTest *test = calloc(MOST_RUNS + NOWN, sizeof(test[0]));
    suite_run         *run = calloc(MOST_RUNS, sizeof(run[0]));
    size_t             n = 0;
    int                failed;

    n = add_suite(stash_suite, test, run, n);
    n = add_suite(stash_suite_faults, test, run, n);
    memcpy(test + n, own, sizeof(own));
    failed = _cmocka_run_group_tests("stash", test, n + NOWN, NULL, NULL);
    free(test);
    free(run);
    return failed;
}
