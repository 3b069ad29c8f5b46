/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of safetensors files without an index: variants, adapters, vLLM's sharded_state. */
#ifndef RSI_ST_FOLDER_H
#define RSI_ST_FOLDER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* An adapter is not merged into a model beside it. */
bool rsi_st_is_adapter(const char *name);
/* Refuses files that can't be one checkpoint. *kind is set if there is something to say about it;
 * *all is false if the adapters are to be left out. */
rsd_err rsi_st_folder_check(char **names, size_t n, const char **kind, bool *all, rsd_error *err);

#endif
