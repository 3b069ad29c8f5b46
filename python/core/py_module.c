/* SPDX-License-Identifier: Apache-2.0 */
/* reshard._core: the module, its types and errors. The Python half of the package, reshard/, is
 * its only user. py_ckpt.c reads, py_save.c saves, py_convert.c converts and verifies,
 * py_part.c and py_catalogue.c serve reshard.torch. */
#include "py_core.h"

#include <string.h>

/* ---- conversions ---- */

core *core_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

int fail_with(core *c, const rsd_error *err)
{
    PyObject *e;

    e = PyObject_CallFunction(c->make_error, "isii", (int)err->code,
                              err->msg[0] ? err->msg : rsd_err_name((rsd_err)err->code),
                              (int)err->rank, (int)err->sys_errno);
    if (e)
        PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_XDECREF(e);
    return -1;
}

PyObject *text_of(const char *text, size_t len)
{
    PyObject *s = PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "surrogatepass");

    if (s || !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        return s;
    PyErr_Clear();
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)len, "surrogateescape");
}

const char *utf8_of(PyObject *text)
{
    Py_ssize_t  len;
    const char *utf8;

    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "expected a str, not %R", Py_TYPE(text));
        return NULL;
    }
    utf8 = PyUnicode_AsUTF8AndSize(text, &len);
    if (utf8 && strlen(utf8) != (size_t)len) {
        PyErr_Format(PyExc_ValueError, "%R contains a NUL", text);
        return NULL;
    }
    return utf8;
}

PyObject *ints_of(int n, const int64_t *value)
{
    PyObject *tuple = PyTuple_New(n);

    for (int i = 0; tuple && i < n; i++) {
        PyObject *x = PyLong_FromLongLong(value[i]);

        if (!x)
            Py_CLEAR(tuple);
        else
            PyTuple_SetItem(tuple, i, x);
    }
    return tuple;
}

int ints_from(PyObject *tuple, int64_t *out)
{
    Py_ssize_t n = PySequence_Size(tuple);

    if (n > RSD_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError, "%zd dimensions: at most %d are supported", n, RSD_MAX_NDIM);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *x = PySequence_GetItem(tuple, i);

        out[i] = x ? PyLong_AsLongLong(x) : -1;
        Py_XDECREF(x);
        if (out[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)n;
}

void object_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc      release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    release(self);
    Py_DECREF(type);
}

/* ---- dtypes ---- */

/* dtype(name) -> (torch's name, bytes of one element) */
static PyObject *core_dtype(PyObject *module, PyObject *name)
{
    const char *text = utf8_of(name);
    rsd_error   err = { .rank = -1 };
    rsd_dtype   dtype;

    if (!text)
        return NULL;
    if (rsd_dtype_parse(text, &dtype, &err)) {
        fail_with(PyModule_GetState(module), &err);
        return NULL;
    }
    return Py_BuildValue("sn", rsd_dtype_name(dtype), (Py_ssize_t)rsd_dtype_size(dtype));
}

/* ---- the module ---- */

#define WITH_KEYWORDS(f) (PyCFunction)(void (*)(void)) f

static PyMethodDef methods[] = {
    { "dtype", core_dtype, METH_O, "dtype(name) -> (torch's name, bytes of one element)" },
    { "open", core_open, METH_VARARGS, "open(path, salvage, rank=-1) -> Ckpt" },
    { "save", WITH_KEYWORDS(core_save), METH_VARARGS | METH_KEYWORDS,
      "save(path, tree, *, stage, ...) -> None or Saving" },
    { "verify", WITH_KEYWORDS(core_verify), METH_VARARGS | METH_KEYWORDS,
      "verify(ckpt, *, quick, threads, progress) -> [(error, message), ...]" },
    { "meet", core_meet, METH_VARARGS,
      "meet(rank, size, put, get, dial, near, seconds) -> Comm; dial \"ucx\": over UCX" },
    { "settle", core_settle, METH_NOARGS, "Waits for calls that were interrupted." },
    { "plan", core_plan, METH_VARARGS, "plan(rank, source, target) -> Plan" },
    { "stash", core_stash, METH_VARARGS, "stash(comm, budget, handles) -> Stash" },
    { "convert", core_convert, METH_VARARGS, "convert(ckpt, path, ...) -> statistics" },
    { "write_part", WITH_KEYWORDS(core_write_part), METH_VARARGS | METH_KEYWORDS,
      "write_part(path, rank, items, *, transform, ...) -> Part" },
    { "publish", WITH_KEYWORDS(core_publish), METH_VARARGS | METH_KEYWORDS,
      "publish(path, receipts, metadata, *, overwrite, rank, sync, checksum) -> why the metadata "
      "can't be read, or None" },
    { "load", WITH_KEYWORDS(core_load), METH_VARARGS | METH_KEYWORDS,
      "load(path, state, comm or None, *, verify, ...) -> missing names" },
    { 0 },
};

static int add_type(PyObject *module, PyType_Spec *spec, const char *name, PyObject **out)
{
    *out = PyType_FromModuleAndSpec(module, spec, NULL);
    return *out ? PyModule_AddObjectRef(module, name, *out) : -1;
}

static int exec(PyObject *module)
{
    core     *c = PyModule_GetState(module);
    PyObject *errors = PyImport_ImportModule("reshard._errors");

    c->make_error = errors ? PyObject_GetAttrString(errors, "make") : NULL;
    Py_XDECREF(errors);
    if (!c->make_error || add_type(module, &array_spec, "Array", &c->array) < 0 ||
        add_type(module, &view_spec, "View", &c->view) < 0 ||
        add_type(module, &ckpt_spec, "Ckpt", &c->ckpt) < 0 ||
        add_type(module, &saving_spec, "Saving", &c->saving) < 0 ||
        add_type(module, &comm_spec, "Comm", &c->comm) < 0 ||
        add_type(module, &plan_spec, "Plan", &c->plan) < 0 ||
        add_type(module, &part_spec, "Part", &c->part) < 0)
        return -1;
    if (add_type(module, &stash_spec, "Stash", &c->stash) < 0 ||
        add_type(module, &layout_spec, "Layout", &c->layout) < 0 ||
        add_type(module, &state_spec, "State", &c->state) < 0 ||
        add_type(module, &series_spec, "Series", &c->series) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", rsd_version());
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    core *c = PyModule_GetState(module);

    Py_VISIT(c->make_error);
    Py_VISIT(c->array);
    Py_VISIT(c->view);
    Py_VISIT(c->ckpt);
    Py_VISIT(c->saving);
    Py_VISIT(c->comm);
    Py_VISIT(c->plan);
    Py_VISIT(c->part);
    Py_VISIT(c->stash);
    Py_VISIT(c->layout);
    Py_VISIT(c->state);
    Py_VISIT(c->series);
    return 0;
}

static int clear(PyObject *module)
{
    core *c = PyModule_GetState(module);

    Py_CLEAR(c->make_error);
    Py_CLEAR(c->array);
    Py_CLEAR(c->view);
    Py_CLEAR(c->ckpt);
    Py_CLEAR(c->saving);
    Py_CLEAR(c->comm);
    Py_CLEAR(c->plan);
    Py_CLEAR(c->part);
    Py_CLEAR(c->stash);
    Py_CLEAR(c->layout);
    Py_CLEAR(c->state);
    Py_CLEAR(c->series);
    return 0;
}

static void release(void *module)
{
    clear(module);
}

/* Slots that Python 3.11 does not know, by the numbers of the stable ABI. */
enum { SLOT_INTERPRETERS = 3, SLOT_GIL = 4 };
#define OWN_GIL ((void *)2) /* interpreters with a GIL of their own may import it */
#define NO_GIL  ((void *)1) /* it does not need the GIL */
#define PY_3_12 0x030c0000u
#define PY_3_13 0x030d0000u

static PyModuleDef_Slot slots[4] = { { Py_mod_exec, exec } };

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "reshard._core",
    .m_doc = "The C half of reshard; use the package.",
    .m_size = sizeof(core),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = release,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    if (Py_Version >= PY_3_12)
        slots[1] = (PyModuleDef_Slot){ SLOT_INTERPRETERS, OWN_GIL };
    if (Py_Version >= PY_3_13)
        slots[2] = (PyModuleDef_Slot){ SLOT_GIL, NO_GIL };
    return PyModuleDef_Init(&definition);
}
