/* SPDX-License-Identifier: Apache-2.0 */
/* test_peer_moves.c - moves sorted by peer: who is a peer, in which order, and who serves whom when
 * several could. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/planner.h"
#include "plan_fixture.h"
#include "shape/box.h"

enum { MOST = 8 };

/* Up to 8 tensors with the same two layouts, and the plan of one rank. */
static rsd_layout       *src, *dst;
static const rsd_layout *sources[MOST], *targets[MOST];
static rsd_plan         *plan;
static fixture_moves     moves;

static void free_all(void)
{
    rsd_plan_free(plan);
    rsd_layout_free(src);
    rsd_layout_free(dst);
    plan = NULL;
    src = dst = NULL;
}

static int end(void **state)
{
    (void)state;
    free_all();
    return 0;
}

static void lay_out(int64_t n, const char *from, const char *to)
{
    free_all();
    src = fixture_layout(from, 1, &n);
    dst = fixture_layout(to, 1, &n);
}

static void see(size_t tensors, int32_t rank)
{
    rsd_plan_free(plan);
    plan = NULL;
    for (size_t i = 0; i < tensors; i++) {
        sources[i] = src;
        targets[i] = dst;
    }
    assert_int_equal(rsd_plan_create(tensors, sources, targets, rank, &plan, NULL), RSD_OK);
    fixture_list(plan, &moves);
}

static void assert_moves(size_t n, const char *const *want)
{
    for (size_t i = 0; i < n && i < moves.n; i++)
        assert_move(&moves.at[i], want[i]);
    assert_int_equal(moves.n, n);
}

#define ASSERT_MOVES(...)                                                                          \
    assert_moves(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *),                         \
                 (const char *[]){ __VA_ARGS__ })

/* ---- peers ---- */

static void peers_rise_and_leave_out_myself(void **state)
{
    (void)state;
    lay_out(10, "mesh a=5 ranks=9,2,7,0,4; * shard(0)@a", "mesh a=1 ranks=7; * replicate");
    see(1, 7);
    assert_int_equal(plan->npeers, 4);
    assert_int_equal(plan->peer[0], 0);
    assert_int_equal(plan->peer[1], 2);
    assert_int_equal(plan->peer[2], 4);
    assert_int_equal(plan->peer[3], 9);
    ASSERT_MOVES("0: 7>7 [4:6]", "0: 0>7 [6:8]", "0: 2>7 [2:4]", "0: 4>7 [8:10]", "0: 9>7 [0:2]");
}

static void ranks_that_nothing_goes_to_are_no_peers(void **state)
{
    (void)state;
    lay_out(8, "mesh a=4; * shard(0)@a", "mesh a=2; * shard(0)@a");
    see(1, 3); /* 6:8 go to rank 1 */
    assert_int_equal(plan->npeers, 1);
    ASSERT_MOVES("0: 3>1 [6:8]");
    see(1, 4);
    assert_int_equal(plan->npeers, 0);
    assert_int_equal(moves.n, 0);
}

static void hundreds_of_peers_are_sorted(void **state)
{
    (void)state;
    lay_out(300, "mesh a=300; * shard(0)@a", "mesh a=1 ranks=1000; * replicate");
    rsd_plan_free(plan);
    plan = fixture_plan(src, dst, 1000);
    assert_int_equal(plan->npeers, 300);
    for (int32_t p = 0; p < 300; p++) {
        rsd_move move;

        assert_int_equal(plan->peer[p], p);
        assert_int_equal(plan->recv.first[p], p);
        rsi_plan_move(plan, plan->recv.entry[p], p, false, &move);
        assert_int_equal(move.box.off[0], p);
        assert_int_equal(move.box.len[0], 1);
    }
    assert_int_equal(plan->recv.first[300], 300);
    assert_int_equal(plan->send.first[300], 0);
}

/* ---- rows ---- */

static void rows_are_sorted_by_tensor_then_by_place(void **state)
{
    (void)state;
    /* rank 0 has 0:4 and gets every second element, rank 1 the others */
    lay_out(8, "mesh a=2; * shard(0)@a", "mesh a=2; * strided(0,4)@a");
    see(2, 0);
    ASSERT_MOVES("0: 0>0 [0:1]", "0: 0>0 [2:3]", "1: 0>0 [0:1]", "1: 0>0 [2:3]", "0: 0>1 [1:2]",
                 "0: 0>1 [3:4]", "1: 0>1 [1:2]", "1: 0>1 [3:4]", "0: 1>0 [4:5]", "0: 1>0 [6:7]",
                 "1: 1>0 [4:5]", "1: 1>0 [6:7]");
    assert_int_equal(plan->send.first[1], 4);
    assert_int_equal(plan->recv.first[1], 4);
    assert_int_equal(plan->nlocal, 4);
}

/* The moves from rank r to rank s in the plan of `rank`. */
static size_t row_between(int32_t r, int32_t s, int32_t rank, rsd_move *out)
{
    size_t n = 0;

    see(3, rank);
    for (size_t i = 0; i < moves.n; i++)
        if (moves.at[i].from == r && moves.at[i].to == s)
            out[n++] = moves.at[i];
    return n;
}

static void assert_rows_match(int32_t r, int32_t s)
{
    static rsd_move sent[FIXTURE_MOVES], received[FIXTURE_MOVES];
    size_t          n = row_between(r, s, r, sent);

    assert_int_equal(row_between(r, s, s, received), n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(sent[i].tensor, received[i].tensor);
        assert_true(rsi_box_equal(&sent[i].box, &received[i].box));
    }
}

static void what_one_sends_the_other_receives_in_the_same_order(void **state)
{
    static const char *const pairs[][2] = {
        { "mesh a=4; * shard(0)@a", "mesh a=2 b=3; * strided(0,3)@a shard(0)@b" },
        { "mesh a=6; * replicate", "mesh a=3; * shard(0)@a" },
        { "mesh a=2 b=2; * shard(0)@b", "mesh a=3 b=2 ranks=5,4,3,2,1,0; * shard(0)@a" },
        { "mesh a=2 b=2; * partial(sum)@a", "mesh a=6; * shard(0)@a" },
        { "mesh a=3 b=2; * partial(sum)@b", "mesh a=3 b=2; * partial(sum)@b shard(0)@a" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        lay_out(17, pairs[i][0], pairs[i][1]);
        for (int32_t r = 0; r < 6; r++)
            for (int32_t s = 0; s < 6; s++)
                assert_rows_match(r, s);
    }
}

/* ---- who serves ---- */

static void a_rank_that_has_a_copy_takes_its_own(void **state)
{
    (void)state;
    lay_out(8, "mesh a=4; * replicate", "mesh a=4; * shard(0)@a");
    for (int32_t rank = 0; rank < 4; rank++) {
        see(1, rank);
        assert_int_equal(moves.n, 1);
        assert_int_equal(moves.at[0].from, rank);
        assert_int_equal(moves.at[0].to, rank);
        assert_int_equal(moves.at[0].box.off[0], 2 * rank);
    }
}

static void holders_send_only_to_those_that_have_no_copy(void **state)
{
    (void)state;
    /* receivers 0 1 2 3 are the ranks 2 3 4 5; the first two have a copy */
    lay_out(8, "mesh a=4; * replicate", "mesh a=4 ranks=2,3,4,5; * replicate");
    see(2, 0);
    ASSERT_MOVES("1: 0>5 [0:8]"); /* 1 + 3 = 4 is holder 0's turn */
    see(2, 1);
    assert_int_equal(moves.n, 0);
    see(2, 2);
    ASSERT_MOVES("0: 2>2 [0:8]", "1: 2>2 [0:8]", "0: 2>4 [0:8]");
    see(2, 3);
    ASSERT_MOVES("0: 3>3 [0:8]", "1: 3>3 [0:8]", "1: 3>4 [0:8]", "0: 3>5 [0:8]");
    see(2, 4);
    ASSERT_MOVES("0: 2>4 [0:8]", "1: 3>4 [0:8]");
}

/* What each of 4 holders sends of 8 tensors of 8 floats. */
static void assert_load(const char *to, int64_t want_moves, int64_t want_bytes)
{
    lay_out(8, "mesh a=4; * replicate", to);
    for (int32_t rank = 0; rank < 4; rank++) {
        rsd_plan_stats stats = { .size = sizeof(stats) };

        see(8, rank);
        rsd_plan_stats_get(plan, &stats, NULL);
        assert_int_equal(stats.moves, want_moves);
        assert_int_equal(stats.bytes_sent, want_bytes);
        assert_int_equal(stats.bytes_local, 0);
        assert_int_equal(stats.bytes_recv, 0);
    }
}

static void copies_for_many_are_sent_by_all_holders_alike(void **state)
{
    (void)state;
    assert_load("mesh x=2 a=4; * replicate on x=1", 8, 8 * 32);
}

static void shards_for_many_are_sent_by_all_holders_alike(void **state)
{
    (void)state;
    assert_load("mesh x=2 a=4; * shard(0)@a on x=1", 8, 8 * 8);
}

static void copies_for_one_are_sent_by_all_holders_in_turn(void **state)
{
    (void)state;
    assert_load("mesh a=1 ranks=9; * replicate", 2, 2 * 32);
    see(5, 9);
    ASSERT_MOVES("0: 0>9 [0:8]", "4: 0>9 [0:8]", "1: 1>9 [0:8]", "2: 2>9 [0:8]", "3: 3>9 [0:8]");
}

static void holders_in_a_table_serve_in_turn(void **state)
{
    int64_t n = 8;
    int32_t owner[] = { 4, 1, 6 };
    rsd_box box[] = { fixture_box1(0, 8), fixture_box1(0, 8), fixture_box1(0, 8) };

    (void)state;
    assert_int_equal(rsd_layout_create_boxes(RSD_F32, 1, &n, 3, owner, box, &src, NULL), RSD_OK);
    dst = fixture_layout("mesh a=1 ranks=9; * replicate", 1, &n);
    see(4, 9);
    ASSERT_MOVES("0: 1>9 [0:8]", "3: 1>9 [0:8]", "1: 4>9 [0:8]", "2: 6>9 [0:8]");
    see(4, 1);
    ASSERT_MOVES("0: 1>9 [0:8]", "3: 1>9 [0:8]");
    see(4, 6);
    ASSERT_MOVES("2: 6>9 [0:8]");
}

static void each_contribution_comes_from_one_of_its_copies(void **state)
{
    (void)state;
    /* contribution 0 is on the ranks 0 and 1, contribution 1 on 2 and 3 */
    lay_out(8, "mesh p=2 r=2; * partial(sum)@p", "mesh a=1 ranks=9; * replicate");
    see(2, 9);
    ASSERT_MOVES("0: 0>9 [0:8]", "1: 1>9 [0:8]", "1: 2>9 [0:8]", "0: 3>9 [0:8]");
    see(2, 3);
    ASSERT_MOVES("0: 3>9 [0:8]");
}

static void my_own_contribution_is_kept_and_the_others_are_received(void **state)
{
    (void)state;
    lay_out(8, "mesh p=2 r=2; * partial(sum)@p", "mesh a=1; * replicate");
    see(2, 0);
    ASSERT_MOVES("0: 0>0 [0:8]", "1: 0>0 [0:8]", "1: 2>0 [0:8]", "0: 3>0 [0:8]");
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(moves.at[i].reduce, RSD_SUM);
    see(2, 1);
    assert_int_equal(moves.n, 0); /* rank 0 has the same contribution */
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(peers_rise_and_leave_out_myself),
        TEST(ranks_that_nothing_goes_to_are_no_peers),
        TEST(hundreds_of_peers_are_sorted),
        TEST(rows_are_sorted_by_tensor_then_by_place),
        TEST(what_one_sends_the_other_receives_in_the_same_order),
        TEST(a_rank_that_has_a_copy_takes_its_own),
        TEST(holders_send_only_to_those_that_have_no_copy),
        TEST(copies_for_many_are_sent_by_all_holders_alike),
        TEST(shards_for_many_are_sent_by_all_holders_alike),
        TEST(copies_for_one_are_sent_by_all_holders_in_turn),
        TEST(holders_in_a_table_serve_in_turn),
        TEST(each_contribution_comes_from_one_of_its_copies),
        TEST(my_own_contribution_is_kept_and_the_others_are_received),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
