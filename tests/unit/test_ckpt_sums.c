/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt_sums.c - the checksum file is found on opening, read once and only when needed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "ckpt_sample.h"
#include "format/ckpt.h"

#include <string.h>

#define GUARD(ckpt) &(ckpt)->sums, &(ckpt)->files

static rsd_store *saved(bool seal)
{
    rsd_store *store = fix_store();

    assert_int_equal(ckpt_sample_save(store, SAMPLE_DCP, NULL), RSD_OK);
    if (seal)
        assert_int_equal(rsd_ckpt_add_checksums(store, "ck", NULL, NULL), RSD_OK);
    return store;
}

static const rsi_sum_row *rows(const rsi_ckpt_sums *sums, uint32_t file, uint64_t off, uint64_t len,
                               size_t *n)
{
    const rsi_sum_row *row;

    assert_int_equal(rsi_ckpt_sums_rows(sums, file, off, len, &row, n, NULL), RSD_OK);
    return row;
}

static void without_a_side_file_there_is_no_book(void **state)
{
    rsd_store     *store = saved(false);
    rsd_ckpt      *ckpt = fix_open(store, "ck");
    rsi_sums_book *book = (rsi_sums_book *)store;
    size_t         n;

    (void)state;
    assert_false(ckpt->sums.there);
    assert_int_equal(rsi_ckpt_sums_book(GUARD(ckpt), &book, NULL), RSD_OK);
    assert_null(book);
    assert_null(rows(&ckpt->sums, 0, 0, 1, &n));
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void the_side_file_is_read_once_and_not_on_opening(void **state)
{
    rsd_store     *inner = saved(true), *store;
    fix_counts     counts = { 0 };
    rsi_sums_book *book;
    rsd_ckpt      *ckpt;
    uint64_t       reads;

    (void)state;
    store = fix_counting_store(inner, &counts);
    ckpt = fix_open(store, "ck");
    assert_true(ckpt->sums.there && !ckpt->sums.tried);
    reads = counts.reads;
    assert_int_equal(rsi_ckpt_sums_book(GUARD(ckpt), &book, NULL), RSD_OK);
    assert_int_equal(counts.reads, reads + 1);
    assert_int_equal(book->nfiles, 3);
    assert_int_equal(rsi_ckpt_sums_book(GUARD(ckpt), &book, NULL), RSD_OK);
    assert_int_equal(counts.reads, reads + 1);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    rsd_store_close(inner);
}

static void the_rows_of_a_range_are_those_that_have_a_byte_of_it(void **state)
{
    rsd_store         *store = saved(true);
    rsd_ckpt          *ckpt = fix_open(store, "ck");
    rsi_sums_book     *book;
    const rsi_sum_row *all, *row;
    size_t             n, total;

    (void)state;
    assert_int_equal(rsi_ckpt_sums_book(GUARD(ckpt), &book, NULL), RSD_OK);
    all = rows(&ckpt->sums, 1, 0, UINT64_MAX, &total);
    assert_true(total > 2);
    row = rows(&ckpt->sums, 1, all[1].off, 1, &n);
    assert_true(row == &all[1] && n == 1);
    row = rows(&ckpt->sums, 1, all[1].off - 1, 2, &n);
    assert_true(row == &all[0] && n == 2);
    row = rows(&ckpt->sums, 1, all[1].off, all[1].len + 1, &n);
    assert_true(row == &all[1] && n == 2);
    assert_null(rows(&ckpt->sums, 1, all[total - 1].off + all[total - 1].len, 9, &n));
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_side_file_that_is_damaged_stays_damaged(void **state)
{
    rsd_store     *store = saved(true);
    rsi_sums_book *book;
    rsd_ckpt      *ckpt;
    rsd_error      err;

    (void)state;
    fix_flip(store, "ck/" RSI_SUMS_NAME, 50);
    ckpt = fix_open(store, "ck");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rsi_ckpt_sums_book(GUARD(ckpt), &book, &err), RSD_E_CORRUPT);
        assert_non_null(strstr(err.msg, "checksum file \"ck/" RSI_SUMS_NAME "\""));
    }
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* The checkpoint that was opened has been replaced; what belongs to it is still there to be read.
 */
static void a_side_file_that_comes_after_opening_is_not_taken(void **state)
{
    rsd_store     *store = saved(false);
    rsd_ckpt      *ckpt = fix_open(store, "ck");
    rsi_sums_book *book;

    (void)state;
    fix_put_text(store, "ck/" RSI_SUMS_NAME, "of another time");
    assert_int_equal(rsi_ckpt_sums_book(GUARD(ckpt), &book, NULL), RSD_OK);
    assert_null(book);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_side_file_there_is_no_book),
        cmocka_unit_test(a_side_file_that_comes_after_opening_is_not_taken),
        cmocka_unit_test(the_side_file_is_read_once_and_not_on_opening),
        cmocka_unit_test(the_rows_of_a_range_are_those_that_have_a_byte_of_it),
        cmocka_unit_test(a_side_file_that_is_damaged_stays_damaged),
    };
    const struct CMUnitTest without[] = {
        cmocka_unit_test(without_a_side_file_there_is_no_book),
        cmocka_unit_test(a_side_file_that_comes_after_opening_is_not_taken),
    };

    if (!rsi_sums_available())
        return cmocka_run_group_tests_name("without xxHash", without, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
