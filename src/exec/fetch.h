/* SPDX-License-Identifier: Apache-2.0 */
/* Reads parts of tensors out of an opened checkpoint: only the bytes that are needed. */
#ifndef RSI_FETCH_H
#define RSI_FETCH_H

#include "format/ckpt.h"

/* Fills *into with its box of tensor t, whatever the chunks are. */
rsd_err rsi_fetch(rsd_ckpt *ckpt, size_t t, const rsd_view *into, const rsd_read_opts *opts,
                  rsd_error *err);
/* Reads the record around an extent of a file and compares its CRC32, if it has one. */
rsd_err rsi_check_crc(rsd_ckpt *ckpt, uint32_t file, const rsi_extent *extent, rsd_error *err);

#endif
