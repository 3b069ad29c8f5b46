/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer: headers and index files; equal values give equal bytes. json.c reads. */
#include "format/json_write.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PUT_BYTES ((size_t)64 << 10) /* with a callback: bytes gathered before each call */

static void flush(rsi_json_out *out)
{
    if (!out->rc && out->put && out->len > 0)
        out->rc = out->put(out->arg, out->buf, out->len, &out->err);
    out->len = 0;
}

/* Room for `more` bytes; NULL after a failure. */
static char *room(rsi_json_out *out, size_t more)
{
    rsi_bytes text;
    char     *to;

    if (out->put && out->len >= PUT_BYTES)
        flush(out);
    if (out->rc)
        return NULL;
    text = (rsi_bytes){ .at = (unsigned char *)out->buf, .len = out->len, .cap = out->cap };
    to = rsi_bytes_more(&text, more);
    if (!to)
        out->rc = rsi_fail(&out->err, RSD_E_NOMEM, "no memory for %zu bytes of JSON", more);
    out->buf = (char *)text.at;
    out->cap = text.cap;
    return to;
}

void rsi_json_raw(rsi_json_out *out, const char *bytes, size_t len)
{
    char *to = len > 0 ? room(out, len) : NULL;

    if (!to)
        return;
    memcpy(to, bytes, len);
    out->len += len;
}

static void new_line(rsi_json_out *out)
{
    rsi_json_raw(out, "\n", 1);
    for (int d = 0; d < out->depth; d++)
        rsi_json_raw(out, "  ", 2);
}

/* Writes the separator between the previous value and the next. */
static void separate(rsi_json_out *out)
{
    if (out->after_key) {
        out->after_key = false;
        return;
    }
    if (out->some)
        rsi_json_raw(out, ", ", out->style == RSI_JSON_SPACED ? 2 : 1);
    if (out->style == RSI_JSON_INDENTED && out->depth > 0)
        new_line(out);
    out->some = true;
}

void rsi_json_open(rsi_json_out *out, char bracket)
{
    separate(out);
    rsi_json_raw(out, &bracket, 1);
    out->depth++;
    out->some = false;
}

void rsi_json_close(rsi_json_out *out, char bracket)
{
    out->depth--;
    if (out->style == RSI_JSON_INDENTED && out->some)
        new_line(out);
    rsi_json_raw(out, &bracket, 1);
    out->some = true;
}

/* `to` has room for 12 bytes. */
static size_t escape(const rsi_json_out *out, char *to, uint32_t code)
{
    static const char from[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    const char       *found = code > 0 && code < 0x80 ? strchr(from, (char)code) : NULL;
    char              text[16];
    int               n;

    if (found) {
        to[0] = '\\';
        to[1] = letter[found - from];
        return 2;
    }
    if (code >= 0x20 && (!out->ascii || code < 0x7f))
        return 0;
    if (code < 0x10000)
        n = snprintf(text, sizeof(text), "\\u%04x", code & 0xffffu);
    else
        n = snprintf(text, sizeof(text), "\\u%04x\\u%04x",
                     0xd800 + ((code - 0x10000) >> 10 & 0x3ff), 0xdc00 + (code & 0x3ff));
    memcpy(to, text, (size_t)n);
    return (size_t)n;
}

/* How many bytes from the start are written unchanged, whatever the settings. */
static size_t plain_run(const char *text, size_t len)
{
    size_t n = 0;

    while (n < len && text[n] >= 0x20 && text[n] < 0x7f && text[n] != '"' && text[n] != '\\')
        n++;
    return n;
}

/* Writes the character at text[at], which may need an escape; returns its bytes there, 0 after a
 * failure. */
static size_t put_character(rsi_json_out *out, const char *text, size_t len, size_t at)
{
    uint32_t code = 0;
    size_t   n = rsi_utf8(text + at, len - at, &code), longer;
    char    *to = room(out, 12);

    if (n == 0 && !out->rc)
        out->rc = rsi_fail(&out->err, RSD_E_INVALID, "\"%.*s\" is not UTF-8 at its byte %zu",
                           rsi_json_shown(text, at), text, at);
    if (out->rc)
        return 0;
    longer = escape(out, to, code);
    if (longer == 0)
        memcpy(to, text + at, n);
    out->len += longer ? longer : n;
    return n;
}

static void put_string(rsi_json_out *out, const char *text, size_t len)
{
    size_t at = 0, plain;

    rsi_json_raw(out, "\"", 1);
    while (at < len && !out->rc) {
        plain = plain_run(text + at, len - at);
        rsi_json_raw(out, text + at, plain);
        at += plain;
        if (at < len)
            at += put_character(out, text, len, at);
    }
    rsi_json_raw(out, "\"", 1);
}

void rsi_json_key(rsi_json_out *out, const char *text, size_t len)
{
    separate(out);
    put_string(out, text, len);
    rsi_json_raw(out, ": ", out->style == RSI_JSON_COMPACT ? 1 : 2);
    out->after_key = true;
}

void rsi_json_string(rsi_json_out *out, const char *text, size_t len)
{
    separate(out);
    put_string(out, text, len);
}

void rsi_json_u64(rsi_json_out *out, uint64_t value)
{
    char text[24];
    int  n = snprintf(text, sizeof(text), "%" PRIu64, value);

    separate(out);
    rsi_json_raw(out, text, (size_t)n);
}

void rsi_json_i64(rsi_json_out *out, int64_t value)
{
    char text[24];
    int  n = snprintf(text, sizeof(text), "%" PRId64, value);

    separate(out);
    rsi_json_raw(out, text, (size_t)n);
}

rsd_err rsi_json_out_end(rsi_json_out *out, rsd_error *err)
{
    if (out->put)
        flush(out);
    if (out->rc && err)
        *err = out->err;
    return out->rc;
}

void rsi_json_out_release(rsi_json_out *out)
{
    rsi_free(out->buf);
    out->buf = NULL;
    out->len = out->cap = 0;
}
