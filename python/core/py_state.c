/* SPDX-License-Identifier: Apache-2.0 */
/* A dict as a state: nested dicts and lists that hold tensors (Views) become nested names, all else
 * values. Next: py_save.c. */
#include "py_core.h"

#include <stdlib.h>
#include <string.h>

typedef struct filling {
    core            *c;
    rsd_state       *state;
    rsd_values      *values;
    const rsd_rules *rules;
    char            *name; /* full name of what is being added, for the rules */
    size_t           len, cap;
} filling;

static int add(filling *f, PyObject *x);

static int failed(filling *f, rsd_err rc, const rsd_error *err)
{
    return rc ? fail_with(f->c, err) : 0;
}

/* True if a dict or list holds a tensor somewhere that a state can name. */
static int has_tensors(const filling *f, PyObject *x)
{
    PyObject  *key, *item;
    Py_ssize_t at = 0;
    int        found = 0;

    if (Py_IS_TYPE(x, (PyTypeObject *)f->c->view))
        return 1;
    if (Py_EnterRecursiveCall(" while saving a dict"))
        return -1;
    if (PyDict_Check(x))
        while (found == 0 && PyDict_Next(x, &at, &key, &item))
            found = has_tensors(f, item);
    else if (PyList_Check(x) || PyTuple_Check(x))
        for (; found == 0 && at < PySequence_Size(x); at++)
            found =
                has_tensors(f, PyList_Check(x) ? PyList_GetItem(x, at) : PyTuple_GetItem(x, at));
    Py_LeaveRecursiveCall();
    return found;
}

/* ---- names ---- */

static int append(filling *f, const char *key)
{
    const size_t more = strlen(key) + 2;

    if (f->len + more > f->cap) {
        char *grown = realloc(f->name, 2 * (f->len + more));

        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        f->name = grown;
        f->cap = 2 * (f->len + more);
    }
    if (f->len > 0)
        f->name[f->len++] = '.';
    memcpy(f->name + f->len, key, more - 1);
    f->len += more - 2;
    return 0;
}

/* Adds x below a step that was pushed. */
static int add_below(filling *f, const char *step, PyObject *x)
{
    const size_t len = f->len;
    rsd_error    err = { .rank = -1 };
    int          rc = append(f, step);

    if (rc == 0)
        rc = add(f, x);
    f->len = len;
    if (f->name)
        f->name[len] = '\0';
    return rc < 0 ? -1 : failed(f, rsd_state_pop(f->state, &err), &err);
}

static int add_key(filling *f, PyObject *key, PyObject *x)
{
    rsd_error   err = { .rank = -1 };
    const char *text;
    long long   n;
    char        digits[24];

    if (PyUnicode_Check(key)) {
        text = utf8_of(key);
        if (!text || failed(f, rsd_state_push(f->state, text, &err), &err) < 0)
            return -1;
        return add_below(f, text, x);
    }
    if (!PyLong_Check(key) || PyBool_Check(key)) {
        PyErr_Format(PyExc_TypeError,
                     "keys of dicts that hold tensors must be str or int, but %R is a %R", key,
                     Py_TYPE(key));
        return -1;
    }
    n = PyLong_AsLongLong(key);
    if (n == -1 && PyErr_Occurred())
        return -1;
    PyOS_snprintf(digits, sizeof(digits), "%lld", n);
    if (failed(f, rsd_state_push_number(f->state, n, &err), &err) < 0)
        return -1;
    return add_below(f, digits, x);
}

static int add_index(filling *f, Py_ssize_t i, PyObject *x)
{
    rsd_error err = { .rank = -1 };
    char      digits[24];

    PyOS_snprintf(digits, sizeof(digits), "%zd", i);
    if (failed(f, rsd_state_push_index(f->state, i, &err), &err) < 0)
        return -1;
    return add_below(f, digits, x);
}

/* ---- contents ---- */

static int add_tensor(filling *f, const view *v)
{
    rsd_view    whole = { .box.ndim = v->ndim, .data = v->data };
    rsd_layout *layout = NULL;
    rsd_error   err = { .rank = -1 };
    rsd_err     rc;

    memcpy(whole.box.len, v->shape, sizeof(v->shape));
    memcpy(whole.stride, v->stride, sizeof(v->stride));
    rc = rsd_rules_layout(f->rules, f->name, v->dtype, v->ndim, v->shape, &layout, &err);
    if (!rc)
        rc = rsd_state_tensor(f->state, NULL, layout, v->dtype, v->ndim, v->shape,
                              rsd_box_count(&whole.box) > 0, &whole, &err);
    rsd_layout_free(layout);
    return failed(f, rc, &err);
}

static int add_dict(filling *f, PyObject *dict)
{
    PyObject  *key, *x;
    Py_ssize_t at = 0;

    while (PyDict_Next(dict, &at, &key, &x))
        if (add_key(f, key, x) < 0)
            return -1;
    return 0;
}

static int add(filling *f, PyObject *x)
{
    const rsd_value *value = NULL;
    rsd_error        err = { .rank = -1 };
    const int        inside = has_tensors(f, x);

    if (inside < 0)
        return -1;
    if (Py_IS_TYPE(x, (PyTypeObject *)f->c->view))
        return add_tensor(f, (view *)x);
    if (inside && PyDict_Check(x))
        return add_dict(f, x);
    for (Py_ssize_t i = 0; inside && i < PySequence_Size(x); i++)
        if (add_index(f, i, PyList_Check(x) ? PyList_GetItem(x, i) : PyTuple_GetItem(x, i)) < 0)
            return -1;
    if (inside)
        return 0;
    if (value_from_python(f->c, x, f->values, &value) < 0)
        return -1;
    return failed(f, rsd_state_value(f->state, NULL, value, &err), &err);
}

int state_fill(core *c, PyObject *tree, rsd_state *state, rsd_values *values,
               const rsd_rules *rules)
{
    filling f = { .c = c, .state = state, .values = values, .rules = rules };
    int     rc;

    if (!PyDict_Check(tree)) {
        PyErr_SetString(PyExc_TypeError, "expected a dict");
        return -1;
    }
    rc = add_dict(&f, tree);
    free(f.name);
    return rc;
}
