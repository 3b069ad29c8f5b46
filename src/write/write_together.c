/* SPDX-License-Identifier: Apache-2.0 */
/* Writes files jointly, block by block: in each round every rank gathers one block of its share
 * (gather_block.c), fills in the remaining bytes (block.c) and writes it. A CRC that needs another
 * rank's bytes is known only at the end, so the few blocks that contain one are kept until then. */
#include "write/write_together.h"
#include "base/checked.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "state/tensor.h"
#include "write/block.h"
#include "write/gather_block.h"
#include "write/write_queue.h"

#include <stdio.h>
#include <string.h>

enum { KEPT = 4, AGREE_EVERY = 16 }; /* pending blocks; rounds between two agreements */

typedef struct sharing {
    rsi_image            *image;
    const rsd_state      *state;
    rsd_comm             *comm;
    rsd_store            *store;
    const rsi_write_opts *opts;
    rsi_holders           sources;
    rsi_gather_block      gather;
    rsi_pool             *pool;
    rsi_write_queue       spool;
    rsi_queued_file      *to;         /* [nfiles] those in which this rank has blocks */
    uint64_t             *before;     /* [nfiles + 1] blocks of the files before each */
    uint64_t              first, end; /* this rank's blocks */
    rsi_block_span       *span;       /* [ranks] of one round */
    rsi_file_block        kept[KEPT];
    size_t                nkept;
    rsi_kept             *keep; /* not NULL: finished blocks go here, not into files */
    int64_t               total, done;
} sharing;

static uint64_t first_block(const sharing *s, int64_t rank)
{
    uint64_t n = s->before[s->image->nfiles], ranks = (uint64_t)rsd_comm_size(s->comm);

    return n / ranks * (uint64_t)rank + n % ranks * (uint64_t)rank / ranks;
}

/* The block with this number, counted across all files. */
static rsi_block_span span_of(const sharing *s, uint64_t block)
{
    rsi_block_span span = { 0 };

    while (block >= s->before[span.file + 1])
        span.file++;
    span.at = (block - s->before[span.file]) * RSI_BLOCK_BYTES;
    span.len =
        (size_t)rsi_min((int64_t)(s->image->file[span.file].bytes - span.at), RSI_BLOCK_BYTES);
    return span;
}

static rsd_err told(void *arg, size_t bytes, rsd_error *err)
{
    sharing *s = arg;

    s->done += (int64_t)bytes;
    rsi_beat();
    if (s->opts->on_progress && s->opts->on_progress(s->opts->arg, s->done, s->total))
        return rsi_fail(err, RSD_E_CANCELED, "canceled by the caller");
    return RSD_OK;
}

/* ---- files ---- */

static rsd_err open_shared(const sharing *s, size_t file, uint32_t flags, rsi_file **out,
                           rsd_error *err)
{
    return rsi_write_open(s->store, s->opts, s->image->file[file].name, flags | RSD_OPEN_DIRECT,
                          s->image->file[file].bytes, out, err);
}

/* Rank 0 creates the files, so that the others can open them. */
static rsd_err create_files(const sharing *s, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < s->image->nfiles && !rc; i++) {
        rsi_file *file = NULL;

        if (!s->image->file[i].name)
            continue; /* the tree itself */
        rc = open_shared(s, i, RSD_OPEN_CREATE, &file, err);
        if (!rc)
            rc = rsi_file_close(file, err);
    }
    return rc;
}

/* Counts this rank's blocks in each file, which stays open from its first block to its last. */
static void count_blocks(const sharing *s)
{
    for (size_t i = 0; i < s->image->nfiles; i++) {
        uint64_t lo = s->before[i] > s->first ? s->before[i] : s->first;
        uint64_t hi = s->before[i + 1] < s->end ? s->before[i + 1] : s->end;

        if (lo < hi)
            atomic_init(&s->to[i].left, (size_t)(hi - lo));
    }
}

/* ---- blocks ---- */

/* Describes a block for block.c. */
static rsi_file_block block_of(sharing *s, const rsi_block_span *span, void *buf)
{
    return (rsi_file_block){ .image = s->image,
                             .state = s->state,
                             .file = span->file,
                             .at = span->at,
                             .len = span->len,
                             .buf = buf,
                             .sums = s->opts->sums,
                             .told = told,
                             .arg = s };
}

/* True if a gap of the block needs a CRC that this rank does not have yet. */
static bool must_wait(const sharing *s, const rsi_file_block *fill)
{
    const rsi_out_part *part = s->image->part;
    size_t              n, first = rsi_image_parts(s->image, fill->file, &n), k = fill->first;

    if (s->image->format != RSD_FORMAT_TORCH)
        return false;
    for (; k < first + n && part[k].at < fill->at + fill->len; k++)
        if (part[k].kind == RSI_PART_GAP && part[k].nth > 0 &&
            (part[k].nth == part[k].zip->spec.n || part[k - 1].at < span_of(s, s->first).at))
            return true;
    return false;
}

static bool has_data(const rsi_file_block *fill)
{
    const rsi_out_part *part = fill->image->part;
    size_t              n, first = rsi_image_parts(fill->image, fill->file, &n), k = fill->first;

    for (; k < first + n && part[k].at < fill->at + fill->len; k++)
        if (part[k].kind == RSI_PART_DATA)
            return true;
    return false;
}

static rsd_err keep_block(sharing *s, const rsi_file_block *fill, rsd_error *err)
{
    rsi_kept *k = s->keep;

    if (fill->len > k->bytes - k->used)
        return rsi_fail(err, RSD_E_BUG, "a rank keeps more than its share");
    if (!rsi_grow(&k->block, k->n, &k->cap, sizeof(k->block[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a list of blocks");
    memcpy(k->mem + k->used, fill->buf, fill->len);
    k->block[k->n++] = (rsi_kept_block){ fill->file, fill->at, k->used, fill->len };
    k->used += RSI_BLOCK_BYTES; /* congruent with the file offset, so direct I/O works */
    return RSD_OK;
}

/* Completes a block and writes it; owns fill->buf. */
static rsd_err finish_block(sharing *s, rsi_file_block *fill, rsd_error *err)
{
    rsi_queued_file *to = &s->to[fill->file];
    rsd_err rc = s->image->format == RSD_FORMAT_TORCH ? rsi_file_block_late(fill, err) : RSD_OK;

    if (!rc && s->keep) {
        rc = keep_block(s, fill, err);
        rsi_pool_put(s->pool, fill->buf);
        return rc;
    }
    for (bool again = !rc && !to->file; again;
         again = rc && rsi_write_queue_relieve(&s->spool, err))
        rc = open_shared(s, fill->file, RSD_OPEN_WRITE, &to->file, err);
    if (!rc && to->file->scarce)
        rc = rsi_write_queue_drain(&s->spool, err);
    if (rc) {
        rsi_pool_put(s->pool, fill->buf);
        return rc;
    }
    return rsi_write_queue_add(&s->spool, to, fill->at, fill->buf, fill->len, err);
}

/* Processes a block whose tensor bytes are in `buf`, which it owns. */
static rsd_err make_block(sharing *s, const rsi_block_span *span, void *buf, rsd_error *err)
{
    rsi_file_block fill = block_of(s, span, buf);
    rsd_err        rc;

    fill.ready = true;
    rc = rsi_file_block_fill(&fill, err);
    if (!rc && s->image->format == RSD_FORMAT_TORCH)
        rsi_file_block_settle(&fill);
    if (!rc && !must_wait(s, &fill))
        return finish_block(s, &fill, err);
    if (!rc && s->nkept == KEPT && has_data(&fill))
        rc = rsi_fail(err, RSD_E_BUG, "too many blocks pending on CRCs");
    if (!rc && s->nkept < KEPT && has_data(&fill)) {
        s->kept[s->nkept++] = fill;
        return RSD_OK;
    }
    rsi_pool_put(s->pool, buf); /* rebuilt at the end: it has no tensor bytes */
    return rc;
}

/* The bytes of a tensor's part in this rank's share, and where in the file they begin. */
static uint64_t data_in_share(const sharing *s, size_t file, const rsi_out_part *part,
                              uint64_t *from)
{
    uint64_t before = s->before[file], to = part->at + part->len;
    uint64_t lo = s->first > before ? (s->first - before) * RSI_BLOCK_BYTES : 0;
    uint64_t hi = s->end > before ? (s->end - before) * RSI_BLOCK_BYTES : 0;

    *from = part->at > lo ? part->at : lo;
    to = to < hi ? to : hi;
    return part->kind == RSI_PART_DATA && to > *from ? to - *from : 0;
}

/* ---- CRCs of all ranks ---- */

/* One rank's piece of a storage. */
typedef struct crc_of {
    uint64_t part, off, len, crc;
} crc_of;

/* Lists this rank's pieces; their CRCs have grown from block to block. */
static size_t list_crcs(const sharing *s, crc_of *out)
{
    size_t   n, first = rsi_image_parts(s->image, 0, &n), count = 0;
    uint64_t from, len;

    for (size_t k = first; k < first + n; k++) {
        const rsi_out_part *part = &s->image->part[k];

        len = data_in_share(s, 0, part, &from);
        if (len > 0)
            out[count++] = (crc_of){ k, from - part->at, len, part->crc[part->nth] };
    }
    return count;
}

/* Gives every rank the CRCs of all storages. Ranks have their pieces in file order. */
static rsd_err join_crcs(sharing *s, rsd_error *err)
{
    crc_of      *mine = rsi_calloc(s->image->nparts, sizeof(mine[0]));
    rsi_gathered all = { 0 };
    rsd_err      rc =
        rsi_agree(s->comm, mine ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for CRCs"), err);

    if (!rc)
        rc = rsi_allgather_any(s->comm, mine, list_crcs(s, mine) * sizeof(mine[0]), &all, err);
    for (size_t at = 0; !rc && at < all.first[s->comm->size]; at += sizeof(crc_of)) {
        const rsi_out_part *part;
        uint32_t           *crc;
        crc_of              c;

        memcpy(&c, all.data + at, sizeof(c));
        part = &s->image->part[c.part];
        crc = &part->crc[part->nth];
        *crc = c.off == 0 ? (uint32_t)c.crc : rsi_crc32_combine(*crc, (uint32_t)c.crc, c.len);
    }
    rsi_gathered_release(&all);
    rsi_free(mine);
    return rc;
}

/* ---- rounds ---- */

/* Runs the rounds; a failure local to this rank is kept in *mine. */
static rsd_err run_rounds(sharing *s, rsd_err *mine, rsd_error *why, rsd_error *err)
{
    int32_t  ranks = rsd_comm_size(s->comm), me = rsd_comm_rank(s->comm);
    uint64_t rounds = s->before[s->image->nfiles] / (uint64_t)ranks + 1;
    rsd_err  rc = RSD_OK;

    for (uint64_t k = 0; k < rounds && !rc; k++) {
        void *buf = NULL;

        for (int32_t r = 0; r < ranks; r++) {
            uint64_t block = first_block(s, r) + k;

            s->span[r] =
                block < first_block(s, (int64_t)r + 1) ? span_of(s, block) : (rsi_block_span){ 0 };
        }
        if (!*mine)
            *mine = rsi_write_queue_buffer(&s->spool, &buf, why);
        /* Runs even without a buffer: peers wait for this rank's bytes. */
        rc = rsi_gather_round(&s->gather, s->span, buf, err);
        if (!*mine && s->gather.rc) {
            *mine = s->gather.rc;
            *why = s->gather.err;
        }
        if (buf && !*mine && !rc && s->span[me].len > 0)
            *mine = make_block(s, &s->span[me], buf, why);
        else if (buf)
            rsi_pool_put(s->pool, buf);
        if (!rc && k % AGREE_EVERY == AGREE_EVERY - 1) {
            *err = *why;
            rc = rsi_agree(s->comm, *mine, err);
        }
    }
    return rc;
}

/* Writes the blocks that waited for CRCs. */
static rsd_err write_kept(sharing *s, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (; s->nkept > 0 && !rc; s->nkept--)
        rc = finish_block(s, &s->kept[s->nkept - 1], err);
    for (uint64_t b = s->first; b < s->end && !rc && s->image->format == RSD_FORMAT_TORCH; b++) {
        rsi_block_span span = span_of(s, b);
        rsi_file_block fill = block_of(s, &span, NULL);
        void          *buf = NULL;

        fill.first = rsi_image_part_at(s->image, span.file, span.at);
        if (!must_wait(s, &fill) || has_data(&fill))
            continue;
        rc = rsi_write_queue_buffer(&s->spool, &buf, err);
        fill.buf = buf;
        if (!rc) {
            rc = rsi_file_block_fill(&fill, err);
            if (rc)
                rsi_pool_put(s->pool, buf);
        }
        if (!rc)
            rc = finish_block(s, &fill, err);
    }
    return rc ? rc : rsi_write_queue_drain(&s->spool, err);
}

static rsd_err check_views(const sharing *s, rsd_error *err)
{
    int32_t me = rsd_comm_rank(s->comm);

    if (!(rsi_store_flags(s->store) & RSD_STORE_RANDOM_WRITE))
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "a %s store can't have files that several ranks write",
                        rsi_store_kind(s->store));
    for (size_t t = 0; t < s->state->ntensors; t++) {
        const rsi_state_tensor *tensor = &s->state->tensor[t];
        bool                    all = rsi_holders_all(&s->sources, t, me);
        rsd_err                 rc = RSD_OK;

        for (size_t i = 0; i < s->sources.n[t] && !rc; i++)
            if (all || s->sources.chunk[t][i].rank == me)
                rc = rsi_tensor_check(tensor, &s->sources.chunk[t][i].box, err);
        if (rc)
            return rc;
    }
    return RSD_OK;
}

/* The tensor bytes in this rank's share. */
static int64_t count_data(const sharing *s)
{
    uint64_t bytes = 0, from;

    for (size_t i = 0; i < s->image->nfiles; i++) {
        size_t n, k = rsi_image_parts(s->image, i, &n), last = k + n;

        for (; k < last; k++)
            bytes += data_in_share(s, i, &s->image->part[k], &from);
    }
    return (int64_t)bytes;
}

static rsd_err prepare(sharing *s, rsd_error *err)
{
    size_t  staging = s->opts->staging ? s->opts->staging : (size_t)64 << 20;
    size_t  least = (size_t)RSI_TOGETHER_BUFFERS * RSI_BLOCK_BYTES, n = s->image->nfiles;
    rsd_err rc = rsi_holders_make(&s->sources, s->image, s->state, err);

    if (rc)
        return rc;
    s->to = rsi_calloc(n, sizeof(s->to[0]));
    s->before = rsi_calloc(n + 1, sizeof(s->before[0]));
    s->span = rsi_calloc((size_t)rsd_comm_size(s->comm), sizeof(s->span[0]));
    if (!s->to || !s->before || !s->span)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a list of files");
    for (size_t i = 0; i < n; i++)
        s->before[i + 1] =
            s->before[i] + (s->image->file[i].bytes + RSI_BLOCK_BYTES - 1) / RSI_BLOCK_BYTES;
    s->first = first_block(s, s->comm->rank);
    s->end = first_block(s, (int64_t)s->comm->rank + 1);
    for (size_t k = 0; k < s->image->nparts; k++) /* a tensor may begin in another rank's share */
        if (s->image->part[k].kind == RSI_PART_DATA && s->image->part[k].crc)
            s->image->part[k].crc[s->image->part[k].nth] = 0;
    s->total = count_data(s);
    rc = check_views(s, err);
    if (!rc)
        rc = rsi_pool_create(staging < least ? least : staging, RSI_BLOCK_BYTES, &s->pool, err);
    if (!rc)
        rc = rsi_write_queue_open(&s->spool, s->store, s->pool, s->opts->sync, err);
    if (!rc)
        rc = rsi_gather_open(&s->gather, s->comm, &s->sources, err);
    if (!rc)
        rc = rsi_pool_get(s->pool, (void **)&s->gather.inbox, err);
    for (size_t i = 0; !rc && i < (rsi_pool_count(s->pool) < 12 ? 1 : RSI_GATHER_OUT); i++)
        rc = rsi_pool_get(s->pool, (void **)&s->gather.out[i], err);
    return rc;
}

static void release(sharing *s)
{
    rsi_write_queue_close(&s->spool);
    while (s->nkept > 0)
        rsi_pool_put(s->pool, s->kept[--s->nkept].buf);
    for (size_t i = 0; i < RSI_GATHER_OUT; i++)
        if (s->gather.out[i])
            rsi_pool_put(s->pool, s->gather.out[i]);
    if (s->gather.inbox)
        rsi_pool_put(s->pool, s->gather.inbox);
    rsi_gather_close(&s->gather);
    for (size_t i = 0; i < s->image->nfiles && s->to; i++)
        rsi_file_close(s->to[i].file, NULL); /* files that a failure left open */
    rsi_pool_free(s->pool);
    rsi_free(s->to);
    rsi_free(s->before);
    rsi_free(s->span);
    rsi_holders_release(&s->sources);
}

rsd_err rsi_write_together(rsi_image *image, const rsd_state *state, rsd_comm *comm,
                           rsd_store *store, const rsi_write_opts *opts, rsi_kept *keep,
                           rsd_error *err)
{
    sharing s = {
        .image = image, .state = state, .comm = comm, .store = store, .opts = opts, .keep = keep
    };
    rsd_err   mine = RSD_OK, rc = rsi_agree(comm, prepare(&s, err), err);
    rsd_error why = { .rank = -1 }, spare;

    err = err ? err : &spare;
    if (!rc)
        rc = rsi_agree(comm, rsd_comm_rank(comm) == 0 ? create_files(&s, err) : RSD_OK, err);
    if (!rc) {
        count_blocks(&s);
        rc = run_rounds(&s, &mine, &why, err);
    }
    if (!rc) {
        *err = why;
        rc = rsi_agree(comm, mine, err);
    }
    if (!rc && image->format == RSD_FORMAT_TORCH)
        rc = join_crcs(&s, err);
    if (!rc)
        rc = rsi_agree(comm, write_kept(&s, err), err);
    release(&s);
    return rc;
}

/* ---- kept blocks ---- */

size_t rsi_kept_bytes(const rsi_image *image, int32_t ranks)
{
    uint64_t blocks = 0;

    for (size_t i = 0; i < image->nfiles; i++)
        blocks += (image->file[i].bytes + RSI_BLOCK_BYTES - 1) / RSI_BLOCK_BYTES;
    return (size_t)(blocks / (uint64_t)ranks + 1) * RSI_BLOCK_BYTES;
}

rsd_err rsi_kept_write(const rsi_kept *kept, const rsi_image *image, rsd_store *store,
                       const rsi_write_opts *opts, rsd_error *err)
{
    const sharing    s = { .image = (rsi_image *)image, .store = store, .opts = opts };
    rsi_queued_file *to = rsi_calloc(image->nfiles, sizeof(to[0]));
    rsi_write_queue  spool;
    int64_t          total = 0, done = 0;
    rsd_err          rc = RSD_OK;

    if (!to)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a list of files");
    rsi_write_queue_open_plain(&spool, store, NULL, opts->sync);
    for (size_t i = 0; i < kept->n; i++) {
        total += (int64_t)kept->block[i].len;
        atomic_fetch_add(&to[kept->block[i].file].left, 1);
    }
    for (size_t i = 0; i < kept->n && !rc; i++) {
        const rsi_kept_block *b = &kept->block[i];
        rsi_queued_file      *t = &to[b->file];

        if (!t->file)
            rc = open_shared(&s, b->file, RSD_OPEN_WRITE, &t->file, err);
        if (!rc)
            rc = rsi_file_write(t->file, b->off, kept->mem + b->at, b->len, err);
        if (!rc)
            rc = rsi_write_queue_done(&spool, t, err);
        done += (int64_t)b->len;
        if (!rc && opts->on_progress && opts->on_progress(opts->arg, done, total))
            rc = rsi_fail(err, RSD_E_CANCELED, "canceled by the caller");
    }
    for (size_t i = 0; i < image->nfiles; i++)
        rsi_file_close(to[i].file, NULL); /* files that a failure left open */
    rsi_free(to);
    return rc;
}
