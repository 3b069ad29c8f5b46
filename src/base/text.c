/* SPDX-License-Identifier: Apache-2.0 */
/* The appending snprintf behind every function that puts something into words. */
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

bool rsi_text_ends(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n > k && strcmp(text + n - k, end) == 0;
}
