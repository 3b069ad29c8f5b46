/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and publishes a checkpoint (C1 to C7), for both saves and conversions: a temporary tree,
 * files that every rank writes there, metadata and checksums by rank 0, then the name. It knows an
 * image and how to write it, but not where the bytes come from. outcome.h brings the ranks to one
 * result. */
#ifndef RSI_COMMIT_H
#define RSI_COMMIT_H

#include "comm/comm.h"
#include "write/write_files.h"

typedef struct rsi_commit {
    const char    *path; /* borrowed */
    rsd_comm      *comm; /* NULL: a single process */
    int32_t        rank; /* -1: all ranks */
    bool           one_file, overwrite;
    bool           uneven; /* places of values are known only to their writers */
    bool           apart;  /* ranks other than 0 know only their own files */
    rsi_image      image;
    rsd_store     *store;
    bool           own_store;
    char          *name; /* the checkpoint's name in the store */
    rsi_tree      *tree;
    rsi_write_opts flush;
    rsi_sums       sums;     /* rows that this rank wrote; in the end, rank 0 has all ranks' rows */
    uint64_t       metadata; /* its size in bytes */
} rsi_commit;

/* True on the rank that creates the tree and publishes the name. */
bool rsi_commit_leads(const rsi_commit *c);
/* Combines this step's result over all ranks; for a single process, returns it. [collective] */
rsd_err rsi_commit_agree(const rsi_commit *c, rsd_err rc, rsd_error *err);

/* Decides whether checksums are written: sets c->flush.sums. [local] */
rsd_err rsi_commit_want_sums(rsi_commit *c, rsd_choice checksum, rsd_error *err);
/* The given store, or the path's; `create`: creates its folder. [local] */
rsd_err rsi_commit_store(rsi_commit *c, bool create, rsd_error *err);
/* RSD_E_EXISTS: the checkpoint's name is taken by something that overwriting must not remove.
 * Called before the work and again before publishing; rank 0. [local] */
rsd_err rsi_commit_may_replace(const rsi_commit *c, rsd_error *err);
/* The RSD_TREE_* flags that this checkpoint needs. */
uint32_t rsi_commit_tree_flags(const rsi_commit *c);
/* Opens the temporary tree (C2); sets c->flush.top. [collective] */
rsd_err rsi_commit_open(rsi_commit *c, rsd_error *err);
/* Rank 0, once all data are written: writes metadata and checksums (C4). [local] */
rsd_err rsi_commit_close(rsi_commit *c, rsd_error *err);
/* Rank 0, once every rank has confirmed all of that: publishes the name (C1, C5). [local] */
rsd_err rsi_commit_name(rsi_commit *c, rsd_error *err);
/* Releases everything but the image and removes unpublished work. Returns `rc`, and adds the
 * checkpoint's name to the error. [local] */
rsd_err rsi_commit_end(rsi_commit *c, rsd_err rc, rsd_error *err);

#endif
