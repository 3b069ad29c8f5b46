/* SPDX-License-Identifier: Apache-2.0 */
/* Files that torch.save wrote before version 1.6, and still writes on request: not an archive, but
 * concatenated pickles and storages. */
#ifndef RSI_TORCH_LEGACY_H
#define RSI_TORCH_LEGACY_H

#include "format/zip.h"

/* Finds what an archive would contain: the records "data.pkl" and "data/<key>", without CRCs. The
 * result lives in `mem`. RSD_E_UNSUPPORTED if it is another pickle. */
rsd_err rsi_legacy_read(const rsi_source *source, rsi_arena *mem, rsi_zip *out, rsd_error *err);

#endif
