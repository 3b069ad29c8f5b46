/* SPDX-License-Identifier: Apache-2.0 */
/* What the library tells a callback while the GIL is released: kept as text, and made a list of it
 * at the end. */
#include "py_core.h"

#include <stdlib.h>
#include <string.h>

void notes_add(notes *all, const char *one, const char *two)
{
    if (all->n == all->cap) {
        size_t cap = 2 * all->cap + 16;
        char **more = realloc(all->text, 2 * cap * sizeof(*more));

        if (!more) {
            all->no_memory = true;
            return;
        }
        all->text = more;
        all->cap = cap;
    }
    all->text[2 * all->n] = strdup(one);
    all->text[2 * all->n + 1] = strdup(two);
    all->no_memory = all->no_memory || !all->text[2 * all->n] || !all->text[2 * all->n + 1];
    all->n++;
}

PyObject *notes_list(const notes *all)
{
    PyObject *list;

    if (all->no_memory)
        return PyErr_NoMemory();
    list = PyList_New((Py_ssize_t)all->n);
    for (size_t i = 0; list && i < all->n; i++) {
        const char *one = all->text[2 * i], *two = all->text[2 * i + 1];
        PyObject *pair = Py_BuildValue("NN", text_of(one, strlen(one)), text_of(two, strlen(two)));

        if (!pair)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, pair);
    }
    return list;
}

void notes_free(notes *all)
{
    for (size_t i = 0; i < 2 * all->n; i++)
        free(all->text[i]);
    free(all->text);
}
