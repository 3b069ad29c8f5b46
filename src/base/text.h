/* SPDX-License-Identifier: Apache-2.0 */
/* Text in a caller's buffer, counted as by snprintf: what does not fit is dropped but counted. */
#ifndef RSI_TEXT_H
#define RSI_TEXT_H

#include "base/error.h"

typedef struct rsi_text {
    char  *buf;
    size_t cap;
    size_t len; /* of the whole text, even if it did not fit */
} rsi_text;

rsi_text rsi_text_begin(char *buf, size_t cap);
void     rsi_text_add(rsi_text *text, const char *fmt, ...) RSI_PRINTF(2, 3);

/* Length in bytes of the UTF-8 character at `text`, and its code; 0 if it is invalid. */
size_t rsi_utf8(const char *text, size_t len, uint32_t *code);
/* Half of a surrogate pair, which Python's pickles encode in three bytes; 0: something else. */
uint32_t rsi_surrogate(const char *text, size_t len);
/* UTF-8 as in Python's pickles: surrogates are allowed. */
bool rsi_is_utf8(const char *text, size_t len);
/* True for characters that a terminal obeys instead of showing, or that reorder or hide their
 * surroundings: control characters, direction marks, line ends, zero-width characters. */
bool rsi_is_hidden(uint32_t code);

/* True if `text` ends in `end` and is longer. */
bool rsi_text_ends(const char *text, const char *end);

#endif
