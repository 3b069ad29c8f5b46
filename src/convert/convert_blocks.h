/* SPDX-License-Identifier: Apache-2.0 */
/* An image cut into blocks that can be written in any order, by any thread of any rank, and checked
 * again one by one: at most 4 MiB each, cut at the starts of items. Pure arithmetic;
 * convert_write.c writes them. */
#ifndef RSI_CONVERT_BLOCKS_H
#define RSI_CONVERT_BLOCKS_H

#include "base/hash128.h"
#include "write/image.h"

#define RSI_CONVERT_BLOCK_BYTES ((uint64_t)4 << 20)

typedef struct rsi_convert_block {
    uint64_t      off;      /* in the file */
    uint32_t      len;      /* bytes, at least 1 */
    uint32_t      file;     /* of the image */
    size_t        part;     /* where it begins: in which part of the image, */
    uint64_t      part_off; /* and how far in it */
    uint32_t      crc;   /* of its bytes, if they are a piece of a storage that has several cuts */
    bool          piece; /* they are */
    bool          late;  /* needs CRCs of other cuts: written when all that are not late are */
    bool          done;  /* it is in its file, and these are set: */
    unsigned char hash[RSI_HASH128_BYTES];
} rsi_convert_block;

typedef struct rsi_convert_blocks {
    rsi_convert_block *at; /* files in order, offsets rising */
    size_t             n, cap;
    size_t             nlate;
} rsi_convert_blocks; /* zeroed: none */

rsd_err rsi_convert_blocks_make(rsi_convert_blocks *cuts, const rsi_image *image, rsd_error *err);
void    rsi_convert_blocks_release(rsi_convert_blocks *cuts);
/* When all pieces have their CRC: sets those of the storages that they are pieces of. */
void rsi_convert_blocks_join_crcs(const rsi_convert_blocks *cuts, const rsi_image *image);

#endif
