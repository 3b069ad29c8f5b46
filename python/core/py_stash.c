/* SPDX-License-Identifier: Apache-2.0 */
/* Stash: tensors that equal ranks keep in parts. Freeing one takes all ranks, so that dropping the
 * object does not do it; its memory then stays until the process ends. */
#include "py_core.h"

#include <reshard/reshard_live.h>

#include <stdlib.h>

typedef struct stash_object {
    PyObject   ob_base;
    PyObject  *comm; /* aborted when a call is interrupted */
    rsd_stash *stash;
    bool       busy;
} stash_object;

typedef enum stash_call { STASH_CREATE, STASH_SAVE, STASH_TAKE, STASH_FREE } stash_call;

typedef struct stash_work {
    work           w;
    stash_call     call;
    stash_object  *self; /* owned */
    shared_comm   *shared;
    PyObject      *memory; /* a View, or NULL */
    rsd_stash_opts opts;
    rsd_stashed    saved;
    bool           refused;
} stash_work;

static rsd_err run_stash(work *w, rsd_error *err)
{
    stash_work *s = (stash_work *)w;
    const view *v = (const view *)s->memory;
    size_t      bytes = 0;
    rsd_err     rc = RSD_OK;

    if (v) {
        bytes = rsd_dtype_size(v->dtype);
        for (int d = 0; d < v->ndim; d++)
            bytes *= (size_t)v->shape[d];
    }
    switch (s->call) {
    case STASH_CREATE:
        return rsd_stash_create(comm_used(s->shared), &s->opts, &s->self->stash, err);
    case STASH_SAVE:
        rc = rsd_stash_save(s->self->stash, v->dtype, v->ndim, v->shape, v->data, true, &s->saved,
                            err);
        s->refused = rc == RSD_E_NOMEM;
        return s->refused ? RSD_OK : rc;
    case STASH_TAKE:
        return rsd_stash_take(&s->saved, v->data, bytes, err);
    case STASH_FREE:
        rsd_stash_free(s->self->stash);
        s->self->stash = NULL;
        break;
    }
    return rc;
}

static void free_stash_work(work *w)
{
    stash_work *s = (stash_work *)w;

    comm_leave(s->shared);
    s->self->busy = false;
    Py_DECREF((PyObject *)s->self);
    Py_XDECREF(s->memory);
    free(s);
}

static stash_work *begin(stash_object *self, stash_call call, PyObject *memory)
{
    stash_work *s;

    if (self->busy || (call != STASH_CREATE && !self->stash)) {
        PyErr_SetString(PyExc_ValueError,
                        self->busy ? "another thread is using this stash" : "the stash is closed");
        return NULL;
    }
    s = (stash_work *)work_new(sizeof(*s), run_stash, free_stash_work);
    if (!s)
        return NULL;
    self->busy = true;
    s->call = call;
    s->self = (stash_object *)Py_NewRef((PyObject *)self);
    s->memory = memory ? Py_NewRef(memory) : NULL;
    s->w.comm = comm_to_abort(self->comm);
    return s;
}

/* stash(comm, budget, handles) -> Stash; all ranks call it */
PyObject *core_stash(PyObject *module, PyObject *args)
{
    core         *c = PyModule_GetState(module);
    PyObject     *comm;
    Py_ssize_t    budget, handles;
    stash_object *self;
    stash_work   *s;
    bool          good = false;

    if (!PyArg_ParseTuple(args, "O!nn", c->comm, &comm, &budget, &handles))
        return NULL;
    self = PyObject_New(stash_object, (PyTypeObject *)c->stash);
    if (!self)
        return NULL;
    self->comm = Py_NewRef(comm);
    self->stash = NULL;
    self->busy = false;
    s = begin(self, STASH_CREATE, NULL);
    if (s) {
        s->opts = (rsd_stash_opts){ .size = sizeof(s->opts), .budget = (size_t)budget };
        s->opts.handles = (size_t)handles;
        s->shared = comm_enter(comm);
        good = s->shared && work_run(c, &s->w, WORK_DONE, NULL) == 0;
        work_free(c, &s->w);
    }
    if (!good)
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* save(view) -> (number, slot); None: it does not fit, on no rank */
static PyObject *stash_save(PyObject *self, PyObject *memory)
{
    core       *c = core_of(self);
    stash_work *s;
    PyObject   *result = NULL;

    if (!Py_IS_TYPE(memory, (PyTypeObject *)c->view)) {
        PyErr_SetString(PyExc_TypeError, "a View is saved");
        return NULL;
    }
    s = begin((stash_object *)self, STASH_SAVE, memory);
    if (!s)
        return NULL;
    if (work_run(c, &s->w, WORK_DONE, NULL) == 0)
        result = s->refused ? Py_NewRef(Py_None)
                            : Py_BuildValue("Kn", (unsigned long long)s->saved.number,
                                            (Py_ssize_t)s->saved.slot);
    work_free(c, &s->w);
    return result;
}

/* take(number, slot, view): fills the view with the whole tensor; all ranks call it */
static PyObject *stash_take(PyObject *self, PyObject *args)
{
    core              *c = core_of(self);
    PyObject          *memory;
    unsigned long long number;
    Py_ssize_t         slot;
    stash_work        *s;
    int                good;

    if (!PyArg_ParseTuple(args, "KnO!", &number, &slot, c->view, &memory))
        return NULL;
    s = begin((stash_object *)self, STASH_TAKE, memory);
    if (!s)
        return NULL;
    s->saved = (rsd_stashed){ ((stash_object *)self)->stash, number, (size_t)slot };
    good = work_run(c, &s->w, WORK_DONE, NULL) == 0;
    work_free(c, &s->w);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *stash_close(PyObject *self, PyObject *none)
{
    core       *c = core_of(self);
    stash_work *s;
    int         good;

    (void)none;
    if (!((stash_object *)self)->stash)
        return Py_NewRef(Py_None);
    s = begin((stash_object *)self, STASH_FREE, NULL);
    if (!s)
        return NULL;
    good = work_run(c, &s->w, WORK_DONE, NULL) == 0;
    work_free(c, &s->w);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *get_held(PyObject *self, void *none)
{
    rsd_stash_stats stats = { .size = sizeof(stats) };
    stash_object   *o = (stash_object *)self;

    (void)none;
    if (o->stash && !o->busy)
        rsd_stash_stats_get(o->stash, &stats, NULL);
    return PyLong_FromLongLong(stats.bytes_held);
}

static void stash_dealloc(PyObject *self)
{
    Py_XDECREF(((stash_object *)self)->comm);
    object_free(self);
}

static PyMethodDef methods[] = {
    { "save", stash_save, METH_O, "save(view) -> (number, slot), or None if it does not fit" },
    { "take", stash_take, METH_VARARGS, "take(number, slot, view); all ranks call it" },
    { "close", stash_close, METH_NOARGS, "Frees it; all ranks call it." },
    { 0 },
};

static PyGetSetDef numbers[] = {
    { "held", get_held, NULL, "bytes that this rank keeps", NULL },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "Tensors that equal ranks keep in parts." },
    { Py_tp_dealloc, stash_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, numbers },
    { 0 },
};

PyType_Spec stash_spec = {
    .name = "reshard._core.Stash",
    .basicsize = sizeof(stash_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
