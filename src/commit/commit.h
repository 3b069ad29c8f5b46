/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint on its way to its name (C1 to C7), for saves and conversions alike: a temporary
 * tree, files that every rank writes there, metadata and checksums by rank 0, then the name. It
 * knows an image and how to write it, never whose bytes they are. outcome.h brings the ranks to one
 * result. */
#ifndef RSI_COMMIT_H
#define RSI_COMMIT_H

#include "comm/comm.h"
#include "write/write_files.h"

typedef struct rsi_commit {
    const char    *path; /* borrowed */
    rsd_comm      *comm; /* NULL: alone */
    int32_t        rank; /* -1: all of them */
    bool           one_file, overwrite;
    bool           uneven; /* places of values are known to their writers alone */
    rsi_image      image;
    rsd_store     *store;
    bool           own_store;
    char          *name; /* of the checkpoint in the store */
    rsi_tree      *tree;
    rsi_write_opts flush;
    rsi_sums       sums;     /* rows of what this rank wrote; on rank 0 in the end of all */
    uint64_t       metadata; /* bytes of it */
} rsi_commit;

/* Is this the rank that makes the tree and gives the name? */
bool rsi_commit_leads(const rsi_commit *c);
/* How this step went on all ranks; alone: here. [collective] */
rsd_err rsi_commit_agree(const rsi_commit *c, rsd_err rc, rsd_error *err);

/* Whether checksums are written: sets c->flush.sums. [local] */
rsd_err rsi_commit_want_sums(rsi_commit *c, rsd_choice checksum, rsd_error *err);
/* The store that was given, or that of the path; `create`: makes its folder. [local] */
rsd_err rsi_commit_store(rsi_commit *c, bool create, rsd_error *err);
/* RSD_E_EXISTS: what has the checkpoint's name is nothing that overwriting may remove. Asked before
 * the work and before publishing; rank 0. [local] */
rsd_err rsi_commit_may_replace(const rsi_commit *c, rsd_error *err);
/* RSD_TREE_*, as this checkpoint needs them. */
uint32_t rsi_commit_tree_flags(const rsi_commit *c);
/* The temporary tree (C2); sets c->flush.top. [collective] */
rsd_err rsi_commit_open(rsi_commit *c, rsd_error *err);
/* Rank 0, when all data are there: metadata and checksums (C4). [local] */
rsd_err rsi_commit_close(rsi_commit *c, rsd_error *err);
/* Rank 0, when every rank has said yes to all of that: the name (C1, C5). [local] */
rsd_err rsi_commit_name(rsi_commit *c, rsd_error *err);
/* Lets go of everything but the image; removes what was not published. Returns `rc`, and says which
 * checkpoint. [local] */
rsd_err rsi_commit_end(rsi_commit *c, rsd_err rc, rsd_error *err);

#endif
