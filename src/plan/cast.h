/* SPDX-License-Identifier: Apache-2.0 */
/* Converts elements of one dtype to another: the result of torch's .to(dtype), bit for bit except
 * for the payload of NaN, wherever torch defines it. Pure arithmetic.
 *
 *   to a float      the nearest value, ties to even; from float64, and from integers to types
 *                   shorter than float32, via float32, as in torch. Too large: infinity; the
 *                   largest value in float8_e4m3fn; NaN in the other float8 types without
 *                   infinity. NaN stays NaN. float8_e8m0fnu drops the sign and takes the nearest
 *                   power of two; 0 becomes the smallest one.
 *   float to int    towards zero; values out of range become the nearest limit, NaN becomes 0
 *                   (torch leaves both undefined)
 *   int to int      the low bits
 *   to bool         0 becomes false, everything else, including NaN, true
 *   from bool       0 or 1
 *   complex         to complex only, part by part; float4 to nothing else */
#ifndef RSI_CAST_H
#define RSI_CAST_H

#include "base/error.h"

/* RSD_E_UNSUPPORTED if there is no such cast. Equal types are fine. */
rsd_err rsi_cast_check(rsd_dtype to, rsd_dtype from, rsd_error *err);
/* n elements, packed, at any address; `dst` and `src` don't overlap. rsi_cast_check has succeeded.
 */
void rsi_cast(void *dst, rsd_dtype to, const void *src, rsd_dtype from, size_t n);

#endif
