/* SPDX-License-Identifier: Apache-2.0 */
/* 128-bit XXH3: detects damaged bytes at memory speed. Not secure against an attacker. xxHash is
 * optional: without it only rsi_hash128_available may be called. */
#ifndef RSI_HASH128_H
#define RSI_HASH128_H

#include <stdbool.h>
#include <stddef.h>

enum { RSI_HASH128_BYTES = 16 };

/* False: built without xxHash. */
bool rsi_hash128_available(void);

/* The hash in its canonical form: big-endian. */
void rsi_hash128(const void *bytes, size_t len, unsigned char out[RSI_HASH128_BYTES]);

/* The same by the portable variant, for tests; true: rsi_hash128 uses a faster one here. */
bool rsi_hash128_plainly(const void *bytes, size_t len, unsigned char out[RSI_HASH128_BYTES]);

/* The same for bytes that arrive in pieces. One user at a time. */
typedef struct rsi_hash128_stream rsi_hash128_stream;

rsi_hash128_stream *rsi_hash128_create(void);                      /* NULL: no memory */
void                rsi_hash128_free(rsi_hash128_stream *stream);  /* NULL is fine */
void                rsi_hash128_begin(rsi_hash128_stream *stream); /* discards previous input */
void                rsi_hash128_feed(rsi_hash128_stream *stream, const void *bytes, size_t len);
void rsi_hash128_end(const rsi_hash128_stream *stream, unsigned char out[RSI_HASH128_BYTES]);

#endif
