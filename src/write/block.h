/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of one block of a file, as described by an image. Several threads can fill blocks of
 * one file at once: gaps that need the CRC of a tensor from an earlier block are left for later.
 * write_files.c decides which thread fills which block, and when. */
#ifndef RSI_BLOCK_H
#define RSI_BLOCK_H

#include "write/image.h"
#include "format/sums.h"

/* A block is the unit of writing. Rows of checksums never cross its end, so each row is made by one
 * thread and does not depend on which thread that is (C7). */
enum { RSI_BLOCK_BYTES = RSI_SUM_ROW_BYTES };

typedef struct rsi_file_block {
    const rsi_image *image;
    const rsd_state *state;
    size_t           file; /* of the image */
    uint64_t         at;   /* where the block begins in the file */
    size_t           len;
    unsigned char   *buf;
    bool             ready; /* the tensors' bytes are already present */
    rsi_sums        *sums;  /* receives the rows of the block; NULL: none are wanted */
    /* Called after every piece of a tensor. */
    rsd_err (*told)(void *arg, size_t bytes, rsd_error *err);
    void *arg;

    size_t   first; /* the first part that has bytes in the block */
    bool     head;  /* it is a tensor that began earlier; `head_crc` covers its bytes here */
    uint32_t head_crc;
    uint64_t head_len;
} rsi_file_block;

/* Fills in everything except gaps that need a CRC from an earlier block. */
rsd_err rsi_file_block_fill(rsi_file_block *fill, rsd_error *err);
/* Called for the blocks of a file in order: extends the CRC of a tensor that spans several
 * blocks. */
void rsi_file_block_settle(const rsi_file_block *fill);
/* Fills in the rest, once this block and all blocks before it are settled. */
rsd_err rsi_file_block_late(rsi_file_block *fill, rsd_error *err);

/* The parts of one file of the image: returns the first, and the count in *n. */
size_t rsi_image_parts(const rsi_image *image, size_t file, size_t *n);
/* The first part of a file that ends after byte `at`. */
size_t rsi_image_part_at(const rsi_image *image, size_t file, uint64_t at);

#endif
