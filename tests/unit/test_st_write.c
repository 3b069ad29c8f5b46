/* SPDX-License-Identifier: Apache-2.0 */
/* test_st_write.c - headers that we make, and how tensors are divided among files. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/st_write.h"

#include <stdlib.h>
#include <string.h>

static const int64_t two_by_three[] = { 2, 3 }, four[] = { 4 }, one[] = { 1 };

static void assert_refused(const rsi_st_item *item, size_t n, rsd_err code, const char *msg)
{
    rsi_st_image image;
    rsd_error    err = { 0 };

    assert_int_equal(rsi_st_image_make(n, item, 0, NULL, &image, &err), code);
    assert_string_equal(err.msg, msg);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void the_header_is_sorted_and_padded_to_64_bytes(void **state)
{
    static const rsi_st_item item[] = { { "small", RSD_U8, 1, four },
                                        { "b", RSD_F32, 0, NULL },
                                        { "a\n", RSD_F32, 2, two_by_three },
                                        { "big", RSD_I64, 1, one } };
    static const rsi_st_pair meta[] = { { "z", "\"", 1 }, { "format", "pt", 2 } };
    static const char        want[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"z\":\"\\\"\"},"
        "\"big\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
        "\"a\\n\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[32,36]},"
        "\"small\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[36,40]}}";
    static const uint32_t order[] = { 3, 2, 1, 0 };
    rsi_st_image          image;

    (void)state;
    assert_int_equal(rsi_st_image_make(4, item, 2, meta, &image, NULL), RSD_OK);
    assert_int_equal(image.head_len % 64, 0);
    assert_true(image.head_len - 8 - strlen(want) < 64);
    assert_int_equal((unsigned char)image.head[0] + 256 * (unsigned char)image.head[1],
                     image.head_len - 8);
    assert_memory_equal(image.head + 2, "\0\0\0\0\0\0", 6);
    assert_memory_equal(image.head + 8, want, strlen(want));
    for (size_t i = 8 + strlen(want); i < image.head_len; i++)
        assert_int_equal(image.head[i], ' ');
    assert_memory_equal(image.order, order, sizeof(order));
    assert_int_equal(image.begin[3], 0);
    assert_int_equal(image.begin[2], 8);
    assert_int_equal(image.begin[1], 32);
    assert_int_equal(image.begin[0], 36);
    assert_int_equal(image.data_bytes, 40);
    rsi_st_image_release(&image);
}

static void the_order_of_the_arguments_does_not_matter(void **state)
{
    static const rsi_st_item item[] = { { "x", RSD_F32, 1, four },
                                        { "y", RSD_BF16, 1, four },
                                        { "w", RSD_F32, 1, one } };
    const rsi_st_item        turned[] = { item[2], item[0], item[1] };
    rsi_st_image             a, b;

    (void)state;
    assert_int_equal(rsi_st_image_make(3, item, 0, NULL, &a, NULL), RSD_OK);
    assert_int_equal(rsi_st_image_make(3, turned, 0, NULL, &b, NULL), RSD_OK);
    assert_int_equal(a.head_len, b.head_len);
    assert_memory_equal(a.head, b.head, a.head_len);
    rsi_st_image_release(&a);
    rsi_st_image_release(&b);
}

static void every_dtype_is_read_back(void **state)
{
    static char   names[RSI_ST_DTYPES][2];
    rsi_st_item   item[RSI_ST_DTYPES];
    rsi_st_image  image;
    rsi_st_header header;
    rsd_error     err;

    (void)state;
    for (size_t i = 0; i < RSI_ST_DTYPES; i++) {
        names[i][0] = (char)('a' + i);
        item[i] = (rsi_st_item){ names[i], rsi_st_dtypes[RSI_ST_DTYPES - 1 - i], 2, two_by_three };
    }
    assert_int_equal(rsi_st_image_make(RSI_ST_DTYPES, item, 0, NULL, &image, NULL), RSD_OK);
    if (rsi_st_parse_cut(image.head + 8, image.head_len - 8, image.head_len + image.data_bytes,
                         false, &header, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(header.ntensors, RSI_ST_DTYPES);
    assert_null(header.order);
    for (size_t i = 0; i < RSI_ST_DTYPES; i++) {
        const rsi_st_tensor *t = rsi_st_find(&header, item[i].name, 1);

        assert_int_equal(t->dtype, item[i].dtype);
        assert_int_equal(t->begin, image.begin[i]);
        assert_memory_equal(rsi_st_shape(&header, t), two_by_three, sizeof(two_by_three));
    }
    rsi_st_release(&header);
    rsi_st_image_release(&image);
}

static void the_four_bit_type_is_written_in_values(void **state)
{
    static const rsi_st_item item = { "q", RSD_F4_E2M1FN_X2, 2, two_by_three };
    static const char want[] = "{\"q\":{\"dtype\":\"F4\",\"shape\":[2,6],\"data_offsets\":[0,6]}}";
    rsi_st_image      image;

    (void)state;
    assert_int_equal(rsi_st_image_make(1, &item, 0, NULL, &image, NULL), RSD_OK);
    assert_memory_equal(image.head + 8, want, strlen(want));
    rsi_st_image_release(&image);
}

static void no_tensors_make_a_valid_file(void **state)
{
    rsi_st_image  image;
    rsi_st_header header;

    (void)state;
    assert_int_equal(rsi_st_image_make(0, NULL, 0, NULL, &image, NULL), RSD_OK);
    assert_int_equal(image.head_len, 64);
    assert_int_equal(rsi_st_parse_cut(image.head + 8, 56, 64, false, &header, NULL), RSD_OK);
    rsi_st_release(&header);
    rsi_st_image_release(&image);
}

static void what_the_format_can_not_hold_is_refused_by_name(void **state)
{
    static const int64_t negative[] = { -1 }, huge[] = { INT64_MAX / 2, 3 },
                         large[] = { INT64_MAX / 2 };
    static const rsi_st_item c32 = { "h", RSD_C32, 1, four }, c128 = { "z", RSD_C128, 1, four };
    static const rsi_st_item none = { "n", (rsd_dtype)99, 1, four },
                             nine = { "n", RSD_U8, 9, four };
    static const rsi_st_item neg = { "n", RSD_U8, 1, negative }, big = { "n", RSD_U8, 2, huge };
    static const rsi_st_item nibble = { "n", RSD_F4_E2M1FN_X2, 0, NULL };
    static const rsi_st_item meta = { "__metadata__", RSD_U8, 1, four },
                             bytes = { "a\xff", RSD_U8, 1, four };
    static const rsi_st_item twice[] = { { "n", RSD_U8, 1, four }, { "n", RSD_F32, 1, four } };
    static const rsi_st_item sum[] = { { "a", RSD_U8, 1, large },
                                       { "b", RSD_U8, 1, large },
                                       { "c", RSD_U8, 1, large } };

    (void)state;
    assert_refused(&c32, 1, RSD_E_UNSUPPORTED, "tensor \"h\": safetensors can't hold complex32");
    assert_refused(&c128, 1, RSD_E_UNSUPPORTED, "tensor \"z\": safetensors can't hold complex128");
    assert_refused(&nibble, 1, RSD_E_UNSUPPORTED,
                   "tensor \"n\": safetensors can't hold two 4-bit values without a dimension");
    assert_refused(&meta, 1, RSD_E_UNSUPPORTED,
                   "a tensor can't be called \"__metadata__\" in safetensors");
    assert_refused(&none, 1, RSD_E_INVALID, "tensor \"n\": 99 is not a dtype");
    assert_refused(&nine, 1, RSD_E_INVALID, "tensor \"n\" has 9 dimensions, the maximum is 8");
    assert_refused(&neg, 1, RSD_E_INVALID, "tensor \"n\": dimension 0 has the size -1");
    assert_refused(&big, 1, RSD_E_INVALID, "tensor \"n\": the size does not fit into 64 bits");
    assert_refused(&bytes, 1, RSD_E_INVALID, "\"a\" is not UTF-8 at its byte 1");
    assert_refused(twice, 2, RSD_E_INVALID, "tensor \"n\" is a duplicate");
    assert_refused(sum, 3, RSD_E_INVALID, "the file would have more than 2^63-1 bytes");
}

static void metadata_keys_must_differ(void **state)
{
    static const rsi_st_pair meta[] = { { "a", "1", 1 }, { "b", "", 0 }, { "a", "2", 1 } };
    rsi_st_image             image;
    rsd_error                err;

    (void)state;
    assert_int_equal(rsi_st_image_make(0, NULL, 3, meta, &image, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "the metadata key \"a\" is a duplicate");
}

static void a_header_over_the_limit_is_refused(void **state)
{
    size_t       len = RSI_ST_HEADER_MAX - 16;
    char        *value = malloc(len);
    rsi_st_pair  meta = { "k", value, len };
    rsi_st_image image;
    rsd_error    err;

    (void)state;
    assert_non_null(value);
    memset(value, 'x', len);
    assert_int_equal(rsi_st_image_make(0, NULL, 1, &meta, &image, &err), RSD_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "use more files"));
    meta.value_len = len - 100;
    assert_int_equal(rsi_st_image_make(0, NULL, 1, &meta, &image, &err), RSD_OK);
    rsi_st_image_release(&image);
    free(value);
}

/* ---- several files ------------------------------------------------------------------------------
 */

static void assert_split(uint64_t limit, const uint32_t *want, uint32_t want_files)
{
    static const int64_t     size[] = { 6, 4, 11, 0, 1, 10 };
    static const char *const names[] = { "a", "b", "c", "d", "e", "f" };
    rsi_st_item              item[6];
    uint32_t                 of[6], files = 0;

    for (size_t i = 0; i < 6; i++)
        item[i] = (rsi_st_item){ names[i], RSD_U8, 1, &size[i] };
    assert_int_equal(rsi_st_split(6, item, limit, of, &files, NULL), RSD_OK);
    assert_int_equal(files, want_files);
    assert_memory_equal(of, want, sizeof(of));
}

static void files_are_filled_in_the_order_given(void **state)
{
    static const uint32_t all[] = { 0, 0, 0, 0, 0, 0 }, ten[] = { 0, 0, 1, 0, 2, 3 };
    static const uint32_t each[] = { 0, 1, 2, 3, 3, 4 }, twenty[] = { 0, 0, 1, 1, 1, 2 };

    (void)state;
    assert_split(0, all, 1);
    assert_split(1000, all, 1);
    assert_split(10, ten, 4); /* c is larger than the limit, d still fits behind b */
    assert_split(20, twenty, 3);
    assert_split(1, each, 5);
}

static void a_tensor_that_can_not_be_written_can_not_be_divided(void **state)
{
    static const rsi_st_item item = { "z", RSD_C128, 1, four };
    uint32_t                 of, files = 7;

    (void)state;
    assert_int_equal(rsi_st_split(1, &item, 10, &of, &files, NULL), RSD_E_UNSUPPORTED);
    assert_int_equal(files, 7);
    assert_int_equal(rsi_st_split(0, NULL, 10, &of, &files, NULL), RSD_OK);
    assert_int_equal(files, 1);
}

static void files_are_named_as_hugging_face_names_them(void **state)
{
    char name[64];

    (void)state;
    rsi_st_file_name(0, 1, name, sizeof(name));
    assert_string_equal(name, "model.safetensors");
    assert_int_equal(rsi_st_file_name(11, 163, name, sizeof(name)), 32);
    assert_string_equal(name, "model-00012-of-00163.safetensors");
}

static void every_failed_allocation_is_told_and_leaks_nothing(void **state)
{
    static const rsi_st_item item[] = { { "x", RSD_F32, 1, four }, { "y", RSD_BF16, 1, four } };
    static const rsi_st_pair meta[] = { { "a", "1", 1 } };

    (void)state;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        rsd_err rc = RSD_E_NOMEM;

        for (uint64_t n = 1; rc; n++) {
            rsi_st_image image = { 0 };
            rsd_error    err = { 0 };

            rsi_mem_fail_at(n, for_ever);
            rc = rsi_st_image_make(2, item, 1, meta, &image, &err);
            rsi_mem_fail_at(0, 0);
            if (rc)
                assert_int_equal(err.code, RSD_E_NOMEM);
            assert_true(rc || n > 5);
            rsi_st_image_release(&image);
            assert_int_equal(rsi_mem_stats_get().bytes, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_header_is_sorted_and_padded_to_64_bytes),
        cmocka_unit_test(the_order_of_the_arguments_does_not_matter),
        cmocka_unit_test(every_dtype_is_read_back),
        cmocka_unit_test(the_four_bit_type_is_written_in_values),
        cmocka_unit_test(no_tensors_make_a_valid_file),
        cmocka_unit_test(what_the_format_can_not_hold_is_refused_by_name),
        cmocka_unit_test(metadata_keys_must_differ),
        cmocka_unit_test(a_header_over_the_limit_is_refused),
        cmocka_unit_test(files_are_filled_in_the_order_given),
        cmocka_unit_test(a_tensor_that_can_not_be_written_can_not_be_divided),
        cmocka_unit_test(files_are_named_as_hugging_face_names_them),
        cmocka_unit_test(every_failed_allocation_is_told_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
