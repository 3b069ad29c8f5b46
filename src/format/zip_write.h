/* SPDX-License-Identifier: Apache-2.0 */
/* Writes torch.save archives, byte for byte as torch does. It is all arithmetic: every offset is
 * known from the sizes alone, before a byte is written, and the caller puts the data in place from
 * wherever they are:
 *
 *     gap 0 | data of storage 0 | gap 1 | data of storage 1 | ... | data of storage n-1 | gap n
 *
 * A gap holds everything in between: headers, small records, the CRC of the data before it and, at
 * the end, the directory. */
#ifndef RSI_ZIP_WRITE_H
#define RSI_ZIP_WRITE_H

#include "base/arena.h"
#include "base/error.h"

typedef struct rsi_zip_spec {
    const char     *folder; /* NULL: "archive", as for anything but a separate file */
    const void     *pickle; /* data.pkl; it and `size` must live until the last gap is written */
    size_t          pickle_len;
    size_t          n;    /* storages data/0, data/1, ... */
    const uint64_t *size; /* [n] bytes */
    /* Where the archive will begin in its file. Data are aligned relative to the file; torch aligns
     * them relative to the archive, as if this were 0. With more than one storage it must be a
     * multiple of `align`: torch recomputes their places. */
    uint64_t start;
    uint32_t align; /* 0: torch's 64; else a power of two up to 32768 */
    uint64_t full;  /* sizes and offsets from this on need zip64; 0: 2^32 - 1 */
} rsi_zip_spec;

typedef struct rsi_zip_plan {
    rsi_zip_spec spec;
    uint64_t     size; /* of the whole archive */
    uint64_t    *at;   /* [n + 7] offset of each record in torch's order, then of the directory */
    size_t       folder_len;
    uint32_t     pickle_crc;
    uint64_t     names_id; /* half of the serialization id */

    unsigned char *kept[2]; /* gaps of a one-storage archive, made for CRC 0; NULL:
                               rsi_zip_plan_keep was not called */
    size_t   kept_len[2];
    uint64_t fold;     /* of the CRCs before the storage's */
    size_t   patch[5]; /* where the last gap depends on that CRC; see zip_write.c */
} rsi_zip_plan;

/* The plan lives in `mem`. */
rsd_err rsi_zip_plan_make(const rsi_zip_spec *spec, rsi_arena *mem, rsi_zip_plan *out,
                          rsd_error *err);
/* Prepares the gaps of an archive of one storage, so that writing them takes a copy and a few
 * fields: for archives that differ only in their data, which can share a plan. Does nothing for
 * other archives. */
rsd_err rsi_zip_plan_keep(rsi_zip_plan *plan, rsi_arena *mem, rsd_error *err);
/* Offset of storage i's data in the archive. */
uint64_t rsi_zip_data_at(const rsi_zip_plan *plan, size_t i);
/* Offset of gap i in the archive, 0 <= i <= n, and its length. */
uint64_t rsi_zip_gap_at(const rsi_zip_plan *plan, size_t i);
uint64_t rsi_zip_gap_size(const rsi_zip_plan *plan, size_t i);
/* Writes bytes [off, off + len) of gap i to `out`. `crc` has the CRC32 of each storage's data; gap
 * i needs those of storages 0 .. i-1. */
void rsi_zip_gap_write(const rsi_zip_plan *plan, size_t i, const uint32_t *crc, uint64_t off,
                       size_t len, unsigned char *out);

#endif
