/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts the terms of a target along a box. On each axis a term's loops are digits of the index, so
 * an interval takes at most 2k - 1 pieces for k loops. Pure arithmetic. */
#include "base/checked.h"
#include "recipe/made.h"

typedef struct walk {
    const rsi_made_tensor *tensor;
    const rsd_box         *box;
    rsi_made_piece         piece;
    rsd_err (*visit)(void *arg, const rsi_made_piece *piece, rsd_error *err);
    void      *arg;
    rsd_error *err;
} walk;

static rsd_err cut_axis(walk *w, int axis);

/* Rounds towards minus infinity; b > 0. */
static int64_t floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/* Takes loops k and the following ones of the axis whole. */
static void take_all(walk *w, int k, int axis)
{
    const rsi_made_form *f = w->piece.term->form;

    for (; k < f->n && f->loop[k].to_axis == axis; k++) {
        w->piece.first[k] = 0;
        w->piece.count[k] = f->loop[k].count;
    }
}

/* Loop k and the following ones of the axis, whose first element is at `base` in the box. */
static rsd_err cut_loop(walk *w, int axis, int k, int64_t base)
{
    const rsi_made_form *f = w->piece.term->form;
    const rsi_made_loop *l = &f->loop[k];
    const int64_t        len = w->box->len[axis];
    int64_t              span = 0, inner, lo, hi, from, to;
    rsd_err              rc = RSD_OK;

    for (int i = k; i < f->n && f->loop[i].to_axis == axis; i++)
        span += (f->loop[i].count - 1) * f->loop[i].to_stride;
    if (base >= len || base + span < 0)
        return RSD_OK;
    if (base >= 0 && base + span < len) {
        take_all(w, k, axis);
        w->piece.at[axis] = base;
        return cut_axis(w, axis + 1);
    }
    inner = span - (l->count - 1) * l->to_stride;
    lo = rsi_max(0, -floor_div(base, l->to_stride)); /* these are inside as a whole: */
    hi = rsi_min(l->count - 1, floor_div(len - 1 - inner - base, l->to_stride));
    from = rsi_max(0, -floor_div(base + inner, l->to_stride)); /* these at least in part: */
    to = rsi_min(l->count - 1, floor_div(len - 1 - base, l->to_stride));
    if (lo <= hi) {
        take_all(w, k + 1, axis);
        w->piece.first[k] = lo;
        w->piece.count[k] = hi - lo + 1;
        w->piece.at[axis] = base + lo * l->to_stride;
        rc = cut_axis(w, axis + 1);
    }
    for (int64_t i = from; i <= to && !rc; i++) {
        if (i >= lo && i <= hi) {
            i = hi;
            continue;
        }
        w->piece.first[k] = i;
        w->piece.count[k] = 1;
        rc = cut_loop(w, axis, k + 1, base + i * l->to_stride);
    }
    return rc;
}

static rsd_err cut_axis(walk *w, int axis)
{
    const rsi_made_form *f = w->piece.term->form;
    int                  k = 0;

    if (axis == w->box->ndim)
        return w->visit(w->arg, &w->piece, w->err);
    while (k < f->n && f->loop[k].to_axis < axis)
        k++;
    return cut_loop(w, axis, k, w->piece.term->to[axis] - w->box->off[axis]);
}

/* The first term that may reach into the box: terms are sorted by where they begin on axis 0, and
 * none reaches further than tensor->reach. */
static size_t first_term(const rsi_made_tensor *t, const rsd_box *box)
{
    size_t lo = 0, hi = t->nterms;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (t->term[mid].to[0] + t->reach < box->off[0])
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

rsd_err rsi_made_pieces(const rsi_made_tensor *tensor, const rsd_box *box,
                        rsd_err (*visit)(void *arg, const rsi_made_piece *piece, rsd_error *err),
                        void *arg, rsd_error *err)
{
    walk    w = { .tensor = tensor, .box = box, .visit = visit, .arg = arg, .err = err };
    rsd_err rc = RSD_OK;

    if (rsd_box_count(box) == 0)
        return RSD_OK;
    for (size_t i = box->ndim ? first_term(tensor, box) : 0; i < tensor->nterms && !rc; i++) {
        w.piece.term = &tensor->term[i];
        if (box->ndim && w.piece.term->to[0] >= box->off[0] + box->len[0])
            break;
        rc = cut_axis(&w, 0);
    }
    return rc;
}

/* The loop that follows the last axis of the target, or of the source, element by element. */
static int last_loop(const rsi_made_form *f, int axis, bool from)
{
    for (int k = 0; k < f->n; k++) {
        const rsi_made_loop *l = &f->loop[k];

        if ((from ? l->from_axis : l->to_axis) == axis &&
            (from ? l->from_stride : l->to_stride) == 1)
            return k;
    }
    return -1;
}

bool rsi_made_turns(const rsi_made *made, size_t t)
{
    const rsi_made_tensor *m = &made->tensor[t];

    for (size_t i = 0; i < m->nterms; i++) {
        const rsi_made_form *f = m->term[i].form;
        const size_t         source = m->term[i].source;
        int                  k = last_loop(f, m->whole_ndim - 1, false), from;

        from = source == RSI_MADE_NONE ? -1 : last_loop(f, made->source[source].ndim - 1, true);
        if (from >= 0 && from != k)
            return true;
    }
    return false;
}

bool rsi_made_reorders(const rsi_made_tensor *tensor)
{
    for (size_t i = 0; i < tensor->nterms; i++) {
        const rsi_made_form *f = tensor->term[i].form;
        const rsi_made_loop *last = NULL;

        for (int k = 0; k < f->n; k++) {
            const rsi_made_loop *l = &f->loop[k];

            if (l->from_axis < 0)
                continue;
            if (last && (l->from_axis < last->from_axis ||
                         (l->from_axis == last->from_axis && l->from_stride > last->from_stride)))
                return true;
            last = l;
        }
    }
    return false;
}
