/* SPDX-License-Identifier: Apache-2.0 */
/* test_piece_holders.c - who holds a piece, which of the holders am I, who contributes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/piece_holders.h"
#include "plan_fixture.h"

static rsd_layout *layout;
static rsi_side    side;

static int end(void **state)
{
    (void)state;
    rsd_layout_free(layout);
    layout = NULL;
    return 0;
}

/* The side of a rank in a tensor of 8 x 8. */
static void see(const char *rules, int32_t rank, bool parts_apart)
{
    int64_t shape[] = { 8, 8 };

    rsd_layout_free(layout);
    layout = fixture_layout(rules, 2, shape);
    rsi_side_make(&side, layout, rank, parts_apart);
}

static void assert_holders(int64_t where, int64_t part, size_t n, const int32_t *want)
{
    assert_int_equal(rsi_side_copies(&side, where), n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(rsi_side_holder(&side, where, (int64_t)i, part), want[i]);
}

#define ASSERT_HOLDERS(where, part, ...)                                                           \
    assert_holders(where, part, sizeof((int32_t[]){ __VA_ARGS__ }) / sizeof(int32_t),              \
                   (int32_t[]){ __VA_ARGS__ })

static void a_sharded_piece_has_one_holder(void **state)
{
    (void)state;
    see("mesh a=4; * shard(0)@a", 2, true);
    assert_int_equal(side.copies.count, 1);
    assert_int_equal(side.parts.count, 1);
    assert_int_equal(side.my_where, 2);
    assert_int_equal(side.my_chunk, 2);
    assert_int_equal(side.my_copy, 0);
    ASSERT_HOLDERS(3, 0, 3);
}

static void replicas_are_numbered_along_their_axis(void **state)
{
    (void)state;
    see("mesh dp=2 tp=4; * shard(0)@tp", 6, true);
    assert_int_equal(side.my_copy, 1);
    assert_int_equal(side.my_chunk, 2);
    assert_int_equal(side.my_where, 2);
    ASSERT_HOLDERS(2, 0, 2, 6);
    ASSERT_HOLDERS(0, 0, 0, 4);
}

static void replicas_along_two_axes_are_numbered_row_major(void **state)
{
    (void)state;
    see("mesh a=2 s=2 b=2; * shard(0)@s", 7, true);
    assert_int_equal(side.my_copy, 3);
    assert_int_equal(side.my_where, 2);
    ASSERT_HOLDERS(2, 0, 2, 3, 6, 7);
    ASSERT_HOLDERS(0, 0, 0, 1, 4, 5);
}

static void listed_ranks_hold_by_their_place(void **state)
{
    (void)state;
    see("mesh a=4 ranks=7,5,3,1; * replicate", 5, true);
    assert_int_equal(side.my_copy, 1);
    ASSERT_HOLDERS(0, 0, 7, 5, 3, 1);
}

static void a_slice_holds_at_its_own_place(void **state)
{
    (void)state;
    see("mesh x=2 y=2 z=2; * shard(0)@z on x=1", 7, true);
    assert_true(side.inside);
    assert_int_equal(side.my_copy, 1);
    assert_int_equal(side.my_where, 5);
    ASSERT_HOLDERS(5, 0, 5, 7);
    ASSERT_HOLDERS(4, 0, 4, 6);
}

static void holding_is_told_for_every_rank(void **state)
{
    (void)state;
    see("mesh dp=2 tp=4; * shard(0)@tp", 0, true);
    for (int32_t rank = -1; rank < 10; rank++)
        assert_int_equal(rsi_side_holds(&side, 3, 0, rank), rank == 3 || rank == 7);
}

static void having_is_holding_by_myself(void **state)
{
    (void)state;
    see("mesh dp=2 tp=4; * shard(0)@tp", 6, true);
    for (int64_t where = 0; where < 4; where++)
        assert_int_equal(rsi_side_have(&side, where, 0), where == 2);
}

static void a_rank_outside_has_nothing(void **state)
{
    (void)state;
    see("mesh a=4; * replicate", 4, true);
    assert_false(side.inside);
    assert_false(rsi_side_have(&side, 0, 0));
    assert_false(rsi_side_holds(&side, 0, 0, 4));
    ASSERT_HOLDERS(0, 0, 0, 1, 2, 3);
}

/* ---- Partial ---- */

static void contributions_are_numbered_apart_from_copies(void **state)
{
    (void)state;
    see("mesh p=2 r=3; * partial(sum)@p", 4, true); /* at (1, 1) */
    assert_int_equal(side.parts.count, 2);
    assert_int_equal(side.my_part, 1);
    assert_int_equal(side.my_copy, 1);
    assert_int_equal(side.my_where, 0);
    ASSERT_HOLDERS(0, 0, 0, 1, 2);
    ASSERT_HOLDERS(0, 1, 3, 4, 5);
}

static void a_rank_holds_its_own_contribution_only(void **state)
{
    (void)state;
    see("mesh p=2 r=3; * partial(sum)@p", 4, true);
    assert_true(rsi_side_have(&side, 0, 1));
    assert_false(rsi_side_have(&side, 0, 0));
    assert_true(rsi_side_holds(&side, 0, 1, 5));
    assert_false(rsi_side_holds(&side, 0, 0, 5));
    assert_true(rsi_side_holds(&side, 0, 0, 2));
}

static void two_partial_axes_contribute_row_major(void **state)
{
    (void)state;
    see("mesh p=2 s=2 q=2; * partial(sum)@p shard(0)@s partial(sum)@q", 5, true);
    assert_int_equal(side.parts.count, 4); /* rank 5 is at (1, 0, 1) */
    assert_int_equal(side.my_part, 3);
    assert_int_equal(side.my_where, 0);
    ASSERT_HOLDERS(2, 0, 2);
    ASSERT_HOLDERS(2, 1, 3);
    ASSERT_HOLDERS(2, 2, 6);
    ASSERT_HOLDERS(2, 3, 7);
}

static void partial_axes_count_as_copies_when_parts_are_not_apart(void **state)
{
    (void)state;
    see("mesh p=2 r=3; * partial(sum)@p", 4, false);
    assert_int_equal(side.parts.count, 1);
    assert_int_equal(side.my_part, 0);
    assert_int_equal(side.my_copy, 4);
    ASSERT_HOLDERS(0, 0, 0, 1, 2, 3, 4, 5);
}

/* ---- tables ---- */

static void see_table(int32_t rank)
{
    int64_t shape[] = { 4 };
    int32_t owner[] = { 3, 4, 1, 4 };
    rsd_box box[] = { fixture_box1(3, 4), fixture_box1(0, 2), fixture_box1(0, 2),
                      fixture_box1(2, 3) };

    rsd_layout_free(layout);
    assert_int_equal(rsd_layout_create_boxes(RSD_F32, 1, shape, 4, owner, box, &layout, NULL),
                     RSD_OK);
    rsi_side_make(&side, layout, rank, true);
}

static void holders_of_a_row_are_rising_ranks(void **state)
{
    (void)state;
    see_table(0);
    assert_false(side.inside);
    ASSERT_HOLDERS(0, 0, 1, 4);
    ASSERT_HOLDERS(1, 0, 4);
    ASSERT_HOLDERS(2, 0, 3);
}

static void a_row_is_held_by_its_holders_only(void **state)
{
    (void)state;
    see_table(4);
    assert_true(rsi_side_holds(&side, 0, 0, 1));
    assert_true(rsi_side_holds(&side, 0, 0, 4));
    assert_false(rsi_side_holds(&side, 0, 0, 3));
    assert_true(rsi_side_have(&side, 0, 0));
    assert_true(rsi_side_have(&side, 1, 0));
    assert_false(rsi_side_have(&side, 2, 0));
}

static void my_box_in_a_table_is_its_row_and_my_place_among_the_holders(void **state)
{
    int64_t chunk, copy;

    (void)state;
    see_table(4);
    rsi_side_mine(&side, 0, &chunk, &copy);
    assert_int_equal(chunk, 0);
    assert_int_equal(copy, 1);
    rsi_side_mine(&side, 1, &chunk, &copy);
    assert_int_equal(chunk, 1);
    assert_int_equal(copy, 0);
    see_table(3);
    rsi_side_mine(&side, 0, &chunk, &copy);
    assert_int_equal(chunk, 2);
    assert_int_equal(copy, 0);
}

static void my_boxes_in_a_mesh_are_all_one_chunk(void **state)
{
    int64_t chunk, copy;

    (void)state;
    see("mesh dp=2 tp=4; * strided(0,2)@tp", 6, true);
    for (size_t box = 0; box < 2; box++) {
        rsi_side_mine(&side, box, &chunk, &copy);
        assert_int_equal(chunk, 2);
        assert_int_equal(copy, 1);
    }
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_sharded_piece_has_one_holder),
        TEST(replicas_are_numbered_along_their_axis),
        TEST(replicas_along_two_axes_are_numbered_row_major),
        TEST(listed_ranks_hold_by_their_place),
        TEST(a_slice_holds_at_its_own_place),
        TEST(holding_is_told_for_every_rank),
        TEST(having_is_holding_by_myself),
        TEST(a_rank_outside_has_nothing),
        TEST(contributions_are_numbered_apart_from_copies),
        TEST(a_rank_holds_its_own_contribution_only),
        TEST(two_partial_axes_contribute_row_major),
        TEST(partial_axes_count_as_copies_when_parts_are_not_apart),
        TEST(holders_of_a_row_are_rising_ranks),
        TEST(a_row_is_held_by_its_holders_only),
        TEST(my_box_in_a_table_is_its_row_and_my_place_among_the_holders),
        TEST(my_boxes_in_a_mesh_are_all_one_chunk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
