/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of verify/ share: the list of what is wrong, rows that are hashed, and the records
 * whose CRC32 is taken meanwhile. */
#ifndef RSI_VERIFY_CORE_H
#define RSI_VERIFY_CORE_H

#include "base/workers.h"
#include "format/ckpt.h"

#include <pthread.h>

/* In the order in which it is told. */
typedef enum rsi_damage_kind {
    RSI_DAMAGE_SIDE,   /* the side file, and files as a whole */
    RSI_DAMAGE_TENSOR, /* by number of tensor and chunk */
    RSI_DAMAGE_OBJECT, /* by number */
    RSI_DAMAGE_ROW     /* by file and offset */
} rsi_damage_kind;

typedef struct rsi_damage {
    rsi_damage_kind kind;
    uint64_t        first, second; /* by which it is sorted within its kind */
    /* The bytes that are to names; len 0: not known. What lies in a bad row is told with the row.
     */
    size_t    place; /* of the file in the book */
    uint64_t  off, len;
    bool      gone; /* it is told otherwise */
    rsd_error what;
} rsi_damage;

/* A record of a file in the book, whose CRC32 is still to be compared. */
typedef struct rsi_claim {
    size_t   place; /* of the file in the book */
    uint64_t off, len;
    uint32_t crc32,
        found;   /* as the file says, as its bytes have it; the same place: of the first */
    size_t t, i; /* whose elements they are */
} rsi_claim;

typedef struct rsi_progress {
    pthread_mutex_t lock; /* of what follows, and of what threads share beside it */
    uint64_t        done, total;
    rsd_progress    call; /* NULL: nobody asks */
    void           *arg;
} rsi_progress;

typedef struct rsi_verifying {
    rsd_ckpt            *ckpt;
    const rsd_read_opts *opts;
    const rsi_sums_book *book; /* NULL: there is no side file, or none that can be used */
    rsi_workers         *workers;
    rsi_progress         progress; /* in bytes; its lock is that of what follows */
    rsi_damage          *found;    /* [n] */
    size_t               n, cap;
    rsi_claim           *claim; /* [nclaims] */
    size_t               nclaims, claim_cap;
} rsi_verifying;

/* Rows whose bytes are to be read and hashed. */
typedef struct rsi_row_work {
    const rsi_sum_row *row; /* [n] by file and offset, without gaps */
    size_t             n;
    rsi_file *const   *file;  /* by number; rows of those that are NULL or shorter are left out */
    rsi_claim         *claim; /* [nclaims] by place; gets `found` */
    size_t             nclaims;
    rsi_progress      *progress;
    /* The hash of row i, or NULL: n rows from there on could not be read. Any thread. */
    rsd_err (*done)(void *arg, size_t i, size_t n, const unsigned char *hash, const rsd_error *why,
                    rsd_error *err);
    void *arg;
} rsi_row_work;

/* hash_rows.c: `staging` bytes of buffers, 0: 64 MiB. */
rsd_err rsi_hash_rows(const rsi_row_work *rows, rsi_workers *workers, size_t staging,
                      rsd_error *err);
/* So many bytes more are done; RSD_E_CANCELED if the caller has enough. Any thread. */
rsd_err rsi_progress_add(rsi_progress *progress, uint64_t bytes, rsd_error *err);

static inline bool rsi_claim_same(const rsi_claim *a, const rsi_claim *b)
{
    return a->place == b->place && a->off == b->off && a->len == b->len;
}

/* Notes that a tensor, or behind the tensors an object, is no longer whole, if the checkpoint was
 * opened for that. `arg` is the rsi_verifying. Any thread. */
void rsi_verify_mark(void *arg, size_t number);
/* Any thread. `damage` is copied. */
rsd_err rsi_verify_note(rsi_verifying *v, const rsi_damage *damage, rsd_error *err);
/* In the order in which they are told. */
void rsi_verify_sort(rsi_verifying *v);
/* The error of a chunk with its names. */
void rsi_verify_name(const rsi_verifying *v, size_t t, size_t i, rsd_error *what);

/* verify_rows.c: every file of the book is there, and its rows and the claims fit. */
rsd_err rsi_verify_rows(rsi_verifying *v, rsd_error *err);

#endif
