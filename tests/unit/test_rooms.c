/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of one machine that read for each other through rooms: every view gets its elements, no
 * byte is read twice, and a rank that fails or dies fails all. test_read_once.c has threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "comm_suite.h"
#include "forked_ranks.h"

#include <reshard/reshard_folder.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK COMM_CHECK

/* Tensors of 8 MiB, of which every rank reads several pieces, in several rounds. */
enum { RANKS = 4, TENSORS = 4, ROWS = 1024, COLS = 2048, MINE = COLS / RANKS, DOOMED = 2 };
#define DATA_BYTES ((uint64_t)TENSORS * ROWS * COLS * 4)

static rsd_store    *store;
static const int64_t shape[] = { ROWS, COLS };

static int save_all(void **unused)
{
    (void)unused;
    store = fix_store();
    fix_save_ramps(store, "ck", TENSORS, ROWS, COLS);
    fix_save_ramps(store, "few", 1, ROWS, COLS);
    return 0;
}

static int drop_all(void **unused)
{
    (void)unused;
    rsd_store_close(store);
    return 0;
}

typedef struct job {
    bool       whole;     /* all ranks want everything, not each its columns */
    bool       killed;    /* DOOMED ends in the middle, */
    bool       refuses;   /* or its put fails */
    rsd_choice cooperate; /* NEVER: each reads for itself */
    bool       opened;    /* from a checkpoint that each rank has opened */
    int32_t    odd;       /* if opened: this rank has opened another one, */
    int32_t    wrong;     /* or asks for a tensor that is missing; both from 1 on */
    int64_t    fail_at;   /* the read of DOOMED that fails */
} job;

/* What a rank wants of a tensor, and how: plain, cast, upside down, through a callback. */
typedef struct want {
    const job *j;
    rsd_box    box;
    int        how; /* the rank's number */
    char      *data;
    int        puts;
} want;

static rsd_err put(void *arg, uint64_t off, const void *data, size_t bytes)
{
    want *w = arg;

    w->puts++;
    if (w->j->killed && w->puts == 3)
        raise(SIGKILL);
    if (w->j->refuses && w->puts == 3)
        return RSD_E_IO;
    memcpy(w->data + off, data, bytes);
    return RSD_OK;
}

static rsd_view view_of(want *w)
{
    int64_t  rows = w->box.len[0], cols = w->box.len[1];
    rsd_view view = { .box = w->box, .data = w->data };

    if (w->how == 2) {
        view.data = NULL;
        view.put = put;
        view.arg = w;
    }
    if (w->how == 3) {
        view.data = w->data + 4 * cols * (rows - 1);
        view.stride[0] = -4 * cols;
        view.stride[1] = 4;
    }
    return view;
}

static bool right(const want *w)
{
    int64_t cols = w->box.len[1];

    for (int64_t i = 0; i < rsd_box_count(&w->box); i++) {
        int64_t row = i / cols,
                there = w->how == 3 ? (w->box.len[0] - 1 - row) * cols + i % cols : i;
        int32_t value = (int32_t)((w->box.off[0] + row) * COLS + w->box.off[1] + i % cols);

        if (w->how == 1 ? ((double *)(void *)w->data)[there] != value
                        : ((int32_t *)(void *)w->data)[there] != value)
            return false;
    }
    return true;
}

static void want_box(const job *j, int32_t rank, want *w)
{
    *w = (want){ .j = j, .how = (int)rank };
    w->box = j->whole ? fix_box2(0, 0, ROWS, COLS) : fix_box2(0, rank * MINE, ROWS, MINE);
    w->data = calloc((size_t)rsd_box_count(&w->box), 8);
}

/* The same with rsd_ckpt_read_together. */
static rsd_err read_all(const job *j, rsd_comm *comm, want *w, fix_counts *counts, rsd_error *err)
{
    int32_t    rank = rsd_comm_rank(comm);
    rsd_store *mine = fix_counting_store(store, counts);
    rsd_ckpt  *ckpt = NULL;
    rsd_read   reads[TENSORS];
    rsd_err    rc = rsd_ckpt_open(mine, rank + 1 == j->odd ? "few" : "ck", &ckpt, err);

    counts->reads = counts->bytes = 0;
    for (int i = 0; i < TENSORS; i++) {
        want_box(j, rank, &w[i]);
        reads[i] = (rsd_read){ .t = (size_t)i, .view = view_of(&w[i]) };
        reads[i].dtype = w[i].how == 1 ? RSD_F64 : RSD_I32;
    }
    if (rank + 1 == j->wrong)
        reads[1].t = TENSORS;
    if (!rc)
        rc = rsd_ckpt_read_together(ckpt, comm, rank + 1 == j->odd ? 1 : TENSORS, reads, NULL, err);
    rsd_ckpt_close(ckpt);
    rsd_store_close(mine);
    return rc;
}

static rsd_err load_all(const job *j, rsd_comm *comm, want *w, fix_counts *counts, rsd_error *err)
{
    rsd_load_opts opts = { .size = sizeof(opts), .cast = true, .cooperate = j->cooperate };
    rsd_store    *mine = fix_counting_store(store, counts);
    rsd_state    *state = NULL;
    rsd_err       rc = rsd_state_create(&state, err);

    opts.store = mine;
    for (int i = 0; i < TENSORS && !rc; i++) {
        rsd_view view;
        char     name[16];

        want_box(j, rsd_comm_rank(comm), &w[i]);
        view = view_of(&w[i]);
        snprintf(name, sizeof(name), "t%d", i);
        rc = rsd_state_tensor(state, name, NULL, w[i].how == 1 ? RSD_F64 : RSD_I32, 2, shape, 1,
                              &view, err);
    }
    if (!rc)
        rc = rsd_load("ck", comm, state, &opts, err);
    rsd_state_free(state);
    rsd_store_close(mine);
    return rc;
}

static rsd_err in_process(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job *j = arg;
    want       w[TENSORS] = { 0 };
    fix_counts counts = { 0 };
    rsd_err    rc;

    if (rsd_comm_rank(comm) == DOOMED)
        counts.fail_at = j->fail_at;
    rc = j->opened ? read_all(j, comm, w, &counts, err) : load_all(j, comm, w, &counts, err);
    for (int i = 0; i < TENSORS && !rc; i++)
        CHECK(right(&w[i]));
    for (int i = 0; i < TENSORS; i++)
        free(w[i].data);
    if (!rc && !j->cooperate) /* metadata are read by rank 0 alone */
        CHECK(counts.bytes > DATA_BYTES / 5 && counts.bytes < DATA_BYTES / 3 && counts.reads < 100);
    return rc;
}

static void run(const job *j, int how)
{
    const forked_job forked = {
        .ranks = RANKS, .how = how, .run = in_process, .arg = (void *)(uintptr_t)j, .absent = -1
    };

    assert_true(forked_well(&forked));
}

static void columns_are_read_once_and_in_few_reads(void **unused)
{
    (void)unused;
    run(&(job){ 0 }, FORKED_NEAR);
}

static void what_all_want_is_read_once(void **unused)
{
    (void)unused;
    run(&(job){ .whole = true }, FORKED_NEAR);
}

/* The same elements, without rooms. */
static void ranks_that_do_not_cooperate_read_for_themselves(void **unused)
{
    (void)unused;
    run(&(job){ .cooperate = RSD_NEVER }, FORKED_NEAR);
    run(&(job){ .cooperate = RSD_ALWAYS }, FORKED_FAR);
}

static void an_open_checkpoint_is_read_by_all(void **unused)
{
    (void)unused;
    run(&(job){ .opened = true }, FORKED_NEAR);
    run(&(job){ .opened = true, .whole = true }, FORKED_NEAR);
}

/* Every rank but a killed one gets the error with the rank's number. */
static void assert_all_fail(const job *j, rsd_err rc, const char *text)
{
    const forked_job forked = { .ranks = RANKS,
                                .how = FORKED_NEAR,
                                .run = in_process,
                                .arg = (void *)(uintptr_t)j,
                                .absent = -1 };
    forked_end       end[RANKS];

    forked_run(&forked, end);
    for (int r = 0; r < RANKS; r++) {
        if (j->killed && r == DOOMED) {
            assert_int_equal(end[r].signal, SIGKILL);
            continue;
        }
        assert_true(end[r].ended);
        assert_int_equal(end[r].rc, rc);
        assert_true(j->odd || end[r].err.rank == DOOMED);
        assert_non_null(strstr(end[r].err.msg, text));
    }
}

static void a_read_that_fails_fails_all(void **unused)
{
    (void)unused;
    for (int64_t n = 1; n < 6; n += 2)
        assert_all_fail(&(job){ .fail_at = n }, RSD_E_IO, "rank 2: ");
}

static void a_view_that_refuses_its_part_fails_all(void **unused)
{
    (void)unused;
    assert_all_fail(&(job){ .refuses = true }, RSD_E_IO, "rank 2: ");
}

static void a_rank_that_is_killed_is_named(void **unused)
{
    (void)unused;
    assert_all_fail(&(job){ .killed = true }, RSD_E_COMM, "rank 2 is gone");
}

static void ranks_that_open_different_checkpoints_are_refused(void **unused)
{
    (void)unused;
    assert_all_fail(&(job){ .opened = true, .odd = DOOMED + 1 }, RSD_E_MISMATCH,
                    "the ranks have different checkpoints open");
}

static void a_read_of_a_missing_tensor_fails_all(void **unused)
{
    (void)unused;
    assert_all_fail(&(job){ .opened = true, .wrong = DOOMED + 1 }, RSD_E_INVALID,
                    "rank 2: read 1: no tensor 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_read_once_and_in_few_reads),
        cmocka_unit_test(what_all_want_is_read_once),
        cmocka_unit_test(ranks_that_do_not_cooperate_read_for_themselves),
        cmocka_unit_test(an_open_checkpoint_is_read_by_all),
        cmocka_unit_test(ranks_that_open_different_checkpoints_are_refused),
        cmocka_unit_test(a_read_of_a_missing_tensor_fails_all),
        cmocka_unit_test(a_read_that_fails_fails_all),
        cmocka_unit_test(a_view_that_refuses_its_part_fails_all),
        cmocka_unit_test(a_rank_that_is_killed_is_named),
    };

    return cmocka_run_group_tests_name("rooms", tests, save_all, drop_all);
}
