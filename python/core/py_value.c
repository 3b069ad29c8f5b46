/* SPDX-License-Identifier: Apache-2.0 */
/* Values: the objects of a checkpoint as Python objects, and back. Nothing is unpickled. */
#include "py_core.h"

#include <stdlib.h>
#include <string.h>

/* ---- to Python ---- */

static PyObject *ask(PyObject *hook, const char *kind, PyObject *x)
{
    PyObject *result = x ? PyObject_CallFunction(hook, "sO", kind, x) : NULL;

    Py_XDECREF(x);
    return result;
}

/* Copies the elements of a strided view, packed. */
static void pack(const rsd_value_tensor *t, char *out)
{
    const size_t size = rsd_dtype_size(t->dtype);
    int64_t      at[RSD_MAX_NDIM] = { 0 }, place = t->offset;
    int          d;

    do {
        memcpy(out, (const char *)t->bytes + (size_t)place * size, size);
        out += size;
        for (d = t->ndim - 1; d >= 0; d--) {
            place += t->stride[d];
            if (++at[d] < t->shape[d])
                break;
            place -= at[d] * t->stride[d];
            at[d] = 0;
        }
    } while (d >= 0);
}

static PyObject *tensor_to_python(core *c, const rsd_value_tensor *t, PyObject *hook)
{
    array *a;

    if ((!t->bytes && t->storage_bytes > 0) || t->conj || t->neg)
        return ask(hook, "tensor", Py_NewRef(Py_None));
    a = array_new(c, t->dtype, t->ndim, t->shape);
    if (a && a->bytes > 0)
        pack(t, a->memory->data);
    return ask(hook, "tensor", (PyObject *)a);
}

static PyObject *list_to_python(core *c, const rsd_value *v, PyObject *hook)
{
    const size_t n = rsd_value_count(v);
    PyObject    *list = PyList_New((Py_ssize_t)n);
    PyObject    *result = list;

    for (size_t i = 0; list && i < n; i++) {
        PyObject *x = value_to_python(c, rsd_value_item(v, i), hook);

        if (!x)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, x);
    }
    result = list;
    if (list && rsd_value_type_of(v) == RSD_VALUE_TUPLE)
        result = PyList_AsTuple(list);
    if (list && rsd_value_type_of(v) == RSD_VALUE_SET)
        result = PySet_New(list);
    if (list && result != list)
        Py_DECREF(list);
    return result;
}

static PyObject *dict_to_python(core *c, const rsd_value *v, PyObject *hook)
{
    PyObject *dict = PyDict_New();

    for (size_t i = 0; dict && i < rsd_value_count(v); i++) {
        PyObject *key = value_to_python(c, rsd_value_key(v, i), hook);
        PyObject *x = key ? value_to_python(c, rsd_value_item(v, i), hook) : NULL;

        if (!x || PyDict_SetItem(dict, key, x) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(key);
        Py_XDECREF(x);
    }
    return dict;
}

PyObject *value_to_python(core *c, const rsd_value *v, PyObject *hook)
{
    size_t      len = 0;
    const char *bytes = rsd_value_bytes(v, &len);

    switch (rsd_value_type_of(v)) {
    case RSD_VALUE_NONE:
        return Py_NewRef(Py_None);
    case RSD_VALUE_BOOL:
        return PyBool_FromLong(rsd_value_bool(v));
    case RSD_VALUE_INT:
        return PyLong_FromLongLong(rsd_value_int(v));
    case RSD_VALUE_BIGINT:
        return PyLong_FromString(bytes, NULL, 10);
    case RSD_VALUE_FLOAT:
        return PyFloat_FromDouble(rsd_value_float(v));
    case RSD_VALUE_STR:
        return text_of(bytes, len);
    case RSD_VALUE_BYTES:
        return PyBytes_FromStringAndSize(bytes, (Py_ssize_t)len);
    case RSD_VALUE_LIST:
    case RSD_VALUE_TUPLE:
    case RSD_VALUE_SET:
        return list_to_python(c, v, hook);
    case RSD_VALUE_DICT:
        return dict_to_python(c, v, hook);
    case RSD_VALUE_DTYPE:
        return ask(hook, "dtype", PyUnicode_FromString(rsd_dtype_name(rsd_value_dtype(v))));
    case RSD_VALUE_DEVICE:
        return ask(hook, "device", text_of(bytes, len));
    case RSD_VALUE_TENSOR:
        return tensor_to_python(c, rsd_value_tensor_of(v), hook);
    case RSD_VALUE_OPAQUE:
        break;
    }
    return ask(hook, "opaque", text_of(bytes ? bytes : "", len));
}
