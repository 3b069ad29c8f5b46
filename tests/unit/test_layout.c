/* SPDX-License-Identifier: Apache-2.0 */
/* test_layout.c - every way to make a layout: what is refused and why, flat ranges as boxes, when
 * two are equal. All that a rank holds is test_part.c's, layouts in words are test_rules.c's. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "shape/box.h"
#include "shape/layout.h"

static const int64_t       two_by_two[] = { 2, 2 }, four_by_six[] = { 4, 6 }, ten = 10;
static const char *const   dp_tp[] = { "dp", "tp" };
static const rsd_placement replicate = { .kind = RSD_REPLICATE };
static const rsd_placement shard_0 = { .kind = RSD_SHARD, .dim = 0 };
static const rsd_placement shard_1 = { .kind = RSD_SHARD, .dim = 1 };
static const rsd_placement strided = { .kind = RSD_STRIDED, .dim = 0, .split = 2 };
static const rsd_placement sum = { .kind = RSD_PARTIAL, .reduce = RSD_SUM };

static rsd_mesh *mesh_2d(const int32_t *ranks)
{
    rsd_mesh *mesh;

    assert_int_equal(rsd_mesh_create(2, two_by_two, dp_tp, ranks, &mesh, NULL), RSD_OK);
    return mesh;
}

/* A 4 x 6 float32 tensor on a mesh that it takes. */
static rsd_layout *on_mesh(rsd_mesh *mesh, rsd_placement first, rsd_placement second)
{
    const rsd_placement place[] = { first, second };
    rsd_layout         *layout;

    assert_int_equal(rsd_layout_create(mesh, place, RSD_F32, 2, four_by_six, &layout, NULL),
                     RSD_OK);
    rsd_mesh_free(mesh);
    return layout;
}

static rsd_layout *on_ranges(int ndim, const int64_t *shape, size_t n, const int32_t *owner,
                             const int64_t *start, const int64_t *count)
{
    rsd_layout *layout;
    rsd_error   err;

    if (rsd_layout_create_ranges(RSD_F32, ndim, shape, n, owner, start, count, &layout, &err))
        fail_msg("%s", err.msg);
    return layout;
}

static rsd_box row_box(int64_t off, int64_t len)
{
    return (rsd_box){ .ndim = 1, .off = { off }, .len = { len } };
}

/* ---- refusing ------------------------------------------------------------------------------- */

static rsd_layout *const untouched = (rsd_layout *)(uintptr_t)&ten;

/* The call names `layout` and `err`; it makes no layout and tells why. */
#define assert_refused(call, why) assert_error(call, RSD_E_INVALID, why)
#define assert_error(call, want_code, why)                                                         \
    do {                                                                                           \
        int64_t     bytes = rsi_mem_stats_get().bytes;                                             \
        rsd_layout *layout = untouched;                                                            \
        rsd_error   err;                                                                           \
                                                                                                   \
        assert_int_equal(call, want_code);                                                         \
        assert_string_equal(err.msg, why);                                                         \
        assert_ptr_equal(layout, untouched);                                                       \
        assert_int_equal(rsi_mem_stats_get().bytes, bytes);                                        \
    } while (0)

static void refuse_places(rsd_placement first, rsd_placement second, int ndim, const char *why)
{
    const rsd_placement place[] = { first, second };
    rsd_mesh           *mesh = mesh_2d(NULL);

    assert_refused(rsd_layout_create(mesh, place, RSD_F32, ndim, four_by_six, &layout, &err), why);
    rsd_mesh_free(mesh);
}

static void layout_without_mesh_places_or_output_is_refused(void **state)
{
    const char *const why = "a layout needs a mesh and a placement for each axis";
    rsd_mesh         *mesh = mesh_2d(NULL);

    (void)state;
    assert_refused(rsd_layout_create(NULL, &sum, RSD_F32, 0, NULL, &layout, &err), why);
    assert_refused(rsd_layout_create(mesh, NULL, RSD_F32, 0, NULL, &layout, &err), why);
    assert_refused(rsd_layout_create(mesh, &sum, RSD_F32, 0, NULL, NULL, &err), why);
    rsd_mesh_free(mesh);
}

static void dimension_that_the_tensor_has_not_is_refused(void **state)
{
    rsd_placement below = { .kind = RSD_SHARD, .dim = -3 };
    rsd_placement beyond = { .kind = RSD_STRIDED, .dim = 2, .split = 2 };

    (void)state;
    refuse_places(below, shard_0, 2,
                  "axis \"dp\" shards dimension -3, but the tensor has 2 dimensions");
    refuse_places(replicate, beyond, 2,
                  "axis \"tp\" shards dimension 2, but the tensor has 2 dimensions");
    refuse_places(replicate, shard_0, 0,
                  "axis \"tp\" shards dimension 0, but the tensor has 0 dimensions");
    below.dim = INT32_MIN;
    refuse_places(below, shard_0, 2,
                  "axis \"dp\" shards dimension -2147483648, but the tensor has 2 dimensions");
}

static void split_factor_below_1_is_refused(void **state)
{
    (void)state;
    refuse_places(replicate, (rsd_placement){ .kind = RSD_STRIDED }, 2,
                  "axis \"tp\" has the split factor 0");
    refuse_places((rsd_placement){ .kind = RSD_STRIDED, .split = -4 }, shard_0, 2,
                  "axis \"dp\" has the split factor -4");
}

static void unknown_placement_or_reduction_is_refused(void **state)
{
    (void)state;
    refuse_places((rsd_placement){ 0 }, shard_0, 2, "axis \"dp\" has no placement of kind 0");
    refuse_places(shard_0, (rsd_placement){ .kind = (rsd_place_kind)5 }, 2,
                  "axis \"tp\" has no placement of kind 5");
    refuse_places((rsd_placement){ .kind = RSD_PARTIAL }, shard_0, 2,
                  "axis \"dp\" is partial with the reduction 0");
    refuse_places((rsd_placement){ .kind = RSD_PARTIAL, .reduce = (rsd_reduce)6 }, shard_0, 2,
                  "axis \"dp\" is partial with the reduction 6");
}

static void axes_that_reduce_differently_are_unsupported(void **state)
{
    const rsd_placement place[] = { sum, { .kind = RSD_PARTIAL, .reduce = RSD_MAX } };
    rsd_mesh           *mesh = mesh_2d(NULL);

    (void)state;
    assert_error(rsd_layout_create(mesh, place, RSD_F32, 2, four_by_six, &layout, &err),
                 RSD_E_UNSUPPORTED,
                 "axis \"tp\" is partial with another reduction than an axis before it");
    rsd_mesh_free(mesh);
}

static void shape_that_can_not_be_is_refused_by_every_way(void **state)
{
    const char *const why = "dimension 0 has the size -1";
    const int64_t     bad = -1, zero = 0;
    const int32_t     owner = 0;
    const rsd_box     box = row_box(0, 0);
    rsd_mesh         *mesh = mesh_2d(NULL);
    rsd_placement     place[] = { shard_0, shard_0 };

    (void)state;
    assert_refused(rsd_layout_create(mesh, place, RSD_F32, 1, &bad, &layout, &err), why);
    assert_refused(rsd_layout_create_chunked(0, 1, &owner, RSD_F32, 1, &bad, &layout, &err), why);
    assert_refused(rsd_layout_create_boxes(RSD_F32, 1, &bad, 1, &owner, &box, &layout, &err), why);
    assert_refused(
        rsd_layout_create_ranges(RSD_F32, 1, &bad, 1, &owner, &zero, &zero, &layout, &err), why);
    assert_refused(rsd_layout_create_part(RSD_F32, 1, &bad, 0, 1, &box, &layout, &err), why);
    assert_error(rsd_layout_create(mesh, place, RSD_F32, 9, &bad, &layout, &err), RSD_E_UNSUPPORTED,
                 "a tensor of 9 dimensions is not supported: the maximum is 8");
    rsd_mesh_free(mesh);
}

static void chunked_layout_without_good_ranks_is_refused(void **state)
{
    const int32_t twice[] = { 3, 1, 3 };

    (void)state;
    assert_refused(rsd_layout_create_chunked(0, 0, twice, RSD_F32, 1, &ten, &layout, &err),
                   "a chunked layout needs a list of ranks, 0 are given");
    assert_refused(rsd_layout_create_chunked(0, 3, NULL, RSD_F32, 1, &ten, &layout, &err),
                   "a chunked layout needs a list of ranks, 3 are given");
    assert_refused(
        rsd_layout_create_chunked(0, (size_t)INT32_MAX, twice, RSD_F32, 1, &ten, &layout, &err),
        "a chunked layout needs a list of ranks, 2147483647 are given");
    assert_refused(rsd_layout_create_chunked(0, 3, twice, RSD_F32, 1, &ten, &layout, &err),
                   "rank 3 is in the mesh twice");
    assert_refused(rsd_layout_create_chunked(1, 2, twice, RSD_F32, 1, &ten, &layout, &err),
                   "axis \"0\" shards dimension 1, but the tensor has 1 dimension");
    assert_refused(rsd_layout_create_chunked(0, 2, twice, RSD_F32, 1, &ten, NULL, &err),
                   "a layout needs a mesh and a placement for each axis");
}

static void refuse_boxes(const int32_t *owner, rsd_box first, rsd_box second, const char *why)
{
    const rsd_box box[] = { first, second };

    assert_refused(rsd_layout_create_boxes(RSD_F32, 1, &ten, 2, owner, box, &layout, &err), why);
}

static void boxes_that_do_not_tile_the_tensor_are_refused(void **state)
{
    const int32_t owner[] = { 4, 7 }, bad[] = { 4, -7 };

    (void)state;
    refuse_boxes(owner, row_box(0, 4), row_box(6, 4),
                 "the boxes leave a hole: no box holds element [4]; they cover 8 of 10 elements");
    refuse_boxes(owner, row_box(0, 6), row_box(5, 5),
                 "the box [0:6] of rank 4 overlaps the box [5:10] of rank 7");
    refuse_boxes(owner, row_box(0, 6), row_box(6, 5),
                 "box 1 of rank 7: [6:11] falls outside the tensor, dimension 0 has the size 10");
    refuse_boxes(bad, row_box(0, 6), row_box(6, 4), "box 1 can't belong to rank -7");
    refuse_boxes(NULL, row_box(0, 6), row_box(6, 4), "a layout of 2 boxes needs an owner for each");
    assert_refused(rsd_layout_create_boxes(RSD_F32, 1, &ten, 2, owner, NULL, &layout, &err),
                   "a layout of 2 boxes needs an owner for each");
    assert_refused(rsd_layout_create_boxes(RSD_F32, 1, &ten, 0, NULL, NULL, NULL, &err),
                   "a layout of 0 boxes needs an owner for each");
}

static void part_with_bad_boxes_is_refused(void **state)
{
    const rsd_box twice[] = { row_box(0, 4), row_box(0, 4) };
    const rsd_box outside[] = { row_box(8, 4) }, over[] = { row_box(0, 4), row_box(3, 4) };

    (void)state;
    assert_refused(rsd_layout_create_part(RSD_F32, 1, &ten, 5, 2, twice, &layout, &err),
                   "rank 5 is given the box [0:4] twice");
    assert_refused(rsd_layout_create_part(RSD_F32, 1, &ten, 5, 1, outside, &layout, &err),
                   "box 0 of rank 5: [8:12] falls outside the tensor, dimension 0 has the size 10");
    assert_refused(rsd_layout_create_part(RSD_F32, 1, &ten, 5, 2, over, &layout, &err),
                   "the box [0:4] of rank 5 overlaps the box [3:7] of rank 5");
    assert_refused(rsd_layout_create_part(RSD_F32, 1, &ten, -1, 2, over, &layout, &err),
                   "a part can't belong to rank -1");
    assert_refused(rsd_layout_create_part(RSD_F32, 1, &ten, 0, 2, NULL, &layout, &err),
                   "a part of 2 boxes needs the boxes");
}

static void refuse_ranges(int64_t start, int64_t count, const char *why)
{
    const int32_t owner[] = { 0, 1 };
    const int64_t starts[] = { 0, start }, counts[] = { 4, count };

    assert_refused(
        rsd_layout_create_ranges(RSD_F32, 1, &ten, 2, owner, starts, counts, &layout, &err), why);
}

static void ranges_that_do_not_tile_the_tensor_are_refused(void **state)
{
    const int32_t owner[] = { 0 };

    (void)state;
    refuse_ranges(4, 7, "range 1 of 7 elements from 4 on falls outside the tensor, it has 10");
    refuse_ranges(11, 0, "range 1 of 0 elements from 11 on falls outside the tensor, it has 10");
    refuse_ranges(-1, 3, "range 1 of 3 elements from -1 on falls outside the tensor, it has 10");
    refuse_ranges(4, -1, "range 1 of -1 elements from 4 on falls outside the tensor, it has 10");
    refuse_ranges(4, INT64_MAX,
                  "range 1 of 9223372036854775807 elements from 4 on falls outside the tensor, it "
                  "has 10");
    refuse_ranges(INT64_MAX, INT64_MAX,
                  "range 1 of 9223372036854775807 elements from 9223372036854775807 on falls "
                  "outside the tensor, it has 10");
    refuse_ranges(4, 5,
                  "the boxes leave a hole: no box holds element [9]; they cover 9 of 10 elements");
    refuse_ranges(3, 7, "the box [0:4] of rank 0 overlaps the box [3:10] of rank 1");
    assert_refused(rsd_layout_create_ranges(RSD_F32, 1, &ten, 1, owner, NULL, &ten, &layout, &err),
                   "a layout of 1 ranges needs owner, start and count");
    assert_refused(rsd_layout_create_ranges(RSD_F32, 1, &ten, 1, owner, &ten, &ten, NULL, &err),
                   "a layout of 1 ranges needs owner, start and count");
}

/* ---- flat ranges ---------------------------------------------------------------------------- */

/* The boxes of a rank, one behind the other in words. */
static void assert_boxes(const rsd_layout *layout, int32_t rank, const char *want)
{
    rsd_box box[16];
    char    text[RSI_BOX_TEXT] = "";
    size_t  n = rsd_layout_boxes(layout, rank, box, 16), len = 0;

    assert_true(n <= 16);
    for (size_t i = 0; i < n; i++)
        len += rsd_box_text(&box[i], text + len, sizeof(text) - len);
    assert_string_equal(text, want);
}

static void ranges_of_a_row_are_boxes(void **state)
{
    rsd_layout *layout = on_ranges(1, &ten, 3, (int32_t[]){ 2, 0, 1 }, (int64_t[]){ 0, 4, 9 },
                                   (int64_t[]){ 4, 5, 1 });

    (void)state;
    assert_boxes(layout, 0, "[4:9]");
    assert_boxes(layout, 1, "[9:10]");
    assert_boxes(layout, 2, "[0:4]");
    rsd_layout_free(layout);
}

static void range_of_a_matrix_is_a_rest_whole_rows_and_a_rest(void **state)
{
    rsd_layout *layout = on_ranges(2, four_by_six, 3, (int32_t[]){ 0, 1, 2 },
                                   (int64_t[]){ 0, 4, 17 }, (int64_t[]){ 4, 13, 7 });

    (void)state;
    assert_boxes(layout, 0, "[0:1, 0:4]");
    assert_boxes(layout, 1, "[0:1, 4:6][1:2, 0:6][2:3, 0:5]");
    assert_boxes(layout, 2, "[2:3, 5:6][3:4, 0:6]");
    rsd_layout_free(layout);
}

static void range_of_a_cube_is_at_most_5_boxes(void **state)
{
    const int64_t shape[] = { 4, 3, 4 };
    rsd_layout   *layout = on_ranges(3, shape, 3, (int32_t[]){ 0, 1, 2 }, (int64_t[]){ 0, 6, 42 },
                                     (int64_t[]){ 6, 36, 6 });

    (void)state;
    assert_boxes(layout, 0, "[0:1, 0:1, 0:4][0:1, 1:2, 0:2]");
    assert_boxes(layout, 1,
                 "[0:1, 1:2, 2:4][0:1, 2:3, 0:4][1:3, 0:3, 0:4][3:4, 0:1, 0:4][3:4, 1:2, 0:2]");
    assert_boxes(layout, 2, "[3:4, 1:2, 2:4][3:4, 2:3, 0:4]");
    rsd_layout_free(layout);
}

static void flat_parameter_of_fsdp1_is_cut_without_regard_to_rows(void **state)
{
    const int64_t shape[] = { 5, 3 };
    /* 15 elements, padded to 16, 4 on each of 4 ranks */
    rsd_layout *layout = on_ranges(2, shape, 4, (int32_t[]){ 0, 1, 2, 3 },
                                   (int64_t[]){ 0, 4, 8, 12 }, (int64_t[]){ 4, 4, 4, 3 });

    (void)state;
    assert_boxes(layout, 0, "[0:1, 0:3][1:2, 0:1]");
    assert_boxes(layout, 1, "[1:2, 1:3][2:3, 0:2]");
    assert_boxes(layout, 2, "[2:3, 2:3][3:4, 0:3]");
    assert_boxes(layout, 3, "[4:5, 0:3]");
    rsd_layout_free(layout);
}

static void range_of_everything_nothing_or_a_scalar_is_one_box_or_none(void **state)
{
    rsd_layout *layout = on_ranges(2, four_by_six, 2, (int32_t[]){ 0, 1 }, (int64_t[]){ 0, 24 },
                                   (int64_t[]){ 24, 0 });

    (void)state;
    assert_boxes(layout, 0, "[0:4, 0:6]");
    assert_boxes(layout, 1, "");
    assert_int_equal(rsd_layout_world(layout), 1);
    rsd_layout_free(layout);
    layout = on_ranges(0, NULL, 2, (int32_t[]){ 0, 1 }, (int64_t[]){ 0, 0 }, (int64_t[]){ 1, 1 });
    assert_boxes(layout, 1, "[]");
    rsd_layout_free(layout);
}

/* ---- facts ---------------------------------------------------------------------------------- */

static void layout_tells_dtype_shape_and_world(void **state)
{
    const int32_t ranks[] = { 9, 1, 30, 2 };
    rsd_layout   *layout = on_mesh(mesh_2d(ranks), shard_0, sum);
    int64_t       shape[3] = { 0, 0, -7 };

    (void)state;
    assert_int_equal(rsd_layout_dtype(layout), RSD_F32);
    assert_int_equal(rsd_layout_shape(layout, shape), 2);
    assert_int_equal(shape[0], 4);
    assert_int_equal(shape[1], 6);
    assert_int_equal(shape[2], -7);
    assert_int_equal(rsd_layout_shape(layout, NULL), 2);
    assert_int_equal(rsd_layout_world(layout), 31);
    rsd_layout_free(layout);
    rsd_layout_free(NULL);
}

static void world_of_a_table_is_behind_its_highest_rank(void **state)
{
    const rsd_box box = row_box(3, 4);
    rsd_layout   *layout;

    (void)state;
    assert_int_equal(rsd_layout_create_part(RSD_U8, 1, &ten, 41, 1, &box, &layout, NULL), RSD_OK);
    assert_int_equal(rsd_layout_world(layout), 42);
    rsd_layout_free(layout);
    assert_int_equal(rsd_layout_create_part(RSD_U8, 1, &ten, 41, 0, NULL, &layout, NULL), RSD_OK);
    assert_int_equal(rsd_layout_world(layout), 0);
    rsd_layout_free(layout);
}

static void layout_keeps_its_mesh_and_lives_for_its_last_user(void **state)
{
    int64_t     before = rsi_mem_stats_get().bytes;
    rsd_layout *layout = on_mesh(mesh_2d((int32_t[]){ 3, 2, 1, 0 }), shard_0, shard_1);

    (void)state;
    assert_boxes(layout, 3, "[0:2, 0:3]"); /* on_mesh has freed the mesh */
    assert_ptr_equal(rsi_layout_ref(layout), layout);
    rsd_layout_free(layout);
    assert_boxes(layout, 0, "[2:4, 3:6]");
    rsd_layout_free(layout);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

static void ways_are_the_ranks_along_axes_of_a_kind(void **state)
{
    rsd_layout *layout = on_mesh(mesh_2d(NULL), replicate, sum);

    (void)state;
    assert_int_equal(rsi_layout_ways(layout, RSD_REPLICATE), 2);
    assert_int_equal(rsi_layout_ways(layout, RSD_PARTIAL), 2);
    assert_int_equal(rsi_layout_ways(layout, RSD_SHARD), 1);
    rsd_layout_free(layout);
    layout = on_mesh(mesh_2d(NULL), replicate, replicate);
    assert_int_equal(rsi_layout_ways(layout, RSD_REPLICATE), 4);
    rsd_layout_free(layout);
}

/* ---- equal ---------------------------------------------------------------------------------- */

/* Takes both. */
static void assert_equal(rsd_layout *a, rsd_layout *b, bool want)
{
    assert_int_equal(rsd_layout_equal(a, b), want);
    assert_int_equal(rsd_layout_equal(b, a), want);
    assert_true(rsd_layout_equal(a, a));
    if (want)
        assert_true(a->hash == b->hash);
    rsd_layout_free(a);
    rsd_layout_free(b);
}

static void mesh_layouts_are_equal_if_mesh_and_placements_are(void **state)
{
    const int32_t       back[] = { 3, 2, 1, 0 };
    const rsd_placement last = { .kind = RSD_SHARD, .dim = -1, .split = 9, .reduce = RSD_MAX };
    const rsd_placement noisy = { .kind = RSD_REPLICATE, .dim = 77, .split = -1 };
    const rsd_placement split_3 = { .kind = RSD_STRIDED, .dim = 0, .split = 3 };
    const rsd_placement max = { .kind = RSD_PARTIAL, .reduce = RSD_MAX };

    (void)state;
    assert_equal(on_mesh(mesh_2d(NULL), noisy, last), on_mesh(mesh_2d(NULL), replicate, shard_1),
                 true);
    assert_equal(on_mesh(mesh_2d(back), sum, strided), on_mesh(mesh_2d(back), sum, strided), true);
    assert_equal(on_mesh(mesh_2d(back), sum, strided), on_mesh(mesh_2d(NULL), sum, strided), false);
    assert_equal(on_mesh(mesh_2d(NULL), shard_0, shard_1), on_mesh(mesh_2d(NULL), shard_1, shard_0),
                 false);
    assert_equal(on_mesh(mesh_2d(NULL), strided, shard_0), on_mesh(mesh_2d(NULL), split_3, shard_0),
                 false);
    assert_equal(on_mesh(mesh_2d(NULL), sum, shard_0), on_mesh(mesh_2d(NULL), max, shard_0), false);
    assert_equal(on_mesh(mesh_2d(NULL), sum, shard_0), on_mesh(mesh_2d(NULL), replicate, shard_0),
                 false);
}

static rsd_layout *on_rows(rsd_dtype dtype, int64_t n, const int32_t *owner, size_t boxes,
                           const rsd_box *box)
{
    rsd_layout *layout;

    assert_int_equal(rsd_layout_create_boxes(dtype, 1, &n, boxes, owner, box, &layout, NULL),
                     RSD_OK);
    return layout;
}

static void tables_are_equal_if_each_rank_has_the_same_boxes_in_the_same_order(void **state)
{
    const rsd_box box[] = { row_box(0, 4), row_box(4, 6) }, swapped[] = { box[1], box[0] };
    const rsd_box other[] = { row_box(0, 5), row_box(5, 5) };
    const rsd_box with_empty[] = { box[0], row_box(3, 0), box[1] };
    const int32_t both[] = { 0, 0 }, each[] = { 0, 1 }, back[] = { 1, 0 }, three[] = { 0, 9, 1 };

    (void)state;
    assert_equal(on_rows(RSD_U8, 10, each, 2, box), on_rows(RSD_U8, 10, back, 2, swapped), true);
    assert_equal(on_rows(RSD_U8, 10, each, 2, box), on_rows(RSD_U8, 10, three, 3, with_empty),
                 true);
    assert_equal(on_rows(RSD_U8, 10, both, 2, box), on_rows(RSD_U8, 10, both, 2, swapped), false);
    assert_equal(on_rows(RSD_U8, 10, each, 2, box), on_rows(RSD_U8, 10, back, 2, box), false);
    assert_equal(on_rows(RSD_U8, 10, each, 2, box), on_rows(RSD_U8, 10, each, 2, other), false);
    assert_equal(on_rows(RSD_U8, 10, each, 2, box), on_rows(RSD_I8, 10, each, 2, box), false);
}

static void formula_and_table_with_the_same_boxes_are_not_equal(void **state)
{
    const rsd_box box[] = { row_box(0, 5), row_box(5, 5) };
    const int32_t ranks[] = { 0, 1 };
    rsd_layout   *formula;

    (void)state;
    assert_int_equal(rsd_layout_create_chunked(0, 2, ranks, RSD_U8, 1, &ten, &formula, NULL),
                     RSD_OK);
    assert_equal(formula, on_rows(RSD_U8, 10, ranks, 2, box), false);
}

/* ---- memory --------------------------------------------------------------------------------- */

static rsd_err make_mesh_layout(rsd_layout **out, rsd_mesh *mesh)
{
    const rsd_placement place[] = { shard_0, sum };

    return rsd_layout_create(mesh, place, RSD_F32, 2, four_by_six, out, NULL);
}

static rsd_err make_chunked(rsd_layout **out, rsd_mesh *mesh)
{
    (void)mesh;
    return rsd_layout_create_chunked(0, 3, (int32_t[]){ 2, 5, 1 }, RSD_F32, 1, &ten, out, NULL);
}

static rsd_err make_boxes(rsd_layout **out, rsd_mesh *mesh)
{
    const rsd_box box[] = { row_box(4, 6), row_box(0, 4), row_box(4, 6) };

    (void)mesh;
    return rsd_layout_create_boxes(RSD_F32, 1, &ten, 3, (int32_t[]){ 2, 0, 1 }, box, out, NULL);
}

static rsd_err make_ranges(rsd_layout **out, rsd_mesh *mesh)
{
    (void)mesh;
    return rsd_layout_create_ranges(RSD_F32, 2, four_by_six, 2, (int32_t[]){ 0, 1 },
                                    (int64_t[]){ 0, 9 }, (int64_t[]){ 9, 15 }, out, NULL);
}

static rsd_err make_part(rsd_layout **out, rsd_mesh *mesh)
{
    const rsd_box box[] = { row_box(4, 6), row_box(0, 2) };

    (void)mesh;
    return rsd_layout_create_part(RSD_F32, 1, &ten, 3, 2, box, out, NULL);
}

static void nth_allocation_that_fails_leaves_no_layout(void **state)
{
    rsd_err (*const make[])(rsd_layout **, rsd_mesh *) = { make_mesh_layout, make_chunked,
                                                           make_boxes, make_ranges, make_part };
    rsd_mesh *mesh = mesh_2d(NULL);

    (void)state;
    for (size_t i = 0; i < 10; i++) {
        uint64_t n = 0;
        rsd_err  rc;

        do {
            int64_t     bytes = rsi_mem_stats_get().bytes;
            rsd_layout *layout = untouched;

            rsi_mem_fail_at(++n, i % 2);
            rc = make[i / 2](&layout, mesh);
            rsi_mem_fail_at(0, 0);
            if (!rc)
                rsd_layout_free(layout);
            else
                assert_ptr_equal(layout, untouched);
            assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
            assert_int_equal(rsi_mem_stats_get().bytes, bytes);
        } while (rc);
        assert_true(n > 1);
    }
    rsd_mesh_free(mesh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_without_mesh_places_or_output_is_refused),
        cmocka_unit_test(dimension_that_the_tensor_has_not_is_refused),
        cmocka_unit_test(split_factor_below_1_is_refused),
        cmocka_unit_test(unknown_placement_or_reduction_is_refused),
        cmocka_unit_test(axes_that_reduce_differently_are_unsupported),
        cmocka_unit_test(shape_that_can_not_be_is_refused_by_every_way),
        cmocka_unit_test(chunked_layout_without_good_ranks_is_refused),
        cmocka_unit_test(boxes_that_do_not_tile_the_tensor_are_refused),
        cmocka_unit_test(part_with_bad_boxes_is_refused),
        cmocka_unit_test(ranges_that_do_not_tile_the_tensor_are_refused),
        cmocka_unit_test(ranges_of_a_row_are_boxes),
        cmocka_unit_test(range_of_a_matrix_is_a_rest_whole_rows_and_a_rest),
        cmocka_unit_test(range_of_a_cube_is_at_most_5_boxes),
        cmocka_unit_test(flat_parameter_of_fsdp1_is_cut_without_regard_to_rows),
        cmocka_unit_test(range_of_everything_nothing_or_a_scalar_is_one_box_or_none),
        cmocka_unit_test(layout_tells_dtype_shape_and_world),
        cmocka_unit_test(world_of_a_table_is_behind_its_highest_rank),
        cmocka_unit_test(layout_keeps_its_mesh_and_lives_for_its_last_user),
        cmocka_unit_test(ways_are_the_ranks_along_axes_of_a_kind),
        cmocka_unit_test(mesh_layouts_are_equal_if_mesh_and_placements_are),
        cmocka_unit_test(tables_are_equal_if_each_rank_has_the_same_boxes_in_the_same_order),
        cmocka_unit_test(formula_and_table_with_the_same_boxes_are_not_equal),
        cmocka_unit_test(nth_allocation_that_fails_leaves_no_layout),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
