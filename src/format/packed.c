/* SPDX-License-Identifier: Apache-2.0 */
/* Packs columns. On disk a column is a head of two words (runs and width, base), then its payload;
 * all words are little-endian. A run is SPAN words: where it starts, how many values a row has, how
 * many rows a plane has, its first value, and the steps from value to value, row to row and plane
 * to plane. dcp_catalogue.c stores the columns of all tensors. */
#include "format/packed.h"

#include <string.h>

enum { SPAN = 7, WORD = 8, RUN_BYTES = SPAN * WORD };

/* ---- reading ---- */

typedef struct run {
    uint64_t start, row, plane; /* plane: values of a plane, not rows */
    uint64_t first, step[3];    /* unsigned, so that nothing overflows */
} run;

static run run_at(const rsi_packed *c, size_t i)
{
    const unsigned char *at = c->at + i * RUN_BYTES;
    run                  r = { .start = rsi_le64(at), .row = rsi_le64(at + WORD) };

    r.plane = r.row * rsi_le64(at + 2 * WORD);
    r.first = rsi_le64(at + 3 * WORD);
    for (int k = 0; k < 3; k++)
        r.step[k] = rsi_le64(at + (4 + k) * WORD);
    return r;
}

static uint64_t end_of(const rsi_packed *c, size_t i)
{
    return i + 1 < c->runs ? rsi_le64(c->at + (i + 1) * RUN_BYTES) : c->n;
}

static int64_t in_run(const rsi_packed *c, size_t i)
{
    size_t   lo = 0, hi = c->runs;
    run      r;
    uint64_t k;

    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        if (rsi_le64(c->at + mid * RUN_BYTES) <= i)
            lo = mid;
        else
            hi = mid;
    }
    r = run_at(c, lo);
    k = i - r.start;
    return (int64_t)(r.first + k % r.row * r.step[0] + k % r.plane / r.row * r.step[1] +
                     k / r.plane * r.step[2]);
}

int64_t rsi_packed_at(const rsi_packed *c, size_t i)
{
    uint64_t value = 0;

    if (!c->at)
        return c->base;
    if (c->runs)
        return in_run(c, i);
    for (unsigned b = 0; b < c->width; b++)
        value |= (uint64_t)c->at[i * c->width + b] << 8 * b;
    return (int64_t)((uint64_t)c->base + value);
}

void rsi_packed_all(const rsi_packed *c, int64_t *out)
{
    for (size_t i = 0; i < c->runs; i++) {
        const run      r = run_at(c, i);
        const uint64_t end = end_of(c, i);
        uint64_t       plane = r.first;

        for (uint64_t at = r.start; at < end; plane += r.step[2]) {
            uint64_t row = plane;

            for (const uint64_t stop = at + r.plane; at < stop; row += r.step[1])
                for (uint64_t k = 0; k < r.row; k++)
                    out[at++] = (int64_t)(row + k * r.step[0]);
        }
    }
    for (size_t i = 0; c->runs == 0 && i < c->n; i++)
        out[i] = rsi_packed_at(c, i);
}

/* The range of a run: each step reaches its end at a corner. */
static bool run_range(const rsi_packed *c, size_t i, int64_t *min, int64_t *max)
{
    const run     r = run_at(c, i);
    const int64_t last[3] = { (int64_t)r.row - 1, (int64_t)(r.plane / r.row) - 1,
                              (int64_t)((end_of(c, i) - r.start) / r.plane) - 1 };

    *min = *max = (int64_t)r.first;
    for (int k = 0; k < 3; k++) {
        int64_t far, *end;

        if (__builtin_mul_overflow(last[k], (int64_t)r.step[k], &far))
            return false;
        end = far < 0 ? min : max;
        if (__builtin_add_overflow(*end, far, end))
            return false;
    }
    return true;
}

bool rsi_packed_range(const rsi_packed *c, int64_t *min, int64_t *max)
{
    const size_t n = !c->at ? 1 : c->runs ? c->runs : c->n;

    for (size_t i = 0; i < n; i++) {
        int64_t lo, hi;

        lo = hi = c->runs ? 0 : rsi_packed_at(c, i);
        if (c->runs ? !run_range(c, i, &lo, &hi) : lo < c->base)
            return false;
        *min = i == 0 || lo < *min ? lo : *min;
        *max = i == 0 || hi > *max ? hi : *max;
    }
    return true;
}

/* Runs follow each other from value 0 on, each a whole number of planes. */
static bool runs_fit(const rsi_packed *c)
{
    uint64_t next = 0;

    for (size_t i = 0; i < c->runs; i++) {
        const unsigned char *at = c->at + i * RUN_BYTES;
        const uint64_t       end = end_of(c, i), row = rsi_le64(at + WORD),
                       rows = rsi_le64(at + 2 * WORD);

        if (rsi_le64(at) != next || end <= next || end > c->n || row == 0 || rows == 0 ||
            row > end - next || rows > (end - next) / row || (end - next) % (row * rows) != 0)
            return false;
        next = end;
    }
    return true;
}

bool rsi_packed_take(rsi_reader *in, size_t n, rsi_packed *out)
{
    const unsigned char *head = rsi_read_next(in, 2 * WORD);
    uint64_t             bytes;

    if (!head)
        return false;
    *out = (rsi_packed){ .n = n,
                         .base = (int64_t)rsi_le64(head + WORD),
                         .runs = (size_t)(rsi_le64(head) >> 8),
                         .width = (unsigned)(rsi_le64(head) & 255) };
    if (out->runs == 0 && out->width == 0)
        return true;
    if (n == 0 || out->runs > n || n > SIZE_MAX / WORD - WORD ||
        (out->runs ? out->width != 0
                   : out->width != 1 && out->width != 2 && out->width != 4 && out->width != 8))
        return false;
    bytes = out->runs ? (uint64_t)out->runs * RUN_BYTES
                      : ((uint64_t)n * out->width + WORD - 1) / WORD * WORD;
    out->at = bytes <= (uint64_t)(in->end - in->at) ? rsi_read_next(in, (size_t)bytes) : NULL;
    return out->at && (!out->runs || runs_fit(out));
}

/* ---- packing ---- */

static bool add_word(rsi_bytes *out, uint64_t x)
{
    unsigned char word[WORD];

    for (int b = 0; b < WORD; b++)
        word[b] = (unsigned char)(x >> 8 * b);
    return rsi_bytes_add(out, word, sizeof(word));
}

/* How many blocks of `len` values from the start of n > 0 differ by one step each. */
static size_t count_blocks(const int64_t *x, size_t n, size_t len, uint64_t *step)
{
    size_t blocks = 1;

    *step = len < n ? (uint64_t)x[len] - (uint64_t)x[0] : 0;
    while ((blocks + 1) * len <= n) {
        const int64_t *at = x + blocks * len;

        for (size_t k = 0; k < len; k++)
            if ((uint64_t)at[k] - (uint64_t)at[(ptrdiff_t)k - (ptrdiff_t)len] != *step)
                goto out;
        blocks++;
    }
out:
    if (blocks == 1)
        *step = 0;
    return blocks;
}

/* Appends runs as long as they take at most `most` bytes; *count becomes 0 if they take more. */
static bool add_runs(const int64_t *x, size_t n, uint64_t most, rsi_bytes *out, size_t *count)
{
    size_t at = 0;

    for (*count = 0; at < n; ++*count) {
        uint64_t step[3];
        size_t   row = count_blocks(x + at, n - at, 1, &step[0]);
        size_t   rows = count_blocks(x + at, n - at, row, &step[1]);
        size_t   planes = count_blocks(x + at, n - at, row * rows, &step[2]);
        uint64_t word[SPAN] = { at, row, rows, (uint64_t)x[at], step[0], step[1], step[2] };

        if ((*count + 1) * RUN_BYTES > most) {
            *count = 0;
            return true;
        }
        for (int i = 0; i < SPAN; i++)
            if (!add_word(out, word[i]))
                return false;
        at += row * rows * planes;
    }
    return true;
}

static bool add_numbers(const int64_t *x, size_t n, int64_t base, unsigned width, rsi_bytes *out)
{
    const size_t   bytes = (n * width + WORD - 1) / WORD * WORD;
    unsigned char *to = rsi_bytes_more(out, bytes);

    if (!to)
        return false;
    memset(to, 0, bytes);
    for (size_t i = 0; i < n; i++)
        for (unsigned b = 0; b < width; b++)
            to[i * width + b] = (unsigned char)(((uint64_t)x[i] - (uint64_t)base) >> 8 * b);
    return true;
}

static void set_head(rsi_bytes *out, size_t at, uint64_t head, uint64_t base)
{
    for (int b = 0; b < WORD; b++) {
        out->at[at + (size_t)b] = (unsigned char)(head >> 8 * b);
        out->at[at + WORD + (size_t)b] = (unsigned char)(base >> 8 * b);
    }
}

bool rsi_packed_add(const int64_t *x, size_t n, rsi_bytes *out)
{
    const size_t head = out->len;
    int64_t      min = n ? x[0] : 0, max = min;
    unsigned     width = 1;
    size_t       runs;

    for (size_t i = 1; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    if (!add_word(out, 0) || !add_word(out, (uint64_t)min))
        return false;
    if (min == max)
        return true;
    while (width < WORD && ((uint64_t)max - (uint64_t)min) >> 8 * width != 0)
        width *= 2;
    if (!add_runs(x, n, (uint64_t)n * width, out, &runs))
        return false;
    if (runs) {
        set_head(out, head, (uint64_t)runs << 8, 0);
        return true;
    }
    out->len = head + 2 * WORD;
    set_head(out, head, width, (uint64_t)min);
    return add_numbers(x, n, min, width, out);
}
