/* SPDX-License-Identifier: Apache-2.0 */
/* The side file of a checkpoint: hashes of all its bytes, in rows of at most 4 MiB that are cut
 * where items start, so that damage leads to tensors. Text:
 *
 *     reshard sums 1
 *     file 4195304 __0_0.distcp
 *     0 4194304 00112233445566778899aabbccddeeff
 *     4194304 1000 ffeeddccbbaa99887766554433221100
 *     self 0123456789abcdef0123456789abcdef
 *
 * Each file with its size and its rows (offset, length, XXH3-128), which cover it from its first
 * byte to its last without gap or overlap; files are sorted by name; the last line has the hash of
 * all bytes before it. So the same checkpoint has the same side file. sums.c makes one,
 * sums_book.c reads one. */
#ifndef RSI_SUMS_H
#define RSI_SUMS_H

#include "base/arena.h"
#include "base/error.h"
#include "base/hash128.h"

#define RSI_SUMS_NAME  ".reshard-sums" /* in a folder; behind the name of a single file */
#define RSI_SUMS_FIRST "reshard sums 1\n"

enum {
    RSI_SUM_ROW_BYTES = 4 << 20, /* the longest row */
    RSI_SUMS_TRAILER = 38        /* bytes of the last line: "self ", 32 digits, a line feed */
};

typedef struct rsi_sum_row { /* 32 bytes, sent between ranks as it is */
    uint64_t      off;
    uint32_t      len, file; /* file: a number that the caller chose, or its place in a book */
    unsigned char hash[RSI_HASH128_BYTES];
} rsi_sum_row;

/* False: built without xxHash; what would hash is RSD_E_UNSUPPORTED then. */
bool rsi_sums_available(void);

/* ---- making rows: one user at a time ---- */

typedef struct rsi_sums {
    rsi_sum_row        *row; /* [n], in the order they were made */
    size_t              n, cap;
    rsi_sum_row         open;    /* the row that is being made; .len bytes of it are hashed */
    bool                is_open; /* there is one */
    rsi_hash128_stream *stream;  /* hashes it */
} rsi_sums;                      /* zeroed: empty */

/* Closes the open row; the next starts at byte `off` of a file, where an item does. */
rsd_err rsi_sums_begin(rsi_sums *s, uint32_t file, uint64_t off, rsd_error *err);
/* The next bytes behind those; cut where a row is full. */
rsd_err rsi_sums_feed(rsi_sums *s, const void *bytes, size_t len, rsd_error *err);
/* Closes the open row, if there is one. A row of no bytes is left out. */
rsd_err rsi_sums_end(rsi_sums *s, rsd_error *err);
/* Adds rows that another thread or rank made; no row is open in `into`, or it stays open. */
rsd_err rsi_sums_join(rsi_sums *into, const rsi_sum_row *row, size_t n, rsd_error *err);
void    rsi_sums_release(rsi_sums *s); /* leaves it empty and usable */

typedef rsd_err (*rsi_sums_put)(void *arg, const void *bytes, size_t len, rsd_error *err);

/* The text, in pieces. name[i] and size[i] belong to file number i. Sorts the rows, and fails if
 * those of a file don't cover it exactly, or if a name is there twice or can't be written. */
rsd_err rsi_sums_write(rsi_sums *s, size_t nfiles, const char *const *name, const uint64_t *size,
                       rsi_sums_put put, void *arg, rsd_error *err);

/* ---- reading ---- */

typedef struct rsi_sums_file {
    const char *name;
    uint64_t    size;
    size_t      first, nrows; /* of the book's */
} rsi_sums_file;

typedef struct rsi_sums_book { /* a side file that was read and checked */
    rsi_sums_file *file;       /* [nfiles], sorted by name */
    size_t         nfiles, file_cap;
    rsi_sum_row   *row; /* [nrows] by file and offset */
    size_t         nrows, row_cap;
    rsi_arena      mem; /* names */
} rsi_sums_book;

/* Whether a text of `len` bytes that starts and ends like this can be a side file: before all of it
 * is read. `start` has the first bytes, at least 13 if there are so many, `end` the last ones. */
enum { RSI_SUMS_END = 6 + 2 * RSI_HASH128_BYTES + 1 };
rsd_err rsi_sums_ends_check(const char *start, const char *end, uint64_t len, rsd_error *err);
/* Strict: what is accepted, rsi_sums_write would write byte by byte. RSD_E_CORRUPT if the last line
 * does not fit the others, RSD_E_FORMAT if they break the rules above, RSD_E_UNSUPPORTED for
 * another version. Memory is bounded by the length of the text. */
rsd_err rsi_sums_read(const void *text, size_t len, rsi_sums_book **out, rsd_error *err);
void    rsi_sums_book_free(rsi_sums_book *b);

/* The place of a file among those of the book; SIZE_MAX if it is not there. */
size_t rsi_sums_find(const rsi_sums_book *b, const char *file);
/* The rows of file i in rising order. */
const rsi_sum_row *rsi_sums_rows_of(const rsi_sums_book *b, size_t i, size_t *n);

#endif
