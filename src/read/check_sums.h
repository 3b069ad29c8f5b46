/* SPDX-License-Identifier: Apache-2.0 */
/* Compares bytes of an opened checkpoint with the rows of its side file. */
#ifndef RSI_CHECK_SUMS_H
#define RSI_CHECK_SUMS_H

#include "format/ckpt.h"

enum { RSI_CHECK_STEP = 256 << 10 }; /* bytes that are still near when they are hashed */

/* How bytes of a file are read in steps of RSI_CHECK_STEP, and what is done with each. */
typedef struct rsi_steps {
    rsi_file            *file;
    const unsigned char *decoded; /* not NULL: they are copied from here */
    uint32_t            *crc;     /* not NULL: takes the CRC32 on */
    rsi_hash128_stream  *hash;    /* not NULL: is fed */
    rsd_err (*see)(void *arg, uint64_t at, const void *bytes, size_t len, rsd_error *err);
    void *arg;  /* for `see`, which may be NULL */
    bool  keep; /* the buffer has room for all bytes, not for one step */
} rsi_steps;
/* Bytes [at, at + bytes); in one step if they are kept and nobody looks at them. */
rsd_err rsi_steps_read(const rsi_steps *steps, uint64_t at, uint64_t bytes, void *buf,
                       rsd_error *err);

/* Says that the bytes of a row are not what they were. */
rsd_err rsi_check_differs(const rsi_sum_row *row, rsd_error *err);
/* Compares the hash of a row's bytes, all of which the stream was fed. */
rsd_err rsi_check_hash(const rsi_sum_row *row, const rsi_hash128_stream *stream, rsd_error *err);
/* Reads a row and compares it. */
rsd_err rsi_check_row(rsi_file *file, const rsi_sum_row *row, rsd_error *err);

/* Says that the bytes from `off` on have another CRC32 than the file says. */
rsd_err rsi_check_crc_differs(uint64_t off, uint32_t crc, uint32_t said, rsd_error *err);
/* Reads the record around an extent and compares its CRC32, if it has one. */
rsd_err rsi_check_crc(rsi_file *file, const rsi_extent *extent, rsd_error *err);

/* What a reader does before the first byte. *on: rows are to be compared: `verify` is not NEVER and
 * there is a side file that can be used; one that can't is an error for ALWAYS only. Then what was
 * read when the checkpoint was opened is compared too, the first time. */
rsd_err rsi_check_begin(rsd_ckpt *ckpt, rsd_choice verify, bool *on, rsd_error *err);
/* Compares what opening read. `visit` gets each row that differs; what it returns ends it. NULL:
 * the first one is the error. */
rsd_err rsi_check_opening(rsd_ckpt *ckpt,
                          rsd_err (*visit)(void *arg, const rsi_sum_row *row, const rsd_error *what,
                                           rsd_error *err),
                          void *arg, rsd_error *err);
/* Compares the size of a file, if the side file lists it. */
rsd_err rsi_check_size(const rsd_ckpt *ckpt, uint32_t file, rsd_error *err);
/* A file of safetensors that the side file lists and the folder lacks, so that opening could not
 * know of it: tensors are not there, or end early. NULL: there is none. */
const char *rsi_check_lost(const rsd_ckpt *ckpt);
/* RSD_E_CORRUPT if the side file beside a single file is not this file's: neither its size nor its
 * first bytes fit. */
rsd_err rsi_check_foreign(rsd_ckpt *ckpt, rsd_error *err);

#endif
