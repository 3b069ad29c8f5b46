/* SPDX-License-Identifier: Apache-2.0 */
/* Transposes matrices of small units in memory, for copy.c. */
#ifndef RSI_TRANSPOSE_H
#define RSI_TRANSPOSE_H

#include <stdbool.h>
#include <stdint.h>

/* Unit u of the source's row r goes to unit r of the target's row u. Steps are bytes between the
 * starts of rows. */
typedef struct rsi_matrix {
    unsigned char       *to;
    const unsigned char *from;
    int64_t              to_step, from_step;
    int64_t              to_rows;   /* units of a row of the source */
    int64_t              from_rows; /* units of a row of the target */
    int64_t              unit;      /* bytes */
} rsi_matrix;

/* True if rsi_transpose takes such a matrix: units of 1, 2, 4, 8 or 16 bytes, and at least 16 bytes
 * of them in each row. */
bool rsi_can_transpose(const rsi_matrix *m);
/* `past`: the target won't be read soon, so it bypasses the caches where it can. */
void rsi_transpose(const rsi_matrix *m, bool past);

#endif
