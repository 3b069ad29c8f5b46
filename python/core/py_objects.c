/* SPDX-License-Identifier: Apache-2.0 */
/* What an open checkpoint holds besides tensors, and what is lost of it: methods of Ckpt. */
#include "py_core.h"

#include <stdlib.h>

/* object_names() -> [name of object 0, ...] */
PyObject *ckpt_object_names(PyObject *self, PyObject *none)
{
    rsd_ckpt    *k = ckpt_of(self);
    const size_t n = k ? rsd_ckpt_objects(k) : 0;
    PyObject    *list = k ? PyList_New((Py_ssize_t)n) : NULL;
    rsd_error    err = { .rank = -1 };
    const char  *name;

    (void)none;
    for (size_t i = 0; list && i < n; i++) {
        PyObject *text = NULL;

        if (rsd_ckpt_object(k, i, &name, NULL, NULL, &err))
            fail_with(core_of(self), &err);
        else
            text = name_of(name);
        if (!text)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, text);
    }
    return list;
}

typedef struct object_work {
    work             w;
    opened          *from;
    size_t           i;
    rsd_values      *owner;
    const rsd_value *value;
} object_work;

static rsd_err run_object(work *w, rsd_error *err)
{
    object_work *o = (object_work *)w;
    const char  *name;
    rsd_err      rc = rsd_values_create(&o->owner, err);

    return rc ? rc : rsd_ckpt_object(ckpt_opened(o->from), o->i, &name, o->owner, &o->value, err);
}

static void free_object(work *w)
{
    object_work *o = (object_work *)w;

    ckpt_leave(o->from);
    rsd_values_free(o->owner);
    free(o);
}

/* object(i, hook) -> its value; see value_to_python */
PyObject *ckpt_object(PyObject *self, PyObject *args)
{
    core        *c = core_of(self);
    PyObject    *hook, *result = NULL;
    Py_ssize_t   i;
    object_work *o;

    if (!ckpt_of(self) || !PyArg_ParseTuple(args, "nO", &i, &hook))
        return NULL;
    o = (object_work *)work_new(sizeof(*o), run_object, free_object);
    if (!o)
        return NULL;
    o->from = ckpt_enter(self);
    o->i = (size_t)i;
    if (work_inline(c, &o->w) == 0)
        result = value_to_python(c, o->value, hook);
    work_free(c, &o->w);
    return result;
}

static int append_new(PyObject *list, PyObject *item)
{
    int rc = item ? PyList_Append(list, item) : -1;

    Py_XDECREF(item);
    return rc;
}

/* A list of names, up to the first that is NULL. */
static PyObject *names_from(PyObject *self, const char *(*get)(const rsd_ckpt *, size_t))
{
    rsd_ckpt   *k = ckpt_of(self);
    PyObject   *list = k ? PyList_New(0) : NULL;
    const char *name;

    for (size_t i = 0; list && (name = get(k, i)); i++)
        if (append_new(list, name_of(name)) < 0)
            Py_CLEAR(list);
    return list;
}

/* lost() -> names of tensors in missing files */
PyObject *ckpt_lost(PyObject *self, PyObject *none)
{
    (void)none;
    return names_from(self, rsd_ckpt_lost);
}

/* skipped() -> unknown attributes of the metadata */
PyObject *ckpt_skipped(PyObject *self, PyObject *none)
{
    (void)none;
    return names_from(self, rsd_ckpt_skipped);
}

/* notes() -> [(name, note), ...] */
PyObject *ckpt_notes(PyObject *self, PyObject *none)
{
    rsd_ckpt   *k = ckpt_of(self);
    PyObject   *list = k ? PyList_New(0) : NULL;
    const char *name, *why;

    (void)none;
    for (size_t i = 0; list && rsd_ckpt_note(k, i, &name, &why); i++)
        if (append_new(list, Py_BuildValue("Ns", name_of(name), why)) < 0)
            Py_CLEAR(list);
    return list;
}

/* object_healths() -> ["whole", "damaged" or "gone", ...] */
PyObject *ckpt_object_healths(PyObject *self, PyObject *none)
{
    static const char *const word[] = { "whole", "damaged", "gone" };
    rsd_ckpt                *k = ckpt_of(self);
    PyObject                *list = k ? PyList_New(0) : NULL;

    (void)none;
    for (size_t i = 0; list && i < rsd_ckpt_objects(k); i++)
        if (append_new(list, PyUnicode_FromString(word[rsd_ckpt_object_health(k, i)])) < 0)
            Py_CLEAR(list);
    return list;
}
