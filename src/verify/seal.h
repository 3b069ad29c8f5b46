/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the side file (format/sums.h) of a checkpoint that is there already. */
#ifndef RSI_SEAL_H
#define RSI_SEAL_H

#include "base/error.h"

/* rsd_ckpt_seal */
rsd_err rsi_seal(rsd_store *store, const char *path, const rsd_seal_opts *opts, rsd_error *err);

#endif
