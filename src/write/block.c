/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a block row by row: bytes are copied, CRCed for the archive and hashed for the checksum
 * file while they are in the cache. A row ends where the next item or storage begins. Next:
 * write_files.c. */
#include "write/block.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "state/tensor.h"

#include <string.h>

enum { SLICE = 128 << 10 }; /* bytes that stay in the cache between copy, CRC and hash */

/* The parts of the image that share one row of checksums, and the row's bytes in the block. */
typedef struct row {
    size_t   first, end;
    uint64_t lo, hi;
    bool     began; /* its item began in an earlier block */
    bool     late;  /* it has a gap that needs CRCs from an earlier block */
} row;

size_t rsi_image_parts(const rsi_image *image, size_t file, size_t *n)
{
    const rsi_out_file *f = &image->file[file];
    const rsi_out_item *last;

    *n = 0;
    if (f->nitems == 0)
        return 0;
    last = &image->item[f->first + f->nitems - 1];
    *n = last->first + last->nparts - image->item[f->first].first;
    return image->item[f->first].first;
}

size_t rsi_image_part_at(const rsi_image *image, size_t file, uint64_t at)
{
    size_t n, lo = rsi_image_parts(image, file, &n), hi = lo + n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (image->part[mid].at + image->part[mid].len > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static bool opens_row(const rsi_out_part *part)
{
    return part->opens || (part->kind == RSI_PART_DATA && !(part->zip && part->zip->spec.n == 1));
}

static bool is_late(const rsi_out_part *part, bool began)
{
    return began && part->kind == RSI_PART_GAP && part->nth > 0;
}

/* The row after the parts before `r->end`; false at the end of the block. */
static bool next_row(const rsi_file_block *fill, row *r)
{
    const rsi_out_part *part = fill->image->part;
    uint64_t            end = fill->at + fill->len;
    size_t              k = r->end, n, last = rsi_image_parts(fill->image, fill->file, &n) + n;

    if (k >= last || part[k].at >= end)
        return false;
    if (part[k].opens && part[k].at >= fill->at)
        r->began = false;
    r->first = k;
    r->late = false;
    r->lo = part[k].at > fill->at ? part[k].at : fill->at;
    do {
        r->late = r->late || is_late(&part[k], r->began);
        k++;
    } while (k < last && part[k].at < end && !opens_row(&part[k]));
    r->end = k;
    r->hi = part[k - 1].at + part[k - 1].len < end ? part[k - 1].at + part[k - 1].len : end;
    return true;
}

static row first_row(const rsi_file_block *fill)
{
    return (row){ .end = fill->first, .began = true };
}

static rsd_err hash(const rsi_file_block *fill, const void *bytes, size_t len, bool now,
                    rsd_error *err)
{
    return fill->sums && now ? rsi_sums_feed(fill->sums, bytes, len, err) : RSD_OK;
}

/* Copies bytes [off, off + len) of a tensor's box to `out` and extends *crc over them. */
static rsd_err copy_data(const rsi_file_block *fill, const rsi_out_part *part, uint64_t off,
                         size_t len, unsigned char *out, bool now, uint32_t *crc, rsd_error *err)
{
    const rsi_state_tensor *tensor = &fill->state->tensor[part->tensor];
    const rsd_box           box = rsi_part_box(fill->state, part);
    const unsigned char    *direct = NULL;
    rsd_err                 rc = RSD_OK;

    if (!fill->ready)
        direct = rsi_tensor_direct(tensor, &box);
    if (!fill->ready && !direct)
        rc = rsi_tensor_bytes(tensor, &box, off, len, out, err);

    for (size_t done = 0, n; done < len && !rc; done += n) {
        n = len - done < SLICE ? len - done : SLICE;
        if (direct)
            memcpy(out + done, direct + off + done, n);
        if (part->crc)
            *crc = rsi_crc32(*crc, out + done, n);
        rc = hash(fill, out + done, n, now, err);
    }
    if (!rc)
        rc = fill->told(fill->arg, len, err);
    return rc;
}

static rsd_err put_data(rsi_file_block *fill, const rsi_out_part *part, uint64_t lo, uint64_t hi,
                        bool now, rsd_error *err)
{
    uint32_t crc = 0;
    rsd_err  rc = copy_data(fill, part, lo - part->at, (size_t)(hi - lo),
                            fill->buf + (lo - fill->at), now, &crc, err);

    if (rc)
        return rc;
    if (!part->crc)
        return RSD_OK;
    if (lo > part->at) {
        fill->head = true;
        fill->head_crc = crc;
        fill->head_len = hi - lo;
    } else {
        part->crc[part->nth] = crc; /* partial: later blocks may extend it */
    }
    return RSD_OK;
}

/* Writes the bytes of a gap that lie in the block. */
static void put_gap(const rsi_file_block *fill, const rsi_out_part *part, uint64_t lo, uint64_t hi)
{
    rsi_zip_gap_write(part->zip, part->nth, part->crc, lo - part->at, (size_t)(hi - lo),
                      fill->buf + (lo - fill->at));
}

static rsd_err put_part(rsi_file_block *fill, const row *r, size_t k, rsd_error *err)
{
    const rsi_out_part *part = &fill->image->part[k];
    uint64_t            lo = part->at > r->lo ? part->at : r->lo;
    uint64_t            hi = part->at + part->len < r->hi ? part->at + part->len : r->hi;
    unsigned char      *out = fill->buf + (lo - fill->at);

    if (hi <= lo && part->kind != RSI_PART_DATA)
        return RSD_OK;
    if (part->kind == RSI_PART_DATA)
        return part->len ? put_data(fill, part, lo, hi, !r->late, err) : RSD_OK;
    if (part->kind == RSI_PART_BYTES)
        memcpy(out, (const char *)part->bytes + (lo - part->at), (size_t)(hi - lo));
    else if (!is_late(part, r->began))
        put_gap(fill, part, lo, hi);
    return hash(fill, out, (size_t)(hi - lo), !r->late, err);
}

rsd_err rsi_file_block_fill(rsi_file_block *fill, rsd_error *err)
{
    rsd_err rc = RSD_OK;
    row     r;

    fill->first = rsi_image_part_at(fill->image, fill->file, fill->at);
    for (r = first_row(fill); !rc && next_row(fill, &r);) {
        if (fill->sums && !r.late)
            rc = rsi_sums_begin(fill->sums, (uint32_t)fill->file, r.lo, err);
        for (size_t k = r.first; k < r.end && !rc; k++)
            rc = put_part(fill, &r, k, err);
    }
    if (!rc && fill->sums)
        rc = rsi_sums_end(fill->sums, err);
    return rc;
}

void rsi_file_block_settle(const rsi_file_block *fill)
{
    const rsi_out_part *part = &fill->image->part[fill->first];

    if (fill->head)
        part->crc[part->nth] =
            rsi_crc32_combine(part->crc[part->nth], fill->head_crc, fill->head_len);
}

rsd_err rsi_file_block_late(rsi_file_block *fill, rsd_error *err)
{
    rsd_err rc = RSD_OK;
    row     r;

    for (r = first_row(fill); !rc && next_row(fill, &r);) {
        if (!r.began)
            break;
        for (size_t k = r.first; k < r.end && !rc && r.late; k++) {
            const rsi_out_part *part = &fill->image->part[k];
            uint64_t            lo = part->at > r.lo ? part->at : r.lo;
            uint64_t            end = part->at + part->len < r.hi ? part->at + part->len : r.hi;

            if (part->kind == RSI_PART_GAP && end > lo)
                put_gap(fill, part, lo, end);
        }
        if (!rc && r.late && fill->sums)
            rc = rsi_sums_begin(fill->sums, (uint32_t)fill->file, r.lo, err);
        if (!rc && r.late)
            rc = hash(fill, fill->buf + (r.lo - fill->at), (size_t)(r.hi - r.lo), true, err);
    }
    if (!rc && fill->sums)
        rc = rsi_sums_end(fill->sums, err);
    return rc;
}
