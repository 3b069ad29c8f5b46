/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that write what they read into each other's memory: any view, any damage is found, and
 * nobody writes into the memory of a rank that has given up. test_load_ranks.c has who reads what.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash128.h"
#include "ckpt_fixture.h"
#include "comm_suite.h"
#include "skip_because.h"

#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#define CHECK COMM_CHECK

enum { RANKS = 4, ROWS = 96, COLS = 256 };

static rsd_store    *store;
static const int64_t shape[] = { ROWS, COLS };

/* One tensor of int32 that are their own index, in three row shards; and in one file with a side
 * file instead of CRCs. */
static int save_it(void **unused)
{
    int32_t      *data = malloc((size_t)ROWS * COLS * 4);
    rsd_save_opts opts = { .size = sizeof(opts), .threads = 1, .checksum = RSD_NEVER };
    rsd_save_opts one = { .size = sizeof(one), .threads = 1, .format = RSD_FORMAT_SAFETENSORS };
    rsd_state    *state;

    (void)unused;
    assert_non_null(data);
    one.store = opts.store = store = fix_store();
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    fix_add_ramp(state, "t", fix_layout("mesh n=3; * shard(0)@n", RSD_I32, 2, shape), 2, shape,
                 data);
    assert_int_equal(rsd_save("ck", NULL, state, &opts, NULL), RSD_OK);
    assert_int_equal(rsd_save("one.safetensors", NULL, state, &one, NULL), RSD_OK);
    rsd_state_free(state);
    free(data);
    return 0;
}

static int drop_it(void **unused)
{
    (void)unused;
    rsd_store_close(store);
    return 0;
}

/* Rank r of n wants these columns. */
static rsd_box columns_of(int32_t rank, int32_t n)
{
    return fix_box2(0, rank * (COLS / n), ROWS, COLS / n);
}

static rsd_err load(rsd_comm *comm, const char *path, rsd_store *from, const rsd_view *view,
                    rsd_error *err)
{
    rsd_load_opts opts = { .size = sizeof(opts), .store = from, .threads = 2 };
    rsd_state    *state = NULL;
    rsd_err       rc = rsd_state_create(&state, err);

    if (!rc)
        rc = rsd_state_tensor(state, "t", NULL, RSD_I32, 2, shape, 1, view, err);
    if (!rc)
        rc = rsd_load(path, comm, state, &opts, err);
    rsd_state_free(state);
    return rc;
}

static bool right(const rsd_view *view)
{
    for (int64_t i = 0; i < view->box.len[0]; i++)
        for (int64_t k = 0; k < view->box.len[1]; k++) {
            int32_t value;

            memcpy(&value, (char *)view->data + i * view->stride[0] + k * view->stride[1], 4);
            if (value != (view->box.off[0] + i) * COLS + view->box.off[1] + k)
                return false;
        }
    return true;
}

/* ---- views ---- */

/* Packed; rows with gaps; columns; upside down: one way for each rank, and all in turn. */
static rsd_view view_of(int way, const rsd_box *box, char *data)
{
    int64_t  rows = box->len[0], cols = box->len[1];
    rsd_view view = { .box = *box, .data = data, .stride = { 4 * cols, 4 } };

    if (way == 1)
        view.stride[0] += 12;
    if (way == 2) {
        view.stride[0] = 4;
        view.stride[1] = 4 * rows;
    }
    if (way == 3) {
        view.data = data + 4 * cols * (rows - 1);
        view.stride[0] = -4 * cols;
    }
    return view;
}

typedef struct turn {
    int         n;
    const char *path;
} turn;

static rsd_err with_view(void *arg, rsd_comm *comm, rsd_error *err)
{
    turn    *t = arg;
    int32_t  rank = rsd_comm_rank(comm);
    rsd_box  box = columns_of(rank, RANKS);
    char    *data = calloc(ROWS + 1, COLS * 4);
    rsd_view view = view_of((rank + t->n) % 4, &box, data + 4 * rank); /* odd places too */
    rsd_err  rc = load(comm, t->path, store, &view, err);

    if (!rc && !right(&view))
        rc = rsi_fail(err, RSD_E_BUG, "rank %d has something else", (int)rank);
    free(data);
    return rc;
}

static void views_of_any_strides_are_filled_by_others(void **unused)
{
    (void)unused;
    for (int n = 0; n < 8; n++) {
        turn      t = { n, n < 4 ? "ck" : "one.safetensors" };
        rsd_error err = { 0 };

        if (rsd_comm_run_threads(RANKS, with_view, &t, &err))
            fail_msg("%s", err.msg);
    }
}

/* ---- damage ---- */

/* What is damaged, and what a message says of it. */
typedef struct damage {
    const char *path, *file, *words;
} damage;

static rsd_err finds_damage(void *arg, rsd_comm *comm, rsd_error *err)
{
    damage  *d = arg;
    rsd_box  box = columns_of(rsd_comm_rank(comm), RANKS);
    int32_t *data = calloc(ROWS, COLS * 4);
    rsd_view view = view_of(0, &box, (char *)data);
    rsd_err  rc = load(comm, d->path, store, &view, err);

    free(data);
    CHECK(rc == RSD_E_CORRUPT);
    CHECK(strstr(err->msg, d->file));
    CHECK(strstr(err->msg, d->words));
    return RSD_OK;
}

static void find_it(damage *d, const char *name)
{
    rsd_error err = { 0 };
    size_t    len;

    free(fix_get(store, name, &len));
    fix_flip(store, name, len / 2);
    if (rsd_comm_run_threads(RANKS, finds_damage, d, &err))
        fail_msg("%s", err.msg);
    fix_flip(store, name, len / 2);
}

/* Each rank wants only a part of every record; one rank reads it whole and checks it. */
static void a_wrong_crc_is_found_though_each_rank_wants_columns(void **unused)
{
    damage d = { "ck", "__1_0.distcp", "CRC32" };

    (void)unused;
    find_it(&d, "ck/__1_0.distcp");
}

static void a_wrong_hash_is_found_though_each_rank_wants_columns(void **unused)
{
    damage d = { "one.safetensors", "one.safetensors", "checksum mismatch in bytes" };

    (void)unused;
    if (!rsi_hash128_available())
        skip_because("built without xxHash");
    find_it(&d, "one.safetensors");
}

/* ---- a rank that gives up ---- */

typedef struct giving_up {
    sem_t go, done;
    bool  held;
} giving_up;

static void hold_first(void *arg)
{
    giving_up *g = arg;

    if (!g->held)
        sem_wait(&g->go);
    g->held = true;
}

/* Rank 1 stays in its first read until rank 0's load has ended for want of it. */
static rsd_err gives_up(void *arg, rsd_comm *comm, rsd_error *err)
{
    giving_up *g = arg;
    int32_t    rank = rsd_comm_rank(comm);
    fix_counts counts = { .before = rank == 1 ? hold_first : NULL, .arg = g };
    rsd_store *mine = fix_counting_store(store, &counts);
    rsd_box    box = columns_of(rank, 2);
    size_t     bytes = (size_t)rsd_box_count(&box) * 4;
    char      *data = calloc(bytes, 1);
    rsd_view   view = view_of(0, &box, data);
    bool       kept = true;
    rsd_err    rc;

    if (rank == 0)
        rsd_comm_set_timeout(comm, 200, NULL);
    rc = load(comm, "ck", mine, &view, err);
    if (rank == 0) {
        memset(data, 0x5a, bytes);
        sem_post(&g->go);
        sem_wait(&g->done);
        for (size_t i = 0; i < bytes; i++)
            kept = kept && data[i] == 0x5a;
    } else {
        sem_post(&g->done);
    }
    rsd_store_close(mine);
    free(data);
    CHECK(rc == RSD_E_TIMEOUT || rc == RSD_E_COMM);
    CHECK(kept);
    return RSD_OK;
}

static void nobody_writes_into_the_memory_of_a_rank_that_has_given_up(void **unused)
{
    giving_up g = { .held = false };
    rsd_error err = { 0 };

    (void)unused;
    sem_init(&g.go, 0, 0);
    sem_init(&g.done, 0, 0);
    if (rsd_comm_run_threads(2, gives_up, &g, &err))
        fail_msg("%s", err.msg);
    sem_destroy(&g.go);
    sem_destroy(&g.done);
}

/* ---- memory ---- */

static rsd_err in_turn(void *arg, rsd_error *err)
{
    return rsd_comm_run_threads(RANKS, with_view, arg, err);
}

static void any_allocation_that_fails_fails_all_or_none(void **unused)
{
    turn dcp = { 0, "ck" }, st = { 0, "one.safetensors" };

    (void)unused;
    fix_every_allocation(in_turn, NULL, &dcp);
    fix_every_allocation(in_turn, NULL, &st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_of_any_strides_are_filled_by_others),
        cmocka_unit_test(a_wrong_crc_is_found_though_each_rank_wants_columns),
        cmocka_unit_test(a_wrong_hash_is_found_though_each_rank_wants_columns),
        cmocka_unit_test(nobody_writes_into_the_memory_of_a_rank_that_has_given_up),
        cmocka_unit_test(any_allocation_that_fails_fails_all_or_none),
    };

    return cmocka_run_group_tests(tests, save_it, drop_it);
}
