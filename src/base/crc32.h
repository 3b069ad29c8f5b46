/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32 as zip and zlib compute it. torch.save puts one behind every record. */
#ifndef RSI_CRC32_H
#define RSI_CRC32_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The CRC of what `crc` stands for (0: nothing) followed by `len` bytes. */
uint32_t rsi_crc32(uint32_t crc, const void *bytes, size_t len);
/* The CRC of two pieces one behind the other, from the CRC of each and the length of the second. */
uint32_t rsi_crc32_combine(uint32_t first, uint32_t second, uint64_t second_len);

/* The ways to compute it, for tests and measurements. False: this build or this processor has no
 * such way. */
typedef enum rsi_crc32_way { RSI_CRC32_TABLE, RSI_CRC32_FOLD, RSI_CRC32_ISAL } rsi_crc32_way;
bool rsi_crc32_by(rsi_crc32_way way, uint32_t crc, const void *bytes, size_t len, uint32_t *out);

#endif
