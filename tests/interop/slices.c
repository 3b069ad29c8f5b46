/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts tensors for ckpt_copy.c. */
#include "slices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CUT_DIMS 3 /* of a tensor, so that there are at most 27 boxes */
#define FILL          0xa5

static uint64_t random_below(uint64_t *seed, uint64_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % n;
}

/* ---- callbacks ---- */

static rsd_err put_bytes(void *arg, uint64_t off, const void *host, size_t len)
{
    slab *to = arg;

    if (off > to->len || len > to->len - off)
        return RSD_E_BUG;
    memcpy(to->bytes + off, host, len);
    return RSD_OK;
}

static rsd_err get_bytes(void *arg, uint64_t off, void *host, size_t len)
{
    const slab *from = arg;

    if (off > from->len || len > from->len - off)
        return RSD_E_BUG;
    memcpy(host, from->bytes + off, len);
    return RSD_OK;
}

/* ---- memory of one box ---- */

/* Strides for dimensions in a random order with some bytes between; returns the bytes needed. */
static size_t odd_strides(rsd_view *view, size_t elem_bytes, uint64_t *seed)
{
    int     order[RSD_MAX_NDIM], ndim = view->box.ndim;
    int64_t step = (int64_t)elem_bytes;

    for (int d = 0; d < ndim; d++)
        order[d] = d;
    for (int d = ndim - 1; d > 0; d--) {
        int k = (int)random_below(seed, (uint64_t)d + 1), was = order[d];

        order[d] = order[k];
        order[k] = was;
    }
    for (int d = 0; d < ndim; d++) {
        int64_t len = view->box.len[order[d]];

        step += (int64_t)random_below(seed, 4);
        view->stride[order[d]] = step;
        step *= len > 1 ? len : 1;
    }
    return (size_t)step;
}

static rsd_err add_box(slices *s, const rsd_box *box, bool odd, uint64_t *seed, rsd_error *err)
{
    rsd_view *view = &s->view[s->n];
    slab     *memory = &s->slab[s->n];

    view->box = *box;
    memory->len = (size_t)rsd_box_count(box) * s->elem_bytes;
    if (odd && s->n % 2 == 0)
        memory->len = odd_strides(view, s->elem_bytes, seed);
    memory->bytes = malloc(memory->len + 1);
    if (!memory->bytes) {
        snprintf(err->msg, sizeof(err->msg), "no memory for a slice of %zu bytes", memory->len);
        return RSD_E_NOMEM;
    }
    memset(memory->bytes, FILL, memory->len + 1);
    if (odd && s->n % 2 == 1) {
        view->put = put_bytes;
        view->get = get_bytes;
        view->arg = memory;
    } else {
        view->data = memory->bytes;
    }
    s->n++;
    return RSD_OK;
}

/* ---- cutting ---- */

/* Where a dimension of `len` is cut: at[0] = 0 up to at[*n] = len. */
static void cut_dim(int64_t len, bool cut, uint64_t *seed, int64_t at[4], int *n)
{
    int pieces = cut && len > 1 ? 1 + (int)random_below(seed, 3) : 1;

    *n = 0;
    at[0] = 0;
    for (int i = 1; i < pieces && at[*n] < len - 1; i++) {
        int64_t from = at[*n] + 1;

        at[++*n] = from + (int64_t)random_below(seed, (uint64_t)(len - from));
    }
    at[++*n] = len;
}

rsd_err slices_cut(slices *s, const rsd_tensor_info *info, uint64_t seed, rsd_error *err)
{
    int64_t at[RSD_MAX_NDIM][4];
    int     pieces[RSD_MAX_NDIM], k[RSD_MAX_NDIM] = { 0 };
    size_t  n = 1;
    bool    odd = seed != 0;

    s->elem_bytes = rsd_dtype_size(info->dtype);
    for (int d = 0; d < info->ndim; d++) {
        cut_dim(info->shape[d], odd && d < MOST_CUT_DIMS, &seed, at[d], &pieces[d]);
        n *= (size_t)pieces[d];
    }
    s->view = calloc(n, sizeof(s->view[0]));
    s->slab = calloc(n, sizeof(s->slab[0]));
    if (!s->view || !s->slab) {
        snprintf(err->msg, sizeof(err->msg), "no memory for %zu slices", n);
        return RSD_E_NOMEM;
    }
    while (s->n < n) {
        rsd_box box = { .ndim = info->ndim };
        rsd_err rc;

        for (int d = 0; d < info->ndim; d++) {
            box.off[d] = at[d][k[d]];
            box.len[d] = at[d][k[d] + 1] - at[d][k[d]];
        }
        rc = add_box(s, &box, odd, &seed, err);
        if (rc)
            return rc;
        for (int d = info->ndim - 1; d >= 0 && ++k[d] == pieces[d]; d--)
            k[d] = 0;
    }
    return RSD_OK;
}

/* ---- what is between the elements ---- */

static void mark_elements(const rsd_view *view, size_t elem_bytes, unsigned char *mark)
{
    int64_t count = rsd_box_count(&view->box);

    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, at = 0;

        for (int d = view->box.ndim - 1; d >= 0; d--) {
            at += rest % view->box.len[d] * view->stride[d];
            rest /= view->box.len[d];
        }
        memset(mark + at, 1, elem_bytes);
    }
}

rsd_err slices_check(const slices *s, size_t i, rsd_error *err)
{
    const rsd_view *view = &s->view[i];
    const slab     *memory = &s->slab[i];
    unsigned char  *mark;
    bool            packed = true;
    rsd_err         rc = RSD_OK;

    for (int d = 0; d < view->box.ndim; d++)
        packed = packed && view->stride[d] == 0;
    if (packed || !view->data)
        return RSD_OK;
    mark = calloc(memory->len + 1, 1);
    if (!mark)
        return RSD_E_NOMEM;
    mark_elements(view, s->elem_bytes, mark);
    for (size_t k = 0; k <= memory->len && !rc; k++)
        if (!mark[k] && memory->bytes[k] != FILL) {
            snprintf(err->msg, sizeof(err->msg), "slice %zu: byte %zu is outside and has changed",
                     i, k);
            rc = RSD_E_BUG;
        }
    free(mark);
    return rc;
}

void slices_free(slices *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->slab[i].bytes);
    free(s->view);
    free(s->slab);
    *s = (slices){ 0 };
}
