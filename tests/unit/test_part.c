/* SPDX-License-Identifier: Apache-2.0 */
/* test_part.c - what one rank holds: its boxes, where they lie in its memory, how many bytes that
 * takes. Random layouts are left to test_random_plans.c. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "shape/box.h"
#include "shape/layout.h"

static const int64_t two_by_two[] = { 2, 2 };

/* A layout on ranks 0 .. 3 as a square. */
static rsd_layout *on_square(rsd_placement first, rsd_placement second, rsd_dtype dtype, int ndim,
                             const int64_t *shape)
{
    const rsd_placement place[] = { first, second };
    rsd_layout         *layout;
    rsd_mesh           *mesh;

    assert_int_equal(rsd_mesh_create(2, two_by_two, NULL, NULL, &mesh, NULL), RSD_OK);
    assert_int_equal(rsd_layout_create(mesh, place, dtype, ndim, shape, &layout, NULL), RSD_OK);
    rsd_mesh_free(mesh);
    return layout;
}

static rsd_layout *on_ranges(int ndim, const int64_t *shape, size_t n, const int32_t *owner,
                             const int64_t *start, const int64_t *count)
{
    rsd_layout *layout;

    assert_int_equal(
        rsd_layout_create_ranges(RSD_F32, ndim, shape, n, owner, start, count, &layout, NULL),
        RSD_OK);
    return layout;
}

static rsd_placement shard(int32_t dim)
{
    return (rsd_placement){ .kind = RSD_SHARD, .dim = dim };
}

static rsd_placement strided(int32_t dim, int64_t split)
{
    return (rsd_placement){ .kind = RSD_STRIDED, .dim = dim, .split = split };
}

static const rsd_placement replicate = { .kind = RSD_REPLICATE };

/* Box i of the rank is `box` in words and starts `offset` bytes into its memory. */
static void assert_local(const rsd_layout *layout, int32_t rank, size_t i, const char *box,
                         int64_t offset, const int64_t *stride)
{
    rsd_local local;
    char      text[RSI_BOX_TEXT];

    assert_int_equal(rsd_layout_local(layout, rank, i, &local, NULL), RSD_OK);
    rsd_box_text(&local.box, text, sizeof(text));
    assert_string_equal(text, box);
    assert_int_equal(local.offset, offset);
    for (int d = 0; d < local.box.ndim; d++)
        assert_int_equal(local.stride[d], stride[d]);
}

/* ---- meshes --------------------------------------------------------------------------------- */

static const int64_t eleven_by_five[] = { 11, 5 };

static void uneven_strided_shard_lies_in_one_dense_local_tensor(void **state)
{
    /* rows 0 1 4 5 8 9 | 2 3 6 7 10, columns 0 1 2 | 3 4 */
    rsd_layout   *layout = on_square(strided(0, 3), shard(1), RSD_F32, 2, eleven_by_five);
    const int64_t wide[] = { 12, 4 }, narrow[] = { 8, 4 };

    (void)state;
    assert_local(layout, 0, 0, "[0:2, 0:3]", 0, wide);
    assert_local(layout, 0, 1, "[4:6, 0:3]", 24, wide);
    assert_local(layout, 0, 2, "[8:10, 0:3]", 48, wide);
    assert_local(layout, 3, 0, "[2:4, 3:5]", 0, narrow);
    assert_local(layout, 3, 1, "[6:8, 3:5]", 16, narrow);
    assert_local(layout, 3, 2, "[10:11, 3:5]", 32, narrow);
    rsd_layout_free(layout);
}

static void bytes_of_a_rank_are_those_of_its_local_tensor(void **state)
{
    rsd_layout *layout = on_square(strided(0, 3), shard(1), RSD_F32, 2, eleven_by_five);

    (void)state;
    assert_int_equal(rsd_layout_bytes(layout, 0), 6 * 3 * 4);
    assert_int_equal(rsd_layout_bytes(layout, 1), 6 * 2 * 4);
    assert_int_equal(rsd_layout_bytes(layout, 2), 5 * 3 * 4);
    assert_int_equal(rsd_layout_bytes(layout, 3), 5 * 2 * 4);
    assert_int_equal(rsd_layout_bytes(layout, 4), 0);
    assert_int_equal(rsd_layout_bytes(layout, -1), 0);
    rsd_layout_free(layout);
}

static void strided_columns_are_interleaved_in_the_local_rows(void **state)
{
    /* columns 0 2 | 1 3 of 2 x 4; all rows on both ranks of the other axis */
    const int64_t shape[] = { 2, 4 }, stride[] = { 4, 2 };
    rsd_layout   *layout = on_square(replicate, strided(1, 2), RSD_BF16, 2, shape);

    (void)state;
    assert_local(layout, 1, 0, "[0:2, 1:2]", 0, stride);
    assert_local(layout, 1, 1, "[0:2, 3:4]", 2, stride);
    assert_local(layout, 2, 1, "[0:2, 2:3]", 2, stride);
    rsd_layout_free(layout);
}

static void boxes_of_a_mesh_come_in_row_major_order(void **state)
{
    const int64_t shape[] = { 4, 4 }, stride[] = { 8, 4 };
    rsd_layout   *layout = on_square(strided(0, 2), strided(1, 2), RSD_I32, 2, shape);

    (void)state;
    assert_int_equal(rsd_layout_boxes(layout, 3, NULL, 0), 4);
    assert_local(layout, 3, 0, "[1:2, 1:2]", 0, stride);
    assert_local(layout, 3, 1, "[1:2, 3:4]", 4, stride);
    assert_local(layout, 3, 2, "[3:4, 1:2]", 8, stride);
    assert_local(layout, 3, 3, "[3:4, 3:4]", 12, stride);
    rsd_layout_free(layout);
}

static void shards_of_shards_that_a_stride_tore_apart_keep_their_order(void **state)
{
    /* rows 0 1 4 5 8 9 of the first axis, cut in two: 0 1 4 | 5 8 9 */
    const int64_t n = 11, stride = 1;
    rsd_layout   *layout = on_square(strided(0, 3), shard(0), RSD_U8, 1, &n);

    (void)state;
    assert_local(layout, 0, 0, "[0:2]", 0, &stride);
    assert_local(layout, 0, 1, "[4:5]", 2, &stride);
    assert_local(layout, 1, 0, "[5:6]", 0, &stride);
    assert_local(layout, 1, 1, "[8:10]", 1, &stride);
    assert_local(layout, 2, 0, "[2:4]", 0, &stride);
    assert_local(layout, 2, 1, "[6:7]", 2, &stride);
    assert_local(layout, 3, 0, "[7:8]", 0, &stride);
    assert_local(layout, 3, 1, "[10:11]", 1, &stride);
    rsd_layout_free(layout);
}

static void replicated_and_partial_ranks_hold_the_whole_tensor(void **state)
{
    const rsd_placement sum = { .kind = RSD_PARTIAL, .reduce = RSD_SUM };
    const int64_t       shape[] = { 2, 3, 4 }, stride[] = { 96, 32, 8 };
    rsd_layout         *layout = on_square(replicate, sum, RSD_F64, 3, shape);

    (void)state;
    for (int32_t rank = 0; rank < 4; rank++) {
        assert_local(layout, rank, 0, "[0:2, 0:3, 0:4]", 0, stride);
        assert_int_equal(rsd_layout_boxes(layout, rank, NULL, 0), 1);
        assert_int_equal(rsd_layout_bytes(layout, rank), 192);
    }
    rsd_layout_free(layout);
}

static void scalar_is_one_box_at_the_start(void **state)
{
    rsd_layout *layout = on_square(replicate, replicate, RSD_C128, 0, NULL);

    (void)state;
    assert_local(layout, 3, 0, "[]", 0, NULL);
    assert_int_equal(rsd_layout_bytes(layout, 3), 16);
    rsd_layout_free(layout);
}

static void mesh_of_no_axes_holds_everything_on_its_one_rank(void **state)
{
    const int64_t n = 7, stride = 4;
    const int32_t rank = 5;
    rsd_layout   *layout;
    rsd_mesh     *mesh;

    (void)state;
    assert_int_equal(rsd_mesh_create(0, NULL, NULL, &rank, &mesh, NULL), RSD_OK);
    assert_int_equal(rsd_layout_create(mesh, NULL, RSD_F32, 1, &n, &layout, NULL), RSD_OK);
    rsd_mesh_free(mesh);
    assert_local(layout, 5, 0, "[0:7]", 0, &stride);
    assert_int_equal(rsd_layout_boxes(layout, 0, NULL, 0), 0);
    rsd_layout_free(layout);
}

static void bytes_and_strides_near_2_to_the_62_are_right(void **state)
{
    const int64_t half = (int64_t)1 << 30, shape[] = { 2 * half, half }, stride[] = { 2 * half, 2 };
    rsd_layout   *layout = on_square(shard(0), replicate, RSD_F16, 2, shape);

    (void)state;
    assert_local(layout, 3, 0, "[1073741824:2147483648, 0:1073741824]", 0, stride);
    assert_int_equal(rsd_layout_bytes(layout, 3), (int64_t)1 << 61);
    rsd_layout_free(layout);
}

/* ---- tables --------------------------------------------------------------------------------- */

static rsd_box block(int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    return (rsd_box){ .ndim = 2, .off = { row, column }, .len = { rows, columns } };
}

/* 4 x 6: rank 2 has two corners, rank 0 the two others and rank 7 one of its. */
static rsd_layout *corners(void)
{
    const int64_t shape[] = { 4, 6 };
    const int32_t owner[] = { 2, 0, 0, 2, 7 };
    const rsd_box box[] = { block(3, 1, 2, 4), block(0, 3, 2, 4), block(3, 1, 0, 2),
                            block(0, 3, 0, 2), block(3, 1, 0, 2) };
    rsd_layout   *layout;

    assert_int_equal(rsd_layout_create_boxes(RSD_F32, 2, shape, 5, owner, box, &layout, NULL),
                     RSD_OK);
    return layout;
}

static void boxes_of_a_table_are_packed_in_the_order_given(void **state)
{
    rsd_layout   *layout = corners();
    const int64_t wide[] = { 16, 4 }, narrow[] = { 8, 4 };

    (void)state;
    assert_local(layout, 2, 0, "[3:4, 2:6]", 0, wide);
    assert_local(layout, 2, 1, "[0:3, 0:2]", 16, narrow);
    assert_local(layout, 0, 0, "[0:3, 2:6]", 0, wide);
    assert_local(layout, 0, 1, "[3:4, 0:2]", 48, narrow);
    assert_local(layout, 7, 0, "[3:4, 0:2]", 0, narrow);
    rsd_layout_free(layout);
}

static void bytes_of_a_table_are_the_sum_of_the_boxes(void **state)
{
    rsd_layout *layout = corners();

    (void)state;
    assert_int_equal(rsd_layout_bytes(layout, 2), 40);
    assert_int_equal(rsd_layout_bytes(layout, 0), 56);
    assert_int_equal(rsd_layout_bytes(layout, 7), 8);
    assert_int_equal(rsd_layout_bytes(layout, 1), 0);
    assert_int_equal(rsd_layout_bytes(layout, 8), 0);
    rsd_layout_free(layout);
}

static void boxes_of_a_part_need_not_cover_the_tensor(void **state)
{
    const int64_t shape[] = { 100, 100 }, row[] = { 40, 2 }, column[] = { 2, 2 };
    const rsd_box box[] = { block(50, 2, 80, 20), block(0, 0, 0, 9), block(7, 9, 3, 1) };
    rsd_layout   *layout;

    (void)state;
    assert_int_equal(rsd_layout_create_part(RSD_F16, 2, shape, 4, 3, box, &layout, NULL), RSD_OK);
    assert_int_equal(rsd_layout_boxes(layout, 4, NULL, 0), 2);
    assert_int_equal(rsd_layout_boxes(layout, 0, NULL, 0), 0);
    assert_local(layout, 4, 0, "[50:52, 80:100]", 0, row);
    assert_local(layout, 4, 1, "[7:16, 3:4]", 80, column);
    assert_int_equal(rsd_layout_bytes(layout, 4), 98);
    rsd_layout_free(layout);
}

static void range_of_the_flat_tensor_is_one_piece_of_memory(void **state)
{
    const int64_t shape[] = { 5, 3 }, stride[] = { 12, 4 }, two[] = { 8, 4 }, one[] = { 4, 4 };
    rsd_layout   *layout = on_ranges(2, shape, 4, (int32_t[]){ 0, 1, 2, 3 },
                                     (int64_t[]){ 0, 4, 8, 12 }, (int64_t[]){ 4, 4, 4, 3 });

    (void)state;
    assert_local(layout, 0, 0, "[0:1, 0:3]", 0, stride);
    assert_local(layout, 0, 1, "[1:2, 0:1]", 12, one);
    assert_local(layout, 1, 0, "[1:2, 1:3]", 0, two);
    assert_local(layout, 1, 1, "[2:3, 0:2]", 8, two);
    assert_int_equal(rsd_layout_bytes(layout, 1), 16);
    rsd_layout_free(layout);
}

/* Flat number of the first element of a box. */
static int64_t flat_start(int ndim, const int64_t *shape, const rsd_box *box)
{
    int64_t at = 0;

    for (int d = 0; d < ndim; d++)
        at = at * shape[d] + box->off[d];
    return at;
}

/* Every range: boxes in flat order with nothing between them, at most 2 * ndim - 1 of them, each
 * one contiguous: behind its first dimension longer than 1 all dimensions are whole. */
static void assert_all_ranges(int ndim, const int64_t *shape, int64_t elems)
{
    for (int64_t from = 0; from <= elems; from++)
        for (int64_t to = from; to <= elems; to++) {
            const int64_t start[] = { 0, from, to }, count[] = { from, to - from, elems - to };
            rsd_layout   *layout = on_ranges(ndim, shape, 3, (int32_t[]){ 0, 1, 2 }, start, count);
            rsd_box       box[16];
            size_t        n = rsd_layout_boxes(layout, 1, box, 16);
            int64_t       at = from;

            assert_true(n <= 2 * (size_t)ndim - 1);
            for (size_t i = 0; i < n; i++) {
                bool whole = false;

                assert_int_equal(flat_start(ndim, shape, &box[i]), at);
                for (int d = 0; d < ndim; d++) {
                    assert_true(!whole || box[i].len[d] == shape[d]);
                    whole = whole || box[i].len[d] > 1;
                }
                at += rsd_box_count(&box[i]);
            }
            assert_int_equal(at, to);
            rsd_layout_free(layout);
        }
}

static void all_ranges_of_small_tensors_are_few_boxes_in_flat_order(void **state)
{
    (void)state;
    assert_all_ranges(1, (int64_t[]){ 9 }, 9);
    assert_all_ranges(2, (int64_t[]){ 4, 6 }, 24);
    assert_all_ranges(3, (int64_t[]){ 3, 3, 4 }, 36);
    assert_all_ranges(5, (int64_t[]){ 1, 3, 1, 4, 2 }, 24);
}

/* ---- limits --------------------------------------------------------------------------------- */

/* Takes the layout. */
static void assert_no_box(rsd_layout *layout, int32_t rank, size_t i, const char *why)
{
    rsd_local local = { .offset = -7 };
    rsd_error err;

    assert_int_equal(rsd_layout_local(layout, rank, i, &local, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, why);
    assert_int_equal(local.offset, -7);
    rsd_layout_free(layout);
}

static void box_that_a_rank_has_not_is_refused(void **state)
{
    const rsd_placement first = strided(0, 3), second = shard(1);

    (void)state;
    assert_no_box(on_square(first, second, RSD_F32, 2, eleven_by_five), 3, 3,
                  "rank 3 has no box 3, it holds 3");
    assert_no_box(on_square(first, second, RSD_F32, 2, eleven_by_five), 4, 0,
                  "rank 4 has no box 0, it holds 0");
    assert_no_box(on_square(first, second, RSD_F32, 2, eleven_by_five), -1, 0,
                  "rank -1 has no box 0, it holds 0");
    assert_no_box(corners(), 2, 2, "rank 2 has no box 2, it holds 2");
    assert_no_box(corners(), 1, 0, "rank 1 has no box 0, it holds 0");
    assert_no_box(NULL, 0, 0, "missing argument: layout or output pointer");
}

static void answer_without_a_place_for_it_is_refused(void **state)
{
    rsd_layout *layout = corners();

    (void)state;
    assert_int_equal(rsd_layout_local(layout, 2, 0, NULL, NULL), RSD_E_INVALID);
    rsd_layout_free(layout);
}

/* Only the first `cap` boxes are written, all are counted. Takes the layout. */
static void assert_cap_is_kept(rsd_layout *layout, int32_t rank, size_t n)
{
    rsd_box all[8], some[8];

    assert_int_equal(rsd_layout_boxes(layout, rank, all, 8), n);
    for (size_t cap = 0; cap <= n; cap++) {
        memset(some, 0x5a, sizeof(some));
        assert_int_equal(rsd_layout_boxes(layout, rank, some, cap), n);
        for (size_t i = 0; i < cap; i++)
            assert_true(rsi_box_equal(&some[i], &all[i]));
        assert_int_equal(some[cap].ndim, 0x5a5a5a5a);
        assert_int_equal(some[cap].off[0], 0x5a5a5a5a5a5a5a5a);
    }
    rsd_layout_free(layout);
}

static void boxes_beyond_the_cap_are_counted_and_not_written(void **state)
{
    (void)state;
    assert_cap_is_kept(on_square(strided(0, 3), shard(1), RSD_F32, 2, eleven_by_five), 3, 3);
    assert_cap_is_kept(corners(), 2, 2);
    assert_cap_is_kept(corners(), 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uneven_strided_shard_lies_in_one_dense_local_tensor),
        cmocka_unit_test(bytes_of_a_rank_are_those_of_its_local_tensor),
        cmocka_unit_test(strided_columns_are_interleaved_in_the_local_rows),
        cmocka_unit_test(boxes_of_a_mesh_come_in_row_major_order),
        cmocka_unit_test(shards_of_shards_that_a_stride_tore_apart_keep_their_order),
        cmocka_unit_test(replicated_and_partial_ranks_hold_the_whole_tensor),
        cmocka_unit_test(scalar_is_one_box_at_the_start),
        cmocka_unit_test(mesh_of_no_axes_holds_everything_on_its_one_rank),
        cmocka_unit_test(bytes_and_strides_near_2_to_the_62_are_right),
        cmocka_unit_test(boxes_of_a_table_are_packed_in_the_order_given),
        cmocka_unit_test(bytes_of_a_table_are_the_sum_of_the_boxes),
        cmocka_unit_test(boxes_of_a_part_need_not_cover_the_tensor),
        cmocka_unit_test(range_of_the_flat_tensor_is_one_piece_of_memory),
        cmocka_unit_test(all_ranges_of_small_tensors_are_few_boxes_in_flat_order),
        cmocka_unit_test(box_that_a_rank_has_not_is_refused),
        cmocka_unit_test(answer_without_a_place_for_it_is_refused),
        cmocka_unit_test(boxes_beyond_the_cap_are_counted_and_not_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
