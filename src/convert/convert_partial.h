/* SPDX-License-Identifier: Apache-2.0 */
/* Where a conversion that may be gone on with later does its work: the folder
 *
 *     <target>.partial-<16 hex digits>/tree         what will be the target: a folder or a file
 *                                     /journal-<r>  what rank r has done
 *                                     /.lock.tmp-.. locked as long as the writer lives
 *
 * The digits stand for source, options and target, so that only the same conversion finds it. */
#ifndef RSI_CONVERT_PARTIAL_H
#define RSI_CONVERT_PARTIAL_H

#include "convert/convert_blocks.h"
#include "write/image.h"
#include "store/store.h"

typedef struct rsi_partial {
    rsd_store *store;
    char      *name; /* of the folder in the store; NULL: none */
    char      *tree; /* "<name>/tree" */
    uint64_t   id;   /* of its journals: stands for what is in the source too */
    rsi_tree  *lock; /* on rank 0 */
} rsi_partial;       /* zeroed: none */

/* Is told the folder of an earlier run that is not resumed, and why. */
typedef void (*rsi_partial_unfit)(void *arg, const char *folder, const char *why);

/* Names only; every rank. `target` is a name in the store. */
rsd_err rsi_partial_name(rsi_partial *partial, rsd_store *store, const char *target, uint64_t id,
                         rsd_error *err);
/* Makes the folder, or takes the one that a run which has ended left; rank 0. Not `resume`: all
 * that ended runs to this target left is removed before. RSD_E_EXISTS: somebody works on it. */
rsd_err rsi_partial_begin(rsi_partial *partial, const char *target, bool resume, rsd_error *err);
/* Before that: tells which folders of ended runs to this target there are if the one to resume is
 * not there. */
rsd_err rsi_partial_look(const rsi_partial *partial, const char *target, rsi_partial_unfit unfit,
                         void *arg, rsd_error *err);
/* Removes what is in the folder if its journals have another id; rank 0. */
rsd_err rsi_partial_compare(const rsi_partial *partial, rsi_partial_unfit unfit, void *arg,
                            rsd_error *err);
/* Removes what earlier runs left in the tree and this one does not go on with: metadata of a run
 * that could not be published, or a checkpoint that a run replaced before it died; rank 0. */
rsd_err rsi_partial_tidy(const rsi_partial *partial, const rsi_image *image, rsd_error *err);
/* Marks the blocks that the journals of all ranks of earlier runs have. */
rsd_err rsi_partial_read(const rsi_partial *partial, rsi_convert_blocks *cuts, rsd_error *err);
/* The name of rank's journal; for rsi_free. NULL: no memory. */
char *rsi_partial_journal(const rsi_partial *partial, int32_t rank);
/* Removes the folder; rank 0. */
rsd_err rsi_partial_remove(rsi_partial *partial, rsd_error *err);
void    rsi_partial_release(rsi_partial *partial);

#endif
