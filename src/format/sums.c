/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the rows of a checksum file from passing bytes, and its text. The code that writes
 * checkpoints decides where and when to write it. Next: sums_book.c. */
#include "format/sums.h"
#include "base/mem.h"
#include "format/dcp.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool rsi_sums_available(void)
{
    return rsi_hash128_available();
}

void rsi_sums_bound(int32_t rank, int64_t number, char name[RSI_SUMS_BOUND])
{
    snprintf(name, RSI_SUMS_BOUND, RSI_SUMS_NAME "-__%" PRId32 "_%" PRId64, rank, number);
}

bool rsi_sums_key(const char *name, int32_t *rank, int64_t *number)
{
    char data[RSI_SUMS_BOUND + 8];
    int  len = snprintf(data, sizeof(data), "%s.distcp",
                       strncmp(name, RSI_SUMS_NAME "-", sizeof(RSI_SUMS_NAME)) == 0
                            ? name + sizeof(RSI_SUMS_NAME)
                            : "");

    return len < (int)sizeof(data) && rsi_dcp_data_name(data, rank, number);
}

bool rsi_sums_is_name(const char *name)
{
    int32_t rank;
    int64_t number;

    return strcmp(name, RSI_SUMS_NAME) == 0 || rsi_sums_key(name, &rank, &number);
}

static rsd_err no_memory(const rsi_sums *s, size_t more, rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu checksums", s->n + more);
}

/* Starts the row after the open one, which is kept. */
static rsd_err next_row(rsi_sums *s, rsd_error *err)
{
    if (s->open.len) {
        if (!rsi_grow(&s->row, s->n, &s->cap, sizeof(s->row[0])))
            return no_memory(s, 1, err);
        rsi_hash128_end(s->stream, s->open.hash);
        s->row[s->n++] = s->open;
        rsi_hash128_begin(s->stream);
    }
    s->open.off += s->open.len;
    s->open.len = 0;
    return RSD_OK;
}

rsd_err rsi_sums_begin(rsi_sums *s, uint32_t file, uint64_t off, rsd_error *err)
{
    rsd_err rc = rsi_sums_end(s, err);

    if (rc)
        return rc;
    if (!rsi_sums_available())
        return rsi_fail(err, RSD_E_UNSUPPORTED, "this build has no xxHash to make checksums with");
    if (!s->stream && !(s->stream = rsi_hash128_create()))
        return no_memory(s, 1, err);
    s->open = (rsi_sum_row){ .off = off, .file = file };
    s->is_open = true;
    return RSD_OK;
}

rsd_err rsi_sums_feed(rsi_sums *s, const void *bytes, size_t len, rsd_error *err)
{
    const unsigned char *at = bytes;
    rsd_err              rc = RSD_OK;

    if (!s->is_open)
        return rsi_fail(err, RSD_E_BUG, "bytes for a checksum that was not begun");
    if (len > UINT64_MAX - s->open.off - s->open.len)
        return rsi_fail(err, RSD_E_INVALID, "a file that ends after byte %" PRIu64, UINT64_MAX);
    while (len && !rc) {
        size_t part = RSI_SUM_ROW_BYTES - s->open.len;

        if (part > len)
            part = len;
        rsi_hash128_feed(s->stream, at, part);
        s->open.len += (uint32_t)part;
        at += part;
        len -= part;
        if (s->open.len == RSI_SUM_ROW_BYTES)
            rc = next_row(s, err);
    }
    return rc;
}

rsd_err rsi_sums_end(rsi_sums *s, rsd_error *err)
{
    rsd_err rc = s->is_open ? next_row(s, err) : RSD_OK;

    if (!rc)
        s->is_open = false;
    return rc;
}

rsd_err rsi_sums_join(rsi_sums *into, const rsi_sum_row *row, size_t n, rsd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (!rsi_grow(&into->row, into->n, &into->cap, sizeof(into->row[0])))
            return no_memory(into, n - i, err);
        into->row[into->n++] = row[i];
    }
    return RSD_OK;
}

void rsi_sums_release(rsi_sums *s)
{
    rsi_free(s->row);
    rsi_hash128_free(s->stream);
    *s = (rsi_sums){ 0 };
}

/* ---- the text ---- */

enum { OUT_BYTES = 1 << 16, LINE_BYTES = 1 << 13 }; /* names are checked: no line is longer */

/* A file as listed. */
typedef struct listed {
    const char *name;
    uint64_t    size;
    size_t      row, end; /* its rows */
} listed;

typedef struct writer {
    char               *buf; /* [OUT_BYTES] */
    size_t              len;
    rsi_hash128_stream *stream; /* of all bytes put */
    rsi_sums_put        put;
    void               *arg;
    rsd_error          *err;
} writer;

static rsd_err flush(writer *w)
{
    rsd_err rc = w->len ? w->put(w->arg, w->buf, w->len, w->err) : RSD_OK;

    rsi_hash128_feed(w->stream, w->buf, w->len);
    w->len = 0;
    return rc;
}

RSI_PRINTF(2, 3) static rsd_err add(writer *w, const char *fmt, ...)
{
    rsd_err rc = w->len > OUT_BYTES - LINE_BYTES ? flush(w) : RSD_OK;
    va_list args;

    va_start(args, fmt);
    w->len += (size_t)vsnprintf(w->buf + w->len, LINE_BYTES, fmt, args);
    va_end(args);
    return rc;
}

/* 32 hex digits at `to`. */
static const char *hex(const unsigned char *hash, char to[2 * RSI_HASH128_BYTES + 1])
{
    for (size_t i = 0; i < 2 * RSI_HASH128_BYTES; i++)
        to[i] = "0123456789abcdef"[i % 2 ? hash[i / 2] & 15 : hash[i / 2] >> 4];
    to[2 * RSI_HASH128_BYTES] = '\0';
    return to;
}

static rsd_err add_file(writer *w, const rsi_sums *s, const listed *file)
{
    char     digits[2 * RSI_HASH128_BYTES + 1];
    uint64_t end = 0;
    rsd_err  rc = rsi_store_name_check(file->name, w->err);

    if (!rc)
        rc = add(w, "file %" PRIu64 " %s\n", file->size, file->name);
    for (size_t i = file->row; i < file->end && !rc; i++) {
        const rsi_sum_row *row = &s->row[i];

        if (row->off != end || row->len == 0 || row->len > RSI_SUM_ROW_BYTES ||
            row->len > file->size - end)
            return rsi_fail(w->err, RSD_E_BUG,
                            "checksums of file \"%s\" (%" PRIu64 " bytes): a row of %" PRIu32
                            " bytes at byte %" PRIu64 " follows on byte %" PRIu64,
                            file->name, file->size, row->len, row->off, end);
        end += row->len;
        rc = add(w, "%" PRIu64 " %" PRIu32 " %s\n", row->off, row->len, hex(row->hash, digits));
    }
    if (!rc && end != file->size)
        rc = rsi_fail(w->err, RSD_E_BUG,
                      "checksums of file \"%s\" end at byte %" PRIu64 " of %" PRIu64, file->name,
                      end, file->size);
    return rc;
}

static int by_place(const void *left, const void *right)
{
    const rsi_sum_row *a = left, *b = right;

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return (a->off > b->off) - (a->off < b->off);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const listed *)left)->name, ((const listed *)right)->name);
}

static rsd_err add_all(writer *w, const rsi_sums *s, size_t nfiles, const listed *file)
{
    unsigned char hash[RSI_HASH128_BYTES];
    char          digits[2 * RSI_HASH128_BYTES + 1];
    rsd_err       rc = add(w, RSI_SUMS_FIRST);

    for (size_t i = 0; i < nfiles && !rc; i++) {
        if (i && by_name(&file[i - 1], &file[i]) == 0)
            return rsi_fail(w->err, RSD_E_INVALID, "file \"%s\" has duplicate checksums",
                            file[i].name);
        rc = add_file(w, s, &file[i]);
    }
    if (!rc)
        rc = flush(w);
    if (rc)
        return rc;
    rsi_hash128_end(w->stream, hash);
    rc = add(w, "self %s\n", hex(hash, digits));
    return rc ? rc : flush(w);
}

rsd_err rsi_sums_write(rsi_sums *s, size_t nfiles, const char *const *name, const uint64_t *size,
                       rsi_sums_put put, void *arg, rsd_error *err)
{
    writer  w = { .put = put, .arg = arg, .err = err };
    listed *file;
    size_t  row = 0;
    rsd_err rc = rsi_sums_end(s, err);

    if (rc)
        return rc;
    if (!rsi_sums_available())
        return rsi_fail(err, RSD_E_UNSUPPORTED, "this build has no xxHash to make checksums with");
    if (nfiles > UINT32_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "checksums of %zu files", nfiles);
    file = rsi_calloc(nfiles, sizeof(file[0]));
    w.buf = rsi_calloc(OUT_BYTES, 1);
    w.stream = rsi_hash128_create();
    if (!file || !w.buf || !w.stream) {
        rc = no_memory(s, 0, err);
        goto out;
    }
    if (s->n)
        qsort(s->row, s->n, sizeof(s->row[0]), by_place);
    for (uint32_t i = 0; i < nfiles; i++) {
        file[i] = (listed){ .name = name[i], .size = size[i], .row = row };
        while (row < s->n && s->row[row].file == i)
            row++;
        file[i].end = row;
    }
    qsort(file, nfiles, sizeof(file[0]), by_name);
    if (row < s->n)
        rc = rsi_fail(err, RSD_E_BUG, "a checksum of file number %" PRIu32 " of %zu",
                      s->row[s->n - 1].file, nfiles);
    else
        rc = add_all(&w, s, nfiles, file);
out:
    rsi_free(file);
    rsi_free(w.buf);
    rsi_hash128_free(w.stream);
    return rc;
}
