/* SPDX-License-Identifier: Apache-2.0 */
/* float16, bfloat16 and the 8-bit floats to float and back. One description for each type, since
 * they differ only in where the bits are and in what the highest exponent means. */
#include "exec/reduce.h"

#include <string.h>

typedef struct small {
    int      exp_bits, man_bits, bias;
    uint32_t largest; /* bits of the largest finite number */
    uint32_t over;    /* what larger ones become: infinity, or NaN where there is none */
    uint32_t nan;
    bool     unsigned_zero; /* FNUZ: there is no -0, its bits are the only NaN */
} small;

static const small *kind(rsd_dtype dtype)
{
    static const small f16 = { 5, 10, 15, 0x7bff, 0x7c00, 0x7e00, false };
    static const small bf16 = { 8, 7, 127, 0x7f7f, 0x7f80, 0x7fc0, false };
    static const small e4m3fn = { 4, 3, 7, 0x7e, 0x7f, 0x7f, false };
    static const small e5m2 = { 5, 2, 15, 0x7b, 0x7c, 0x7f, false };
    static const small e4m3fnuz = { 4, 3, 8, 0x7f, 0x80, 0x80, true };
    static const small e5m2fnuz = { 5, 2, 16, 0x7f, 0x80, 0x80, true };

    switch (dtype) {
    case RSD_F16:
    case RSD_C32:
        return &f16;
    case RSD_BF16:
        return &bf16;
    case RSD_F8_E4M3FN:
        return &e4m3fn;
    case RSD_F8_E5M2:
        return &e5m2;
    case RSD_F8_E4M3FNUZ:
        return &e4m3fnuz;
    default:
        return &e5m2fnuz;
    }
}

static float from_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static float widen(const small *k, uint32_t x)
{
    int      bits = 1 + k->exp_bits + k->man_bits;
    uint32_t sign = x >> (bits - 1) << 31, low = x & ((1u << (bits - 1)) - 1);
    uint32_t man = low & ((1u << k->man_bits) - 1);
    int      exp = (int)(low >> k->man_bits);

    if (k->unsigned_zero && x == k->nan)
        return from_bits(0x7fc00000);
    if (low > k->largest) /* infinity if that is the first beyond, else NaN */
        return from_bits(sign | (low == k->over && k->over != k->nan ? 0x7f800000u : 0x7fc00000u));
    if (exp == 0 && k->bias < 127) { /* man * 2^(1 - bias - man_bits), exact */
        float unit = from_bits((uint32_t)(127 + 1 - k->bias - k->man_bits) << 23);

        return from_bits(sign | to_bits((float)man * unit));
    }
    return from_bits(sign | (uint32_t)(exp + 127 - k->bias) << 23 | man << (23 - k->man_bits));
}

/* Drops `drop` bits, rounding to the nearest, ties to even. */
static uint32_t round_off(uint32_t x, int drop)
{
    uint32_t half, rest;

    if (drop <= 0)
        return x;
    if (drop > 31)
        return 0;
    half = 1u << (drop - 1);
    rest = x & ((half << 1) - 1);
    x >>= drop;
    return x + (rest > half || (rest == half && (x & 1)));
}

static uint32_t narrow(const small *k, float f)
{
    int      bits = 1 + k->exp_bits + k->man_bits;
    uint32_t x = to_bits(f), sign = x >> 31 << (bits - 1), low = x & 0x7fffffff;
    int      exp = (int)(low >> 23) - 127 + k->bias;
    uint32_t out;

    if (low > 0x7f800000)
        return k->unsigned_zero ? k->nan : sign | k->nan;
    if (exp >= 1) /* a carry out of the mantissa raises the exponent, as it should */
        out = round_off((uint32_t)exp << 23 | (low & 0x7fffff), 23 - k->man_bits);
    else if (k->bias == 127) /* bfloat16: as small as floats get */
        out = round_off(low, 23 - k->man_bits);
    else
        out = round_off((low & 0x7fffff) | 0x800000, 23 - k->man_bits + 1 - exp);
    if (out > k->largest)
        return k->unsigned_zero ? k->nan : sign | k->over;
    return k->unsigned_zero && out == 0 ? 0 : sign | out;
}

void rsi_small_widen(rsd_dtype dtype, float *out, const void *in, size_t n)
{
    const small         *k = kind(dtype);
    const unsigned char *p = in;

    for (size_t i = 0; i < n; i++) {
        uint16_t two;

        if (1 + k->exp_bits + k->man_bits == 8) {
            out[i] = widen(k, p[i]);
            continue;
        }
        memcpy(&two, p + 2 * i, 2);
        out[i] = dtype == RSD_BF16 ? from_bits((uint32_t)two << 16) : widen(k, two);
    }
}

void rsi_small_narrow(rsd_dtype dtype, void *out, const float *in, size_t n)
{
    const small   *k = kind(dtype);
    unsigned char *p = out;

    for (size_t i = 0; i < n; i++) {
        uint16_t two = (uint16_t)narrow(k, in[i]);

        if (1 + k->exp_bits + k->man_bits == 8)
            p[i] = (unsigned char)two;
        else
            memcpy(p + 2 * i, &two, 2);
    }
}
