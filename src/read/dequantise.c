/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of quantised tensors, block by block. */
#include "read/dequantise.h"
#include "base/checked.h"
#include "base/mem.h"
#include "plan/cast.h"

#include <math.h>

enum {
    SIDE = 128, /* of a block of FP8 values */
    GROUP = 32, /* MXFP4 values with one scale */
    ROW = 2048, /* columns that are quantised at once, a multiple of SIDE */
};
#define FP8_MOST 448.0f

/* ---- to float32 ---- */

/* [lo, lo + len) in units of `n`. */
static void coarser(rsd_box *box, int d, int64_t n)
{
    int64_t first = box->off[d] / n;

    box->len[d] = rsi_ceil_div(box->off[d] + box->len[d], n) - first;
    box->off[d] = first;
}

static rsd_err fetch(const rsi_fetch_tools *tools, rsd_ckpt *ckpt, size_t t,
                     const rsd_read_opts *opts, const rsd_box *box, void *to, rsd_error *err)
{
    rsd_view view = { .box = *box, .data = to };

    return rsi_fetch_with(tools, ckpt, t, &view, opts, err);
}

static rsd_err from_fp8(const rsi_dequantise *d, const rsi_fetch_tools *tools, rsd_ckpt *ckpt,
                        const rsd_read_opts *opts, const rsd_box *box, rsd_error *err)
{
    const int     a = box->ndim - 2, b = box->ndim - 1;
    const float  *scale = (const float *)(const void *)d->scale;
    const int64_t n = rsd_box_count(box), rows = n / box->len[b];
    rsd_box       sbox = *box;
    rsd_err       rc = fetch(tools, ckpt, d->values, opts, box, d->stored, err);

    coarser(&sbox, a, SIDE);
    coarser(&sbox, b, SIDE);
    if (!rc)
        rc = fetch(tools, ckpt, d->scales, opts, &sbox, d->scale, err);
    if (rc)
        return rc;
    rsi_cast(d->out, RSD_F32, d->stored, RSD_F8_E4M3FN, (size_t)n);
    for (int64_t r = 0; r < rows; r++) {
        int64_t      row = box->off[a] + r % box->len[a];
        const float *s =
            scale + (r / box->len[a] * sbox.len[a] + row / SIDE - sbox.off[a]) * sbox.len[b];
        float *x = d->out + r * box->len[b];

        for (int64_t c = 0; c < box->len[b]; c++)
            x[c] *= s[(box->off[b] + c) / SIDE - sbox.off[b]];
    }
    return RSD_OK;
}

static rsd_err from_mxfp4(const rsi_dequantise *d, const rsi_fetch_tools *tools, rsd_ckpt *ckpt,
                          const rsd_read_opts *opts, const rsd_box *box, rsd_error *err)
{
    static const float value[16] = { 0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                     -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f };
    const int          b = box->ndim - 1;
    const int64_t      rows = rsd_box_count(box) / box->len[b];
    rsd_box            sbox = *box, vbox;
    rsd_err            rc;

    coarser(&sbox, b, GROUP);
    vbox = sbox;
    vbox.ndim = sbox.ndim + 1;
    vbox.off[b + 1] = 0;
    vbox.len[b + 1] = GROUP / 2;
    rc = fetch(tools, ckpt, d->values, opts, &vbox, d->stored, err);
    if (!rc)
        rc = fetch(tools, ckpt, d->scales, opts, &sbox, d->scale, err);
    if (rc)
        return rc;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < box->len[b]; c++) {
            int64_t       at = box->off[b] + c - sbox.off[b] * GROUP;
            int64_t       group = r * sbox.len[b] + at / GROUP;
            unsigned char pair = d->stored[group * (GROUP / 2) + at % GROUP / 2];
            unsigned char half = at % 2 ? pair >> 4 : pair & 15;

            d->out[r * box->len[b] + c] = ldexpf(value[half], (int)d->scale[group] - 127);
        }
    return RSD_OK;
}

rsd_err rsi_dequantise_box(const rsi_dequantise *d, const rsi_fetch_tools *tools, rsd_ckpt *ckpt,
                           const rsd_read_opts *opts, const rsd_box *box, rsd_error *err)
{
    return d->kind == RSI_ITEM_FP8 ? from_fp8(d, tools, ckpt, opts, box, err)
                                   : from_mxfp4(d, tools, ckpt, opts, box, err);
}

/* ---- from float32 ---- */

typedef struct quantising {
    int            ndim;
    const int64_t *shape;
    rsd_err (*fill)(void *arg, const rsd_box *box, float *out, rsd_error *err);
    void  *arg;
    float *x; /* [SIDE, ROW] */
} quantising;

/* The scale of block k of a strip of blocks, `cols` columns wide. */
static float scale_of(const float *x, int64_t rows, int64_t cols, int64_t k)
{
    float most = 0;

    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = k * SIDE; c < rsi_min(cols, (k + 1) * SIDE); c++)
            most = fmaxf(most, fabsf(x[r * cols + c]));
    return most > 0 ? most / FP8_MOST : 1.0f;
}

/* Rows [row, row + SIDE) and columns [col, col + ROW) of the tensor, as far as it has them. */
static rsd_err fill_strip(const quantising *q, const rsd_box *at, int64_t row, int64_t col,
                          rsd_box *strip, rsd_error *err)
{
    const int a = q->ndim - 2, b = q->ndim - 1;

    *strip = *at;
    for (int d = 0; d < a; d++)
        strip->len[d] = 1;
    strip->off[a] = row;
    strip->off[b] = col;
    strip->len[a] = rsi_min(SIDE, q->shape[a] - row);
    strip->len[b] = rsi_min(ROW, q->shape[b] - col);
    return q->fill(q->arg, strip, q->x, err);
}

/* The part of the strip that is in the box, as values. `out` is one matrix of the box. */
static void put_values(const rsd_box *strip, const rsd_box *box, const float *x, unsigned char *out)
{
    const int     a = box->ndim - 2, b = box->ndim - 1;
    const int64_t cols = strip->len[b];

    for (int64_t k = 0; k * SIDE < cols; k++) {
        float   s = scale_of(x, strip->len[a], cols, k);
        int64_t c0 = rsi_max(strip->off[b] + k * SIDE, box->off[b]);
        int64_t c1 =
            rsi_min(strip->off[b] + rsi_min(cols, (k + 1) * SIDE), box->off[b] + box->len[b]);

        for (int64_t r = rsi_max(strip->off[a], box->off[a]);
             r < rsi_min(strip->off[a] + strip->len[a], box->off[a] + box->len[a]) && c0 < c1;
             r++) {
            float        y[SIDE];
            const float *from = x + (r - strip->off[a]) * cols - strip->off[b];

            for (int64_t c = c0; c < c1; c++)
                y[c - c0] = from[c] / s;
            rsi_cast(out + (r - box->off[a]) * box->len[b] + (c0 - box->off[b]), RSD_F8_E4M3FN, y,
                     RSD_F32, (size_t)(c1 - c0));
        }
    }
}

/* One matrix of the box; `at` has its indices on the other axes. */
static rsd_err quantise_matrix(const quantising *q, bool scales, const rsd_box *at,
                               const rsd_box *box, unsigned char *out, rsd_error *err)
{
    const int     a = q->ndim - 2, b = q->ndim - 1;
    const int64_t unit = scales ? SIDE : 1;
    const int64_t row_end = (box->off[a] + box->len[a]) * unit;
    const int64_t col_end = (box->off[b] + box->len[b]) * unit;
    rsd_err       rc = RSD_OK;

    for (int64_t row = box->off[a] * unit / SIDE * SIDE; row < row_end && !rc; row += SIDE)
        for (int64_t col = box->off[b] * unit / SIDE * SIDE; col < col_end && !rc; col += ROW) {
            rsd_box strip;
            float  *to = (float *)(void *)out + (row / SIDE - box->off[a]) * box->len[b];

            rc = fill_strip(q, at, row, col, &strip, err);
            if (!rc && !scales)
                put_values(&strip, box, q->x, out);
            for (int64_t k = 0; k * SIDE < strip.len[b] && !rc && scales; k++)
                if (col / SIDE + k < box->off[b] + box->len[b])
                    to[col / SIDE + k - box->off[b]] =
                        scale_of(q->x, strip.len[a], strip.len[b], k);
        }
    return rc;
}

rsd_err rsi_quantise_box(int ndim, const int64_t *shape, bool scales, const rsd_box *box,
                         rsd_err (*fill)(void *arg, const rsd_box *box, float *out, rsd_error *err),
                         void *arg, void *out, rsd_error *err)
{
    quantising     q = { .ndim = ndim, .shape = shape, .fill = fill, .arg = arg };
    rsd_box        at = *box;
    unsigned char *to = out;
    int64_t        matrix = box->len[ndim - 2] * box->len[ndim - 1] * (scales ? 4 : 1);
    rsd_err        rc = RSD_OK;

    if (rsd_box_count(box) == 0)
        return RSD_OK;
    q.x = rsi_calloc((size_t)SIDE * ROW, sizeof(float));
    if (!q.x)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a block of values");
    for (int d = ndim - 3; !rc;) {
        rc = quantise_matrix(&q, scales, &at, box, to, err);
        to += matrix;
        for (d = ndim - 3; d >= 0 && ++at.off[d] == box->off[d] + box->len[d]; d--)
            at.off[d] = box->off[d];
        if (d < 0)
            break;
    }
    rsi_free(q.x);
    return rc;
}
