/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of Ckpt for reshard/torch, which builds torch's metadata from them: everything about all
 * tensors and objects in one call, and the bytes of an object as they were stored. */
#include "py_core.h"

#include <stdlib.h>
#include <string.h>

/* ---- names and boxes ---- */

/* The path to a name as DCP writes it: str for keys of dicts, int for indices of lists. None: the
 * format keeps none. */
static PyObject *path_of(rsd_ckpt *k, const char *name)
{
    rsd_path_part part[RSD_VALUE_MAX_DEPTH];
    const size_t  n = rsd_ckpt_path(k, name, part, RSD_VALUE_MAX_DEPTH);
    PyObject     *tuple;

    if (n == 0 || n > RSD_VALUE_MAX_DEPTH)
        return Py_NewRef(Py_None);
    tuple = PyTuple_New((Py_ssize_t)n);
    for (size_t i = 0; tuple && i < n; i++) {
        PyObject *step = part[i].key ? name_of(part[i].key) : PyLong_FromLongLong(part[i].index);

        if (!step)
            Py_CLEAR(tuple);
        else
            PyTuple_SetItem(tuple, (Py_ssize_t)i, step);
    }
    return tuple;
}

/* Offsets and sizes of all chunks, as the bytes of int64s: tensors that are cut alike compare equal
 * cheaply. */
static PyObject *boxes_of(core *c, rsd_ckpt *k, size_t t, const rsd_tensor_info *info)
{
    const size_t ndim = (size_t)info->ndim, row = 2 * ndim * sizeof(int64_t);
    char        *at = malloc(info->chunks * row + 1);
    rsd_error    err = { .rank = -1 };
    PyObject    *result = NULL;
    rsd_err      rc = RSD_OK;

    if (!at)
        return PyErr_NoMemory();
    for (size_t i = 0; i < info->chunks && !rc; i++) {
        rsd_chunk chunk = { .size = sizeof(chunk) };

        rc = rsd_ckpt_chunk(k, t, i, &chunk, &err);
        memcpy(at + i * row, chunk.box.off, ndim * sizeof(int64_t));
        memcpy(at + i * row + row / 2, chunk.box.len, ndim * sizeof(int64_t));
    }
    if (rc)
        fail_with(c, &err);
    else
        result = PyBytes_FromStringAndSize(at, (Py_ssize_t)(info->chunks * row));
    free(at);
    return result;
}

static PyObject *tensor_of(core *c, rsd_ckpt *k, size_t t)
{
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_error       err = { .rank = -1 };
    PyObject       *name, *shape, *boxes, *path;

    if (rsd_ckpt_tensor(k, t, &info, &err)) {
        fail_with(c, &err);
        return NULL;
    }
    name = name_of(info.name);
    shape = name ? ints_of(info.ndim, info.shape) : NULL;
    boxes = shape ? boxes_of(c, k, t, &info) : NULL;
    path = boxes ? path_of(k, info.name) : NULL;
    if (path)
        return Py_BuildValue("NsNnNN", name, rsd_dtype_name(info.dtype), shape,
                             (Py_ssize_t)info.chunks, boxes, path);
    Py_XDECREF(name);
    Py_XDECREF(shape);
    Py_XDECREF(boxes);
    return NULL;
}

/* catalogue() -> [(name, dtype, shape, number of chunks, boxes, path), ...] of all tensors */
PyObject *ckpt_catalogue(PyObject *self, PyObject *none)
{
    rsd_ckpt    *k = ckpt_of(self);
    const size_t n = k ? rsd_ckpt_tensors(k) : 0;
    PyObject    *list = k ? PyList_New((Py_ssize_t)n) : NULL;

    (void)none;
    for (size_t t = 0; list && t < n; t++) {
        PyObject *tensor = tensor_of(core_of(self), k, t);

        if (!tensor)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)t, tensor);
    }
    return list;
}

/* object_paths() -> [(name, path), ...] of all objects */
PyObject *ckpt_object_paths(PyObject *self, PyObject *none)
{
    rsd_ckpt    *k = ckpt_of(self);
    const size_t n = k ? rsd_ckpt_objects(k) : 0;
    PyObject    *list = k ? PyList_New((Py_ssize_t)n) : NULL;
    rsd_error    err = { .rank = -1 };
    const char  *name;

    (void)none;
    for (size_t i = 0; list && i < n; i++) {
        PyObject *pair = NULL, *text, *path;

        if (rsd_ckpt_object(k, i, &name, NULL, NULL, &err)) {
            fail_with(core_of(self), &err);
        } else {
            text = name_of(name);
            path = text ? path_of(k, name) : NULL;
            pair = path ? Py_BuildValue("NN", text, path) : NULL;
            if (text && !path)
                Py_DECREF(text);
        }
        if (!pair)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, pair);
    }
    return list;
}

/* dcp() -> (checkpoint_id, save_id, version), each str or None; None: another format */
PyObject *ckpt_dcp(PyObject *self, PyObject *none)
{
    rsd_ckpt    *k = ckpt_of(self);
    rsd_dcp_info info = { .size = sizeof(info) };

    (void)none;
    if (!k)
        return NULL;
    if (rsd_ckpt_dcp(k, &info, NULL))
        return Py_NewRef(Py_None);
    return Py_BuildValue("zzz", info.checkpoint_id, info.save_id, info.version);
}

/* ---- stored objects ---- */

/* object_place(i) -> (file, offset, length, transforms); None: it has no bytes of its own */
PyObject *ckpt_object_place(PyObject *self, PyObject *number)
{
    const size_t i = PyLong_AsSize_t(number);
    rsd_ckpt    *k = ckpt_of(self);
    rsd_chunk    chunk = { .size = sizeof(chunk) };

    if (!k || PyErr_Occurred())
        return NULL;
    if (rsd_ckpt_object_extent(k, i, &chunk, NULL))
        return Py_NewRef(Py_None);
    return Py_BuildValue("NKKN", name_of(chunk.file), (unsigned long long)chunk.offset,
                         (unsigned long long)chunk.length, transforms_of(&chunk));
}

typedef struct bytes_work {
    work          w;
    opened       *from;
    size_t        i;
    rsd_read_opts opts;
    char         *bytes;
    size_t        len;
} bytes_work;

static rsd_err keep(void *arg, const void *bytes, size_t len)
{
    bytes_work *b = arg;

    b->bytes = malloc(len + 1);
    if (!b->bytes)
        return RSD_E_NOMEM;
    memcpy(b->bytes, bytes, len);
    b->len = len;
    return RSD_OK;
}

static rsd_err run_bytes(work *w, rsd_error *err)
{
    bytes_work *b = (bytes_work *)w;
    rsd_err     rc = rsd_ckpt_object_bytes(ckpt_opened(b->from), b->i, &b->opts, keep, b, err);

    err->code = rc;
    return rc;
}

static void free_bytes(work *w)
{
    bytes_work *b = (bytes_work *)w;

    ckpt_leave(b->from);
    free(b->bytes);
    free(b);
}

/* object_bytes(i, verify) -> the torch.save archive of an object of a DCP checkpoint */
PyObject *ckpt_object_bytes(PyObject *self, PyObject *args)
{
    core       *c = core_of(self);
    PyObject   *result = NULL;
    Py_ssize_t  i;
    int         verify;
    bytes_work *b;

    if (!ckpt_of(self) || !PyArg_ParseTuple(args, "ni", &i, &verify))
        return NULL;
    b = (bytes_work *)work_new(sizeof(*b), run_bytes, free_bytes);
    if (!b)
        return NULL;
    b->from = ckpt_enter(self);
    b->i = (size_t)i;
    b->opts = (rsd_read_opts){ .size = sizeof(b->opts), .verify = (rsd_choice)verify };
    if (work_inline(c, &b->w) == 0)
        result = PyBytes_FromStringAndSize(b->bytes, (Py_ssize_t)b->len);
    work_free(c, &b->w);
    return result;
}
