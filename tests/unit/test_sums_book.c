/* SPDX-License-Identifier: Apache-2.0 */
/* test_sums_book.c - a checksum file is read only if every line of it keeps the rules. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "format/sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH "00112233445566778899aabbccddeeff"
#define GOOD                                                                                       \
    "reshard sums 1\n"                                                                             \
    "file 4195304 __0_0.distcp\n"                                                                  \
    "0 4194304 " HASH "\n"                                                                         \
    "4194304 1000 " HASH "\n"                                                                      \
    "file 0 empty\n"                                                                               \
    "file 9 sub/b c\n"                                                                             \
    "0 9 " HASH "\n"

/* The text with a last line that fits. */
static size_t seal(const char *text, size_t len, char *out)
{
    unsigned char hash[RSI_HASH128_BYTES];

    memcpy(out, text, len);
    rsi_hash128(text, len, hash);
    memcpy(out + len, "self ", 5);
    for (size_t i = 0; i < sizeof(hash); i++)
        snprintf(out + len + 5 + 2 * i, 3, "%02x", hash[i]);
    memcpy(out + len + 37, "\n", 2);
    return len + 38;
}

static rsi_file *file_of(rsd_store *store, const char *text, size_t len)
{
    rsi_file *side;

    fix_put(store, "sums", text, len);
    assert_int_equal(rsi_file_open(store, "sums", RSD_OPEN_READ, 0, &side, NULL), RSD_OK);
    return side;
}

/* The same text read in parts, until all rows have been asked for. */
static rsd_err read_parts(const char *text, size_t len, rsd_error *err)
{
    rsd_store         *store = fix_store();
    rsi_file          *side = file_of(store, text, len);
    rsi_sums_book     *book = NULL;
    rsd_err            rc = rsi_sums_index(side, &book, err);
    const rsi_sum_row *row;
    size_t             n;

    for (size_t i = 0; !rc && i < book->nfiles; i++)
        rc = rsi_sums_rows_near(book, i, 0, UINT64_MAX, &row, &n, err);
    rsi_sums_book_free(book);
    rsi_file_close(side, NULL);
    rsd_store_close(store);
    return rc;
}

static rsd_err read_sealed(const char *text, size_t len, rsi_sums_book **out, rsd_error *err)
{
    char      buf[8192];
    size_t    all;
    rsd_error parts = { 0 };
    rsd_err   rc;

    assert_true(len + 39 < sizeof(buf));
    all = seal(text, len, buf);
    rc = rsi_sums_read(buf, all, out, err);
    assert_int_equal(read_parts(buf, all, &parts), rc);
    assert_true(!rc || parts.msg[0]);
    return rc;
}

static void assert_refused(const char *text, const char *why)
{
    rsi_sums_book *book = NULL;
    rsd_error      err = { 0 };

    assert_int_equal(read_sealed(text, strlen(text), &book, &err), RSD_E_FORMAT);
    assert_null(book);
    if (!strstr(err.msg, why))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, why);
}

static void files_and_rows_are_found(void **state)
{
    rsi_sums_book     *book;
    const rsi_sum_row *row;
    size_t             n;

    (void)state;
    assert_int_equal(read_sealed(GOOD, strlen(GOOD), &book, NULL), RSD_OK);
    assert_int_equal(book->nfiles, 3);
    assert_string_equal(book->file[2].name, "sub/b c");
    assert_int_equal(book->file[2].size, 9);
    assert_int_equal(rsi_sums_find(book, "empty"), 1);
    assert_true(rsi_sums_find(book, "other") == SIZE_MAX);
    assert_int_equal(rsi_sums_find(book, "__0_0.distcp"), 0);
    row = rsi_sums_rows_of(book, 0, &n);
    assert_int_equal(book->file[0].size, 4195304);
    assert_int_equal(n, 2);
    assert_int_equal(row[1].off, 4194304);
    assert_int_equal(row[1].len, 1000);
    assert_int_equal(row[1].hash[1], 0x11);
    assert_non_null(rsi_sums_rows_of(book, 1, &n));
    assert_int_equal(n, 0);
    rsi_sums_book_free(book);
}

static void a_side_file_of_nothing_is_read(void **state)
{
    rsi_sums_book     *book;
    const rsi_sum_row *row;
    size_t             n;

    (void)state;
    assert_int_equal(read_sealed("reshard sums 1\n", 15, &book, NULL), RSD_OK);
    assert_int_equal(book->nfiles, 0);
    assert_true(rsi_sums_find(book, "a") == SIZE_MAX);
    rsi_sums_book_free(book);
    assert_int_equal(read_sealed("reshard sums 1\nfile 0 a\n", 24, &book, NULL), RSD_OK);
    row = rsi_sums_rows_of(book, 0, &n);
    assert_non_null(row);
    assert_int_equal(n, 0);
    rsi_sums_book_free(book);
}

static void every_flipped_byte_is_found(void **state)
{
    char           text[1024];
    size_t         len = seal(GOOD, strlen(GOOD), text);
    rsi_sums_book *book = NULL;
    rsd_error      err;

    (void)state;
    for (size_t i = 0; i < len; i++)
        for (unsigned bit = 1; bit < 256; bit *= 2) {
            rsd_err rc;

            text[i] = (char)((unsigned char)text[i] ^ bit);
            rc = rsi_sums_read(text, len, &book, &err);
            assert_true(rc == RSD_E_CORRUPT || rc == RSD_E_FORMAT);
            text[i] = (char)((unsigned char)text[i] ^ bit);
        }
    assert_null(book);
}

static void every_shorter_text_is_refused(void **state)
{
    char           text[1024];
    size_t         len = seal(GOOD, strlen(GOOD), text);
    rsi_sums_book *book = NULL;

    (void)state;
    for (size_t i = 0; i < len; i++)
        assert_int_equal(rsi_sums_read(text, i, &book, NULL), RSD_E_FORMAT);
    text[len] = '\n';
    assert_int_equal(rsi_sums_read(text, len + 1, &book, NULL), RSD_E_FORMAT);
}

static void another_version_is_unsupported(void **state)
{
    rsi_sums_book *book;
    rsd_error      err;

    (void)state;
    assert_int_equal(read_sealed("reshard sums 2\n", 15, &book, &err), RSD_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "version"));
}

static void rows_that_leave_a_gap_or_overlap_are_refused(void **state)
{
    (void)state;
    assert_refused("reshard sums 1\nfile 9 a\n1 8 " HASH "\n", "line 3: a row at byte 1");
    assert_refused("reshard sums 1\nfile 9 a\n0 4 " HASH "\n5 4 " HASH "\n", "line 4: a row at");
    assert_refused("reshard sums 1\nfile 9 a\n0 4 " HASH "\n3 6 " HASH "\n", "byte 4 comes next");
    assert_refused("reshard sums 1\nfile 9 a\n0 4 " HASH "\n0 4 " HASH "\n", "byte 4 comes next");
    assert_refused("reshard sums 1\nfile 9 a\n0 8 " HASH "\n", "end at byte 8 of 9");
    assert_refused("reshard sums 1\nfile 9 a\nfile 0 b\n", "end at byte 0 of 9");
}

static void rows_of_a_wrong_length_are_refused(void **state)
{
    (void)state;
    assert_refused("reshard sums 1\nfile 9 a\n0 10 " HASH "\n", "a row of 10 bytes");
    assert_refused("reshard sums 1\nfile 9 a\n0 0 " HASH "\n", "a row of 0 bytes");
    assert_refused("reshard sums 1\nfile 4194305 a\n0 4194305 " HASH "\n", "a row of 4194305");
    assert_refused("reshard sums 1\nfile 0 a\n0 1 " HASH "\n", "a row of 1 bytes");
}

static void huge_numbers_are_refused_and_take_no_memory(void **state)
{
    (void)state;
    rsi_mem_fail_at(0, 0);
    assert_refused("reshard sums 1\nfile 18446744073709551616 a\n", "a size in bytes");
    assert_refused("reshard sums 1\nfile 18446744073709551615 a\n", "end at byte 0 of 18446744");
    assert_refused("reshard sums 1\nfile 18446744073709551615 a\n0 18446744073709551615 " HASH "\n",
                   "a row of 18446744073709551615");
    assert_refused("reshard sums 1\nfile 9 a\n0 4 " HASH "\n18446744073709551612 9 " HASH "\n",
                   "a row at byte 18446744073709551612");
    assert_true(rsi_mem_stats_get().peak < 1 << 19);
}

static void files_out_of_order_or_twice_are_refused(void **state)
{
    (void)state;
    assert_refused("reshard sums 1\nfile 0 b\nfile 0 a\n", "does not come after");
    assert_refused("reshard sums 1\nfile 0 a\nfile 0 a\n", "does not come after");
}

static void names_that_lead_out_of_the_checkpoint_are_refused(void **state)
{
    (void)state;
    assert_refused("reshard sums 1\nfile 0 ../a\n", "line 2");
    assert_refused("reshard sums 1\nfile 0 /etc/passwd\n", "line 2");
    assert_refused("reshard sums 1\nfile 0 \n", "an empty name");
    assert_refused("reshard sums 1\nfile 0 a\tb\n", "control character");
    assert_int_equal(read_sealed("reshard sums 1\nfile 0 a\0b\n", 26, NULL, NULL), RSD_E_FORMAT);
}

static void lines_that_are_written_in_another_way_are_refused(void **state)
{
    static const char *const bad[] = {
        "file 09 a\n0 9 " HASH "\n",
        "file 9 a\n0 9 " HASH " \n",
        "file 9 a\n0  9 " HASH "\n",
        "file 9 a\n0 +9 " HASH "\n",
        "file 9 a\n0 9 " HASH "0\n",
        "file 9 a\n0 9 0" HASH "\n",
        "file 9 a\n0 9\n",
        "file 9 a\n00 9 " HASH "\n",
        "file 9 a\n 0 9 " HASH "\n",
        "file  9 a\n0 9 " HASH "\n",
        "File 9 a\n0 9 " HASH "\n",
        "0 9 " HASH "\n",
        "\nfile 9 a\n0 9 " HASH "\n",
        "file 9 a\n0 9 " HASH "\n\n",
        "file 9\n0 9 " HASH "\n",
        "file 9 a\n0 9 " HASH "\r\n",
        "self " HASH "\n",
        ("file 9 a\n0 9 " HASH),
        "file 1 a\n0 1 0123456789ABCDEF0123456789ABCDEF\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[512];

        snprintf(text, sizeof(text), "reshard sums 1\n%s", bad[i]);
        assert_refused(text, "");
    }
}

static void the_nth_allocation_may_fail(void **state)
{
    char    text[1024];
    size_t  len = seal(GOOD, strlen(GOOD), text);
    rsd_err rc = RSD_E_NOMEM;

    (void)state;
    for (uint64_t n = 1; rc; n++) {
        rsi_sums_book *book = NULL;

        rsi_mem_fail_at(n, 0);
        rc = rsi_sums_read(text, len, &book, NULL);
        assert_true(!rc || (rc == RSD_E_NOMEM && !book && n < 100));
        rsi_sums_book_free(book);
        assert_int_equal(rsi_mem_stats_get().bytes, 0);
    }
    rsi_mem_fail_at(0, 0);
}

static void without_xxhash_it_is_unsupported(void **state)
{
    rsi_sums_book *book;

    (void)state;
    assert_int_equal(rsi_sums_read(GOOD, strlen(GOOD), &book, NULL), RSD_E_UNSUPPORTED);
}

/* ---- a long text, read in parts ---- */

enum { FILES = 3, ROWS = 7000, ROW_BYTES = 100 };

/* Several buffers of rows, sealed; *len: of the text. */
static char *long_text(size_t *len)
{
    char  *text = calloc(FILES * (ROWS + 1), 64), *out = calloc(FILES * (ROWS + 1), 64);
    size_t n = (size_t)sprintf(text, "reshard sums 1\n");

    assert_true(text && out);
    for (int f = 0; f < FILES; f++) {
        n += (size_t)sprintf(text + n, "file %d f%d\n", ROWS * ROW_BYTES, f);
        for (int r = 0; r < ROWS; r++)
            n += (size_t)sprintf(text + n, "%d %d %08x%024x\n", r * ROW_BYTES, ROW_BYTES, f, r);
    }
    *len = seal(text, n, out);
    free(text);
    return out;
}

/* Seals again what was changed. */
static void reseal(char *text, size_t len)
{
    char *copy = calloc(len + 1, 1);

    assert_non_null(copy);
    seal(text, len - 38, copy);
    memcpy(text, copy, len);
    free(copy);
}

static void each_row_of_a_long_text_is_found_by_itself(void **state)
{
    size_t             len, n, all;
    char              *text = long_text(&len);
    rsd_store         *store = fix_store();
    rsi_file          *side = file_of(store, text, len);
    rsi_sums_book     *whole, *book;
    const rsi_sum_row *row, *want;

    (void)state;
    assert_int_equal(rsi_sums_read(text, len, &whole, NULL), RSD_OK);
    assert_int_equal(rsi_sums_index(side, &book, NULL), RSD_OK);
    assert_int_equal(book->nfiles, FILES);
    for (size_t k = 0; k < (size_t)FILES * ROWS; k++) {
        const size_t i = k * 7919 % ((size_t)FILES * ROWS), f = i / ROWS; /* here and there */
        bool         met = false;

        want = rsi_sums_rows_of(whole, f, &all) + i % ROWS;
        assert_int_equal(rsi_sums_rows_near(book, f, want->off + ROW_BYTES - 1, 1, &row, &n, NULL),
                         RSD_OK);
        for (size_t r = 0; r < n; r++)
            met = met || memcmp(&row[r], want, sizeof(*want)) == 0;
        assert_true(met && n < 100);
    }
    assert_int_equal(rsi_sums_rows_near(book, 1, 0, UINT64_MAX, &row, &n, NULL), RSD_OK);
    assert_int_equal(n, ROWS);
    assert_memory_equal(row, rsi_sums_rows_of(whole, 1, &all), n * sizeof(*row));
    rsi_sums_book_free(book);
    rsi_sums_book_free(whole);
    rsi_file_close(side, NULL);
    rsd_store_close(store);
    free(text);
}

static void any_damaged_byte_of_a_long_text_is_noticed_at_once(void **state)
{
    size_t len;
    char  *text = long_text(&len);

    (void)state;
    for (size_t at = 20; at < len - 38; at += len / 29) {
        rsd_store     *store = fix_store();
        rsi_sums_book *book = NULL;
        rsi_file      *side;

        text[at] ^= 1;
        side = file_of(store, text, len);
        assert_int_equal(rsi_sums_index(side, &book, NULL), RSD_E_CORRUPT);
        assert_null(book);
        text[at] ^= 1;
        rsi_file_close(side, NULL);
        rsd_store_close(store);
    }
    free(text);
}

static void a_row_that_breaks_the_rules_is_refused_where_it_is_needed(void **state)
{
    static const char *const bad[] = { "300000 101 ", "300001 100 ", "300000 099 ", "300000 100x" };

    (void)state;
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        size_t             len, n;
        char              *text = long_text(&len), *at = strstr(text, "\n300000 100 ") + 1;
        rsd_store         *store = fix_store();
        rsi_sums_book     *book;
        rsi_file          *side;
        const rsi_sum_row *row;
        rsd_error          err;

        memcpy(at, bad[k], strlen(bad[k]));
        reseal(text, len);
        side = file_of(store, text, len);
        assert_int_equal(rsi_sums_index(side, &book, NULL), RSD_OK);
        assert_int_equal(rsi_sums_rows_near(book, 0, 300000, 1, &row, &n, &err), RSD_E_FORMAT);
        assert_non_null(strstr(err.msg, k == 0 ? "line 3004" : "line 3003"));
        assert_int_equal(rsi_sums_rows_near(book, 0, 0, 1, &row, &n, NULL), RSD_OK);
        assert_int_equal(rsi_sums_rows_near(book, 1, 300000, 1, &row, &n, NULL), RSD_OK);
        assert_int_equal(read_parts(text, len, NULL), RSD_E_FORMAT);
        rsi_sums_book_free(book);
        rsi_file_close(side, NULL);
        rsd_store_close(store);
        free(text);
    }
}

static void rows_are_not_taken_from_a_text_that_changed_later(void **state)
{
    size_t             len, n;
    char              *text = long_text(&len);
    rsd_store         *store = fix_store();
    rsi_file          *side = file_of(store, text, len);
    rsi_sums_book     *book;
    const rsi_sum_row *row;

    (void)state;
    assert_int_equal(rsi_sums_index(side, &book, NULL), RSD_OK);
    fix_xor(store, "sums", (uint64_t)(strstr(text, "\n300000 100 ") + 20 - text), 1);
    assert_int_equal(rsi_sums_rows_near(book, 0, 300000, 1, &row, &n, NULL), RSD_E_MISMATCH);
    assert_int_equal(rsi_sums_rows_near(book, 2, 300000, 1, &row, &n, NULL), RSD_OK);
    rsi_sums_book_free(book);
    rsi_file_close(side, NULL);
    rsd_store_close(store);
    free(text);
}

static void the_nth_allocation_of_reading_in_parts_may_fail(void **state)
{
    size_t             len, n;
    char              *text = long_text(&len);
    rsd_store         *store = fix_store();
    rsi_file          *side = file_of(store, text, len);
    const rsi_sum_row *row;
    const int64_t      before = fix_memory();
    rsd_err            rc = RSD_E_NOMEM;

    (void)state;
    for (uint64_t nth = 1; rc; nth++) {
        rsi_sums_book *book = NULL;

        rsi_mem_fail_at(nth, 0);
        rc = rsi_sums_index(side, &book, NULL);
        assert_true(!rc == (book != NULL));
        if (!rc)
            rc = rsi_sums_rows_near(book, 1, 0, UINT64_MAX, &row, &n, NULL);
        assert_true(!rc || rc == RSD_E_NOMEM);
        rsi_sums_book_free(book);
        assert_true(nth < 100);
    }
    rsi_mem_fail_at(0, 0);
    assert_int_equal(fix_memory(), before);
    rsi_file_close(side, NULL);
    rsd_store_close(store);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_and_rows_are_found),
        cmocka_unit_test(a_side_file_of_nothing_is_read),
        cmocka_unit_test(every_flipped_byte_is_found),
        cmocka_unit_test(every_shorter_text_is_refused),
        cmocka_unit_test(another_version_is_unsupported),
        cmocka_unit_test(rows_that_leave_a_gap_or_overlap_are_refused),
        cmocka_unit_test(rows_of_a_wrong_length_are_refused),
        cmocka_unit_test(huge_numbers_are_refused_and_take_no_memory),
        cmocka_unit_test(files_out_of_order_or_twice_are_refused),
        cmocka_unit_test(names_that_lead_out_of_the_checkpoint_are_refused),
        cmocka_unit_test(lines_that_are_written_in_another_way_are_refused),
        cmocka_unit_test(the_nth_allocation_may_fail),
        cmocka_unit_test(each_row_of_a_long_text_is_found_by_itself),
        cmocka_unit_test(any_damaged_byte_of_a_long_text_is_noticed_at_once),
        cmocka_unit_test(a_row_that_breaks_the_rules_is_refused_where_it_is_needed),
        cmocka_unit_test(rows_are_not_taken_from_a_text_that_changed_later),
        cmocka_unit_test(the_nth_allocation_of_reading_in_parts_may_fail),
    };
    const struct CMUnitTest without[] = { cmocka_unit_test(without_xxhash_it_is_unsupported) };

    if (!rsi_sums_available())
        return cmocka_run_group_tests_name("without xxHash", without, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
