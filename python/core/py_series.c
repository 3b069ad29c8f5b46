/* SPDX-License-Identifier: Apache-2.0 */
/* Series: the checkpoints of a run. Calls that touch files run in py_work.c. */
#include "py_core.h"

#include <stdlib.h>
#include <string.h>

typedef struct series {
    PyObject    ob_base;
    PyObject   *path;   /* bytes */
    rsd_series *series; /* NULL while a call has it */
} series;

typedef struct series_work {
    work           w;
    rsd_series    *series;
    PyObject      *path;
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

    rsd_series_close(s->series);
    Py_XDECREF(s->path);
    comm_leave(s->ranks);
    free(s->removed);
    free(s);
}

/* Opens a series of its own for a call that found another one under way. If that fails, the call
 * still has to be made, so that all ranks fail. */
static rsd_err own_series(series_work *s, rsd_error *err)
{
    return s->series ? RSD_OK : rsd_series_open(NULL, PyBytes_AsString(s->path), &s->series, err);
}

static rsd_err run_latest(work *w, rsd_error *err)
{
    series_work *s = (series_work *)w;
    rsd_err      rc = own_series(s, err), then;

    then = rsd_series_latest(s->series, w->comm, &s->latest, rc ? NULL : err);
    return rc ? rc : then;
}

static rsd_err run_list(work *w, rsd_error *err)
{
    series_work *s = (series_work *)w;

    return s->series ? rsd_series_list(s->series, err) : own_series(s, err);
}

static rsd_err run_prune(work *w, rsd_error *err)
{
    series_work *s = (series_work *)w;
    rsd_err      rc = own_series(s, err), then;

    then = rsd_series_prune(s->series, w->comm, &s->prune, rc ? NULL : err);
    return rc ? rc : then;
}

static int note_removed(void *arg, const rsd_step *step)
{
    series_work *s = arg;

    if (s->n == s->cap) {
        const size_t cap = 2 * s->cap + 16;
        int64_t     *more = realloc(s->removed, cap * sizeof(*more));

        s->no_memory = s->no_memory || !more;
        if (!more)
            return 0;
        s->removed = more;
        s->cap = cap;
    }
    s->removed[s->n++] = step->step;
    return atomic_load(&s->w.cancel);
}

/* A work that has the series until it is given back: an interrupted one runs on, and other threads
 * may call meanwhile. */
static series_work *work_of(PyObject *self, PyObject *comm, rsd_err (*run)(work *, rsd_error *))
{
    series_work *s = (series_work *)work_new(sizeof(*s), run, free_work);

    if (!s)
        return NULL;
    s->path = Py_NewRef(((series *)self)->path);
    if (ranks_enter(comm, &s->w, &s->ranks) == 0) {
        s->series = ((series *)self)->series;
        ((series *)self)->series = NULL;
        return s;
    }
    work_free(core_of(self), &s->w);
    return NULL;
}

static void give_back(PyObject *self, series_work *s)
{
    if ((!s->w.started || s->w.joined) && !((series *)self)->series) {
        ((series *)self)->series = s->series;
        s->series = NULL;
    }
    work_free(core_of(self), &s->w);
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
        give_back(self, w);
    return list;
}

/* path(step) -> bytes */
static PyObject *series_path(PyObject *self, PyObject *number)
{
    const long long   step = PyLong_AsLongLong(number);
    const rsd_series *s;
    PyObject         *bytes;
    size_t            len;

    if (step == -1 && PyErr_Occurred())
        return NULL;
    if (!((series *)self)->series) { /* another call has it */
        PyObject *steps = series_steps(self, NULL);

        if (!steps)
            return NULL;
        Py_DECREF(steps);
    }
    s = ((series *)self)->series;
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
        give_back(self, w);
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
    w->w.writes = true;
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
    give_back(self, w);
    return result;
}

/* Series(path) */
static PyObject *series_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *path = NULL, *steps = NULL;
    series   *s;

    (void)kwargs;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path))
        return NULL;
    s = (series *)alloc(type, 0);
    if (!s) {
        Py_DECREF(path);
        return NULL;
    }
    s->path = path;
    steps = series_steps((PyObject *)s, NULL);
    if (!steps)
        Py_CLEAR(s);
    Py_XDECREF(steps);
    return (PyObject *)s;
}

static void series_dealloc(PyObject *self)
{
    rsd_series_close(((series *)self)->series);
    Py_XDECREF(((series *)self)->path);
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
