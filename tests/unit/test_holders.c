/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static void the_writer_of_a_file_is_told_by_its_name(void **state)
{
    (void)state;
    assert_int_equal(file_writer("__3_0.distcp"), 3);
    assert_int_equal(file_writer("folder/__12_7.distcp"), 12);
    assert_int_equal(file_writer("__3.distcp"), -1);
    assert_int_equal(file_writer("__x_0.distcp"), -1);
    assert_int_equal(file_writer("model.safetensors"), -1);
    assert_int_equal(file_writer("__99999999999999999999_0.distcp"), -1);
}

static void a_file_keeps_its_number(void **state)
{
    holders h = { 0 };
    char    name[40][8];
    size_t  number = 0;

    (void)state;
    for (size_t round = 0; round < 2; round++)
        for (size_t i = 0; i < 40; i++) {
            snprintf(name[i], sizeof(name[i]), "f%zu", i);
            assert_true(holders_number(&h, name[i], &number));
            assert_int_equal(number, i);
        }
    assert_true(holders_number(&h, "f7", &number));
    assert_int_equal(number, 7);
    assert_int_equal(h.n, 40);
    free(h.file);
}

static void a_layout_has_a_tile_for_each_box_of_each_rank(void **state)
{
    const int32_t ranks[] = { 2, 0 };
    const int64_t shape[] = { 5 };
    rsd_layout   *layout;
    rsd_error     err;
    tile         *t;
    size_t        n;

    (void)state;
    assert_int_equal(rsd_layout_create_chunked(0, 2, ranks, RSD_U8, 1, shape, &layout, &err),
                     RSD_OK);
    assert_true(tiles_of_layout(layout, &t, &n));
    assert_int_equal(n, 2);
    assert_int_equal(t[0].holder, 0);
    assert_int_equal(t[0].box.off[0], 3);
    assert_int_equal(t[1].holder, 2);
    assert_int_equal(t[1].box.len[0], 3);
    free(t);
    rsd_layout_free(layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_writer_of_a_file_is_told_by_its_name),
        cmocka_unit_test(a_file_keeps_its_number),
        cmocka_unit_test(a_layout_has_a_tile_for_each_box_of_each_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
