/* SPDX-License-Identifier: Apache-2.0 */
/* test_check_sums.c - readers compare what they read with the checksum file: what they read whole
 * by default, all that they touch when told to, nothing when told not to. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "ckpt_sample.h"
#include "format/sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 1280, COLUMNS = 2048, LINE = 4 * COLUMNS }; /* rows are 512 lines, the last 256 */

static rsd_store *sealed(ckpt_sample which)
{
    rsd_store *store = fix_store();
    rsd_error  err;

    if (ckpt_sample_save(store, which, &err) ||
        rsd_ckpt_add_checksums(store, ckpt_sample_path(which), NULL, &err))
        fail_msg("%s", err.msg);
    return store;
}

/* "a" of [1280, 2048] int32 that are their own index. */
static rsd_store *save_large(const char *path)
{
    const int64_t       shape[] = { LINES, COLUMNS };
    rsd_store          *store = fix_store();
    const rsd_save_opts opts = {
        .size = sizeof(opts), .checksum = RSD_NEVER, .store = store, .threads = 1
    };
    int32_t   *data = malloc((size_t)LINES * LINE);
    rsd_state *state;

    assert_non_null(data);
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    fix_add_ramp(state, "a", NULL, 2, shape, data);
    assert_int_equal(rsd_save(path, NULL, state, &opts, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_add_checksums(store, path, NULL, NULL), RSD_OK);
    rsd_state_free(state);
    free(data);
    return store;
}

/* Reads a box of tensor t; what comes is right if nothing failed. */
static rsd_err read_box(rsd_ckpt *ckpt, rsd_box box, rsd_choice verify, rsd_error *err)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .verify = verify, .threads = 2 };
    int32_t            *data = malloc(4 * (size_t)rsd_box_count(&box));
    const rsd_view      view = { .box = box, .data = data };
    rsd_err             rc;

    assert_non_null(data);
    rc = rsd_ckpt_read(ckpt, 0, &view, &opts, err);
    if (!rc)
        assert_int_equal(data[0], box.off[0] * COLUMNS + box.off[1]);
    free(data);
    return rc;
}

static rsd_err read_lines(rsd_ckpt *ckpt, int64_t first, int64_t n, rsd_choice verify,
                          rsd_error *err)
{
    return read_box(ckpt, fix_box2(first, 0, n, COLUMNS), verify, err);
}

static uint64_t start_of(rsd_ckpt *ckpt)
{
    int64_t  stride[RSD_MAX_NDIM];
    uint64_t at;

    assert_int_equal(rsd_ckpt_extent(ckpt, 0, 0, &at, stride, NULL), RSD_OK);
    return at;
}

/* ---- rows ---- */

/* The message names the row of "x.safetensors" that begins at byte `at`. */
static void assert_row_named(const rsd_error *err, uint64_t at)
{
    char want[128];

    snprintf(want, sizeof(want),
             "tensor \"a\": file \"x.safetensors\": checksum mismatch in bytes %lu-%lu",
             (unsigned long)at, (unsigned long)(at + RSI_SUM_ROW_BYTES - 1));
    assert_non_null(strstr(err->msg, want));
}

static void whole_rows_are_compared_by_default(void **state)
{
    rsd_store *store = save_large("x.safetensors");
    rsd_ckpt  *ckpt = fix_open(store, "x.safetensors");
    rsd_error  err;

    (void)state;
    assert_int_equal(read_lines(ckpt, 0, LINES, RSD_DEFAULT, &err), RSD_OK);
    fix_flip(store, "x.safetensors", start_of(ckpt) + 600 * LINE + 7);
    assert_int_equal(read_lines(ckpt, 0, LINES, RSD_DEFAULT, &err), RSD_E_CORRUPT);
    assert_row_named(&err, start_of(ckpt) + 600 * LINE / RSI_SUM_ROW_BYTES * RSI_SUM_ROW_BYTES);
    assert_int_equal(read_lines(ckpt, 0, LINES, RSD_NEVER, NULL), RSD_OK);
    assert_int_equal(read_lines(ckpt, 100, 1000, RSD_DEFAULT, NULL), RSD_E_CORRUPT);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void parts_of_rows_are_compared_when_told_to(void **state)
{
    rsd_store *store = save_large("x.safetensors");
    rsd_ckpt  *ckpt = fix_open(store, "x.safetensors");
    rsd_error  err;

    (void)state;
    fix_flip(store, "x.safetensors", start_of(ckpt) + 5);
    assert_int_equal(read_lines(ckpt, 100, 500, RSD_DEFAULT, NULL), RSD_OK); /* not line 0 */
    assert_int_equal(read_lines(ckpt, 100, 500, RSD_ALWAYS, &err), RSD_E_CORRUPT);
    assert_row_named(&err, start_of(ckpt));
    assert_int_equal(read_lines(ckpt, 512, 700, RSD_ALWAYS, NULL), RSD_OK); /* not its row */
    assert_int_equal(read_box(ckpt, fix_box2(0, 50, LINES, 3), RSD_ALWAYS, NULL), RSD_E_CORRUPT);
    assert_int_equal(read_box(ckpt, fix_box2(600, 50, 300, 3), RSD_ALWAYS, NULL), RSD_OK);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* The elements of DCP have a CRC32; a part of them has not. */
static void parts_of_a_dcp_item_are_compared_row_by_row(void **state)
{
    rsd_store *store = save_large("ck");
    rsd_ckpt  *ckpt = fix_open(store, "ck");
    rsd_error  err;

    (void)state;
    assert_int_equal(read_lines(ckpt, 10, 1200, RSD_DEFAULT, &err), RSD_OK);
    assert_int_equal(read_lines(ckpt, 10, 1200, RSD_ALWAYS, &err), RSD_OK);
    fix_flip(store, "ck/__0_0.distcp", start_of(ckpt) + 600 * LINE + 7);
    assert_int_equal(read_lines(ckpt, 10, 1200, RSD_DEFAULT, &err), RSD_E_CORRUPT);
    assert_non_null(strstr(err.msg, "checksum mismatch in bytes 4194304-8388607"));
    assert_int_equal(read_lines(ckpt, 0, LINES, RSD_DEFAULT, &err), RSD_E_CORRUPT);
    assert_non_null(strstr(err.msg, "CRC32"));
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void nothing_is_read_twice_by_default(void **state)
{
    rsd_store *inner = save_large("x.safetensors"), *store;
    fix_counts counts = { 0 };
    rsd_ckpt  *ckpt;

    (void)state;
    store = fix_counting_store(inner, &counts);
    ckpt = fix_open(store, "x.safetensors");
    assert_int_equal(read_lines(ckpt, 0, 1, RSD_DEFAULT, NULL), RSD_OK); /* the checksum file */
    counts = (fix_counts){ 0 };
    assert_int_equal(read_lines(ckpt, 0, LINES, RSD_DEFAULT, NULL), RSD_OK);
    assert_int_equal(counts.bytes, (uint64_t)LINES * LINE);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    rsd_store_close(inner);
}

/* ---- all of small checkpoints ---- */

static rsd_err read_all(rsd_store *store, const char *path, rsd_choice verify)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .verify = verify, .threads = 1 };
    rsd_ckpt           *ckpt;
    rsd_err             rc = rsd_ckpt_open(store, path, &ckpt, NULL);

    if (rc)
        return rc;
    for (size_t t = 0; t < rsd_ckpt_tensors(ckpt) && !rc; t++) {
        char            data[256];
        rsd_tensor_info info = { .size = sizeof(info) };
        rsd_view        view = { .data = data };

        assert_int_equal(rsd_ckpt_tensor(ckpt, t, &info, NULL), RSD_OK);
        if (info.bytes > (int64_t)sizeof(data))
            rc = RSD_E_MISMATCH; /* the flip changed its shape */
        view.box.ndim = info.ndim;
        memcpy(view.box.len, info.shape, sizeof(view.box.len));
        if (!rc)
            rc = rsd_ckpt_read(ckpt, t, &view, &opts, NULL);
    }
    rsd_ckpt_close(ckpt);
    return rc;
}

static void no_flipped_byte_of_safetensors_gets_through(void **state)
{
    rsd_store *store = sealed(SAMPLE_SAFETENSORS);
    uint64_t   size;

    (void)state;
    assert_int_equal(rsi_store_file_size(store, "ck.safetensors", &size, NULL), RSD_OK);
    assert_int_equal(read_all(store, "ck.safetensors", RSD_DEFAULT), RSD_OK);
    for (uint64_t at = 0; at < size; at++) {
        fix_flip(store, "ck.safetensors", at);
        assert_int_not_equal(read_all(store, "ck.safetensors", RSD_DEFAULT), RSD_OK);
        fix_flip(store, "ck.safetensors", at);
    }
    rsd_store_close(store);
}

/* Also headers and padding of items: each row that a byte is read of. Objects are not read here. */
static void no_flipped_byte_of_a_tensor_item_gets_through_when_told_to(void **state)
{
    rsd_store *store = sealed(SAMPLE_DCP);
    rsd_ckpt  *ckpt = fix_open(store, "ck");
    rsd_chunk  chunk = { .size = sizeof(chunk) };

    (void)state;
    assert_int_equal(read_all(store, "ck", RSD_ALWAYS), RSD_OK);
    assert_int_equal(rsd_ckpt_chunk(ckpt, 0, 0, &chunk, NULL), RSD_OK);
    rsd_ckpt_close(ckpt);
    for (uint64_t at = chunk.offset; at < chunk.offset + chunk.length; at++) {
        fix_flip(store, "ck/__0_0.distcp", at);
        assert_int_not_equal(read_all(store, "ck", RSD_ALWAYS), RSD_OK);
        fix_flip(store, "ck/__0_0.distcp", at);
    }
    rsd_store_close(store);
}

static void no_flipped_byte_of_the_metadata_gets_through(void **state)
{
    rsd_store *store = sealed(SAMPLE_DCP);
    uint64_t   size;
    size_t     slipped = 0;

    (void)state;
    assert_int_equal(rsi_store_file_size(store, "ck/.metadata", &size, NULL), RSD_OK);
    for (uint64_t at = 0; at < size; at++) {
        fix_flip(store, "ck/.metadata", at);
        assert_int_not_equal(read_all(store, "ck", RSD_DEFAULT), RSD_OK);
        slipped += read_all(store, "ck", RSD_NEVER) == RSD_OK;
        fix_flip(store, "ck/.metadata", at);
    }
    assert_true(slipped > 0); /* so it was the checksum file that found them */
    rsd_store_close(store);
}

/* ---- side files that are of no use ---- */

static void a_damaged_side_file_matters_only_when_told_to(void **state)
{
    rsd_store *store = sealed(SAMPLE_DCP);

    (void)state;
    fix_flip(store, "ck/" RSI_SUMS_NAME, 40);
    assert_int_equal(read_all(store, "ck", RSD_DEFAULT), RSD_OK);
    assert_int_equal(read_all(store, "ck", RSD_NEVER), RSD_OK);
    assert_int_equal(read_all(store, "ck", RSD_ALWAYS), RSD_E_CORRUPT);
    rsd_store_close(store);
}

static void a_folder_in_place_of_the_side_file_matters_only_when_told_to(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    assert_int_equal(ckpt_sample_save(store, SAMPLE_DCP, NULL), RSD_OK);
    assert_int_equal(rsi_store_make_folder(store, "ck/" RSI_SUMS_NAME, NULL), RSD_OK);
    assert_int_equal(read_all(store, "ck", RSD_DEFAULT), RSD_OK);
    assert_int_not_equal(read_all(store, "ck", RSD_ALWAYS), RSD_OK);
    rsd_store_close(store);
}

static void the_side_file_of_another_file_stops_a_reader(void **state)
{
    rsd_store *store = sealed(SAMPLE_SAFETENSORS), *other = save_large("x.safetensors");
    rsd_ckpt  *ckpt;
    rsd_view   view = { .box = { .ndim = 2, .len = { 1, 1 } } };
    char       data[8];
    rsd_error  err;
    size_t     len;
    void      *bytes = fix_get(other, "x.safetensors" RSI_SUMS_NAME, &len);

    (void)state;
    rsi_store_remove(store, "ck.safetensors" RSI_SUMS_NAME, NULL);
    fix_put(store, "ck.safetensors" RSI_SUMS_NAME, bytes, len);
    ckpt = fix_open(store, "ck.safetensors");
    view.data = data;
    assert_int_equal(rsd_ckpt_find(ckpt, "weight", &len, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_read(ckpt, len, &view, NULL, &err), RSD_E_CORRUPT);
    assert_non_null(strstr(err.msg, "belongs to another file"));
    rsd_ckpt_close(ckpt);
    free(bytes);
    rsd_store_close(store);
    rsd_store_close(other);
}

static void both_files_may_get_another_name(void **state)
{
    rsd_store *store = sealed(SAMPLE_SAFETENSORS);
    size_t     len;
    void      *bytes = fix_get(store, "ck.safetensors", &len);

    (void)state;
    fix_put(store, "new.safetensors", bytes, len);
    free(bytes);
    bytes = fix_get(store, "ck.safetensors" RSI_SUMS_NAME, &len);
    fix_put(store, "new.safetensors" RSI_SUMS_NAME, bytes, len);
    free(bytes);
    assert_int_equal(read_all(store, "new.safetensors", RSD_ALWAYS), RSD_OK);
    rsd_store_close(store);
}

/* ---- machines ---- */

static rsd_err read_twice(void *arg, rsd_error *err)
{
    const rsd_read_opts always = { .size = sizeof(always), .verify = RSD_ALWAYS, .threads = 1 };
    const rsd_read_opts usual = { .size = sizeof(usual), .threads = 1 };
    char                data[256];
    rsd_view            view = { .box = { .ndim = 2, .len = { 4, 3 } }, .data = data };
    rsd_ckpt           *ckpt = NULL;
    size_t              t;
    rsd_err             rc = rsd_ckpt_open(arg, "ck.safetensors", &ckpt, err);

    if (!rc)
        rc = rsd_ckpt_find(ckpt, "weight", &t, err);
    if (!rc)
        rc = rsd_ckpt_read(ckpt, t, &view, &usual, err);
    view.box.len[1] = 2;
    if (!rc)
        rc = rsd_ckpt_read(ckpt, t, &view, &always, err);
    rsd_ckpt_close(ckpt);
    return rc;
}

static void reading_without_memory_fails_cleanly(void **state)
{
    rsd_store *store = sealed(SAMPLE_SAFETENSORS);

    (void)state;
    fix_every_allocation(read_twice, NULL, store);
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void without_xxhash_a_side_file_matters_only_when_told_to(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    assert_int_equal(ckpt_sample_save(store, SAMPLE_DCP, NULL), RSD_OK);
    fix_put_text(store, "ck/" RSI_SUMS_NAME, "reshard sums 1\n");
    assert_int_equal(read_all(store, "ck", RSD_DEFAULT), RSD_OK);
    assert_int_equal(read_all(store, "ck", RSD_ALWAYS), RSD_E_UNSUPPORTED);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_rows_are_compared_by_default),
        cmocka_unit_test(parts_of_rows_are_compared_when_told_to),
        cmocka_unit_test(parts_of_a_dcp_item_are_compared_row_by_row),
        cmocka_unit_test(nothing_is_read_twice_by_default),
        cmocka_unit_test(no_flipped_byte_of_safetensors_gets_through),
        cmocka_unit_test(no_flipped_byte_of_a_tensor_item_gets_through_when_told_to),
        cmocka_unit_test(no_flipped_byte_of_the_metadata_gets_through),
        cmocka_unit_test(a_damaged_side_file_matters_only_when_told_to),
        cmocka_unit_test(a_folder_in_place_of_the_side_file_matters_only_when_told_to),
        cmocka_unit_test(the_side_file_of_another_file_stops_a_reader),
        cmocka_unit_test(both_files_may_get_another_name),
        cmocka_unit_test(reading_without_memory_fails_cleanly),
    };
    const struct CMUnitTest without[] = {
        cmocka_unit_test(without_xxhash_a_side_file_matters_only_when_told_to),
    };

    if (!rsi_sums_available())
        return cmocka_run_group_tests_name("without xxHash", without, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
