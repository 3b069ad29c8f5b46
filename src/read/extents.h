/* SPDX-License-Identifier: Apache-2.0 */
/* A cache for reads that return to a chunk piece by piece: where the chunk lies in its file
 * (finding out costs a few reads), how far a transformed one is decoded, and what has already been
 * compared with checksums. */
#ifndef RSI_EXTENTS_H
#define RSI_EXTENTS_H

#include "format/ckpt.h"

typedef struct rsi_extents rsi_extents;

/* Decoders that nobody uses are kept while all of them take at most `limit` bytes. */
rsd_err rsi_extents_create(rsd_ckpt *ckpt, size_t limit, rsi_extents **out, rsd_error *err);
void    rsi_extents_free(rsi_extents *extents); /* all extents must have been given back */

/* The checkpoint's own, for reads of transformed chunks by its user, who may read them in parts.
 * Closing frees it. Any thread. */
rsd_err rsi_ckpt_extents(rsd_ckpt *ckpt, rsi_extents **out, rsd_error *err);

/* Borrowed until given back. Waits if another thread is locating the chunk. Any thread, as are all
 * functions below. */
rsd_err rsi_extents_get(rsi_extents *x, size_t t, size_t i, const rsi_extent **out, rsd_error *err);
void    rsi_extents_put(rsi_extents *x, const rsi_extent *extent);

/* Sets *first if no caller has claimed the check of the row or record at `off` of this file; the
 * caller has now, so it is read only once for checking, however many reads touch it. `x` NULL:
 * always first. */
rsd_err rsi_extents_first(rsi_extents *x, uint32_t file, uint64_t off, bool *first, rsd_error *err);

#endif
