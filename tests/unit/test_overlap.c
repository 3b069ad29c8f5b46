/* SPDX-License-Identifier: Apache-2.0 */
/* test_overlap.c - the pieces of a rank's part, and that both ends of a move cut out the same ones.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/overlap.h"
#include "plan/piece_holders.h"
#include "plan_fixture.h"
#include "shape/box.h"

#include <string.h>

/* The two layouts at hand and the pieces of one rank. */
static rsd_layout  *mine, *other;
static rsi_arena    mem;
static rsi_overlaps pieces;

static int begin(void **state)
{
    (void)state;
    mine = other = NULL;
    mem = (rsi_arena){ 0 };
    return 0;
}

static int end(void **state)
{
    (void)state;
    rsi_arena_release(&mem);
    rsd_layout_free(mine);
    rsd_layout_free(other);
    return 0;
}

static void cut(int32_t rank)
{
    memset(&pieces, 0xee, sizeof(pieces));
    assert_int_equal(rsi_overlaps_make(&pieces, mine, other, rank, &mem, NULL), RSD_OK);
}

typedef struct expected {
    const char *box;
    size_t      my_box;
    int64_t     where, chunk;
} expected;

/* Number by number and by going through them. */
static void assert_pieces(size_t n, const expected *want)
{
    rsi_overlap_iter it;

    assert_int_equal(pieces.n, n);
    rsi_iter_begin(&it, &pieces);
    for (size_t i = 0; i < n; i++, rsi_iter_next(&it)) {
        rsd_box box;

        memset(&box, 0xee, sizeof(box));
        assert_int_equal(rsi_overlaps_get(&pieces, i, &box), want[i].my_box);
        assert_box(&box, want[i].box);
        assert_int_equal(rsi_overlaps_my_box(&pieces, &box), want[i].my_box);
        assert_int_equal(it.i, i);
        assert_int_equal(rsi_iter_where(&it), want[i].where);
        assert_int_equal(rsi_iter_chunk(&it), want[i].chunk);
        assert_int_equal(rsi_iter_count(&it), rsd_box_count(&box));
        if (!pieces.product)
            assert_int_equal(rsi_iter_my_box(&it), want[i].my_box);
    }
    assert_int_equal(it.i, n);
}

#define ASSERT_PIECES(...)                                                                         \
    assert_pieces(sizeof((expected[]){ __VA_ARGS__ }) / sizeof(expected),                          \
                  (expected[]){ __VA_ARGS__ })

/* ---- mesh to mesh: products ---- */

static void rows_against_columns_are_cut_at_the_columns(void **state)
{
    int64_t shape[] = { 4, 6 };

    (void)state;
    mine = fixture_layout("mesh a=2; * shard(0)@a", 2, shape);
    other = fixture_layout("mesh a=3; * shard(1)@a", 2, shape);
    cut(1);
    assert_true(pieces.product);
    ASSERT_PIECES({ "[2:4, 0:2]", 0, 0, 0 }, { "[2:4, 2:4]", 0, 1, 1 }, { "[2:4, 4:6]", 0, 2, 2 });
}

static void pieces_are_numbered_first_dimension_first(void **state)
{
    int64_t shape[] = { 4, 4 };

    (void)state;
    mine = fixture_layout("mesh a=1; * replicate", 2, shape);
    other = fixture_layout("mesh a=2 b=2; * shard(1)@a shard(0)@b", 2, shape);
    cut(0);
    /* rank 1 is (0, 1): columns 0:2, rows 2:4 */
    ASSERT_PIECES({ "[0:2, 0:2]", 0, 0, 0 }, { "[0:2, 2:4]", 0, 2, 2 }, { "[2:4, 0:2]", 0, 1, 1 },
                  { "[2:4, 2:4]", 0, 3, 3 });
}

static void strided_parts_have_a_box_for_each_run(void **state)
{
    int64_t shape[] = { 8 };

    (void)state;
    mine = fixture_layout("mesh a=2; * strided(0,2)@a", 1, shape); /* rank 1: 2:4, 6:8 */
    other = fixture_layout("mesh a=8; * shard(0)@a", 1, shape);
    cut(1);
    ASSERT_PIECES({ "[2:3]", 0, 2, 2 }, { "[3:4]", 0, 3, 3 }, { "[6:7]", 1, 6, 6 },
                  { "[7:8]", 1, 7, 7 });
}

static void boxes_of_a_product_are_counted_last_dimension_fastest(void **state)
{
    int64_t shape[] = { 8, 8 };

    (void)state;
    mine = fixture_layout("mesh a=2 b=2; * strided(0,2)@a strided(1,2)@b", 2, shape);
    other = fixture_layout("mesh a=2; * shard(0)@a", 2, shape);
    cut(3);
    ASSERT_PIECES({ "[2:4, 2:4]", 0, 0, 0 }, { "[2:4, 6:8]", 1, 0, 0 }, { "[6:8, 2:4]", 2, 1, 1 },
                  { "[6:8, 6:8]", 3, 1, 1 });
}

static void neighbouring_runs_of_one_owner_are_one_piece(void **state)
{
    int64_t shape[] = { 8 };

    (void)state;
    mine = fixture_layout("mesh a=1; * replicate", 1, shape);
    other = fixture_layout("mesh a=1; * strided(0,4)@a", 1, shape);
    cut(0);
    ASSERT_PIECES({ "[0:8]", 0, 0, 0 });
}

static void two_axes_on_one_dimension_cut_it_twice(void **state)
{
    int64_t shape[] = { 6 };

    (void)state;
    mine = fixture_layout("mesh a=2; * shard(0)@a", 1, shape);
    other = fixture_layout("mesh a=2 b=2; * shard(0)@a shard(0)@b", 1, shape); /* 2 1 2 1 */
    cut(1);
    ASSERT_PIECES({ "[3:5]", 0, 2, 2 }, { "[5:6]", 0, 3, 3 });
}

static void replicas_do_not_add_to_where_or_chunk(void **state)
{
    int64_t shape[] = { 4 };

    (void)state;
    mine = fixture_layout("mesh a=1; * replicate", 1, shape);
    other = fixture_layout("mesh s=2 r=3; * shard(0)@s", 1, shape);
    cut(0);
    ASSERT_PIECES({ "[0:2]", 0, 0, 0 }, { "[2:4]", 0, 3, 1 }); /* ranks 0 1 2 and 3 4 5 */
}

static void a_slice_of_a_mesh_is_found_where_it_lies(void **state)
{
    int64_t shape[] = { 4 };

    (void)state;
    mine = fixture_layout("mesh a=1; * replicate", 1, shape);
    other = fixture_layout("mesh x=2 y=2; * shard(0)@y on x=1", 1, shape);
    cut(0);
    ASSERT_PIECES({ "[0:2]", 0, 2, 0 }, { "[2:4]", 0, 3, 1 });
}

static void listed_ranks_are_told_by_their_place(void **state)
{
    int64_t shape[] = { 4 };

    (void)state;
    mine = fixture_layout("mesh a=2 ranks=9,5; * shard(0)@a", 1, shape);
    other = fixture_layout("mesh a=4 ranks=7,3,2,6; * shard(0)@a", 1, shape);
    cut(5);
    ASSERT_PIECES({ "[2:3]", 0, 2, 2 }, { "[3:4]", 0, 3, 3 });
}

static void a_scalar_is_one_piece(void **state)
{
    (void)state;
    mine = fixture_layout("mesh a=2; * replicate", 0, NULL);
    other = fixture_layout("mesh a=3; * replicate", 0, NULL);
    cut(1);
    ASSERT_PIECES({ "[]", 0, 0, 0 });
}

static void chunks_are_counted_over_the_axes_that_shard(void **state)
{
    int64_t shape[] = { 8, 8 }, first[] = { 1, 2, 3 }, second[] = { 0, 1, 2 };

    (void)state;
    mine = fixture_layout("mesh a=2 r=3 b=4; * shard(0)@a shard(1)@b", 2, shape);
    assert_int_equal(rsi_layout_chunk(mine, first), 7); /* 1 * 4 + 3 */
    assert_int_equal(rsi_layout_chunk(mine, second), 2);
}

/* ---- parts that hold nothing ---- */

static void a_rank_outside_has_no_pieces(void **state)
{
    int64_t shape[] = { 4 };
    rsd_box all = fixture_box1(0, 4);
    int32_t owner = 2;

    (void)state;
    mine = fixture_layout("mesh a=2; * shard(0)@a", 1, shape);
    assert_int_equal(rsd_layout_create_boxes(RSD_F32, 1, shape, 1, &owner, &all, &other, NULL),
                     RSD_OK);
    cut(2);
    assert_int_equal(pieces.n, 0);
    assert_int_equal(rsi_overlaps_make(&pieces, other, mine, 1, &mem, NULL), RSD_OK);
    assert_int_equal(pieces.n, 0);
}

static void a_rank_with_an_empty_shard_has_no_pieces(void **state)
{
    int64_t shape[] = { 5, 2 };

    (void)state;
    mine = fixture_layout("mesh a=4; * shard(0)@a", 2, shape); /* 2 2 1 0 */
    other = fixture_layout("mesh a=1; * replicate", 2, shape);
    cut(3);
    assert_int_equal(pieces.n, 0);
    cut(2);
    ASSERT_PIECES({ "[4:5, 0:2]", 0, 0, 0 });
}

static void owners_with_empty_shards_get_no_piece(void **state)
{
    int64_t shape[] = { 5 };

    (void)state;
    mine = fixture_layout("mesh a=1; * replicate", 1, shape);
    other = fixture_layout("mesh a=4; * shard(0)@a", 1, shape);
    cut(0);
    ASSERT_PIECES({ "[0:2]", 0, 0, 0 }, { "[2:4]", 0, 1, 1 }, { "[4:5]", 0, 2, 2 });
}

static void a_tensor_of_size_0_has_no_pieces(void **state)
{
    int64_t shape[] = { 3, 0 };

    (void)state;
    mine = fixture_layout("mesh a=3; * shard(0)@a", 2, shape);
    other = fixture_layout("mesh a=2; * shard(1)@a", 2, shape);
    for (int32_t rank = 0; rank < 3; rank++) {
        rsi_overlap_iter it;

        cut(rank);
        assert_int_equal(pieces.n, 0);
        rsi_iter_begin(&it, &pieces);
        assert_int_equal(it.i, 0);
    }
}

/* ---- tables: lists ---- */

static rsd_layout *table_of(int ndim, const int64_t *shape, size_t n, const int32_t *owner,
                            const rsd_box *box)
{
    rsd_layout *layout;

    assert_int_equal(rsd_layout_create_boxes(RSD_F32, ndim, shape, n, owner, box, &layout, NULL),
                     RSD_OK);
    return layout;
}

static void a_table_against_a_table_is_cut_at_its_rows(void **state)
{
    int64_t shape[] = { 4, 4 };
    int32_t owner[] = { 0, 1 };
    rsd_box left_right[] = { fixture_box2(0, 4, 0, 2), fixture_box2(0, 4, 2, 4) };
    rsd_box top_bottom[] = { fixture_box2(0, 1, 0, 4), fixture_box2(1, 4, 0, 4) };

    (void)state;
    mine = table_of(2, shape, 2, owner, left_right);
    other = table_of(2, shape, 2, owner, top_bottom);
    cut(1);
    assert_false(pieces.product);
    ASSERT_PIECES({ "[0:1, 2:4]", 0, 0, 0 }, { "[1:4, 2:4]", 0, 1, 1 });
}

static void pieces_of_a_table_are_sorted_but_keep_their_boxes(void **state)
{
    int64_t shape[] = { 4, 4 };
    int32_t owner[] = { 0, 0, 1 };
    rsd_box box[] = { fixture_box2(2, 4, 0, 4), fixture_box2(0, 2, 0, 2),
                      fixture_box2(0, 2, 2, 4) };

    (void)state;
    mine = table_of(2, shape, 3, owner, box);
    other = fixture_layout("mesh a=2; * shard(1)@a", 2, shape);
    cut(0);
    ASSERT_PIECES({ "[0:2, 0:2]", 1, 0, 0 }, { "[2:4, 0:2]", 0, 0, 0 }, { "[2:4, 2:4]", 0, 1, 1 });
}

static void a_mesh_against_a_table_is_listed(void **state)
{
    int64_t shape[] = { 8 };
    int32_t owner[] = { 0, 5, 6 };
    rsd_box box[] = { fixture_box1(0, 3), fixture_box1(3, 7), fixture_box1(7, 8) };

    (void)state;
    mine = fixture_layout("mesh a=2; * strided(0,2)@a", 1, shape); /* rank 1: 2:4, 6:8 */
    other = table_of(1, shape, 3, owner, box);
    cut(1);
    assert_false(pieces.product);
    ASSERT_PIECES({ "[2:3]", 0, 0, 0 }, { "[3:4]", 0, 1, 1 }, { "[6:7]", 1, 1, 1 },
                  { "[7:8]", 1, 2, 2 });
}

static void equal_boxes_of_a_table_are_one_row(void **state)
{
    int64_t shape[] = { 4 };
    int32_t owner[] = { 3, 1, 2 };
    rsd_box box[] = { fixture_box1(2, 4), fixture_box1(2, 4), fixture_box1(0, 2) };

    (void)state;
    mine = fixture_layout("mesh a=1; * replicate", 1, shape);
    other = table_of(1, shape, 3, owner, box);
    cut(0);
    ASSERT_PIECES({ "[0:2]", 0, 0, 0 }, { "[2:4]", 0, 1, 1 });
}

static void a_table_against_a_slice_of_a_mesh_finds_it_where_it_lies(void **state)
{
    int64_t shape[] = { 4 };
    int32_t owner[] = { 0, 1 };
    rsd_box box[] = { fixture_box1(0, 3), fixture_box1(3, 4) };

    (void)state;
    mine = table_of(1, shape, 2, owner, box);
    other = fixture_layout("mesh x=2 y=2; * shard(0)@y on x=1", 1, shape);
    cut(0);
    ASSERT_PIECES({ "[0:2]", 0, 2, 0 }, { "[2:3]", 0, 3, 1 });
}

static void a_scalar_in_a_table_is_one_piece(void **state)
{
    int32_t owner = 0;
    rsd_box box = { .ndim = 0 };

    (void)state;
    mine = table_of(0, NULL, 1, &owner, &box);
    other = fixture_layout("mesh a=2; * replicate", 0, NULL);
    cut(0);
    ASSERT_PIECES({ "[]", 0, 0, 0 });
    assert_int_equal(rsi_overlaps_make(&pieces, other, mine, 1, &mem, NULL), RSD_OK);
    ASSERT_PIECES({ "[]", 0, 0, 0 });
}

static void a_part_against_a_mesh_has_only_its_own_pieces(void **state)
{
    int64_t shape[] = { 10 };
    rsd_box box = fixture_box1(4, 7);

    (void)state;
    assert_int_equal(rsd_layout_create_part(RSD_F32, 1, shape, 3, 1, &box, &mine, NULL), RSD_OK);
    other = fixture_layout("mesh a=2; * shard(0)@a", 1, shape);
    cut(3);
    ASSERT_PIECES({ "[4:5]", 0, 0, 0 }, { "[5:7]", 0, 1, 1 });
}

/* ---- both ends ---- */

/* Pieces of `from` on rank r that rank s holds in `to`, in their order. */
static size_t pieces_between(const rsd_layout *from, const rsd_layout *to, int32_t r, int32_t s,
                             rsd_box *out)
{
    rsi_side         side;
    rsi_overlaps     p;
    rsi_overlap_iter it;
    size_t           n = 0;

    rsi_side_make(&side, to, s, false);
    assert_int_equal(rsi_overlaps_make(&p, from, to, r, &mem, NULL), RSD_OK);
    for (rsi_iter_begin(&it, &p); it.i < p.n; rsi_iter_next(&it))
        if (rsi_side_have(&side, rsi_iter_where(&it), 0)) {
            assert_true(n < 100);
            rsi_overlaps_get(&p, it.i, &out[n++]);
        }
    return n;
}

static void assert_both_ends_agree(void)
{
    rsd_box there[100], back[100];
    size_t  all = 0;

    for (int32_t r = 0; r < 8; r++)
        for (int32_t s = 0; s < 8; s++) {
            size_t n = pieces_between(mine, other, r, s, there);

            assert_int_equal(pieces_between(other, mine, s, r, back), n);
            for (size_t i = 0; i < n; i++) {
                assert_true(rsi_box_equal(&there[i], &back[i]));
                assert_true(i == 0 || rsi_box_order(&there[i - 1], &there[i]) < 0);
            }
            all += n;
        }
    assert_true(all > 0);
}

static void both_ends_of_two_meshes_cut_the_same_boxes(void **state)
{
    static const char *const rules[] = {
        "mesh a=8; * shard(0)@a",
        "mesh a=8; * shard(1)@a",
        "mesh a=2 b=4; * strided(0,4)@a shard(0)@b",
        "mesh a=2 b=3; * strided(0,3)@a strided(1,2)@b",
        "mesh a=2 b=2 ranks=6,1,4,3; * shard(1)@a shard(1)@b",
        "mesh a=4 b=2; * strided(0,5)@b strided(0,3)@a",
        "mesh a=3 b=2; * shard(0)@a",
    };
    size_t  n = sizeof(rules) / sizeof(rules[0]);
    int64_t shape[] = { 23, 9 };

    (void)state;
    for (size_t i = 0; i < n * n; i++) {
        rsd_layout_free(mine);
        rsd_layout_free(other);
        mine = fixture_layout(rules[i / n], 2, shape);
        other = fixture_layout(rules[i % n], 2, shape);
        assert_both_ends_agree();
    }
}

static void both_ends_of_a_mesh_and_a_table_cut_the_same_boxes(void **state)
{
    int64_t shape[] = { 7, 10 }, start[] = { 0, 13, 40 }, count[] = { 13, 27, 30 };
    int32_t owner[] = { 5, 0, 2 };

    (void)state;
    assert_int_equal(
        rsd_layout_create_ranges(RSD_F32, 2, shape, 3, owner, start, count, &other, NULL), RSD_OK);
    mine = fixture_layout("mesh a=2 b=2; * strided(0,2)@a strided(1,3)@b", 2, shape);
    assert_both_ends_agree();
}

static void both_ends_of_two_tables_cut_the_same_boxes(void **state)
{
    int64_t shape[] = { 7, 10 };
    int64_t start[] = { 0, 13, 40 }, count[] = { 13, 27, 30 };
    int64_t start2[] = { 50, 0, 29, 31 }, count2[] = { 20, 29, 2, 19 };
    int32_t owner[] = { 5, 0, 2 }, owner2[] = { 0, 1, 0, 7 };

    (void)state;
    assert_int_equal(
        rsd_layout_create_ranges(RSD_F32, 2, shape, 3, owner, start, count, &mine, NULL), RSD_OK);
    assert_int_equal(
        rsd_layout_create_ranges(RSD_F32, 2, shape, 4, owner2, start2, count2, &other, NULL),
        RSD_OK);
    assert_both_ends_agree();
}

/* ---- no memory ---- */

static rsd_err cut_both_ways(void *arg, rsd_error *err)
{
    rsi_arena    scratch = { 0 };
    rsi_overlaps p;
    rsd_err      rc = rsi_overlaps_make(&p, mine, other, 0, &scratch, err);

    (void)arg;
    if (!rc)
        rc = rsi_overlaps_make(&p, other, mine, 0, &scratch, err);
    rsi_arena_release(&scratch);
    return rc;
}

static void no_memory_for_a_product_is_reported(void **state)
{
    int64_t shape[] = { 100, 100 };

    (void)state;
    mine = fixture_layout("mesh a=1; * replicate", 2, shape);
    other = fixture_layout("mesh a=1 b=100; * shard(0)@a shard(1)@b", 2, shape);
    assert_survives_no_memory(cut_both_ways, NULL);
}

static void no_memory_for_a_list_is_reported(void **state)
{
    int64_t shape[] = { 40, 30 }, start[] = { 0, 333 }, count[] = { 333, 867 };
    int32_t owner[] = { 0, 1 };

    (void)state;
    assert_int_equal(
        rsd_layout_create_ranges(RSD_F32, 2, shape, 2, owner, start, count, &mine, NULL), RSD_OK);
    other = fixture_layout("mesh a=2; * strided(1,15)@a", 2, shape);
    assert_survives_no_memory(cut_both_ways, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rows_against_columns_are_cut_at_the_columns),
        TEST(pieces_are_numbered_first_dimension_first),
        TEST(strided_parts_have_a_box_for_each_run),
        TEST(boxes_of_a_product_are_counted_last_dimension_fastest),
        TEST(neighbouring_runs_of_one_owner_are_one_piece),
        TEST(two_axes_on_one_dimension_cut_it_twice),
        TEST(replicas_do_not_add_to_where_or_chunk),
        TEST(a_slice_of_a_mesh_is_found_where_it_lies),
        TEST(listed_ranks_are_told_by_their_place),
        TEST(a_scalar_is_one_piece),
        TEST(chunks_are_counted_over_the_axes_that_shard),
        TEST(a_rank_outside_has_no_pieces),
        TEST(a_rank_with_an_empty_shard_has_no_pieces),
        TEST(owners_with_empty_shards_get_no_piece),
        TEST(a_tensor_of_size_0_has_no_pieces),
        TEST(a_table_against_a_table_is_cut_at_its_rows),
        TEST(pieces_of_a_table_are_sorted_but_keep_their_boxes),
        TEST(a_mesh_against_a_table_is_listed),
        TEST(equal_boxes_of_a_table_are_one_row),
        TEST(a_table_against_a_slice_of_a_mesh_finds_it_where_it_lies),
        TEST(a_scalar_in_a_table_is_one_piece),
        TEST(a_part_against_a_mesh_has_only_its_own_pieces),
        TEST(both_ends_of_two_meshes_cut_the_same_boxes),
        TEST(both_ends_of_a_mesh_and_a_table_cut_the_same_boxes),
        TEST(both_ends_of_two_tables_cut_the_same_boxes),
        TEST(no_memory_for_a_product_is_reported),
        TEST(no_memory_for_a_list_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
