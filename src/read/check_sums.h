/* SPDX-License-Identifier: Apache-2.0 */
/* Compares bytes of an opened checkpoint with the rows of its checksum file. */
#ifndef RSI_CHECK_SUMS_H
#define RSI_CHECK_SUMS_H

#include "format/ckpt.h"

enum { RSI_CHECK_STEP = 256 << 10 }; /* small enough to still be cached when hashed */

/* How bytes of a file are read in steps of RSI_CHECK_STEP, and what happens to each step. */
typedef struct rsi_steps {
    rsi_file           *file;
    struct rsi_decoded *decoded; /* not NULL: read these bytes instead of the file's */
    uint32_t           *crc;     /* not NULL: updated with the bytes */
    rsi_hash128_stream *hash;    /* not NULL: fed with the bytes */
    rsd_err (*see)(void *arg, uint64_t at, const void *bytes, size_t len, rsd_error *err);
    void *arg;  /* for `see`, which may be NULL */
    bool  keep; /* the buffer has room for all bytes, not just one step */
} rsi_steps;
/* Reads bytes [at, at + bytes), in a single step if they are kept and nothing inspects them. */
rsd_err rsi_steps_read(const rsi_steps *steps, uint64_t at, uint64_t bytes, void *buf,
                       rsd_error *err);

/* Reports that the bytes of a row have changed. */
rsd_err rsi_check_differs(const rsi_sum_row *row, rsd_error *err);
/* Compares a row's hash with the stream, which was fed all of the row's bytes. */
rsd_err rsi_check_hash(const rsi_sum_row *row, const rsi_hash128_stream *stream, rsd_error *err);
/* Reads a row and compares it. */
rsd_err rsi_check_row(rsi_file *file, const rsi_sum_row *row, rsd_error *err);

/* Reports that the CRC32 of the bytes from `off` on differs from the one the file gives. */
rsd_err rsi_check_crc_differs(uint64_t off, uint32_t crc, uint32_t said, rsd_error *err);
/* Reads the record around an extent that is not decoded and compares its CRC32, if it has one. */
rsd_err rsi_check_crc(rsi_file *file, const rsi_extent *extent, rsd_error *err);
/* Checks all of the decoded bytes around an extent, unless that is done: they are complete and
 * confirm what `locate` found in the first of them; with `crc` also the CRC32. `all` is that of
 * rsi_ckpt_ops.locate. */
rsd_err rsi_check_decoded(rsd_ckpt *ckpt, size_t t, size_t i, bool all, bool crc, rsi_extent *x,
                          rsd_error *err);

/* Called by a reader before its first byte. Sets *on if rows are to be compared: `verify` is not
 * NEVER and a usable checksum file exists; an unusable one is an error for ALWAYS only. The first
 * call that sets *on also compares the bytes that were read when the checkpoint was opened. */
rsd_err rsi_check_begin(rsd_ckpt *ckpt, rsd_choice verify, bool *on, rsd_error *err);
/* Compares the bytes that opening read. `visit` gets each row that differs; an error from it ends
 * the comparison. NULL: the first row that differs is the error. */
rsd_err rsi_check_opening(rsd_ckpt *ckpt,
                          rsd_err (*visit)(void *arg, const rsi_sum_row *row, const rsd_error *what,
                                           rsd_error *err),
                          void *arg, rsd_error *err);
/* Compares a file's size, if the checksum file lists it. */
rsd_err rsi_check_size(const rsd_ckpt *ckpt, uint32_t file, rsd_error *err);
/* A safetensors file that the checksum file lists but the folder lacks. Opening can't notice it:
 * tensors are missing or cut short. NULL: none. */
const char *rsi_check_lost(const rsd_ckpt *ckpt);
/* RSD_E_CORRUPT if the checksum file next to a single file belongs to another file: neither the
 * size nor the first bytes match. */
rsd_err rsi_check_foreign(rsd_ckpt *ckpt, rsd_error *err);

#endif
