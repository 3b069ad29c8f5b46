/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a box of a tensor, from the views that a caller gave. */
#ifndef RSI_COLLECT_H
#define RSI_COLLECT_H

#include "exec/state.h"

/* Refuses a box that the views don't have, or have twice. */
rsd_err rsi_collect_check(const rsi_state_tensor *tensor, const rsd_box *box, rsd_error *err);
/* Where the packed bytes of the box lie in the caller's memory already; NULL if they don't. */
const unsigned char *rsi_collect_direct(const rsi_state_tensor *tensor, const rsd_box *box);
/* Copies the box, packed, to `out`. */
rsd_err rsi_collect(const rsi_state_tensor *tensor, const rsd_box *box, unsigned char *out,
                    rsd_error *err);
/* Bytes [off, off + len) of the packed box; both are multiples of the element's size. The only way
 * for a tensor that is pulled. */
rsd_err rsi_collect_range(const rsi_state_tensor *tensor, const rsd_box *box, uint64_t off,
                          size_t len, unsigned char *out, rsd_error *err);

#endif
