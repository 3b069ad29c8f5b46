/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of the side file against the bytes of its file, in one pass: stretches of rows are jobs
 * for threads, read in steps that are hashed while they are near. The CRC32 of records that lie in
 * the same bytes is taken on the way, a part in each stretch; parts are combined at the end. */
#include "base/crc32.h"
#include "base/mem.h"
#include "base/pool.h"
#include "verify/blame.h"
#include "read/proof.h"
#include "verify/verify_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRETCH ((uint64_t)RSI_SUM_ROW_BYTES)

/* Bytes that claims are about: tensors may share them. */
typedef struct record {
    size_t   place;
    uint64_t off, len;
    uint32_t crc; /* of the parts so far */
    bool     bad; /* a row that has some of it is damaged, or it could not be read */
} record;

/* Rows of one file that follow each other. */
typedef struct stretch {
    size_t   place; /* of the file in the book */
    size_t   row, nrows;
    uint64_t off, end;
    size_t   record, nrecords; /* those that have bytes of it */
    size_t   part;             /* the first one's in `part` */
} stretch;

typedef struct part {
    uint32_t crc;
    bool     bad;
} part;

typedef struct pass {
    rsi_verifying *v;
    rsi_file     **file;   /* [files of the book] NULL: not there */
    bool          *opened; /* [files of the book] by us */
    record        *record; /* [nrecords] by place */
    size_t         nrecords;
    stretch       *stretch; /* [n] by place */
    size_t         n, cap;
    part          *part; /* [sum of nrecords of the stretches] */
    rsi_pool      *pool; /* buffers of RSI_PROOF_STEP bytes */
} pass;

/* ---- files ---- */

static rsd_err note_file(pass *p, size_t i, rsd_err code, const char *what, rsd_error *err)
{
    rsi_damage damage = { .kind = RSI_DAMAGE_SIDE, .first = p->v->ckpt->files.n + i };
    uint64_t   size;

    rsi_fail(&damage.what, code, "file \"%s\" %s", rsi_sums_file(p->v->book, i, &size), what);
    return rsi_verify_note(p->v, &damage, err);
}

/* A file that the checkpoint does not use, but the side file lists. */
static rsd_err open_other(pass *p, size_t i, rsd_error *err)
{
    rsd_ckpt   *ckpt = p->v->ckpt;
    rsd_error   why = { .rank = -1 };
    uint64_t    size;
    const char *name = rsi_sums_file(p->v->book, i, &size);
    rsd_err     rc;

    if (ckpt->files.single)
        return note_file(p, i, RSD_E_CORRUPT, "is listed in the side file of another one", err);
    rc = rsi_files_open_beside(&ckpt->files, name, false, &p->file[i], &why);
    if (rc == RSD_E_NOMEM) {
        if (err)
            *err = why;
        return rc;
    }
    if (rc == RSD_E_NOTFOUND)
        return note_file(p, i, rc, "is missing, the side file lists it", err);
    if (rc)
        return note_file(p, i, rc, "is listed in the side file and can't be opened", err);
    p->opened[i] = true;
    return p->file[i]->size == size
               ? RSD_OK
               : note_file(p, i, RSD_E_CORRUPT, "has another size than the side file says", err);
}

static rsd_err open_files(pass *p, rsd_error *err)
{
    const rsd_ckpt *ckpt = p->v->ckpt;
    size_t          n = rsi_sums_files(p->v->book);
    rsd_err         rc = RSD_OK;

    p->file = rsi_calloc(n, sizeof(p->file[0]));
    p->opened = rsi_calloc(n, sizeof(p->opened[0]));
    if (!p->file || !p->opened)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", n);
    for (size_t i = 0; i < ckpt->files.n; i++)
        if (ckpt->guard.place[i] != SIZE_MAX)
            p->file[ckpt->guard.place[i]] = ckpt->files.file[i];
    for (size_t i = 0; i < n && !rc; i++)
        if (!p->file[i])
            rc = open_other(p, i, err);
    return rc;
}

/* ---- records ---- */

static int by_place(const void *left, const void *right)
{
    const rsi_claim *a = left, *b = right;

    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    if (a->off != b->off)
        return a->off < b->off ? -1 : 1;
    return (a->len > b->len) - (a->len < b->len);
}

static bool same_record(const rsi_claim *claim, const record *r)
{
    return claim->place == r->place && claim->off == r->off && claim->len == r->len;
}

static rsd_err make_records(pass *p, rsd_error *err)
{
    rsi_verifying *v = p->v;

    p->record = rsi_calloc(v->nclaims, sizeof(p->record[0]));
    if (!p->record)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu records", v->nclaims);
    if (v->nclaims)
        qsort(v->claim, v->nclaims, sizeof(v->claim[0]), by_place);
    for (size_t i = 0; i < v->nclaims; i++) {
        const rsi_claim *c = &v->claim[i];

        if (p->nrecords && same_record(c, &p->record[p->nrecords - 1]))
            continue;
        p->record[p->nrecords++] = (record){ .place = c->place, .off = c->off, .len = c->len };
    }
    return RSD_OK;
}

/* ---- stretches ---- */

static rsd_err add_stretches(pass *p, size_t place, rsd_error *err)
{
    const rsi_sum_row *row;
    size_t             n, i = 0;

    row = rsi_sums_rows_of(p->v->book, place, &n);
    while (p->file[place] && i < n) {
        stretch s = { .place = place, .row = i, .off = row[i].off, .end = row[i].off };

        if (row[i].off + row[i].len > p->file[place]->size)
            break; /* the file is shorter than it was, which has been told */
        for (; i < n && (s.end == s.off || row[i].off + row[i].len - s.off <= STRETCH) &&
               row[i].off + row[i].len <= p->file[place]->size;
             i++)
            s.end = row[i].off + row[i].len;
        s.nrows = i - s.row;
        if (!rsi_grow(&p->stretch, p->n, &p->cap, sizeof(p->stretch[0])))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the work on %zu rows", n);
        p->stretch[p->n++] = s;
    }
    return RSD_OK;
}

/* Both lists are sorted by place; records lie apart, so those of a stretch stand together. */
static rsd_err share_records(pass *p, rsd_error *err)
{
    size_t next = 0, parts = 0;

    for (size_t i = 0; i < p->n; i++) {
        stretch *s = &p->stretch[i];
        size_t   r;

        while (next < p->nrecords && (p->record[next].place < s->place ||
                                      (p->record[next].place == s->place &&
                                       p->record[next].off + p->record[next].len <= s->off)))
            next++;
        s->record = next;
        s->part = parts;
        for (r = next;
             r < p->nrecords && p->record[r].place == s->place && p->record[r].off < s->end; r++)
            ;
        s->nrecords = r - next;
        parts += s->nrecords;
    }
    p->part = rsi_calloc(parts, sizeof(p->part[0]));
    return p->part ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu checksums", parts);
}

/* What a record and bytes [off, end) share; false: nothing. */
static bool overlap(const record *r, uint64_t off, uint64_t end, uint64_t *lo, uint64_t *hi)
{
    *lo = r->off > off ? r->off : off;
    *hi = r->off + r->len < end ? r->off + r->len : end;
    return *lo < *hi;
}

static void take_crcs(const pass *p, const stretch *s, uint64_t off, const unsigned char *bytes,
                      size_t len)
{
    uint64_t lo, hi;

    for (size_t i = 0; i < s->nrecords; i++)
        if (overlap(&p->record[s->record + i], off, off + len, &lo, &hi))
            p->part[s->part + i].crc =
                rsi_crc32(p->part[s->part + i].crc, bytes + (lo - off), (size_t)(hi - lo));
}

static rsd_err note_row(const pass *p, const stretch *s, uint64_t off, uint64_t len,
                        const rsd_error *what, rsd_error *err)
{
    rsi_damage damage = { .kind = RSI_DAMAGE_ROW,
                          .first = s->place,
                          .second = off,
                          .place = s->place,
                          .off = off,
                          .len = len,
                          .what = *what };
    uint64_t   lo, hi;

    for (size_t i = 0; i < s->nrecords; i++)
        if (overlap(&p->record[s->record + i], off, off + len, &lo, &hi))
            p->part[s->part + i].bad = true;
    return rsi_verify_note(p->v, &damage, err);
}

/* Hashes the next bytes of a stretch; *row is the open one, and moves on when it is full. */
static rsd_err hash_bytes(const pass *p, const stretch *s, const rsi_sum_row **row, uint64_t off,
                          const unsigned char *bytes, size_t len, rsi_hash128_stream *stream,
                          rsd_error *err)
{
    unsigned char hash[RSI_HASH128_BYTES];

    while (len) {
        uint64_t left = (*row)->off + (*row)->len - off;
        size_t   now = left < len ? (size_t)left : len;

        rsi_hash128_feed(stream, bytes, now);
        off += now;
        bytes += now;
        len -= now;
        if (now < left)
            return RSD_OK;
        rsi_hash128_end(stream, hash);
        if (memcmp(hash, (*row)->hash, sizeof(hash)) != 0) {
            rsd_error what = { .rank = -1 };
            rsd_err   rc;

            rsi_proof_differs(*row, &what);
            rc = note_row(p, s, (*row)->off, (*row)->len, &what, err);
            if (rc)
                return rc;
        }
        rsi_hash128_begin(stream);
        (*row)++;
    }
    return RSD_OK;
}

static rsd_err check_stretch(void *arg, size_t i, rsd_error *err)
{
    const pass         *p = arg;
    const stretch      *s = &p->stretch[i];
    size_t              n;
    const rsi_sum_row  *row = rsi_sums_rows_of(p->v->book, s->place, &n) + s->row;
    rsi_hash128_stream *stream = rsi_hash128_create();
    void               *buf;
    rsd_err             rc;

    if (!stream)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a checksum");
    rc = rsi_pool_get(p->pool, &buf, err);
    if (rc)
        goto out;
    for (uint64_t off = s->off; off < s->end && !rc;) {
        size_t    len = s->end - off < RSI_PROOF_STEP ? (size_t)(s->end - off) : RSI_PROOF_STEP;
        rsd_error what = { .rank = -1 };

        if (rsi_file_read(p->file[s->place], off, buf, len, &what)) {
            rc = note_row(p, s, s->off, s->end - s->off, &what, err);
            break;
        }
        take_crcs(p, s, off, buf, len);
        rc = hash_bytes(p, s, &row, off, buf, len, stream, err);
        off += len;
    }
    if (!rc)
        rc = rsi_verify_step(p->v, s->end - s->off, err);
    rsi_pool_put(p->pool, buf);
out:
    rsi_hash128_free(stream);
    return rc;
}

/* ---- the end: records and names ---- */

static rsd_err note_claim(const pass *p, const rsi_claim *c, uint32_t crc, rsd_error *err)
{
    rsi_damage damage = { .kind = RSI_DAMAGE_TENSOR, .first = c->t, .second = c->i };

    rsi_fail(&damage.what, RSD_E_CORRUPT,
             "the data from byte %" PRIu64 " on have the CRC32 %08" PRIx32
             ", the file says %08" PRIx32,
             c->off, crc, c->crc32);
    rsi_verify_name(p->v, c->t, c->i, &damage.what);
    return rsi_verify_note(p->v, &damage, err);
}

/* What lies in a bad row is told with that. */
static rsd_err compare_crcs(pass *p, rsd_error *err)
{
    size_t  r = 0;
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < p->n; i++) {
        const stretch *s = &p->stretch[i];

        for (size_t k = 0; k < s->nrecords; k++) {
            record  *rec = &p->record[s->record + k];
            part    *one = &p->part[s->part + k];
            uint64_t lo, hi;

            rec->bad = rec->bad || one->bad;
            if (overlap(rec, s->off, s->end, &lo, &hi))
                rec->crc = rsi_crc32_combine(rec->crc, one->crc, hi - lo);
        }
    }
    for (size_t i = 0; i < p->v->nclaims && !rc; i++) {
        const rsi_claim *c = &p->v->claim[i];

        while (!same_record(c, &p->record[r]))
            r++;
        if (!p->record[r].bad && p->record[r].crc != c->crc32)
            rc = note_claim(p, c, p->record[r].crc, err);
    }
    return rc;
}

/* What lies in a file that is gone or of another size is told with the file. */
static void give_up_records(pass *p)
{
    for (size_t i = 0; i < p->nrecords; i++) {
        const rsi_file *file = p->file[p->record[i].place];
        uint64_t        size;

        rsi_sums_file(p->v->book, p->record[i].place, &size);
        p->record[i].bad = !file || file->size != size;
    }
}

/* The last row of `row`, sorted by place, that starts before the end of the damage has some of it.
 */
static bool in_bad_row(const rsi_damage *row, size_t n, const rsi_damage *d)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (row[mid].place < d->place ||
            (row[mid].place == d->place && row[mid].off < d->off + d->len))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && row[lo - 1].place == d->place && d->off < row[lo - 1].off + row[lo - 1].len;
}

static void mark(void *arg, size_t number)
{
    rsi_verify_mark(arg, number);
}

/* "file "x": 1000 bytes from byte 0 on are not ..: tensor "a" [0:2]" */
static void name_row(const pass *p, const rsi_blame *blame, rsi_damage *d)
{
    const rsi_guard *guard = &p->v->ckpt->guard;
    const rsd_error  what = d->what;
    uint64_t         size;
    char             words[320] = "not of the checkpoint";

    for (size_t f = 0; f < p->v->ckpt->files.n; f++)
        if (guard->place[f] == d->place) {
            rsi_blame_text(blame, (uint32_t)f, d->off, d->len, words, sizeof(words));
            rsi_blame_each(blame, (uint32_t)f, d->off, d->len, mark, p->v);
        }
    rsi_fail(&d->what, (rsd_err)what.code, "file \"%.64s\": %.120s: %s",
             rsi_sums_file(p->v->book, d->place, &size), what.msg, words);
    d->what.sys_errno = what.sys_errno;
}

/* Puts the names of what lies there behind each bad row, and drops what is told by that. */
static rsd_err name_rows(pass *p, rsd_error *err)
{
    rsi_verifying *v = p->v;
    rsi_blame      blame = { 0 };
    rsd_err        rc;
    size_t         rows;

    rsi_verify_sort(v);
    for (rows = v->n; rows > 0 && v->found[rows - 1].kind == RSI_DAMAGE_ROW; rows--)
        ;
    if (rows == v->n)
        return RSD_OK;
    rc = rsi_blame_make(v->ckpt, &blame, err);
    for (size_t i = 0; i < rows && !rc; i++)
        v->found[i].gone =
            v->found[i].len && in_bad_row(v->found + rows, v->n - rows, &v->found[i]);
    for (size_t i = rows; i < v->n && !rc; i++)
        name_row(p, &blame, &v->found[i]);
    rsi_blame_release(&blame);
    return rc;
}

rsd_err rsi_verify_rows(rsi_verifying *v, rsd_error *err)
{
    pass    p = { .v = v };
    size_t  nfiles = rsi_sums_files(v->book);
    size_t  staging = v->opts->staging ? v->opts->staging : (size_t)64 << 20;
    rsd_err rc = open_files(&p, err);

    if (rc || v->opts->quick)
        goto out;
    rc = rsi_pool_create(staging < RSI_PROOF_STEP ? RSI_PROOF_STEP : staging, RSI_PROOF_STEP,
                         &p.pool, err);
    if (!rc)
        rc = make_records(&p, err);
    for (size_t i = 0; i < nfiles && !rc; i++)
        rc = add_stretches(&p, i, err);
    if (!rc)
        rc = share_records(&p, err);
    if (!rc)
        rc = rsi_workers_run(v->workers, p.n, check_stretch, &p, err);
    if (!rc) {
        give_up_records(&p);
        rc = compare_crcs(&p, err);
    }
    if (!rc)
        rc = name_rows(&p, err);
out:
    for (size_t i = 0; i < nfiles && p.file && p.opened; i++)
        if (p.opened[i])
            rsi_file_close(p.file[i], NULL);
    rsi_pool_free(p.pool);
    rsi_free(p.file);
    rsi_free(p.opened);
    rsi_free(p.record);
    rsi_free(p.stretch);
    rsi_free(p.part);
    return rc;
}
