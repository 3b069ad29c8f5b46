/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of files that every rank wrote with torch.save. rank_families.c finds the files,
 * torch_ranks.c joins their tensors, rank_own.c handles what ranks have of their own. */
#ifndef RSI_RANKS_H
#define RSI_RANKS_H

#include "format/torch_core.h"

/* A file with a number in its name. */
typedef struct rsi_rank_file {
    const char *name;
    size_t      first, digits; /* of the number in the name */
    uint64_t    rank;          /* that number: only decides which replica is loaded */
} rsi_rank_file;

/* Files whose names differ only in the number, by that number. */
typedef struct rsi_rank_family {
    const rsi_rank_file *file; /* [n] */
    size_t               n;
    const char          *label;   /* "model" of "model_world_size_4_rank_0.pt"; may be "" */
    bool                 sharded; /* parts of tensors were found in it */
} rsi_rank_family;

/* The families that are one checkpoint; none if no file has parts of tensors. *found: how many
 * files have a number. */
rsd_err rsi_rank_families(rsd_ckpt *ckpt, rsi_rank_family **out, size_t *n, size_t *found,
                          rsd_error *err);
/* After all files are added: notes what differs between ranks, and removes the tensors that are no
 * replicas of each other. */
rsd_err rsi_ranks_settle(rsd_ckpt *ckpt, rsi_torch *t, rsd_error *err);

#endif
