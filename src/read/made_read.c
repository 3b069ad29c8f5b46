/* SPDX-License-Identifier: Apache-2.0 */
/* Brings the bytes of a made tensor: each piece of the wanted box is read from its source straight
 * into its place if its rows are long enough, or else the source's box around it is read and the
 * elements are copied from there. Quantised and scaled elements take that way too, as float32. */
#include "read/made_read.h"
#include "base/checked.h"
#include "base/mem.h"
#include "plan/cast.h"
#include "plan/copy.h"
#include "read/dequantise.h"
#include "shape/box.h"

#include <math.h>
#include <string.h>

#define PART                                                                                       \
    ((int64_t)1 << 20)           /* bytes of the parts of a buffer: stored, scales, float32, cast  \
                                  */
#define LONG ((int64_t)64 << 10) /* bytes of a row from which a read of its own is cheaper */

typedef struct filling {
    const rsi_made_reader *r;
    const rsi_made_tensor *t;
    rsd_dtype              dtype; /* of `out` */
    int64_t                elem;  /* its bytes */
    unsigned char         *out;
    int64_t                stride[RSD_MAX_NDIM]; /* bytes of the target's axes in `out` */
    unsigned char         *buf;                  /* of r->pool; NULL: not taken yet */
} filling;

/* A piece with its loops in one list; loops are split until it fits. */
typedef struct slab {
    const rsi_made_piece *piece;
    int64_t               first[RSD_MAX_NDIM], count[RSD_MAX_NDIM]; /* [loop] */
} slab;

static bool takes_math(const filling *f, const rsi_made_term *term)
{
    return f->t->affine || f->t->from != RSI_ITEM_PLAIN ||
           f->r->made->source[term->source].dtype != f->dtype;
}

/* Where the slab's first element goes. */
static unsigned char *place_of(const filling *f, const slab *s)
{
    const rsi_made_form *form = s->piece->term->form;
    unsigned char       *to = f->out;

    for (int d = 0; d < f->t->whole_ndim; d++)
        to += s->piece->at[d] * f->stride[d];
    for (int k = 0; k < form->n; k++)
        to += (s->first[k] - s->piece->first[k]) * form->loop[k].to_stride *
              f->stride[form->loop[k].to_axis];
    return to;
}

/* The source's box around the slab. */
static void box_around(const slab *s, int ndim, rsd_box *out)
{
    const rsi_made_term *term = s->piece->term;

    out->ndim = ndim;
    for (int d = 0; d < ndim; d++) {
        out->off[d] = term->from[d];
        out->len[d] = 1;
    }
    for (int k = 0; k < term->form->n; k++) {
        const rsi_made_loop *l = &term->form->loop[k];

        if (l->from_axis < 0)
            continue;
        out->off[l->from_axis] += s->first[k] * l->from_stride;
        out->len[l->from_axis] += (s->count[k] - 1) * l->from_stride;
    }
}

/* Copies a slab from a buffer that holds the box around it, or one element for all. */
static void copy_slab(const filling *f, const slab *s, const rsd_box *box, const void *from)
{
    const rsi_made_form *form = s->piece->term->form;
    int64_t              to_stride[RSD_MAX_NDIM], from_stride[RSD_MAX_NDIM], packed[RSD_MAX_NDIM];
    rsi_loops            loops;

    if (box)
        rsi_strides(box->ndim, box->len, f->elem, packed);
    for (int k = 0; k < form->n; k++) {
        const rsi_made_loop *l = &form->loop[k];

        to_stride[k] = l->to_stride * f->stride[l->to_axis];
        from_stride[k] = box && l->from_axis >= 0 ? l->from_stride * packed[l->from_axis] : 0;
    }
    rsi_loops_make(&loops, form->n, s->count, f->elem, to_stride, from_stride);
    rsi_copy(&loops, place_of(f, s), from);
}

static rsd_err fetch(const filling *f, size_t t, const rsd_view *view, rsd_error *err)
{
    return rsi_fetch_with(f->r->tools, f->r->source, t, view, f->r->opts, err);
}

/* ---- elements that are only moved ---- */

/* Reads a slab in which every axis of the source has one loop of stride 1 at most. */
static rsd_err read_straight(const filling *f, const slab *s, rsd_error *err)
{
    const rsi_made_term *term = s->piece->term;
    rsd_view             view = { .data = place_of(f, s) };

    box_around(s, f->r->made->source[term->source].ndim, &view.box);
    for (int d = 0; d < view.box.ndim; d++)
        view.stride[d] = f->elem; /* of an axis with one element: never used, but not 0 */
    for (int k = 0; k < term->form->n; k++) {
        const rsi_made_loop *l = &term->form->loop[k];

        if (s->count[k] > 1)
            view.stride[l->from_axis] = l->to_stride * f->stride[l->to_axis];
    }
    return fetch(f, term->source, &view, err);
}

static rsd_err take_buffer(filling *f, rsd_error *err)
{
    void   *buf = f->buf;
    rsd_err rc = f->buf ? RSD_OK : rsi_pool_get(f->r->pool, &buf, err);

    f->buf = rc ? NULL : buf;
    return rc;
}

static rsd_err read_around(filling *f, const slab *s, const rsd_box *box, rsd_error *err)
{
    rsd_view view = { .box = *box };
    rsd_err  rc = take_buffer(f, err);

    view.data = f->buf;
    if (!rc)
        rc = fetch(f, s->piece->term->source, &view, err);
    if (!rc)
        copy_slab(f, s, box, f->buf);
    return rc;
}

/* Bytes of the box around the slab, of the slab, and of what one straight read would bring; true if
 * one is enough. */
static bool weigh(const filling *f, const slab *s, int64_t *around, int64_t *all, int64_t *straight)
{
    const rsi_made_term *term = s->piece->term;
    rsd_box              box;
    bool                 one = true;

    box_around(s, f->r->made->source[term->source].ndim, &box);
    *around = rsd_box_count(&box) * f->elem;
    *all = *straight = f->elem;
    for (int k = 0; k < term->form->n; k++) {
        const rsi_made_loop *l = &term->form->loop[k];

        *all *= s->count[k];
        if (l->from_axis >= 0 && l->from_stride == 1)
            *straight *= s->count[k];
        else
            one = one && s->count[k] == 1;
    }
    return one;
}

/* The loop to split: the one that spreads furthest in the source, of those that a straight read
 * can't take, or of all. -1: none has two elements. */
static int widest(const slab *s, bool any)
{
    const rsi_made_form *form = s->piece->term->form;
    int64_t              most = -1;
    int                  best = -1;

    for (int k = 0; k < form->n; k++) {
        const rsi_made_loop *l = &form->loop[k];
        int64_t              spread = (s->count[k] - 1) * (l->from_axis >= 0 ? l->from_stride : 0);

        if (s->count[k] > 1 && spread > most && (any || l->from_axis < 0 || l->from_stride != 1)) {
            most = spread;
            best = k;
        }
    }
    return best;
}

typedef rsd_err (*slab_reader)(filling *f, slab *s, rsd_error *err);

/* Does the two halves of loop k. */
static rsd_err halve(filling *f, slab *s, int k, slab_reader read, rsd_error *err)
{
    slab    rest = *s;
    int64_t n = s->count[k] / 2;
    rsd_err rc;

    s->count[k] = n;
    rest.first[k] += n;
    rest.count[k] -= n;
    rc = read(f, s, err);
    return rc ? rc : read(f, &rest, err);
}

static rsd_err move_slab(filling *f, slab *s, rsd_error *err)
{
    int64_t around, all, straight;
    rsd_box box;

    if (weigh(f, s, &around, &all, &straight))
        return read_straight(f, s, err);
    if (around <= PART && around <= 4 * all && straight < LONG) {
        box_around(s, f->r->made->source[s->piece->term->source].ndim, &box);
        return read_around(f, s, &box, err);
    }
    return halve(f, s, widest(s, false), move_slab, err);
}

/* ---- elements that are computed ---- */

/* x * a + b with one rounding. The product of floats is exact in double; the sum is rounded to odd
 * there, which leaves the rounding to float as if the sum were exact. */
static float fused(float x, float a, float b)
{
    const double product = (double)x * a, sum = product + b, part = sum - product;
    const double error = (product - (sum - part)) + ((double)b - part);
    double       odd;
    uint64_t     bits;

    memcpy(&bits, &sum, sizeof(bits));
    if (isfinite(sum) && error != 0 && bits % 2 == 0)
        bits += (error > 0) == (sum > 0) ? 1 : UINT64_MAX;
    memcpy(&odd, &bits, sizeof(odd));
    return (float)odd;
}

static void affine(const rsi_made_tensor *t, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = t->inverse ? (float)(((double)x[i] - t->plus) / t->times)
                          : fused(x[i], t->times, t->plus);
}

/* The box around a slab as elements of the target's dtype. */
static rsd_err compute(filling *f, const rsi_made_term *term, const rsd_box *box, void **out,
                       rsd_error *err)
{
    const rsd_dtype stored = f->r->made->source[term->source].dtype;
    const size_t    n = (size_t)rsd_box_count(box);
    float          *x = (float *)(void *)(f->buf + 2 * PART);
    rsd_view        view = { .box = *box, .data = f->buf };
    rsd_err         rc;

    if (f->t->from != RSI_ITEM_PLAIN) {
        rsi_dequantise d = { .kind = f->t->from,
                             .values = term->source,
                             .scales = term->scales,
                             .stored = f->buf,
                             .scale = f->buf + PART,
                             .out = x,
                             .low = term->low,
                             .times = f->t->low_scale,
                             .sum = (double *)(void *)(f->buf + 3 * PART) };

        rc = rsi_dequantise_box(&d, f->r->tools, f->r->source, f->r->opts, box, err);
    } else {
        rc = fetch(f, term->source, &view, err);
        if (!rc && f->t->affine)
            rsi_cast(x, RSD_F32, f->buf, stored, n);
    }
    if (rc)
        return rc;
    if (f->t->from == RSI_ITEM_PLAIN && !f->t->affine) {
        *out = f->buf + 3 * PART;
        rsi_cast(*out, f->dtype, f->buf, stored, n);
        return RSD_OK;
    }
    if (f->t->affine)
        affine(f->t, x, n);
    *out = x;
    if (f->dtype != RSD_F32) {
        *out = f->buf + 3 * PART;
        rsi_cast(*out, f->dtype, x, RSD_F32, n);
    }
    return RSD_OK;
}

static rsd_err compute_slab(filling *f, slab *s, rsd_error *err)
{
    const rsi_made_source *source = &f->r->made->source[s->piece->term->source];
    int64_t                around, all, straight;
    rsd_box                box;
    void                  *made;
    rsd_err                rc;

    weigh(f, s, &around, &all, &straight);
    around = around / f->elem * 16; /* no dtype is longer */
    if ((around > PART || around / 16 > 4 * all / f->elem) && widest(s, true) >= 0)
        return halve(f, s, widest(s, true), compute_slab, err);
    box_around(s, source->ndim - (f->t->from == RSI_ITEM_MXFP4), &box);
    rc = take_buffer(f, err);
    if (!rc)
        rc = compute(f, s->piece->term, &box, &made, err);
    if (!rc)
        copy_slab(f, s, &box, made);
    return rc;
}

/* ---- pieces ---- */

static rsd_err fill_piece(void *arg, const rsi_made_piece *piece, rsd_error *err)
{
    filling *f = arg;
    slab     s = { .piece = piece };

    memcpy(s.first, piece->first, sizeof(s.first));
    memcpy(s.count, piece->count, sizeof(s.count));
    if (piece->term->source == RSI_MADE_NONE) {
        unsigned char one[16];

        rsi_cast(one, f->dtype, &piece->term->value, RSD_F64, 1);
        copy_slab(f, &s, NULL, one);
        return RSD_OK;
    }
    return takes_math(f, piece->term) ? compute_slab(f, &s, err) : move_slab(f, &s, err);
}

/* A box of the tensor that the terms describe, as `dtype`. */
static rsd_err fill(const rsi_made_reader *r, const rsi_made_tensor *t, rsd_dtype dtype,
                    const rsd_box *box, void *out, rsd_error *err)
{
    filling f = { .r = r, .t = t, .dtype = dtype, .out = out };
    rsd_err rc;

    f.elem = (int64_t)rsd_dtype_size(dtype);
    rsi_strides(box->ndim, box->len, f.elem, f.stride);
    rc = rsi_made_pieces(t, box, fill_piece, &f, err);
    if (f.buf)
        rsi_pool_put(r->pool, f.buf);
    return rc;
}

typedef struct quantising {
    const rsi_made_reader *r;
    const rsi_made_tensor *t;
} quantising;

static rsd_err fill_f32(void *arg, const rsd_box *box, float *out, rsd_error *err)
{
    const quantising *q = arg;

    return fill(q->r, q->t, RSD_F32, box, out, err);
}

rsd_err rsi_made_read(const rsi_made_reader *r, size_t t, const rsd_box *box, void *out,
                      rsd_error *err)
{
    const rsi_made_tensor *tensor = &r->made->tensor[t];
    quantising             q = { .r = r, .t = tensor };
    rsd_err                rc;

    if (tensor->to == RSI_ITEM_MXFP4)
        rc = rsi_quantise_mxfp4(tensor->whole_ndim, tensor->scales, box, fill_f32, &q, out, err);
    else if (tensor->to != RSI_ITEM_FP8)
        rc = fill(r, tensor, tensor->dtype, box, out, err);
    else
        rc = rsi_quantise_box(tensor->ndim, tensor->whole, tensor->scales, box, fill_f32, &q, out,
                              err);
    return rc ? rsi_while(err, rc, "making tensor \"%s\"", tensor->name) : RSD_OK;
}

/* ---- of a checkpoint ---- */

rsd_err rsi_made_of(const rsd_recipe *recipe, rsd_ckpt                            *source,
                    bool (*left_out)(void *arg, size_t t, const char *name), void *arg,
                    rsi_made **out, rsd_error *err)
{
    rsi_made_source *list;
    rsd_err          rc;

    *out = NULL;
    if (!recipe)
        return RSD_OK;
    list = rsi_calloc(source->ntensors, sizeof(list[0]));
    if (!list)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu tensors", source->ntensors);
    for (size_t t = 0; t < source->ntensors; t++) {
        rsd_tensor_info info;

        source->ops->tensor(source, t, &info);
        list[t] = (rsi_made_source){ .name = info.name, .dtype = info.dtype, .ndim = info.ndim };
        memcpy(list[t].shape, info.shape, sizeof(list[t].shape));
        list[t].left_out = left_out && left_out(arg, t, info.name);
    }
    rc = rsi_made_make(recipe, list, source->ntensors, out, err);
    if (rc)
        rsi_free(list);
    return rc;
}

void rsi_made_info(const rsi_made *made, size_t t, rsd_tensor_info *out)
{
    const rsi_made_tensor *m = &made->tensor[t];

    *out = (rsd_tensor_info){
        .size = sizeof(*out), .name = m->name, .dtype = m->dtype, .ndim = m->ndim, .chunks = 1
    };
    memcpy(out->shape, m->shape, sizeof(out->shape));
    rsi_product(m->ndim, m->shape, (int64_t)rsd_dtype_size(m->dtype), &out->bytes);
}

void rsi_made_drop(rsi_made *made)
{
    if (made)
        rsi_free(made->source);
    rsi_made_free(made);
}
