/* SPDX-License-Identifier: Apache-2.0 */
/* What overwriting may remove. */
#ifndef RSI_REPLACE_H
#define RSI_REPLACE_H

#include "store/store.h"

/* RSD_OK if nothing has the name, or if what has it may be replaced: by one file only a file, by a
 * folder only a folder that is empty or holds nothing but files of a checkpoint and files that its
 * checksum file lists. RSD_E_EXISTS otherwise, and says what is in the way. Symbolic links,
 * devices, FIFOs and sockets are never replaced. */
rsd_err rsi_replace_check(rsd_store *store, const char *name, bool one_file, rsd_error *err);

/* A file of a checkpoint, of whatever format, by its name in the folder. */
bool rsi_replace_is_ours(const char *name);

#endif
