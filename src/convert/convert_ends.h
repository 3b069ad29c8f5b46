/* SPDX-License-Identifier: Apache-2.0 */
/* Where the blocks of a conversion should end, so that the source is read well. */
#ifndef RSI_CONVERT_ENDS_H
#define RSI_CONVERT_ENDS_H

#include "convert/convert_blocks.h"
#include "convert/convert_state.h"

typedef struct rsi_convert_ends {
    const rsi_convert_state *taken;
    bool                     verify; /* the source has a checksum file, and it is compared */
    bool    *turned; /* [tensors] those whose rows are columns of the source; NULL: none */
    size_t   t, i;   /* the chunk that `extent` and `file` belong to */
    bool     known;
    bool     straight; /* its elements lie in row-major order, untransformed */
    uint64_t at;       /* file offset of its first element */
    rsd_box  box;
    uint32_t file;
} rsi_convert_ends;

/* Finds the turned tensors. `taken` must outlive *out; free out->turned. */
rsd_err rsi_convert_ends_make(rsi_convert_ends *out, const rsi_convert_state *taken, bool verify,
                              rsd_error *err);
/* An rsi_cut_end: `arg` is the rsi_convert_ends. */
uint64_t rsi_convert_end(void *arg, const rsi_out_part *part, uint64_t done, uint64_t fits);

#endif
