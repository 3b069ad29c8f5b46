/* SPDX-License-Identifier: Apache-2.0 */
/* test_dcp_open.c - a DCP folder is opened when its metadata and files agree, and refused with the
 * place when not. dcp_item.c: what is inside the items must be what the metadata promised. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"

#include <stdlib.h>
#include <string.h>

/* Two tensors by hand: "a" [4, 3] in two chunks, "b" [2] in one, all in one file; an object. Tests
 * change what they want before it is put. */
static struct {
    int64_t           shape_a[2], shape_b[1];
    int64_t           box[10];
    rsi_dcp_row       row[3];
    rsi_dcp_tensor    tensor[2];
    rsi_dcp_item      item[1];
    const char       *file[1];
    rsi_dcp_part      part[3];
    rsi_dcp_path      path[1];
    rsi_dcp_meta      meta;
    rsi_tensor_pickle facts[3];
} ck;

static int32_t numbers[6] = { 1, 2, 3, 4, 5, 6 };

static int begin(void **state)
{
    static const int64_t box[] = { 0, 0, 2, 3, 2, 0, 2, 3, 0, 2 };
    const rsi_dcp_row    row = { .transforms = RSI_DCP_NO_TRANSFORMS };

    (void)state;
    memset(&ck, 0, sizeof(ck));
    memcpy(ck.box, box, sizeof(box));
    ck.shape_a[0] = 4;
    ck.shape_a[1] = 3;
    ck.shape_b[0] = 2;
    ck.row[0] = ck.row[1] = ck.row[2] = ck.item[0].row = row;
    ck.tensor[0] = (rsi_dcp_tensor){
        .name = "a", .shape = ck.shape_a, .nchunks = 2, .dtype = RSD_I32, .ndim = 2
    };
    ck.tensor[1] = (rsi_dcp_tensor){ .name = "n.0.b",
                                     .shape = ck.shape_b,
                                     .first = 2,
                                     .nchunks = 1,
                                     .box = 8,
                                     .dtype = RSD_I32,
                                     .ndim = 1 };
    ck.item[0].name = "step";
    ck.file[0] = "__0_0.distcp";
    ck.part[0].key = "n";
    ck.part[2].key = "b";
    ck.path[0] = (rsi_dcp_path){ .name = "n.0.b", .part = ck.part, .nparts = 3 };
    ck.meta = (rsi_dcp_meta){ .tensor = ck.tensor,
                              .ntensors = 2,
                              .box = ck.box,
                              .row = ck.row,
                              .nchunks = 3,
                              .item = ck.item,
                              .nitems = 1,
                              .file = ck.file,
                              .nfiles = 1,
                              .path = ck.path,
                              .npaths = 1,
                              .has_paths = true };
    for (int i = 0; i < 2; i++)
        ck.facts[i] = (rsi_tensor_pickle){
            .dtype = RSD_I32, .ndim = 2, .size = { 2, 3 }, .stride = { 3, 1 }, .storage_bytes = 24
        };
    ck.facts[2] = (rsi_tensor_pickle){
        .dtype = RSD_I32, .ndim = 1, .size = { 2 }, .stride = { 1 }, .storage_bytes = 8
    };
    return 0;
}

static void add_item(fix_bytes *file, rsi_dcp_row *row, fix_bytes item)
{
    row->offset = (int64_t)file->len;
    row->length = (int64_t)item.len;
    file->at = realloc(file->at, file->len + item.len);
    assert_non_null(file->at);
    memcpy(file->at + file->len, item.at, item.len);
    file->len += item.len;
    free(item.at);
}

/* Writes the file and lets the rows lead there; the metadata are the test's. */
static rsd_store *put_items(void)
{
    static const char five[] = "\x80\x02K\x05.";
    rsd_store        *store = fix_store();
    fix_bytes         file = { 0 };

    for (int i = 0; i < 3; i++)
        add_item(&file, &ck.row[i], fix_tensor_item(&ck.facts[i], numbers));
    add_item(&file, &ck.item[0].row, fix_archive(five, sizeof(five) - 1, 0, NULL, NULL));
    fix_put(store, "ck/__0_0.distcp", file.at, file.len);
    free(file.at);
    return store;
}

static void assert_refused(rsd_store *store, rsd_err code, const char *text)
{
    fix_put_metadata(store, "ck/.metadata", &ck.meta);
    fix_refused(store, "ck", code, text);
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void a_checkpoint_tells_what_is_in_it(void **state)
{
    rsd_store       *store = put_items();
    rsd_path_part    part[3];
    const rsd_value *value;
    const char      *name;
    rsd_tensor_info  info = { .size = sizeof(info) };
    rsd_values      *owner;
    rsd_chunk        chunk = { .size = sizeof(chunk) };
    rsd_ckpt        *ckpt;
    size_t           t;

    (void)state;
    fix_put_metadata(store, "ck/.metadata", &ck.meta);
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_format(ckpt), RSD_FORMAT_DCP);
    assert_int_equal(rsd_ckpt_tensors(ckpt), 2);
    assert_int_equal(rsd_ckpt_tensor(ckpt, 0, &info, NULL), RSD_OK);
    assert_string_equal(info.name, "a");
    assert_true(info.dtype == RSD_I32 && info.ndim == 2 && info.shape[0] == 4 && info.bytes == 48);
    assert_int_equal(rsd_ckpt_chunk(ckpt, 0, 1, &chunk, NULL), RSD_OK);
    assert_int_equal(chunk.box.off[0], 2);
    assert_string_equal(chunk.file, "__0_0.distcp");
    assert_int_equal(chunk.offset, ck.row[1].offset);
    assert_int_equal(rsd_ckpt_find(ckpt, "n.0.b", &t, NULL), RSD_OK);
    assert_int_equal(t, 1);
    assert_int_equal(rsd_ckpt_find(ckpt, "step", &t, NULL), RSD_E_NOTFOUND);
    assert_int_equal(rsd_ckpt_path(ckpt, "n.0.b", part, 3), 3);
    assert_true(part[1].key == NULL && part[1].index == 0);
    assert_int_equal(rsd_ckpt_path(ckpt, "a", part, 3), 0);
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_object(ckpt, 0, &name, owner, &value, NULL), RSD_OK);
    assert_string_equal(name, "step");
    assert_int_equal(rsd_value_int(value), 5);
    rsd_values_free(owner);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_file_that_is_missing_is_named(void **state)
{
    rsd_store *store = put_items();

    (void)state;
    ck.file[0] = "__7_0.distcp";
    assert_refused(store, RSD_E_NOTFOUND, "__7_0.distcp");
}

static void items_behind_the_end_of_their_file_are_refused(void **state)
{
    rsd_store *store = put_items();

    (void)state;
    ck.item[0].row.length++;
    assert_refused(store, RSD_E_FORMAT, "on is listed, the file has");
    store = put_items();
    ck.row[0].offset = 1 << 20;
    assert_refused(store, RSD_E_FORMAT, "__0_0.distcp");
}

static void items_that_overlap_in_their_file_are_refused(void **state)
{
    rsd_store *store = put_items();

    (void)state;
    ck.row[1].offset--;
    assert_refused(store, RSD_E_FORMAT, "begins before the one at byte 0 ends");
}

static void items_may_stand_in_any_order(void **state)
{
    rsd_store  *store = put_items();
    rsi_dcp_row swap = ck.row[0];
    rsd_ckpt   *ckpt;

    (void)state;
    ck.row[0] = ck.row[1];
    ck.row[1] = swap;
    fix_put_metadata(store, "ck/.metadata", &ck.meta);
    ckpt = fix_open(store, "ck");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void chunks_that_leave_a_hole_are_refused_by_tensor(void **state)
{
    rsd_store *store = put_items();

    (void)state;
    ck.shape_a[0] = 5;
    assert_refused(store, RSD_E_FORMAT, "tensor \"a\": chunks: ");
}

static void chunks_that_overlap_are_refused_by_tensor(void **state)
{
    rsd_store *store = put_items();

    (void)state;
    ck.shape_a[0] = 3;
    ck.box[4] = 1;
    assert_refused(store, RSD_E_FORMAT,
                   "tensor \"a\": the chunks [0:2, 0:3] and [1:3, 0:3] overlap");
}

/* Opens it and reads all of tensor t. */
static void assert_read_refused(size_t t, const char *text)
{
    rsd_store      *store = put_items();
    int32_t         out[12];
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_error       err = { 0 };
    rsd_view        view;
    rsd_ckpt       *ckpt;

    fix_put_metadata(store, "ck/.metadata", &ck.meta);
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_tensor(ckpt, t, &info, NULL), RSD_OK);
    view = fix_whole(info.ndim, info.shape, out);
    assert_int_equal(rsd_ckpt_read(ckpt, t, &view, NULL, &err), RSD_E_FORMAT);
    if (!strstr(err.msg, text))
        fail_msg("\"%s\" has no \"%s\"", err.msg, text);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void an_item_of_another_dtype_is_refused(void **state)
{
    (void)state;
    ck.facts[1].dtype = RSD_F32;
    assert_read_refused(0, "the item is float32, but the metadata say int32");
}

static void an_item_of_another_shape_is_refused(void **state)
{
    (void)state;
    ck.facts[1].size[0] = 3;
    ck.facts[1].size[1] = 2;
    ck.facts[1].stride[0] = 2;
    assert_read_refused(0, "dimension 0 of the item has the size 3, the metadata say 2");
    ck.facts[2].ndim = 2;
    ck.facts[2].size[1] = 1;
    ck.facts[2].stride[1] = 1;
    assert_read_refused(1, "the item has 2 dimensions, the metadata say 1");
}

/* ---- metadata of the ranks themselves ---- */

static void metadata_of_several_ranks_are_joined(void **state)
{
    rsd_store   *store = put_items();
    rsi_dcp_meta one = ck.meta, two = ck.meta;
    rsd_ckpt    *ckpt;

    (void)state;
    one.ntensors = 1;
    one.nchunks = 2;
    one.nitems = 0;
    one.has_paths = false;
    one.npaths = 0;
    ck.tensor[1].first = 0;
    ck.tensor[1].box = 0;
    two.tensor = &ck.tensor[1];
    two.ntensors = 1;
    two.row = &ck.row[2];
    two.box = &ck.box[8];
    two.nchunks = 1;
    fix_put_metadata(store, "ck/__0.metadata", &one);
    fix_put_metadata(store, "ck/__1.metadata", &two);
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_tensors(ckpt), 2);
    assert_int_equal(rsd_ckpt_objects(ckpt), 1);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* One of the two chunks of the first tensor, as rank 1 saved it. */
static rsd_store *put_half(int64_t off)
{
    rsd_store   *store = put_items();
    rsi_dcp_meta half = ck.meta;

    half.ntensors = 1;
    half.nchunks = 1;
    half.nitems = 0;
    half.has_paths = false;
    half.npaths = 0;
    ck.tensor[0].nchunks = 1;
    ck.box[0] += off;
    fix_put_metadata(store, "ck/__1.metadata", &half);
    return store;
}

static rsd_err open_alone(rsd_store *store, int32_t rank, rsd_ckpt **out, rsd_error *err)
{
    const rsd_open_opts opts = { .size = sizeof(opts), .alone = true, .rank = rank };

    return rsd_ckpt_open_with(store, "ck", &opts, out, err);
}

static void chunks_of_one_rank_alone_may_leave_a_hole(void **state)
{
    rsd_store *store = put_half(0);
    rsd_ckpt  *ckpt;
    rsd_error  err;

    (void)state;
    fix_refused(store, "ck", RSD_E_FORMAT, "leave a hole");
    assert_int_equal(open_alone(store, 1, &ckpt, &err), RSD_OK);
    assert_int_equal(rsd_ckpt_tensors(ckpt), 1);
    rsd_ckpt_close(ckpt);
    assert_int_equal(open_alone(store, 0, &ckpt, &err), RSD_E_NOTFOUND);
    rsd_store_close(store);
}

static void a_chunk_of_one_rank_outside_of_its_tensor_is_refused(void **state)
{
    rsd_store *store = put_half(1000);
    rsd_ckpt  *ckpt;
    rsd_error  err;

    (void)state;
    assert_int_equal(open_alone(store, 1, &ckpt, &err), RSD_E_FORMAT);
    assert_non_null(strstr(err.msg, "lies outside the shape [4, 3]"));
    rsd_store_close(store);
}

static void metadata_that_are_no_pickle_are_refused_by_file(void **state)
{
    rsd_store *store = put_items();

    (void)state;
    fix_put_text(store, "ck/.metadata", "nonsense");
    fix_refused(store, "ck", RSD_E_FORMAT, "checkpoint \"ck\": file \".metadata\": ");
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static rsd_err open_once(void *arg, rsd_error *err)
{
    rsd_ckpt *ckpt;
    rsd_err   rc = rsd_ckpt_open(arg, "ck", &ckpt, err);

    if (!rc)
        rsd_ckpt_close(ckpt);
    return rc;
}

static void opening_without_memory_fails_cleanly(void **state)
{
    rsd_store *store = put_items();

    (void)state;
    fix_put_metadata(store, "ck/.metadata", &ck.meta);
    fix_every_allocation(open_once, NULL, store);
    rsd_store_close(store);
    store = put_items();
    fix_put_metadata(store, "ck/__0.metadata", &ck.meta);
    fix_put_metadata(store, "ck/__1.metadata", &ck.meta);
    fix_every_allocation(open_once, NULL, store);
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_checkpoint_tells_what_is_in_it, begin),
        cmocka_unit_test_setup(a_file_that_is_missing_is_named, begin),
        cmocka_unit_test_setup(items_behind_the_end_of_their_file_are_refused, begin),
        cmocka_unit_test_setup(items_that_overlap_in_their_file_are_refused, begin),
        cmocka_unit_test_setup(items_may_stand_in_any_order, begin),
        cmocka_unit_test_setup(chunks_that_leave_a_hole_are_refused_by_tensor, begin),
        cmocka_unit_test_setup(chunks_that_overlap_are_refused_by_tensor, begin),
        cmocka_unit_test_setup(an_item_of_another_dtype_is_refused, begin),
        cmocka_unit_test_setup(an_item_of_another_shape_is_refused, begin),
        cmocka_unit_test_setup(metadata_of_several_ranks_are_joined, begin),
        cmocka_unit_test_setup(chunks_of_one_rank_alone_may_leave_a_hole, begin),
        cmocka_unit_test_setup(a_chunk_of_one_rank_outside_of_its_tensor_is_refused, begin),
        cmocka_unit_test_setup(metadata_that_are_no_pickle_are_refused_by_file, begin),
        cmocka_unit_test_setup(opening_without_memory_fails_cleanly, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
