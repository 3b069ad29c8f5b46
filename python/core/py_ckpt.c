/* SPDX-License-Identifier: Apache-2.0 */
/* Ckpt: an open checkpoint: what it holds, and many reads in one call; py_objects.c
 * has what is not a tensor. Slices, mappings and
 * frameworks are the Python half's. */
#include "py_core.h"

#include <stdlib.h>
#include <string.h>

#define SMALL (1 << 20)   /* bytes that are read without a thread of their own */
#define BATCH (256 << 20) /* bytes between two looks at a cancel */

/* Shared by reads in progress: the last user closes it. */
struct opened {
    atomic_long users;
    rsd_ckpt   *ckpt;
};

typedef struct ckpt {
    PyObject ob_base;
    opened  *from; /* NULL: closed */
} ckpt;

void ckpt_leave(opened *o)
{
    if (!o || atomic_fetch_sub(&o->users, 1) > 1)
        return;
    Py_BEGIN_ALLOW_THREADS rsd_ckpt_close(o->ckpt);
    Py_END_ALLOW_THREADS   free(o);
}

rsd_ckpt *ckpt_of(PyObject *self)
{
    ckpt *k = (ckpt *)self;

    if (!k->from) {
        PyErr_SetString(PyExc_ValueError, "the checkpoint is closed");
        return NULL;
    }
    return k->from->ckpt;
}

opened *ckpt_enter(PyObject *self)
{
    if (!ckpt_of(self))
        return NULL;
    atomic_fetch_add(&((ckpt *)self)->from->users, 1);
    return ((ckpt *)self)->from;
}

rsd_ckpt *ckpt_opened(opened *o)
{
    return o->ckpt;
}

/* ---- opening ---- */

typedef struct open_work {
    work          w;
    char         *path;
    rsd_open_opts opts;
    rsd_ckpt     *ckpt;
} open_work;

static rsd_err run_open(work *w, rsd_error *err)
{
    open_work *o = (open_work *)w;

    return rsd_ckpt_open_with(NULL, o->path, &o->opts, &o->ckpt, err);
}

static void free_open(work *w)
{
    open_work *o = (open_work *)w;

    rsd_ckpt_close(o->ckpt);
    free(o->path);
    free(o);
}

static PyObject *wrap(core *c, rsd_ckpt **opened_ckpt)
{
    opened *o = calloc(1, sizeof(*o));
    ckpt   *k = o ? PyObject_New(ckpt, (PyTypeObject *)c->ckpt) : NULL;

    if (!k) {
        free(o);
        return o ? NULL : PyErr_NoMemory();
    }
    atomic_init(&o->users, 1);
    o->ckpt = *opened_ckpt;
    *opened_ckpt = NULL;
    k->from = o;
    return (PyObject *)k;
}

PyObject *core_open(PyObject *module, PyObject *args)
{
    core      *c = PyModule_GetState(module);
    PyObject  *path = NULL, *result = NULL;
    int        salvage, rank = -1;
    open_work *o;

    if (!PyArg_ParseTuple(args, "O&p|i", PyUnicode_FSConverter, &path, &salvage, &rank))
        return NULL;
    o = (open_work *)work_new(sizeof(*o), run_open, free_open);
    if (o) {
        o->path = strdup(PyBytes_AsString(path));
        o->opts = (rsd_open_opts){
            .size = sizeof(o->opts), .salvage = salvage, .alone = rank >= 0, .rank = rank
        };
        if (!o->path)
            PyErr_NoMemory();
        else if (work_run(c, &o->w, WORK_DONE, NULL) == 0)
            result = wrap(c, &o->ckpt);
        work_free(c, &o->w);
    }
    Py_DECREF(path);
    return result;
}

/* ---- what it holds ---- */

PyObject *name_of(const char *text)
{
    return text_of(text, strlen(text));
}

static int get_info(PyObject *self, size_t t, rsd_tensor_info *out)
{
    rsd_error err = { .rank = -1 };
    rsd_ckpt *k = ckpt_of(self);

    *out = (rsd_tensor_info){ .size = sizeof(*out) };
    if (!k)
        return -1;
    return rsd_ckpt_tensor(k, t, out, &err) ? fail_with(core_of(self), &err) : 0;
}

/* names() -> [name of tensor 0, ...] */
static PyObject *ckpt_names(PyObject *self, PyObject *none)
{
    rsd_tensor_info info;
    rsd_ckpt       *k = ckpt_of(self);
    const size_t    n = k ? rsd_ckpt_tensors(k) : 0;
    PyObject       *list = k ? PyList_New((Py_ssize_t)n) : NULL;

    (void)none;
    for (size_t t = 0; list && t < n; t++) {
        PyObject *name = get_info(self, t, &info) < 0 ? NULL : name_of(info.name);

        if (!name)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)t, name);
    }
    return list;
}

/* info(t) -> (dtype, shape, bytes, number of chunks, health) */
static PyObject *ckpt_info(PyObject *self, PyObject *number)
{
    const size_t    t = PyLong_AsSize_t(number);
    rsd_tensor_info info;

    if (PyErr_Occurred() || get_info(self, t, &info) < 0)
        return NULL;
    return Py_BuildValue("sNLni", rsd_dtype_name(info.dtype), ints_of(info.ndim, info.shape),
                         (long long)info.bytes, (Py_ssize_t)info.chunks,
                         (int)rsd_ckpt_health(ckpt_of(self), t));
}

PyObject *transforms_of(const rsd_chunk *chunk)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)chunk->ntransforms);

    for (size_t i = 0; tuple && i < chunk->ntransforms; i++) {
        PyObject *name = name_of(chunk->transforms[i]);

        if (!name)
            Py_CLEAR(tuple);
        else
            PyTuple_SetItem(tuple, (Py_ssize_t)i, name);
    }
    return tuple;
}

/* chunk(t, i) -> (offsets, sizes, file, offset, length, transforms) */
static PyObject *ckpt_chunk(PyObject *self, PyObject *args)
{
    rsd_chunk  chunk = { .size = sizeof(chunk) };
    rsd_error  err = { .rank = -1 };
    rsd_ckpt  *k = ckpt_of(self);
    Py_ssize_t t, i;

    if (!k || !PyArg_ParseTuple(args, "nn", &t, &i))
        return NULL;
    if (rsd_ckpt_chunk(k, (size_t)t, (size_t)i, &chunk, &err)) {
        fail_with(core_of(self), &err);
        return NULL;
    }
    return Py_BuildValue("NNNKKN", ints_of(chunk.box.ndim, chunk.box.off),
                         ints_of(chunk.box.ndim, chunk.box.len), name_of(chunk.file),
                         (unsigned long long)chunk.offset, (unsigned long long)chunk.length,
                         transforms_of(&chunk));
}

static PyObject *step_of(core *c, const rsd_path_part *p)
{
    if (p->other)
        return value_to_python(c, p->other, NULL);
    if (p->key && !p->number)
        return name_of(p->key);
    return PyLong_FromLongLong(p->index);
}

/* path(name) -> [(step, whether it is an index of a list), ...]; empty: the format keeps none */
static PyObject *ckpt_path(PyObject *self, PyObject *name)
{
    rsd_path_part part[RSD_VALUE_MAX_DEPTH];
    rsd_ckpt     *k = ckpt_of(self);
    const char   *text = k ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    PyObject     *list;
    size_t        n;

    if (!k)
        return NULL;
    if (!text) { /* a name that is no UTF-8 */
        PyErr_Clear();
        return PyList_New(0);
    }
    n = rsd_ckpt_path(k, text, part, RSD_VALUE_MAX_DEPTH);
    n = n > RSD_VALUE_MAX_DEPTH ? 0 : n;
    list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *step =
            Py_BuildValue("NO", step_of(core_of(self), &part[i]), part[i].key ? Py_False : Py_True);

        if (!step)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, step);
    }
    return list;
}

/* metadata() -> safetensors' __metadata__ */
static PyObject *ckpt_metadata(PyObject *self, PyObject *none)
{
    rsd_ckpt *k = ckpt_of(self);
    PyObject *dict = k ? PyDict_New() : NULL;
    rsd_meta  m = { .size = sizeof(m) };

    (void)none;
    for (size_t i = 0; dict && i < rsd_ckpt_metas(k); i++) {
        PyObject *key = NULL, *value = NULL;

        if (rsd_ckpt_meta(k, i, &m, NULL) == RSD_OK) {
            key = name_of(m.key);
            value = text_of(m.value, m.value_len);
        }
        if (!key || !value || PyDict_SetItem(dict, key, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return dict;
}

const char *format_name(rsd_format format)
{
    static const char *const name[] = { "auto", "dcp", "safetensors", "torch", "ranks", "zero" };

    return (size_t)format < sizeof(name) / sizeof(name[0]) ? name[format] : "unknown";
}

static PyObject *ckpt_format(PyObject *self, void *none)
{
    rsd_ckpt *k = ckpt_of(self);

    (void)none;
    return k ? PyUnicode_FromString(format_name(rsd_ckpt_format(k))) : NULL;
}

static PyObject *ckpt_kind(PyObject *self, void *none)
{
    rsd_ckpt *k = ckpt_of(self);

    (void)none;
    return k ? name_of(rsd_ckpt_kind(k)) : NULL;
}

static PyObject *ckpt_has_checksums(PyObject *self, void *none)
{
    rsd_ckpt *k = ckpt_of(self);

    (void)none;
    return k ? PyBool_FromLong(rsd_ckpt_has_checksums(k)) : NULL;
}

/* ---- reading ---- */

typedef struct read_work {
    work          w;
    opened       *from;
    shared_comm  *ranks; /* that read together; NULL: this process alone */
    PyObject     *items; /* keeps the targets */
    size_t        n;
    rsd_read     *read; /* [n] */
    rsd_read_opts opts;
    int64_t       bytes;
    bool          cast;
    bool          failed; /* before it began: the other ranks must learn of it */
} read_work;

static int64_t bytes_of(const rsd_read *read)
{
    return rsd_box_count(&read->view.box) * (int64_t)rsd_dtype_size(read->dtype);
}

/* Batches, so that progress is seen and a cancel is noticed; several ranks read all at once. */
static rsd_err run_read(work *w, rsd_error *err)
{
    read_work *r = (read_work *)w;
    int64_t    done = 0;
    rsd_err    rc = RSD_OK;

    if (r->ranks)
        return rsd_ckpt_read_together(r->failed ? NULL : r->from->ckpt, w->comm, r->n, r->read,
                                      &r->opts, err);
    for (size_t first = 0, end; first < r->n && !rc; first = end) {
        const int64_t start = done;

        if (work_progress(w, done, r->bytes)) {
            err->code = RSD_E_CANCELED;
            return RSD_E_CANCELED;
        }
        for (end = first; end < r->n && (end == first || done - start < BATCH); end++)
            done += bytes_of(&r->read[end]);
        rc = rsd_ckpt_read_many(r->from->ckpt, end - first, r->read + first, &r->opts, err);
    }
    work_progress(w, done, r->bytes);
    return rc;
}

static void free_read(work *w)
{
    read_work *r = (read_work *)w;

    ckpt_leave(r->from);
    comm_leave(r->ranks);
    Py_XDECREF(r->items);
    free(r->read);
    free(r);
}

/* The memory that a box is read into: of an Array, which is packed and may lack dimensions of size
 * 1, or of a View. */
static int set_target(core *c, PyObject *target, const rsd_tensor_info *info, bool cast,
                      rsd_read *out)
{
    const array *a = (array *)target;
    const view  *v = (view *)target;
    const bool   own = Py_IS_TYPE(target, (PyTypeObject *)c->array);
    rsd_box     *box = &out->view.box;
    rsd_error    err = { .code = RSD_E_MISMATCH, .rank = -1 };
    char         text[256];

    if (!own && !Py_IS_TYPE(target, (PyTypeObject *)c->view)) {
        PyErr_SetString(PyExc_TypeError, "the target is neither an Array nor a View");
        return -1;
    }
    out->dtype = own ? a->dtype : v->dtype;
    if (out->dtype != info->dtype && !cast) {
        PyOS_snprintf(err.msg, sizeof(err.msg), "tensor \"%.300s\" is %s, its target %s",
                      info->name, rsd_dtype_name(info->dtype), rsd_dtype_name(out->dtype));
        return fail_with(c, &err);
    }
    if (!own && v->read_only) {
        PyErr_Format(PyExc_ValueError, "the target of \"%.300s\" is read-only", info->name);
        return -1;
    }
    if (own ? a->bytes != bytes_of(out)
            : v->ndim != box->ndim ||
                  memcmp(v->shape, box->len, (size_t)v->ndim * sizeof(int64_t)) != 0) {
        rsd_box_text(box, text, sizeof(text));
        PyOS_snprintf(err.msg, sizeof(err.msg),
                      "tensor \"%.200s\": the target does not have the shape of %s", info->name,
                      text);
        return fail_with(c, &err);
    }
    out->view.data = own ? a->memory->data : v->data;
    if (!own)
        memcpy(out->view.stride, v->stride, sizeof(v->stride));
    return 0;
}

/* One (tensor, offsets, sizes, target). */
static int add_item(PyObject *self, read_work *r, size_t i, PyObject *item)
{
    rsd_read       *out = &r->read[i];
    rsd_box        *box = &out->view.box;
    PyObject       *off, *len, *target;
    rsd_tensor_info info;
    Py_ssize_t      t;

    if (!PyArg_ParseTuple(item, "nOOO", &t, &off, &len, &target) ||
        get_info(self, (size_t)t, &info) < 0)
        return -1;
    out->t = (size_t)t;
    box->ndim = ints_from(off, box->off);
    if (box->ndim < 0)
        return -1;
    if (ints_from(len, box->len) != box->ndim) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "offsets and sizes have different lengths");
        return -1;
    }
    if (set_target(core_of(self), target, &info, r->cast, out) < 0)
        return -1;
    r->bytes += bytes_of(out);
    return 0;
}

static int add_items(PyObject *self, read_work *r, PyObject *items)
{
    bool no_memory = false;

    r->items = Py_NewRef(items);
    r->n = (size_t)PyList_Size(items);
    r->read = calloc(r->n + 1, sizeof(*r->read));
    if (!r->read) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < r->n; i++)
        if (add_item(self, r, i, PyList_GetItem(items, (Py_ssize_t)i)) < 0)
            return -1;
    if (reads_overlap(r->n, r->read, &no_memory)) {
        PyErr_SetString(PyExc_ValueError, "the targets overlap in memory");
        return -1;
    }
    if (no_memory)
        PyErr_NoMemory();
    return no_memory ? -1 : 0;
}

/* read([(tensor, offsets, sizes, Array or View), ...], cast, verify, threads, max_memory, progress,
 * comm) */
static PyObject *ckpt_read(PyObject *self, PyObject *args)
{
    core      *c = core_of(self);
    PyObject  *items, *progress, *comm = Py_None, *type = NULL, *value = NULL, *trace = NULL;
    int        cast, verify, threads, rc = -1;
    Py_ssize_t max_memory;
    read_work *r;

    if (!ckpt_of(self) || !PyArg_ParseTuple(args, "OpiinO|O", &items, &cast, &verify, &threads,
                                            &max_memory, &progress, &comm))
        return NULL;
    if (!PyList_Check(items))
        return PyErr_Format(PyExc_TypeError, "expected a list");
    r = (read_work *)work_new(sizeof(*r), run_read, free_read);
    if (!r)
        return NULL;
    r->from = ckpt_enter(self);
    r->cast = cast;
    r->opts = (rsd_read_opts){ .size = sizeof(r->opts),
                               .verify = (rsd_choice)verify,
                               .threads = threads,
                               .max_memory = (size_t)max_memory };
    r->failed = add_items(self, r, items) < 0;
    if (r->failed)
        PyErr_Fetch(&type, &value, &trace);
    if ((!r->failed || comm != Py_None) && ranks_enter(comm, &r->w, &r->ranks) == 0)
        rc = r->bytes <= SMALL && !r->ranks ? work_inline(c, &r->w)
                                            : work_run(c, &r->w, WORK_DONE, progress);
    if (r->failed) {
        PyErr_Restore(type, value, trace);
        rc = -1;
    }
    work_free(c, &r->w);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

/* alloc(dtype, shape) -> Array */
static PyObject *ckpt_alloc(PyObject *self, PyObject *args)
{
    int64_t     shape[RSD_MAX_NDIM];
    rsd_error   err = { .rank = -1 };
    const char *name;
    PyObject   *sizes;
    rsd_dtype   dtype;
    int         ndim;

    if (!PyArg_ParseTuple(args, "sO", &name, &sizes))
        return NULL;
    ndim = ints_from(sizes, shape);
    if (ndim < 0)
        return NULL;
    if (rsd_dtype_parse(name, &dtype, &err)) {
        fail_with(core_of(self), &err);
        return NULL;
    }
    return (PyObject *)array_new(core_of(self), dtype, ndim, shape);
}

/* ---- the type ---- */

static PyObject *ckpt_close(PyObject *self, PyObject *none)
{
    ckpt   *k = (ckpt *)self;
    opened *o = k->from;

    (void)none;
    k->from = NULL;
    ckpt_leave(o);
    return Py_NewRef(Py_None);
}

static void ckpt_dealloc(PyObject *self)
{
    ckpt_leave(((ckpt *)self)->from);
    object_free(self);
}

static PyMethodDef methods[] = {
    { "names", ckpt_names, METH_NOARGS, "names() -> [name of tensor 0, ...]" },
    { "info", ckpt_info, METH_O, "info(t) -> (dtype, shape, bytes, chunks, health)" },
    { "chunk", ckpt_chunk, METH_VARARGS,
      "chunk(t, i) -> (offsets, sizes, file, offset, length, transforms)" },
    { "path", ckpt_path, METH_O, "path(name) -> [(step, is an index of a list), ...]" },
    { "metadata", ckpt_metadata, METH_NOARGS, "metadata() -> safetensors' __metadata__" },
    { "alloc", ckpt_alloc, METH_VARARGS, "alloc(dtype, shape) -> Array" },
    { "read", ckpt_read, METH_VARARGS,
      "read([(tensor, offsets, sizes, Array or View)], cast, verify, threads, max_memory, "
      "progress, comm=None)" },
    { "object_names", ckpt_object_names, METH_NOARGS, "object_names() -> [name of object 0, ...]" },
    { "object", ckpt_object, METH_VARARGS, "object(i, hook) -> value" },
    { "catalogue", ckpt_catalogue, METH_NOARGS,
      "catalogue() -> [(name, dtype, shape, chunks, boxes, path), ...]" },
    { "object_paths", ckpt_object_paths, METH_NOARGS, "object_paths() -> [(name, path), ...]" },
    { "object_place", ckpt_object_place, METH_O,
      "object_place(i) -> (file, offset, length, transforms) or None" },
    { "object_bytes", ckpt_object_bytes, METH_VARARGS, "object_bytes(i, verify) -> bytes" },
    { "dcp", ckpt_dcp, METH_NOARGS, "dcp() -> (checkpoint_id, save_id, version) or None" },
    { "lost", ckpt_lost, METH_NOARGS, "lost() -> names of tensors in missing files" },
    { "notes", ckpt_notes, METH_NOARGS, "notes() -> [(name, note), ...]" },
    { "skipped", ckpt_skipped, METH_NOARGS, "skipped() -> unknown attributes of the metadata" },
    { "object_healths", ckpt_object_healths, METH_NOARGS, "object_healths() -> [word, ...]" },
    { "close", ckpt_close, METH_NOARGS, "Closes it; reads in progress end first." },
    { 0 },
};

static PyGetSetDef members[] = {
    { "format", ckpt_format, NULL, NULL, NULL },
    { "kind", ckpt_kind, NULL, NULL, NULL },
    { "has_checksums", ckpt_has_checksums, NULL, NULL, NULL },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "An open checkpoint." },
    { Py_tp_dealloc, ckpt_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, members },
    { 0 },
};

PyType_Spec ckpt_spec = {
    .name = "reshard._core.Ckpt",
    .basicsize = sizeof(ckpt),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
