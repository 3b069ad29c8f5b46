/* SPDX-License-Identifier: Apache-2.0 */
/* test_write_files.c - the bytes of an image in its files: whoever writes them, from wherever they
 * are.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "ckpt_walk.h"
#include "write/write_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rsi_image_spec dcp = { .format = RSD_FORMAT_DCP };
static int32_t              data[64];
static uint64_t             bytes;

/* "x" of [8] in rows on two ranks. */
static rsd_state *make(void)
{
    const int64_t eight[] = { 8 };
    rsd_state    *made;

    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    fix_add_ramp(made, "x", fix_layout("mesh tp=2; * shard(0)@tp", RSD_I32, 1, eight), 1, eight,
                 data);
    return made;
}

static void ranks_write_their_own_files(void **state)
{
    rsd_store           *store = fix_store();
    const rsi_write_opts opts = { .sync = true, .threads = 1, .top = "ck" };
    rsd_state           *made = make();
    rsi_image            image;

    (void)state;
    assert_int_equal(rsi_store_make_folder(store, "ck", NULL), RSD_OK);
    assert_int_equal(rsi_image_make(&image, made, &dcp, NULL), RSD_OK);
    assert_int_equal(rsi_write_files(&image, made, 1, store, &opts, NULL), RSD_OK);
    assert_string_equal(fix_list(store, "ck"), "__1_0.distcp");
    assert_int_equal(rsi_write_files(&image, made, 7, store, &opts, NULL), RSD_OK);
    assert_string_equal(fix_list(store, "ck"), "__1_0.distcp");
    assert_int_equal(rsi_write_files(&image, made, 0, store, &opts, NULL), RSD_OK);
    assert_string_equal(fix_list(store, "ck"), "__0_0.distcp __1_0.distcp");
    assert_int_equal(rsi_write_metadata(&image, store, &opts, &bytes, NULL), RSD_OK);
    assert_string_equal(fix_list(store, "ck"), ".metadata __0_0.distcp __1_0.distcp");
    rsi_image_release(&image);
    rsd_state_free(made);
    rsd_store_close(store);
}

static void files_have_the_size_that_the_image_says(void **state)
{
    rsd_store           *store = fix_store();
    const rsi_write_opts opts = { .threads = 1, .top = "ck" };
    rsd_state           *made = make();
    rsi_image            image;
    uint64_t             size;

    (void)state;
    assert_int_equal(rsi_store_make_folder(store, "ck", NULL), RSD_OK);
    assert_int_equal(rsi_image_make(&image, made, &dcp, NULL), RSD_OK);
    assert_int_equal(rsi_write_files(&image, made, -1, store, &opts, NULL), RSD_OK);
    assert_int_equal(rsi_store_file_size(store, "ck/__0_0.distcp", &size, NULL), RSD_OK);
    assert_int_equal(size, image.file[0].bytes);
    assert_int_equal(image.meta->row[0].offset, 0);
    assert_int_equal(image.meta->row[0].length, size);
    assert_int_equal(image.meta->row[1].file, 1);
    rsi_image_release(&image);
    rsd_state_free(made);
    rsd_store_close(store);
}

static void formats_without_metadata_write_none(void **state)
{
    const rsi_image_spec spec = { .format = RSD_FORMAT_SAFETENSORS };
    rsd_store           *store = fix_store();
    const rsi_write_opts opts = { .threads = 1, .top = "ck" };
    rsd_state           *made = make();
    rsi_image            image;

    (void)state;
    assert_int_equal(rsi_store_make_folder(store, "ck", NULL), RSD_OK);
    assert_int_equal(rsi_image_make(&image, made, &spec, NULL), RSD_OK);
    assert_int_equal(rsi_write_files(&image, made, -1, store, &opts, NULL), RSD_OK);
    assert_int_equal(rsi_write_metadata(&image, store, &opts, &bytes, NULL), RSD_OK);
    assert_string_equal(fix_list(store, "ck"), "model.safetensors");
    rsi_image_release(&image);
    rsd_state_free(made);
    rsd_store_close(store);
}

/* A file that is there is not written over. */
static void a_file_that_is_there_is_refused(void **state)
{
    rsd_store           *store = fix_store();
    const rsi_write_opts opts = { .threads = 1, .top = "ck" };
    rsd_state           *made = make();
    rsi_image            image;

    (void)state;
    fix_put_text(store, "ck/__1_0.distcp", "old");
    assert_int_equal(rsi_image_make(&image, made, &dcp, NULL), RSD_OK);
    assert_int_equal(rsi_write_files(&image, made, -1, store, &opts, NULL), RSD_E_EXISTS);
    rsi_image_release(&image);
    rsd_state_free(made);
    rsd_store_close(store);
}

/* ---- large tensors: several blocks, some of them not packed in memory ---- */

enum { ROWS = 700, COLS = 2048 }; /* 5.6 MB: more than a buffer */

static rsd_err lend(void *arg, uint64_t off, void *host, size_t len)
{
    memcpy(host, (const char *)arg + off, len);
    return RSD_OK;
}

/* Saves [ROWS, COLS] from three views and reads it back. */
static void assert_round_trip(const rsd_view *views, size_t n, const char *path,
                              const char *transform)
{
    const int64_t       shape[] = { ROWS, COLS };
    rsd_store          *store = fix_store();
    const rsd_save_opts opts = {
        .size = sizeof(opts), .store = store, .threads = 1, .transform = transform
    };
    const rsd_read_opts always = { .size = sizeof(always), .verify = RSD_ALWAYS };
    int32_t            *back = calloc((size_t)ROWS * COLS, sizeof(back[0]));
    rsd_view            whole = fix_whole(2, shape, back);
    rsd_state          *made;
    rsd_ckpt           *ckpt;

    assert_non_null(back);
    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(made, "x", NULL, RSD_I32, 2, shape, n, views, NULL), RSD_OK);
    assert_int_equal(rsd_save(path, NULL, made, &opts, NULL), RSD_OK);
    rsd_state_free(made);
    ckpt = fix_open(store, path);
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &whole, &always, NULL), RSD_OK);
    for (int32_t i = 0; i < ROWS * COLS; i++)
        if (back[i] != i)
            fail_msg("element %d is %d", i, back[i]);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    free(back);
}

static void large_tensors_are_written_from_any_mix_of_views(void **state)
{
    int32_t *packed = calloc((size_t)ROWS * COLS, sizeof(packed[0]));
    int32_t *turned = calloc((size_t)ROWS * COLS, sizeof(turned[0]));

    (void)state;
    assert_non_null(packed);
    assert_non_null(turned);
    for (int32_t i = 0; i < ROWS * COLS; i++) {
        packed[i] = i;
        turned[i % COLS * ROWS + i / COLS] = i;
    }
    {
        const rsd_view one[] = { { .box = fix_box2(0, 0, ROWS, COLS), .data = packed } };
        const rsd_view across[] = {
            { .box = fix_box2(0, 0, ROWS, COLS), .data = turned, .stride = { 4, 4 * ROWS } }
        };
        const rsd_view mix[] = {
            { .box = fix_box2(0, 0, 300, COLS), .get = lend, .arg = packed },
            { .box = fix_box2(300, 0, 400, 100), .data = turned + 300, .stride = { 4, 4 * ROWS } },
            { .box = fix_box2(300, 100, 400, COLS - 100),
              .data = packed + 300 * COLS + 100,
              .stride = { 4 * COLS, 4 } },
        };

        assert_round_trip(one, 1, "ck", NULL);
        assert_round_trip(across, 1, "ck.safetensors", NULL);
        assert_round_trip(mix, 3, "ck", NULL);
        assert_round_trip(mix, 3, "ck.pt", NULL);
        assert_round_trip(mix, 3, "ck", "stream.zstd");
    }
    free(packed);
    free(turned);
}

/* ---- blocks: the same bytes and checksums whoever makes them ---- */

enum {
    SMALL = 1500,
    SMALL_LEN = 1001
}; /* items that lie across the ends of blocks: 6 MB of them */

static uint32_t sum_with(rsd_state *made, const char *path, rsd_format format, int32_t threads,
                         size_t staging)
{
    rsd_store          *store = fix_store();
    const rsd_save_opts opts = { .size = sizeof(opts),
                                 .store = store,
                                 .format = format,
                                 .threads = threads,
                                 .max_memory = staging };
    ckpt_walk           walk;
    uint32_t            sum;

    assert_int_equal(rsd_save(path, NULL, made, &opts, NULL), RSD_OK);
    ckpt_walk_run(store, path, INT64_MAX, &walk);
    assert_false(ckpt_walk_noticed(&walk)); /* also: every CRC32 is right */
    sum = fix_sum(store, strchr(path, '.') ? "" : path);
    rsd_store_close(store);
    return sum;
}

static void any_threads_and_buffers_give_the_same_files_and_checksums(void **state)
{
    static const char *const path[] = { "ck", "ck.pt", "ck.safetensors" };
    const int64_t            small[] = { SMALL_LEN }, large[] = { ROWS, COLS };
    int32_t                 *mem = calloc((size_t)ROWS * COLS, sizeof(mem[0]));
    rsd_state               *made;

    (void)state;
    assert_non_null(mem);
    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    for (int i = 0; i < SMALL; i++) {
        char     name[16];
        rsd_view view = fix_whole(1, small, mem + i);

        snprintf(name, sizeof(name), "s%d", i);
        assert_int_equal(rsd_state_tensor(made, name, NULL, RSD_I32, 1, small, 1, &view, NULL),
                         RSD_OK);
    }
    fix_add_ramp(made, "large", NULL, 2, large, mem);
    for (size_t p = 0; p < 3; p++) {
        uint32_t first = sum_with(made, path[p], RSD_FORMAT_AUTO, 1, 0);

        assert_int_equal(sum_with(made, path[p], RSD_FORMAT_AUTO, 4, 0), first);
        assert_int_equal(sum_with(made, path[p], RSD_FORMAT_AUTO, 4, 1), first);
        assert_int_equal(sum_with(made, path[p], RSD_FORMAT_AUTO, 3, (size_t)20 << 20), first);
    }
    rsd_state_free(made);
    free(mem);
}

/* ---- progress ---- */

typedef struct watch {
    int     calls, stop_at;
    int64_t last, total;
} watch;

static int watching(void *arg, int64_t done, int64_t total)
{
    watch *w = arg;

    w->calls++;
    assert_true(done > w->last && done <= total);
    w->last = done;
    w->total = total;
    return w->calls == w->stop_at;
}

static void progress_counts_the_bytes_of_tensors(void **state)
{
    watch                w = { 0 };
    rsd_store           *store = fix_store();
    const rsi_write_opts opts = { .threads = 1, .top = "ck", .on_progress = watching, .arg = &w };
    rsd_state           *made = make();
    rsi_image            image;

    (void)state;
    assert_int_equal(rsi_store_make_folder(store, "ck", NULL), RSD_OK);
    assert_int_equal(rsi_image_make(&image, made, &dcp, NULL), RSD_OK);
    assert_int_equal(rsi_write_files(&image, made, -1, store, &opts, NULL), RSD_OK);
    assert_int_equal(w.last, 32);
    assert_int_equal(w.total, 32);
    assert_int_equal(w.calls, 2);
    rsi_image_release(&image);
    rsd_state_free(made);
    rsd_store_close(store);
}

/* What a rank writes itself is its whole work. */
static void progress_of_one_rank_ends_at_its_total(void **state)
{
    watch                w = { 0 };
    rsd_store           *store = fix_store();
    const rsi_write_opts opts = { .threads = 1, .top = "ck", .on_progress = watching, .arg = &w };
    rsd_state           *made = make();
    rsi_image            image;

    (void)state;
    assert_int_equal(rsi_store_make_folder(store, "ck", NULL), RSD_OK);
    assert_int_equal(rsi_image_make(&image, made, &dcp, NULL), RSD_OK);
    assert_int_equal(rsi_write_files(&image, made, 1, store, &opts, NULL), RSD_OK);
    rsi_image_release(&image);
    rsd_state_free(made);
    rsd_store_close(store);
    assert_int_equal(w.last, 16);
    assert_int_equal(w.total, 16);
}

static void a_canceled_flush_says_so(void **state)
{
    watch                w = { .stop_at = 1 };
    rsd_store           *store = fix_store();
    const rsi_write_opts opts = { .threads = 1, .top = "ck", .on_progress = watching, .arg = &w };
    rsd_state           *made = make();
    rsi_image            image;
    rsd_error            err;

    (void)state;
    assert_int_equal(rsi_store_make_folder(store, "ck", NULL), RSD_OK);
    assert_int_equal(rsi_image_make(&image, made, &dcp, NULL), RSD_OK);
    assert_int_equal(rsi_write_files(&image, made, -1, store, &opts, &err), RSD_E_CANCELED);
    assert_string_equal(err.msg, "canceled by the caller");
    assert_int_equal(w.calls, 1);
    rsi_image_release(&image);
    rsd_state_free(made);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_write_their_own_files),
        cmocka_unit_test(files_have_the_size_that_the_image_says),
        cmocka_unit_test(formats_without_metadata_write_none),
        cmocka_unit_test(a_file_that_is_there_is_refused),
        cmocka_unit_test(large_tensors_are_written_from_any_mix_of_views),
        cmocka_unit_test(any_threads_and_buffers_give_the_same_files_and_checksums),
        cmocka_unit_test(progress_counts_the_bytes_of_tensors),
        cmocka_unit_test(progress_of_one_rank_ends_at_its_total),
        cmocka_unit_test(a_canceled_flush_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
