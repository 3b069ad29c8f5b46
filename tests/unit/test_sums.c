/* SPDX-License-Identifier: Apache-2.0 */
/* test_sums.c - rows are cut where items start and at 4 MiB, and the text of them is canonical. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW ((size_t)RSI_SUM_ROW_BYTES)

typedef struct sink {
    char   text[4096];
    size_t len;
    bool   full; /* refuses everything */
} sink;

static rsd_err put(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    sink *to = arg;

    if (to->full)
        return rsi_fail(err, RSD_E_IO, "the disk is full");
    assert_true(len < sizeof(to->text) - to->len);
    memcpy(to->text + to->len, bytes, len);
    to->len += len;
    to->text[to->len] = '\0';
    return RSD_OK;
}

static int count_memory(void **state)
{
    (void)state;
    rsi_mem_fail_at(0, 0);
    return 0;
}

static int nothing_is_left(void **state)
{
    (void)state;
    return rsi_mem_stats_get().bytes == 0 ? 0 : -1;
}

static void item(rsi_sums *s, uint32_t file, uint64_t off, const void *bytes, size_t len)
{
    assert_int_equal(rsi_sums_begin(s, file, off, NULL), RSD_OK);
    assert_int_equal(rsi_sums_feed(s, bytes, len, NULL), RSD_OK);
}

static void assert_row(const rsi_sum_row *row, uint64_t off, const void *bytes, size_t len)
{
    unsigned char hash[RSI_HASH128_BYTES];

    rsi_hash128(bytes, len, hash);
    assert_int_equal(row->off, off);
    assert_int_equal(row->len, len);
    assert_memory_equal(row->hash, hash, sizeof(hash));
}

static void rows_are_cut_where_items_start(void **state)
{
    rsi_sums s = { 0 };

    (void)state;
    item(&s, 3, 0, "headers", 7);
    item(&s, 3, 7, "item", 4);
    assert_int_equal(rsi_sums_end(&s, NULL), RSD_OK);
    assert_int_equal(s.n, 2);
    assert_row(&s.row[0], 0, "headers", 7);
    assert_row(&s.row[1], 7, "item", 4);
    assert_int_equal(s.row[1].file, 3);
    rsi_sums_release(&s);
}

static void rows_are_cut_at_4_mib_however_the_bytes_come(void **state)
{
    static const size_t piece[] = { 1 << 20, 3000001, 2 * ROW + 5, ROW };
    size_t              len = 2 * ROW + 5;
    unsigned char      *bytes = malloc(len);

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(i * 7 >> 3);
    for (size_t p = 0; p < sizeof(piece) / sizeof(piece[0]); p++) {
        rsi_sums s = { 0 };

        assert_int_equal(rsi_sums_begin(&s, 0, 100, NULL), RSD_OK);
        for (size_t at = 0; at < len; at += piece[p])
            assert_int_equal(
                rsi_sums_feed(&s, bytes + at, len - at < piece[p] ? len - at : piece[p], NULL),
                RSD_OK);
        assert_int_equal(rsi_sums_end(&s, NULL), RSD_OK);
        assert_int_equal(s.n, 3);
        assert_row(&s.row[0], 100, bytes, ROW);
        assert_row(&s.row[1], 100 + ROW, bytes + ROW, ROW);
        assert_row(&s.row[2], 100 + 2 * ROW, bytes + 2 * ROW, 5);
        rsi_sums_release(&s);
    }
    free(bytes);
}

static void a_row_that_is_just_full_is_followed_by_none(void **state)
{
    rsi_sums s = { 0 };
    void    *bytes = calloc(1, ROW);

    (void)state;
    assert_non_null(bytes);
    item(&s, 0, 0, bytes, ROW);
    assert_int_equal(rsi_sums_end(&s, NULL), RSD_OK);
    assert_int_equal(s.n, 1);
    rsi_sums_release(&s);
    free(bytes);
}

static void items_without_bytes_make_no_rows(void **state)
{
    rsi_sums s = { 0 };

    (void)state;
    item(&s, 0, 0, "", 0);
    item(&s, 0, 0, "abc", 3);
    item(&s, 0, 3, "", 0);
    assert_int_equal(rsi_sums_end(&s, NULL), RSD_OK);
    assert_int_equal(rsi_sums_end(&s, NULL), RSD_OK);
    assert_int_equal(s.n, 1);
    rsi_sums_release(&s);
}

static void bytes_before_a_begin_are_refused(void **state)
{
    rsi_sums s = { 0 };

    (void)state;
    assert_int_equal(rsi_sums_feed(&s, "a", 1, NULL), RSD_E_BUG);
}

/* "b" has two rows that come in the wrong order and from two ranks, "a" has one, "c" is empty. */
static const char *const NAMES[] = { "b", "c", "a" };
static const uint64_t    SIZES[] = { 7, 0, 3 };

static void make(rsi_sums *s, bool other_way)
{
    rsi_sums other = { 0 };

    item(other_way ? s : &other, 0, 4, "def", 3);
    assert_int_equal(rsi_sums_end(other_way ? s : &other, NULL), RSD_OK);
    item(other_way ? &other : s, 2, 0, "xyz", 3);
    item(other_way ? &other : s, 0, 0, "abcd", 4);
    assert_int_equal(rsi_sums_end(other_way ? &other : s, NULL), RSD_OK);
    assert_int_equal(rsi_sums_join(s, other.row, other.n, NULL), RSD_OK);
    rsi_sums_release(&other);
}

static void the_text_is_that_of_the_format(void **state)
{
    unsigned char hash[RSI_HASH128_BYTES];
    rsi_sums      s = { 0 };
    sink          to = { 0 };
    char         *self, digits[3];

    (void)state;
    make(&s, false);
    assert_int_equal(rsi_sums_write(&s, 3, NAMES, SIZES, put, &to, NULL), RSD_OK);
    self = strstr(to.text, "self ");
    assert_non_null(self);
    assert_int_equal(strlen(self), 5 + 32 + 1);
    rsi_hash128(to.text, (size_t)(self - to.text), hash);
    for (size_t i = 0; i < sizeof(hash); i++) {
        snprintf(digits, sizeof(digits), "%02x", hash[i]);
        assert_memory_equal(self + 5 + 2 * i, digits, 2);
    }
    *self = '\0';
    assert_string_equal(to.text, "reshard sums 1\n"
                                 "file 3 a\n0 3 f518eef73f5fb9de6276d2656f411f1f\n"
                                 "file 7 b\n0 4 8d6b60383dfa90c21be79eecd1b1353d\n"
                                 "4 3 09ae900c0bc0d4059be4e73e699ef188\n"
                                 "file 0 c\n");
    rsi_sums_release(&s);
}

static void who_made_which_row_does_not_change_the_text(void **state)
{
    rsi_sums s = { 0 }, t = { 0 };
    sink     one = { 0 }, two = { 0 };

    (void)state;
    make(&s, false);
    make(&t, true);
    assert_int_equal(rsi_sums_write(&s, 3, NAMES, SIZES, put, &one, NULL), RSD_OK);
    assert_int_equal(rsi_sums_write(&t, 3, NAMES, SIZES, put, &two, NULL), RSD_OK);
    assert_string_equal(one.text, two.text);
    rsi_sums_release(&s);
    rsi_sums_release(&t);
}

static void rows_that_do_not_cover_a_file_are_refused(void **state)
{
    static const uint64_t bad[][3] = { { 8, 0, 3 }, { 6, 0, 3 }, { 7, 1, 3 }, { 7, 0, 2 } };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        rsi_sums  s = { 0 };
        sink      to = { 0 };
        rsd_error err;

        make(&s, false);
        assert_int_equal(rsi_sums_write(&s, 3, NAMES, bad[i], put, &to, &err), RSD_E_BUG);
        assert_non_null(strstr(err.msg, "checksums of file"));
        assert_int_equal(rsi_sums_write(&s, 2, NAMES, SIZES, put, &to, &err), RSD_E_BUG);
        rsi_sums_release(&s);
    }
}

static void names_that_could_not_be_read_back_are_refused(void **state)
{
    static const char *const bad[] = { "", "a\nb", "../a", "/a" };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        rsi_sums s = { 0 };
        sink     to = { 0 };
        uint64_t size = 0;

        assert_int_equal(rsi_sums_write(&s, 1, &bad[i], &size, put, &to, NULL), RSD_E_INVALID);
    }
}

static void a_name_that_is_there_twice_is_refused(void **state)
{
    static const char *const names[] = { "a", "b", "a" };
    static const uint64_t    sizes[3];
    rsi_sums                 s = { 0 };
    sink                     to = { 0 };

    (void)state;
    assert_int_equal(rsi_sums_write(&s, 3, names, sizes, put, &to, NULL), RSD_E_INVALID);
}

static void a_sink_that_fails_ends_it(void **state)
{
    rsi_sums s = { 0 };
    sink     to = { .full = true };

    (void)state;
    make(&s, false);
    assert_int_equal(rsi_sums_write(&s, 3, NAMES, SIZES, put, &to, NULL), RSD_E_IO);
    rsi_sums_release(&s);
}

static rsd_err make_and_write(sink *to, rsd_error *err)
{
    rsi_sums    s = { 0 };
    rsi_sum_row more = { .off = 3, .len = 4 };
    uint64_t    size = 7;
    rsd_err     rc = rsi_sums_begin(&s, 0, 0, err);

    if (!rc)
        rc = rsi_sums_feed(&s, "abc", 3, err);
    if (!rc)
        rc = rsi_sums_end(&s, err);
    if (!rc)
        rc = rsi_sums_join(&s, &more, 1, err);
    if (!rc)
        rc = rsi_sums_write(&s, 1, &NAMES[0], &size, put, to, err);
    rsi_sums_release(&s);
    return rc;
}

static void the_nth_allocation_may_fail(void **state)
{
    rsd_err rc = RSD_E_NOMEM;

    (void)state;
    for (uint64_t n = 1; rc; n++) {
        rsd_error err = { 0 };
        sink      to = { 0 };

        rsi_mem_fail_at(n, 0);
        rc = make_and_write(&to, &err);
        assert_true(!rc || (rc == RSD_E_NOMEM && n < 100));
        assert_int_equal(rsi_mem_stats_get().bytes, 0);
    }
    rsi_mem_fail_at(0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_cut_where_items_start),
        cmocka_unit_test(rows_are_cut_at_4_mib_however_the_bytes_come),
        cmocka_unit_test(a_row_that_is_just_full_is_followed_by_none),
        cmocka_unit_test(items_without_bytes_make_no_rows),
        cmocka_unit_test(bytes_before_a_begin_are_refused),
        cmocka_unit_test(the_text_is_that_of_the_format),
        cmocka_unit_test(who_made_which_row_does_not_change_the_text),
        cmocka_unit_test(rows_that_do_not_cover_a_file_are_refused),
        cmocka_unit_test(names_that_could_not_be_read_back_are_refused),
        cmocka_unit_test(a_name_that_is_there_twice_is_refused),
        cmocka_unit_test(a_sink_that_fails_ends_it),
        cmocka_unit_test(the_nth_allocation_may_fail),
    };
    const struct CMUnitTest without[] = { cmocka_unit_test(bytes_before_a_begin_are_refused) };

    if (!rsi_sums_available())
        return cmocka_run_group_tests_name("without xxHash", without, NULL, NULL);
    return cmocka_run_group_tests(tests, count_memory, nothing_is_left);
}
