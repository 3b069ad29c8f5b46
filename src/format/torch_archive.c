/* SPDX-License-Identifier: Apache-2.0 */
/* Puts zip records and pickles together to tensors and objects. */
#include "format/torch_archive.h"
#include "base/crc32.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OBJECT_TENSOR_MAX                                                                          \
    ((int64_t)64 << 20) /* bytes of a tensor inside an object that is read along */

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
    if (value->storage && strlen(value->storage) <= RSI_TENSOR_KEY_MAX) /* no longer one is ours */
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
        .has_crc = record->crc32 != 0, /* torch writes 0 when it is told to leave it out */
        .big_endian = zip->big_endian,
        .conj = tensor->conj,
        .neg = tensor->neg,
    };
    out->offset = out->record + (uint64_t)(tensor->offset * elem);
    for (int d = 0; d < tensor->ndim; d++)
        out->stride[d] = tensor->stride[d] * elem;
    return RSD_OK;
}

/* The bytes of data.pkl as a source; *owned is to be freed, NULL if they came with the directory.
 */
static rsd_err pickle_of(const rsi_source *source, const rsi_zip *zip, rsi_source *out,
                         rsd_error *err)
{
    const rsi_zip_record *record = rsi_zip_find(zip, "data.pkl");

    if (!record)
        return rsi_fail(err, RSD_E_FORMAT, "the archive has no \"data.pkl\"");
    *out = *source;
    out->start += record->data;
    out->size = record->size;
    return RSD_OK;
}

/* The reader of the directory has checked short pickles; a long one is gone through once before it
 * is believed. */
static rsd_err check_pickle(const rsi_source *pickle, uint32_t expected, rsd_error *err)
{
    unsigned char buf[16384];
    uint32_t      crc = 0;

    for (uint64_t done = 0; done < pickle->size; done += sizeof(buf)) {
        size_t len =
            pickle->size - done < sizeof(buf) ? (size_t)(pickle->size - done) : sizeof(buf);
        rsd_err rc = rsi_source_read(pickle, done, buf, len, err);

        if (rc)
            return rc;
        crc = rsi_crc32(crc, buf, len);
    }
    if (expected && crc != expected) /* 0: torch was told to leave it out */
        return rsi_fail(err, RSD_E_CORRUPT,
                        "\"data.pkl\" at byte %" PRIu64 " has the CRC32 %08" PRIx32
                        ", the file says %08" PRIx32,
                        pickle->start, crc, expected);
    return RSD_OK;
}

rsd_err rsi_torch_value(const rsi_source *source, const rsi_zip *zip, rsd_values *owner,
                        rsi_value_pickle *out, rsd_error *err)
{
    rsi_source pickle;
    rsd_err    rc = pickle_of(source, zip, &pickle, err);

    if (!rc && !zip->pickle)
        rc = check_pickle(&pickle, rsi_zip_find(zip, "data.pkl")->crc32, err);
    if (!rc)
        rc = rsi_value_read(&pickle, owner, out, err);
    return rc;
}

/* A pickle that is not written the way torch writes a lone tensor now: older versions, Parameters.
 */
static rsd_err read_generally(const rsi_source *source, const rsi_zip *zip,
                              rsi_tensor_pickle *tensor, rsd_error *err)
{
    rsd_values      *owner;
    rsi_value_pickle pickle;
    rsd_err          rc = rsd_values_create(&owner, err);

    if (rc)
        return rc;
    rc = rsi_torch_value(source, zip, owner, &pickle, err);
    if (!rc && rsd_value_kind(pickle.root) != RSD_VALUE_TENSOR)
        rc = pickle.unlisted
                 ? rsi_fail(err, RSD_E_FORMAT,
                            "the pickle would call %s at byte %" PRIu64 ", a tensor was expected",
                            pickle.unlisted, pickle.unlisted_at)
                 : rsi_fail(err, RSD_E_FORMAT, "the item is no tensor");
    if (!rc)
        rsi_torch_tensor_of(rsd_value_tensor_of(pickle.root), tensor);
    rsd_values_free(owner);
    return rc;
}

/* The short pickle that nearly every item has: *known, and then *tensor set, if it is one. */
static rsd_err read_briefly(const rsi_source *source, const rsi_zip *zip, bool *known,
                            rsi_tensor_pickle *tensor, rsd_error *err)
{
    const rsi_zip_record *record = rsi_zip_find(zip, "data.pkl");
    unsigned char         own[RSI_TENSOR_PICKLE_MAX];
    const unsigned char  *bytes = zip->pickle;
    rsi_source            pickle;
    rsd_err               rc = RSD_OK;

    *known = false;
    if (!record || record->size > sizeof(own))
        return RSD_OK;
    if (!bytes) { /* it did not come along with the directory, so nobody has checked it */
        rc = rsi_source_read(source, record->data, own, (size_t)record->size, err);
        pickle = rsi_memory_source(own, (size_t)record->size, source->name);
        if (!rc)
            rc = check_pickle(&pickle, record->crc32, err);
        bytes = own;
    }
    if (!rc)
        *known = rsi_tensor_pickle_read(bytes, (size_t)record->size, tensor);
    return rc;
}

rsd_err rsi_torch_tensor_item(const rsi_source *source, rsi_tensor_pickle *tensor,
                              rsi_extent *extent, rsd_error *err)
{
    rsi_arena mem = { 0 };
    rsi_zip   zip;
    bool      known;
    rsd_err   rc = rsi_zip_read(source, &mem, &zip, err);

    if (!rc)
        rc = read_briefly(source, &zip, &known, tensor, err);
    if (!rc && !known)
        rc = read_generally(source, &zip, tensor, err);
    if (!rc)
        rc = rsi_torch_extent(source, &zip, tensor, extent, err);
    rsi_arena_release(&mem);
    return rc;
}

/* ---- objects ---- */

/* Reads the storage of one tensor inside an object, checks its CRC and hangs it to the tensor.
 * `known` has those that were read before: many tensors can share one. */
static rsd_err read_storage(const rsi_source *source, const rsi_zip *zip, rsd_values *owner,
                            rsi_map *known, rsd_value_tensor *tensor, rsd_error *err)
{
    rsi_tensor_pickle facts;
    rsi_extent        extent;
    unsigned char    *bytes;
    uint64_t          at;
    rsd_err           rc;

    rsi_torch_tensor_of(tensor, &facts);
    rc = rsi_torch_extent(source, zip, &facts, &extent, err);
    if (rc || extent.record_bytes > OBJECT_TENSOR_MAX)
        return rc; /* a large one stays unread: it is told, not shown */
    if (rsi_map_get(known, tensor->storage, strlen(tensor->storage), &at)) {
        tensor->bytes = (const void *)(uintptr_t)at;
        return RSD_OK;
    }
    bytes = rsi_arena_array(&owner->mem, (size_t)extent.record_bytes, 1);
    if (!bytes)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a tensor of %" PRIu64 " bytes",
                        extent.record_bytes);
    rc = source->read(source->arg, extent.record, bytes, (size_t)extent.record_bytes, err);
    if (rc)
        return rc;
    if (extent.has_crc && rsi_crc32(0, bytes, (size_t)extent.record_bytes) != extent.crc32)
        return rsi_fail(err, RSD_E_CORRUPT, "the data from byte %" PRIu64 " on have another CRC32",
                        extent.record);
    tensor->bytes = bytes;
    at = (uintptr_t)bytes;
    return rsi_map_add(known, tensor->storage, strlen(tensor->storage), &at, NULL)
               ? RSD_OK
               : rsi_fail(err, RSD_E_NOMEM, "no memory to read an object");
}

/* A container that is being walked. */
struct frame {
    const rsd_value *value;
    size_t           next;
};

rsd_err rsi_torch_read_tensors(const rsi_source *source, const rsi_zip *zip, rsd_values *owner,
                               const rsd_value *root, rsd_error *err)
{
    struct frame    *stack = rsi_calloc(RSD_VALUE_MAX_DEPTH + 1, sizeof(stack[0]));
    rsi_map          known = { 0 };
    size_t           depth = 0;
    const rsd_value *v = root;
    rsd_err          rc = RSD_OK;

    if (!stack)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to read an object");

    while (v && !rc) {
        if (rsd_value_kind(v) == RSD_VALUE_TENSOR)
            rc = read_storage(source, zip, owner, &known,
                              (rsd_value_tensor *)(uintptr_t)rsd_value_tensor_of(v), err);
        else if (rsd_value_count(v) > 0)
            stack[depth++] = (struct frame){ .value = v };
        for (v = NULL; depth > 0 && !v;) {
            struct frame *top = &stack[depth - 1];

            if (top->next < rsd_value_count(top->value))
                v = rsd_value_item(top->value, top->next++);
            else
                depth--;
        }
    }
    rsi_map_release(&known);
    rsi_free(stack);
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
