/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue of a DCP checkpoint: its `.metadata` once more, so compact that opening takes time
 * and memory in proportion to the tensors, not to their chunks. It names the length and the hash of
 * the metadata it was made from; with any other metadata it is void, and they are parsed. */
#ifndef RSI_DCP_CATALOGUE_H
#define RSI_DCP_CATALOGUE_H

#include "base/bytes.h"
#include "base/hash128.h"
#include "format/sums.h"
#include "format/dcp_meta.h"
#include "store/store.h"

#define RSI_CATALOGUE_NAME  ".reshard-catalogue"
#define RSI_CATALOGUE_MAGIC 0x3174616364736572u /* "resdcat1" */

/* A catalogue is made of metadata from so many bytes on, and so many chunks for each tensor: it
 * grows with the tensors, which the metadata of few chunks do as well. */
#define RSI_CATALOGUE_LEAST  ((uint64_t)1 << 20)
#define RSI_CATALOGUE_CHUNKS 8

/* Metadata that a catalogue was made from. */
typedef struct rsi_meta_id {
    uint64_t      bytes;
    unsigned char hash[RSI_HASH128_BYTES];
} rsi_meta_id;

/* Of a whole file, in bounded memory. Needs xxHash. `rows`, if not NULL, get the checksums of the
 * bytes read, as of file 0. */
rsd_err rsi_meta_identify(const rsi_source *metadata, rsi_sums *rows, rsi_meta_id *out,
                          rsd_error *err);

/* False: metadata of so many bytes are parsed as fast, or they hold what a catalogue can't. */
bool rsi_catalogue_worth(const rsi_dcp_meta *meta, uint64_t bytes);
/* Appends the catalogue of a table: equal metadata give equal bytes, whether the table was read
 * from them or written to them. False: no memory. */
bool rsi_catalogue_make(const rsi_dcp_meta *meta, const rsi_meta_id *of, rsi_bytes *out);
/* Reads a catalogue and checks that it belongs to `metadata`, whose bytes it hashes, and that its
 * numbers make sense. Fails if it is damaged or of other metadata. `store` is what both are read
 * through: ranks that open from another's log take the hash from there, and get no `rows`. */
rsd_err rsi_catalogue_read(const rsi_source *source, const rsi_source *metadata, rsd_store *store,
                           rsi_sums *rows, rsi_dcp_meta **out, rsd_error *err);

#endif
