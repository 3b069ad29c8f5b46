/* SPDX-License-Identifier: Apache-2.0 */
/* A list of unfinished records behind a lock, each with the CRCs of the ranges that were read;
 * adjacent ranges are joined, so there are few. fetch_jobs.c adds to them, a conversion finishes
 * those that are left. */
#include "read/record_crcs.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "read/check_sums.h"

#include <pthread.h>
#include <string.h>

enum { MOST = 1024 }; /* unfinished records; those of ZeRO's ranks are read side by side */

typedef struct range {
    uint64_t off, end; /* in the file */
    uint32_t crc;
} range;

typedef struct record {
    uint64_t off, end; /* in the file; end 0: not in use */
    uint32_t file, crc;
    size_t   t;     /* a tensor in it, for messages */
    range   *range; /* [n] ascending; neither overlapping nor adjacent */
    size_t   n, cap;
} record;

struct rsi_record_crcs {
    rsd_ckpt       *ckpt;
    pthread_mutex_t lock;
    size_t          n; /* none after the first n was ever in use */
    record          list[MOST];
};

rsd_err rsi_record_crcs_create(rsd_ckpt *ckpt, rsi_record_crcs **out, rsd_error *err)
{
    rsi_record_crcs *s = rsi_calloc(1, sizeof(*s));

    if (!s)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for checksums");
    s->ckpt = ckpt;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return RSD_OK;
}

void rsi_record_crcs_free(rsi_record_crcs *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        rsi_free(s->list[i].range);
    pthread_mutex_destroy(&s->lock);
    rsi_free(s);
}

/* With the lock held. NULL: there is none. */
static record *find(rsi_record_crcs *s, uint32_t file, uint64_t off)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].off == off && s->list[i].end && s->list[i].file == file)
            return &s->list[i];
    return NULL;
}

static record *find_unused(rsi_record_crcs *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!s->list[i].end)
            return &s->list[i];
    return s->n < MOST ? &s->list[s->n++] : NULL;
}

static void drop(record *r)
{
    rsi_free(r->range);
    *r = (record){ 0 };
}

rsd_err rsi_record_crcs_want(rsi_record_crcs *s, rsi_extents *claims, size_t t, uint32_t file,
                             const rsi_extent *x, bool *wanted, rsd_error *err)
{
    record *r;
    bool    first = false;
    rsd_err rc = RSD_OK;

    *wanted = false;
    if (x->record_bytes <= RSI_CHECK_STEP)
        return RSD_OK;
    pthread_mutex_lock(&s->lock);
    r = find(s, file, x->record);
    if (!r && (r = find_unused(s))) {
        rc = rsi_extents_first(claims, file, x->record, &first, err);
        if (first && !rc)
            *r = (record){ .off = x->record,
                           .end = x->record + x->record_bytes,
                           .file = file,
                           .crc = x->crc32,
                           .t = t };
        else
            r = NULL;
    }
    *wanted = r && !rc;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Joins range k with the one after it if they are adjacent. */
static void join(record *r, size_t k)
{
    range *a = &r->range[k];

    if (k + 1 >= r->n || a[0].end != a[1].off)
        return;
    a[0].crc = rsi_crc32_combine(a[0].crc, a[1].crc, a[1].end - a[1].off);
    a[0].end = a[1].end;
    memmove(a + 1, a + 2, (r->n - k - 2) * sizeof(a[0]));
    r->n--;
}

static rsd_err add(record *r, const range *piece, rsd_error *err)
{
    size_t k = r->n;

    while (k > 0 && r->range[k - 1].off >= piece->off)
        k--;
    if ((k > 0 && r->range[k - 1].end > piece->off) || (k < r->n && r->range[k].off < piece->end) ||
        piece->off == piece->end)
        return RSD_OK; /* some of it came before; the rest is read at the end */
    if (!rsi_grow(&r->range, r->n, &r->cap, sizeof(r->range[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu checksums", r->n + 1);
    memmove(&r->range[k + 1], &r->range[k], (r->n - k) * sizeof(r->range[0]));
    r->range[k] = *piece;
    r->n++;
    join(r, k);
    if (k > 0)
        join(r, k - 1);
    return RSD_OK;
}

static bool is_whole(const record *r)
{
    return r->n == 1 && r->range[0].off == r->off && r->range[0].end == r->end;
}

static rsd_err compare(const record *r, rsd_error *err)
{
    const uint32_t crc = r->range[0].crc;

    return crc == r->crc ? RSD_OK : rsi_check_crc_differs(r->off, crc, r->crc, err);
}

rsd_err rsi_record_crcs_add(rsi_record_crcs *s, uint32_t file, const rsi_extent *x, uint64_t off,
                            uint64_t len, uint32_t crc, rsd_error *err)
{
    const range piece = { .off = off, .end = off + len, .crc = crc };
    record     *r;
    rsd_err     rc = RSD_OK;

    pthread_mutex_lock(&s->lock);
    r = find(s, file, x->record); /* NULL: completed or dropped meanwhile */
    if (r)
        rc = add(r, &piece, err);
    if (r && !rc && is_whole(r)) {
        rc = compare(r, err);
        drop(r);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

bool rsi_record_crcs_drop(rsi_record_crcs *s, uint32_t file, const rsi_extent *x)
{
    record *r;

    pthread_mutex_lock(&s->lock);
    r = find(s, file, x->record);
    if (r)
        drop(r);
    pthread_mutex_unlock(&s->lock);
    return r != NULL;
}

/* ---- the end ---- */

/* Reads the range before the k-th. */
static rsd_err read_gap(rsi_file *file, record *r, size_t k, void *buf, rsd_error *err)
{
    range     gap = { .off = k ? r->range[k - 1].end : r->off,
                      .end = k < r->n ? r->range[k].off : r->end };
    rsi_steps steps = { .file = file, .crc = &gap.crc };
    rsd_err   rc = rsi_steps_read(&steps, gap.off, gap.end - gap.off, buf, err);

    return rc ? rc : add(r, &gap, err);
}

/* A job: `arg` is the list. Each record has one job, so no lock is needed. */
static rsd_err finish(void *arg, size_t i, rsd_error *err)
{
    rsi_record_crcs *s = arg;
    record          *r = &s->list[i];
    rsd_tensor_info  info;
    void            *buf;
    rsd_err          rc;

    if (!r->end)
        return RSD_OK;
    buf = rsi_alloc_aligned(4096, RSI_CHECK_STEP);
    rc = buf ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer");
    while (!rc && !is_whole(r))
        rc = read_gap(s->ckpt->files.file[r->file], r, r->n && r->range[0].off == r->off, buf, err);
    if (!rc)
        rc = compare(r, err);
    rsi_free(buf);
    if (!rc)
        return RSD_OK;
    s->ckpt->ops->tensor(s->ckpt, r->t, &info);
    rsi_while(err, rc, "file \"%s\"", rsi_files_name(&s->ckpt->files, r->file));
    return rsi_while(err, rc, "tensor \"%s\"", info.name);
}

rsd_err rsi_record_crcs_finish(rsi_record_crcs *s, rsi_workers *workers, rsd_error *err)
{
    return rsi_workers_run(workers, s->n, finish, s, err);
}
