/* SPDX-License-Identifier: Apache-2.0 */
/* The image of a part: items that the caller lists one by one, in one DCP file. Which items there
 * are, and what the other ranks write, is the caller's business. Next: save/save_part.c. */
#include "base/mem.h"
#include "write/image.h"

#include <string.h>

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the image of a part");
}

static rsd_err add_bytes(rsi_image *image, rsi_part_item *item, rsd_error *err)
{
    rsi_out_part part = { .kind = RSI_PART_BYTES, .bytes = item->bytes, .len = item->len };
    rsd_err      rc = rsi_image_item(image, &item->row, err);

    item->row.offset = (int64_t)image->file[0].bytes;
    item->row.length = (int64_t)item->len;
    return rc ? rc : rsi_image_part(image, &part, err);
}

static rsd_err add_box(rsi_image *image, const rsd_state *state, rsi_part_item *item,
                       rsd_error *err)
{
    const int64_t *box = rsi_image_box(image, &state->tensor[item->tensor].views.view[0].box);

    return box ? rsi_image_chunk(image, state, item->tensor, box, &item->row, err) : no_memory(err);
}

rsd_err rsi_image_items(rsi_image *image, const rsd_state *state, size_t n, rsi_part_item *item,
                        const char *transform, rsd_error *err)
{
    rsd_err rc;

    *image = (rsi_image){ .format = RSD_FORMAT_DCP, .keep = -1 };
    rc = transform ? rsi_image_transform(image, transform, err) : RSD_OK;
    if (!rc)
        rc = rsi_image_file(image, NULL, 0, err);
    for (size_t i = 0; i < n && !rc; i++) {
        item[i].row.transforms = transform ? 0 : RSI_DCP_NO_TRANSFORMS;
        rc = item[i].tensor == SIZE_MAX ? add_bytes(image, &item[i], err)
                                        : add_box(image, state, &item[i], err);
    }
    if (rc)
        rsi_image_release(image);
    else if (transform)
        image->file[0].bytes = 0; /* unknown until it is written */
    return rc;
}

/* ---- metadata ---- */

typedef struct table {
    rsi_dcp_meta       meta; /* each box is a tensor of its own; joining brings them together */
    rsi_dcp_transforms transforms;
    const char        *file;
    rsi_arena          mem;
} table;

static bool make_room(table *t, size_t n)
{
    t->meta.tensor = rsi_arena_array(&t->mem, n, sizeof(t->meta.tensor[0]));
    t->meta.row = rsi_arena_array(&t->mem, n, sizeof(t->meta.row[0]));
    t->meta.box = rsi_arena_array(&t->mem, n, 2 * RSD_MAX_NDIM * sizeof(t->meta.box[0]));
    t->meta.item = rsi_arena_array(&t->mem, n, sizeof(t->meta.item[0]));
    t->meta.path = rsi_arena_array(&t->mem, n, sizeof(t->meta.path[0]));
    return t->meta.tensor && t->meta.row && t->meta.box && t->meta.item && t->meta.path;
}

static void list_tensor(table *t, const rsi_state_tensor *from, const rsi_part_item *item)
{
    rsi_dcp_meta  *meta = &t->meta;
    size_t         box = meta->nchunks * 2 * RSD_MAX_NDIM, bytes;
    const rsd_box *at = &from->views.view[0].box;

    bytes = (size_t)from->ndim * sizeof(meta->box[0]);
    memcpy(meta->box + box, at->off, bytes);
    memcpy(meta->box + box + from->ndim, at->len, bytes);
    meta->row[meta->nchunks] = item->row;
    meta->tensor[meta->ntensors++] = (rsi_dcp_tensor){ .name = item->name,
                                                       .shape = from->shape,
                                                       .first = meta->nchunks++,
                                                       .nchunks = 1,
                                                       .box = box,
                                                       .dtype = from->dtype,
                                                       .ndim = from->ndim };
}

/* Names are keys of a flat dict. */
static rsd_err list_items(table *t, const rsd_state *state, size_t n, const rsi_part_item *item,
                          rsd_error *err)
{
    rsi_dcp_meta *meta = &t->meta;

    if (!make_room(t, n))
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        rsi_dcp_part *key = rsi_arena_array(&t->mem, 1, sizeof(*key));

        if (!key)
            return no_memory(err);
        key->key = item[i].name;
        meta->path[meta->npaths++] =
            (rsi_dcp_path){ .name = item[i].name, .part = key, .nparts = 1 };
        if (item[i].tensor == SIZE_MAX)
            meta->item[meta->nitems++] = (rsi_dcp_item){ .name = item[i].name, .row = item[i].row };
        else
            list_tensor(t, &state->tensor[item[i].tensor], &item[i]);
    }
    meta->has_paths = true;
    return RSD_OK;
}

rsd_err rsi_items_meta(const rsi_image *image, const rsd_state *state, size_t n,
                       const rsi_part_item *item, const char *file, rsi_dcp_meta **out,
                       rsd_error *err)
{
    table               t = { .file = file };
    const rsi_dcp_meta *one = &t.meta;
    rsd_err             rc = list_items(&t, state, n, item, err);

    t.meta.file = &t.file;
    t.meta.nfiles = n ? 1 : 0;
    if (image->transform) {
        t.transforms = (rsi_dcp_transforms){ .n = 1, .name = &image->transform };
        t.meta.transforms = &t.transforms;
        t.meta.ntransforms = 1;
    }
    if (!rc)
        rc = rsi_dcp_meta_merge(1, &one, out, err);
    rsi_arena_release(&t.mem);
    return rc;
}
