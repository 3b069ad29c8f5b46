/* SPDX-License-Identifier: Apache-2.0 */
/* One rule for every struct that begins with its own size, so that programs and libraries of
 * different versions work together. */
#ifndef RSI_OPTS_H
#define RSI_OPTS_H

#include "base/error.h"

/* Puts the caller's struct over `known`, of `bytes` bytes, which holds the defaults; NULL: they
 * stay. A smaller one is that of an older caller. RSD_E_INVALID: the size is 0 or no size at all,
 * or the struct is larger than it is known here and what is unknown is not all zero, or a field
 * that is one of a few values (rsd_choice, rsd_format) is none of them. `name` is that of the
 * struct. */
rsd_err rsi_opts_take(void *known, size_t bytes, const void *opts, const char *name,
                      rsd_error *err);

/* The same rule for structs that the caller gets filled. RSD_E_INVALID: `out` is NULL or its size
 * is 0 or no size at all. */
rsd_err rsi_result_check(const void *out, const char *name, rsd_error *err);
/* Copies a result of `bytes` bytes as far as both sides know it; out->size stays the caller's. */
void rsi_result_give(void *out, const void *known, size_t bytes);

#endif
