/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks that know only a meeting place exchange bytes and errors. */
#ifndef RSI_ROUNDS_H
#define RSI_ROUNDS_H

#include "base/bytes.h"
#include "base/error.h"

#include <reshard/reshard_plugin.h>

typedef struct rsi_rounds {
    int32_t            rank, size;
    const rsd_meeting *with;
    int64_t            until; /* ms of the clock: all ranks have come by then */
} rsi_rounds;

rsi_rounds rsi_rounds_begin(int32_t rank, int32_t size, const rsd_meeting *with);

/* One round: every rank brings how it fares and some bytes. On success *out, freed by the caller,
 * holds for each rank the number of its bytes (uint64_t) and those; the error is the same on all
 * ranks. */
rsd_err rsi_round(const rsi_rounds *m, const char *name, rsd_err mine, const void *data,
                  size_t bytes, rsi_bytes *out, rsd_error *err);

#endif
