/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/crc32.h"
#include "plan/cast.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 17 };

static bool is_float(rsd_dtype dtype)
{
    return dtype >= RSD_F16;
}

/* The inputs of tests/data/make_casts.py: all patterns of a short type; N that are spread and N of
 * moderate size of a long one. */
static size_t inputs(rsd_dtype dtype, unsigned char *out)
{
    size_t size = rsd_dtype_size(dtype), n = size < 4 ? (size_t)1 << (8 * size) : 2 * N;

    if (dtype == RSD_BOOL)
        n = 2;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t x = i * 0x9E3779B97F4A7C15;

        if (size < 4)
            x = i;
        else if (i < N)
            x >>= 64 - 8 * size;
        else if (dtype == RSD_F64)
            x = (x & 0x800FFFFFFFFFFFFF) | (973 + i % 100) << 52;
        else if (dtype == RSD_F32)
            x = (x >> 32 & 0x807FFFFF) | (77 + i % 100) << 23;
        else
            x >>= i % (8 * size) + 64 - 8 * size;
        memcpy(out + i * size, &x, size);
    }
    return n;
}

/* Floats that an integer can't hold become 0; the wide value comes from the cast under test, which
 * the float rows of the table prove. */
static void keep_within(rsd_dtype from, rsd_dtype to, unsigned char *src, size_t n)
{
    static const double limit[][2] = {
        [RSD_U8] = { 0, 255 },
        [RSD_I8] = { -128, 127 },
        [RSD_U16] = { 0, 65535 },
        [RSD_I16] = { -32768, 32767 },
        [RSD_U32] = { 0, 4294967295.0 },
        [RSD_I32] = { -2147483648.0, 2147483647.0 },
        [RSD_U64] = { 0, 18446744073709551615.0 },
        [RSD_I64] = { -9223372036854775808.0, 9223372036854775807.0 },
    };
    size_t size = rsd_dtype_size(from);

    for (size_t i = 0; i < n; i++) {
        double d;

        rsi_cast(&d, RSD_F64, src + i * size, from, 1);
        if (!(d > limit[to][0] - 1 && d < limit[to][1] + 1))
            memset(src + i * size, 0, size);
    }
}

/* NaN has many patterns: all become one. */
static void one_nan(rsd_dtype dtype, unsigned char *p, size_t n)
{
    size_t size = rsd_dtype_size(dtype);

    for (size_t i = 0; i < n; i++) {
        double   d;
        uint64_t mark = 0x77;

        rsi_cast(&d, RSD_F64, p + i * size, dtype, 1);
        if (isnan(d))
            memcpy(p + i * size, &mark, size);
    }
}

static void every_cast_gives_what_torch_gives(void **state)
{
    FILE          *table = fopen(RESHARD_TEST_DATA "/casts.txt", "r");
    unsigned char *src = malloc((size_t)2 * N * 8), *dst = malloc((size_t)2 * N * 8);
    char           from_name[32], to_name[32];
    unsigned       crc;
    int            rows = 0;

    (void)state;
    assert_true(table && src && dst);
    while (fscanf(table, "%31s %31s %x", from_name, to_name, &crc) == 3) {
        rsd_dtype from, to;
        size_t    n;

        assert_int_equal(rsd_dtype_parse(from_name, &from, NULL), RSD_OK);
        assert_int_equal(rsd_dtype_parse(to_name, &to, NULL), RSD_OK);
        assert_int_equal(rsi_cast_check(to, from, NULL), RSD_OK);
        n = inputs(from, src);
        if (is_float(from) && !is_float(to) && to != RSD_BOOL)
            keep_within(from, to, src, n);
        rsi_cast(dst, to, src, from, n);
        if (is_float(to))
            one_nan(to, dst, n);
        if (rsi_crc32(0, dst, n * rsd_dtype_size(to)) != crc)
            fail_msg("%s to %s differs", from_name, to_name);
        rows++;
    }
    assert_int_equal(rows, 18 * 17);
    fclose(table);
    free(src);
    free(dst);
}

static void floats_beyond_an_integers_range_become_its_end_and_nan_0(void **state)
{
    const float x[] = { 1e30f, -1e30f, NAN, INFINITY, -INFINITY, 127.9f, -128.9f };
    int8_t      i8[7];
    uint8_t     u8[7];
    int64_t     i64[7];
    uint64_t    u64[7];

    (void)state;
    rsi_cast(i8, RSD_I8, x, RSD_F32, 7);
    rsi_cast(u8, RSD_U8, x, RSD_F32, 7);
    rsi_cast(i64, RSD_I64, x, RSD_F32, 7);
    rsi_cast(u64, RSD_U64, x, RSD_F32, 7);
    assert_memory_equal(i8, ((int8_t[]){ 127, -128, 0, 127, -128, 127, -128 }), sizeof(i8));
    assert_memory_equal(u8, ((uint8_t[]){ 255, 0, 0, 255, 0, 127, 0 }), sizeof(u8));
    assert_true(i64[0] == INT64_MAX && i64[1] == INT64_MIN && i64[2] == 0);
    assert_true(u64[0] == UINT64_MAX && u64[1] == 0 && u64[2] == 0 && u64[3] == UINT64_MAX);
}

static void complex_numbers_are_cast_part_by_part(void **state)
{
    const float x[] = { 1.5f, -2.25f, 65536.0f, NAN };
    uint16_t    half[4];
    double      wide[4];

    (void)state;
    rsi_cast(half, RSD_C32, x, RSD_C64, 2);
    assert_memory_equal(half, ((uint16_t[]){ 0x3e00, 0xc080, 0x7c00, 0x7e00 }), sizeof(half));
    rsi_cast(wide, RSD_C128, half, RSD_C32, 2);
    assert_true(wide[0] == 1.5 && wide[1] == -2.25 && isinf(wide[2]) && isnan(wide[3]));
}

static void complex_to_real_and_float4_are_refused_by_name(void **state)
{
    rsd_error err;

    (void)state;
    assert_int_equal(rsi_cast_check(RSD_F32, RSD_C64, &err), RSD_E_UNSUPPORTED);
    assert_string_equal(err.msg, "complex64 can't be cast to float32");
    assert_int_equal(rsi_cast_check(RSD_C64, RSD_F32, NULL), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_cast_check(RSD_F32, RSD_F4_E2M1FN_X2, NULL), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_cast_check((rsd_dtype)99, RSD_F32, NULL), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_cast_check(RSD_F4_E2M1FN_X2, RSD_F4_E2M1FN_X2, NULL), RSD_OK);
}

static void elements_may_lie_at_any_address(void **state)
{
    unsigned char in[4 * 700 + 1], out[2 * 700 + 1];

    (void)state;
    for (uint32_t i = 0; i < 700; i++) {
        float x = (float)i;

        memcpy(in + 1 + 4 * i, &x, 4);
    }
    rsi_cast(out + 1, RSD_I16, in + 1, RSD_F32, 700);
    for (int16_t i = 0; i < 700; i++)
        assert_memory_equal(out + 1 + 2 * i, &i, 2);
}

static void a_tie_goes_to_the_even_neighbour(void **state)
{
    static const float    from[] = { 1.00390625f, 1.01171875f, -1.00390625f, 1.00390637f };
    static const uint16_t to[] = { 0x3f80, 0x3f82, 0xbf80, 0x3f81 };
    uint16_t              out[4];

    (void)state;
    rsi_cast(out, RSD_BF16, from, RSD_F32, 4);
    assert_memory_equal(out, to, sizeof(to));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tie_goes_to_the_even_neighbour),
        cmocka_unit_test(every_cast_gives_what_torch_gives),
        cmocka_unit_test(floats_beyond_an_integers_range_become_its_end_and_nan_0),
        cmocka_unit_test(complex_numbers_are_cast_part_by_part),
        cmocka_unit_test(complex_to_real_and_float4_are_refused_by_name),
        cmocka_unit_test(elements_may_lie_at_any_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
