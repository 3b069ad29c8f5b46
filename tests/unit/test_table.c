/* SPDX-License-Identifier: Apache-2.0 */
/* test_table.c - tables of boxes: rows, holders and parts of a good list, the reason for a bad one.
 * Holes are test_uncovered.c's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "shape/table.h"

static rsi_given rows(int32_t owner, int64_t off, int64_t len)
{
    return (rsi_given){ .owner = owner, .box = { .ndim = 1, .off = { off }, .len = { len } } };
}

static rsi_given block(int32_t owner, int64_t row, int64_t nrows, int64_t column, int64_t ncolumns)
{
    return (rsi_given){
        .owner = owner,
        .box = { .ndim = 2, .off = { row, column }, .len = { nrows, ncolumns } },
    };
}

static rsi_table table_of(int ndim, const int64_t *shape, size_t n, const rsi_given *given)
{
    rsi_table table;

    assert_int_equal(rsi_table_build(&table, ndim, shape, n, given, true, NULL), RSD_OK);
    return table;
}

static void assert_refused(int ndim, const int64_t *shape, size_t n, const rsi_given *given,
                           bool cover, const char *why)
{
    int64_t   before = rsi_mem_stats_get().bytes;
    rsi_table table;
    rsd_error err;

    assert_int_equal(rsi_table_build(&table, ndim, shape, n, given, cover, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, why);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
    assert_int_equal(table.boxes.n, 0);
}

static void assert_row(const rsi_table *table, size_t row, int64_t off, int64_t len)
{
    rsd_box box = rsi_boxes_get(&table->boxes, row);

    assert_int_equal(box.off[0], off);
    assert_int_equal(box.len[0], len);
}

static void assert_holders(const rsi_table *table, size_t row, size_t n, const int32_t *want)
{
    size_t         got;
    const int32_t *holder = rsi_table_holders(table, row, &got);

    assert_int_equal(got, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(holder[i], want[i]);
        assert_int_equal(rsi_table_holder_index(table, row, want[i]), i);
    }
}

/* The rank's part is these rows, in this order, each behind that many elements. */
static void assert_part(const rsi_table *table, int32_t rank, size_t n, const uint32_t *row,
                        const int64_t *elems)
{
    size_t first = 99;

    assert_int_equal(rsi_table_part(table, rank, &first), n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(table->part[first + i], row[i]);
        assert_int_equal(table->part_elems[first + i], elems[i]);
    }
}

/* ---- good tables ---------------------------------------------------------------------------- */

static const int64_t ten = 10;

static void rows_of_a_table_are_sorted_by_offset(void **state)
{
    const rsi_given given[] = { rows(0, 7, 3), rows(1, 0, 2), rows(2, 2, 5) };
    rsi_table       table = table_of(1, &ten, 3, given);

    (void)state;
    assert_int_equal(table.boxes.n, 3);
    assert_row(&table, 0, 0, 2);
    assert_row(&table, 1, 2, 5);
    assert_row(&table, 2, 7, 3);
    assert_holders(&table, 0, 1, (int32_t[]){ 1 });
    assert_holders(&table, 1, 1, (int32_t[]){ 2 });
    assert_holders(&table, 2, 1, (int32_t[]){ 0 });
    rsi_table_release(&table);
}

static void equal_boxes_are_one_row_whose_holders_rise(void **state)
{
    const rsi_given given[] = { rows(9, 0, 4), rows(3, 4, 6), rows(2, 0, 4), rows(5, 0, 4),
                                rows(9, 4, 6) };
    rsi_table       table = table_of(1, &ten, 5, given);

    (void)state;
    assert_int_equal(table.boxes.n, 2);
    assert_holders(&table, 0, 3, (int32_t[]){ 2, 5, 9 });
    assert_holders(&table, 1, 2, (int32_t[]){ 3, 9 });
    assert_int_equal(rsi_table_holder_index(&table, 0, 3), -1);
    assert_int_equal(rsi_table_holder_index(&table, 1, 10), -1);
    assert_int_equal(rsi_table_holder_index(&table, 1, -1), -1);
    rsi_table_release(&table);
}

static void ranks_of_a_table_rise_and_are_told_once(void **state)
{
    const rsi_given given[] = { rows(9, 0, 4), rows(3, 4, 5), rows(9, 9, 1) };
    rsi_table       table = table_of(1, &ten, 3, given);

    (void)state;
    assert_int_equal(table.nranks, 2);
    assert_int_equal(table.rank[0], 3);
    assert_int_equal(table.rank[1], 9);
    rsi_table_release(&table);
}

static void part_has_its_boxes_in_the_order_given_one_behind_the_other(void **state)
{
    const rsi_given given[] = { rows(1, 8, 2), rows(4, 5, 3), rows(1, 0, 4), rows(1, 4, 1),
                                rows(4, 0, 4) };
    rsi_table       table = table_of(1, &ten, 5, given);

    (void)state;
    /* rows: [0:4], [4:5], [5:8], [8:10] */
    assert_part(&table, 1, 3, (uint32_t[]){ 3, 0, 1 }, (int64_t[]){ 0, 2, 6 });
    assert_part(&table, 4, 2, (uint32_t[]){ 2, 0 }, (int64_t[]){ 0, 3 });
    rsi_table_release(&table);
}

static void part_of_a_rank_that_was_given_nothing_is_empty(void **state)
{
    const rsi_given given[] = { rows(1, 0, 10) };
    rsi_table       table = table_of(1, &ten, 1, given);

    (void)state;
    assert_part(&table, 0, 0, NULL, NULL);
    assert_part(&table, 2, 0, NULL, NULL);
    assert_part(&table, -1, 0, NULL, NULL);
    rsi_table_release(&table);
}

static void empty_boxes_are_left_out(void **state)
{
    const rsi_given given[] = { rows(0, 3, 0), rows(1, 0, 10), rows(1, 10, 0), rows(2, 0, 0),
                                rows(1, 10, 0) };
    rsi_table       table = table_of(1, &ten, 5, given);

    (void)state;
    assert_int_equal(table.boxes.n, 1);
    assert_int_equal(table.nranks, 1);
    assert_part(&table, 0, 0, NULL, NULL);
    assert_part(&table, 1, 1, (uint32_t[]){ 0 }, (int64_t[]){ 0 });
    rsi_table_release(&table);
}

static void scalar_on_two_ranks_is_one_row(void **state)
{
    const rsi_given given[] = { { .owner = 6 }, { .owner = 2 } };
    rsi_table       table = table_of(0, NULL, 2, given);

    (void)state;
    assert_int_equal(table.boxes.n, 1);
    assert_holders(&table, 0, 2, (int32_t[]){ 2, 6 });
    assert_part(&table, 6, 1, (uint32_t[]){ 0 }, (int64_t[]){ 0 });
    rsi_table_release(&table);
}

static void part_offsets_count_the_elements_of_matrices(void **state)
{
    const int64_t   shape[] = { 4, 6 };
    const rsi_given given[] = { block(0, 0, 4, 0, 1), block(0, 0, 2, 1, 5), block(0, 2, 2, 1, 5) };
    rsi_table       table = table_of(2, shape, 3, given);

    (void)state;
    assert_part(&table, 0, 3, (uint32_t[]){ 0, 1, 2 }, (int64_t[]){ 0, 4, 14 });
    rsi_table_release(&table);
}

static void table_that_need_not_cover_may_have_holes_or_nothing(void **state)
{
    const rsi_given given[] = { rows(1, 3, 2) };
    rsi_table       table;

    (void)state;
    assert_int_equal(rsi_table_build(&table, 1, &ten, 1, given, false, NULL), RSD_OK);
    assert_int_equal(table.boxes.n, 1);
    rsi_table_release(&table);
    assert_int_equal(rsi_table_build(&table, 1, &ten, 0, NULL, false, NULL), RSD_OK);
    assert_int_equal(table.boxes.n, 0);
    assert_int_equal(table.nranks, 0);
    assert_part(&table, 0, 0, NULL, NULL);
    rsi_table_release(&table);
}

static void ten_thousand_boxes_on_100_ranks_keep_their_order(void **state)
{
    static rsi_given given[10000];
    const int64_t    n = 30000;
    rsi_table        table;

    (void)state;
    for (int64_t i = 0; i < 10000; i++)
        given[i] = rows((int32_t)(i % 100), (i * 7919 % 10000) * 3, 3);
    table = table_of(1, &n, 10000, given);
    assert_int_equal(table.boxes.n, 10000);
    assert_int_equal(table.nranks, 100);
    for (int32_t rank = 0; rank < 100; rank++) {
        size_t first;

        assert_int_equal(rsi_table_part(&table, rank, &first), 100);
        for (size_t i = 0; i < 100; i++) {
            assert_int_equal(table.part[first + i], ((int64_t)i * 100 + rank) * 7919 % 10000);
            assert_int_equal(table.part_elems[first + i], 3 * i);
        }
    }
    rsi_table_release(&table);
}

/* ---- bad tables ----------------------------------------------------------------------------- */

static void box_given_twice_to_one_rank_is_refused(void **state)
{
    const rsi_given given[] = { rows(3, 0, 4), rows(3, 4, 6), rows(1, 0, 4), rows(3, 0, 4) };

    (void)state;
    assert_refused(1, &ten, 4, given, true, "rank 3 is given the box [0:4] twice");
    assert_refused(1, &ten, 4, given, false, "rank 3 is given the box [0:4] twice");
}

static void overlap_is_refused_with_both_boxes_and_ranks(void **state)
{
    const rsi_given given[] = { rows(3, 0, 5), rows(1, 4, 6) };

    (void)state;
    assert_refused(1, &ten, 2, given, true,
                   "the box [0:5] of rank 3 overlaps the box [4:10] of rank 1");
}

static void overlap_with_the_same_start_is_refused(void **state)
{
    const rsi_given given[] = { rows(3, 0, 10), rows(1, 0, 6) };

    (void)state;
    assert_refused(1, &ten, 2, given, true,
                   "the box [0:6] of rank 1 overlaps the box [0:10] of rank 3");
}

static void overlap_on_one_rank_is_refused(void **state)
{
    const rsi_given given[] = { rows(2, 0, 5), rows(2, 4, 6) };

    (void)state;
    assert_refused(1, &ten, 2, given, false,
                   "the box [0:5] of rank 2 overlaps the box [4:10] of rank 2");
}

static void overlap_that_replaces_a_hole_of_its_size_is_refused(void **state)
{
    const int64_t   shape[] = { 4, 4 };
    const rsi_given given[] = { block(0, 0, 2, 0, 4), block(1, 1, 2, 0, 4) };

    (void)state;
    assert_refused(2, shape, 2, given, true,
                   "the box [0:2, 0:4] of rank 0 overlaps the box [1:3, 0:4] of rank 1");
}

static void overlap_among_many_boxes_is_found(void **state)
{
    static rsi_given given[1000];
    const int64_t    n = 3000;

    (void)state;
    for (int64_t i = 0; i < 1000; i++)
        given[i] = rows((int32_t)i, 3 * i, 3);
    given[500].box.len[0] = 4;
    assert_refused(1, &n, 1000, given, true,
                   "the box [1500:1504] of rank 500 overlaps the box [1503:1506] of rank 501");
}

static void box_outside_the_tensor_is_refused_by_place_and_rank(void **state)
{
    const rsi_given given[] = { rows(0, 0, 4), rows(7, 4, 7) };

    (void)state;
    assert_refused(1, &ten, 2, given, true,
                   "box 1 of rank 7: [4:11] falls outside the tensor, dimension 0 has the size 10");
}

static void box_of_other_dimensions_is_refused_by_place_and_rank(void **state)
{
    const rsi_given given[] = { rows(0, 0, 4), block(7, 0, 1, 0, 1) };

    (void)state;
    assert_refused(1, &ten, 2, given, true,
                   "box 1 of rank 7: it has 2 dimensions, the tensor has 1");
}

static void owner_that_can_not_be_a_rank_is_refused(void **state)
{
    const rsi_given below[] = { rows(0, 0, 4), rows(-1, 4, 6) };
    const rsi_given above[] = { rows(INT32_MAX, 0, 0) };

    (void)state;
    assert_refused(1, &ten, 2, below, true, "box 1 can't belong to rank -1");
    assert_refused(1, &ten, 1, above, true, "box 0 can't belong to rank 2147483647");
}

static void hole_is_refused_only_if_the_boxes_must_cover(void **state)
{
    const rsi_given given[] = { rows(0, 0, 4), rows(7, 5, 5) };

    (void)state;
    assert_refused(1, &ten, 2, given, true,
                   "the boxes leave a hole: no box holds element [4]; they cover 9 of 10 elements");
}

static void nth_allocation_that_fails_leaves_nothing_behind(void **state)
{
    const rsi_given given[] = { rows(1, 8, 2), rows(4, 4, 4), rows(1, 0, 4), rows(0, 4, 4) };
    uint64_t        n;

    (void)state;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        for (n = 1;; n++) {
            int64_t   before = rsi_mem_stats_get().bytes;
            rsi_table table;
            rsd_err   rc;

            rsi_mem_fail_at(n, for_ever);
            rc = rsi_table_build(&table, 1, &ten, 4, given, true, NULL);
            rsi_mem_fail_at(0, 0);
            if (!rc) {
                rsi_table_release(&table);
                break;
            }
            assert_int_equal(rc, RSD_E_NOMEM);
            assert_int_equal(rsi_mem_stats_get().bytes, before);
        }
        assert_true(n > 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_table_are_sorted_by_offset),
        cmocka_unit_test(equal_boxes_are_one_row_whose_holders_rise),
        cmocka_unit_test(ranks_of_a_table_rise_and_are_told_once),
        cmocka_unit_test(part_has_its_boxes_in_the_order_given_one_behind_the_other),
        cmocka_unit_test(part_of_a_rank_that_was_given_nothing_is_empty),
        cmocka_unit_test(empty_boxes_are_left_out),
        cmocka_unit_test(scalar_on_two_ranks_is_one_row),
        cmocka_unit_test(part_offsets_count_the_elements_of_matrices),
        cmocka_unit_test(table_that_need_not_cover_may_have_holes_or_nothing),
        cmocka_unit_test(ten_thousand_boxes_on_100_ranks_keep_their_order),
        cmocka_unit_test(box_given_twice_to_one_rank_is_refused),
        cmocka_unit_test(overlap_is_refused_with_both_boxes_and_ranks),
        cmocka_unit_test(overlap_with_the_same_start_is_refused),
        cmocka_unit_test(overlap_on_one_rank_is_refused),
        cmocka_unit_test(overlap_that_replaces_a_hole_of_its_size_is_refused),
        cmocka_unit_test(overlap_among_many_boxes_is_found),
        cmocka_unit_test(box_outside_the_tensor_is_refused_by_place_and_rank),
        cmocka_unit_test(box_of_other_dimensions_is_refused_by_place_and_rank),
        cmocka_unit_test(owner_that_can_not_be_a_rank_is_refused),
        cmocka_unit_test(hole_is_refused_only_if_the_boxes_must_cover),
        cmocka_unit_test(nth_allocation_that_fails_leaves_nothing_behind),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
