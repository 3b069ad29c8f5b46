/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a state, on one process or on many ranks. The steps are functions over one job, so that
 * they can also be spread over calls: those that are [collective] are called by every rank, and the
 * one that writes never communicates. */
#ifndef RSI_SAVE_H
#define RSI_SAVE_H

#include "commit/commit.h"

typedef struct rsi_save_job {
    rsi_commit       commit;
    const rsd_state *state;
    rsd_state       *expanded; /* with stateful objects: what `state` is then; else NULL */
    rsd_state       *merged;   /* with uneven keys: what `state` is then; else NULL */
    rsd_save_opts    opts;
    rsi_image_spec   spec;
    bool             shared;  /* all ranks write the same files together */
    uint64_t         version; /* of the state when it was planned */
} rsi_save_job;

/* The steps; those of commit.h come between. After a failure only rsi_save_end is called. */

/* What will be written, and that all ranks mean the same. [collective] */
rsd_err rsi_save_plan(rsi_save_job *job, const char *path, rsd_comm *comm, const rsd_state *state,
                      const rsd_save_opts *opts, rsd_error *err);
/* How files are written: sets job->commit.flush. [local] */
void rsi_save_how(rsi_save_job *job);
/* This rank's files, synced (C3). [local], unless job->shared: then [collective]. */
rsd_err rsi_save_write(rsi_save_job *job, rsd_error *err);
/* Lets go of everything; removes what was not published. Returns `rc`, and says which checkpoint.
 * [local] */
rsd_err rsi_save_end(rsi_save_job *job, rsd_err rc, rsd_error *err);

/* All of them: rsd_save. `comm` NULL: this process stands for all ranks. */
rsd_err rsi_save(const char *path, rsd_comm *comm, const rsd_state *state,
                 const rsd_save_opts *opts, rsd_error *err);

#endif
