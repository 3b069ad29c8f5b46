/* SPDX-License-Identifier: Apache-2.0 */
/* A box in memory as loops over contiguous runs. The length of the runs decides how fast bytes
 * move, so dimensions that are contiguous on both sides are merged first. copy.c runs the loops;
 * files are read and written run by run. */
#ifndef RSI_RUNS_H
#define RSI_RUNS_H

#include "base/error.h"

/* `run` bytes are copied at every combination of the loops, outermost first. */
typedef struct rsi_loops {
    int64_t run; /* bytes; 0: nothing to do */
    int     n;
    int64_t count[RSD_MAX_NDIM];
    int64_t to[RSD_MAX_NDIM];   /* byte strides of the written side, descending */
    int64_t from[RSD_MAX_NDIM]; /* and of the read side */
} rsi_loops;

/* For a box of `len` elements of `elem_bytes`. A NULL stride means packed, row-major. */
void rsi_loops_make(rsi_loops *loops, int ndim, const int64_t *len, int64_t elem_bytes,
                    const int64_t *to, const int64_t *from);

/* Byte offset of `box` in a buffer that holds the box `whole` with the given byte strides. */
int64_t rsi_box_offset(const rsd_box *box, const rsd_box *whole, const int64_t *stride);

/* Calls visit(arg, offset, bytes) for each contiguous run of a box in a buffer, in the box's
 * row-major order: the ranges to read or write there. Stops at the first result that is not RSD_OK
 * and returns it. */
rsd_err rsi_runs_each(const rsd_box *box, const rsd_box *whole, const int64_t *stride,
                      int64_t elem_bytes,
                      rsd_err (*visit)(void *arg, int64_t offset, int64_t bytes), void *arg);

#endif
