/* SPDX-License-Identifier: Apache-2.0 */
/* What a pickle says plainly about an object of an unknown class, from the opcodes that are kept
 * for copies of it: the fields of a Namespace or a dataclass, the arguments of a call, the elements
 * of a numpy array. Nothing is called. value_text.c prints them. */
#include "base/mem.h"
#include "format/value_core.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    MOST_ELEMENTS = 1024, /* of an array */
    MOST_DIMS = 8
};

typedef struct parts {
    const rsi_pickle *p;
    rsd_values       *owner;
} parts;

static bool is_kind(const parts *s, rsi_pv v, rsi_pickle_kind kind)
{
    return rsi_pickle_kind_of(s->p, v) == kind;
}

static const rsd_value *decode(const parts *s, rsi_pv v)
{
    const rsd_value *out = NULL;

    return rsi_value_decode(s->p, v, s->owner, &out, NULL) == RSD_OK ? out : NULL;
}

static const rsd_value *tuple_of(const parts *s, size_t n, const rsd_value *const *item)
{
    const rsd_value *out = NULL;

    for (size_t i = 0; i < n; i++)
        if (!item[i])
            return NULL;
    return rsd_value_create_list(s->owner, RSD_VALUE_TUPLE, n, item, &out, NULL) == RSD_OK ? out
                                                                                           : NULL;
}

/* ---- numpy ---- */

/* numpy.dtype("f8", False, True), state (3, "<", ..): little-endian numbers that C has too. */
static rsd_dtype dtype_of(const parts *s, rsi_pv v)
{
    static const struct {
        const char *code;
        rsd_dtype   dtype;
    } known[] = { { "b1", RSD_BOOL }, { "i1", RSD_I8 },  { "u1", RSD_U8 },  { "i2", RSD_I16 },
                  { "u2", RSD_U16 },  { "i4", RSD_I32 }, { "u4", RSD_U32 }, { "i8", RSD_I64 },
                  { "u8", RSD_U64 },  { "f4", RSD_F32 }, { "f8", RSD_F64 } };
    const rsi_pickle_object object = rsi_pickle_object_of(s->p, v);
    const char             *module, *name;
    rsi_pv                  arg[3], state[9];

    if (!is_kind(s, v, RSI_PICKLE_OBJECT) || !is_kind(s, object.callee, RSI_PICKLE_CLASS))
        return (rsd_dtype)0;
    rsi_pickle_class_of(s->p, object.callee, &module, &name);
    if (strcmp(module, "numpy") != 0 || strcmp(name, "dtype") != 0 ||
        rsi_pickle_items(s->p, object.args, arg, 3) < 1 ||
        rsi_pickle_items(s->p, object.state, state, 9) < 2 ||
        !is_kind(s, state[1], RSI_PICKLE_STR) || *rsi_pickle_text(s->p, state[1]) == '>')
        return (rsd_dtype)0;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(rsi_pickle_text(s->p, arg[0]), known[i].code) == 0)
            return known[i].dtype;
    return (rsd_dtype)0;
}

static const rsd_value *element(const parts *s, rsd_dtype dtype, const char *at)
{
    const rsd_value *out = NULL;
    const size_t     size = rsd_dtype_size(dtype);
    uint64_t         bits = 0;
    float            single;
    double           real;
    rsd_err          rc;

    for (size_t i = size; i > 0; i--)
        bits = bits << 8 | (unsigned char)at[i - 1];
    if (dtype == RSD_F32 || dtype == RSD_F64) {
        const uint32_t low = (uint32_t)bits;

        memcpy(&single, &low, sizeof(single));
        memcpy(&real, &bits, sizeof(real));
        rc = rsd_value_create_float(s->owner, dtype == RSD_F32 ? (double)single : real, &out, NULL);
    } else if (dtype == RSD_BOOL) {
        rc = rsd_value_create_bool(s->owner, bits != 0, &out, NULL);
    } else if (dtype == RSD_U64 && bits > INT64_MAX) {
        char text[24];
        int  len = snprintf(text, sizeof(text), "%" PRIu64, bits);

        rc = rsd_value_create_bytes(s->owner, RSD_VALUE_BIGINT, text, (size_t)len, &out, NULL);
    } else {
        const int shift =
            dtype == RSD_U8 || dtype == RSD_U16 || dtype == RSD_U32 || dtype == RSD_U64
                ? 0
                : (int)(64 - 8 * size);

        rc = rsd_value_create_int(s->owner, (int64_t)(bits << shift) >> shift, &out, NULL);
    }
    return rc ? NULL : out;
}

/* The elements of dimension d from *at on, as nested lists. */
static const rsd_value *elements(const parts *s, rsd_dtype dtype, const int64_t *shape, int d,
                                 int ndim, const char **at)
{
    const rsd_value  *out = NULL;
    const rsd_value **item;
    size_t            n;
    bool              all = true;

    if (d == ndim) {
        out = element(s, dtype, *at);
        *at += rsd_dtype_size(dtype);
        return out;
    }
    n = (size_t)shape[d];
    item = rsi_calloc(n + 1, sizeof(item[0]));
    for (size_t i = 0; item && i < n; i++) {
        item[i] = elements(s, dtype, shape, d + 1, ndim, at);
        all = all && item[i];
    }
    if (item && all && rsd_value_create_list(s->owner, RSD_VALUE_LIST, n, item, &out, NULL))
        out = NULL;
    rsi_free(item);
    return out;
}

/* (elements, "float64"): `raw` has the bytes of a scalar or an array in C order. */
static const rsd_value *array_of(const parts *s, rsi_pv dtype, int ndim, const int64_t *shape,
                                 rsi_pv raw)
{
    const rsd_dtype  as = dtype_of(s, dtype);
    const rsd_value *bytes = as ? decode(s, raw) : NULL, *pair[2] = { NULL };
    const char      *at, *name;
    size_t           len = 0;
    int64_t          n = 1;

    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0 || shape[d] > MOST_ELEMENTS)
            return NULL;
        n *= shape[d] < 1 ? 1 : shape[d];
        if (n > MOST_ELEMENTS)
            return NULL;
    }
    at = rsd_value_bytes(bytes, &len);
    for (int d = 0; d < ndim; d++)
        n = shape[d] ? n : 0;
    if (!bytes || rsd_value_type_of(bytes) != RSD_VALUE_BYTES ||
        len != (size_t)n * rsd_dtype_size(as))
        return NULL;
    name = rsd_dtype_name(as);
    pair[0] = elements(s, as, shape, 0, ndim, &at);
    if (rsd_value_create_bytes(s->owner, RSD_VALUE_STR, name, strlen(name), &pair[1], NULL))
        return NULL;
    return tuple_of(s, 2, pair);
}

/* scalar(dtype, bytes), or _reconstruct(..) with the state (1, shape, dtype, False, bytes). */
static const rsd_value *numpy_of(const parts *s, const rsi_pickle_object *object, const char *name)
{
    int64_t shape[MOST_DIMS];
    rsi_pv  part[6];
    int     ndim;

    if (strcmp(name, "scalar") == 0)
        return rsi_pickle_items(s->p, object->args, part, 2) == 2
                   ? array_of(s, part[0], 0, NULL, part[1])
                   : NULL;
    if (rsi_pickle_items(s->p, object->state, part, 6) != 5 ||
        !is_kind(s, part[3], RSI_PICKLE_FALSE))
        return NULL;
    ndim = rsi_pickle_ints(s->p, part[1], shape, MOST_DIMS);
    return ndim >= 0 && ndim <= MOST_DIMS ? array_of(s, part[2], ndim, shape, part[4]) : NULL;
}

/* ---- others ---- */

/* The state if it is attributes by name, or (None, those in slots). */
static const rsd_value *fields_of(const parts *s, rsi_pv state)
{
    const rsd_value *out;
    rsi_pv           part[2];

    if (is_kind(s, state, RSI_PICKLE_TUPLE) && rsi_pickle_items(s->p, state, part, 2) == 2 &&
        is_kind(s, part[0], RSI_PICKLE_NONE))
        state = part[1];
    out = is_kind(s, state, RSI_PICKLE_DICT) ? decode(s, state) : NULL;
    for (size_t i = 0; out && i < rsd_value_count(out); i++)
        if (rsd_value_type_of(rsd_value_key(out, i)) != RSD_VALUE_STR)
            return NULL;
    return out;
}

static const rsd_value *parts_of(const parts *s, rsi_pv root)
{
    const rsi_pickle_object object = rsi_pickle_object_of(s->p, root);
    const bool              args =
        rsi_pickle_count(s->p, object.args) > 0 || rsi_pickle_ints(s->p, object.args, NULL, 0) > 0;
    const bool  items = !is_kind(s, object.items, RSI_PICKLE_GONE);
    const bool  state = !is_kind(s, object.state, RSI_PICKLE_GONE);
    const char *module, *name;

    if (!is_kind(s, root, RSI_PICKLE_OBJECT) || !is_kind(s, object.callee, RSI_PICKLE_CLASS) ||
        object.how == RSI_PICKLE_NEWOBJ_EX)
        return NULL;
    rsi_pickle_class_of(s->p, object.callee, &module, &name);
    if (strcmp(module, "numpy.core.multiarray") == 0 ||
        strcmp(module, "numpy._core.multiarray") == 0)
        return numpy_of(s, &object, name);
    if (state && !args && !items)
        return fields_of(s, object.state);
    if (items && !args && !state) {
        const rsd_value *all = decode(s, object.items);

        return tuple_of(s, 1, &all);
    }
    return state || items ? NULL : decode(s, object.args);
}

const rsd_value *rsi_value_parts(const rsd_value *opaque, rsd_values *owner)
{
    const rsi_opaque  *facts = rsi_value_opaque(opaque);
    rsi_pickle_options options = { .max_stack = SIZE_MAX, .max_text = RSI_VALUE_BYTES };
    parts              s = { .owner = owner };
    rsi_pickle        *p = NULL;
    const rsd_value   *out = NULL;
    const size_t       len = facts && facts->pickle ? facts->pickle_bytes : 0;
    unsigned char     *code = len && len <= RSI_PARTS_BYTES ? rsi_calloc(len + 1, 1) : NULL;
    rsi_source         source = rsi_memory_source(code, len + 1, "");
    rsi_pv             root = 0;

    if (!code)
        return NULL;
    memcpy(code, facts->pickle, len);
    code[len] = '.';
    options.classes = rsi_value_classes(&options.nclasses);
    if (rsi_pickle_create(&options, &p, NULL) == RSD_OK &&
        rsi_pickle_read(p, &source, &root, NULL, NULL) == RSD_OK) {
        s.p = p;
        owner->mem.limit = owner->mem.used + rsi_pickle_limit(len);
        out = parts_of(&s, root);
        owner->mem.limit = 0;
        owner->mem.full = false;
    }
    rsi_pickle_free(p);
    rsi_free(code);
    return out;
}
