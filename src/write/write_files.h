/* SPDX-License-Identifier: Apache-2.0 */
/* Writes an image: the bytes of tensors from wherever they are into files, then what closes the
 * checkpoint. */
#ifndef RSI_WRITE_FILES_H
#define RSI_WRITE_FILES_H

#include "write/image.h"
#include "format/sums.h"
#include "store/store.h"

typedef struct rsi_write_opts {
    bool        sync;  /* each file, once (C3) */
    bool        plain; /* on the caller's thread alone, one write after the other */
    int32_t     threads;
    size_t      staging; /* bytes of buffers; 0: 64 MiB; two blocks are the least */
    const char *top;     /* folder, or file, in the store to write to */
    const char *file;    /* the name that a checkpoint of one file will have */
    rsi_sums   *sums;    /* gets the rows of all that is written; NULL: none are wanted */
    int (*on_progress)(void *arg, int64_t done, int64_t total); /* nonzero cancels; bytes */
    void *arg;
} rsi_write_opts;

/* Opens a file below opts->top; name NULL: opts->top itself. RSD_OPEN_DIRECT among the flags counts
 * only for files that are synced: who does not wait for the disk is fastest through the cache. */
rsd_err rsi_write_open(rsd_store *store, const rsi_write_opts *opts, const char *name,
                       uint32_t flags, uint64_t bytes, rsi_file **out, rsd_error *err);
/* The data files of one rank; -1: of all. Sets the rows of image->meta that it wrote and, with a
 * transform, the sizes of its files. Never communicates. */
rsd_err rsi_write_files(rsi_image *image, const rsd_state *state, int32_t rank, rsd_store *store,
                        const rsi_write_opts *opts, rsd_error *err);
/* What is written when all data are (C4): `.metadata`. Its rows have the number image->nfiles;
 * *bytes becomes its size. */
rsd_err rsi_write_metadata(const rsi_image *image, rsd_store *store, const rsi_write_opts *opts,
                           uint64_t *bytes, rsd_error *err);
/* The side file, from opts->sums, which has the rows of all files. `metadata` is the size of
 * `.metadata`, `name` below opts->top; NULL: opts->top is the side file. */
rsd_err rsi_write_sums(const rsi_image *image, rsd_store *store, const rsi_write_opts *opts,
                       uint64_t metadata, const char *name, rsd_error *err);

#endif
