/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that grow while they are written, and the way to read them again: messages between ranks,
 * pickles. */
#ifndef RSI_BYTES_H
#define RSI_BYTES_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct rsi_bytes {
    unsigned char *at; /* for rsi_free */
    size_t         len, cap;
    bool           lost; /* there was no memory: something is missing */
} rsi_bytes;             /* zeroed: empty */

/* False: no memory, now or before. */
bool rsi_bytes_add(rsi_bytes *bytes, const void *more, size_t len);
/* Room for `len` bytes more, to be filled before the next are added; NULL: no memory. */
void *rsi_bytes_more(rsi_bytes *bytes, size_t len);
/* A text as from printf, with its NUL. */
bool rsi_bytes_print(rsi_bytes *bytes, const char *fmt, va_list args);

/* What is left of bytes that are being read. */
typedef struct rsi_reader {
    const unsigned char *at, *end;
    bool                 cut; /* more was wanted than there was */
} rsi_reader;

/* The next `len` bytes, which need not be aligned; NULL: there are not so many. */
const void *rsi_read_next(rsi_reader *reader, size_t len);
/* A copy of them in *out, which becomes zeros if there are not so many. */
bool rsi_read_copy(rsi_reader *reader, void *out, size_t len);
/* The next text, with its NUL; "" if there is none. */
const char *rsi_read_text(rsi_reader *reader);

#endif
