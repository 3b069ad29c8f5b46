/* SPDX-License-Identifier: Apache-2.0 */
/* The hash functions on top of xxHash, for the files that inline it: hash128.c for every processor,
 * hash128_wide.c for AVX2, which is twice as fast. With xxHash inlined, the size of its state is
 * the one known at compile time. */
#ifndef RSI_HASH128_WAY_H
#define RSI_HASH128_WAY_H

#include "base/hash128.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct rsi_hash128_stream {
    XXH3_state_t state; /* aligned to 64 bytes */
};

typedef struct rsi_hash128_way {
    void (*once)(const void *bytes, size_t len, unsigned char *out);
    void (*feed)(rsi_hash128_stream *stream, const void *bytes, size_t len);
    void (*end)(const rsi_hash128_stream *stream, unsigned char *out);
} rsi_hash128_way;

extern const rsi_hash128_way rsi_hash128_wide; /* for AVX2; x86-64 only */

static void put_hash(XXH128_hash_t hash, unsigned char *out)
{
    XXH128_canonical_t form;

    XXH128_canonicalFromHash(&form, hash);
    for (int i = 0; i < RSI_HASH128_BYTES; i++)
        out[i] = form.digest[i];
}

static void hash_once(const void *bytes, size_t len, unsigned char *out)
{
    put_hash(XXH3_128bits(bytes, len), out);
}

static void hash_feed(rsi_hash128_stream *stream, const void *bytes, size_t len)
{
    XXH3_128bits_update(&stream->state, bytes, len);
}

static void hash_end(const rsi_hash128_stream *stream, unsigned char *out)
{
    put_hash(XXH3_128bits_digest(&stream->state), out);
}

#endif
