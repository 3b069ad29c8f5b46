/* SPDX-License-Identifier: Apache-2.0 */
/* test_checked.c - arithmetic at the edges of 64 bits. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/checked.h"

static void sums_up_to_the_edges_fit(void **state)
{
    int64_t out;

    (void)state;
    assert_true(rsi_add(INT64_MAX - 1, 1, &out));
    assert_int_equal(out, INT64_MAX);
    assert_true(rsi_add(INT64_MIN + 1, -1, &out));
    assert_true(out == INT64_MIN);
    assert_true(rsi_add(INT64_MAX, INT64_MIN, &out));
    assert_true(out == -1);
}

static void sums_beyond_the_edges_do_not_fit(void **state)
{
    int64_t out;

    (void)state;
    assert_false(rsi_add(INT64_MAX, 1, &out));
    assert_false(rsi_add(INT64_MIN, -1, &out));
}

static void products_up_to_the_edges_fit(void **state)
{
    int64_t out;

    (void)state;
    assert_true(rsi_mul((int64_t)1 << 31, (int64_t)1 << 31, &out));
    assert_true(out == (int64_t)1 << 62);
    assert_true(rsi_mul(-((int64_t)1 << 32), (int64_t)1 << 31, &out));
    assert_true(out == INT64_MIN);
    assert_true(rsi_mul(INT64_MIN, 0, &out));
    assert_true(out == 0);
}

static void products_beyond_the_edges_do_not_fit(void **state)
{
    int64_t out;

    (void)state;
    assert_false(rsi_mul((int64_t)1 << 32, (int64_t)1 << 31, &out));
    assert_false(rsi_mul(INT64_MIN, -1, &out));
    assert_false(rsi_mul(INT64_MAX, 2, &out));
}

static void unsigned_sums_use_all_64_bits(void **state)
{
    uint64_t out;

    (void)state;
    assert_true(rsi_add_u64(UINT64_MAX - 5, 5, &out));
    assert_true(out == UINT64_MAX);
    assert_false(rsi_add_u64(UINT64_MAX - 5, 6, &out));
}

static void a_product_of_sizes_counts_the_unit(void **state)
{
    int64_t size[] = { 3, 5, 7 }, out;

    (void)state;
    assert_true(rsi_product(3, size, 4, &out));
    assert_int_equal(out, 420);
}

static void a_product_of_no_sizes_is_the_unit(void **state)
{
    int64_t out;

    (void)state;
    assert_true(rsi_product(0, NULL, 16, &out));
    assert_int_equal(out, 16);
}

static void a_product_may_reach_the_edge(void **state)
{
    /* 7 * 7 * 73 * 127 * 337 * 92737 * 649657 = 2^63 - 1 */
    int64_t size[] = { 7, 7, 73, 127, 337, 92737, 649657 }, out;

    (void)state;
    assert_true(rsi_product(7, size, 1, &out));
    assert_true(out == INT64_MAX);
}

static void a_product_beyond_the_edge_is_refused(void **state)
{
    int64_t size[] = { (int64_t)1 << 31, (int64_t)1 << 31 }, out = 77;

    (void)state;
    assert_false(rsi_product(2, size, 2, &out));
    assert_int_equal(out, 77);
}

static void a_zero_makes_the_product_zero(void **state)
{
    int64_t size[] = { 5, 0, 7 }, out = 77;

    (void)state;
    assert_true(rsi_product(3, size, 8, &out));
    assert_int_equal(out, 0);
}

static void a_zero_does_not_hide_sizes_that_do_not_fit(void **state)
{
    int64_t last[] = { (int64_t)1 << 40, (int64_t)1 << 40, 0 }, out = 77;
    int64_t first[] = { 0, (int64_t)1 << 40, (int64_t)1 << 40 };

    (void)state;
    assert_false(rsi_product(3, last, 1, &out));
    assert_false(rsi_product(3, first, 1, &out));
    assert_int_equal(out, 77);
}

static void a_negative_size_is_refused(void **state)
{
    int64_t size[] = { 4, -1 }, out = 77;

    (void)state;
    assert_false(rsi_product(2, size, 1, &out));
    size[0] = 0;
    assert_false(rsi_product(2, size, 1, &out));
    assert_int_equal(out, 77);
}

static void min_and_max_take_either_side(void **state)
{
    (void)state;
    assert_true(rsi_min(INT64_MIN, INT64_MAX) == INT64_MIN);
    assert_true(rsi_min(2, -3) == -3);
    assert_true(rsi_max(INT64_MIN, INT64_MAX) == INT64_MAX);
    assert_true(rsi_max(2, -3) == 2);
    assert_true(rsi_min(4, 4) == 4 && rsi_max(4, 4) == 4);
}

static void dividing_rounds_up_without_overflow(void **state)
{
    (void)state;
    assert_int_equal(rsi_ceil_div(0, 5), 0);
    assert_int_equal(rsi_ceil_div(10, 5), 2);
    assert_int_equal(rsi_ceil_div(11, 5), 3);
    assert_int_equal(rsi_ceil_div(1, INT64_MAX), 1);
    assert_true(rsi_ceil_div(INT64_MAX, 1) == INT64_MAX);
    assert_true(rsi_ceil_div(INT64_MAX, 2) == (int64_t)1 << 62);
    assert_int_equal(rsi_ceil_div(INT64_MAX, INT64_MAX), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_up_to_the_edges_fit),
        cmocka_unit_test(sums_beyond_the_edges_do_not_fit),
        cmocka_unit_test(products_up_to_the_edges_fit),
        cmocka_unit_test(products_beyond_the_edges_do_not_fit),
        cmocka_unit_test(unsigned_sums_use_all_64_bits),
        cmocka_unit_test(a_product_of_sizes_counts_the_unit),
        cmocka_unit_test(a_product_of_no_sizes_is_the_unit),
        cmocka_unit_test(a_product_may_reach_the_edge),
        cmocka_unit_test(a_product_beyond_the_edge_is_refused),
        cmocka_unit_test(a_zero_makes_the_product_zero),
        cmocka_unit_test(a_zero_does_not_hide_sizes_that_do_not_fit),
        cmocka_unit_test(a_negative_size_is_refused),
        cmocka_unit_test(min_and_max_take_either_side),
        cmocka_unit_test(dividing_rounds_up_without_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
