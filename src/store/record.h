/* SPDX-License-Identifier: Apache-2.0 */
/* Two read-only stores in front of another one, by which one rank's look at a checkpoint serves
 * all: the first keeps what it was told, the second answers from that. Whatever the log has not is
 * asked of the real store, so that a log can be short but never wrong. */
#ifndef RSI_RECORD_H
#define RSI_RECORD_H

#include "store/store.h"

/* Passes everything on to `inner`, which lives longer, and logs it. A want of memory only makes the
 * log shorter. */
rsd_err rsi_record_open(rsd_store *inner, rsd_store **out, rsd_error *err);
/* Ends the log, which belongs to the store. From now on everything is only passed on. */
void rsi_record_end(rsd_store *store, const void **log, size_t *len);

/* What a replay asks before it opens the first file in `inner`; an error is what every such open
 * gets from then on. */
typedef struct rsi_replay_check {
    rsd_err (*check)(void *arg, rsd_error *err);
    void *arg;
    bool  strict; /* files must have the version that the log says, not only the size */
} rsi_replay_check;

/* Answers from a log, which must stay; RSD_E_FORMAT if it is none. A file is opened in `inner` when
 * something is read from it that the log has not; RSD_E_MISMATCH if it is not the one that the log
 * tells of. */
rsd_err rsi_replay_open(rsd_store *inner, const void *log, size_t len, rsd_store **out,
                        rsd_error *err);
/* From now on the log is not needed any more, and what `check` (may be NULL) says counts. Nobody
 * uses the store meanwhile. */
void rsi_replay_end(rsd_store *store, const rsi_replay_check *check);

#endif
