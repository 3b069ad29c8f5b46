/* SPDX-License-Identifier: Apache-2.0 */
/* What verify.c and verify_rows.c share: the list of what is wrong, and the records whose CRC32 is
 * taken while the rows around them are hashed. */
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
    /* The bytes that are to blame; len 0: not known. What lies in a bad row is told with the row.
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
    uint32_t crc32, file;
    size_t   t, i; /* whose elements they are */
} rsi_claim;

typedef struct rsi_verifying {
    rsd_ckpt            *ckpt;
    const rsd_read_opts *opts;
    const rsi_sums_book *book; /* NULL: there is no side file, or none that can be used */
    rsi_workers         *workers;
    pthread_mutex_t      lock;        /* of what follows */
    uint64_t             done, total; /* bytes, for on_progress */
    rsi_damage          *found;       /* [n] */
    size_t               n, cap;
    rsi_claim           *claim; /* [nclaims] */
    size_t               nclaims, claim_cap;
} rsi_verifying;

/* Notes that a tensor, or behind the tensors an object, is no longer whole, if the checkpoint was
 * opened for that. Any thread. */
void rsi_verify_mark(rsi_verifying *v, size_t number);
/* True if an error says that the checkpoint, not the machine, is at fault. */
bool rsi_is_damage(rsd_err rc);
/* Any thread. `damage` is copied. */
rsd_err rsi_verify_note(rsi_verifying *v, const rsi_damage *damage, rsd_error *err);
/* So many bytes more are checked; RSD_E_CANCELED if the caller has enough. Any thread. */
rsd_err rsi_verify_step(rsi_verifying *v, uint64_t bytes, rsd_error *err);
/* In the order in which they are told. */
void rsi_verify_sort(rsi_verifying *v);
/* The error of a chunk with its names. */
void rsi_verify_name(const rsi_verifying *v, size_t t, size_t i, rsd_error *what);

/* verify_rows.c: every file of the book is there, and its rows and the claims fit. */
rsd_err rsi_verify_rows(rsi_verifying *v, rsd_error *err);

#endif
