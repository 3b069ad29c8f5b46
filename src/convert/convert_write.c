/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the blocks (convert_blocks.c) of a conversion: each thread takes one block after the other
 * and reads, sums and writes it alone, so reading and writing overlap and no byte is copied twice.
 * Ranks divide the blocks evenly by bytes. Late blocks come in a second pass, when the CRCs are
 * known. */
#include "convert/convert_write.h"
#include "base/checked.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "base/pool.h"
#include "write/block.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SLICE ((size_t)1 << 20) /* bytes read, summed and written at once */
#define PAGE  ((size_t)4096)

/* Consecutive blocks of one file that a thread processes together. */
typedef struct unit {
    size_t   first, n;
    uint64_t bytes;
    bool     wide; /* all of it is pulled at once */
} unit;

/* A file of the target on this rank. */
typedef struct target {
    size_t left;  /* units of this pass not yet done */
    bool   later; /* the next pass has more for it */
} target;

typedef struct pass {
    rsi_convert_job *job;
    size_t           first, end; /* this rank's blocks */
    bool             check;      /* compares existing bytes instead of writing */
    unit            *unit;
    size_t           n, cap;
    target          *target; /* [nfiles] */
    rsi_pool        *pool;
    pthread_mutex_t  lock; /* guards what follows, and `target` */
    int64_t          done, total;
} pass;

/* One thread's work on a unit. */
typedef struct doing {
    pass               *p;
    rsi_file           *file;
    bool                wide; /* `buf` holds the whole unit */
    unsigned char      *buf;
    size_t              fill;
    uint64_t            off; /* of buf[0] in the file */
    rsi_hash128_stream *hash;
} doing;

static rsd_err open_target(const rsi_convert_job *job, size_t f, uint32_t flags, rsi_file **out,
                           rsd_error *err)
{
    const rsi_out_file *file = &job->commit.image.file[f];

    return rsi_write_open(job->commit.store, &job->commit.flush, file->name, flags, file->bytes,
                          out, err);
}

rsd_err rsi_convert_make_files(const rsi_convert_job *job, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t f = 0; f < job->commit.image.nfiles && !rc; f++) {
        rsi_file *file = NULL;

        rc = open_target(job, f, RSD_OPEN_CREATE, &file, err);
        if (rc == RSD_E_EXISTS)
            rc = RSD_OK;
        else if (!rc)
            rc = rsi_file_close(file, err);
    }
    return rc;
}

/* ---- blocks ---- */

static rsd_err flush(doing *d, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (d->fill && !d->p->check)
        rc = rsi_file_write(d->file, d->off, d->buf, d->fill, err);
    d->off += d->fill;
    d->buf += d->wide ? d->fill : 0;
    d->fill = 0;
    return rc;
}

static rsd_err untold(void *arg, size_t bytes, rsd_error *err)
{
    (void)arg;
    (void)bytes;
    (void)err;
    return RSD_OK;
}

/* Computes CRCs of a slice of a block. A storage with several blocks gets its CRC from theirs
 * (convert_blocks.c); the slices of a block come in order. */
static void sum_slice(rsi_convert_block *cut, const rsi_file_block *slice)
{
    const rsi_out_part *part = &slice->image->part[cut->part];
    uint32_t            crc = slice->head_crc;

    if (!cut->piece) {
        rsi_file_block_settle(slice);
        return;
    }
    if (!slice->head)
        crc = part->crc[part->nth];
    cut->crc = slice->at == cut->off ? crc : rsi_crc32_combine(cut->crc, crc, slice->len);
}

/* Moves the bytes of one block, slice by slice, to or from the file. */
static rsd_err do_cut(doing *d, rsi_convert_block *cut, rsd_error *err)
{
    rsi_convert_job *job = d->p->job;
    rsd_err          rc = RSD_OK;

    for (uint32_t done = 0; done < cut->len && !rc;) {
        rsi_file_block slice = { .image = &job->commit.image,
                                 .state = job->state,
                                 .file = cut->file,
                                 .at = cut->off + done,
                                 .buf = d->buf + d->fill,
                                 .ready = d->p->check || d->wide,
                                 .told = untold };

        slice.len = (size_t)rsi_min(cut->len - done, (int64_t)(SLICE - d->fill));
        if (d->p->check) {
            rc = rsi_file_read(d->file, slice.at, slice.buf, slice.len, err);
            if (!rc && d->hash) /* the rest of the slice is rebuilt: only CRCs are needed */
                rsi_hash128_feed(d->hash, slice.buf, slice.len);
        }
        if (!rc)
            rc = rsi_file_block_fill(&slice, err);
        if (!rc)
            sum_slice(cut, &slice);
        if (!rc)
            rc = rsi_file_block_late(&slice, err);
        if (!rc && d->hash && !d->p->check)
            rsi_hash128_feed(d->hash, slice.buf, slice.len);
        d->fill += slice.len;
        done += (uint32_t)slice.len;
        if (!rc && d->fill == SLICE)
            rc = flush(d, err);
    }
    return rc;
}

static rsd_err tell_progress(pass *p, uint64_t bytes, rsd_error *err)
{
    int stop = 0;

    pthread_mutex_lock(&p->lock);
    rsi_beat(); /* another thread's call may have been slow, and this one may be too */
    p->done += (int64_t)bytes;
    if (p->job->commit.flush.on_progress)
        stop = p->job->commit.flush.on_progress(p->job->commit.flush.arg, p->done, p->total);
    pthread_mutex_unlock(&p->lock);
    rsi_beat();
    return stop ? rsi_fail(err, RSD_E_CANCELED, "canceled by the caller") : RSD_OK;
}

/* Each thread has a handle of its own, so that none waits for another thread's file while it holds
 * a lock. */
static rsd_err open_unit(const pass *p, size_t f, rsi_file **out, rsd_error *err)
{
    return open_target(p->job, f, p->check ? RSD_OPEN_READ : RSD_OPEN_WRITE | RSD_OPEN_DIRECT, out,
                       err);
}

/* The thread that finishes a file's last unit syncs what all of them wrote (C3). */
static rsd_err close_unit(pass *p, size_t f, rsi_file *file, rsd_err rc, rsd_error *err)
{
    target *t = &p->target[f];
    bool    last;
    rsd_err closed;

    pthread_mutex_lock(&p->lock);
    last = --t->left == 0;
    pthread_mutex_unlock(&p->lock);
    if (!rc && last && p->job->commit.flush.sync && !p->check && !t->later)
        rc = rsi_file_sync(file, err);
    closed = rsi_file_close(file, rc ? NULL : err);
    return rc ? rc : closed;
}

/* Pulls the bytes of all blocks of a unit. */
static rsd_err pull_unit(const doing *d, const unit *u, rsd_error *err)
{
    const rsi_convert_job *job = d->p->job;
    rsi_file_block         all = { .image = &job->commit.image,
                                   .state = job->state,
                                   .file = job->cuts.at[u->first].file,
                                   .at = d->off,
                                   .len = (size_t)u->bytes,
                                   .buf = d->buf,
                                   .told = untold };

    return rsi_file_block_fill(&all, err);
}

/* Writes, or checks, the blocks of a unit. */
static rsd_err do_cuts(doing *d, const unit *u, rsd_error *err)
{
    rsi_convert_job *job = d->p->job;
    rsd_err          rc = d->wide ? pull_unit(d, u, err) : RSD_OK;

    for (size_t i = u->first; i < u->first + u->n && !rc; i++) {
        rsi_convert_block *cut = &job->cuts.at[i];
        unsigned char      was[RSI_HASH128_BYTES];

        memcpy(was, cut->hash, sizeof(was));
        if (d->hash)
            rsi_hash128_begin(d->hash);
        rc = do_cut(d, cut, err);
        if (d->hash)
            rsi_hash128_end(d->hash, cut->hash);
        if (d->p->check)
            cut->done = cut->reused = !rc && memcmp(was, cut->hash, sizeof(was)) == 0;
    }
    return rc ? rc : flush(d, err);
}

static rsd_err do_unit(void *arg, size_t i, rsd_error *err)
{
    pass              *p = arg;
    rsi_convert_job   *job = p->job;
    const unit        *u = &p->unit[i];
    rsi_convert_block *first = &job->cuts.at[u->first];
    doing              d = { .p = p, .off = first->off, .wide = u->wide && !p->check };
    void              *buf = NULL;
    rsd_err            rc = rsi_pool_get(p->pool, &buf, err);

    d.buf = buf; /* same page offset as in the file, so that direct I/O works */
    if (buf)
        d.buf += first->off % PAGE;
    if (!rc && (job->commit.flush.sums || job->journal)) {
        d.hash = rsi_hash128_create();
        rc = d.hash ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a hash");
    }
    if (!rc)
        rc = open_unit(p, first->file, &d.file, err);
    if (!rc)
        rc = do_cuts(&d, u, err);
    rsi_hash128_free(d.hash);
    if (buf)
        rsi_pool_put(p->pool, buf);
    if (d.file)
        rc = close_unit(p, first->file, d.file, rc, err);
    if (p->check && (rc == RSD_E_FORMAT || rc == RSD_E_NOTFOUND)) /* shorter than expected */
        return RSD_OK;
    for (size_t k = u->first; k < u->first + u->n && !rc && !p->check; k++)
        job->cuts.at[k].done = true;
    if (!rc && job->journal && !p->check)
        rc = rsi_journal_add(job->journal, &job->cuts, u->first, u->n, err);
    return rc ? rc : tell_progress(p, u->bytes, err);
}

/* ---- passes ---- */

/* A block belongs to the rank whose even share of the bytes contains the block's middle. */
static void find_share(pass *p)
{
    const rsi_convert_blocks *cuts = &p->job->cuts;
    const rsd_comm           *comm = p->job->commit.comm;
    uint64_t                  rank = comm ? (uint64_t)comm->rank : 0, at = 0, share = 0;

    for (size_t i = 0; i < cuts->n; i++)
        share += cuts->at[i].len;
    share = share / (comm ? (uint64_t)comm->size : 1) + 1;
    for (size_t i = 0; i < cuts->n; i++) {
        uint64_t owner = (at + cuts->at[i].len / 2) / share;

        p->first += owner < rank;
        p->end += owner <= rank;
        at += cuts->at[i].len;
    }
}

/* True if the block ends in a tensor that should be pulled in large ranges. */
static bool is_wide(const pass *p, const rsi_convert_block *c)
{
    const rsi_image    *image = &p->job->commit.image;
    const rsi_out_part *part;

    if (!p->job->turned)
        return false;
    part = &image->part[rsi_image_part_at(image, c->file, c->off + c->len - 1)];
    return part->kind == RSI_PART_DATA && p->job->turned[part->tensor];
}

/* Lists this rank's blocks for this pass, as units. */
static rsd_err list_units(pass *p, bool late, rsd_error *err)
{
    rsi_convert_blocks *cuts = &p->job->cuts;
    uint64_t            end = 0;
    unit               *u = NULL;

    p->n = 0;
    for (size_t i = p->first; i < p->end; i++) {
        const rsi_convert_block *c = &cuts->at[i];
        const bool               wide = is_wide(p, c);

        p->target[c->file].later |= c->late && !late;
        if (c->done != p->check || (c->late != late && !p->check))
            continue;
        if (!u || u->first + u->n != i || u->wide != wide ||
            u->bytes + c->len > (wide ? p->job->wide : RSI_CONVERT_BLOCK_BYTES) || c->off != end ||
            cuts->at[u->first].file != c->file) {
            if (!rsi_grow(&p->unit, p->n, &p->cap, sizeof(p->unit[0])))
                return rsi_fail(err, RSD_E_NOMEM, "no memory for a list of blocks");
            u = &p->unit[p->n++];
            *u = (unit){ .first = i, .wide = wide };
            p->target[c->file].left++;
        }
        u->n++;
        u->bytes += c->len;
        end = c->off + c->len;
    }
    return RSD_OK;
}

static rsd_err run_pass(pass *p, bool check, bool late, rsd_error *err)
{
    rsd_err rc;

    memset(p->target, 0, p->job->commit.image.nfiles * sizeof(p->target[0]));
    p->check = check;
    rc = list_units(p, late, err);
    if (!rc)
        rc = rsi_workers_run(p->job->workers, p->n, do_unit, p, err);
    return rsi_commit_agree(&p->job->commit, rc, err);
}

static bool has_peers(const rsi_convert_job *job)
{
    return job->commit.comm && job->commit.comm->size > 1 && job->cuts.n > 0;
}

/* Sends what each rank alone knows of its blocks to all ranks. */
static rsd_err share_blocks(const pass *p, rsd_error *err)
{
    rsi_convert_block *block = p->job->cuts.at;
    rsi_gathered       all = { 0 };
    rsd_err            rc = RSD_OK;

    if (!has_peers(p->job))
        return RSD_OK;
    rc = rsi_allgather_any(p->job->commit.comm, block + p->first,
                           (p->end - p->first) * sizeof(block[0]), &all, err);
    if (!rc)
        memcpy(block, all.data, p->job->cuts.n * sizeof(block[0]));
    rsi_gathered_release(&all);
    return rc;
}

/* The first part of the image that begins in or after the i-th block. A storage lies in one block,
 * unless it has several to itself. */
static size_t first_part(const rsi_convert_job *job, size_t i)
{
    return i == 0 ? 0 : i < job->cuts.n ? job->cuts.at[i].part : job->commit.image.nparts;
}

/* Sends the CRCs of all storages to all ranks. */
static rsd_err share_crcs(const pass *p, rsd_error *err)
{
    const rsi_image *image = &p->job->commit.image;
    size_t           lo = first_part(p->job, p->first), n = first_part(p->job, p->end) - lo;
    uint32_t        *crc = rsi_calloc(image->nparts, sizeof(crc[0]));
    rsi_gathered     all = { 0 };
    rsd_err          rc = crc ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory to agree");

    for (size_t k = 0; k < image->nparts && !rc; k++)
        crc[k] = image->part[k].crc ? image->part[k].crc[image->part[k].nth] : 0;
    rc = rsi_agree(p->job->commit.comm, rc, err);
    if (!rc)
        rc = rsi_allgather_any(p->job->commit.comm, crc + lo, n * sizeof(crc[0]), &all, err);
    for (size_t k = 0; k < image->nparts && !rc; k++)
        if (image->part[k].kind == RSI_PART_DATA && image->part[k].crc)
            image->part[k].crc[image->part[k].nth] = ((const uint32_t *)(void *)all.data)[k];
    rsi_gathered_release(&all);
    rsi_free(crc);
    return rc;
}

/* Counts this rank's total work; existing blocks count as done. */
static void count_bytes(pass *p)
{
    p->done = p->total = 0;
    for (size_t i = p->first; i < p->end; i++) {
        p->total += p->job->cuts.at[i].len;
        p->done += p->job->cuts.at[i].done ? p->job->cuts.at[i].len : 0;
    }
}

static rsd_err run_passes(pass *p, bool again, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    find_share(p);
    if (again) {
        count_bytes(p);
        p->done = 0; /* existing bytes must be checked first */
        rc = run_pass(p, true, false, err);
    }
    if (!rc)
        count_bytes(p);
    if (!rc)
        rc = run_pass(p, false, false, err);
    if (!rc)
        rc = share_blocks(p, err);
    if (rc || !p->job->cuts.nlate)
        return rc;
    rc = has_peers(p->job) ? share_crcs(p, err) : RSD_OK;
    if (rc)
        return rc;
    rsi_convert_blocks_join_crcs(&p->job->cuts, &p->job->commit.image);
    rc = run_pass(p, false, true, err);
    return rc ? rc : share_blocks(p, err);
}

/* Rank 0 knows all of them. */
static rsd_err list_rows(rsi_convert_job *job, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < job->cuts.n && !rc && rsi_commit_leads(&job->commit); i++) {
        const rsi_convert_block *c = &job->cuts.at[i];
        rsi_sum_row              row = { .off = c->off, .len = c->len, .file = c->file };

        memcpy(row.hash, c->hash, sizeof(row.hash));
        rc = rsi_sums_join(&job->commit.sums, &row, 1, err);
    }
    return rsi_commit_agree(&job->commit, rc, err);
}

rsd_err rsi_convert_write(rsi_convert_job *job, rsd_error *err)
{
    pass    p = { .job = job, .lock = PTHREAD_MUTEX_INITIALIZER };
    bool    again = false;
    size_t  each = RSI_CONVERT_BUFFER + (job->turned ? job->wide : 0);
    rsd_err rc;

    for (size_t i = 0; i < job->cuts.n; i++)
        again = again || job->cuts.at[i].done;
    p.target = rsi_calloc(job->commit.image.nfiles, sizeof(p.target[0]));
    rc = p.target ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a list of files");
    if (!rc)
        rc = rsi_pool_create((size_t)rsi_workers_count(job->workers) * each, each, &p.pool, err);
    rc = rsi_commit_agree(&job->commit, rc, err);
    if (!rc)
        rc = run_passes(&p, again, err);
    if (!rc && job->commit.flush.sums)
        rc = list_rows(job, err);
    for (size_t i = 0; i < job->cuts.n; i++)
        job->reused += job->cuts.at[i].reused ? job->cuts.at[i].len : 0;
    if (!rc)
        rsi_convert_blocks_release(&job->cuts); /* all are done */
    rsi_pool_free(p.pool);
    rsi_free(p.target);
    rsi_free(p.unit);
    return rc;
}
