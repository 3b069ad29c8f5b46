/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum file of a checkpoint: hashes of all its bytes, in rows of at most 4 MiB that are cut
 * where items start, so that damage can be traced to tensors. Text:
 *
 *     reshard sums 1
 *     file 4195304 __0_0.distcp
 *     0 4194304 00112233445566778899aabbccddeeff
 *     4194304 1000 ffeeddccbbaa99887766554433221100
 *     self 0123456789abcdef0123456789abcdef
 *
 * Each file is listed with its size and its rows (offset, length, XXH3-128), which cover it from
 * first to last byte without gap or overlap. Files are sorted by name; the last line is the hash of
 * all bytes before it. So equal checkpoints have equal checksum files. sums.c makes one,
 * sums_book.c reads one. */
#ifndef RSI_SUMS_H
#define RSI_SUMS_H

#include "base/arena.h"
#include "base/error.h"
#include "base/hash128.h"

#include <pthread.h>

#define RSI_SUMS_NAME  ".reshard-sums" /* in a folder; appended to the name of a single file */
#define RSI_SUMS_FIRST "reshard sums 1\n"

/* The checksum file of a save inside a folder (C8): named after its first data file, and so bound
 * to the metadata that name that file; ".reshard-sums-__0_3" belongs to "__0_3.distcp". */
enum { RSI_SUMS_BOUND = 64 }; /* room for such a name */
void rsi_sums_bound(int32_t rank, int64_t number, char name[RSI_SUMS_BOUND]);
/* True for such a name. */
bool rsi_sums_key(const char *name, int32_t *rank, int64_t *number);
/* True for the name of any checksum file in a folder. */
bool rsi_sums_is_name(const char *name);

enum {
    RSI_SUM_ROW_BYTES = 4 << 20, /* maximum length of a row */
    RSI_SUMS_TRAILER = 38        /* bytes of the last line: "self ", 32 digits, a line feed */
};

typedef struct rsi_sum_row { /* 32 bytes, sent between ranks as is */
    uint64_t      off;
    uint32_t      len, file; /* file: a number chosen by the caller, or its place in a book */
    unsigned char hash[RSI_HASH128_BYTES];
} rsi_sum_row;

/* False: built without xxHash; hashing then fails with RSD_E_UNSUPPORTED. */
bool rsi_sums_available(void);

/* ---- making rows: one user at a time ---- */

typedef struct rsi_sums {
    rsi_sum_row        *row; /* [n], in the order they were made */
    size_t              n, cap;
    rsi_sum_row         open;    /* the row being made; .len bytes of it are hashed */
    bool                is_open; /* `open` is in use */
    rsi_hash128_stream *stream;  /* hashes the open row */
} rsi_sums;                      /* zeroed: empty */

/* Closes the open row; the next one starts at byte `off` of a file, where an item starts. */
rsd_err rsi_sums_begin(rsi_sums *s, uint32_t file, uint64_t off, rsd_error *err);
/* Adds the bytes that follow; starts a new row when one is full. */
rsd_err rsi_sums_feed(rsi_sums *s, const void *bytes, size_t len, rsd_error *err);
/* Closes the open row, if any. A row without bytes is left out. */
rsd_err rsi_sums_end(rsi_sums *s, rsd_error *err);
/* Adds rows made by another thread or rank. A row open in `into` stays open. */
rsd_err rsi_sums_join(rsi_sums *into, const rsi_sum_row *row, size_t n, rsd_error *err);
void    rsi_sums_release(rsi_sums *s); /* leaves it empty and usable */

typedef rsd_err (*rsi_sums_put)(void *arg, const void *bytes, size_t len, rsd_error *err);

/* Writes the text, in pieces. name[i] and size[i] belong to file number i. Sorts the rows, and
 * fails if those of a file don't cover it exactly, or if a name is a duplicate or can't be
 * written. */
rsd_err rsi_sums_write(rsi_sums *s, size_t nfiles, const char *const *name, const uint64_t *size,
                       rsi_sums_put put, void *arg, rsd_error *err);

/* ---- reading ---- */

typedef struct rsi_sums_file {
    const char *name;
    uint64_t    size;
    size_t      first, nrows; /* in the book */
    size_t      page, npages; /* the same, of a book that is read in parts */
} rsi_sums_file;

typedef struct rsi_sums_page { /* some rows of one file, in a text that is read in parts */
    uint64_t      at;          /* in the text */
    uint64_t      off;         /* of the first row */
    size_t        row, line;   /* of the first row, in the book and in the text */
    uint32_t      len, nrows;  /* bytes of text; rows */
    unsigned char hash[RSI_HASH128_BYTES]; /* of the text */
    bool          read;                    /* its rows are in the book */
} rsi_sums_page;

typedef struct rsi_sums_book { /* a checksum file that was read and checked */
    rsi_sums_file *file;       /* [nfiles], sorted by name */
    size_t         nfiles, file_cap;
    rsi_sum_row   *row; /* [nrows] by file and offset */
    size_t         nrows, row_cap;
    rsi_arena      mem; /* names */
    /* Of a book that is read in parts: rows appear in `row` as their pages are read. */
    struct rsi_file *side;
    rsi_sums_page   *page; /* [npages], in the order of the text */
    size_t           npages, page_cap;
    pthread_mutex_t  lock; /* guards what is read later */
} rsi_sums_book;

/* Whether a text of `len` bytes with this start and end can be a checksum file; for use before
 * reading all of it. `start` has the first bytes, at least 13 if there are as many, `end` the last
 * ones. */
enum { RSI_SUMS_END = 6 + 2 * RSI_HASH128_BYTES + 1 };
rsd_err rsi_sums_ends_check(const char *start, const char *end, uint64_t len, rsd_error *err);
/* Strict: accepts only text that rsi_sums_write would write, byte for byte. RSD_E_CORRUPT if the
 * last line does not match the others, RSD_E_FORMAT if they break the rules above,
 * RSD_E_UNSUPPORTED for another version. Memory is bounded by the length of the text. */
rsd_err rsi_sums_read(const void *text, size_t len, rsi_sums_book **out, rsd_error *err);
/* The same for a long text, in memory that grows with the number of files and by a thirtieth of the
 * text: it is hashed from start to end, names and sizes of files are kept, and where rows are. Rows
 * are checked when they are asked for. `side` stays open as long as the book. */
rsd_err rsi_sums_index(struct rsi_file *side, rsi_sums_book **out, rsd_error *err);
void    rsi_sums_book_free(rsi_sums_book *b);

/* The index of a file in the book; SIZE_MAX if not listed. */
size_t rsi_sums_find(const rsi_sums_book *b, const char *file);
/* Rows of file i by rising offset, among them all with a byte in [off, off + len). Reads what has
 * not been read; RSD_E_FORMAT if that breaks the rules, RSD_E_MISMATCH if it has changed. Any
 * thread. */
rsd_err rsi_sums_rows_near(rsi_sums_book *b, size_t i, uint64_t off, uint64_t len,
                           const rsi_sum_row **row, size_t *n, rsd_error *err);
/* The rows of file i of a book that was read whole, by rising offset. */
const rsi_sum_row *rsi_sums_rows_of(const rsi_sums_book *b, size_t i, size_t *n);

#endif
