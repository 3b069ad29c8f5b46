/* SPDX-License-Identifier: Apache-2.0 */
/* Reads data that several ranks of a machine want once and passes them on. */
#ifndef RSI_READ_ONCE_H
#define RSI_READ_ONCE_H

#include "load/wanted_by_several.h"

/* Fills the views of every tensor that is read once; `want` is what this rank passed to
 * rsi_share_make. Staging bounds memory if a piece fits. *go and the result as in rsi_share_go.
 * [collective] on the machine */
rsd_err rsi_read_once(const rsi_share *share, const rsi_want *want, const rsd_read_opts *opts,
                      bool *go, rsd_error *err);

#endif
