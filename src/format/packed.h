/* SPDX-License-Identifier: Apache-2.0 */
/* A column of integers, one for each chunk of a tensor, in little memory: one value for all, runs
 * that follow a formula, or numbers as narrow as possible. A regular layout takes a few words
 * however many chunks it has. The same bytes serve in memory and in a file. */
#ifndef RSI_PACKED_H
#define RSI_PACKED_H

#include "base/bytes.h"

#include <stdint.h>

/* The payload belongs to whoever read it. */
typedef struct rsi_packed {
    const unsigned char *at;    /* of runs or numbers; NULL: every value is `base` */
    int64_t              base;  /* added to numbers */
    size_t               n;     /* values */
    size_t               runs;  /* 0: numbers */
    unsigned             width; /* bytes of a number */
} rsi_packed;

/* Value i < n. */
int64_t rsi_packed_at(const rsi_packed *column, size_t i);
/* All n values. */
void rsi_packed_all(const rsi_packed *column, int64_t *out);
/* The smallest and the largest value, without looking at each value of a run; false: one does not
 * fit in 64 bits. n > 0. */
bool rsi_packed_range(const rsi_packed *column, int64_t *min, int64_t *max);

/* Appends n values; false: no memory. The length stays a multiple of 8 bytes. */
bool rsi_packed_add(const int64_t *value, size_t n, rsi_bytes *out);
/* The next column of n values, whose rules are checked but not its values; false: there is none. */
bool rsi_packed_take(rsi_reader *in, size_t n, rsi_packed *out);

#endif
