/* SPDX-License-Identifier: Apache-2.0 */
/* Stream transforms: what can be done to the bytes of an item on their way to the file, compression
 * above all. A registry of them that programs can add to, and the two streams that use it: one that
 * undoes a stack of transforms while reading, one that applies a single one while writing. zstd is
 * built in (transform_zstd.c). */
#ifndef RSI_TRANSFORM_H
#define RSI_TRANSFORM_H

#include "format/source.h"

#include <reshard/reshard_plugin.h>

/* The transform that a descriptor `name[@domain][/version]` asks for, or "stream.zstd:LEVEL".
 * RSD_E_UNSUPPORTED if nobody registered it. It stays for ever. */
rsd_err rsi_transform_find(const char *descriptor, const rsd_transform **out, rsd_error *err);
/* The descriptor that is written for it; counts as snprintf does. */
size_t rsi_transform_descriptor(const rsd_transform *transform, char *buf, size_t cap);
/* Level 1 to 19, 0: torch's, which is 3. NULL in a build without zstd, and for other levels. All
 * decode what any of them encoded. */
const rsd_transform *rsi_transform_zstd(int level);
/* Around a fork, so that no other thread holds the registry in the child. */
void rsi_transform_lock(bool on);

enum { RSI_UNDO_MAX = 8 }; /* transforms in a stack */

/* Reads what a stack of transforms made of some bytes. The last descriptor is undone first. */
typedef struct rsi_undo rsi_undo;

/* `source` holds the bytes in the file and stays valid; no descriptor (n = 0) gives them as they
 * are. More than `max_out` bytes are refused, so that a small file can't fill the memory. */
rsd_err rsi_undo_create(const char *const *descriptor, size_t n, const rsi_source *source,
                        uint64_t max_out, rsi_undo **out, rsd_error *err);
/* The next bytes, at most `cap` > 0. *got is 0 only at the end, and then all of the source has been
 * used and was whole. */
rsd_err rsi_undo_read(rsi_undo *undo, void *buf, size_t cap, size_t *got, rsd_error *err);
void    rsi_undo_free(rsi_undo *undo);

/* All of it at once. *bytes is for rsi_free. */
rsd_err rsi_undo_all(const char *const *descriptor, size_t n, const rsi_source *source,
                     uint64_t max_out, unsigned char **bytes, size_t *len, rsd_error *err);

/* Takes what an encoder makes, piece by piece. */
typedef rsd_err (*rsi_sink)(void *arg, const void *bytes, size_t len, rsd_error *err);
typedef struct rsi_encoder rsi_encoder;

rsd_err rsi_encoder_create(const char *descriptor, rsi_sink sink, void *arg, rsi_encoder **out,
                           rsd_error *err);
rsd_err rsi_encoder_feed(rsi_encoder *encoder, const void *bytes, size_t len, rsd_error *err);
rsd_err rsi_encoder_end(rsi_encoder *encoder, rsd_error *err);
void    rsi_encoder_free(rsi_encoder *encoder);

#endif
