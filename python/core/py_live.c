/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors between ranks: plans, which are made once and run often, and stashes. Memory comes as
 * Views of packed tensors, which is how torch keeps a DTensor's local part. */
#include "py_core.h"

#include <reshard/reshard_live.h>

#include <stdlib.h>
#include <string.h>

/* ---- layouts ---- */

typedef struct mesh_spec {
    int           ndim;
    int64_t       shape[RSD_MAX_NDIM];
    rsd_placement place[RSD_MAX_NDIM];
    int32_t      *ranks; /* for free */
} mesh_spec;

static int take_ranks(PyObject *list, int32_t **out)
{
    Py_ssize_t n = PySequence_Size(list);

    *out = n < 0 ? NULL : calloc((size_t)n + 1, sizeof(**out));
    if (!*out) {
        if (n >= 0)
            PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *x = PySequence_GetItem(list, i);

        (*out)[i] = x ? (int32_t)PyLong_AsLong(x) : -1;
        Py_XDECREF(x);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* (shape of the mesh, its ranks, placements: (kind, dim, split, reduce) for each axis) */
static int take_spec(PyObject *from, mesh_spec *out)
{
    PyObject *shape, *ranks, *places;

    if (!PyArg_ParseTuple(from, "OOO", &shape, &ranks, &places))
        return -1;
    out->ndim = ints_from(shape, out->shape);
    if (out->ndim < 0 || take_ranks(ranks, &out->ranks) < 0)
        return -1;
    if (PySequence_Size(places) != out->ndim) {
        PyErr_SetString(PyExc_ValueError, "a mesh needs one placement for each axis");
        return -1;
    }
    for (int a = 0; a < out->ndim; a++) {
        PyObject *one = PySequence_GetItem(places, a);
        int       kind, dim, reduce, ok;
        long long split;

        ok = one && PyArg_ParseTuple(one, "iiLi", &kind, &dim, &split, &reduce);
        Py_XDECREF(one);
        if (!ok)
            return -1;
        out->place[a] = (rsd_placement){ .kind = (rsd_place_kind)kind, .dim = dim, .split = split };
        out->place[a].reduce = (rsd_reduce)reduce;
    }
    return 0;
}

static rsd_layout *make_layout(core *c, PyObject *from, rsd_dtype dtype, int ndim,
                               const int64_t *shape)
{
    mesh_spec spec = { 0 };
    rsd_error   err = { .rank = -1 };
    rsd_mesh   *mesh = NULL;
    rsd_layout *layout = NULL;
    rsd_err     rc;

    if (take_spec(from, &spec) == 0) {
        rc = rsd_mesh_create(spec.ndim, spec.shape, NULL, spec.ranks, &mesh, &err);
        if (!rc)
            rc = rsd_layout_create(mesh, spec.place, dtype, ndim, shape, &layout, &err);
        if (rc)
            fail_with(c, &err);
    }
    rsd_mesh_free(mesh);
    free(spec.ranks);
    return layout;
}

/* ---- Plan ---- */

typedef struct plan_object {
    PyObject    ob_base;
    int32_t     rank;
    rsd_layout *layout[2]; /* source and target */
    rsd_plan   *plan;
} plan_object;

/* plan(rank, dtype, shape, source, target) -> Plan */
PyObject *core_plan(PyObject *module, PyObject *args)
{
    core        *c = PyModule_GetState(module);
    PyObject    *name, *sizes, *from[2];
    rsd_error    err = { .rank = -1 };
    int64_t      shape[RSD_MAX_NDIM];
    rsd_dtype    dtype;
    plan_object *p;
    int          rank, ndim;

    if (!PyArg_ParseTuple(args, "iUOOO", &rank, &name, &sizes, &from[0], &from[1]))
        return NULL;
    ndim = ints_from(sizes, shape);
    if (ndim < 0)
        return NULL;
    if (rsd_dtype_parse(utf8_of(name), &dtype, &err)) {
        fail_with(c, &err);
        return NULL;
    }
    p = PyObject_New(plan_object, (PyTypeObject *)c->plan);
    if (!p)
        return NULL;
    p->rank = rank;
    p->plan = NULL;
    for (int i = 0; i < 2; i++)
        p->layout[i] = NULL;
    for (int i = 0; i < 2 && (i == 0 || p->layout[0]); i++)
        p->layout[i] = make_layout(c, from[i], dtype, ndim, shape);
    if (p->layout[1] &&
        rsd_plan_create(1, (const rsd_layout *const *)&p->layout[0],
                        (const rsd_layout *const *)&p->layout[1], rank, &p->plan, &err))
        fail_with(c, &err);
    if (!p->plan)
        Py_CLEAR(p);
    return (PyObject *)p;
}

static void plan_dealloc(PyObject *self)
{
    plan_object *p = (plan_object *)self;

    rsd_plan_free(p->plan);
    rsd_layout_free(p->layout[0]);
    rsd_layout_free(p->layout[1]);
    object_free(self);
}

typedef struct move_work {
    work             w;
    shared_comm     *shared;
    PyObject        *keep[3]; /* the Plan and both Views */
    rsd_views        views[2];
    rsd_view        *view[2];
    rsd_reshard_opts opts;
} move_work;

static rsd_err run_move(work *w, rsd_error *err)
{
    move_work         *m = (move_work *)w;
    const plan_object *p = (const plan_object *)m->keep[0];

    return rsd_reshard(p->plan, comm_used(m->shared), &m->views[0], &m->views[1], &m->opts, err);
}

static void free_move(work *w)
{
    move_work *m = (move_work *)w;

    comm_leave(m->shared);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(m->keep[i]);
    free(m->view[0]);
    free(m->view[1]);
    free(m);
}

/* The boxes of one side in the memory of a View, which must have the right size. */
static int take_views(move_work *m, const plan_object *p, int side, const view *from)
{
    int64_t elements = 1, bytes = rsd_layout_bytes(p->layout[side], p->rank);
    size_t  n = rsd_layout_views(p->layout[side], p->rank, from->data, NULL, 0);

    for (int d = 0; d < from->ndim; d++)
        elements *= from->shape[d];
    if (elements * (int64_t)rsd_dtype_size(from->dtype) != bytes) {
        PyErr_Format(PyExc_ValueError, "the %s has %lld bytes where %lld are expected",
                     side ? "target" : "source",
                     (long long)(elements * (int64_t)rsd_dtype_size(from->dtype)),
                     (long long)bytes);
        return -1;
    }
    m->view[side] = calloc(n + 1, sizeof(*m->view[side]));
    if (!m->view[side]) {
        PyErr_NoMemory();
        return -1;
    }
    rsd_layout_views(p->layout[side], p->rank, from->data, m->view[side], n);
    m->views[side] = (rsd_views){ n, m->view[side] };
    return 0;
}

/* run(comm, source, target, direct): Views of packed memory */
static PyObject *plan_run(PyObject *self, PyObject *args)
{
    core      *c = core_of(self);
    PyObject  *comm, *from[2];
    move_work *m;
    int        direct, good = 0;

    if (!PyArg_ParseTuple(args, "O!O!O!p", c->comm, &comm, c->view, &from[0], c->view, &from[1],
                          &direct))
        return NULL;
    m = (move_work *)work_new(sizeof(*m), run_move, free_move);
    if (!m)
        return NULL;
    m->opts =
        (rsd_reshard_opts){ .size = sizeof(m->opts), .direct = direct ? RSD_DEFAULT : RSD_NEVER };
    m->keep[0] = Py_NewRef(self);
    for (int i = 0; i < 2; i++)
        m->keep[i + 1] = Py_NewRef(from[i]);
    if (take_views(m, (plan_object *)self, 0, (view *)from[0]) == 0 &&
        take_views(m, (plan_object *)self, 1, (view *)from[1]) == 0 &&
        (m->shared = comm_enter(comm)) != NULL) {
        m->w.comm = comm_used(m->shared);
        good = work_run(c, &m->w, WORK_DONE, NULL) == 0;
    }
    work_free(c, &m->w);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef plan_methods[] = {
    { "run", plan_run, METH_VARARGS, "run(comm, source, target, direct); all ranks call it" },
    { 0 },
};

static PyType_Slot plan_slots[] = {
    { Py_tp_doc, "What one rank does to change a tensor from one layout to another." },
    { Py_tp_dealloc, plan_dealloc },
    { Py_tp_methods, plan_methods },
    { 0 },
};

PyType_Spec plan_spec = {
    .name = "reshard._core.Plan",
    .basicsize = sizeof(plan_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = plan_slots,
};
