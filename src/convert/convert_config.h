/* SPDX-License-Identifier: Apache-2.0 */
/* The config.json that goes along with tensors which a recipe quantises, or makes plain. */
#ifndef RSI_CONVERT_CONFIG_H
#define RSI_CONVERT_CONFIG_H

#include "base/bytes.h"
#include "recipe/made.h"

/* What "quantization_config" must become; "": it goes away; NULL: it stays as it is. */
const char *rsi_config_wanted(const rsi_made *made);
/* Appends the JSON text of an object with that value under that key, all else as it is.
 * RSD_E_FORMAT: it is no object. */
rsd_err rsi_config_edit(const char *json, size_t len, const char *wanted, rsi_bytes *out,
                        rsd_error *err);

#endif
