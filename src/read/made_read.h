/* SPDX-License-Identifier: Apache-2.0 */
/* Reads boxes of tensors that a recipe makes of others (recipe/made.h). */
#ifndef RSI_MADE_READ_H
#define RSI_MADE_READ_H

#include "read/fetch_all.h"
#include "recipe/made.h"

typedef struct rsi_made_reader {
    const rsi_made        *made;
    rsd_ckpt              *source; /* its tensors are made->source, in order */
    const rsi_fetch_tools *tools;  /* without workers and taker */
    const rsd_read_opts   *opts;
    rsi_pool              *pool; /* buffers of RSI_MADE_BYTES */
} rsi_made_reader;

/* Bytes used by one thread, in addition to a buffer of the fetch tools. */
#define RSI_MADE_BYTES ((size_t)4 << 20)

/* Fills `out` with a packed box of target t, in its dtype. Any thread. */
rsd_err rsi_made_read(const rsi_made_reader *reader, size_t t, const rsd_box *box, void *out,
                      rsd_error *err);

/* Fills views with boxes of targets: `t` of a want is the target's number, and it has no taker. */
rsd_err rsi_made_fetch_all(const rsi_made *made, rsd_ckpt *source, const rsi_want *want, size_t n,
                           const rsd_read_opts *opts, rsd_error *err);

/* The recipe's view of a checkpoint, or NULL with `recipe` NULL. `left_out` says which tensors the
 * recipe does not see; may be NULL. Free with rsi_made_drop. */
rsd_err rsi_made_of(const rsd_recipe *recipe, rsd_ckpt                            *source,
                    bool (*left_out)(void *arg, size_t t, const char *name), void *arg,
                    rsi_made **out, rsd_error *err);
void    rsi_made_drop(rsi_made *made);
/* A target as a tensor of a checkpoint would be. */
void rsi_made_info(const rsi_made *made, size_t t, rsd_tensor_info *out);

#endif
