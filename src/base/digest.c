/* SPDX-License-Identifier: Apache-2.0 */
/* Multiply and fold, eight bytes at a time. */
#include "base/digest.h"

#include <string.h>

/* 64 x 64 -> 128 bits, folded: every input bit affects every bit of the result. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 u128;
    u128                                    r = (u128)a * b;

    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

uint64_t rsi_digest(uint64_t before, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint64_t             h = before ^ mix(len + 1, 0xa0761d6478bd642fu), word;
    size_t               left = len;

    for (; left >= 8; left -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = mix(h ^ word, 0xe7037ed1a0b428dbu) + 0x8ebc6af09c88c6e3u;
    }
    word = 0;
    if (left)
        memcpy(&word, p, left);
    return mix(h ^ word, 0x589965cc75374cc3u ^ before);
}
