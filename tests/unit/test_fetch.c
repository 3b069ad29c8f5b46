/* SPDX-License-Identifier: Apache-2.0 */
/* test_fetch.c - any part of a tensor, read out of each format into any kind of memory, is what a
 * loop over single elements gives; and no more of the file is read than is needed. Checksums and
 * tensors that share elements are test_fetch_records.c's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "read/fetch.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, COLS = 8 };

/* ---- a tensor of [6, 8] whose elements are their own index, in each format ---- */

/* Puts one chunk as an item behind what `file` has; element (i, j) of the chunk is element
 * offset + i * stride[0] + j * stride[1] of a storage of `elems`. */
static void put_chunk(fix_bytes *file, rsi_dcp_row *row, const rsd_box *box, int64_t s0, int64_t s1,
                      int64_t offset, int64_t elems)
{
    rsi_tensor_pickle facts = { .dtype = RSD_I32,
                                .ndim = 2,
                                .size = { box->len[0], box->len[1] },
                                .stride = { s0, s1 },
                                .offset = offset,
                                .storage_bytes = 4 * elems };
    int32_t           storage[64];
    fix_bytes         item;

    for (size_t i = 0; i < 64; i++)
        storage[i] = -1;
    for (int64_t i = 0; i < box->len[0]; i++)
        for (int64_t j = 0; j < box->len[1]; j++)
            storage[offset + i * s0 + j * s1] =
                (int32_t)((box->off[0] + i) * COLS + box->off[1] + j);
    item = fix_tensor_item(&facts, storage);
    row->offset = (int64_t)file->len;
    row->length = (int64_t)item.len;
    file->at = realloc(file->at, file->len + item.len);
    assert_non_null(file->at);
    memcpy(file->at + file->len, item.at, item.len);
    file->len += item.len;
    free(item.at);
}

/* "ck": three chunks in two files; the second is transposed inside a larger storage, the third
 * begins in the middle of its own and has gaps between its rows. */
static void put_dcp(rsd_store *store)
{
    static const int64_t shape[] = { ROWS, COLS };
    static const rsd_box box[] = { { .ndim = 2, .off = { 0, 0 }, .len = { 3, 5 } },
                                   { .ndim = 2, .off = { 0, 5 }, .len = { 3, 3 } },
                                   { .ndim = 2, .off = { 3, 0 }, .len = { 3, 8 } } };
    const char          *file[] = { "__0_0.distcp", "__1_0.distcp" };
    int64_t              boxes[12];
    fix_bytes            first = { 0 }, second = { 0 };
    rsi_dcp_row          row[3] = { { .file = 0, .transforms = RSI_DCP_NO_TRANSFORMS },
                                    { .file = 0, .transforms = RSI_DCP_NO_TRANSFORMS },
                                    { .file = 1, .transforms = RSI_DCP_NO_TRANSFORMS } };
    rsi_dcp_tensor x = { .name = "x", .shape = shape, .nchunks = 3, .dtype = RSD_I32, .ndim = 2 };
    rsi_dcp_meta   meta = { .tensor = &x,
                            .ntensors = 1,
                            .box = boxes,
                            .row = row,
                            .nchunks = 3,
                            .file = file,
                            .nfiles = 2 };

    for (size_t i = 0; i < 3; i++)
        for (size_t d = 0; d < 2; d++) {
            boxes[4 * i + d] = box[i].off[d];
            boxes[4 * i + 2 + d] = box[i].len[d];
        }
    put_chunk(&first, &row[0], &box[0], 5, 1, 0, 15);
    put_chunk(&first, &row[1], &box[1], 1, 4, 2, 20);
    put_chunk(&second, &row[2], &box[2], 10, 1, 5, 40);
    fix_put(store, "ck/__0_0.distcp", first.at, first.len);
    fix_put(store, "ck/__1_0.distcp", second.at, second.len);
    fix_put_metadata(store, "ck/.metadata", &meta);
    free(first.at);
    free(second.at);
}

static void save_ramp(rsd_store *store, const char *path, const char *transform)
{
    const int64_t       shape[] = { ROWS, COLS };
    const rsd_save_opts opts = { .size = sizeof(opts),
                                 .checksum = RSD_NEVER,
                                 .store = store,
                                 .threads = 1,
                                 .transform = transform };
    int32_t             data[ROWS * COLS];
    rsd_state          *state;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    fix_add_ramp(state, "x", NULL, 2, shape, data);
    assert_int_equal(rsd_save(path, NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
}

/* ---- every slice ---- */

typedef struct taker {
    int32_t packed[ROWS * COLS];
    size_t  bytes;
    rsd_err rc;
} taker;

static rsd_err take(void *arg, uint64_t off, const void *host, size_t len)
{
    taker *t = arg;

    if (t->rc)
        return t->rc;
    assert_true(off + len <= sizeof(t->packed));
    memcpy((char *)t->packed + off, host, len);
    t->bytes += len;
    return RSD_OK;
}

/* Reads box into memory with these element strides; all of it lies within `room`. */
static void assert_strided(rsd_ckpt *ckpt, const rsd_box *box, int64_t s0, int64_t s1)
{
    int32_t        room[1024];
    int32_t       *first = room + 512;
    const rsd_view view = { .box = *box, .data = first, .stride = { 4 * s0, 4 * s1 } };
    size_t         touched = 0;

    for (size_t i = 0; i < 1024; i++)
        room[i] = -7;
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, NULL, NULL), RSD_OK);
    for (int64_t i = 0; i < box->len[0]; i++)
        for (int64_t j = 0; j < box->len[1]; j++)
            assert_int_equal(first[i * s0 + j * s1], (box->off[0] + i) * COLS + box->off[1] + j);
    for (size_t i = 0; i < 1024; i++)
        touched += room[i] != -7;
    assert_int_equal(touched, rsd_box_count(box));
}

static void assert_packed(rsd_ckpt *ckpt, const rsd_box *box)
{
    int32_t  packed[ROWS * COLS];
    taker    t = { 0 };
    rsd_view view = { .box = *box, .data = packed };

    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, NULL, NULL), RSD_OK);
    view = (rsd_view){ .box = *box, .put = take, .arg = &t };
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, NULL, NULL), RSD_OK);
    assert_int_equal(t.bytes, 4 * rsd_box_count(box));
    for (int64_t i = 0; i < rsd_box_count(box); i++) {
        int64_t want = (box->off[0] + i / box->len[1]) * COLS + box->off[1] + i % box->len[1];

        assert_int_equal(packed[i], want);
        assert_int_equal(t.packed[i], want);
    }
}

static void assert_all_slices(rsd_store *store, const char *path)
{
    rsd_ckpt *ckpt = fix_open(store, path);

    for (int64_t i = 0; i < ROWS; i += 2)
        for (int64_t j = 0; j < COLS; j += 3)
            for (int64_t h = 1; i + h <= ROWS; h += 2)
                for (int64_t w = 1; j + w <= COLS; w += 2) {
                    rsd_box box = fix_box2(i, j, h, w);

                    assert_packed(ckpt, &box);
                    assert_strided(ckpt, &box, 20, 1);
                    assert_strided(ckpt, &box, 1, 11);
                    assert_strided(ckpt, &box, -23, 2);
                    assert_strided(ckpt, &box, 1, -9);
                }
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void slices_of_dcp_chunks_that_are_not_dense_are_right(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    put_dcp(store);
    assert_all_slices(store, "ck");
}

static void slices_of_transformed_dcp_items_are_right(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    save_ramp(store, "ck", "stream.zstd");
    assert_all_slices(store, "ck");
}

static void slices_of_safetensors_are_right(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    save_ramp(store, "x.safetensors", NULL);
    assert_all_slices(store, "x.safetensors");
}

static void slices_of_torch_save_are_right(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    save_ramp(store, "x.pt", NULL);
    assert_all_slices(store, "x.pt");
}

/* ---- how much is read ---- */

/* The element of a row-major tensor that is element i of its packed box. */
static int64_t nth_of(const rsd_box *box, const int64_t *shape, int64_t i)
{
    int64_t at = 0, step = 1;

    for (int d = box->ndim - 1; d >= 0; d--) {
        at += (box->off[d] + i % box->len[d]) * step;
        i /= box->len[d];
        step *= shape[d];
    }
    return at;
}

/* Bytes of data that reading `box` of an i32 tensor in safetensors takes. */
static uint64_t bytes_read(const int64_t *shape, const rsd_box *box, uint64_t *reads)
{
    rsd_store          *inner = fix_store(), *store;
    const rsd_save_opts opts = {
        .size = sizeof(opts), .checksum = RSD_NEVER, .store = inner, .threads = 1
    };
    const rsd_view whole = fix_whole(box->ndim, shape, NULL);
    int32_t       *data = calloc((size_t)rsd_box_count(&whole.box), sizeof(data[0]));
    fix_counts     counts = { 0 };
    rsd_view       view = { .box = *box, .data = data };
    rsd_state     *state;
    rsd_ckpt      *ckpt;

    assert_non_null(data);
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    fix_add_ramp(state, "x", NULL, box->ndim, shape, data);
    assert_int_equal(rsd_save("x.safetensors", NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
    store = fix_counting_store(inner, &counts);
    ckpt = fix_open(store, "x.safetensors");
    counts = (fix_counts){ 0 };
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, NULL, NULL), RSD_OK);
    for (int64_t i = 0; i < rsd_box_count(box); i++)
        assert_int_equal(data[i], nth_of(box, shape, i));
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    rsd_store_close(inner);
    free(data);
    *reads = counts.reads;
    return counts.bytes;
}

static void whole_rows_are_one_read(void **state)
{
    rsd_box  box = fix_box2(3, 0, 4, 100);
    uint64_t reads;

    (void)state;
    assert_int_equal(bytes_read((const int64_t[]){ 10, 100 }, &box, &reads), 1600);
    assert_int_equal(reads, 1);
}

static void columns_of_long_rows_are_read_run_by_run(void **state)
{
    rsd_box  box = fix_box2(0, 5, 10, 7);
    uint64_t reads;

    (void)state;
    assert_int_equal(bytes_read((const int64_t[]){ 10, 4096 }, &box, &reads), 10 * 7 * 4);
    assert_int_equal(reads, 10);
}

static void columns_of_short_rows_are_read_with_what_lies_between(void **state)
{
    rsd_box  box = fix_box2(0, 5, 10, 7);
    uint64_t reads;

    (void)state;
    assert_int_equal(bytes_read((const int64_t[]){ 10, 100 }, &box, &reads), 9 * 400 + 28);
    assert_int_equal(reads, 1);
}

/* Short gaps within each matrix, 256 KiB between the parts of one matrix and those of the next. */
static void gaps_that_are_far_are_not_read_for_those_that_are_near(void **state)
{
    const int64_t shape[] = { 8, 256, 256 }, zero[] = { 0, 0, 0 }, some[] = { 8, 2, 128 };
    rsd_box       box = fix_box3(zero, some); /* 8 KiB */
    uint64_t      reads;

    (void)state;
    assert_true(bytes_read(shape, &box, &reads) <= 8 * (1024 + 512));
}

static void chunks_that_are_not_wanted_are_not_touched(void **state)
{
    rsd_store *inner = fix_store(), *store;
    fix_counts counts = { 0 };
    rsd_view   view = { .box = fix_box2(3, 0, 3, 8) };
    int32_t    out[24];
    rsd_ckpt  *ckpt;

    (void)state;
    put_dcp(inner);
    fix_flip(inner, "ck/__0_0.distcp", 0); /* not even an archive any more */
    store = fix_counting_store(inner, &counts);
    ckpt = fix_open(store, "ck");
    view.data = out;
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, NULL, NULL), RSD_OK);
    assert_int_equal(out[23], 47);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    rsd_store_close(inner);
}

static void an_empty_box_reads_nothing(void **state)
{
    rsd_store *inner = fix_store(), *store;
    fix_counts counts = { 0 };
    int32_t    out = -7;
    rsd_view   view = { .box = fix_box2(3, 0, 0, 8), .data = &out };
    rsd_ckpt  *ckpt;

    (void)state;
    put_dcp(inner);
    store = fix_counting_store(inner, &counts);
    ckpt = fix_open(store, "ck");
    counts = (fix_counts){ 0 };
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, NULL, NULL), RSD_OK);
    assert_int_equal(out, -7);
    assert_int_equal(counts.reads, 0);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    rsd_store_close(inner);
}

/* ---- what is refused ---- */

static void assert_read_refused(rsd_ckpt *ckpt, const rsd_view *view, rsd_err code,
                                const char *text)
{
    rsd_error err = { 0 };

    assert_int_equal(rsd_ckpt_read(ckpt, 0, view, NULL, &err), code);
    if (!strstr(err.msg, text))
        fail_msg("\"%s\" has no \"%s\"", err.msg, text);
}

static void boxes_outside_the_tensor_are_refused(void **state)
{
    rsd_store *store = fix_store();
    int32_t    out[64];
    rsd_view   view = { .box = fix_box2(0, 1, 6, 8), .data = out };
    rsd_ckpt  *ckpt;

    (void)state;
    put_dcp(store);
    ckpt = fix_open(store, "ck");
    assert_read_refused(ckpt, &view, RSD_E_INVALID, "tensor \"x\"");
    view.box = fix_box2(-1, 0, 2, 2);
    assert_read_refused(ckpt, &view, RSD_E_INVALID, "tensor \"x\"");
    view.box = fix_box1(0, 6);
    assert_read_refused(ckpt, &view, RSD_E_INVALID, "tensor \"x\"");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_view_without_memory_and_put_is_refused(void **state)
{
    rsd_store *store = fix_store();
    rsd_view   view = { .box = fix_box2(0, 0, 6, 8) };
    rsd_ckpt  *ckpt;

    (void)state;
    put_dcp(store);
    ckpt = fix_open(store, "ck");
    assert_read_refused(ckpt, &view, RSD_E_INVALID,
                        "tensor \"x\": neither memory nor a put given to read into");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void what_a_put_returns_is_passed_on(void **state)
{
    rsd_store *store = fix_store();
    taker      t = { .rc = RSD_E_TIMEOUT };
    rsd_view   view = { .box = fix_box2(0, 0, 6, 8), .put = take, .arg = &t };
    rsd_ckpt  *ckpt;

    (void)state;
    put_dcp(store);
    ckpt = fix_open(store, "ck");
    assert_read_refused(ckpt, &view, RSD_E_TIMEOUT, "the caller's put failed: RSD_E_TIMEOUT");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_read_that_fails_is_told_with_tensor_and_file(void **state)
{
    rsd_store *inner = fix_store(), *store;
    fix_counts counts = { 0 };
    int32_t    out[48];
    rsd_view   view = { .box = fix_box2(0, 0, 6, 8), .data = out };
    rsd_ckpt  *ckpt;

    (void)state;
    put_dcp(inner);
    store = fix_counting_store(inner, &counts);
    ckpt = fix_open(store, "ck");
    counts = (fix_counts){ .fail_at = 1 };
    assert_read_refused(ckpt, &view, RSD_E_IO, "tensor \"x\": file \"__0_0.distcp\"");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    rsd_store_close(inner);
}

/* ---- the nth allocation fails ---- */

static rsd_err read_all(void *arg, rsd_error *err)
{
    int32_t  out[ROWS * COLS];
    rsd_view view = { .box = fix_box2(0, 0, ROWS, COLS), .data = out };

    return rsd_ckpt_read(arg, 0, &view, NULL, err);
}

static void reading_without_memory_fails_cleanly(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt;

    (void)state;
    put_dcp(store);
    ckpt = fix_open(store, "ck");
    fix_every_allocation(read_all, NULL, ckpt);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_of_dcp_chunks_that_are_not_dense_are_right),
        cmocka_unit_test(slices_of_transformed_dcp_items_are_right),
        cmocka_unit_test(slices_of_safetensors_are_right),
        cmocka_unit_test(slices_of_torch_save_are_right),
        cmocka_unit_test(whole_rows_are_one_read),
        cmocka_unit_test(columns_of_long_rows_are_read_run_by_run),
        cmocka_unit_test(columns_of_short_rows_are_read_with_what_lies_between),
        cmocka_unit_test(gaps_that_are_far_are_not_read_for_those_that_are_near),
        cmocka_unit_test(chunks_that_are_not_wanted_are_not_touched),
        cmocka_unit_test(an_empty_box_reads_nothing),
        cmocka_unit_test(boxes_outside_the_tensor_are_refused),
        cmocka_unit_test(a_view_without_memory_and_put_is_refused),
        cmocka_unit_test(what_a_put_returns_is_passed_on),
        cmocka_unit_test(a_read_that_fails_is_told_with_tensor_and_file),
        cmocka_unit_test(reading_without_memory_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
