/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a tensor of the target, from the source: any range of a packed box, cast on the way.
 */
#ifndef RSI_CONVERT_PULL_H
#define RSI_CONVERT_PULL_H

#include "read/fetch.h"

/* A tensor of the target. */
typedef struct rsi_pulled {
    size_t    t; /* of the source */
    rsd_dtype dtype;
} rsi_pulled;

typedef struct rsi_pull {
    rsd_ckpt         *source;
    const rsi_pulled *tensor;
    rsi_pool         *cast; /* buffers of elements that are still to be cast */
    rsd_read_opts     opts;
    rsi_fetch_tools   tools;
} rsi_pull;

/* For `threads` that pull at once. Decoded chunks of a transformed source take `limit` bytes or one
 * chunk for each thread. `verify` ALWAYS: all of a row or record that something is pulled of is
 * compared with its checksum, by whoever is the first. */
rsd_err rsi_pull_open(rsi_pull *pull, rsd_ckpt *source, const rsi_pulled *tensor, rsd_choice verify,
                      size_t threads, size_t limit, rsd_error *err);
/* Compares what belongs to the first n tensors and was not compared yet: every `step`th chunk from
 * number `first` on. */
rsd_err rsi_pull_prove(rsi_pull *pull, size_t n, rsi_workers *workers, size_t first, size_t step,
                       rsd_error *err);
void    rsi_pull_close(rsi_pull *pull);
/* Bytes that one thread takes at most: to cast, and a buffer of fetch.c. */
#define RSI_PULL_CAST_BYTES  ((size_t)1 << 20)
#define RSI_PULL_FETCH_BYTES ((size_t)8 << 20)

/* For rsi_state_tensor: `arg` is the rsi_pull, `number` that of a rsi_pulled. */
rsd_err rsi_pull_bytes(void *arg, size_t number, const rsd_box *box, uint64_t off, size_t len,
                       unsigned char *out, rsd_error *err);

#endif
