/* SPDX-License-Identifier: Apache-2.0 */
/* Detects the format of a checkpoint. */
#ifndef RSI_DETECT_H
#define RSI_DETECT_H

#include "format/files.h"

/* By the file names in a folder, or by the first bytes of a single file, never by its name.
 * RSD_E_FORMAT says what was found instead of a checkpoint. */
rsd_err rsi_detect(rsi_files *files, rsd_format *out, rsd_error *err);

/* True for the name of a torch.save file of one of many ranks. */
bool rsi_detect_is_rank(const char *name);

/* Says in `text`, RSI_BELOW_SIZE bytes, which subfolders hold a checkpoint, to end an error's
 * message with: accelerate keeps two in one folder, Hugging Face's cache keeps them three levels
 * down. Empty if there is none. */
#define RSI_BELOW_SIZE 410
void rsi_detect_below(rsi_files *files, char *text);

#endif
