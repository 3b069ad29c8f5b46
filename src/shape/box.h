/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes inside the library: the public functions of reshard.h plus what only we need. */
#ifndef RSI_BOX_H
#define RSI_BOX_H

#include "base/error.h"

#define RSI_BOX_TEXT 512 /* longer than any box in words */

bool rsi_box_equal(const rsd_box *a, const rsd_box *b);
/* <0, 0, >0 by offset, first dimension first: the order in which moves are listed on both ends. */
int rsi_box_order(const rsd_box *a, const rsd_box *b);
/* Refuses a number of dimensions, a size or a product (with `dtype`'s bytes) that can't be; *elems
 * is set. */
rsd_err rsi_shape_check(rsd_dtype dtype, int ndim, const int64_t *shape, int64_t *elems,
                        rsd_error *err);
/* Refuses a box that has another number of dimensions or is not inside `shape`. */
rsd_err rsi_box_check(const rsd_box *box, int ndim, const int64_t *shape, rsd_error *err);
/* Row-major byte strides of a packed box or tensor. */
void rsi_strides(int ndim, const int64_t *len, int64_t elem_bytes, int64_t *stride);
/* The largest box that starts at flat element `at` and ends by `end` at the latest: whole rows of
 * the outermost dimension that both allow. A range is at most 2 * ndim - 1 of them. Returns its
 * elements. */
int64_t rsi_range_box(int ndim, const int64_t *shape, int64_t at, int64_t end, rsd_box *out);

#endif
