/* SPDX-License-Identifier: Apache-2.0 */
/* The work folder of a conversion that may be resumed later:
 *
 *     <target>.partial-<16 hex digits>/tree         the future target: a folder or a file
 *                                     /journal-<r>  what rank r has done
 *                                     /.lock.tmp-.. locked while the writer is alive
 *
 * The digits identify source, options and target, so that only the same conversion finds it. */
#ifndef RSI_CONVERT_PARTIAL_H
#define RSI_CONVERT_PARTIAL_H

#include "convert/convert_blocks.h"
#include "write/image.h"
#include "store/store.h"

typedef struct rsi_partial {
    rsd_store *store;
    char      *name; /* of the folder in the store; NULL: none */
    char      *tree; /* "<name>/tree" */
    uint64_t   id;   /* of its journals: also covers the source's contents */
    rsi_tree  *lock; /* on rank 0 */
} rsi_partial;       /* zeroed: none */

/* Called with the folder of an earlier run that is not resumed, and the reason. */
typedef void (*rsi_partial_unfit)(void *arg, const char *folder, const char *why);

/* Sets the names only; every rank. `target` is a name in the store. */
rsd_err rsi_partial_name(rsi_partial *partial, rsd_store *store, const char *target, uint64_t id,
                         rsd_error *err);
/* Creates the folder, or takes over that of an interrupted run; rank 0. Without `resume`, first
 * removes all that earlier runs to this target left behind. RSD_E_EXISTS: another run is using
 * it. */
rsd_err rsi_partial_begin(rsi_partial *partial, const char *target, bool resume, rsd_error *err);
/* Called before that: if the folder to resume does not exist, reports other folders of earlier runs
 * to this target. */
rsd_err rsi_partial_look(const rsi_partial *partial, const char *target, rsi_partial_unfit unfit,
                         void *arg, rsd_error *err);
/* Empties the folder if its journals have a different id; rank 0. */
rsd_err rsi_partial_compare(const rsi_partial *partial, rsi_partial_unfit unfit, void *arg,
                            rsd_error *err);
/* Removes leftovers of earlier runs from the tree that this run does not reuse: metadata of a run
 * that could not be published, or a checkpoint that a run replaced before it died; rank 0. */
rsd_err rsi_partial_tidy(const rsi_partial *partial, const rsi_image *image, rsd_error *err);
/* Marks as done the blocks listed in the journals of all ranks of earlier runs. */
rsd_err rsi_partial_read(const rsi_partial *partial, rsi_convert_blocks *cuts, rsd_error *err);
/* The name of a rank's journal; for rsi_free. NULL: no memory. */
char *rsi_partial_journal(const rsi_partial *partial, int32_t rank);
/* Removes the folder; rank 0. */
rsd_err rsi_partial_remove(rsi_partial *partial, rsd_error *err);
void    rsi_partial_release(rsi_partial *partial);

#endif
