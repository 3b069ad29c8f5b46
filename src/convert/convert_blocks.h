/* SPDX-License-Identifier: Apache-2.0 */
/* An image cut into blocks that any thread of any rank can write in any order, and that can be
 * checked one by one: at most 4 MiB each, cut at the starts of items. Pure arithmetic;
 * convert_write.c writes them. */
#ifndef RSI_CONVERT_BLOCKS_H
#define RSI_CONVERT_BLOCKS_H

#include "base/hash128.h"
#include "write/image.h"

#define RSI_CONVERT_BLOCK_BYTES ((uint64_t)4 << 20)

typedef struct rsi_convert_block {
    uint64_t      off;      /* in the file */
    uint32_t      len;      /* bytes, at least 1 */
    uint32_t      file;     /* number in the image */
    size_t        part;     /* where it begins: in which part of the image, */
    uint64_t      part_off; /* and the offset in that part */
    uint32_t      crc;      /* of its bytes, if it is a piece of a storage with several cuts */
    bool          piece;    /* it is such a piece */
    bool          late;     /* needs CRCs of other cuts: written after all that are not late */
    bool          reused;   /* written by an interrupted run */
    bool          done;     /* written to its file, and these are set: */
    unsigned char hash[RSI_HASH128_BYTES];
} rsi_convert_block;

typedef struct rsi_convert_blocks {
    rsi_convert_block *at; /* files in order, offsets rising */
    size_t             n, cap;
    size_t             nlate;
} rsi_convert_blocks; /* zeroed: none */

/* How many of the `fits` bytes from `done` on in a tensor's part, which go on behind them, a block
 * should take: at least 1. */
typedef uint64_t (*rsi_cut_end)(void *arg, const rsi_out_part *part, uint64_t done, uint64_t fits);

/* `end` NULL: as many as fit. */
rsd_err rsi_convert_blocks_make(rsi_convert_blocks *cuts, const rsi_image *image, rsi_cut_end end,
                                void *arg, rsd_error *err);
void    rsi_convert_blocks_release(rsi_convert_blocks *cuts);
/* Once all pieces have their CRCs: sets the CRCs of their storages. */
void rsi_convert_blocks_join_crcs(const rsi_convert_blocks *cuts, const rsi_image *image);

#endif
