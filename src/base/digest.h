/* SPDX-License-Identifier: Apache-2.0 */
/* A 64-bit digest that is the same in every process, with which ranks check that they agree. Not
 * secure against an attacker; rsi_hash (map.h) is the one that differs between processes. */
#ifndef RSI_DIGEST_H
#define RSI_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* `before` is the digest of the preceding bytes, or any number to start with. */
uint64_t rsi_digest(uint64_t before, const void *bytes, size_t len);

#endif
