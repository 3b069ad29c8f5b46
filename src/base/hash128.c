/* SPDX-License-Identifier: Apache-2.0 */
/* The 128-bit hash, by xxHash where the build found it. Who asks first whether it is there never
 * meets the empty functions of a build without. Next: format/sums.c. */
#include "base/hash128.h"
#include "base/mem.h"

#if defined(RSI_HAVE_XXHASH)
/* Compiled in: the size of its state is then the one that this code was compiled with. */
#define XXH_INLINE_ALL
#include <xxhash.h>

struct rsi_hash128_stream {
    XXH3_state_t state; /* aligned to 64 bytes */
};

bool rsi_hash128_available(void)
{
    return true;
}

static void put(XXH128_hash_t hash, unsigned char *out)
{
    XXH128_canonical_t form;

    XXH128_canonicalFromHash(&form, hash);
    for (int i = 0; i < RSI_HASH128_BYTES; i++)
        out[i] = form.digest[i];
}

void rsi_hash128(const void *bytes, size_t len, unsigned char out[RSI_HASH128_BYTES])
{
    put(XXH3_128bits(bytes, len), out);
}

rsi_hash128_stream *rsi_hash128_create(void)
{
    rsi_hash128_stream *stream = rsi_alloc_aligned(64, sizeof(*stream));

    if (stream) {
        XXH3_INITSTATE(&stream->state);
        rsi_hash128_begin(stream);
    }
    return stream;
}

void rsi_hash128_begin(rsi_hash128_stream *stream)
{
    XXH3_128bits_reset(&stream->state);
}

void rsi_hash128_feed(rsi_hash128_stream *stream, const void *bytes, size_t len)
{
    if (len)
        XXH3_128bits_update(&stream->state, bytes, len);
}

void rsi_hash128_end(const rsi_hash128_stream *stream, unsigned char out[RSI_HASH128_BYTES])
{
    put(XXH3_128bits_digest(&stream->state), out);
}
#else
bool rsi_hash128_available(void)
{
    return false;
}

void rsi_hash128(const void *bytes, size_t len, unsigned char out[RSI_HASH128_BYTES])
{
    (void)bytes;
    (void)len;
    for (int i = 0; i < RSI_HASH128_BYTES; i++)
        out[i] = 0;
}

rsi_hash128_stream *rsi_hash128_create(void)
{
    return NULL;
}

void rsi_hash128_begin(rsi_hash128_stream *stream)
{
    (void)stream;
}

void rsi_hash128_feed(rsi_hash128_stream *stream, const void *bytes, size_t len)
{
    (void)stream;
    (void)bytes;
    (void)len;
}

void rsi_hash128_end(const rsi_hash128_stream *stream, unsigned char out[RSI_HASH128_BYTES])
{
    (void)stream;
    rsi_hash128(NULL, 0, out);
}
#endif

void rsi_hash128_free(rsi_hash128_stream *stream)
{
    rsi_free(stream);
}
