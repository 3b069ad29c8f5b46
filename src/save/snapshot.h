/* SPDX-License-Identifier: Apache-2.0 */
/* A child process that writes this rank's files from memory as it was at the fork; the kernel
 * copies the pages that the caller changes meanwhile. */
#ifndef RSI_SNAPSHOT_H
#define RSI_SNAPSHOT_H

#include "base/pulse.h"
#include "save/save.h"

#include <sys/types.h>

typedef struct rsi_snapshot {
    pid_t      pid;
    int        line;  /* socket to the child; the child exits when this end is shut. -1: none */
    rsi_bytes  heard; /* what it sent */
    bool       reaped;
    int        status; /* once ended: as from waitpid */
    rsi_beats *beats;  /* the child's, in shared memory; NULL: none */
} rsi_snapshot;

/* Checks whether a snapshot is possible: one rank per process, memory that fork copies, files that
 * other processes can see. */
rsd_err rsi_snapshot_check(const rsi_save_job *job, rsd_error *err);
/* Forks. job->commit.flush says how files are written. */
rsd_err rsi_snapshot_start(rsi_snapshot *child, rsi_save_job *job, rsd_error *err);
/* *ended: the child has ended, the result is returned, and the rows that it made are in the job. */
rsd_err rsi_snapshot_look(rsi_snapshot *child, rsi_save_job *job, bool wait, bool *ended,
                          rsd_error *err);
/* Asks the child to stop. Any thread, until rsi_snapshot_end. */
void rsi_snapshot_cancel(rsi_snapshot *child);
/* Call after the child has ended, or if there was none. */
void rsi_snapshot_end(rsi_snapshot *child);

#endif
