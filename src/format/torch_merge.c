/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors whose pieces lie in several torch.save files. The first file that has a box or an object
 * is the one that is read; others are replicas, which `verify` compares. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/torch_core.h"
#include "shape/box.h"

#include <string.h>

static rsd_err add_replica(rsi_torch *t, const rsi_torch_replica *r, rsd_error *err)
{
    if (!rsi_grow(&t->replica, t->nreplicas, &t->replicas_cap, sizeof(t->replica[0])))
        return rsi_torch_no_memory(err);
    t->replica[t->nreplicas++] = *r;
    return RSD_OK;
}

rsd_err rsi_torch_add_once(rsi_torch *t, const rsi_torch_entry *e, rsd_error *err)
{
    uint64_t number;

    if (!rsi_map_get(&t->names, e->name, strlen(e->name), &number))
        return rsi_torch_add(t, e, err);
    return add_replica(
        t, &(rsi_torch_replica){ .entry = number, .value = e->value, .file = e->file }, err);
}

/* The tensor of this name, as known so far. */
static rsd_err whole_of(rsi_torch *t, const rsi_torch_entry *e, const rsi_torch_whole *like,
                        uint64_t *number, rsi_torch_whole **out, rsd_error *err)
{
    rsi_torch_entry  made = *e;
    rsi_torch_whole *w;

    if (rsi_map_get(&t->names, e->name, strlen(e->name), number)) {
        w = *number < t->tensors.n ? t->tensors.at[*number].whole : NULL;
        if (!w || w->dtype != like->dtype || w->ndim != like->ndim ||
            memcmp(w->shape, like->shape, (size_t)w->ndim * sizeof(w->shape[0])) != 0)
            return rsi_fail(
                err, RSD_E_FORMAT,
                "another file has \"%s\" with another dtype or shape, or not as a tensor", e->name);
        *out = w;
        return RSD_OK;
    }
    made.whole = w = rsi_arena_array(&t->mem, 1, sizeof(*w));
    if (!w)
        return rsi_torch_no_memory(err);
    *w = (rsi_torch_whole){ .dtype = like->dtype, .ndim = like->ndim };
    memcpy(w->shape, like->shape, sizeof(w->shape));
    *number = t->tensors.n;
    *out = w;
    return rsi_torch_add(t, &made, err);
}

rsd_err rsi_torch_add_whole(rsi_torch *t, const rsi_torch_entry *e, const rsi_torch_whole *like,
                            rsd_error *err)
{
    rsi_torch_whole *w;
    uint64_t         number;
    int64_t          elems;
    rsd_err          rc = rsi_shape_check(like->dtype, like->ndim, like->shape, &elems, err);

    return rc ? rc : whole_of(t, e, like, &number, &w, err);
}

rsd_err rsi_torch_add_piece(rsi_torch *t, const rsi_torch_entry *e, const rsi_torch_whole *like,
                            const rsi_torch_piece *piece, rsd_error *err)
{
    rsi_torch_whole *w = NULL;
    uint64_t         number;
    int64_t          elems;
    rsd_err          rc = rsi_shape_check(like->dtype, like->ndim, like->shape, &elems, err);

    if (!rc)
        rc = rsi_box_check(&piece->box, like->ndim, like->shape, err);
    if (rc)
        return rsi_while(err, RSD_E_FORMAT, "tensor \"%s\"", e->name);
    rc = whole_of(t, e, like, &number, &w, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < w->n; i++)
        if (rsi_box_equal(&w->piece[i].box, &piece->box))
            return add_replica(
                t, &(rsi_torch_replica){ .entry = number, .piece = *piece, .file = piece->file },
                err);
    if (!rsi_grow(&w->piece, w->n, &w->cap, sizeof(w->piece[0])))
        return rsi_torch_no_memory(err);
    w->piece[w->n++] = *piece;
    return RSD_OK;
}

rsd_err rsi_torch_add_replica(rsi_torch *t, const rsi_torch_entry *e, const rsi_torch_piece *piece,
                              rsd_error *err)
{
    const rsi_torch_whole *w;
    uint64_t               number;

    if (!rsi_map_get(&t->names, e->name, strlen(e->name), &number) || number >= t->tensors.n)
        return RSD_OK;
    w = t->tensors.at[number].whole;
    for (size_t i = 0; w && i < w->n; i++)
        if (rsi_box_equal(&w->piece[i].box, &piece->box))
            return add_replica(
                t, &(rsi_torch_replica){ .entry = number, .piece = *piece, .file = piece->file },
                err);
    return RSD_OK;
}

rsd_err rsi_torch_alias(rsi_torch *t, const char *name, const char *same, rsd_error *err)
{
    rsi_torch_entry  e;
    rsi_torch_whole *w;
    uint64_t         number;
    rsd_err          rc;

    if (!name || !same || !rsi_map_get(&t->names, same, strlen(same), &number) ||
        number >= t->tensors.n || rsi_map_get(&t->names, name, strlen(name), &number))
        return RSD_OK; /* an alias of a missing parameter */
    rsi_map_get(&t->names, same, strlen(same), &number);
    e = t->tensors.at[number];
    rc = rsi_torch_name(t, &name, 1, &e, err);
    if (rc || !e.whole)
        return rc ? rc : rsi_torch_add(t, &e, err);
    w = rsi_arena_array(&t->mem, 1, sizeof(*w));
    if (!w)
        return rsi_torch_no_memory(err);
    *w = *e.whole;
    w->piece = rsi_calloc(w->n, sizeof(w->piece[0]));
    if (!w->piece)
        return rsi_torch_no_memory(err);
    memcpy(w->piece, e.whole->piece, w->n * sizeof(w->piece[0]));
    e.whole = w;
    rc = rsi_torch_add(t, &e, err);
    if (rc)
        rsi_free(w->piece);
    return rc;
}

static void get_box(const void *arg, size_t i, rsd_box *out)
{
    *out = ((const rsi_torch_piece *)arg)[i].box;
}

rsd_err rsi_torch_check_pieces(const rsi_torch *t, size_t first, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = first; i < t->tensors.n && !rc; i++) {
        const rsi_torch_whole *w = t->tensors.at[i].whole;

        if (!w)
            continue;
        rc = w->n ? rsi_refuse_bad_tiles(w->ndim, w->shape, w->n, get_box, w->piece, err)
                  : rsi_fail(err, RSD_E_FORMAT, "no file has a part of it");
        if (rc)
            rsi_while(err, rc, "tensor \"%s\"", t->tensors.at[i].name);
    }
    return rc;
}

void rsi_torch_piece_view(const rsi_torch_piece *piece, rsd_value_tensor *out)
{
    const int64_t step = piece->of->ndim ? piece->of->stride[0] : 1;

    *out = *piece->of;
    out->ndim = piece->box.ndim;
    memcpy(out->shape, piece->box.len, sizeof(out->shape));
    out->offset += piece->offset;
    if (piece->flat)
        rsi_strides(out->ndim, out->shape, step, out->stride);
}
