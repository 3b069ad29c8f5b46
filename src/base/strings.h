/* SPDX-License-Identifier: Apache-2.0 */
/* A growing list of strings. */
#ifndef RSI_STRINGS_H
#define RSI_STRINGS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct rsi_strings {
    char **at; /* [n] */
    size_t n, cap;
} rsi_strings; /* zeroed: empty */

/* Adds a copy. False: no memory. */
bool rsi_strings_add(rsi_strings *s, const char *text);
void rsi_strings_release(rsi_strings *s);

#endif
