/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and inspects values. Printing is in value_text.c, decoding pickles in value_decode.c. */
#include "base/mem.h"
#include "base/text.h"
#include "format/value_core.h"
#include "shape/box.h"

static const rsd_value the_none = { .kind = RSD_VALUE_NONE };
static const rsd_value the_bool[2] = { { .kind = RSD_VALUE_BOOL, .as.i = 0 },
                                       { .kind = RSD_VALUE_BOOL, .as.i = 1 } };
/* By type: empty containers exist once. */
static const rsd_value the_empty[] = {
    [RSD_VALUE_LIST] = { .kind = RSD_VALUE_LIST },
    [RSD_VALUE_TUPLE] = { .kind = RSD_VALUE_TUPLE },
    [RSD_VALUE_SET] = { .kind = RSD_VALUE_SET },
    [RSD_VALUE_DICT] = { .kind = RSD_VALUE_DICT },
};

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for a value, or its limit is reached");
}

rsd_err rsd_values_create(rsd_values **out, rsd_error *err)
{
    rsd_values *owner;

    if (!out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: output pointer for the values");
    owner = rsi_calloc(1, sizeof(*owner));
    if (!owner)
        return no_memory(err);
    for (int i = 0; i < 262; i++)
        owner->small[i] = (rsd_value){ .kind = RSD_VALUE_INT, .as.i = i - 5 };
    *out = owner;
    return RSD_OK;
}

void rsd_values_free(rsd_values *owner)
{
    if (!owner)
        return;
    rsi_arena_release(&owner->mem);
    rsi_free(owner);
}

/* ---- Making ---- */

static rsd_err add(rsd_values *owner, rsd_value from, const rsd_value **out, rsd_error *err)
{
    rsd_value *v = rsi_arena_array(&owner->mem, 1, sizeof(*v));

    if (!v)
        return no_memory(err);
    *v = from;
    *out = v;
    return RSD_OK;
}

static rsd_err check(const rsd_values *owner, const rsd_value **out, rsd_error *err)
{
    if (!owner || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: owner or output pointer");
    return RSD_OK;
}

rsd_err rsd_value_create_none(rsd_values *owner, const rsd_value **out, rsd_error *err)
{
    rsd_err rc = check(owner, out, err);

    if (!rc)
        *out = &the_none;
    return rc;
}

rsd_err rsd_value_create_bool(rsd_values *owner, bool x, const rsd_value **out, rsd_error *err)
{
    rsd_err rc = check(owner, out, err);

    if (!rc)
        *out = &the_bool[x];
    return rc;
}

rsd_err rsd_value_create_int(rsd_values *owner, int64_t x, const rsd_value **out, rsd_error *err)
{
    rsd_err rc = check(owner, out, err);

    if (rc)
        return rc;
    if (x < -5 || x > 256)
        return add(owner, (rsd_value){ .kind = RSD_VALUE_INT, .as.i = x }, out, err);
    *out = &owner->small[x + 5];
    return RSD_OK;
}

rsd_err rsd_value_create_float(rsd_values *owner, double x, const rsd_value **out, rsd_error *err)
{
    rsd_err rc = check(owner, out, err);

    return rc ? rc : add(owner, (rsd_value){ .kind = RSD_VALUE_FLOAT, .as.f = x }, out, err);
}

rsd_err rsd_value_create_dtype(rsd_values *owner, rsd_dtype x, const rsd_value **out,
                               rsd_error *err)
{
    rsd_err rc = check(owner, out, err);

    if (!rc && !rsd_dtype_name(x))
        rc = rsi_fail(err, RSD_E_INVALID, "%d is not a dtype", (int)x);
    return rc ? rc : add(owner, (rsd_value){ .kind = RSD_VALUE_DTYPE, .as.i = x }, out, err);
}

static const char *copy_or_null(rsd_values *owner, const char *text, bool *failed)
{
    char *copy = text ? rsi_arena_text(&owner->mem, text, strlen(text)) : NULL;

    *failed = *failed || (text && !copy);
    return copy;
}

static rsd_err check_tensor(const rsd_value_tensor *t, rsd_error *err)
{
    int64_t elems;
    rsd_err rc;

    if (!t || t->ndim < 0 || t->ndim > RSD_MAX_NDIM)
        return rsi_fail(err, RSD_E_INVALID, "a tensor must have 0 to %d dimensions", RSD_MAX_NDIM);
    rc = rsi_shape_check(t->dtype, t->ndim, t->shape, &elems, err);
    if (!rc)
        rc = rsi_value_tensor_check(t, RSD_E_INVALID, err);
    if (!rc && t->conj && (t->dtype < RSD_C32 || t->dtype > RSD_C128))
        rc = rsi_fail(err, RSD_E_INVALID, "a tensor of %s has no conjugates",
                      rsd_dtype_name(t->dtype));
    return rc;
}

/* Takes a tensor that was checked. */
static rsd_err make_tensor(rsd_values *owner, const rsd_value_tensor *tensor, const rsd_value **out,
                           rsd_error *err)
{
    rsd_value_tensor *copy = rsi_arena_array(&owner->mem, 1, sizeof(*copy));
    bool              failed = false;

    if (!copy)
        return no_memory(err);
    *copy = *tensor;
    copy->storage = copy_or_null(owner, tensor->storage, &failed);
    copy->location = copy_or_null(owner, tensor->location, &failed);
    if (failed)
        return no_memory(err);
    return add(owner, (rsd_value){ .kind = RSD_VALUE_TENSOR, .as.tensor = copy }, out, err);
}

rsd_err rsd_value_create_tensor(rsd_values *owner, const rsd_value_tensor *tensor,
                                const rsd_value **out, rsd_error *err)
{
    rsd_err rc = check(owner, out, err);

    if (!rc)
        rc = check_tensor(tensor, err);
    return rc ? rc : make_tensor(owner, tensor, out, err);
}

/* "cuda", "cuda:0" */
static bool is_device(const char *text, size_t len)
{
    size_t name = 0, digits;

    while (name < len && name < 40 &&
           ((text[name] >= 'a' && text[name] <= 'z') || text[name] == '_'))
        name++;
    digits = len > name ? len - name - 1 : 0;
    if (name == 0 || name == len)
        return name > 0;
    if (text[name] != ':' || digits == 0 || digits > 3)
        return false;
    for (size_t i = name + 1; i < len; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return true;
}

/* Protocol 2 stores bytes as text, two bytes for each one that is not ASCII. */
static bool is_short(rsd_value_type type, const char *bytes, size_t len)
{
    size_t extra = 0;

    for (size_t i = 0; i < len && type == RSD_VALUE_BYTES && len <= RSI_VALUE_BYTES; i++)
        extra += (unsigned char)bytes[i] >= 0x80;
    return len <= RSI_VALUE_BYTES - extra;
}

const char *rsi_value_fault(rsd_value_type type, const char *bytes, size_t len)
{
    unsigned char le[RSI_BIGINT_BYTES + 2];
    size_t        used;

    if (!is_short(type, bytes, len))
        return "it is longer than pickle readers accept";
    switch (type) {
    case RSD_VALUE_BIGINT:
        used = len <= 3 * RSI_BIGINT_BYTES ? rsi_bigint(bytes, len, le) : 0;
        return used > 0 && used < 256 ? NULL
                                      : "a big integer has decimal digits, perhaps a minus before "
                                        "them, and at most 255 bytes";
    case RSD_VALUE_STR:
    case RSD_VALUE_OPAQUE:
        return rsi_is_utf8(bytes, len) ? NULL : "it is not UTF-8";
    case RSD_VALUE_DEVICE:
        return is_device(bytes, len) ? NULL : "a device is a name like \"cpu\" or \"cuda:0\"";
    default:
        return NULL;
    }
}

rsd_err rsd_value_create_bytes(rsd_values *owner, rsd_value_type type, const void *bytes,
                               size_t len, const rsd_value **out, rsd_error *err)
{
    const char *fault;
    rsd_err     rc = check(owner, out, err);

    if (!rc && type != RSD_VALUE_BIGINT && type != RSD_VALUE_STR && type != RSD_VALUE_BYTES &&
        type != RSD_VALUE_DEVICE && type != RSD_VALUE_OPAQUE)
        rc = rsi_fail(err, RSD_E_INVALID, "%d is not a kind of value with bytes", (int)type);
    if (!rc && len && !bytes)
        rc = rsi_fail(err, RSD_E_INVALID, "a value of %zu bytes, but the bytes are NULL", len);
    if (rc)
        return rc;
    fault = rsi_value_fault(type, bytes, len);
    if (fault)
        return rsi_fail(err, RSD_E_INVALID, "a value of %zu bytes: %s", len, fault);
    if (type == RSD_VALUE_OPAQUE)
        return rsi_value_create_opaque(owner, bytes, len, &(rsi_opaque){ 0 }, out, err);
    return rsi_value_bytes(owner, type, bytes, len, out, err);
}

rsd_err rsi_value_bytes(rsd_values *owner, rsd_value_type type, const void *bytes, size_t len,
                        const rsd_value **out, rsd_error *err)
{
    rsd_value *v;
    char      *copy;

    if (len > UINT32_MAX - 64)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "a value of %zu bytes is too long", len);
    v = rsi_arena_array(&owner->mem, 1, sizeof(*v) + len + 1); /* with a NUL at the end */
    if (!v)
        return no_memory(err);
    copy = (char *)(v + 1);
    if (len)
        memcpy(copy, bytes, len);
    *v = (rsd_value){ .kind = (uint8_t)type, .n = (uint32_t)len, .as.bytes = copy };
    *out = v;
    return RSD_OK;
}

rsd_err rsi_value_create_opaque(rsd_values *owner, const char *name, size_t len,
                                const rsi_opaque *facts, const rsd_value **out, rsd_error *err)
{
    rsi_opaque *o = rsi_arena_array(&owner->mem, 1, sizeof(*o) + len + 1);
    bool        failed = !o;

    if (!failed) {
        *o = *facts;
        o->dtensor = NULL;
        o->pickle =
            facts->pickle ? rsi_arena_text(&owner->mem, facts->pickle, facts->pickle_bytes) : NULL;
        o->storage = rsi_arena_array(&owner->mem, o->n, sizeof(o->storage[0]));
        failed = !o->storage || (facts->pickle && !o->pickle);
    }
    if (failed)
        return no_memory(err);
    if (len)
        memcpy(o->name, name, len);
    for (size_t i = 0; i < o->n; i++) {
        o->storage[i] = facts->storage[i];
        o->storage[i].storage = copy_or_null(owner, facts->storage[i].storage, &failed);
        o->storage[i].location = copy_or_null(owner, facts->storage[i].location, &failed);
    }
    if (failed)
        return no_memory(err);
    return add(owner,
               (rsd_value){ .kind = RSD_VALUE_OPAQUE, .n = (uint32_t)len, .as.bytes = o->name },
               out, err);
}

const rsi_opaque *rsi_value_opaque(const rsd_value *v)
{
    if (rsd_value_type_of(v) != RSD_VALUE_OPAQUE)
        return NULL;
    return (const rsi_opaque *)(const void *)(v->as.bytes - offsetof(rsi_opaque, name));
}

const rsd_value *rsi_value_class(const rsd_value *v)
{
    return v && v->classed ? v->as.item[2 * (size_t)v->n] : NULL;
}

const rsd_value *rsi_value_find_opaque(const rsd_value *v)
{
    const rsd_value *found = v->kind == RSD_VALUE_OPAQUE ? v : NULL;
    const size_t     total = v->kind == RSD_VALUE_DICT ? 2 * (size_t)v->n : v->n;

    for (size_t i = 0; v->depth > 0 && i < total && !found; i++)
        found = rsi_value_find_opaque(v->as.item[i]); /* as deep as values nest */
    return found;
}

rsd_err rsi_value_adopt(rsd_values *owner, rsd_value_type type, size_t n,
                        const rsd_value *const *item, const rsd_value **out, rsd_error *err)
{
    rsd_value v = { .kind = (uint8_t)type, .n = (uint32_t)n, .depth = 1, .as.item = item };
    size_t    total = type == RSD_VALUE_DICT ? 2 * n : n;

    for (size_t i = 0; i < total; i++)
        if (item[i]->depth >= v.depth)
            v.depth = (uint16_t)(item[i]->depth + 1);
    if (v.depth > RSD_VALUE_MAX_DEPTH)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "values nest deeper than %d", RSD_VALUE_MAX_DEPTH);
    return add(owner, v, out, err);
}

static rsd_err make_list(rsd_values *owner, rsd_value_type type, size_t n,
                         const rsd_value *const *item, const rsd_value **out, rsd_error *err)
{
    size_t            total = type == RSD_VALUE_DICT ? 2 * n : n;
    const rsd_value **copy = rsi_arena_array(&owner->mem, total, sizeof(copy[0]));

    if (!copy)
        return no_memory(err);
    memcpy(copy, item, total * sizeof(copy[0]));
    return rsi_value_adopt(owner, type, n, copy, out, err);
}

rsd_err rsi_value_create_classed(rsd_values *owner, size_t n, const rsd_value *const *item,
                                 const rsd_value **out, rsd_error *err)
{
    const rsd_value **copy = rsi_arena_array(&owner->mem, 2 * n + 1, sizeof(copy[0]));
    rsd_err           rc = copy ? RSD_OK : no_memory(err);

    if (rc)
        return rc;
    memcpy(copy, item, (2 * n + 1) * sizeof(copy[0]));
    rc = rsi_value_adopt(owner, RSD_VALUE_DICT, n, copy, out, err);
    if (!rc)
        ((rsd_value *)(uintptr_t)*out)->classed = true; /* made just now */
    return rc;
}

/* True if Python accepts it as a dict key or set item: only immutable values. */
static bool is_hashable(const rsd_value *v)
{
    if (v->kind == RSD_VALUE_LIST || v->kind == RSD_VALUE_SET || v->kind == RSD_VALUE_DICT)
        return false;
    for (size_t i = 0; v->kind == RSD_VALUE_TUPLE && i < v->n; i++)
        if (!is_hashable(v->as.item[i]))
            return false;
    return true;
}

rsd_err rsd_value_create_list(rsd_values *owner, rsd_value_type type, size_t n,
                              const rsd_value *const *item, const rsd_value **out, rsd_error *err)
{
    size_t  total = type == RSD_VALUE_DICT ? 2 * n : n;
    rsd_err rc = check(owner, out, err);

    if (!rc && (type < RSD_VALUE_LIST || type > RSD_VALUE_DICT))
        rc = rsi_fail(err, RSD_E_INVALID, "%d is not a kind of value with items", (int)type);
    if (!rc && (n > UINT32_MAX / 2 || (n && !item)))
        rc = rsi_fail(err, RSD_E_INVALID, "a value can't have %zu items", n);
    if (rc)
        return rc;
    if (n == 0) {
        *out = &the_empty[type];
        return RSD_OK;
    }
    for (size_t i = 0; i < total; i++) {
        bool key = type == RSD_VALUE_SET || (type == RSD_VALUE_DICT && i % 2 == 0);

        if (!item[i])
            return rsi_fail(err, RSD_E_INVALID, "item %zu is NULL", i);
        if (key && !is_hashable(item[i]))
            return rsi_fail(err, RSD_E_INVALID,
                            "item %zu is a list, set or dict, which can't be a key of a dict or "
                            "in a set",
                            i);
    }
    return make_list(owner, type, n, item, out, err);
}

/* ---- Reading ---- */

static bool is_kind(const rsd_value *v, rsd_value_type kind)
{
    return v && v->kind == kind;
}

rsd_value_type rsd_value_type_of(const rsd_value *v)
{
    return v ? (rsd_value_type)v->kind : (rsd_value_type)0;
}

bool rsd_value_bool(const rsd_value *v)
{
    return is_kind(v, RSD_VALUE_BOOL) && v->as.i;
}

int64_t rsd_value_int(const rsd_value *v)
{
    return is_kind(v, RSD_VALUE_INT) || is_kind(v, RSD_VALUE_BOOL) ? v->as.i : 0;
}

double rsd_value_float(const rsd_value *v)
{
    if (is_kind(v, RSD_VALUE_FLOAT))
        return v->as.f;
    return (double)rsd_value_int(v);
}

const char *rsd_value_bytes(const rsd_value *v, size_t *len)
{
    bool has = is_kind(v, RSD_VALUE_STR) || is_kind(v, RSD_VALUE_BYTES) ||
               is_kind(v, RSD_VALUE_BIGINT) || is_kind(v, RSD_VALUE_DEVICE) ||
               is_kind(v, RSD_VALUE_OPAQUE);

    if (len)
        *len = has ? v->n : 0;
    return has ? v->as.bytes : NULL;
}

rsd_dtype rsd_value_dtype(const rsd_value *v)
{
    return is_kind(v, RSD_VALUE_DTYPE) ? (rsd_dtype)v->as.i : (rsd_dtype)0;
}

const rsd_value_tensor *rsd_value_tensor_of(const rsd_value *v)
{
    return is_kind(v, RSD_VALUE_TENSOR) ? v->as.tensor : NULL;
}

size_t rsd_value_count(const rsd_value *v)
{
    return v && v->kind >= RSD_VALUE_LIST && v->kind <= RSD_VALUE_DICT ? v->n : 0;
}

const rsd_value *rsd_value_item(const rsd_value *v, size_t i)
{
    if (i >= rsd_value_count(v))
        return NULL;
    return v->as.item[v->kind == RSD_VALUE_DICT ? 2 * i + 1 : i];
}

const rsd_value *rsd_value_key(const rsd_value *v, size_t i)
{
    return is_kind(v, RSD_VALUE_DICT) && i < v->n ? v->as.item[2 * i] : NULL;
}

const rsd_value *rsd_value_get(const rsd_value *dict, const char *key)
{
    size_t len = key ? strlen(key) : 0;

    if (!is_kind(dict, RSD_VALUE_DICT) || !key)
        return NULL;
    for (size_t i = dict->n; i > 0; i--) { /* backwards: of equal keys the last counts */
        const rsd_value *k = dict->as.item[2 * i - 2];

        if (k->kind == RSD_VALUE_STR && k->n == len && memcmp(k->as.bytes, key, len) == 0)
            return dict->as.item[2 * i - 1];
    }
    return NULL;
}

/* The depth is at most RSD_VALUE_MAX_DEPTH, however the value was made. */
static rsd_err copy_items(const rsd_value *v, rsd_values *owner, const rsd_value **out,
                          rsd_error *err)
{
    size_t            n = rsd_value_type_of(v) == RSD_VALUE_DICT ? 2 * (size_t)v->n : v->n;
    const rsd_value **item = rsi_calloc(n + v->classed, sizeof(item[0]));
    rsd_err           rc = item ? RSD_OK : no_memory(err);

    for (size_t i = 0; i < n && !rc; i++)
        rc = rsi_value_copy(v->as.item[i], owner, &item[i], err);
    if (!rc && v->classed) {
        rc = rsi_value_copy(rsi_value_class(v), owner, &item[n], err);
        if (!rc)
            rc = rsi_value_create_classed(owner, v->n, item, out, err);
    } else if (!rc && n == 0) {
        *out = &the_empty[rsd_value_type_of(v)];
    } else if (!rc) {
        rc = make_list(owner, rsd_value_type_of(v), v->n, item, out, err);
    }
    rsi_free(item);
    return rc;
}

rsd_err rsi_value_copy(const rsd_value *v, rsd_values *owner, const rsd_value **out, rsd_error *err)
{
    switch (rsd_value_type_of(v)) {
    case RSD_VALUE_LIST:
    case RSD_VALUE_TUPLE:
    case RSD_VALUE_SET:
    case RSD_VALUE_DICT:
        return copy_items(v, owner, out, err);
    case RSD_VALUE_TENSOR:
        return make_tensor(owner, v->as.tensor, out, err);
    case RSD_VALUE_BIGINT:
    case RSD_VALUE_STR:
    case RSD_VALUE_BYTES:
    case RSD_VALUE_DEVICE:
        return rsi_value_bytes(owner, rsd_value_type_of(v), v->as.bytes, v->n, out, err);
    case RSD_VALUE_OPAQUE:
        return rsi_value_create_opaque(owner, v->as.bytes, v->n, rsi_value_opaque(v), out, err);
    case RSD_VALUE_NONE:
    case RSD_VALUE_BOOL: /* static: without an owner */
        *out = v;
        return RSD_OK;
    case RSD_VALUE_INT:
        return rsd_value_create_int(owner, v->as.i, out, err);
    default:
        return add(owner, *v, out, err);
    }
}
