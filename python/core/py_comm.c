/* SPDX-License-Identifier: Apache-2.0 */
/* Comms: ranks that are processes. The functions through which they meet are Python's; they are
 * called only while a comm is created, by the thread that creates it. Collective calls are works
 * (py_work.c) that enter the comm first: one at a time. */
#include "py_core.h"

#include <reshard/reshard_live.h>
#include <reshard/reshard_plugin.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

struct shared_comm {
    rsd_comm *comm;   /* NULL: closed */
    long      owners; /* the Comm and the works that use it; guarded by the GIL */
    bool      busy;
};

typedef struct comm_object {
    PyObject     ob_base;
    shared_comm *shared;
    PyObject    *weak;
} comm_object;

/* ---- the functions of a meeting ---- */

typedef struct callbacks {
    PyObject      *put, *get, *dial;
    PyThreadState *thread; /* while the GIL is released */
    PyObject      *raised; /* the first exception */
} callbacks;

/* Keeps an exception, or makes a timeout an error of the library. */
static rsd_err caught(callbacks *cb, const char *what, rsd_error *err)
{
    PyObject *type, *value, *trace;

    if (PyErr_ExceptionMatches(PyExc_TimeoutError)) {
        PyErr_Clear();
        snprintf(err->msg, sizeof(err->msg), "%s timed out", what);
        return (rsd_err)(err->code = RSD_E_TIMEOUT);
    }
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace)
        PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    if (!cb->raised)
        cb->raised = value;
    else
        Py_XDECREF(value);
    snprintf(err->msg, sizeof(err->msg), "%s raised an exception", what);
    return (rsd_err)(err->code = RSD_E_COMM);
}

static rsd_err put(void *arg, const char *key, const void *data, size_t bytes, rsd_error *err)
{
    callbacks *cb = arg;
    PyObject  *result;
    rsd_err    rc = RSD_OK;

    PyEval_RestoreThread(cb->thread);
    result = PyObject_CallFunction(cb->put, "sy#", key, (const char *)data, (Py_ssize_t)bytes);
    if (!result)
        rc = caught(cb, "put", err);
    Py_XDECREF(result);
    cb->thread = PyEval_SaveThread();
    return rc;
}

static rsd_err get(void *arg, const char *key, int64_t timeout_ms,
                   void (*take)(void *to, const void *data, size_t bytes), void *to, rsd_error *err)
{
    callbacks *cb = arg;
    PyObject  *result;
    char      *data;
    Py_ssize_t bytes;
    rsd_err    rc = RSD_OK;

    PyEval_RestoreThread(cb->thread);
    result = PyObject_CallFunction(cb->get, "sd", key, (double)timeout_ms / 1000);
    if (result && PyBytes_AsStringAndSize(result, &data, &bytes) == 0)
        take(to, data, (size_t)bytes);
    else
        rc = caught(cb, "get", err);
    Py_XDECREF(result);
    cb->thread = PyEval_SaveThread();
    return rc;
}

/* The descriptors that dial returned. */
static int take_fds(PyObject *list, int32_t n, int *fd)
{
    for (int32_t i = 0; i < n; i++) {
        PyObject *x = PySequence_GetItem(list, i);

        fd[i] = x ? (int)PyLong_AsLong(x) : -1;
        Py_XDECREF(x);
        if (fd[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static rsd_err dial(void *arg, int32_t n, const int32_t *rank, int *fd, rsd_error *err)
{
    callbacks *cb = arg;
    PyObject  *ranks, *result = NULL;
    rsd_err    rc = RSD_OK;

    PyEval_RestoreThread(cb->thread);
    ranks = PyTuple_New(n);
    for (int32_t i = 0; i < n && ranks; i++)
        PyTuple_SetItem(ranks, i, PyLong_FromLong(rank[i]));
    if (ranks)
        result = PyObject_CallFunctionObjArgs(cb->dial, ranks, NULL);
    if (!result || take_fds(result, n, fd) < 0)
        rc = caught(cb, "dial", err);
    Py_XDECREF(ranks);
    Py_XDECREF(result);
    cb->thread = PyEval_SaveThread();
    return rc;
}

/* ---- users ---- */

static void drop(shared_comm *s)
{
    rsd_comm *comm = s->comm;

    if (--s->owners > 0)
        return;
    Py_BEGIN_ALLOW_THREADS rsd_comm_free(comm);
    Py_END_ALLOW_THREADS   free(s);
}

shared_comm *comm_enter(PyObject *self)
{
    shared_comm *s = ((comm_object *)self)->shared;

    if (!s || !s->comm || s->busy) {
        PyErr_SetString(s && s->comm ? PyExc_RuntimeError : PyExc_ValueError,
                        s && s->comm ? "another thread is using this comm" : "the comm is closed");
        return NULL;
    }
    s->busy = true;
    s->owners++;
    return s;
}

rsd_comm *comm_used(const shared_comm *s)
{
    return s->comm;
}

rsd_comm *comm_to_abort(PyObject *self)
{
    const shared_comm *s = ((comm_object *)self)->shared;

    return s ? s->comm : NULL;
}

void comm_leave(shared_comm *s)
{
    if (!s)
        return;
    s->busy = false;
    drop(s);
}

/* ---- Comm ---- */

static comm_object *make(core *c, rsd_comm *comm)
{
    comm_object *self = PyObject_New(comm_object, (PyTypeObject *)c->comm);

    if (self) {
        self->weak = NULL;
        self->shared = calloc(1, sizeof(*self->shared));
    }
    if (!self || !self->shared) {
        Py_XDECREF((PyObject *)self);
        rsd_comm_free(comm);
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return NULL;
    }
    *self->shared = (shared_comm){ .comm = comm, .owners = 1 };
    return self;
}

/* meet(rank, size, put, get, dial, near, seconds) -> Comm. dial "ucx": over UCX. */
PyObject *core_meet(PyObject *module, PyObject *args)
{
    core       *c = PyModule_GetState(module);
    callbacks   cb = { 0 };
    rsd_meeting with = { .size = sizeof(with), .arg = &cb, .put = put, .get = get };
    rsd_error   err = { .rank = -1 };
    rsd_comm   *comm = NULL;
    int         rank, size, near;
    bool        ucx;
    double      seconds;
    rsd_err     rc;

    if (!PyArg_ParseTuple(args, "iiOOOpd", &rank, &size, &cb.put, &cb.get, &cb.dial, &near,
                          &seconds))
        return NULL;
    ucx = PyUnicode_Check(cb.dial);
    with.dial = cb.dial != Py_None && !ucx ? dial : NULL;
    with.near = near ? RSD_DEFAULT : RSD_NEVER;
    with.timeout_ms = (int64_t)(seconds * 1000);
    cb.thread = PyEval_SaveThread();
    rc = ucx ? rsd_comm_create_ucx(rank, size, &with, &comm, &err)
             : rsd_comm_create_processes(rank, size, &with, &comm, &err);
    PyEval_RestoreThread(cb.thread);
    if (!rc) {
        Py_XDECREF(cb.raised);
        return (PyObject *)make(c, comm);
    }
    if (cb.raised) {
        PyErr_SetObject((PyObject *)Py_TYPE(cb.raised), cb.raised);
        Py_DECREF(cb.raised);
    } else {
        fail_with(c, &err);
    }
    return NULL;
}

typedef struct split_work {
    work         w;
    shared_comm *shared;
    int32_t     *ranks; /* [n] */
    int32_t      n;
    rsd_comm    *out;
} split_work;

static rsd_err run_split(work *w, rsd_error *err)
{
    split_work *s = (split_work *)w;

    return rsd_comm_split(s->shared->comm, s->n, s->ranks, &s->out, err);
}

static void free_split(work *w)
{
    split_work *s = (split_work *)w;

    rsd_comm_free(s->out);
    comm_leave(s->shared);
    free(s->ranks);
    free(s);
}

static int take_ranks(split_work *s, PyObject *list)
{
    Py_ssize_t n = PySequence_Size(list);

    s->ranks = n < 0 ? NULL : calloc((size_t)n + 1, sizeof(s->ranks[0]));
    if (!s->ranks) {
        if (n >= 0)
            PyErr_NoMemory();
        return -1;
    }
    s->n = (int32_t)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *x = PySequence_GetItem(list, i);

        s->ranks[i] = x ? (int32_t)PyLong_AsLong(x) : -1;
        Py_XDECREF(x);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* split(ranks) -> a Comm of these ranks, None if there are none. All ranks call it. */
static PyObject *comm_split(PyObject *self, PyObject *ranks)
{
    core       *c = core_of(self);
    split_work *s = (split_work *)work_new(sizeof(*s), run_split, free_split);
    PyObject   *result = NULL;

    if (!s)
        return NULL;
    if (take_ranks(s, ranks) == 0)
        s->shared = comm_enter(self);
    if (s->shared) {
        s->w.comm = s->shared->comm;
        if (work_run(c, &s->w, WORK_DONE, NULL) == 0) {
            result = s->out ? (PyObject *)make(c, s->out) : Py_NewRef(Py_None);
            s->out = NULL;
        }
    }
    work_free(c, &s->w);
    return result;
}

/* Waits for all ranks. */
static PyObject *comm_barrier(PyObject *self, PyObject *none)
{
    PyObject *nobody = PyTuple_New(0);
    PyObject *result = nobody ? comm_split(self, nobody) : NULL;

    (void)none;
    Py_XDECREF(nobody);
    return result;
}

static PyObject *comm_abort(PyObject *self, PyObject *why)
{
    const shared_comm *s = ((comm_object *)self)->shared;
    const char        *text = utf8_of(why);

    if (!text)
        return NULL;
    if (s && s->comm)
        rsd_comm_abort(s->comm, text);
    return Py_NewRef(Py_None);
}

static PyObject *comm_set_timeout(PyObject *self, PyObject *seconds)
{
    shared_comm *s = ((comm_object *)self)->shared;
    double       value = PyFloat_AsDouble(seconds);
    rsd_error    err = { .rank = -1 };

    if (value == -1.0 && PyErr_Occurred())
        return NULL;
    s = comm_enter(self);
    if (!s)
        return NULL;
    if (rsd_comm_set_timeout(s->comm, (int64_t)(value * 1000), &err))
        fail_with(core_of(self), &err);
    comm_leave(s);
    return err.code ? NULL : Py_NewRef(Py_None);
}

/* Frees it, or leaves that to the call that still uses it. */
static PyObject *comm_close(PyObject *self, PyObject *none)
{
    comm_object *o = (comm_object *)self;
    shared_comm *s = o->shared;

    (void)none;
    o->shared = NULL;
    if (s)
        drop(s);
    return Py_NewRef(Py_None);
}

static void comm_dealloc(PyObject *self)
{
    comm_object *o = (comm_object *)self;

    if (o->weak)
        PyObject_ClearWeakRefs(self);
    if (o->shared)
        drop(o->shared);
    object_free(self);
}

static PyObject *get_number(PyObject *self, void *size)
{
    const shared_comm *s = ((comm_object *)self)->shared;

    if (!s) {
        PyErr_SetString(PyExc_ValueError, "the comm is closed");
        return NULL;
    }
    return PyLong_FromLong(size ? rsd_comm_size(s->comm) : rsd_comm_rank(s->comm));
}

static PyObject *get_closed(PyObject *self, void *none)
{
    (void)none;
    return PyBool_FromLong(!((comm_object *)self)->shared);
}

static PyMethodDef methods[] = {
    { "split", comm_split, METH_O, "split(ranks) -> a Comm of these ranks; all ranks call it" },
    { "barrier", comm_barrier, METH_NOARGS, "Waits for all ranks." },
    { "abort", comm_abort, METH_O, "abort(why): every rank's calls fail from now on" },
    { "set_timeout", comm_set_timeout, METH_O, "set_timeout(seconds), the same on all ranks" },
    { "close", comm_close, METH_NOARGS, "Frees it; what was made with it first." },
    { 0 },
};

static PyGetSetDef numbers[] = {
    { "rank", get_number, NULL, "this rank", NULL },
    { "size", get_number, NULL, "number of ranks", "" },
    { "closed", get_closed, NULL, "close() was called", NULL },
    { 0 },
};

static PyMemberDef offsets[] = {
    { "__weaklistoffset__", T_PYSSIZET, offsetof(comm_object, weak), READONLY, NULL },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "Ranks that are processes." },
    { Py_tp_dealloc, comm_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, numbers },
    { Py_tp_members, offsets },
    { 0 },
};

PyType_Spec comm_spec = {
    .name = "reshard._core.Comm",
    .basicsize = sizeof(comm_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
