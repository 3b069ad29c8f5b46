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
    uint64_t       covered;  /* bytes of the last file that the rows read so far cover */
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
    book->file[book->nfiles++] = file;
    r->covered = 0;
    r->at = stop + 1;
    return RSD_OK;
}

static rsd_err take_row(reader *r)
{
    rsi_sums_book *book = r->book;
    rsi_sum_row    row;
    uint64_t       len;

    if (!book->nfiles)
        return bad_line(r, "\"file\" was expected");
    if (!take_number(r, &row.off) || !take_number(r, &len) || !take_hash(r->at, r->end, row.hash))
        return bad_line(r, "offset, length and 32 hex digits were expected, or \"file\"");
    if (row.off != r->covered)
        return rsi_fail(r->err, RSD_E_FORMAT,
                        "line %zu: a row at byte %" PRIu64 " where byte %" PRIu64 " comes next",
                        r->line, row.off, r->covered);
    if (len == 0 || len > RSI_SUM_ROW_BYTES || len > book->file[book->nfiles - 1].size - r->covered)
        return rsi_fail(r->err, RSD_E_FORMAT,
                        "line %zu: a row of %" PRIu64 " bytes at byte %" PRIu64
                        " of a file of %" PRIu64,
                        r->line, len, row.off, book->file[book->nfiles - 1].size);
    if (!rsi_grow(&book->row, book->nrows, &book->row_cap, sizeof(book->row[0])))
        return no_memory(r);
    row.len = (uint32_t)len;
    row.file = (uint32_t)(book->nfiles - 1);
    book->row[book->nrows++] = row;
    book->file[row.file].nrows++;
    r->covered += len;
    r->at += HEX + 1;
    return RSD_OK;
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

/* Checks the first line, and the last line against everything before it. */
static rsd_err check_frame(const char *text, size_t len, rsd_error *err)
{
    static const char first[] = RSI_SUMS_FIRST;
    unsigned char     said[RSI_HASH128_BYTES], is[RSI_HASH128_BYTES];
    const char       *end = len < RSI_SUMS_END ? text : text + len - RSI_SUMS_END;
    rsd_err           rc = rsi_sums_ends_check(text, end, len, err);

    if (rc)
        return rc;
    take_hash(end + 6, end + RSI_SUMS_END, said);
    rsi_hash128(text, len - SELF_LINE, is);
    if (memcmp(said, is, sizeof(is)) != 0)
        return rsi_fail(err, RSD_E_CORRUPT, "its own checksum does not match");
    if (memcmp(text, first, sizeof(first) - 1) != 0)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "its version is not 1");
    return RSD_OK;
}

rsd_err rsi_sums_read(const void *text, size_t len, rsi_sums_book **out, rsd_error *err)
{
    reader  r = { .at = text, .line = 2, .err = err };
    rsd_err rc;

    if (!rsi_sums_available())
        return rsi_fail(err, RSD_E_UNSUPPORTED, "this build has no xxHash to check checksums with");
    rc = check_frame(text, len, err);
    if (rc)
        return rc;
    r.book = rsi_calloc(1, sizeof(*r.book));
    if (!r.book)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for checksums");
    r.end = r.at + len - SELF_LINE;
    for (r.at += strlen(RSI_SUMS_FIRST); r.at < r.end && !rc; r.line++)
        rc = r.end - r.at > 5 && memcmp(r.at, "file ", 5) == 0 ? take_file(&r) : take_row(&r);
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
