/* SPDX-License-Identifier: Apache-2.0 */
/* A dict or list of a checkpoint that is kept as what is in it, put together again: what is asked
 * for by its name is the same from every format. */
#ifndef RSI_INNER_H
#define RSI_INNER_H

#include "format/ckpt.h"

/* The value that has objects below `name`; RSD_E_NOTFOUND if there is none, RSD_E_UNSUPPORTED if
 * there are tensors too and the format keeps them apart. `owner` NULL: only looks. */
rsd_err rsi_inner_value(rsd_ckpt *ckpt, const char *name, rsd_values *owner, const rsd_value **out,
                        rsd_error *err);

#endif
