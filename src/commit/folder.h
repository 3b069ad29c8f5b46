/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that a DCP checkpoint shares with files of other programs (C8). Data files are named
 * `__<rank>_<n>.distcp`. A writer claims its file from its creation until the metadata that name it
 * are published; so a file that nobody claims and no metadata name is a leftover. */
#ifndef RSI_FOLDER_H
#define RSI_FOLDER_H

#include "format/dcp_meta.h"
#include "store/store.h"

enum { RSI_DATA_NAME = 48 }; /* room for the name of a data file */

typedef struct rsi_folder {
    rsd_store *store;
    bool       own_store;
    char      *name; /* in the store */
} rsi_folder;        /* zeroed: none */

/* `store` NULL: a local path, in which symbolic links are followed. Creates the folder if
 * missing. */
rsd_err rsi_folder_open(rsi_folder *folder, rsd_store *store, const char *path, rsd_error *err);
void    rsi_folder_close(rsi_folder *folder);
/* The name in the store of a file in it; for rsi_free. */
rsd_err rsi_folder_below(const rsi_folder *folder, const char *file, char **out, rsd_error *err);

/* Creates and claims a data file of `rank` with a number above all that exist, so that no number is
 * used again while a reader may remember it. Free *full with rsi_free; `name` is its last part. */
rsd_err rsi_folder_claim_next(const rsi_folder *folder, int32_t rank, char name[RSI_DATA_NAME],
                              char **full, void **claim, rsd_error *err);
/* Removes data files of `rank` (-1: of all ranks) that no metadata in the folder name and nobody
 * claims, and checksum files whose data file is gone. `sync`: makes the published name durable
 * first, because a power cut could otherwise bring back the metadata that name those files. Best
 * effort: whatever can't be determined or removed stays. Fails only if the folder can't be synced,
 * which no later sync makes good (C3). */
rsd_err rsi_folder_sweep(const rsi_folder *folder, int32_t rank, bool sync, rsd_error *err);
/* Removes a file, which may be missing; fails in the same case only. */
rsd_err rsi_folder_remove(const rsi_folder *folder, const char *full, rsd_error *err);

#endif
