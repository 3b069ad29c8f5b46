/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the rows of a side file while bytes go by, and its text. Where it is written and when is
 * left to those who write checkpoints. Next: sums_book.c. */
#include "format/sums.h"
#include "base/mem.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool rsi_sums_available(void)
{
    return rsi_hash128_available();
}

static rsd_err no_memory(const rsi_sums *s, size_t more, rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu checksums", s->n + more);
}

static rsd_err keep_row(rsi_sums *s, rsd_error *err)
{
    if (!rsi_grow(&s->row, s->n, &s->cap, sizeof(s->row[0])))
        return no_memory(s, 1, err);
    s->row[s->n++] = s->open;
    return RSD_OK;
}

/* The row behind the open one; what is in that is kept. */
static rsd_err next_row(rsi_sums *s, rsd_error *err)
{
    rsd_err rc;

    if (s->open.len) {
        rsi_hash128_end(s->stream, s->open.hash);
        rc = keep_row(s, err);
        if (rc)
            return rc;
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
    if (!s->stream) {
        s->stream = rsi_hash128_create();
        if (!s->stream)
            return no_memory(s, 1, err);
    }
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
        return rsi_fail(err, RSD_E_INVALID, "a file that ends behind byte %" PRIu64, UINT64_MAX);
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
    rsi_sum_row *grown;

    if (n > into->cap - into->n) {
        grown = n > SIZE_MAX - into->n ? NULL
                                       : rsi_realloc(into->row, into->n + n, sizeof(into->row[0]));
        if (!grown)
            return no_memory(into, n, err);
        into->row = grown;
        into->cap = into->n + n;
    }
    if (n)
        memcpy(into->row + into->n, row, n * sizeof(row[0]));
    into->n += n;
    return RSD_OK;
}

void rsi_sums_release(rsi_sums *s)
{
    rsi_free(s->row);
    rsi_hash128_free(s->stream);
    *s = (rsi_sums){ 0 };
}

/* ---- the text ---- */

enum { OUT_BYTES = 1 << 16, LINE_BYTES = 128 }; /* a row's line is shorter than that */

typedef struct writer {
    char               *buf; /* [OUT_BYTES] */
    size_t              len;
    rsi_hash128_stream *stream; /* of all that was put */
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

static rsd_err add(writer *w, const char *text, size_t len)
{
    rsd_err rc = RSD_OK;

    while (len && !rc) {
        size_t part = OUT_BYTES - w->len < len ? OUT_BYTES - w->len : len;

        memcpy(w->buf + w->len, text, part);
        w->len += part;
        text += part;
        len -= part;
        if (w->len == OUT_BYTES)
            rc = flush(w);
    }
    return rc;
}

/* 32 hex digits and the end of the line at `to`. */
static size_t hex_line(const unsigned char *hash, char *to)
{
    static const char digit[] = "0123456789abcdef";

    for (size_t i = 0; i < RSI_HASH128_BYTES; i++) {
        to[2 * i] = digit[hash[i] >> 4];
        to[2 * i + 1] = digit[hash[i] & 15];
    }
    to[2 * RSI_HASH128_BYTES] = '\n';
    return 2 * RSI_HASH128_BYTES + 1;
}

static rsd_err add_row(writer *w, const rsi_sum_row *row)
{
    char   line[LINE_BYTES];
    size_t len =
        (size_t)snprintf(line, sizeof(line), "%" PRIu64 " %" PRIu32 " ", row->off, row->len);

    return add(w, line, len + hex_line(row->hash, line + len));
}

/* The first row at `at` or behind it that belongs to `file` or a later one. */
static size_t first_row(const rsi_sums *s, uint32_t file)
{
    size_t lo = 0, hi = s->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (s->row[mid].file < file)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static rsd_err add_file(writer *w, const rsi_sums *s, uint32_t file, const char *name,
                        uint64_t size)
{
    char     line[LINE_BYTES];
    uint64_t end = 0;
    rsd_err  rc = rsi_store_name_check(name, w->err);

    if (rc)
        return rc;
    rc = add(w, line, (size_t)snprintf(line, sizeof(line), "file %" PRIu64 " ", size));
    if (!rc)
        rc = add(w, name, strlen(name));
    if (!rc)
        rc = add(w, "\n", 1);
    for (size_t i = first_row(s, file); i < s->n && s->row[i].file == file && !rc; i++) {
        const rsi_sum_row *row = &s->row[i];

        if (row->off != end || row->len == 0 || row->len > RSI_SUM_ROW_BYTES ||
            row->len > size - end)
            return rsi_fail(w->err, RSD_E_BUG,
                            "checksums of file \"%s\" (%" PRIu64 " bytes): a row of %" PRIu32
                            " bytes at byte %" PRIu64 " follows on byte %" PRIu64,
                            name, size, row->len, row->off, end);
        end += row->len;
        rc = add_row(w, row);
    }
    if (!rc && end != size)
        rc = rsi_fail(w->err, RSD_E_BUG,
                      "checksums of file \"%s\" end at byte %" PRIu64 " of %" PRIu64, name, end,
                      size);
    return rc;
}

static int by_place(const void *left, const void *right)
{
    const rsi_sum_row *a = left, *b = right;

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return (a->off > b->off) - (a->off < b->off);
}

static int by_name(const void *left, const void *right, void *arg)
{
    const char *const *name = arg;

    return strcmp(name[*(const uint32_t *)left], name[*(const uint32_t *)right]);
}

static rsd_err add_all(writer *w, const rsi_sums *s, size_t nfiles, const uint32_t *order,
                       const char *const *name, const uint64_t *size)
{
    unsigned char hash[RSI_HASH128_BYTES];
    char          line[LINE_BYTES];
    rsd_err       rc = add(w, RSI_SUMS_FIRST, strlen(RSI_SUMS_FIRST));

    for (size_t i = 0; i < nfiles && !rc; i++) {
        uint32_t file = order[i];

        if (i && strcmp(name[order[i - 1]], name[file]) == 0)
            return rsi_fail(w->err, RSD_E_INVALID, "file \"%s\" has checksums twice", name[file]);
        rc = add_file(w, s, file, name[file], size[file]);
    }
    if (!rc)
        rc = flush(w);
    if (rc)
        return rc;
    rsi_hash128_end(w->stream, hash);
    memcpy(line, "self ", 5);
    rc = add(w, line, 5 + hex_line(hash, line + 5));
    return rc ? rc : flush(w);
}

rsd_err rsi_sums_write(rsi_sums *s, size_t nfiles, const char *const *name, const uint64_t *size,
                       rsi_sums_put put, void *arg, rsd_error *err)
{
    writer    w = { .put = put, .arg = arg, .err = err };
    uint32_t *order;
    rsd_err   rc = rsi_sums_end(s, err);

    if (rc)
        return rc;
    if (!rsi_sums_available())
        return rsi_fail(err, RSD_E_UNSUPPORTED, "this build has no xxHash to make checksums with");
    if (nfiles > UINT32_MAX)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "checksums of %zu files", nfiles);
    order = rsi_calloc(nfiles, sizeof(order[0]));
    w.buf = rsi_calloc(OUT_BYTES, 1);
    w.stream = rsi_hash128_create();
    if (!order || !w.buf || !w.stream) {
        rc = no_memory(s, 0, err);
        goto out;
    }
    for (uint32_t i = 0; i < nfiles; i++)
        order[i] = i;
    qsort_r(order, nfiles, sizeof(order[0]), by_name, (void *)(uintptr_t)name);
    if (s->n)
        qsort(s->row, s->n, sizeof(s->row[0]), by_place);
    if (s->n && s->row[s->n - 1].file >= nfiles)
        rc = rsi_fail(err, RSD_E_BUG, "a checksum of file number %" PRIu32 " of %zu",
                      s->row[s->n - 1].file, nfiles);
    else
        rc = add_all(&w, s, nfiles, order, name, size);
out:
    rsi_free(order);
    rsi_free(w.buf);
    rsi_hash128_free(w.stream);
    return rc;
}
