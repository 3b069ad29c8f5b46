/* SPDX-License-Identifier: Apache-2.0 */
/* Records whose bytes arrive in several reads, by any thread and in any order: their CRC32 is made
 * of those of the pieces, instead of being read once more for the comparison. */
#ifndef RSI_RECORD_CRCS_H
#define RSI_RECORD_CRCS_H

#include "base/workers.h"
#include "read/extents.h"

typedef struct rsi_record_crcs rsi_record_crcs;

rsd_err rsi_record_crcs_create(rsd_ckpt *ckpt, rsi_record_crcs **out, rsd_error *err);
void    rsi_record_crcs_free(rsi_record_crcs *crcs);

/* Before a read of part of the record around an extent of tensor t. *wanted: the caller computes
 * the CRC32 of what it reads and passes it on. Claims the record's check in `claims`
 * (rsi_extents_first), unless somebody has, the record is short, so that one call reads it again,
 * or too many records are unfinished. Any thread, as are the next two. */
rsd_err rsi_record_crcs_want(rsi_record_crcs *s, rsi_extents *claims, size_t t, uint32_t file,
                             const rsi_extent *extent, bool *wanted, rsd_error *err);
/* After it: bytes [off, off + len) of the file are part of the record and have this CRC32. The
 * piece that completes the record compares it. Bytes that came before are ignored. */
rsd_err rsi_record_crcs_add(rsi_record_crcs *s, uint32_t file, const rsi_extent *extent,
                            uint64_t off, uint64_t len, uint32_t crc, rsd_error *err);
/* True if the record was claimed here and is unfinished: its check is now the caller's. For reads
 * that take elements out of the middle, after which little would be left to save. */
bool rsi_record_crcs_drop(rsi_record_crcs *s, uint32_t file, const rsi_extent *extent);
/* Reads what is missing of the records that were claimed, and compares them. */
rsd_err rsi_record_crcs_finish(rsi_record_crcs *s, rsi_workers *workers, rsd_error *err);

#endif
