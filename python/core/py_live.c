/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors between ranks: plans, which are made once and run often, and stashes. Memory comes as
 * Views of packed tensors, which is how torch keeps a DTensor's local part. */
#include "py_core.h"

#include <reshard/reshard_live.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Plan ---- */

typedef struct plan_object {
    PyObject  ob_base;
    int32_t   rank;
    spread   *side[2]; /* source and target */
    rsd_plan *plan;
} plan_object;

/* plan(rank, source, target) -> Plan; both are Layouts */
PyObject *core_plan(PyObject *module, PyObject *args)
{
    core             *c = PyModule_GetState(module);
    PyObject         *from[2];
    const rsd_layout *layout[2];
    rsd_error         err = { .rank = -1 };
    rsd_plan         *plan = NULL;
    plan_object      *p;
    int               rank;

    if (!PyArg_ParseTuple(args, "iO!O!", &rank, c->layout, &from[0], c->layout, &from[1]))
        return NULL;
    for (int i = 0; i < 2; i++)
        layout[i] = ((const spread *)from[i])->layout;
    if (rsd_plan_create(1, &layout[0], &layout[1], rank, &plan, &err)) {
        fail_with(c, &err);
        return NULL;
    }
    p = PyObject_New(plan_object, (PyTypeObject *)c->plan);
    if (!p) {
        rsd_plan_free(plan);
        return NULL;
    }
    p->rank = rank;
    p->plan = plan;
    for (int i = 0; i < 2; i++)
        p->side[i] = (spread *)Py_NewRef(from[i]);
    return (PyObject *)p;
}

static void plan_dealloc(PyObject *self)
{
    plan_object *p = (plan_object *)self;

    rsd_plan_free(p->plan);
    for (int i = 0; i < 2; i++)
        Py_DECREF((PyObject *)p->side[i]);
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
    const rsd_layout *layout = p->side[side]->layout;
    int64_t           elements = 1, bytes = rsd_layout_bytes(layout, p->rank);
    size_t            n = rsd_layout_views(layout, p->rank, from->data, NULL, 0);

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
    if (side == 1)
        expect_writes(from->data, (size_t)bytes);
    rsd_layout_views(layout, p->rank, from->data, m->view[side], n);
    m->views[side] = (rsd_views){ n, m->view[side] };
    return 0;
}

/* run(comm, source, target, direct): Views of packed memory, of which the target is new */
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
