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

/* Something, and then `end`. */
bool rsi_text_ends(const char *text, const char *end);

#endif
