/* SPDX-License-Identifier: Apache-2.0 */
/* test_box.c - boxes and shapes: what they share, how they are ordered and told, which ones can't
 * be. The overlap in the coordinates of both boxes is in test_torch_tables.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "shape/box.h"

static const int64_t two_to_61 = (int64_t)1 << 61;

static rsd_box box_2d(int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    return (rsd_box){ .ndim = 2, .off = { row, column }, .len = { rows, columns } };
}

static void assert_box(const rsd_box *got, const rsd_box *want)
{
    assert_int_equal(got->ndim, want->ndim);
    for (int d = 0; d < want->ndim; d++) {
        assert_int_equal(got->off[d], want->off[d]);
        assert_int_equal(got->len[d], want->len[d]);
    }
}

/* ---- count ---------------------------------------------------------------------------------- */

static void count_is_the_product_of_the_sizes(void **state)
{
    rsd_box box = { .ndim = 3, .off = { 7, 7, 7 }, .len = { 2, 3, 5 } };

    (void)state;
    assert_int_equal(rsd_box_count(&box), 30);
    box.len[1] = 0;
    assert_int_equal(rsd_box_count(&box), 0);
}

static void scalar_has_one_element(void **state)
{
    const rsd_box scalar = { .ndim = 0, .len = { 9, 9 } };

    (void)state;
    assert_int_equal(rsd_box_count(&scalar), 1);
}

static void count_of_a_box_of_2_to_the_62_elements_is_right(void **state)
{
    const rsd_box box = { .ndim = 2, .len = { (int64_t)1 << 31, (int64_t)1 << 31 } };

    (void)state;
    assert_int_equal(rsd_box_count(&box), (int64_t)1 << 62);
}

/* ---- intersect ------------------------------------------------------------------------------ */

static void boxes_share_the_rectangle_in_which_they_cross(void **state)
{
    const rsd_box a = box_2d(0, 4, 2, 6), b = box_2d(3, 5, 0, 5), want = box_2d(3, 1, 2, 3);
    rsd_box       hit;

    (void)state;
    assert_true(rsd_box_intersect(&a, &b, &hit));
    assert_box(&hit, &want);
    assert_true(rsd_box_intersect(&b, &a, &hit));
    assert_box(&hit, &want);
}

static void box_within_another_is_what_they_share(void **state)
{
    const rsd_box outer = box_2d(0, 10, 0, 10), inner = box_2d(4, 2, 5, 1);
    rsd_box       hit;

    (void)state;
    assert_true(rsd_box_intersect(&outer, &inner, &hit));
    assert_box(&hit, &inner);
}

static void boxes_that_touch_share_nothing_and_leave_the_output_alone(void **state)
{
    const rsd_box a = box_2d(0, 4, 0, 4), below = box_2d(4, 4, 0, 4), beside = box_2d(0, 4, 4, 4);
    const rsd_box before = box_2d(91, 92, 93, 94);
    rsd_box       hit = before;

    (void)state;
    assert_false(rsd_box_intersect(&a, &below, &hit));
    assert_false(rsd_box_intersect(&beside, &a, &hit));
    assert_box(&hit, &before);
}

static void empty_box_shares_nothing_even_with_itself(void **state)
{
    const rsd_box all = box_2d(0, 4, 0, 4), none = box_2d(2, 0, 0, 4);

    (void)state;
    assert_false(rsd_box_intersect(&all, &none, NULL));
    assert_false(rsd_box_intersect(&none, &none, NULL));
}

static void boxes_of_other_dimensions_share_nothing(void **state)
{
    const rsd_box row = { .ndim = 1, .len = { 4 } }, all = box_2d(0, 4, 0, 4);

    (void)state;
    assert_false(rsd_box_intersect(&row, &all, NULL));
    assert_false(rsd_box_intersect(&all, &row, NULL));
}

static void scalars_share_their_element_and_the_output_may_be_left_out(void **state)
{
    const rsd_box scalar = { .ndim = 0 };

    (void)state;
    assert_true(rsd_box_intersect(&scalar, &scalar, NULL));
}

/* ---- equal, order --------------------------------------------------------------------------- */

static void boxes_are_equal_if_all_used_dimensions_are(void **state)
{
    const rsd_box a = box_2d(1, 2, 3, 4);
    rsd_box       b = a;

    (void)state;
    b.off[2] = 77;
    b.len[7] = 77;
    assert_true(rsi_box_equal(&a, &b));
    b.len[1] = 5;
    assert_false(rsi_box_equal(&a, &b));
    b = a;
    b.off[0] = 0;
    assert_false(rsi_box_equal(&a, &b));
    b = a;
    b.ndim = 3;
    assert_false(rsi_box_equal(&a, &b));
    assert_false(rsi_box_equal(&b, &a));
}

static void order_is_by_offset_and_the_first_dimension_counts_most(void **state)
{
    const rsd_box a = box_2d(0, 1, 9, 1), b = box_2d(1, 1, 0, 1), c = box_2d(1, 1, 2, 1);

    (void)state;
    assert_true(rsi_box_order(&a, &b) < 0);
    assert_true(rsi_box_order(&b, &c) < 0);
    assert_true(rsi_box_order(&c, &a) > 0);
    assert_int_equal(rsi_box_order(&b, &b), 0);
}

static void order_ignores_sizes_and_scalars_are_all_one(void **state)
{
    const rsd_box a = box_2d(1, 2, 3, 4), b = box_2d(1, 9, 3, 9), scalar = { .ndim = 0 };

    (void)state;
    assert_int_equal(rsi_box_order(&a, &b), 0);
    assert_int_equal(rsi_box_order(&scalar, &scalar), 0);
}

/* ---- text ----------------------------------------------------------------------------------- */

static void box_in_words_has_the_start_and_end_of_each_dimension(void **state)
{
    const rsd_box box = box_2d(0, 4, 8, 8), scalar = { .ndim = 0 };
    char          text[RSI_BOX_TEXT];

    (void)state;
    assert_int_equal(rsd_box_text(&box, text, sizeof(text)), 11);
    assert_string_equal(text, "[0:4, 8:16]");
    assert_int_equal(rsd_box_text(&scalar, text, sizeof(text)), 2);
    assert_string_equal(text, "[]");
}

static void text_that_does_not_fit_is_cut_and_counted_whole(void **state)
{
    const rsd_box box = box_2d(0, 4, 8, 8);
    char          text[8] = "xxxxxxx";

    (void)state;
    assert_int_equal(rsd_box_text(&box, text, 6), 11);
    assert_string_equal(text, "[0:4,");
    assert_int_equal(text[6], 'x');
    assert_int_equal(rsd_box_text(&box, text, 1), 11);
    assert_string_equal(text, "");
    assert_int_equal(rsd_box_text(&box, NULL, 0), 11);
}

static void longest_box_in_words_fits_the_buffer_we_keep_for_it(void **state)
{
    rsd_box box = { .ndim = RSD_MAX_NDIM };

    (void)state;
    for (int d = 0; d < RSD_MAX_NDIM; d++)
        box.off[d] = INT64_MIN; /* 20 characters, the most a number has */
    /* 8 of "-9223372036854775808:-9223372036854775808", 7 of ", ", and "[]" */
    assert_int_equal(rsd_box_text(&box, NULL, 0), 8 * 41 + 7 * 2 + 2);
    assert_true(8 * 41 + 7 * 2 + 2 < RSI_BOX_TEXT);
}

/* ---- check ---------------------------------------------------------------------------------- */

static void assert_box_refused(rsd_box box, int ndim, const int64_t *shape, const char *why)
{
    rsd_error err;

    assert_int_equal(rsi_box_check(&box, ndim, shape, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, why);
}

static void box_that_fills_the_tensor_or_is_empty_at_its_end_is_accepted(void **state)
{
    const int64_t shape[] = { 4, 16 }, longest = INT64_MAX;
    const rsd_box all = box_2d(0, 4, 0, 16), none = box_2d(4, 0, 16, 0), scalar = { .ndim = 0 };
    const rsd_box row = { .ndim = 1, .len = { INT64_MAX } };

    (void)state;
    assert_int_equal(rsi_box_check(&all, 2, shape, NULL), RSD_OK);
    assert_int_equal(rsi_box_check(&none, 2, shape, NULL), RSD_OK);
    assert_int_equal(rsi_box_check(&scalar, 0, NULL, NULL), RSD_OK);
    assert_int_equal(rsi_box_check(&row, 1, &longest, NULL), RSD_OK);
}

static void box_outside_the_tensor_is_refused_and_named(void **state)
{
    const int64_t shape[] = { 4, 16 };

    (void)state;
    assert_box_refused(box_2d(0, 4, 8, 9), 2, shape,
                       "[0:4, 8:17] falls outside the tensor, dimension 1 has the size 16");
    assert_box_refused(box_2d(5, 0, 0, 1), 2, shape,
                       "[5:5, 0:1] falls outside the tensor, dimension 0 has the size 4");
    assert_box_refused(box_2d(-1, 2, 0, 1), 2, shape,
                       "[-1:1, 0:1] falls outside the tensor, dimension 0 has the size 4");
    assert_box_refused(
        box_2d(INT64_MAX - 1, 1, 0, 1), 2, shape,
        "[9223372036854775806:9223372036854775807, 0:1] falls outside the tensor, dimension 0 has "
        "the size 4");
}

static void box_of_negative_size_is_refused(void **state)
{
    const int64_t shape[] = { 4, 16 };

    (void)state;
    assert_box_refused(box_2d(0, 4, 3, -1), 2, shape, "its size in dimension 1 is -1");
    assert_box_refused(box_2d(0, INT64_MIN, 0, 1), 2, shape,
                       "its size in dimension 0 is -9223372036854775808");
}

static void box_of_another_number_of_dimensions_is_refused(void **state)
{
    const int64_t shape[] = { 4, 16 };
    const rsd_box none = { .ndim = 0 }, less = { .ndim = -1 }, more = { .ndim = 9 };

    (void)state;
    assert_box_refused(none, 2, shape, "it has 0 dimensions, the tensor has 2");
    assert_box_refused(less, 2, shape, "it has -1 dimensions, the tensor has 2");
    assert_box_refused(more, 2, shape, "it has 9 dimensions, the tensor has 2");
    assert_box_refused(box_2d(0, 1, 0, 1), 0, NULL, "it has 2 dimensions, the tensor has 0");
}

/* ---- shape ---------------------------------------------------------------------------------- */

static void assert_shape_refused(rsd_err code, rsd_dtype dtype, int ndim, const int64_t *shape,
                                 const char *why)
{
    int64_t   elems = -7;
    rsd_error err;

    assert_int_equal(rsi_shape_check(dtype, ndim, shape, &elems, &err), code);
    assert_string_equal(err.msg, why);
    assert_int_equal(elems, -7);
}

static int64_t elems_of(rsd_dtype dtype, int ndim, const int64_t *shape)
{
    int64_t elems = -7;

    assert_int_equal(rsi_shape_check(dtype, ndim, shape, &elems, NULL), RSD_OK);
    return elems;
}

static void elements_of_a_shape_are_its_product(void **state)
{
    const int64_t eight[] = { 2, 1, 3, 1, 2, 1, 1, 2 }, with_zero[] = { 5, 0, 7 };

    (void)state;
    assert_int_equal(elems_of(RSD_F32, 8, eight), 24);
    assert_int_equal(elems_of(RSD_F32, 3, with_zero), 0);
    assert_int_equal(elems_of(RSD_C128, 0, NULL), 1);
}

static void largest_shapes_that_fit_are_accepted(void **state)
{
    const int64_t bytes = INT64_MAX, floats = two_to_61 - 1, with_zero[] = { two_to_61, 0, 3 };

    (void)state;
    assert_int_equal(elems_of(RSD_U8, 1, &bytes), INT64_MAX);
    assert_int_equal(elems_of(RSD_F32, 1, &floats), two_to_61 - 1);
    assert_int_equal(elems_of(RSD_U8, 3, with_zero), 0);
}

static void shape_whose_bytes_do_not_fit_is_refused(void **state)
{
    const char *const why = "the bytes of the tensor don't fit into 64 bits";
    const int64_t     square[] = { (int64_t)1 << 32, (int64_t)1 << 31 };
    const int64_t     with_zero[] = { 0, two_to_61, 4 };

    (void)state;
    assert_shape_refused(RSD_E_INVALID, RSD_F32, 1, &two_to_61, why);
    assert_shape_refused(RSD_E_INVALID, RSD_U8, 2, square, why);
    assert_shape_refused(RSD_E_INVALID, RSD_U8, 3, with_zero, why);
}

static void negative_dimension_of_a_shape_is_refused_and_named(void **state)
{
    const int64_t shape[] = { 4, 0, -1 };

    (void)state;
    assert_shape_refused(RSD_E_INVALID, RSD_F32, 3, shape, "dimension 2 has the size -1");
}

static void more_than_8_dimensions_are_unsupported(void **state)
{
    const int64_t shape[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };

    (void)state;
    assert_shape_refused(RSD_E_UNSUPPORTED, RSD_F32, 9, shape,
                         "a tensor of 9 dimensions is not supported: the maximum is 8");
}

static void shape_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    assert_shape_refused(RSD_E_INVALID, RSD_F32, -1, NULL, "a tensor can't have -1 dimensions");
    assert_shape_refused(RSD_E_INVALID, RSD_F32, 2, NULL, "a tensor of 2 dimensions needs a shape");
    assert_shape_refused(RSD_E_INVALID, (rsd_dtype)99, 0, NULL, "99 is not a dtype");
}

/* ---- strides -------------------------------------------------------------------------------- */

static void strides_are_row_major_bytes(void **state)
{
    const int64_t len[] = { 2, 3, 5 };
    int64_t       stride[RSD_MAX_NDIM] = { 0, 0, 0, -7 };

    (void)state;
    rsi_strides(3, len, 4, stride);
    assert_int_equal(stride[0], 60);
    assert_int_equal(stride[1], 20);
    assert_int_equal(stride[2], 4);
    assert_int_equal(stride[3], -7);
}

static void box_whose_end_overflows_is_refused(void **state)
{
    const rsd_box box = { .ndim = 1, .off = { INT64_MAX }, .len = { 1 } };
    const int64_t n = 10;
    rsd_error     err;

    (void)state;
    assert_int_equal(rsi_box_check(&box, 1, &n, &err), RSD_E_INVALID);
    assert_non_null(strstr(err.msg, "falls outside the tensor, dimension 0 has the size 10"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(count_is_the_product_of_the_sizes),
        cmocka_unit_test(scalar_has_one_element),
        cmocka_unit_test(count_of_a_box_of_2_to_the_62_elements_is_right),
        cmocka_unit_test(boxes_share_the_rectangle_in_which_they_cross),
        cmocka_unit_test(box_within_another_is_what_they_share),
        cmocka_unit_test(boxes_that_touch_share_nothing_and_leave_the_output_alone),
        cmocka_unit_test(empty_box_shares_nothing_even_with_itself),
        cmocka_unit_test(boxes_of_other_dimensions_share_nothing),
        cmocka_unit_test(scalars_share_their_element_and_the_output_may_be_left_out),
        cmocka_unit_test(boxes_are_equal_if_all_used_dimensions_are),
        cmocka_unit_test(order_is_by_offset_and_the_first_dimension_counts_most),
        cmocka_unit_test(order_ignores_sizes_and_scalars_are_all_one),
        cmocka_unit_test(box_in_words_has_the_start_and_end_of_each_dimension),
        cmocka_unit_test(text_that_does_not_fit_is_cut_and_counted_whole),
        cmocka_unit_test(longest_box_in_words_fits_the_buffer_we_keep_for_it),
        cmocka_unit_test(box_that_fills_the_tensor_or_is_empty_at_its_end_is_accepted),
        cmocka_unit_test(box_outside_the_tensor_is_refused_and_named),
        cmocka_unit_test(box_of_negative_size_is_refused),
        cmocka_unit_test(box_of_another_number_of_dimensions_is_refused),
        cmocka_unit_test(elements_of_a_shape_are_its_product),
        cmocka_unit_test(largest_shapes_that_fit_are_accepted),
        cmocka_unit_test(shape_whose_bytes_do_not_fit_is_refused),
        cmocka_unit_test(negative_dimension_of_a_shape_is_refused_and_named),
        cmocka_unit_test(more_than_8_dimensions_are_unsupported),
        cmocka_unit_test(shape_that_makes_no_sense_is_refused),
        cmocka_unit_test(strides_are_row_major_bytes),
        cmocka_unit_test(box_whose_end_overflows_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
