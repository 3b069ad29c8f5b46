/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of side files: as the input is, and with a last line that fits it, because no
 * fuzzer guesses a hash. What is accepted covers each file once, and writing it gives it back. Read
 * in parts, it is accepted or refused for the same reason. */
#include "base/mem.h"
#include "format/sums.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact)
        abort();
}

typedef struct compare {
    const char *text;
    size_t      at, len;
} compare;

static rsd_err same(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    compare *with = arg;

    (void)err;
    require(len <= with->len - with->at && memcmp(bytes, with->text + with->at, len) == 0);
    with->at += len;
    return RSD_OK;
}

static void write_again(const rsi_sums_book *book, const char *text, size_t len)
{
    size_t       nfiles = book->nfiles, n;
    const char **name = rsi_calloc(nfiles, sizeof(*name));
    uint64_t    *size = rsi_calloc(nfiles, sizeof(*size));
    compare      with = { .text = text, .len = len };
    rsi_sums     sums = { 0 };

    require(name && size);
    for (size_t i = 0; i < nfiles; i++) {
        const rsi_sum_row *row = rsi_sums_rows_of(book, i, &n);
        uint64_t           end = 0;

        name[i] = book->file[i].name;
        size[i] = book->file[i].size;
        require(rsi_sums_find(book, name[i]) == i);
        for (size_t r = 0; r < n; r++) {
            require(row[r].off == end && row[r].len > 0 && row[r].file == i);
            end += row[r].len;
        }
        require(end == size[i]);
        require(rsi_sums_join(&sums, row, n, NULL) == RSD_OK);
    }
    require(rsi_sums_write(&sums, nfiles, name, size, same, &with, NULL) == RSD_OK);
    require(with.at == len);
    rsi_sums_release(&sums);
    rsi_free(name);
    rsi_free(size);
}

static rsd_err read_parts(const char *text, size_t len)
{
    rsd_error          err = { 0 };
    rsi_sums_book     *book = NULL;
    const rsi_sum_row *row;
    rsd_store         *store;
    rsi_file          *side;
    rsd_err            rc;
    size_t             n;

    require(rsd_store_open("mem:", &store, NULL) == RSD_OK);
    require(rsi_file_open(store, "sums", RSD_OPEN_CREATE, len, &side, NULL) == RSD_OK);
    require(len == 0 || rsi_file_write(side, 0, text, len, NULL) == RSD_OK);
    require(rsi_file_close(side, NULL) == RSD_OK);
    require(rsi_file_open(store, "sums", RSD_OPEN_READ, 0, &side, NULL) == RSD_OK);
    rc = rsi_sums_index(side, &book, &err);
    for (size_t i = 0; !rc && i < book->nfiles; i++)
        rc = rsi_sums_rows_near(book, i, 0, UINT64_MAX, &row, &n, &err);
    require(!rc || err.msg[0] != '\0');
    rsi_sums_book_free(book);
    rsi_file_close(side, NULL);
    rsd_store_close(store);
    return rc;
}

static void read_text(const char *text, size_t len)
{
    rsi_sums_book *book;
    rsd_error      err = { 0 };
    rsd_err        rc;

    rsi_mem_fail_at(0, 0);
    rc = rsi_sums_read(text, len, &book, &err);
    require(rsi_mem_stats_get().peak <= (int64_t)(16 * len + (1 << 20)));
    require(!rc || err.msg[0] != '\0');
    if (!rc) {
        write_again(book, text, len);
        rsi_sums_book_free(book);
    }
    require(rsi_mem_stats_get().bytes == 0);
    require(read_parts(text, len) == rc);
    require(rsi_mem_stats_get().bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char hash[RSI_HASH128_BYTES];
    char          last[2 * RSI_HASH128_BYTES + 7];
    char         *text = malloc(size + sizeof(last));

    require(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    read_text(text, size);
    if (rsi_hash128_available()) {
        rsi_hash128(text, size, hash);
        memcpy(last, "self ", 5);
        for (size_t i = 0; i < sizeof(hash); i++)
            snprintf(last + 5 + 2 * i, 3, "%02x", hash[i]);
        memcpy(last + 5 + 2 * sizeof(hash), "\n", 1);
        memcpy(text + size, last, 6 + 2 * sizeof(hash));
        read_text(text, size + 6 + 2 * sizeof(hash));
    }
    free(text);
    return 0;
}
