/* SPDX-License-Identifier: Apache-2.0 */
/* Reads parts of tensors out of an opened checkpoint: only the bytes that are needed. */
#ifndef RSI_FETCH_H
#define RSI_FETCH_H

#include "format/ckpt.h"

/* Fills *into with its box of tensor t, whatever the chunks are. */
rsd_err rsi_fetch(rsd_ckpt *ckpt, size_t t, const rsd_view *into, const rsd_read_opts *opts,
                  rsd_error *err);
/* Reads the stored record of chunk i and compares its CRC32, if it has one; *checked says if it
 * had. */
rsd_err rsi_check_record(rsd_ckpt *ckpt, size_t t, size_t i, bool *checked, rsd_error *err);

#endif
