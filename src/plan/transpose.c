/* SPDX-License-Identifier: Apache-2.0 */
/* Transposes matrices at more than half of memcpy's speed. Three things make it fast: squares of 16
 * by 16 bytes are transposed in registers; tiles of these collect in a buffer, so that both sides
 * are read and written in whole cache lines whatever the pitch (rows that are a power of two apart
 * evict each other's lines); and the next tile's lines are fetched while one is transposed. */
#include "plan/transpose.h"
#include "base/checked.h"

#include <string.h>

#define SQUARE 16  /* bytes of a register, and of each side of a square */
#define LINE   64  /* bytes of a cache line */
#define WIDE   128 /* bytes of a target row in a tile */
#define PITCH                                                                                      \
    (WIDE + SQUARE) /* of a tile's rows: not a multiple of the lines, for the same reason */
#define ROWS 128    /* most target rows in a tile */
#define DEEP 256    /* bytes of a source row in a tile, or fewer to keep ROWS */

typedef struct tiling {
    const rsi_matrix *m;
    int64_t           u, r;        /* the tile's first unit and row in the source */
    int64_t           units, rows; /* its size */
    unsigned char    *tile;        /* [units][PITCH] transposed */
} tiling;

typedef uint8_t  vec1 __attribute__((vector_size(SQUARE)));
typedef uint16_t vec2 __attribute__((vector_size(SQUARE)));
typedef uint32_t vec4 __attribute__((vector_size(SQUARE)));
typedef uint64_t vec8 __attribute__((vector_size(SQUARE)));
typedef uint64_t vec16 __attribute__((vector_size(SQUARE)));

/* The first, or last, units of a and b in turns. */
#define LOW1(a, b)                                                                                 \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH1(a, b)                                                                                \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW2(a, b)   __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH2(a, b)  __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW4(a, b)   __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH4(a, b)  __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW8(a, b)   __builtin_shufflevector(a, b, 0, 2)
#define HIGH8(a, b)  __builtin_shufflevector(a, b, 1, 3)
#define LOW16(a, b)  (a)
#define HIGH16(a, b) (b)

/* Without unrolling, the rows of a square would lie in memory instead of registers. */
#define UNROLL _Pragma("GCC unroll 16")

/* square_N transposes SQUARE / N rows of as many units: taking the first and the second half of the
 * rows in turns moves each unit's row number one bit further into its column number. fill_N
 * transposes a tile; its last squares overlap the ones before them. */
#define SQUARES_OF(bytes)                                                                          \
    static inline void square_##bytes(unsigned char *to, const unsigned char *from, int64_t step)  \
    {                                                                                              \
        enum { N = SQUARE / bytes };                                                               \
        vec##bytes row[N], next[N];                                                                \
                                                                                                   \
        UNROLL for (int i = 0; i < N; i++) memcpy(&row[i], from + i * step, SQUARE);               \
        UNROLL for (int n = 1; n < N; n *= 2)                                                      \
        {                                                                                          \
            UNROLL for (int i = 0; i < N / 2; i++)                                                 \
            {                                                                                      \
                next[2 * i] = LOW##bytes(row[i], row[i + N / 2]);                                  \
                next[2 * i + 1] = HIGH##bytes(row[i], row[i + N / 2]);                             \
            }                                                                                      \
            UNROLL for (int i = 0; i < N; i++) row[i] = next[i];                                   \
        }                                                                                          \
        UNROLL for (int i = 0; i < N; i++) memcpy(to + i * PITCH, &row[i], SQUARE);                \
    }                                                                                              \
    static void fill_##bytes(const tiling *t, const unsigned char *from,                           \
                             const unsigned char *next)                                            \
    {                                                                                              \
        enum { N = SQUARE / bytes };                                                               \
        const int64_t step = t->m->from_step;                                                      \
                                                                                                   \
        for (int64_t k = 0; k < t->rows; k += N) {                                                 \
            int64_t r = rsi_min(k, t->rows - N);                                                   \
                                                                                                   \
            fetch_lines(next + r * step, step, N, t->units * bytes);                               \
            for (int64_t i = 0; i < t->units; i += N) {                                            \
                int64_t u = rsi_min(i, t->units - N);                                              \
                                                                                                   \
                square_##bytes(t->tile + u * PITCH + r * bytes, from + r * step + u * bytes,       \
                               step);                                                              \
            }                                                                                      \
        }                                                                                          \
    }

static inline void fetch_lines(const unsigned char *from, int64_t step, int rows, int64_t bytes)
{
    for (int i = 0; i < rows; i++)
        for (int64_t b = 0; b < bytes; b += LINE)
            __builtin_prefetch(from + i * step + b);
}

SQUARES_OF(1)
SQUARES_OF(2)
SQUARES_OF(4)
SQUARES_OF(8)
SQUARES_OF(16)

#if defined(__SSE2__)
#include <emmintrin.h>

/* Lines that are written whole bypass the caches: they need not be read first. */
static void put_past(const tiling *t, unsigned char *to)
{
    const int64_t bytes = t->rows * t->m->unit;

    for (int64_t u = 0; u < t->units; u++, to += t->m->to_step) {
        const unsigned char *from = t->tile + u * PITCH;
        int64_t              head = rsi_min(bytes, (int64_t)(-(uintptr_t)to & (LINE - 1))), i;

        if (head > 0)
            memcpy(to, from, (size_t)head);
        for (i = head; i + LINE <= bytes; i += LINE)
            for (int k = 0; k < LINE; k += 16)
                _mm_stream_si128((__m128i *)(void *)(to + i + k),
                                 _mm_loadu_si128((const __m128i *)(const void *)(from + i + k)));
        if (i < bytes)
            memcpy(to + i, from + i, (size_t)(bytes - i));
    }
}

static void wait_for_stores(void)
{
    _mm_sfence();
}
#else
#define put_past put
static void wait_for_stores(void)
{
}
#endif

static void put(const tiling *t, unsigned char *to)
{
    const size_t bytes = (size_t)(t->rows * t->m->unit);

    for (int64_t u = 0; u < t->units; u++)
        memcpy(to + u * t->m->to_step, t->tile + u * PITCH, bytes);
}

bool rsi_can_transpose(const rsi_matrix *m)
{
    const int64_t u = m->unit;

    return (u == 1 || u == 2 || u == 4 || u == 8 || u == 16) && m->to_rows * u >= SQUARE &&
           m->from_rows * u >= SQUARE;
}

/* Tiles follow each other along the target's rows. The first ends where a line ends; one that would
 * be narrower than a square begins inside the one before it. */
void rsi_transpose(const rsi_matrix *m, bool past)
{
    static void (*const fill_of[])(const tiling *, const unsigned char *, const unsigned char *) = {
        [1] = fill_1, [2] = fill_2, [4] = fill_4, [8] = fill_8, [16] = fill_16
    };
    _Alignas(LINE) unsigned char tile[ROWS * PITCH];
    tiling                       t = { .m = m, .tile = tile };
    const int64_t                least = SQUARE / m->unit, wide = WIDE / m->unit;
    const int64_t                first = wide - (int64_t)((uintptr_t)m->to % LINE) / m->unit;
    const int64_t                deep = rsi_min(ROWS, DEEP / m->unit);
    const bool lines = m->to_step % LINE == 0 && (uintptr_t)m->to % (size_t)m->unit == 0;

    for (int64_t i = 0; i < m->to_rows; i += deep) {
        t.units = rsi_max(least, rsi_min(deep, m->to_rows - i));
        t.u = rsi_min(i, m->to_rows - t.units);
        for (int64_t j = 0; j < m->from_rows; j += j ? wide : first) {
            const unsigned char *from;
            unsigned char       *to;

            t.rows = rsi_max(least, rsi_min(j ? wide : first, m->from_rows - j));
            t.r = rsi_min(j, m->from_rows - t.rows);
            from = m->from + t.r * m->from_step + t.u * m->unit;
            to = m->to + t.u * m->to_step + t.r * m->unit;
            fill_of[m->unit](&t, from, from + t.rows * m->from_step);
            (past && lines ? put_past : put)(&t, to);
        }
    }
    if (past)
        wait_for_stores();
}
