/* SPDX-License-Identifier: Apache-2.0 */
/* The values of small floats are those of their definitions: largest, smallest, special. */
#include "cli.h"

#include <math.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static double byte_value(rsd_dtype dtype, unsigned bits)
{
    const unsigned char byte = (unsigned char)bits;

    return element_value(dtype, &byte, NULL);
}

static double word_value(rsd_dtype dtype, unsigned bits)
{
    const unsigned char word[] = { (unsigned char)bits, (unsigned char)(bits >> 8) };

    return element_value(dtype, word, NULL);
}

static void the_ends_of_float8_are_right(void **state)
{
    (void)state;
    assert_true(byte_value(RSD_F8_E4M3FN, 0x7e) == 448);
    assert_true(byte_value(RSD_F8_E4M3FN, 0x01) == ldexp(1, -9));
    assert_true(isnan(byte_value(RSD_F8_E4M3FN, 0xff)));
    assert_true(byte_value(RSD_F8_E5M2, 0x7b) == 57344);
    assert_true(byte_value(RSD_F8_E5M2, 0xfc) == -INFINITY);
    assert_true(isnan(byte_value(RSD_F8_E5M2, 0x7d)));
    assert_true(byte_value(RSD_F8_E4M3FNUZ, 0x7f) == 240);
    assert_true(isnan(byte_value(RSD_F8_E4M3FNUZ, 0x80)));
    assert_true(byte_value(RSD_F8_E5M2FNUZ, 0x7f) == 57344);
    assert_true(isnan(byte_value(RSD_F8_E5M2FNUZ, 0x80)));
    assert_true(byte_value(RSD_F8_E8M0FNU, 127) == 1);
    assert_true(isnan(byte_value(RSD_F8_E8M0FNU, 255)));
}

static void the_ends_of_half_and_bfloat16_are_right(void **state)
{
    (void)state;
    assert_true(word_value(RSD_F16, 0x7bff) == 65504);
    assert_true(word_value(RSD_F16, 0x0001) == ldexp(1, -24));
    assert_true(word_value(RSD_F16, 0xfc00) == -INFINITY);
    assert_true(isnan(word_value(RSD_F16, 0x7e00)));
    assert_true(word_value(RSD_BF16, 0x3f80) == 1);
    assert_true(word_value(RSD_BF16, 0x0001) == ldexp(1, -133));
    assert_true(isnan(word_value(RSD_BF16, 0x7fc0)));
}

static void integers_keep_their_sign_and_all_their_digits(void **state)
{
    const int8_t   small = -128;
    const int32_t  middle = -7;
    const uint64_t large = UINT64_MAX;
    const int64_t  least = INT64_MIN;
    char           text[64];

    (void)state;
    assert_string_equal(element_text(RSD_I8, &small, text, sizeof(text)), "-128");
    assert_string_equal(element_text(RSD_I32, &middle, text, sizeof(text)), "-7");
    assert_string_equal(element_text(RSD_U64, &large, text, sizeof(text)), "18446744073709551615");
    assert_string_equal(element_text(RSD_I64, &least, text, sizeof(text)), "-9223372036854775808");
    assert_true(element_value(RSD_I8, &small, NULL) == -128);
}

static void numbers_are_as_short_as_they_can_be(void **state)
{
    const float  tenth = 0.1f, third = 1.0f / 3;
    const double wide = 0.1, other = 1.0 / 3;
    char         text[64];

    (void)state;
    assert_string_equal(element_text(RSD_F32, &tenth, text, sizeof(text)), "0.1");
    assert_string_equal(element_text(RSD_F32, &third, text, sizeof(text)), "0.33333334");
    assert_string_equal(element_text(RSD_F64, &wide, text, sizeof(text)), "0.1");
    assert_string_equal(element_text(RSD_F64, &other, text, sizeof(text)), "0.3333333333333333");
}

static void complex_numbers_have_two_parts(void **state)
{
    const float  x[] = { 1.5f, -2 };
    const double nan_imag[] = { 0, NAN };
    char         text[96];
    double       imag;

    (void)state;
    assert_true(element_value(RSD_C64, x, &imag) == 1.5 && imag == -2);
    assert_string_equal(element_text(RSD_C64, x, text, sizeof(text)), "1.5-2j");
    assert_string_equal(element_text(RSD_C128, nan_imag, text, sizeof(text)), "0+nanj");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ends_of_float8_are_right),
        cmocka_unit_test(the_ends_of_half_and_bfloat16_are_right),
        cmocka_unit_test(integers_keep_their_sign_and_all_their_digits),
        cmocka_unit_test(numbers_are_as_short_as_they_can_be),
        cmocka_unit_test(complex_numbers_have_two_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
