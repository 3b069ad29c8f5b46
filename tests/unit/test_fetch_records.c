/* SPDX-License-Identifier: Apache-2.0 */
/* test_fetch_records.c - the records that fetch.c reads from: their checksums, and tensors that are
 * less than their record or have elements of it several times. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, COLS = 8 };

static void save_ramp(rsd_store *store, const char *path)
{
    const int64_t       shape[] = { ROWS, COLS };
    const rsd_save_opts opts = {
        .size = sizeof(opts), .checksum = RSD_NEVER, .store = store, .threads = 1
    };
    int32_t    data[ROWS * COLS];
    rsd_state *state;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    fix_add_ramp(state, "x", NULL, 2, shape, data);
    assert_int_equal(rsd_save(path, NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
}

/* ---- checksums ---- */

/* Reads `box` of "x" after a byte of its data was turned. */
static rsd_err read_flipped(const char *path, const char *file, uint64_t at, const rsd_box *box,
                            rsd_choice verify, rsd_error *err)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .verify = verify };
    rsd_store          *store = fix_store();
    int32_t             out[ROWS * COLS];
    rsd_view            view = { .box = *box, .data = out };
    rsd_ckpt           *ckpt;
    rsd_err             rc;

    save_ramp(store, path);
    ckpt = fix_open(store, path);
    if (!at)
        assert_int_equal(rsd_ckpt_extent(ckpt, 0, 0, &at, view.stride, NULL), RSD_OK);
    memset(view.stride, 0, sizeof(view.stride));
    fix_flip(store, file, at + 100);
    rc = rsd_ckpt_read(ckpt, 0, &view, &opts, err);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    return rc;
}

static void a_damaged_record_is_noticed_when_it_is_read_whole(void **state)
{
    rsd_box   all = fix_box2(0, 0, ROWS, COLS);
    rsd_error err;

    (void)state;
    assert_int_equal(read_flipped("ck", "ck/__0_0.distcp", 0, &all, RSD_DEFAULT, &err),
                     RSD_E_CORRUPT);
    assert_non_null(strstr(err.msg, "tensor \"x\": file \"__0_0.distcp\": the data from byte "));
    assert_int_equal(err.code, RSD_E_CORRUPT);
    assert_int_equal(read_flipped("x.pt", "x.pt", 0, &all, RSD_DEFAULT, &err), RSD_E_CORRUPT);
    assert_non_null(strstr(err.msg, "tensor \"x\": file \"x.pt\": the data from byte "));
}

static void damage_is_not_noticed_when_nobody_wants_to_know(void **state)
{
    rsd_box   all = fix_box2(0, 0, ROWS, COLS);
    rsd_error err;

    (void)state;
    assert_int_equal(read_flipped("ck", "ck/__0_0.distcp", 0, &all, RSD_NEVER, &err), RSD_OK);
}

static void damage_beside_a_part_is_noticed_only_when_always_asked_for(void **state)
{
    rsd_box   first = fix_box2(0, 0, 1, COLS); /* the byte is in row 3 */
    rsd_error err;

    (void)state;
    assert_int_equal(read_flipped("ck", "ck/__0_0.distcp", 0, &first, RSD_DEFAULT, &err), RSD_OK);
    assert_int_equal(read_flipped("ck", "ck/__0_0.distcp", 0, &first, RSD_ALWAYS, &err),
                     RSD_E_CORRUPT);
    assert_non_null(strstr(err.msg, "tensor \"x\": file \"__0_0.distcp\""));
}

/* Puts a torch.save file "x.pt" of one tensor and opens it. */
static rsd_ckpt *open_tensor(rsd_store *store, const rsi_tensor_pickle *facts,
                             const int32_t *storage)
{
    fix_bytes item = fix_tensor_item(facts, storage);

    fix_put(store, "x.pt", item.at, item.len);
    free(item.at);
    return fix_open(store, "x.pt");
}

/* All of the tensor is not all of the record. */
static void damage_in_a_larger_storage_is_noticed_when_always_asked_for(void **state)
{
    const rsi_tensor_pickle facts = { .dtype = RSD_I32,
                                      .ndim = 1,
                                      .size = { 2 },
                                      .stride = { 1 },
                                      .offset = 3,
                                      .storage_bytes = 32 };
    const int32_t           storage[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    const rsd_read_opts     opts = { .size = sizeof(opts), .verify = RSD_ALWAYS };
    rsd_store              *store = fix_store();
    rsd_ckpt               *ckpt = open_tensor(store, &facts, storage);
    int32_t                 out[2];
    rsd_view                view = { .box = fix_box1(0, 2), .data = out };
    int64_t                 stride[1];
    uint64_t                at;
    rsd_err                 rc;

    (void)state;
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, &opts, NULL), RSD_OK);
    assert_true(out[0] == 3 && out[1] == 4);
    assert_int_equal(rsd_ckpt_extent(ckpt, 0, 0, &at, stride, NULL), RSD_OK);
    fix_flip(store, "x.pt", at); /* an element that is wanted */
    rc = rsd_ckpt_read(ckpt, 0, &view, &opts, NULL);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    assert_int_equal(rc, RSD_E_CORRUPT);
}

/* torch.arange(4)[:2].expand(2, 2): four elements of a storage of four, but not all of it. */
static void an_expanded_tensor_is_read(void **state)
{
    const int32_t     storage[] = { 10, 11, 12, 13 };
    rsi_tensor_pickle facts = {
        .dtype = RSD_I32, .ndim = 2, .size = { 2, 2 }, .stride = { 0, 1 }, .storage_bytes = 16
    };
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt = open_tensor(store, &facts, storage);
    int32_t    out[4] = { 0 };
    rsd_view   view = { .box = fix_box2(0, 0, 2, 2), .data = out };
    rsd_error  err = { 0 };

    (void)state;
    if (rsd_ckpt_read(ckpt, 0, &view, NULL, &err))
        fail_msg("%s", err.msg);
    assert_true(out[0] == 10 && out[1] == 11 && out[2] == 10 && out[3] == 11);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* torch.arange(n + m - 1).unfold(0, m, 1): far more elements than the storage has. */
static void overlapping_windows_are_read(void **state)
{
    enum { N = 1500 };
    rsi_tensor_pickle facts = { .dtype = RSD_I32,
                                .ndim = 2,
                                .size = { N, N },
                                .stride = { 1, 1 },
                                .storage_bytes = 4 * (2 * N - 1) };
    int32_t          *storage = calloc(2 * N, 4), *out = calloc(N * N, 4);
    rsd_store        *store = fix_store();
    rsd_view          view = { .box = fix_box2(0, 0, N, N), .data = out };
    rsd_ckpt         *ckpt;

    (void)state;
    assert_true(storage && out);
    for (int32_t i = 0; i < 2 * N; i++)
        storage[i] = i;
    ckpt = open_tensor(store, &facts, storage);
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, NULL, NULL), RSD_OK);
    for (int32_t i = 0; i < N * N; i++)
        if (out[i] != i / N + i % N)
            fail_msg("element %d is %d", i, out[i]);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    free(storage);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_record_is_noticed_when_it_is_read_whole),
        cmocka_unit_test(damage_is_not_noticed_when_nobody_wants_to_know),
        cmocka_unit_test(damage_beside_a_part_is_noticed_only_when_always_asked_for),
        cmocka_unit_test(damage_in_a_larger_storage_is_noticed_when_always_asked_for),
        cmocka_unit_test(overlapping_windows_are_read),
        cmocka_unit_test(an_expanded_tensor_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
