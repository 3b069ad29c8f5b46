/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that Megatron-Core opens: DCP with common.pt, metadata.json and objects that its layers
 * ask for, named by the tracker file of the folder around it. */
#ifndef RSI_CONVERT_MEGATRON_H
#define RSI_CONVERT_MEGATRON_H

#include "commit/commit.h"
#include "convert/convert_state.h"
#include "write/image.h"

/* The iteration of a folder named "iter_0000012", or 0 of one named "release". */
rsd_err rsi_megatron_name(const char *path, int64_t *iteration, rsd_error *err);
/* Adds the `_extra_state` of linear layers and attention, without content, unless the state has
 * it. */
rsd_err rsi_megatron_values(rsi_convert_state *cs, rsd_error *err);
/* Adds common.pt and metadata.json, unless the image has them. */
rsd_err rsi_megatron_files(rsi_convert_state *cs, int64_t iteration, rsi_image *image,
                           rsd_error *err);
/* Makes the tracker file beside a published folder point to it. */
rsd_err rsi_megatron_track(const rsi_commit *to, rsd_error *err);

#endif
