/* SPDX-License-Identifier: Apache-2.0 */
/* What fetch.c and fetch_rows.c share. */
#ifndef RSI_FETCH_CORE_H
#define RSI_FETCH_CORE_H

#include "read/fetch.h"
#include "read/fix.h"
#include "read/proof.h"
#include "plan/region.h"

/* One chunk's share of a read. */
typedef struct rsi_fetching {
    rsd_ckpt        *ckpt;
    rsd_dtype        dtype;
    uint32_t         file;
    rsi_extent       extent;
    rsi_fix          fix;
    rsi_region       region;
    const rsd_view  *view;
    const rsi_taker *taker;
    rsi_area  to;  /* the caller's memory, dimensions in file order; data NULL: put or taker */
    uint32_t *crc; /* [number of jobs] of the bytes read; NULL: not wanted */
    /* Not NULL: each of these is a job instead of a block. They cover what is wanted, which lies
     * together in the file and in memory. */
    const rsi_sum_row *row; /* [nrows] */
    size_t             nrows;
    rsi_pool          *pool; /* made by rsi_fetch_pool */
} rsi_fetching;

/* Bytes [at, at + len) of the file, or of the item as it was before it was transformed. */
rsd_err rsi_fetch_bytes(const rsi_fetching *f, uint64_t at, void *buf, size_t len, rsd_error *err);
/* Bytes that lie together in the file, with their CRC if job i is to take it, and hashed if there
 * is a stream. */
rsd_err rsi_fetch_dense(const rsi_fetching *f, uint64_t at, size_t bytes, size_t i,
                        rsi_hash128_stream *stream, unsigned char *to, rsd_error *err);

/* Sets `row` if what is wanted lies together and can be read row by row. */
void rsi_fetch_find_rows(rsi_fetching *f);
/* The part of row i that is wanted; true if that is all of it. */
bool rsi_fetch_row_part(const rsi_fetching *f, size_t i, uint64_t *at, size_t *bytes);
/* A job: `arg` is the rsi_fetching. A row that is read whole is compared with its hash. */
rsd_err rsi_fetch_row(void *arg, size_t i, rsd_error *err);

#endif
