/* SPDX-License-Identifier: Apache-2.0 */
/* The 128-bit hash: xxHash, if the build found it, in the fastest variant that the processor
 * supports. Callers check rsi_hash128_available first, so they never reach the stubs of a build
 * without xxHash. Next: format/sums.c. */
#include "base/hash128.h"
#include "base/mem.h"

#if defined(RSI_HAVE_XXHASH)
#include "base/hash128_way.h"

bool rsi_hash128_available(void)
{
    return true;
}

static const rsi_hash128_way plain = { .once = hash_once, .feed = hash_feed, .end = hash_end };

#if defined(__x86_64__)
static const rsi_hash128_way *way(void)
{
    return __builtin_cpu_supports("avx2") ? &rsi_hash128_wide : &plain;
}
#else
static const rsi_hash128_way *way(void)
{
    return &plain;
}
#endif

void rsi_hash128(const void *bytes, size_t len, unsigned char out[RSI_HASH128_BYTES])
{
    way()->once(bytes, len, out);
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
        way()->feed(stream, bytes, len);
}

void rsi_hash128_end(const rsi_hash128_stream *stream, unsigned char out[RSI_HASH128_BYTES])
{
    way()->end(stream, out);
}

bool rsi_hash128_plainly(const void *bytes, size_t len, unsigned char out[RSI_HASH128_BYTES])
{
    plain.once(bytes, len, out);
    return way() != &plain;
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

bool rsi_hash128_plainly(const void *bytes, size_t len, unsigned char out[RSI_HASH128_BYTES])
{
    rsi_hash128(bytes, len, out);
    return false;
}
#endif

void rsi_hash128_free(rsi_hash128_stream *stream)
{
    rsi_free(stream);
}
