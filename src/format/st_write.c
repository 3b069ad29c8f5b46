/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the header of a safetensors file, and assigns tensors to files. st_read.c reads. */
#include "format/st_write.h"
#include "base/checked.h"
#include "base/mem.h"
#include "format/json.h"
#include "format/json_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct maker {
    const rsi_st_item *item;
    size_t             n;
    const rsi_st_pair *meta;
    size_t             nmeta;
    rsi_st_image       image;
    rsi_json_out       out;
    rsd_error         *err;
} maker;

rsd_err rsi_st_item_bytes(const rsi_st_item *item, uint64_t *out, rsd_error *err)
{
    int64_t bytes, unit = (int64_t)rsd_dtype_size(item->dtype), scale = 1;
    int     shown = rsi_json_shown(item->name, strlen(item->name));
    bool    f4 = item->dtype == RSD_F4_E2M1FN_X2;

    if (unit == 0)
        return rsi_fail(err, RSD_E_INVALID, "tensor \"%.*s\": %d is not a dtype", shown, item->name,
                        (int)item->dtype);
    if (!rsd_dtype_safetensors_name(item->dtype))
        return rsi_fail(err, RSD_E_UNSUPPORTED, "tensor \"%.*s\": safetensors can't hold %s", shown,
                        item->name, rsd_dtype_name(item->dtype));
    if (f4 && item->ndim == 0)
        return rsi_fail(
            err, RSD_E_UNSUPPORTED,
            "tensor \"%.*s\": safetensors can't hold two 4-bit values without a dimension", shown,
            item->name);
    if (item->ndim < 0 || item->ndim > RSD_MAX_NDIM)
        return rsi_fail(err, RSD_E_INVALID, "tensor \"%.*s\" has %d dimensions, the maximum is %d",
                        shown, item->name, item->ndim, RSD_MAX_NDIM);
    for (int d = 0; d < item->ndim; d++)
        if (item->shape[d] < 0)
            return rsi_fail(err, RSD_E_INVALID,
                            "tensor \"%.*s\": dimension %d has the size %" PRId64, shown,
                            item->name, d, item->shape[d]);
    if (f4 && item->shape[item->ndim - 1] > 0)
        scale = 2; /* written as values, twice the bytes: they must fit too */
    if (!rsi_product(item->ndim, item->shape, unit * scale, &bytes))
        return rsi_fail(err, RSD_E_INVALID, "tensor \"%.*s\": the size does not fit into 64 bits",
                        shown, item->name);
    *out = (uint64_t)(bytes / scale);
    return RSD_OK;
}

/* ---- order and places ---- */

static int rank_of(rsd_dtype dtype)
{
    int rank = 0;

    while (rank < RSI_ST_DTYPES && rsi_st_dtypes[rank] != dtype)
        rank++;
    return rank;
}

static int by_dtype_and_name(const void *left, const void *right, void *arg)
{
    const rsi_st_item *a = (const rsi_st_item *)arg + *(const uint32_t *)left;
    const rsi_st_item *b = (const rsi_st_item *)arg + *(const uint32_t *)right;

    if (a->dtype != b->dtype)
        return rank_of(a->dtype) - rank_of(b->dtype);
    return strcmp(a->name, b->name);
}

static rsd_err no_memory(const maker *m)
{
    return rsi_fail(m->err, RSD_E_NOMEM, "no memory for a header of %zu tensors", m->n);
}

/* Sets each tensor's place and order[], the same way as the reference library. */
static rsd_err place(maker *m)
{
    rsi_st_image *image = &m->image;
    uint64_t      bytes = 0;
    rsd_err       rc;

    image->order = rsi_calloc(m->n, sizeof(image->order[0]));
    image->begin = rsi_calloc(m->n, sizeof(image->begin[0]));
    if (!image->order || !image->begin)
        return no_memory(m);
    for (size_t i = 0; i < m->n; i++)
        image->order[i] = (uint32_t)i;
    qsort_r(image->order, m->n, sizeof(image->order[0]), by_dtype_and_name,
            (void *)(uintptr_t)m->item);
    for (size_t i = 0; i < m->n; i++) {
        const rsi_st_item *item = &m->item[image->order[i]];

        rc = rsi_st_item_bytes(item, &bytes, m->err);
        if (rc)
            return rc;
        image->begin[image->order[i]] = image->data_bytes;
        if (!rsi_add_u64(image->data_bytes, bytes, &image->data_bytes) ||
            image->data_bytes > INT64_MAX - RSI_ST_HEADER_MAX - RSI_ST_ALIGN)
            return rsi_fail(m->err, RSD_E_INVALID, "the file would have more than 2^63-1 bytes");
    }
    return RSD_OK;
}

/* ---- names ---- */

static rsd_err twice(const maker *m, const char *what, const char *name)
{
    return rsi_fail(m->err, RSD_E_INVALID, "%s \"%.*s\" is a duplicate", what,
                    rsi_json_shown(name, strlen(name)), name);
}

/* Comparing neighbours of one dtype is not enough: the same name can recur with another dtype. */
static rsd_err check_names(const maker *m)
{
    rsi_name *name = rsi_calloc(m->n, sizeof(name[0]));
    rsi_names names = { 0 };
    size_t    again;
    rsd_err   rc = RSD_OK;

    if (!name)
        return no_memory(m);
    for (size_t i = 0; i < m->n && !rc; i++) {
        size_t len = strlen(m->item[i].name);

        if (strcmp(m->item[i].name, RSI_ST_METADATA) == 0)
            rc = rsi_fail(m->err, RSD_E_UNSUPPORTED,
                          "a tensor can't be called \"" RSI_ST_METADATA "\" in safetensors");
        else if (len > RSI_ST_HEADER_MAX)
            rc = rsi_fail(m->err, RSD_E_INVALID, "a tensor has a name of %zu bytes", len);
        name[i] = (rsi_name){ .text = m->item[i].name, .len = (uint32_t)len };
    }
    if (!rc && !rsi_names_build(&names, name, sizeof(name[0]), m->n, &again))
        rc = no_memory(m);
    if (!rc && again < m->n)
        rc = twice(m, "tensor", m->item[again].name);
    rsi_names_release(&names);
    rsi_free(name);
    return rc;
}

/* ---- text ---- */

static int by_key(const void *left, const void *right, void *arg)
{
    const rsi_st_pair *meta = arg;

    return strcmp(meta[*(const size_t *)left].key, meta[*(const size_t *)right].key);
}

static rsd_err put_meta(maker *m)
{
    size_t *order;
    rsd_err rc = RSD_OK;

    if (m->nmeta == 0)
        return RSD_OK;
    order = rsi_calloc(m->nmeta, sizeof(order[0]));
    if (!order)
        return no_memory(m);
    for (size_t i = 0; i < m->nmeta; i++)
        order[i] = i;
    qsort_r(order, m->nmeta, sizeof(order[0]), by_key, (void *)(uintptr_t)m->meta);
    rsi_json_key(&m->out, RSI_ST_METADATA, strlen(RSI_ST_METADATA));
    rsi_json_open(&m->out, '{');
    for (size_t i = 0; i < m->nmeta && !rc; i++) {
        const rsi_st_pair *pair = &m->meta[order[i]];

        if (i > 0 && strcmp(pair->key, m->meta[order[i - 1]].key) == 0)
            rc = twice(m, "the metadata key", pair->key);
        rsi_json_key(&m->out, pair->key, strlen(pair->key));
        rsi_json_string(&m->out, pair->value, pair->value_len);
    }
    rsi_json_close(&m->out, '}');
    rsi_free(order);
    return rc;
}

static void put_item(maker *m, const rsi_st_item *item, uint64_t begin, uint64_t end)
{
    rsi_json_out *out = &m->out;
    const char   *dtype = rsd_dtype_safetensors_name(item->dtype);

    rsi_json_key(out, item->name, strlen(item->name));
    rsi_json_open(out, '{');
    rsi_json_key(out, "dtype", 5);
    rsi_json_string(out, dtype, strlen(dtype));
    rsi_json_key(out, "shape", 5);
    rsi_json_open(out, '[');
    for (int d = 0; d < item->ndim; d++)
        rsi_json_i64(out, item->dtype == RSD_F4_E2M1FN_X2 && d == item->ndim - 1
                              ? 2 * item->shape[d]
                              : item->shape[d]);
    rsi_json_close(out, ']');
    rsi_json_key(out, "data_offsets", 12);
    rsi_json_open(out, '[');
    rsi_json_u64(out, begin);
    rsi_json_u64(out, end);
    rsi_json_close(out, ']');
    rsi_json_close(out, '}');
}

/* The length, known last, is written over the first 8 bytes. */
static rsd_err put_all(maker *m)
{
    static const char spaces[RSI_ST_ALIGN + 1] =
        "                                                                ";
    const rsi_st_image *image = &m->image;
    rsi_json_out       *out = &m->out;
    uint64_t            end;
    rsd_err             rc;

    rsi_json_raw(out, "\0\0\0\0\0\0\0", RSI_ST_PREFIX);
    rsi_json_open(out, '{');
    rc = put_meta(m);
    for (size_t i = 0; i < m->n && !rc; i++) {
        size_t at = image->order[i];

        end = i + 1 < m->n ? image->begin[image->order[i + 1]] : image->data_bytes;
        put_item(m, &m->item[at], image->begin[at], end);
    }
    rsi_json_close(out, '}');
    if (out->len % RSI_ST_ALIGN != 0)
        rsi_json_raw(out, spaces, RSI_ST_ALIGN - out->len % RSI_ST_ALIGN);
    if (!rc)
        rc = rsi_json_out_end(out, m->err);
    if (rc)
        return rc;
    if (out->len - RSI_ST_PREFIX > RSI_ST_HEADER_MAX)
        return rsi_fail(m->err, RSD_E_UNSUPPORTED,
                        "the header would have %zu bytes, safetensors allows %d: use more files",
                        out->len - RSI_ST_PREFIX, RSI_ST_HEADER_MAX);
    for (int i = 0; i < RSI_ST_PREFIX; i++)
        out->buf[i] = (char)((out->len - RSI_ST_PREFIX) >> (8 * i) & 0xff);
    return RSD_OK;
}

rsd_err rsi_st_image_make(size_t n, const rsi_st_item *item, size_t nmeta, const rsi_st_pair *meta,
                          rsi_st_image *out, rsd_error *err)
{
    maker   m = { .item = item, .n = n, .meta = meta, .nmeta = nmeta, .err = err };
    rsd_err rc;

    if (n >= UINT32_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "%zu tensors are too many for one file", n);
    rc = check_names(&m);
    if (!rc)
        rc = place(&m);
    if (!rc)
        rc = put_all(&m);
    m.image.head = m.out.buf;
    m.image.head_len = m.out.len;
    if (rc)
        rsi_st_image_release(&m.image);
    else
        *out = m.image;
    return rc;
}

void rsi_st_image_release(rsi_st_image *image)
{
    rsi_free(image->head);
    rsi_free(image->order);
    rsi_free(image->begin);
    *image = (rsi_st_image){ 0 };
}

/* ---- several files ---- */

rsd_err rsi_st_split(size_t n, const rsi_st_item *item, uint64_t limit, uint32_t *of,
                     uint32_t *files, rsd_error *err)
{
    uint64_t bytes = 0, used = 0;
    uint32_t next = 0, open = UINT32_MAX; /* no file is open */
    rsd_err  rc;

    if (n >= UINT32_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "%zu tensors are too many", n);
    for (size_t i = 0; i < n; i++) {
        rc = rsi_st_item_bytes(&item[i], &bytes, err);
        if (rc)
            return rc;
        if (limit > 0 && bytes > limit) {
            of[i] = next++;
            continue;
        }
        if (open == UINT32_MAX || (limit > 0 && bytes > limit - used)) {
            open = next++;
            used = 0;
        }
        of[i] = open;
        used += bytes;
    }
    *files = next > 0 ? next : 1;
    return RSD_OK;
}

size_t rsi_st_file_name(uint32_t file, uint32_t files, char *buf, size_t cap)
{
    int n = files == 1 ? snprintf(buf, cap, "model.safetensors")
                       : snprintf(buf, cap, "model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors",
                                  file + 1, files);

    return n < 0 ? 0 : (size_t)n;
}
