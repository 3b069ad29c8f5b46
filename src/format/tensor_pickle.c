/* SPDX-License-Identifier: Apache-2.0 */
/* Pickle protocol 2 of one tensor:
 *
 *   torch._utils._rebuild_tensor_v2(('storage', torch.FloatStorage, '0', 'cpu', numel) as a
 *   persistent id, storage offset, size, stride, False, OrderedDict()[, {'conj': True}])
 *
 * and for later dtypes _rebuild_tensor_v3, with an untyped storage counted in bytes and the dtype
 * after the OrderedDict. Every object except numbers and the empty tuple gets the next memo number.
 * The reader extracts the numbers and then has the writer produce the expected bytes, so the
 * pattern is described only once. */
#include "format/tensor_pickle.h"
#include "base/checked.h"

#include <inttypes.h>
#include <string.h>

/* dtypes that have their own storage class; all others are version 3. */
static const struct {
    rsd_dtype   dtype;
    const char *storage;
} classes[] = {
    { RSD_F32, "FloatStorage" },        { RSD_F64, "DoubleStorage" },
    { RSD_F16, "HalfStorage" },         { RSD_BF16, "BFloat16Storage" },
    { RSD_I64, "LongStorage" },         { RSD_I32, "IntStorage" },
    { RSD_I16, "ShortStorage" },        { RSD_I8, "CharStorage" },
    { RSD_U8, "ByteStorage" },          { RSD_BOOL, "BoolStorage" },
    { RSD_C64, "ComplexFloatStorage" }, { RSD_C128, "ComplexDoubleStorage" },
};

enum { NCLASSES = sizeof(classes) / sizeof(classes[0]) };

/* NULL: none */
static const char *class_of(rsd_dtype dtype)
{
    for (int i = 0; i < NCLASSES; i++)
        if (classes[i].dtype == dtype)
            return classes[i].storage;
    return NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct out {
    unsigned char *at;
    unsigned char  memo; /* the next number */
} out;

static void put(out *o, const char *text)
{
    size_t len = strlen(text);

    memcpy(o->at, text, len);
    o->at += len;
}

static void put_byte(out *o, int byte)
{
    *o->at++ = (unsigned char)byte;
}

static void put_memo(out *o)
{
    put_byte(o, 'q');
    put_byte(o, o->memo++);
}

static void put_global(out *o, const char *module, const char *name)
{
    put(o, "c");
    put(o, module);
    put(o, "\n");
    put(o, name);
    put(o, "\n");
    put_memo(o);
}

static void put_text(out *o, const char *text)
{
    put(o, "X");
    put_byte(o, (int)strlen(text)); /* all texts are short */
    for (int i = 0; i < 3; i++)
        put_byte(o, 0);
    put(o, text);
    put_memo(o);
}

size_t rsi_pickle_put_int(unsigned char *code, int64_t x)
{
    size_t head = 1, bytes = 1;

    if (x >= 0 && x < 256) {
        code[0] = 'K'; /* BININT1 */
    } else if (x >= 0 && x < 65536) {
        code[0] = 'M'; /* BININT2 */
        bytes = 2;
    } else if (x >= INT32_MIN && x <= INT32_MAX) {
        code[0] = 'J'; /* BININT */
        bytes = 4;
    } else {
        for (bytes = 5; bytes < 8 && (x >> (8 * bytes - 1)) != 0 && (x >> (8 * bytes - 1)) != -1;)
            bytes++;
        code[0] = 0x8a; /* LONG1: as few bytes as keep the sign */
        code[1] = (unsigned char)bytes;
        head = 2;
    }
    for (size_t i = 0; i < bytes; i++)
        code[head + i] = (unsigned char)((uint64_t)x >> 8 * i);
    return head + bytes;
}

static void put_tuple(out *o, int n, const int64_t *value)
{
    if (n == 0) {
        put(o, ")");
        return;
    }
    if (n > 3)
        put(o, "(");
    for (int i = 0; i < n; i++)
        o->at += rsi_pickle_put_int(o->at, value[i]);
    put_byte(o, n > 3 ? 't' : 0x84 + n);
    put_memo(o);
}

static void put_true(out *o, const char *name)
{
    put_text(o, name);
    put_byte(o, 0x88);
}

/* Flags for operations applied to the values when they are read. */
static void put_bits(out *o, bool conj, bool neg)
{
    if (!conj && !neg)
        return;
    put(o, "}");
    put_memo(o);
    if (conj && neg)
        put(o, "(");
    if (neg)
        put_true(o, "neg");
    if (conj)
        put_true(o, "conj");
    put(o, conj && neg ? "u" : "s");
}

static rsd_err check_write(const rsi_tensor_pickle *t, rsd_error *err)
{
    int64_t unit = (int64_t)rsd_dtype_size(t->dtype);
    bool    negative = t->offset < 0 || t->storage_bytes < 0;

    if (!unit || t->ndim < 0 || t->ndim > RSD_MAX_NDIM)
        return rsi_fail(err, RSD_E_INVALID, "dtype %d or %" PRId32 " dimensions can't be pickled",
                        (int)t->dtype, t->ndim);
    for (int d = 0; d < t->ndim; d++)
        negative = negative || t->size[d] < 0 || t->stride[d] < 0;
    if (negative || (class_of(t->dtype) && t->storage_bytes % unit))
        return rsi_fail(err, RSD_E_INVALID,
                        "a tensor with a negative size, stride or offset, or a storage of %" PRId64
                        " bytes can't be pickled",
                        t->storage_bytes);
    if (!memchr(t->key, 0, sizeof(t->key)))
        return rsi_fail(err, RSD_E_INVALID, "the storage key is too long");
    return RSD_OK;
}

rsd_err rsi_tensor_pickle_write(const rsi_tensor_pickle *t, unsigned char *buf, size_t *len,
                                rsd_error *err)
{
    out         o = { .at = buf };
    const char *storage = class_of(t->dtype);
    rsd_err     rc = check_write(t, err);

    if (rc)
        return rc;
    put_byte(&o, 0x80);
    put_byte(&o, 2);
    put_global(&o, "torch._utils", storage ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    put(&o, "((");
    put_text(&o, "storage");
    put_global(&o, storage ? "torch" : "torch.storage", storage ? storage : "UntypedStorage");
    put_text(&o, t->key[0] ? t->key : "0");
    put_text(&o, "cpu");
    o.at += rsi_pickle_put_int(o.at, storage ? t->storage_bytes / (int64_t)rsd_dtype_size(t->dtype)
                                             : t->storage_bytes);
    put(&o, "t");
    put_memo(&o);
    put(&o, "Q");
    o.at += rsi_pickle_put_int(o.at, t->offset);
    put_tuple(&o, t->ndim, t->size);
    put_tuple(&o, t->ndim, t->stride);
    put_byte(&o, 0x89); /* requires_grad */
    put_global(&o, "collections", "OrderedDict");
    put(&o, ")R");
    put_memo(&o);
    if (!storage)
        put_global(&o, "torch", rsd_dtype_name(t->dtype));
    put_bits(&o, t->conj, t->neg);
    put(&o, "t");
    put_memo(&o);
    put(&o, "R");
    put_memo(&o);
    put(&o, ".");
    *len = (size_t)(o.at - buf);
    return RSD_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct in {
    const unsigned char *at, *end;
} in;

/* Each returns false if the bytes are something else. */
static bool skip(in *i, const char *text)
{
    size_t len = strlen(text);

    if ((size_t)(i->end - i->at) < len || memcmp(i->at, text, len) != 0)
        return false;
    i->at += len;
    return true;
}

static bool skip_any(in *i, size_t len)
{
    if ((size_t)(i->end - i->at) < len)
        return false;
    i->at += len;
    return true;
}

/* The text up to the end of the line. */
static bool take_line(in *i, char *line, size_t cap)
{
    const unsigned char *end = memchr(i->at, '\n', (size_t)(i->end - i->at));
    size_t               len = end ? (size_t)(end - i->at) : cap;

    if (len >= cap)
        return false;
    memcpy(line, i->at, len);
    line[len] = 0;
    i->at = end + 1;
    return true;
}

static bool take_key(in *i, char key[RSI_TENSOR_KEY_MAX + 1])
{
    size_t len;

    if (!skip(i, "X") || i->end - i->at < 4)
        return false;
    len = i->at[0];
    i->at += 4;
    if (len == 0 || len > RSI_TENSOR_KEY_MAX || (size_t)(i->end - i->at) < len)
        return false;
    for (size_t k = 0; k < len; k++)
        if (i->at[k] < '0' || i->at[k] > '9')
            return false;
    memcpy(key, i->at, len);
    key[len] = 0;
    i->at += len;
    return true;
}

static bool take_int(in *i, int64_t *value)
{
    size_t   bytes;
    uint64_t got = 0;

    if (skip(i, "K"))
        bytes = 1;
    else if (skip(i, "M"))
        bytes = 2;
    else if (skip(i, "J"))
        bytes = 4;
    else if (skip(i, "\x8a") && i->at < i->end)
        bytes = *i->at++;
    else
        return false;
    if (bytes == 0 || bytes > 8 || (size_t)(i->end - i->at) < bytes)
        return false;
    for (size_t k = 0; k < bytes; k++)
        got |= (uint64_t)i->at[k] << (8 * k);
    i->at += bytes;
    *value = (int64_t)got; /* a negative one would be written differently */
    return *value >= 0;
}

static bool take_tuple(in *i, int32_t *n, int64_t *value)
{
    bool many = skip(i, "(");

    *n = 0;
    if (!many && skip(i, ")"))
        return true;
    while (i->at < i->end && *i->at != 't' && (*i->at < 0x85 || *i->at > 0x87)) {
        if (*n == RSD_MAX_NDIM || !take_int(i, &value[*n]))
            return false;
        ++*n;
    }
    return skip_any(i, 3); /* the opcode and its memo */
}

static bool take_dtype(in *i, bool v3, rsi_tensor_pickle *t)
{
    char name[32];

    if (!v3 || !skip(i, "ctorch\n"))
        return !v3;
    return take_line(i, name, sizeof(name)) && rsd_dtype_parse(name, &t->dtype, NULL) == RSD_OK &&
           skip_any(i, 2);
}

/* The contents of the dictionary are recognized by their length alone. */
static bool take_bits(in *i, rsi_tensor_pickle *t)
{
    if (!skip(i, "}"))
        return true;
    if (!skip_any(i, 2))
        return false;
    skip(i, "(");
    if (skip(i, "X\x03"))
        t->neg = skip_any(i, 3 + 3 + 2 + 1);
    if (skip(i, "X\x04"))
        t->conj = skip_any(i, 3 + 4 + 2 + 1);
    return t->neg || t->conj;
}

/* The class of the storage: a legacy dtype, or v3. */
static bool take_class(in *i, bool v3, rsi_tensor_pickle *t)
{
    char name[32];

    if (v3)
        return skip(i, "torch.storage\nUntypedStorage\n");
    if (!skip(i, "torch\n") || !take_line(i, name, sizeof(name)))
        return false;
    for (int k = 0; k < NCLASSES; k++)
        if (strcmp(classes[k].storage, name) == 0)
            t->dtype = classes[k].dtype;
    return t->dtype != 0;
}

static bool pick(in *i, rsi_tensor_pickle *t)
{
    int64_t numel, unit;
    int32_t nstride;
    bool    v3;

    if (!skip(i, "\x80\x02"
                 "ctorch._utils\n_rebuild_tensor_v"))
        return false;
    v3 = i->at < i->end && *i->at == '3';
    if (!skip_any(i, 1 + 1 + 2) || !skip(i, "((X\x07") || !skip_any(i, 3) ||
        !skip(i, "storageq\x01"
                 "c") ||
        !take_class(i, v3, t) || !skip_any(i, 2) || !take_key(i, t->key) || !skip_any(i, 2) ||
        !skip(i, "X\x03") || !skip_any(i, 3) || !skip(i, "cpuq\x04") || !take_int(i, &numel))
        return false;
    if (!skip(i, "tq\x05Q") || !take_int(i, &t->offset) || !take_tuple(i, &t->ndim, t->size) ||
        !take_tuple(i, &nstride, t->stride) || nstride != t->ndim ||
        !skip(i, "\x89"
                 "ccollections\nOrderedDict\nq") ||
        !skip_any(i, 1 + 2 + 2) || !take_dtype(i, v3, t) || !take_bits(i, t))
        return false;
    unit = v3 ? 1 : (int64_t)rsd_dtype_size(t->dtype);
    return rsi_mul(numel, unit, &t->storage_bytes);
}

bool rsi_tensor_pickle_read(const void *bytes, size_t len, rsi_tensor_pickle *tensor)
{
    in                i = { .at = bytes, .end = (const unsigned char *)bytes + len };
    rsi_tensor_pickle t = { 0 };
    unsigned char     same[RSI_TENSOR_PICKLE_MAX];
    size_t            same_len;

    if (len > sizeof(same) || !pick(&i, &t))
        return false;
    if (rsi_tensor_pickle_write(&t, same, &same_len, NULL) || same_len != len ||
        memcmp(same, bytes, len) != 0)
        return false;
    *tensor = t;
    return true;
}

/* ---- checking -------------------------------------------------------------------------------- */

rsd_err rsi_tensor_pickle_check(const rsi_tensor_pickle *t, uint64_t record_bytes, rsd_error *err)
{
    int64_t last = t->offset, step; /* the highest element that is touched */
    bool    empty = false, fits = true;

    if (t->storage_bytes < 0 || (uint64_t)t->storage_bytes != record_bytes)
        return rsi_fail(err, RSD_E_FORMAT,
                        "storage %s should have %" PRId64 " bytes, its record has %" PRIu64,
                        t->key[0] ? t->key : "0", t->storage_bytes, record_bytes);
    for (int d = 0; d < t->ndim; d++)
        empty = empty || t->size[d] == 0;
    for (int d = 0; d < t->ndim && !empty; d++)
        fits = fits && rsi_mul(t->size[d] - 1, t->stride[d], &step) && rsi_add(last, step, &last);
    if (!empty)
        fits = fits && rsi_add(last, 1, &last) &&
               rsi_mul(last, (int64_t)rsd_dtype_size(t->dtype), &last) && last <= t->storage_bytes;
    if (!fits)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the tensor reaches outside its storage %s of %" PRId64 " bytes",
                        t->key[0] ? t->key : "0", t->storage_bytes);
    return RSD_OK;
}
