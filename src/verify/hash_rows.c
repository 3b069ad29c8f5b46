/* SPDX-License-Identifier: Apache-2.0 */
/* Reads all bytes that the rows cover, once. Consecutive rows of a file form a job for a thread,
 * read in steps that are hashed while still in the cache. The CRC32 of claims on the same bytes is
 * computed on the way. */
#include "base/crc32.h"
#include "base/mem.h"
#include "base/pool.h"
#include "read/check_sums.h"
#include "verify/verify_core.h"

/* Consecutive rows [first, end) of one file. */
typedef struct stretch {
    size_t first, end;
} stretch;

typedef struct work {
    const rsi_row_work *rows;
    stretch            *stretch;
    size_t              n, cap;
    rsi_pool           *pool; /* buffers of RSI_CHECK_STEP bytes */
} work;

typedef struct job {
    const rsi_row_work *rows;
    uint32_t            file;
    size_t              row; /* the open one */
    rsi_hash128_stream *hash;
    size_t              claim;   /* the open one */
    uint32_t            crc;     /* of its bytes so far */
    bool                stopped; /* by the rsi_row_work's `done` */
} job;

rsd_err rsi_progress_add(rsi_progress *p, uint64_t bytes, rsd_error *err)
{
    int stop = 0;

    pthread_mutex_lock(&p->lock);
    p->done += bytes;
    if (p->call)
        stop = p->call(p->arg, (int64_t)p->done, (int64_t)p->total);
    pthread_mutex_unlock(&p->lock);
    return stop ? rsi_fail(err, RSD_E_CANCELED, "canceled by the caller") : RSD_OK;
}

static uint64_t row_end(const rsi_sum_row *row)
{
    return row->off + row->len;
}

/* A job takes consecutive rows up to the size of one row of maximum length. */
static rsd_err make_stretches(work *w, rsd_error *err)
{
    const rsi_row_work *rows = w->rows;

    for (size_t i = 0; i < rows->n; i++) {
        const rsi_sum_row *row = &rows->row[i];
        const rsi_file    *file = rows->file[row->file];
        stretch           *last = w->n ? &w->stretch[w->n - 1] : NULL;

        if (!file || row_end(row) > file->size)
            continue;
        if (last && last->end == i && rows->row[last->first].file == row->file &&
            row_end(row) - rows->row[last->first].off <= RSI_SUM_ROW_BYTES) {
            last->end++;
            continue;
        }
        if (!rsi_grow(&w->stretch, w->n, &w->cap, sizeof(w->stretch[0])))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the work on %zu rows", rows->n);
        w->stretch[w->n++] = (stretch){ i, i + 1 };
    }
    return RSD_OK;
}

/* The first claim that ends after byte `off` of a file. Claims are disjoint or cover the same
 * bytes. */
static size_t first_claim(const rsi_row_work *rows, size_t place, uint64_t off)
{
    size_t lo = 0, hi = rows->nclaims;

    while (lo < hi) {
        const size_t     mid = lo + (hi - lo) / 2;
        const rsi_claim *c = &rows->claim[mid];

        if (c->place < place || (c->place == place && c->off + c->len <= off))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The open claim, if it begins before byte `end` of the file. */
static rsi_claim *open_claim(const job *j, uint64_t end)
{
    rsi_claim *c = j->claim < j->rows->nclaims ? &j->rows->claim[j->claim] : NULL;

    return c && c->place == j->file && c->off < end ? c : NULL;
}

/* Adds the CRC of a claim's bytes up to `end`. The CRC of the whole is the XOR of its parts' CRCs,
 * each extended by the zeros that replace the bytes after it; the order does not matter. */
static void add_crc(job *j, rsi_claim *c, uint64_t end)
{
    const uint32_t part = rsi_crc32_combine(j->crc, 0, c->off + c->len - end);

    pthread_mutex_lock(&j->rows->progress->lock);
    c->found ^= part;
    pthread_mutex_unlock(&j->rows->progress->lock);
    j->crc = 0;
}

static void take_crcs(job *j, uint64_t off, const unsigned char *bytes, size_t len)
{
    for (rsi_claim *c; (c = open_claim(j, off + len));) {
        const uint64_t lo = c->off > off ? c->off : off, end = c->off + c->len;
        const uint64_t hi = end < off + len ? end : off + len;

        j->crc = rsi_crc32(j->crc, bytes + (lo - off), (size_t)(hi - lo));
        if (hi < end)
            return;
        add_crc(j, c, end);
        do
            j->claim++;
        while (j->claim < j->rows->nclaims && rsi_claim_same(&j->rows->claim[j->claim], c));
    }
}

static rsd_err see(void *arg, uint64_t off, const void *bytes, size_t len, rsd_error *err)
{
    job                 *j = arg;
    const rsi_row_work  *rows = j->rows;
    const unsigned char *at = bytes;
    unsigned char        hash[RSI_HASH128_BYTES];
    rsd_err              rc = RSD_OK;

    take_crcs(j, off, bytes, len);
    while (len && !rc) {
        const uint64_t left = row_end(&rows->row[j->row]) - off;
        const size_t   now = left < len ? (size_t)left : len;

        rsi_hash128_feed(j->hash, at, now);
        off += now;
        at += now;
        len -= now;
        if (now < left)
            break;
        rsi_hash128_end(j->hash, hash);
        rsi_hash128_begin(j->hash);
        rc = rows->done(rows->arg, j->row++, 1, hash, NULL, err);
        j->stopped = rc != RSD_OK;
    }
    return rc;
}

static rsd_err hash_stretch(void *arg, size_t i, rsd_error *err)
{
    const work         *w = arg;
    const rsi_row_work *rows = w->rows;
    const stretch      *s = &w->stretch[i];
    const uint64_t      off = rows->row[s->first].off, end = row_end(&rows->row[s->end - 1]);
    const uint32_t      file = rows->row[s->first].file;
    rsd_error           what = { .rank = -1 };
    job       j = { .rows = rows, .file = file, .row = s->first, .hash = rsi_hash128_create() };
    rsi_steps steps = { .file = rows->file[file], .see = see, .arg = &j };
    void     *buf;
    rsd_err   rc;

    if (!j.hash)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a checksum");
    rc = rsi_pool_get(w->pool, &buf, err);
    if (rc)
        goto out;
    j.claim = first_claim(rows, file, off);
    rc = rsi_steps_read(&steps, off, end - off, buf, &what);
    rsi_pool_put(w->pool, buf);
    if (!rc && open_claim(&j, end))
        add_crc(&j, open_claim(&j, end), end);
    if (rc && j.stopped && err)
        *err = what;
    else if (rc && !j.stopped)
        rc = rows->done(rows->arg, s->first, s->end - s->first, NULL, &what, err);
    if (!rc)
        rc = rsi_progress_add(rows->progress, end - off, err);
out:
    rsi_hash128_free(j.hash);
    return rc;
}

rsd_err rsi_hash_rows(const rsi_row_work *rows, rsi_workers *workers, size_t staging,
                      rsd_error *err)
{
    work    w = { .rows = rows };
    rsd_err rc = make_stretches(&w, err);

    staging = staging ? staging : (size_t)64 << 20;
    if (!rc)
        rc = rsi_pool_create(staging < RSI_CHECK_STEP ? RSI_CHECK_STEP : staging, RSI_CHECK_STEP,
                             &w.pool, err);
    if (!rc)
        rc = rsi_workers_run(workers, w.n, hash_stretch, &w, err);
    rsi_pool_free(w.pool);
    rsi_free(w.stretch);
    return rc;
}
