/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows and records of a checkpoint somebody has taken on to check, so that none is read twice
 * for that however many reads touch it. Any thread. */
#ifndef RSI_SEEN_H
#define RSI_SEEN_H

#include "base/error.h"

typedef struct rsi_seen rsi_seen;

rsd_err rsi_seen_create(rsi_seen **out, rsd_error *err);
void    rsi_seen_free(rsi_seen *seen);
/* *first: nobody has taken what begins at `off` of this file yet; now the caller has. */
rsd_err rsi_seen_take(rsi_seen *seen, uint32_t file, uint64_t off, bool *first, rsd_error *err);

#endif
