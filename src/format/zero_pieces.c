/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of parameters as pieces of tensors: ranges of flat vectors, or tensors, cut into the
 * blocks that zero_cut.c found. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/zero_core.h"
#include "shape/box.h"

#include <string.h>

/* ---- names and shapes ---- */

rsd_err rsi_zero_name(rsi_zero *z, const char *const *part, rsi_torch_entry *out, rsd_error *err)
{
    size_t n = 0;

    while (part[n])
        n++;
    return rsi_torch_name(z->t, part, n, out, err);
}

rsd_err rsi_zero_shape(const rsd_value *size, int32_t *ndim, int64_t *shape, int64_t *elems,
                       rsd_error *err)
{
    const size_t n = size ? rsd_value_count(size) : 0;

    if (!size || rsd_value_type_of(size) != RSD_VALUE_TUPLE || n > RSD_MAX_NDIM)
        return rsi_fail(err, RSD_E_FORMAT, "its shape is not a list of at most %d numbers",
                        RSD_MAX_NDIM);
    *ndim = (int32_t)n;
    for (size_t i = 0; i < n; i++)
        shape[i] = rsd_value_int(rsd_value_item(size, i));
    return rsi_shape_check(RSD_F32, *ndim, shape, elems, err) ? RSD_E_FORMAT : RSD_OK;
}

rsd_err rsi_zero_like(const rsi_zero_cut *cut, const rsd_value_tensor *of, rsi_torch_whole *out,
                      rsd_error *err)
{
    int64_t elems;

    *out = (rsi_torch_whole){ .dtype = of->dtype, .ndim = cut->ndim };
    memcpy(out->shape, cut->shape, sizeof(out->shape));
    return rsi_shape_check(of->dtype, cut->ndim, cut->shape, &elems, err) ? RSD_E_FORMAT : RSD_OK;
}

bool rsi_zero_is_vector(const rsd_value_tensor *t)
{
    return t->ndim == 1 && (t->stride[0] == 1 || t->shape[0] < 2);
}

rsd_err rsi_zero_cut_of(rsi_zero *z, size_t                                                  rank,
                        const rsd_value *(*shapes)(const rsi_zero *, size_t, size_t), size_t g,
                        const char *name, rsi_zero_cut *out, rsd_error *err)
{
    const size_t each = z->slices * z->ranks, pipe = rank / each;
    rsd_box     *shape = rsi_calloc(z->slices, sizeof(shape[0]));
    int64_t      elems;
    rsd_err      rc = shape ? RSD_OK : rsi_torch_no_memory(err);

    for (size_t i = 0; i < z->slices && !rc; i++) {
        const rsd_value *all = shapes(z, pipe * each + i * z->ranks, g);

        rc = rsi_zero_shape(all ? rsd_value_get(all, name) : NULL, &shape[i].ndim, shape[i].len,
                            &elems, err);
    }
    if (!rc)
        rc = rsi_zero_cut_make(z->info, name, rank % each / z->ranks, z->slices, shape,
                               &z->ckpt->mem, out, err);
    rsi_free(shape);
    return rc;
}

/* ---- pieces ---- */

/* Adds the part of a block inside `box`, a box of the slice; `of` has the slice's strides, `first`
 * is where the slice's first element would lie in it. */
static rsd_err add_block(const rsi_zero_target *to, const rsi_zero_block *b, const rsd_box *box,
                         uint32_t file, const rsd_value_tensor *of, int64_t first, rsd_error *err)
{
    rsi_torch_piece piece = { .of = of, .file = file, .offset = first };

    piece.box.ndim = box->ndim;
    for (int d = 0; d < box->ndim; d++) {
        const int64_t low = rsi_max(box->off[d], b->local.off[d]);
        const int64_t high = rsi_min(box->off[d] + box->len[d], b->local.off[d] + b->local.len[d]);

        if (high <= low)
            return RSD_OK;
        piece.box.off[d] = low - b->local.off[d] + b->at[d];
        piece.box.len[d] = high - low;
        piece.offset += low * of->stride[d];
    }
    return b->again ? rsi_torch_add_replica(to->z->t, to->e, &piece, err)
                    : rsi_torch_add_piece(to->z->t, to->e, &to->like, &piece, err);
}

static rsd_err add_blocks(const rsi_zero_target *to, const rsd_box *box, uint32_t file,
                          const rsd_value_tensor *of, int64_t first, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < to->cut->n && !rc; i++)
        rc = add_block(to, &to->cut->block[i], box, file, of, first, err);
    return rc;
}

/* A vector as a tensor with the strides of the slice. */
static rsd_value_tensor *with_strides(const rsi_zero_target *to, const rsd_value_tensor *of)
{
    rsd_value_tensor *t = rsi_arena_array(&to->z->ckpt->mem, 1, sizeof(*t));

    if (t) {
        *t = *of;
        t->ndim = to->cut->ndim;
        memcpy(t->shape, to->cut->slice, sizeof(t->shape));
        rsi_strides(t->ndim, t->shape, 1, t->stride);
    }
    return t;
}

rsd_err rsi_zero_add_range(const rsi_zero_target *t, int64_t from, int64_t to, uint32_t file,
                           const rsd_value_tensor *of, int64_t offset, rsd_error *err)
{
    const rsi_zero_cut     *cut = t->cut;
    rsi_torch_piece         piece = { .of = of, .file = file, .flat = true };
    const rsd_value_tensor *strided = cut->block ? with_strides(t, of) : of;
    const int64_t           first = offset - from;
    rsd_err                 rc = strided ? RSD_OK : rsi_torch_no_memory(err);

    while (from < to && !rc) {
        int64_t n = rsi_range_box(cut->ndim, cut->slice, from, to, &piece.box);

        piece.offset = offset; /* a vector is dense */
        if (cut->block)
            rc = add_blocks(t, &piece.box, file, strided, first, err);
        else
            rc = cut->again ? rsi_torch_add_replica(t->z->t, t->e, &piece, err)
                            : rsi_torch_add_piece(t->z->t, t->e, &t->like, &piece, err);
        from += n;
        offset += n;
    }
    return rc;
}

rsd_err rsi_zero_add_slice(const rsi_zero_target *to, uint32_t file, const rsd_value *v,
                           rsd_error *err)
{
    const rsd_value_tensor *t = rsd_value_tensor_of(v);
    const rsi_zero_cut     *cut = to->cut;
    rsd_box                 all = { .ndim = cut->ndim };
    rsi_torch_entry         e = *to->e;

    if (t->ndim != cut->ndim ||
        memcmp(t->shape, cut->slice, (size_t)cut->ndim * sizeof(t->shape[0])) != 0)
        return rsi_fail(err, RSD_E_FORMAT, "parameter \"%s\" has another shape in its model file",
                        e.name);
    memcpy(all.len, cut->slice, sizeof(all.len));
    e.value = v;
    if (cut->block)
        return add_blocks(to, &all, file, t, 0, err);
    return cut->again ? rsi_torch_add_once(to->z->t, &e, err) : rsi_torch_add(to->z->t, &e, err);
}
