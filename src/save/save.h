/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a state: the commit protocol (C1 to C7), on one process or on many ranks. The steps of a
 * save are functions over one job, so that they can also be spread over calls: those that are
 * [collective] are called by every rank, and the one that writes never communicates. */
#ifndef RSI_SAVE_H
#define RSI_SAVE_H

#include "comm/comm.h"
#include "write/flush.h"

typedef struct rsi_save_job {
    const char      *path; /* borrowed */
    rsd_comm        *comm; /* NULL: alone */
    int32_t          rank; /* -1: all of them */
    const rsd_state *state;
    rsd_state       *expanded; /* with stateful objects: what `state` is then; else NULL */
    rsd_state       *merged;   /* with uneven keys: what `state` is then; else NULL */
    rsd_save_opts    opts;
    rsi_image_spec   spec;
    bool             shared; /* all ranks write the same files together */
    rsi_image        image;
    rsd_store       *store;
    bool             own_store;
    char            *name; /* of the checkpoint in the store */
    rsi_tree        *tree;
    rsi_flush_opts   flush;
    rsi_sums         sums;     /* rows of what this rank wrote; on rank 0 in the end of all */
    uint64_t         metadata; /* bytes of it */
    uint64_t         version;  /* of the state when it was planned */
} rsi_save_job;

/* The steps, in this order. After a failure only rsi_save_end is called. */

/* What will be written, and that all ranks mean the same. [collective] */
rsd_err rsi_save_plan(rsi_save_job *job, const char *path, rsd_comm *comm, const rsd_state *state,
                      const rsd_save_opts *opts, rsd_error *err);
/* The temporary tree (C2). [collective] */
rsd_err rsi_save_open(rsi_save_job *job, rsd_error *err);
/* RSD_E_EXISTS: what has the checkpoint's name is nothing that overwriting may remove. Asked before
 * the work and before publishing; rank 0. [local] */
rsd_err rsi_save_may_replace(const rsi_save_job *job, rsd_error *err);
/* How files are written: sets job->flush. [local] */
void rsi_save_how(rsi_save_job *job);
/* This rank's files, synced (C3). [local], unless job->shared: then [collective]. */
rsd_err rsi_save_write(rsi_save_job *job, rsd_error *err);
/* `mine` is how writing went here. Brings what only the writers know to rank 0. [collective] */
rsd_err rsi_save_share(rsi_save_job *job, rsd_err mine, rsd_error *err);
/* Metadata and side file (C4), then the name (C1, C5). [collective] */
rsd_err rsi_save_publish(rsi_save_job *job, rsd_error *err);
/* The two halves of it, for rank 0 alone: when all data are there, and when all ranks have said yes
 * to that. [local] */
rsd_err rsi_save_rest(rsi_save_job *job, rsd_error *err);
rsd_err rsi_save_name(rsi_save_job *job, rsd_error *err);
/* Lets go of everything; removes what was not published. Returns `rc`, and says which checkpoint.
 * [local] */
rsd_err rsi_save_end(rsi_save_job *job, rsd_err rc, rsd_error *err);

/* All of them: rsd_save. `comm` NULL: this process stands for all ranks. */
rsd_err rsi_save(const char *path, rsd_comm *comm, const rsd_state *state,
                 const rsd_save_opts *opts, rsd_error *err);

#endif
