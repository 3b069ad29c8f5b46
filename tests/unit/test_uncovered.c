/* SPDX-License-Identifier: Apache-2.0 */
/* test_uncovered.c - the element that nobody holds is named, and it is the first in row-major
 * order. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "shape/uncovered.h"

enum { MOST_BOXES = 64 };

/* n boxes of `ndim` dimensions, each as its offsets and then its sizes. */
static void assert_hole(int ndim, const int64_t *shape, size_t n, const int64_t *at,
                        const char *element, const char *cover)
{
    int64_t   copy[MOST_BOXES * 2 * RSD_MAX_NDIM] = { 0 };
    rsi_boxes boxes = { .ndim = ndim, .n = n, .at = copy };
    char      want[256];
    rsd_error err;

    if (n > 0)
        memcpy(copy, at, n * 2 * (size_t)ndim * sizeof(copy[0]));
    snprintf(want, sizeof(want),
             "the boxes leave a hole: no box holds element [%s]; they cover %s elements", element,
             cover);
    assert_int_equal(rsi_refuse_hole(&boxes, shape, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, want);
}

static void assert_full(int ndim, const int64_t *shape, size_t n, const int64_t *at)
{
    int64_t   copy[MOST_BOXES * 2 * RSD_MAX_NDIM] = { 0 };
    rsi_boxes boxes = { .ndim = ndim, .n = n, .at = copy };

    if (n > 0)
        memcpy(copy, at, n * 2 * (size_t)ndim * sizeof(copy[0]));
    assert_int_equal(rsi_refuse_hole(&boxes, shape, NULL), RSD_OK);
}

/* ---- one dimension -------------------------------------------------------------------------- */

static const int64_t ten = 10;

static void hole_at_the_start_of_a_row_is_named(void **state)
{
    (void)state;
    assert_hole(1, &ten, 1, (int64_t[]){ 2, 8 }, "0", "8 of 10");
}

static void hole_in_the_middle_of_a_row_is_named(void **state)
{
    (void)state;
    assert_hole(1, &ten, 2, (int64_t[]){ 0, 3, 5, 5 }, "3", "8 of 10");
}

static void hole_at_the_end_of_a_row_is_named(void **state)
{
    (void)state;
    assert_hole(1, &ten, 2, (int64_t[]){ 4, 5, 0, 4 }, "9", "9 of 10");
}

static void first_of_two_holes_is_named_whatever_the_order_of_the_boxes(void **state)
{
    (void)state;
    assert_hole(1, &ten, 3, (int64_t[]){ 8, 2, 4, 2, 0, 2 }, "2", "6 of 10");
}

/* ---- two and three dimensions --------------------------------------------------------------- */

static const int64_t four_by_six[] = { 4, 6 }, two_three_four[] = { 2, 3, 4 };

static void hole_in_the_corners_of_a_matrix_is_named(void **state)
{
    (void)state;
    /* the first row lacks its first element, the last row its last */
    assert_hole(2, four_by_six, 2, (int64_t[]){ 0, 1, 1, 5, 1, 0, 3, 6 }, "0, 0", "23 of 24");
    assert_hole(2, four_by_six, 2, (int64_t[]){ 0, 0, 3, 6, 3, 0, 1, 5 }, "3, 5", "23 of 24");
}

static void hole_in_the_middle_of_a_matrix_is_named(void **state)
{
    (void)state;
    /* a ring around the element [2, 3] */
    assert_hole(2, four_by_six, 4,
                (int64_t[]){ 0, 0, 2, 6, /**/ 2, 0, 1, 3, /**/ 2, 4, 1, 2, /**/ 3, 0, 1, 6 },
                "2, 3", "23 of 24");
}

static void row_counts_more_than_column_for_the_first_hole(void **state)
{
    (void)state;
    /* [0, 5] and [1, 0] are missing; [0, 5] comes first */
    assert_hole(2, four_by_six, 3, (int64_t[]){ 0, 0, 1, 5, /**/ 1, 1, 1, 5, /**/ 2, 0, 2, 6 },
                "0, 5", "22 of 24");
}

static void missing_row_is_named_by_its_first_element(void **state)
{
    (void)state;
    assert_hole(2, four_by_six, 2, (int64_t[]){ 0, 0, 2, 6, /**/ 3, 0, 1, 6 }, "2, 0", "18 of 24");
}

static void hole_of_a_cube_is_named_at_start_middle_and_end(void **state)
{
    (void)state;
    /* whole rows, and the row with the hole in pieces */
    assert_hole(3, two_three_four, 3,
                (int64_t[]){ 0, 0, 1, 1, 1, 3, /**/ 0, 1, 0, 1, 2, 4, /**/ 1, 0, 0, 1, 3, 4 },
                "0, 0, 0", "23 of 24");
    assert_hole(3, two_three_four, 5,
                (int64_t[]){ 0,      0, 0, 1, 3, 4, /**/ 1, 0, 0, 1, 1, 4, /**/ 1, 1, 0, 1, 1, 2,
                             /**/ 1, 1, 3, 1, 1, 1, /**/ 1, 2, 0, 1, 1, 4 },
                "1, 1, 2", "23 of 24");
    assert_hole(3, two_three_four, 3,
                (int64_t[]){ 0, 0, 0, 1, 3, 4, /**/ 1, 0, 0, 1, 2, 4, /**/ 1, 2, 0, 1, 1, 3 },
                "1, 2, 3", "23 of 24");
}

static void no_boxes_leave_the_first_element_uncovered(void **state)
{
    const int64_t ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };

    (void)state;
    assert_hole(1, &ten, 0, NULL, "0", "0 of 10");
    assert_hole(8, ones, 0, NULL, "0, 0, 0, 0, 0, 0, 0, 0", "0 of 1");
    assert_hole(0, NULL, 0, NULL, "", "0 of 1");
}

static void hole_beyond_2_to_the_61_is_named(void **state)
{
    const int64_t shape[] = { (int64_t)1 << 31, (int64_t)1 << 31 };
    const int64_t at[] = {
        0, 0, ((int64_t)1 << 31) - 1, (int64_t)1 << 31, ((int64_t)1 << 31) - 1, 0, 1, 5
    };

    (void)state;
    assert_hole(2, shape, 2, at, "2147483647, 5", "4611686016279904261 of 4611686018427387904");
}

/* ---- full ----------------------------------------------------------------------------------- */

static void boxes_that_fill_the_tensor_are_accepted(void **state)
{
    const int64_t three_by_three[] = { 3, 3 };

    (void)state;
    assert_full(1, &ten, 3, (int64_t[]){ 7, 3, 0, 2, 2, 5 });
    /* a pinwheel: no straight cut goes through it */
    assert_full(2, three_by_three, 5,
                (int64_t[]){ 0,      0, 1, 2, /**/ 0, 2, 2, 1, /**/ 2, 1, 1, 2, /**/ 1, 0, 2, 1,
                             /**/ 1, 1, 1, 1 });
}

static void scalar_and_tensor_without_elements_are_full(void **state)
{
    const int64_t empty[] = { 5, 0 };

    (void)state;
    assert_full(0, NULL, 1, (int64_t[]){ 0 });
    assert_full(2, empty, 0, NULL);
}

/* ---- against a loop ------------------------------------------------------------------------- */

/* Takes one box out of a grid of uneven cells: the hole starts where that box did. */
static void every_missing_cell_of_a_grid_is_named_by_its_first_element(void **state)
{
    const int64_t cut[3][4] = { { 0, 1, 4, 6 }, { 0, 3, 4, 5 }, { 0, 2, 3, 7 } };
    const int64_t shape[] = { 6, 5, 7 };

    (void)state;
    for (size_t missing = 0; missing < 27; missing++) {
        int64_t at[26 * 6], *next = at, volume = 1;
        char    element[32], cover[32];

        for (size_t i = 0; i < 27; i++) {
            size_t  place[3] = { i / 9, i / 3 % 3, i % 3 };
            int64_t box[6];

            for (int d = 0; d < 3; d++) {
                box[d] = cut[d][place[d]];
                box[3 + d] = cut[d][place[d] + 1] - box[d];
            }
            if (i != missing) {
                memcpy(next, box, sizeof(box));
                next += 6;
                continue;
            }
            snprintf(element, sizeof(element), "%d, %d, %d", (int)box[0], (int)box[1], (int)box[2]);
            volume = box[3] * box[4] * box[5];
        }
        snprintf(cover, sizeof(cover), "%d of 210", (int)(210 - volume));
        assert_hole(3, shape, 26, at, element, cover);
    }
}

static void search_for_a_hole_gives_its_memory_back(void **state)
{
    int64_t before;

    (void)state;
    before = rsi_mem_stats_get().bytes;
    assert_hole(1, &ten, 1, (int64_t[]){ 2, 8 }, "0", "8 of 10");
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

static void hole_that_can_not_be_named_for_want_of_memory_is_so_reported(void **state)
{
    static const int64_t shape[] = { 8, 6 };
    const rsi_boxes      boxes = { .ndim = 2 };
    rsd_error            err;

    (void)state;
    for (uint64_t n = 1; n <= 2; n++) {
        rsd_err rc;

        rsi_mem_fail_at(n, 0);
        rc = rsi_refuse_hole(&boxes, shape, &err);
        rsi_mem_fail_at(0, 0);
        assert_int_equal(rc, RSD_E_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hole_at_the_start_of_a_row_is_named),
        cmocka_unit_test(hole_in_the_middle_of_a_row_is_named),
        cmocka_unit_test(hole_at_the_end_of_a_row_is_named),
        cmocka_unit_test(first_of_two_holes_is_named_whatever_the_order_of_the_boxes),
        cmocka_unit_test(hole_in_the_corners_of_a_matrix_is_named),
        cmocka_unit_test(hole_in_the_middle_of_a_matrix_is_named),
        cmocka_unit_test(row_counts_more_than_column_for_the_first_hole),
        cmocka_unit_test(missing_row_is_named_by_its_first_element),
        cmocka_unit_test(hole_of_a_cube_is_named_at_start_middle_and_end),
        cmocka_unit_test(no_boxes_leave_the_first_element_uncovered),
        cmocka_unit_test(hole_beyond_2_to_the_61_is_named),
        cmocka_unit_test(boxes_that_fill_the_tensor_are_accepted),
        cmocka_unit_test(scalar_and_tensor_without_elements_are_full),
        cmocka_unit_test(every_missing_cell_of_a_grid_is_named_by_its_first_element),
        cmocka_unit_test(search_for_a_hole_gives_its_memory_back),
        cmocka_unit_test(hole_that_can_not_be_named_for_want_of_memory_is_so_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
