/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the image of a conversion with bytes from the source. */
#ifndef RSI_CONVERT_WRITE_H
#define RSI_CONVERT_WRITE_H

#include "base/workers.h"
#include "convert/convert_blocks.h"
#include "convert/journal.h"
#include "commit/commit.h"

typedef struct rsi_convert_job {
    rsi_commit         commit; /* the target: the image of all ranks, the store, where to write */
    const rsd_state   *state;
    rsi_convert_blocks cuts;
    rsi_workers       *workers;
    rsi_journal       *journal; /* NULL: none is kept */
    uint64_t           reused;  /* bytes that an interrupted run had written */
    /* [tensors of `state`] those whose rows are columns of the source; NULL: none. Consecutive
     * blocks of these are pulled together, up to `wide` bytes. */
    const bool *turned;
    size_t      wide;
} rsi_convert_job;

/* Most bytes used by a thread in addition to pulling: a slice at any offset, in pages of its own;
 * or rsi_convert_job.wide and as much again. */
#define RSI_CONVERT_BUFFER ((size_t)2 << 20)

/* Creates the files of the image; existing ones are left unchanged. */
rsd_err rsi_convert_make_files(const rsi_convert_job *job, rsd_error *err);
/* Writes all data into existing files; sets `done`, hashes and CRCs of the cuts on every rank. Cuts
 * already done are read and compared; those that don't match are rewritten. [collective] */
rsd_err rsi_convert_write(rsi_convert_job *job, rsd_error *err);

#endif
