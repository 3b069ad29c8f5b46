/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the ranks that hold the bytes of a block in a file of whole tensors. Pure arithmetic with
 * the same result on every rank, so messages need no headers. write_together.c moves the bytes. */
#ifndef RSI_BLOCK_HOLDERS_H
#define RSI_BLOCK_HOLDERS_H

#include "write/image.h"

/* The sources of each tensor's bytes. */
typedef struct rsi_holders {
    const rsi_image *image;
    const rsd_state *state;
    rsi_stored     **chunk; /* [ntensors] */
    size_t          *n;
    rsi_arena        mem;
} rsi_holders;

rsd_err rsi_holders_make(rsi_holders *sources, const rsi_image *image, const rsd_state *state,
                         rsd_error *err);
void    rsi_holders_release(rsi_holders *sources);

/* True if every rank of the tensor's mesh holds all of it and `rank` is one of them. */
bool rsi_holders_all(const rsi_holders *sources, size_t tensor, int32_t rank);

typedef struct rsi_held_piece {
    size_t  tensor;
    int32_t from;
    rsd_box box;
    rsd_box run;   /* the box around it whose elements are consecutive in the block, */
    size_t  at;    /* starting at this byte of the block */
    size_t  bytes; /* of `box` */
} rsi_held_piece;

/* Calls visit for every piece of the block that rank `to` writes, in the same order on all ranks.
 * Stops at the first result other than RSD_OK. */
rsd_err rsi_holders_each(const rsi_holders *sources, size_t file, uint64_t at, size_t len,
                         int32_t to, rsd_err (*visit)(void *arg, const rsi_held_piece *piece),
                         void   *arg);

#endif
