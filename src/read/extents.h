/* SPDX-License-Identifier: Apache-2.0 */
/* What is remembered between reads that come back to a chunk piece by piece: where it lies in its
 * file, since looking costs a few reads and a transformed chunk has to be decoded whole, and what
 * was compared with checksums. */
#ifndef RSI_EXTENTS_H
#define RSI_EXTENTS_H

#include "format/ckpt.h"

typedef struct rsi_extents rsi_extents;

/* Decoded bytes that nobody uses are kept as long as there are no more than `limit` of them. */
rsd_err rsi_extents_create(rsd_ckpt *ckpt, size_t limit, rsi_extents **out, rsd_error *err);
void    rsi_extents_free(rsi_extents *extents); /* every extent is back */

/* Borrowed until it is given back. A chunk that another thread is decoding is waited for. Any
 * thread, as all that follows. */
rsd_err rsi_extents_get(rsi_extents *x, size_t t, size_t i, const rsi_extent **out, rsd_error *err);
void    rsi_extents_put(rsi_extents *x, const rsi_extent *extent);

/* *first: nobody has taken on to check the row or record that begins at `off` of this file; now the
 * caller has, so that none is read twice for that however many reads touch it. `x` NULL: everybody
 * is the first. */
rsd_err rsi_extents_first(rsi_extents *x, uint32_t file, uint64_t off, bool *first, rsd_error *err);

#endif
