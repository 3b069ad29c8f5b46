/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

/* Visits every element of the parts and checks that they come in row-major order of the whole. */
static void check(const rsd_box *whole, int64_t most)
{
    int64_t expected = 0, all = rsd_box_count(whole);
    rsd_box part;
    pieces  p;

    pieces_begin(&p, whole, most);
    while (pieces_next(&p, &part)) {
        const int64_t n = rsd_box_count(&part);
        int64_t       first = 0;

        assert_true(n > 0 && n <= most);
        for (int d = 0; d < whole->ndim; d++) {
            assert_true(part.off[d] >= whole->off[d]);
            assert_true(part.off[d] + part.len[d] <= whole->off[d] + whole->len[d]);
            first = first * whole->len[d] + part.off[d] - whole->off[d];
        }
        assert_int_equal(first, expected);
        expected += n;
    }
    assert_int_equal(expected, all);
}

static void parts_cover_a_box_in_order_whatever_their_size(void **state)
{
    const rsd_box whole = { 3, { 2, 0, 5 }, { 3, 4, 5 } };

    (void)state;
    for (int64_t most = 1; most < 70; most++)
        check(&whole, most);
}

static void a_scalar_is_one_part(void **state)
{
    const rsd_box whole = { .ndim = 0 };

    (void)state;
    check(&whole, 1);
    check(&whole, 100);
}

static void an_empty_box_has_no_parts(void **state)
{
    const rsd_box none = { 2, { 0, 0 }, { 0, 4 } }, thin = { 2, { 0, 0 }, { 4, 0 } };

    (void)state;
    check(&none, 3);
    check(&thin, 3);
}

static void parts_are_as_large_as_they_may_be(void **state)
{
    const rsd_box whole = { 2, { 0, 0 }, { 10, 6 } };
    rsd_box       part;
    pieces        p;

    (void)state;
    pieces_begin(&p, &whole, 20);
    assert_true(pieces_next(&p, &part));
    assert_int_equal(part.len[0], 3);
    assert_int_equal(part.len[1], 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_a_box_in_order_whatever_their_size),
        cmocka_unit_test(a_scalar_is_one_part),
        cmocka_unit_test(an_empty_box_has_no_parts),
        cmocka_unit_test(parts_are_as_large_as_they_may_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
