/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static tile tile_of(int32_t holder, int ndim, const int64_t *off, const int64_t *len)
{
    tile t = { .holder = holder, .box = { .ndim = ndim } };

    memcpy(t.box.off, off, (size_t)ndim * sizeof(*off));
    memcpy(t.box.len, len, (size_t)ndim * sizeof(*len));
    return t;
}

static void axes_that_are_cut_are_drawn_before_longer_ones(void **state)
{
    const int64_t shape[] = { 4, 1000, 6, 2000 };
    const tile    t[] = {
           tile_of(0, 4, (const int64_t[]){ 0, 0, 0, 0 }, (const int64_t[]){ 2, 1000, 6, 2000 }),
           tile_of(1, 4, (const int64_t[]){ 2, 0, 0, 0 }, (const int64_t[]){ 2, 1000, 3, 2000 }),
           tile_of(2, 4, (const int64_t[]){ 2, 0, 3, 0 }, (const int64_t[]){ 2, 1000, 3, 2000 }),
    };
    int axes[2];

    (void)state;
    draw_axes(4, shape, 3, t, axes);
    assert_int_equal(axes[0], 0);
    assert_int_equal(axes[1], 2);
    draw_axes(4, shape, 1, t, axes);
    assert_int_equal(axes[0], 1);
    assert_int_equal(axes[1], 3);
}

static void one_axis_goes_across_and_a_scalar_has_none(void **state)
{
    const int64_t shape[] = { 4 };
    const tile    t = tile_of(0, 1, (const int64_t[]){ 0 }, (const int64_t[]){ 4 });
    int           axes[2];

    (void)state;
    draw_axes(1, shape, 1, &t, axes);
    assert_int_equal(axes[0], -1);
    assert_int_equal(axes[1], 0);
    draw_axes(0, shape, 0, NULL, axes);
    assert_int_equal(axes[0], -1);
    assert_int_equal(axes[1], -1);
}

static void parts_are_counted_up_to_a_limit_and_empty_ones_not(void **state)
{
    tile t[100];

    (void)state;
    for (int64_t i = 0; i < 100; i++)
        t[i] = tile_of((int32_t)i, 1, (const int64_t[]){ i }, (const int64_t[]){ i < 90 ? 1 : 0 });
    assert_int_equal(draw_parts(3, t, 0), 3);
    assert_int_equal(draw_parts(100, t, 0), DRAW_MOST_PARTS + 1);
    assert_int_equal(draw_parts(10, t + 90, 0), 0);
    assert_int_equal(draw_parts(3, t, -1), 0);
}

/* Sizes at the end of the range must not overflow on their way to a cell. */
static void a_tensor_of_any_length_fits_a_picture(void **state)
{
    const int64_t shape[] = { INT64_MAX };
    const int64_t half = INT64_MAX / 2;
    const tile    t[] = {
           tile_of(0, 1, (const int64_t[]){ 0 }, &half),
           tile_of(1, 1, &half, (const int64_t[]){ INT64_MAX - half }),
    };
    const int axes[2] = { -1, 0 };
    drawn     told;
    char     *text;
    size_t    len;
    FILE     *out = tmpfile();

    (void)state;
    assert_non_null(out);
    assert_true(draw_tiles(out, shape, 2, t, axes, false, &told));
    assert_int_equal(told.shown, 2);
    len = (size_t)ftell(out);
    text = calloc(len + 1, 1);
    rewind(out);
    assert_int_equal(fread(text, 1, len, out), len);
    assert_non_null(strstr(text, "    0 0 0"));
    assert_non_null(strstr(text, " 0 1 "));
    assert_non_null(strstr(text, " 1 1\n"));
    free(text);
    fclose(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_that_are_cut_are_drawn_before_longer_ones),
        cmocka_unit_test(one_axis_goes_across_and_a_scalar_has_none),
        cmocka_unit_test(parts_are_counted_up_to_a_limit_and_empty_ones_not),
        cmocka_unit_test(a_tensor_of_any_length_fits_a_picture),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
