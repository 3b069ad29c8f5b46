/* SPDX-License-Identifier: Apache-2.0 */
/* The appending snprintf behind every function that formats text. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

rsi_text rsi_text_begin(char *buf, size_t cap)
{
    if (cap)
        buf[0] = '\0';
    return (rsi_text){ .buf = buf, .cap = cap };
}

void rsi_text_add(rsi_text *text, const char *fmt, ...)
{
    size_t  room = text->len < text->cap ? text->cap - text->len : 0;
    int     len;
    va_list args;

    va_start(args, fmt);
    len = vsnprintf(room ? text->buf + text->len : NULL, room, fmt, args);
    va_end(args);
    if (len > 0)
        text->len += (size_t)len;
}

size_t rsi_utf8(const char *text, size_t len, uint32_t *code)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    unsigned char         c;
    size_t                n;
    uint32_t              value;

    if (len == 0)
        return 0;
    c = (unsigned char)text[0];
    n = c < 0x80 ? 1 : c < 0xc0 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf8 ? 4 : 0;
    if (n == 0 || n > len)
        return 0;
    value = n == 1 ? c : c & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (value < least[n] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 0;
    *code = value;
    return n;
}

uint32_t rsi_surrogate(const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;

    if (len < 3 || s[0] != 0xed || (s[1] & 0xe0) != 0xa0 || (s[2] & 0xc0) != 0x80)
        return 0;
    return 0xd000u | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
}

bool rsi_is_utf8(const char *text, size_t len)
{
    uint32_t code;

    for (size_t i = 0, n; i < len; i += n) {
        n = (unsigned char)text[i] < 0x80 ? 1 : rsi_utf8(text + i, len - i, &code);
        if (n == 0 && rsi_surrogate(text + i, len - i))
            n = 3;
        if (n == 0)
            return false;
    }
    return true;
}

bool rsi_is_hidden(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } range[] = { { 0, 0x1f },         { 0x7f, 0x9f },       { 0xad, 0xad },
                  { 0x61c, 0x61c },    { 0x180e, 0x180e },   { 0x200b, 0x200f },
                  { 0x2028, 0x202e },  { 0x2060, 0x206f },   { 0xfeff, 0xfeff },
                  { 0xfff9, 0xfffb },  { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a },
                  { 0xe0000, 0xe007f } };

    for (size_t i = 0; i < sizeof(range) / sizeof(range[0]); i++)
        if (code >= range[i].first && code <= range[i].last)
            return true;
    return false;
}

bool rsi_text_ends(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n > k && strcmp(text + n - k, end) == 0;
}
