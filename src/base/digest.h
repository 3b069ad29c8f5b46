/* SPDX-License-Identifier: Apache-2.0 */
/* A 64-bit digest of bytes that is the same in every process: how ranks see that they mean the
 * same. Not against malice; rsi_hash (map.h) is the one that differs in each process. */
#ifndef RSI_DIGEST_H
#define RSI_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* `before` is the digest of what came before, or any number to start with. */
uint64_t rsi_digest(uint64_t before, const void *bytes, size_t len);

#endif
