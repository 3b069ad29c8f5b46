/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 with 128 bits: tells damaged bytes from whole ones at the speed of memory. Not against
 * malice. It is xxHash's, which is optional: without it nothing here may be called but
 * rsi_hash128_available. */
#ifndef RSI_HASH128_H
#define RSI_HASH128_H

#include <stdbool.h>
#include <stddef.h>

enum { RSI_HASH128_BYTES = 16 };

/* False: built without xxHash. */
bool rsi_hash128_available(void);

/* The hash in its canonical form: as a number, highest byte first. */
void rsi_hash128(const void *bytes, size_t len, unsigned char out[RSI_HASH128_BYTES]);

/* The same as every processor can compute it, for tests; true: rsi_hash128 has a faster way here.
 */
bool rsi_hash128_plainly(const void *bytes, size_t len, unsigned char out[RSI_HASH128_BYTES]);

/* The same for bytes that come in pieces. One user at a time. */
typedef struct rsi_hash128_stream rsi_hash128_stream;

rsi_hash128_stream *rsi_hash128_create(void);                      /* NULL: no memory */
void                rsi_hash128_free(rsi_hash128_stream *stream);  /* NULL is fine */
void                rsi_hash128_begin(rsi_hash128_stream *stream); /* forgets what came before */
void                rsi_hash128_feed(rsi_hash128_stream *stream, const void *bytes, size_t len);
void rsi_hash128_end(const rsi_hash128_stream *stream, unsigned char out[RSI_HASH128_BYTES]);

#endif
