/* SPDX-License-Identifier: Apache-2.0 */
/* Reads boxes out of chunks. A region (region.c) says which blocks; each block is one job: read
 * straight into the caller's memory where it lies there as it does in the file, else into a buffer
 * and from there to its place. The CRC32 of a record that is read whole is checked on the way;
 * where there is none, blocks that go straight are cut where the rows of the side file are, and
 * those checked (fetch_rows.c). */
#include "read/fetch.h"
#include "base/checked.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "read/fetch_core.h"
#include "view/views.h"
#include "shape/box.h"

#include <inttypes.h>
#include <string.h>

#define BLOCK          ((size_t)4 << 20)   /* bytes that are read at once */
#define NEAR           ((size_t)512 << 10) /* the same for a taker, who touches them again */
#define PARALLEL_BYTES ((int64_t)8 << 20)  /* from here on threads are worth their start */

/* ---- block by block ---- */

/* Reads every run of a block to the place where the strides `to` put it. */
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
        rsd_err rc = rsi_fetch_bytes(f, from, to, (size_t)run, err);
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

/* True if what lies together in the file lies together in the caller's memory too. */
static bool runs_fit(const rsi_fetching *f, const rsi_block *block)
{
    const rsi_region *r = &f->region;
    int64_t           run = r->elem_bytes;

    if (!f->to.data || rsi_fix_any(&f->fix))
        return false;
    for (int k = block->box.ndim - 1; k >= 0; k--) {
        if (block->box.len[k] > 1 && r->file_stride[k] != run)
            return true;
        if (block->box.len[k] > 1 && f->to.stride[k] != run)
            return false;
        run *= block->box.len[k];
    }
    return true;
}

/* Reads from the first to the last byte into the second half of `buf` and squeezes out what lies
 * between. */
static rsd_err sift(const rsi_fetching *f, const rsi_block *block, unsigned char *buf,
                    rsd_error *err)
{
    unsigned char *all = buf + BLOCK;
    rsi_loops      loops;
    rsd_err        rc = rsi_fetch_bytes(f, block->at, all, (size_t)block->span, err);

    if (rc)
        return rc;
    rsi_loops_make(&loops, block->box.ndim, block->box.len, f->region.elem_bytes, NULL,
                   f->region.file_stride);
    rsi_copy(&loops, buf, all);
    return RSD_OK;
}

/* `packed` has the block with the dimensions in file order; `spare` has room for it in the tensor's
 * order. */
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
    if (f->taker)
        return f->taker->take(f->taker->arg, &box, packed, err);
    return rsi_view_put(f->view, &box, r->elem_bytes, packed, err);
}

/* Packed into the first half of `buf`, put right, brought to its place. */
static rsd_err through_buffer(const rsi_fetching *f, int64_t i, const rsi_block *block,
                              unsigned char *buf, rsd_error *err)
{
    const rsi_region *r = &f->region;
    int64_t           packed[RSD_MAX_NDIM];
    rsd_err           rc;

    rsi_strides(block->box.ndim, block->box.len, r->elem_bytes, packed);
    if (block->span == block->bytes)
        rc = rsi_fetch_dense(f, block->at, (size_t)block->bytes, (size_t)i, NULL, buf, err);
    else if (!r->near)
        rc = read_runs(f, block, buf, packed, err);
    else
        rc = sift(f, block, buf, err);
    if (rc)
        return rc;
    if (rsi_fix_any(&f->fix))
        rc = rsi_fix_elements(&f->fix, f->dtype, buf, (size_t)block->bytes, err);
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
    if (runs_fit(f, &block) && (block.span == block.bytes || !f->region.near)) {
        to = f->to.data + rsi_box_offset(&block.box, &f->to.box, f->to.stride);
        return block.span == block.bytes
                   ? rsi_fetch_dense(f, block.at, (size_t)block.bytes, i, NULL, to, err)
                   : read_runs(f, &block, to, f->to.stride, err);
    }
    rc = rsi_pool_get(f->pool, &buf, err);
    if (rc)
        return rc;
    rc = through_buffer(f, (int64_t)i, &block, buf, err);
    rsi_pool_put(f->pool, buf);
    return rc;
}

/* Blocks or rows of a record that is read whole come one after the other, so their CRCs add up to
 * its own. */
static rsd_err compare_crc(const rsi_fetching *f, size_t njobs, rsd_error *err)
{
    uint32_t crc = 0;

    for (size_t i = 0; i < njobs; i++) {
        rsi_block block;
        uint64_t  at;
        size_t    bytes;

        if (f->row) {
            rsi_fetch_row_part(f, i, &at, &bytes);
        } else {
            rsi_region_block(&f->region, (int64_t)i, &block);
            bytes = (size_t)block.bytes;
        }
        crc = i ? rsi_crc32_combine(crc, f->crc[i], bytes) : f->crc[0];
    }
    return crc == f->extent.crc32
               ? RSD_OK
               : rsi_proof_crc_differs(f->extent.record, crc, f->extent.crc32, err);
}

/* *checked: the whole record was read and its CRC compared. */
static rsd_err run_jobs(rsi_fetching *f, rsi_workers *workers, bool rows, rsd_choice verify,
                        bool *checked, rsd_error *err)
{
    int64_t bytes = rsd_box_count(&f->region.box) * f->region.elem_bytes;
    bool    whole = f->extent.has_crc && f->region.run == bytes &&
                 f->region.start == f->extent.record && (uint64_t)bytes == f->extent.record_bytes;
    size_t  njobs;
    rsd_err rc;

    if (rows && (!whole || verify == RSD_ALWAYS))
        rsi_fetch_find_rows(f);
    njobs = f->row ? f->nrows : (size_t)f->region.nblocks;
    if (whole) {
        f->crc = rsi_calloc(njobs, sizeof(f->crc[0]));
        if (!f->crc)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu checksums", njobs);
    }
    rc = rsi_workers_run(workers, njobs, f->row ? rsi_fetch_row : read_block, f, err);
    if (!rc && whole)
        rc = compare_crc(f, njobs, err);
    rsi_free(f->crc);
    *checked = whole;
    return rc;
}

/* What a read of one chunk needs besides the chunk. */
typedef struct reading {
    rsd_ckpt            *ckpt;
    size_t               t;
    rsd_tensor_info      info;
    const rsd_view      *into;
    const rsd_read_opts *opts;
    bool                 rows; /* there is a side file to compare with */
    rsi_pool            *pool;
    rsi_workers         *workers;

    const rsi_fetch_tools *tools;
} reading;

static rsd_err find_extent(const reading *rd, size_t i, rsi_extent *out, const rsi_extent **shared,
                           rsd_error *err)
{
    rsd_err rc;

    if (!rd->tools->get)
        return rd->ckpt->ops->locate(rd->ckpt, rd->t, i, false, out, err);
    rc = rd->tools->get(rd->tools->arg, rd->t, i, shared, err);
    if (!rc)
        *out = **shared;
    return rc;
}

static void leave_extent(const reading *rd, rsi_extent *extent, const rsi_extent *shared)
{
    if (shared)
        rd->tools->put(rd->tools->arg, shared);
    else
        rsi_free(extent->decoded);
}

/* Rows that were touched but not checked yet. */
typedef struct touched {
    rsi_file           *file;
    uint32_t            number; /* of the file */
    rsi_seen           *seen;
    const rsi_sum_row **row; /* [n] */
    size_t              n, cap;
} touched;

/* Those with a byte of [off, off + len), which rises from call to call; without those that were
 * compared when they were read. */
static rsd_err touch(const rsi_fetching *f, uint64_t off, uint64_t len, touched *out,
                     rsd_error *err)
{
    const rsi_sum_row *row, *last = out->n ? out->row[out->n - 1] : NULL;
    size_t             n = 0;
    uint64_t           at;
    size_t             bytes;

    row = len ? rsi_guard_rows(&f->ckpt->guard, f->file, off, len, &n) : NULL;
    for (size_t i = 0; i < n; i++) {
        bool known = f->row && &row[i] >= f->row && &row[i] < f->row + f->nrows &&
                     rsi_fetch_row_part(f, (size_t)(&row[i] - f->row), &at, &bytes);

        if (known || (last && &row[i] <= last))
            continue;
        if (!rsi_grow(&out->row, out->n, &out->cap, sizeof(out->row[0])))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu checksums", out->n + 1);
        out->row[out->n++] = &row[i];
    }
    return RSD_OK;
}

static rsd_err check_touched(void *arg, size_t i, rsd_error *err)
{
    const touched *t = arg;
    bool           first = true;
    rsd_err        rc = RSD_OK;

    if (t->seen)
        rc = rsi_seen_take(t->seen, t->number, t->row[i]->off, &first, err);
    return rc || !first ? rc : rsi_proof_row(t->file, t->row[i], err);
}

/* Reads every row whole that a byte was read of, or could be if nothing is: of the elements, and of
 * what stands around them in the item. */
static rsd_err check_rows(const reading *rd, const rsi_fetching *f, const rsd_chunk *chunk,
                          rsd_error *err)
{
    const rsi_extent *x = &f->extent;
    touched           rows = { .file = rd->ckpt->files.file[f->file],
                               .number = f->file,
                               .seen = rd->tools->seen };
    uint64_t          end = chunk->offset + chunk->length;
    rsi_block         block;
    rsd_err           rc;

    if (x->decoded || !rd->into) {
        rc = touch(f, chunk->offset, chunk->length, &rows, err);
    } else {
        rc = touch(f, chunk->offset, x->record - chunk->offset, &rows, err);
        for (int64_t i = 0; i < f->region.nblocks && !rc; i++) {
            rsi_region_block(&f->region, i, &block);
            rc = touch(f, block.at, (uint64_t)block.span, &rows, err);
        }
        if (!rc)
            rc = touch(f, x->record + x->record_bytes, end - x->record - x->record_bytes, &rows,
                       err);
    }
    if (!rc)
        rc = rsi_workers_run(rd->workers, rows.n, check_touched, &rows, err);
    rsi_free(rows.row);
    return rc;
}

static rsd_err check_chunk(const reading *rd, const rsi_fetching *f, const rsd_chunk *chunk,
                           rsd_error *err)
{
    uint64_t at = f->extent.decoded ? chunk->offset : f->extent.record;
    bool     first = true;
    rsd_err  rc = RSD_OK;

    if (rd->rows && rd->ckpt->guard.place[f->file] != SIZE_MAX)
        return check_rows(rd, f, chunk, err);
    if (rd->tools->seen && f->extent.has_crc)
        rc = rsi_seen_take(rd->tools->seen, f->file, at, &first, err);
    return rc || !first ? rc : rsi_proof_crc(rd->ckpt->files.file[f->file], &f->extent, err);
}

static rsd_err fetch_chunk(const reading *rd, size_t i, const rsd_chunk *chunk, uint32_t file,
                           const rsd_box *box, rsd_error *err)
{
    int64_t           elem = (int64_t)rsd_dtype_size(rd->info.dtype);
    int64_t           stride[RSD_MAX_NDIM];
    bool              packed = true, checked = false;
    rsi_fetching      f = { .ckpt = rd->ckpt,
                            .dtype = rd->info.dtype,
                            .file = file,
                            .view = rd->into,
                            .taker = rd->tools->taker,
                            .to = { .box.ndim = box->ndim, .data = rd->into->data },
                            .pool = rd->pool };
    const rsi_extent *shared = NULL;
    rsd_err           rc;

    rc = find_extent(rd, i, &f.extent, &shared, err);
    if (rc)
        return rc;
    f.fix = (rsi_fix){ .swap = f.extent.big_endian, .conj = f.extent.conj, .neg = f.extent.neg };
    if (rd->opts->verify == RSD_NEVER)
        f.extent.has_crc = false;
    rsi_region_make(&f.region, box, &chunk->box, elem, f.extent.offset, f.extent.stride,
                    (int64_t)(f.taker ? NEAR : BLOCK));
    for (int d = 0; d < box->ndim; d++)
        packed = packed && rd->into->stride[d] == 0;
    memcpy(stride, rd->into->stride, sizeof(stride));
    if (packed)
        rsi_strides(box->ndim, rd->into->box.len, elem, stride);
    rsi_region_order(&f.region, rd->into->box.off, f.to.box.off);
    rsi_region_order(&f.region, rd->into->box.len, f.to.box.len);
    rsi_region_order(&f.region, stride, f.to.stride);
    rc = run_jobs(&f, rd->workers, rd->rows, rd->opts->verify, &checked, err);
    if (!rc && rd->opts->verify == RSD_ALWAYS && (rd->rows || !checked))
        rc = check_chunk(rd, &f, chunk, err);
    leave_extent(rd, &f.extent, shared);
    return rc;
}

static rsd_err fetch_chunks(const reading *rd, rsd_error *err)
{
    for (size_t i = 0; i < rd->info.chunks; i++) {
        rsd_chunk chunk;
        rsd_box   box;
        uint32_t  file;
        rsd_err   rc;

        rd->ckpt->ops->chunk(rd->ckpt, rd->t, i, &chunk, &file);
        if (!rsd_box_intersect(&chunk.box, &rd->into->box, &box))
            continue;
        rc = fetch_chunk(rd, i, &chunk, file, &box, err);
        if (rc)
            return rsi_while(err, rc, "file \"%s\"", chunk.file);
    }
    return RSD_OK;
}

rsd_err rsi_fetch_pool(size_t staging, rsi_pool **out, rsd_error *err)
{
    staging = staging ? staging : (size_t)64 << 20;
    return rsi_pool_create(staging < 2 * BLOCK ? 2 * BLOCK : staging, 2 * BLOCK, out, err);
}

rsd_err rsi_fetch_with(const rsi_fetch_tools *tools, rsd_ckpt *ckpt, size_t t, const rsd_view *into,
                       const rsd_read_opts *opts, rsd_error *err)
{
    reading rd = { .ckpt = ckpt,
                   .t = t,
                   .into = into,
                   .opts = opts,
                   .pool = tools->pool,
                   .workers = tools->workers,
                   .tools = tools };
    rsd_err rc;

    ckpt->ops->tensor(ckpt, t, &rd.info);
    rc = rsi_box_check(&into->box, rd.info.ndim, rd.info.shape, err);
    if (!rc && !into->data && !into->put && !tools->taker && rsd_box_count(&into->box) > 0)
        rc = rsi_fail(err, RSD_E_INVALID, "there is neither memory nor a put to read into");
    if (!rc) {
        rc = rsi_proof_begin(ckpt, opts->verify, &rd.rows, err);
        if (rc)
            return rc;
    }
    if (!rc)
        rc = fetch_chunks(&rd, err);
    return rc ? rsi_while(err, rc, "tensor \"%s\"", rd.info.name) : RSD_OK;
}

rsd_err rsi_fetch_prove(const rsi_fetch_tools *tools, rsd_ckpt *ckpt, size_t t, size_t i,
                        rsd_error *err)
{
    reading           rd = { .ckpt = ckpt, .t = t, .tools = tools };
    rsi_fetching      f = { .ckpt = ckpt };
    const rsi_extent *shared = NULL;
    rsd_chunk         chunk;
    rsd_err           rc;

    ckpt->ops->tensor(ckpt, t, &rd.info);
    ckpt->ops->chunk(ckpt, t, i, &chunk, &f.file);
    rc = rsi_proof_begin(ckpt, RSD_ALWAYS, &rd.rows, err);
    if (!rc)
        rc = find_extent(&rd, i, &f.extent, &shared, err);
    if (!rc) {
        rc = check_chunk(&rd, &f, &chunk, err);
        leave_extent(&rd, &f.extent, shared);
    }
    if (rc)
        rsi_while(err, rc, "file \"%s\"", chunk.file);
    return rc ? rsi_while(err, rc, "tensor \"%s\"", rd.info.name) : RSD_OK;
}

/* RSD_E_MISMATCH if a file that the box is in was written to since the checkpoint was opened. */
static rsd_err files_unchanged(const rsd_ckpt *ckpt, size_t t, const rsd_tensor_info *info,
                               const rsd_box *want, rsd_error *err)
{
    uint32_t last = UINT32_MAX;

    for (size_t i = 0; i < info->chunks; i++) {
        rsd_chunk chunk;
        rsd_box   box;
        uint32_t  file;
        rsd_err   rc;

        ckpt->ops->chunk(ckpt, t, i, &chunk, &file);
        if (file == last || !rsd_box_intersect(&chunk.box, want, &box))
            continue;
        rc = rsi_file_unchanged(ckpt->files.file[file], err);
        if (rc)
            return rc;
        last = file;
    }
    return RSD_OK;
}

rsd_err rsi_fetch(rsd_ckpt *ckpt, size_t t, const rsd_view *into, const rsd_read_opts *opts,
                  rsd_error *err)
{
    rsi_fetch_tools tools = { 0 };
    rsd_tensor_info info;
    rsd_err         rc = RSD_OK;

    ckpt->ops->tensor(ckpt, t, &info);
    if (rsi_box_check(&into->box, info.ndim, info.shape, NULL) == RSD_OK &&
        rsd_box_count(&into->box) * (int64_t)rsd_dtype_size(info.dtype) >= PARALLEL_BYTES)
        rc = rsi_workers_create(opts->threads, &tools.workers, err);
    if (!rc)
        rc = rsi_fetch_pool(opts->staging, &tools.pool, err);
    if (!rc)
        rc = rsi_fetch_with(&tools, ckpt, t, into, opts, err);
    if (!rc || rc == RSD_E_CORRUPT || rc == RSD_E_FORMAT) {
        rsd_error why = { .rank = -1 };
        rsd_err   changed = files_unchanged(ckpt, t, &info, &into->box, &why);

        if (changed && err)
            *err = why;
        rc = changed ? changed : rc;
    }
    rsi_workers_free(tools.workers);
    rsi_pool_free(tools.pool);
    return rc;
}
