/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what overwriting may remove. */
#ifndef RSI_REPLACE_H
#define RSI_REPLACE_H

#include "store/store.h"

/* RSD_OK if the name is free or the existing entry may be replaced: a file only by a file, a folder
 * only by a folder, and only if it is empty or holds nothing but checkpoint files and files listed
 * in its checksum file. Otherwise RSD_E_EXISTS, naming the obstacle. Symbolic links, devices, FIFOs
 * and sockets are never replaced. */
rsd_err rsi_replace_check(rsd_store *store, const char *name, bool one_file, rsd_error *err);

/* True for the name of a checkpoint file, of any format, in the folder. */
bool rsi_replace_is_ours(const char *name);

#endif
