/* SPDX-License-Identifier: Apache-2.0 */
/* test_chunk_tiling.c - chunks that tile their tensor, and all the ways not to. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "format/ckpt.h"

#include <string.h>

static void get(const void *arg, size_t i, rsd_box *out)
{
    *out = ((const rsd_box *)arg)[i];
}

static void accept(int ndim, const int64_t *shape, size_t n, const rsd_box *box)
{
    rsd_error err = { 0 };

    if (rsi_refuse_bad_tiles(ndim, shape, n, get, box, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void refuse(int ndim, const int64_t *shape, size_t n, const rsd_box *box, const char *text)
{
    rsd_error err = { 0 };

    assert_int_equal(rsi_refuse_bad_tiles(ndim, shape, n, get, box, &err), RSD_E_FORMAT);
    assert_int_equal(err.code, RSD_E_FORMAT);
    if (!strstr(err.msg, text))
        fail_msg("\"%s\" has no \"%s\"", err.msg, text);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static const int64_t sq[] = { 4, 6 };

static void one_chunk_of_everything_is_accepted(void **state)
{
    const rsd_box all = fix_box2(0, 0, 4, 6), scalar = { 0 };

    (void)state;
    accept(2, sq, 1, &all);
    accept(0, NULL, 1, &scalar);
}

static void slices_are_accepted_in_any_order(void **state)
{
    const rsd_box rows[] = { fix_box2(0, 0, 1, 6), fix_box2(1, 0, 2, 6), fix_box2(3, 0, 1, 6) };
    const rsd_box mixed[] = { fix_box2(3, 0, 1, 6), fix_box2(0, 0, 1, 6), fix_box2(1, 0, 2, 6) };
    const rsd_box columns[] = { fix_box2(0, 0, 4, 5), fix_box2(0, 5, 4, 1) };

    (void)state;
    accept(2, sq, 3, rows);
    accept(2, sq, 3, mixed);
    accept(2, sq, 2, columns);
}

static void empty_chunks_are_no_matter(void **state)
{
    const rsd_box rows[] = { fix_box2(0, 0, 2, 6), fix_box2(2, 0, 2, 6), fix_box2(4, 0, 0, 6) };
    const rsd_box whole[] = { fix_box2(0, 0, 4, 6), fix_box2(4, 0, 0, 6) };

    (void)state;
    accept(2, sq, 3, rows);
    accept(2, sq, 2, whole);
}

static void grids_are_accepted(void **state)
{
    const rsd_box even[] = { fix_box2(0, 0, 2, 3), fix_box2(0, 3, 2, 3), fix_box2(2, 0, 2, 3),
                             fix_box2(2, 3, 2, 3) };
    const rsd_box uneven[] = { fix_box2(3, 1, 1, 5), fix_box2(0, 1, 3, 5), fix_box2(3, 0, 1, 1),
                               fix_box2(0, 0, 3, 1) };

    (void)state;
    accept(2, sq, 4, even);
    accept(2, sq, 4, uneven);
}

static void irregular_tilings_are_accepted(void **state)
{
    const rsd_box wheel[] = { fix_box2(0, 0, 1, 5), fix_box2(0, 5, 3, 1), fix_box2(3, 1, 1, 5),
                              fix_box2(1, 0, 3, 1), fix_box2(1, 1, 2, 4) };

    (void)state;
    accept(2, sq, 5, wheel);
}

static void chunks_that_overlap_are_refused(void **state)
{
    const rsd_box rows[] = { fix_box2(0, 0, 3, 6), fix_box2(2, 0, 2, 6) };
    const rsd_box cross[] = { fix_box2(0, 0, 2, 3), fix_box2(0, 3, 2, 3), fix_box2(2, 0, 2, 4),
                              fix_box2(2, 3, 2, 3) };

    (void)state;
    refuse(2, sq, 2, rows, "the chunks [0:3, 0:6] and [2:4, 0:6] overlap");
    refuse(2, sq, 4, cross, "the chunks [2:4, 0:4] and [2:4, 3:6] overlap");
}

static void chunks_that_are_there_twice_are_refused(void **state)
{
    const rsd_box twice[] = { fix_box2(0, 0, 4, 6), fix_box2(0, 0, 4, 6) };
    const rsd_box row[] = { fix_box2(0, 0, 2, 6), fix_box2(0, 0, 2, 6), fix_box2(2, 0, 2, 6) };
    const rsd_box scalars[2] = { { 0 }, { 0 } };

    (void)state;
    refuse(2, sq, 2, twice, "the chunks [0:4, 0:6] and [0:4, 0:6] overlap");
    refuse(2, sq, 3, row, "the chunks [0:2, 0:6] and [0:2, 0:6] overlap");
    refuse(0, NULL, 2, scalars, "the chunks [] and [] overlap");
}

static void chunks_that_leave_a_hole_are_refused(void **state)
{
    const rsd_box start[] = { fix_box2(1, 0, 3, 6) };
    const rsd_box middle[] = { fix_box2(0, 0, 1, 6), fix_box2(2, 0, 2, 6) };
    const rsd_box end[] = { fix_box2(0, 0, 2, 6), fix_box2(2, 0, 1, 6) };
    const rsd_box cell[] = { fix_box2(0, 0, 2, 3), fix_box2(0, 3, 2, 3), fix_box2(2, 0, 2, 3) };

    (void)state;
    refuse(2, sq, 1, start, "chunks: ");
    refuse(2, sq, 2, middle, "chunks: ");
    refuse(2, sq, 2, end, "chunks: ");
    refuse(2, sq, 3, cell, "chunks: ");
}

static void no_chunks_at_all_are_refused(void **state)
{
    const rsd_box empty[] = { fix_box2(0, 0, 0, 6) };

    (void)state;
    refuse(2, sq, 0, empty, "");
    refuse(2, sq, 1, empty, "");
}

/* The right number of cells, but one of them twice and one not at all. */
static void a_grid_with_a_cell_twice_is_refused(void **state)
{
    const rsd_box box[] = { fix_box2(0, 0, 2, 3), fix_box2(0, 3, 2, 3), fix_box2(2, 0, 2, 3),
                            fix_box2(0, 3, 2, 3) };

    (void)state;
    refuse(2, sq, 4, box, "the chunks [0:2, 3:6] and [0:2, 3:6] overlap");
}

static rsd_err check_wheel(void *arg, rsd_error *err)
{
    return rsi_refuse_bad_tiles(2, sq, 5, get, arg, err);
}

static void checking_without_memory_fails_cleanly(void **state)
{
    rsd_box wheel[] = { fix_box2(0, 0, 1, 5), fix_box2(0, 5, 3, 1), fix_box2(3, 1, 1, 5),
                        fix_box2(1, 0, 3, 1), fix_box2(1, 1, 2, 4) };

    (void)state;
    fix_every_allocation(check_wheel, NULL, wheel);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_chunk_of_everything_is_accepted),
        cmocka_unit_test(slices_are_accepted_in_any_order),
        cmocka_unit_test(empty_chunks_are_no_matter),
        cmocka_unit_test(grids_are_accepted),
        cmocka_unit_test(irregular_tilings_are_accepted),
        cmocka_unit_test(chunks_that_overlap_are_refused),
        cmocka_unit_test(chunks_that_are_there_twice_are_refused),
        cmocka_unit_test(chunks_that_leave_a_hole_are_refused),
        cmocka_unit_test(no_chunks_at_all_are_refused),
        cmocka_unit_test(a_grid_with_a_cell_twice_is_refused),
        cmocka_unit_test(checking_without_memory_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
