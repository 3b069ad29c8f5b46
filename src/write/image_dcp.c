/* SPDX-License-Identifier: Apache-2.0 */
/* The image of a DCP checkpoint: one file per rank, `__<rank>_0.distcp`, containing the values that
 * the rank writes and its chunks, each a separate torch.save archive; `.metadata` comes last. */
#include "base/checked.h"
#include "base/mem.h"
#include "write/image.h"
#include "format/tensor_pickle.h"
#include "shape/box.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct building {
    rsi_image       *image;
    const rsd_state *state;
    rsi_dcp_meta    *meta;
    int32_t          own; /* above 0: the only rank whose chunks are listed */
    size_t           row_cap, words, box_cap;
    int32_t          least, world; /* the ranks that write: from `least` to world - 1 */
    /* Numbers of all chunks, by rank: rank r has first[r - least] to first[r - least + 1] - 1, in
     * the order of the state. A number in 32 bits: the table takes 50 times as much. */
    uint32_t *by_rank;
    size_t   *first;
} building;

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the image of a checkpoint");
}

/* Until its place is known, a row's `file` is the rank that writes it. */
static rsd_err add_stored(building *b, const rsi_stored *chunk, rsd_error *err)
{
    rsi_image *image = b->image;
    int        ndim = chunk->box.ndim;

    if (!rsi_grow(&image->row, b->meta->nchunks, &b->row_cap, sizeof(image->row[0])))
        return no_memory(err);
    image->row[b->meta->nchunks++] = (rsi_dcp_row){ .file = (uint32_t)chunk->rank };
    for (int d = 0; d < 2 * ndim; d++) {
        if (!rsi_grow(&image->box, b->words, &b->box_cap, sizeof(image->box[0])))
            return no_memory(err);
        image->box[b->words++] = d < ndim ? chunk->box.off[d] : chunk->box.len[d - ndim];
    }
    b->world = chunk->rank >= b->world ? chunk->rank + 1 : b->world;
    return RSD_OK;
}

static rsd_err add_tensor(building *b, size_t t, rsi_stored_list *chunks, rsd_error *err)
{
    const rsi_state_tensor *from = &b->state->tensor[t];
    rsd_err                 rc = rsi_stored_chunks(b->state, t, true, b->own, chunks, err);

    b->meta->tensor[t] = (rsi_dcp_tensor){ .name = from->spot.name,
                                           .shape = from->shape,
                                           .first = b->meta->nchunks,
                                           .nchunks = chunks->n,
                                           .box = b->words,
                                           .dtype = from->dtype,
                                           .ndim = from->ndim };
    for (size_t i = 0; i < chunks->n && !rc; i++)
        rc = add_stored(b, &chunks->at[i], err);
    return rc;
}

/* Builds the table of tensors and chunks; rows receive their places when they are written. */
static rsd_err list_chunks(building *b, rsd_error *err)
{
    rsi_dcp_meta   *meta = b->meta;
    rsi_stored_list chunks = { 0 };
    rsd_err         rc;

    b->world = 1;
    meta->ntensors = b->state->ntensors;
    meta->tensor = rsi_arena_array(&b->image->mem, meta->ntensors, sizeof(meta->tensor[0]));
    rc = meta->tensor ? RSD_OK : no_memory(err);
    for (size_t t = 0; t < meta->ntensors && !rc; t++)
        rc = add_tensor(b, t, &chunks, err);
    rsi_free(chunks.at);
    for (size_t i = 0; i < b->state->nvalues; i++)
        b->world = b->state->value[i].writer >= b->world ? b->state->value[i].writer + 1 : b->world;
    if (b->own > 0) {
        b->least = b->own;
        b->world = b->own + 1;
    }
    meta->row = b->image->row;
    meta->box = b->image->box;
    if (!rc && meta->nchunks > UINT32_MAX)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED, "%zu chunks: at most %" PRIu32 " are supported",
                      meta->nchunks, UINT32_MAX);
    return rc;
}

static rsd_err sort_chunks(building *b, rsd_error *err)
{
    const size_t   n = (size_t)(b->world - b->least);
    const uint32_t least = (uint32_t)b->least;

    b->first = rsi_calloc(n + 2, sizeof(b->first[0]));
    b->by_rank = rsi_calloc(b->meta->nchunks, sizeof(b->by_rank[0]));
    if (!b->first || !b->by_rank)
        return no_memory(err);
    for (size_t i = 0; i < b->meta->nchunks; i++)
        b->first[b->meta->row[i].file - least + 2]++;
    for (size_t r = 2; r < n + 2; r++)
        b->first[r] += b->first[r - 1];
    for (size_t i = 0; i < b->meta->nchunks; i++)
        b->by_rank[b->first[b->meta->row[i].file - least + 1]++] = (uint32_t)i;
    return RSD_OK;
}

static rsd_err fill_path(building *b, const rsi_spot *spot, rsi_dcp_path *out, rsd_error *err)
{
    rsi_dcp_part *part = rsi_arena_array(&b->image->mem, spot->nparts, sizeof(part[0]));

    if (!part)
        return no_memory(err);
    for (size_t i = 0; i < spot->nparts; i++)
        part[i] = (rsi_dcp_part){ .key = spot->part[i].key, .index = spot->part[i].index };
    *out = (rsi_dcp_path){ .name = spot->name, .part = part, .nparts = spot->nparts };
    return RSD_OK;
}

static rsd_err fill_paths_and_items(building *b, rsd_error *err)
{
    rsi_dcp_meta *meta = b->meta;
    rsi_arena    *mem = &b->image->mem;
    rsd_err       rc = RSD_OK;

    meta->npaths = b->state->ntensors + b->state->nvalues;
    meta->has_paths = true;
    meta->nitems = b->state->nvalues;
    meta->path = rsi_arena_array(mem, meta->npaths, sizeof(meta->path[0]));
    meta->item = rsi_arena_array(mem, meta->nitems, sizeof(meta->item[0]));
    if (!meta->path || !meta->item)
        return no_memory(err);
    for (size_t i = 0; i < b->state->ntensors && !rc; i++)
        rc = fill_path(b, &b->state->tensor[i].spot, &meta->path[i], err);
    for (size_t i = 0; i < b->state->nvalues && !rc; i++) {
        rc = fill_path(b, &b->state->value[i].spot, &meta->path[b->state->ntensors + i], err);
        meta->item[i] = (rsi_dcp_item){ .name = b->state->value[i].spot.name,
                                        .row = { .file = RSI_DCP_NO_FILE } };
    }
    return rc;
}

/* Starts a rank's file when it gets its first item. */
static rsd_err open_file(building *b, int32_t rank, bool *open, rsd_error *err)
{
    char *name;

    if (*open)
        return RSD_OK;
    name = rsi_arena_array(&b->image->mem, 32, 1);
    if (!name)
        return no_memory(err);
    snprintf(name, 32, "__%" PRId32 "_0.distcp", rank);
    b->meta->file[b->meta->nfiles++] = name;
    *open = true;
    return rsi_image_file(b->image, name, rank, err);
}

/* Sets the row of an item in the open file. */
static void open_row(building *b, rsi_dcp_row *row)
{
    row->file = (uint32_t)(b->meta->nfiles - 1);
    row->transforms = b->image->transform ? 0 : RSI_DCP_NO_TRANSFORMS;
}

/* An archive as it is. */
static rsd_err add_raw(building *b, const rsi_state_value *value, rsi_dcp_row *row, rsd_error *err)
{
    const rsi_out_part part = { .kind = RSI_PART_BYTES,
                                .len = value->raw_len,
                                .bytes = value->raw };
    const uint64_t     start = b->image->file[b->image->nfiles - 1].bytes;
    rsd_err            rc = rsi_image_item(b->image, row, err);

    if (!rc && !b->image->transform) {
        row->offset = (int64_t)start;
        row->length = (int64_t)value->raw_len;
    }
    return rc ? rc : rsi_image_part(b->image, &part, err);
}

static rsd_err add_value(building *b, size_t i, rsd_error *err)
{
    const rsi_state_value *value = &b->state->value[i];
    rsi_bytes              pickle = { 0 };
    rsi_storages           storages = { 0 };
    rsi_out_part          *part;
    void                  *kept;
    rsd_err                rc;

    open_row(b, &b->meta->item[i].row);
    if (!rsi_image_keeps(b->image)) {
        b->image->file[b->image->nfiles - 1].guessed = true; /* only the writer knows its length */
        return RSD_OK;
    }
    if (value->raw)
        return add_raw(b, value, &b->meta->item[i].row, err);
    rc = rsi_value_to_pickle(value->value, &pickle, &storages, err);
    if (!rc)
        rc = rsi_image_storages(b->image, &storages, &part, err);
    if (!rc) {
        kept = rsi_arena_text(&b->image->mem, (const char *)pickle.at, pickle.len);
        rc = kept ? rsi_image_archive(b->image, &b->meta->item[i].row, kept, pickle.len, storages.n,
                                      part, err)
                  : no_memory(err);
    }
    rsi_free(pickle.at);
    rsi_free(storages.tensor);
    return rc ? rsi_while(err, rc, "value \"%s\"", value->spot.name) : RSD_OK;
}

/* The key of a chunk's pickle: chunks of the same dtype and shape share one. */
typedef struct pickle_key {
    int64_t dtype, ndim, len[RSD_MAX_NDIM];
} pickle_key;
typedef struct pickle {
    pickle_key    key;
    size_t        len;
    unsigned char bytes[RSI_TENSOR_PICKLE_MAX];
} pickle;

static rsd_err find_pickle(rsi_image *image, const rsi_state_tensor *tensor, const rsd_box *box,
                           const pickle **out, rsd_error *err)
{
    rsi_tensor_pickle facts = { .dtype = tensor->dtype, .ndim = tensor->ndim };
    pickle_key        key = { .dtype = (int64_t)tensor->dtype, .ndim = tensor->ndim };
    uint64_t          found;
    pickle           *made;
    rsd_err           rc;

    memcpy(key.len, box->len, (size_t)tensor->ndim * sizeof(key.len[0]));
    if (rsi_map_get(&image->pickles, &key, sizeof(key), &found)) {
        *out = (const pickle *)(uintptr_t)found;
        return RSD_OK;
    }
    made = rsi_arena_array(&image->mem, 1, sizeof(*made));
    if (!made)
        return no_memory(err);
    made->key = key;
    memcpy(facts.size, box->len, sizeof(facts.size));
    rsi_strides(tensor->ndim, box->len, 1, facts.stride);
    for (int d = tensor->ndim - 1; d >= 0 && rsd_box_count(box) == 0; d--) /* as torch does */
        facts.stride[d] =
            d == tensor->ndim - 1 ? 1 : facts.stride[d + 1] * rsi_max(1, box->len[d + 1]);
    facts.storage_bytes = rsd_box_count(box) * tensor->views.elem_bytes;
    rc = rsi_tensor_pickle_write(&facts, made->bytes, &made->len, err);
    found = (uint64_t)(uintptr_t)made;
    if (!rc && !rsi_map_add(&image->pickles, &made->key, sizeof(made->key), &found, NULL))
        rc = no_memory(err);
    *out = made;
    return rc;
}

rsd_err rsi_image_chunk(rsi_image *image, const rsd_state *state, size_t t, const int64_t *at,
                        rsi_dcp_row *row, rsd_error *err)
{
    const rsi_state_tensor *tensor = &state->tensor[t];
    rsi_out_part            data = { .kind = RSI_PART_DATA, .tensor = t, .box = at };
    rsd_box                 box = rsi_part_box(state, &data);
    const pickle           *kept = NULL;
    rsd_err                 rc = find_pickle(image, tensor, &box, &kept, err);

    if (rc)
        return rc;
    data.len = (uint64_t)(rsd_box_count(&box) * tensor->views.elem_bytes);
    return rsi_image_archive(image, row, kept->bytes, kept->len, 1, &data, err);
}

rsd_err rsi_image_chunk_bytes(rsi_image *image, const rsd_state *state, size_t t,
                              const rsd_box *box, uint64_t start, uint64_t *out, rsd_error *err)
{
    const rsi_state_tensor *tensor = &state->tensor[t];
    const pickle           *kept = NULL;
    rsd_err                 rc = find_pickle(image, tensor, box, &kept, err);

    return rc ? rc
              : rsi_image_archive_bytes(image, kept->bytes, kept->len,
                                        (uint64_t)(rsd_box_count(box) * tensor->views.elem_bytes),
                                        start, out, err);
}

/* The tensor that chunk number `chunk` belongs to. */
static size_t tensor_of(const rsi_dcp_meta *meta, size_t chunk)
{
    size_t lo = 0, hi = meta->ntensors;

    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        if (meta->tensor[mid].first <= chunk)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static rsd_err add_chunk(building *b, size_t chunk, rsd_error *err)
{
    size_t                t = tensor_of(b->meta, chunk);
    const rsi_dcp_tensor *of = &b->meta->tensor[t];
    rsi_dcp_row          *row = &b->meta->row[chunk];

    open_row(b, row);
    return rsi_image_chunk(b->image, b->state, t,
                           rsi_dcp_chunk_offset(b->meta, of, chunk - of->first), row, err);
}

/* Adds the file of one rank: values first, then chunks, both in the order of the state. Only a
 * value's writer pickles it: other ranks may hold a different value of a different length. */
static rsd_err add_rank(building *b, int32_t rank, rsd_error *err)
{
    bool    open = false;
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < b->state->nvalues && !rc; i++) {
        if (b->state->value[i].writer != rank)
            continue;
        rc = open_file(b, rank, &open, err);
        if (!rc)
            rc = add_value(b, i, err);
    }
    for (size_t k = b->first[rank - b->least]; k < b->first[rank - b->least + 1] && !rc; k++) {
        rc = open_file(b, rank, &open, err);
        if (!rc)
            rc = add_chunk(b, b->by_rank[k], err);
    }
    return rc;
}

/* True if rank 0 only has to list where the items of other ranks will be. */
static bool lists_all(const building *b)
{
    bool lists = b->image->keep == 0 && !b->image->transform && !b->image->uneven;

    for (size_t i = 0; i < b->state->nvalues; i++)
        lists = lists && b->state->value[i].writer == 0;
    return lists;
}

/* Rank 0's values, then the chunks of all ranks. */
static rsd_err list_all(building *b, rsd_error *err)
{
    rsd_err rc = fill_paths_and_items(b, err);
    bool    open = false;

    b->meta->file = rsi_arena_array(&b->image->mem, 1, sizeof(b->meta->file[0]));
    if (!rc && !b->meta->file)
        rc = no_memory(err);
    for (size_t i = 0; i < b->state->nvalues && !rc; i++) {
        rc = open_file(b, 0, &open, err);
        if (!rc)
            rc = add_value(b, i, err);
    }
    return rc ? rc : rsi_image_dcp_all(b->image, b->state, err);
}

static rsd_err name_transform(building *b, rsd_error *err)
{
    rsi_dcp_transforms *list = rsi_arena_array(&b->image->mem, 1, sizeof(list[0]));
    const char        **name = rsi_arena_array(&b->image->mem, 1, sizeof(name[0]));

    if (!list || !name)
        return no_memory(err);
    name[0] = b->image->transform;
    *list = (rsi_dcp_transforms){ .n = 1, .name = name };
    b->meta->transforms = list;
    b->meta->ntransforms = 1;
    return RSD_OK;
}

rsd_err rsi_image_dcp(rsi_image *image, const rsd_state *state, rsd_error *err)
{
    building b = { .image = image, .state = state, .own = image->keep };
    rsd_err  rc;

    b.meta = image->meta = rsi_arena_array(&image->mem, 1, sizeof(*b.meta));
    if (!b.meta)
        return no_memory(err);
    b.meta->checkpoint_id = "reshard";
    b.meta->version = "1.0.0";
    if (lists_all(&b))
        return list_all(&b, err);
    rc = list_chunks(&b, err);
    if (!rc)
        rc = sort_chunks(&b, err);
    if (!rc)
        rc = fill_paths_and_items(&b, err);
    if (!rc && image->transform)
        rc = name_transform(&b, err);
    if (!rc) {
        b.meta->file =
            rsi_arena_array(&image->mem, (size_t)(b.world - b.least), sizeof(b.meta->file[0]));
        rc = b.meta->file ? RSD_OK : no_memory(err);
    }
    for (int32_t rank = b.least; rank < b.world && !rc; rank++)
        rc = add_rank(&b, rank, err);
    rsi_free(b.by_rank);
    rsi_free(b.first);
    return rc;
}
