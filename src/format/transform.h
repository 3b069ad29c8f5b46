/* SPDX-License-Identifier: Apache-2.0 */
/* Stream transforms: what can be done to the bytes of an item on their way to the file, compression
 * above all. A registry of them that programs can add to, and the two streams that use it: one that
 * undoes a stack of transforms while reading, one that applies a single one while writing. zstd is
 * built in (transform_zstd.c). */
#ifndef RSI_TRANSFORM_H
#define RSI_TRANSFORM_H

#include "format/source.h"

/* ---- for programs that add one -----------------------------------------------------------------
 */

/* A transform makes streams; each stream either encodes or decodes. The calls for one stream come
 * one after the other: begin, feed as often as there is input, end until it is done, free.
 * Different streams may run in different threads at the same time. A stream keeps a bounded amount
 * of memory, whatever its input says and however long it is. Functions that fail fill *err and
 * return its code (RSD_E_FORMAT: the input is not what encoding gives); after that only free is
 * called. None of them may block or call back into this library. */
typedef struct rsd_transform {
    const char
        *name; /* "stream.zstd", "mine@example.org": what stands before the '/' of a descriptor */
    const char
        *version; /* "1": what is written; all with the same number before the first '.' are read */
    void *arg;    /* for begin */
    /* Gives a stream; `encode` is false for one that decodes. */
    rsd_err (*begin)(void *arg, bool encode, void **stream, rsd_error *err);
    /* Takes *used of `in_len` > 0 bytes and puts *made of at most `out_cap` > 0. It takes all, or
     * it fills `out`. */
    rsd_err (*feed)(void *stream, const void *in, size_t in_len, size_t *used, void *out,
                    size_t out_cap, size_t *made, rsd_error *err);
    /* There is no more input. Puts *made of at most `out_cap` > 0 bytes; *done: that was the last.
     * A call that is not done puts at least one. Decoding input that was cut short is RSD_E_FORMAT.
     */
    rsd_err (*end)(void *stream, void *out, size_t out_cap, size_t *made, bool *done,
                   rsd_error *err);
    void (*free)(void *stream); /* also before the end and after a failure */
} rsd_transform;

/* Adds a transform, for the whole process and until it ends. The struct is copied; its texts and
 * functions must stay. RSD_E_EXISTS if the name is taken. Any thread. */
RSD_API rsd_err rsd_transform_register(const rsd_transform *transform, rsd_error *err);

/* ---- inside ------------------------------------------------------------------------------------
 */

/* The transform that a descriptor `name[@domain][/version]` asks for. RSD_E_UNSUPPORTED if nobody
 * registered it. It stays for ever. */
rsd_err rsi_transform_find(const char *descriptor, const rsd_transform **out, rsd_error *err);
/* The descriptor that is written for it; counts as snprintf does. */
size_t rsi_transform_descriptor(const rsd_transform *transform, char *buf, size_t cap);
/* NULL in a build without zstd. */
const rsd_transform *rsi_transform_zstd(void);

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
