/* SPDX-License-Identifier: Apache-2.0 */
/* Files that ranks write together, gathered now and written later: what shared.c writes is kept in
 * memory, so that the background needs no other rank. */
#ifndef RSI_CAPTURE_H
#define RSI_CAPTURE_H

#include "save/stage.h"

typedef struct rsi_captured_file rsi_captured_file;

typedef struct rsi_captured {
    rsi_captured_file *file;
    uint64_t           off;
    size_t             at, len; /* in the memory */
} rsi_captured;

typedef struct rsi_capture {
    rsd_store          *real;
    rsi_stage_memory   *mem;
    size_t              used;
    rsi_captured       *write; /* [n] */
    size_t              n, cap;
    rsi_captured_file **file; /* [nfiles] that something is kept for */
    size_t              nfiles, file_cap;
    bool                sync;
} rsi_capture;

/* Makes the files and gathers what this rank will write. [collective] */
rsd_err rsi_capture_make(rsi_capture *c, rsi_save_job *job, const rsd_state *home, rsd_error *err);
/* Writes, syncs and closes. on_progress as in rsi_flush_opts. [local] */
rsd_err rsi_capture_write(rsi_capture *c,
                          int (*on_progress)(void *arg, int64_t done, int64_t total), void *arg,
                          rsd_error *err);
/* Lets go; `home` keeps the memory. */
void rsi_capture_end(rsi_capture *c, const rsd_state *home);

#endif
