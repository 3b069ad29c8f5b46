/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints inside a folder: generations whose elements say which one they belong to. */
#ifndef FOLDER_CASE_H
#define FOLDER_CASE_H

#include <reshard/reshard_folder.h>

enum { FOLDER_ROWS = 64, FOLDER_COLS = 24, FOLDER_RANKS = 4 };

typedef struct folder_how {
    rsd_store  *store;
    int32_t     ranks;     /* 0: 1 */
    const char *transform; /* NULL: none */
    rsd_choice  sync, checksum;
    bool        fresh; /* no overwriting */
} folder_how;

/* One rank's part of generation `gen`, written; NULL: it failed. */
rsd_part *folder_part(const char *path, int32_t rank, int gen, const folder_how *how,
                      rsd_error *err);
/* Publishes written parts, which stay the caller's. */
rsd_err folder_publish(const char *path, size_t n, rsd_part **part, const folder_how *how,
                       rsd_error *err);
/* Both, on one rank after the other. */
rsd_err folder_save(const char *path, int gen, const folder_how *how, rsd_error *err);

/* The generation that is there, whole and with its checksums right; 0: none, as `err` says; -1:
 * mixed or damaged. */
int folder_generation(rsd_store *store, const char *path, rsd_error *err);

#endif
