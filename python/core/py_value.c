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

/* Its class, and what is known of it as text. */
static PyObject *opaque_to_python(const rsd_value *v, PyObject *hook)
{
    const size_t len = rsd_value_text(v, NULL, 0);
    char        *text = PyMem_Malloc(len + 1);
    PyObject    *pair;

    if (!text)
        return PyErr_NoMemory();
    rsd_value_text(v, text, len + 1);
    pair = Py_BuildValue("(ss#)", rsd_value_bytes(v, NULL), text, (Py_ssize_t)len);
    PyMem_Free(text);
    return ask(hook, "opaque", pair);
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
    return opaque_to_python(v, hook);
}

/* ---- from Python ---- */

static int done_with(core *c, rsd_err rc, const rsd_error *err)
{
    return rc ? fail_with(c, err) : 0;
}

static int int_from(core *c, PyObject *x, rsd_values *owner, const rsd_value **out)
{
    rsd_error   err = { .rank = -1 };
    int         overflow;
    long long   n = PyLong_AsLongLongAndOverflow(x, &overflow);
    PyObject   *digits;
    const char *text;
    Py_ssize_t  len;
    int         rc = -1;

    if (n == -1 && PyErr_Occurred())
        return -1;
    if (!overflow)
        return done_with(c, rsd_value_create_int(owner, n, out, &err), &err);
    digits = PyObject_Str(x);
    text = digits ? PyUnicode_AsUTF8AndSize(digits, &len) : NULL;
    if (text)
        rc = done_with(
            c, rsd_value_create_bytes(owner, RSD_VALUE_BIGINT, text, (size_t)len, out, &err), &err);
    Py_XDECREF(digits);
    return rc;
}

/* A str, or one of its subclasses for dtypes and devices, which say so. */
static int str_from(core *c, PyObject *x, rsd_values *owner, const rsd_value **out)
{
    rsd_error  err = { .rank = -1 };
    PyObject  *utf8 = PyUnicode_AsEncodedString(x, "utf-8", "surrogatepass");
    PyObject  *kind = NULL;
    const char device = 'e', type = 't';
    char       what = 0;
    rsd_dtype  dtype;
    rsd_err    rc;

    if (!utf8)
        return -1;
    if (!PyUnicode_CheckExact(x)) {
        kind = PyObject_GetAttrString(x, "_reshard_kind");
        if (!kind)
            PyErr_Clear();
        else
            what = PyUnicode_CompareWithASCIIString(kind, "dtype") == 0 ? type : device;
        Py_XDECREF(kind);
    }
    if (what == type) {
        rc = rsd_dtype_parse(PyBytes_AsString(utf8), &dtype, &err);
        if (!rc)
            rc = rsd_value_create_dtype(owner, dtype, out, &err);
    } else {
        rc = rsd_value_create_bytes(owner, what == device ? RSD_VALUE_DEVICE : RSD_VALUE_STR,
                                    PyBytes_AsString(utf8), (size_t)PyBytes_Size(utf8), out, &err);
    }
    Py_DECREF(utf8);
    return done_with(c, rc, &err);
}

static int bytes_from(core *c, PyObject *x, rsd_values *owner, const rsd_value **out)
{
    rsd_error err = { .rank = -1 };

    return done_with(c,
                     rsd_value_create_bytes(owner, RSD_VALUE_BYTES, PyBytes_AsString(x),
                                            (size_t)PyBytes_Size(x), out, &err),
                     &err);
}

/* `items` is a list: of items, or of keys and values in turn. */
static int items_from(core *c, PyObject *items, rsd_value_type type, rsd_values *owner,
                      const rsd_value **out)
{
    const size_t      n = (size_t)PyList_Size(items);
    const rsd_value **item = calloc(n + 1, sizeof(*item));
    rsd_error         err = { .rank = -1 };
    int               rc = item ? 0 : -1;

    if (!item)
        PyErr_NoMemory();
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = value_from_python(c, PyList_GetItem(items, (Py_ssize_t)i), owner, &item[i]);
    if (rc == 0)
        rc = done_with(
            c,
            rsd_value_create_list(owner, type, type == RSD_VALUE_DICT ? n / 2 : n, item, out, &err),
            &err);
    free(item);
    return rc;
}

static PyObject *pairs_of(PyObject *dict)
{
    PyObject  *list = PyList_New(0), *key, *x;
    Py_ssize_t at = 0;

    while (list && PyDict_Next(dict, &at, &key, &x))
        if (PyList_Append(list, key) < 0 || PyList_Append(list, x) < 0)
            Py_CLEAR(list);
    return list;
}

static int container_from(core *c, PyObject *x, rsd_values *owner, const rsd_value **out)
{
    const rsd_value_type type = PyDict_Check(x)    ? RSD_VALUE_DICT
                                : PyTuple_Check(x) ? RSD_VALUE_TUPLE
                                : PyList_Check(x)  ? RSD_VALUE_LIST
                                                   : RSD_VALUE_SET;
    PyObject            *items;
    int                  rc = -1;

    if (Py_EnterRecursiveCall(" while saving a value"))
        return -1;
    items = type == RSD_VALUE_DICT ? pairs_of(x) : PySequence_List(x);
    if (items)
        rc = items_from(c, items, type, owner, out);
    Py_XDECREF(items);
    Py_LeaveRecursiveCall();
    return rc;
}

/* Saved with an object, so packed first. */
static int tensor_from(core *c, const view *v, rsd_values *owner, const rsd_value **out)
{
    rsd_value_tensor t = { .dtype = v->dtype, .ndim = v->ndim, .bytes = v->data };
    const int64_t    size = (int64_t)rsd_dtype_size(v->dtype);
    rsd_error        err = { .rank = -1 };
    int64_t          elements = 1;

    for (int d = v->ndim - 1; d >= 0; d--) {
        if (v->stride[d] && v->shape[d] > 1 && v->stride[d] != elements * size) {
            PyErr_SetString(PyExc_ValueError,
                            "a tensor inside a set, or a dict with other keys than str and int, "
                            "must be contiguous");
            return -1;
        }
        t.shape[d] = v->shape[d];
        t.stride[d] = elements;
        elements *= v->shape[d];
    }
    t.storage_bytes = elements * size;
    return done_with(c, rsd_value_create_tensor(owner, &t, out, &err), &err);
}

int value_from_python(core *c, PyObject *x, rsd_values *owner, const rsd_value **out)
{
    rsd_error err = { .rank = -1 };

    if (x == Py_None)
        return done_with(c, rsd_value_create_none(owner, out, &err), &err);
    if (PyBool_Check(x))
        return done_with(c, rsd_value_create_bool(owner, x == Py_True, out, &err), &err);
    if (PyLong_Check(x))
        return int_from(c, x, owner, out);
    if (PyFloat_Check(x))
        return done_with(c, rsd_value_create_float(owner, PyFloat_AsDouble(x), out, &err), &err);
    if (PyUnicode_Check(x))
        return str_from(c, x, owner, out);
    if (PyBytes_Check(x))
        return bytes_from(c, x, owner, out);
    if (PyDict_Check(x) || PyList_Check(x) || PyTuple_Check(x) || PyAnySet_Check(x))
        return container_from(c, x, owner, out);
    if (Py_IS_TYPE(x, (PyTypeObject *)c->view))
        return tensor_from(c, (view *)x, owner, out);
    PyErr_Format(PyExc_TypeError, "objects of %R can't be saved", Py_TYPE(x));
    return -1;
}
