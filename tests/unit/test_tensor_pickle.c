/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor_pickle.c - data.pkl of one tensor: the bytes are torch's, and only these are read. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/crc32.h"
#include "format/tensor_pickle.h"

#include <string.h>

static unsigned char buf[RSI_TENSOR_PICKLE_MAX];

/* 4 x 3, contiguous. */
static rsi_tensor_pickle tensor_4_by_3(rsd_dtype dtype)
{
    return (rsi_tensor_pickle){ .dtype = dtype,
                                .ndim = 2,
                                .size = { 4, 3 },
                                .stride = { 3, 1 },
                                .storage_bytes = 12 * (int64_t)rsd_dtype_size(dtype) };
}

static size_t write(const rsi_tensor_pickle *t)
{
    size_t len = 0;

    assert_int_equal(rsi_tensor_pickle_write(t, buf, &len, NULL), RSD_OK);
    assert_in_range(len, 1, sizeof(buf));
    return len;
}

/* Field by field: padding has no value. The key "" stands for "0". */
static bool same_tensor(const rsi_tensor_pickle *a, const rsi_tensor_pickle *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim && a->offset == b->offset &&
           a->storage_bytes == b->storage_bytes && a->conj == b->conj && a->neg == b->neg &&
           memcmp(a->size, b->size, sizeof(a->size)) == 0 &&
           memcmp(a->stride, b->stride, sizeof(a->stride)) == 0 &&
           strcmp(a->key[0] ? a->key : "0", b->key[0] ? b->key : "0") == 0;
}

/* It is written as torch writes it, known by length and CRC, and read back. */
static void assert_torch(const rsi_tensor_pickle *t, size_t want_len, uint32_t want_crc)
{
    rsi_tensor_pickle back;
    size_t            len = write(t);

    assert_int_equal(len, want_len);
    assert_int_equal(rsi_crc32(0, buf, len), want_crc);
    assert_true(rsi_tensor_pickle_read(buf, len, &back));
    assert_true(same_tensor(&back, t));
}

/* ---- what torch writes ----------------------------------------------------------------------- */

static void the_pickle_of_three_floats_is_torchs(void **state)
{
    static const char want[] = "\x80\x02"
                               "ctorch._utils\n_rebuild_tensor_v2\nq\0((X\7\0\0\0storageq\1"
                               "ctorch\nFloatStorage\nq\2X\1\0\0\0"
                               "0q\3X\3\0\0\0cpuq\4K\3tq\5QK\0K\3\x85q\6K\1\x85q\7\x89"
                               "ccollections\nOrderedDict\nq\10)Rq\ttq\nRq\v.";
    rsi_tensor_pickle t = {
        .dtype = RSD_F32, .ndim = 1, .size = { 3 }, .stride = { 1 }, .storage_bytes = 12
    };

    (void)state;
    assert_int_equal(write(&t), sizeof(want) - 1);
    assert_memory_equal(buf, want, sizeof(want) - 1);
}

static void every_dtype_is_written_as_torch_does(void **state)
{
    static const struct {
        rsd_dtype dtype;
        size_t    len;
        uint32_t  crc;
    } torch[] = {
        { RSD_BOOL, 153, 0xb7eeb211 },        { RSD_U8, 153, 0x07f2a074 },
        { RSD_I8, 153, 0x77db2f50 },          { RSD_U16, 180, 0xac36ad96 },
        { RSD_I16, 154, 0x4898d17d },         { RSD_U32, 180, 0x90baa7e6 },
        { RSD_I32, 152, 0x38f4b956 },         { RSD_U64, 180, 0x2071d46f },
        { RSD_I64, 153, 0x2004a4ab },         { RSD_F16, 153, 0xe404ffaa },
        { RSD_BF16, 157, 0x178c6af0 },        { RSD_F32, 154, 0x26770dca },
        { RSD_F64, 155, 0x4eef87bc },         { RSD_C32, 183, 0xadc5a83b },
        { RSD_C64, 161, 0x8401500b },         { RSD_C128, 162, 0xa22e03c7 },
        { RSD_F8_E4M3FN, 187, 0x5468880d },   { RSD_F8_E5M2, 185, 0x04029c15 },
        { RSD_F8_E4M3FNUZ, 189, 0xcd6d1e6b }, { RSD_F8_E5M2FNUZ, 189, 0xf3300ec0 },
        { RSD_F8_E8M0FNU, 188, 0x87b317dd },  { RSD_F4_E2M1FN_X2, 190, 0xdc060b3e },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(torch) / sizeof(torch[0]); i++) {
        rsi_tensor_pickle t = tensor_4_by_3(torch[i].dtype);

        assert_torch(&t, torch[i].len, torch[i].crc);
    }
}

static void scalars_are_written_as_torch_does(void **state)
{
    rsi_tensor_pickle f32 = { .dtype = RSD_F32, .storage_bytes = 4 };
    rsi_tensor_pickle f8 = { .dtype = RSD_F8_E5M2, .storage_bytes = 1 };

    (void)state;
    assert_torch(&f32, 142, 0x95c01000);
    assert_torch(&f8, 173, 0x1029d21e);
}

static void empty_tensors_are_written_as_torch_does(void **state)
{
    rsi_tensor_pickle flat = { .dtype = RSD_F32, .ndim = 1, .stride = { 1 } };
    rsi_tensor_pickle deep = {
        .dtype = RSD_F32, .ndim = 3, .size = { 2, 0, 3 }, .stride = { 3, 3, 1 }
    };

    (void)state;
    assert_torch(&flat, 150, 0xf409ea16);
    assert_torch(&deep, 158, 0xc8879054);
}

static void strides_and_offsets_are_written_as_torch_does(void **state)
{
    rsi_tensor_pickle transposed = tensor_4_by_3(RSD_F32);
    rsi_tensor_pickle chlast = { .dtype = RSD_F32,
                                 .ndim = 4,
                                 .size = { 1, 3, 2, 2 },
                                 .stride = { 12, 1, 6, 3 },
                                 .storage_bytes = 48 };
    rsi_tensor_pickle part = { .dtype = RSD_F32,
                               .ndim = 1,
                               .size = { 15 },
                               .stride = { 1 },
                               .offset = 5,
                               .storage_bytes = 256 };
    rsi_tensor_pickle eight = { .dtype = RSD_F32,
                                .ndim = 8,
                                .size = { 2, 1, 2, 1, 3, 1, 1, 2 },
                                .stride = { 12, 12, 6, 6, 2, 2, 2, 1 },
                                .storage_bytes = 96 };

    (void)state;
    transposed.stride[0] = 1;
    transposed.stride[1] = 4;
    assert_torch(&transposed, 154, 0x3a077045);
    assert_torch(&chlast, 164, 0xce6f1733);
    assert_torch(&part, 150, 0x83049491);
    assert_torch(&eight, 180, 0x0a24a448);
}

static void numbers_of_every_width_are_written_as_torch_does(void **state)
{
    rsi_tensor_pickle two = {
        .dtype = RSD_F32, .ndim = 1, .size = { 300 }, .stride = { 1 }, .storage_bytes = 1200
    };
    rsi_tensor_pickle four = {
        .dtype = RSD_F32, .ndim = 1, .size = { 70000 }, .stride = { 1 }, .storage_bytes = 280000
    };
    rsi_tensor_pickle five = {
        .dtype = RSD_F32, .ndim = 2, .size = { 70000, 3000000000 }, .storage_bytes = 4
    };

    (void)state;
    assert_torch(&two, 152, 0x4f5db27f);
    assert_torch(&four, 156, 0x77cf5d38);
    assert_torch(&five, 162, 0x021023d2);
}

static void conj_and_neg_are_written_as_torch_does(void **state)
{
    rsi_tensor_pickle t = { .dtype = RSD_C64,
                            .ndim = 1,
                            .size = { 2 },
                            .stride = { 1 },
                            .storage_bytes = 16,
                            .conj = true };
    rsi_tensor_pickle imag = { .dtype = RSD_F32,
                               .ndim = 1,
                               .size = { 2 },
                               .stride = { 2 },
                               .offset = 1,
                               .storage_bytes = 16,
                               .neg = true };

    (void)state;
    assert_torch(&t, 173, 0x92d1563e);
    assert_torch(&imag, 165, 0x6151f7e1);
    t.neg = true;
    assert_torch(&t, 185, 0x88b6b553);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void the_longest_pickle_fits_and_comes_back(void **state)
{
    rsi_tensor_pickle t = { .dtype = RSD_F4_E2M1FN_X2,
                            .ndim = RSD_MAX_NDIM,
                            .offset = INT64_MAX,
                            .storage_bytes = INT64_MAX,
                            .key = "12345678901234567890",
                            .conj = true,
                            .neg = true };
    rsi_tensor_pickle back;

    (void)state;
    for (int d = 0; d < RSD_MAX_NDIM; d++)
        t.size[d] = t.stride[d] = INT64_MAX - d;
    assert_true(rsi_tensor_pickle_read(buf, write(&t), &back));
    assert_true(same_tensor(&back, &t));
}

static void numbers_at_the_edges_come_back(void **state)
{
    const int64_t edge[] = {
        0,          255,        256,          65535,        65536,        INT32_MAX,
        0x80000000, 0xffffffff, 0x7fffffffff, 0x8000000000, INT64_MAX / 4
    };

    (void)state;
    for (size_t i = 0; i < sizeof(edge) / sizeof(edge[0]); i++) {
        rsi_tensor_pickle t = { .dtype = RSD_F32,
                                .ndim = 1,
                                .size = { edge[i] },
                                .stride = { edge[i] },
                                .offset = edge[i],
                                .storage_bytes = edge[i] * 4 };
        rsi_tensor_pickle back;

        assert_true(rsi_tensor_pickle_read(buf, write(&t), &back));
        assert_int_equal(back.size[0], edge[i]);
        assert_int_equal(back.storage_bytes, edge[i] * 4);
    }
}

static void what_makes_no_sense_is_not_written(void **state)
{
    rsi_tensor_pickle bad[7];
    size_t            len = 77;

    (void)state;
    for (int i = 0; i < 7; i++)
        bad[i] = tensor_4_by_3(RSD_F32);
    bad[0].dtype = (rsd_dtype)99;
    bad[1].ndim = 9;
    bad[2].size[1] = -1;
    bad[3].stride[0] = -1;
    bad[4].offset = -1;
    bad[5].storage_bytes = 47; /* not a number of floats */
    memset(bad[6].key, '1', sizeof(bad[6].key));
    for (int i = 0; i < 7; i++)
        assert_int_equal(rsi_tensor_pickle_write(&bad[i], buf, &len, NULL), RSD_E_INVALID);
    assert_int_equal(len, 77);
}

/* ---- what is not read ------------------------------------------------------------------------ */

static void a_pickle_cut_short_is_not_this(void **state)
{
    rsi_tensor_pickle t = tensor_4_by_3(RSD_U16), back;
    size_t            len;

    (void)state;
    t.conj = true;
    len = write(&t);
    for (size_t cut = 0; cut < len; cut++) {
        unsigned char exact[256]; /* sanitizers see a read behind it */
        memcpy(exact + sizeof(exact) - cut, buf, cut);
        assert_false(rsi_tensor_pickle_read(exact + sizeof(exact) - cut, cut, &back));
    }
    buf[len] = '.';
    assert_false(rsi_tensor_pickle_read(buf, len + 1, &back));
}

/* Whatever is read is exactly what would be written for it, so a changed byte gives another tensor
 * or nothing. */
static void every_changed_byte_is_another_tensor_or_not_this(void **state)
{
    rsi_tensor_pickle t = tensor_4_by_3(RSD_F8_E5M2), back;
    unsigned char     changed[RSI_TENSOR_PICKLE_MAX];
    size_t            len = write(&t);
    int               read = 0;

    (void)state;
    memcpy(changed, buf, len);
    for (size_t i = 0; i < len; i++)
        for (int byte = 0; byte < 256; byte++) {
            if (byte == buf[i])
                continue;
            changed[i] = (unsigned char)byte;
            if (rsi_tensor_pickle_read(changed, len, &back)) {
                read++;
                assert_false(same_tensor(&back, &t));
            }
            changed[i] = buf[i];
        }
    assert_in_range(read, 7 * 200, 7 * 256); /* the numbers and the key; hardly anything else */
}

static void other_pickles_are_not_this(void **state)
{
    static const char *other[] = { "", ".", "\x80\x02}q\x01.", "\x80\x04K\x07." };
    rsi_tensor_pickle  back;
    unsigned char      large[2 * RSI_TENSOR_PICKLE_MAX] = { 0x80, 2 };

    (void)state;
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        assert_false(rsi_tensor_pickle_read(other[i], strlen(other[i]), &back));
    assert_false(rsi_tensor_pickle_read(large, sizeof(large), &back));
}

/* ---- views ----------------------------------------------------------------------------------- */

static void a_view_inside_its_storage_is_accepted(void **state)
{
    rsi_tensor_pickle t = tensor_4_by_3(RSD_F32);

    (void)state;
    assert_int_equal(rsi_tensor_pickle_check(&t, 48, NULL), RSD_OK);
    t.size[0] = 3;
    t.offset = 3;
    assert_int_equal(rsi_tensor_pickle_check(&t, 48, NULL), RSD_OK);
    t.size[0] = 0;
    t.offset = 1000; /* no element is touched */
    assert_int_equal(rsi_tensor_pickle_check(&t, 48, NULL), RSD_OK);
}

static void a_view_that_leaves_its_storage_is_refused(void **state)
{
    rsi_tensor_pickle t = tensor_4_by_3(RSD_F32);
    rsd_error         err;

    (void)state;
    t.offset = 1;
    assert_int_equal(rsi_tensor_pickle_check(&t, 48, &err), RSD_E_FORMAT);
    assert_non_null(strstr(err.msg, "outside its storage 0 of 48 bytes"));
    t = tensor_4_by_3(RSD_F32);
    t.stride[0] = INT64_MAX / 2;
    assert_int_equal(rsi_tensor_pickle_check(&t, 48, NULL), RSD_E_FORMAT);
    t.stride[0] = INT64_MAX / 3 + 1; /* wraps to something small */
    assert_int_equal(rsi_tensor_pickle_check(&t, 48, NULL), RSD_E_FORMAT);
    t = tensor_4_by_3(RSD_F32);
    t.offset = INT64_MAX - 11;
    assert_int_equal(rsi_tensor_pickle_check(&t, 48, NULL), RSD_E_FORMAT);
}

static void a_storage_of_another_size_than_its_record_is_refused(void **state)
{
    rsi_tensor_pickle t = tensor_4_by_3(RSD_F32);
    rsd_error         err;

    (void)state;
    assert_int_equal(rsi_tensor_pickle_check(&t, 47, &err), RSD_E_FORMAT);
    assert_non_null(strstr(err.msg, "should have 48 bytes, its record has 47"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pickle_of_three_floats_is_torchs),
        cmocka_unit_test(every_dtype_is_written_as_torch_does),
        cmocka_unit_test(scalars_are_written_as_torch_does),
        cmocka_unit_test(empty_tensors_are_written_as_torch_does),
        cmocka_unit_test(strides_and_offsets_are_written_as_torch_does),
        cmocka_unit_test(numbers_of_every_width_are_written_as_torch_does),
        cmocka_unit_test(conj_and_neg_are_written_as_torch_does),
        cmocka_unit_test(the_longest_pickle_fits_and_comes_back),
        cmocka_unit_test(numbers_at_the_edges_come_back),
        cmocka_unit_test(what_makes_no_sense_is_not_written),
        cmocka_unit_test(a_pickle_cut_short_is_not_this),
        cmocka_unit_test(every_changed_byte_is_another_tensor_or_not_this),
        cmocka_unit_test(other_pickles_are_not_this),
        cmocka_unit_test(a_view_inside_its_storage_is_accepted),
        cmocka_unit_test(a_view_that_leaves_its_storage_is_refused),
        cmocka_unit_test(a_storage_of_another_size_than_its_record_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
