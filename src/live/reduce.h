/* SPDX-License-Identifier: Apache-2.0 */
/* Combines contributions element by element: widened first, combined in the given order, narrowed
 * once at the end. So the result depends only on that order. */
#ifndef RSI_REDUCE_H
#define RSI_REDUCE_H

#include "base/error.h"

#define RSI_WIDEST 8 /* maximum ratio of accumulator bytes to element bytes */

/* Refuses operations that a type can't do. op 0: values are only divided. */
rsd_err rsi_reduce_check(rsd_dtype dtype, rsd_reduce op, rsd_error *err);
/* Sets acc[i] to element i of `in`. 16-bit and 8-bit floats are combined as float, integers as 64
 * bits. */
void rsi_reduce_first(rsd_dtype dtype, void *acc, const void *in, size_t n);
/* Sets acc[i] to acc[i] op element i of `in`. */
void rsi_reduce_more(rsd_dtype dtype, rsd_reduce op, void *acc, const void *in, size_t n);
/* Sets element i of `out` to acc[i] / divisor. */
void rsi_reduce_last(rsd_dtype dtype, int64_t divisor, void *out, void *acc, size_t n);

#endif
