/* SPDX-License-Identifier: Apache-2.0 */
/* Digests what a pickle says about an object of an unknown class: classes, arguments and states all
 * the way down. Anything seen before becomes a number, so cycles and shared parts cost nothing.
 * Names of storages differ between archives; they too become numbers, and a list gives the
 * storages. Next: value_digest.c, which adds the bytes. */
#include "base/digest.h"
#include "base/map.h"
#include "base/mem.h"
#include "format/value_core.h"

enum { MEETING = 8 }; /* steps charged for each thing that may recur: it takes memory */

typedef struct walk {
    const rsi_pickle *p;
    rsi_opaque       *facts;
    size_t            storage_cap;
    rsi_map           met;   /* containers, objects and storages, numbered as first seen */
    rsi_arena         keys;  /* of `met` */
    rsi_pv           *stack; /* [n] still to be visited */
    size_t            n, cap;
    uint64_t         *left;
    bool              failed; /* no memory */
} walk;

/* ---- the digest ---- */

static void add(walk *w, const void *bytes, size_t len)
{
    const uint64_t cost = 1 + len / 8;

    w->facts->digest[0] = rsi_digest(w->facts->digest[0], bytes, len);
    w->facts->digest[1] = rsi_digest(~w->facts->digest[1], bytes, len);
    *w->left -= cost < *w->left ? cost : *w->left;
}

static void add_number(walk *w, uint64_t x)
{
    add(w, &x, sizeof(x));
}

/* True if it was seen before; its number then says it all. */
static bool met_before(walk *w, const char *key, size_t len)
{
    uint64_t number = w->met.count;
    bool     was = false;
    char    *copy = rsi_arena_text(&w->keys, key, len);

    *w->left -= *w->left > MEETING ? MEETING : *w->left;
    w->failed = w->failed || !copy || !rsi_map_add(&w->met, copy, len, &number, &was);
    if (was || w->failed)
        add_number(w, number);
    return was || w->failed;
}

/* The same for a container or an object; the NUL keeps its key apart from storage names. */
static bool met_cell(walk *w, rsi_pv v)
{
    char key[1 + sizeof(v)] = { 0 };

    memcpy(key + 1, &v, sizeof(v));
    return met_before(w, key, sizeof(key));
}

static void push(walk *w, rsi_pv v)
{
    w->failed = w->failed || !rsi_grow(&w->stack, w->n, &w->cap, sizeof(w->stack[0]));
    if (!w->failed)
        w->stack[w->n++] = v;
}

/* ---- the parts ---- */

static void add_class(walk *w, rsi_pv v)
{
    const char *module, *name;

    rsi_pickle_class_of(w->p, v, &module, &name);
    add(w, module, strlen(module));
    add(w, name, strlen(name));
}

/* A storage of the archive; its name may differ in another archive. */
static void add_persid(walk *w, rsi_pv v)
{
    rsd_value_tensor t = { .dtype = RSD_U8, .ndim = 1, .stride[0] = 1 };
    rsi_opaque      *facts = w->facts;

    if (!rsi_value_storage(w->p, v, &t)) {
        push(w, rsi_pickle_persid(w->p, v));
        return;
    }
    add_number(w, t.dtype);
    add_number(w, (uint64_t)t.storage_bytes);
    if (met_before(w, t.storage, strlen(t.storage)))
        return;
    w->failed = w->failed ||
                !rsi_grow(&facts->storage, facts->n, &w->storage_cap, sizeof(facts->storage[0]));
    if (w->failed)
        return;
    t.dtype = RSD_U8;
    t.shape[0] = t.storage_bytes;
    facts->storage[facts->n++] = t;
}

static void add_scalar(walk *w, rsi_pv v)
{
    size_t      len = 0;
    const char *bytes = rsi_pickle_bytes(w->p, v, &len);
    double      real;
    int64_t     x = 0, ints[32];

    switch (rsi_pickle_kind_of(w->p, v)) {
    case RSI_PICKLE_INT:
        rsi_pickle_int(w->p, v, &x);
        add_number(w, (uint64_t)x);
        break;
    case RSI_PICKLE_FLOAT:
        real = rsi_pickle_float(w->p, v);
        add(w, &real, sizeof(real));
        break;
    case RSI_PICKLE_INTS:
        add(w, ints, (size_t)rsi_pickle_ints(w->p, v, ints, 32) * sizeof(ints[0]));
        break;
    case RSI_PICKLE_CLASS:
        add_class(w, v);
        break;
    case RSI_PICKLE_PERSID:
        add_persid(w, v);
        break;
    default: /* STR, BYTES, BIGINT; a constant is just its kind */
        add(w, bytes, len);
    }
}

static void add_items(walk *w, rsi_pv v)
{
    rsi_pickle_iter it = rsi_pickle_each(w->p, v);
    rsi_pv          item;

    add_number(w, rsi_pickle_count(w->p, v));
    while (!w->failed && rsi_pickle_next(w->p, &it, &item))
        push(w, item);
}

static void add_one(walk *w, rsi_pv v)
{
    rsi_pickle_kind   kind = rsi_pickle_kind_of(w->p, v);
    rsi_pickle_object object;

    add_number(w, kind);
    switch (kind) {
    case RSI_PICKLE_TUPLE:
    case RSI_PICKLE_LIST:
    case RSI_PICKLE_DICT:
    case RSI_PICKLE_SET:
        if (!met_cell(w, v))
            add_items(w, v);
        break;
    case RSI_PICKLE_OBJECT:
        if (met_cell(w, v))
            break;
        object = rsi_pickle_object_of(w->p, v);
        push(w, object.callee);
        push(w, object.args);
        push(w, object.state);
        push(w, object.items);
        break;
    default:
        add_scalar(w, v);
    }
}

rsd_err rsi_value_opaque_read(const rsi_pickle *p, rsi_pv v, uint64_t *left, rsi_opaque *facts,
                              rsd_error *err)
{
    walk w = { .p = p, .facts = facts, .left = left };

    push(&w, v);
    while (w.n > 0 && !w.failed && *left > 0)
        add_one(&w, w.stack[--w.n]);
    facts->known = *left > 0;
    rsi_free(w.stack);
    rsi_map_release(&w.met);
    rsi_arena_release(&w.keys);
    return w.failed ? rsi_fail(err, RSD_E_NOMEM, "no memory to look into an object") : RSD_OK;
}
