/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what lies together in a file: as it comes, or row by row of the side file, where it lies
 * together in the caller's memory or goes to a taker too. Next: fetch.c. */
#include "base/crc32.h"
#include "read/fetch_core.h"
#include "shape/box.h"

#include <string.h>

rsd_err rsi_fetch_bytes(const rsi_fetching *f, uint64_t at, void *buf, size_t len, rsd_error *err)
{
    return rsi_fetch_dense(f, at, len, SIZE_MAX, NULL, buf, err);
}

rsd_err rsi_fetch_dense(const rsi_fetching *f, uint64_t at, size_t bytes, size_t i,
                        rsi_hash128_stream *stream, unsigned char *to, rsd_error *err)
{
    rsi_steps steps = { .file = f->ckpt->files.file[f->file],
                        .decoded = f->extent.decoded,
                        .crc = f->crc && i != SIZE_MAX ? &f->crc[i] : NULL,
                        .hash = stream,
                        .keep = true };

    return rsi_steps_read(&steps, at, bytes, to, err);
}

bool rsi_fetch_row_part(const rsi_fetching *f, size_t i, uint64_t *at, size_t *bytes)
{
    const rsi_sum_row *row = &f->row[i];
    uint64_t           start = f->region.start;
    uint64_t end = start + (uint64_t)(rsd_box_count(&f->region.box) * f->region.elem_bytes);

    *at = row->off > start ? row->off : start;
    *bytes = (size_t)((row->off + row->len < end ? row->off + row->len : end) - *at);
    return *bytes == row->len;
}

/* Elements that lie together in the file and in the tensor's order, to the taker. */
static rsd_err take_range(const rsi_fetching *f, uint64_t at, const unsigned char *bytes,
                          size_t len, rsd_error *err)
{
    const rsi_region *r = &f->region;
    int64_t           next = (int64_t)(at - r->start) / r->elem_bytes;
    int64_t           end = next + (int64_t)len / r->elem_bytes;
    rsd_err           rc = RSD_OK;

    while (next < end && !rc) {
        rsd_box box;
        int64_t n = rsi_range_box(r->box.ndim, r->box.len, next, end, &box);

        for (int d = 0; d < box.ndim; d++)
            box.off[d] += r->box.off[d];
        rc = f->taker->take(f->taker->arg, &box, bytes, err);
        bytes += n * r->elem_bytes;
        next += n;
    }
    return rc;
}

/* As rsi_fetch_dense, but the taker gets the bytes while they are near. */
static rsd_err take_dense(const rsi_fetching *f, uint64_t at, size_t bytes,
                          rsi_hash128_stream *stream, rsd_error *err)
{
    void   *buf;
    rsd_err rc = rsi_pool_get(f->pool, &buf, err);

    if (rc)
        return rc;
    for (size_t done = 0; done < bytes && !rc; done += RSI_PROOF_STEP) {
        size_t len = bytes - done < RSI_PROOF_STEP ? bytes - done : RSI_PROOF_STEP;

        rc = rsi_fetch_bytes(f, at + done, buf, len, err);
        if (!rc && stream)
            rsi_hash128_feed(stream, buf, len);
        if (!rc)
            rc = take_range(f, at + done, buf, len, err);
    }
    rsi_pool_put(f->pool, buf);
    return rc;
}

rsd_err rsi_fetch_row(void *arg, size_t i, rsd_error *err)
{
    rsi_fetching       *f = arg;
    rsi_hash128_stream *stream = NULL;
    unsigned char       hash[RSI_HASH128_BYTES];
    uint64_t            at;
    size_t              bytes;
    rsd_err             rc;

    if (rsi_fetch_row_part(f, i, &at, &bytes)) {
        stream = rsi_hash128_create();
        if (!stream)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for a checksum");
    }
    if (f->taker)
        rc = take_dense(f, at, bytes, stream, err);
    else
        rc = rsi_fetch_dense(f, at, bytes, i, stream,
                             f->to.data + rsi_box_offset(&f->region.box, &f->to.box, f->to.stride) +
                                 (at - f->region.start),
                             err);
    if (!rc && stream) {
        rsi_hash128_end(stream, hash);
        if (memcmp(hash, f->row[i].hash, sizeof(hash)) != 0)
            rc = rsi_proof_differs(&f->row[i], err);
    }
    rsi_hash128_free(stream);
    return rc;
}

/* True if what is wanted lies in the caller's memory, or goes to the taker, as it does in the file,
 * in one piece. */
static bool goes_straight(const rsi_fetching *f)
{
    const rsi_region *r = &f->region;
    int64_t           run = r->elem_bytes;

    if ((!f->to.data && !f->taker) || f->extent.decoded || rsi_fix_any(&f->fix))
        return false;
    for (int k = r->box.ndim - 1; k >= 0; k--) {
        if (r->box.len[k] > 1 && r->file_stride[k] != run)
            return false;
        if (f->taker ? r->dim[k] != k : r->box.len[k] > 1 && f->to.stride[k] != run)
            return false;
        run *= r->box.len[k];
    }
    return true;
}

void rsi_fetch_find_rows(rsi_fetching *f)
{
    uint64_t start = f->region.start;
    uint64_t bytes = (uint64_t)(rsd_box_count(&f->region.box) * f->region.elem_bytes);

    if (!goes_straight(f))
        return;
    f->row = rsi_guard_rows(&f->ckpt->guard, f->file, start, bytes, &f->nrows);
    for (size_t i = 0; i < f->nrows && f->taker && f->row; i++)
        if (f->row[i].off > start && (f->row[i].off - start) % (uint64_t)f->region.elem_bytes)
            f->row = NULL; /* a taker gets no half elements */
}
