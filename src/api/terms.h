/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks must give alike to the calls that save, load and convert. Threads, memory and
 * callbacks are each rank's own. */
#ifndef RSI_API_TERMS_H
#define RSI_API_TERMS_H

#include "comm/alike.h"

/* `how` 0: rsd_save. */
void rsi_terms_save(rsi_terms *terms, const char *path, rsd_stage_way how,
                    const rsd_save_opts *opts);
/* What is loaded, and how, may be another thing on every rank; the checkpoint may not. */
void rsi_terms_load(rsi_terms *terms, const char *path, const rsd_load_opts *opts);
void rsi_terms_convert(rsi_terms *terms, const char *path, const rsd_convert_opts *opts);

#endif
