/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the files of an image. Threads take blocks in file order, fill them (block.c) and hand
 * them to the store (write_queue.c), so several threads work on one file and several of its writes
 * are in flight. A thread that has taken a block already has a buffer for it, so a thread that
 * waits for the previous block waits for one that makes progress. A file with transformed items has
 * no known offsets: one thread writes it front to back (append.c). */
#include "write/write_files.h"
#include "base/checked.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/workers.h"
#include "state/tensor.h"
#include "write/block.h"
#include "write/append.h"
#include "format/dcp_catalogue.h"
#include "format/transform.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define STAGING ((size_t)64 << 20)

typedef struct out_file {
    size_t          which; /* number in the image */
    rsi_queued_file to;
    size_t          nblocks;
    size_t          settled; /* leading blocks whose CRCs are known */
} out_file;

typedef struct flushing {
    rsi_image            *image;
    const rsd_state      *state;
    rsd_store            *store;
    const rsi_write_opts *opts;
    rsi_pool             *pool;
    out_file             *out; /* [n] */
    size_t                n;
    size_t                file, block; /* the next one to take */
    int64_t               total, done;
    bool                  failed; /* a thread failed: no thread starts new work */
    pthread_mutex_t       lock;   /* guards everything that is not constant */
    pthread_cond_t        settled;
} flushing;

typedef struct worker {
    flushing       *f;
    rsi_write_queue spool;
    rsi_sums        sums;
    bool            stopped; /* because another thread failed */
} worker;

static rsd_err stop(worker *w, rsd_error *err)
{
    w->stopped = true;
    return rsi_fail(err, RSD_E_CANCELED, "another thread failed");
}

static rsi_sums *sums_of(worker *w)
{
    return w->f->opts->sums ? &w->sums : NULL;
}

static rsd_err tell_progress(void *arg, size_t bytes, rsd_error *err)
{
    flushing *f = ((worker *)arg)->f;
    int       cancel;

    if (!f->opts->on_progress) {
        rsi_beat();
        return RSD_OK;
    }
    pthread_mutex_lock(&f->lock);
    rsi_beat(); /* another thread's call may have been slow, and this one may be too */
    f->done += (int64_t)bytes;
    cancel = f->failed ? 0 : f->opts->on_progress(f->opts->arg, f->done, f->total);
    f->failed = f->failed || cancel; /* not called again */
    pthread_mutex_unlock(&f->lock);
    rsi_beat();
    return cancel ? rsi_fail(err, RSD_E_CANCELED, "canceled by the caller") : RSD_OK;
}

/* ---- opening ---- */

/* Creates the folder of a file that is to be created in one. */
static rsd_err make_parent(rsd_store *store, char *path, rsd_error *err)
{
    char   *end = strrchr(path, '/');
    rsd_err rc;

    *end = '\0';
    rc = rsi_store_make_folder(store, path, err);
    *end = '/';
    return rc;
}

rsd_err rsi_write_open(rsd_store *store, const rsi_write_opts *opts, const char *name,
                       uint32_t flags, uint64_t bytes, rsi_file **out, rsd_error *err)
{
    size_t  len = strlen(opts->top) + (name ? strlen(name) : 0) + 2;
    char   *path = rsi_calloc(len, 1);
    rsd_err rc = RSD_OK;

    if (!path)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the name of a file");
    snprintf(path, len, name ? "%s/%s" : "%s%s", opts->top, name ? name : "");
    flags &= opts->sync ? UINT32_MAX : ~(uint32_t)RSD_OPEN_DIRECT;
    if (flags & RSD_OPEN_CREATE && name && strchr(name, '/'))
        rc = make_parent(store, path, err);
    if (!rc)
        rc = rsi_file_open(store, path, flags, bytes, out, err);
    rsi_free(path);
    return rc;
}

/* Opens a file that only this rank writes; creates it unless it is the tree itself. */
static rsd_err open_own(rsd_store *store, const rsi_write_opts *opts, const char *name,
                        uint64_t bytes, rsi_file **out, rsd_error *err)
{
    uint32_t flags = (name ? RSD_OPEN_CREATE : RSD_OPEN_WRITE) | RSD_OPEN_DIRECT;

    return rsi_write_open(store, opts, name, flags, bytes, out, err);
}

/* ---- blocks ---- */

/* Takes the next free block; false: none is left. A file is opened with its first block. */
static rsd_err take(worker *w, out_file **out, size_t *block, bool *none, rsd_error *err)
{
    flushing *f = w->f;
    rsd_err   rc = RSD_OK;

    pthread_mutex_lock(&f->lock);
    *none = f->failed || f->file == f->n;
    if (!*none) {
        const rsi_out_file *file;

        *out = &f->out[f->file];
        *block = f->block++;
        file = &f->image->file[(*out)->which];
        for (bool again = *block == 0; again; again = rc && rsi_write_queue_relieve(&w->spool, err))
            rc = open_own(f->store, f->opts, file->name, file->bytes, &(*out)->to.file, err);
        if (*block == 0 && !rc && (*out)->to.file->scarce)
            rc = rsi_write_queue_drain(&w->spool, err);
        if (f->block == (*out)->nblocks) {
            f->file++;
            f->block = 0;
        }
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

/* In block order: settles CRCs of tensors that span several blocks. */
static rsd_err settle(worker *w, out_file *out, size_t block, const rsi_file_block *fill,
                      rsd_error *err)
{
    flushing *f = w->f;
    bool      failed;

    pthread_mutex_lock(&f->lock);
    while (out->settled < block && !f->failed)
        rsi_pulse_wait(&f->settled, &f->lock);
    failed = out->settled < block;
    if (!failed) {
        rsi_file_block_settle(fill);
        out->settled++;
        pthread_cond_broadcast(&f->settled);
    }
    pthread_mutex_unlock(&f->lock);
    return failed ? stop(w, err) : RSD_OK;
}

/* Owns `buf`. */
static rsd_err write_block(worker *w, out_file *out, size_t block, void *buf, rsd_error *err)
{
    const flushing *f = w->f;
    uint64_t        bytes = f->image->file[out->which].bytes;
    rsi_file_block  fill = { .image = f->image,
                             .state = f->state,
                             .file = out->which,
                             .at = (uint64_t)block * RSI_BLOCK_BYTES,
                             .buf = buf,
                             .sums = sums_of(w),
                             .told = tell_progress,
                             .arg = w };
    rsd_err         rc;

    fill.len = (size_t)rsi_min((int64_t)(bytes - fill.at), RSI_BLOCK_BYTES);
    rc = rsi_file_block_fill(&fill, err);
    if (!rc && f->image->format != RSD_FORMAT_SAFETENSORS)
        rc = settle(w, out, block, &fill, err);
    if (!rc && f->image->format != RSD_FORMAT_SAFETENSORS)
        rc = rsi_file_block_late(&fill, err);
    if (rc) {
        rsi_pool_put(f->pool, buf);
        return rc;
    }
    return rsi_write_queue_add(&w->spool, &out->to, fill.at, buf, fill.len, err);
}

/* ---- transformed files ---- */

static bool is_transformed(const rsi_image *image, size_t file)
{
    return image->transform && !image->file[file].plain;
}

/* Feeds a tensor's bytes to the encoder. `pack` is a buffer for scattered bytes. */
static rsd_err encode_data(worker *w, rsi_encoder *encoder, const rsi_out_part *part,
                           unsigned char *pack, rsd_error *err)
{
    const rsi_state_tensor *tensor = &w->f->state->tensor[part->tensor];
    const rsd_box           box = rsi_part_box(w->f->state, part);
    const unsigned char    *direct = rsi_tensor_direct(tensor, &box), *bytes;
    uint32_t                crc = 0;
    rsd_err                 rc = RSD_OK;

    for (uint64_t at = 0; at < part->len && !rc; at += RSI_BLOCK_BYTES) {
        size_t n = (size_t)rsi_min((int64_t)(part->len - at), RSI_BLOCK_BYTES);

        bytes = direct ? direct + at : pack;
        if (!direct)
            rc = rsi_tensor_bytes(tensor, &box, at, n, pack, err);
        if (!rc && part->crc)
            crc = rsi_crc32(crc, bytes, n);
        if (!rc)
            rc = rsi_encoder_feed(encoder, bytes, n, err);
        if (!rc)
            rc = tell_progress(w, n, err);
    }
    if (part->crc)
        part->crc[part->nth] = crc;
    return rc;
}

static rsd_err encode_part(worker *w, rsi_encoder *encoder, const rsi_out_part *part,
                           unsigned char *pack, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (part->kind == RSI_PART_DATA)
        return encode_data(w, encoder, part, pack, err);
    if (part->kind == RSI_PART_BYTES)
        return rsi_encoder_feed(encoder, part->bytes, (size_t)part->len, err);
    for (uint64_t at = 0; at < part->len && !rc; at += RSI_BLOCK_BYTES) {
        size_t n = (size_t)rsi_min((int64_t)(part->len - at), RSI_BLOCK_BYTES);

        rsi_zip_gap_write(part->zip, part->nth, part->crc, at, n, pack);
        rc = rsi_encoder_feed(encoder, pack, n, err);
    }
    return rc;
}

static rsd_err encode_item(worker *w, const rsi_out_item *item, rsi_append *s, unsigned char *pack,
                           rsd_error *err)
{
    const rsi_image *image = w->f->image;
    rsi_encoder     *encoder = NULL;
    uint64_t         start = s->at;
    rsd_err          rc = rsi_append_cut(s, err);

    if (!rc)
        rc = rsi_encoder_create(image->encode, rsi_append_put, s, &encoder, err);
    for (size_t i = 0; i < item->nparts && !rc; i++)
        rc = encode_part(w, encoder, &image->part[item->first + i], pack, err);
    if (!rc)
        rc = rsi_encoder_end(encoder, err);
    rsi_encoder_free(encoder);
    if (item->row) {
        item->row->offset = (int64_t)start;
        item->row->length = (int64_t)(s->at - start);
    }
    return rc;
}

/* Owns `pack`. */
static rsd_err write_stream(worker *w, out_file *out, void *pack, rsd_error *err)
{
    rsi_image    *image = w->f->image;
    rsi_out_file *file = &image->file[out->which];
    rsi_append    s = {
           .spool = &w->spool, .to = &out->to, .sums = sums_of(w), .file = (uint32_t)out->which
    };
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < file->nitems && !rc; i++)
        rc = encode_item(w, &image->item[file->first + i], &s, pack, err);
    if (!rc)
        rc = rsi_append_end(&s, err);
    rsi_append_drop(&s);
    rsi_pool_put(w->f->pool, pack);
    file->bytes = s.at;
    return rc;
}

/* ---- threads ---- */

/* Writes until no work is left to take. */
static rsd_err write_some(worker *w, rsd_error *err)
{
    out_file *out;
    size_t    block;
    void     *buf;
    bool      none = false;
    rsd_err   rc = RSD_OK;

    while (!rc) {
        rc = rsi_write_queue_buffer(&w->spool, &buf, err);
        if (rc)
            break;
        rc = take(w, &out, &block, &none, err);
        if (rc || none) {
            rsi_pool_put(w->f->pool, buf);
            break;
        }
        rc = is_transformed(w->f->image, out->which) ? write_stream(w, out, buf, err)
                                                     : write_block(w, out, block, buf, err);
    }
    return rc;
}

static rsd_err run_worker(void *arg, size_t i, rsd_error *err)
{
    flushing *f = arg;
    worker    w = { .f = f };
    rsd_err   rc = RSD_OK, drained;

    (void)i;
    if (f->opts->plain)
        rsi_write_queue_open_plain(&w.spool, f->store, f->pool, f->opts->sync);
    else
        rc = rsi_write_queue_open(&w.spool, f->store, f->pool, f->opts->sync, err);
    if (!rc) {
        rc = write_some(&w, err);
        drained = rsi_write_queue_drain(&w.spool, rc ? NULL : err);
        rc = rc ? rc : drained;
    }
    rsi_write_queue_close(&w.spool);
    pthread_mutex_lock(&f->lock);
    if (!rc && f->opts->sums)
        rc = rsi_sums_join(f->opts->sums, w.sums.row, w.sums.n, err);
    if (rc) {
        f->failed = true;
        pthread_cond_broadcast(&f->settled);
    }
    pthread_mutex_unlock(&f->lock);
    rsi_sums_release(&w.sums);
    return w.stopped ? RSD_OK : rc; /* the other thread reports the reason */
}

/* Lists a rank's files and checks now that the views hold their contents. */
static rsd_err list_files(flushing *f, int32_t rank, rsd_error *err)
{
    for (size_t i = 0; i < f->image->nfiles; i++) {
        const rsi_out_file *file = &f->image->file[i];
        size_t              n, first = rsi_image_parts(f->image, i, &n);
        out_file           *out = &f->out[f->n];

        if (rank >= 0 && file->owner != rank)
            continue;
        *out = (out_file){ .which = i, .nblocks = 1 };
        if (!is_transformed(f->image, i) && file->bytes > 0)
            out->nblocks = (size_t)((file->bytes - 1) / RSI_BLOCK_BYTES + 1);
        atomic_init(&out->to.left, out->nblocks);
        f->n++;
        for (size_t k = first; k < first + n; k++) {
            const rsi_out_part     *part = &f->image->part[k];
            const rsi_state_tensor *tensor = &f->state->tensor[part->tensor];
            rsd_box                 box;
            rsd_err                 rc;

            if (part->kind != RSI_PART_DATA)
                continue;
            f->total += (int64_t)part->len;
            box = rsi_part_box(f->state, part);
            rc = rsi_tensor_check(tensor, &box, err);
            if (rc)
                return rc;
        }
    }
    return RSD_OK;
}

/* Chooses the number of threads: each uses at most two buffers at a time. */
static rsd_err start(flushing *f, rsi_workers **workers, size_t *n, rsd_error *err)
{
    size_t  staging = f->opts->staging ? f->opts->staging : STAGING, blocks = 0;
    rsd_err rc;

    staging = staging < (size_t)2 * RSI_BLOCK_BYTES ? (size_t)2 * RSI_BLOCK_BYTES : staging;
    for (size_t i = 0; i < f->n; i++)
        blocks += f->out[i].nblocks;
    rc = rsi_workers_create(f->n && !f->opts->plain ? f->opts->threads : 1, workers, err);
    if (rc)
        return rc;
    *n = (size_t)rsi_workers_count(*workers);
    *n = *n < blocks ? *n : blocks;
    if (*n > 1 && !(rsi_store_flags(f->store) & RSD_STORE_RANDOM_WRITE))
        *n = 1;
    if (*n > staging / RSI_BLOCK_BYTES / 2)
        *n = staging / RSI_BLOCK_BYTES / 2;
    return rsi_pool_create(staging, RSI_BLOCK_BYTES, &f->pool, err);
}

rsd_err rsi_write_files(rsi_image *image, const rsd_state *state, int32_t rank, rsd_store *store,
                        const rsi_write_opts *opts, rsd_error *err)
{
    flushing     f = { .image = image,
                       .state = state,
                       .store = store,
                       .opts = opts,
                       .lock = PTHREAD_MUTEX_INITIALIZER };
    rsi_workers *workers = NULL;
    size_t       threads = 0;
    rsd_err      rc;

    f.out = rsi_calloc(image->nfiles, sizeof(f.out[0]));
    if (!f.out)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a list of files");
    rsi_pulse_cond(&f.settled);
    rc = list_files(&f, rank, err);
    if (!rc && f.n > 0)
        rc = start(&f, &workers, &threads, err);
    if (!rc && f.n > 0)
        rc = rsi_workers_run(workers, threads, run_worker, &f, err);
    rsi_workers_free(workers);
    for (size_t i = 0; i < f.n; i++)
        rsi_file_close(f.out[i].to.file, NULL); /* files that a failure left open */
    rsi_pool_free(f.pool);
    pthread_cond_destroy(&f.settled);
    rsi_free(f.out);
    return rc;
}

/* ---- metadata and checksums ---- */

typedef rsd_err (*writer)(void *arg, rsi_sink put, void *to, rsd_error *err);

/* Writes a separate file whose contents `write` produces. */
static rsd_err write_one(rsd_store *store, const rsi_write_opts *opts, const char *name,
                         rsi_sums *sums, uint32_t number, writer write, void *arg, uint64_t *bytes,
                         rsd_error *err)
{
    rsi_pool       *pool = NULL;
    rsi_write_queue spool = { 0 };
    rsi_queued_file to = { 0 };
    rsi_append      s = { .spool = &spool, .to = &to, .sums = sums, .file = number };
    rsd_err         rc = rsi_pool_create((size_t)2 * RSI_BLOCK_BYTES, RSI_BLOCK_BYTES, &pool, err);

    atomic_init(&to.left, 1);
    if (!rc)
        rc = rsi_write_queue_open(&spool, store, pool, opts->sync, err);
    if (!rc)
        rc = open_own(store, opts, name, 0, &to.file, err);
    if (!rc)
        rc = write(arg, rsi_append_put, &s, err);
    if (!rc)
        rc = rsi_append_end(&s, err);
    if (!rc)
        *bytes = s.at;
    if (pool)
        rsi_append_drop(&s);
    rsi_write_queue_close(&spool);
    rsi_file_close(to.file, NULL);
    rsi_pool_free(pool);
    return rc;
}

/* Metadata on their way into the file, and their hash. */
typedef struct meta_file {
    const rsi_dcp_meta *meta;
    rsi_hash128_stream *hash; /* NULL: not wanted */
    rsi_sink            put;
    void               *to;
} meta_file;

static rsd_err put_metadata(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    const meta_file *m = arg;

    if (m->hash)
        rsi_hash128_feed(m->hash, bytes, len);
    return m->put(m->to, bytes, len, err);
}

static rsd_err write_metadata(void *arg, rsi_sink put, void *to, rsd_error *err)
{
    meta_file *m = arg;

    m->put = put;
    m->to = to;
    if (m->hash)
        rsi_hash128_begin(m->hash);
    return rsi_dcp_meta_write(m->meta, put_metadata, m, err);
}

static rsd_err write_bytes(void *arg, rsi_sink put, void *to, rsd_error *err)
{
    const rsi_bytes *bytes = arg;

    return put(to, bytes->at, bytes->len, err);
}

static rsd_err write_catalogue(const meta_file *m, rsd_store *store, const rsi_write_opts *opts,
                               uint64_t size, rsd_error *err)
{
    rsi_meta_id id = { .bytes = size };
    rsi_bytes   bytes = { 0 };
    rsd_err     rc;

    if (!m->hash || !rsi_catalogue_worth(m->meta, size))
        return RSD_OK;
    rsi_hash128_end(m->hash, id.hash);
    rc = rsi_catalogue_make(m->meta, &id, &bytes)
             ? write_one(store, opts, RSI_CATALOGUE_NAME, NULL, 0, write_bytes, &bytes, &size, err)
             : rsi_fail(err, RSD_E_NOMEM, "no memory for a catalogue");
    rsi_free(bytes.at);
    return rc;
}

rsd_err rsi_write_metadata(const rsi_image *image, rsd_store *store, const rsi_write_opts *opts,
                           uint64_t *bytes, rsd_error *err)
{
    meta_file m = { .meta = image->meta };
    rsd_err   rc = RSD_OK;

    *bytes = 0;
    if (!image->meta)
        return RSD_OK;
    if (rsi_hash128_available()) {
        m.hash = rsi_hash128_create();
        rc = m.hash ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory to hash metadata");
    }
    if (!rc)
        rc = write_one(store, opts, ".metadata", opts->sums, (uint32_t)image->nfiles,
                       write_metadata, &m, bytes, err);
    if (!rc)
        rc = write_catalogue(&m, store, opts, *bytes, err);
    rsi_hash128_free(m.hash);
    return rc;
}

typedef struct side_file {
    rsi_sums    *sums;
    size_t       n;
    const char **name; /* [n] */
    uint64_t    *size;
} side_file;

static rsd_err write_sums(void *arg, rsi_sink put, void *to, rsd_error *err)
{
    side_file *side = arg;

    return rsi_sums_write(side->sums, side->n, side->name, side->size, put, to, err);
}

rsd_err rsi_write_sums(const rsi_image *image, rsd_store *store, const rsi_write_opts *opts,
                       uint64_t metadata, const char *name, rsd_error *err)
{
    side_file side = { .sums = opts->sums, .n = image->nfiles + (image->meta ? 1 : 0) };
    uint64_t  bytes;
    rsd_err   rc = RSD_OK;

    side.name = rsi_calloc(side.n, sizeof(side.name[0]));
    side.size = rsi_calloc(side.n, sizeof(side.size[0]));
    if (!side.name || !side.size)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the checksums of %zu files", side.n);
    for (size_t i = 0; i < side.n && !rc; i++) { /* sizes that are known here */
        side.name[i] = i < image->nfiles ? image->file[i].name : ".metadata";
        side.size[i] = i < image->nfiles ? image->file[i].bytes : metadata;
        if (!side.name[i])
            side.name[i] = opts->file;
    }
    for (size_t i = 0; i < side.sums->n && !rc; i++) {
        const rsi_sum_row *row = &side.sums->row[i]; /* sizes known only to the writers */

        if (row->off + row->len > side.size[row->file])
            side.size[row->file] = row->off + row->len;
    }
    if (!rc)
        rc = write_one(store, opts, name, NULL, 0, write_sums, &side, &bytes, err);
    rsi_free(side.name);
    rsi_free(side.size);
    return rc;
}
