/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "comm_suite.h"
#include "load/open_together.h"

#include <stdio.h>
#include <string.h>

#define CHECK COMM_CHECK

enum { RANKS = 4 };

typedef struct job {
    const char *path;
    rsd_store  *real;
    fix_counts  counts[RANKS];
    int32_t     without; /* this rank has an empty store; -1: none */
    rsd_err     expected;
    const char *text;
} job;

/* A checkpoint of two tensors in parts of four ranks. */
static rsd_store *saved(const char *path, bool distributed)
{
    static int32_t a[64], b[6];
    rsd_store     *store = fix_store();
    rsd_save_opts  opts = {
         .size = sizeof(opts), .store = store, .distributed = distributed, .threads = 1
    };
    const int64_t shape[] = { 8, 8 }, six = 6;
    rsd_state    *state;
    rsd_error     err;

    if (distributed)
        opts.format = RSD_FORMAT_SAFETENSORS;
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    fix_add_ramp(state, "m.a", fix_layout("mesh n=4; * shard(0)@n", RSD_I32, 2, shape), 2, shape,
                 a);
    fix_add_ramp(state, "m.b", fix_layout("mesh n=4; * shard(0)@n", RSD_I32, 1, &six), 1, &six, b);
    if (rsd_save(path, NULL, state, &opts, &err))
        fail_msg("%s", err.msg);
    rsd_state_free(state);
    return store;
}

static rsd_err open_it(void *arg, rsd_comm *comm, rsd_error *err)
{
    job         *j = arg;
    int32_t      rank = rsd_comm_rank(comm);
    rsd_store   *empty = j->without == rank ? fix_store() : NULL;
    rsd_store   *store = fix_counting_store(empty ? empty : j->real, &j->counts[rank]);
    rsi_together together = { 0 };
    rsd_err      rc = rsi_together_open(comm, store, j->path, false, &together, err);

    CHECK(rc || together.ckpt->ntensors == 2);
    rsi_together_close(&together);
    rsd_store_close(store);
    rsd_store_close(empty);
    CHECK(rc == j->expected);
    CHECK(!rc || strstr(err->msg, j->text));
    return RSD_OK;
}

static void run(job *j)
{
    rsd_error err = { 0 };

    if (rsd_comm_run_threads(RANKS, open_it, j, &err))
        fail_msg("%s", err.msg);
}

static void only_rank_0_reads_the_metadata_of_any_format(void **state)
{
    static const char *const path[] = { "dcp", "st", "one.safetensors", "one.pt" };

    (void)state;
    for (int i = 0; i < 4; i++) {
        rsd_store *real = saved(path[i], i == 1);
        job        j = { .path = path[i], .real = real, .without = -1 };

        run(&j);
        assert_true(j.counts[0].bytes > 0);
        for (int r = 1; r < RANKS; r++)
            assert_int_equal(j.counts[r].reads, 0);
        rsd_store_close(real);
    }
}

static void what_rank_0_finds_wrong_all_hear_in_the_same_words(void **state)
{
    rsd_store *real = saved("dcp", false);
    job        j = { .path = "other", .real = real, .without = -1 };

    (void)state;
    j.expected = RSD_E_NOTFOUND;
    j.text = "rank 0: ";
    run(&j);
    fix_put_text(real, "dcp/.metadata.tmp", "x");
    fix_flip(real, "dcp/.metadata", 0);
    j.path = "dcp";
    j.expected = RSD_E_FORMAT;
    j.text = "rank 0: checkpoint \"dcp\": file \".metadata\"";
    run(&j);
    rsd_store_close(real);
}

static void ranks_that_see_no_files_can_open_them_all_the_same(void **state)
{
    rsd_store *real = saved("dcp", false);
    job        j = { .path = "dcp", .real = real, .without = 2 };

    (void)state;
    run(&j); /* what rank 2 lacks shows when it reads */
    rsd_store_close(real);
}

static void without_ranks_it_is_opened_as_it_is(void **state)
{
    rsd_store   *real = saved("dcp", false);
    rsi_together together;
    rsd_comm    *comm;

    (void)state;
    assert_int_equal(rsi_together_open(NULL, real, "dcp", false, &together, NULL), RSD_OK);
    assert_null(together.front);
    rsi_together_close(&together);
    assert_int_equal(rsd_comm_create_self(3, 8, &comm, NULL), RSD_OK);
    assert_int_equal(rsi_together_open(comm, real, "dcp", false, &together, NULL), RSD_OK);
    rsi_together_close(&together);
    rsd_comm_free(comm);
    rsd_store_close(real);
}

static rsd_err open_one(void *arg, rsd_comm *comm, rsd_error *err)
{
    rsd_ckpt   **at = arg;
    rsi_together together = { 0 };
    rsd_err      rc = rsi_together_open(comm, (rsd_store *)at[RANKS], "dcp", false, &together, err);

    at[rsd_comm_rank(comm)] = together.ckpt;
    CHECK(rc || together.ckpt->ntensors == 2);
    rsi_together_close(&together);
    return rc;
}

static void threads_that_name_one_store_share_what_rank_0_opens(void **state)
{
    fix_counts alone = { 0 }, together = { 0 };
    rsd_store *real = saved("dcp", false);
    rsd_store *first = fix_counting_store(real, &alone);
    rsd_store *then = fix_counting_store(real, &together);
    rsd_ckpt  *at[RANKS + 1] = { [RANKS] = (rsd_ckpt *)then };
    rsd_ckpt  *ckpt;
    rsd_error  err = { 0 };

    (void)state;
    assert_int_equal(rsd_ckpt_open(first, "dcp", &ckpt, NULL), RSD_OK);
    rsd_ckpt_close(ckpt);
    if (rsd_comm_run_threads(RANKS, open_one, at, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(together.reads, alone.reads);
    assert_int_equal(together.bytes, alone.bytes);
    for (int r = 1; r < RANKS; r++)
        assert_ptr_equal(at[r], at[0]);
    rsd_store_close(first);
    rsd_store_close(then);
    rsd_store_close(real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_rank_0_reads_the_metadata_of_any_format),
        cmocka_unit_test(what_rank_0_finds_wrong_all_hear_in_the_same_words),
        cmocka_unit_test(ranks_that_see_no_files_can_open_them_all_the_same),
        cmocka_unit_test(without_ranks_it_is_opened_as_it_is),
        cmocka_unit_test(threads_that_name_one_store_share_what_rank_0_opens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
