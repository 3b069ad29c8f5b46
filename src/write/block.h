/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of one block of a file, as an image says. Blocks of a file can be made by several
 * threads at once: what needs the CRC of a tensor that began in an earlier block is left for later.
 * write_files.c decides who makes which block and when. */
#ifndef RSI_BLOCK_H
#define RSI_BLOCK_H

#include "write/image.h"
#include "format/sums.h"

/* A block is what is written at once; rows of checksums never cross its end, so that each is made
 * by one thread and is the same whoever that is (C7). */
enum { RSI_BLOCK_BYTES = RSI_SUM_ROW_BYTES };

typedef struct rsi_file_block {
    const rsi_image *image;
    const rsd_state *state;
    size_t           file; /* of the image */
    uint64_t         at;   /* where the block begins in the file */
    size_t           len;
    unsigned char   *buf;
    bool             ready; /* the bytes of tensors are there already */
    rsi_sums        *sums;  /* gets the rows of the block; NULL: none are wanted */
    /* Called behind every piece of a tensor. */
    rsd_err (*told)(void *arg, size_t bytes, rsd_error *err);
    void *arg;

    size_t   first; /* the first part that has bytes in the block */
    bool     head;  /* it is a tensor that began before, and `head_crc` is of its bytes here */
    uint32_t head_crc;
    uint64_t head_len;
} rsi_file_block;

/* Everything but gaps that need a CRC from an earlier block. */
rsd_err rsi_file_block_fill(rsi_file_block *fill, rsd_error *err);
/* For the blocks of a file in their order: the CRC of a tensor that lies in several grows by what
 * each of them has. */
void rsi_file_block_settle(const rsi_file_block *fill);
/* The rest, once all blocks before it and this one are settled. */
rsd_err rsi_file_block_late(rsi_file_block *fill, rsd_error *err);

/* Parts of a file of the image: the first, and how many. */
size_t rsi_image_parts(const rsi_image *image, size_t file, size_t *n);
/* The first part of a file that ends behind byte `at`. */
size_t rsi_image_part_at(const rsi_image *image, size_t file, uint64_t at);

#endif
