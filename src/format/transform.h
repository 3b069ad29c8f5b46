/* SPDX-License-Identifier: Apache-2.0 */
/* Stream transforms of an item's bytes on their way to the file, mainly compression: a registry
 * that programs can add to, and two streams that use it. One undoes a stack of transforms while
 * reading, the other applies a single one while writing. zstd is built in (transform_zstd.c). */
#ifndef RSI_TRANSFORM_H
#define RSI_TRANSFORM_H

#include "format/source.h"

#include <reshard/reshard_plugin.h>

/* The transform for a descriptor `name[@domain][/version]` or "stream.zstd:LEVEL".
 * RSD_E_UNSUPPORTED if it is not registered. Stays valid forever. */
rsd_err rsi_transform_find(const char *descriptor, const rsd_transform **out, rsd_error *err);
/* The descriptor to write for it; counts as snprintf does. */
size_t rsi_transform_descriptor(const rsd_transform *transform, char *buf, size_t cap);
/* Level 1 to 19, 0: torch's, which is 3. NULL in a build without zstd, and for other levels. Every
 * level decodes what any other encoded. */
const rsd_transform *rsi_transform_zstd(int level);
/* Used around a fork, so that no other thread holds the registry's lock in the child. */
void rsi_transform_lock(bool on);

enum { RSI_UNDO_MAX = 8 }; /* transforms in a stack */

/* Reads bytes that a stack of transforms produced. The last descriptor is undone first. */
typedef struct rsi_undo rsi_undo;

/* `source` holds the bytes in the file and must stay valid; without descriptors (n = 0) they are
 * returned unchanged. More than `max_out` bytes are refused, so that a small file can't exhaust
 * memory. */
rsd_err rsi_undo_create(const char *const *descriptor, size_t n, const rsi_source *source,
                        uint64_t max_out, rsi_undo **out, rsd_error *err);
/* The next bytes, at most `cap` > 0. *got is 0 only at the end, when all of the source has been
 * used and was complete. */
rsd_err rsi_undo_read(rsi_undo *undo, void *buf, size_t cap, size_t *got, rsd_error *err);
void    rsi_undo_free(rsi_undo *undo);

/* All bytes at once. Free *bytes with rsi_free. */
rsd_err rsi_undo_all(const char *const *descriptor, size_t n, const rsi_source *source,
                     uint64_t max_out, unsigned char **bytes, size_t *len, rsd_error *err);

/* Receives an encoder's output, piece by piece. */
typedef rsd_err (*rsi_sink)(void *arg, const void *bytes, size_t len, rsd_error *err);
typedef struct rsi_encoder rsi_encoder;

rsd_err rsi_encoder_create(const char *descriptor, rsi_sink sink, void *arg, rsi_encoder **out,
                           rsd_error *err);
rsd_err rsi_encoder_feed(rsi_encoder *encoder, const void *bytes, size_t len, rsd_error *err);
rsd_err rsi_encoder_end(rsi_encoder *encoder, rsd_error *err);
void    rsi_encoder_free(rsi_encoder *encoder);

#endif
