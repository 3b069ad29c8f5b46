/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a conversion: the blocks (convert_blocks.h) that are in their files, with their
 * hashes, so that an interrupted run can be resumed. It may list too little or, after a power cut,
 * too much: its reader checks the blocks. */
#ifndef RSI_JOURNAL_H
#define RSI_JOURNAL_H

#include "convert/convert_blocks.h"
#include "store/store.h"

typedef struct rsi_journal rsi_journal;

/* Opens the journal `name` for appending, or creates it. `id` identifies the whole conversion; a
 * journal with a different id is discarded. */
rsd_err rsi_journal_open(rsd_store *store, const char *name, uint64_t id, rsi_journal **out,
                         rsd_error *err);
void    rsi_journal_close(rsi_journal *journal);
/* Records that blocks [first, first + n) are written. Any thread. */
rsd_err rsi_journal_add(rsi_journal *journal, const rsi_convert_blocks *cuts, size_t first,
                        size_t n, rsd_error *err);
/* Marks the blocks listed in a journal as done and sets their hashes. Skips anything that is not a
 * record of a block of these cuts; a journal with a different `id` has none. */
rsd_err rsi_journal_read(rsd_store *store, const char *name, uint64_t id, rsi_convert_blocks *cuts,
                         rsd_error *err);

/* *out: false if the journal has a different `id`. */
rsd_err rsi_journal_fits(rsd_store *store, const char *name, uint64_t id, bool *out,
                         rsd_error *err);

#endif
