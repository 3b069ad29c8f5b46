/* SPDX-License-Identifier: Apache-2.0 */
/* Names the contents of a torch.save file: from nested dicts and lists to names. A name joins the
 * keys on the path to a tensor with dots; a value without tensors or dicts inside is one object. */
#include "base/mem.h"
#include "base/text.h"
#include "format/path.h"
#include "format/torch_core.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TUPLES = 8 }; /* nested in a key that is part of a name */

/* A container on the current path. */
struct frame {
    const rsd_value *value;
    size_t           next;
};

typedef struct walk {
    rsi_torch     *t;
    uint32_t       file;
    rsi_torch_take take;
    void          *arg;
    size_t         depth;
    struct frame   stack[RSD_VALUE_MAX_DEPTH + 2];
    struct frame   probe[RSD_VALUE_MAX_DEPTH + 1]; /* for looking ahead */
    rsd_path_part  part[RSD_VALUE_MAX_DEPTH + 2];
} walk;

/* ---- which containers are split ---- */

/* True if the key has a text that no other key of its dict has; `depth`: of tuples around it. */
static bool has_text(const rsd_value *key, int depth)
{
    switch (rsd_value_type_of(key)) {
    case RSD_VALUE_FLOAT: /* one NaN is not the other; has_texts counts those outside tuples */
        return depth == 0 || !isnan(rsd_value_float(key));
    case RSD_VALUE_TUPLE:
        for (size_t i = 0; i < rsd_value_count(key); i++)
            if (depth == MOST_TUPLES || !has_text(rsd_value_item(key, i), depth + 1))
                return false;
        return true;
    case RSD_VALUE_TENSOR:
    case RSD_VALUE_OPAQUE:
    case RSD_VALUE_SET: /* in any order */
        return false;
    default:
        return true;
    }
}

static bool has_texts(const rsd_value *dict)
{
    size_t nans = 0;

    for (size_t i = 0; i < rsd_value_count(dict); i++) {
        const rsd_value *key = rsd_value_key(dict, i);

        nans += rsd_value_type_of(key) == RSD_VALUE_FLOAT && isnan(rsd_value_float(key));
        if (nans > 1 || !has_text(key, 0))
            return false;
    }
    return true;
}

/* True if the keys can be parts of names unchanged. */
static bool has_names(const rsd_value *dict)
{
    for (size_t i = 0; i < rsd_value_count(dict); i++) {
        rsd_value_type key = rsd_value_type_of(rsd_value_key(dict, i));

        if (key != RSD_VALUE_STR && key != RSD_VALUE_INT)
            return false;
    }
    return rsd_value_count(dict) > 0;
}

static bool is_tensor(const rsd_value *v)
{
    const rsi_opaque *opaque = rsi_value_opaque(v);

    return rsd_value_type_of(v) == RSD_VALUE_TENSOR || (opaque && opaque->dtensor);
}

static bool is_part(const rsd_value *v)
{
    const rsi_opaque *opaque = rsi_value_opaque(v);

    return opaque && (opaque->dtensor || rsi_text_ends(opaque->name, ".DTensor") ||
                      rsi_text_ends(opaque->name, ".ShardedTensor"));
}

/* What to look for in a value. */
enum looking { FOR_TENSOR, FOR_PART, FOR_DICT /* with names, inside nothing but lists */ };

static bool is_wanted(enum looking what, const rsd_value *v)
{
    return what == FOR_TENSOR ? is_tensor(v)
           : what == FOR_PART ? is_part(v)
                              : rsd_value_type_of(v) == RSD_VALUE_DICT && has_names(v);
}

/* True if v is or contains one. */
static bool has(enum looking what, struct frame *stack, const rsd_value *v)
{
    size_t depth = 0;

    while (v) {
        if (is_wanted(what, v))
            return true;
        if (what == FOR_DICT ? rsd_value_type_of(v) == RSD_VALUE_LIST : rsd_value_count(v) > 0)
            stack[depth++] = (struct frame){ .value = v };
        for (v = NULL; depth > 0 && !v;) {
            struct frame *top = &stack[depth - 1];

            if (top->next < rsd_value_count(top->value))
                v = rsd_value_item(top->value, top->next++);
            else
                depth--;
        }
    }
    return false;
}

bool rsi_torch_has_tensor(const rsd_value *v)
{
    struct frame stack[RSD_VALUE_MAX_DEPTH + 1];

    return has(FOR_TENSOR, stack, v);
}

bool rsi_torch_has_part(const rsd_value *v)
{
    struct frame stack[RSD_VALUE_MAX_DEPTH + 1];

    return has(FOR_PART, stack, v);
}

/* Dicts are always split into their items, lists if they contain tensors or dicts, as in torch's
 * own flattening: a trainer asks a DCP checkpoint for "optim.param_groups.0.lr". Tuples are split
 * only for tensors, and so are dicts with a key that is neither text nor a number. */
static bool opens(struct frame *probe, const rsd_value *v)
{
    switch (rsd_value_type_of(v)) {
    case RSD_VALUE_DICT:
        return has_names(v) || (has_texts(v) && has(FOR_TENSOR, probe, v));
    case RSD_VALUE_LIST:
        return has(FOR_DICT, probe, v) || has(FOR_TENSOR, probe, v);
    case RSD_VALUE_TUPLE:
        return has(FOR_TENSOR, probe, v);
    default:
        return false;
    }
}

/* ---- names ---- */

/* Long keys above many tensors can make names thousands of times as long as the file. */
static rsd_err no_room(const rsi_torch *t, rsd_error *err)
{
    if (t->mem.full)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the names of what is in it would take more than %zu bytes", t->mem.limit);
    return rsi_torch_no_memory(err);
}

rsd_err rsi_torch_add(void *arg, const rsi_torch_entry *e, rsd_error *err)
{
    rsi_torch         *t = arg;
    bool               tensor = e->whole || rsd_value_type_of(e->value) == RSD_VALUE_TENSOR, was;
    rsi_torch_entries *list = tensor ? &t->tensors : &t->objects;
    uint64_t           number = tensor ? list->n : ~(uint64_t)list->n;

    if (!rsi_map_add(&t->names, e->name, strlen(e->name), &number, &was))
        return rsi_torch_no_memory(err);
    if (was)
        return rsi_fail(err, RSD_E_FORMAT, "two things in it have the name \"%s\"", e->name);
    if (!rsi_grow(&list->at, list->n, &list->cap, sizeof(list->at[0])))
        return rsi_torch_no_memory(err);
    list->at[list->n++] = *e;
    return RSD_OK;
}

rsd_err rsi_torch_name(rsi_torch *t, const char *const *part, size_t n, rsi_torch_entry *out,
                       rsd_error *err)
{
    size_t len;
    char  *name;

    out->part = rsi_arena_array(&t->mem, n, sizeof(out->part[0]));
    for (size_t i = 0; out->part && i < n; i++)
        out->part[i].key = part[i];
    len = out->part ? rsi_path_join(out->part, n, NULL, 0) : 0;
    name = rsi_arena_array(&t->mem, len + 1, 1);
    if (!out->part || !name)
        return no_room(t, err);
    rsi_path_join(out->part, n, name, len + 1);
    out->name = name;
    out->nparts = n;
    return RSD_OK;
}

static rsd_err found_entry(walk *w, const rsd_value *v, rsd_error *err)
{
    rsi_arena      *mem = &w->t->mem;
    rsi_torch_entry e = { .nparts = w->depth, .value = v, .file = w->file };
    size_t          len = rsi_path_join(w->part, w->depth, NULL, 0);
    char           *name = rsi_arena_array(mem, len + 1, 1);

    e.part = name ? rsi_arena_array(mem, w->depth, sizeof(e.part[0])) : NULL;
    if (!name || !e.part)
        return no_room(w->t, err);
    memcpy(e.part, w->part, w->depth * sizeof(e.part[0]));
    rsi_path_join(w->part, w->depth, name, len + 1);
    while (e.above < w->depth && !rsi_value_class(w->stack[e.above].value))
        e.above++;
    e.dict = e.above < w->depth ? w->stack[e.above].value : NULL;
    e.name = w->depth ? name : is_tensor(v) ? "tensor" : "object";
    return w->take(w->arg, &e, err);
}

/* A dict's key as a part of a name. */
static rsd_err name_part(walk *w, const rsd_value *key, rsd_path_part *part, rsd_error *err)
{
    size_t len;
    char  *text;

    if (rsd_value_type_of(key) == RSD_VALUE_STR) {
        part->key = rsd_value_bytes(key, &len);
        return strlen(part->key) == len
                   ? RSD_OK
                   : rsi_fail(err, RSD_E_FORMAT, "a key contains a NUL character");
    }
    len = rsd_value_text(key, NULL, 0) + 1;
    text = rsi_arena_array(&w->t->mem, len, 1);
    if (!text)
        return no_room(w->t, err);
    rsd_value_text(key, text, len);
    part->key = text;
    part->other = rsd_value_type_of(key) == RSD_VALUE_INT ? NULL : key;
    part->number = rsd_value_type_of(key) == RSD_VALUE_INT;
    part->index = part->number ? rsd_value_int(key) : 0;
    return RSD_OK;
}

/* The next value below the containers on the stack, with its path in part[0 .. depth-1]; NULL at
 * the end. */
static const rsd_value *next_value(walk *w, rsd_error *err, rsd_err *rc)
{
    while (w->depth > 0) {
        struct frame    *top = &w->stack[w->depth - 1];
        size_t           i = top->next++;
        rsd_path_part   *part = &w->part[w->depth - 1];
        const rsd_value *key;

        if (i >= rsd_value_count(top->value)) {
            w->depth--;
            continue;
        }
        *part = (rsd_path_part){ .index = (int64_t)i };
        key = rsd_value_key(top->value, i);
        if (key)
            *rc = name_part(w, key, part, err);
        return rsd_value_item(top->value, i);
    }
    return NULL;
}

static rsd_err flatten(walk *w, const rsd_value *root, rsd_error *err)
{
    const rsd_value *v = root;
    rsd_err          rc = RSD_OK;

    while (v && !rc) {
        if (opens(w->probe, v))
            w->stack[w->depth++] = (struct frame){ .value = v };
        else
            rc = found_entry(w, v, err);
        if (!rc)
            v = next_value(w, err, &rc);
    }
    return rc;
}

/* {below: root} */
static rsd_err put_below(rsd_values *owner, const char *below, const rsd_value **root,
                         rsd_error *err)
{
    const rsd_value *pair[2] = { NULL, *root };
    rsd_err rc = rsd_value_create_bytes(owner, RSD_VALUE_STR, below, strlen(below), &pair[0], err);

    return rc ? rc : rsd_value_create_list(owner, RSD_VALUE_DICT, 1, pair, root, err);
}

rsd_err rsi_torch_flatten(rsi_torch *t, uint32_t file, const char *below, rsi_torch_take take,
                          void *arg, rsd_error *err)
{
    rsi_torch_file *f = &t->file[file];
    walk           *w = rsi_calloc(1, sizeof(*w));
    rsd_err         rc = w ? RSD_OK : rsi_torch_no_memory(err);

    if (!rc && below)
        rc = put_below(f->values, below, &f->root, err);
    if (!rc) {
        w->t = t;
        w->file = file;
        w->take = take;
        w->arg = arg;
        rc = flatten(w, f->root, err);
    }
    rsi_free(w);
    return rc;
}

rsd_err rsi_torch_names_check(const rsd_value *v, rsd_error *err)
{
    rsi_torch_file file = { .root = v };
    rsi_torch      all = { .file = &file, .nfiles = 1 };
    rsd_err        rc = rsi_torch_flatten(&all, 0, NULL, rsi_torch_add, &all, err);

    rsi_free(all.tensors.at);
    rsi_free(all.objects.at);
    rsi_map_release(&all.names);
    rsi_arena_release(&all.mem);
    return rc;
}

/* ---- from names to values ---- */

/* The length of the part that item i adds to names, if `name` starts with it; else 0. */
static size_t part_of(const rsd_value *v, size_t i, const char *name)
{
    const rsd_value *key = rsd_value_key(v, i);
    const char      *text = key ? rsd_value_bytes(key, NULL) : NULL;
    char             buf[256];
    size_t           len;

    if (!key)
        snprintf(buf, sizeof(buf), "%zu", i);
    else if (rsd_value_type_of(key) != RSD_VALUE_STR &&
             rsd_value_text(key, buf, sizeof(buf)) >= sizeof(buf))
        return 0;
    if (!key || rsd_value_type_of(key) != RSD_VALUE_STR)
        text = buf;
    len = strlen(text);
    return strncmp(name, text, len) == 0 && (name[len] == '.' || !name[len]) ? len : 0;
}

/* The container that is split under this name below v; keys may contain dots too. */
static const rsd_value *find_inner(struct frame *probe, const rsd_value *v, const char *name)
{
    const rsd_value *found = NULL;

    for (size_t i = 0; i < rsd_value_count(v) && !found; i++) {
        size_t           len = part_of(v, i, name);
        const rsd_value *item = len ? rsd_value_item(v, i) : NULL;

        if (!item || !opens(probe, item))
            continue;
        found = name[len] ? find_inner(probe, item, name + len + 1) : item;
    }
    return found;
}

const rsd_value *rsi_torch_find_inner(const rsi_torch_file *file, const char *name)
{
    struct frame probe[RSD_VALUE_MAX_DEPTH + 1];

    return opens(probe, file->root) ? find_inner(probe, file->root, name) : NULL;
}
