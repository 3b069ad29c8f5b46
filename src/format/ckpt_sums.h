/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum file (sums.h) of an opened checkpoint: found when the checkpoint is opened, so that
 * both are from the same time, and read when first needed. Any thread. */
#ifndef RSI_CKPT_SUMS_H
#define RSI_CKPT_SUMS_H

#include "format/files.h"
#include "format/sums.h"

#include <pthread.h>

typedef struct rsi_ckpt_sums {
    pthread_mutex_t lock;
    rsi_file       *file;  /* NULL: none exists, or it can't be opened */
    bool            there; /* something exists under its name */
    bool            tried; /* reading was attempted: `book` or `why` is set */
    bool proved; /* the bytes read when opening were compared with it; `proof` is the result */
    rsi_sums_book *book;
    size_t        *place; /* [files.n] of each file in the book; SIZE_MAX: not listed */
    rsd_error      why, proof;
    rsi_sums       opened; /* rows of the bytes of file 0 that opening read, if it made them */
    /* DCP: set by the reader of the metadata before the checksum file is looked for. */
    const char *key;        /* the data file that `bound` is named after; else NULL */
    const char *bound;      /* the name that a save inside a folder uses (sums.h) */
    bool        only_bound; /* RSI_SUMS_NAME would belong to another checkpoint */
    const char *name;       /* the file found, or the one to make */
} rsi_ckpt_sums;

/* Looks for the checksum file. One that can't be opened is no error until it is needed. `follow`:
 * it may be a symbolic link. */
rsd_err rsi_ckpt_sums_find(rsi_ckpt_sums *sums, rsi_files *files, bool follow, rsd_error *err);
void    rsi_ckpt_sums_close(rsi_ckpt_sums *sums);

/* The book of a checksum file; `*out` is NULL before. Of a long one rows are read when asked for,
 * or all with `whole`. A large file that is something else is not read whole. */
rsd_err rsi_sums_load(rsi_file *side, bool whole, rsi_sums_book **out, rsd_error *err);
/* The digest by which ranks check that they have the same checkpoint: the last line of a checksum
 * file, or all of it if it is shorter. */
rsd_err rsi_ckpt_sums_trailer(rsi_file *side, char out[RSI_SUMS_TRAILER], rsd_error *err);

/* Reads the checksum file, once. *out is NULL if none exists. Rows of a long one are read and
 * checked when asked for. */
rsd_err rsi_ckpt_sums_book(rsi_ckpt_sums *sums, const rsi_files *files, rsi_sums_book **out,
                           rsd_error *err);
/* The same with all rows. */
rsd_err rsi_ckpt_sums_all(rsi_ckpt_sums *sums, const rsi_files *files, const rsi_sums_book **out,
                          rsd_error *err);
/* After the checksum file has been read: the rows with a byte in [off, off + len) of a file; those
 * of a file rise in memory. NULL if there are none. */
rsd_err rsi_ckpt_sums_rows(const rsi_ckpt_sums *sums, uint32_t file, uint64_t off, uint64_t len,
                           const rsi_sum_row **out, size_t *n, rsd_error *err);

#endif
