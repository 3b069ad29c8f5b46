/* SPDX-License-Identifier: Apache-2.0 */
/* Files that all ranks of a comm write together: whole tensors in one safetensors or torch.save
 * file, or in several. The blocks of the files are divided evenly over the ranks, each gathers the
 * bytes of its blocks from those who hold them. */
#ifndef RSI_WRITE_TOGETHER_H
#define RSI_WRITE_TOGETHER_H

#include "comm/comm.h"
#include "write/write_files.h"

enum { RSI_TOGETHER_BUFFERS = 8 }; /* blocks of staging that it needs at least */

/* Blocks that a rank gathered and writes later, when it needs no other rank any more. */
typedef struct rsi_kept_block {
    size_t   file; /* of the image */
    uint64_t off;
    size_t   at, len; /* in `mem` */
} rsi_kept_block;

typedef struct rsi_kept {
    unsigned char  *mem; /* [bytes] the caller's */
    size_t          bytes, used;
    rsi_kept_block *block; /* [n] for rsi_free */
    size_t          n, cap;
} rsi_kept;

/* Rank r writes blocks [n * r / ranks, n * (r + 1) / ranks) of all files, counted one behind the
 * other. The image has the items of all files and is the same on all ranks (image_follow.h). All
 * ranks fail or none. With `keep` the files are made, and what would go into them is kept there.
 * [collective] */
rsd_err rsi_write_together(rsi_image *image, const rsd_state *state, rsd_comm *comm,
                           rsd_store *store, const rsi_write_opts *opts, rsi_kept *keep,
                           rsd_error *err);
/* Bytes that a rank keeps at most. */
size_t rsi_kept_bytes(const rsi_image *image, int32_t ranks);
/* Writes, syncs and closes. [local] */
rsd_err rsi_kept_write(const rsi_kept *kept, const rsi_image *image, rsd_store *store,
                       const rsi_write_opts *opts, rsd_error *err);

#endif
