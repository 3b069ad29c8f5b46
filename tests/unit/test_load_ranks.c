/* SPDX-License-Identifier: Apache-2.0 */
/* Loading by several ranks: who reads how many bytes, and what happens when one of them can't. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "comm_suite.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK COMM_CHECK

enum { RANKS = 4, TENSORS = 3, ROWS = 64, COLS = 8192 };
#define TENSOR_BYTES ((uint64_t)ROWS * COLS * 4)

static rsd_store    *store;
static const int64_t shape[] = { ROWS, COLS };

/* Three tensors of 2 MiB. */
static int save_all(void **unused)
{
    (void)unused;
    store = fix_store();
    fix_save_ramps(store, "ck", TENSORS, ROWS, COLS);
    return 0;
}

static int drop_all(void **unused)
{
    (void)unused;
    rsd_store_close(store);
    return 0;
}

/* Which part a rank wants. */
typedef enum part { ALL, MY_ROWS, MY_COLUMNS, FIRST_ROWS, NESTED, CROSSED } part;

typedef struct job {
    part          part;
    rsd_load_opts opts;
    bool          as_float, through_put;
    fix_counts    counts[RANKS];
    int32_t       bad; /* this rank has a store without data files; -1: none */
    int32_t       absent;
    int64_t       fail_at; /* the read of rank 2 that fails; 0: none */
    rsd_err       expected;
    const char   *text;
} job;

static rsd_box box_of(part p, int32_t rank)
{
    switch (p) {
    case MY_ROWS:
        return fix_box2(rank * (ROWS / 4), 0, ROWS / 4, COLS);
    case MY_COLUMNS:
        return fix_box2(0, rank * (COLS / 4), ROWS, COLS / 4);
    case FIRST_ROWS:
        return fix_box2(0, 0, 10, COLS);
    case NESTED: /* ranks 0 and 1 all, the others less and less of it */
        return fix_box2(0, 0, ROWS >> (rank / 2 * rank), COLS >> (rank / 2));
    case CROSSED: /* a cross, and all of nothing */
        return rank % 2 ? fix_box2(5, 0, 50, 100) : fix_box2(0, 50, 60, 100);
    default:
        return fix_box2(0, 0, ROWS, COLS);
    }
}

static rsd_err keep(void *arg, uint64_t off, const void *host, size_t len)
{
    memcpy((char *)arg + off, host, len);
    return RSD_OK;
}

static bool right(const job *j, const rsd_box *box, const void *data)
{
    for (int64_t i = 0; i < rsd_box_count(box); i++) {
        int64_t row = box->off[0] + i / box->len[1], col = box->off[1] + i % box->len[1];
        int32_t want = (int32_t)(row * COLS + col);

        if (j->as_float ? ((const double *)data)[i] != want : ((const int32_t *)data)[i] != want)
            return false;
    }
    return true;
}

/* Every other rank has its data files; rank j->bad only what rank 0 tells it. */
static rsd_err load_as(job *j, rsd_comm *comm, rsd_store *mine, void **data, rsd_error *err)
{
    rsd_box       box = box_of(j->part, rsd_comm_rank(comm));
    rsd_load_opts opts = j->opts;
    rsd_state    *state;
    rsd_err       rc = rsd_state_create(&state, err);

    opts.size = sizeof(opts);
    opts.store = mine;
    opts.threads = 1;
    opts.cast = j->as_float;
    for (int i = 0; i < TENSORS && !rc; i++) {
        rsd_view view = { .box = box };
        char     name[8];

        data[i] = calloc((size_t)rsd_box_count(&box), j->as_float ? 8 : 4);
        if (j->through_put) {
            view.put = keep;
            view.arg = data[i];
        } else {
            view.data = data[i];
        }
        snprintf(name, sizeof(name), "t%d", i);
        rc = rsd_state_tensor(state, name, NULL, j->as_float ? RSD_F64 : RSD_I32, 2, shape, 1,
                              &view, err);
    }
    if (!rc)
        rc = rsd_load("ck", comm, state, &opts, err);
    for (int i = 0; i < TENSORS && !rc; i++)
        if (!right(j, &box, data[i]))
            rc = rsi_fail(err, RSD_E_BUG, "tensor %d is wrong", i);
    rsd_state_free(state);
    return rc;
}

static rsd_err rank_main(void *arg, rsd_comm *comm, rsd_error *err)
{
    job       *j = arg;
    int32_t    rank = rsd_comm_rank(comm);
    void      *data[TENSORS] = { 0 };
    rsd_store *empty = fix_store();
    rsd_store *mine = fix_counting_store(rank == j->bad ? empty : store, &j->counts[rank]);
    rsd_err    rc = load_as(j, comm, mine, data, err);

    for (int i = 0; i < TENSORS; i++)
        free(data[i]);
    rsd_store_close(mine);
    rsd_store_close(empty);
    if (rc != j->expected)
        return rc ? rc : rsi_fail(err, RSD_E_BUG, "it went well");
    CHECK(!rc || strstr(err->msg, j->text));
    return RSD_OK;
}

static uint64_t run(job *j)
{
    uint64_t  bytes = 0;
    rsd_error err = { 0 };

    memset(j->counts, 0, sizeof(j->counts));
    j->counts[2].fail_at = j->fail_at;
    if (rsd_comm_run_threads(RANKS, rank_main, j, &err))
        fail_msg("part %d: %s", (int)j->part, err.msg);
    for (int r = 0; r < RANKS; r++)
        bytes += j->counts[r].bytes;
    return bytes;
}

/* No more than 1.05 of it. */
static void assert_near(uint64_t bytes, uint64_t needed)
{
    assert_true(bytes >= needed);
    assert_true(bytes <= needed + needed / 20);
}

/* Straight into each other's memory, and in messages. */
static void assert_read_once(part p, uint64_t bytes)
{
    for (int put = 0; put < 2; put++) {
        job j = { .part = p, .bad = -1, .through_put = put };

        assert_near(run(&j), bytes);
        for (int r = 0; r < RANKS && p == ALL; r++)
            assert_true(j.counts[r].bytes < bytes / 2);
    }
}

static void what_all_ranks_want_is_read_once_and_evenly(void **unused)
{
    (void)unused;
    assert_read_once(ALL, TENSORS * TENSOR_BYTES);
}

static void a_part_that_all_want_is_read_once(void **unused)
{
    (void)unused;
    assert_read_once(FIRST_ROWS, TENSORS * TENSOR_BYTES * 10 / ROWS);
}

static void parts_inside_each_other_are_read_once(void **unused)
{
    (void)unused;
    assert_read_once(NESTED, TENSORS * TENSOR_BYTES);
}

static void parts_that_only_cross_are_read_by_each(void **unused)
{
    job j = { .part = CROSSED, .bad = -1 };

    (void)unused;
    j.opts.cooperate = RSD_ALWAYS;
    run(&j);
}

static void never_means_that_each_reads_its_own(void **unused)
{
    job j = { .part = ALL, .bad = -1 };

    (void)unused;
    j.opts.cooperate = RSD_NEVER;
    assert_near(run(&j), RANKS * TENSORS * TENSOR_BYTES);
}

/* Dealt out, passed on, and each for itself. */
static void columns_of_row_shards_take_a_quarter_of_the_bytes_from_each_rank(void **unused)
{
    (void)unused;
    for (int way = 0; way < 3; way++) {
        job j = { .part = MY_COLUMNS, .bad = -1, .through_put = way == 1 };

        j.opts.cooperate = way == 2 ? RSD_NEVER : way == 1 ? RSD_ALWAYS : RSD_DEFAULT;
        assert_near(run(&j), TENSORS * TENSOR_BYTES);
        for (int r = 0; r < RANKS; r++)
            assert_near(j.counts[r].bytes, TENSORS * TENSOR_BYTES / 4);
    }
}

static void columns_are_dealt_out_in_few_reads(void **unused)
{
    job dealt = { .part = MY_COLUMNS, .bad = -1 }, alone = dealt;

    (void)unused;
    alone.opts.cooperate = RSD_NEVER;
    run(&dealt);
    run(&alone);
    for (int r = 0; r < RANKS; r++)
        assert_true(dealt.counts[r].reads * 4 < alone.counts[r].reads);
}

static void the_same_layout_reads_each_byte_once(void **unused)
{
    job j = { .part = MY_ROWS, .bad = -1 };

    (void)unused;
    assert_near(run(&j), TENSORS * TENSOR_BYTES);
}

static void casts_and_callbacks_get_what_is_passed_on(void **unused)
{
    (void)unused;
    for (int i = 0; i < 8; i++) {
        job j = {
            .part = i & 4 ? MY_COLUMNS : ALL, .as_float = i & 1, .through_put = i & 2, .bad = -1
        };

        j.opts.cooperate = RSD_ALWAYS;
        run(&j);
    }
}

static void little_memory_takes_more_rounds(void **unused)
{
    job j = { .part = ALL, .bad = -1, .through_put = true };

    (void)unused;
    j.opts.max_memory = 4096;
    assert_near(run(&j), TENSORS * TENSOR_BYTES);
    j.through_put = false;
    assert_near(run(&j), TENSORS * TENSOR_BYTES);
}

static void any_read_that_fails_on_one_rank_fails_all_with_its_name(void **unused)
{
    static const part parts[] = { ALL, MY_COLUMNS, MY_ROWS };

    (void)unused;
    for (int p = 0; p < 6; p++) {
        job      good = { .part = parts[p / 2], .bad = -1, .through_put = p % 2 };
        uint64_t reads;

        run(&good);
        reads = good.counts[2].reads;
        assert_true(reads > 0);
        for (uint64_t n = 1; n <= reads; n += 1 + reads / 8) {
            job j = good;

            j.expected = RSD_E_IO;
            j.text = "rank 2: ";
            j.fail_at = (int64_t)n;
            run(&j);
        }
    }
}

static void files_that_one_rank_does_not_see_fail_all_with_its_name(void **unused)
{
    job j = { .part = MY_ROWS, .bad = 3, .expected = RSD_E_NOTFOUND, .text = "rank 3: " };

    (void)unused;
    run(&j);
    j.part = ALL;
    run(&j);
}

static rsd_err one_leaves(void *arg, rsd_comm *comm, rsd_error *err)
{
    job    *j = arg;
    void   *data[TENSORS] = { 0 };
    rsd_err rc;

    if (rsd_comm_rank(comm) == j->absent)
        return RSD_OK; /* its comm is freed, which the others see at once */
    rc = load_as(j, comm, store, data, err);
    for (int i = 0; i < TENSORS; i++)
        free(data[i]);
    CHECK(rc == RSD_E_COMM);
    return RSD_OK;
}

static void a_rank_that_leaves_ends_the_load_of_all(void **unused)
{
    (void)unused;
    for (int32_t absent = 0; absent < RANKS; absent++) {
        job       j = { .part = ALL, .bad = -1, .absent = absent };
        rsd_error err = { 0 };

        for (int put = 0; put < 2; put++) {
            j.through_put = put;
            if (rsd_comm_run_threads(RANKS, one_leaves, &j, &err))
                fail_msg("without rank %d: %s", (int)absent, err.msg);
        }
    }
}

typedef struct silence {
    job               job;
    pthread_barrier_t over; /* the others have given up */
} silence;

/* Waits are short, but the verdict waits for all that are to come, however slowly they run. */
static rsd_err one_is_silent(void *arg, rsd_comm *comm, rsd_error *err)
{
    silence *s = arg;
    bool     silent = comm->rank == s->job.absent;
    void    *data[TENSORS] = { 0 };
    char     text[64];
    rsd_err  rc = rsd_comm_set_timeout(comm, 20, err);

    comm->grace_ms = 60000;
    comm->present = RANKS - 1;
    if (!rc && !silent)
        rc = load_as(&s->job, comm, store, data, err);
    pthread_barrier_wait(&s->over);
    for (int i = 0; i < TENSORS; i++)
        free(data[i]);
    snprintf(text, sizeof(text), "rank %d did not come within 20 ms", (int)s->job.absent);
    CHECK(rc == (silent ? RSD_OK : RSD_E_TIMEOUT));
    CHECK(silent || (err->rank == s->job.absent && err->nfailed == 1 && strstr(err->msg, text)));
    return RSD_OK;
}

static void a_rank_that_does_not_load_is_named(void **unused)
{
    (void)unused;
    for (int32_t absent = 0; absent < RANKS; absent++) {
        silence   s = { .job = { .part = MY_ROWS, .bad = -1, .absent = absent } };
        rsd_error err = { 0 };

        pthread_barrier_init(&s.over, NULL, RANKS);
        if (rsd_comm_run_threads(RANKS, one_is_silent, &s, &err))
            fail_msg("without rank %d: %s", (int)absent, err.msg);
        pthread_barrier_destroy(&s.over);
    }
}

static rsd_err one_wants_other_things(void *arg, rsd_comm *comm, rsd_error *err)
{
    job    *j = arg;
    int32_t rank = rsd_comm_rank(comm);
    job     mine = *j;
    void   *data[TENSORS] = { 0 };
    rsd_err rc;

    mine.opts.cooperate = rank == 1 ? RSD_NEVER : RSD_ALWAYS;
    mine.part = (part)rank;
    rc = load_as(&mine, comm, store, data, err);
    for (int i = 0; i < TENSORS; i++)
        free(data[i]);
    return rc;
}

static void ranks_with_other_options_and_boxes_still_load_together(void **unused)
{
    job       j = { .bad = -1 };
    rsd_error err = { 0 };

    (void)unused;
    if (rsd_comm_run_threads(RANKS, one_wants_other_things, &j, &err))
        fail_msg("%s", err.msg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_all_ranks_want_is_read_once_and_evenly),
        cmocka_unit_test(a_part_that_all_want_is_read_once),
        cmocka_unit_test(parts_inside_each_other_are_read_once),
        cmocka_unit_test(parts_that_only_cross_are_read_by_each),
        cmocka_unit_test(never_means_that_each_reads_its_own),
        cmocka_unit_test(columns_of_row_shards_take_a_quarter_of_the_bytes_from_each_rank),
        cmocka_unit_test(columns_are_dealt_out_in_few_reads),
        cmocka_unit_test(the_same_layout_reads_each_byte_once),
        cmocka_unit_test(casts_and_callbacks_get_what_is_passed_on),
        cmocka_unit_test(little_memory_takes_more_rounds),
        cmocka_unit_test(any_read_that_fails_on_one_rank_fails_all_with_its_name),
        cmocka_unit_test(files_that_one_rank_does_not_see_fail_all_with_its_name),
        cmocka_unit_test(a_rank_that_leaves_ends_the_load_of_all),
        cmocka_unit_test(a_rank_that_does_not_load_is_named),
        cmocka_unit_test(ranks_with_other_options_and_boxes_still_load_together),
    };

    return cmocka_run_group_tests(tests, save_all, drop_all);
}
