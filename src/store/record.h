/* SPDX-License-Identifier: Apache-2.0 */
/* Two read-only stores in front of another one, which let one rank inspect a checkpoint for all:
 * the first logs the answers it gets, the second replays them. Anything missing from the log is
 * asked of the real store, so a log can be incomplete but never wrong. */
#ifndef RSI_RECORD_H
#define RSI_RECORD_H

#include "store/store.h"

/* Passes everything on to `inner`, which must outlive it, and logs the answers. Running out of
 * memory only shortens the log. */
rsd_err rsi_record_open(rsd_store *inner, rsd_store **out, rsd_error *err);
/* Ends the log, which belongs to the store. From now on everything is only passed on. */
void rsi_record_end(rsd_store *store, const void **log, size_t *len);

/* Lets `look` fill `len` bytes at `out` with a fact that takes reading all of a file, such as its
 * hash. A recording store logs the fact in place of what was read, and a replay gives it without
 * calling `look`; with other stores it is just called. By the one thread that opens. */
rsd_err rsi_record_fact(rsd_store *store, const char                     *name,
                        rsd_err (*look)(void *arg, rsd_error *err), void *arg, void *out,
                        size_t len, rsd_error *err);

/* Called by a replay before it opens the first file in `inner`; on an error every such open fails
 * with it. */
typedef struct rsi_replay_check {
    rsd_err (*check)(void *arg, rsd_error *err);
    void *arg;
    bool  strict; /* a file must have the log's version, not only its size */
} rsi_replay_check;

/* Answers from a log, which must outlive the store; RSD_E_FORMAT if it is malformed. Opens a file
 * in `inner` for the first read missing from the log; RSD_E_MISMATCH if it differs from the one in
 * the log. */
rsd_err rsi_replay_open(rsd_store *inner, const void *log, size_t len, rsd_store **out,
                        rsd_error *err);
/* From now on the log is no longer needed, and `check` (may be NULL) applies. The store must not be
 * in use meanwhile. */
void rsi_replay_end(rsd_store *store, const rsi_replay_check *check);

#endif
