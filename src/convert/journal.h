/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a conversion: which blocks (cuts.h) are in their files, with their hashes, so that
 * a run that ended early can be gone on with. It may say too little or, after a power cut, too
 * much: who reads it checks the blocks. */
#ifndef RSI_JOURNAL_H
#define RSI_JOURNAL_H

#include "convert/convert_blocks.h"
#include "store/store.h"

typedef struct rsi_journal rsi_journal;

/* Opens the journal `name` to add to, or makes it. `id` stands for the whole of what is converted
 * to what; a journal of another one is thrown away. */
rsd_err rsi_journal_open(rsd_store *store, const char *name, uint64_t id, rsi_journal **out,
                         rsd_error *err);
void    rsi_journal_close(rsi_journal *journal);
/* Blocks [first, first + n) are written. Any thread. */
rsd_err rsi_journal_add(rsi_journal *journal, const rsi_convert_blocks *cuts, size_t first,
                        size_t n, rsd_error *err);
/* Marks the blocks that a journal has as done and sets their hashes. What is not a record of a
 * block of these cuts is passed over; a journal of another `id` has none. */
rsd_err rsi_journal_read(rsd_store *store, const char *name, uint64_t id, rsi_convert_blocks *cuts,
                         rsd_error *err);

/* True unless it is a journal of another `id`. */
rsd_err rsi_journal_fits(rsd_store *store, const char *name, uint64_t id, bool *out,
                         rsd_error *err);

#endif
