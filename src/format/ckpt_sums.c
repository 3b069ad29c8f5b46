/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the checksum file of an opened checkpoint. read/check_sums.c compares it with bytes. */
#include "format/ckpt_sums.h"
#include "base/mem.h"
#include "format/dcp.h"

#include <inttypes.h>
#include <string.h>

#define SMALL ((uint64_t)1 << 20) /* bytes that are read without checking both ends first */

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

/* Another file of that name may have any size: only what looks like a checksum file is read
 * whole. */
static rsd_err check_ends(rsi_file *side, rsd_error *err)
{
    char     start[RSI_SUMS_END] = { 0 }, end[RSI_SUMS_END] = { 0 };
    uint64_t size = side->size;
    size_t   len = size < RSI_SUMS_END ? (size_t)size : RSI_SUMS_END;
    rsd_err  rc = len ? rsi_file_read(side, 0, start, len, err) : RSD_OK;

    if (!rc && len)
        rc = rsi_file_read(side, size - len, end, len, err);
    return rc ? rc : rsi_sums_ends_check(start, end, size, err);
}

rsd_err rsi_sums_load(rsi_file *side, rsi_sums_book **out, rsd_error *err)
{
    uint64_t size = side->size;
    char    *text = NULL;
    rsd_err  rc = size > SMALL && rsi_sums_available() ? check_ends(side, err) : RSD_OK;

    if (!rc) {
        text = size < SIZE_MAX ? rsi_calloc((size_t)size + 1, 1) : NULL;
        if (!text)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for checksums of %" PRIu64 " bytes", size);
    }
    if (!rc && size)
        rc = rsi_file_read(side, 0, text, (size_t)size, err);
    if (!rc)
        rc = rsi_sums_read(text, (size_t)size, out, err);
    rsi_free(text);
    return rc;
}

/* True if it lists data files, but none of this checkpoint: a save inside the folder replaced the
 * one it belongs to. */
static bool is_foreign(const rsi_ckpt_sums *sums, const rsi_files *files)
{
    int32_t rank;
    int64_t number;

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
    rsd_err rc = rsi_sums_load(sums->file, &sums->book, err);

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
rsd_err rsi_ckpt_sums_book(rsi_ckpt_sums *sums, const rsi_files *files, const rsi_sums_book **out,
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

const rsi_sum_row *rsi_ckpt_sums_rows(const rsi_ckpt_sums *sums, uint32_t file, uint64_t off,
                                      uint64_t len, size_t *n)
{
    const rsi_sum_row *row;
    size_t             all, lo = 0, hi, end;

    *n = 0;
    if (!sums->book || sums->place[file] == SIZE_MAX)
        return NULL;
    row = rsi_sums_rows_of(sums->book, sums->place[file], &all);
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
    return *n ? row + lo : NULL;
}
