/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a box of a state's tensor: from the caller's views, or pulled from another
 * source. */
#ifndef RSI_TENSOR_H
#define RSI_TENSOR_H

#include "state/state.h"

/* Errors of both name the tensor. The first refuses a box if part of it is missing from the views
 * or duplicated in them. */
rsd_err rsi_tensor_check(const rsi_state_tensor *tensor, const rsd_box *box, rsd_error *err);
/* The address of the box's bytes if they already lie packed in the caller's memory; else NULL. */
const unsigned char *rsi_tensor_direct(const rsi_state_tensor *tensor, const rsd_box *box);
/* Bytes [off, off + len) of the packed box; both are multiples of the element's size. */
rsd_err rsi_tensor_bytes(const rsi_state_tensor *tensor, const rsd_box *box, uint64_t off,
                         size_t len, unsigned char *out, rsd_error *err);

#endif
