/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and undoing in memory, for the tests of transforms. */
#ifndef TRANSFORM_HELP_H
#define TRANSFORM_HELP_H

#include "format/transform.h"

#define ROT13 "stream.rot13/1"
#define ZSTD  "stream.zstd/1"

enum { LONG = 300000 };

/* What encoders give, kept. */
typedef struct held_bytes {
    unsigned char at[LONG + 4096];
    size_t        len;
} held_bytes;

/* The sink of an encoder; `arg` is a held_bytes. */
rsd_err keep_bytes(void *arg, const void *piece, size_t len, rsd_error *err);
/* Encodes in pieces of `step` bytes. */
rsd_err encode_bytes(const char *descriptor, const void *data, size_t len, size_t step,
                     held_bytes *to, rsd_error *err);
/* Undoes a stack of none, one or two; `second` or both may be NULL. */
rsd_err undo_bytes(const char *first, const char *second, const void *data, size_t len,
                   uint64_t most, unsigned char **out, size_t *out_len, rsd_error *err);
/* Undoing gives `want`. */
void assert_undone(const char *first, const char *second, const held_bytes *from, const void *want,
                   size_t want_len);
/* Undoing fails with `code`, and the message has `text` and the file's name. */
void assert_refused(const char *descriptor, const void *data, size_t len, uint64_t most,
                    rsd_err code, const char *text);
/* LONG bytes that can be compressed. */
unsigned char *long_text(void);

#endif
