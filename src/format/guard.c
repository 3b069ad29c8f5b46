/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the side file of an opened checkpoint. Comparing it with bytes is read/check_sums.c's. */
#include "format/guard.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

#define SMALL ((uint64_t)1 << 20) /* bytes that are read without a look at their ends */

rsd_err rsi_guard_find(rsi_guard *guard, rsi_files *files, bool follow, rsd_error *err)
{
    rsd_error why;
    rsd_err   rc;

    *guard = (rsi_guard){ .lock = PTHREAD_MUTEX_INITIALIZER };
    rc = rsi_files_open_beside(files, RSI_SUMS_NAME, follow, &guard->file, &why);
    guard->there = rc != RSD_E_NOTFOUND;
    if (rc == RSD_E_NOMEM) {
        if (err)
            *err = why;
        return rc;
    }
    guard->tried = rc != RSD_OK;
    if (rc && guard->there)
        guard->why = why;
    return guard->there ? RSD_OK : rsi_files_there(files, err);
}

void rsi_guard_close(rsi_guard *guard)
{
    rsi_file_close(guard->file, NULL);
    rsi_sums_book_free(guard->book);
    rsi_free(guard->place);
    *guard = (rsi_guard){ 0 };
}

rsd_err rsi_guard_trailer(rsi_file *side, char out[RSI_SUMS_TRAILER], rsd_error *err)
{
    size_t len = side->size < RSI_SUMS_TRAILER ? (size_t)side->size : RSI_SUMS_TRAILER;

    memset(out, 0, RSI_SUMS_TRAILER);
    return len ? rsi_file_read(side, side->size - len, out, len, err) : RSD_OK;
}

/* A single file is the one that is listed, also when both were given another name. */
static rsd_err find_places(rsi_guard *guard, const rsi_files *files, rsd_error *err)
{
    guard->place = rsi_calloc(files->n, sizeof(guard->place[0]));
    if (!guard->place)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", files->n);
    for (size_t i = 0; i < files->n; i++)
        guard->place[i] = rsi_sums_find(guard->book, rsi_files_name(files, (uint32_t)i));
    if (files->single && guard->book->nfiles == 1)
        guard->place[0] = 0;
    return RSD_OK;
}

/* Something else of that name may have any size: only what looks like a side file is read whole. */
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

static rsd_err read_book(rsi_guard *guard, const rsi_files *files, rsd_error *err)
{
    rsd_err rc = rsi_sums_load(guard->file, &guard->book, err);

    if (!rc)
        rc = find_places(guard, files, err);
    if (rc) {
        rsi_sums_book_free(guard->book);
        guard->book = NULL;
        rsi_while(err, rc, "side file \"%s\"", guard->file->name);
    }
    return rc;
}

/* What memory was missing for may be tried again. */
rsd_err rsi_guard_book(rsi_guard *guard, const rsi_files *files, const rsi_sums_book **out,
                       rsd_error *err)
{
    rsd_error why = { .rank = -1 };
    rsd_err   rc = RSD_OK;

    pthread_mutex_lock(&guard->lock);
    if (!guard->tried) {
        rc = read_book(guard, files, &why);
        guard->tried = rc != RSD_E_NOMEM;
        guard->why = why;
    }
    rc = (rsd_err)guard->why.code;
    if (rc && err)
        *err = guard->why;
    if (!rc)
        *out = guard->book;
    pthread_mutex_unlock(&guard->lock);
    return rc;
}

const rsi_sum_row *rsi_guard_rows(const rsi_guard *guard, uint32_t file, uint64_t off, uint64_t len,
                                  size_t *n)
{
    const rsi_sum_row *row;
    size_t             all, lo = 0, hi, end;

    *n = 0;
    if (!guard->book || guard->place[file] == SIZE_MAX)
        return NULL;
    row = rsi_sums_rows_of(guard->book, guard->place[file], &all);
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
