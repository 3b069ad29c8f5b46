/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the checksum file (format/sums.h) of an existing checkpoint. */
#ifndef RSI_MAKE_SUMS_H
#define RSI_MAKE_SUMS_H

#include "base/error.h"

/* rsd_ckpt_add_checksums */
rsd_err rsi_make_sums(rsd_store *store, const char *path, const rsd_checksum_opts *opts,
                      rsd_error *err);

#endif
