/* SPDX-License-Identifier: Apache-2.0 */
/* Byte order, conjugation and negation of packed elements. */
#include "read/stored_form.h"

#include <string.h>

static bool is_complex(rsd_dtype dtype)
{
    return dtype == RSD_C32 || dtype == RSD_C64 || dtype == RSD_C128;
}

static void swap_bytes(unsigned char *p, size_t bytes, size_t unit)
{
    for (size_t i = 0; i + unit <= bytes; i += unit)
        for (size_t a = i, b = i + unit - 1; a < b; a++, b--) {
            unsigned char t = p[a];

            p[a] = p[b];
            p[b] = t;
        }
}

/* Flips the sign bit (the highest bit of a little-endian number) of every `step`th number from
 * `first` on. */
static void flip_signs(unsigned char *p, size_t bytes, size_t unit, size_t first, size_t step)
{
    for (size_t i = first * unit; i + unit <= bytes; i += step * unit)
        p[i + unit - 1] ^= 0x80;
}

/* Two's complement of little-endian integers. */
static void negate_integers(unsigned char *p, size_t bytes, size_t unit)
{
    for (size_t i = 0; i + unit <= bytes; i += unit) {
        unsigned carry = 1;

        for (size_t k = i; k < i + unit; k++) {
            carry += (unsigned char)~p[k];
            p[k] = (unsigned char)carry;
            carry >>= 8;
        }
    }
}

rsd_err rsi_stored_to_memory(const rsi_extent *x, rsd_dtype dtype, void *elements, size_t bytes,
                             rsd_error *err)
{
    size_t unit = rsd_dtype_size(dtype) / (is_complex(dtype) ? 2 : 1);

    if (x->big_endian)
        swap_bytes(elements, bytes, unit);
    if (x->conj && is_complex(dtype))
        flip_signs(elements, bytes, unit, 1, 2);
    if (!x->neg)
        return RSD_OK;
    if (dtype >= RSD_U8 && dtype <= RSD_I64)
        negate_integers(elements, bytes, unit);
    else if (dtype >= RSD_F16 && dtype <= RSD_C128)
        flip_signs(elements, bytes, unit, 0, 1);
    else
        return rsi_fail(err, RSD_E_UNSUPPORTED, "a negated tensor of %s is not supported",
                        rsd_dtype_name(dtype));
    return RSD_OK;
}
