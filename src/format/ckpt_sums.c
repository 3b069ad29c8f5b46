/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the checksum file of an opened checkpoint. read/check_sums.c compares it with bytes. */
#include "format/ckpt_sums.h"
#include "base/mem.h"
#include "format/dcp.h"

#include <inttypes.h>
#include <string.h>

#define SMALL ((uint64_t)1 << 20) /* bytes that are read at once */

/* The bound name first. */
static rsd_err open_sums(rsi_ckpt_sums *sums, const rsi_files *files, bool follow, rsd_error *err)
{
    rsd_err rc = RSD_E_NOTFOUND;

    sums->name = sums->bound;
    if (sums->bound)
        rc = rsi_files_open_beside(files, sums->bound, follow, &sums->file, err);
    if (rc != RSD_E_NOTFOUND || sums->only_bound)
        return rc;
    sums->name = RSI_SUMS_NAME;
    return rsi_files_open_beside(files, RSI_SUMS_NAME, follow, &sums->file, err);
}

rsd_err rsi_ckpt_sums_find(rsi_ckpt_sums *sums, rsi_files *files, bool follow, rsd_error *err)
{
    rsd_error why = { .rank = -1 };
    rsd_err   rc;

    pthread_mutex_init(&sums->lock, NULL);
    rc = open_sums(sums, files, follow, &why);
    sums->there = rc != RSD_E_NOTFOUND;
    if (rc == RSD_E_NOMEM) {
        if (err)
            *err = why;
        return rc;
    }
    sums->tried = rc != RSD_OK;
    if (rc && sums->there)
        sums->why = why;
    return sums->there ? RSD_OK : rsi_files_there(files, err);
}

void rsi_ckpt_sums_close(rsi_ckpt_sums *sums)
{
    rsi_file_close(sums->file, NULL);
    rsi_sums_book_free(sums->book);
    rsi_free(sums->place);
    rsi_sums_release(&sums->opened);
    *sums = (rsi_ckpt_sums){ 0 };
}

rsd_err rsi_ckpt_sums_trailer(rsi_file *side, char out[RSI_SUMS_TRAILER], rsd_error *err)
{
    size_t len = side->size < RSI_SUMS_TRAILER ? (size_t)side->size : RSI_SUMS_TRAILER;

    memset(out, 0, RSI_SUMS_TRAILER);
    return len ? rsi_file_read(side, side->size - len, out, len, err) : RSD_OK;
}

/* A single file matches the one listed file, even if both were renamed. */
static rsd_err find_places(rsi_ckpt_sums *sums, const rsi_files *files, rsd_error *err)
{
    sums->place = rsi_calloc(files->n, sizeof(sums->place[0]));
    if (!sums->place)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", files->n);
    for (size_t i = 0; i < files->n; i++)
        sums->place[i] = rsi_sums_find(sums->book, rsi_files_name(files, (uint32_t)i));
    if (files->single && sums->book->nfiles == 1)
        sums->place[0] = 0;
    return RSD_OK;
}

static rsd_err read_all(rsi_sums_book *book, rsd_error *err)
{
    const rsi_sum_row *row;
    rsd_err            rc = RSD_OK;
    size_t             n;

    for (size_t i = 0; i < book->nfiles && !rc; i++)
        rc = rsi_sums_rows_near(book, i, 0, UINT64_MAX, &row, &n, err);
    return rc;
}

rsd_err rsi_sums_load(rsi_file *side, bool whole, rsi_sums_book **out, rsd_error *err)
{
    uint64_t size = side->size;
    char    *text;
    rsd_err  rc = RSD_OK;

    if (size > SMALL && rsi_sums_available()) {
        rc = rsi_sums_index(side, out, err);
        if (!rc && whole)
            rc = read_all(*out, err);
        if (rc && *out) {
            rsi_sums_book_free(*out);
            *out = NULL;
        }
        return rc;
    }
    text = rsi_calloc((size_t)size + 1, 1);
    if (!text)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for checksums of %" PRIu64 " bytes", size);
    if (!rc && size)
        rc = rsi_file_read(side, 0, text, (size_t)size, err);
    if (!rc)
        rc = rsi_sums_read(text, (size_t)size, out, err);
    rsi_free(text);
    return rc;
}

/* True if it lists data files, but none of this checkpoint: a save inside the folder replaced the
 * one it belongs to, or it belongs to the variant beside the index that was opened. */
static bool is_foreign(const rsi_ckpt_sums *sums, const rsi_files *files)
{
    int32_t rank;
    int64_t number;

    if (files->index && rsi_sums_find(sums->book, files->index) == SIZE_MAX)
        return true;
    if (!sums->key || sums->name == sums->bound)
        return false;
    for (size_t i = 0; i < files->n; i++)
        if (sums->place[i] != SIZE_MAX &&
            rsi_dcp_data_name(rsi_files_name(files, (uint32_t)i), &rank, &number))
            return false;
    for (size_t i = 0; i < sums->book->nfiles; i++)
        if (rsi_dcp_data_name(sums->book->file[i].name, &rank, &number))
            return true;
    return false;
}

static rsd_err read_book(rsi_ckpt_sums *sums, const rsi_files *files, rsd_error *err)
{
    rsd_err rc = rsi_sums_load(sums->file, false, &sums->book, err);

    if (!rc)
        rc = find_places(sums, files, err);
    if (!rc && is_foreign(sums, files)) {
        rsi_sums_book_free(sums->book);
        sums->book = NULL;
    }
    if (rc) {
        rsi_sums_book_free(sums->book);
        sums->book = NULL;
        rsi_while(err, rc, "checksum file \"%s\"", sums->file->name);
    }
    return rc;
}

/* A read that failed for lack of memory may be retried. */
rsd_err rsi_ckpt_sums_book(rsi_ckpt_sums *sums, const rsi_files *files, rsi_sums_book **out,
                           rsd_error *err)
{
    rsd_error why = { .rank = -1 };
    rsd_err   rc = RSD_OK;

    pthread_mutex_lock(&sums->lock);
    if (!sums->tried) {
        rc = read_book(sums, files, &why);
        sums->tried = rc != RSD_E_NOMEM;
        sums->why = why;
    }
    rc = (rsd_err)sums->why.code;
    if (rc && err)
        *err = sums->why;
    if (!rc)
        *out = sums->book;
    pthread_mutex_unlock(&sums->lock);
    return rc;
}

rsd_err rsi_ckpt_sums_all(rsi_ckpt_sums *sums, const rsi_files *files, const rsi_sums_book **out,
                          rsd_error *err)
{
    rsi_sums_book *book = NULL;
    rsd_err        rc = rsi_ckpt_sums_book(sums, files, &book, err);

    if (rc)
        return rc;
    *out = book;
    rc = book ? read_all(book, err) : RSD_OK;
    return rc ? rsi_while(err, rc, "checksum file \"%s\"", sums->file->name) : RSD_OK;
}

rsd_err rsi_ckpt_sums_rows(const rsi_ckpt_sums *sums, uint32_t file, uint64_t off, uint64_t len,
                           const rsi_sum_row **out, size_t *n, rsd_error *err)
{
    const rsi_sum_row *row;
    size_t             all, lo = 0, hi, end;
    rsd_err            rc;

    *n = 0;
    *out = NULL;
    if (!sums->book || sums->place[file] == SIZE_MAX || len == 0)
        return RSD_OK;
    rc = rsi_sums_rows_near(sums->book, sums->place[file], off, len, &row, &all, err);
    if (rc)
        return rsi_while(err, rc, "checksum file \"%s\"", sums->file->name);
    for (hi = all; lo < hi;) {
        size_t mid = lo + (hi - lo) / 2;

        if (row[mid].off + row[mid].len <= off)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (end = lo; end < all && (row[end].off < off || row[end].off - off < len); end++)
        ;
    *n = end - lo;
    *out = *n ? row + lo : NULL;
    return RSD_OK;
}
