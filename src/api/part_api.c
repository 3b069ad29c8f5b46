/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_folder.h: checks arguments and passes them on. */
#include "base/opts.h"
#include "save/save_part.h"

rsd_err rsd_part_create(const char *path, int32_t rank, const rsd_part_opts *opts, rsd_part **out,
                        rsd_error *err)
{
    rsd_part_opts known = { .size = sizeof(known) };
    rsd_err       rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_part_opts", err);

    if (rc)
        return rc;
    if (!path || !*path || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: path or output pointer");
    if (rank < 0)
        return rsi_fail(err, RSD_E_INVALID, "there is no rank %d", (int)rank);
    return rsi_part_create(path, rank, &known, out, err);
}

void rsd_part_free(rsd_part *part)
{
    rsi_part_free(part);
}

rsd_err rsd_part_tensor(rsd_part *part, const char *name, rsd_dtype dtype, int ndim,
                        const int64_t *shape, const rsd_view *view, rsd_error *err)
{
    if (!part || !name || !view)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: part, name or view");
    return rsi_part_tensor(part, name, dtype, ndim, shape, view, err);
}

rsd_err rsd_part_object(rsd_part *part, const char *name, const void *bytes, size_t len,
                        rsd_error *err)
{
    if (!part || !name || (len && !bytes))
        return rsi_fail(err, RSD_E_INVALID, "missing argument: part, name or the %zu bytes", len);
    return rsi_part_object(part, name, bytes, len, err);
}

rsd_err rsd_part_write(rsd_part *part, rsd_error *err)
{
    return part ? rsi_part_write(part, err)
                : rsi_fail(err, RSD_E_INVALID, "missing argument: part");
}

size_t rsd_part_items(const rsd_part *part)
{
    return part ? part->n : 0;
}

static rsd_err check_written(const rsd_part *part, rsd_error *err)
{
    if (!part)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: part");
    return part->written ? RSD_OK : rsi_fail(err, RSD_E_INVALID, "the part has not been written");
}

rsd_err rsd_part_extent(const rsd_part *part, size_t i, rsd_chunk *out, rsd_error *err)
{
    rsd_chunk            chunk;
    const rsi_part_item *item;
    rsd_err              rc = check_written(part, err);

    if (!rc)
        rc = rsi_result_check(out, "rsd_chunk", err);
    if (rc)
        return rc;
    if (i >= part->n)
        return rsi_fail(err, RSD_E_INVALID, "no item %zu: the part has %zu", i, part->n);
    item = &part->item[i];
    chunk = (rsd_chunk){ .file = part->file,
                         .offset = (uint64_t)item->row.offset,
                         .length = (uint64_t)item->row.length,
                         .ntransforms = part->image.transform ? 1 : 0,
                         .transforms = &part->image.transform };
    if (item->tensor != SIZE_MAX)
        chunk.box = part->state->tensor[item->tensor].views.view[0].box;
    rsi_result_give(out, &chunk, sizeof(chunk));
    return RSD_OK;
}

rsd_err rsd_part_receipt(rsd_part *part, bool describe, const void **bytes, size_t *len,
                         rsd_error *err)
{
    rsd_err rc = check_written(part, err);

    if (!rc && (!bytes || !len))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: output pointer for the receipt");
    if (!rc)
        rc = rsi_part_tell(part, describe, err);
    if (rc)
        return rc;
    *bytes = part->receipt.at;
    *len = part->receipt.len;
    return RSD_OK;
}

rsd_err rsd_parts_publish(const char *path, size_t n, const rsd_receipt *receipts,
                          const rsd_publish_opts *opts, rsd_error *err)
{
    rsd_publish_opts known = { .size = sizeof(known) };
    rsd_err          rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_publish_opts", err);

    if (rc)
        return rc;
    if (!path || !*path || (n && !receipts))
        return rsi_fail(err, RSD_E_INVALID, "missing argument: path or the %zu receipts", n);
    if (known.alone && known.rank < 0)
        return rsi_fail(err, RSD_E_INVALID, "there is no rank %d", (int)known.rank);
    if (known.unread)
        *known.unread = (rsd_error){ .rank = -1 };
    return rsi_parts_publish(path, n, receipts, &known, err);
}
