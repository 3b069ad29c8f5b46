/* SPDX-License-Identifier: Apache-2.0 */
/* Part: one rank's data file of a checkpoint inside a folder of others, and the publication of all
 * parts (reshard_folder.h). A Part is the claim that protects its file until it is published, so
 * it lives that long. Which items, and who publishes, is reshard/torch's business. */
#include "py_core.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A box of a tensor, or bytes that are stored as they are. */
typedef struct part_item {
    const char *name;
    rsd_dtype   dtype;
    int         ndim;
    int64_t     shape[RSD_MAX_NDIM];
    rsd_view    view;
    const void *bytes; /* NULL: a tensor */
    size_t      len;
    Py_buffer   buffer;
} part_item;

typedef struct part_work {
    work          w;
    char         *path, *transform;
    int32_t       rank;
    rsd_part_opts opts;
    PyObject     *items; /* keeps names and memory */
    size_t        n;
    part_item    *item; /* [n] */
    rsd_part     *part;
} part_work;

typedef struct part {
    PyObject  ob_base;
    rsd_part *part;
    pid_t     process; /* a forked child must not give up its parent's claim */
} part;

/* ---- without the GIL ---- */

static rsd_err add(rsd_part *p, const part_item *item, rsd_error *err)
{
    if (item->bytes)
        return rsd_part_object(p, item->name, item->bytes, item->len, err);
    return rsd_part_tensor(p, item->name, item->dtype, item->ndim, item->shape, &item->view, err);
}

static rsd_err run_part(work *w, rsd_error *err)
{
    part_work *p = (part_work *)w;
    rsd_err    rc = rsd_part_create(p->path, p->rank, &p->opts, &p->part, err);

    for (size_t i = 0; i < p->n && !rc; i++)
        rc = add(p->part, &p->item[i], err);
    return rc ? rc : rsd_part_write(p->part, err);
}

/* ---- with it ---- */

static void free_part(work *w)
{
    part_work *p = (part_work *)w;

    rsd_part_free(p->part);
    for (size_t i = 0; p->item && i < p->n; i++)
        if (p->item[i].buffer.obj)
            PyBuffer_Release(&p->item[i].buffer);
    Py_XDECREF(p->items);
    free(p->item);
    free(p->path);
    free(p->transform);
    free(p);
}

/* (name, shape of the whole, offsets, View) or (name, None, None, bytes) */
static int take_item(core *c, PyObject *tuple, part_item *out)
{
    PyObject   *name, *shape, *offsets, *data;
    const view *v;

    if (!PyArg_ParseTuple(tuple, "OOOO", &name, &shape, &offsets, &data))
        return -1;
    out->name = utf8_of(name);
    if (!out->name)
        return -1;
    if (shape == Py_None) {
        if (PyObject_GetBuffer(data, &out->buffer, PyBUF_SIMPLE) < 0)
            return -1;
        out->bytes = out->buffer.buf ? out->buffer.buf : "";
        out->len = (size_t)out->buffer.len;
        return 0;
    }
    if (!Py_IS_TYPE(data, (PyTypeObject *)c->view)) {
        PyErr_SetString(PyExc_TypeError, "expected a View");
        return -1;
    }
    v = (view *)data;
    out->dtype = v->dtype;
    out->ndim = ints_from(shape, out->shape);
    if (out->ndim < 0 || ints_from(offsets, out->view.box.off) < 0)
        return -1;
    if (out->ndim != v->ndim || out->ndim != PySequence_Size(offsets)) {
        PyErr_Format(PyExc_ValueError, "%R: shape, offsets and memory differ in dimensions", name);
        return -1;
    }
    out->view.box.ndim = v->ndim;
    out->view.data = v->data;
    memcpy(out->view.box.len, v->shape, sizeof(v->shape));
    memcpy(out->view.stride, v->stride, sizeof(v->stride));
    return 0;
}

static int take_items(core *c, part_work *p, PyObject *items)
{
    if (!PyList_Check(items)) {
        PyErr_SetString(PyExc_TypeError, "expected a list");
        return -1;
    }
    p->items = Py_NewRef(items);
    p->n = (size_t)PyList_Size(items);
    p->item = calloc(p->n + 1, sizeof(*p->item));
    if (!p->item) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < p->n; i++)
        if (take_item(c, PyList_GetItem(items, (Py_ssize_t)i), &p->item[i]) < 0)
            return -1;
    return 0;
}

static PyObject *wrap(core *c, part_work *p)
{
    part *result = PyObject_New(part, (PyTypeObject *)c->part);

    if (!result)
        return NULL;
    result->part = p->part;
    result->process = getpid();
    p->part = NULL;
    return (PyObject *)result;
}

static int set_texts(part_work *p, PyObject *path, const char *transform)
{
    p->path = strdup(PyBytes_AsString(path));
    p->transform = transform ? strdup(transform) : NULL;
    p->opts.transform = p->transform;
    if (p->path && (p->transform || !transform))
        return 0;
    PyErr_NoMemory();
    return -1;
}

/* write_part(path, rank, items, *, transform, sync, checksum, threads, max_memory, progress) */
PyObject *core_write_part(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = { "path",     "rank",    "items",      "transform", "sync",
                             "checksum", "threads", "max_memory", "progress",  NULL };
    core        *c = PyModule_GetState(module);
    PyObject    *path = NULL, *items, *progress = Py_None, *result = NULL;
    const char  *transform = NULL;
    int          rank, sync = 0, checksum = 0, threads = 0;
    Py_ssize_t   max_memory = 0;
    part_work   *p;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&iO|$ziiinO", names, PyUnicode_FSConverter,
                                     &path, &rank, &items, &transform, &sync, &checksum, &threads,
                                     &max_memory, &progress))
        return NULL;
    p = (part_work *)work_new(sizeof(*p), run_part, free_part);
    if (p) {
        p->w.writes = true;
        p->rank = rank;
        p->opts = (rsd_part_opts){ .size = sizeof(p->opts),
                                   .sync = (rsd_choice)sync,
                                   .checksum = (rsd_choice)checksum,
                                   .threads = threads,
                                   .max_memory = (size_t)max_memory,
                                   .on_progress = work_progress,
                                   .arg = &p->w };
        if (set_texts(p, path, transform) == 0 && take_items(c, p, items) == 0 &&
            work_run(c, &p->w, WORK_DONE, progress) == 0)
            result = wrap(c, p);
        work_free(c, &p->w);
    }
    Py_DECREF(path);
    return result;
}

/* ---- publishing ---- */

typedef struct publish_work {
    work             w;
    char            *path;
    PyObject        *receipts, *metadata; /* keep the bytes */
    size_t           n;
    rsd_receipt     *receipt; /* [n] */
    rsd_publish_opts opts;
    rsd_error        unread;
} publish_work;

static rsd_err run_publish(work *w, rsd_error *err)
{
    publish_work *p = (publish_work *)w;

    return rsd_parts_publish(p->path, p->n, p->receipt, &p->opts, err);
}

static void free_publish(work *w)
{
    publish_work *p = (publish_work *)w;

    Py_XDECREF(p->receipts);
    Py_XDECREF(p->metadata);
    free(p->receipt);
    free(p->path);
    free(p);
}

static int take_receipts(publish_work *p, PyObject *path, PyObject *receipts, PyObject *metadata)
{
    Py_ssize_t len;
    char      *bytes;

    p->receipts = PySequence_Tuple(receipts);
    p->metadata = Py_NewRef(metadata);
    if (!p->receipts || PyBytes_AsStringAndSize(metadata, &bytes, &len) < 0)
        return -1;
    p->opts.metadata = bytes;
    p->opts.metadata_len = (size_t)len;
    p->n = (size_t)PyTuple_Size(p->receipts);
    p->receipt = calloc(p->n + 1, sizeof(*p->receipt));
    p->path = strdup(PyBytes_AsString(path));
    if (!p->receipt || !p->path) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < p->n; i++) {
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(p->receipts, (Py_ssize_t)i), &bytes, &len) < 0)
            return -1;
        p->receipt[i] = (rsd_receipt){ .bytes = bytes, .len = (size_t)len };
    }
    return 0;
}

/* publish(path, receipts, metadata, *, overwrite, rank, sync, checksum); a rank >= 0 publishes that
 * rank's own metadata */
PyObject *core_publish(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char  *names[] = { "path", "receipts", "metadata", "overwrite",
                              "rank", "sync",     "checksum", NULL };
    core         *c = PyModule_GetState(module);
    PyObject     *path = NULL, *receipts, *metadata, *unread = NULL;
    int           overwrite = 0, rank = -1, sync = 0, checksum = 0;
    publish_work *p;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&OO|$piii", names, PyUnicode_FSConverter,
                                     &path, &receipts, &metadata, &overwrite, &rank, &sync,
                                     &checksum))
        return NULL;
    p = (publish_work *)work_new(sizeof(*p), run_publish, free_publish);
    if (p) {
        p->opts = (rsd_publish_opts){ .size = sizeof(p->opts),
                                      .overwrite = overwrite,
                                      .alone = rank >= 0,
                                      .rank = rank >= 0 ? rank : 0,
                                      .sync = (rsd_choice)sync,
                                      .checksum = (rsd_choice)checksum,
                                      .unread = &p->unread };
        if (take_receipts(p, path, receipts, metadata) == 0 &&
            work_run(c, &p->w, WORK_DONE, NULL) == 0)
            unread = p->unread.code ? PyUnicode_FromString(p->unread.msg) : Py_NewRef(Py_None);
        work_free(c, &p->w);
    }
    Py_DECREF(path);
    return unread;
}

/* ---- Part ---- */

/* places() -> (file, bytes of int64_t[n][2]: offset and length of each item) */
static PyObject *part_places(PyObject *self, PyObject *none)
{
    const rsd_part *p = ((part *)self)->part;
    const size_t    n = rsd_part_items(p);
    int64_t(*at)[2] = calloc(n + 1, sizeof(at[0]));
    rsd_chunk chunk = { .size = sizeof(chunk) }; /* all are in one file */
    rsd_error err = { .rank = -1 };
    PyObject *result = NULL;
    rsd_err   rc = at ? RSD_OK : RSD_E_NOMEM;

    (void)none;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = rsd_part_extent(p, i, &chunk, &err);
        if (!rc) {
            at[i][0] = (int64_t)chunk.offset;
            at[i][1] = (int64_t)chunk.length;
        }
    }
    if (!at)
        PyErr_NoMemory();
    else if (rc)
        fail_with(core_of(self), &err);
    else
        result = Py_BuildValue("Ny#", n ? name_of(chunk.file) : Py_NewRef(Py_None), (char *)at,
                               (Py_ssize_t)(n * sizeof(at[0])));
    free(at);
    return result;
}

/* receipt() -> bytes for publish */
static PyObject *part_receipt(PyObject *self, PyObject *none)
{
    rsd_error   err = { .rank = -1 };
    const void *bytes;
    size_t      len;

    (void)none;
    if (rsd_part_receipt(((part *)self)->part, false, &bytes, &len, &err)) {
        fail_with(core_of(self), &err);
        return NULL;
    }
    return PyBytes_FromStringAndSize(bytes, (Py_ssize_t)len);
}

static void part_dealloc(PyObject *self)
{
    part *p = (part *)self;

    if (p->process == getpid())
        rsd_part_free(p->part);
    object_free(self);
}

static PyMethodDef methods[] = {
    { "places", part_places, METH_NOARGS, "places() -> (file, bytes of offsets and lengths)" },
    { "receipt", part_receipt, METH_NOARGS, "receipt() -> bytes for publish" },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "A part that was written; claims its file while it exists." },
    { Py_tp_dealloc, part_dealloc },
    { Py_tp_methods, methods },
    { 0 },
};

PyType_Spec part_spec = {
    .name = "reshard._core.Part",
    .basicsize = sizeof(part),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
