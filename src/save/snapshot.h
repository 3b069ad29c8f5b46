/* SPDX-License-Identifier: Apache-2.0 */
/* A child process that writes this rank's files from the memory as it was when it was forked; the
 * kernel copies the pages that the caller changes meanwhile. */
#ifndef RSI_SNAPSHOT_H
#define RSI_SNAPSHOT_H

#include "base/pulse.h"
#include "save/save.h"

#include <sys/types.h>

typedef struct rsi_snapshot {
    pid_t      pid;
    int        line;  /* a socket to it; when this end is shut, the child ends. -1: none */
    rsi_bytes  heard; /* what it said */
    bool       reaped;
    int        status; /* once it is: as of waitpid */
    rsi_beats *beats;  /* the child's, in memory that both have; NULL: none */
} rsi_snapshot;

/* Is it possible at all? One rank a process, memory that fork copies, files that others see. */
rsd_err rsi_snapshot_check(const rsi_save_job *job, rsd_error *err);
/* Forks. job->flush says how files are written. */
rsd_err rsi_snapshot_start(rsi_snapshot *child, rsi_save_job *job, rsd_error *err);
/* *ended: the child has, and this is how; the rows that it made are in the job then. */
rsd_err rsi_snapshot_look(rsi_snapshot *child, rsi_save_job *job, bool wait, bool *ended,
                          rsd_error *err);
/* Asks it to stop. Any thread, until rsi_snapshot_end. */
void rsi_snapshot_cancel(rsi_snapshot *child);
/* After the child has ended, or if there was none. */
void rsi_snapshot_end(rsi_snapshot *child);

#endif
