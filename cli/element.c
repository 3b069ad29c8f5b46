/* SPDX-License-Identifier: Apache-2.0 */
/* Single elements of any dtype as numbers and as text. */
#include "cli.h"

#include <complex.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A small float: sign, exponent and mantissa, from the highest bit. `finite`: the type has no
 * infinities, and only all ones are NaN; `fnuz`: only the sign bit alone is NaN. */
typedef struct small_float {
    int  exponent, mantissa; /* bits */
    int  bias;
    bool finite, fnuz;
} small_float;

static double small_value(const small_float *f, unsigned bits)
{
    const unsigned sign = bits >> (f->exponent + f->mantissa) & 1;
    const unsigned e = bits >> f->mantissa & ((1u << f->exponent) - 1);
    const unsigned m = bits & ((1u << f->mantissa) - 1);
    const unsigned top = (1u << f->exponent) - 1;
    double         x;

    if (f->fnuz && sign && e == 0 && m == 0)
        return NAN;
    if (!f->fnuz && e == top) {
        if (!f->finite)
            return m ? NAN : sign ? -INFINITY : INFINITY;
        if (m == (1u << f->mantissa) - 1)
            return NAN;
    }
    x = e ? ldexp(1.0 + ldexp(m, -f->mantissa), (int)e - f->bias)
          : ldexp(m, 1 - f->bias - f->mantissa);
    return sign ? -x : x;
}

static unsigned load(const void *at, size_t n)
{
    const unsigned char *p = at;
    unsigned             bits = 0;

    for (size_t i = n; i-- > 0;)
        bits = bits << 8 | p[i];
    return bits;
}

static double half_value(const void *at)
{
    static const small_float half = { 5, 10, 15, false, false };

    return small_value(&half, load(at, 2));
}

static float single_value(const void *at)
{
    float x;

    memcpy(&x, at, sizeof(x));
    return x;
}

static double double_value(const void *at)
{
    double x;

    memcpy(&x, at, sizeof(x));
    return x;
}

static double tiny_value(rsd_dtype dtype, const void *at)
{
    static const small_float e4m3fn = { 4, 3, 7, true, false }, e5m2 = { 5, 2, 15, false, false };
    static const small_float e4m3fnuz = { 4, 3, 8, true, true },
                             e5m2fnuz = { 5, 2, 16, true, true };
    const unsigned bits = load(at, 1);

    switch (dtype) {
    case RSD_F8_E4M3FN:
        return small_value(&e4m3fn, bits);
    case RSD_F8_E5M2:
        return small_value(&e5m2, bits);
    case RSD_F8_E4M3FNUZ:
        return small_value(&e4m3fnuz, bits);
    case RSD_F8_E5M2FNUZ:
        return small_value(&e5m2fnuz, bits);
    case RSD_F8_E8M0FNU:
        return bits == 255 ? NAN : ldexp(1, (int)bits - 127);
    default:
        return bits; /* two values in a byte: shown as the byte */
    }
}

static int64_t integer(rsd_dtype dtype, const void *at)
{
    int64_t  x = 0;
    size_t   n = rsd_dtype_size(dtype);
    unsigned shift = 64 - 8 * (unsigned)n;

    memcpy(&x, at, n);
    if (dtype == RSD_I8 || dtype == RSD_I16 || dtype == RSD_I32)
        x = (int64_t)((uint64_t)x << shift) >> shift;
    return x;
}

bool element_is_float(rsd_dtype dtype)
{
    return dtype >= RSD_F16 && dtype != RSD_F4_E2M1FN_X2;
}

double element_modulus(double real, double imag)
{
    const double   part[2] = { real, imag };
    double complex z;

    /* hypot would need a newer C library, and clang has no CMPLX. */
    memcpy(&z, part, sizeof(z));
    return cabs(z);
}

double element_value(rsd_dtype dtype, const void *at, double *imag)
{
    const char *p = at;
    double      ignored;
    float       x;
    uint32_t    wide;

    imag = imag ? imag : &ignored;
    *imag = 0;
    switch (dtype) {
    case RSD_F16:
        return half_value(at);
    case RSD_BF16:
        wide = load(at, 2) << 16;
        memcpy(&x, &wide, sizeof(x));
        return (double)x;
    case RSD_F32:
        return (double)single_value(at);
    case RSD_F64:
        return double_value(at);
    case RSD_C32:
        *imag = half_value(p + 2);
        return half_value(p);
    case RSD_C64:
        *imag = (double)single_value(p + 4);
        return (double)single_value(p);
    case RSD_C128:
        *imag = double_value(p + 8);
        return double_value(p);
    case RSD_U64:
        return (double)(uint64_t)integer(dtype, at);
    default:
        return element_is_float(dtype) || dtype == RSD_F4_E2M1FN_X2 ? tiny_value(dtype, at)
                                                                    : (double)integer(dtype, at);
    }
}

/* The fewest digits that restore the number, as a double or a float. */
static void number_text(double x, bool wide, char *buf, size_t cap)
{
    int digits = wide ? 15 : 6;

    if (isnan(x)) {
        snprintf(buf, cap, "nan");
        return;
    }
    do
        snprintf(buf, cap, "%.*g", digits, x);
    while (digits++ < (wide ? 17 : 9) &&
           (wide ? strtod(buf, NULL) != x : (double)strtof(buf, NULL) != x));
}

const char *element_text(rsd_dtype dtype, const void *at, char *buf, size_t cap)
{
    const bool wide = dtype == RSD_F64 || dtype == RSD_C128;
    double     imag, real;
    size_t     len;

    if (!element_is_float(dtype)) {
        if (dtype == RSD_U64)
            snprintf(buf, cap, "%" PRIu64, (uint64_t)integer(dtype, at));
        else
            snprintf(buf, cap, "%" PRId64, integer(dtype, at));
        return buf;
    }
    real = element_value(dtype, at, &imag);
    number_text(real, wide, buf, cap);
    if (dtype == RSD_C32 || dtype == RSD_C64 || dtype == RSD_C128) {
        len = strlen(buf);
        snprintf(buf + len, cap - len, signbit(imag) ? "" : "+");
        len = strlen(buf);
        number_text(imag, wide, buf + len, cap - len);
        len = strlen(buf);
        snprintf(buf + len, cap - len, "j");
    }
    return buf;
}
