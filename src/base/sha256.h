/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), for checksums that other projects write. */
#ifndef RSI_SHA256_H
#define RSI_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { RSI_SHA256_BYTES = 32 };

typedef struct rsi_sha256 {
    uint32_t      h[8];
    uint64_t      len;
    unsigned char block[64]; /* len % 64 bytes that fill no block yet */
} rsi_sha256;

void rsi_sha256_begin(rsi_sha256 *s);
void rsi_sha256_add(rsi_sha256 *s, const void *bytes, size_t len);
void rsi_sha256_end(rsi_sha256 *s, unsigned char out[RSI_SHA256_BYTES]);

#endif
