/* SPDX-License-Identifier: Apache-2.0 */
/* Which format a checkpoint has. */
#ifndef RSI_DETECT_H
#define RSI_DETECT_H

#include "format/files.h"

/* From what the files are called in a folder, and from the first bytes of a single file, never from
 * its name. RSD_E_FORMAT says what was found instead of a checkpoint. */
rsd_err rsi_detect(rsi_files *files, rsd_format *out, rsd_error *err);

#endif
