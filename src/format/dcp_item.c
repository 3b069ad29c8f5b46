/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a DCP checkpoint's items: each is a separate torch.save archive, perhaps
 * transformed. The metadata are not trusted: dtype, shape and length found in the item must match
 * them. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/dcp.h"
#include "format/torch_archive.h"
#include "format/transform.h"

#include <inttypes.h>
#include <string.h>

/* Bytes of an archive besides its data: headers, names, padding, a pickle. */
#define ITEM_EXTRA ((uint64_t)1 << 20)

/* An item before it was transformed: from the file, or decoded into memory. */
struct item {
    rsi_source     source;
    unsigned char *decoded; /* NULL: stored as is in the file */
};

/* `most`: the maximum number of decoded bytes. */
static rsd_err open_item(rsd_ckpt *ckpt, const rsi_dcp_row *row, uint64_t most, struct item *out,
                         rsd_error *err)
{
    const rsi_dcp            *dcp = ckpt->self;
    const rsi_dcp_transforms *transforms;
    size_t                    len;
    rsd_err                   rc;

    *out =
        (struct item){ .source = rsi_files_source(&ckpt->files, dcp->file[row->file],
                                                  (uint64_t)row->offset, (uint64_t)row->length) };
    if (row->transforms == RSI_DCP_NO_TRANSFORMS || dcp->meta->transforms[row->transforms].n == 0)
        return RSD_OK;
    transforms = &dcp->meta->transforms[row->transforms];
    rc =
        rsi_undo_all(transforms->name, transforms->n, &out->source, most, &out->decoded, &len, err);
    if (rc)
        return rc;
    out->source = rsi_memory_source(out->decoded, len, out->source.name);
    return RSD_OK;
}

static rsd_err check_promise(const rsi_dcp_tensor *tensor, const int64_t *size,
                             const rsi_tensor_pickle *found, rsd_error *err)
{
    if (found->dtype != tensor->dtype)
        return rsi_fail(err, RSD_E_FORMAT, "the item is %s, the metadata say %s",
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

rsd_err rsi_dcp_locate(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *out,
                       rsd_error *err)
{
    const rsi_dcp        *dcp = ckpt->self;
    const rsi_dcp_tensor *tensor = &dcp->meta->tensor[t];
    const rsi_dcp_row    *row = &dcp->meta->row[tensor->first + i];
    const int64_t        *size = rsi_dcp_chunk_size(dcp->meta, tensor, i);
    rsi_tensor_pickle     found;
    rsi_extent            extent;
    int64_t               bytes = 0;
    struct item           item;
    rsd_err               rc;

    rsi_product(tensor->ndim, size, (int64_t)rsd_dtype_size(tensor->dtype), &bytes);
    rc = open_item(ckpt, row, (uint64_t)bytes + ITEM_EXTRA, &item, err);
    if (rc)
        return rc;
    rc = rsi_torch_tensor_item(&item.source, all, &found, &extent, err);
    if (!rc)
        rc = check_promise(tensor, size, &found, err);
    if (rc) {
        rsi_free(item.decoded);
        return rsi_while(err, rc, "item at byte %" PRId64, row->offset);
    }
    extent.decoded = item.decoded;
    *out = extent;
    return RSD_OK;
}

static rsd_err open_object(rsd_ckpt *ckpt, size_t i, struct item *out, rsd_error *err)
{
    const rsi_dcp     *dcp = ckpt->self;
    const rsi_dcp_row *row = &dcp->meta->item[i].row;
    /* The decoded size of an object is unknown until it is in memory. */
    const uint64_t small = (uint64_t)row->length * 1024 + ITEM_EXTRA;
    const uint64_t large = (uint64_t)row->length * 8 + 16 * ITEM_EXTRA;

    return open_item(ckpt, row, small < large ? small : large, out, err);
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
