/* SPDX-License-Identifier: Apache-2.0 */
/* Compares bytes of an opened checkpoint with the rows of its side file. */
#ifndef RSI_PROOF_H
#define RSI_PROOF_H

#include "format/ckpt.h"

enum { RSI_PROOF_STEP = 256 << 10 }; /* bytes that are still near when they are hashed */

/* Says that the bytes of a row are not what they were. */
rsd_err rsi_proof_differs(const rsi_sum_row *row, rsd_error *err);
/* Reads the bytes of a row and hashes them; `buf` has RSI_PROOF_STEP bytes, or as many as the row
 * if that is less. */
rsd_err rsi_proof_hash(rsi_file *file, const rsi_sum_row *row, rsi_hash128_stream *stream,
                       void *buf, unsigned char *out, rsd_error *err);
/* Reads a row and compares it. */
rsd_err rsi_proof_row(rsi_file *file, const rsi_sum_row *row, rsd_error *err);

/* What a reader does before the first byte. *on: rows are to be compared: `verify` is not NEVER and
 * there is a side file that can be used; one that can't is an error for ALWAYS only. Then what was
 * read when the checkpoint was opened is compared too, the first time. */
rsd_err rsi_proof_begin(rsd_ckpt *ckpt, rsd_choice verify, bool *on, rsd_error *err);
/* Compares what opening read. `visit` gets each row that differs; what it returns ends it. */
rsd_err rsi_proof_opening(rsd_ckpt *ckpt,
                          rsd_err (*visit)(void *arg, const rsi_span *span, const rsi_sum_row *row,
                                           const rsd_error *what, rsd_error *err),
                          void *arg, rsd_error *err);
/* Compares the size of a file, if the side file lists it. */
rsd_err rsi_proof_size(const rsd_ckpt *ckpt, uint32_t file, rsd_error *err);
/* A file of safetensors that the side file lists and the folder lacks, so that opening could not
 * know of it: tensors are not there, or end early. NULL: there is none. */
const char *rsi_proof_lost(const rsd_ckpt *ckpt);
/* True if the side file beside a single file is not this file's: neither its size nor its first
 * bytes fit. */
bool rsi_proof_is_foreign(rsd_ckpt *ckpt);
/* The text for that. */
rsd_err rsi_proof_foreign(const rsd_ckpt *ckpt, rsd_error *err);

#endif
