/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of Partial: one set of loops for each accumulator type. The blocks come from
 * exchange_math.c; plan/cast.c widens and narrows small floats. */
#include "live/reduce.h"
#include "plan/cast.h"

#include <string.h>

/* Accumulator types; a complex number takes two. */
enum wide { FLOAT, DOUBLE, SIGNED, UNSIGNED, BOOLEAN, NONE };

static enum wide wide_of(rsd_dtype dtype)
{
    static const unsigned char wide[RSD_F4_E2M1FN_X2 + 1] = {
        [RSD_BOOL] = BOOLEAN,     [RSD_U8] = UNSIGNED,  [RSD_U16] = UNSIGNED,
        [RSD_U32] = UNSIGNED,     [RSD_U64] = UNSIGNED, [RSD_I8] = SIGNED,
        [RSD_I16] = SIGNED,       [RSD_I32] = SIGNED,   [RSD_I64] = SIGNED,
        [RSD_F64] = DOUBLE,       [RSD_C128] = DOUBLE,  [RSD_F8_E8M0FNU] = NONE,
        [RSD_F4_E2M1FN_X2] = NONE
    };

    return (enum wide)wide[dtype];
}

static bool is_pair(rsd_dtype dtype)
{
    return dtype == RSD_C32 || dtype == RSD_C64 || dtype == RSD_C128;
}

rsd_err rsi_reduce_check(rsd_dtype dtype, rsd_reduce op, rsd_error *err)
{
    static const char *const name[] = { "shared out", "sum",     "average",
                                        "minimum",    "maximum", "product" };
    enum wide                wide = wide_of(dtype);

    if (wide == NONE || (wide == BOOLEAN && (op == RSD_AVG || op == 0)) ||
        (is_pair(dtype) && (op == RSD_MIN || op == RSD_MAX)))
        return rsi_fail(err, RSD_E_UNSUPPORTED, "%s has no %s", rsd_dtype_name(dtype), name[op]);
    return RSD_OK;
}

/* ---- integers to 64 bits and back ---- */

static uint64_t load(const unsigned char *p, size_t size, bool is_signed)
{
    uint64_t x = 0;
    int      spare = (int)(64 - 8 * size);

    memcpy(&x, p, size); /* little-endian, like all stored values */
    if (is_signed && spare > 0)
        x = (uint64_t)((int64_t)(x << spare) >> spare);
    return x;
}

static void narrow_integers(rsd_dtype dtype, int64_t divisor, unsigned char *out,
                            const uint64_t *acc, size_t n)
{
    size_t size = rsd_dtype_size(dtype);
    bool   is_signed = wide_of(dtype) == SIGNED;

    for (size_t i = 0; i < n; i++) {
        uint64_t x = acc[i];

        if (divisor > 1)
            x = is_signed ? (uint64_t)((int64_t)x / divisor) : x / (uint64_t)divisor;
        memcpy(out + i * size, &x, size);
    }
}

static void combine_integers(rsd_dtype dtype, rsd_reduce op, uint64_t *acc, const unsigned char *in,
                             size_t n)
{
    size_t   size = rsd_dtype_size(dtype);
    bool     is_signed = wide_of(dtype) == SIGNED;
    uint64_t flip = is_signed ? (uint64_t)1 << 63 : 0; /* maps signed order to unsigned order */

    for (size_t i = 0; i < n; i++) {
        uint64_t x = load(in + i * size, size, is_signed), a = acc[i];
        bool     less = (x ^ flip) < (a ^ flip);

        if (op == RSD_MIN)
            acc[i] = less ? x : a;
        else if (op == RSD_MAX)
            acc[i] = less ? a : x;
        else
            acc[i] = op == RSD_PRODUCT ? a * x : a + x;
    }
}

/* Sum and maximum are "or", product and minimum "and". */
static void combine_booleans(rsd_reduce op, uint64_t *acc, const unsigned char *in, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] = op == RSD_SUM || op == RSD_MAX ? acc[i] | (in[i] != 0) : acc[i] & (in[i] != 0);
}

/* ---- floats ---- */

/* A NaN on either side propagates, as in torch.minimum. */
#define FLOAT_LOOPS(type)                                                                          \
    static void combine_##type(rsd_reduce op, bool pairs, type *acc, const type *in, size_t n)     \
    {                                                                                              \
        n = pairs ? 2 * n : n;                                                                     \
        for (size_t i = 0; i < n && (op == RSD_SUM || op == RSD_AVG); i++)                         \
            acc[i] += in[i];                                                                       \
        for (size_t i = 0; i < n && op == RSD_PRODUCT && !pairs; i++)                              \
            acc[i] *= in[i];                                                                       \
        for (size_t i = 0; i < n && op == RSD_PRODUCT && pairs; i += 2) {                          \
            type re = acc[i] * in[i] - acc[i + 1] * in[i + 1];                                     \
                                                                                                   \
            acc[i + 1] = acc[i] * in[i + 1] + acc[i + 1] * in[i];                                  \
            acc[i] = re;                                                                           \
        }                                                                                          \
        for (size_t i = 0; i < n && op == RSD_MIN; i++)                                            \
            acc[i] = in[i] < acc[i] || in[i] != in[i] ? in[i] : acc[i];                            \
        for (size_t i = 0; i < n && op == RSD_MAX; i++)                                            \
            acc[i] = in[i] > acc[i] || in[i] != in[i] ? in[i] : acc[i];                            \
    }                                                                                              \
    static void divide_##type(type *acc, int64_t divisor, size_t n)                                \
    {                                                                                              \
        for (size_t i = 0; i < n && divisor > 1; i++)                                              \
            acc[i] /= (type)divisor;                                                               \
    }
FLOAT_LOOPS(float)
FLOAT_LOOPS(double)

/* Elements of these types are read in place. */
static bool is_plain(rsd_dtype dtype)
{
    return dtype == RSD_F32 || dtype == RSD_C64 || wide_of(dtype) == DOUBLE;
}

/* The type of the numbers in a small dtype. */
static rsd_dtype small_part(rsd_dtype dtype)
{
    return dtype == RSD_C32 ? RSD_F16 : dtype;
}

/* Small floats are widened a few at a time. */
static void more_small(rsd_dtype dtype, rsd_reduce op, float *acc, const unsigned char *in,
                       size_t n)
{
    float  wide[256];
    size_t each = is_pair(dtype) ? 2 : 1, size = rsd_dtype_size(dtype), most = 256 / each;

    for (size_t i = 0; i < n; i += most) {
        size_t m = n - i < most ? n - i : most;

        rsi_cast(wide, RSD_F32, in + i * size, small_part(dtype), m * each);
        combine_float(op, is_pair(dtype), acc + each * i, wide, m);
    }
}

void rsi_reduce_more(rsd_dtype dtype, rsd_reduce op, void *acc, const void *in, size_t n)
{
    enum wide wide = wide_of(dtype);

    if (wide == BOOLEAN)
        combine_booleans(op, acc, in, n);
    else if (wide == SIGNED || wide == UNSIGNED)
        combine_integers(dtype, op, acc, in, n);
    else if (wide == DOUBLE)
        combine_double(op, is_pair(dtype), acc, in, n);
    else if (is_plain(dtype))
        combine_float(op, is_pair(dtype), acc, in, n);
    else
        more_small(dtype, op, acc, in, n);
}

void rsi_reduce_first(rsd_dtype dtype, void *acc, const void *in, size_t n)
{
    if (is_plain(dtype)) {
        memcpy(acc, in, n * rsd_dtype_size(dtype));
    } else if (wide_of(dtype) == FLOAT) {
        rsi_cast(acc, RSD_F32, in, small_part(dtype), is_pair(dtype) ? 2 * n : n);
    } else {
        memset(acc, 0, n * sizeof(uint64_t));
        rsi_reduce_more(dtype, RSD_SUM, acc, in, n);
    }
}

void rsi_reduce_last(rsd_dtype dtype, int64_t divisor, void *out, void *acc, size_t n)
{
    enum wide wide = wide_of(dtype);
    size_t    numbers = is_pair(dtype) ? 2 * n : n;

    if (wide == DOUBLE)
        divide_double(acc, divisor, numbers);
    else if (wide == FLOAT)
        divide_float(acc, divisor, numbers);
    if (is_plain(dtype))
        memcpy(out, acc, n * rsd_dtype_size(dtype));
    else if (wide == FLOAT)
        rsi_cast(out, small_part(dtype), acc, RSD_F32, numbers);
    else
        narrow_integers(dtype, divisor, out, acc, n);
}
