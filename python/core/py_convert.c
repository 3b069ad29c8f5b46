/* SPDX-License-Identifier: Apache-2.0 */
/* Writes an open checkpoint as another one. New names come as a table, since the library asks for
 * them without the GIL. */
#include "py_core.h"

#include <reshard/reshard_recipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct renaming {
    const char *from, *to;
} renaming;

typedef struct convert_work {
    work              w;
    opened           *from;
    PyObject         *held; /* owns the texts below */
    const char       *path;
    rsd_rules        *rules;
    rsd_recipe       *recipe;
    rsd_convert_opts  opts;
    rsd_convert_stats stats;
    const char      **patterns; /* include, then exclude */
    rsd_cast         *casts;
    renaming         *renamings; /* [nrenamings] sorted */
    size_t            nrenamings;
    notes             left_out, kept;
} convert_work;

/* ---- without the GIL ---- */

static int by_name(const void *left, const void *right)
{
    const renaming *a = left, *b = right;

    return strcmp(a->from, b->from);
}

static const char *rename_one(void *arg, const char *name)
{
    convert_work   *w = arg;
    const renaming  key = { .from = name };
    const renaming *hit =
        bsearch(&key, w->renamings, w->nrenamings, sizeof(*w->renamings), by_name);

    return hit ? hit->to : name;
}

static void left_out(void *arg, const char *name, const char *why)
{
    notes_add(&((convert_work *)arg)->left_out, name, why);
}

static void kept(void *arg, const char *partial)
{
    notes_add(&((convert_work *)arg)->kept, partial, "");
}

static int progress_of(void *arg, int64_t done, int64_t total)
{
    return work_progress(&((convert_work *)arg)->w, done, total);
}

static rsd_err run_convert(work *w, rsd_error *err)
{
    convert_work *v = (convert_work *)w;

    return rsd_convert(ckpt_opened(v->from), v->path, NULL, &v->opts, err);
}

/* ---- with it ---- */

static void free_convert(work *w)
{
    convert_work *v = (convert_work *)w;

    ckpt_leave(v->from);
    Py_XDECREF(v->held);
    rsd_rules_free(v->rules);
    rsd_recipe_free(v->recipe);
    free(v->patterns);
    free(v->casts);
    free(v->renamings);
    notes_free(&v->left_out);
    notes_free(&v->kept);
    free(v);
}

/* include and exclude are lists of str. */
static int take_patterns(convert_work *v, PyObject *include, PyObject *exclude)
{
    const size_t n = (size_t)PyList_Size(include), m = (size_t)PyList_Size(exclude);

    v->patterns = calloc(n + m + 1, sizeof(*v->patterns));
    if (!v->patterns) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < n + m; i++) {
        v->patterns[i] = utf8_of(i < n ? PyList_GetItem(include, (Py_ssize_t)i)
                                       : PyList_GetItem(exclude, (Py_ssize_t)(i - n)));
        if (!v->patterns[i])
            return -1;
    }
    v->opts.include = v->patterns;
    v->opts.ninclude = n;
    v->opts.exclude = v->patterns + n;
    v->opts.nexclude = m;
    return 0;
}

/* casts is a list of (pattern or None, dtype). */
static int take_casts(core *c, convert_work *v, PyObject *casts)
{
    const size_t n = (size_t)PyList_Size(casts);

    v->casts = calloc(n + 1, sizeof(*v->casts));
    if (!v->casts) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        rsd_error   err = { .rank = -1 };
        const char *dtype;

        if (!PyArg_ParseTuple(PyList_GetItem(casts, (Py_ssize_t)i), "zs", &v->casts[i].pattern,
                              &dtype))
            return -1;
        if (rsd_dtype_parse(dtype, &v->casts[i].dtype, &err))
            return fail_with(c, &err);
    }
    v->opts.casts = v->casts;
    v->opts.ncasts = n;
    return 0;
}

/* names is a dict of old to new names. */
static int take_names(convert_work *v, PyObject *names)
{
    PyObject  *from, *to;
    Py_ssize_t at = 0;

    v->renamings = calloc((size_t)PyDict_Size(names) + 1, sizeof(*v->renamings));
    if (!v->renamings) {
        PyErr_NoMemory();
        return -1;
    }
    while (PyDict_Next(names, &at, &from, &to)) {
        renaming *r = &v->renamings[v->nrenamings];

        r->from = utf8_of(from);
        r->to = r->from ? utf8_of(to) : NULL;
        if (!r->to)
            return -1;
        v->nrenamings++;
    }
    if (v->nrenamings > 0)
        qsort(v->renamings, v->nrenamings, sizeof(*v->renamings), by_name);
    v->opts.rename = v->nrenamings > 0 ? rename_one : NULL;
    return 0;
}

static int take_layout(core *c, convert_work *v, const char *layout)
{
    rsd_error err = { .rank = -1 };

    if (layout && rsd_rules_parse(layout, &v->rules, &err))
        return fail_with(c, &err);
    v->opts.rules = v->rules;
    return 0;
}

/* Says which argument was wrong. */
static int fail_in(core *c, const char *what, rsd_error err)
{
    rsd_error told = err;

    snprintf(told.msg, sizeof(told.msg), "%s: %.*s", what, (int)sizeof(err.msg) - 16, err.msg);
    return fail_with(c, &told);
}

/* recipe is None, or (text, reverse, config.json as bytes or None, a dict of names to floats). */
static int take_recipe(core *c, convert_work *v, PyObject *recipe)
{
    rsd_error   err = { .rank = -1 };
    const char *text, *config;
    int         reverse;
    Py_ssize_t  len, at = 0;
    PyObject   *numbers, *name, *value;

    if (Py_IsNone(recipe))
        return 0;
    if (!PyArg_ParseTuple(recipe, "spz#O!", &text, &reverse, &config, &len, &PyDict_Type, &numbers))
        return -1;
    if (rsd_recipe_parse(text, reverse, &v->recipe, &err) ||
        (config && rsd_recipe_config(v->recipe, config, (size_t)len, &err)))
        return fail_in(c, v->recipe ? "config" : "recipe", err);
    while (PyDict_Next(numbers, &at, &name, &value)) {
        const char  *key = utf8_of(name);
        const double number = key ? PyFloat_AsDouble(value) : -1;

        if (PyErr_Occurred())
            return -1;
        if (rsd_recipe_set(v->recipe, key, number, &err))
            return fail_in(c, "set", err);
    }
    v->opts.recipe = v->recipe;
    return 0;
}

static PyObject *result_of(const convert_work *v)
{
    const rsd_convert_stats *s = &v->stats;

    return Py_BuildValue("{sssLsLsLsLsLsLsN}", "format", format_name(s->format), "tensors",
                         (long long)s->tensors, "objects", (long long)s->objects, "files",
                         (long long)s->files, "bytes", (long long)s->bytes, "carried",
                         (long long)s->carried, "reused", (long long)s->reused, "left_out",
                         notes_list(&v->left_out));
}

/* Says where an interrupted run can be resumed from. */
static void name_kept(const convert_work *v)
{
    PyObject *type, *value, *trace, *done;

    if (v->kept.n == 0 || !v->kept.text[0])
        return;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    done = value
               ? PyObject_CallMethod(value, "add_note", "s", "convert(..., resume=True) resumes it")
               : NULL;
    Py_XDECREF(done);
    PyErr_Restore(type, value, trace);
}

static convert_work *new_convert(PyObject *ckpt, PyObject *args)
{
    convert_work *v = (convert_work *)work_new(sizeof(*v), run_convert, free_convert);

    if (!v)
        return NULL;
    v->w.writes = true;
    v->held = Py_NewRef(args);
    v->stats.size = sizeof(v->stats);
    v->opts = (rsd_convert_opts){ .size = sizeof(v->opts),
                                  .on_progress = progress_of,
                                  .on_left_out = left_out,
                                  .on_kept = kept,
                                  .arg = v,
                                  .stats = &v->stats };
    v->from = ckpt_enter(ckpt);
    return v;
}

/* convert(ckpt, path as bytes, layout or None, include, exclude, casts, names, recipe, (format,
 * shard_size, transform or None, max_memory, threads, overwrite, keep, resume, sync, checksum,
 * verify, dry_run, carry, salvage), progress) */
PyObject *core_convert(PyObject *module, PyObject *args)
{
    core              *c = PyModule_GetState(module);
    PyObject          *ckpt, *include, *exclude, *casts, *names, *recipe, *progress;
    PyObject          *result = NULL;
    const char        *path, *layout, *transform;
    int                format, threads, overwrite, keep, resume, sync, checksum, verify, dry_run;
    int                carry, salvage;
    unsigned long long shard_size;
    Py_ssize_t         max_memory;
    convert_work      *v;

    if (!PyArg_ParseTuple(args, "O!yzO!O!O!O!O(iKznipppiiipip)O", c->ckpt, &ckpt, &path, &layout,
                          &PyList_Type, &include, &PyList_Type, &exclude, &PyList_Type, &casts,
                          &PyDict_Type, &names, &recipe, &format, &shard_size, &transform,
                          &max_memory, &threads, &overwrite, &keep, &resume, &sync, &checksum,
                          &verify, &dry_run, &carry, &salvage, &progress))
        return NULL;
    v = new_convert(ckpt, args);
    if (!v)
        return NULL;
    v->path = path;
    v->opts.format = (rsd_format)format;
    v->opts.shard_size = shard_size;
    v->opts.transform = transform;
    v->opts.max_memory = (size_t)max_memory;
    v->opts.threads = threads;
    v->opts.overwrite = overwrite;
    v->opts.keep = keep;
    v->opts.resume = resume;
    v->opts.sync = (rsd_choice)sync;
    v->opts.checksum = (rsd_choice)checksum;
    v->opts.verify = (rsd_choice)verify;
    v->opts.dry_run = dry_run;
    v->opts.carry = (rsd_choice)carry;
    v->opts.salvage = salvage;
    if (v->from && take_layout(c, v, layout) == 0 && take_patterns(v, include, exclude) == 0 &&
        take_casts(c, v, casts) == 0 && take_names(v, names) == 0 &&
        take_recipe(c, v, recipe) == 0) {
        if (work_run(c, &v->w, WORK_DONE, progress) == 0)
            result = result_of(v);
        else
            name_kept(v);
    }
    work_free(c, &v->w);
    return result;
}
