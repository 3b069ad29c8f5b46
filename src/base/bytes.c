/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

void *rsi_bytes_more(rsi_bytes *bytes, size_t len)
{
    size_t         cap;
    unsigned char *grown;

    if (!bytes->lost && (!bytes->at || len > bytes->cap - bytes->len)) {
        cap = (bytes->len + len) / 2 * 3 + 64;
        grown = len < SIZE_MAX / 4 ? rsi_realloc(bytes->at, cap, 1) : NULL;
        bytes->lost = !grown;
        bytes->at = grown ? grown : bytes->at;
        bytes->cap = grown ? cap : bytes->cap;
    }
    if (bytes->lost)
        return NULL;
    bytes->len += len;
    return bytes->at + bytes->len - len;
}

bool rsi_bytes_add(rsi_bytes *bytes, const void *more, size_t len)
{
    void *to = rsi_bytes_more(bytes, len);

    if (to && len)
        memcpy(to, more, len);
    return to;
}

bool rsi_bytes_print(rsi_bytes *bytes, const char *fmt, va_list args)
{
    va_list again;
    size_t  len;
    char   *to;

    if (!fmt) /* a sanitizer's check would leave this case open to a warning */
        return false;
    va_copy(again, args);
    len = (size_t)vsnprintf(NULL, 0, fmt, again) + 1;
    va_end(again);
    to = rsi_bytes_more(bytes, len);
    if (to)
        vsnprintf(to, len, fmt, args);
    return to;
}

const void *rsi_read_next(rsi_reader *reader, size_t len)
{
    const void *at = reader->at;

    reader->cut = reader->cut || len > (size_t)(reader->end - reader->at);
    if (reader->cut)
        return NULL;
    reader->at += len;
    return at;
}

bool rsi_read_copy(rsi_reader *reader, void *out, size_t len)
{
    const void *at = rsi_read_next(reader, len);

    memset(out, 0, at ? 0 : len);
    if (at && len)
        memcpy(out, at, len);
    return at;
}

const char *rsi_read_text(rsi_reader *reader)
{
    size_t      left = (size_t)(reader->end - reader->at);
    const void *nul = left ? memchr(reader->at, 0, left) : NULL;
    const char *text = rsi_read_next(
        reader, nul ? (size_t)((const unsigned char *)nul - reader->at) + 1 : left + 1);

    return text ? text : "";
}
