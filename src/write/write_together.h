/* SPDX-License-Identifier: Apache-2.0 */
/* Files that all ranks of a comm write jointly: whole tensors in one or more safetensors or
 * torch.save files. The files' blocks are divided evenly among the ranks; each rank gathers the
 * bytes of its blocks from their holders. */
#ifndef RSI_WRITE_TOGETHER_H
#define RSI_WRITE_TOGETHER_H

#include "comm/comm.h"
#include "write/write_files.h"

enum { RSI_TOGETHER_BUFFERS = 8 }; /* minimum blocks of staging */

/* Gathered blocks that a rank writes later, when it no longer needs other ranks. */
typedef struct rsi_kept_block {
    size_t   file; /* of the image */
    uint64_t off;
    size_t   at, len; /* in `mem` */
} rsi_kept_block;

typedef struct rsi_kept {
    unsigned char  *mem; /* [bytes] owned by the caller */
    size_t          bytes, used;
    rsi_kept_block *block; /* [n] for rsi_free */
    size_t          n, cap;
} rsi_kept;

/* Rank r writes blocks [n * r / ranks, n * (r + 1) / ranks), counted across all files. The image
 * has the items of all files and is the same on all ranks (image_follow.h). All ranks fail or none.
 * With `keep` the files are created and the finished blocks are kept there. [collective] */
rsd_err rsi_write_together(rsi_image *image, const rsd_state *state, rsd_comm *comm,
                           rsd_store *store, const rsi_write_opts *opts, rsi_kept *keep,
                           rsd_error *err);
/* The most bytes that a rank keeps. */
size_t rsi_kept_bytes(const rsi_image *image, int32_t ranks);
/* Writes the kept blocks, syncs and closes the files. [local] */
rsd_err rsi_kept_write(const rsi_kept *kept, const rsi_image *image, rsd_store *store,
                       const rsi_write_opts *opts, rsd_error *err);

#endif
