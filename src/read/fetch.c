/* SPDX-License-Identifier: Apache-2.0 */
/* Reads boxes from the chunks that overlap them, and compares the touched bytes with checksums.
 * fetch_jobs.c reads the bytes of one chunk. */
#include "read/fetch.h"
#include "base/mem.h"
#include "format/decoded.h"
#include "read/fetch_core.h"
#include "shape/box.h"

#define PARALLEL_BYTES ((int64_t)8 << 20) /* from this size on, starting threads pays off */

static rsd_err find_extent(rsi_fetching *f, size_t i, rsd_error *err)
{
    rsd_err rc;

    if (!f->tools->extents)
        return f->ckpt->ops->locate(f->ckpt, f->t, i, false, &f->extent, err);
    rc = rsi_extents_get(f->tools->extents, f->t, i, &f->shared, err);
    if (!rc)
        f->extent = *f->shared;
    return rc;
}

static void leave_extent(rsi_fetching *f)
{
    if (f->shared)
        rsi_extents_put(f->tools->extents, f->shared);
    else
        rsi_decoded_free(f->extent.decoded);
    f->shared = NULL;
}

/* ---- checksums ---- */

/* Notes the rows with a byte in [off, off + len), except those already compared while being read,
 * and with `later` those that can be compared when their elements are. `off` rises from call to
 * call. */
static rsd_err touch(rsi_fetching *f, uint64_t off, uint64_t len, bool later, rsd_error *err)
{
    const rsi_sum_row *row, *last = f->ntouched ? f->touched[f->ntouched - 1] : NULL;
    uint64_t           at;
    size_t             bytes, n;
    rsd_err            rc = rsi_ckpt_sums_rows(&f->ckpt->sums, f->file, off, len, &row, &n, err);

    for (size_t i = 0; i < n && !rc; i++) {
        bool known = f->row && &row[i] >= f->row && &row[i] < f->row + f->nrows &&
                     rsi_fetch_row_part(f, (size_t)(&row[i] - f->row), &at, &bytes);

        bool owed = false;

        if (known || (last && &row[i] <= last))
            continue;
        if (later && f->tools->streams) {
            rc = rsi_row_stream_owe(f->tools->streams, f->tools->extents, f->t, f->file, &row[i],
                                    &owed, err);
            if (rc)
                return rc;
        }
        if (owed)
            continue;
        if (!rsi_grow(&f->touched, f->ntouched, &f->cap, sizeof(f->touched[0])))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu checksums", f->ntouched + 1);
        f->touched[f->ntouched++] = &row[i];
    }
    return rc;
}

static rsd_err check_touched(void *arg, size_t i, rsd_error *err)
{
    const rsi_fetching *f = arg;
    bool                first;
    rsd_err rc = rsi_extents_first(f->tools->extents, f->file, f->touched[i]->off, &first, err);

    return rc || !first ? rc : rsi_check_row(f->ckpt->files.file[f->file], f->touched[i], err);
}

/* Reads and compares every row of which a byte was read (if nothing is read: every row of the
 * chunk), including the rows around the elements in the item. */
static rsd_err check_rows(rsi_fetching *f, rsd_error *err)
{
    const rsd_chunk *chunk = &f->chunk;
    const uint64_t   record = f->extent.record, end = record + f->extent.record_bytes;
    const bool       all = f->extent.decoded || !f->into;
    rsi_block        block;
    rsd_err          rc;

    f->ntouched = 0;
    rc = touch(f, chunk->offset, all ? chunk->length : record - chunk->offset, !all, err);
    for (int64_t i = 0; !all && i < f->region.nblocks && !rc; i++) {
        rsi_region_block(&f->region, i, &block);
        rc = touch(f, block.at, (uint64_t)block.span, false, err);
    }
    if (!rc && !all)
        rc = touch(f, end, chunk->offset + chunk->length - end, true, err);
    if (!rc)
        rc = rsi_workers_run(f->tools->workers, f->ntouched, check_touched, f, err);
    return rc;
}

static rsd_err check_chunk(rsi_fetching *f, rsd_error *err)
{
    bool    first;
    rsd_err rc;

    if (f->rows && f->ckpt->sums.place[f->file] != SIZE_MAX)
        return check_rows(f, err);
    if (!f->extent.has_crc || f->extent.decoded)
        return RSD_OK;
    rc = rsi_extents_first(f->tools->extents, f->file, f->extent.record, &first, err);
    if (!rc && !first && f->tools->records)
        first = rsi_record_crcs_drop(f->tools->records, f->file, &f->extent);
    return rc || !first ? rc : rsi_check_crc(f->ckpt->files.file[f->file], &f->extent, err);
}

/* ---- reads ---- */

/* Decoded bytes are checked to their end. Of several reads that share a decoder, the one that gets
 * the chunk's last element does so. */
static rsd_err check_decoded(rsi_fetching *f, const rsd_box *box, rsd_error *err)
{
    const rsd_box *chunk = &f->chunk.box;
    bool           last = true;

    for (int d = 0; box && d < box->ndim; d++)
        last = last && box->off[d] + box->len[d] == chunk->off[d] + chunk->len[d];
    if (f->shared && !last)
        return RSD_OK;
    return rsi_check_decoded(f->ckpt, f->t, f->i, false, f->verify != RSD_NEVER, &f->extent, err);
}

/* The part of chunk i that is in `box`; NULL: read nothing, compare the whole chunk. */
static rsd_err fetch_chunk(rsi_fetching *f, size_t i, const rsd_box *box, rsd_error *err)
{
    bool    checked = false;
    rsd_err rc = find_extent(f, i, err);

    f->i = i;
    if (!rc) {
        if (f->extent.decoded)
            rsi_decoded_hold(f->extent.decoded, true);
        if (box)
            rc = rsi_fetch_box(f, box, &checked, err);
        if (!rc && f->extent.decoded)
            rc = check_decoded(f, box, err);
        if (f->extent.decoded)
            rsi_decoded_hold(f->extent.decoded, false);
        if (!rc && f->verify == RSD_ALWAYS && (f->rows || !checked))
            rc = check_chunk(f, err);
        leave_extent(f);
    }
    return rc ? rsi_while(err, rc, "file \"%s\"", f->chunk.file) : RSD_OK;
}

rsd_err rsi_fetch_with(const rsi_fetch_tools *tools, rsd_ckpt *ckpt, size_t t, const rsd_view *into,
                       const rsd_read_opts *opts, rsd_error *err)
{
    rsi_fetching f = { .ckpt = ckpt, .tools = tools, .t = t, .into = into, .verify = opts->verify };
    rsd_box      box;
    rsd_err      rc;

    ckpt->ops->tensor(ckpt, t, &f.info);
    rc = rsi_box_check(&into->box, f.info.ndim, f.info.shape, err);
    if (!rc && !into->data && !into->put && !tools->taker && rsd_box_count(&into->box) > 0)
        rc = rsi_fail(err, RSD_E_INVALID, "neither memory nor a put given to read into");
    if (!rc) {
        rc = rsi_check_begin(ckpt, opts->verify, &f.rows, err);
        if (rc)
            return rc;
    }
    for (size_t i = 0; i < f.info.chunks && !rc; i++) {
        ckpt->ops->chunk(ckpt, t, i, &f.chunk, &f.file);
        if (rsd_box_intersect(&f.chunk.box, &into->box, &box))
            rc = fetch_chunk(&f, i, &box, err);
    }
    rsi_free(f.touched);
    return rc ? rsi_while(err, rc, "tensor \"%s\"", f.info.name) : RSD_OK;
}

rsd_err rsi_fetch_prove(const rsi_fetch_tools *tools, rsd_ckpt *ckpt, size_t t, size_t i,
                        rsd_error *err)
{
    rsi_fetching f = { .ckpt = ckpt, .tools = tools, .t = t, .verify = RSD_ALWAYS };
    rsd_err      rc;

    ckpt->ops->tensor(ckpt, t, &f.info);
    ckpt->ops->chunk(ckpt, t, i, &f.chunk, &f.file);
    rc = rsi_check_begin(ckpt, RSD_ALWAYS, &f.rows, err);
    rc = rc ? rsi_while(err, rc, "file \"%s\"", f.chunk.file) : fetch_chunk(&f, i, NULL, err);
    rsi_free(f.touched);
    return rc ? rsi_while(err, rc, "tensor \"%s\"", f.info.name) : RSD_OK;
}

/* RSD_E_MISMATCH if a file with part of the box was modified since the checkpoint was opened. */
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

static bool is_transformed(const rsd_ckpt *ckpt, size_t t, const rsd_tensor_info *info)
{
    rsd_chunk chunk = { 0 };
    uint32_t  file;

    if (info->chunks)
        ckpt->ops->chunk(ckpt, t, 0, &chunk, &file);
    return chunk.ntransforms > 0;
}

rsd_err rsi_fetch(rsd_ckpt *ckpt, size_t t, const rsd_view *into, const rsd_read_opts *opts,
                  rsd_error *err)
{
    rsi_fetch_tools tools = { 0 };
    rsd_tensor_info info;
    rsd_err         rc = RSD_OK;

    ckpt->ops->tensor(ckpt, t, &info);
    if (opts->verify != RSD_ALWAYS && is_transformed(ckpt, t, &info))
        rc = rsi_ckpt_extents(ckpt, &tools.extents, err);
    if (!rc && rsi_box_check(&into->box, info.ndim, info.shape, NULL) == RSD_OK &&
        rsd_box_count(&into->box) * (int64_t)rsd_dtype_size(info.dtype) >= PARALLEL_BYTES)
        rc = rsi_workers_create(opts->threads, &tools.workers, err);
    if (!rc)
        rc = rsi_fetch_pool(opts->max_memory, &tools.pool, err);
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
