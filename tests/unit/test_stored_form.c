/* SPDX-License-Identifier: Apache-2.0 */
/* test_stored_form.c - elements that a file has in another form, put right. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "read/stored_form.h"

#include <string.h>

static void assert_swapped(rsd_dtype dtype, const char *from, const char *to, size_t len)
{
    const rsi_extent fix = { .big_endian = true };
    unsigned char    buf[32];

    memcpy(buf, from, len);
    assert_int_equal(rsi_stored_to_memory(&fix, dtype, buf, len, NULL), RSD_OK);
    assert_memory_equal(buf, to, len);
}

static void bytes_of_an_element_change_places(void **state)
{
    (void)state;
    assert_swapped(RSD_U8, "abc", "abc", 3);
    assert_swapped(RSD_BF16, "abcd", "badc", 4);
    assert_swapped(RSD_F32, "abcdefgh", "dcbahgfe", 8);
    assert_swapped(RSD_I64, "abcdefghijklmnop", "hgfedcbaponmlkji", 16);
}

static void bytes_of_each_half_of_a_complex_change_places(void **state)
{
    (void)state;
    assert_swapped(RSD_C32, "abcd", "badc", 4);
    assert_swapped(RSD_C64, "abcdefgh", "dcbahgfe", 8);
    assert_swapped(RSD_C128, "abcdefghijklmnop", "hgfedcbaponmlkji", 16);
}

static void conjugating_turns_the_imaginary_parts(void **state)
{
    const rsi_extent fix = { .conj = true };
    float            c64[4] = { 1, 2, -3, -4 }; /* 1 + 2i, -3 - 4i */
    double           c128[2] = { 5, 6 };

    (void)state;
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_C64, c64, sizeof(c64), NULL), RSD_OK);
    assert_true(c64[0] == 1 && c64[1] == -2 && c64[2] == -3 && c64[3] == 4);
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_C128, c128, sizeof(c128), NULL), RSD_OK);
    assert_true(c128[0] == 5 && c128[1] == -6);
}

static void conjugating_leaves_real_numbers_alone(void **state)
{
    const rsi_extent fix = { .conj = true };
    float            x[3] = { 1, -2, 3 };

    (void)state;
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_F32, x, sizeof(x), NULL), RSD_OK);
    assert_true(x[0] == 1 && x[1] == -2 && x[2] == 3);
}

static void negating_turns_the_sign_of_floats(void **state)
{
    const rsi_extent fix = { .neg = true };
    float            f32[2] = { 1.5f, -2.5f };
    double           f64[2] = { 0.25, -1e300 };
    uint16_t         bf16[2] = { 0x3f80, 0xc000 }; /* 1, -2 */

    (void)state;
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_F32, f32, sizeof(f32), NULL), RSD_OK);
    assert_true(f32[0] == -1.5f && f32[1] == 2.5f);
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_F64, f64, sizeof(f64), NULL), RSD_OK);
    assert_true(f64[0] == -0.25 && f64[1] == 1e300);
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_BF16, bf16, sizeof(bf16), NULL), RSD_OK);
    assert_int_equal(bf16[0], 0xbf80);
    assert_int_equal(bf16[1], 0x4000);
}

static void negating_turns_both_parts_of_a_complex(void **state)
{
    const rsi_extent fix = { .neg = true };
    float            x[2] = { 1, -2 };

    (void)state;
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_C64, x, sizeof(x), NULL), RSD_OK);
    assert_true(x[0] == -1 && x[1] == 2);
}

static void negating_takes_the_twos_complement_of_integers(void **state)
{
    const rsi_extent fix = { .neg = true };
    int8_t           i8[3] = { 1, -128, 0 };
    int16_t          i16[2] = { 256, -1 };
    int32_t          i32[2] = { INT32_MIN, 65536 };
    int64_t          i64[2] = { INT64_C(1) << 40, -7 };
    uint8_t          u8[2] = { 1, 0 };

    (void)state;
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_I8, i8, sizeof(i8), NULL), RSD_OK);
    assert_true(i8[0] == -1 && i8[1] == -128 && i8[2] == 0);
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_I16, i16, sizeof(i16), NULL), RSD_OK);
    assert_true(i16[0] == -256 && i16[1] == 1);
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_I32, i32, sizeof(i32), NULL), RSD_OK);
    assert_true(i32[0] == INT32_MIN && i32[1] == -65536);
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_I64, i64, sizeof(i64), NULL), RSD_OK);
    assert_true(i64[0] == -(INT64_C(1) << 40) && i64[1] == 7);
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_U8, u8, sizeof(u8), NULL), RSD_OK);
    assert_true(u8[0] == 255 && u8[1] == 0);
}

static void bytes_change_places_before_signs_turn(void **state)
{
    const rsi_extent fix = { .big_endian = true, .neg = true };
    unsigned char    one[4] = { 0x3f, 0x80, 0, 0 }; /* 1.0f, big-endian */
    float            x;

    (void)state;
    assert_int_equal(rsi_stored_to_memory(&fix, RSD_F32, one, sizeof(one), NULL), RSD_OK);
    memcpy(&x, one, sizeof(x));
    assert_true(x == -1.0f);
}

static void types_without_a_minus_are_refused_by_name(void **state)
{
    static const rsd_dtype refused[] = { RSD_BOOL, RSD_F8_E4M3FN, RSD_F8_E8M0FNU,
                                         RSD_F4_E2M1FN_X2 };
    const rsi_extent       fix = { .neg = true };
    unsigned char          byte = 1;

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        rsd_error err = { 0 };

        assert_int_equal(rsi_stored_to_memory(&fix, refused[i], &byte, 1, &err), RSD_E_UNSUPPORTED);
        assert_non_null(strstr(err.msg, rsd_dtype_name(refused[i])));
    }
}

static void nothing_to_do_is_seen(void **state)
{
    (void)state;
    assert_false(rsi_stored_otherwise(&(rsi_extent){ 0 }));
    assert_true(rsi_stored_otherwise(&(rsi_extent){ .big_endian = true }));
    assert_true(rsi_stored_otherwise(&(rsi_extent){ .conj = true }));
    assert_true(rsi_stored_otherwise(&(rsi_extent){ .neg = true }));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_an_element_change_places),
        cmocka_unit_test(bytes_of_each_half_of_a_complex_change_places),
        cmocka_unit_test(conjugating_turns_the_imaginary_parts),
        cmocka_unit_test(conjugating_leaves_real_numbers_alone),
        cmocka_unit_test(negating_turns_the_sign_of_floats),
        cmocka_unit_test(negating_turns_both_parts_of_a_complex),
        cmocka_unit_test(negating_takes_the_twos_complement_of_integers),
        cmocka_unit_test(bytes_change_places_before_signs_turn),
        cmocka_unit_test(types_without_a_minus_are_refused_by_name),
        cmocka_unit_test(nothing_to_do_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
