/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer, a reader for its contents, little-endian numbers: messages between ranks,
 * pickles, archives. */
#ifndef RSI_BYTES_H
#define RSI_BYTES_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rsi_bytes {
    unsigned char *at; /* for rsi_free */
    size_t         len, cap;
    bool           lost; /* an allocation failed, so bytes are missing */
} rsi_bytes;             /* zeroed: empty */

/* False: this or an earlier allocation failed. */
bool rsi_bytes_add(rsi_bytes *bytes, const void *more, size_t len);
/* Room for `len` more bytes, to be filled before the next call; NULL: no memory. */
void *rsi_bytes_more(rsi_bytes *bytes, size_t len);
/* Appends printf-style text, including its NUL. */
bool rsi_bytes_print(rsi_bytes *bytes, const char *fmt, va_list args);

/* The unread rest of a buffer. */
typedef struct rsi_reader {
    const unsigned char *at, *end;
    bool                 cut; /* a read went past the end */
} rsi_reader;

/* The next `len` bytes, possibly unaligned; NULL: fewer are left. */
const void *rsi_read_next(rsi_reader *reader, size_t len);
/* Copies them to *out; zeroes *out if fewer are left. */
bool rsi_read_copy(rsi_reader *reader, void *out, size_t len);
/* The next NUL-terminated text; "" if there is none. */
const char *rsi_read_text(rsi_reader *reader);

static inline uint16_t rsi_le16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t rsi_le32(const unsigned char *p)
{
    return rsi_le16(p) | (uint32_t)rsi_le16(p + 2) << 16;
}

static inline uint64_t rsi_le64(const unsigned char *p)
{
    return rsi_le32(p) | (uint64_t)rsi_le32(p + 4) << 32;
}

#endif
