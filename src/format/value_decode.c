/* SPDX-License-Identifier: Apache-2.0 */
/* From a parsed pickle to values. Nothing is called: the few classes that plain objects need are
 * known by name (value_read.c), every other object becomes opaque. Shared containers are copied
 * wherever they are used; a pickle that keeps referring to its parts is bounded by the owner's
 * memory limit and by the bytes that the values would take when written. Tensors are in
 * value_tensor.c. */
#include "base/mem.h"
#include "base/text.h"
#include "format/value_core.h"

#include <inttypes.h>

/* What a pickle may turn into: a fixed amount, and this much for each of its bytes. */
enum { FREE_STEPS = 8192, STEPS = 2, FREE_BYTES = 16 << 20, BYTES = 4 };

/* A container being filled. */
typedef struct frame {
    rsi_pickle_iter   it;
    const rsd_value **item;
    size_t            n, filled;
    rsd_value_type    type;
    const rsd_value *class; /* of a dict; NULL: none */
} frame;

typedef struct decoding {
    const rsi_pickle *p;
    rsd_values       *owner;
    const rsd_value **seen; /* [nshared] text and bytes that are already values */
    frame             stack[RSD_VALUE_MAX_DEPTH];
    size_t            depth;
    uint64_t          values; /* number that may still be made */
    uint64_t          left;   /* bytes that they may still take when written */
    uint64_t          steps;  /* number that may still be taken inside opaque objects */
    size_t            kept;   /* bytes that may still be kept for copies of them */
    const rsd_value  *done;   /* the value just made; NULL: a container was begun */
    rsd_error        *err;
} decoding;

static rsd_err no_memory(const decoding *d)
{
    return rsi_fail(d->err, RSD_E_NOMEM,
                    "no memory for the values of a pickle, or more than its size allows");
}

/* A value referenced many times is made, and written, as many times. */
static rsd_err charge(decoding *d, uint64_t values, uint64_t bytes)
{
    if (values > d->values || bytes > d->left)
        return rsi_fail(d->err, RSD_E_FORMAT,
                        "a pickle of %" PRIu64 " bytes that keeps referring to its own parts",
                        rsi_pickle_size(d->p));
    d->values -= values;
    d->left -= bytes;
    return RSD_OK;
}

/* ---- Scalars ---- */

/* Each text or byte string is made once. */
static rsd_err decode_bytes(decoding *d, rsi_pv v, rsd_value_type type)
{
    const rsd_value **seen = &d->seen[rsi_pickle_shared(v)];
    size_t            len = 0;
    const char       *bytes = rsi_pickle_bytes(d->p, v, &len);
    rsd_err           rc = charge(d, 0, len);

    if (!rc && !*seen)
        rc = rsi_value_bytes(d->owner, type, bytes, len, seen, d->err);
    d->done = *seen;
    return rc;
}

/* Two's complement to decimal digits, nine at a time. */
static rsd_err decode_bigint(decoding *d, rsi_pv v)
{
    uint32_t    limb[65] = { 0 }, group[80];
    size_t      len = 0, n, ngroups = 0;
    const char *bytes = rsi_pickle_bytes(d->p, v, &len);
    bool        negative = (unsigned char)bytes[len - 1] & 0x80;
    uint32_t    carry = negative;
    char        buf[9 * 80 + 2];
    rsi_text    text = rsi_text_begin(buf, sizeof(buf));

    n = (len + 3) / 4;
    for (size_t i = 0; i < 4 * n; i++) {
        uint32_t b = i < len ? (unsigned char)bytes[i] : negative ? 0xff : 0;

        if (negative) { /* -x is ~x + 1 */
            b = (~b & 0xff) + carry;
            carry = b >> 8;
            b &= 0xff;
        }
        limb[i / 4] |= b << 8 * (i % 4);
    }
    if (carry && negative)
        limb[n++] = 1;
    while (n) {
        uint64_t rest = 0;

        for (size_t i = n; i > 0; i--) {
            rest = rest << 32 | limb[i - 1];
            limb[i - 1] = (uint32_t)(rest / 1000000000u);
            rest %= 1000000000u;
        }
        group[ngroups++] = (uint32_t)rest;
        while (n && limb[n - 1] == 0)
            n--;
    }
    rsi_text_add(&text, "%s%u", negative ? "-" : "", (unsigned)group[ngroups - 1]);
    for (size_t i = ngroups - 1; i > 0; i--)
        rsi_text_add(&text, "%09u", (unsigned)group[i - 1]);
    return rsi_value_bytes(d->owner, RSD_VALUE_BIGINT, buf, text.len, &d->done, d->err);
}

/* `v` is the whole object, `class` its stated class. */
static rsd_err decode_opaque(decoding *d, rsi_pv v, rsi_pv class, const char *otherwise)
{
    const char *module, *name;
    char        buf[512];
    rsi_text    text = rsi_text_begin(buf, sizeof(buf));
    rsi_opaque  facts = { 0 };
    rsi_bytes   pickle = { 0 };
    rsd_err     rc = rsi_value_opaque_read(d->p, v, &d->steps, &facts, d->err);

    if (rsi_pickle_kind_of(d->p, class) == RSI_PICKLE_CLASS) {
        rsi_pickle_class_of(d->p, class, &module, &name);
        rsi_text_add(&text, "%s.%s", module, name);
    } else {
        rsi_text_add(&text, "%s", otherwise);
    }
    if (!rc && facts.known && facts.n == 0 && rsi_value_foreign(d->p, v, d->kept, &pickle)) {
        facts.pickle = pickle.at;
        facts.pickle_bytes = pickle.len;
        d->kept -= pickle.len;
    }
    if (!rc)
        rc = rsi_value_create_opaque(d->owner, buf, strlen(buf), &facts, &d->done, d->err);
    rsi_free(pickle.at);
    rsi_free(facts.storage);
    return rc;
}

static rsd_err decode_class(decoding *d, rsi_pv v)
{
    const char *module, *name;
    rsd_dtype   dtype;

    if (rsi_pickle_class_of(d->p, v, &module, &name) == RSI_VALUE_CLASS_TORCH &&
        rsd_dtype_parse(name, &dtype, NULL) == RSD_OK)
        return rsd_value_create_dtype(d->owner, dtype, &d->done, d->err);
    return decode_opaque(d, v, v, "");
}

/* ---- Containers ---- */

/* A dict without a class, or another container, if `class` is NULL. */
static rsd_err begin_classed(decoding *d, rsi_pv from, rsd_value_type type, const rsd_value *class)
{
    size_t n = rsi_pickle_count(d->p, from);
    frame *f;

    d->done = NULL;
    if (n == 0 && class)
        return rsi_value_create_classed(d->owner, 0, &class, &d->done, d->err);
    if (n == 0)
        return rsd_value_create_list(d->owner, type, 0, NULL, &d->done, d->err);
    if (d->depth == RSD_VALUE_MAX_DEPTH)
        return rsi_fail(d->err, RSD_E_FORMAT, "values nest deeper than %d", RSD_VALUE_MAX_DEPTH);
    f = &d->stack[d->depth];
    *f = (frame){ .it = rsi_pickle_each(d->p, from), .n = n, .type = type, .class = class };
    f->item = rsi_arena_array(&d->owner->mem, n + 1, sizeof(f->item[0]));
    if (!f->item)
        return no_memory(d);
    f->item[n] = class;
    d->depth++;
    return RSD_OK;
}

static rsd_err begin_list(decoding *d, rsi_pv from, rsd_value_type type)
{
    return begin_classed(d, from, type, NULL);
}

static rsd_err decode_ints(decoding *d, rsi_pv v)
{
    int64_t          x[32];
    const rsd_value *item[32];
    int              n = rsi_pickle_ints(d->p, v, x, 32);
    rsd_err          rc = RSD_OK;

    for (int i = 0; i < n && !rc; i++)
        rc = rsd_value_create_int(d->owner, x[i], &item[i], d->err);
    if (rc)
        return rc;
    return rsd_value_create_list(d->owner, RSD_VALUE_TUPLE, (size_t)n, item, &d->done, d->err);
}

/* ---- Objects ---- */

/* Bytes as Python 3 writes them for protocol 2: text whose characters are the bytes. */
static rsd_err decode_latin1(decoding *d, rsi_pv whole, rsi_pv v, const rsi_pickle_object *object)
{
    size_t               len = 0, n = 0;
    const unsigned char *s = (const unsigned char *)rsi_pickle_bytes(d->p, v, &len);
    unsigned char       *buf;
    bool                 fits = true;
    rsd_err              rc = charge(d, 0, len);

    if (rc)
        return rc;
    buf = rsi_calloc(len, 1);
    if (!buf)
        return no_memory(d);
    for (size_t i = 0; i < len && fits; i++, n++) {
        fits = s[i] < 0x80 || ((s[i] == 0xc2 || s[i] == 0xc3) && i + 1 < len);
        if (fits && s[i] >= 0x80) {
            buf[n] = (unsigned char)(s[i] << 6 | (s[i + 1] & 0x3f));
            i++;
        } else {
            buf[n] = s[i];
        }
    }
    rc = fits ? rsi_value_bytes(d->owner, RSD_VALUE_BYTES, buf, n, &d->done, d->err)
              : decode_opaque(d, whole, object->callee, "");
    rsi_free(buf);
    return rc;
}

static rsd_err decode_device(decoding *d, rsi_pv v, const rsi_pickle_object *object,
                             const rsi_pv *arg, size_t n)
{
    char     buf[80];
    rsi_text text = rsi_text_begin(buf, sizeof(buf));
    int64_t  index;

    if (n == 0 || n > 2 || rsi_pickle_kind_of(d->p, arg[0]) != RSI_PICKLE_STR)
        return decode_opaque(d, v, object->callee, "");
    rsi_text_add(&text, "%s", rsi_pickle_text(d->p, arg[0]));
    if (n == 2 && rsi_pickle_int(d->p, arg[1], &index))
        rsi_text_add(&text, ":%lld", (long long)index);
    if (text.len >= sizeof(buf) || rsi_value_fault(RSD_VALUE_DEVICE, buf, text.len))
        return decode_opaque(d, v, object->callee, "");
    return rsi_value_bytes(d->owner, RSD_VALUE_DEVICE, buf, text.len, &d->done, d->err);
}

/* Opaque, like anything but a plain tensor, but its parts are known. */
static rsd_err decode_dtensor(decoding *d, rsi_pv v, const rsi_pickle_object *object)
{
    rsi_dtensor  found;
    rsi_dtensor *kept = NULL;
    rsi_pv       arg[2], class = object->callee;
    bool         known = false;
    rsd_err      rc = rsi_value_dtensor_decode(d->p, v, d->owner, &found, &known, d->err);

    if (!rc && known) {
        kept = rsi_arena_array(&d->owner->mem, 1, sizeof(*kept));
        rc = kept ? RSD_OK : no_memory(d);
    }
    if (object->id == RSI_VALUE_CLASS_FROM_TYPE && rsi_pickle_items(d->p, object->args, arg, 2) > 1)
        class = arg[1]; /* the class that it would have */
    if (!rc)
        rc = decode_opaque(d, v, class, "");
    if (rc || !kept)
        return rc;
    *kept = found;
    ((rsi_opaque *)(uintptr_t)rsi_value_opaque(d->done))->dtensor = kept; /* made just now */
    return RSD_OK;
}

static rsd_err decode_tensor(decoding *d, rsi_pv v, const rsi_pickle_object *object)
{
    rsd_value_tensor tensor;
    bool             known = false;
    rsd_err          rc = rsi_value_tensor_decode(d->p, v, &tensor, &known, d->err);

    if (!rc && !known)
        return decode_dtensor(d, v, object);
    return rc ? rc : rsd_value_create_tensor(d->owner, &tensor, &d->done, d->err);
}

static bool is_kind(const decoding *d, rsi_pv v, rsi_pickle_kind kind)
{
    return rsi_pickle_kind_of(d->p, v) == kind;
}

static rsd_err note(decoding *d, rsi_attributes *lost, const char *name)
{
    for (size_t i = 0; i < lost->n; i++)
        if (strcmp(lost->name[i], name) == 0)
            return RSD_OK;
    if (lost->n == RSI_ATTRIBUTES)
        return RSD_OK;
    lost->name[lost->n] = rsi_arena_text(&d->owner->mem, name, strlen(name));
    if (!lost->name[lost->n])
        return no_memory(d);
    lost->n++;
    return RSD_OK;
}

static rsd_err note_lost(decoding *d, const char *name)
{
    return note(d, &d->owner->lost, name);
}

static rsd_err note_attribute(decoding *d, rsi_pv key)
{
    return note_lost(d, is_kind(d, key, RSI_PICKLE_STR) ? rsi_pickle_text(d->p, key) : "?");
}

/* The state that __setstate__ would give a dict: attributes by name, or anything else. */
static rsd_err note_attributes(decoding *d, rsi_pv state)
{
    rsi_pickle_iter it = rsi_pickle_each(d->p, state);
    rsi_pv          key, value;
    rsd_err         rc = RSD_OK;

    if (is_kind(d, state, RSI_PICKLE_GONE) || is_kind(d, state, RSI_PICKLE_NONE))
        return RSD_OK;
    if (!is_kind(d, state, RSI_PICKLE_DICT))
        return note_attribute(d, state);
    while (!rc && d->owner->lost.n < RSI_ATTRIBUTES && rsi_pickle_next(d->p, &it, &key) &&
           rsi_pickle_next(d->p, &it, &value))
        rc = note_attribute(d, key);
    return rc;
}

/* A tensor of a subclass, or with attributes: (.., .., .., state) */
static rsd_err decode_rich_tensor(decoding *d, rsi_pv v, const rsi_pickle_object *object)
{
    rsi_pv  arg[4];
    rsd_err rc = decode_tensor(d, v, object);

    if (rc || rsd_value_type_of(d->done) != RSD_VALUE_TENSOR ||
        rsi_pickle_items(d->p, object->args, arg, 4) != 4)
        return rc;
    return is_kind(d, arg[3], RSI_PICKLE_DICT) ? note_attributes(d, arg[3]) : RSD_OK;
}

/* True if items were added to the dict after its call. */
static bool has_items(const decoding *d, const rsi_pickle_object *object)
{
    return is_kind(d, object->items, RSI_PICKLE_DICT) || is_kind(d, object->items, RSI_PICKLE_GONE);
}

static rsd_err decode_dict(decoding *d, const rsi_pickle_object *object)
{
    rsd_err rc = note_attributes(d, object->state);

    return rc ? rc : begin_list(d, object->items, RSD_VALUE_DICT);
}

/* A subclass of dict from the library: its items, and opcodes that make it again unless it holds
 * storages. */
static rsd_err decode_subclass(decoding *d, rsi_pv v, rsi_pv items, const char *name)
{
    rsi_pickle_object object = rsi_pickle_object_of(d->p, v);
    rsd_err           rc = decode_opaque(d, v, object.callee, "");
    const rsd_value *class = d->done;

    if (rc)
        return rc;
    if (!rsi_value_opaque(class)->pickle) {
        rc = note_lost(d, name);
        if (!rc)
            rc = note_attributes(d, object.state);
        return rc ? rc : begin_list(d, items, RSD_VALUE_DICT);
    }
    rc = note(d, &d->owner->classes, name);
    return rc ? rc : begin_classed(d, items, RSD_VALUE_DICT, class);
}

static rsd_err decode_object(decoding *d, rsi_pv v)
{
    rsi_pickle_object object = rsi_pickle_object_of(d->p, v);
    rsi_pv            arg[2];
    size_t            n = rsi_pickle_items(d->p, object.args, arg, 2);

    switch (object.id) {
    case RSI_VALUE_CLASS_ORDERED_DICT:
        if (n == 0 && has_items(d, &object))
            return decode_dict(d, &object);
        break;
    case RSI_VALUE_CLASS_DEFAULT_DICT:
        if (n <= 1 && has_items(d, &object))
            return decode_subclass(d, v, object.items, "collections.defaultdict");
        break;
    case RSI_VALUE_CLASS_COUNTER:
        if (n == 1 && is_kind(d, arg[0], RSI_PICKLE_DICT))
            return decode_subclass(d, v, arg[0], "collections.Counter");
        break;
    case RSI_VALUE_CLASS_SET:
        if (n == 0 || (n == 1 && is_kind(d, arg[0], RSI_PICKLE_LIST)))
            return begin_list(d, n ? arg[0] : object.args, RSD_VALUE_SET);
        break;
    case RSI_VALUE_CLASS_BYTES:
        if (n == 0)
            return rsi_value_bytes(d->owner, RSD_VALUE_BYTES, "", 0, &d->done, d->err);
        if (n == 1 && is_kind(d, arg[0], RSI_PICKLE_BYTES))
            return decode_bytes(d, arg[0], RSD_VALUE_BYTES);
        if (n == 1) { /* bytearray(_codecs.encode(text, 'latin1')) */
            rsi_pickle_object inner = rsi_pickle_object_of(d->p, arg[0]);

            if (inner.id == RSI_VALUE_CLASS_ENCODE)
                n = rsi_pickle_items(d->p, inner.args, arg, 2);
        }
        if (n == 2 && is_kind(d, arg[0], RSI_PICKLE_STR))
            return decode_latin1(d, v, arg[0], &object);
        break;
    case RSI_VALUE_CLASS_ENCODE:
        if (n == 2 && is_kind(d, arg[0], RSI_PICKLE_STR))
            return decode_latin1(d, v, arg[0], &object);
        break;
    case RSI_VALUE_CLASS_SIZE:
        if (n == 1 && is_kind(d, arg[0], RSI_PICKLE_INTS))
            return decode_ints(d, arg[0]);
        if (n == 1 && is_kind(d, arg[0], RSI_PICKLE_TUPLE))
            return begin_list(d, arg[0], RSD_VALUE_TUPLE);
        break;
    case RSI_VALUE_CLASS_DEVICE:
        return decode_device(d, v, &object, arg, n);
    case RSI_VALUE_CLASS_TENSOR_V2:
    case RSI_VALUE_CLASS_TENSOR_V3:
        return decode_tensor(d, v, &object);
    case RSI_VALUE_CLASS_PARAMETER:
    case RSI_VALUE_CLASS_FROM_TYPE:
        return decode_rich_tensor(d, v, &object);
    default:
        break;
    }
    return decode_opaque(d, v, object.callee, "object");
}

/* ---- All ---- */

/* Sets d->done, or begins a container. */
static rsd_err decode_one(decoding *d, rsi_pv v)
{
    int64_t x = 0;
    rsd_err rc = charge(d, 1, 0);

    if (rc)
        return rc;
    switch (rsi_pickle_kind_of(d->p, v)) {
    case RSI_PICKLE_NONE:
        return rsd_value_create_none(d->owner, &d->done, d->err);
    case RSI_PICKLE_FALSE:
    case RSI_PICKLE_TRUE:
        return rsd_value_create_bool(d->owner, is_kind(d, v, RSI_PICKLE_TRUE), &d->done, d->err);
    case RSI_PICKLE_INT:
        rsi_pickle_int(d->p, v, &x);
        return rsd_value_create_int(d->owner, x, &d->done, d->err);
    case RSI_PICKLE_BIGINT:
        return decode_bigint(d, v);
    case RSI_PICKLE_FLOAT:
        return rsd_value_create_float(d->owner, rsi_pickle_float(d->p, v), &d->done, d->err);
    case RSI_PICKLE_STR:
        return decode_bytes(d, v, RSD_VALUE_STR);
    case RSI_PICKLE_BYTES:
        return decode_bytes(d, v, RSD_VALUE_BYTES);
    case RSI_PICKLE_INTS:
        return decode_ints(d, v);
    case RSI_PICKLE_TUPLE:
        return begin_list(d, v, RSD_VALUE_TUPLE);
    case RSI_PICKLE_LIST:
        return begin_list(d, v, RSD_VALUE_LIST);
    case RSI_PICKLE_SET:
        return begin_list(d, v, RSD_VALUE_SET);
    case RSI_PICKLE_DICT:
        return begin_list(d, v, RSD_VALUE_DICT);
    case RSI_PICKLE_CLASS:
        return decode_class(d, v);
    case RSI_PICKLE_OBJECT:
        return decode_object(d, v);
    default:
        return decode_opaque(d, v, v, "persistent id");
    }
}

/* Puts the value just made into the top container, and closes containers that are full. */
static rsd_err store(decoding *d)
{
    while (d->done && d->depth) {
        frame  *f = &d->stack[d->depth - 1];
        rsd_err rc;

        f->item[f->filled++] = d->done;
        if (f->filled < f->n)
            return RSD_OK;
        d->depth--;
        rc = f->class ? rsi_value_create_classed(d->owner, f->n / 2, f->item, &d->done, d->err)
                      : rsi_value_adopt(d->owner, f->type,
                                        f->type == RSD_VALUE_DICT ? f->n / 2 : f->n, f->item,
                                        &d->done, d->err);
        if (rc)
            return rc;
    }
    return RSD_OK;
}

rsd_err rsi_value_decode(const rsi_pickle *p, rsi_pv from, rsd_values *owner, const rsd_value **out,
                         rsd_error *err)
{
    decoding *d = rsi_calloc(1, sizeof(*d));
    rsi_pv    v = from;
    rsd_err   rc;

    if (!d)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to decode a pickle");
    d->p = p;
    d->owner = owner;
    d->err = err;
    d->left = BYTES * rsi_pickle_size(p) + FREE_BYTES;
    d->kept = 2 * (size_t)rsi_pickle_size(p) + FREE_STEPS;
    d->values = d->steps = STEPS * rsi_pickle_size(p) + FREE_STEPS;
    d->seen = rsi_calloc(rsi_pickle_nshared(p), sizeof(d->seen[0]));
    rc = d->seen ? decode_one(d, v) : no_memory(d);
    while (!rc) {
        rc = store(d);
        if (rc || d->depth == 0)
            break;
        rsi_pickle_next(p, &d->stack[d->depth - 1].it, &v);
        rc = decode_one(d, v);
    }
    if (!rc)
        *out = d->done;
    rsi_free(d->seen);
    rsi_free(d);
    return rc;
}
