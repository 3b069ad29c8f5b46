/* SPDX-License-Identifier: Apache-2.0 */
/* Values to pickle opcodes. No memo is needed: every value is written where it occurs. */
#include "format/value_pickle.h"
#include "base/mem.h"
#include "format/tensor_pickle.h"
#include "format/value_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 1000 };                /* items on the stack at once, as in Python */
#define MOST_PICKLE ((size_t)1 << 30) /* the reader's limit in bytes */

/* The pickle being written; the first failure is kept. */
typedef struct writer {
    rsi_bytes    *out;
    rsi_storages *storages;
    rsd_err       rc;
    rsd_error    *err;
} writer;

static void put(writer *w, const void *bytes, size_t len)
{
    if (!w->rc && !rsi_bytes_add(w->out, bytes, len))
        w->rc = rsi_fail(w->err, RSD_E_NOMEM, "no memory for a pickle");
}

static void put_byte(writer *w, int byte)
{
    unsigned char b = (unsigned char)byte;

    put(w, &b, 1);
}

static void put_little(writer *w, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put_byte(w, (int)(value >> (8 * i) & 0xff));
}

static void put_text(writer *w, const char *text, size_t len)
{
    if (len > UINT32_MAX) {
        w->rc = rsi_fail(w->err, RSD_E_UNSUPPORTED, "a text of %zu bytes is too long for a pickle",
                         len);
        return;
    }
    put_byte(w, 'X');
    put_little(w, len, 4);
    put(w, text, len);
}

static void put_global(writer *w, const char *module_and_name)
{
    put_byte(w, 'c');
    put(w, module_and_name, strlen(module_and_name)); /* "torch\nSize\n" */
}

static void put_int(writer *w, int64_t x)
{
    unsigned char code[RSI_PICKLE_INT_MAX];

    put(w, code, rsi_pickle_put_int(code, x));
}

size_t rsi_bigint(const char *digits, size_t len, unsigned char *le)
{
    bool     negative = len > 0 && digits[0] == '-';
    size_t   used = 1;
    unsigned carry = 1;

    if (len == negative)
        return 0;
    memset(le, 0, RSI_BIGINT_BYTES + 2);
    for (size_t i = negative; i < len; i++) {
        unsigned add = (unsigned)(digits[i] - '0');

        if (digits[i] < '0' || digits[i] > '9')
            return 0;
        for (size_t k = 0; k < used || add; k++) {
            if (k == RSI_BIGINT_BYTES)
                return 0;
            add += le[k] * 10u;
            le[k] = (unsigned char)add;
            add >>= 8;
            used = k + 1 > used ? k + 1 : used;
        }
    }
    negative = negative && (used > 1 || le[0]); /* "-0" */
    for (size_t k = 0; k <= used && negative; k++) {
        carry += (unsigned char)~le[k];
        le[k] = (unsigned char)carry;
        carry >>= 8;
    }
    if ((le[used - 1] & 0x80) != (negative ? 0x80 : 0))
        used++; /* the sign needs a byte */
    return used <= RSI_BIGINT_BYTES ? used : 0;
}

static void put_bigint(writer *w, const char *digits, size_t len)
{
    unsigned char le[RSI_BIGINT_BYTES + 2];
    size_t        used = rsi_bigint(digits, len, le);

    put_byte(w, used < 256 ? 0x8a : 0x8b);
    put_little(w, used, used < 256 ? 1 : 4);
    put(w, le, used);
}

static void put_float(writer *w, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    put_byte(w, 'G');
    for (int i = 7; i >= 0; i--)
        put_byte(w, (int)(bits >> (8 * i) & 0xff));
}

/* Protocol 2 has no bytes: they are text with one character per byte, encoded back when loaded. */
static void put_bytes(writer *w, const char *bytes, size_t len)
{
    size_t high = 0;

    if (len == 0) {
        put_global(w, "__builtin__\nbytes\n");
        put(w, ")R", 2);
        return;
    }
    for (size_t i = 0; i < len; i++)
        high += (unsigned char)bytes[i] >= 0x80;
    put_global(w, "_codecs\nencode\n");
    put_byte(w, 'X');
    put_little(w, len + high, 4);
    for (size_t i = 0; i < len; i++) {
        unsigned char b = (unsigned char)bytes[i];

        if (b >= 0x80)
            put_byte(w, 0xc0 | b >> 6);
        put_byte(w, b >= 0x80 ? 0x80 | (b & 0x3f) : b);
    }
    put_text(w, "latin1", 6);
    put(w, "\x86R", 2);
}

static void put_device(writer *w, const char *device)
{
    const char *colon = strchr(device, ':');

    put_global(w, "torch\ndevice\n");
    put_text(w, device, colon ? (size_t)(colon - device) : strlen(device));
    if (colon)
        put_int(w, strtoll(colon + 1, NULL, 10));
    put(w, colon ? "\x86R" : "\x85R", 2);
}

static void put_dtype(writer *w, rsd_dtype dtype)
{
    const char *name = rsd_dtype_name(dtype);

    put_global(w, "torch\n");
    put(w, name, strlen(name));
    put_byte(w, '\n');
}

/* Adds a tensor as the next storage. */
static bool add_storage(rsi_storages *s, const rsd_value_tensor *t)
{
    if (!rsi_grow(&s->tensor, s->n, &s->cap, sizeof(s->tensor[0])))
        return false;
    s->tensor[s->n++] = t;
    return true;
}

static void put_tensor(writer *w, const rsd_value_tensor *t)
{
    rsi_tensor_pickle tensor = { .dtype = t->dtype,
                                 .ndim = t->ndim,
                                 .offset = t->offset,
                                 .storage_bytes = t->storage_bytes,
                                 .conj = t->conj,
                                 .neg = t->neg };
    unsigned char     pickle[RSI_TENSOR_PICKLE_MAX];
    size_t            len;
    rsd_err           rc;

    memcpy(tensor.size, t->shape, sizeof(tensor.size));
    memcpy(tensor.stride, t->stride, sizeof(tensor.stride));
    snprintf(tensor.key, sizeof(tensor.key), "%zu", w->storages->n);
    rc = add_storage(w->storages, t)
             ? rsi_tensor_pickle_write(&tensor, pickle, &len, w->err)
             : rsi_fail(w->err, RSD_E_NOMEM, "no memory for the tensors of a value");
    if (rc) {
        w->rc = w->rc ? w->rc : rc;
        return;
    }
    put(w, pickle + 2, len - 3); /* without the protocol opcode and the STOP */
}

static void put_leaf(writer *w, const rsd_value *v)
{
    size_t      len = 0;
    const char *bytes = rsd_value_bytes(v, &len);

    switch (rsd_value_type_of(v)) {
    case RSD_VALUE_NONE:
        put_byte(w, 'N');
        break;
    case RSD_VALUE_BOOL:
        put_byte(w, rsd_value_bool(v) ? 0x88 : 0x89);
        break;
    case RSD_VALUE_INT:
        put_int(w, rsd_value_int(v));
        break;
    case RSD_VALUE_BIGINT:
        put_bigint(w, bytes, len);
        break;
    case RSD_VALUE_FLOAT:
        put_float(w, rsd_value_float(v));
        break;
    case RSD_VALUE_STR:
        put_text(w, bytes, len);
        break;
    case RSD_VALUE_BYTES:
        put_bytes(w, bytes, len);
        break;
    case RSD_VALUE_DTYPE:
        put_dtype(w, rsd_value_dtype(v));
        break;
    case RSD_VALUE_DEVICE:
        put_device(w, bytes);
        break;
    case RSD_VALUE_TENSOR:
        put_tensor(w, rsd_value_tensor_of(v));
        break;
    case RSD_VALUE_OPAQUE:
        if (rsi_value_opaque(v)->pickle) {
            put(w, rsi_value_opaque(v)->pickle, rsi_value_opaque(v)->pickle_bytes);
            break;
        }
        /* fallthrough */
    default:
        w->rc = rsi_fail(w->err, RSD_E_UNSUPPORTED, "an object of the class %s can't be written",
                         bytes ? bytes : "?");
    }
}

static bool has_items(const rsd_value *v)
{
    rsd_value_type kind = rsd_value_type_of(v);

    return kind == RSD_VALUE_LIST || kind == RSD_VALUE_TUPLE || kind == RSD_VALUE_SET ||
           kind == RSD_VALUE_DICT;
}

/* `hashed`: it is a key or inside one, where a set is not allowed. */
static void put_begin(writer *w, const rsd_value *v, bool hashed)
{
    switch (rsd_value_type_of(v)) {
    case RSD_VALUE_SET:
        put_global(w, hashed ? "__builtin__\nfrozenset\n" : "__builtin__\nset\n");
        put(w, "](", 2);
        break;
    case RSD_VALUE_LIST:
        put(w, "](", 2);
        break;
    case RSD_VALUE_DICT:
        put(w, "}(", 2);
        break;
    default:
        put_byte(w, '(');
    }
}

static void put_end(writer *w, const rsd_value *v)
{
    switch (rsd_value_type_of(v)) {
    case RSD_VALUE_SET:
        put(w, "e\x85R", 3);
        break;
    case RSD_VALUE_LIST:
        put_byte(w, 'e');
        break;
    case RSD_VALUE_DICT:
        put_byte(w, 'u');
        break;
    default:
        put_byte(w, 't');
    }
}

/* A container being written; in a dict, `next` counts keys and values separately. */
typedef struct frame {
    const rsd_value *value;
    size_t           next;
    bool             hashed;
} frame;

/* Adds a full batch to the container before stacking more. */
static const rsd_value *next_item(writer *w, frame *f)
{
    bool   dict = rsd_value_type_of(f->value) == RSD_VALUE_DICT;
    size_t i = f->next++, per = dict ? 2 : 1;

    if (i >= rsd_value_count(f->value) * per)
        return NULL;
    if (i > 0 && i % (BATCH * per) == 0 && rsd_value_type_of(f->value) != RSD_VALUE_TUPLE)
        put(w, dict ? "u(" : "e(", 2);
    if (!dict)
        return rsd_value_item(f->value, i);
    return i % 2 ? rsd_value_item(f->value, i / 2) : rsd_value_key(f->value, i / 2);
}

static bool item_is_hashed(const frame *f)
{
    switch (rsd_value_type_of(f->value)) {
    case RSD_VALUE_SET:
        return true;
    case RSD_VALUE_DICT:
        return f->next % 2 == 1; /* the last item was a key */
    default:
        return f->hashed;
    }
}

static void put_value(writer *w, const rsd_value *root, frame *stack)
{
    size_t           depth = 0;
    const rsd_value *v = root;

    while (!w->rc && v) {
        if (rsi_value_class(v)) {
            put_leaf(w, rsi_value_class(v));
        } else if (has_items(v)) {
            bool hashed = depth > 0 && item_is_hashed(&stack[depth - 1]);

            put_begin(w, v, hashed);
            stack[depth++] = (frame){ .value = v, .hashed = hashed };
        } else {
            put_leaf(w, v);
        }
        for (v = NULL; depth > 0 && !v;) {
            v = next_item(w, &stack[depth - 1]);
            if (!v)
                put_end(w, stack[--depth].value);
        }
    }
}

rsd_err rsi_value_to_pickle(const rsd_value *value, rsi_bytes *out, rsi_storages *storages,
                            rsd_error *err)
{
    writer w = { .out = out, .storages = storages, .err = err };
    size_t before = out->len;
    frame *stack = rsi_calloc(RSD_VALUE_MAX_DEPTH + 1, sizeof(stack[0]));

    if (!stack)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a pickle");
    put(&w, "\x80\x02", 2);
    put_value(&w, value, stack);
    put_byte(&w, '.');
    if (!w.rc && out->len - before > MOST_PICKLE)
        w.rc =
            rsi_fail(err, RSD_E_UNSUPPORTED, "values of %zu bytes, but readers accept at most %zu",
                     out->len - before, MOST_PICKLE);
    rsi_free(stack);
    if (w.rc)
        out->len = before;
    return w.rc;
}
