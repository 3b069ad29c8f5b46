/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes inside the library: the public functions of reshard.h plus internal ones. */
#ifndef RSI_BOX_H
#define RSI_BOX_H

#include "base/error.h"

#define RSI_BOX_TEXT 512 /* longer than any box's text */

bool rsi_box_equal(const rsd_box *a, const rsd_box *b);
/* <0, 0, >0 by offset, first dimension first: the order of moves on both ends. */
int rsi_box_order(const rsd_box *a, const rsd_box *b);
/* Refuses an invalid number of dimensions, size or product (with `dtype`'s bytes); sets *elems. */
rsd_err rsi_shape_check(rsd_dtype dtype, int ndim, const int64_t *shape, int64_t *elems,
                        rsd_error *err);
/* Refuses a box with a different number of dimensions or outside `shape`. */
rsd_err rsi_box_check(const rsd_box *box, int ndim, const int64_t *shape, rsd_error *err);
/* Row-major byte strides of a packed box or tensor. */
void rsi_strides(int ndim, const int64_t *len, int64_t elem_bytes, int64_t *stride);
/* The largest box that starts at flat element `at` and ends no later than `end`: whole rows of the
 * outermost dimension possible. A range takes at most 2 * ndim - 1 of them. Returns its number of
 * elements. */
int64_t rsi_range_box(int ndim, const int64_t *shape, int64_t at, int64_t end, rsd_box *out);

#endif
