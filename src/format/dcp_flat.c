/* SPDX-License-Identifier: Apache-2.0 */
/* Puts optimizer states of Megatron-Core back into their true shapes. A tensor [X, Y] that was cut
 * into blocks [x, y] is stored as [X / x, Y / y, x * y], its chunks as ranges of a flattened block.
 * Each range becomes a few boxes of the true tensor. Called when the stored chunks are known to
 * tile the stored shape, so the boxes tile the true one. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/dcp.h"
#include "shape/box.h"

#include <string.h>

/* The sizes of the blocks. */
static void block_of(const rsi_dcp_tensor *t, int64_t *block)
{
    for (int d = 0; d < t->ndim - 1; d++)
        block[d] = t->whole[d] / t->shape[d];
}

/* The box of a chunk's elements from `first` on; returns how many it has. */
static int64_t box_of(const rsi_dcp *dcp, const rsi_dcp_tensor *t, const rsi_dcp_piece *piece,
                      rsd_box *out)
{
    const int64_t *off = rsi_dcp_chunk_offset(dcp->meta, t, piece->chunk);
    const int64_t *len = rsi_dcp_chunk_size(dcp->meta, t, piece->chunk);
    const int      n = t->ndim - 1;
    int64_t        block[RSD_MAX_NDIM] = { 0 }, elems;

    block_of(t, block);
    elems = rsi_range_box(n, block, off[n] + piece->first, off[n] + len[n], out);
    for (int d = 0; d < n; d++)
        out->off[d] += off[d] * block[d];
    return elems;
}

void rsi_dcp_piece_box(const rsi_dcp *dcp, const rsi_dcp_tensor *t, const rsi_dcp_piece *piece,
                       rsd_box *out)
{
    box_of(dcp, t, piece, out);
}

/* Adds the pieces of stored chunk i. */
static rsd_err add_chunk(rsi_dcp *dcp, const rsi_dcp_tensor *t, size_t i, rsd_error *err)
{
    const int64_t *len = rsi_dcp_chunk_size(dcp->meta, t, i);
    const int      n = t->ndim - 1;
    rsi_dcp_piece  piece = { .chunk = (uint32_t)i };
    rsd_box        box;

    for (int d = 0; d < n; d++) {
        if (len[d] == 0)
            return RSD_OK;
        if (len[d] > 1)
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "tensor \"%s\": a chunk of several of Megatron's blocks", t->name);
    }
    while (piece.first < len[n]) {
        if (!rsi_grow(&dcp->piece, dcp->npieces, &dcp->piece_cap, sizeof(dcp->piece[0])))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the pieces of a tensor");
        dcp->piece[dcp->npieces++] = piece;
        piece.first += box_of(dcp, t, &piece, &box);
    }
    return RSD_OK;
}

rsd_err rsi_dcp_unflatten(rsi_dcp *dcp, rsi_arena *mem, rsd_error *err)
{
    const rsi_dcp_meta *meta = dcp->meta;
    size_t              n = 0;
    rsd_err             rc = RSD_OK;

    for (size_t t = 0; t < meta->ntensors; t++)
        n += meta->tensor[t].whole != NULL;
    if (n == 0)
        return RSD_OK;
    dcp->first_piece = rsi_arena_array(mem, meta->ntensors + 1, sizeof(dcp->first_piece[0]));
    if (!dcp->first_piece)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu tensors", meta->ntensors);
    for (size_t t = 0; t < meta->ntensors && !rc; t++) {
        for (size_t i = 0; meta->tensor[t].whole && i < meta->tensor[t].nchunks && !rc; i++)
            rc = add_chunk(dcp, &meta->tensor[t], i, err);
        dcp->first_piece[t + 1] = dcp->npieces;
    }
    return rc;
}

const rsi_dcp_piece *rsi_dcp_piece_of(const rsi_dcp *dcp, size_t t, size_t i)
{
    return dcp->meta->tensor[t].whole ? &dcp->piece[dcp->first_piece[t] + i] : NULL;
}

/* `extent` is that of the stored chunk, which must be dense. */
rsd_err rsi_dcp_piece_extent(const rsi_dcp_tensor *t, const rsi_dcp_piece *piece,
                             rsi_extent *extent, rsd_error *err)
{
    const int64_t bytes = (int64_t)rsd_dtype_size(t->dtype);
    const int     n = t->ndim - 1;
    int64_t       block[RSD_MAX_NDIM] = { 0 };

    if (extent->stride[n] != bytes)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "a flattened block with gaps between its elements");
    block_of(t, block);
    extent->offset += (uint64_t)(piece->first * bytes);
    rsi_strides(n, block, bytes, extent->stride);
    return RSD_OK;
}
