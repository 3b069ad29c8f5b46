/* SPDX-License-Identifier: Apache-2.0 */
/* Turns zip records and pickles into tensors and objects. */
#include "format/torch_archive.h"
#include "base/crc32.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WINDOW 4096
#define STEP   ((size_t)1 << 16) /* bytes of a record per read */
#define OBJECT_TENSOR_MAX                                                                          \
    ((int64_t)64 << 20) /* bytes; larger tensors inside an object stay unread */

void rsi_torch_tensor_of(const rsd_value_tensor *value, rsi_tensor_pickle *out)
{
    *out = (rsi_tensor_pickle){ .dtype = value->dtype,
                                .ndim = value->ndim,
                                .offset = value->offset,
                                .storage_bytes = value->storage_bytes,
                                .conj = value->conj,
                                .neg = value->neg };
    memcpy(out->size, value->shape, sizeof(out->size));
    memcpy(out->stride, value->stride, sizeof(out->stride));
    if (value->storage && strlen(value->storage) <= RSI_TENSOR_KEY_MAX) /* no match if longer */
        memcpy(out->key, value->storage, strlen(value->storage));
}

rsd_err rsi_torch_extent(const rsi_source *source, const rsi_zip *zip,
                         const rsi_tensor_pickle *tensor, rsi_extent *out, rsd_error *err)
{
    char                  name[RSI_TENSOR_KEY_MAX + 8];
    const rsi_zip_record *record;
    int64_t               elem = (int64_t)rsd_dtype_size(tensor->dtype);
    rsd_err               rc;

    snprintf(name, sizeof(name), "data/%s", tensor->key);
    record = *tensor->key ? rsi_zip_find(zip, name) : NULL;
    if (!record)
        return rsi_fail(err, RSD_E_FORMAT, "a tensor's storage \"%s\" is not in the archive", name);
    rc = rsi_tensor_pickle_check(tensor, record->size, err);
    if (rc)
        return rsi_while(err, rc, "storage \"%s\"", name);
    *out = (rsi_extent){
        .record = source->start + record->data,
        .record_bytes = record->size,
        .crc32 = record->crc32,
        .has_crc = record->crc32 != 0, /* torch writes 0 if told to omit it */
        .big_endian = zip->big_endian,
        .conj = tensor->conj,
        .neg = tensor->neg,
    };
    out->offset = out->record + (uint64_t)(tensor->offset * elem);
    for (int d = 0; d < tensor->ndim; d++)
        out->stride[d] = tensor->stride[d] * elem;
    return RSD_OK;
}

/* The bytes of data.pkl as a source; free *owned, which is NULL if they came with the directory. */
static rsd_err pickle_of(const rsi_source *source, const rsi_zip *zip, rsi_source *out,
                         rsd_error *err)
{
    const rsi_zip_record *record = rsi_zip_find(zip, "data.pkl");

    if (!record && rsi_zip_find(zip, "archive_format"))
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "it is a program of torch.export, not a checkpoint: torch.export.load it, "
                        "and torch.save its state_dict");
    if (!record)
        return rsi_fail(err, RSD_E_FORMAT, "the archive has no \"data.pkl\"");
    *out = *source;
    out->start += record->data;
    out->size = record->size;
    return RSD_OK;
}

static rsd_err wrong_crc(const char *record, uint64_t at, uint32_t found, uint32_t told,
                         rsd_error *err)
{
    return rsi_fail(err, RSD_E_CORRUPT,
                    "record \"%s\" at byte %" PRIu64 " has the CRC %08" PRIx32 ", not %08" PRIx32,
                    record, at, found, told);
}

rsd_err rsi_torch_check_record(const rsi_source *source, const rsi_zip_record *record,
                               rsd_error *err)
{
    const size_t   step = record->size < STEP ? (size_t)record->size : STEP;
    unsigned char *buf = record->crc32 ? rsi_calloc(step, 1) : NULL;
    uint32_t       crc = 0;
    rsd_err        rc = RSD_OK;

    if (!record->crc32) /* torch was told to omit it */
        return RSD_OK;
    if (!buf)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer");
    for (uint64_t done = 0; done < record->size && !rc; done += step) {
        size_t len = record->size - done < step ? (size_t)(record->size - done) : step;

        rc = rsi_source_read(source, record->data + done, buf, len, err);
        crc = rc ? crc : rsi_crc32(crc, buf, len);
    }
    rsi_free(buf);
    if (!rc && crc != record->crc32)
        rc = wrong_crc(record->name, source->start + record->data, crc, record->crc32, err);
    return rc;
}

rsd_err rsi_torch_value(const rsi_source *source, const rsi_zip *zip, rsd_values *owner,
                        rsi_value_pickle *out, rsd_error *err)
{
    rsi_source pickle;
    rsd_err    rc = pickle_of(source, zip, &pickle, err);

    /* The directory reader has already checked a short one. */
    if (!rc && !zip->pickle)
        rc = rsi_torch_check_record(source, rsi_zip_find(zip, "data.pkl"), err);
    if (!rc)
        rc = rsi_value_read(&pickle, owner, out, err);
    return rc;
}

/* Reads a pickle that differs from how torch now writes a lone tensor: older versions,
 * Parameters. */
static rsd_err read_generally(const rsi_source *source, const rsi_zip *zip,
                              rsi_tensor_pickle *tensor, rsd_error *err)
{
    rsd_values      *owner;
    rsi_value_pickle pickle;
    rsd_err          rc = rsd_values_create(&owner, err);

    if (rc)
        return rc;
    rc = rsi_torch_value(source, zip, owner, &pickle, err);
    if (!rc && rsd_value_type_of(pickle.root) != RSD_VALUE_TENSOR)
        rc = pickle.unlisted
                 ? rsi_fail(err, RSD_E_FORMAT,
                            "the pickle would call %s at byte %" PRIu64 ", a tensor was expected",
                            pickle.unlisted, pickle.unlisted_at)
                 : rsi_fail(err, RSD_E_FORMAT, "the item is not a tensor");
    if (!rc)
        rsi_torch_tensor_of(rsd_value_tensor_of(pickle.root), tensor);
    rsd_values_free(owner);
    return rc;
}

/* Reads the short pickle that nearly every item has; sets *known, and then *tensor, if it is
 * one. */
static rsd_err read_briefly(const rsi_source *source, const rsi_zip *zip, bool *known,
                            rsi_tensor_pickle *tensor, rsd_error *err)
{
    const rsi_zip_record *record = rsi_zip_find(zip, "data.pkl");
    unsigned char         own[RSI_TENSOR_PICKLE_MAX];
    const unsigned char  *bytes = zip->pickle;
    rsd_err               rc = RSD_OK;

    *known = false;
    if (!record || record->size > sizeof(own))
        return RSD_OK;
    if (!bytes) { /* it did not come with the directory, so it is unchecked */
        rc = rsi_source_read(source, record->data, own, (size_t)record->size, err);
        if (!rc)
            rc = rsi_torch_check_record(source, record, err);
        bytes = own;
    }
    if (!rc)
        *known = rsi_tensor_pickle_read(bytes, (size_t)record->size, tensor);
    return rc;
}

/* Checks all records but the one at `data`. Small ones lie close together: one read serves
 * several. */
static rsd_err check_others(const rsi_source *source, const rsi_zip *zip, uint64_t data,
                            rsd_error *err)
{
    unsigned char window[WINDOW];
    uint64_t      at = 0, end = 0; /* range of the source in the window */
    rsd_err       rc = RSD_OK;

    for (size_t i = 0; i < zip->n && !rc; i++) {
        const rsi_zip_record *r = &zip->record[i];
        const uint64_t        rest = source->size - r->data;
        uint32_t              crc;

        if (r->data == data || !r->crc32)
            continue;
        if (r->size > WINDOW) {
            rc = rsi_torch_check_record(source, r, err);
            continue;
        }
        if (r->data < at || r->data + r->size > end) {
            rc = rsi_source_read(source, r->data, window, rest < WINDOW ? (size_t)rest : WINDOW,
                                 err);
            at = r->data;
            end = at + (rest < WINDOW ? rest : WINDOW);
        }
        crc = rc ? 0 : rsi_crc32(0, window + (r->data - at), (size_t)r->size);
        if (!rc && crc != r->crc32)
            rc = wrong_crc(r->name, source->start + r->data, crc, r->crc32, err);
    }
    return rc;
}

rsd_err rsi_torch_tensor_item(const rsi_source *source, bool all, rsi_tensor_pickle *tensor,
                              rsi_extent *extent, rsd_error *err)
{
    rsi_arena mem = { 0 };
    rsi_zip   zip = { 0 };
    bool      known;
    rsd_err   rc = rsi_zip_read(source, &mem, &zip, err);

    if (!rc)
        rc = read_briefly(source, &zip, &known, tensor, err);
    if (!rc && !known)
        rc = read_generally(source, &zip, tensor, err);
    if (!rc)
        rc = rsi_torch_extent(source, &zip, tensor, extent, err);
    if (!rc && all)
        rc = check_others(source, &zip, extent->record - source->start, err);
    rsi_arena_release(&mem);
    return rc;
}

bool rsi_torch_tensor_front(const unsigned char *bytes, size_t len, rsi_tensor_pickle *tensor,
                            rsi_extent *extent)
{
    const rsi_source      source = rsi_memory_source(bytes, len, "");
    rsi_arena             mem = { 0 };
    rsi_zip               zip;
    const rsi_zip_record *pickle = NULL;
    bool                  good = rsi_zip_front(bytes, len, &mem, &zip);

    if (good)
        pickle = rsi_zip_find(&zip, "data.pkl");
    good = pickle && rsi_tensor_pickle_read(bytes + pickle->data, (size_t)pickle->size, tensor);
    if (good) {
        zip.record[zip.n - 1].size = (uint64_t)tensor->storage_bytes;
        good = rsi_torch_extent(&source, &zip, tensor, extent, NULL) == RSD_OK;
    }
    rsi_arena_release(&mem);
    return good;
}

/* ---- objects ---- */

/* A container being walked; in a dict, `next` counts keys and values separately. */
struct frame {
    const rsd_value *value;
    size_t           next;
};

static const rsd_value *next_item(struct frame *f)
{
    size_t n = rsd_value_count(f->value), i = f->next++;

    if (rsd_value_type_of(f->value) != RSD_VALUE_DICT)
        return i < n ? rsd_value_item(f->value, i) : NULL;
    if (i >= 2 * n)
        return NULL;
    return i % 2 ? rsd_value_item(f->value, i / 2) : rsd_value_key(f->value, i / 2);
}

static rsd_err visit_one(const rsd_value *v, rsi_tensor_visit visit, void *arg, rsd_error *err)
{
    const rsi_opaque *opaque = rsi_value_opaque(v);
    rsd_err           rc = RSD_OK;

    if (rsd_value_type_of(v) == RSD_VALUE_TENSOR)
        return visit(arg, (rsd_value_tensor *)(uintptr_t)rsd_value_tensor_of(v), false, err);
    for (size_t i = 0; opaque && i < opaque->n && !rc; i++)
        rc = visit(arg, &opaque->storage[i], true, err);
    return rc;
}

rsd_err rsi_torch_each_tensor(const rsd_value *root, rsi_tensor_visit visit, void *arg,
                              rsd_error *err)
{
    struct frame    *stack = rsi_calloc(RSD_VALUE_MAX_DEPTH + 1, sizeof(stack[0]));
    size_t           depth = 0;
    const rsd_value *v = root;
    rsd_err          rc = RSD_OK;

    if (!stack)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to read an object");
    while (v && !rc) {
        if (rsd_value_count(v) > 0)
            stack[depth++] = (struct frame){ .value = v };
        else
            rc = visit_one(v, visit, arg, err);
        for (v = NULL; depth > 0 && !v;) {
            v = next_item(&stack[depth - 1]);
            depth -= !v;
        }
    }
    rsi_free(stack);
    return rc;
}

typedef struct reading {
    const rsi_source *source;
    const rsi_zip    *zip;
    rsd_values       *owner;
    rsi_map           known; /* storages already read: many tensors can share one */
} reading;

/* Reads the storage of one tensor inside an object, checks its CRC and attaches it to the
 * tensor. */
static rsd_err read_storage(void *arg, rsd_value_tensor *tensor, bool opaque, rsd_error *err)
{
    reading          *r = arg;
    rsi_tensor_pickle facts;
    rsi_extent        extent;
    unsigned char    *bytes;
    uint64_t          at;
    uint32_t          crc;
    char              name[RSI_TENSOR_KEY_MAX + 8];
    rsd_err           rc;

    if (opaque)
        return RSD_OK;
    rsi_torch_tensor_of(tensor, &facts);
    rc = rsi_torch_extent(r->source, r->zip, &facts, &extent, err);
    if (rc || extent.record_bytes > OBJECT_TENSOR_MAX)
        return rc; /* a large one stays unread: described, not shown */
    if (rsi_map_get(&r->known, tensor->storage, strlen(tensor->storage), &at)) {
        tensor->bytes = (const void *)(uintptr_t)at;
        return RSD_OK;
    }
    bytes = rsi_arena_array(&r->owner->mem, (size_t)extent.record_bytes, 1);
    if (!bytes)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a tensor of %" PRIu64 " bytes",
                        extent.record_bytes);
    rc = r->source->read(r->source->arg, extent.record, bytes, (size_t)extent.record_bytes, err);
    if (rc)
        return rc;
    crc = rsi_crc32(0, bytes, (size_t)extent.record_bytes);
    snprintf(name, sizeof(name), "data/%s", facts.key);
    if (extent.has_crc && crc != extent.crc32)
        return wrong_crc(name, extent.record, crc, extent.crc32, err);
    tensor->bytes = bytes;
    at = (uintptr_t)bytes;
    return rsi_map_add(&r->known, tensor->storage, strlen(tensor->storage), &at, NULL)
               ? RSD_OK
               : rsi_fail(err, RSD_E_NOMEM, "no memory to read an object");
}

rsd_err rsi_torch_read_tensors(const rsi_source *source, const rsi_zip *zip, rsd_values *owner,
                               const rsd_value *root, rsd_error *err)
{
    reading r = { .source = source, .zip = zip, .owner = owner };
    rsd_err rc = rsi_torch_each_tensor(root, read_storage, &r, err);

    rsi_map_release(&r.known);
    return rc;
}

rsd_err rsi_torch_object_item(const rsi_source *source, rsd_values *owner, const rsd_value **out,
                              rsd_error *err)
{
    rsi_arena        mem = { 0 };
    rsi_value_pickle pickle;
    rsi_zip          zip;
    rsd_err          rc = rsi_zip_read(source, &mem, &zip, err);

    if (!rc)
        rc = rsi_torch_value(source, &zip, owner, &pickle, err);
    if (!rc)
        rc = rsi_torch_read_tensors(source, &zip, owner, pickle.root, err);
    rsi_arena_release(&mem);
    if (!rc)
        *out = pickle.root;
    return rc;
}

void rsi_archive_close(rsi_archive *a)
{
    rsd_values_free(a->owner);
    rsi_free(a->decoded);
    rsi_arena_release(&a->mem);
    *a = (rsi_archive){ 0 };
}
