/* SPDX-License-Identifier: Apache-2.0 */
/* Supplies the bytes of a target's tensor from the source: any range of a packed box, cast as
 * needed. */
#ifndef RSI_CONVERT_PULL_H
#define RSI_CONVERT_PULL_H

#include "read/made_read.h"

/* A tensor of the target. */
typedef struct rsi_pulled {
    size_t    t; /* number in the source or, with a recipe, of what it makes */
    rsd_dtype dtype;
} rsi_pulled;

typedef struct rsi_pull {
    rsd_ckpt         *source;
    const rsi_pulled *tensor;
    rsi_pool         *cast; /* buffers of elements to be cast */
    rsd_read_opts     opts;
    rsi_fetch_tools   tools;
    rsi_made_reader   reader; /* its `made` NULL: there is no recipe */
} rsi_pull;

/* Opens for `threads` concurrent pulls. Decoded chunks of a transformed source use `limit` bytes or
 * one chunk per thread. `verify` ALWAYS: rows that are pulled in order, and records in pieces
 * without holes, are compared with their checksums as they are pulled; of others the first pull
 * reads and compares all. */
rsd_err rsi_pull_open(rsi_pull *pull, rsd_ckpt *source, const rsi_pulled *tensor,
                      const rsi_made *made, rsd_choice verify, size_t threads, size_t limit,
                      rsd_error *err);
/* Verifies what belongs to the first n tensors, or to all that the recipe uses, and was not
 * verified yet: every `step`th chunk, starting with number `first`. */
rsd_err rsi_pull_prove(rsi_pull *pull, size_t n, rsi_workers *workers, size_t first, size_t step,
                       rsd_error *err);
void    rsi_pull_close(rsi_pull *pull);
/* Most bytes used by one thread: for casting, and a buffer of fetch.c. */
#define RSI_PULL_CAST_BYTES  ((size_t)1 << 20)
#define RSI_PULL_FETCH_BYTES ((size_t)8 << 20)

/* For rsi_state_tensor: `arg` is the rsi_pull, `number` that of an rsi_pulled. */
rsd_err rsi_pull_bytes(void *arg, size_t number, const rsd_box *box, uint64_t off, size_t len,
                       unsigned char *out, rsd_error *err);

#endif
