/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a layout from what each rank knows of its own boxes. */
#include "base/mem.h"
#include "comm/facts.h"
#include "shape/box.h"
#include "shape/layout.h"

typedef struct local {
    rsd_dtype      dtype;
    int            ndim;
    const int64_t *shape;
} local;

static void tell_local(rsi_facts *f, const void *arg)
{
    const local *l = arg;

    rsi_fact_word(f, "the call", "rsd_layout_create_local");
    rsi_fact_word(f, "dtype", rsd_dtype_name(l->dtype));
    rsi_fact_shape(f, "shape", l->ndim, l->shape);
}

static rsd_err build(const rsd_comm *comm, const rsi_gathered *all, const local *l,
                     rsd_layout **out, rsd_error *err)
{
    const rsd_box *box = (const rsd_box *)(const void *)all->data; /* aligned */
    size_t         n = all->first[comm->size] / sizeof(box[0]);
    int32_t       *owner = rsi_calloc(n, sizeof(owner[0]));
    rsd_err        rc = owner ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", n);

    for (int32_t r = 0; r < comm->size && !rc; r++)
        for (size_t i = all->first[r]; i < all->first[r + 1]; i += sizeof(box[0]))
            owner[i / sizeof(box[0])] = r;
    if (!rc)
        rc = rsd_layout_create_boxes(l->dtype, l->ndim, l->shape, n, owner, box, out, err);
    rsi_free(owner);
    return rc;
}

rsd_err rsd_layout_create_local(rsd_comm *comm, rsd_dtype dtype, int ndim, const int64_t *shape,
                                size_t n, const rsd_box *box, rsd_layout **out, rsd_error *err)
{
    local        mine = { dtype, ndim, shape };
    rsi_gathered all = { 0 };
    rsd_layout  *made = NULL;
    int64_t      elems;
    rsd_err      rc = RSD_OK;

    if (!comm || !out || (n > 0 && !box))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: comm, output pointer or the %zu boxes",
                      n);
    if (!rc)
        rc = rsi_shape_check(dtype, ndim, shape, &elems, err);
    if (!rc && n > SIZE_MAX / sizeof(box[0]))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", n);
    rc = rsi_same_facts(comm, tell_local, &mine, rc, err);
    if (!rc)
        rc = rsi_allgather_any(comm, box, n * sizeof(box[0]), &all, err);
    if (!rc)
        rc = rsi_agree(comm, build(comm, &all, &mine, &made, err), err);
    if (!rc)
        *out = made;
    else
        rsd_layout_free(made);
    rsi_gathered_release(&all);
    return rc;
}
