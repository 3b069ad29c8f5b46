/* SPDX-License-Identifier: Apache-2.0 */
/* View: memory of another object, to be saved or to load into, which it keeps alive and in place.
 * It comes from the buffer protocol or, for torch, from a pointer and strides. */
#include "py_core.h"

#include <string.h>

/* The dtype of a code of the struct module; 0: none. */
static rsd_dtype dtype_of(const char *code, Py_ssize_t size)
{
    static const struct {
        const char *codes;
        rsd_dtype   by_size[9]; /* [bytes of an element] */
    } kinds[] = {
        { "bhilqn", { [1] = RSD_I8, [2] = RSD_I16, [4] = RSD_I32, [8] = RSD_I64 } },
        { "BHILQN", { [1] = RSD_U8, [2] = RSD_U16, [4] = RSD_U32, [8] = RSD_U64 } },
        { "efd", { [2] = RSD_F16, [4] = RSD_F32, [8] = RSD_F64 } },
        { "?", { [1] = RSD_BOOL } },
    };
    const char order = code[0];

    if (order == '@' || order == '=' || order == '<' || (size == 1 && strchr(">!", order)))
        code++;
    if (strcmp(code, "Zf") == 0)
        return RSD_C64;
    if (strcmp(code, "Zd") == 0)
        return RSD_C128;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && size <= 8; i++)
        if (strlen(code) == 1 && strchr(kinds[i].codes, code[0]))
            return kinds[i].by_size[size];
    return (rsd_dtype)0;
}

/* Elements that all lie at one place can't be told from packed ones in an rsd_view. */
static int set_strides(view *v, const int64_t *stride)
{
    int64_t elements = 1;
    bool    any = false;

    for (int d = 0; d < v->ndim; d++) {
        elements = v->shape[d] == 0 || elements == 0 ? 0 : v->shape[d] > 1 ? 2 : elements;
        v->stride[d] = v->shape[d] > 1 ? stride[d] : (int64_t)rsd_dtype_size(v->dtype);
        any = any || v->stride[d] != 0;
    }
    if (elements <= 1)
        memset(v->stride, 0, sizeof(v->stride));
    else if (!any || v->data == NULL) {
        PyErr_SetString(PyExc_ValueError, "the elements have no memory of their own: copy it");
        return -1;
    }
    return 0;
}

static view *view_alloc(core *c)
{
    view *v = PyObject_New(view, (PyTypeObject *)c->view);

    if (v)
        memset((char *)v + sizeof(PyObject), 0, sizeof(*v) - sizeof(PyObject));
    return v;
}

static int parse_dtype(core *c, PyObject *name, rsd_dtype *out)
{
    const char *text = utf8_of(name);
    rsd_error   err = { .rank = -1 };

    if (!text)
        return -1;
    return rsd_dtype_parse(text, out, &err) ? fail_with(c, &err) : 0;
}

static int take_buffer(core *c, view *v, PyObject *name)
{
    const Py_buffer *b = &v->buffer;
    int64_t          stride[RSD_MAX_NDIM];

    if (b->ndim > RSD_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError, "%d dimensions: at most %d are supported", b->ndim,
                     RSD_MAX_NDIM);
        return -1;
    }
    v->dtype = dtype_of(b->format ? b->format : "B", b->itemsize);
    if (name != Py_None && parse_dtype(c, name, &v->dtype) < 0)
        return -1;
    if (!v->dtype || rsd_dtype_size(v->dtype) != (size_t)b->itemsize) {
        PyErr_Format(PyExc_TypeError, "elements of the kind \"%s\" have no dtype here", b->format);
        return -1;
    }
    v->ndim = b->ndim;
    v->data = b->buf;
    v->read_only = b->readonly;
    for (int d = 0; d < b->ndim; d++) {
        v->shape[d] = b->shape[d];
        stride[d] = b->strides[d];
    }
    return set_strides(v, stride);
}

/* An Array has its dtype even where the buffer protocol lacks it. */
static PyObject *of_array(core *c, array *a)
{
    view *v = view_alloc(c);

    if (!v)
        return NULL;
    v->owner = Py_NewRef((PyObject *)a);
    v->data = a->memory->data;
    v->dtype = a->dtype;
    v->ndim = a->ndim;
    memcpy(v->shape, a->shape, (size_t)a->ndim * sizeof(a->shape[0]));
    return (PyObject *)v;
}

/* View.of_buffer(object, dtype name or None) */
static PyObject *of_buffer(PyObject *type, PyObject *args)
{
    core     *c = PyType_GetModuleState((PyTypeObject *)type);
    PyObject *object, *name;
    view     *v;

    if (!PyArg_ParseTuple(args, "OO", &object, &name))
        return NULL;
    if (Py_IS_TYPE(object, (PyTypeObject *)c->array))
        return of_array(c, (array *)object);
    v = view_alloc(c);
    if (!v)
        return NULL;
    if (PyObject_GetBuffer(object, &v->buffer, PyBUF_RECORDS_RO) < 0 ||
        take_buffer(c, v, name) < 0) {
        Py_DECREF(v);
        return NULL;
    }
    return (PyObject *)v;
}

/* View.of_pointer(owner, address, dtype name, shape, strides in elements): the caller vouches for
 * it. */
static PyObject *of_pointer(PyObject *type, PyObject *args)
{
    core              *c = PyType_GetModuleState((PyTypeObject *)type);
    PyObject          *owner, *name, *shape, *strides;
    unsigned long long address;
    int64_t            stride[RSD_MAX_NDIM] = { 0 };
    view              *v;

    if (!PyArg_ParseTuple(args, "OKUOO", &owner, &address, &name, &shape, &strides))
        return NULL;
    v = view_alloc(c);
    if (!v)
        return NULL;
    v->owner = Py_NewRef(owner);
    v->data = (void *)(uintptr_t)address;
    v->ndim = 0;
    if (parse_dtype(c, name, &v->dtype) < 0 || (v->ndim = ints_from(shape, v->shape)) < 0 ||
        ints_from(strides, stride) != v->ndim)
        goto out;
    for (int d = 0; d < v->ndim; d++)
        stride[d] *= (int64_t)rsd_dtype_size(v->dtype);
    if (set_strides(v, stride) == 0)
        return (PyObject *)v;
out:
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "shape and strides have different lengths");
    Py_DECREF(v);
    return NULL;
}

/* with_shape(sizes): the same memory with dimensions of size 1 put in or left out. */
static PyObject *with_shape(PyObject *self, PyObject *sizes)
{
    const view *from = (view *)self;
    view       *v = view_alloc(core_of(self));
    int         at = 0;

    if (!v)
        return NULL;
    v->owner = Py_NewRef(self);
    v->dtype = from->dtype;
    v->data = from->data;
    v->read_only = from->read_only;
    v->ndim = ints_from(sizes, v->shape);
    for (int d = 0; d < v->ndim; d++) {
        while (at < from->ndim && from->shape[at] == 1 && v->shape[d] != 1)
            at++;
        if (at < from->ndim && from->shape[at] == v->shape[d])
            v->stride[d] = from->stride[at++];
        else if (v->shape[d] != 1)
            v->ndim = -1;
    }
    if (v->ndim >= 0)
        return (PyObject *)v;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the shapes differ by more than dimensions of size 1");
    Py_DECREF(v);
    return NULL;
}

static void view_dealloc(PyObject *self)
{
    view *v = (view *)self;

    if (v->buffer.obj)
        PyBuffer_Release(&v->buffer);
    Py_XDECREF(v->owner);
    object_free(self);
}

static PyObject *get_dtype(PyObject *self, void *none)
{
    (void)none;
    return PyUnicode_FromString(rsd_dtype_name(((view *)self)->dtype));
}

static PyObject *get_shape(PyObject *self, void *none)
{
    (void)none;
    return ints_of(((view *)self)->ndim, ((view *)self)->shape);
}

static PyMethodDef methods[] = {
    { "of_buffer", of_buffer, METH_VARARGS | METH_CLASS, "of_buffer(object, dtype or None)" },
    { "of_pointer", of_pointer, METH_VARARGS | METH_CLASS,
      "of_pointer(owner, address, dtype, shape, strides in elements)" },
    { "with_shape", with_shape, METH_O,
      "with_shape(sizes): dimensions of size 1 put in or left out" },
    { 0 },
};

static PyGetSetDef members[] = {
    { "dtype", get_dtype, NULL, NULL, NULL },
    { "shape", get_shape, NULL, NULL, NULL },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "Memory of another object, kept alive and in place." },
    { Py_tp_dealloc, view_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, members },
    { 0 },
};

PyType_Spec view_spec = {
    .name = "reshard._core.View",
    .basicsize = sizeof(view),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
