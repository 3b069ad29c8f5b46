/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32 in three variants: ISA-L if the build found it, else carry-less multiplication if the
 * processor supports it, else tables. The last two are our own because zlib's runs at a third of
 * memory speed and ISA-L is optional. */
#include "base/crc32.h"

#include <pthread.h>
#include <stdbool.h>

#define POLY 0xedb88320u /* x^32 + x^26 + ... + 1, lowest power in the highest bit */

#if defined(RSI_HAVE_ISAL)
#include <isa-l/crc.h>

uint32_t rsi_crc32(uint32_t crc, const void *bytes, size_t len)
{
    return len ? crc32_gzip_refl(crc, bytes, len) : crc;
}
#else

/* ---- tables: 16 bytes per step -------------------------------------------------------------- */

enum { SLICES = 16 };

static uint32_t       table[SLICES][256]; /* table[s][b]: byte b followed by s zero bytes */
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLY : 0);
        table[0][b] = crc;
    }
    for (int s = 1; s < SLICES; s++)
        for (uint32_t b = 0; b < 256; b++)
            table[s][b] = table[s - 1][b] >> 8 ^ table[0][table[s - 1][b] & 0xff];
}

static uint32_t word(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Four bytes followed by `s` more bytes of their step. */
static uint32_t slice(uint32_t four, int s)
{
    return table[s + 3][four & 0xff] ^ table[s + 2][four >> 8 & 0xff] ^
           table[s + 1][four >> 16 & 0xff] ^ table[s][four >> 24];
}

/* `reg` is the register of the division: the inverted CRC. */
static uint32_t divide(uint32_t reg, const unsigned char *at, size_t len)
{
    for (; len >= SLICES; len -= SLICES, at += SLICES)
        reg = slice(reg ^ word(at), 12) ^ slice(word(at + 4), 8) ^ slice(word(at + 8), 4) ^
              slice(word(at + 12), 0);
    for (; len > 0; len--, at++)
        reg = reg >> 8 ^ table[0][(reg ^ *at) & 0xff];
    return reg;
}

static uint32_t by_table(uint32_t crc, const void *bytes, size_t len)
{
    pthread_once(&table_once, make_table);
    return ~divide(~crc, bytes, len);
}

/* ---- folding: 64 bytes per step ------------------------------------------------------------- */

#if defined(__x86_64__)
#include <immintrin.h>

#define FOLD __attribute__((target("pclmul,sse4.1")))

/* Adds the 16 bytes that precede `next` by `distance` bits to it. `k` holds x^(distance + 32) and
 * x^(distance - 32) modulo the polynomial, in the CRC's bit order and shifted up by one because a
 * product has 127 bits. */
FOLD static inline __m128i fold(__m128i x, __m128i k, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(x, k, 0x00);
    __m128i high = _mm_clmulepi64_si128(x, k, 0x11);

    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

FOLD static inline __m128i load(const unsigned char *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

/* len >= 64. Four lanes hide the multiplier's latency; the rest goes through the tables. */
FOLD static uint32_t by_fold(uint32_t crc, const unsigned char *at, size_t len)
{
    const __m128i by_64 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i       lane[4];
    unsigned char rest[16];
    uint32_t      reg;

    for (int i = 0; i < 4; i++)
        lane[i] = load(at + 16 * i);
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)~crc));
    for (at += 64, len -= 64; len >= 64; at += 64, len -= 64)
        for (int i = 0; i < 4; i++)
            lane[i] = fold(lane[i], by_64, load(at + 16 * i));
    for (int i = 1; i < 4; i++)
        lane[0] = fold(lane[0], by_16, lane[i]);
    for (; len >= 16; at += 16, len -= 16)
        lane[0] = fold(lane[0], by_16, load(at));
    _mm_storeu_si128((__m128i *)(void *)rest, lane[0]);
    pthread_once(&table_once, make_table);
    reg = divide(0, rest, sizeof(rest));
    return ~divide(reg, at, len);
}

static bool can_fold(void)
{
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#else
static uint32_t by_fold(uint32_t crc, const unsigned char *at, size_t len)
{
    return by_table(crc, at, len);
}

static bool can_fold(void)
{
    return false;
}
#endif

uint32_t rsi_crc32(uint32_t crc, const void *bytes, size_t len)
{
    return len >= 64 && can_fold() ? by_fold(crc, bytes, len) : by_table(crc, bytes, len);
}
#endif

/* ---- combining ---------------------------------------------------------------------------------
 */

/* a * b modulo the polynomial; the highest bit is x^0. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b >> 1 ^ (b & 1 ? POLY : 0);
    }
    return product;
}

/* Appending n zero bytes multiplies by x^(8 n), which takes at most 64 squarings. */
uint32_t rsi_crc32_combine(uint32_t first, uint32_t second, uint64_t second_len)
{
    uint32_t power = 0x00800000u; /* x^8 */
    uint32_t shift = 0x80000000u; /* x^0 */

    for (uint64_t n = second_len; n; n >>= 1) {
        if (n & 1)
            shift = multiply(shift, power);
        power = multiply(power, power);
    }
    return multiply(shift, first) ^ second;
}
