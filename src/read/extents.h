/* SPDX-License-Identifier: Apache-2.0 */
/* Where chunks lie in their files, remembered between reads: looking costs a few reads of the file,
 * and a transformed chunk has to be decoded whole. For readers that come back to a chunk piece by
 * piece. */
#ifndef RSI_EXTENTS_H
#define RSI_EXTENTS_H

#include "format/ckpt.h"

typedef struct rsi_extents rsi_extents;

/* Decoded bytes that nobody uses are kept as long as there are no more than `limit` of them. */
rsd_err rsi_extents_create(rsd_ckpt *ckpt, size_t limit, rsi_extents **out, rsd_error *err);
void    rsi_extents_free(rsi_extents *extents); /* every extent is back */

/* For rsi_fetch_tools: `arg` is the rsi_extents. A chunk that another thread is decoding is waited
 * for. */
rsd_err rsi_extents_get(void *arg, size_t t, size_t i, const rsi_extent **out, rsd_error *err);
void    rsi_extents_put(void *arg, const rsi_extent *extent);

#endif
