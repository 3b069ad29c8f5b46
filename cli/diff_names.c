/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs the tensors and objects of two checkpoints by name, after filters and renaming. */
#include "diff.h"

#include <stdlib.h>
#include <string.h>

bool holds_objects(const rsd_ckpt *ckpt)
{
    return rsd_ckpt_format(ckpt) != RSD_FORMAT_SAFETENSORS;
}

static int by_name(const void *left, const void *right)
{
    const entry *a = *(entry *const *)left, *b = *(entry *const *)right;
    int          c = strcmp(a->name, b->name);

    return c ? c : (int)a->object - (int)b->object;
}

/* --rename maps names of A to names of B. */
static int add_entry(diff *d, int which, const char *own, bool object, size_t i)
{
    side       *s = &d->side[which];
    const char *name = which == 0 ? patterns_rename(&d->patterns, own) : own;
    entry      *e = &s->all[s->n];

    *e = (entry){ .own = own, .i = i, .object = object };
    e->wanted = patterns_want(&d->patterns, own);
    e->name = name ? strdup(name) : NULL;
    if (!e->name)
        return diff_no_memory(d);
    s->sorted[s->n++] = e;
    return EXIT_DONE;
}

static int list_side(diff *d, int which)
{
    side           *s = &d->side[which];
    const size_t    tensors = rsd_ckpt_tensors(s->ckpt), objects = rsd_ckpt_objects(s->ckpt);
    rsd_tensor_info info = { .size = sizeof(info) };
    const char     *name;
    rsd_error       err = { .msg = "" };
    int             code = EXIT_DONE;

    s->all = calloc(tensors + objects + 1, sizeof(s->all[0]));
    s->sorted = calloc(tensors + objects + 1, sizeof(s->sorted[0]));
    if (!s->all || !s->sorted)
        return diff_no_memory(d);
    for (size_t t = 0; t < tensors && !code; t++)
        code = rsd_ckpt_tensor(s->ckpt, t, &info, &err) ? fail(d->a, &err)
                                                        : add_entry(d, which, info.name, false, t);
    for (size_t i = 0; i < objects && !code; i++)
        code = rsd_ckpt_object(s->ckpt, i, &name, NULL, NULL, &err)
                   ? fail(d->a, &err)
                   : add_entry(d, which, name, true, i);
    if (!code)
        qsort(s->sorted, s->n, sizeof(s->sorted[0]), by_name);
    return code;
}

/* The same check as in `convert`. */
static int check_renaming(const diff *d)
{
    const side  *s = &d->side[0];
    const entry *last = NULL, *twice = NULL;

    for (size_t i = 0; i < s->n && d->patterns.nrenamings; i++) {
        const entry *e = s->sorted[i], *second;

        if (!e->wanted || (e->object && !holds_objects(d->side[1].ckpt)))
            continue;
        if (!*e->name && *e->own)
            return refuse(d->a, EXIT_MISUSE, "\"%s\" would be renamed to an empty name", e->own);
        if (last && strcmp(last->name, e->name) == 0) {
            second = last > e ? last : e;
            twice = !twice || second < twice ? second : twice;
        }
        last = e;
    }
    return twice ? refuse(d->a, EXIT_MISUSE,
                          "the name \"%s\" is given twice, the second time to \"%s\"", twice->name,
                          twice->own)
                 : EXIT_DONE;
}

static bool same_shape(const rsd_tensor_info *a, const rsd_tensor_info *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) == 0;
}

/* The tensor of B that matches one of A; reports differences in dtype and shape. */
static int match_tensor(diff *d, const entry *ea)
{
    rsd_tensor_info a = { .size = sizeof(a) }, b = a;
    rsd_error       err = { .msg = "" };
    char            sa[256], sb[256];
    size_t          tb;
    bool            comparable;

    if (rsd_ckpt_find(d->side[1].ckpt, ea->name, &tb, NULL)) {
        diff_say(d, false, "only_a", ea->own, NULL, NULL);
        return EXIT_DONE;
    }
    if (rsd_ckpt_tensor(d->side[0].ckpt, ea->i, &a, &err) ||
        rsd_ckpt_tensor(d->side[1].ckpt, tb, &b, &err))
        return fail(d->a, &err);
    if (d->names_only)
        return EXIT_DONE;
    comparable = a.dtype == b.dtype ||
                 (d->cast && rsd_dtype_cast(b.dtype, NULL, a.dtype, NULL, 0, NULL) == RSD_OK);
    if (!comparable)
        diff_say(d, false, "dtype", ea->name, rsd_dtype_name(a.dtype), rsd_dtype_name(b.dtype));
    if (!same_shape(&a, &b))
        diff_say(d, false, "shape", ea->name, shape_text(a.ndim, a.shape, sa, sizeof(sa)),
                 shape_text(b.ndim, b.shape, sb, sizeof(sb)));
    if (comparable && same_shape(&a, &b))
        d->pair[d->npairs++] = (pair){ .ta = ea->i, .tb = tb, .from = a.dtype, .info = b };
    return EXIT_DONE;
}

/* Marks the entries that both sides have; equal names must also be of the same kind. */
static void mark_met(diff *d)
{
    side  *a = &d->side[0], *b = &d->side[1];
    size_t i = 0, k = 0;

    while (i < a->n && k < b->n) {
        int c = by_name(&a->sorted[i], &b->sorted[k]);

        if (c == 0)
            a->sorted[i]->met = b->sorted[k]->met = true;
        i += c <= 0;
        k += c >= 0;
    }
}

int diff_list(diff *d)
{
    int code = list_side(d, 0);

    if (!code)
        code = check_renaming(d);
    return code ? code : list_side(d, 1);
}

int diff_match(diff *d)
{
    side *a = &d->side[0], *b = &d->side[1];
    int   code;

    mark_met(d);
    code = diff_unfold(d);
    d->pair = calloc(a->n + 1, sizeof(d->pair[0]));
    if (!code && !d->pair)
        return diff_no_memory(d);
    for (size_t i = 0; i < a->n && !code && !a->all[i].object; i++) {
        const entry *e = &a->all[i];
        size_t       t;
        bool         folded = e->met && rsd_ckpt_find(b->ckpt, e->name, &t, NULL) != RSD_OK;

        if (e->wanted && !folded)
            code = match_tensor(d, e);
    }
    for (size_t k = 0; k < b->n && !code && !b->all[k].object; k++)
        if (b->all[k].wanted && !b->all[k].met)
            diff_say(d, false, "only_b", b->all[k].name, NULL, NULL);
    return code;
}

void diff_names_free(diff *d)
{
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < d->side[s].n; i++)
            free(d->side[s].all[i].name);
        free(d->side[s].all);
        free(d->side[s].sorted);
    }
    for (size_t i = 0; i < d->ninside; i++)
        free(d->inside[i].name);
    free(d->inside);
    free(d->pair);
    rsd_values_free(d->values);
}
