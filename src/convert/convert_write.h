/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the image of a conversion, with bytes that come from the source. */
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
} rsi_convert_job;

/* Bytes that a thread takes at most, besides what pulling takes: a slice wherever it begins, in a
 * page of its own. */
#define RSI_CONVERT_BUFFER ((size_t)2 << 20)

/* Makes the files of the image; those that are there stay as they are. */
rsd_err rsi_convert_make_files(const rsi_convert_job *job, rsd_error *err);
/* All data, into files that are there: sets `done`, hashes and CRCs of the cuts on every rank. Cuts
 * that are done are read and compared; those that are not what they should be are written again.
 * [collective] */
rsd_err rsi_convert_write(rsi_convert_job *job, rsd_error *err);

#endif
