/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that Megatron-Core opens: DCP with common.pt, metadata.json and objects that its layers
 * ask for, named by the tracker file of the folder around it. */
#ifndef RSI_CONVERT_MEGATRON_H
#define RSI_CONVERT_MEGATRON_H

#include "commit/commit.h"
#include "convert/convert_state.h"
#include "write/image.h"

/* Turns the forms that only conversions write into formats with what they have besides. *iteration
 * is that of a Megatron folder. */
rsd_err rsi_convert_form(const rsd_convert_opts *opts, const char *path, rsi_image_spec *spec,
                         int64_t *iteration, rsd_error *err);
/* Adds the `_extra_state` of linear layers and attention, without content, unless the state has
 * it. */
rsd_err rsi_megatron_values(rsi_convert_state *cs, rsd_error *err);
/* Adds common.pt and metadata.json, unless the image has them. */
rsd_err rsi_megatron_files(rsi_convert_state *cs, int64_t iteration, rsi_image *image,
                           rsd_error *err);
/* Makes the tracker file beside a published folder point to it. */
rsd_err rsi_megatron_track(const rsi_commit *to, rsd_error *err);

#endif
