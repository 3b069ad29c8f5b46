/* SPDX-License-Identifier: Apache-2.0 */
/* test_dtype.c - every element type: its number, its size, its names and back. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include <reshard/reshard.h>

/* Written by hand from the lists of torch and safetensors, not from dtype.c. */
static const struct {
    int         value; /* fixed for ever: it is in files and in other people's programs */
    rsd_dtype   dtype;
    int         bits;
    const char *torch, *safetensors, *brief;
} all[] = {
    { 1, RSD_BOOL, 8, "bool", "BOOL", "bool" },
    { 2, RSD_U8, 8, "uint8", "U8", "u8" },
    { 3, RSD_I8, 8, "int8", "I8", "i8" },
    { 4, RSD_U16, 16, "uint16", "U16", "u16" },
    { 5, RSD_I16, 16, "int16", "I16", "i16" },
    { 6, RSD_U32, 32, "uint32", "U32", "u32" },
    { 7, RSD_I32, 32, "int32", "I32", "i32" },
    { 8, RSD_U64, 64, "uint64", "U64", "u64" },
    { 9, RSD_I64, 64, "int64", "I64", "i64" },
    { 16, RSD_F16, 16, "float16", "F16", "f16" },
    { 17, RSD_BF16, 16, "bfloat16", "BF16", "bf16" },
    { 18, RSD_F32, 32, "float32", "F32", "f32" },
    { 19, RSD_F64, 64, "float64", "F64", "f64" },
    { 24, RSD_C32, 32, "complex32", NULL, "c32" },
    { 25, RSD_C64, 64, "complex64", "C64", "c64" },
    { 26, RSD_C128, 128, "complex128", NULL, "c128" },
    { 32, RSD_F8_E4M3FN, 8, "float8_e4m3fn", "F8_E4M3", "f8_e4m3fn" },
    { 33, RSD_F8_E5M2, 8, "float8_e5m2", "F8_E5M2", "f8_e5m2" },
    { 34, RSD_F8_E4M3FNUZ, 8, "float8_e4m3fnuz", "F8_E4M3FNUZ", "f8_e4m3fnuz" },
    { 35, RSD_F8_E5M2FNUZ, 8, "float8_e5m2fnuz", "F8_E5M2FNUZ", "f8_e5m2fnuz" },
    { 36, RSD_F8_E8M0FNU, 8, "float8_e8m0fnu", "F8_E8M0", "f8_e8m0fnu" },
    { 40, RSD_F4_E2M1FN_X2, 8, "float4_e2m1fn_x2", "F4", "f4_e2m1fn_x2" },
};

enum { KNOWN = sizeof(all) / sizeof(all[0]) };

static void every_dtype_keeps_its_number(void **state)
{
    (void)state;
    for (size_t i = 0; i < KNOWN; i++)
        assert_int_equal(all[i].dtype, all[i].value);
}

static void every_dtype_has_its_size_in_bits_and_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < KNOWN; i++) {
        assert_int_equal(rsd_dtype_bits(all[i].dtype), all[i].bits);
        assert_int_equal(rsd_dtype_size(all[i].dtype), all[i].bits / 8);
    }
}

static void every_dtype_has_the_name_that_torch_gives_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < KNOWN; i++)
        assert_string_equal(rsd_dtype_name(all[i].dtype), all[i].torch);
}

static void every_dtype_but_two_complex_ones_has_a_safetensors_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < KNOWN; i++) {
        const char *name = rsd_dtype_safetensors_name(all[i].dtype);

        if (all[i].safetensors) {
            assert_non_null(name);
            assert_string_equal(name, all[i].safetensors);
        } else {
            assert_null(name);
        }
    }
    assert_null(rsd_dtype_safetensors_name(RSD_C32));
    assert_null(rsd_dtype_safetensors_name(RSD_C128));
}

static void number_that_is_no_dtype_has_no_size_and_no_name(void **state)
{
    for (int value = -2; value < 130; value++) {
        rsd_dtype dtype = (rsd_dtype)value;
        bool      known = false;

        for (size_t i = 0; i < KNOWN; i++)
            known = known || all[i].value == value;
        if (known)
            continue;
        assert_int_equal(rsd_dtype_bits(dtype), 0);
        assert_int_equal(rsd_dtype_size(dtype), 0);
        assert_null(rsd_dtype_name(dtype));
        assert_null(rsd_dtype_safetensors_name(dtype));
    }
    (void)state;
}

static void assert_parses(const char *name, rsd_dtype want)
{
    rsd_dtype got = (rsd_dtype)0;
    rsd_error err;

    assert_int_equal(rsd_dtype_parse(name, &got, &err), RSD_OK);
    assert_int_equal(got, want);
}

static void every_spelling_parses_back_to_its_dtype(void **state)
{
    char name[64];

    (void)state;
    for (size_t i = 0; i < KNOWN; i++) {
        assert_parses(all[i].torch, all[i].dtype);
        snprintf(name, sizeof(name), "torch.%s", all[i].torch);
        assert_parses(name, all[i].dtype);
        assert_parses(all[i].brief, all[i].dtype);
        if (all[i].safetensors)
            assert_parses(all[i].safetensors, all[i].dtype);
    }
}

static void unknown_name_is_refused_and_named(void **state)
{
    static const char *const bad[] = { "",           "float",      "Float32",     "F33",
                                       "float32 ",   " float32",   "torch.",      "torch.F32",
                                       "torch.bf16", "complex256", "torch.torch", "C32" };
    char                     want[80];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        rsd_dtype got = RSD_I8;
        rsd_error err;

        assert_int_equal(rsd_dtype_parse(bad[i], &got, &err), RSD_E_INVALID);
        snprintf(want, sizeof(want), "\"%s\" is not the name of a dtype", bad[i]);
        assert_string_equal(err.msg, want);
        assert_int_equal(err.code, RSD_E_INVALID);
        assert_int_equal(got, RSD_I8);
    }
}

static void parse_without_a_name_or_a_place_is_refused(void **state)
{
    rsd_dtype got = RSD_I8;
    rsd_error err;

    (void)state;
    assert_int_equal(rsd_dtype_parse(NULL, &got, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "missing argument: dtype name or output pointer");
    assert_int_equal(got, RSD_I8);
    assert_int_equal(rsd_dtype_parse("bool", NULL, NULL), RSD_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_keeps_its_number),
        cmocka_unit_test(every_dtype_has_its_size_in_bits_and_bytes),
        cmocka_unit_test(every_dtype_has_the_name_that_torch_gives_it),
        cmocka_unit_test(every_dtype_but_two_complex_ones_has_a_safetensors_name),
        cmocka_unit_test(number_that_is_no_dtype_has_no_size_and_no_name),
        cmocka_unit_test(every_spelling_parses_back_to_its_dtype),
        cmocka_unit_test(unknown_name_is_refused_and_named),
        cmocka_unit_test(parse_without_a_name_or_a_place_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
