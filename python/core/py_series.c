/* SPDX-License-Identifier: Apache-2.0 */
/* Series: the checkpoints of a run. Calls that touch files run in py_work.c. */
#include "py_core.h"

#include <stdlib.h>
#include <string.h>

typedef struct series {
    PyObject    ob_base;
    rsd_series *series;
} series;

typedef struct series_work {
    work           w;
    rsd_series    *series;
    PyObject      *self;
    shared_comm   *ranks;
    int64_t        latest;
    rsd_prune_opts prune;
    size_t         n, cap;
    int64_t       *removed; /* [n] */
    bool           no_memory;
} series_work;

static void free_work(work *w)
{
    series_work *s = (series_work *)w;

    Py_XDECREF(s->self);
    comm_leave(s->ranks);
    free(s->removed);
    free(s);
}

static rsd_err run_latest(work *w, rsd_error *err)
{
    series_work *s = (series_work *)w;

    return rsd_series_latest(s->series, w->comm, &s->latest, err);
}

static rsd_err run_list(work *w, rsd_error *err)
{
    return rsd_series_list(((series_work *)w)->series, err);
}

static rsd_err run_prune(work *w, rsd_error *err)
{
    series_work *s = (series_work *)w;

    return rsd_series_prune(s->series, w->comm, &s->prune, err);
}

static void note_removed(void *arg, const rsd_step *step)
{
    series_work *s = arg;

    if (s->n == s->cap) {
        const size_t cap = 2 * s->cap + 16;
        int64_t     *more = realloc(s->removed, cap * sizeof(*more));

        s->no_memory = s->no_memory || !more;
        if (!more)
            return;
        s->removed = more;
        s->cap = cap;
    }
    s->removed[s->n++] = step->step;
}

static series_work *work_of(PyObject *self, PyObject *comm, rsd_err (*run)(work *, rsd_error *))
{
    series_work *s = (series_work *)work_new(sizeof(*s), run, free_work);

    if (!s)
        return NULL;
    s->series = ((series *)self)->series;
    s->self = Py_NewRef(self);
    if (ranks_enter(comm, &s->w, &s->ranks) == 0)
        return s;
    work_free(core_of(self), &s->w);
    return NULL;
}

/* steps() -> [(step, name in the folder), ...], after listing again */
static PyObject *series_steps(PyObject *self, PyObject *none)
{
    core        *c = core_of(self);
    series_work *w = work_of(self, Py_None, run_list);
    PyObject    *list = NULL;

    (void)none;
    if (w && work_run(c, &w->w, WORK_DONE, NULL) == 0)
        list = PyList_New(0);
    for (size_t i = 0; list && i < rsd_series_count(w->series); i++) {
        rsd_step  step = { .size = sizeof(step) };
        rsd_error err = { .rank = -1 };
        PyObject *x = NULL;

        if (rsd_series_step(w->series, i, &step, &err))
            fail_with(c, &err);
        else
            x = Py_BuildValue("LN", (long long)step.step, name_of(step.name));
        if (!x || PyList_Append(list, x) < 0)
            Py_CLEAR(list);
        Py_XDECREF(x);
    }
    if (w)
        work_free(c, &w->w);
    return list;
}

/* path(step) -> bytes */
static PyObject *series_path(PyObject *self, PyObject *number)
{
    const rsd_series *s = ((series *)self)->series;
    const long long   step = PyLong_AsLongLong(number);
    PyObject         *bytes;
    size_t            len;

    if (step == -1 && PyErr_Occurred())
        return NULL;
    len = rsd_series_path(s, step, NULL, 0);
    bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)len);
    if (bytes)
        rsd_series_path(s, step, PyBytes_AsString(bytes), len + 1);
    return bytes;
}

/* latest(comm or None) -> step */
static PyObject *series_latest(PyObject *self, PyObject *comm)
{
    series_work *w = work_of(self, comm, run_latest);
    PyObject    *result = NULL;

    if (w && work_run(core_of(self), &w->w, WORK_DONE, NULL) == 0)
        result = PyLong_FromLongLong(w->latest);
    if (w)
        work_free(core_of(self), &w->w);
    return result;
}

/* prune(last, every, dry_run, comm or None) -> steps removed, on the rank that removes them */
static PyObject *series_prune(PyObject *self, PyObject *args)
{
    PyObject    *comm, *result = NULL;
    long long    last, every;
    int          dry_run;
    series_work *w;

    if (!PyArg_ParseTuple(args, "LLpO", &last, &every, &dry_run, &comm))
        return NULL;
    w = work_of(self, comm, run_prune);
    if (!w)
        return NULL;
    w->prune = (rsd_prune_opts){ .size = sizeof(w->prune),
                                 .last = last,
                                 .every = every,
                                 .dry_run = dry_run,
                                 .on_remove = note_removed,
                                 .arg = w };
    if (work_run(core_of(self), &w->w, WORK_DONE, NULL) == 0)
        result = w->no_memory ? PyErr_NoMemory() : PyList_New(0);
    for (size_t i = 0; result && i < w->n; i++) {
        PyObject *x = PyLong_FromLongLong(w->removed[i]);

        if (!x || PyList_Append(result, x) < 0)
            Py_CLEAR(result);
        Py_XDECREF(x);
    }
    work_free(core_of(self), &w->w);
    return result;
}

/* Series(path) */
static PyObject *series_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *path = NULL;
    rsd_error err = { .rank = -1 };
    rsd_err   rc;
    series   *s;

    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path))
        return NULL;
    s = (series *)alloc(type, 0);
    if (s) {
        Py_BEGIN_ALLOW_THREADS rc = rsd_series_open(NULL, PyBytes_AsString(path), &s->series, &err);
        Py_END_ALLOW_THREADS if (rc) fail_with(core_of((PyObject *)s), &err);
    }
    Py_DECREF(path);
    if (s && s->series)
        return (PyObject *)s;
    Py_XDECREF((PyObject *)s);
    return NULL;
}

static void series_dealloc(PyObject *self)
{
    rsd_series_close(((series *)self)->series);
    object_free(self);
}

static PyMethodDef methods[] = {
    { "steps", series_steps, METH_NOARGS, "steps() -> [(step, name), ...]" },
    { "path", series_path, METH_O, "path(step) -> bytes" },
    { "latest", series_latest, METH_O, "latest(comm or None) -> step" },
    { "prune", series_prune, METH_VARARGS, "prune(last, every, dry_run, comm or None) -> steps" },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "The checkpoints of a run." },
    { Py_tp_new, series_new },
    { Py_tp_dealloc, series_dealloc },
    { Py_tp_methods, methods },
    { 0 },
};

PyType_Spec series_spec = {
    .name = "reshard._core.Series",
    .basicsize = sizeof(series),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
