/* SPDX-License-Identifier: Apache-2.0 */
/* test_torch_archive.c - what one torch.save archive holds: a tensor or an object. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/crc32.h"
#include "base/mem.h"
#include "ckpt_fixture.h"
#include "format/torch_archive.h"
#include "format/value_pickle.h"

#include <stdlib.h>
#include <string.h>

static const int32_t numbers[] = { 10, 11, 12, 13, 14, 15 };

static rsi_tensor_pickle facts(void)
{
    return (rsi_tensor_pickle){ .dtype = RSD_I32,
                                .ndim = 2,
                                .size = { 2, 2 },
                                .stride = { 1, 3 },
                                .offset = 1,
                                .storage_bytes = sizeof(numbers) };
}

static void a_tensor_item_tells_where_its_elements_are(void **state)
{
    rsi_tensor_pickle want = facts(), found;
    fix_bytes         item = fix_tensor_item(&want, numbers);
    rsi_source        source = rsi_memory_source(item.at, item.len, "item");
    rsi_extent        extent;

    (void)state;
    assert_int_equal(rsi_torch_tensor_item(&source, false, &found, &extent, NULL), RSD_OK);
    assert_int_equal(found.dtype, RSD_I32);
    assert_int_equal(found.ndim, 2);
    assert_int_equal(found.size[1], 2);
    assert_memory_equal(item.at + extent.record, numbers, sizeof(numbers));
    assert_int_equal(extent.record_bytes, sizeof(numbers));
    assert_int_equal(extent.offset, extent.record + 4);
    assert_int_equal(extent.stride[0], 4);
    assert_int_equal(extent.stride[1], 12);
    assert_true(extent.has_crc);
    assert_int_equal(extent.crc32, rsi_crc32(0, numbers, sizeof(numbers)));
    assert_false(extent.big_endian || extent.conj || extent.neg);
    assert_null(extent.decoded);
    free(item.at);
}

static void offsets_count_from_the_start_of_the_file(void **state)
{
    rsi_tensor_pickle want = facts(), found;
    fix_bytes         item = fix_tensor_item(&want, numbers);
    unsigned char    *file = calloc(item.len + 1000, 1);
    rsi_source        source;
    rsi_extent        extent;

    (void)state;
    assert_non_null(file);
    memcpy(file + 1000, item.at, item.len);
    source = rsi_memory_source(file, item.len + 1000, "file");
    source.start = 1000;
    source.size = item.len;
    assert_int_equal(rsi_torch_tensor_item(&source, false, &found, &extent, NULL), RSD_OK);
    assert_memory_equal(file + extent.record, numbers, sizeof(numbers));
    free(file);
    free(item.at);
}

static void conjugated_and_negated_tensors_are_told(void **state)
{
    const double      storage[4] = { 1, 2, 3, 4 };
    rsi_tensor_pickle want = { .dtype = RSD_C128,
                               .ndim = 1,
                               .size = { 2 },
                               .stride = { 1 },
                               .storage_bytes = 32,
                               .conj = true };
    rsi_tensor_pickle found;
    fix_bytes         item = fix_tensor_item(&want, storage);
    rsi_source        source = rsi_memory_source(item.at, item.len, "item");
    rsi_extent        extent;

    (void)state;
    assert_int_equal(rsi_torch_tensor_item(&source, false, &found, &extent, NULL), RSD_OK);
    assert_true(extent.conj);
    assert_false(extent.neg);
    free(item.at);
}

static void assert_item_refused(const fix_bytes *item, rsd_err code, const char *text)
{
    rsi_source        source = rsi_memory_source(item->at, item->len, "item");
    rsi_tensor_pickle found;
    rsi_extent        extent;
    rsd_error         err = { 0 };

    assert_int_equal(rsi_torch_tensor_item(&source, false, &found, &extent, &err), code);
    if (!strstr(err.msg, text))
        fail_msg("\"%s\" has no \"%s\"", err.msg, text);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void items_that_are_no_tensors_are_refused(void **state)
{
    static const char five[] = "\x80\x02K\x05.";
    static const char call[] = "\x80\x02"
                               "cos\nsystem\nX\x02\x00\x00\x00ls\x85R.";
    fix_bytes         item = fix_archive(five, sizeof(five) - 1, 0, NULL, NULL);

    (void)state;
    assert_item_refused(&item, RSD_E_FORMAT, "the item is not a tensor");
    free(item.at);
    item = fix_archive(call, sizeof(call) - 1, 0, NULL, NULL);
    assert_item_refused(&item, RSD_E_FORMAT, "the pickle would call os.system at byte ");
    free(item.at);
}

static void tensors_that_leave_their_storage_are_refused(void **state)
{
    rsi_tensor_pickle bad = facts();
    unsigned char     pickle[RSI_TENSOR_PICKLE_MAX];
    const void       *storage[] = { numbers };
    uint64_t          bytes[] = { sizeof(numbers) };
    size_t            len;
    fix_bytes         item;

    (void)state;
    bad.offset = 2; /* its last element is number 6 */
    assert_int_equal(rsi_tensor_pickle_write(&bad, pickle, &len, NULL), RSD_OK);
    item = fix_archive(pickle, len, 1, storage, bytes);
    assert_item_refused(&item, RSD_E_FORMAT, "the tensor reaches outside its storage");
    free(item.at);
    bytes[0] = 20;
    bad.offset = 1;
    assert_int_equal(rsi_tensor_pickle_write(&bad, pickle, &len, NULL), RSD_OK);
    item = fix_archive(pickle, len, 1, storage, bytes);
    assert_item_refused(&item, RSD_E_FORMAT, "should have 24 bytes, its record has 20");
    free(item.at);
}

/* [7, tensor] */
static fix_bytes object_item(void)
{
    const rsd_value_tensor tensor = { .dtype = RSD_I32,
                                      .ndim = 1,
                                      .shape = { 6 },
                                      .stride = { 1 },
                                      .storage_bytes = sizeof(numbers),
                                      .storage = "0",
                                      .location = "cpu" };
    const rsd_value       *item[2], *list;
    rsd_values            *owner;
    fix_bytes              out;

    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 7, &item[0], NULL), RSD_OK);
    assert_int_equal(rsd_value_create_tensor(owner, &tensor, &item[1], NULL), RSD_OK);
    assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_LIST, 2, item, &list, NULL), RSD_OK);
    out = fix_value_item(list, numbers, sizeof(numbers));
    rsd_values_free(owner);
    return out;
}

static void tensors_inside_objects_are_read_along(void **state)
{
    fix_bytes               item = object_item();
    rsi_source              source = rsi_memory_source(item.at, item.len, "item");
    const rsd_value_tensor *tensor;
    const rsd_value        *value;
    rsd_values             *owner;

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsi_torch_object_item(&source, owner, &value, NULL), RSD_OK);
    assert_int_equal(rsd_value_int(rsd_value_item(value, 0)), 7);
    tensor = rsd_value_tensor_of(rsd_value_item(value, 1));
    assert_non_null(tensor->bytes);
    assert_memory_equal(tensor->bytes, numbers, sizeof(numbers));
    rsd_values_free(owner);
    free(item.at);
}

static void a_damaged_tensor_inside_an_object_is_noticed(void **state)
{
    fix_bytes        item = object_item();
    rsi_source       source = rsi_memory_source(item.at, item.len, "item");
    unsigned char   *data = memmem(item.at, item.len, numbers, sizeof(numbers));
    const rsd_value *value;
    rsd_values      *owner;

    (void)state;
    assert_non_null(data);
    data[5] ^= 1;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsi_torch_object_item(&source, owner, &value, NULL), RSD_E_CORRUPT);
    rsd_values_free(owner);
    free(item.at);
}

static rsd_err read_both(void *arg, rsd_error *err)
{
    const fix_bytes  *items = arg;
    rsi_source        source = rsi_memory_source(items[0].at, items[0].len, "item");
    rsi_tensor_pickle found;
    rsi_extent        extent;
    const rsd_value  *value;
    rsd_values       *owner;
    rsd_err           rc = rsi_torch_tensor_item(&source, false, &found, &extent, err);

    if (!rc)
        rc = rsd_values_create(&owner, err);
    if (rc)
        return rc;
    source = rsi_memory_source(items[1].at, items[1].len, "item");
    rc = rsi_torch_object_item(&source, owner, &value, err);
    rsd_values_free(owner);
    return rc;
}

static void reading_items_without_memory_fails_cleanly(void **state)
{
    rsi_tensor_pickle want = facts();
    fix_bytes         items[] = { fix_tensor_item(&want, numbers), object_item() };

    (void)state;
    fix_every_allocation(read_both, NULL, items);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
    free(items[0].at);
    free(items[1].at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_item_tells_where_its_elements_are),
        cmocka_unit_test(offsets_count_from_the_start_of_the_file),
        cmocka_unit_test(conjugated_and_negated_tensors_are_told),
        cmocka_unit_test(items_that_are_no_tensors_are_refused),
        cmocka_unit_test(tensors_that_leave_their_storage_are_refused),
        cmocka_unit_test(tensors_inside_objects_are_read_along),
        cmocka_unit_test(a_damaged_tensor_inside_an_object_is_noticed),
        cmocka_unit_test(reading_items_without_memory_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
