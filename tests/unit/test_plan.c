/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan.c - what callers ask of a plan: its moves in order, its totals, the way back, the view
 * of another rank. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan_fixture.h"

#include <string.h>

static rsd_layout   *rows, *columns;
static rsd_plan     *plan, *derived;
static fixture_moves moves;

/* A float32 tensor of 6 x 3 on three ranks, by rows and by columns. */
static int begin(void **state)
{
    int64_t shape[] = { 6, 3 };

    (void)state;
    rows = fixture_layout("mesh a=3; * shard(0)@a", 2, shape);
    columns = fixture_layout("mesh a=3; * shard(1)@a", 2, shape);
    plan = fixture_plan(rows, columns, 1);
    derived = NULL;
    return 0;
}

static int end(void **state)
{
    (void)state;
    rsd_plan_free(plan);
    rsd_plan_free(derived);
    rsd_layout_free(rows);
    rsd_layout_free(columns);
    return 0;
}

static void assert_moves(const rsd_plan *of, size_t n, const char *const *want)
{
    fixture_list(of, &moves);
    for (size_t i = 0; i < n && i < moves.n; i++)
        assert_move(&moves.at[i], want[i]);
    assert_int_equal(moves.n, n);
}

#define ASSERT_MOVES(of, ...)                                                                      \
    assert_moves(of, sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *),                     \
                 (const char *[]){ __VA_ARGS__ })

/* ---- moves ---- */

static void moves_are_visited_own_first_then_peer_by_peer_sends_first(void **state)
{
    (void)state;
    ASSERT_MOVES(plan, "0: 1>1 [2:4, 1:2]", "0: 1>0 [2:4, 0:1]", "0: 0>1 [0:2, 1:2]",
                 "0: 1>2 [2:4, 2:3]", "0: 2>1 [4:6, 1:2]");
}

static void a_plain_move_is_a_copy_of_whole_values(void **state)
{
    (void)state;
    fixture_list(plan, &moves);
    for (size_t i = 0; i < moves.n; i++) {
        assert_int_equal(moves.at[i].reduce, 0);
        assert_int_equal(moves.at[i].share, 1);
    }
}

static void a_move_names_my_box_and_leaves_the_peers_open(void **state)
{
    (void)state;
    fixture_list(plan, &moves);
    assert_int_equal(moves.at[0].from_box, 0); /* within the rank */
    assert_int_equal(moves.at[0].to_box, 0);
    assert_int_equal(moves.at[1].from_box, 0); /* sent */
    assert_int_equal(moves.at[1].to_box, -1);
    assert_int_equal(moves.at[2].from_box, -1); /* received */
    assert_int_equal(moves.at[2].to_box, 0);
}

static void a_move_names_the_right_one_of_several_boxes(void **state)
{
    int64_t     shape[] = { 8 };
    rsd_layout *halves = fixture_layout("mesh a=2; * shard(0)@a", 1, shape);
    rsd_layout *strided = fixture_layout("mesh a=2; * strided(0,2)@a", 1, shape);

    (void)state;
    derived = fixture_plan(halves, strided, 0); /* 0:4 becomes 0:2 and 4:6 */
    ASSERT_MOVES(derived, "0: 0>0 [0:2]", "0: 0>1 [2:4]", "0: 1>0 [4:6]");
    assert_int_equal(moves.at[0].from_box, 0);
    assert_int_equal(moves.at[0].to_box, 0);
    assert_int_equal(moves.at[1].from_box, 0);
    assert_int_equal(moves.at[2].to_box, 1);
    rsd_plan_free(derived);
    derived = fixture_plan(strided, halves, 1); /* 2:4 and 6:8 become 4:8 */
    ASSERT_MOVES(derived, "0: 1>1 [6:8]", "0: 1>0 [2:4]", "0: 0>1 [4:6]");
    assert_int_equal(moves.at[0].from_box, 1);
    assert_int_equal(moves.at[0].to_box, 0);
    assert_int_equal(moves.at[1].from_box, 0);
    rsd_layout_free(halves);
    rsd_layout_free(strided);
}

static void a_move_within_a_rank_names_its_boxes_in_tables(void **state)
{
    int64_t     shape[] = { 8 };
    int32_t     owner[] = { 0, 0, 1 };
    rsd_box     from[] = { fixture_box1(6, 8), fixture_box1(0, 3), fixture_box1(3, 6) };
    int32_t     to_owner[] = { 0, 0, 1, 0 };
    rsd_box     to[] = { fixture_box1(4, 7), fixture_box1(0, 2), fixture_box1(2, 4),
                         fixture_box1(7, 8) };
    rsd_layout *src, *dst;

    (void)state;
    assert_int_equal(rsd_layout_create_boxes(RSD_U8, 1, shape, 3, owner, from, &src, NULL), RSD_OK);
    assert_int_equal(rsd_layout_create_boxes(RSD_U8, 1, shape, 4, to_owner, to, &dst, NULL),
                     RSD_OK);
    derived = fixture_plan(src, dst, 0);
    ASSERT_MOVES(derived, "0: 0>0 [0:2]", "0: 0>0 [6:7]", "0: 0>0 [7:8]", "0: 0>1 [2:3]",
                 "0: 1>0 [4:6]");
    assert_int_equal(moves.at[0].from_box, 1);
    assert_int_equal(moves.at[0].to_box, 1);
    assert_int_equal(moves.at[1].from_box, 0);
    assert_int_equal(moves.at[1].to_box, 0);
    assert_int_equal(moves.at[2].from_box, 0);
    assert_int_equal(moves.at[2].to_box, 2);
    assert_int_equal(moves.at[3].from_box, 1);
    assert_int_equal(moves.at[4].to_box, 0);
    rsd_layout_free(src);
    rsd_layout_free(dst);
}

/* Stops at the visit whose number arg points to. */
static rsd_err count_down(void *arg, const rsd_move *move)
{
    int *left = arg;

    (void)move;
    return --*left == 0 ? RSD_E_CANCELED : RSD_OK;
}

static void the_first_visit_that_fails_is_the_last(void **state)
{
    (void)state;
    for (int stop = 1; stop <= 5; stop++) {
        rsd_error err = { .code = 0 };
        int       left = stop;

        assert_int_equal(rsd_plan_each(plan, count_down, &left, &err), RSD_E_CANCELED);
        assert_int_equal(left, 0);
        assert_int_equal(err.code, RSD_E_CANCELED);
    }
}

static void visits_that_all_succeed_end_well(void **state)
{
    int left = 6; /* one more than there are moves */

    (void)state;
    assert_int_equal(rsd_plan_each(plan, count_down, &left, NULL), RSD_OK);
    assert_int_equal(left, 1);
}

static void visiting_needs_a_plan_and_a_visitor(void **state)
{
    int left = 9;

    (void)state;
    assert_int_equal(rsd_plan_each(NULL, count_down, &left, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_plan_each(plan, NULL, &left, NULL), RSD_E_INVALID);
    assert_int_equal(left, 9);
}

/* ---- totals ---- */

static void totals_are_those_of_the_moves(void **state)
{
    rsd_plan_stats stats;

    (void)state;
    memset(&stats, 0xee, sizeof(stats));
    stats.size = sizeof(stats);
    rsd_plan_stats_get(plan, &stats, NULL);
    assert_int_equal(stats.tensors, 1);
    assert_int_equal(stats.moves, 5);
    assert_int_equal(stats.bytes_local, 2 * 4);
    assert_int_equal(stats.bytes_sent, 4 * 4);
    assert_int_equal(stats.bytes_recv, 4 * 4);
    assert_int_equal(stats.messages, 4);
    assert_int_equal(stats.peers, 2);
    assert_true(stats.plan_bytes > 0);
}

static void totals_of_several_tensors_add_up(void **state)
{
    int64_t           shape[] = { 6, 3 };
    rsd_layout       *wide = fixture_layout_of("mesh a=3; * replicate", RSD_F64, 2, shape);
    rsd_layout       *other = fixture_layout_of("mesh a=2; * shard(0)@a", RSD_F64, 2, shape);
    const rsd_layout *src[] = { rows, other }, *dst[] = { columns, wide };
    rsd_plan_stats    stats = { .size = sizeof(stats) };

    (void)state;
    assert_int_equal(rsd_plan_create(2, src, dst, 1, &derived, NULL), RSD_OK);
    rsd_plan_stats_get(derived, &stats, NULL);
    assert_int_equal(stats.tensors, 2);
    /* rank 1 keeps rows 3:6, gets 0:3 from rank 0 and sends its own to the ranks 0 and 2 */
    assert_int_equal(stats.moves, 5 + 4);
    assert_int_equal(stats.bytes_local, 8 + 72);
    assert_int_equal(stats.bytes_sent, 16 + 144);
    assert_int_equal(stats.bytes_recv, 16 + 72);
    assert_int_equal(stats.messages, 4);
    assert_int_equal(stats.peers, 2);
    rsd_layout_free(wide);
    rsd_layout_free(other);
}

static void a_thousand_tensors_alike_take_little_memory(void **state)
{
    static const rsd_layout *src[1000], *dst[1000];
    rsd_plan_stats           stats = { .size = sizeof(stats) };

    (void)state;
    for (size_t i = 0; i < 1000; i++) {
        src[i] = rows;
        dst[i] = columns;
    }
    assert_int_equal(rsd_plan_create(1000, src, dst, 1, &derived, NULL), RSD_OK);
    rsd_plan_stats_get(derived, &stats, NULL);
    assert_int_equal(stats.moves, 5000);
    assert_int_equal(stats.messages, 4);
    /* 28 bytes a tensor for layouts and classes, 8 a move, and what the blocks leave free */
    assert_in_range(stats.plan_bytes, 68000, 160000);
}

/* ---- the way back, other views ---- */

static void the_inverse_moves_the_same_boxes_back(void **state)
{
    (void)state;
    assert_int_equal(rsd_plan_invert(plan, &derived, NULL), RSD_OK);
    ASSERT_MOVES(derived, "0: 1>1 [2:4, 1:2]", "0: 1>0 [0:2, 1:2]", "0: 0>1 [2:4, 0:1]",
                 "0: 1>2 [4:6, 1:2]", "0: 2>1 [2:4, 2:3]");
}

static void the_inverse_outlives_the_plan_and_its_layouts(void **state)
{
    (void)state;
    assert_int_equal(rsd_plan_invert(plan, &derived, NULL), RSD_OK);
    rsd_plan_free(plan);
    rsd_layout_free(rows);
    rsd_layout_free(columns);
    plan = NULL;
    rows = columns = NULL;
    fixture_list(derived, &moves);
    assert_int_equal(moves.n, 5);
}

static void a_view_is_the_plan_of_another_rank(void **state)
{
    (void)state;
    assert_int_equal(rsd_plan_of_rank(plan, 2, &derived, NULL), RSD_OK);
    ASSERT_MOVES(derived, "0: 2>2 [4:6, 2:3]", "0: 2>0 [4:6, 0:1]", "0: 0>2 [0:2, 2:3]",
                 "0: 2>1 [4:6, 1:2]", "0: 1>2 [2:4, 2:3]");
}

static void a_view_of_a_rank_in_neither_layout_is_empty(void **state)
{
    (void)state;
    assert_int_equal(rsd_plan_of_rank(plan, 99, &derived, NULL), RSD_OK);
    fixture_list(derived, &moves);
    assert_int_equal(moves.n, 0);
}

static void a_view_of_a_negative_rank_is_refused(void **state)
{
    (void)state;
    assert_int_equal(rsd_plan_of_rank(plan, -1, &derived, NULL), RSD_E_INVALID);
    assert_null(derived);
}

static void no_plan_has_neither_inverse_nor_view(void **state)
{
    (void)state;
    assert_int_equal(rsd_plan_invert(NULL, &derived, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_plan_of_rank(NULL, 0, &derived, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_plan_invert(plan, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_plan_of_rank(plan, 0, NULL, NULL), RSD_E_INVALID);
    assert_null(derived);
}

/* ---- no memory ---- */

static rsd_err invert_and_view(void *arg, rsd_error *err)
{
    rsd_plan *inverse = NULL, *view = NULL;
    rsd_err   rc = rsd_plan_invert(plan, &inverse, err);

    (void)arg;
    if (rc)
        assert_null(inverse);
    if (!rc) {
        rc = rsd_plan_of_rank(plan, 0, &view, err);
        if (rc)
            assert_null(view);
    }
    rsd_plan_free(inverse);
    rsd_plan_free(view);
    return rc;
}

static void no_memory_for_an_inverse_or_a_view_is_reported(void **state)
{
    (void)state;
    assert_survives_no_memory(invert_and_view, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(moves_are_visited_own_first_then_peer_by_peer_sends_first),
        TEST(a_plain_move_is_a_copy_of_whole_values),
        TEST(a_move_names_my_box_and_leaves_the_peers_open),
        TEST(a_move_names_the_right_one_of_several_boxes),
        TEST(a_move_within_a_rank_names_its_boxes_in_tables),
        TEST(the_first_visit_that_fails_is_the_last),
        TEST(visits_that_all_succeed_end_well),
        TEST(visiting_needs_a_plan_and_a_visitor),
        TEST(totals_are_those_of_the_moves),
        TEST(totals_of_several_tensors_add_up),
        TEST(a_thousand_tensors_alike_take_little_memory),
        TEST(the_inverse_moves_the_same_boxes_back),
        TEST(the_inverse_outlives_the_plan_and_its_layouts),
        TEST(a_view_is_the_plan_of_another_rank),
        TEST(a_view_of_a_rank_in_neither_layout_is_empty),
        TEST(a_view_of_a_negative_rank_is_refused),
        TEST(no_plan_has_neither_inverse_nor_view),
        TEST(no_memory_for_an_inverse_or_a_view_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
