/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the files of an image, several at a time. A file is written from front to back: large
 * pieces straight from the caller's memory, small ones collected in a buffer; CRCs are taken on the
 * way, because the archive's gaps need them. */
#include "exec/flush.h"
#include "base/checked.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "base/workers.h"
#include "exec/collect.h"
#include "exec/region.h"
#include "format/transform.h"
#include "shape/box.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define BUFFER ((size_t)4 << 20)

typedef struct flushing {
    rsi_image            *image;
    const rsd_state      *state;
    rsd_store            *store;
    const rsi_flush_opts *opts;
    size_t               *which; /* [n] files to write */
    size_t                n;
    int64_t               total, done;
    pthread_mutex_t       lock; /* of `done`, and of telling it */
} flushing;

/* One file on its way out. */
typedef struct out_file {
    flushing      *f;
    rsi_file      *file;
    uint64_t       at; /* bytes that are in the file or in `buf` */
    unsigned char *buf;
    size_t         len;
    unsigned char *pack;    /* a block of a tensor that does not lie packed in memory */
    rsi_encoder   *encoder; /* of the item; NULL: none */
} out_file;

static rsd_err drain(out_file *o, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (o->len)
        rc = rsi_file_write(o->file, o->at - o->len, o->buf, o->len, err);
    o->len = 0;
    return rc;
}

/* Straight to the file or its buffer. */
static rsd_err put_raw(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    out_file *o = arg;
    rsd_err   rc;

    if (len <= BUFFER - o->len) {
        memcpy(o->buf + o->len, bytes, len);
        o->len += len;
        o->at += len;
        return RSD_OK;
    }
    rc = drain(o, err);
    if (!rc && len < BUFFER / 4) {
        memcpy(o->buf, bytes, len);
        o->len = len;
    } else if (!rc) {
        rc = rsi_file_write(o->file, o->at, bytes, len, err);
    }
    o->at += len;
    return rc;
}

static rsd_err put(out_file *o, const void *bytes, size_t len, rsd_error *err)
{
    return o->encoder ? rsi_encoder_feed(o->encoder, bytes, len, err) : put_raw(o, bytes, len, err);
}

static rsd_err tell_progress(flushing *f, int64_t bytes, rsd_error *err)
{
    int stop;

    if (!f->opts->on_progress)
        return RSD_OK;
    pthread_mutex_lock(&f->lock);
    f->done += bytes;
    stop = f->opts->on_progress(f->opts->arg, f->done, f->total);
    pthread_mutex_unlock(&f->lock);
    return stop ? rsi_fail(err, RSD_E_CANCELED, "canceled by the caller") : RSD_OK;
}

/* A box of a tensor, block by block, with its CRC. */
static rsd_err put_data(out_file *o, const rsi_out_part *part, rsd_error *err)
{
    const rsi_state_tensor *tensor = &o->f->state->tensor[part->tensor];
    int64_t                 stride[RSD_MAX_NDIM];
    uint32_t                crc = 0;
    rsi_region              region;
    rsd_err                 rc = rsi_collect_check(tensor, &part->box, err);

    if (rc || part->len == 0)
        return rc;
    rsi_strides(tensor->ndim, part->box.len, tensor->elem_bytes, stride);
    rsi_region_make(&region, &part->box, &part->box, tensor->elem_bytes, 0, stride,
                    (int64_t)BUFFER);
    for (int64_t i = 0; i < region.nblocks && !rc; i++) {
        const unsigned char *bytes;
        rsi_block            block;
        rsd_box              box;

        rsi_region_block(&region, i, &block);
        rsi_region_box(&region, &block.box, &box);
        bytes = rsi_collect_direct(tensor, &box);
        if (!bytes) {
            rc = rsi_collect(tensor, &box, o->pack, err);
            bytes = o->pack;
        }
        if (rc)
            break;
        if (part->crc)
            crc = rsi_crc32(crc, bytes, (size_t)block.bytes);
        rc = put(o, bytes, (size_t)block.bytes, err);
        if (!rc)
            rc = tell_progress(o->f, block.bytes, err);
    }
    if (part->crc)
        part->crc[part->nth] = crc;
    return rc;
}

static rsd_err put_gap(out_file *o, const rsi_out_part *part, rsd_error *err)
{
    unsigned char *gap = rsi_calloc(part->len, 1);
    rsd_err        rc;

    if (!gap)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the headers of an item");
    rsi_zip_gap_write(part->zip, part->nth, part->crc, gap);
    rc = put(o, gap, (size_t)part->len, err);
    rsi_free(gap);
    return rc;
}

static rsd_err put_part(out_file *o, const rsi_out_part *part, rsd_error *err)
{
    rsd_err rc;

    switch (part->kind) {
    case RSI_PART_DATA:
        rc = put_data(o, part, err);
        return rc ? rsi_while(err, rc, "tensor \"%s\"", o->f->state->tensor[part->tensor].spot.name)
                  : RSD_OK;
    case RSI_PART_GAP:
        return put_gap(o, part, err);
    default:
        return put(o, part->bytes, (size_t)part->len, err);
    }
}

static rsd_err put_item(out_file *o, const rsi_out_item *item, rsd_error *err)
{
    const rsi_image *image = o->f->image;
    uint64_t         start = o->at;
    rsd_err          rc = RSD_OK;

    if (image->transform)
        rc = rsi_encoder_create(image->transform, put_raw, o, &o->encoder, err);
    for (size_t i = 0; i < item->nparts && !rc; i++)
        rc = put_part(o, &image->part[item->first + i], err);
    if (!rc && o->encoder)
        rc = rsi_encoder_end(o->encoder, err);
    rsi_encoder_free(o->encoder);
    o->encoder = NULL;
    if (item->row && image->transform) {
        item->row->offset = (int64_t)start;
        item->row->length = (int64_t)(o->at - start);
    }
    return rc;
}

static rsd_err open_file(out_file *o, const rsi_out_file *file, rsd_error *err)
{
    const char *top = o->f->opts->top;
    size_t      len = strlen(top) + (file->name ? strlen(file->name) : 0) + 2;
    char       *name = rsi_calloc(len, 1);
    rsd_err     rc;

    if (!name)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the name of a file");
    snprintf(name, len, file->name ? "%s/%s" : "%s%s", top, file->name ? file->name : "");
    rc = rsi_file_open(o->f->store, name,
                       (file->name ? RSD_OPEN_CREATE : RSD_OPEN_WRITE) | RSD_OPEN_DIRECT,
                       file->bytes, &o->file, err);
    rsi_free(name);
    return rc;
}

static rsd_err write_file(void *arg, size_t i, rsd_error *err)
{
    flushing           *f = arg;
    const rsi_out_file *file = &f->image->file[f->which[i]];
    out_file            o = { .f = f };
    rsd_err             rc, closed;

    o.buf = rsi_alloc_aligned(4096, BUFFER);
    o.pack = rsi_alloc_aligned(4096, BUFFER);
    rc = o.buf && o.pack ? open_file(&o, file, err)
                         : rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer to write from");
    for (size_t k = 0; k < file->nitems && !rc; k++)
        rc = put_item(&o, &f->image->item[file->first + k], err);
    if (!rc)
        rc = drain(&o, err);
    if (!rc && f->opts->sync)
        rc = rsi_file_sync(o.file, err); /* C3 */
    closed = rsi_file_close(o.file, rc ? NULL : err);
    rsi_free(o.buf);
    rsi_free(o.pack);
    return rc ? rc : closed;
}

static int64_t data_bytes(const rsi_image *image, const rsi_out_file *file)
{
    int64_t bytes = 0;

    for (size_t i = 0; i < file->nitems; i++) {
        const rsi_out_item *item = &image->item[file->first + i];

        for (size_t k = 0; k < item->nparts; k++)
            if (image->part[item->first + k].kind == RSI_PART_DATA)
                bytes += (int64_t)image->part[item->first + k].len;
    }
    return bytes;
}

rsd_err rsi_flush_files(rsi_image *image, const rsd_state *state, int32_t rank, rsd_store *store,
                        const rsi_flush_opts *opts, rsd_error *err)
{
    flushing     f = { .image = image,
                       .state = state,
                       .store = store,
                       .opts = opts,
                       .lock = PTHREAD_MUTEX_INITIALIZER };
    rsi_workers *workers = NULL;
    rsd_err      rc;

    f.which = rsi_calloc(image->nfiles, sizeof(f.which[0]));
    if (!f.which)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a list of files");
    for (size_t i = 0; i < image->nfiles; i++)
        if (rank < 0 || image->file[i].owner == rank)
            f.which[f.n++] = i;
    for (size_t i = 0; i < f.n; i++)
        f.total += data_bytes(image, &image->file[f.which[i]]);
    rc = rsi_workers_create(opts->threads, &workers, err);
    if (!rc)
        rc = rsi_workers_run(workers, f.n, write_file, &f, err);
    rsi_workers_free(workers);
    rsi_free(f.which);
    return rc;
}

rsd_err rsi_flush_metadata(const rsi_image *image, rsd_store *store, const rsi_flush_opts *opts,
                           rsd_error *err)
{
    flushing     f = { .store = store, .opts = opts };
    rsi_out_file file = { .name = ".metadata" };
    out_file     o = { .f = &f };
    rsd_err      rc, closed;

    if (!image->meta)
        return RSD_OK;
    o.buf = rsi_alloc_aligned(4096, BUFFER);
    rc = o.buf ? open_file(&o, &file, err)
               : rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer to write from");
    if (!rc)
        rc = rsi_dcp_meta_write(image->meta, put_raw, &o, err);
    if (!rc)
        rc = drain(&o, err);
    if (!rc && opts->sync)
        rc = rsi_file_sync(o.file, err); /* C3, C4 */
    closed = rsi_file_close(o.file, rc ? NULL : err);
    rsi_free(o.buf);
    return rc ? rc : closed;
}
