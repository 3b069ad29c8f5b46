/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that a thread keeps whole outside of any stash. */
#ifndef RSI_STASH_LOOSE_H
#define RSI_STASH_LOOSE_H

#include "live/stash.h"

/* As those of a stash, for handles without one. */
rsd_err rsi_loose_save(const rsi_piece *what, const void *data, rsd_stashed *out, rsd_error *err);
rsd_err rsi_loose_prefetch(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err);
rsd_err rsi_loose_take(const rsd_stashed *saved, void *data, size_t bytes, rsd_error *err);
void    rsi_loose_stats(rsd_stash_stats *out);

#endif
