/* SPDX-License-Identifier: Apache-2.0 */
/* Part of a chunk on its way from a file to memory: how it is cut into blocks, each read at once.
 * Pure arithmetic; fetch.c reads the blocks. */
#ifndef RSI_REGION_H
#define RSI_REGION_H

#include "plan/copy.h"

/* All arrays have the dimensions in file order: largest stride first. */
typedef struct rsi_region {
    rsd_box  box; /* the wanted part, in the tensor's coordinates */
    int64_t  elem_bytes;
    uint64_t start;                     /* file offset of the box's first element */
    int64_t  file_stride[RSD_MAX_NDIM]; /* bytes */
    int32_t  dim[RSD_MAX_NDIM];         /* the tensor's dimension for each */
    int64_t  run;                       /* contiguous bytes in the file */
    bool     near;                      /* runs are so close that the gaps are read too */
    int64_t block_len[RSD_MAX_NDIM]; /* a block's size; the last in each dimension may be smaller */
    int64_t nblocks;
} rsi_region;

/* `box` lies inside `chunk`, whose first element is at `offset` with the given byte strides. Blocks
 * take at most `most` bytes of memory, or one run if that is more. */
void rsi_region_make(rsi_region *region, const rsd_box *box, const rsd_box *chunk,
                     int64_t elem_bytes, uint64_t offset, const int64_t *stride, int64_t most);

/* Cuts a packed box into consecutive blocks. Returns their number, 0 if the box is empty. */
int64_t rsi_region_packed(rsi_region *region, const rsd_box *box, int64_t elem_bytes, int64_t most);

/* Block i < nblocks: its box in file order, its file offset, its bytes, and the distance from its
 * first to its last byte there. Blocks are numbered in file order. */
typedef struct rsi_block {
    rsd_box  box;
    uint64_t at;
    int64_t  bytes, span;
} rsi_block;
void rsi_region_block(const rsi_region *region, int64_t i, rsi_block *out);
/* The block's box with the tensor's order of dimensions. */
void rsi_region_part(const rsi_region *region, int64_t i, rsd_box *by_dim);
/* Convert a tensor's box or strides to file order, and a box back. */
void rsi_region_order(const rsi_region *region, const int64_t *by_dim, int64_t *by_file);
void rsi_region_box(const rsi_region *region, const rsd_box *by_file, rsd_box *by_dim);

#endif
