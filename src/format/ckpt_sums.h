/* SPDX-License-Identifier: Apache-2.0 */
/* The side file (sums.h) of a checkpoint that was opened: found when the checkpoint is opened, so
 * that both are of the same time, and read when it is first needed. Any thread. */
#ifndef RSI_CKPT_SUMS_H
#define RSI_CKPT_SUMS_H

#include "format/files.h"
#include "format/sums.h"

#include <pthread.h>

typedef struct rsi_ckpt_sums {
    pthread_mutex_t lock;
    rsi_file       *file;   /* NULL: there is none, or it can't be opened */
    bool            there;  /* something has its name */
    bool            tried;  /* it has been read: `book` or `why` is set */
    bool            proved; /* what opening read has been compared with it: `proof` says how */
    rsi_sums_book  *book;
    size_t         *place; /* [files.n] of each file in the book; SIZE_MAX: it is not there */
    rsd_error       why, proof;
} rsi_ckpt_sums;

/* Looks for the side file. One that can't be opened is no error before it is needed. `follow`: it
 * may be a symbolic link. */
rsd_err rsi_ckpt_sums_find(rsi_ckpt_sums *sums, rsi_files *files, bool follow, rsd_error *err);
void    rsi_ckpt_sums_close(rsi_ckpt_sums *sums);

/* The book of a side file; of something else little is read, whatever its size. */
rsd_err rsi_sums_load(rsi_file *side, rsi_sums_book **out, rsd_error *err);
/* The digest by which ranks know that they have the same checkpoint: the last line of a side file,
 * or all of it if that is shorter. */
rsd_err rsi_ckpt_sums_trailer(rsi_file *side, char out[RSI_SUMS_TRAILER], rsd_error *err);

/* Reads it, once. *out is NULL if there is none. */
rsd_err rsi_ckpt_sums_book(rsi_ckpt_sums *sums, const rsi_files *files, const rsi_sums_book **out,
                           rsd_error *err);
/* When it has been read: the rows that have a byte of [off, off + len) of a file, len > 0. NULL if
 * there are none. */
const rsi_sum_row *rsi_ckpt_sums_rows(const rsi_ckpt_sums *sums, uint32_t file, uint64_t off,
                                      uint64_t len, size_t *n);

#endif
