/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a DCP checkpoint's items: each is a separate torch.save archive, perhaps
 * transformed. The metadata are not trusted: dtype, shape and length found in the item must match
 * them. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/dcp.h"
#include "format/decoded.h"
#include "format/torch_archive.h"

#include <inttypes.h>
#include <string.h>

/* Bytes of an archive besides its data: headers, names, padding, a pickle. */
#define ITEM_EXTRA ((uint64_t)1 << 20)

static rsi_source source_of(const rsd_ckpt *ckpt, const rsi_dcp_row *row)
{
    const rsi_dcp *dcp = ckpt->self;

    return rsi_files_source(&ckpt->files, dcp->file[row->file], (uint64_t)row->offset,
                            (uint64_t)row->length);
}

/* NULL: the item is stored as it is. */
static const rsi_dcp_transforms *transforms_of(const rsd_ckpt *ckpt, const rsi_dcp_row *row)
{
    const rsi_dcp_meta *meta = ((const rsi_dcp *)ckpt->self)->meta;

    return row->transforms == RSI_DCP_NO_TRANSFORMS || meta->transforms[row->transforms].n == 0
               ? NULL
               : &meta->transforms[row->transforms];
}

/* ---- tensors ---- */

static rsd_err check_promise(const rsi_dcp *dcp, const rsi_dcp_tensor *tensor, size_t i,
                             const rsi_tensor_pickle *found, rsd_error *err)
{
    int64_t        box[2 * RSD_MAX_NDIM];
    const int64_t *size = box + tensor->ndim;

    rsi_dcp_box_of(dcp->meta, tensor, i, box);
    if (found->dtype != tensor->dtype)
        return rsi_fail(err, RSD_E_FORMAT, "the item is %s, but the metadata say %s",
                        rsd_dtype_name(found->dtype), rsd_dtype_name(tensor->dtype));
    if (found->ndim != tensor->ndim)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the item has %" PRId32 " dimensions, the metadata say %d", found->ndim,
                        tensor->ndim);
    for (int d = 0; d < tensor->ndim; d++)
        if (found->size[d] != size[d])
            return rsi_fail(err, RSD_E_FORMAT,
                            "dimension %d of the item has the size %" PRId64
                            ", the metadata say %" PRId64,
                            d, found->size[d], size[d]);
    return RSD_OK;
}

/* Where a chunk is, from all of its item. */
static rsd_err find_chunk(const rsd_ckpt *ckpt, size_t t, size_t i, const rsi_source *source,
                          bool all, rsi_extent *out, rsd_error *err)
{
    const rsi_dcp        *dcp = ckpt->self;
    const rsi_dcp_tensor *tensor = &dcp->meta->tensor[t];
    rsi_tensor_pickle     found;
    rsd_err               rc = rsi_torch_tensor_item(source, all, &found, out, err);

    if (!rc)
        rc = check_promise(dcp, tensor, i, &found, err);
    return rc ? rsi_while(err, rc, "item at byte %" PRId64,
                          rsi_dcp_row_of(dcp->meta, tensor, i).offset)
              : RSD_OK;
}

/* The beginning of an item tells where its chunk is, the end confirms it: so the item need not be
 * decoded twice. If the beginning says nothing, all of it must. */
static rsd_err find_decoded(rsd_ckpt *ckpt, size_t t, size_t i, rsi_decoded *decoded,
                            rsi_extent *out, rsd_error *err)
{
    const rsi_dcp        *dcp = ckpt->self;
    const rsi_dcp_tensor *tensor = &dcp->meta->tensor[t];
    const unsigned char  *front;
    size_t                len;
    rsi_tensor_pickle     found;
    rsi_source            source;
    rsd_err               rc = rsi_decoded_front(decoded, &front, &len, err);

    if (rc)
        return rc;
    if (!rsi_torch_tensor_front(front, len, &found, out) ||
        check_promise(dcp, tensor, i, &found, NULL)) {
        rc = rsi_decoded_source(decoded, &source, err);
        if (!rc)
            rc = find_chunk(ckpt, t, i, &source, false, out, err);
    }
    if (!rc)
        rsi_decoded_watch(decoded, out->record, out->record_bytes);
    return rc;
}

rsd_err rsi_dcp_locate(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *out,
                       rsd_error *err)
{
    const rsi_dcp            *dcp = ckpt->self;
    const rsi_dcp_tensor     *tensor = &dcp->meta->tensor[t];
    const rsi_dcp_piece      *piece = rsi_dcp_piece_of(dcp, t, i);
    const size_t              chunk = piece ? piece->chunk : i;
    const rsi_dcp_row         row = rsi_dcp_row_of(dcp->meta, tensor, chunk);
    const rsi_dcp_transforms *transforms = transforms_of(ckpt, &row);
    const rsi_source          source = source_of(ckpt, &row);
    rsi_decoded              *decoded;
    rsi_extent                extent;
    int64_t                   box[2 * RSD_MAX_NDIM], bytes = 0;
    rsd_err                   rc;

    if (!transforms) {
        rc = find_chunk(ckpt, t, chunk, &source, all, out, err);
        return rc || !piece ? rc : rsi_dcp_piece_extent(tensor, piece, out, err);
    }
    rsi_dcp_box_of(dcp->meta, tensor, chunk, box);
    rsi_product(tensor->ndim, box + tensor->ndim, (int64_t)rsd_dtype_size(tensor->dtype), &bytes);
    rc = rsi_decoded_create(transforms->name, transforms->n, &source, (uint64_t)bytes + ITEM_EXTRA,
                            &decoded, err);
    if (rc)
        return rc;
    rc = find_decoded(ckpt, t, chunk, decoded, &extent, err);
    if (!rc && piece)
        rc = rsi_dcp_piece_extent(tensor, piece, &extent, err);
    if (rc) {
        rsi_decoded_free(decoded);
        return rc;
    }
    extent.decoded = decoded;
    *out = extent;
    return RSD_OK;
}

rsd_err rsi_dcp_prove(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *x, rsd_error *err)
{
    const rsi_dcp_tensor *tensor = &((const rsi_dcp *)ckpt->self)->meta->tensor[t];
    const rsi_dcp_piece  *piece = rsi_dcp_piece_of(ckpt->self, t, i);
    rsi_extent            real;
    rsi_source            source;
    rsd_err               rc = rsi_decoded_source(x->decoded, &source, err);

    if (!rc)
        rc = find_chunk(ckpt, t, piece ? piece->chunk : i, &source, all, &real, err);
    if (!rc && piece)
        rc = rsi_dcp_piece_extent(tensor, piece, &real, err);
    if (rc)
        return rc;
    if (real.offset != x->offset || real.record != x->record ||
        real.record_bytes != x->record_bytes || real.big_endian != x->big_endian ||
        real.conj != x->conj || real.neg != x->neg ||
        memcmp(real.stride, x->stride, (size_t)tensor->ndim * sizeof(x->stride[0])) != 0)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the beginning and the end of the decoded item don't agree on where its "
                        "elements are");
    x->crc32 = real.crc32;
    x->has_crc = real.has_crc;
    return RSD_OK;
}

/* ---- objects ---- */

/* An object before it was transformed: from the file, or decoded into memory. */
struct item {
    rsi_source     source;
    unsigned char *decoded; /* NULL: stored as is in the file */
};

static rsd_err open_object(rsd_ckpt *ckpt, size_t i, struct item *out, rsd_error *err)
{
    const rsi_dcp            *dcp = ckpt->self;
    const rsi_dcp_row        *row = &dcp->meta->item[i].row;
    const rsi_dcp_transforms *transforms = transforms_of(ckpt, row);
    /* The decoded size of an object is unknown until it is in memory. */
    const uint64_t small = (uint64_t)row->length * 1024 + ITEM_EXTRA;
    const uint64_t large = (uint64_t)row->length * 8 + 16 * ITEM_EXTRA;
    size_t         len;
    rsd_err        rc;

    *out = (struct item){ .source = source_of(ckpt, row) };
    if (!transforms)
        return RSD_OK;
    rc = rsi_undo_all(transforms->name, transforms->n, &out->source, small < large ? small : large,
                      &out->decoded, &len, err);
    if (!rc)
        out->source = rsi_memory_source(out->decoded, len, out->source.name);
    return rc;
}

/* Prepends the place of object i to the error. */
static rsd_err name_item(const rsi_dcp *dcp, size_t i, rsd_err rc, rsd_error *err)
{
    const rsi_dcp_row *row = &dcp->meta->item[i].row;

    return rc ? rsi_while(err, rc, "file \"%s\": item at byte %" PRId64, dcp->meta->file[row->file],
                          row->offset)
              : RSD_OK;
}

rsd_err rsi_dcp_object(rsd_ckpt *ckpt, size_t i, const char **name, rsd_values *owner,
                       const rsd_value **out, rsd_error *err)
{
    const rsi_dcp *dcp = ckpt->self;
    struct item    item;
    rsd_err        rc;

    *name = dcp->meta->item[i].name;
    if (!owner)
        return RSD_OK;
    rc = open_object(ckpt, i, &item, err);
    if (rc)
        return rc;
    rc = rsi_torch_object_item(&item.source, owner, out, err);
    rsi_free(item.decoded);
    return name_item(dcp, i, rc, err);
}

rsd_err rsi_dcp_object_bytes(rsd_ckpt *ckpt, size_t i, unsigned char **bytes, size_t *len,
                             rsd_error *err)
{
    struct item item;
    rsd_err     rc = open_object(ckpt, i, &item, err);

    if (rc)
        return rc;
    *bytes = item.decoded;
    *len = (size_t)item.source.size;
    if (item.decoded)
        return RSD_OK;
    *bytes = rsi_alloc_aligned(64, *len ? *len : 1);
    if (!*bytes)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for an object of %zu bytes", *len);
    rc = rsi_source_read(&item.source, 0, *bytes, *len, err);
    if (rc)
        rsi_free(*bytes);
    return name_item(ckpt->self, i, rc, err);
}

rsd_err rsi_dcp_archive(rsd_ckpt *ckpt, size_t i, rsi_archive *out, rsd_error *err)
{
    const rsi_dcp   *dcp = ckpt->self;
    rsi_value_pickle pickle;
    struct item      item;
    rsd_err          rc;

    *out = (rsi_archive){ 0 };
    if (i == ckpt->nobjects) /* each item is a separate archive */
        return RSD_OK;
    rc = open_object(ckpt, i, &item, err);
    if (rc)
        return rc;
    out->source = item.source;
    out->decoded = item.decoded;
    out->file = dcp->file[dcp->meta->item[i].row.file];
    rc = rsi_zip_read(&out->source, &out->mem, &out->zip, err);
    if (!rc)
        rc = rsd_values_create(&out->owner, err);
    if (!rc)
        rc = rsi_torch_value(&out->source, &out->zip, out->owner, &pickle, err);
    if (!rc)
        out->value = pickle.root;
    return name_item(dcp, i, rc, err);
}
