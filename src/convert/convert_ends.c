/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a tensor whose rows are columns of the source end between rows, since each range that
 * is pulled takes a piece of every row of the source. Where a tensor's bytes are those of a chunk
 * with checksums, blocks end where its rows of checksums do: one thread then reads a row in order,
 * and hashes it on the way. convert_blocks.c asks. */
#include "convert/convert_ends.h"
#include "base/checked.h"
#include "base/mem.h"
#include "shape/box.h"

enum { FEW = 256 }; /* chunks of a tensor that are searched for each block */

rsd_err rsi_convert_ends_make(rsi_convert_ends *out, const rsi_convert_state *taken, bool verify,
                              rsd_error *err)
{
    bool any = false;

    *out = (rsi_convert_ends){ .taken = taken, .verify = verify && !taken->made };
    if (!taken->made)
        return RSD_OK;
    out->turned = rsi_calloc(taken->state->ntensors + 1, sizeof(out->turned[0]));
    if (!out->turned)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu tensors", taken->state->ntensors);
    for (size_t i = 0; i < taken->n; i++) {
        out->turned[i] = rsi_made_turns(taken->made, taken->from[i].t);
        any = any || out->turned[i];
    }
    if (!any) {
        rsi_free(out->turned);
        out->turned = NULL;
    }
    return RSD_OK;
}

/* True if the rows of `box` from index i0 on are in this chunk, and whole. */
static bool has_rows(const rsd_box *chunk, const rsd_box *box, int64_t i0)
{
    if (i0 < chunk->off[0] || i0 >= chunk->off[0] + chunk->len[0])
        return false;
    for (int d = 1; d < box->ndim; d++)
        if (chunk->off[d] != box->off[d] || chunk->len[d] != box->len[d])
            return false;
    return true;
}

/* Locates chunk i of tensor t. */
static void learn(rsi_convert_ends *e, size_t t, size_t i, const rsd_chunk *chunk, uint32_t file,
                  int64_t elem)
{
    rsd_ckpt  *source = e->taken->source;
    rsi_extent extent = { 0 };
    int64_t    packed[RSD_MAX_NDIM];

    e->t = t, e->i = i, e->file = file, e->box = chunk->box;
    e->known = true;
    e->straight = chunk->ntransforms == 0 &&
                  source->ops->locate(source, t, i, false, &extent, NULL) == RSD_OK;
    if (!e->straight)
        return; /* the reader will say why */
    e->at = extent.offset;
    rsi_strides(e->box.ndim, e->box.len, elem, packed);
    for (int d = 0; d < e->box.ndim; d++)
        e->straight = e->straight && (e->box.len[d] == 1 || extent.stride[d] == packed[d]);
}

/* The chunk of tensor t with the rows from i0 on is in *e; false: there is none. */
static bool find_chunk(rsi_convert_ends *e, size_t t, const rsd_box *box, int64_t i0, int64_t elem)
{
    rsd_ckpt       *source = e->taken->source;
    rsd_tensor_info info;

    if (e->known && e->t == t && has_rows(&e->box, box, i0))
        return e->straight;
    source->ops->tensor(source, t, &info);
    for (size_t i = 0; i < info.chunks && info.chunks <= FEW; i++) {
        rsd_chunk chunk;
        uint32_t  file;

        source->ops->chunk(source, t, i, &chunk, &file);
        if (has_rows(&chunk.box, box, i0)) {
            learn(e, t, i, &chunk, file, elem);
            return e->straight;
        }
    }
    return false;
}

/* Bytes from `done` on up to the end of a row of the source's checksums. */
static uint64_t to_row_end(rsi_convert_ends *e, const rsi_out_part *part, const rsd_box *box,
                           uint64_t done, uint64_t fits)
{
    const rsi_pulled  *from = &e->taken->from[part->tensor];
    const uint64_t     row_bytes = part->len / (uint64_t)box->len[0];
    const int64_t      elem = (int64_t)rsd_dtype_size(from->dtype);
    const rsi_sum_row *row;
    rsd_tensor_info    info;
    uint64_t           at, left;
    int64_t            first;
    size_t             n = 0;

    e->taken->source->ops->tensor(e->taken->source, from->t, &info);
    if (info.dtype != from->dtype || row_bytes == 0 ||
        !find_chunk(e, from->t, box, box->off[0] + (int64_t)(done / row_bytes), elem))
        return fits;
    first = (e->box.off[0] - box->off[0]) * (int64_t)row_bytes; /* of the chunk, in the part */
    at = e->at + (uint64_t)((int64_t)done - first);
    left = (uint64_t)(first + e->box.len[0] * (int64_t)row_bytes) - done;
    if (rsi_ckpt_sums_rows(&e->taken->source->sums, e->file, at, 1, &row, &n, NULL) || n == 0)
        return fits;
    left = row->off + row->len - at < left ? row->off + row->len - at : left;
    return left < fits ? left : fits;
}

uint64_t rsi_convert_end(void *arg, const rsi_out_part *part, uint64_t done, uint64_t fits)
{
    rsi_convert_ends *e = arg;
    const rsd_box     box = rsi_part_box(e->taken->state, part);
    uint64_t          row, rest;

    if (part->tensor >= e->taken->n || box.ndim == 0 || box.len[0] == 0)
        return fits;
    if (e->verify)
        return to_row_end(e, part, &box, done, fits);
    if (!e->turned || !e->turned[part->tensor])
        return fits;
    row = part->len / (uint64_t)box.len[0];
    rest = row ? (done + fits) % row : 0;
    return rest < fits ? fits - rest : fits;
}
