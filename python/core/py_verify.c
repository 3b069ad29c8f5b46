/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for damage in an open checkpoint. */
#include "py_core.h"

#include <stdlib.h>

typedef struct verify_work {
    work          w;
    opened       *from;
    rsd_read_opts opts;
    notes         found;
} verify_work;

static void damage(void *arg, const rsd_error *what)
{
    verify_work *v = arg;

    notes_add(&v->found, rsd_err_name((rsd_err)what->code), what->msg);
}

static rsd_err run_verify(work *w, rsd_error *err)
{
    verify_work *v = (verify_work *)w;

    return rsd_ckpt_verify(ckpt_opened(v->from), &v->opts, damage, v, NULL, err);
}

static void free_verify(work *w)
{
    verify_work *v = (verify_work *)w;

    ckpt_leave(v->from);
    notes_free(&v->found);
    free(v);
}

PyObject *core_verify(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = { "ckpt", "quick", "threads", "progress", NULL };
    core        *c = PyModule_GetState(module);
    PyObject    *ckpt, *progress = Py_None, *result = NULL;
    int          quick = 0, threads = 0;
    verify_work *v;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|$piO", names, c->ckpt, &ckpt, &quick,
                                     &threads, &progress))
        return NULL;
    v = (verify_work *)work_new(sizeof(*v), run_verify, free_verify);
    if (!v)
        return NULL;
    v->opts = (rsd_read_opts){ .size = sizeof(v->opts),
                               .threads = threads,
                               .quick = quick,
                               .on_progress = work_progress,
                               .arg = &v->w };
    v->from = ckpt_enter(ckpt);
    if (v->from && work_run(c, &v->w, WORK_DONE, progress) == 0)
        result = notes_list(&v->found);
    work_free(c, &v->w);
    return result;
}
