/* SPDX-License-Identifier: Apache-2.0 */
/* The chunks of all ranks, for the rank that writes the metadata: their places are pure arithmetic,
 * one tensor at a time, and are kept as packed columns, so that a regular layout takes little
 * memory on any number of ranks. Parts of other ranks are only counted. Next: stored_chunks.c. */
#include "base/mem.h"
#include "write/image.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 32, SKEWS = 64, COLUMNS = RSI_DCP_BOX + 2 * RSD_MAX_NDIM };

typedef struct listing {
    rsi_image       *image;
    const rsd_state *state;
    rsi_stored_list  chunks; /* of one tensor */
    int64_t         *value;  /* [COLUMNS][cap] their columns */
    size_t           cap;    /* chunks for which `value` has room */
    uint64_t        *bytes;  /* [world] of each rank's file so far */
    size_t           world, world_cap;
    rsd_box          last;        /* the box of which `size` holds the item's bytes */
    uint64_t         size[SKEWS]; /* by the place where it starts; 0: unknown */
} listing;

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the chunks of all ranks");
}

static rsd_err make_room(listing *l, rsd_error *err)
{
    size_t top = 0;

    if (l->chunks.n > l->cap) {
        rsi_free(l->value);
        l->cap = 0;
        l->value = rsi_calloc(l->chunks.n, COLUMNS * sizeof(l->value[0]));
        if (!l->value)
            return no_memory(err);
        l->cap = l->chunks.n;
    }
    for (size_t i = 0; i < l->chunks.n; i++)
        top = (size_t)l->chunks.at[i].rank >= top ? (size_t)l->chunks.at[i].rank + 1 : top;
    for (; l->world < top; l->world++) {
        if (!rsi_grow(&l->bytes, l->world, &l->world_cap, sizeof(l->bytes[0])))
            return no_memory(err);
        l->bytes[l->world] = l->world == 0 && l->image->nfiles ? l->image->file[0].bytes : 0;
    }
    return RSD_OK;
}

/* Neighbours mostly have the same size, and so do their items if they start alike. */
static rsd_err count_chunk(listing *l, size_t t, const rsi_stored *chunk, rsd_error *err)
{
    const size_t lens = (size_t)chunk->box.ndim * sizeof(chunk->box.len[0]);
    uint64_t    *at = &l->bytes[chunk->rank];
    uint64_t    *size = &l->size[*at % SKEWS];
    rsd_err      rc = RSD_OK;

    if (l->last.ndim != chunk->box.ndim || memcmp(l->last.len, chunk->box.len, lens) != 0) {
        l->last = chunk->box;
        memset(l->size, 0, sizeof(l->size));
    }
    if (*size == 0)
        rc = rsi_image_chunk_bytes(l->image, l->state, t, &chunk->box, *at, size, err);
    *at += *size;
    return rc;
}

/* A chunk of this rank becomes an item of the open file. */
static rsd_err keep_chunk(listing *l, size_t t, const rsd_box *box, rsd_error *err)
{
    const int64_t *kept = rsi_image_box(l->image, box);
    rsd_err        rc = kept ? RSD_OK : no_memory(err);

    if (!rc && l->image->nfiles == 0)
        rc = rsi_image_file(l->image, "__0_0.distcp", 0, err);
    if (!rc)
        rc = rsi_image_chunk(l->image, l->state, t, kept, NULL, err);
    if (!rc)
        l->bytes[0] = l->image->file[0].bytes;
    return rc;
}

static rsd_err place_chunks(listing *l, size_t t, rsd_error *err)
{
    const int ndim = l->state->tensor[t].ndim;
    rsd_err   rc = make_room(l, err);

    l->last.ndim = -1;
    for (size_t i = 0; i < l->chunks.n && !rc; i++) {
        const rsi_stored *chunk = &l->chunks.at[i];
        const uint64_t    at = l->bytes[chunk->rank];
        int64_t          *value = l->value + i;

        rc = chunk->rank == 0 ? keep_chunk(l, t, &chunk->box, err) : count_chunk(l, t, chunk, err);
        value[RSI_DCP_FILE * l->cap] = chunk->rank;
        value[RSI_DCP_TRANSFORMS * l->cap] = RSI_DCP_NO_TRANSFORMS;
        value[RSI_DCP_OFFSET * l->cap] = (int64_t)at;
        value[RSI_DCP_LENGTH * l->cap] = (int64_t)(l->bytes[chunk->rank] - at);
        for (int d = 0; d < ndim; d++) {
            value[(size_t)(RSI_DCP_BOX + d) * l->cap] = chunk->box.off[d];
            value[(size_t)(RSI_DCP_BOX + ndim + d) * l->cap] = chunk->box.len[d];
        }
    }
    return rc;
}

static rsd_err add_tensor(listing *l, size_t t, rsd_error *err)
{
    const rsi_state_tensor *from = &l->state->tensor[t];
    rsi_dcp_meta           *meta = l->image->meta;
    rsd_err                 rc = rsi_stored_chunks(l->state, t, true, 0, &l->chunks, err);

    if (!rc)
        rc = place_chunks(l, t, err);
    if (rc)
        return rc;
    meta->tensor[t] = (rsi_dcp_tensor){ .name = from->spot.name,
                                        .shape = from->shape,
                                        .first = meta->nchunks,
                                        .nchunks = l->chunks.n,
                                        .dtype = from->dtype,
                                        .ndim = from->ndim };
    meta->nchunks += l->chunks.n;
    for (int c = 0; c < RSI_DCP_BOX + 2 * from->ndim; c++)
        if (!rsi_packed_add(l->value + (size_t)c * l->cap, l->chunks.n, &l->image->packed))
            return no_memory(err);
    return RSD_OK;
}

/* The packed bytes no longer move: lets the tensors point to them. */
static rsd_err set_columns(rsi_image *image, rsd_error *err)
{
    rsi_reader in = { .at = image->packed.at, .end = image->packed.at + image->packed.len };

    for (size_t t = 0; t < image->meta->ntensors; t++) {
        rsi_dcp_tensor *tensor = &image->meta->tensor[t];
        const size_t    n = RSI_DCP_BOX + 2 * (size_t)tensor->ndim;
        rsi_packed     *column = rsi_arena_array(&image->mem, n, sizeof(column[0]));

        if (!column)
            return no_memory(err);
        for (size_t c = 0; c < n; c++)
            if (!rsi_packed_take(&in, tensor->nchunks, &column[c]))
                return rsi_fail(err, RSD_E_BUG, "columns of \"%s\" can't be read", tensor->name);
        tensor->column = column;
    }
    return RSD_OK;
}

/* Rows name a file by its rank; ranks without a chunk have none. */
static rsd_err name_files(listing *l, rsd_error *err)
{
    rsi_dcp_meta *meta = l->image->meta;
    rsd_err       rc = RSD_OK;

    meta->file = rsi_arena_array(&l->image->mem, l->world + 1, sizeof(meta->file[0]));
    if (!meta->file)
        return no_memory(err);
    meta->nfiles = l->world > 0 ? l->world : l->image->nfiles;
    for (size_t r = 0; r < meta->nfiles && !rc; r++) {
        char *name = rsi_arena_array(&l->image->mem, NAME, 1);

        if (!name)
            return no_memory(err);
        snprintf(name, NAME, "__%zu_0.distcp", r);
        meta->file[r] = name;
        if (r == 0 || l->bytes[r] == 0)
            continue;
        rc = rsi_image_file(l->image, name, (int32_t)r, err);
        if (!rc)
            l->image->file[l->image->nfiles - 1].bytes = l->bytes[r];
    }
    return rc;
}

rsd_err rsi_image_dcp_all(rsi_image *image, const rsd_state *state, rsd_error *err)
{
    listing       l = { .image = image, .state = state };
    rsi_dcp_meta *meta = image->meta;
    rsd_err       rc = RSD_OK;

    meta->ntensors = state->ntensors;
    meta->tensor = rsi_arena_array(&image->mem, meta->ntensors, sizeof(meta->tensor[0]));
    if (!meta->tensor)
        return no_memory(err);
    for (size_t t = 0; t < meta->ntensors && !rc; t++)
        rc = add_tensor(&l, t, err);
    if (!rc)
        rc = name_files(&l, err);
    if (!rc)
        rc = set_columns(image, err);
    rsi_free(l.chunks.at);
    rsi_free(l.value);
    rsi_free(l.bytes);
    return rc;
}
