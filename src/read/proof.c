/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a side file against bytes. fetch.c does it for the rows that it reads whole anyway,
 * verify_rows.c for all. */
#include "read/proof.h"
#include "base/mem.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

rsd_err rsi_proof_differs(const rsi_sum_row *row, rsd_error *err)
{
    return rsi_fail(err, RSD_E_CORRUPT,
                    "%" PRIu32 " bytes from byte %" PRIu64 " on are not those that were written",
                    row->len, row->off);
}

rsd_err rsi_proof_hash(rsi_file *file, const rsi_sum_row *row, rsi_hash128_stream *stream,
                       void *buf, unsigned char *out, rsd_error *err)
{
    rsi_hash128_begin(stream);
    for (uint32_t done = 0; done < row->len; done += RSI_PROOF_STEP) {
        uint32_t left = row->len - done, len = left < RSI_PROOF_STEP ? left : RSI_PROOF_STEP;
        rsd_err  rc = rsi_file_read(file, row->off + done, buf, len, err);

        if (rc)
            return rc;
        rsi_hash128_feed(stream, buf, len);
    }
    rsi_hash128_end(stream, out);
    return RSD_OK;
}

rsd_err rsi_proof_row(rsi_file *file, const rsi_sum_row *row, rsd_error *err)
{
    rsi_hash128_stream *stream = rsi_hash128_create();
    void *buf = rsi_alloc_aligned(4096, row->len < RSI_PROOF_STEP ? row->len : RSI_PROOF_STEP);
    unsigned char hash[RSI_HASH128_BYTES];
    rsd_err       rc = RSD_OK;

    if (!stream || !buf)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer");
    if (!rc)
        rc = rsi_proof_hash(file, row, stream, buf, hash, err);
    if (!rc && memcmp(hash, row->hash, sizeof(hash)) != 0)
        rc = rsi_proof_differs(row, err);
    rsi_hash128_free(stream);
    rsi_free(buf);
    return rc;
}

bool rsi_proof_is_foreign(rsd_ckpt *ckpt)
{
    const rsi_sums_book *book = ckpt->guard.book;
    const rsi_sum_row   *row;
    uint64_t             size;
    size_t               n;

    if (!ckpt->files.single || !book)
        return false;
    if (ckpt->guard.place[0] == SIZE_MAX)
        return true;
    rsi_sums_file(book, ckpt->guard.place[0], &size);
    row = rsi_sums_rows_of(book, ckpt->guard.place[0], &n);
    return size != ckpt->files.file[0]->size &&
           (n == 0 || row[0].len > ckpt->files.file[0]->size ||
            rsi_proof_row(ckpt->files.file[0], &row[0], NULL) == RSD_E_CORRUPT);
}

rsd_err rsi_proof_foreign(const rsd_ckpt *ckpt, rsd_error *err)
{
    return rsi_fail(err, RSD_E_CORRUPT,
                    "side file \"%s\" belongs to another file: neither the size nor the first "
                    "bytes fit",
                    ckpt->guard.file->name);
}

rsd_err rsi_proof_size(const rsd_ckpt *ckpt, uint32_t file, rsd_error *err)
{
    uint64_t size;

    if (ckpt->guard.place[file] == SIZE_MAX)
        return RSD_OK;
    rsi_sums_file(ckpt->guard.book, ckpt->guard.place[file], &size);
    if (ckpt->files.file[file]->missing)
        return rsi_fail(err, RSD_E_NOTFOUND, "file \"%s\" is missing",
                        rsi_files_name(&ckpt->files, file));
    if (size == ckpt->files.file[file]->size)
        return RSD_OK;
    return rsi_fail(err, RSD_E_CORRUPT,
                    "file \"%s\" has %" PRIu64 " bytes, its side file says %" PRIu64,
                    rsi_files_name(&ckpt->files, file), ckpt->files.file[file]->size, size);
}

rsd_err rsi_proof_opening(rsd_ckpt *ckpt,
                          rsd_err (*visit)(void *arg, const rsi_span *span, const rsi_sum_row *row,
                                           const rsd_error *what, rsd_error *err),
                          void *arg, rsd_error *err)
{
    rsi_span span;
    rsd_err  rc = RSD_OK;

    for (size_t k = 0; !rc && ckpt->ops->span(ckpt, k, &span); k++) {
        const rsi_sum_row *row;
        size_t             n = 0;

        if (!span.what)
            continue;
        row = span.len ? rsi_guard_rows(&ckpt->guard, span.file, span.off, span.len, &n) : NULL;
        for (size_t i = 0; i < n && !rc; i++) {
            rsd_error what = { .rank = -1 };

            rc = rsi_proof_row(ckpt->files.file[span.file], &row[i], &what);
            if (rc == RSD_E_NOMEM && err)
                *err = what;
            if (rc && rc != RSD_E_NOMEM)
                rc = visit(arg, &span, &row[i], &what, err);
        }
    }
    return rc;
}

const char *rsi_proof_lost(const rsd_ckpt *ckpt)
{
    const rsi_guard *guard = &ckpt->guard;
    uint64_t         size;

    if (ckpt->format != RSD_FORMAT_SAFETENSORS || ckpt->files.single || !guard->book)
        return NULL;
    for (size_t i = 0; i < rsi_sums_files(guard->book); i++) {
        const char *name = rsi_sums_file(guard->book, i, &size);
        bool        met = fnmatch("*.safetensors", name, 0) != 0;

        for (size_t k = 0; k < ckpt->files.n && !met; k++)
            met = guard->place[k] == i;
        if (!met)
            return name;
    }
    return NULL;
}

/* The first row that differs is enough for a reader. */
static rsd_err stop(void *arg, const rsi_span *span, const rsi_sum_row *row, const rsd_error *what,
                    rsd_error *err)
{
    const rsd_ckpt *ckpt = arg;

    (void)row;
    if (err)
        *err = *what;
    return rsi_while(err, (rsd_err)what->code, "file \"%s\": %s",
                     rsi_files_name(&ckpt->files, span->file), span->what);
}

/* Also what makes sure that rows cover every byte that a reader asks for. */
static rsd_err check_sizes(const rsd_ckpt *ckpt, rsd_error *err)
{
    const char *lost = rsi_proof_lost(ckpt);

    if (lost)
        return rsi_fail(err, RSD_E_CORRUPT, "file \"%s\" is missing, the side file lists it", lost);
    for (size_t i = 0; i < ckpt->files.n; i++) {
        rsd_err rc = rsi_proof_size(ckpt, (uint32_t)i, err);

        if (rc)
            return rc;
    }
    return RSD_OK;
}

static rsd_err prove_opening(rsd_ckpt *ckpt, rsd_error *err)
{
    rsi_guard *guard = &ckpt->guard;
    rsd_error  what = { .rank = -1 };
    rsd_err    rc = RSD_OK;

    pthread_mutex_lock(&guard->lock);
    if (!guard->proved) {
        rc = rsi_proof_is_foreign(ckpt) ? rsi_proof_foreign(ckpt, &what) : check_sizes(ckpt, &what);
        if (!rc)
            rc = rsi_proof_opening(ckpt, stop, ckpt, &what);
        guard->proved = !rc || rc == RSD_E_CORRUPT;
        guard->proof = what;
    }
    rc = (rsd_err)guard->proof.code;
    if (rc && err)
        *err = guard->proof;
    pthread_mutex_unlock(&guard->lock);
    return rc;
}

rsd_err rsi_proof_begin(rsd_ckpt *ckpt, rsd_choice verify, bool *on, rsd_error *err)
{
    const rsi_sums_book *book = NULL;
    rsd_error            why = { .rank = -1 };
    rsd_err              rc;

    *on = false;
    if (verify == RSD_NEVER)
        return RSD_OK;
    rc = rsi_guard_book(&ckpt->guard, &ckpt->files, &book, &why);
    if (rc && err && (verify == RSD_ALWAYS || rc == RSD_E_NOMEM))
        *err = why;
    if (rc)
        return verify == RSD_ALWAYS || rc == RSD_E_NOMEM ? rc : RSD_OK;
    if (!book)
        return RSD_OK;
    rc = prove_opening(ckpt, err);
    if (!rc)
        *on = true;
    return rc;
}
