/* SPDX-License-Identifier: Apache-2.0 */
/* Files that all ranks of a comm write together: whole tensors in one safetensors or torch.save
 * file, or in several. The blocks of the files are divided evenly over the ranks, each gathers the
 * bytes of its blocks from those who hold them. */
#ifndef RSI_SHARED_H
#define RSI_SHARED_H

#include "comm/comm.h"
#include "write/flush.h"

enum { RSI_SHARED_BUFFERS = 8 }; /* blocks of staging that it needs at least */

/* Rank r writes blocks [n * r / ranks, n * (r + 1) / ranks) of all files, counted one behind the
 * other. The image has the items of all files and is the same on all ranks (image_follow.h). All
 * ranks fail or none. [collective] */
rsd_err rsi_shared_flush(rsi_image *image, const rsd_state *state, rsd_comm *comm, rsd_store *store,
                         const rsi_flush_opts *opts, rsd_error *err);

#endif
