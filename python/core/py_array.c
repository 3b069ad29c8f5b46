/* SPDX-License-Identifier: Apache-2.0 */
/* Array: packed memory that a result owns, for the buffer protocol and for DLPack (py_dlpack.c). It
 * does no arithmetic: numpy and torch make their own arrays of it, without copying. */
#include "py_core.h"

#include <stddef.h>
#include <stdlib.h>
#include <structmember.h>
#include <sys/mman.h>

#define ALIGNMENT 64 /* as numpy and torch have it */
#define HUGE_PAGE ((size_t)2 << 20)

/* Python's code of an element, as in the struct module; NULL: none, the buffer is plain bytes. */
static const char *code_of(rsd_dtype dtype)
{
    static const struct {
        rsd_dtype   dtype;
        const char *code;
    } known[] = {
        { RSD_BOOL, "?" }, { RSD_U8, "B" },    { RSD_I8, "b" },  { RSD_U16, "H" },
        { RSD_I16, "h" },  { RSD_U32, "I" },   { RSD_I32, "i" }, { RSD_U64, "Q" },
        { RSD_I64, "q" },  { RSD_F16, "e" },   { RSD_F32, "f" }, { RSD_F64, "d" },
        { RSD_C64, "Zf" }, { RSD_C128, "Zd" },
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].dtype == dtype)
            return known[i].code;
    return NULL;
}

void expect_writes(void *data, size_t bytes)
{
    uintptr_t begin = ((uintptr_t)data + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uintptr_t end = ((uintptr_t)data + bytes) / HUGE_PAGE * HUGE_PAGE;

    if (begin < end)
        madvise((char *)data + (begin - (uintptr_t)data), end - begin, MADV_HUGEPAGE);
}

static block *block_new(size_t bytes)
{
    size_t alignment = bytes < 2 * HUGE_PAGE ? ALIGNMENT : HUGE_PAGE;
    block *b = malloc(sizeof(*b));

    if (!b)
        return NULL;
    atomic_init(&b->users, 1);
    if (posix_memalign(&b->data, alignment, bytes ? bytes : 1)) {
        free(b);
        return NULL;
    }
    expect_writes(b->data, bytes);
    return b;
}

/* Bytes of a packed tensor; -1 with MemoryError if no memory can have that many. */
static Py_ssize_t packed(rsd_dtype dtype, int ndim, const int64_t *shape, int64_t *stride)
{
    int64_t elements = 1, bytes;

    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = elements;
        if (__builtin_mul_overflow(elements, shape[d] > 0 ? shape[d] : 1, &elements))
            goto too_large;
    }
    if (__builtin_mul_overflow(elements, (int64_t)rsd_dtype_size(dtype), &bytes))
        goto too_large;
    for (int d = 0; d < ndim; d++)
        bytes = shape[d] == 0 ? 0 : bytes;
    return (Py_ssize_t)bytes;
too_large:
    PyErr_SetString(PyExc_MemoryError, "the tensor is larger than any memory");
    return -1;
}

array *array_new(core *c, rsd_dtype dtype, int ndim, const int64_t *shape)
{
    array     *a = PyObject_New(array, (PyTypeObject *)c->array);
    Py_ssize_t size = (Py_ssize_t)rsd_dtype_size(dtype);

    if (!a)
        return NULL;
    a->memory = NULL;
    a->weak = NULL;
    a->dtype = dtype;
    a->ndim = ndim;
    a->bytes = packed(dtype, ndim, shape, a->stride);
    if (a->bytes >= 0) {
        a->memory = block_new((size_t)a->bytes);
        if (!a->memory)
            PyErr_Format(PyExc_MemoryError, "no memory for %zd bytes", a->bytes);
    }
    if (!a->memory) {
        Py_DECREF(a);
        return NULL;
    }
    for (int d = 0; d < ndim; d++) {
        a->shape[d] = shape[d];
        a->byte_shape[d] = (Py_ssize_t)shape[d];
        a->byte_stride[d] = (Py_ssize_t)a->stride[d] * size;
    }
    return a;
}

static void array_dealloc(PyObject *self)
{
    array *a = (array *)self;

    if (a->weak)
        PyObject_ClearWeakRefs(self);
    if (a->memory && atomic_fetch_sub(&a->memory->users, 1) == 1) {
        free(a->memory->data);
        free(a->memory);
    }
    object_free(self);
}

static int array_getbuffer(PyObject *self, Py_buffer *out, int flags)
{
    array      *a = (array *)self;
    const char *code = code_of(a->dtype);

    if (!code)
        return PyBuffer_FillInfo(out, self, a->memory->data, a->bytes, 0, flags);
    *out = (Py_buffer){ .obj = Py_NewRef(self),
                        .buf = a->memory->data,
                        .len = a->bytes,
                        .itemsize = (Py_ssize_t)rsd_dtype_size(a->dtype),
                        .ndim = a->ndim };
    out->format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)code : NULL;
    out->shape = flags & PyBUF_ND ? a->byte_shape : NULL;
    out->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? a->byte_stride : NULL;
    return 0;
}

static PyObject *array_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = { "stream", "max_version", "dl_device", "copy", NULL };
    PyObject    *stream = Py_None, *most = Py_None, *device = Py_None, *copy = Py_None;
    long         major = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO", names, &stream, &most, &device, &copy))
        return NULL;
    if (copy == Py_True) {
        PyErr_SetString(PyExc_BufferError, "an Array can't be copied: copy the result");
        return NULL;
    }
    if (most != Py_None) {
        PyObject *first = PySequence_GetItem(most, 0);

        major = first ? PyLong_AsLong(first) : -1;
        Py_XDECREF(first);
        if (major == -1 && PyErr_Occurred())
            return NULL;
    }
    return dlpack_export((array *)self, major >= 1);
}

static PyObject *array_dlpack_device(PyObject *self, PyObject *none)
{
    (void)self;
    (void)none;
    return dlpack_device();
}

static PyObject *get_dtype(PyObject *self, void *none)
{
    (void)none;
    return PyUnicode_FromString(rsd_dtype_name(((array *)self)->dtype));
}

static PyObject *get_shape(PyObject *self, void *none)
{
    (void)none;
    return ints_of(((array *)self)->ndim, ((array *)self)->shape);
}

static PyObject *get_nbytes(PyObject *self, void *none)
{
    (void)none;
    return PyLong_FromSsize_t(((array *)self)->bytes);
}

static PyMethodDef methods[] = {
    { "__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS,
      "The memory as a DLPack capsule; the capsule's deleter keeps it." },
    { "__dlpack_device__", array_dlpack_device, METH_NOARGS, "(1, 0): ordinary memory." },
    { 0 },
};

static PyGetSetDef members[] = {
    { "dtype", get_dtype, NULL, "torch's name of the dtype, \"bfloat16\".", NULL },
    { "shape", get_shape, NULL, "The sizes of the dimensions.", NULL },
    { "nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL },
    { 0 },
};

static PyMemberDef offsets[] = {
    { "__weaklistoffset__", T_PYSSIZET, offsetof(array, weak), READONLY, NULL },
    { 0 },
};

static PyType_Slot slots[] = {
    { Py_tp_doc, "Packed memory that a result owns: buffer protocol and DLPack. A dtype that the "
                 "buffer protocol lacks (bfloat16, float8) is shown as bytes there." },
    { Py_tp_dealloc, array_dealloc },
    { Py_tp_methods, methods },
    { Py_tp_getset, members },
    { Py_tp_members, offsets },
    { Py_bf_getbuffer, array_getbuffer },
    { 0 },
};

PyType_Spec array_spec = {
    .name = "reshard.Array",
    .basicsize = sizeof(array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
