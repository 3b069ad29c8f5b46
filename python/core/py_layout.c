/* SPDX-License-Identifier: Apache-2.0 */
/* Layout: how a tensor is spread over ranks, and which boxes of it this rank has, at which place of
 * its local tensor. Made once for all tensors of the same mesh, placements, dtype and shape.
 * Next: py_ranks.c. */
#include "py_core.h"

#include <reshard/reshard_live.h>

#include <stdlib.h>
#include <string.h>

/* ---- making one ---- */

/* (kind, dimension, split factor), for partial with the reduction behind them */
static int placement_from(PyObject *item, rsd_placement *out)
{
    int       kind, dim, reduce = 0;
    long long split;

    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "iiL|i", &kind, &dim, &split, &reduce))
        return -1;
    *out = (rsd_placement){ .kind = (rsd_place_kind)kind, .dim = dim, .split = split };
    out->reduce = (rsd_reduce)reduce;
    return 0;
}

static int mesh_from(core *c, PyObject *sizes, PyObject *ranks, rsd_mesh **out)
{
    const Py_ssize_t n = PyTuple_Size(ranks);
    int32_t         *rank = calloc((size_t)n + 1, sizeof(*rank));
    int64_t          shape[RSD_MAX_NDIM];
    rsd_error        err = { .rank = -1 };
    int              ndim = rank ? ints_from(sizes, shape) : -1;
    rsd_err          rc;

    if (!rank)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n && ndim >= 0; i++) {
        rank[i] = (int32_t)PyLong_AsLong(PyTuple_GetItem(ranks, i));
        if (PyErr_Occurred())
            ndim = -1;
    }
    if (ndim >= 0) {
        rc = rsd_mesh_create(ndim, shape, NULL, rank, out, &err);
        if (rc)
            ndim = fail_with(c, &err);
    }
    free(rank);
    return ndim;
}

/* The boxes of this rank, with their places in a packed local tensor. */
static int take_boxes(core *c, spread *l, int32_t rank)
{
    rsd_error err = { .rank = -1 };

    l->n = rsd_layout_boxes(l->layout, rank, NULL, 0);
    l->view = calloc(l->n + 1, sizeof(*l->view));
    l->at = calloc(l->n + 1, sizeof(*l->at));
    if (!l->view || !l->at) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < l->n; i++) {
        rsd_local local;
        int64_t   off;

        if (rsd_layout_local(l->layout, rank, i, &local, &err))
            return fail_with(c, &err);
        l->view[i] = (rsd_view){ .box = local.box };
        memcpy(l->view[i].stride, local.stride, sizeof(local.stride));
        off = local.offset;
        for (int d = 0; d < l->ndim; d++) {
            l->at[i].off[d] = off / local.stride[d];
            off %= local.stride[d];
            l->local[d] = d > 0 ? local.stride[d - 1] / local.stride[d]
                                : rsd_layout_bytes(l->layout, rank) / local.stride[0];
        }
    }
    return 0;
}

static int make(core *c, spread *l, PyObject *sizes, PyObject *ranks, PyObject *places)
{
    rsd_placement place[RSD_MAX_NDIM];
    rsd_mesh     *mesh = NULL;
    rsd_error     err = { .rank = -1 };
    int           ndim = mesh_from(c, sizes, ranks, &mesh);

    if (ndim >= 0 && PyTuple_Size(places) != ndim) {
        PyErr_SetString(PyExc_ValueError, "the mesh has as many axes as there are placements");
        ndim = -1;
    }
    for (int i = 0; i < ndim; i++)
        if (placement_from(PyTuple_GetItem(places, i), &place[i]) < 0)
            ndim = -1;
    if (ndim >= 0 && rsd_layout_create(mesh, place, l->dtype, l->ndim, l->shape, &l->layout, &err))
        ndim = fail_with(c, &err);
    rsd_mesh_free(mesh);
    return ndim < 0 ? -1 : 0;
}

static spread *layout_alloc(core *c)
{
    spread *l = PyObject_New(spread, (PyTypeObject *)c->layout);

    if (l)
        memset((char *)l + sizeof(PyObject), 0, sizeof(*l) - sizeof(PyObject));
    return l;
}

/* Layout.of_mesh(sizes of the mesh, its ranks, ((kind, dim, split), ...), dtype, shape, this
 * rank) */
static PyObject *of_mesh(PyObject *type, PyObject *args)
{
    core       *c = PyType_GetModuleState((PyTypeObject *)type);
    PyObject   *sizes, *ranks, *places, *shape;
    const char *dtype;
    rsd_error   err = { .rank = -1 };
    spread     *l;
    int         rank;

    if (!PyArg_ParseTuple(args, "O!O!O!sOi", &PyTuple_Type, &sizes, &PyTuple_Type, &ranks,
                          &PyTuple_Type, &places, &dtype, &shape, &rank))
        return NULL;
    l = layout_alloc(c);
    if (!l)
        return NULL;
    if (rsd_dtype_parse(dtype, &l->dtype, &err))
        fail_with(c, &err);
    else if ((l->ndim = ints_from(shape, l->shape)) >= 0 && make(c, l, sizes, ranks, places) == 0 &&
             take_boxes(c, l, rank) == 0)
        return (PyObject *)l;
    Py_DECREF(l);
    return NULL;
}

/* ---- using it ---- */

int layout_views(const spread *l, void *data, int ndim, const int64_t *sizes,
                 const int64_t *strides, rsd_view *out)
{
    bool fits = l->n > 0 ? ndim == l->ndim : false;

    for (int d = 0; d < l->ndim && fits; d++)
        fits = sizes[d] == l->local[d];
    for (int d = 0; d < ndim && l->n == 0; d++)
        fits = fits || sizes[d] == 0;
    if (!fits)
        return -1;
    for (size_t i = 0; i < l->n; i++) {
        char *at = data;

        out[i] = l->view[i];
        for (int d = 0; d < l->ndim; d++) {
            out[i].stride[d] = strides ? strides[d] : l->view[i].stride[d];
            at += l->at[i].off[d] * out[i].stride[d];
        }
        out[i].data = at;
    }
    return 0;
}

static void layout_dealloc(PyObject *self)
{
    spread *l = (spread *)self;

    rsd_layout_free(l->layout);
    free(l->view);
    free(l->at);
    object_free(self);
}

static PyMethodDef methods[] = {
    { "of_mesh", of_mesh, METH_VARARGS | METH_CLASS,
      "of_mesh(sizes, ranks, ((kind, dim, split), ...), dtype, shape, this rank)" },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "How a tensor is spread over ranks." },
    { Py_tp_dealloc, layout_dealloc },
    { Py_tp_methods, methods },
    { 0 },
};

PyType_Spec layout_spec = {
    .name = "reshard._core.Layout",
    .basicsize = sizeof(spread),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
