/* SPDX-License-Identifier: Apache-2.0 */
/* Text into a caller's buffer, the way snprintf counts: what does not fit is left out but counted.
 */
#ifndef RSI_TEXT_H
#define RSI_TEXT_H

#include "base/error.h"

typedef struct rsi_text {
    char  *buf;
    size_t cap;
    size_t len; /* of the whole text, also when it did not fit */
} rsi_text;

rsi_text rsi_text_begin(char *buf, size_t cap);
void     rsi_text_add(rsi_text *text, const char *fmt, ...) RSI_PRINTF(2, 3);

/* Bytes of the UTF-8 character that `text` starts with, and its code; 0 if it is none. */
size_t rsi_utf8(const char *text, size_t len, uint32_t *code);
/* Half of a surrogate pair, which Python's pickles keep in three bytes; 0: something else. */
uint32_t rsi_surrogate(const char *text, size_t len);
/* UTF-8 as Python's pickles have it: surrogates pass. */
bool rsi_is_utf8(const char *text, size_t len);
/* True for characters that a terminal obeys instead of showing, or that turn or hide what is
 * around them: controls, marks of direction, line ends, everything of no width. */
bool rsi_is_hidden(uint32_t code);

/* Something, and then `end`. */
bool rsi_text_ends(const char *text, const char *end);

#endif
