/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a checksum file whose bytes arrive in order, in several reads: hashed as they are read,
 * instead of being read once more for the comparison. */
#ifndef RSI_ROW_STREAMS_H
#define RSI_ROW_STREAMS_H

#include "read/check_sums.h"
#include "read/extents.h"

typedef struct rsi_row_streams rsi_row_streams;
typedef struct rsi_row_stream  rsi_row_stream;

rsd_err rsi_row_streams_create(rsd_ckpt *ckpt, rsi_row_streams **out, rsd_error *err);
void    rsi_row_streams_free(rsi_row_streams *streams);

/* Claims the check of a row whose elements, of tensor t, may be read later, unless somebody has.
 * Sets *owed if it will be compared: by then, or by rsi_row_streams_finish. Any thread, as are all
 * functions here. */
rsd_err rsi_row_stream_owe(rsi_row_streams *s, rsi_extents *claims, size_t t, uint32_t file,
                           const rsi_sum_row *row, bool *owed, rsd_error *err);

/* Before a read of bytes from `at` on, which belong to tensor t: *out is the row's stream if it has
 * come that far, or is new and only a few bytes precede `at`, which are read here; the caller feeds
 * *hash. Otherwise NULL, as for short rows, which one call reads again. A new stream claims the
 * row's check in `claims` (rsi_extents_first). */
rsd_err rsi_row_stream_take(rsi_row_streams *s, rsi_extents *claims, size_t t, uint32_t file,
                            const rsi_sum_row *row, uint64_t at, rsi_row_stream **out,
                            rsi_hash128_stream **hash, rsd_error *err);
/* After it: `end` bytes of the file have been fed. Compares the row if only a few bytes follow.
 * `failed`: the read did not succeed. */
rsd_err rsi_row_stream_put(rsi_row_streams *s, rsi_row_stream *stream, uint64_t end, bool failed,
                           rsd_error *err);
/* Reads and compares the rows that were claimed, but not read to their ends. */
rsd_err rsi_row_streams_finish(rsi_row_streams *s, rsd_error *err);

#endif
