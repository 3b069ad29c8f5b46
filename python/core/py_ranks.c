/* SPDX-License-Identifier: Apache-2.0 */
/* State: what one rank saves or loads together with others, filled by reshard.torch with one call
 * for each tensor or value. py_save.c saves it; loading is here. */
#include "py_core.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A value to load. The state has its address. */
typedef struct wanted {
    struct wanted   *next;
    const rsd_value *value; /* NULL: missing */
    char            *bytes; /* a torch.save archive; NULL: the value says it all */
    size_t           len;
} wanted;

struct rank_state {
    PyObject    ob_base;
    rsd_state  *state;
    rsd_values *values;
    int         rank;
    bool        loading;
    PyObject   *keep;   /* list: owners of the tensors' memory */
    PyObject   *stored; /* list: bytes of objects */
    wanted     *want, **last;
    rsd_error   problem; /* what this rank tells the others instead of its contents */
};

rsd_state *state_of(rank_state *s)
{
    return s->state;
}

/* ---- names ---- */

static int failed(rank_state *s, rsd_err rc, const rsd_error *err)
{
    return rc ? fail_with(core_of((PyObject *)s), err) : 0;
}

static int push_one(rank_state *s, PyObject *step)
{
    rsd_error   err = { .rank = -1 };
    const char *text;

    if (PyLong_Check(step))
        return failed(s, rsd_state_push_index(s->state, PyLong_AsLongLong(step), &err), &err);
    text = utf8_of(step);
    return text ? failed(s, rsd_state_push(s->state, text, &err), &err) : -1;
}

static void pop(rank_state *s, Py_ssize_t n)
{
    while (n-- > 0)
        rsd_state_pop(s->state, NULL);
}

/* Pushes a tuple of keys (str) and indices (int); returns their number. */
static Py_ssize_t push(rank_state *s, PyObject *path)
{
    const Py_ssize_t n = PyTuple_Check(path) ? PyTuple_Size(path) : 0;

    if (n == 0)
        PyErr_SetString(PyExc_TypeError, "expected a tuple of keys");
    for (Py_ssize_t i = 0; i < n; i++)
        if (push_one(s, PyTuple_GetItem(path, i)) < 0) {
            pop(s, i);
            return -1;
        }
    return n > 0 ? n : -1;
}

/* ---- tensors ---- */

static int strides_from(PyObject *x, int ndim, rsd_dtype dtype, int64_t *out)
{
    if (x == Py_None)
        return 0;
    if (ints_from(x, out) != ndim) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "shape and strides have different lengths");
        return -1;
    }
    for (int d = 0; d < ndim; d++)
        out[d] *= (int64_t)rsd_dtype_size(dtype);
    return 0;
}

static int add_tensor(rank_state *s, PyObject *path, const rsd_layout *how, rsd_dtype dtype,
                      int ndim, const int64_t *shape, size_t n, const rsd_view *views)
{
    rsd_error  err = { .rank = -1 };
    Py_ssize_t pushed = push(s, path);
    int        rc = -1;

    if (pushed > 0)
        rc = failed(s,
                    rsd_state_tensor(s->state, NULL, s->loading ? NULL : how, dtype, ndim, shape, n,
                                     views, &err),
                    &err);
    pop(s, pushed);
    return rc;
}

/* tensor(path, layout, address, sizes, strides or None, owner): this rank's part of a tensor, as
 * one local tensor. */
static PyObject *add_local(PyObject *self, PyObject *args)
{
    rank_state        *s = (rank_state *)self;
    PyObject          *path, *how, *sizes, *strides, *owner;
    unsigned long long address;
    int64_t            size[RSD_MAX_NDIM], stride[RSD_MAX_NDIM] = { 0 };
    rsd_view           one, *views = &one;
    const spread      *l;
    int                ndim, rc = -1;

    if (!PyArg_ParseTuple(args, "OO!KOOO", &path, core_of(self)->layout, &how, &address, &sizes,
                          &strides, &owner))
        return NULL;
    l = (const spread *)how;
    ndim = ints_from(sizes, size);
    if (ndim < 0 || strides_from(strides, ndim, l->dtype, stride) < 0)
        return NULL;
    if (l->n > 1)
        views = calloc(l->n, sizeof(*views));
    if (!views)
        return PyErr_NoMemory();
    if (layout_views(l, (void *)(uintptr_t)address, ndim, size, strides == Py_None ? NULL : stride,
                     views) < 0)
        PyErr_Format(PyExc_ValueError, "its local shape %R is not the one of its placements",
                     sizes);
    else
        rc = add_tensor(s, path, l->layout, l->dtype, l->ndim, l->shape, l->n, views);
    if (views != &one)
        free(views);
    return rc < 0 || PyList_Append(s->keep, owner) < 0 ? NULL : Py_NewRef(Py_None);
}

static int view_from(PyObject *item, rsd_dtype dtype, int ndim, rsd_view *out)
{
    PyObject          *offsets, *sizes, *strides;
    unsigned long long address;

    *out = (rsd_view){ .box.ndim = ndim };
    if (!PyTuple_Check(item) ||
        !PyArg_ParseTuple(item, "OOKO", &offsets, &sizes, &address, &strides))
        return -1;
    if (ints_from(offsets, out->box.off) != ndim || ints_from(sizes, out->box.len) != ndim) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError,
                            "a shard has another number of dimensions than the tensor");
        return -1;
    }
    out->data = (void *)(uintptr_t)address;
    return strides_from(strides, ndim, dtype, out->stride);
}

/* Only this rank's boxes: what others have, they say. */
static int add_views(rank_state *s, PyObject *path, rsd_dtype dtype, int ndim, const int64_t *shape,
                     size_t n, const rsd_view *views)
{
    rsd_error   err = { .rank = -1 };
    rsd_layout *part = NULL;
    rsd_box    *box = calloc(n + 1, sizeof(*box));
    rsd_err     rc = RSD_OK;
    int         added = -1;

    if (!box) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < n; i++)
        box[i] = views[i].box;
    if (!s->loading)
        rc = rsd_layout_create_part(dtype, ndim, shape, s->rank, n, box, &part, &err);
    added = rc ? failed(s, rc, &err) : add_tensor(s, path, part, dtype, ndim, shape, n, views);
    rsd_layout_free(part);
    free(box);
    return added;
}

/* boxes(path, dtype, shape, [(offsets, sizes, address, strides or None), ...], owner): this rank's
 * boxes of a tensor, whatever the others have. */
static PyObject *add_boxes(PyObject *self, PyObject *args)
{
    rank_state *s = (rank_state *)self;
    PyObject   *path, *shape, *items, *owner;
    const char *name;
    rsd_error   err = { .rank = -1 };
    int64_t     size[RSD_MAX_NDIM];
    rsd_view   *views;
    rsd_dtype   dtype;
    size_t      n, kept = 0;
    int         ndim, rc = 0;

    if (!PyArg_ParseTuple(args, "OsOO!O", &path, &name, &shape, &PyList_Type, &items, &owner))
        return NULL;
    ndim = ints_from(shape, size);
    if (ndim < 0 || failed(s, rsd_dtype_parse(name, &dtype, &err), &err) < 0)
        return NULL;
    n = (size_t)PyList_Size(items);
    views = calloc(n + 1, sizeof(*views));
    if (!views)
        return PyErr_NoMemory();
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = view_from(PyList_GetItem(items, (Py_ssize_t)i), dtype, ndim, &views[kept]);
        if (rc == 0 && rsd_box_count(&views[kept].box) > 0)
            kept++;
    }
    if (rc == 0)
        rc = add_views(s, path, dtype, ndim, size, kept, views);
    free(views);
    return rc < 0 || PyList_Append(s->keep, owner) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- values ---- */

/* True if a class of Python's own, not one derived from it, says all about x. */
static bool is_plain(PyObject *x)
{
    const bool list = PyList_CheckExact(x), tuple = PyTuple_CheckExact(x);

    if (x == Py_None || PyBool_Check(x) || PyLong_CheckExact(x) || PyFloat_CheckExact(x) ||
        PyUnicode_CheckExact(x) || PyBytes_CheckExact(x))
        return true;
    if (!list && !tuple)
        return false;
    for (Py_ssize_t i = 0; i < PySequence_Size(x); i++)
        if (!is_plain(list ? PyList_GetItem(x, i) : PyTuple_GetItem(x, i)))
            return false;
    return true;
}

/* value(path, x) -> False if x is none that the library can write itself: use object() */
static PyObject *add_value(PyObject *self, PyObject *args)
{
    rank_state      *s = (rank_state *)self;
    PyObject        *path, *x;
    const rsd_value *value = NULL;
    rsd_error        err = { .rank = -1 };
    Py_ssize_t       pushed;
    int              rc;

    if (!PyArg_ParseTuple(args, "OO", &path, &x))
        return NULL;
    if (Py_EnterRecursiveCall(" while saving a value"))
        return NULL;
    rc = is_plain(x);
    Py_LeaveRecursiveCall();
    if (!rc)
        return Py_NewRef(Py_False);
    if (value_from_python(core_of(self), x, s->values, &value) < 0)
        return NULL;
    pushed = push(s, path);
    rc = pushed < 0 ? -1 : failed(s, rsd_state_value(s->state, NULL, value, &err), &err);
    pop(s, pushed);
    return rc < 0 ? NULL : Py_NewRef(Py_True);
}

/* object(path, class, bytes): what torch.save wrote */
static PyObject *add_object(PyObject *self, PyObject *args)
{
    rank_state      *s = (rank_state *)self;
    PyObject        *path, *bytes;
    const char      *kind;
    Py_ssize_t       len, pushed;
    const rsd_value *value = NULL;
    rsd_error        err = { .rank = -1 };
    int              rc;

    if (!PyArg_ParseTuple(args, "Os#O!", &path, &kind, &len, &PyBytes_Type, &bytes))
        return NULL;
    if (failed(s,
               rsd_value_create_bytes(s->values, RSD_VALUE_OPAQUE, kind, (size_t)len, &value, &err),
               &err) < 0 ||
        PyList_Append(s->stored, bytes) < 0)
        return NULL;
    pushed = push(s, path);
    rc = pushed < 0 ? -1
                    : failed(s,
                             rsd_state_object(s->state, NULL, value, PyBytes_AsString(bytes),
                                              (size_t)PyBytes_Size(bytes), &err),
                             &err);
    pop(s, pushed);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static rsd_err put_bytes(void *arg, const void *bytes, size_t len)
{
    wanted *w = arg;

    free(w->bytes);
    w->bytes = malloc(len ? len : 1);
    if (!w->bytes)
        return RSD_E_NOMEM;
    memcpy(w->bytes, bytes, len);
    w->len = len;
    return RSD_OK;
}

/* want(path): a value to load; wanted() gives all of them in this order */
static PyObject *add_want(PyObject *self, PyObject *path)
{
    rank_state *s = (rank_state *)self;
    wanted     *w = calloc(1, sizeof(*w));
    rsd_error   err = { .rank = -1 };
    Py_ssize_t  pushed;
    int         rc = -1;

    if (!w)
        return PyErr_NoMemory();
    *s->last = w;
    s->last = &w->next;
    pushed = push(s, path);
    if (pushed > 0)
        rc = failed(s,
                    rsd_state_want_object(s->state, NULL, s->values, &w->value, put_bytes, w, &err),
                    &err);
    pop(s, pushed);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

/* None: missing; bytes of an archive; otherwise a tuple with the value. */
static PyObject *wanted_to_python(rank_state *s, const wanted *w, PyObject *hook)
{
    PyObject *x;

    if (w->bytes)
        return PyBytes_FromStringAndSize(w->bytes, (Py_ssize_t)w->len);
    if (!w->value)
        return Py_NewRef(Py_None);
    x = value_to_python(core_of((PyObject *)s), w->value, hook);
    return x ? Py_BuildValue("(N)", x) : NULL;
}

/* wanted(hook) -> [None if missing, bytes of a torch.save archive, or (value,), ...] */
static PyObject *get_wanted(PyObject *self, PyObject *hook)
{
    PyObject *list = PyList_New(0);

    for (const wanted *w = ((rank_state *)self)->want; list && w; w = w->next) {
        PyObject *x = wanted_to_python((rank_state *)self, w, hook);

        if (!x || PyList_Append(list, x) < 0)
            Py_CLEAR(list);
        Py_XDECREF(x);
    }
    return list;
}

/* ---- failing together ---- */

static rsd_err produce_problem(void *arg, rsd_state *none, bool loading, rsd_error *err)
{
    const rsd_error *problem = arg;

    (void)none;
    (void)loading;
    *err = *problem;
    return (rsd_err)problem->code;
}

/* fail(code, message): this rank can't take part; saving or loading fails on all ranks with it. */
static PyObject *fail_later(PyObject *self, PyObject *args)
{
    rank_state  *s = (rank_state *)self;
    rsd_stateful object = { .size = sizeof(object), .produce = produce_problem };
    rsd_error    err = { .rank = -1 };
    const char  *message;
    int          code;

    if (!PyArg_ParseTuple(args, "is", &code, &message))
        return NULL;
    s->problem = (rsd_error){ .code = code, .rank = -1 };
    PyOS_snprintf(s->problem.msg, sizeof(s->problem.msg), "%s", message);
    object.arg = &s->problem;
    if (failed(s, rsd_state_stateful(s->state, "state_dict", &object, &err), &err) < 0)
        return NULL;
    return Py_NewRef(Py_None);
}

/* ---- loading ---- */

int ranks_enter(PyObject *comm, work *w, shared_comm **out)
{
    if (comm == Py_None)
        return 0;
    *out = comm_enter(comm);
    if (!*out)
        return -1;
    w->comm = comm_used(*out);
    return 0;
}

typedef struct load_work {
    work          w;
    char         *path, *prefix;
    rsd_load_opts opts;
    PyObject     *state;
    shared_comm  *ranks; /* NULL: this process alone */
    notes         missing;
} load_work;

static rsd_err run_load(work *w, rsd_error *err)
{
    load_work *l = (load_work *)w;

    return rsd_load(l->path, w->comm, ((rank_state *)l->state)->state, &l->opts, err);
}

static void free_load(work *w)
{
    load_work *l = (load_work *)w;

    notes_free(&l->missing);
    Py_XDECREF(l->state);
    comm_leave(l->ranks);
    free(l->path);
    free(l->prefix);
    free(l);
}

static void note_missing(void *arg, const char *name)
{
    notes_add(&((load_work *)arg)->missing, name, "");
}

static load_work *load_new(PyObject *path, const char *prefix, PyObject *object)
{
    load_work *l = (load_work *)work_new(sizeof(*l), run_load, free_load);

    if (!l)
        return NULL;
    l->path = strdup(PyBytes_AsString(path));
    l->prefix = strdup(prefix ? prefix : "");
    l->state = Py_NewRef(object);
    if (l->path && l->prefix)
        return l;
    PyErr_NoMemory();
    free_load(&l->w);
    return NULL;
}

/* load(path, state, comm or None, *, verify, partial, threads, max_memory, cast, prefix, share) ->
 * names missing from the checkpoint */
PyObject *core_load(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = { "path",       "state", "comm",   "verify", "partial", "threads",
                             "max_memory", "cast",  "prefix", "share",  NULL };
    core        *c = PyModule_GetState(module);
    PyObject    *path = NULL, *object, *comm, *result = NULL;
    const char  *prefix = NULL;
    int          verify = 0, partial = 0, threads = 0, cast = 1, share = 0;
    Py_ssize_t   max_memory = 0;
    load_work   *l;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O!O|$ipinpzi", names, PyUnicode_FSConverter,
                                     &path, c->state, &object, &comm, &verify, &partial, &threads,
                                     &max_memory, &cast, &prefix, &share))
        return NULL;
    l = load_new(path, prefix, object);
    if (l) {
        l->opts = (rsd_load_opts){ .size = sizeof(l->opts),
                                   .verify = (rsd_choice)verify,
                                   .allow_partial = partial,
                                   .threads = threads,
                                   .max_memory = (size_t)max_memory,
                                   .on_missing = note_missing,
                                   .arg = l,
                                   .cast = cast,
                                   .prefix = l->prefix[0] ? l->prefix : NULL,
                                   .cooperate = (rsd_choice)share };
        if (ranks_enter(comm, &l->w, &l->ranks) == 0 && work_run(c, &l->w, WORK_DONE, NULL) == 0)
            result = notes_list(&l->missing);
        work_free(c, &l->w);
    }
    Py_DECREF(path);
    return result;
}

/* ---- the type ---- */

/* State(rank, loading) */
static PyObject *state_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc   alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    rsd_error   err = { .rank = -1 };
    rank_state *s;
    int         rank, loading;

    (void)kwargs;
    if (!PyArg_ParseTuple(args, "ip", &rank, &loading))
        return NULL;
    s = (rank_state *)alloc(type, 0); /* zeroed */
    if (!s)
        return NULL;
    s->last = &s->want;
    s->rank = rank;
    s->loading = loading;
    s->keep = PyList_New(0);
    s->stored = PyList_New(0);
    if (s->keep && s->stored &&
        (rsd_state_create(&s->state, &err) || rsd_values_create(&s->values, &err)))
        fail_with(core_of((PyObject *)s), &err);
    if (s->values)
        return (PyObject *)s;
    Py_DECREF(s);
    return NULL;
}

void state_staged(rank_state *s)
{
    PyObject *keep = s->keep;

    s->keep = PyList_New(0);
    if (!s->keep) {
        PyErr_Clear();
        s->keep = keep;
    } else {
        Py_DECREF(keep);
    }
}

/* restage(other): takes over the memory that staging by copy left with another State. */
static PyObject *restage(PyObject *self, PyObject *other)
{
    if (!Py_IS_TYPE(other, Py_TYPE(self))) {
        PyErr_SetString(PyExc_TypeError, "expected a State");
        return NULL;
    }
    rsd_state_restage(((rank_state *)self)->state, ((rank_state *)other)->state);
    return Py_NewRef(Py_None);
}

static void state_dealloc(PyObject *self)
{
    rank_state *s = (rank_state *)self;

    rsd_state_free(s->state);
    rsd_values_free(s->values);
    Py_XDECREF(s->keep);
    Py_XDECREF(s->stored);
    while (s->want) {
        wanted *w = s->want;

        s->want = w->next;
        free(w->bytes);
        free(w);
    }
    object_free(self);
}

static PyMethodDef methods[] = {
    { "tensor", add_local, METH_VARARGS,
      "tensor(path, layout, address, sizes, strides or None, owner)" },
    { "boxes", add_boxes, METH_VARARGS,
      "boxes(path, dtype, shape, [(offsets, sizes, address, strides or None), ...], owner)" },
    { "value", add_value, METH_VARARGS, "value(path, x) -> whether x is a plain value" },
    { "object", add_object, METH_VARARGS, "object(path, class, what torch.save wrote)" },
    { "want", add_want, METH_O, "want(path): a value to load" },
    { "wanted", get_wanted, METH_O,
      "wanted(hook) -> [None if missing, bytes of an archive, or (value,), ...]" },
    { "restage", restage, METH_O, "restage(State): takes over its memory for copies" },
    { "fail", fail_later, METH_VARARGS, "fail(code, message): on all ranks" },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "What one rank saves or loads together with others." },
    { Py_tp_new, state_new },
    { Py_tp_dealloc, state_dealloc },
    { Py_tp_methods, methods },
    { 0 },
};

PyType_Spec state_spec = {
    .name = "reshard._core.State",
    .basicsize = sizeof(rank_state),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
