/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text of a checksum file. It may come from anywhere: nothing in it is trusted until its
 * last line matches, and even then it must follow the rules of sums.h. Other files compare the rows
 * with files. Next: make_sums.c makes the checksum file of a checkpoint that has none. */
#include "base/mem.h"
#include "format/sums.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HEX = 2 * RSI_HASH128_BYTES, SELF_LINE = 5 + HEX + 1 };

typedef struct reader {
    const char    *at, *end; /* `end` is that of the last line before "self" */
    size_t         line;     /* counts from 1 */
    uint64_t       covered;  /* bytes of the file that the rows read so far cover */
    size_t         place;    /* of that file in the book */
    rsi_sums_book *book;
    rsd_error     *err;
} reader;

static rsd_err bad_line(const reader *r, const char *what)
{
    return rsi_fail(r->err, RSD_E_FORMAT, "line %zu: %s", r->line, what);
}

static rsd_err no_memory(const reader *r)
{
    return rsi_fail(r->err, RSD_E_NOMEM, "no memory for the checksums of %zu files",
                    r->book->nfiles + 1);
}

/* A number and the space after it: no sign, no leading zero. The text ends in a line feed. */
static bool take_number(reader *r, uint64_t *out)
{
    const bool good = r->at[0] >= '0' && r->at[0] <= '9' && (r->at[0] != '0' || r->at[1] == ' ');
    char      *end;

    errno = 0;
    *out = good ? strtoull(r->at, &end, 10) : 0;
    if (!good || errno || *end != ' ')
        return false;
    r->at = end + 1;
    return true;
}

/* 32 digits and the end of the line. */
static bool take_hash(const char *at, const char *end, unsigned char *out)
{
    if (end - at < HEX + 1 || at[HEX] != '\n' || strspn(at, "0123456789abcdef") != HEX)
        return false;
    for (int i = 0; i < HEX; i++) {
        unsigned digit = (unsigned)(at[i] <= '9' ? at[i] - '0' : at[i] - 'a' + 10);

        out[i / 2] = (unsigned char)(i % 2 ? out[i / 2] | digit : digit << 4);
    }
    return true;
}

/* The rows of the last file read so far must reach its end. */
static rsd_err end_file(const reader *r)
{
    const rsi_sums_book *book = r->book;
    const rsi_sums_file *last = book->nfiles ? &book->file[book->nfiles - 1] : NULL;

    if (!last || last->size == r->covered)
        return RSD_OK;
    return rsi_fail(r->err, RSD_E_FORMAT,
                    "line %zu: checksums of file \"%s\" end at byte %" PRIu64 " of %" PRIu64,
                    r->line, last->name, r->covered, last->size);
}

static rsd_err take_file(reader *r)
{
    rsi_sums_book *book = r->book;
    rsi_sums_file  file = { .first = book->nrows };
    const char    *stop;
    char          *name;
    rsd_err        rc = end_file(r);

    if (rc)
        return rc;
    r->at += 5; /* "file " */
    if (!take_number(r, &file.size))
        return bad_line(r, "a size in bytes was expected after \"file\"");
    stop = memchr(r->at, '\n', (size_t)(r->end - r->at)); /* the text ends in a line feed */
    if (memchr(r->at, '\0', (size_t)(stop - r->at)))
        return bad_line(r, "a file name contains a NUL");
    if (!rsi_grow(&book->file, book->nfiles, &book->file_cap, sizeof(book->file[0])))
        return no_memory(r);
    name = rsi_arena_text(&book->mem, r->at, (size_t)(stop - r->at));
    if (!name)
        return no_memory(r);
    rc = rsi_store_name_check(name, r->err);
    if (rc)
        return rsi_while(r->err, RSD_E_FORMAT, "line %zu", r->line);
    if (book->nfiles && strcmp(book->file[book->nfiles - 1].name, name) >= 0)
        return rsi_fail(r->err, RSD_E_FORMAT,
                        "line %zu: file \"%.200s\" does not come after \"%.200s\"", r->line, name,
                        book->file[book->nfiles - 1].name);
    file.name = name;
    file.page = book->npages;
    r->place = book->nfiles;
    book->file[book->nfiles++] = file;
    r->covered = 0;
    r->at = stop + 1;
    return RSD_OK;
}

static rsd_err take_row(reader *r, rsi_sum_row *row)
{
    const rsi_sums_book *book = r->book;
    uint64_t             len;

    if (!book->nfiles)
        return bad_line(r, "\"file\" was expected");
    if (!take_number(r, &row->off) || !take_number(r, &len) || !take_hash(r->at, r->end, row->hash))
        return bad_line(r, "offset, length and 32 hex digits were expected, or \"file\"");
    if (row->off != r->covered)
        return rsi_fail(r->err, RSD_E_FORMAT,
                        "line %zu: a row at byte %" PRIu64 " where byte %" PRIu64 " comes next",
                        r->line, row->off, r->covered);
    if (len == 0 || len > RSI_SUM_ROW_BYTES || len > book->file[r->place].size - r->covered)
        return rsi_fail(r->err, RSD_E_FORMAT,
                        "line %zu: a row of %" PRIu64 " bytes at byte %" PRIu64
                        " of a file of %" PRIu64,
                        r->line, len, row->off, book->file[r->place].size);
    row->len = (uint32_t)len;
    row->file = (uint32_t)r->place;
    r->covered += len;
    r->at += HEX + 1;
    return RSD_OK;
}

static rsd_err add_row(reader *r)
{
    rsi_sums_book *book = r->book;
    rsi_sum_row    row;
    rsd_err        rc = take_row(r, &row);

    if (rc)
        return rc;
    if (!rsi_grow(&book->row, book->nrows, &book->row_cap, sizeof(book->row[0])))
        return no_memory(r);
    book->row[book->nrows++] = row;
    book->file[row.file].nrows++;
    return RSD_OK;
}

static bool at_file(const reader *r)
{
    return r->end - r->at > 5 && memcmp(r->at, "file ", 5) == 0;
}

rsd_err rsi_sums_ends_check(const char *start, const char *end, uint64_t len, rsd_error *err)
{
    const size_t  word = strlen("reshard sums ");
    unsigned char said[RSI_HASH128_BYTES];

    if (len < word || memcmp(start, RSI_SUMS_FIRST, word) != 0)
        return rsi_fail(err, RSD_E_FORMAT, "it does not start with \"reshard sums\"");
    if (len < sizeof(RSI_SUMS_FIRST) - 1 + SELF_LINE || memcmp(end, "\nself ", 6) != 0 ||
        !take_hash(end + 6, end + RSI_SUMS_END, said))
        return rsi_fail(err, RSD_E_FORMAT, "it does not end with its own checksum");
    return RSD_OK;
}

/* Checks the first line, and the last line against the hash of everything before it. */
static rsd_err check_frame(const char *start, const char *end, const unsigned char *is,
                           rsd_error *err)
{
    static const char first[] = RSI_SUMS_FIRST;
    unsigned char     said[RSI_HASH128_BYTES];

    take_hash(end + 6, end + RSI_SUMS_END, said);
    if (memcmp(said, is, sizeof(said)) != 0)
        return rsi_fail(err, RSD_E_CORRUPT, "its own checksum does not match");
    if (memcmp(start, first, sizeof(first) - 1) != 0)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "its version is not 1");
    return RSD_OK;
}

static rsd_err new_book(rsi_sums_book **out, rsd_error *err)
{
    *out = rsi_calloc(1, sizeof(**out));
    if (!*out)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for checksums");
    pthread_mutex_init(&(*out)->lock, NULL);
    return RSD_OK;
}

rsd_err rsi_sums_read(const void *text, size_t len, rsi_sums_book **out, rsd_error *err)
{
    reader        r = { .at = text, .line = 2, .err = err };
    const char   *last = len < RSI_SUMS_END ? r.at : r.at + len - RSI_SUMS_END;
    unsigned char is[RSI_HASH128_BYTES];
    rsd_err       rc;

    if (!rsi_sums_available())
        return rsi_fail(err, RSD_E_UNSUPPORTED, "this build has no xxHash to check checksums with");
    rc = rsi_sums_ends_check(r.at, last, len, err);
    if (rc)
        return rc;
    rsi_hash128(text, len - SELF_LINE, is);
    rc = check_frame(r.at, last, is, err);
    if (!rc)
        rc = new_book(&r.book, err);
    if (rc)
        return rc;
    r.end = r.at + len - SELF_LINE;
    for (r.at += strlen(RSI_SUMS_FIRST); r.at < r.end && !rc; r.line++)
        rc = at_file(&r) ? take_file(&r) : add_row(&r);
    if (!rc)
        rc = end_file(&r);
    if (rc)
        rsi_sums_book_free(r.book);
    else
        *out = r.book;
    return rc;
}

void rsi_sums_book_free(rsi_sums_book *b)
{
    if (!b)
        return;
    rsi_free(b->file);
    rsi_free(b->row);
    rsi_free(b->page);
    pthread_mutex_destroy(&b->lock);
    rsi_arena_release(&b->mem);
    rsi_free(b);
}

static int by_name(const void *name, const void *file)
{
    return strcmp(name, ((const rsi_sums_file *)file)->name);
}

size_t rsi_sums_find(const rsi_sums_book *b, const char *file)
{
    const rsi_sums_file *hit =
        b->nfiles ? bsearch(file, b->file, b->nfiles, sizeof(b->file[0]), by_name) : NULL;

    return hit ? (size_t)(hit - b->file) : SIZE_MAX;
}

const rsi_sum_row *rsi_sums_rows_of(const rsi_sums_book *b, size_t i, size_t *n)
{
    static const rsi_sum_row none;

    *n = b->file[i].nrows;
    return b->row ? b->row + b->file[i].first : &none;
}

/* ---- reading in parts ---- */

enum {
    PAGE = 2048,             /* bytes of text after which a page ends */
    STEP = 256 << 10,        /* bytes of text that are looked at together */
    LEAST_ROW = 4 + HEX + 1, /* "0 1 ", 32 digits, a line feed */
    MOST_ROW = 29 + HEX + 1, /* 20 and 7 digits, two spaces */
    RUN = 64 << 10           /* bytes of text after which a later read ends */
};

typedef struct indexing {
    reader              r;
    char               *buf; /* [STEP] */
    rsi_hash128_stream *whole;
    uint64_t            at; /* of buf, in the text */
    rsd_error           why;
    rsd_err             rc; /* the first line that breaks the rules; hashing goes on */
} indexing;

static void end_page(indexing *x, const char *end)
{
    rsi_sums_book *book = x->r.book;
    rsi_sums_page *p = book->npages ? &book->page[book->npages - 1] : NULL;

    if (!p || p->len)
        return;
    p->len = (uint32_t)(x->at + (uint64_t)(end - x->buf) - p->at);
    rsi_hash128(end - p->len, p->len, p->hash);
}

/* The first row of a page says where the rows before it must end. */
static rsd_err begin_page(indexing *x)
{
    reader        *r = &x->r;
    rsi_sums_book *book = r->book;
    const char    *line = r->at;
    rsi_sums_file *file = book->nfiles ? &book->file[r->place] : NULL;
    rsi_sums_page  p = { .at = x->at + (uint64_t)(line - x->buf),
                         .row = book->nrows,
                         .line = r->line };

    end_page(x, line);
    if (!file)
        return bad_line(r, "\"file\" was expected");
    if (!take_number(r, &p.off))
        return bad_line(r, "offset, length and 32 hex digits were expected, or \"file\"");
    r->at = line;
    if (file->npages ? p.off <= book->page[book->npages - 1].off || p.off >= file->size : p.off > 0)
        return rsi_fail(r->err, RSD_E_FORMAT, "line %zu: a row at byte %" PRIu64 " is out of place",
                        r->line, p.off);
    if (!rsi_grow(&book->page, book->npages, &book->page_cap, sizeof(p)))
        return no_memory(r);
    book->page[book->npages++] = p;
    file->npages++;
    return RSD_OK;
}

static rsd_err index_row(indexing *x, bool first)
{
    reader        *r = &x->r;
    rsi_sums_book *book = r->book;
    const size_t   left = (size_t)(r->end - r->at), most = left < MOST_ROW ? left : MOST_ROW;
    const char    *stop =
        left < LEAST_ROW ? NULL : memchr(r->at + LEAST_ROW - 1, '\n', most - LEAST_ROW + 1);
    rsd_err rc = RSD_OK;

    if (!stop)
        return bad_line(r, "offset, length and 32 hex digits were expected, or \"file\"");
    if (first || !book->file[r->place].npages ||
        x->at + (uint64_t)(r->at - x->buf) - book->page[book->npages - 1].at >= PAGE)
        rc = begin_page(x);
    if (rc)
        return rc;
    book->page[book->npages - 1].nrows++;
    book->file[r->place].nrows++;
    book->nrows++;
    r->at = stop + 1;
    return RSD_OK;
}

/* `end`: of the last whole line in the buffer. */
static rsd_err index_lines(indexing *x, const char *start, const char *end)
{
    reader *r = &x->r;
    rsd_err rc = RSD_OK;
    bool    first = true;

    r->end = end;
    for (r->at = start; r->at < end && !rc; r->line++) {
        if (at_file(r)) {
            end_page(x, r->at);
            r->covered = r->book->nfiles && r->book->file[r->place].npages
                             ? r->book->file[r->place].size /* its last page will tell */
                             : 0;
            rc = take_file(r);
        } else {
            rc = index_row(x, first);
            first = false;
        }
    }
    end_page(x, r->at);
    return rc;
}

/* Reads, hashes and indexes all but the last line. A page ends where the buffer does. */
static rsd_err index_text(indexing *x, uint64_t size, rsd_error *err)
{
    size_t  kept = 0, skip = strlen(RSI_SUMS_FIRST);
    rsd_err rc = RSD_OK;

    while (!rc && x->at + kept < size) {
        const uint64_t left = size - x->at - kept;
        const size_t   len = left < STEP - kept ? (size_t)left : STEP - kept;
        const char    *end = x->buf + kept + len;

        rc = rsi_file_read(x->r.book->side, x->at + kept, x->buf + kept, len, err);
        if (rc)
            break;
        rsi_hash128_feed(x->whole, x->buf + kept, len);
        while (end > x->buf && end[-1] != '\n')
            end--;
        if (!x->rc && end == x->buf)
            x->rc = bad_line(&x->r, "it is too long");
        if (x->rc) { /* nothing more is kept; the hash tells whether the bytes are damaged */
            x->at += kept + len;
            kept = 0;
            continue;
        }
        x->rc = index_lines(x, x->buf + skip, end);
        rc = x->rc == RSD_E_NOMEM ? RSD_E_NOMEM : RSD_OK;
        skip = 0;
        kept = (size_t)(x->buf + kept + len - end);
        memmove(x->buf, end, kept);
        x->at += (uint64_t)(end - x->buf);
    }
    return rc;
}

/* `start` and `end`: the text's first and last bytes. */
static rsd_err make_index(indexing *x, const char *start, const char *end, rsd_error *err)
{
    rsi_sums_book *book = x->r.book;
    unsigned char  is[RSI_HASH128_BYTES];
    rsd_err        rc;

    rsi_hash128_begin(x->whole);
    rc = index_text(x, book->side->size - SELF_LINE, err);
    if (!rc) {
        rsi_hash128_end(x->whole, is);
        rc = check_frame(start, end, is, err);
    }
    if (!rc && !x->rc && book->nfiles && !book->file[x->r.place].npages) {
        x->r.covered = 0;
        x->rc = end_file(&x->r);
    }
    if (!rc && !x->rc) {
        book->row = rsi_calloc(book->nrows, sizeof(book->row[0]));
        x->rc = book->row ? RSD_OK : no_memory(&x->r);
    }
    if (x->rc && (!rc || rc == x->rc)) {
        rc = x->rc;
        if (err)
            *err = x->why;
    }
    return rc;
}

/* A large file that is something else is not read whole. */
static rsd_err read_ends(rsi_file *side, char start[RSI_SUMS_END], char end[RSI_SUMS_END],
                         rsd_error *err)
{
    const size_t len = side->size < RSI_SUMS_END ? (size_t)side->size : RSI_SUMS_END;
    rsd_err      rc = len ? rsi_file_read(side, 0, start, len, err) : RSD_OK;

    if (!rc && len)
        rc = rsi_file_read(side, side->size - len, end, len, err);
    return rc ? rc : rsi_sums_ends_check(start, end, side->size, err);
}

rsd_err rsi_sums_index(rsi_file *side, rsi_sums_book **out, rsd_error *err)
{
    char     start[RSI_SUMS_END] = { 0 }, end[RSI_SUMS_END] = { 0 };
    indexing x = { .r = { .line = 2 }, .why.rank = -1 };
    rsd_err  rc;

    if (!rsi_sums_available())
        return rsi_fail(err, RSD_E_UNSUPPORTED, "this build has no xxHash to check checksums with");
    rc = read_ends(side, start, end, err);
    if (!rc)
        rc = new_book(&x.r.book, err);
    if (rc)
        return rc;
    x.r.book->side = side;
    x.r.err = &x.why;
    x.buf = rsi_alloc_aligned(4096, STEP);
    x.whole = rsi_hash128_create();
    rc = x.buf && x.whole ? make_index(&x, start, end, err)
                          : rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer");
    rsi_hash128_free(x.whole);
    rsi_free(x.buf);
    if (rc)
        rsi_sums_book_free(x.r.book);
    else
        *out = x.r.book;
    return rc;
}

/* The rows of page p of file i, from its text. */
static rsd_err read_page(rsi_sums_book *b, size_t i, size_t p, const char *text, rsd_error *err)
{
    rsi_sums_page *page = &b->page[p];
    const bool     last = p + 1 == b->file[i].page + b->file[i].npages;
    const uint64_t next = last ? b->file[i].size : b->page[p + 1].off;
    unsigned char  is[RSI_HASH128_BYTES];
    rsd_err        rc = RSD_OK;
    reader         r = { .at = text,
                         .end = text + page->len,
                         .line = page->line,
                         .covered = page->off,
                         .place = i,
                         .book = b,
                         .err = err };

    rsi_hash128(text, page->len, is);
    if (memcmp(is, page->hash, sizeof(is)) != 0)
        return rsi_fail(err, RSD_E_MISMATCH, "it was modified after it was opened");
    for (size_t k = 0; k < page->nrows && !rc; k++, r.line++)
        rc = take_row(&r, &b->row[page->row + k]);
    if (!rc && r.covered != next)
        rc = rsi_fail(err, RSD_E_FORMAT,
                      "line %zu: checksums of file \"%s\" up to byte %" PRIu64
                      " where byte %" PRIu64 " was expected",
                      r.line, b->file[i].name, r.covered, next);
    page->read = !rc;
    return rc;
}

/* Pages [first, end) of file i, which follow each other in the text. */
static rsd_err read_pages(rsi_sums_book *b, size_t i, size_t first, size_t end, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t p = first, q; p < end && !rc; p = q) {
        const uint64_t at = b->page[p].at;
        size_t         len = 0;
        char          *text;

        for (q = p; q < end && !b->page[q].read && len < RUN; q++)
            len += b->page[q].len;
        if (q == p) {
            q++;
            continue;
        }
        text = rsi_calloc(len, 1);
        rc = text ? rsi_file_read(b->side, at, text, len, err)
                  : rsi_fail(err, RSD_E_NOMEM, "no memory for a buffer");
        for (size_t k = p; k < q && !rc; k++)
            rc = read_page(b, i, k, text + (b->page[k].at - at), err);
        rsi_free(text);
    }
    return rc;
}

rsd_err rsi_sums_rows_near(rsi_sums_book *b, size_t i, uint64_t off, uint64_t len,
                           const rsi_sum_row **row, size_t *n, rsd_error *err)
{
    const rsi_sums_file *file = &b->file[i];
    size_t               lo = file->page, hi = lo + file->npages, end;
    rsd_err              rc;

    if (!b->side || !file->npages) {
        *row = rsi_sums_rows_of(b, i, n);
        return RSD_OK;
    }
    while (hi - lo > 1) { /* the last page that starts at or before `off` */
        const size_t mid = lo + (hi - lo) / 2;

        if (b->page[mid].off <= off)
            lo = mid;
        else
            hi = mid;
    }
    end = lo + 1;
    while (end < file->page + file->npages && b->page[end].off - off < len)
        end++;
    pthread_mutex_lock(&b->lock);
    rc = read_pages(b, i, lo, end, err);
    pthread_mutex_unlock(&b->lock);
    *row = b->row + b->page[lo].row;
    *n = b->page[end - 1].row + b->page[end - 1].nrows - b->page[lo].row;
    return rc;
}
