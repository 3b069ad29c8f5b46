/* SPDX-License-Identifier: Apache-2.0 */
/* Walks a value and reads the bytes of its tensors, a block at a time. */
#include "format/value_digest.h"
#include "base/checked.h"
#include "base/digest.h"
#include "base/mem.h"
#include "shape/box.h"

#define BLOCK      ((size_t)1 << 16)
#define WINDOW_MAX ((int64_t)64 << 20) /* bytes of a storage whose elements are out of order */

typedef struct digest {
    uint64_t d[2];
} digest;

static void add(digest *into, const void *bytes, size_t len)
{
    into->d[0] = rsi_digest(into->d[0], bytes, len);
    into->d[1] = rsi_digest(~into->d[1], bytes, len);
}

/* ---- tensors ---- */

/* Bytes gathered into full blocks, so that their source makes no difference. */
typedef struct gathering {
    digest        *into;
    size_t         n;
    unsigned char *block; /* [BLOCK] */
} gathering;

static void gather(gathering *g, const unsigned char *bytes, size_t len)
{
    while (len > 0) {
        size_t now = len < BLOCK - g->n ? len : BLOCK - g->n;

        memcpy(g->block + g->n, bytes, now);
        g->n += now;
        bytes += now;
        len -= now;
        if (g->n == BLOCK) {
            add(g->into, g->block, BLOCK);
            g->n = 0;
        }
    }
}

/* Gathers the view's elements from the whole storage, in row-major order. */
static void gather_view(gathering *g, const rsd_value_tensor *t, const unsigned char *storage)
{
    const size_t size = rsd_dtype_size(t->dtype);
    int64_t      at[RSD_MAX_NDIM] = { 0 }, place = t->offset;
    int          d;

    do {
        gather(g, storage + (size_t)place * size, size);
        for (d = t->ndim - 1; d >= 0; d--) {
            place += t->stride[d];
            if (++at[d] < t->shape[d])
                break;
            place -= at[d] * t->stride[d];
            at[d] = 0;
        }
    } while (d >= 0);
}

static rsd_err gather_range(gathering *g, const rsi_archive *a, uint64_t off, uint64_t len,
                            rsd_error *err)
{
    unsigned char *buf = rsi_calloc(BLOCK, 1);
    rsd_err        rc = buf ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer");

    while (len > 0 && !rc) {
        size_t now = len < BLOCK ? (size_t)len : BLOCK;

        rc = a->source.read(a->source.arg, off, buf, now, err);
        if (!rc)
            gather(g, buf, now);
        off += now;
        len -= now;
    }
    rsi_free(buf);
    return rc;
}

static bool is_packed(const rsd_value_tensor *t)
{
    int64_t next = 1;

    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->shape[d] > 1 && t->stride[d] != next)
            return false;
        next *= t->shape[d];
    }
    return true;
}

static rsd_err gather_tensor(gathering *g, const rsi_archive *a, const rsd_value_tensor *t,
                             rsd_error *err)
{
    const uint64_t    size = rsd_dtype_size(t->dtype);
    int64_t           bytes = 0;
    rsi_tensor_pickle facts;
    rsi_extent        x;
    unsigned char    *storage;
    rsd_err           rc;

    if (!rsi_product(t->ndim, t->shape, (int64_t)size, &bytes) || bytes == 0)
        return RSD_OK;
    rsi_torch_tensor_of(t, &facts);
    rc = rsi_torch_extent(&a->source, &a->zip, &facts, &x, err);
    if (rc)
        return rc;
    if (x.big_endian && size > 1)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "a tensor of the other byte order in it");
    if (is_packed(t))
        return gather_range(g, a, x.offset, (uint64_t)bytes, err);
    if (t->storage_bytes > WINDOW_MAX || bytes > WINDOW_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "a large strided tensor in it");
    storage = rsi_calloc((size_t)x.record_bytes, 1);
    if (!storage)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a tensor inside an object");
    rc = a->source.read(a->source.arg, x.record, storage, (size_t)x.record_bytes, err);
    if (!rc)
        gather_view(g, t, storage);
    rsi_free(storage);
    return rc;
}

static rsd_err add_tensor(const rsi_archive *a, const rsd_value_tensor *t, digest *into,
                          rsd_error *err)
{
    int64_t   facts[4 + RSD_MAX_NDIM] = { t->dtype, t->ndim, t->conj, t->neg };
    gathering g = { .into = into, .block = rsi_calloc(BLOCK, 1) };
    rsd_err   rc;

    if (!g.block)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer");
    memcpy(facts + 4, t->shape, (size_t)t->ndim * sizeof(facts[0]));
    add(into, facts, sizeof(facts));
    rc = gather_tensor(&g, a, t, err);
    add(into, g.block, g.n);
    rsi_free(g.block);
    return rc;
}

/* ---- values ---- */

static rsd_err add_opaque(const rsi_archive *a, const rsd_value *v, digest *into, rsd_error *err)
{
    const rsi_opaque *o = rsi_value_opaque(v);
    rsd_err           rc = RSD_OK;

    if (!o->known)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "an object of the class %s is too entangled",
                        o->name);
    add(into, o->digest, sizeof(o->digest));
    for (size_t i = 0; i < o->n && !rc; i++)
        rc = add_tensor(a, &o->storage[i], into, err);
    return rc;
}

static rsd_err add_value(const rsi_archive *a, const rsd_value *v, digest *into, rsd_error *err);

/* Items in order; those of a set, and the pairs of a dict, independent of order. */
static rsd_err add_items(const rsi_archive *a, const rsd_value *v, digest *into, rsd_error *err)
{
    const rsd_value_type kind = rsd_value_type_of(v);
    uint64_t             n = rsd_value_count(v);
    digest               sum = { { n, n } };
    rsd_err              rc = RSD_OK;

    for (size_t i = 0; i < n && !rc; i++) {
        digest one = { { 0, 0 } };

        if (kind == RSD_VALUE_DICT)
            rc = add_value(a, rsd_value_key(v, i), &one, err);
        if (!rc)
            rc = add_value(a, rsd_value_item(v, i), &one, err);
        if (kind == RSD_VALUE_LIST || kind == RSD_VALUE_TUPLE) {
            add(&sum, &one, sizeof(one));
        } else {
            sum.d[0] += one.d[0];
            sum.d[1] += one.d[1];
        }
    }
    add(into, &sum, sizeof(sum));
    return rc;
}

/* No value nests deeper than RSD_VALUE_MAX_DEPTH. */
static rsd_err add_value(const rsi_archive *a, const rsd_value *v, digest *into, rsd_error *err)
{
    const uint64_t kind = rsd_value_type_of(v);
    size_t         len = 0;
    const char    *bytes = rsd_value_bytes(v, &len);
    double         real = rsd_value_float(v);
    int64_t        number = rsd_value_int(v);

    add(into, &kind, sizeof(kind));
    switch (rsd_value_type_of(v)) {
    case RSD_VALUE_NONE:
        return RSD_OK;
    case RSD_VALUE_FLOAT:
        add(into, &real, sizeof(real));
        return RSD_OK;
    case RSD_VALUE_DTYPE:
        number = rsd_value_dtype(v);
        add(into, &number, sizeof(number));
        return RSD_OK;
    case RSD_VALUE_BOOL:
    case RSD_VALUE_INT:
        add(into, &number, sizeof(number));
        return RSD_OK;
    case RSD_VALUE_LIST:
    case RSD_VALUE_TUPLE:
    case RSD_VALUE_SET:
    case RSD_VALUE_DICT:
        return add_items(a, v, into, err);
    case RSD_VALUE_TENSOR:
        return add_tensor(a, rsd_value_tensor_of(v), into, err);
    case RSD_VALUE_OPAQUE:
        return add_opaque(a, v, into, err);
    default:
        add(into, bytes, len);
        return RSD_OK;
    }
}

rsd_err rsi_value_digest(const rsi_archive *a, const rsd_value *v, uint64_t out[2], rsd_error *err)
{
    digest  whole = { { 0, 0 } };
    rsd_err rc = add_value(a, v, &whole, err);

    if (rc)
        return rc;
    out[0] = whole.d[0];
    out[1] = whole.d[1];
    return RSD_OK;
}
