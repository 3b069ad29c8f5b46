/* SPDX-License-Identifier: Apache-2.0 */
/* Saving a dict, now or in the background. A save in the background is a work that has reached
 * WORK_STAGED: the tensors are free again, the thread waits until the checkpoint is published. */
#include "py_core.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include <unistd.h>

typedef struct save_work {
    work          w;
    char         *path, *transform;
    rsd_state    *state;
    rsd_values   *values;
    rsd_save_opts opts;
    rsd_stage_way how;   /* 0: not in the background */
    rsd_op       *op;    /* guarded by w.lock */
    PyObject     *tree;  /* keeps the tensors until they are staged */
    PyObject     *held;  /* a State instead of a tree: it has `state` */
    shared_comm  *ranks; /* NULL: this process alone */
} save_work;

typedef struct saving {
    PyObject   ob_base;
    save_work *save; /* NULL: done, and its result was reported */
    PyObject  *weak;
} saving;

/* ---- without the GIL ---- */

/* Memory that other processes share is not copied by a fork: that falls back to copying. */
static rsd_err begin(save_work *s, rsd_op **op, rsd_error *err)
{
    rsd_err rc = rsd_save_begin(s->path, s->w.comm, s->state, s->how, &s->opts, op, err);

    if (rc == RSD_E_UNSUPPORTED && s->how == RSD_STAGE_FORK)
        rc = rsd_save_begin(s->path, s->w.comm, s->state, RSD_STAGE_COPY, &s->opts, op, err);
    return rc;
}

static void set_op(save_work *s, rsd_op *op)
{
    pthread_mutex_lock(&s->w.lock);
    s->op = op;
    pthread_mutex_unlock(&s->w.lock);
}

static rsd_err run_save(work *w, rsd_error *err)
{
    save_work *s = (save_work *)w;
    rsd_op    *op = NULL;
    rsd_err    rc;

    if (!s->how)
        return rsd_save(s->path, s->w.comm, s->state, &s->opts, err);
    rc = begin(s, &op, err);
    if (rc)
        return rc;
    set_op(s, op);
    if (atomic_load(&w->cancel))
        rsd_op_cancel(op);
    work_reach(w, WORK_STAGED);
    rc = rsd_op_wait(op, RSD_DURABLE, err);
    set_op(s, NULL);
    rsd_op_free(op);
    return rc;
}

/* ---- with it ---- */

static void free_save(work *w)
{
    save_work *s = (save_work *)w;

    if (!s->held)
        rsd_state_free(s->state);
    rsd_values_free(s->values);
    Py_XDECREF(s->held);
    comm_leave(s->ranks);
    Py_XDECREF(s->tree);
    free(s->path);
    free(s->transform);
    free(s);
}

static int fill(core *c, save_work *s, const char *layout)
{
    rsd_error  err = { .rank = -1 };
    rsd_rules *rules = NULL;
    rsd_err    rc = rsd_rules_parse(layout ? layout : "mesh one=1; * replicate", &rules, &err);
    int        filled;

    if (!rc)
        rc = rsd_state_create(&s->state, &err);
    if (!rc)
        rc = rsd_values_create(&s->values, &err);
    filled = rc ? fail_with(c, &err) : state_fill(c, s->tree, s->state, s->values, rules);
    rsd_rules_free(rules);
    return filled;
}

static PyObject *in_background(core *c, save_work *s)
{
    saving *result = PyObject_New(saving, (PyTypeObject *)c->saving);

    if (!result)
        return NULL;
    result->weak = NULL;
    result->save = s;
    Py_CLEAR(s->tree);
    if (s->held)
        state_staged((rank_state *)s->held);
    return (PyObject *)result;
}

/* Takes the strings of the call; the work is freed by the caller. */
static int prepare(core *c, save_work *s, PyObject *path, const char *transform, const char *layout)
{
    s->path = strdup(PyBytes_AsString(path));
    s->transform = transform ? strdup(transform) : NULL;
    if (!s->path || (transform && !s->transform)) {
        PyErr_NoMemory();
        return -1;
    }
    s->opts.size = sizeof(s->opts);
    s->opts.transform = s->transform;
    s->opts.on_progress = work_progress;
    s->opts.arg = &s->w;
    if (!Py_IS_TYPE(s->tree, (PyTypeObject *)c->state))
        return fill(c, s, layout);
    s->held = s->tree;
    s->tree = NULL;
    s->state = state_of((rank_state *)s->held);
    return 0;
}

/* save(path, tree or State, *, stage, format, overwrite, sync, shard_size, transform, threads,
 * max_memory, checksum, layout, progress, comm, uneven, check_equal) -> None, or a Saving if
 * `stage` is not 0 */
PyObject *core_save(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char       *names[] = { "path",        "tree",       "stage",     "format",  "overwrite",
                                   "sync",        "shard_size", "transform", "threads", "max_memory",
                                   "checksum",    "layout",     "progress",  "comm",    "uneven",
                                   "check_equal", NULL };
    core              *c = PyModule_GetState(module);
    PyObject          *path = NULL, *tree, *progress = Py_None, *comm = Py_None, *result = NULL;
    const char        *transform = NULL, *layout = NULL;
    int                stage = 0, format = 0, overwrite = 0, sync = 0, threads = 0, checksum = 0;
    int                uneven = 0, check_equal = 0;
    unsigned long long shard_size = 0;
    Py_ssize_t         max_memory = 0;
    save_work         *s;

    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O&O|$iipiKzinizOOpp", names, PyUnicode_FSConverter, &path, &tree, &stage,
            &format, &overwrite, &sync, &shard_size, &transform, &threads, &max_memory, &checksum,
            &layout, &progress, &comm, &uneven, &check_equal))
        return NULL;
    s = (save_work *)work_new(sizeof(*s), run_save, free_save);
    if (s) {
        s->w.writes = true;
        s->how = (rsd_stage_way)stage;
        s->tree = Py_NewRef(tree);
        s->opts = (rsd_save_opts){ .format = (rsd_format)format,
                                   .overwrite = overwrite,
                                   .sync = (rsd_choice)sync,
                                   .shard_size = shard_size,
                                   .threads = threads,
                                   .max_memory = (size_t)max_memory,
                                   .checksum = (rsd_choice)checksum,
                                   .uneven_keys = uneven,
                                   .check_equal = check_equal };
        if (ranks_enter(comm, &s->w, &s->ranks) == 0 &&
            prepare(c, s, path, transform, layout) == 0 &&
            work_run(c, &s->w, stage ? WORK_STAGED : WORK_DONE, progress) == 0)
            result = stage ? in_background(c, s) : Py_NewRef(Py_None);
        if (!stage || !result)
            work_free(c, &s->w);
    }
    Py_DECREF(path);
    return result;
}

/* ---- Saving ---- */

/* wait(seconds, negative: as long as it takes) -> whether it is done; raises if it failed */
static PyObject *saving_wait(PyObject *self, PyObject *args)
{
    saving   *s = (saving *)self;
    PyObject *progress;
    double    seconds;
    int       done;

    if (!PyArg_ParseTuple(args, "dO", &seconds, &progress))
        return NULL;
    if (!s->save)
        return Py_NewRef(Py_True);
    done = work_wait(core_of(self), &s->save->w, WORK_DONE, seconds, progress);
    if (done == 1 || (done < 0 && s->save->w.joined)) {
        work_free(core_of(self), &s->save->w);
        s->save = NULL;
    }
    return done < 0 ? NULL : PyBool_FromLong(done);
}

static PyObject *saving_cancel(PyObject *self, PyObject *none)
{
    saving *s = (saving *)self;

    (void)none;
    if (s->save) {
        atomic_store(&s->save->w.cancel, true);
        pthread_mutex_lock(&s->save->w.lock);
        if (s->save->op)
            rsd_op_cancel(s->save->op);
        pthread_mutex_unlock(&s->save->w.lock);
    }
    return Py_NewRef(Py_None);
}

/* Waits: memory that is still to be written goes with it. Nobody asked for the result, so that a
 * failure is reported as one that can't be raised. */
static void saving_dealloc(PyObject *self)
{
    saving    *s = (saving *)self;
    save_work *save = s->save;
    PyObject  *type, *value, *trace, *result;

    if (s->weak)
        PyObject_ClearWeakRefs(self);
    if (save && save->w.process == getpid()) {
        PyErr_Fetch(&type, &value, &trace);
        work_join(&save->w);
        if (save->w.rc) {
            fail_with(core_of(self), &save->w.err);
            result = PyUnicode_FromFormat("saving to \"%s\"", save->path);
            PyErr_WriteUnraisable(result);
            Py_XDECREF(result);
        }
        work_free(core_of(self), &save->w);
        PyErr_Restore(type, value, trace);
    }
    object_free(self);
}

static PyMethodDef methods[] = {
    { "wait", saving_wait, METH_VARARGS, "wait(seconds, progress) -> whether it is done" },
    { "cancel", saving_cancel, METH_NOARGS, "Asks it to end early." },
    { 0 },
};

static PyMemberDef offsets[] = {
    { "__weaklistoffset__", T_PYSSIZET, offsetof(saving, weak), READONLY, NULL },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "A save in the background." },
    { Py_tp_dealloc, saving_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_members, offsets },
    { 0 },
};

PyType_Spec saving_spec = {
    .name = "reshard._core.Saving",
    .basicsize = sizeof(saving),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
