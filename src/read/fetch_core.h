/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by fetch.c and fetch_jobs.c. */
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
    const rsd_view        *into; /* NULL: only compare, read nothing */
    rsd_choice             verify;
    size_t                 i;    /* the chunk below */
    bool                   rows; /* compare with the rows of a checksum file */

    /* One chunk's share. */
    rsd_chunk         chunk;
    uint32_t          file;
    rsi_extent        extent;
    const rsi_extent *shared; /* not NULL: original of `extent`, borrowed from the tools */
    rsi_region        region;
    rsi_area  to;  /* the caller's memory, dimensions in file order; data NULL: put or taker */
    uint32_t *crc; /* [number of jobs] of the bytes read; NULL: not wanted */
    /* Not NULL: each of these rows is a job, instead of each block. They cover the wanted bytes,
     * which are contiguous both in the file and in memory. */
    const rsi_sum_row *row; /* [nrows] */
    size_t             nrows;
    /* Rows of which some bytes were read, but which have not been compared yet. */
    const rsi_sum_row **touched; /* [ntouched] */
    size_t              ntouched, cap;
} rsi_fetching;

/* fetch_jobs.c: reads a box of the chunk. Sets *checked if the record's CRC32 matches, or
 * will be compared when the rest of the record has been read. */
rsd_err rsi_fetch_box(rsi_fetching *f, const rsd_box *box, bool *checked, rsd_error *err);
/* The wanted part of row i; true if that is the whole row, which can then be compared. */
bool rsi_fetch_row_part(const rsi_fetching *f, size_t i, uint64_t *at, size_t *bytes);

#endif
