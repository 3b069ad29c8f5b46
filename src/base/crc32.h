/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32 as in zip and zlib. torch.save stores one after every record. */
#ifndef RSI_CRC32_H
#define RSI_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Extends `crc`, the CRC of the bytes so far (0: none), by `len` bytes. */
uint32_t rsi_crc32(uint32_t crc, const void *bytes, size_t len);
/* The CRC of two adjacent pieces, from the CRC of each and the length of the second. */
uint32_t rsi_crc32_combine(uint32_t first, uint32_t second, uint64_t second_len);

#endif
