/* SPDX-License-Identifier: Apache-2.0 */
/* What fetch.c and fetch_jobs.c share. */
#ifndef RSI_FETCH_CORE_H
#define RSI_FETCH_CORE_H

#include "plan/region.h"
#include "read/fetch.h"
#include "read/check_sums.h"

typedef struct rsi_fetching {
    rsd_ckpt              *ckpt;
    const rsi_fetch_tools *tools;
    size_t                 t;
    rsd_tensor_info        info; /* of tensor t */
    const rsd_view        *into; /* NULL: nothing is read, only compared */
    rsd_choice             verify;
    bool                   rows; /* there is a side file to compare with */

    /* One chunk's share. */
    rsd_chunk         chunk;
    uint32_t          file;
    rsi_extent        extent;
    const rsi_extent *shared; /* not NULL: that is a copy of this one, which the tools have */
    rsi_region        region;
    rsi_area  to;  /* the caller's memory, dimensions in file order; data NULL: put or taker */
    uint32_t *crc; /* [number of jobs] of the bytes read; NULL: not wanted */
    /* Not NULL: each of these is a job instead of a block. They cover what is wanted, which lies
     * together in the file and in memory. */
    const rsi_sum_row *row; /* [nrows] */
    size_t             nrows;
    /* Rows that a byte was read of, but that are not compared yet. */
    const rsi_sum_row **touched; /* [ntouched] */
    size_t              ntouched, cap;
} rsi_fetching;

/* fetch_jobs.c: reads a box of the chunk. *whole: that is a record, whose CRC32 fits. */
rsd_err rsi_fetch_box(rsi_fetching *f, const rsd_box *box, bool *whole, rsd_error *err);
/* The part of row i that is wanted; true if that is all of it, which is compared then. */
bool rsi_fetch_row_part(const rsi_fetching *f, size_t i, uint64_t *at, size_t *bytes);

#endif
