/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the wanted part of a chunk, in jobs for threads. A region (region.c) says which blocks;
 * each block is one job, read straight into the caller's memory if the layouts match, else into a
 * buffer and copied from there. The CRC32 of a record that is read whole, or in parts by a
 * conversion, is computed on the way; otherwise direct reads are cut at the rows of the checksum
 * file, and whole rows are checked.
 * Next: fetch.c. */
#include "base/crc32.h"
#include "base/mem.h"
#include "read/fetch_core.h"
#include "read/stored_form.h"
#include "shape/box.h"
#include "view/views.h"

#include <string.h>

#define BLOCK ((size_t)4 << 20)   /* bytes per read */
#define NEAR  ((size_t)512 << 10) /* the same for a taker, which touches the bytes again */

rsd_err rsi_fetch_pool(size_t staging, rsi_pool **out, rsd_error *err)
{
    staging = staging ? staging : (size_t)64 << 20;
    return rsi_pool_create(staging < 2 * BLOCK ? 2 * BLOCK : staging, 2 * BLOCK, out, err);
}

static uint64_t region_bytes(const rsi_fetching *f)
{
    return (uint64_t)(rsd_box_count(&f->region.box) * f->region.elem_bytes);
}

/* Where job i stores its CRC; NULL: not wanted. */
static uint32_t *crc_of(const rsi_fetching *f, size_t i)
{
    return f->crc ? &f->crc[i] : NULL;
}

/* Bytes [at, at + len) of the file or, if the item was transformed, of its decoded bytes. */
static rsd_err read_bytes(const rsi_fetching *f, uint64_t at, size_t len, uint32_t *crc,
                          rsi_hash128_stream *hash, void *to, rsd_error *err)
{
    rsi_steps steps = { .file = f->ckpt->files.file[f->file],
                        .decoded = f->extent.decoded,
                        .crc = crc,
                        .hash = hash,
                        .keep = true };

    return rsi_steps_read(&steps, at, len, to, err);
}

/* ---- block by block ---- */

/* Reads every run of a block to the place that the strides `to` give it. */
static rsd_err read_runs(const rsi_fetching *f, const rsi_block *block, unsigned char *to,
                         const int64_t *to_stride, rsd_error *err)
{
    const rsi_region *r = &f->region;
    int64_t           at[RSD_MAX_NDIM] = { 0 }, run = r->elem_bytes;
    uint64_t          from = block->at;
    int               n = block->box.ndim;

    while (n > 0 && (r->file_stride[n - 1] == run || block->box.len[n - 1] == 1))
        run *= block->box.len[--n];
    for (;;) {
        rsd_err rc = read_bytes(f, from, (size_t)run, NULL, NULL, to, err);
        int     d = n - 1;

        if (rc)
            return rc;
        for (; d >= 0 && ++at[d] == block->box.len[d]; d--) {
            from -= (uint64_t)((block->box.len[d] - 1) * r->file_stride[d]);
            to -= (block->box.len[d] - 1) * to_stride[d];
            at[d] = 0;
        }
        if (d < 0)
            return RSD_OK;
        from += (uint64_t)r->file_stride[d];
        to += to_stride[d];
    }
}

/* True if runs that are contiguous in the file are contiguous in the caller's memory too. */
static bool runs_fit(const rsi_fetching *f, const rsd_box *box)
{
    const rsi_region *r = &f->region;
    int64_t           run = r->elem_bytes;

    if (!f->to.data || rsi_stored_otherwise(&f->extent))
        return false;
    for (int k = box->ndim - 1; k >= 0; k--) {
        if (box->len[k] > 1 && r->file_stride[k] != run)
            return true;
        if (box->len[k] > 1 && f->to.stride[k] != run)
            return false;
        run *= box->len[k];
    }
    return true;
}

/* Reads from the block's first to its last byte into the second half of `buf`, then drops the bytes
 * in between that are not wanted. */
static rsd_err sift(const rsi_fetching *f, const rsi_block *block, unsigned char *buf,
                    rsd_error *err)
{
    unsigned char *all = buf + BLOCK;
    rsi_loops      loops;
    rsd_err        rc = read_bytes(f, block->at, (size_t)block->span, NULL, NULL, all, err);

    if (rc)
        return rc;
    rsi_loops_make(&loops, block->box.ndim, block->box.len, f->region.elem_bytes, NULL,
                   f->region.file_stride);
    rsi_copy(&loops, buf, all);
    return RSD_OK;
}

/* `packed` holds the block with its dimensions in file order; `spare` has room for it in the
 * tensor's order. */
static rsd_err give(const rsi_fetching *f, const rsi_block *block, const unsigned char *packed,
                    unsigned char *spare, rsd_error *err)
{
    const rsi_region *r = &f->region;
    int64_t           by_file[RSD_MAX_NDIM], by_dim[RSD_MAX_NDIM];
    bool              same = true;
    rsd_box           box;
    rsi_loops         loops;

    rsi_region_box(r, &block->box, &box);
    rsi_strides(box.ndim, block->box.len, r->elem_bytes, by_file);
    for (int k = 0; k < box.ndim; k++) {
        by_dim[r->dim[k]] = by_file[k];
        same = same && r->dim[k] == k;
    }
    if (!same) {
        rsi_loops_make(&loops, box.ndim, box.len, r->elem_bytes, NULL, by_dim);
        rsi_copy(&loops, spare, packed);
        packed = spare;
    }
    if (f->tools->taker)
        return f->tools->taker->take(f->tools->taker->arg, &box, packed, err);
    return rsi_view_put(f->into, &box, r->elem_bytes, packed, err);
}

/* Packs the block into the first half of `buf`, converts it to memory form and delivers it. */
static rsd_err through_buffer(const rsi_fetching *f, size_t i, const rsi_block *block,
                              unsigned char *buf, rsd_error *err)
{
    const rsi_region *r = &f->region;
    int64_t           packed[RSD_MAX_NDIM];
    rsd_err           rc;

    rsi_strides(block->box.ndim, block->box.len, r->elem_bytes, packed);
    if (block->span == block->bytes)
        rc = read_bytes(f, block->at, (size_t)block->bytes, crc_of(f, i), NULL, buf, err);
    else if (!r->near)
        rc = read_runs(f, block, buf, packed, err);
    else
        rc = sift(f, block, buf, err);
    if (rc)
        return rc;
    if (rsi_stored_otherwise(&f->extent))
        rc = rsi_stored_to_memory(&f->extent, f->info.dtype, buf, (size_t)block->bytes, err);
    if (rc)
        return rc;
    if (!f->to.data)
        return give(f, block, buf, buf + BLOCK, err);
    rsi_unpack(&block->box, r->elem_bytes, &f->to, buf);
    return RSD_OK;
}

static rsd_err read_block(void *arg, size_t i, rsd_error *err)
{
    rsi_fetching  *f = arg;
    unsigned char *to;
    void          *buf;
    rsi_block      block;
    rsd_err        rc;

    rsi_region_block(&f->region, (int64_t)i, &block);
    if (runs_fit(f, &block.box) && (block.span == block.bytes || !f->region.near)) {
        to = f->to.data + rsi_box_offset(&block.box, &f->to.box, f->to.stride);
        return block.span == block.bytes
                   ? read_bytes(f, block.at, (size_t)block.bytes, crc_of(f, i), NULL, to, err)
                   : read_runs(f, &block, to, f->to.stride, err);
    }
    rc = rsi_pool_get(f->tools->pool, &buf, err);
    if (rc)
        return rc;
    rc = through_buffer(f, i, &block, buf, err);
    rsi_pool_put(f->tools->pool, buf);
    return rc;
}

/* ---- row by row ---- */

bool rsi_fetch_row_part(const rsi_fetching *f, size_t i, uint64_t *at, size_t *bytes)
{
    const rsi_sum_row *row = &f->row[i];
    uint64_t           start = f->region.start;
    uint64_t           end = start + region_bytes(f);

    *at = row->off > start ? row->off : start;
    *bytes = (size_t)((row->off + row->len < end ? row->off + row->len : end) - *at);
    return *bytes == row->len;
}

/* Gives the taker elements that are contiguous in the file and in the tensor's order. */
static rsd_err take_range(void *arg, uint64_t at, const void *bytes, size_t len, rsd_error *err)
{
    const rsi_fetching  *f = arg;
    const rsi_region    *r = &f->region;
    const unsigned char *from = bytes;
    int64_t              next = (int64_t)(at - r->start) / r->elem_bytes;
    int64_t              end = next + (int64_t)len / r->elem_bytes;
    rsd_err              rc = RSD_OK;

    while (next < end && !rc) {
        rsd_box box;
        int64_t n = rsi_range_box(r->box.ndim, r->box.len, next, end, &box);

        for (int d = 0; d < box.ndim; d++)
            box.off[d] += r->box.off[d];
        rc = f->tools->taker->take(f->tools->taker->arg, &box, from, err);
        from += n * r->elem_bytes;
        next += n;
    }
    return rc;
}

/* Where the bytes of row i are hashed, if they are: a row that is read whole at once, or in parts
 * that come in order. */
static rsd_err find_hash(const rsi_fetching *f, size_t i, rsi_hash128_stream **hash,
                         rsi_row_stream **stream, rsd_error *err)
{
    uint64_t at;
    size_t   bytes;

    *stream = NULL;
    if (rsi_fetch_row_part(f, i, &at, &bytes)) {
        *hash = rsi_hash128_create();
        return *hash ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a checksum");
    }
    if (!f->tools->streams || f->verify != RSD_ALWAYS)
        return RSD_OK;
    return rsi_row_stream_take(f->tools->streams, f->tools->extents, f->t, f->file, &f->row[i], at,
                               stream, hash, err);
}

/* A job: `arg` is the rsi_fetching. A row that is read whole is compared with its hash. */
static rsd_err read_row(void *arg, size_t i, rsd_error *err)
{
    rsi_fetching *f = arg;
    rsi_steps steps = { .file = f->ckpt->files.file[f->file], .crc = crc_of(f, i), .keep = true };
    void     *to = f->to.data, *buf = NULL;
    rsi_row_stream *stream;
    uint64_t        at;
    size_t          bytes;
    rsd_err         rc = find_hash(f, i, &steps.hash, &stream, err);

    if (rc)
        return rc;
    rsi_fetch_row_part(f, i, &at, &bytes);
    if (f->tools->taker) {
        steps.keep = false;
        steps.see = take_range;
        steps.arg = f;
        rc = rsi_pool_get(f->tools->pool, &buf, err);
        to = buf;
    } else {
        to = f->to.data + rsi_box_offset(&f->region.box, &f->to.box, f->to.stride) +
             (at - f->region.start);
    }
    if (!rc)
        rc = rsi_steps_read(&steps, at, bytes, to, err);
    if (buf)
        rsi_pool_put(f->tools->pool, buf);
    if (stream) {
        rsd_err put = rsi_row_stream_put(f->tools->streams, stream, at + bytes, rc != RSD_OK, err);

        return rc ? rc : put;
    }
    if (!rc && steps.hash)
        rc = rsi_check_hash(&f->row[i], steps.hash, err);
    rsi_hash128_free(steps.hash);
    return rc;
}

/* Sets `row` if the wanted bytes are contiguous in the file and have the same layout in the
 * caller's memory or for the taker. */
static rsd_err find_rows(rsi_fetching *f, rsd_error *err)
{
    const rsi_region *r = &f->region;
    bool              straight = (uint64_t)r->run == region_bytes(f) && !f->extent.decoded &&
                    (f->tools->taker ? !rsi_stored_otherwise(&f->extent) : runs_fit(f, &r->box));
    rsd_err rc;

    for (int k = 0; k < r->box.ndim && f->tools->taker; k++)
        straight = straight && r->dim[k] == k;
    if (!straight)
        return RSD_OK;
    rc = rsi_ckpt_sums_rows(&f->ckpt->sums, f->file, r->start, region_bytes(f), &f->row, &f->nrows,
                            err);
    for (size_t i = 0; i < f->nrows && f->tools->taker && f->row; i++)
        if (f->row[i].off > r->start && (f->row[i].off - r->start) % (uint64_t)r->elem_bytes)
            f->row = NULL; /* a taker gets whole elements only */
    return rc;
}

/* ---- all jobs ---- */

/* Blocks or rows that are contiguous in the file are consecutive, so their CRCs combine. */
static uint32_t combine_crcs(const rsi_fetching *f, size_t njobs)
{
    uint32_t crc = f->crc[0];

    for (size_t i = 1; i < njobs; i++) {
        rsi_block block;
        uint64_t  at;
        size_t    bytes;

        if (f->row) {
            rsi_fetch_row_part(f, i, &at, &bytes);
        } else {
            rsi_region_block(&f->region, (int64_t)i, &block);
            bytes = (size_t)block.bytes;
        }
        crc = rsi_crc32_combine(crc, f->crc[i], bytes);
    }
    return crc;
}

/* What is done with the CRC32 of the wanted bytes. */
typedef enum crc_use { CRC_UNUSED = 0, CRC_COMPARED, CRC_ADDED } crc_use;

static rsd_err choose_crc(const rsi_fetching *f, crc_use *out, rsd_error *err)
{
    const rsi_extent *x = &f->extent;
    bool              wanted = false;
    rsd_err           rc = RSD_OK;

    *out = CRC_UNUSED;
    if (!x->has_crc || x->decoded || f->verify == RSD_NEVER ||
        (uint64_t)f->region.run != region_bytes(f))
        return RSD_OK;
    if (f->region.start == x->record && region_bytes(f) == x->record_bytes)
        *out = CRC_COMPARED;
    else if (f->tools->records && !(f->rows && f->ckpt->sums.place[f->file] != SIZE_MAX))
        rc = rsi_record_crcs_want(f->tools->records, f->tools->extents, f->t, f->file, x, &wanted,
                                  err);
    if (wanted)
        *out = CRC_ADDED;
    return rc;
}

static rsd_err use_crc(const rsi_fetching *f, crc_use use, uint32_t crc, rsd_error *err)
{
    const rsi_extent *x = &f->extent;

    if (use == CRC_ADDED)
        return rsi_record_crcs_add(f->tools->records, f->file, x, f->region.start, region_bytes(f),
                                   crc, err);
    return crc == x->crc32 ? RSD_OK : rsi_check_crc_differs(x->record, crc, x->crc32, err);
}

rsd_err rsi_fetch_box(rsi_fetching *f, const rsd_box *box, bool *checked, rsd_error *err)
{
    const int64_t elem = (int64_t)rsd_dtype_size(f->info.dtype);
    int64_t       stride[RSD_MAX_NDIM];
    bool          packed = true;
    crc_use       use;
    size_t        njobs;
    rsd_err       rc;

    rsi_region_make(&f->region, box, &f->chunk.box, elem, f->extent.offset, f->extent.stride,
                    (int64_t)(f->tools->taker ? NEAR : BLOCK));
    for (int d = 0; d < box->ndim; d++)
        packed = packed && f->into->stride[d] == 0;
    memcpy(stride, f->into->stride, sizeof(stride));
    if (packed)
        rsi_strides(box->ndim, f->into->box.len, elem, stride);
    f->to = (rsi_area){ .box.ndim = box->ndim, .data = f->into->data };
    rsi_region_order(&f->region, f->into->box.off, f->to.box.off);
    rsi_region_order(&f->region, f->into->box.len, f->to.box.len);
    rsi_region_order(&f->region, stride, f->to.stride);

    rc = choose_crc(f, &use, err);
    f->row = NULL;
    if (!rc && f->rows && (!use || f->verify == RSD_ALWAYS))
        rc = find_rows(f, err);
    if (rc)
        return rc;
    njobs = f->row ? f->nrows : (size_t)f->region.nblocks;
    f->crc = use ? rsi_calloc(njobs, sizeof(f->crc[0])) : NULL;
    if (use && !f->crc)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu checksums", njobs);
    /* Bytes are decoded in order. */
    rc = rsi_workers_run(f->extent.decoded ? NULL : f->tools->workers, njobs,
                         f->row ? read_row : read_block, f, err);
    if (!rc && use)
        rc = use_crc(f, use, combine_crcs(f, njobs), err);
    rsi_free(f->crc);
    *checked = use != CRC_UNUSED;
    return rc;
}
