/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata of a checkpoint of safetensors files. */
#ifndef RSI_ST_META_H
#define RSI_ST_META_H

#include "base/map.h"
#include "format/ckpt.h"
#include "format/st_header.h"

/* Adds the lines of one file to ckpt->meta, which has room for them, and compares those that other
 * files have too. `known`: where each key is. */
rsd_err rsi_st_meta_add(rsd_ckpt *ckpt, const rsi_st_header *header, rsi_map *known,
                        rsd_error *err);

#endif
