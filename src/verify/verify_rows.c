/* SPDX-License-Identifier: Apache-2.0 */
/* Compares every row of the checksum file with the bytes of its file (hash_rows.c reads them), and
 * the CRC32 of records in the same bytes; then names the contents of bad rows. */
#include "base/mem.h"
#include "read/check_sums.h"
#include "verify/place_names.h"
#include "verify/verify_core.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct pass {
    rsi_verifying *v;
    rsi_file     **file;   /* [files of the book] NULL: missing */
    bool          *opened; /* [files of the book] opened here */
} pass;

/* ---- files ---- */

static rsd_err note_file(pass *p, size_t i, rsd_err code, const char *what, rsd_error *err)
{
    rsi_damage damage = { .kind = RSI_DAMAGE_SIDE, .first = p->v->ckpt->files.n + i };

    rsi_fail(&damage.what, code, "file \"%s\" %s", p->v->book->file[i].name, what);
    return rsi_verify_note(p->v, &damage, err);
}

/* A file that the checksum file lists but the checkpoint does not use. */
static rsd_err open_other(pass *p, size_t i, rsd_error *err)
{
    const rsi_files *files = &p->v->ckpt->files;
    rsd_error        why = { .rank = -1 };
    rsd_err          rc;

    if (files->single)
        return note_file(p, i, RSD_E_CORRUPT, "is listed in the checksum file of a single file",
                         err);
    rc = rsi_files_open_beside(files, p->v->book->file[i].name, false, &p->file[i], &why);
    if (rc == RSD_E_NOMEM && err)
        *err = why;
    if (rc == RSD_E_NOMEM)
        return rc;
    if (rc)
        return note_file(p, i, rc,
                         rc == RSD_E_NOTFOUND
                             ? "is missing, but listed in the checksum file"
                             : "is listed in the checksum file, but can't be opened",
                         err);
    p->opened[i] = true;
    return p->file[i]->size == p->v->book->file[i].size
               ? RSD_OK
               : note_file(p, i, RSD_E_CORRUPT, "differs in size from the checksum file", err);
}

static rsd_err open_files(pass *p, rsd_error *err)
{
    const rsd_ckpt *ckpt = p->v->ckpt;
    size_t          n = p->v->book->nfiles;
    rsd_err         rc = RSD_OK;

    p->file = rsi_calloc(n, sizeof(p->file[0]));
    p->opened = rsi_calloc(n, sizeof(p->opened[0]));
    if (!p->file || !p->opened)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", n);
    for (size_t i = 0; i < ckpt->files.n; i++)
        if (ckpt->sums.place[i] != SIZE_MAX)
            p->file[ckpt->sums.place[i]] = ckpt->files.file[i];
    for (size_t i = 0; i < n && !rc; i++)
        if (!p->file[i])
            rc = open_other(p, i, err);
    return rc;
}

/* ---- rows ---- */

static int by_place(const void *left, const void *right)
{
    const rsi_claim *a = left, *b = right;

    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    if (a->off != b->off)
        return a->off < b->off ? -1 : 1;
    return (a->len > b->len) - (a->len < b->len);
}

/* For rsi_row_work. */
static rsd_err check_rows(void *arg, size_t i, size_t n, const unsigned char *hash,
                          const rsd_error *why, rsd_error *err)
{
    rsi_verifying     *v = arg;
    const rsi_sum_row *row = &v->book->row[i], *last = row + n - 1;
    rsi_damage         damage = { .kind = RSI_DAMAGE_ROW,
                                  .first = row->file,
                                  .second = row->off,
                                  .place = row->file,
                                  .off = row->off,
                                  .len = last->off + last->len - row->off,
                                  .what.rank = -1 };

    if (hash && memcmp(hash, row->hash, sizeof(row->hash)) == 0)
        return RSD_OK;
    if (hash)
        rsi_check_differs(row, &damage.what);
    else
        damage.what = *why;
    return rsi_verify_note(v, &damage, err);
}

/* found[rows .. end - 1] are bad rows, by place. If any of them overlaps the bytes, the last one
 * that starts before byte off + len does. */
static bool in_bad_row(const rsi_verifying *v, size_t rows, size_t end, size_t place, uint64_t off,
                       uint64_t len)
{
    const rsi_damage *row = v->found;
    size_t            lo = rows, hi = end;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (row[mid].place < place || (row[mid].place == place && row[mid].off < off + len))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > rows && row[lo - 1].place == place && off < row[lo - 1].off + row[lo - 1].len;
}

/* Sorts the damage found; returns where the rows start. */
static size_t find_rows(rsi_verifying *v)
{
    size_t rows;

    rsi_verify_sort(v);
    for (rows = v->n; rows > 0 && v->found[rows - 1].kind == RSI_DAMAGE_ROW; rows--)
        ;
    return rows;
}

/* Damage in a bad row is reported with the row; in a missing file or one of another size, with the
 * file. */
static rsd_err compare_crcs(pass *p, rsd_error *err)
{
    rsi_verifying *v = p->v;
    const size_t   rows = find_rows(v), end = v->n;
    rsd_err        rc = RSD_OK;

    for (size_t i = 0; i < v->nclaims && !rc; i++) {
        rsi_claim      *c = &v->claim[i];
        const rsi_file *file = p->file[c->place];
        rsi_damage      damage = { .kind = RSI_DAMAGE_TENSOR, .first = c->t, .second = c->i };

        if (i && rsi_claim_same(c, c - 1))
            c->found = c[-1].found;
        if (c->found == c->crc32 || !file || file->size != v->book->file[c->place].size ||
            in_bad_row(v, rows, end, c->place, c->off, c->len))
            continue;
        rsi_check_crc_differs(c->off, c->found, c->crc32, &damage.what);
        rsi_verify_name(v, c->t, c->i, &damage.what);
        rc = rsi_verify_note(v, &damage, err);
    }
    return rc;
}

/* ---- names ---- */

/* "file "x": 1000 bytes from byte 0 on are not ..: tensor "a" [0:2]" */
static void name_row(rsi_verifying *v, const rsi_place_names *names, rsi_damage *d)
{
    const rsd_error what = d->what;
    char            words[320] = "not part of the checkpoint";

    for (size_t f = 0; f < v->ckpt->files.n; f++)
        if (v->ckpt->sums.place[f] == d->place)
            rsi_place_names_text(names, (uint32_t)f, d->off, d->len, rsi_verify_mark, v, words,
                                 sizeof(words));
    rsi_fail(&d->what, (rsd_err)what.code, "file \"%.64s\": %.120s: %s",
             v->book->file[d->place].name, what.msg, words);
    d->what.sys_errno = what.sys_errno;
}

/* Appends the names of its contents to each bad row, and drops damage that a bad row covers. */
static rsd_err name_rows(rsi_verifying *v, rsd_error *err)
{
    const size_t    rows = find_rows(v);
    rsi_place_names names = { 0 };
    rsd_err         rc = rows < v->n ? rsi_place_names_make(v->ckpt, &names, err) : RSD_OK;

    for (size_t i = 0; i < v->n && !rc; i++) {
        rsi_damage *d = &v->found[i];

        if (i >= rows)
            name_row(v, &names, d);
        else
            d->gone = d->len && in_bad_row(v, rows, v->n, d->place, d->off, d->len);
    }
    rsi_place_names_release(&names);
    return rc;
}

rsd_err rsi_verify_rows(rsi_verifying *v, rsd_error *err)
{
    pass         p = { .v = v };
    rsi_row_work work = { .row = v->book->row,
                          .n = v->book->nrows,
                          .claim = v->claim,
                          .nclaims = v->nclaims,
                          .progress = &v->progress,
                          .done = check_rows,
                          .arg = v };
    rsd_err      rc = open_files(&p, err);

    if (!rc && !v->opts->quick) {
        work.file = p.file;
        if (v->nclaims)
            qsort(v->claim, v->nclaims, sizeof(v->claim[0]), by_place);
        rc = rsi_hash_rows(&work, v->workers, v->opts->max_memory, err);
        if (!rc)
            rc = compare_crcs(&p, err);
        if (!rc)
            rc = name_rows(v, err);
    }
    for (size_t i = 0; i < v->book->nfiles && p.file && p.opened; i++)
        if (p.opened[i])
            rsi_file_close(p.file[i], NULL);
    rsi_free(p.file);
    rsi_free(p.opened);
    return rc;
}
