/* SPDX-License-Identifier: Apache-2.0 */
/* Compares objects by their digests, and values inside an object of one side with those that the
 * other side stores separately. Anything that can't be compared is recorded, never skipped
 * silently. */
#include "diff.h"

#include <reshard/reshard_folder.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_VALUE 100 /* characters of an object */

/* ---- stored whole on one side, in parts on the other ---- */

/* The first entry whose name is not less than `name`. */
static size_t lower_bound(const side *s, const char *name)
{
    size_t lo = 0, hi = s->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (strcmp(s->sorted[mid]->name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static entry *find_entry(const side *s, const char *name, bool object)
{
    for (size_t i = lower_bound(s, name); i < s->n && strcmp(s->sorted[i]->name, name) == 0; i++)
        if (s->sorted[i]->object == object && !s->sorted[i]->met)
            return s->sorted[i];
    return NULL;
}

/* "name.key"; NULL: no memory, or a key that can't be part of a name. */
static char *child_name(const rsd_value *v, size_t i, const char *name)
{
    const rsd_value *key = rsd_value_key(v, i);
    size_t           cap = strlen(name) + 24 +
                 strlen(rsd_value_type_of(key) == RSD_VALUE_STR ? rsd_value_bytes(key, NULL) : "");
    char *out = malloc(cap);

    if (!out)
        return NULL;
    if (key && rsd_value_type_of(key) == RSD_VALUE_STR)
        snprintf(out, cap, "%s.%s", name, rsd_value_bytes(key, NULL));
    else
        snprintf(out, cap, "%s.%" PRId64, name, key ? rsd_value_int(key) : (int64_t)i);
    return out;
}

static bool has_names(const rsd_value *v)
{
    for (size_t i = 0; rsd_value_type_of(v) == RSD_VALUE_DICT && i < rsd_value_count(v); i++) {
        rsd_value_type key = rsd_value_type_of(rsd_value_key(v, i));

        if (key != RSD_VALUE_STR && key != RSD_VALUE_INT)
            return false;
    }
    return rsd_value_count(v) > 0 && rsd_value_type_of(v) != RSD_VALUE_SET;
}

/* True if the other side has names below this one. */
static bool has_below(const side *s, const char *name)
{
    size_t len = strlen(name);
    char  *dot = malloc(len + 2);
    size_t i = s->n;

    if (dot) {
        memcpy(dot, name, len);
        memcpy(dot + len, ".", 2);
        i = lower_bound(s, dot);
    }
    free(dot);
    return i < s->n && strncmp(s->sorted[i]->name, name, len) == 0 &&
           s->sorted[i]->name[len] == '.';
}

static int note_inside(diff *d, inside one)
{
    if (d->ninside == d->inside_cap) {
        size_t  cap = 2 * d->inside_cap + 16;
        inside *more = realloc(d->inside, cap * sizeof(more[0]));

        if (!more)
            return diff_no_memory(d);
        d->inside = more;
        d->inside_cap = cap;
    }
    one.name = strdup(one.name);
    if (!one.name)
        return diff_no_memory(d);
    if (one.other)
        one.other->met = true;
    d->inside[d->ninside++] = one;
    return EXIT_DONE;
}

/* Values nest no deeper than RSD_VALUE_MAX_DEPTH. */
static int unfold(diff *d, int which, size_t object, char *name, const rsd_value *v)
{
    const side *other = &d->side[!which];
    entry      *same = find_entry(other, name, rsd_value_type_of(v) != RSD_VALUE_TENSOR);
    int         code = EXIT_DONE;

    if (same || !has_names(v) || !has_below(other, name))
        return note_inside(d, (inside){ which, object, v, name, same });
    for (size_t i = 0; i < rsd_value_count(v) && !code; i++) {
        char *child = child_name(v, i, name);

        code = child ? unfold(d, which, object, child, rsd_value_item(v, i)) : diff_no_memory(d);
        free(child);
    }
    return code;
}

int diff_unfold(diff *d)
{
    rsd_error err = { .msg = "" };
    int       code = EXIT_DONE;

    if (rsd_values_create(&d->values, &err))
        return fail(d->a, &err);
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < d->side[s].n && !code; i++) {
            entry           *e = &d->side[s].all[i];
            const rsd_value *v;
            const char      *own;

            if (!e->object || !e->wanted || e->met ||
                (!has_below(&d->side[!s], e->name) && !find_entry(&d->side[!s], e->name, false)))
                continue;
            if (rsd_ckpt_object(d->side[s].ckpt, e->i, &own, d->values, &v, &err))
                return fail(d->a, &err);
            if (rsd_value_type_of(v) != RSD_VALUE_TENSOR && !has_names(v))
                continue;
            code = unfold(d, s, e->i, e->name, v);
            e->met = true;
        }
    return code;
}

/* ---- differences ---- */

static char *text_of(const rsd_value *v)
{
    size_t len = rsd_value_text(v, NULL, 0);
    char  *text = malloc(len + 1);

    if (text)
        rsd_value_text(v, text, len + 1);
    return text;
}

/* Long values are shortened for people; --json shows all. */
static int say_object(diff *d, const char *name, char *a, char *b)
{
    if (!a || !b)
        return diff_no_memory(d);
    if (strcmp(a, b) == 0) { /* the text is the same, the contents are not */
        diff_say(d, true, "contents", name, a, b);
        return EXIT_DONE;
    }
    if (!d->json) {
        text_shorten(a, LONGEST_VALUE);
        text_shorten(b, LONGEST_VALUE);
    }
    diff_say(d, true, "value", name, a, b);
    return EXIT_DONE;
}

/* Object i of each side, or `part` of it. */
typedef struct operand {
    size_t           i;
    const rsd_value *part;
} operand;

static int show_operand(diff *d, int which, const operand *o, char **out)
{
    const char *name;

    if (!o->part)
        return source_object(d->a, d->side[which].ckpt, o->i, false, &name, out);
    *out = text_of(o->part);
    return EXIT_DONE;
}

static int compare_objects(diff *d, const char *name, const operand both[2])
{
    rsd_error err = { .msg = "" };
    uint64_t  digest[2][2];
    char     *text[2] = { NULL, NULL };
    int       code = EXIT_DONE;

    if (d->names_only) {
        d->objects++;
        return EXIT_DONE;
    }
    for (int s = 0; s < 2; s++) {
        rsd_err rc =
            rsd_ckpt_object_digest(d->side[s].ckpt, both[s].i, both[s].part, digest[s], &err);

        if (rc == RSD_E_UNSUPPORTED)
            return diff_unsure(d, name, err.msg);
        if (rc)
            return fail(d->a, &err);
    }
    d->objects++;
    if (memcmp(digest[0], digest[1], sizeof(digest[0])) == 0)
        return EXIT_DONE;
    for (int s = 0; s < 2 && !code; s++)
        code = show_operand(d, s, &both[s], &text[s]);
    if (!code)
        code = say_object(d, name, text[0], text[1]);
    free(text[0]);
    free(text[1]);
    return code;
}

/* ---- tensors inside objects ---- */

/* The elements of a view in row-major order. */
static void pack(const rsd_value_tensor *t, char *out)
{
    const size_t size = rsd_dtype_size(t->dtype);
    int64_t      at[RSD_MAX_NDIM] = { 0 }, place = t->offset;
    int          k;

    do {
        memcpy(out, (const char *)t->bytes + (size_t)place * size, size);
        out += size;
        for (k = t->ndim - 1; k >= 0; k--) {
            place += t->stride[k];
            if (++at[k] < t->shape[k])
                break;
            place -= at[k] * t->stride[k];
            at[k] = 0;
        }
    } while (k >= 0);
}

/* Reads a whole tensor; it is as large as one inside an object, whose size is bounded. */
static int read_whole(diff *d, int which, const rsd_tensor_info *info, size_t t, char *out)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .verify = RSD_NEVER };
    rsd_view            view = { .box.ndim = info->ndim, .data = out };
    rsd_error           err = { .msg = "" };

    memcpy(view.box.len, info->shape, sizeof(view.box.len));
    return rsd_ckpt_read(d->side[which].ckpt, t, &view, &opts, &err) ? fail(d->a, &err) : EXIT_DONE;
}

static int compare_bytes(diff *d, const inside *in, const rsd_value_tensor *t,
                         const rsd_tensor_info *info)
{
    const size_t bytes = (size_t)info->bytes;
    char        *one = malloc(bytes + 1), *two = malloc(bytes + 1);
    pair         p = { .info = *info, .from = info->dtype };
    int          code = one && two ? EXIT_DONE : diff_no_memory(d);

    p.info.name = in->name;
    if (!code && bytes > 0) {
        pack(t, one);
        code = read_whole(d, !in->side, info, in->other->i, two);
    }
    if (!code) {
        const int64_t n = info->bytes / (int64_t)rsd_dtype_size(info->dtype);

        compare_elements(&d->tol, &p, in->side ? two : one, in->side ? one : two, n);
        d->bytes += bytes;
        if (p.count)
            diff_say_values(d, &p);
    }
    free(one);
    free(two);
    return code;
}

static int compare_tensor(diff *d, const inside *in)
{
    const rsd_value_tensor *t = rsd_value_tensor_of(in->part);
    rsd_tensor_info         info = { .size = sizeof(info) };
    rsd_error               err = { .msg = "" };
    char                    text[2][256];
    bool                    same;

    if (rsd_ckpt_tensor(d->side[!in->side].ckpt, in->other->i, &info, &err))
        return fail(d->a, &err);
    same = t->ndim == info.ndim &&
           memcmp(t->shape, info.shape, (size_t)t->ndim * sizeof(t->shape[0])) == 0;
    if (d->names_only)
        return EXIT_DONE;
    if (t->dtype != info.dtype) {
        rsd_dtype a = in->side ? info.dtype : t->dtype, b = in->side ? t->dtype : info.dtype;

        diff_say(d, false, "dtype", in->name, rsd_dtype_name(a), rsd_dtype_name(b));
    }
    shape_text(t->ndim, t->shape, text[in->side], sizeof(text[0]));
    shape_text(info.ndim, info.shape, text[!in->side], sizeof(text[0]));
    if (!same)
        diff_say(d, false, "shape", in->name, text[0], text[1]);
    if (t->dtype != info.dtype || !same)
        return EXIT_DONE;
    if (info.bytes > 0 && (!t->bytes || t->conj || t->neg))
        return diff_unsure(d, in->name, "a large tensor inside an object");
    return compare_bytes(d, in, t, &info);
}

/* ---- all ---- */

static int compare_inside(diff *d, const inside *in)
{
    operand    both[2] = { { .i = in->object, .part = in->part } };
    const bool tensor = rsd_value_type_of(in->part) == RSD_VALUE_TENSOR;

    if (!in->other && !tensor && !holds_objects(d->side[!in->side].ckpt))
        return diff_unsure(d, in->name, "safetensors can't hold objects");
    if (!in->other) {
        diff_say(d, !tensor, in->side ? "only_b" : "only_a", in->name, NULL, NULL);
        return EXIT_DONE;
    }
    if (!in->other->object)
        return compare_tensor(d, in);
    both[!in->side] = (operand){ .i = in->other->i };
    both[in->side] = (operand){ .i = in->object, .part = in->part };
    return compare_objects(d, in->name, both);
}

/* Reports an object that only one side has. */
static int say_alone(diff *d, int which, const entry *e)
{
    if (!e->object || !e->wanted || e->met)
        return EXIT_DONE;
    if (!holds_objects(d->side[!which].ckpt))
        return diff_unsure(d, e->own, "safetensors can't hold objects");
    diff_say(d, true, which ? "only_b" : "only_a", e->own, NULL, NULL);
    return EXIT_DONE;
}

/* ---- __metadata__ ---- */

static bool find_meta(const rsd_ckpt *ckpt, const char *key, rsd_meta *out)
{
    for (size_t i = 0; rsd_ckpt_meta(ckpt, i, out, NULL) == RSD_OK; i++)
        if (strcmp(out->key, key) == 0)
            return true;
    return false;
}

/* Compares an entry of side `which`; those on both sides are compared once. */
static int compare_meta(diff *d, int which, const rsd_meta *m)
{
    const rsd_ckpt *other = d->side[!which].ckpt;
    char            name[256];
    rsd_meta        o = { .size = sizeof(o) };

    snprintf(name, sizeof(name), "__metadata__.%s", m->key);
    if (!patterns_want(&d->patterns, name))
        return EXIT_DONE;
    if (find_meta(other, m->key, &o)) {
        if (which == 0 && !d->names_only &&
            (o.value_len != m->value_len || memcmp(o.value, m->value, o.value_len) != 0))
            diff_say(d, true, "value", name, m->value, o.value);
        return EXIT_DONE;
    }
    if (strcmp(m->key, "format") == 0) /* not every writer adds it */
        return EXIT_DONE;
    if (rsd_ckpt_format(other) != RSD_FORMAT_SAFETENSORS)
        return diff_unsure(d, name, "only safetensors have __metadata__");
    diff_say(d, true, which ? "only_b" : "only_a", name, NULL, NULL);
    return EXIT_DONE;
}

static int compare_metas(diff *d)
{
    rsd_meta m = { .size = sizeof(m) };
    int      code = EXIT_DONE;

    for (int s = 0; s < 2; s++)
        for (size_t i = 0; !code && rsd_ckpt_meta(d->side[s].ckpt, i, &m, NULL) == RSD_OK; i++)
            code = compare_meta(d, s, &m);
    return code;
}

int diff_objects(diff *d)
{
    const side *a = &d->side[0], *b = &d->side[1];
    size_t      i = 0, k = 0;
    int         code = EXIT_DONE;

    while (!code && (i < a->n || k < b->n)) {
        const entry *ea = i < a->n ? a->sorted[i] : NULL, *eb = k < b->n ? b->sorted[k] : NULL;
        int          c = !ea ? 1 : !eb ? -1 : strcmp(ea->name, eb->name);

        c = c ? c : (int)ea->object - (int)eb->object;
        if (c < 0)
            code = say_alone(d, 0, ea);
        else if (c > 0)
            code = say_alone(d, 1, eb);
        else if (ea->object && ea->wanted)
            code = compare_objects(d, ea->name, (operand[]){ { .i = ea->i }, { .i = eb->i } });
        i += c <= 0;
        k += c >= 0;
    }
    for (size_t n = 0; n < d->ninside && !code; n++)
        code = compare_inside(d, &d->inside[n]);
    return code ? code : compare_metas(d);
}
