/* SPDX-License-Identifier: Apache-2.0 */
/* Saves a state from one process or many ranks. The steps are functions over one job, so that they
 * can be spread over calls: every rank calls the [collective] ones, and the one that writes never
 * communicates. */
#ifndef RSI_SAVE_H
#define RSI_SAVE_H

#include "commit/commit.h"

typedef struct rsi_save_job {
    rsi_commit       commit;
    const rsd_state *state;
    rsd_state       *expanded; /* with stateful objects: becomes `state`; else NULL */
    rsd_state       *merged;   /* with uneven keys: becomes `state`; else NULL */
    rsd_save_opts    opts;
    rsi_image_spec   spec;
    bool             shared;  /* all ranks jointly write the same files */
    uint64_t         version; /* of the state when planned */
} rsi_save_job;

/* The steps; those of commit.h come in between. After a failure only rsi_save_end is called. */

/* Plans what will be written and checks that all ranks agree on it. [collective] */
rsd_err rsi_save_plan(rsi_save_job *job, const char *path, rsd_comm *comm, const rsd_state *state,
                      const rsd_save_opts *opts, rsd_error *err);
/* Sets job->commit.flush: how files are written. [local] */
void rsi_save_how(rsi_save_job *job);
/* Writes and syncs this rank's files (C3). [local], unless job->shared: then [collective]. */
rsd_err rsi_save_write(rsi_save_job *job, rsd_error *err);
/* Releases everything and removes unpublished work. Returns `rc`, and adds the checkpoint's name to
 * the error. [local] */
rsd_err rsi_save_end(rsi_save_job *job, rsd_err rc, rsd_error *err);

/* All steps: rsd_save. `comm` NULL: this process acts for all ranks. */
rsd_err rsi_save(const char *path, rsd_comm *comm, const rsd_state *state,
                 const rsd_save_opts *opts, rsd_error *err);

#endif
