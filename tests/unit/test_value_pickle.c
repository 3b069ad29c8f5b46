/* SPDX-License-Identifier: Apache-2.0 */
/* test_value_pickle.c - values as pickles of protocol 2, byte by byte, and back again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "format/value_pickle.h"

#include <stdlib.h>
#include <string.h>

static rsd_values *owner;

static int begin(void **state)
{
    (void)state;
    return rsd_values_create(&owner, NULL) == RSD_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    rsd_values_free(owner);
    return rsi_mem_stats_get().bytes == 0 ? 0 : -1;
}

/* The value reads back as the same text. */
static void assert_back(const rsd_value *v, const rsi_bytes *pickle)
{
    rsi_source       source = rsi_memory_source(pickle->at, pickle->len, "test");
    rsi_value_pickle back;
    rsd_values      *other;
    char            *before = calloc(1, 65536), *after = calloc(1, 65536);

    assert_non_null(before);
    assert_non_null(after);
    assert_int_equal(rsd_values_create(&other, NULL), RSD_OK);
    assert_int_equal(rsi_value_read(&source, other, &back, NULL), RSD_OK);
    assert_null(back.unlisted);
    assert_int_equal(rsd_value_type_of(back.root), rsd_value_type_of(v));
    rsd_value_text(v, before, 65536);
    rsd_value_text(back.root, after, 65536);
    assert_string_equal(before, after);
    rsd_values_free(other);
    free(before);
    free(after);
}

/* The tensors in it are of no matter. */
static rsd_err to_pickle(const rsd_value *v, rsi_bytes *out, rsd_error *err)
{
    rsi_storages storages = { 0 };
    rsd_err      rc = rsi_value_to_pickle(v, out, &storages, err);

    rsi_free(storages.tensor);
    return rc;
}

/* `body` stands between the protocol and the stop. */
static void assert_pickle(const rsd_value *v, const void *body, size_t len)
{
    rsi_bytes out = { 0 };

    assert_int_equal(to_pickle(v, &out, NULL), RSD_OK);
    assert_int_equal(out.len, len + 3);
    assert_memory_equal(out.at, "\x80\x02", 2);
    assert_memory_equal(out.at + 2, body, len);
    assert_int_equal(out.at[len + 2], '.');
    assert_back(v, &out);
    rsi_free(out.at);
}

#define ASSERT_PICKLE(v, body) assert_pickle(v, body, sizeof(body) - 1)

static const rsd_value *of_int(int64_t x)
{
    const rsd_value *v;

    assert_int_equal(rsd_value_create_int(owner, x, &v, NULL), RSD_OK);
    return v;
}

static const rsd_value *of_bytes(rsd_value_type type, const char *bytes, size_t len)
{
    const rsd_value *v;

    assert_int_equal(rsd_value_create_bytes(owner, type, bytes, len, &v, NULL), RSD_OK);
    return v;
}

static const rsd_value *of_list(rsd_value_type type, size_t n, const rsd_value *const *item)
{
    const rsd_value *v;

    assert_int_equal(rsd_value_create_list(owner, type, n, item, &v, NULL), RSD_OK);
    return v;
}

static void constants_are_one_byte(void **state)
{
    const rsd_value *none, *yes, *no;

    (void)state;
    assert_int_equal(rsd_value_create_none(owner, &none, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_bool(owner, true, &yes, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_bool(owner, false, &no, NULL), RSD_OK);
    ASSERT_PICKLE(none, "N");
    ASSERT_PICKLE(yes, "\x88");
    ASSERT_PICKLE(no, "\x89");
}

static void integers_take_the_shortest_opcode(void **state)
{
    (void)state;
    ASSERT_PICKLE(of_int(0), "K\0");
    ASSERT_PICKLE(of_int(255), "K\xff");
    ASSERT_PICKLE(of_int(256), "M\x00\x01");
    ASSERT_PICKLE(of_int(65535), "M\xff\xff");
    ASSERT_PICKLE(of_int(65536), "J\x00\x00\x01\x00");
    ASSERT_PICKLE(of_int(-1), "J\xff\xff\xff\xff");
    ASSERT_PICKLE(of_int(INT32_MAX), "J\xff\xff\xff\x7f");
    ASSERT_PICKLE(of_int(INT32_MIN), "J\x00\x00\x00\x80");
    ASSERT_PICKLE(of_int(INT64_C(1) << 31), "\x8a\x05\x00\x00\x00\x80\x00");
    ASSERT_PICKLE(of_int(-(INT64_C(1) << 31) - 1), "\x8a\x05\xff\xff\xff\x7f\xff");
    ASSERT_PICKLE(of_int(INT64_C(1) << 40), "\x8a\x06\x00\x00\x00\x00\x00\x01");
    ASSERT_PICKLE(of_int(INT64_MAX), "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f");
    ASSERT_PICKLE(of_int(INT64_MIN), "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80");
}

static void long_integers_are_twos_complement(void **state)
{
    (void)state;
    ASSERT_PICKLE(of_bytes(RSD_VALUE_BIGINT, "9223372036854775808", 19),
                  "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00");
    ASSERT_PICKLE(of_bytes(RSD_VALUE_BIGINT, "18446744073709551617", 20),
                  "\x8a\x09\x01\x00\x00\x00\x00\x00\x00\x00\x01");
    ASSERT_PICKLE(of_bytes(RSD_VALUE_BIGINT, "-18446744073709551616", 21),
                  "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\xff");
}

/* 2 to the power of n, in decimal; static. */
static const char *power_of_two(int n)
{
    static char digits[1024];
    size_t      len = 1;

    memset(digits, 0, sizeof(digits));
    digits[0] = '1';
    for (int i = 0; i < n; i++) {
        int carry = 0;

        for (size_t k = len; k-- > 0;) {
            int twice = 2 * (digits[k] - '0') + carry;

            digits[k] = (char)('0' + twice % 10);
            carry = twice / 10;
        }
        if (carry) {
            memmove(digits + 1, digits, len++);
            digits[0] = '1';
        }
    }
    return digits;
}

/* LONG1 counts its bytes in one: 255 of them are the most. What is longer may be refused. */
static void long_integers_come_back_or_are_refused(void **state)
{
    for (int power = 2030; power <= 2048; power++) {
        const char      *digits = power_of_two(power);
        const rsd_value *v = NULL;
        rsi_bytes        out = { 0 };
        rsd_err          rc;

        rc = rsd_value_create_bytes(owner, RSD_VALUE_BIGINT, digits, strlen(digits), &v, NULL);
        assert_int_equal(rc, power < 2039 ? RSD_OK : RSD_E_INVALID);
        if (rc)
            continue;
        assert_int_equal(to_pickle(v, &out, NULL), RSD_OK);
        assert_back(v, &out);
        rsi_free(out.at);
    }
    (void)state;
}

static void floats_are_big_endian(void **state)
{
    const rsd_value *half, *minus;

    (void)state;
    assert_int_equal(rsd_value_create_float(owner, 0.5, &half, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_float(owner, -1e-5, &minus, NULL), RSD_OK);
    ASSERT_PICKLE(half, "G\x3f\xe0\x00\x00\x00\x00\x00\x00");
    ASSERT_PICKLE(minus, "G\xbe\xe4\xf8\xb5\x88\xe3\x68\xf1");
}

static void text_is_utf8_with_its_length(void **state)
{
    (void)state;
    ASSERT_PICKLE(of_bytes(RSD_VALUE_STR, "", 0), "X\x00\x00\x00\x00");
    ASSERT_PICKLE(of_bytes(RSD_VALUE_STR, "a\xc3\xa9", 3), "X\x03\x00\x00\x00\x61\xc3\xa9");
}

static void bytes_are_encoded_text(void **state)
{
    (void)state;
    ASSERT_PICKLE(of_bytes(RSD_VALUE_BYTES, "", 0), "c__builtin__\nbytes\n)R");
    ASSERT_PICKLE(of_bytes(RSD_VALUE_BYTES, "\0\x7f\x80\xff", 4),
                  "c_codecs\nencode\nX\x06\x00\x00\x00\x00\x7f\xc2\x80\xc3\xbfX\x06\x00\x00\x00"
                  "latin1\x86R");
}

static void dtypes_and_devices_are_torchs(void **state)
{
    const rsd_value *dtype;

    (void)state;
    assert_int_equal(rsd_value_create_dtype(owner, RSD_BF16, &dtype, NULL), RSD_OK);
    ASSERT_PICKLE(dtype, "ctorch\nbfloat16\n");
    ASSERT_PICKLE(of_bytes(RSD_VALUE_DEVICE, "cpu", 3), "ctorch\ndevice\nX\x03\x00\x00\x00"
                                                        "cpu\x85R");
    ASSERT_PICKLE(of_bytes(RSD_VALUE_DEVICE, "cuda:1", 6), "ctorch\ndevice\nX\x04\x00\x00\x00"
                                                           "cudaK\x01\x86R");
}

static void containers_hold_their_items(void **state)
{
    const rsd_value *items[] = { of_int(1), of_int(2) };
    const rsd_value *pair[] = { of_bytes(RSD_VALUE_STR, "k", 1),
                                of_list(RSD_VALUE_LIST, 2, items) };

    (void)state;
    ASSERT_PICKLE(of_list(RSD_VALUE_LIST, 0, NULL), "](e");
    ASSERT_PICKLE(of_list(RSD_VALUE_LIST, 2, items), "](K\x01K\x02"
                                                     "e");
    ASSERT_PICKLE(of_list(RSD_VALUE_TUPLE, 0, NULL), "(t");
    ASSERT_PICKLE(of_list(RSD_VALUE_TUPLE, 2, items), "(K\x01K\x02t");
    ASSERT_PICKLE(of_list(RSD_VALUE_SET, 1, items), "c__builtin__\nset\n](K\x01"
                                                    "e\x85R");
    ASSERT_PICKLE(of_list(RSD_VALUE_DICT, 0, NULL), "}(u");
    ASSERT_PICKLE(of_list(RSD_VALUE_DICT, 1, pair), "}(X\x01\x00\x00\x00k](K\x01K\x02"
                                                    "eu");
}

/* Whatever its storage was called where it came from. */
static void tensors_get_storages_of_their_own(void **state)
{
    const rsd_value_tensor tensor = { .dtype = RSD_F32,
                                      .ndim = 2,
                                      .shape = { 2, 3 },
                                      .stride = { 3, 1 },
                                      .storage_bytes = 24,
                                      .storage = "7",
                                      .location = "cpu" };
    const rsd_value       *v[2];
    rsi_bytes              out = { 0 };
    rsi_storages           storages = { 0 };

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(rsd_value_create_tensor(owner, &tensor, &v[i], NULL), RSD_OK);
    assert_int_equal(rsi_value_to_pickle(of_list(RSD_VALUE_LIST, 2, v), &out, &storages, NULL),
                     RSD_OK);
    assert_int_equal(storages.n, 2);
    assert_ptr_equal(storages.tensor[0], rsd_value_tensor_of(v[0]));
    assert_ptr_equal(storages.tensor[1], rsd_value_tensor_of(v[1]));
    assert_non_null(memmem(out.at, out.len, "ctorch._utils\n_rebuild_tensor_v2\n", 33));
    assert_non_null(memmem(out.at, out.len, "X\x01\x00\x00\x00\x30", 6));
    assert_non_null(memmem(out.at, out.len, "X\x01\x00\x00\x00\x31", 6));
    assert_null(memmem(out.at, out.len, "X\x01\x00\x00\x00\x37", 6));
    rsi_free(out.at);
    rsi_free(storages.tensor);
}

static void objects_of_foreign_classes_are_refused_by_name(void **state)
{
    const rsd_value *odd = of_bytes(RSD_VALUE_OPAQUE, "os.system", 9);
    rsi_bytes        out = { 0 };
    rsd_error        err;

    (void)state;
    assert_true(rsi_bytes_add(&out, "before", 6));
    assert_int_equal(to_pickle(of_list(RSD_VALUE_LIST, 1, &odd), &out, &err), RSD_E_UNSUPPORTED);
    assert_string_equal(err.msg, "an object of the class os.system can't be written");
    assert_int_equal(out.len, 6);
    assert_memory_equal(out.at, "before", 6);
    rsi_free(out.at);
}

static void nesting_goes_as_deep_as_values_do(void **state)
{
    const rsd_value *v = of_int(1);
    rsi_bytes        out = { 0 };

    (void)state;
    for (int i = 0; i < RSD_VALUE_MAX_DEPTH; i++)
        v = of_list(i % 2 ? RSD_VALUE_LIST : RSD_VALUE_TUPLE, 1, &v);
    assert_int_equal(to_pickle(v, &out, NULL), RSD_OK);
    assert_back(v, &out);
    rsi_free(out.at);
}

static rsd_err pickle_once(void *arg, rsd_error *err)
{
    rsi_bytes out = { 0 };
    rsd_err   rc = to_pickle(arg, &out, err);

    rsi_free(out.at);
    return rc;
}

static void pickling_without_memory_fails_cleanly(void **state)
{
    const rsd_value *items[200];
    int64_t          before;

    (void)state;
    for (int i = 0; i < 200; i++)
        items[i] = of_int(i * 1000);
    items[0] = of_list(RSD_VALUE_LIST, 199, items + 1);
    before = rsi_mem_stats_get().bytes;
    fix_every_allocation(pickle_once, NULL, (void *)(uintptr_t)items[0]);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants_are_one_byte),
        cmocka_unit_test(integers_take_the_shortest_opcode),
        cmocka_unit_test(long_integers_are_twos_complement),
        cmocka_unit_test(long_integers_come_back_or_are_refused),
        cmocka_unit_test(floats_are_big_endian),
        cmocka_unit_test(text_is_utf8_with_its_length),
        cmocka_unit_test(bytes_are_encoded_text),
        cmocka_unit_test(dtypes_and_devices_are_torchs),
        cmocka_unit_test(containers_hold_their_items),
        cmocka_unit_test(tensors_get_storages_of_their_own),
        cmocka_unit_test(objects_of_foreign_classes_are_refused_by_name),
        cmocka_unit_test(nesting_goes_as_deep_as_values_do),
        cmocka_unit_test(pickling_without_memory_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
