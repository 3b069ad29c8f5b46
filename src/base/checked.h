/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on untrusted sizes: true means that the result fits and *out is set. */
#ifndef RSI_CHECKED_H
#define RSI_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool rsi_add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool rsi_mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool rsi_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Product of n sizes, none negative, times `unit` bytes. A zero size makes it 0, but the others
 * must still fit. */
bool rsi_product(int n, const int64_t *size, int64_t unit, int64_t *out);

static inline int64_t rsi_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t rsi_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* b > 0, a >= 0 */
static inline int64_t rsi_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

#endif
