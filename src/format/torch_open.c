/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a torch.save file: one archive with nested dicts and lists of tensors and values. Names are
 * the keys on the way to a tensor, joined by dots; what has neither tensors nor dicts inside is one
 * object. Tensors may share storages. */
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/path.h"
#include "format/torch_archive.h"
#include "format/torch_legacy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor or an object, and the way to it. */
typedef struct entry {
    const char      *name;
    rsd_path_part   *part;
    size_t           nparts;
    const rsd_value *value;
} entry;

typedef struct entries {
    entry *at;
    size_t n, cap;
} entries;

typedef struct torch {
    rsi_source       source;
    rsi_zip          zip;
    rsd_values      *values;
    const rsd_value *root;
    entries          tensors, objects;
    rsi_map          names; /* to tensor number, or ~ object number */
    rsi_arena        mem;   /* of names and paths, within the budget of the pickle */
} torch;

/* ---- from nesting to names ---- */

/* A container on the way down. */
struct frame {
    const rsd_value *value;
    size_t           next;
};

typedef struct walk {
    rsd_ckpt     *ckpt;
    torch        *t;
    size_t        depth;
    struct frame  stack[RSD_VALUE_MAX_DEPTH + 1];
    struct frame  probe[RSD_VALUE_MAX_DEPTH + 1]; /* for looking ahead */
    rsd_path_part part[RSD_VALUE_MAX_DEPTH + 1];
} walk;

/* Of a dict with other keys, or without any, no names can be made. */
static bool has_names(const rsd_value *dict)
{
    for (size_t i = 0; i < rsd_value_count(dict); i++) {
        rsd_value_type key = rsd_value_kind(rsd_value_key(dict, i));

        if (key != RSD_VALUE_STR && key != RSD_VALUE_INT)
            return false;
    }
    return rsd_value_count(dict) > 0;
}

/* True if somewhere in v there is a tensor; or a dict with names, and nothing but lists around it.
 */
static bool has(rsd_value_type what, struct frame *stack, const rsd_value *v)
{
    size_t depth = 0;

    while (v) {
        if (rsd_value_kind(v) == what && (what == RSD_VALUE_TENSOR || has_names(v)))
            return true;
        if (what == RSD_VALUE_TENSOR ? rsd_value_count(v) > 0 : rsd_value_kind(v) == RSD_VALUE_LIST)
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

/* Dicts are always opened, lists for the tensors and dicts in them, as torch's own flattening does:
 * a trainer asks a DCP checkpoint for "optim.param_groups.0.lr". Tuples only for tensors. */
static bool opens(struct frame *probe, const rsd_value *v)
{
    switch (rsd_value_kind(v)) {
    case RSD_VALUE_DICT:
        return has_names(v);
    case RSD_VALUE_LIST:
        return has(RSD_VALUE_DICT, probe, v) || has(RSD_VALUE_TENSOR, probe, v);
    case RSD_VALUE_TUPLE:
        return has(RSD_VALUE_TENSOR, probe, v);
    default:
        return false;
    }
}

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the names of a checkpoint");
}

/* Long keys over many tensors can make names that are thousands of times longer than the file. */
static rsd_err no_room(const torch *self, rsd_error *err)
{
    if (self->mem.full)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the names of what is in it would take more than %zu bytes",
                        self->mem.limit);
    return no_memory(err);
}

static rsd_err add_entry(walk *w, const rsd_value *v, rsd_error *err)
{
    bool       tensor = rsd_value_kind(v) == RSD_VALUE_TENSOR, was;
    entries   *list = tensor ? &w->t->tensors : &w->t->objects;
    rsi_arena *mem = &w->t->mem;
    entry      e = { .nparts = w->depth, .value = v };
    uint64_t   number = tensor ? list->n : ~(uint64_t)list->n;
    size_t     len = rsi_path_join(w->part, w->depth, NULL, 0);
    char      *name = rsi_arena_array(mem, len + 1, 1);

    e.part = name ? rsi_arena_array(mem, w->depth, sizeof(e.part[0])) : NULL;
    if (!name || !e.part)
        return no_room(w->t, err);
    memcpy(e.part, w->part, w->depth * sizeof(e.part[0]));
    rsi_path_join(w->part, w->depth, name, len + 1);
    e.name = w->depth ? name : tensor ? "tensor" : "object";
    if (!rsi_map_add(&w->t->names, e.name, strlen(e.name), &number, &was))
        return no_memory(err);
    if (was)
        return rsi_fail(err, RSD_E_FORMAT, "two things in it have the name \"%s\"", e.name);
    if (!rsi_grow(&list->at, list->n, &list->cap, sizeof(list->at[0])))
        return no_memory(err);
    list->at[list->n++] = e;
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
        if (key && rsd_value_kind(key) == RSD_VALUE_STR) {
            size_t len;

            part->key = rsd_value_bytes(key, &len);
            if (strlen(part->key) != len)
                *rc = rsi_fail(err, RSD_E_FORMAT, "a key has a NUL character in it");
        } else if (key) {
            char *text = rsi_arena_array(&w->t->mem, 24, 1);

            part->key = text;
            part->index = rsd_value_int(key);
            part->number = true;
            if (text)
                rsi_text_add(&(rsi_text){ .buf = text, .cap = 24 }, "%" PRId64, rsd_value_int(key));
            else
                *rc = no_memory(err);
        }
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
            rc = add_entry(w, v, err);
        if (!rc)
            v = next_value(w, err, &rc);
    }
    return rc;
}

static void release(torch *self)
{
    rsd_values_free(self->values);
    rsi_free(self->tensors.at);
    rsi_free(self->objects.at);
    rsi_map_release(&self->names);
    rsi_arena_release(&self->mem);
}

rsd_err rsi_torch_names_check(const rsd_value *v, rsd_error *err)
{
    torch   all = { 0 };
    walk   *w = rsi_calloc(1, sizeof(*w));
    rsd_err rc;

    if (!w)
        return no_memory(err);
    w->t = &all;
    rc = flatten(w, v, err);
    rsi_free(w);
    release(&all);
    return rc;
}

/* ---- answers ---- */

static const rsd_value_tensor *tensor_at(const rsd_ckpt *ckpt, size_t t)
{
    const torch *self = ckpt->self;

    return rsd_value_tensor_of(self->tensors.at[t].value);
}

static void torch_tensor(const rsd_ckpt *ckpt, size_t t, rsd_tensor_info *out)
{
    const torch            *self = ckpt->self;
    const rsd_value_tensor *tensor = tensor_at(ckpt, t);

    *out = (rsd_tensor_info){
        .name = self->tensors.at[t].name, .dtype = tensor->dtype, .ndim = tensor->ndim, .chunks = 1
    };
    memcpy(out->shape, tensor->shape, sizeof(out->shape));
    rsi_product(out->ndim, out->shape, (int64_t)rsd_dtype_size(out->dtype), &out->bytes);
}

static rsd_err torch_locate(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *out,
                            rsd_error *err)
{
    const torch      *self = ckpt->self;
    rsi_tensor_pickle facts;

    (void)i, (void)all; /* the other records are not this tensor's */
    rsi_torch_tensor_of(tensor_at(ckpt, t), &facts);
    return rsi_torch_extent(&self->source, &self->zip, &facts, out, err);
}

static void torch_chunk(const rsd_ckpt *ckpt, size_t t, size_t i, rsd_chunk *out, uint32_t *file)
{
    const torch            *self = ckpt->self;
    const rsd_value_tensor *tensor = tensor_at(ckpt, t);
    rsi_tensor_pickle       facts;
    rsi_extent              extent = { 0 };

    (void)i;
    rsi_torch_tensor_of(tensor, &facts);
    rsi_torch_extent(&self->source, &self->zip, &facts, &extent, NULL); /* was checked on opening */
    *out = (rsd_chunk){ .box.ndim = tensor->ndim,
                        .file = rsi_files_name(&ckpt->files, 0),
                        .offset = extent.record,
                        .length = extent.record_bytes };
    memcpy(out->box.len, tensor->shape, sizeof(out->box.len));
    *file = 0;
}

static bool torch_find(const rsd_ckpt *ckpt, const char *name, size_t *out)
{
    const torch *self = ckpt->self;
    uint64_t     number;

    if (!rsi_map_get(&self->names, name, strlen(name), &number) || number >= self->tensors.n)
        return false;
    *out = (size_t)number;
    return true;
}

static size_t torch_path(const rsd_ckpt *ckpt, const char *name, rsd_path_part *out, size_t cap)
{
    const torch *self = ckpt->self;
    const entry *e;
    uint64_t     number;

    if (!rsi_map_get(&self->names, name, strlen(name), &number))
        return 0;
    e = number < self->tensors.n ? &self->tensors.at[number] : &self->objects.at[~number];
    if (cap)
        memcpy(out, e->part, (e->nparts < cap ? e->nparts : cap) * sizeof(out[0]));
    return e->nparts;
}

static rsd_err copy_out(const torch *self, const rsd_value *value, rsd_values *owner,
                        const rsd_value **out, rsd_error *err)
{
    const rsd_value *copy;
    struct frame     stack[RSD_VALUE_MAX_DEPTH + 1];
    rsd_err          rc;

    if (owner->borrows && !has(RSD_VALUE_TENSOR, stack, value)) {
        *out = value;
        return RSD_OK;
    }
    rc = rsi_value_copy(value, owner, &copy, err);
    if (!rc)
        rc = rsi_torch_read_tensors(&self->source, &self->zip, owner, copy, err);
    if (!rc)
        *out = copy;
    return rc;
}

static rsd_err torch_object(rsd_ckpt *ckpt, size_t i, const char **name, rsd_values *owner,
                            const rsd_value **out, rsd_error *err)
{
    const torch *self = ckpt->self;

    *name = self->objects.at[i].name;
    return owner ? copy_out(self, self->objects.at[i].value, owner, out, err) : RSD_OK;
}

/* The length of the part that item i adds to names, if `name` begins with it; else 0. */
static size_t part_of(const rsd_value *v, size_t i, const char *name)
{
    const rsd_value *key = rsd_value_key(v, i);
    const char      *text = key ? rsd_value_bytes(key, NULL) : NULL;
    char             number[24];
    size_t           len;

    if (!text) {
        snprintf(number, sizeof(number), "%" PRId64, key ? rsd_value_int(key) : (int64_t)i);
        text = number;
    }
    len = strlen(text);
    return strncmp(name, text, len) == 0 && (name[len] == '.' || !name[len]) ? len : 0;
}

/* What is opened under this name below v; a key may have dots in it too. */
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

static rsd_err torch_inner(rsd_ckpt *ckpt, const char *name, rsd_values *owner,
                           const rsd_value **out, rsd_error *err)
{
    const torch     *self = ckpt->self;
    struct frame     probe[RSD_VALUE_MAX_DEPTH + 1];
    const rsd_value *found = opens(probe, self->root) ? find_inner(probe, self->root, name) : NULL;

    if (!found)
        return rsi_fail(err, RSD_E_NOTFOUND, "the checkpoint has no \"%s\"", name);
    return owner ? copy_out(self, found, owner, out, err) : RSD_OK;
}

static rsd_err torch_archive(rsd_ckpt *ckpt, size_t i, rsi_archive *out, rsd_error *err)
{
    const torch *self = ckpt->self;

    (void)err;
    *out = (rsi_archive){ .source = self->source, .zip = self->zip };
    out->value = i < self->objects.n ? self->objects.at[i].value : NULL;
    return RSD_OK;
}

/* The pickle, and the directory behind the last record. What stands before each record was compared
 * with the directory. */
static bool torch_span(const rsd_ckpt *ckpt, size_t k, rsi_item *out)
{
    const torch          *self = ckpt->self;
    const rsi_zip_record *last = &self->zip.record[self->zip.n - 1];
    const rsi_zip_record *pickle = rsi_zip_find(&self->zip, "data.pkl");

    *out = (rsi_item){ 0 };
    if (k == 0) {
        out->off = pickle->data;
        out->len = pickle->size;
        out->what = "pickle";
    } else if (k == 1) {
        out->off = last->data + last->size;
        out->len = self->source.size - out->off;
        out->what = "directory";
    }
    return k < 2;
}

static void torch_close(rsd_ckpt *ckpt)
{
    if (ckpt->self)
        release(ckpt->self);
}

static const rsi_ckpt_ops torch_ops = {
    .tensor = torch_tensor,
    .chunk = torch_chunk,
    .locate = torch_locate,
    .find = torch_find,
    .object = torch_object,
    .inner = torch_inner,
    .archive = torch_archive,
    .path = torch_path,
    .span = torch_span,
    .close = torch_close,
};

/* What the values leave of the budget of the pickle, but enough for ordinary names. */
static size_t names_limit(const torch *self)
{
    size_t all = rsi_pickle_limit(rsi_zip_find(&self->zip, "data.pkl")->size);
    size_t used = self->values->mem.used, least = (size_t)1 << 20;

    return used + least < all ? all - used : least;
}

static rsd_err read_names(rsd_ckpt *ckpt, torch *self, rsd_error *err)
{
    rsi_value_pickle pickle;
    walk            *w = rsi_calloc(1, sizeof(*w));
    rsd_err          rc = w ? RSD_OK : no_memory(err);

    if (w) {
        w->ckpt = ckpt;
        w->t = self;
        rc = rsi_torch_value(&self->source, &self->zip, self->values, &pickle, err);
        if (!rc) {
            self->root = pickle.root;
            ckpt->lost_attributes = self->values->lost;
            self->mem.limit = names_limit(self);
            rc = flatten(w, pickle.root, err);
        }
    }
    rsi_free(w);
    return rc;
}

/* The records of an archive, or of a file in the legacy form, which starts with a pickle. */
static rsd_err read_records(rsd_ckpt *ckpt, torch *self, rsd_error *err)
{
    unsigned char first = 0;
    rsd_err       rc = rsi_source_read(&self->source, 0, &first, 1, err);

    if (rc)
        return rc;
    return first == 'P' ? rsi_zip_read(&self->source, &ckpt->mem, &self->zip, err)
                        : rsi_legacy_read(&self->source, &ckpt->mem, &self->zip, err);
}

rsd_err rsi_torch_open(rsd_ckpt *ckpt, rsd_error *err)
{
    torch  *self = rsi_arena_array(&ckpt->mem, 1, sizeof(*self));
    rsd_err rc;

    if (!self)
        return no_memory(err);
    ckpt->self = self;
    ckpt->ops = &torch_ops;
    self->source = rsi_files_source(&ckpt->files, 0, 0, ckpt->files.file[0]->size);
    rc = read_records(ckpt, self, err);
    if (!rc)
        rc = rsd_values_create(&self->values, err);
    if (!rc)
        rc = read_names(ckpt, self, err);
    for (size_t t = 0; t < self->tensors.n && !rc; t++) {
        rsi_extent extent;

        rc = torch_locate(ckpt, t, 0, false, &extent, err);
        if (rc)
            rsi_while(err, rc, "tensor \"%s\"", self->tensors.at[t].name);
    }
    ckpt->ntensors = self->tensors.n;
    ckpt->nobjects = self->objects.n;
    return rc;
}
