/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of quantised tensors, block by block. */
#include "read/dequantise.h"
#include "base/checked.h"
#include "base/mem.h"
#include "plan/cast.h"

#include <math.h>
#include <string.h>

enum {
    SIDE = 128,       /* of a block of FP8 values */
    GROUP = 32,       /* MXFP4 values with one scale */
    ROW = 2048,       /* columns that are quantised at once, a multiple of SIDE */
    LOW_STEP = 32768, /* elements of A or B that are read at once */
};
#define FP8_MOST 448.0f

/* ---- to float32 ---- */

/* x times 2 to the power of `power`, which is -1022 to 1023. */
static float times_power(float x, int power)
{
    const uint64_t bits = (uint64_t)(1023 + power) << 52;
    double         factor;

    memcpy(&factor, &bits, sizeof(factor));
    return (float)((double)x * factor);
}

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

            d->out[r * box->len[b] + c] = times_power(value[half], (int)d->scale[group] - 127);
        }
    return RSD_OK;
}

/* ---- LoRA ---- */

/* A box of tensor t as float32, behind its stored bytes at *at, which is moved behind both. */
static rsd_err fetch_f32(const rsi_fetch_tools *tools, rsd_ckpt *ckpt, size_t t,
                         const rsd_read_opts *opts, const rsd_box *box, unsigned char **at,
                         float **out, rsd_error *err)
{
    const size_t    n = (size_t)rsd_box_count(box);
    unsigned char  *raw = *at;
    rsd_tensor_info info;
    rsd_err         rc;

    ckpt->ops->tensor(ckpt, t, &info);
    *out = (float *)(void *)(raw + (n * rsd_dtype_size(info.dtype) + 63) / 64 * 64);
    *at = (unsigned char *)(*out + (n + 15) / 16 * 16);
    rc = fetch(tools, ckpt, t, opts, box, raw, err);
    if (!rc)
        rsi_cast(*out, RSD_F32, raw, info.dtype, n);
    return rc;
}

/* Adds columns [k, k + n) of B times rows [k, k + n) of A to the sums. */
static rsd_err add_low(const rsi_dequantise *d, const rsi_fetch_tools *tools, rsd_ckpt *ckpt,
                       const rsd_read_opts *opts, const rsd_box *box, int64_t k, int64_t n,
                       rsd_error *err)
{
    const rsd_box  abox = { .ndim = 2, .off = { k, box->off[1] }, .len = { n, box->len[1] } };
    const rsd_box  bbox = { .ndim = 2, .off = { box->off[0], k }, .len = { box->len[0], n } };
    unsigned char *at = d->scale;
    float         *a, *b = NULL;
    rsd_err        rc = fetch_f32(tools, ckpt, d->scales, opts, &abox, &at, &a, err);

    if (!rc)
        rc = fetch_f32(tools, ckpt, d->low, opts, &bbox, &at, &b, err);
    for (int64_t r = 0; r < box->len[0] && !rc; r++)
        for (int64_t i = 0; i < n; i++) {
            const double x = b[r * n + i];
            const float *row = a + i * box->len[1];
            double      *sum = d->sum + r * box->len[1];

            for (int64_t c = 0; c < box->len[1]; c++)
                sum[c] += x * row[c];
        }
    return rc;
}

static rsd_err from_lora(const rsi_dequantise *d, const rsi_fetch_tools *tools, rsd_ckpt *ckpt,
                         const rsd_read_opts *opts, const rsd_box *box, rsd_error *err)
{
    const int64_t   n = rsd_box_count(box);
    const int64_t   step = rsi_max(1, LOW_STEP / rsi_max(box->len[0], box->len[1]));
    rsd_tensor_info w, a;
    rsd_err         rc = fetch(tools, ckpt, d->values, opts, box, d->stored, err);

    ckpt->ops->tensor(ckpt, d->values, &w);
    ckpt->ops->tensor(ckpt, d->scales, &a);
    for (int64_t i = 0; i < n; i++)
        d->sum[i] = 0;
    for (int64_t k = 0; k < a.shape[0] && !rc; k += step)
        rc = add_low(d, tools, ckpt, opts, box, k, rsi_min(step, a.shape[0] - k), err);
    if (rc)
        return rc;
    rsi_cast(d->out, RSD_F32, d->stored, w.dtype, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        d->out[i] = (float)(d->out[i] + d->times * d->sum[i]);
    return RSD_OK;
}

rsd_err rsi_dequantise_box(const rsi_dequantise *d, const rsi_fetch_tools *tools, rsd_ckpt *ckpt,
                           const rsd_read_opts *opts, const rsd_box *box, rsd_error *err)
{
    if (d->kind == RSI_ITEM_LORA)
        return from_lora(d, tools, ckpt, opts, box, err);
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
            most = fabsf(x[r * cols + c]) > most ? fabsf(x[r * cols + c]) : most;
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

/* ---- to MXFP4 ---- */

/* The scale of a group: 2^(scale - 127) is at most a quarter of the largest magnitude. */
static bool mxfp4_scale(const float *x, unsigned char *out)
{
    float    most = 0;
    uint32_t bits;

    for (int i = 0; i < GROUP; i++) {
        if (!isfinite(x[i]))
            return false;
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    memcpy(&bits, &most, sizeof(bits));
    bits >>= 23;
    *out = (unsigned char)(bits > 2 ? bits - 2 : 0);
    return true;
}

/* The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6; of two that are equally near the one with an even
 * code. */
static unsigned char mxfp4_code(float x)
{
    static const float half[] = { 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f };
    float              y = fabsf(x);
    unsigned char      code = 0;

    while (code < 7 && (code % 2 ? y >= half[code] : y > half[code]))
        code++;
    return code | (signbit(x) ? 8 : 0);
}

/* Part of a box of blocks [.., g, 16] or scales [.., g], one row of groups. */
static bool put_groups(const rsd_box *box, bool scales, const float *x, int64_t n,
                       unsigned char *out)
{
    const int64_t first = scales ? 0 : box->off[box->ndim - 1];
    const int64_t len = scales ? 1 : box->len[box->ndim - 1];

    for (int64_t g = 0; g < n; g++, x += GROUP, out += len) {
        unsigned char scale;

        if (!mxfp4_scale(x, &scale))
            return false;
        for (int64_t k = 0; k < len && !scales; k++) {
            const float  *pair = x + 2 * (first + k);
            unsigned char low = mxfp4_code(times_power(pair[0], 127 - (int)scale));

            out[k] = (unsigned char)(low | mxfp4_code(times_power(pair[1], 127 - (int)scale)) << 4);
        }
        if (scales)
            *out = scale;
    }
    return true;
}

rsd_err rsi_quantise_mxfp4(int ndim, bool scales, const rsd_box *box,
                           rsd_err (*fill)(void *arg, const rsd_box *box, float *out,
                                           rsd_error *err),
                           void *arg, unsigned char *out, rsd_error *err)
{
    const int     last = ndim - 1;
    const int64_t len = scales ? 1 : box->len[ndim];
    rsd_box       at = *box;
    float        *x;
    rsd_err       rc = RSD_OK;

    if (rsd_box_count(box) == 0)
        return RSD_OK;
    x = rsi_calloc(ROW, sizeof(float));
    if (!x)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a block of values");
    at.ndim = ndim;
    for (int d = 0; d < last; d++)
        at.len[d] = 1;
    for (int d = 0; d >= 0 && !rc;) {
        for (int64_t g = 0; g < box->len[last] && !rc; g += ROW / GROUP) {
            int64_t n = rsi_min(ROW / GROUP, box->len[last] - g);

            at.off[last] = (box->off[last] + g) * GROUP;
            at.len[last] = n * GROUP;
            rc = fill(arg, &at, x, err);
            if (!rc && !put_groups(box, scales, x, n, out))
                rc = rsi_fail(err, RSD_E_INVALID,
                              "it has NaN or infinity, which mxfp4 can't represent");
            out += n * len;
        }
        for (d = last - 1; d >= 0 && ++at.off[d] == box->off[d] + box->len[d]; d--)
            at.off[d] = box->off[d];
    }
    rsi_free(x);
    return rc;
}
