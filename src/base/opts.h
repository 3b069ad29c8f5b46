/* SPDX-License-Identifier: Apache-2.0 */
/* One rule for every struct that begins with its own size, which lets programs and libraries of
 * different versions work together. */
#ifndef RSI_OPTS_H
#define RSI_OPTS_H

#include "base/error.h"

/* Copies the caller's struct over `known`, which has `bytes` bytes and holds the defaults; NULL
 * keeps them. An older caller's struct is smaller. RSD_E_INVALID: the size is 0 or absurd, or the
 * struct is larger than known here and the unknown part is not all zero, or an enumerated field
 * (rsd_choice, rsd_format) has an unknown value. `name` is the struct's. */
rsd_err rsi_opts_take(void *known, size_t bytes, const void *opts, const char *name,
                      rsd_error *err);

/* The same rule for structs that the library fills for the caller. RSD_E_INVALID: `out` is NULL or
 * its size is 0 or absurd. */
rsd_err rsi_result_check(const void *out, const char *name, rsd_error *err);
/* Copies as much of a result of `bytes` bytes as both sides know; out->size stays the caller's. */
void rsi_result_give(void *out, const void *known, size_t bytes);

#endif
