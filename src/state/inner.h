/* SPDX-License-Identifier: Apache-2.0 */
/* Rebuilds a dict or list that the checkpoint stores as separate entries, so that a lookup by name
 * gives the same result for every format. */
#ifndef RSI_INNER_H
#define RSI_INNER_H

#include "format/ckpt.h"

/* The value whose objects lie below `name`; RSD_E_NOTFOUND if there are none, RSD_E_UNSUPPORTED if
 * they include tensors that the format stores separately. `owner` NULL: only checks. */
rsd_err rsi_inner_value(rsd_ckpt *ckpt, const char *name, rsd_values *owner, const rsd_value **out,
                        rsd_error *err);

#endif
