/* SPDX-License-Identifier: Apache-2.0 */
/* Casts in blocks that stay in the first-level cache: every type is loaded as one of four wide
 * types, converted to the target's wide type and stored as the target. Each step is a plain loop
 * that compilers vectorise. The result does not depend on how the processor treats subnormal
 * numbers. */
#include "plan/cast.h"

#include <string.h>

#define BLOCK 512 /* elements */

enum wide { F32, F64, I64, U64, NONE };

typedef union block {
    float    f[BLOCK];
    double   d[BLOCK];
    int64_t  i[BLOCK];
    uint64_t u[BLOCK];
} block;

static uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* ---- short floats ---- */

/* A sign, an exponent and `man` bits of mantissa, laid out like float32. */
typedef struct kind {
    int      bits, man, bias;
    uint32_t top;  /* pattern of the largest finite value */
    uint32_t over; /* pattern for larger values */
    uint32_t nan;
    uint32_t inf;       /* UINT32_MAX: none */
    bool     unsigned0; /* there is no -0; its pattern is the only NaN */
} kind;

static const kind f16_kind = { 16, 10, 15, 0x7bff, 0x7c00, 0x7e00, 0x7c00, false };
static const kind e4m3fn_kind = { 8, 3, 7, 0x7e, 0x7e, 0x7f, UINT32_MAX, false };
static const kind e5m2_kind = { 8, 2, 15, 0x7b, 0x7c, 0x7f, 0x7c, false };
static const kind e4m3fnuz_kind = { 8, 3, 8, 0x7f, 0x80, 0x80, UINT32_MAX, true };
static const kind e5m2fnuz_kind = { 8, 2, 16, 0x7f, 0x80, 0x80, UINT32_MAX, true };

/* For subnormal results, adding a large number rounds to the short type's unit; both terms are
 * normal or too small to matter. */
static inline uint32_t encode(float x, kind k)
{
    const int      cut = 23 - k.man;
    const uint32_t normal = (uint32_t)(128 - k.bias) << 23;
    const uint32_t large = (uint32_t)(127 + 1 - k.bias - k.man + 23) << 23;
    const uint32_t sign = bits_of(x) >> 31 << (k.bits - 1);
    const uint32_t a = bits_of(x) & 0x7fffffff;
    uint32_t       small = bits_of(float_of(a < normal ? a : 0) + float_of(large)) - large;
    uint32_t       rounded = (a + ((1u << (cut - 1)) - 1) + (a >> cut & 1)) >> cut;
    uint32_t       r = a < normal ? small : rounded - ((uint32_t)(127 - k.bias) << k.man);

    r = r > k.top ? k.over : r;
    r = a > 0x7f800000 ? k.nan : r;
    if (k.unsigned0) /* 0 stays 0, NaN keeps its only pattern */
        return r == 0 ? 0 : r | sign;
    return r | sign;
}

static inline float decode(uint32_t p, kind k)
{
    const int      cut = 23 - k.man;
    const uint32_t normal = (uint32_t)(128 - k.bias) << 23;
    const uint32_t sign = p >> (k.bits - 1) << 31;
    const uint32_t a = p & ((1u << (k.bits - 1)) - 1);
    uint32_t       plain = (a << cut) + ((uint32_t)(127 - k.bias) << 23);
    uint32_t       small = bits_of(float_of((a << cut) + normal) - float_of(normal));
    uint32_t       r = a >> k.man ? plain : small;

    if (k.unsigned0)
        return p == k.nan ? float_of(0x7fc00000) : float_of(r | sign);
    r = a > k.top ? 0x7fc00000 : r;
    r = a == k.inf ? 0x7f800000 : r;
    return float_of(r | sign);
}

static inline uint32_t encode_bf16(float x)
{
    uint32_t u = bits_of(x);

    return (u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

/* This type has only an exponent. */
static inline uint32_t encode_e8m0(float x)
{
    uint32_t u = bits_of(x), exponent = u >> 23 & 0xff, rest = u & 0x7fffff;

    if (exponent == 0xff)
        return 0xff;
    return exponent + (rest > 0x400000 || (rest == 0x400000 && exponent > 0));
}

static inline float decode_e8m0(uint32_t p)
{
    return float_of(p == 0xff ? 0x7fc00000 : p == 0 ? 0x400000 : p << 23);
}

/* ---- loading and storing ---- */

/* memcpy through a typed array avoids alignment and aliasing problems. */
#define LOAD(name, type, field, value)                                                             \
    static void load_##name(const void *src, size_t n, block *to)                                  \
    {                                                                                              \
        type in[BLOCK];                                                                            \
                                                                                                   \
        memcpy(in, src, n * sizeof(in[0]));                                                        \
        for (size_t i = 0; i < n; i++)                                                             \
            to->field[i] = (value);                                                                \
    }
#define STORE(name, type, value)                                                                   \
    static void store_##name(void *dst, size_t n, const block *b)                                  \
    {                                                                                              \
        type out[BLOCK];                                                                           \
                                                                                                   \
        for (size_t i = 0; i < n; i++)                                                             \
            out[i] = (type)(value);                                                                \
        memcpy(dst, out, n * sizeof(out[0]));                                                      \
    }

LOAD(bool, uint8_t, i, in[i] != 0)
LOAD(u8, uint8_t, i, in[i])
LOAD(i8, int8_t, i, in[i])
LOAD(u16, uint16_t, i, in[i])
LOAD(i16, int16_t, i, in[i])
LOAD(u32, uint32_t, i, in[i])
LOAD(i32, int32_t, i, in[i])
LOAD(u64, uint64_t, u, in[i])
LOAD(i64, int64_t, i, in[i])
LOAD(f16, uint16_t, f, decode(in[i], f16_kind))
LOAD(bf16, uint16_t, f, float_of((uint32_t)in[i] << 16))
LOAD(f32, float, f, in[i])
LOAD(f64, double, d, in[i])
LOAD(e4m3fn, uint8_t, f, decode(in[i], e4m3fn_kind))
LOAD(e5m2, uint8_t, f, decode(in[i], e5m2_kind))
LOAD(e4m3fnuz, uint8_t, f, decode(in[i], e4m3fnuz_kind))
LOAD(e5m2fnuz, uint8_t, f, decode(in[i], e5m2fnuz_kind))
LOAD(e8m0, uint8_t, f, decode_e8m0(in[i]))

STORE(bool, uint8_t, b->i[i] != 0)
STORE(8, uint8_t, b->u[i])
STORE(16, uint16_t, b->u[i])
STORE(32, uint32_t, b->u[i])
STORE(64, uint64_t, b->u[i])
STORE(f16, uint16_t, encode(b->f[i], f16_kind))
STORE(bf16, uint16_t, encode_bf16(b->f[i]))
STORE(f32, float, b->f[i])
STORE(f64, double, b->d[i])
STORE(e4m3fn, uint8_t, encode(b->f[i], e4m3fn_kind))
STORE(e5m2, uint8_t, encode(b->f[i], e5m2_kind))
STORE(e4m3fnuz, uint8_t, encode(b->f[i], e4m3fnuz_kind))
STORE(e5m2fnuz, uint8_t, encode(b->f[i], e5m2fnuz_kind))
STORE(e8m0, uint8_t, encode_e8m0(b->f[i]))

typedef struct type {
    enum wide wide;
    void (*load)(const void *src, size_t n, block *to);
    void (*store)(void *dst, size_t n, const block *b);
    int64_t low, high; /* of an integer; uint64 is handled separately */
} type;

static const type types[] = {
    [RSD_BOOL] = { I64, load_bool, store_bool, 0, 0 },
    [RSD_U8] = { I64, load_u8, store_8, 0, UINT8_MAX },
    [RSD_I8] = { I64, load_i8, store_8, INT8_MIN, INT8_MAX },
    [RSD_U16] = { I64, load_u16, store_16, 0, UINT16_MAX },
    [RSD_I16] = { I64, load_i16, store_16, INT16_MIN, INT16_MAX },
    [RSD_U32] = { I64, load_u32, store_32, 0, UINT32_MAX },
    [RSD_I32] = { I64, load_i32, store_32, INT32_MIN, INT32_MAX },
    [RSD_U64] = { U64, load_u64, store_64, 0, 0 },
    [RSD_I64] = { I64, load_i64, store_64, INT64_MIN, INT64_MAX },
    [RSD_F16] = { F32, load_f16, store_f16, 0, 0 },
    [RSD_BF16] = { F32, load_bf16, store_bf16, 0, 0 },
    [RSD_F32] = { F32, load_f32, store_f32, 0, 0 },
    [RSD_F64] = { F64, load_f64, store_f64, 0, 0 },
    [RSD_C32] = { NONE, NULL, NULL, 0, 0 },
    [RSD_C64] = { NONE, NULL, NULL, 0, 0 },
    [RSD_C128] = { NONE, NULL, NULL, 0, 0 },
    [RSD_F8_E4M3FN] = { F32, load_e4m3fn, store_e4m3fn, 0, 0 },
    [RSD_F8_E5M2] = { F32, load_e5m2, store_e5m2, 0, 0 },
    [RSD_F8_E4M3FNUZ] = { F32, load_e4m3fnuz, store_e4m3fnuz, 0, 0 },
    [RSD_F8_E5M2FNUZ] = { F32, load_e5m2fnuz, store_e5m2fnuz, 0, 0 },
    [RSD_F8_E8M0FNU] = { F32, load_e8m0, store_e8m0, 0, 0 },
};

/* ---- from one wide type to another ---- */

static void to_f32(const block *b, enum wide from, size_t n, block *out)
{
    for (size_t i = 0; i < n && from == F64; i++)
        out->f[i] = (float)b->d[i];
    for (size_t i = 0; i < n && from == I64; i++)
        out->f[i] = (float)b->i[i];
    for (size_t i = 0; i < n && from == U64; i++)
        out->f[i] = (float)b->u[i];
}

static void to_f64(const block *b, enum wide from, size_t n, block *out)
{
    for (size_t i = 0; i < n && from == F32; i++)
        out->d[i] = (double)b->f[i];
    for (size_t i = 0; i < n && from == I64; i++)
        out->d[i] = (double)b->i[i];
    for (size_t i = 0; i < n && from == U64; i++)
        out->d[i] = (double)b->u[i];
}

static int64_t within(double x, int64_t low, int64_t high)
{
    if (x != x)
        return 0;
    if (x <= (double)low)
        return low;
    return x >= (double)high ? high : (int64_t)x;
}

static uint64_t within_u64(double x)
{
    if (!(x > 0))
        return 0;
    return x >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)x;
}

/* To an integer or bool; between integers the bits are kept. */
static void to_integer(const block *b, enum wide from, rsd_dtype to, size_t n, block *out)
{
    for (size_t i = 0; i < n; i++) {
        double x = from == F32 ? (double)b->f[i] : b->d[i];

        if (to == RSD_BOOL)
            out->i[i] = x != 0;
        else if (to == RSD_U64)
            out->u[i] = within_u64(x);
        else
            out->i[i] = within(x, types[to].low, types[to].high);
    }
}

static void cast_block(unsigned char *dst, rsd_dtype to, const unsigned char *src, rsd_dtype from,
                       size_t n)
{
    const enum wide a = types[from].wide, z = types[to].wide;
    const bool      same = a == z || ((a == I64 || a == U64) && (z == I64 || z == U64));
    block           in, out;

    types[from].load(src, n, &in);
    if (!same && z == F32)
        to_f32(&in, a, n, &out);
    else if (!same && z == F64)
        to_f64(&in, a, n, &out);
    else if (!same)
        to_integer(&in, a, to, n, &out);
    types[to].store(dst, n, same ? &in : &out);
}

/* ---- entry points ---- */

/* The type of a complex number's two parts; 0 if it is not complex. */
static rsd_dtype part_of(rsd_dtype dtype)
{
    return dtype == RSD_C32   ? RSD_F16
           : dtype == RSD_C64 ? RSD_F32
                              : (dtype == RSD_C128 ? RSD_F64 : (rsd_dtype)0);
}

rsd_err rsi_cast_check(rsd_dtype to, rsd_dtype from, rsd_error *err)
{
    bool known = rsd_dtype_size(to) > 0 && rsd_dtype_size(from) > 0;

    if (known && to == from)
        return RSD_OK;
    if (known && !part_of(to) == !part_of(from) && to != RSD_F4_E2M1FN_X2 &&
        from != RSD_F4_E2M1FN_X2)
        return RSD_OK;
    return rsi_fail(err, RSD_E_UNSUPPORTED, "%s can't be cast to %s",
                    rsd_dtype_size(from) ? rsd_dtype_name(from) : "an unknown dtype",
                    rsd_dtype_size(to) ? rsd_dtype_name(to) : "an unknown dtype");
}

void rsi_cast(void *dst, rsd_dtype to, const void *src, rsd_dtype from, size_t n)
{
    const unsigned char *in = src;
    unsigned char       *out = dst;
    size_t               from_bytes, to_bytes;

    if (to == from) {
        memcpy(dst, src, n * rsd_dtype_size(to));
        return;
    }
    if (part_of(to)) {
        to = part_of(to);
        from = part_of(from);
        n *= 2;
    }
    from_bytes = rsd_dtype_size(from);
    to_bytes = rsd_dtype_size(to);
    for (size_t at = 0; at < n; at += BLOCK)
        cast_block(out + at * to_bytes, to, in + at * from_bytes, from,
                   n - at < BLOCK ? n - at : BLOCK);
}

rsd_err rsd_dtype_cast(rsd_dtype to, void *dst, rsd_dtype from, const void *src, size_t n,
                       rsd_error *err)
{
    rsd_err rc = rsi_cast_check(to, from, err);

    if (!rc && n > 0 && (!dst || !src))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: elements or output pointer");
    if (!rc && n > 0)
        rsi_cast(dst, to, src, from, n);
    return rc;
}
