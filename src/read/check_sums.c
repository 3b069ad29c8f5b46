/* SPDX-License-Identifier: Apache-2.0 */
/* Compares rows of a checksum file with bytes. fetch.c does so for the rows that it reads whole
 * anyway, verify_rows.c for all rows. */
#include "read/check_sums.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "format/decoded.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

rsd_err rsi_check_differs(const rsi_sum_row *row, rsd_error *err)
{
    return rsi_fail(err, RSD_E_CORRUPT, "checksum mismatch in bytes %" PRIu64 "-%" PRIu64, row->off,
                    row->off + row->len - 1);
}

rsd_err rsi_check_hash(const rsi_sum_row *row, const rsi_hash128_stream *stream, rsd_error *err)
{
    unsigned char hash[RSI_HASH128_BYTES];

    rsi_hash128_end(stream, hash);
    return memcmp(hash, row->hash, sizeof(hash)) != 0 ? rsi_check_differs(row, err) : RSD_OK;
}

rsd_err rsi_steps_read(const rsi_steps *steps, uint64_t at, uint64_t bytes, void *buf,
                       rsd_error *err)
{
    const bool     looks = steps->crc || steps->hash || steps->see || !steps->keep;
    const uint64_t step = looks && bytes > RSI_CHECK_STEP ? RSI_CHECK_STEP : bytes;
    rsd_err        rc = RSD_OK;

    for (uint64_t done = 0; done < bytes && !rc; done += step) {
        const size_t   len = (size_t)(step < bytes - done ? step : bytes - done);
        unsigned char *to = (unsigned char *)buf + (steps->keep ? done : 0);

        if (steps->decoded)
            rc = rsi_decoded_read(steps->decoded, at + done, to, len, err);
        else
            rc = rsi_file_read(steps->file, at + done, to, len, err);
        if (rc)
            break;
        if (steps->crc)
            *steps->crc = rsi_crc32(*steps->crc, to, len);
        if (steps->hash)
            rsi_hash128_feed(steps->hash, to, len);
        if (steps->see)
            rc = steps->see(steps->arg, at + done, to, len, err);
    }
    return rc;
}

rsd_err rsi_check_row(rsi_file *file, const rsi_sum_row *row, rsd_error *err)
{
    rsi_steps steps = { .file = file, .hash = rsi_hash128_create() };
    void     *buf = rsi_alloc_aligned(4096, row->len < RSI_CHECK_STEP ? row->len : RSI_CHECK_STEP);
    rsd_err   rc = RSD_OK;

    if (!steps.hash || !buf)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer");
    if (!rc)
        rc = rsi_steps_read(&steps, row->off, row->len, buf, err);
    if (!rc)
        rc = rsi_check_hash(row, steps.hash, err);
    rsi_hash128_free(steps.hash);
    rsi_free(buf);
    return rc;
}

rsd_err rsi_check_crc_differs(uint64_t off, uint32_t crc, uint32_t said, rsd_error *err)
{
    return rsi_fail(err, RSD_E_CORRUPT,
                    "the data from byte %" PRIu64 " on have the CRC32 %08" PRIx32
                    ", the file says %08" PRIx32,
                    off, crc, said);
}

rsd_err rsi_check_crc(rsi_file *file, const rsi_extent *x, rsd_error *err)
{
    uint32_t  crc = 0;
    rsi_steps steps = { .file = file, .crc = &crc };
    void     *buf;
    rsd_err   rc;

    if (!x->has_crc)
        return RSD_OK;
    buf = rsi_alloc_aligned(4096, RSI_CHECK_STEP);
    rc = buf ? rsi_steps_read(&steps, x->record, x->record_bytes, buf, err)
             : rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer");
    rsi_free(buf);
    return rc || crc == x->crc32 ? rc : rsi_check_crc_differs(x->record, crc, x->crc32, err);
}

rsd_err rsi_check_decoded(rsd_ckpt *ckpt, size_t t, size_t i, bool all, bool crc, rsi_extent *x,
                          rsd_error *err)
{
    uint32_t found = 0;
    rsd_err  rc;

    if (x->proved)
        return RSD_OK;
    rc = ckpt->ops->prove(ckpt, t, i, all, x, err);
    if (!rc && crc && x->has_crc)
        rc = rsi_decoded_crc(x->decoded, x->record, x->record_bytes, &found, err);
    if (!rc && crc && x->has_crc && found != x->crc32)
        rc = rsi_check_crc_differs(x->record, found, x->crc32, err);
    x->proved = !rc && crc;
    return rc;
}

rsd_err rsi_check_foreign(rsd_ckpt *ckpt, rsd_error *err)
{
    const rsi_ckpt_sums *sums = &ckpt->sums;
    const rsi_sum_row   *row;
    size_t               n;
    rsd_err              rc;

    if (!ckpt->files.single || !sums->book)
        return RSD_OK;
    if (sums->place[0] != SIZE_MAX) {
        rsi_file *file = ckpt->files.file[0];

        rc = rsi_ckpt_sums_rows(sums, 0, 0, 1, &row, &n, err);
        if (rc)
            return rc;
        if (sums->book->file[sums->place[0]].size == file->size ||
            (n && (row->len > file->size || rsi_check_row(file, row, NULL) != RSD_E_CORRUPT)))
            return RSD_OK;
    }
    return rsi_fail(err, RSD_E_CORRUPT,
                    "checksum file \"%s\" belongs to another file: neither the size nor the first "
                    "bytes fit",
                    sums->file->name);
}

rsd_err rsi_check_size(const rsd_ckpt *ckpt, uint32_t file, rsd_error *err)
{
    uint64_t size;

    if (ckpt->sums.place[file] == SIZE_MAX)
        return RSD_OK;
    size = ckpt->sums.book->file[ckpt->sums.place[file]].size;
    if (ckpt->files.file[file]->missing)
        return rsi_fail(err, RSD_E_NOTFOUND, "file \"%s\" is missing",
                        rsi_files_name(&ckpt->files, file));
    if (size == ckpt->files.file[file]->size)
        return RSD_OK;
    return rsi_fail(err, RSD_E_CORRUPT,
                    "file \"%s\" has %" PRIu64 " bytes, its checksum file says %" PRIu64,
                    rsi_files_name(&ckpt->files, file), ckpt->files.file[file]->size, size);
}

/* Opening hashed the bytes when it read them, and they are what the row says. */
static bool was_proved(const rsi_ckpt_sums *sums, uint32_t file, const rsi_sum_row *row)
{
    const uint64_t     i = row->off / RSI_SUM_ROW_BYTES;
    const rsi_sum_row *met = file == 0 && i < sums->opened.n ? &sums->opened.row[i] : NULL;

    return met && met->off == row->off && met->len == row->len &&
           memcmp(met->hash, row->hash, sizeof(met->hash)) == 0;
}

rsd_err rsi_check_opening(rsd_ckpt *ckpt,
                          rsd_err (*visit)(void *arg, const rsi_sum_row *row, const rsd_error *what,
                                           rsd_error *err),
                          void *arg, rsd_error *err)
{
    rsi_item span;
    rsd_err  rc = RSD_OK;

    for (size_t k = 0; !rc && ckpt->ops->span(ckpt, k, &span); k++) {
        const rsi_sum_row *row;
        size_t             n = 0;

        if (!span.what)
            continue;
        rc = rsi_ckpt_sums_rows(&ckpt->sums, span.file, span.off, span.len, &row, &n, err);
        for (size_t i = 0; i < n && !rc; i++) {
            rsd_error what = { .rank = -1 };

            if (!visit && was_proved(&ckpt->sums, span.file, &row[i]))
                continue;
            rc = rsi_check_row(ckpt->files.file[span.file], &row[i], &what);
            if (rc && rc != RSD_E_NOMEM)
                rsi_while(&what, rc, "file \"%s\": %s", rsi_files_name(&ckpt->files, span.file),
                          span.what);
            if (rc && rc != RSD_E_NOMEM && visit)
                rc = visit(arg, &row[i], &what, err);
            else if (rc && err)
                *err = what;
        }
    }
    return rc;
}

const char *rsi_check_lost(const rsd_ckpt *ckpt)
{
    const rsi_ckpt_sums *sums = &ckpt->sums;

    if (ckpt->format != RSD_FORMAT_SAFETENSORS || ckpt->files.single || !sums->book)
        return NULL;
    for (size_t i = 0; i < sums->book->nfiles; i++) {
        const char *name = sums->book->file[i].name;
        bool        met = fnmatch("*.safetensors", name, 0) != 0;

        for (size_t k = 0; k < ckpt->files.n && !met; k++)
            met = sums->place[k] == i;
        for (size_t k = 0; k < ckpt->files.nnames && !met; k++) /* of another model beside it */
            met = strcmp(ckpt->files.name[k], name) == 0;
        if (!met)
            return name;
    }
    return NULL;
}

/* This also ensures that rows cover every byte that a reader asks for. */
static rsd_err check_sizes(const rsd_ckpt *ckpt, rsd_error *err)
{
    const char *lost = rsi_check_lost(ckpt);
    rsd_err     rc = RSD_OK;

    if (lost)
        return rsi_fail(err, RSD_E_CORRUPT,
                        "file \"%s\" is missing, but listed in the checksum file", lost);
    for (uint32_t i = 0; i < ckpt->files.n && !rc; i++)
        rc = rsi_check_size(ckpt, i, err);
    return rc;
}

static rsd_err prove_opening(rsd_ckpt *ckpt, rsd_error *err)
{
    rsi_ckpt_sums *sums = &ckpt->sums;
    rsd_error      what = { .rank = -1 };
    rsd_err        rc = RSD_OK;

    pthread_mutex_lock(&sums->lock);
    if (!sums->proved) {
        rc = rsi_check_foreign(ckpt, &what);
        if (!rc)
            rc = check_sizes(ckpt, &what);
        if (!rc)
            rc = rsi_check_opening(ckpt, NULL, NULL, &what);
        sums->proved = !rc || rc == RSD_E_CORRUPT;
        sums->proof = what;
    }
    rc = (rsd_err)sums->proof.code;
    if (rc && err)
        *err = sums->proof;
    pthread_mutex_unlock(&sums->lock);
    return rc;
}

rsd_err rsi_check_begin(rsd_ckpt *ckpt, rsd_choice verify, bool *on, rsd_error *err)
{
    rsi_sums_book *book = NULL;
    rsd_error      why = { .rank = -1 };
    rsd_err        rc;

    *on = false;
    if (verify == RSD_NEVER)
        return RSD_OK;
    rc = rsi_ckpt_sums_book(&ckpt->sums, &ckpt->files, &book, &why);
    if (rc && rc != RSD_E_NOMEM && verify != RSD_ALWAYS)
        return RSD_OK;
    if (rc && err)
        *err = why;
    if (!rc && book) {
        rc = prove_opening(ckpt, err);
        *on = !rc;
    }
    return rc;
}
