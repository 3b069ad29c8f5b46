/* SPDX-License-Identifier: Apache-2.0 */
/* Writes an image: the tensors' bytes from their sources into files, then the files that complete
 * the checkpoint. */
#ifndef RSI_WRITE_FILES_H
#define RSI_WRITE_FILES_H

#include "write/image.h"
#include "format/sums.h"
#include "store/store.h"

typedef struct rsi_write_opts {
    bool        sync;  /* each file, once (C3) */
    bool        plain; /* only on the caller's thread, one write at a time */
    int32_t     threads;
    size_t      staging; /* bytes of buffers; 0: 64 MiB; at least two blocks */
    const char *top;     /* target folder or file in the store */
    const char *file;    /* final name of a one-file checkpoint */
    rsi_sums   *sums;    /* receives the rows of everything written; NULL: none are wanted */
    int (*on_progress)(void *arg, int64_t done, int64_t total); /* in bytes; nonzero cancels */
    void *arg;
} rsi_write_opts;

/* Opens a file below opts->top; name NULL: opts->top itself. RSD_OPEN_DIRECT takes effect only for
 * files that are synced: without sync, buffered I/O is faster. */
rsd_err rsi_write_open(rsd_store *store, const rsi_write_opts *opts, const char *name,
                       uint32_t flags, uint64_t bytes, rsi_file **out, rsd_error *err);
/* Writes the data files of one rank; -1: of all ranks. Sets the rows of image->meta that it wrote
 * and, with a transform, the sizes of its files. Never communicates. */
rsd_err rsi_write_files(rsi_image *image, const rsd_state *state, int32_t rank, rsd_store *store,
                        const rsi_write_opts *opts, rsd_error *err);
/* Writes `.metadata` and, if worth it, its catalogue, after all data (C4). The rows of the
 * metadata have the number image->nfiles; *bytes becomes their size. */
rsd_err rsi_write_metadata(const rsi_image *image, rsd_store *store, const rsi_write_opts *opts,
                           uint64_t *bytes, rsd_error *err);
/* Writes the checksum file from opts->sums, which has the rows of all files. `metadata` is the size
 * of `.metadata`; `name` is relative to opts->top; NULL: opts->top is the checksum file. */
rsd_err rsi_write_sums(const rsi_image *image, rsd_store *store, const rsi_write_opts *opts,
                       uint64_t metadata, const char *name, rsd_error *err);

#endif
