/* SPDX-License-Identifier: Apache-2.0 */
/* test_runs.c - boxes with strides as loops over runs, all worked out by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/runs.h"
#include "plan_fixture.h"

/* ---- loops ---- */

#define AT(...) ((int64_t[]){ __VA_ARGS__ })

static rsi_loops loops;

static void assert_loop(int i, int64_t count, int64_t to, int64_t from)
{
    assert_true(i < loops.n);
    assert_int_equal(loops.count[i], count);
    assert_true(loops.to[i] == to);
    assert_true(loops.from[i] == from);
}

static void assert_run(int64_t run, int n)
{
    assert_int_equal(loops.run, run);
    assert_int_equal(loops.n, n);
}

static void packed_to_packed_is_one_run(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 3, AT(2, 3, 4), 4, NULL, NULL);
    assert_run(96, 0);
    rsi_loops_make(&loops, 3, AT(2, 3, 4), 4, AT(48, 16, 4), NULL);
    assert_run(96, 0);
}

static void a_scalar_is_one_run_of_one_element(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 0, NULL, 8, NULL, NULL);
    assert_run(8, 0);
}

static void columns_are_a_run_for_each_row(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 2, AT(4, 3), 4, NULL, AT(40, 4));
    assert_run(12, 1);
    assert_loop(0, 4, 12, 40);
}

static void a_middle_slice_is_a_run_for_each_plane(void **state)
{
    (void)state;
    /* [0:4, 1:4, 0:8] of 4 x 6 x 8 bytes */
    rsi_loops_make(&loops, 3, AT(4, 3, 8), 1, NULL, AT(48, 8, 1));
    assert_run(24, 1);
    assert_loop(0, 4, 24, 48);
}

static void outer_dimensions_that_lie_together_are_one_loop(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 3, AT(5, 4, 3), 2, NULL, AT(80, 20, 2));
    assert_run(6, 1);
    assert_loop(0, 20, 6, 20);
}

static void dimensions_that_lie_together_on_one_side_only_stay_apart(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 3, AT(5, 4, 3), 2, AT(100, 20, 2), AT(80, 20, 2));
    assert_run(6, 2);
    assert_loop(0, 5, 100, 80);
    assert_loop(1, 4, 20, 20);
}

static void the_same_gaps_on_both_sides_are_not_copied(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 2, AT(3, 5), 4, AT(40, 4), AT(40, 4));
    assert_run(20, 1);
    assert_loop(0, 3, 40, 40);
}

static void dimensions_of_size_1_are_left_out_whatever_their_strides(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 5, AT(1, 4, 1, 3, 1), 4, AT(7, 12, 999, 4, -5), AT(0, 40, 1, 4, 77));
    assert_run(12, 1);
    assert_loop(0, 4, 12, 40);
    rsi_loops_make(&loops, 2, AT(1, 1), 4, AT(7, 9), AT(1, 1));
    assert_run(4, 0);
}

static void a_size_of_0_leaves_nothing_to_do(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 2, AT(0, 5), 4, NULL, AT(40, 4));
    assert_int_equal(loops.run, 0);
    rsi_loops_make(&loops, 3, AT(3, 5, 0), 4, NULL, NULL);
    assert_int_equal(loops.run, 0);
}

static void a_transposed_source_is_loops_over_elements(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 2, AT(3, 5), 4, NULL, AT(4, 12));
    assert_run(4, 2);
    assert_loop(0, 3, 20, 4);
    assert_loop(1, 5, 4, 12);
}

static void loops_stand_in_the_order_of_the_target(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 2, AT(3, 5), 4, AT(4, 12), NULL);
    assert_run(4, 2);
    assert_loop(0, 5, 12, 4);
    assert_loop(1, 3, 4, 20);
}

static void sides_that_are_transposed_alike_are_one_run(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 2, AT(3, 5), 4, AT(4, 12), AT(4, 12));
    assert_run(60, 0);
}

static void planes_that_change_places_are_runs(void **state)
{
    (void)state;
    /* 2 x 3 x 4 to 3 x 2 x 4 */
    rsi_loops_make(&loops, 3, AT(2, 3, 4), 1, AT(4, 8, 1), NULL);
    assert_run(4, 2);
    assert_loop(0, 3, 8, 4);
    assert_loop(1, 2, 4, 12);
}

static void rows_in_falling_order_are_runs(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 2, AT(3, 5), 4, NULL, AT(-20, 4));
    assert_run(20, 1);
    assert_loop(0, 3, 20, -20);
}

static void elements_in_falling_order_are_no_runs(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 2, AT(3, 5), 4, NULL, AT(20, -4));
    assert_run(4, 2);
    assert_loop(0, 3, 20, 20);
    assert_loop(1, 5, 4, -4);
    rsi_loops_make(&loops, 1, AT(5), 4, AT(-4), AT(-4));
    assert_run(4, 1);
    assert_loop(0, 5, -4, -4);
}

static void dimensions_that_fall_together_are_one_loop(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 2, AT(3, 5), 4, NULL, AT(-20, -4));
    assert_run(4, 1);
    assert_loop(0, 15, 4, -4);
}

static void falling_strides_of_the_target_are_sorted_by_size(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 2, AT(3, 5), 4, AT(4, -12), AT(20, 4));
    assert_run(4, 2);
    assert_loop(0, 5, -12, 4);
    assert_loop(1, 3, 4, 20);
}

static void a_source_that_is_repeated_has_a_stride_of_0(void **state)
{
    (void)state;
    rsi_loops_make(&loops, 2, AT(3, 4), 4, NULL, AT(0, 4));
    assert_run(16, 1);
    assert_loop(0, 3, 16, 0);
}

/* ---- offsets and runs ---- */

static void an_offset_is_counted_from_the_whole_box(void **state)
{
    rsd_box whole = fixture_box2(10, 14, 20, 26), box = fixture_box2(11, 13, 23, 25);
    rsd_box scalar = { .ndim = 0 };

    (void)state;
    assert_int_equal(rsi_box_offset(&box, &whole, AT(24, 4)), 24 + 12);
    assert_int_equal(rsi_box_offset(&whole, &whole, AT(24, 4)), 0);
    assert_true(rsi_box_offset(&box, &whole, AT(-24, 4)) == -24 + 12);
    assert_int_equal(rsi_box_offset(&scalar, &scalar, NULL), 0);
}

typedef struct run {
    int64_t offset, bytes;
} run;

enum { MOST = 16 };
static struct {
    run    at[MOST];
    size_t n, stop; /* stop: which visit fails; 0 none */
} seen;

static rsd_err note_run(void *arg, int64_t offset, int64_t bytes)
{
    assert_ptr_equal(arg, &seen);
    assert_true(seen.n < MOST);
    seen.at[seen.n++] = (run){ offset, bytes };
    return seen.n == seen.stop ? RSD_E_IO : RSD_OK;
}

static void each(const rsd_box *box, const rsd_box *whole, const int64_t *stride,
                 int64_t elem_bytes)
{
    seen.n = seen.stop = 0;
    assert_int_equal(rsi_runs_each(box, whole, stride, elem_bytes, note_run, &seen), RSD_OK);
}

static void assert_runs(size_t n, const run *want)
{
    assert_int_equal(seen.n, n);
    for (size_t i = 0; i < n; i++) {
        assert_true(seen.at[i].offset == want[i].offset);
        assert_int_equal(seen.at[i].bytes, want[i].bytes);
    }
}

#define ASSERT_RUNS(...)                                                                           \
    assert_runs(sizeof((run[]){ __VA_ARGS__ }) / sizeof(run), (run[]){ __VA_ARGS__ })

static void a_whole_box_is_one_run(void **state)
{
    rsd_box whole = fixture_box2(0, 4, 0, 6);

    (void)state;
    each(&whole, &whole, AT(24, 4), 4);
    ASSERT_RUNS({ 0, 96 });
}

static void whole_rows_are_one_run(void **state)
{
    rsd_box whole = fixture_box2(0, 4, 0, 6), box = fixture_box2(1, 3, 0, 6);

    (void)state;
    each(&box, &whole, AT(24, 4), 4);
    ASSERT_RUNS({ 24, 48 });
}

static void columns_are_one_run_a_row(void **state)
{
    rsd_box whole = fixture_box2(0, 4, 0, 6), box = fixture_box2(0, 4, 2, 4);

    (void)state;
    each(&box, &whole, AT(24, 4), 4);
    ASSERT_RUNS({ 8, 8 }, { 32, 8 }, { 56, 8 }, { 80, 8 });
}

static void runs_start_where_the_whole_box_does(void **state)
{
    rsd_box whole = fixture_box2(10, 14, 20, 26), box = fixture_box2(12, 14, 25, 26);

    (void)state;
    each(&box, &whole, AT(24, 4), 4);
    ASSERT_RUNS({ 2 * 24 + 20, 4 }, { 3 * 24 + 20, 4 });
}

static const rsd_box cube = { .ndim = 3, .len = { 3, 4, 5 } }; /* of bytes */

static void a_middle_slice_of_a_cube_is_one_run_a_plane(void **state)
{
    rsd_box box = { .ndim = 3, .off = { 0, 1, 0 }, .len = { 3, 2, 5 } };

    (void)state;
    each(&box, &cube, AT(20, 5, 1), 1);
    ASSERT_RUNS({ 5, 10 }, { 25, 10 }, { 45, 10 });
}

static void an_inner_box_of_a_cube_is_visited_row_major(void **state)
{
    rsd_box box = { .ndim = 3, .off = { 1, 1, 2 }, .len = { 2, 2, 2 } };

    (void)state;
    each(&box, &cube, AT(20, 5, 1), 1);
    ASSERT_RUNS({ 27, 2 }, { 32, 2 }, { 47, 2 }, { 52, 2 });
}

static void a_slice_of_size_1_is_one_run_a_plane(void **state)
{
    rsd_box box = { .ndim = 3, .off = { 0, 2, 0 }, .len = { 3, 1, 5 } };

    (void)state;
    each(&box, &cube, AT(20, 5, 1), 1);
    ASSERT_RUNS({ 10, 5 }, { 30, 5 }, { 50, 5 });
}

static void one_column_is_one_run_an_element(void **state)
{
    rsd_box box = { .ndim = 3, .off = { 0, 0, 3 }, .len = { 2, 4, 1 } };

    (void)state;
    each(&box, &cube, AT(20, 5, 1), 1);
    ASSERT_RUNS({ 3, 1 }, { 8, 1 }, { 13, 1 }, { 18, 1 }, { 23, 1 }, { 28, 1 }, { 33, 1 },
                { 38, 1 });
}

static void transposed_memory_is_visited_in_the_order_of_the_box(void **state)
{
    rsd_box whole = fixture_box2(0, 2, 0, 3);

    (void)state;
    each(&whole, &whole, AT(4, 8), 4);
    ASSERT_RUNS({ 0, 4 }, { 8, 4 }, { 16, 4 }, { 4, 4 }, { 12, 4 }, { 20, 4 });
}

static void a_column_of_transposed_memory_is_one_run(void **state)
{
    rsd_box whole = fixture_box2(0, 3, 0, 2), box = fixture_box2(0, 3, 1, 2);

    (void)state;
    each(&box, &whole, AT(4, 12), 4);
    ASSERT_RUNS({ 12, 12 });
}

static void rows_in_falling_order_have_falling_offsets(void **state)
{
    rsd_box whole = fixture_box2(0, 3, 0, 3);

    (void)state;
    each(&whole, &whole, AT(-12, 4), 4);
    ASSERT_RUNS({ 0, 12 }, { -12, 12 }, { -24, 12 });
}

static void a_scalar_is_one_run(void **state)
{
    rsd_box scalar = { .ndim = 0 };

    (void)state;
    each(&scalar, &scalar, NULL, 16);
    ASSERT_RUNS({ 0, 16 });
}

static void an_empty_box_has_no_runs(void **state)
{
    rsd_box whole = fixture_box2(0, 4, 0, 6), box = fixture_box2(1, 3, 2, 2);

    (void)state;
    each(&box, &whole, AT(24, 4), 4);
    assert_int_equal(seen.n, 0);
}

static void the_first_visit_that_fails_is_the_last(void **state)
{
    rsd_box whole = fixture_box2(0, 4, 0, 6), box = fixture_box2(0, 4, 2, 4);

    (void)state;
    seen.n = 0;
    seen.stop = 3;
    assert_int_equal(rsi_runs_each(&box, &whole, AT(24, 4), 4, note_run, &seen), RSD_E_IO);
    ASSERT_RUNS({ 8, 8 }, { 32, 8 }, { 56, 8 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_to_packed_is_one_run),
        cmocka_unit_test(a_scalar_is_one_run_of_one_element),
        cmocka_unit_test(columns_are_a_run_for_each_row),
        cmocka_unit_test(a_middle_slice_is_a_run_for_each_plane),
        cmocka_unit_test(outer_dimensions_that_lie_together_are_one_loop),
        cmocka_unit_test(dimensions_that_lie_together_on_one_side_only_stay_apart),
        cmocka_unit_test(the_same_gaps_on_both_sides_are_not_copied),
        cmocka_unit_test(dimensions_of_size_1_are_left_out_whatever_their_strides),
        cmocka_unit_test(a_size_of_0_leaves_nothing_to_do),
        cmocka_unit_test(a_transposed_source_is_loops_over_elements),
        cmocka_unit_test(loops_stand_in_the_order_of_the_target),
        cmocka_unit_test(sides_that_are_transposed_alike_are_one_run),
        cmocka_unit_test(planes_that_change_places_are_runs),
        cmocka_unit_test(rows_in_falling_order_are_runs),
        cmocka_unit_test(elements_in_falling_order_are_no_runs),
        cmocka_unit_test(dimensions_that_fall_together_are_one_loop),
        cmocka_unit_test(falling_strides_of_the_target_are_sorted_by_size),
        cmocka_unit_test(a_source_that_is_repeated_has_a_stride_of_0),
        cmocka_unit_test(an_offset_is_counted_from_the_whole_box),
        cmocka_unit_test(a_whole_box_is_one_run),
        cmocka_unit_test(whole_rows_are_one_run),
        cmocka_unit_test(columns_are_one_run_a_row),
        cmocka_unit_test(runs_start_where_the_whole_box_does),
        cmocka_unit_test(a_middle_slice_of_a_cube_is_one_run_a_plane),
        cmocka_unit_test(an_inner_box_of_a_cube_is_visited_row_major),
        cmocka_unit_test(a_slice_of_size_1_is_one_run_a_plane),
        cmocka_unit_test(one_column_is_one_run_an_element),
        cmocka_unit_test(transposed_memory_is_visited_in_the_order_of_the_box),
        cmocka_unit_test(a_column_of_transposed_memory_is_one_run),
        cmocka_unit_test(rows_in_falling_order_have_falling_offsets),
        cmocka_unit_test(a_scalar_is_one_run),
        cmocka_unit_test(an_empty_box_has_no_runs),
        cmocka_unit_test(the_first_visit_that_fails_is_the_last),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
