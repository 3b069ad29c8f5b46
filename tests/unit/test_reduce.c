/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "live/reduce.h"

#include <math.h>
#include <string.h>

/* Combines three contributions of one element. */
static void combine(rsd_dtype dtype, rsd_reduce op, int64_t divisor, const void *in, void *out)
{
    size_t size = rsd_dtype_size(dtype);
    double acc[2];

    rsi_reduce_first(dtype, acc, in, 1);
    rsi_reduce_more(dtype, op, acc, (const char *)in + size, 1);
    rsi_reduce_more(dtype, op, acc, (const char *)in + 2 * size, 1);
    rsi_reduce_last(dtype, divisor, out, acc, 1);
}

static void integers_wrap_at_their_own_width(void **state)
{
    const uint8_t u8[] = { 200, 100, 3 };
    const int8_t  i8[] = { 100, 100, 100 };
    uint8_t       u;
    int8_t        i;

    (void)state;
    combine(RSD_U8, RSD_SUM, 1, u8, &u);
    assert_int_equal(u, 47);
    combine(RSD_U8, RSD_PRODUCT, 1, u8, &u);
    assert_int_equal(u, (uint8_t)(200 * 100 * 3));
    combine(RSD_I8, RSD_SUM, 1, i8, &i);
    assert_int_equal(i, 44);
}

static void negative_integers_are_less_and_averages_are_cut_off(void **state)
{
    const int16_t in[] = { 5, -7, -6 };
    int16_t       out;

    (void)state;
    combine(RSD_I16, RSD_MIN, 1, in, &out);
    assert_int_equal(out, -7);
    combine(RSD_I16, RSD_MAX, 1, in, &out);
    assert_int_equal(out, 5);
    combine(RSD_I16, RSD_AVG, 3, in, &out);
    assert_int_equal(out, -2); /* -8 / 3 */
}

static void unsigned_64_bit_numbers_are_compared_as_such(void **state)
{
    const uint64_t in[] = { 1, UINT64_MAX, 7 };
    uint64_t       out;

    (void)state;
    combine(RSD_U64, RSD_MAX, 1, in, &out);
    assert_true(out == UINT64_MAX);
    combine(RSD_U64, RSD_MIN, 1, in, &out);
    assert_true(out == 1);
}

static void bfloat16_is_rounded_once_at_the_end(void **state)
{
    /* 256 + 1 + 1: each step rounded would stay 256, which has a distance of 2 to the next. */
    const uint16_t in[] = { 0x4380, 0x3f80, 0x3f80 };
    uint16_t       out;

    (void)state;
    combine(RSD_BF16, RSD_SUM, 1, in, &out);
    assert_int_equal(out, 0x4381); /* 258 */
}

static void floats_are_added_from_left_to_right(void **state)
{
    const float in[] = { 1e8f, -1e8f, 1.0f }, other[] = { 1.0f, 1e8f, -1e8f };
    float       out;

    (void)state;
    combine(RSD_F32, RSD_SUM, 1, in, &out);
    assert_true(out == 1.0f);
    combine(RSD_F32, RSD_SUM, 1, other, &out);
    assert_true(out == 0.0f);
}

static void a_nan_stays_in_minimum_and_maximum(void **state)
{
    const double first[] = { NAN, 1, 2 }, last[] = { 1, 2, NAN };
    double       out;

    (void)state;
    combine(RSD_F64, RSD_MIN, 1, first, &out);
    assert_true(isnan(out));
    combine(RSD_F64, RSD_MAX, 1, last, &out);
    assert_true(isnan(out));
}

static void complex_numbers_multiply(void **state)
{
    const float in[] = { 1, 2, 3, 4, 0, 1 }; /* (1+2i)(3+4i)i = -10-5i */
    float       out[2];

    (void)state;
    combine(RSD_C64, RSD_PRODUCT, 1, in, out);
    assert_true(out[0] == -10 && out[1] == -5);
}

static void the_sum_of_booleans_is_or(void **state)
{
    const uint8_t in[] = { 0, 1, 1 };
    uint8_t       out;

    (void)state;
    combine(RSD_BOOL, RSD_SUM, 1, in, &out);
    assert_int_equal(out, 1);
    combine(RSD_BOOL, RSD_PRODUCT, 1, in, &out);
    assert_int_equal(out, 0);
}

static void what_a_type_cannot_do_is_refused(void **state)
{
    rsd_error err;

    (void)state;
    assert_int_equal(rsi_reduce_check(RSD_C64, RSD_MAX, &err), RSD_E_UNSUPPORTED);
    assert_string_equal(err.msg, "complex64 has no maximum");
    assert_int_equal(rsi_reduce_check(RSD_BOOL, RSD_AVG, &err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_reduce_check(RSD_F8_E8M0FNU, RSD_SUM, &err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_reduce_check(RSD_F8_E4M3FN, RSD_SUM, &err), RSD_OK);
}

static void float8_is_combined_as_float(void **state)
{
    const uint8_t in[] = { 0x38, 0x38, 0x40 }; /* float8_e4m3fn: 1, 1, 2 */
    uint8_t       out;

    (void)state;
    combine(RSD_F8_E4M3FN, RSD_SUM, 1, in, &out);
    assert_int_equal(out, 0x48); /* 4 */
    combine(RSD_F8_E4M3FN, RSD_AVG, 4, in, &out);
    assert_int_equal(out, 0x38);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_wrap_at_their_own_width),
        cmocka_unit_test(negative_integers_are_less_and_averages_are_cut_off),
        cmocka_unit_test(unsigned_64_bit_numbers_are_compared_as_such),
        cmocka_unit_test(bfloat16_is_rounded_once_at_the_end),
        cmocka_unit_test(floats_are_added_from_left_to_right),
        cmocka_unit_test(a_nan_stays_in_minimum_and_maximum),
        cmocka_unit_test(complex_numbers_multiply),
        cmocka_unit_test(the_sum_of_booleans_is_or),
        cmocka_unit_test(what_a_type_cannot_do_is_refused),
        cmocka_unit_test(float8_is_combined_as_float),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
