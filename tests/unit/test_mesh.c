/* SPDX-License-Identifier: Apache-2.0 */
/* test_mesh.c - which rank stands where on a grid, on slices of it and on slices of those. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "shape/mesh.h"

static const int64_t     two_three_four[] = { 2, 3, 4 };
static const char *const pp_dp_tp[] = { "pp", "dp", "tp" };

static rsd_mesh *mesh_of(int ndim, const int64_t *shape, const char *const *axis,
                         const int32_t *ranks)
{
    rsd_mesh *mesh;

    assert_int_equal(rsd_mesh_create(ndim, shape, axis, ranks, &mesh, NULL), RSD_OK);
    return mesh;
}

/* Takes the mesh. */
static rsd_mesh *slice_of(rsd_mesh *mesh, const char *axis, int64_t index)
{
    rsd_mesh *slice;

    assert_int_equal(rsd_mesh_slice(mesh, axis, index, &slice, NULL), RSD_OK);
    rsd_mesh_free(mesh);
    return slice;
}

/* All ranks in row-major order, found by their place and their place found by them; no others are
 * in it. Takes the mesh. */
static void assert_ranks(rsd_mesh *mesh, int64_t n, const int32_t *want)
{
    int64_t coord[RSD_MAX_NDIM] = { 0 }, back[RSD_MAX_NDIM];
    int     ndim = rsd_mesh_ndim(mesh);
    int32_t highest = -1;

    assert_int_equal(rsd_mesh_size(mesh, -1), n);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(rsd_mesh_rank(mesh, coord), want[i]);
        assert_true(rsd_mesh_coord(mesh, want[i], back));
        for (int a = 0; a < ndim; a++)
            assert_int_equal(back[a], coord[a]);
        highest = want[i] > highest ? want[i] : highest;
        for (int a = ndim - 1; a >= 0 && ++coord[a] == rsd_mesh_size(mesh, a); a--)
            coord[a] = 0;
    }
    assert_int_equal(mesh->world, highest + 1);
    for (int32_t rank = -3; rank < highest + 30; rank++) {
        bool in = false;

        for (int64_t i = 0; i < n; i++)
            in = in || want[i] == rank;
        assert_int_equal(rsd_mesh_coord(mesh, rank, NULL), in);
    }
    rsd_mesh_free(mesh);
}

static void assert_refused(int ndim, const int64_t *shape, const char *const *axis,
                           const int32_t *ranks, const char *why)
{
    rsd_mesh *const before = (rsd_mesh *)(uintptr_t)&two_three_four;
    int64_t         bytes = rsi_mem_stats_get().bytes;
    rsd_mesh       *mesh = before;
    rsd_error       err;

    assert_int_equal(rsd_mesh_create(ndim, shape, axis, ranks, &mesh, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, why);
    assert_ptr_equal(mesh, before);
    assert_int_equal(rsi_mem_stats_get().bytes, bytes);
}

/* ---- meshes --------------------------------------------------------------------------------- */

static void ranks_count_in_row_major_order(void **state)
{
    rsd_mesh     *mesh = mesh_of(3, two_three_four, pp_dp_tp, NULL);
    const int64_t coord[] = { 1, 2, 3 }, other[] = { 1, 0, 2 };
    int32_t       want[24];

    (void)state;
    assert_int_equal(rsd_mesh_rank(mesh, coord), 23);
    assert_int_equal(rsd_mesh_rank(mesh, other), 14);
    for (int32_t i = 0; i < 24; i++)
        want[i] = i;
    assert_ranks(mesh, 24, want);
}

static void listed_ranks_stand_where_they_were_listed(void **state)
{
    const int64_t shape[] = { 2, 3 };
    const int32_t ranks[] = { 7, 1, 40, 3, 0, 12 };
    rsd_mesh     *mesh = mesh_of(2, shape, NULL, ranks);
    const int64_t coord[] = { 1, 0 };

    (void)state;
    assert_int_equal(rsd_mesh_rank(mesh, coord), 3);
    assert_ranks(mesh, 6, ranks);
}

static void list_that_counts_takes_no_memory_for_ranks(void **state)
{
    const int32_t counting[] = { 0, 1, 2, 3 }, shifted[] = { 1, 2, 3, 4 };
    const int64_t four = 4;
    rsd_mesh     *mesh = mesh_of(1, &four, NULL, counting);

    (void)state;
    assert_null(mesh->ranks);
    assert_ranks(mesh, 4, counting);
    mesh = mesh_of(1, &four, NULL, shifted);
    assert_non_null(mesh->ranks);
    assert_ranks(mesh, 4, shifted);
}

static void sizes_and_names_of_axes_are_told(void **state)
{
    rsd_mesh *mesh = mesh_of(3, two_three_four, pp_dp_tp, NULL);

    (void)state;
    assert_int_equal(rsd_mesh_ndim(mesh), 3);
    assert_int_equal(rsd_mesh_size(mesh, 0), 2);
    assert_int_equal(rsd_mesh_size(mesh, 2), 4);
    assert_int_equal(rsd_mesh_size(mesh, -1), 24);
    assert_string_equal(rsd_mesh_axis(mesh, 0), "pp");
    assert_string_equal(rsd_mesh_axis(mesh, 2), "tp");
    assert_null(rsd_mesh_axis(mesh, 3));
    assert_null(rsd_mesh_axis(mesh, -1));
    assert_int_equal(rsi_mesh_axis_index(mesh, "dp"), 1);
    assert_int_equal(rsi_mesh_axis_index(mesh, "d"), -1);
    rsd_mesh_free(mesh);
}

static void axes_without_names_are_numbered(void **state)
{
    const int64_t ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const char    want[8][2] = { "0", "1", "2", "3", "4", "5", "6", "7" };
    rsd_mesh     *mesh = mesh_of(8, ones, NULL, NULL);

    (void)state;
    for (int a = 0; a < 8; a++)
        assert_string_equal(rsd_mesh_axis(mesh, a), want[a]);
    assert_ranks(mesh, 1, (int32_t[]){ 0 });
}

static void mesh_of_no_axes_is_one_rank(void **state)
{
    (void)state;
    assert_ranks(mesh_of(0, NULL, NULL, NULL), 1, (int32_t[]){ 0 });
    assert_ranks(mesh_of(0, NULL, NULL, (int32_t[]){ 5 }), 1, (int32_t[]){ 5 });
}

static void mesh_of_two_billion_ranks_takes_no_memory_for_them(void **state)
{
    const int64_t shape[] = { 2, 1073741823 }, coord[] = { 1, 1073741822 };
    int64_t       before = rsi_mem_stats_get().bytes, back[2];
    rsd_mesh     *mesh = mesh_of(2, shape, NULL, NULL);

    (void)state;
    assert_true(rsi_mem_stats_get().bytes - before < 4096);
    assert_int_equal(rsd_mesh_rank(mesh, coord), 2147483645);
    assert_true(rsd_mesh_coord(mesh, 2147483645, back));
    assert_int_equal(back[1], 1073741822);
    assert_false(rsd_mesh_coord(mesh, 2147483646, NULL));
    assert_false(rsd_mesh_coord(mesh, INT32_MAX, NULL));
    assert_false(rsd_mesh_coord(mesh, INT32_MIN, NULL));
    rsd_mesh_free(mesh);
}

static void freeing_nothing_is_fine(void **state)
{
    (void)state;
    rsd_mesh_free(NULL);
}

/* ---- slices --------------------------------------------------------------------------------- */

static void slice_has_the_other_axes(void **state)
{
    rsd_mesh *slice = slice_of(mesh_of(3, two_three_four, pp_dp_tp, NULL), "dp", 2);

    (void)state;
    assert_int_equal(rsd_mesh_ndim(slice), 2);
    assert_string_equal(rsd_mesh_axis(slice, 0), "pp");
    assert_string_equal(rsd_mesh_axis(slice, 1), "tp");
    assert_int_equal(rsd_mesh_size(slice, 0), 2);
    assert_int_equal(rsd_mesh_size(slice, 1), 4);
    rsd_mesh_free(slice);
}

static void slice_of_a_counting_mesh_has_these_ranks(void **state)
{
    (void)state;
    assert_ranks(slice_of(mesh_of(3, two_three_four, pp_dp_tp, NULL), "pp", 1), 12,
                 (int32_t[]){ 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23 });
    assert_ranks(slice_of(mesh_of(3, two_three_four, pp_dp_tp, NULL), "dp", 2), 8,
                 (int32_t[]){ 8, 9, 10, 11, 20, 21, 22, 23 });
    assert_ranks(slice_of(mesh_of(3, two_three_four, pp_dp_tp, NULL), "tp", 3), 6,
                 (int32_t[]){ 3, 7, 11, 15, 19, 23 });
}

static void slice_of_a_slice_of_a_counting_mesh_has_these_ranks(void **state)
{
    rsd_mesh *slice = slice_of(mesh_of(3, two_three_four, pp_dp_tp, NULL), "dp", 1);

    (void)state;
    assert_ranks(slice_of(slice, "tp", 2), 2, (int32_t[]){ 6, 18 });
    slice = slice_of(mesh_of(3, two_three_four, pp_dp_tp, NULL), "tp", 2);
    assert_ranks(slice_of(slice, "pp", 1), 3, (int32_t[]){ 14, 18, 22 });
}

static void slice_of_every_axis_is_one_rank(void **state)
{
    rsd_mesh *slice = slice_of(mesh_of(3, two_three_four, pp_dp_tp, NULL), "tp", 3);

    (void)state;
    slice = slice_of(slice, "pp", 1);
    slice = slice_of(slice, "dp", 0);
    assert_int_equal(rsd_mesh_ndim(slice), 0);
    assert_ranks(slice, 1, (int32_t[]){ 15 });
}

static const int32_t twelve[] = { 11, 0, 22, 3, 44, 5, 66, 7, 88, 9, 100, 111 };
static const int64_t two_two_three[] = { 2, 2, 3 };

static void slice_of_a_listed_mesh_has_these_ranks(void **state)
{
    (void)state;
    assert_ranks(slice_of(mesh_of(3, two_two_three, pp_dp_tp, twelve), "pp", 1), 6,
                 (int32_t[]){ 66, 7, 88, 9, 100, 111 });
    assert_ranks(slice_of(mesh_of(3, two_two_three, pp_dp_tp, twelve), "dp", 0), 6,
                 (int32_t[]){ 11, 0, 22, 66, 7, 88 });
    assert_ranks(slice_of(mesh_of(3, two_two_three, pp_dp_tp, twelve), "tp", 1), 4,
                 (int32_t[]){ 0, 44, 7, 100 });
}

static void slice_of_a_slice_of_a_listed_mesh_has_these_ranks(void **state)
{
    rsd_mesh *slice = slice_of(mesh_of(3, two_two_three, pp_dp_tp, twelve), "tp", 1);

    (void)state;
    assert_ranks(slice_of(slice, "pp", 1), 2, (int32_t[]){ 7, 100 });
    slice = slice_of(mesh_of(3, two_two_three, pp_dp_tp, twelve), "dp", 1);
    assert_ranks(slice_of(slice, "tp", 0), 2, (int32_t[]){ 3, 9 });
}

static void slices_on_an_axis_of_one_keep_all_ranks(void **state)
{
    const int64_t shape[] = { 2, 1, 3 };

    (void)state;
    assert_ranks(slice_of(mesh_of(3, shape, pp_dp_tp, NULL), "dp", 0), 6,
                 (int32_t[]){ 0, 1, 2, 3, 4, 5 });
    /* sizes of 1 in front of and behind a slice with gaps */
    assert_ranks(slice_of(mesh_of(3, (int64_t[]){ 1, 3, 2 }, pp_dp_tp, NULL), "tp", 1), 3,
                 (int32_t[]){ 1, 3, 5 });
    assert_ranks(slice_of(mesh_of(3, (int64_t[]){ 3, 1, 2 }, pp_dp_tp, NULL), "tp", 1), 3,
                 (int32_t[]){ 1, 3, 5 });
}

static void assert_slice_refused(const rsd_mesh *mesh, const char *axis, int64_t index,
                                 const char *why)
{
    rsd_mesh *const before = (rsd_mesh *)(uintptr_t)&two_three_four;
    rsd_mesh       *slice = before;
    rsd_error       err;

    assert_int_equal(rsd_mesh_slice(mesh, axis, index, &slice, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, why);
    assert_ptr_equal(slice, before);
}

static void slice_of_no_axis_or_no_place_is_refused(void **state)
{
    rsd_mesh *mesh = mesh_of(3, two_three_four, pp_dp_tp, NULL);

    (void)state;
    assert_slice_refused(mesh, "ep", 0, "the mesh has no axis \"ep\"");
    assert_slice_refused(mesh, "dp", 3, "mesh axis \"dp\" has no index 3, its size is 3");
    assert_slice_refused(mesh, "dp", -1, "mesh axis \"dp\" has no index -1, its size is 3");
    assert_slice_refused(mesh, NULL, 0, "missing argument: mesh, axis or output pointer");
    assert_slice_refused(NULL, "dp", 0, "missing argument: mesh, axis or output pointer");
    assert_int_equal(rsd_mesh_slice(mesh, "dp", 0, NULL, NULL), RSD_E_INVALID);
    rsd_mesh_free(mesh);
}

/* ---- equal ---------------------------------------------------------------------------------- */

static void assert_equal(rsd_mesh *a, rsd_mesh *b, bool want)
{
    assert_int_equal(rsi_mesh_equal(a, b), want);
    assert_int_equal(rsi_mesh_equal(b, a), want);
    rsd_mesh_free(a);
    rsd_mesh_free(b);
}

static void meshes_are_equal_if_axes_and_ranks_are(void **state)
{
    const int32_t     back[] = { 1, 0, 2 }, other[] = { 0, 2, 1 }, counting[] = { 0, 1, 2 };
    const int64_t     three = 3, row[] = { 1, 3 };
    const char *const dp[] = { "dp" }, *const tp[] = { "tp" };

    (void)state;
    assert_equal(mesh_of(1, &three, dp, NULL), mesh_of(1, &three, dp, counting), true);
    assert_equal(mesh_of(1, &three, dp, back), mesh_of(1, &three, dp, back), true);
    assert_equal(mesh_of(1, &three, dp, back), mesh_of(1, &three, dp, other), false);
    assert_equal(mesh_of(1, &three, dp, back), mesh_of(1, &three, dp, NULL), false);
    assert_equal(mesh_of(1, &three, dp, NULL), mesh_of(1, &three, tp, NULL), false);
    assert_equal(mesh_of(1, &three, NULL, NULL), mesh_of(2, row, NULL, NULL), false);
    assert_equal(mesh_of(0, NULL, NULL, NULL), mesh_of(0, NULL, NULL, NULL), true);
}

static void slices_are_equal_if_they_are_the_same_slice(void **state)
{
    rsd_mesh *a = mesh_of(3, two_three_four, pp_dp_tp, NULL);
    rsd_mesh *b = mesh_of(3, two_three_four, pp_dp_tp, NULL);

    (void)state;
    assert_equal(slice_of(a, "dp", 1), slice_of(b, "dp", 1), true);
    a = mesh_of(3, two_three_four, pp_dp_tp, NULL);
    b = mesh_of(3, two_three_four, pp_dp_tp, NULL);
    assert_equal(slice_of(a, "dp", 1), slice_of(b, "dp", 2), false);
}

/* ---- bad meshes ----------------------------------------------------------------------------- */

static void number_of_axes_that_can_not_be_is_refused(void **state)
{
    const int64_t nine[9] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };

    (void)state;
    assert_refused(9, nine, NULL, NULL, "a mesh can't have 9 axes: give 0 to 8 and a shape");
    assert_refused(-1, nine, NULL, NULL, "a mesh can't have -1 axes: give 0 to 8 and a shape");
    assert_refused(1, NULL, NULL, NULL, "a mesh can't have 1 axes: give 0 to 8 and a shape");
    assert_int_equal(rsd_mesh_create(1, nine, NULL, NULL, NULL, NULL), RSD_E_INVALID);
}

static void axis_without_ranks_is_refused_and_named(void **state)
{
    const int64_t     zero[] = { 2, 0 }, negative[] = { -4, 2 };
    const char *const names[] = { "dp", "tp" };

    (void)state;
    assert_refused(2, zero, names, NULL, "mesh axis \"tp\" has the size 0");
    assert_refused(2, negative, names, NULL, "mesh axis \"dp\" has the size -4");
    assert_refused(2, zero, NULL, NULL, "mesh axis \"1\" has the size 0");
}

static void axis_named_twice_is_refused(void **state)
{
    const char *const names[] = { "dp", "tp", "dp" };

    (void)state;
    assert_refused(3, two_three_four, names, NULL, "mesh axis \"dp\" is named twice");
}

static void name_that_the_text_form_could_not_tell_is_refused(void **state)
{
    static const char *const bad[] = { "", "a b", "a=b", "a;b", "d\xc3\xa9", "ranks", "a@", "#a" };
    char                     want[64];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *const names[] = { "ok", bad[i], "tp" };

        snprintf(want, sizeof(want), "mesh axis 1 can't be named \"%s\"", bad[i]);
        assert_refused(3, two_three_four, names, NULL, want);
    }
    assert_refused(3, two_three_four, (const char *const[]){ "a", "b", NULL }, NULL,
                   "mesh axis 2 can't be named \"\"");
}

static void words_with_dashes_and_digits_are_names(void **state)
{
    static const char *const names[] = { "dp-1_X", "9", "-" };

    (void)state;
    rsd_mesh_free(mesh_of(3, two_three_four, names, NULL));
}

static void rank_listed_twice_is_refused_and_named(void **state)
{
    const int64_t four = 4;
    const int32_t ranks[] = { 8, 3, 5, 3 };

    (void)state;
    assert_refused(1, &four, NULL, ranks, "rank 3 is in the mesh twice");
}

static void rank_that_can_not_be_is_refused_and_named(void **state)
{
    const int64_t two = 2;

    (void)state;
    assert_refused(1, &two, NULL, (int32_t[]){ 0, -1 }, "a mesh can't contain rank -1");
    assert_refused(1, &two, NULL, (int32_t[]){ INT32_MAX, 0 },
                   "a mesh can't contain rank 2147483647");
    assert_refused(0, NULL, NULL, (int32_t[]){ -5 }, "a mesh can't contain rank -5");
}

static void mesh_of_too_many_ranks_is_refused(void **state)
{
    const int64_t     most = INT32_MAX, huge[] = { (int64_t)1 << 32, (int64_t)1 << 32 };
    const char *const why = "a mesh can't have more than 2147483646 ranks";

    (void)state;
    assert_refused(1, &most, NULL, NULL, why);
    assert_refused(2, huge, NULL, NULL, why);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void nth_allocation_that_fails_leaves_no_mesh(void **state)
{
    rsd_mesh *const before = (rsd_mesh *)(uintptr_t)&two_three_four;
    uint64_t        n;

    (void)state;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        for (n = 1;; n++) {
            int64_t   bytes = rsi_mem_stats_get().bytes;
            rsd_mesh *mesh = before;
            rsd_err   rc;

            rsi_mem_fail_at(n, for_ever);
            rc = rsd_mesh_create(3, two_two_three, pp_dp_tp, twelve, &mesh, NULL);
            rsi_mem_fail_at(0, 0);
            if (!rc) {
                rsd_mesh_free(mesh);
                break;
            }
            assert_int_equal(rc, RSD_E_NOMEM);
            assert_ptr_equal(mesh, before);
            assert_int_equal(rsi_mem_stats_get().bytes, bytes);
        }
        assert_true(n > 2);
    }
}

static void nth_allocation_that_fails_leaves_no_slice(void **state)
{
    rsd_mesh *const before = (rsd_mesh *)(uintptr_t)&two_three_four;
    rsd_mesh       *mesh = mesh_of(3, two_two_three, pp_dp_tp, twelve);
    uint64_t        n;

    (void)state;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        for (n = 1;; n++) {
            int64_t   bytes = rsi_mem_stats_get().bytes;
            rsd_mesh *slice = before;
            rsd_err   rc;

            rsi_mem_fail_at(n, for_ever);
            rc = rsd_mesh_slice(mesh, "dp", 1, &slice, NULL);
            rsi_mem_fail_at(0, 0);
            if (!rc) {
                rsd_mesh_free(slice);
                break;
            }
            assert_int_equal(rc, RSD_E_NOMEM);
            assert_ptr_equal(slice, before);
            assert_int_equal(rsi_mem_stats_get().bytes, bytes);
        }
        assert_true(n > 2);
    }
    rsd_mesh_free(mesh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_count_in_row_major_order),
        cmocka_unit_test(listed_ranks_stand_where_they_were_listed),
        cmocka_unit_test(list_that_counts_takes_no_memory_for_ranks),
        cmocka_unit_test(sizes_and_names_of_axes_are_told),
        cmocka_unit_test(axes_without_names_are_numbered),
        cmocka_unit_test(mesh_of_no_axes_is_one_rank),
        cmocka_unit_test(mesh_of_two_billion_ranks_takes_no_memory_for_them),
        cmocka_unit_test(freeing_nothing_is_fine),
        cmocka_unit_test(slice_has_the_other_axes),
        cmocka_unit_test(slice_of_a_counting_mesh_has_these_ranks),
        cmocka_unit_test(slice_of_a_slice_of_a_counting_mesh_has_these_ranks),
        cmocka_unit_test(slice_of_every_axis_is_one_rank),
        cmocka_unit_test(slice_of_a_listed_mesh_has_these_ranks),
        cmocka_unit_test(slice_of_a_slice_of_a_listed_mesh_has_these_ranks),
        cmocka_unit_test(slices_on_an_axis_of_one_keep_all_ranks),
        cmocka_unit_test(slice_of_no_axis_or_no_place_is_refused),
        cmocka_unit_test(meshes_are_equal_if_axes_and_ranks_are),
        cmocka_unit_test(slices_are_equal_if_they_are_the_same_slice),
        cmocka_unit_test(number_of_axes_that_can_not_be_is_refused),
        cmocka_unit_test(axis_without_ranks_is_refused_and_named),
        cmocka_unit_test(axis_named_twice_is_refused),
        cmocka_unit_test(name_that_the_text_form_could_not_tell_is_refused),
        cmocka_unit_test(words_with_dashes_and_digits_are_names),
        cmocka_unit_test(rank_listed_twice_is_refused_and_named),
        cmocka_unit_test(rank_that_can_not_be_is_refused_and_named),
        cmocka_unit_test(mesh_of_too_many_ranks_is_refused),
        cmocka_unit_test(nth_allocation_that_fails_leaves_no_mesh),
        cmocka_unit_test(nth_allocation_that_fails_leaves_no_slice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
