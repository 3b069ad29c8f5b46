/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of all copying: rows of runs, and tiles where the two sides order the dimensions
 * differently. memcpy alone won't do: it copies one run, and a call for each 8 bytes costs more
 * than the bytes. */
#include "plan/copy.h"
#include "base/checked.h"
#include "plan/transpose.h"

#include <stdlib.h>
#include <string.h>

#define TILE 32 /* units per side */
#define UNIT_MOST                                                                                  \
    16 /* longest run in bytes that is moved as one unit: a tile of these fits the first-level     \
          cache */
#define STREAM_RUN                                                                                 \
    1024           /* for runs this long, in bytes, partially written cache lines don't matter */
#define LINE    64 /* bytes */
#define AHEAD   ((int64_t)8 << 10) /* bytes of source to prefetch */
#define BUNDLED 4096               /* shortest run in bytes that is copied in bundles */
#define BUNDLE  8                  /* rows */
#define BLOCK   256                /* bytes */
#define FLAT    __attribute__((always_inline)) static inline

/* Runs of the same length at regular distances. */
typedef struct strip {
    unsigned char       *to;
    const unsigned char *from;
    int64_t              to_step, from_step, rows, run;
} strip;

/* `next`: what will be copied after it, if that is known; its `to` does not matter. */
typedef void (*row_copier)(const strip *now, const strip *next);

/* One function per constant size, which the compiler turns into a load and a store: six times as
 * fast as calling memcpy for 8 bytes, twice for 64 (bench copy.run8, copy.run64). */
#define ROWS_OF(bytes)                                                                             \
    static void rows_##bytes(const strip *now, const strip *next)                                  \
    {                                                                                              \
        strip s = *now;                                                                            \
                                                                                                   \
        (void)next;                                                                                \
        for (int64_t r = 0; r < s.rows; r++)                                                       \
            memcpy(s.to + r * s.to_step, s.from + r * s.from_step, bytes);                         \
    }
ROWS_OF(1)
ROWS_OF(2)
ROWS_OF(4)
ROWS_OF(8)
ROWS_OF(16)
ROWS_OF(32)
ROWS_OF(64)

static void rows_any(const strip *now, const strip *next)
{
    strip s = *now;

    (void)next;
    for (int64_t r = 0; r < s.rows; r++)
        memcpy(s.to + r * s.to_step, s.from + r * s.from_step, (size_t)s.run);
}

#if defined(__x86_64__)
#include <immintrin.h>

typedef void (*line_copier)(unsigned char *to, const unsigned char *from);

static inline void line_16(unsigned char *to, const unsigned char *from)
{
    const __m128i *f = (const __m128i *)(const void *)from;
    __m128i       *t = (__m128i *)(void *)to;
    __m128i        a = _mm_loadu_si128(f), b = _mm_loadu_si128(f + 1);
    __m128i        c = _mm_loadu_si128(f + 2), d = _mm_loadu_si128(f + 3);

    _mm_stream_si128(t, a);
    _mm_stream_si128(t + 1, b);
    _mm_stream_si128(t + 2, c);
    _mm_stream_si128(t + 3, d);
}

__attribute__((target("avx"))) static inline void line_32(unsigned char       *to,
                                                          const unsigned char *from)
{
    const __m256i *f = (const __m256i *)(const void *)from;
    __m256i       *t = (__m256i *)(void *)to;
    __m256i        a = _mm256_loadu_si256(f), b = _mm256_loadu_si256(f + 1);

    _mm256_stream_si256(t, a);
    _mm256_stream_si256(t + 1, b);
}

/* Rows [first, first + BUNDLE), a block of each in turns. */
FLAT void bundle(const strip *s, int64_t first, line_copier line)
{
    int64_t end_row = rsi_min(s->rows, first + BUNDLE), run = s->run;

    for (int64_t at = 0; at < run; at += BLOCK)
        for (int64_t r = first; r < end_row; r++) {
            unsigned char       *t = s->to + r * s->to_step;
            const unsigned char *f = s->from + r * s->from_step;
            int64_t              head = (int64_t)(-(uintptr_t)t & (LINE - 1));
            int64_t              whole = (run - head) / LINE * LINE; /* bytes in whole lines */
            int64_t              end = head + rsi_min(at + BLOCK, whole);

            if (at == 0)
                memcpy(t, f, (size_t)head);
            for (int64_t i = head + at; i < end; i += LINE)
                line(t + i, f + i);
            if (at < whole && at + BLOCK >= whole)
                memcpy(t + end, f + end, (size_t)(run - end));
        }
}

/* Source rows to fetch before row r of `s` is copied: as far ahead in `s`, and when that ends, the
 * first ones of `next`, a few for each row that is left. */
FLAT void fetch_ahead(const strip *s, const strip *next, int64_t r, int64_t early)
{
    int64_t      left = s->rows - r, tail = rsi_min(early, s->rows), most;
    const strip *of = left > early ? s : next;
    int64_t      k = r + early, end = k + 1, run;

    if (of == next) {
        most = rsi_min(early, next->rows);
        k = (tail - left) * most / tail;
        end = (tail - left + 1) * most / tail;
    }
    run = rsi_min(of->run, AHEAD);
    for (; k < end; k++)
        for (int64_t i = 0; i < run; i += LINE)
            _mm_prefetch((const char *)of->from + k * of->from_step + i, _MM_HINT_T0);
}

/* Bypasses the caches: a line that is written whole need not be read first. Each gap in the source
 * stops the hardware's prefetcher for about as long as 6 KiB take. Long rows with gaps are copied
 * several at a time, which wait together; short ones are prefetched whole rows ahead. */
FLAT void rows_past(const strip *now, const strip *next, line_copier line)
{
    strip   s = *now, then = *next;
    int64_t step = s.from_step > 0 ? s.from_step : -s.from_step;
    int64_t early = rsi_max(1, step ? AHEAD / step : 1);
    bool    gaps = s.rows > 1 && step != s.run, bundled = gaps && s.run >= BUNDLED;

    for (int64_t r = 0; r < s.rows && bundled; r += BUNDLE)
        bundle(&s, r, line);
    for (int64_t r = 0; r < s.rows && !bundled; r++) {
        unsigned char       *to = s.to + r * s.to_step;
        const unsigned char *from = s.from + r * s.from_step;
        int64_t head = rsi_min(s.run, (int64_t)(-(uintptr_t)to & (LINE - 1))), i = head;

        if (gaps)
            fetch_ahead(&s, &then, r, early);
        if (head > 0) /* calling memcpy for nothing would cost a tenth of short rows */
            memcpy(to, from, (size_t)head);
        for (; i + LINE <= s.run; i += LINE)
            line(to + i, from + i);
        if (i < s.run)
            memcpy(to + i, from + i, (size_t)(s.run - i));
    }
    _mm_sfence();
}

static void rows_past_16(const strip *now, const strip *next)
{
    rows_past(now, next, line_16);
}

/* A tenth faster for runs of 128 to 384 bytes (bench live.cyclic); 64 bytes gain nothing more. */
__attribute__((target("avx"))) static void rows_past_32(const strip *now, const strip *next)
{
    rows_past(now, next, line_32);
}

static row_copier past_copier(void)
{
    return __builtin_cpu_supports("avx") ? rows_past_32 : rows_past_16;
}
#else
static row_copier past_copier(void)
{
    return rows_any;
}
#endif

static row_copier copier_for(int64_t run)
{
    static const row_copier of_size[] = {
        [1] = rows_1,   [2] = rows_2,   [4] = rows_4,  [8] = rows_8,
        [16] = rows_16, [32] = rows_32, [64] = rows_64
    };

    return run <= 64 && of_size[run] ? of_size[run] : rows_any;
}

/* The two innermost loops as a matrix; false if rsi_transpose can't take it. */
static bool is_matrix(const rsi_loops *l, rsi_matrix *m)
{
    int in = l->n - 1, out = l->n - 2;

    *m = (rsi_matrix){ .to_step = l->to[out],
                       .from_step = l->from[in],
                       .to_rows = l->count[out],
                       .from_rows = l->count[in],
                       .unit = l->run };
    return l->to[in] == l->run && l->from[out] == l->run && rsi_can_transpose(m);
}

/* Copies the two innermost loops in square tiles through a small buffer: both sides see whole cache
 * lines, and power-of-two strides don't evict each other's lines. For units of odd sizes and
 * strides that rsi_transpose does not know. */
static void tiles(const rsi_loops *l, row_copier rows, unsigned char *to, const unsigned char *from)
{
    unsigned char tile[TILE * TILE * UNIT_MOST];
    int           in = l->n - 1, out = l->n - 2;
    int64_t       row = TILE * l->run;

    for (int64_t i = 0; i < l->count[out]; i += TILE)
        for (int64_t j = 0; j < l->count[in]; j += TILE) {
            int64_t              n_out = rsi_min(TILE, l->count[out] - i);
            int64_t              n_in = rsi_min(TILE, l->count[in] - j);
            unsigned char       *t = to + i * l->to[out] + j * l->to[in];
            const unsigned char *f = from + i * l->from[out] + j * l->from[in];

            for (int64_t k = 0; k < n_in; k++) {
                const unsigned char *next = f + (k + TILE) * l->from[in]; /* of the next tile */

                __builtin_prefetch(next);
                __builtin_prefetch(next + (n_out - 1) * l->from[out]);
                rows(&(strip){ tile + k * row, f + k * l->from[in], l->run, l->from[out], n_out,
                               l->run },
                     NULL);
            }
            for (int64_t k = 0; k < n_out; k++)
                rows(
                    &(strip){ t + k * l->to[out], tile + k * l->run, l->to[in], row, n_in, l->run },
                    NULL);
        }
}

/* Moves the loop with the source's smallest stride next to the innermost one; false if it is the
 * innermost. */
static bool wants_tiles(rsi_loops *l)
{
    int near = l->n - 1;

    if (l->run > UNIT_MOST || l->n < 2)
        return false;
    for (int i = 0; i < l->n; i++)
        if (llabs(l->from[i]) < llabs(l->from[near]))
            near = i;
    if (near == l->n - 1)
        return false;
    for (int i = near; i < l->n - 2; i++) {
        rsi_loops was = *l;

        l->count[i] = was.count[i + 1], l->count[i + 1] = was.count[i];
        l->to[i] = was.to[i + 1], l->to[i + 1] = was.to[i];
        l->from[i] = was.from[i + 1], l->from[i + 1] = was.from[i];
    }
    return true;
}

static int64_t total_bytes(const rsi_loops *l)
{
    int64_t bytes = l->run;

    for (int i = 0; i < l->n; i++)
        bytes *= l->count[i];
    return bytes;
}

static strip first_strip(const rsi_copying *c)
{
    const rsi_loops *l = &c->loops;
    int              in = l->n - 1;

    return (strip){ .to = c->to,
                    .from = c->from,
                    .to_step = l->n ? l->to[in] : 0,
                    .from_step = l->n ? l->from[in] : 0,
                    .rows = l->n ? l->count[in] : 1,
                    .run = l->run };
}

/* Moves on in the loops [0, outer); false if they have ended. */
static bool advance(const rsi_loops *l, int outer, int64_t *at, strip *s)
{
    int d = outer - 1;

    for (; d >= 0 && ++at[d] == l->count[d]; d--) {
        s->to -= (l->count[d] - 1) * l->to[d];
        s->from -= (l->count[d] - 1) * l->from[d];
        at[d] = 0;
    }
    if (d < 0)
        return false;
    s->to += l->to[d];
    s->from += l->from[d];
    return true;
}

static row_copier row_copier_of(const rsi_copying *c, bool past)
{
    const rsi_loops *l = &c->loops;
    int64_t          ends = (intptr_t)c->to | l->run;

    for (int i = 0; i < l->n; i++)
        ends |= l->to[i];
    return past && (l->run >= STREAM_RUN || ends % LINE == 0) ? past_copier() : copier_for(l->run);
}

void rsi_copy_planned(const rsi_copying *c, const rsi_copying *next)
{
    rsi_loops  l = c->loops;
    strip      now = first_strip(c), after = next ? first_strip(next) : (strip){ 0 };
    int64_t    at[RSD_MAX_NDIM] = { 0 };
    bool       past = c->past || (l.n > 0 && total_bytes(&l) >= RSI_COPY_PAST);
    bool       tiled = wants_tiles(&l), more;
    rsi_matrix m = { 0 };
    bool       matrix = tiled && is_matrix(&l, &m);
    row_copier rows = tiled ? copier_for(l.run) : row_copier_of(c, past);

    for (more = l.run > 0; more;) {
        strip then = now;

        more = advance(&l, tiled ? l.n - 2 : l.n - 1, at, &then);
        if (matrix) {
            m.to = now.to, m.from = now.from;
            rsi_transpose(&m, past);
        } else if (tiled)
            tiles(&l, rows, now.to, now.from);
        else
            rows(&now, more ? &then : &after);
        now = then;
    }
}

void rsi_copy(const rsi_loops *loops, void *to, const void *from)
{
    rsi_copy_planned(&(rsi_copying){ *loops, to, from, false }, NULL);
}

void rsi_copy_plan(rsi_copying *c, const rsd_box *box, int64_t elem_bytes, const rsi_area *to,
                   const rsi_area *from, bool past)
{
    rsi_loops_make(&c->loops, box->ndim, box->len, elem_bytes, to->stride, from->stride);
    c->to = to->data + rsi_box_offset(box, &to->box, to->stride);
    c->from = from->data + rsi_box_offset(box, &from->box, from->stride);
    c->past = past;
}

static void copy_box(const rsd_box *box, int64_t elem_bytes, const rsi_area *to,
                     const rsi_area *from, bool past)
{
    rsi_copying c;

    rsi_copy_plan(&c, box, elem_bytes, to, from, past);
    rsi_copy_planned(&c, NULL);
}

void rsi_copy_box(const rsd_box *box, int64_t elem_bytes, const rsi_area *to, const rsi_area *from)
{
    copy_box(box, elem_bytes, to, from, false);
}

void rsi_copy_box_past(const rsd_box *box, int64_t elem_bytes, const rsi_area *to,
                       const rsi_area *from)
{
    copy_box(box, elem_bytes, to, from, true);
}

void rsi_pack(const rsd_box *box, int64_t elem_bytes, void *packed, const rsi_area *from)
{
    rsi_loops loops;

    rsi_loops_make(&loops, box->ndim, box->len, elem_bytes, NULL, from->stride);
    rsi_copy(&loops, packed, from->data + rsi_box_offset(box, &from->box, from->stride));
}

void rsi_unpack(const rsd_box *box, int64_t elem_bytes, const rsi_area *to, const void *packed)
{
    rsi_loops loops;

    rsi_loops_make(&loops, box->ndim, box->len, elem_bytes, to->stride, NULL);
    rsi_copy(&loops, to->data + rsi_box_offset(box, &to->box, to->stride), packed);
}
