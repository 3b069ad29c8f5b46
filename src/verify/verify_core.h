/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of verify/: the list of damage found, rows to hash, and the records whose
 * CRC32 is computed on the way. */
#ifndef RSI_VERIFY_CORE_H
#define RSI_VERIFY_CORE_H

#include "base/workers.h"
#include "format/ckpt.h"

#include <pthread.h>

/* In the order of the report. */
typedef enum rsi_damage_kind {
    RSI_DAMAGE_SIDE,   /* the checksum file, and files as a whole */
    RSI_DAMAGE_TENSOR, /* by number of tensor and chunk */
    RSI_DAMAGE_OBJECT, /* by number */
    RSI_DAMAGE_ROW     /* by file and offset */
} rsi_damage_kind;

typedef struct rsi_damage {
    rsi_damage_kind kind;
    uint64_t        first, second; /* sort keys within the kind */
    /* The bytes to be named; len 0: unknown. Damage inside a bad row is reported with the row. */
    size_t    place; /* of the file in the book */
    uint64_t  off, len;
    bool      gone; /* already reported otherwise */
    rsd_error what;
} rsi_damage;

/* A record in a file of the book whose CRC32 has yet to be compared. */
typedef struct rsi_claim {
    size_t   place; /* of the file in the book */
    uint64_t off, len;
    uint32_t crc32, found; /* from the file; from its bytes (of claims for the same bytes, only the
                              first one's is set) */
    size_t t, i;           /* the chunk that the bytes belong to */
} rsi_claim;

typedef struct rsi_progress {
    pthread_mutex_t lock; /* guards the members below, and data that threads share beside them */
    uint64_t        done, total;
    rsd_progress    call; /* NULL: no callback */
    void           *arg;
} rsi_progress;

typedef struct rsi_verifying {
    rsd_ckpt            *ckpt;
    const rsd_read_opts *opts;
    const rsi_sums_book *book; /* NULL: no usable checksum file */
    rsi_workers         *workers;
    rsi_progress         progress; /* in bytes; its lock also guards the members below */
    rsi_damage          *found;    /* [n] */
    size_t               n, cap;
    rsi_claim           *claim; /* [nclaims] */
    size_t               nclaims, claim_cap;
} rsi_verifying;

/* Rows whose bytes are to be read and hashed. */
typedef struct rsi_row_work {
    const rsi_sum_row *row; /* [n] by file and offset, without gaps */
    size_t             n;
    rsi_file *const   *file;  /* by number; rows of a file that is NULL or too short are skipped */
    rsi_claim         *claim; /* [nclaims] by place; sets `found` */
    size_t             nclaims;
    rsi_progress      *progress;
    /* Gets the hash of row i, or NULL if the n rows from i on could not be read. Any thread. */
    rsd_err (*done)(void *arg, size_t i, size_t n, const unsigned char *hash, const rsd_error *why,
                    rsd_error *err);
    void *arg;
} rsi_row_work;

/* hash_rows.c: `staging` bytes of buffers, 0: 64 MiB. */
rsd_err rsi_hash_rows(const rsi_row_work *rows, rsi_workers *workers, size_t staging,
                      rsd_error *err);
/* Adds `bytes` to the progress; RSD_E_CANCELED if the caller cancels. Any thread. */
rsd_err rsi_progress_add(rsi_progress *progress, uint64_t bytes, rsd_error *err);

static inline bool rsi_claim_same(const rsi_claim *a, const rsi_claim *b)
{
    return a->place == b->place && a->off == b->off && a->len == b->len;
}

/* Marks a tensor, or an object (numbered after the tensors), as no longer whole, if the checkpoint
 * was opened for salvage. `arg` is the rsi_verifying. Any thread. */
void rsi_verify_mark(void *arg, size_t number);
/* Any thread. `damage` is copied. */
rsd_err rsi_verify_note(rsi_verifying *v, const rsi_damage *damage, rsd_error *err);
/* Into the order of the report. */
void rsi_verify_sort(rsi_verifying *v);
/* Adds the names of the chunk's tensor and file to the error. */
void rsi_verify_name(const rsi_verifying *v, size_t t, size_t i, rsd_error *what);

/* verify_rows.c: checks that every file of the book exists and that its rows and claims match. */
rsd_err rsi_verify_rows(rsi_verifying *v, rsd_error *err);
/* verify_integrity.c: the same for integrity.json of Megatron-Core, if there is one. */
rsd_err rsi_verify_integrity(rsi_verifying *v, rsd_error *err);

/* verify_catalogue.c: compares the catalogue, if there is one, with the metadata. */
rsd_err rsi_verify_catalogue(rsi_verifying *v, rsd_error *err);

#endif
