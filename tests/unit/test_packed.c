/* SPDX-License-Identifier: Apache-2.0 */
/* test_packed.c - columns give back what was packed, in as little room as their rule allows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/packed.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 4096 };

static int64_t value[MOST];

/* Packs n values and compares what comes back; returns the bytes they took. */
static size_t round_trip(size_t n)
{
    rsi_bytes  bytes = { 0 };
    rsi_reader in;
    rsi_packed column;
    int64_t    min, max, low = n ? value[0] : 0, high = low;
    size_t     len;

    assert_true(rsi_packed_add(value, n, &bytes));
    in = (rsi_reader){ .at = bytes.at, .end = bytes.at + bytes.len };
    assert_true(rsi_packed_take(&in, n, &column));
    assert_true(in.at == in.end && bytes.len % 8 == 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(rsi_packed_at(&column, i), value[i]);
        low = value[i] < low ? value[i] : low;
        high = value[i] > high ? value[i] : high;
    }
    if (n) {
        assert_true(rsi_packed_range(&column, &min, &max));
        assert_int_equal(min, low);
        assert_int_equal(max, high);
    }
    len = bytes.len;
    rsi_free(bytes.at);
    return len;
}

static void equal_values_take_two_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < MOST; i++)
        value[i] = -1;
    assert_int_equal(round_trip(MOST), 16);
    assert_int_equal(round_trip(0), 16);
}

static void a_grid_in_three_dimensions_takes_one_run_per_column(void **state)
{
    (void)state;
    for (int d = 0; d < 3; d++) {
        for (size_t i = 0; i < MOST; i++)
            value[i] = (int64_t)(d == 0 ? i % 16 : d == 1 ? i / 16 % 16 : i / 256) * 1000;
        assert_int_equal(round_trip(MOST), 16 + 56);
    }
}

static void a_shorter_last_part_takes_one_run_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < MOST; i++)
        value[i] = i + 1 < MOST ? 512 : 17;
    assert_int_equal(round_trip(MOST), 16 + 2 * 56);
}

static void values_without_a_rule_take_their_width(void **state)
{
    (void)state;
    for (size_t i = 0; i < MOST; i++)
        value[i] = 1000000 + (int64_t)(i * i * 7919 % 251);
    assert_int_equal(round_trip(MOST), 16 + MOST);
    value[5] = 0;
    assert_int_equal(round_trip(MOST), 16 + 4 * MOST);
}

static void the_ends_of_64_bits_come_back(void **state)
{
    (void)state;
    value[0] = INT64_MIN;
    value[1] = INT64_MAX;
    value[2] = -1;
    value[3] = 0;
    for (size_t n = 1; n <= 4; n++)
        round_trip(n);
}

static void random_patterns_come_back(void **state)
{
    (void)state;
    srand(1);
    for (int pass = 0; pass < 300; pass++) {
        size_t  n = 1 + (size_t)(rand() % 500), row = 1 + (size_t)(rand() % 20);
        int64_t step = rand() % 100 - 50, big = rand() % 1000 - 500;

        for (size_t i = 0; i < n; i++)
            value[i] = (int64_t)(i % row) * step + (int64_t)(i / row) * big +
                       (rand() % 50 == 0 ? rand() % 3 : 0);
        round_trip(n);
    }
}

/* A column of runs whose word `at` becomes x: refused, or all its values are within its range. */
static bool accepts(size_t at, uint64_t x)
{
    rsi_bytes  bytes = { 0 };
    rsi_reader in;
    rsi_packed column;
    int64_t    min, max;
    bool       taken;

    for (size_t i = 0; i < 64; i++)
        value[i] = (int64_t)(i % 8) * 3 + (i >= 32 ? 1000 : 0);
    assert_true(rsi_packed_add(value, 64, &bytes));
    memcpy(bytes.at + at * 8, &x, 8);
    in = (rsi_reader){ .at = bytes.at, .end = bytes.at + bytes.len };
    taken = rsi_packed_take(&in, 64, &column);
    if (taken && rsi_packed_range(&column, &min, &max))
        for (size_t i = 0; i < 64; i++)
            assert_true(rsi_packed_at(&column, i) >= min && rsi_packed_at(&column, i) <= max);
    rsi_free(bytes.at);
    return taken;
}

static void runs_that_do_not_follow_each_other_are_refused(void **state)
{
    const uint64_t bad[] = { 0, 1, 5, 63, 64, 65, UINT64_MAX, (uint64_t)1 << 63 };

    (void)state;
    assert_false(accepts(0, 9 << 8));                /* more runs than bytes */
    assert_false(accepts(0, 3));                     /* no width of numbers */
    assert_false(accepts(2, 1));                     /* does not start at 0 */
    assert_false(accepts(3, 0) || accepts(4, 0));    /* rows of nothing */
    assert_false(accepts(3, 7) || accepts(3, 1000)); /* no whole rows, longer than the run */
    for (size_t word = 0; word < 9; word++)
        for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++)
            accepts(word, bad[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_values_take_two_words),
        cmocka_unit_test(a_grid_in_three_dimensions_takes_one_run_per_column),
        cmocka_unit_test(a_shorter_last_part_takes_one_run_more),
        cmocka_unit_test(values_without_a_rule_take_their_width),
        cmocka_unit_test(the_ends_of_64_bits_come_back),
        cmocka_unit_test(random_patterns_come_back),
        cmocka_unit_test(runs_that_do_not_follow_each_other_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
