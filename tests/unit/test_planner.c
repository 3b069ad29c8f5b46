/* SPDX-License-Identifier: Apache-2.0 */
/* test_planner.c - which pairs of layouts make a plan, which are refused and why, and that a plan
 * stands on its own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "plan/planner.h"
#include "plan_fixture.h"

#include <string.h>

enum { MOST = 4 };

/* The pairs at hand; freed after each test. */
static rsd_layout *src[MOST], *dst[MOST];
static rsd_plan   *plan;
static rsd_error   err;

static const rsd_layout *const *const sources = (const rsd_layout *const *)src;
static const rsd_layout *const *const targets = (const rsd_layout *const *)dst;

static void free_pairs(void)
{
    for (int i = 0; i < MOST; i++) {
        rsd_layout_free(src[i]);
        rsd_layout_free(dst[i]);
        src[i] = dst[i] = NULL;
    }
}

static int end(void **state)
{
    (void)state;
    rsd_plan_free(plan);
    plan = NULL;
    free_pairs();
    return 0;
}

static rsd_err make(size_t n, int32_t rank)
{
    rsd_err rc;

    rsd_plan_free(plan);
    plan = NULL;
    memset(&err, 0, sizeof(err));
    rc = rsd_plan_create(n, sources, targets, rank, &plan, &err);
    if (rc) {
        assert_int_equal(err.code, rc);
        assert_null(plan);
    }
    return rc;
}

/* Tensor i: one dimension of n elements on these rules. */
static void pair(size_t i, int64_t n, const char *from, const char *to)
{
    src[i] = fixture_layout(from, 1, &n);
    dst[i] = fixture_layout(to, 1, &n);
}

/* ---- pairs that don't belong together ---- */

static void another_dtype_is_refused(void **state)
{
    int64_t n = 8;

    (void)state;
    pair(0, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    src[1] = fixture_layout_of("mesh a=2; * shard(0)@a", RSD_F32, 1, &n);
    dst[1] = fixture_layout_of("mesh a=2; * shard(0)@a", RSD_BF16, 1, &n);
    assert_int_equal(make(2, 0), RSD_E_MISMATCH);
    assert_string_equal(err.msg, "tensor 1: the source is float32, the target bfloat16");
}

static void another_number_of_dimensions_is_refused(void **state)
{
    int64_t shape[] = { 8, 1 };

    (void)state;
    src[0] = fixture_layout("mesh a=2; * shard(0)@a", 2, shape);
    dst[0] = fixture_layout("mesh a=2; * shard(0)@a", 1, shape);
    assert_int_equal(make(1, 0), RSD_E_MISMATCH);
    assert_string_equal(err.msg, "tensor 0: the source has 2 dimensions, the target 1");
}

static void another_size_is_refused(void **state)
{
    int64_t big[] = { 8, 5 }, small[] = { 8, 4 };

    (void)state;
    pair(0, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    pair(1, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    src[2] = fixture_layout("mesh a=2; * shard(0)@a", 2, big);
    dst[2] = fixture_layout("mesh a=2; * shard(0)@a", 2, small);
    assert_int_equal(make(3, 0), RSD_E_MISMATCH);
    assert_string_equal(err.msg,
                        "tensor 2: dimension 1 has the size 5 in the source, 4 in the target");
}

static void a_missing_layout_is_refused(void **state)
{
    (void)state;
    pair(0, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    pair(1, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    rsd_layout_free(dst[1]);
    dst[1] = NULL;
    assert_int_equal(make(2, 0), RSD_E_INVALID);
    assert_string_equal(err.msg, "tensor 1: a layout is missing");
    rsd_layout_free(src[0]);
    src[0] = NULL;
    assert_int_equal(make(2, 0), RSD_E_INVALID);
    assert_string_equal(err.msg, "tensor 0: a layout is missing");
}

static void missing_lists_are_refused(void **state)
{
    (void)state;
    pair(0, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    assert_int_equal(rsd_plan_create(1, NULL, targets, 0, &plan, &err), RSD_E_INVALID);
    assert_int_equal(rsd_plan_create(1, sources, NULL, 0, &plan, &err), RSD_E_INVALID);
    assert_int_equal(rsd_plan_create(1, sources, targets, 0, NULL, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "a plan needs as many sources as targets");
    assert_null(plan);
}

static void a_negative_rank_is_refused(void **state)
{
    (void)state;
    pair(0, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    assert_int_equal(make(1, -1), RSD_E_INVALID);
    assert_string_equal(err.msg, "-1 is not a rank");
}

/* ---- Partial ---- */

static void partial_to_another_reduction_is_refused(void **state)
{
    (void)state;
    pair(0, 8, "mesh a=2; * partial(sum)@a", "mesh a=2; * partial(max)@a");
    assert_int_equal(make(1, 0), RSD_E_UNSUPPORTED);
    assert_string_equal(err.msg, "tensor 0: partial to another partial layout: go through "
                                 "replicate or shard");
}

static void partial_to_partial_on_another_mesh_is_refused(void **state)
{
    (void)state;
    pair(0, 8, "mesh a=2; * partial(sum)@a", "mesh a=4; * partial(sum)@a");
    assert_int_equal(make(1, 0), RSD_E_UNSUPPORTED);
    pair(1, 8, "mesh a=2 b=2; * partial(sum)@a", "mesh a=2 b=2; * partial(sum)@b");
    assert_int_equal(rsd_plan_create(1, sources + 1, targets + 1, 0, &plan, &err),
                     RSD_E_UNSUPPORTED);
}

static void partial_to_the_same_partial_keeps_the_contributions(void **state)
{
    fixture_moves moves;

    (void)state;
    pair(0, 8, "mesh a=2; * partial(sum)@a", "mesh a=2; * partial(sum)@a");
    assert_int_equal(make(1, 1), RSD_OK);
    fixture_list(plan, &moves);
    assert_int_equal(moves.n, 1);
    assert_move(&moves.at[0], "0: 1>1 [0:8]");
    assert_int_equal(moves.at[0].reduce, 0);
    assert_int_equal(moves.at[0].share, 1);
}

static void partial_that_is_sharded_anew_moves_within_each_contribution(void **state)
{
    int64_t       shape[] = { 4, 4 };
    fixture_moves moves;

    (void)state;
    src[0] = fixture_layout("mesh p=2 s=2; * partial(avg)@p shard(0)@s", 2, shape);
    dst[0] = fixture_layout("mesh p=2 s=2; * partial(avg)@p shard(1)@s", 2, shape);
    assert_int_equal(make(1, 3), RSD_OK);
    fixture_list(plan, &moves);
    assert_int_equal(moves.n, 3);
    assert_move(&moves.at[0], "0: 3>3 [2:4, 2:4]");
    assert_move(&moves.at[1], "0: 3>2 [2:4, 0:2]");
    assert_move(&moves.at[2], "0: 2>3 [0:2, 2:4]");
    assert_int_equal(moves.at[2].reduce, 0);
}

static void partial_to_replicate_reduces_one_contribution_of_each_rank(void **state)
{
    fixture_moves moves;

    (void)state;
    pair(0, 8, "mesh a=3; * partial(max)@a", "mesh a=3; * replicate");
    assert_int_equal(make(1, 1), RSD_OK);
    fixture_list(plan, &moves);
    assert_int_equal(moves.n, 5);
    assert_move(&moves.at[0], "0: 1>1 [0:8]");
    assert_move(&moves.at[1], "0: 1>0 [0:8]");
    assert_move(&moves.at[2], "0: 0>1 [0:8]");
    assert_move(&moves.at[3], "0: 1>2 [0:8]");
    assert_move(&moves.at[4], "0: 2>1 [0:8]");
    for (size_t i = 0; i < moves.n; i++) {
        assert_int_equal(moves.at[i].reduce, RSD_MAX);
        assert_int_equal(moves.at[i].share, 1);
    }
}

static void a_target_that_is_partial_sum_gets_equal_shares(void **state)
{
    fixture_moves moves;

    (void)state;
    pair(0, 8, "mesh a=4; * replicate", "mesh a=2 b=2; * partial(sum)@a partial(sum)@b");
    assert_int_equal(make(1, 2), RSD_OK);
    fixture_list(plan, &moves);
    assert_int_equal(moves.n, 1);
    assert_move(&moves.at[0], "0: 2>2 [0:8]");
    assert_int_equal(moves.at[0].reduce, 0);
    assert_int_equal(moves.at[0].share, 4);
}

static void a_target_that_is_partial_max_gets_whole_values(void **state)
{
    fixture_moves moves;

    (void)state;
    pair(0, 8, "mesh a=4; * replicate", "mesh a=4; * partial(max)@a");
    assert_int_equal(make(1, 2), RSD_OK);
    fixture_list(plan, &moves);
    assert_int_equal(moves.n, 1);
    assert_int_equal(moves.at[0].share, 1);
}

static void a_value_is_not_made_partial_product(void **state)
{
    (void)state;
    pair(0, 8, "mesh a=2; * replicate", "mesh a=2; * partial(product)@a");
    assert_int_equal(make(1, 0), RSD_E_UNSUPPORTED);
    assert_string_equal(err.msg, "tensor 0: a value can't be made partial(product)");
}

static void an_integer_is_not_divided_into_partial_sum(void **state)
{
    int64_t n = 8;

    (void)state;
    src[0] = fixture_layout_of("mesh a=2; * replicate", RSD_I64, 1, &n);
    dst[0] = fixture_layout_of("mesh a=2; * partial(sum)@a", RSD_I64, 1, &n);
    assert_int_equal(make(1, 0), RSD_E_UNSUPPORTED);
    assert_string_equal(err.msg, "tensor 0: int64 can't be divided into partial(sum)");
    dst[1] = fixture_layout_of("mesh a=2; * partial(max)@a", RSD_I64, 1, &n);
    assert_int_equal(rsd_plan_create(1, sources, targets + 1, 0, &plan, NULL), RSD_OK);
}

static void partial_on_one_rank_alone_is_the_value(void **state)
{
    fixture_moves moves;

    (void)state;
    pair(0, 8, "mesh a=1; * partial(sum)@a", "mesh a=1; * replicate");
    pair(1, 8, "mesh a=1; * replicate", "mesh a=1; * partial(product)@a");
    pair(2, 8, "mesh a=1; * replicate", "mesh a=1; * partial(sum)@a");
    assert_int_equal(make(3, 0), RSD_OK);
    fixture_list(plan, &moves);
    assert_int_equal(moves.n, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(moves.at[i].reduce, 0);
        assert_int_equal(moves.at[i].share, 1);
    }
}

/* ---- parts ---- */

static void a_source_that_lacks_what_is_wanted_is_refused(void **state)
{
    int64_t n = 4;
    rsd_box box = fixture_box1(0, 3);

    (void)state;
    pair(0, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    assert_int_equal(rsd_layout_create_part(RSD_F32, 1, &n, 2, 1, &box, &src[1], NULL), RSD_OK);
    dst[1] = fixture_layout("mesh a=2; * shard(0)@a", 1, &n);
    assert_int_equal(make(2, 1), RSD_E_MISMATCH);
    assert_string_equal(err.msg,
                        "tensor 1: the source has only 4 of the 8 bytes that rank 1 wants");
    assert_int_equal(make(2, 0), RSD_OK); /* whose half is all there */
    assert_int_equal(make(2, 2), RSD_OK); /* who wants nothing */
}

static void a_part_is_filled_from_a_mesh(void **state)
{
    int64_t       n = 10;
    rsd_box       box = fixture_box1(4, 7);
    fixture_moves moves;

    (void)state;
    src[0] = fixture_layout("mesh a=2; * shard(0)@a", 1, &n);
    assert_int_equal(rsd_layout_create_part(RSD_F32, 1, &n, 1, 1, &box, &dst[0], NULL), RSD_OK);
    assert_int_equal(make(1, 1), RSD_OK);
    fixture_list(plan, &moves);
    assert_int_equal(moves.n, 2);
    assert_move(&moves.at[0], "0: 1>1 [5:7]");
    assert_move(&moves.at[1], "0: 0>1 [4:5]");
}

/* ---- classes ---- */

static void equal_layouts_share_a_class(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++)
        pair(i, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    assert_int_equal(make(3, 0), RSD_OK);
    assert_int_equal(plan->nclasses, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(plan->class_of[i], 0);
}

static void different_layouts_have_classes_of_their_own(void **state)
{
    (void)state;
    pair(0, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    pair(1, 9, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    pair(2, 8, "mesh a=2; * shard(0)@a", "mesh a=4; * replicate");
    pair(3, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    assert_int_equal(make(4, 0), RSD_OK);
    assert_int_equal(plan->nclasses, 3);
    assert_int_equal(plan->class_of[0], 0);
    assert_int_equal(plan->class_of[1], 1);
    assert_int_equal(plan->class_of[2], 2);
    assert_int_equal(plan->class_of[3], 0);
}

static void the_same_boxes_in_another_order_are_another_layout(void **state)
{
    int64_t       n = 4;
    int32_t       owner[] = { 0, 0 };
    rsd_box       rising[] = { fixture_box1(0, 1), fixture_box1(1, 4) };
    rsd_box       falling[] = { rising[1], rising[0] };
    fixture_moves moves;

    (void)state;
    for (int i = 0; i < 2; i++) {
        src[i] = fixture_layout("mesh a=1; * replicate", 1, &n);
        assert_int_equal(
            rsd_layout_create_boxes(RSD_F32, 1, &n, 2, owner, i ? falling : rising, &dst[i], NULL),
            RSD_OK);
    }
    assert_int_equal(make(2, 0), RSD_OK);
    assert_int_equal(plan->nclasses, 2);
    fixture_list(plan, &moves);
    assert_int_equal(moves.n, 4);
    assert_int_equal(moves.at[0].to_box, 0);
    assert_int_equal(moves.at[1].to_box, 1);
    assert_move(&moves.at[2], "1: 0>0 [0:1]");
    assert_int_equal(moves.at[2].to_box, 1);
    assert_int_equal(moves.at[3].to_box, 0);
}

static void a_layout_given_twice_is_one_class(void **state)
{
    const rsd_layout *same_src[2], *same_dst[2];

    (void)state;
    pair(0, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    same_src[0] = same_src[1] = src[0];
    same_dst[0] = same_dst[1] = dst[0];
    assert_int_equal(rsd_plan_create(2, same_src, same_dst, 0, &plan, NULL), RSD_OK);
    assert_int_equal(plan->nclasses, 1);
}

/* ---- life ---- */

static void a_plan_keeps_its_layouts(void **state)
{
    fixture_moves moves;

    (void)state;
    pair(0, 8, "mesh a=2; * shard(0)@a", "mesh a=2 ranks=1,0; * shard(0)@a");
    assert_int_equal(make(1, 0), RSD_OK);
    free_pairs();
    fixture_list(plan, &moves);
    assert_int_equal(moves.n, 2);
    assert_move(&moves.at[0], "0: 0>1 [0:4]");
    assert_move(&moves.at[1], "0: 1>0 [4:8]");
}

static void freeing_a_plan_leaves_the_callers_layouts(void **state)
{
    (void)state;
    pair(0, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    assert_int_equal(make(1, 0), RSD_OK);
    rsd_plan_free(plan);
    plan = NULL;
    assert_int_equal(rsd_layout_bytes(src[0], 1), 16);
    assert_int_equal(rsd_layout_bytes(dst[0], 1), 32);
}

static void a_refused_plan_gives_its_layouts_back(void **state)
{
    int64_t before = rsi_mem_stats_get().bytes;

    (void)state;
    pair(0, 8, "mesh a=2; * shard(0)@a", "mesh a=2; * replicate");
    pair(1, 8, "mesh a=2; * partial(sum)@a", "mesh a=2; * partial(max)@a");
    assert_int_equal(make(2, 0), RSD_E_UNSUPPORTED);
    free_pairs();
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

static void a_plan_of_no_tensors_has_no_moves(void **state)
{
    rsd_plan_stats stats = { .size = sizeof(stats) };
    fixture_moves  moves;

    (void)state;
    assert_int_equal(rsd_plan_create(0, NULL, NULL, 3, &plan, NULL), RSD_OK);
    rsd_plan_stats_get(plan, &stats, NULL);
    assert_int_equal(stats.tensors, 0);
    assert_int_equal(stats.moves, 0);
    assert_int_equal(stats.messages, 0);
    fixture_list(plan, &moves);
    assert_int_equal(moves.n, 0);
}

static void freeing_no_plan_is_fine(void **state)
{
    (void)state;
    rsd_plan_free(NULL);
}

/* ---- no memory ---- */

static rsd_err plan_all(void *arg, rsd_error *e)
{
    const int32_t *rank = arg;
    rsd_plan      *made = NULL;
    rsd_err        rc = rsd_plan_create(MOST, sources, targets, *rank, &made, e);

    if (rc)
        assert_null(made);
    rsd_plan_free(made);
    return rc;
}

static void no_memory_for_a_plan_is_reported(void **state)
{
    int64_t n = 200, start[] = { 0, 77 }, count[] = { 77, 123 };
    int32_t rank = 0, owner[] = { 1, 0 };

    (void)state;
    pair(0, 200, "mesh a=2; * shard(0)@a", "mesh a=100; * shard(0)@a");
    pair(1, 200, "mesh a=50; * replicate", "mesh a=2; * strided(0,50)@a");
    pair(2, 200, "mesh a=2; * partial(sum)@a", "mesh a=2; * shard(0)@a");
    src[3] = fixture_layout("mesh a=100; * shard(0)@a", 1, &n);
    assert_int_equal(
        rsd_layout_create_ranges(RSD_F32, 1, &n, 2, owner, start, count, &dst[3], NULL), RSD_OK);
    assert_survives_no_memory(plan_all, &rank);
    rank = 7;
    assert_survives_no_memory(plan_all, &rank);
}

static rsd_err parse_rules(void *arg, rsd_error *e)
{
    int64_t     n = 8;
    rsd_rules  *rules = NULL;
    rsd_layout *layout = NULL;
    rsd_err     rc = rsd_rules_parse(arg, &rules, e);

    if (!rc)
        rc = rsd_rules_layout(rules, "w", RSD_F32, 1, &n, &layout, e);
    if (rc)
        assert_null(layout);
    rsd_layout_free(layout);
    rsd_rules_free(rules);
    return rc;
}

static void no_memory_for_rules_and_their_layouts_is_reported(void **state)
{
    char text[] = "mesh x=2 y=2 ranks=3,1,2,0; *.bias replicate; * shard(0)@y on x=1";

    (void)state;
    assert_survives_no_memory(parse_rules, text);
}

static rsd_err make_layouts(void *arg, rsd_error *e)
{
    int64_t     shape[] = { 4, 5 }, start[] = { 0, 7 }, count[] = { 7, 13 };
    int32_t     owner[] = { 2, 0 };
    rsd_box     box[] = { fixture_box2(0, 1, 0, 5), fixture_box2(1, 4, 0, 5) };
    rsd_layout *made[4] = { NULL, NULL, NULL, NULL };
    rsd_err     rc;

    (void)arg;
    rc = rsd_layout_create_chunked(0, 2, owner, RSD_F32, 2, shape, &made[0], e);
    if (!rc)
        rc = rsd_layout_create_boxes(RSD_F32, 2, shape, 2, owner, box, &made[1], e);
    if (!rc)
        rc = rsd_layout_create_ranges(RSD_F32, 2, shape, 2, owner, start, count, &made[2], e);
    if (!rc)
        rc = rsd_layout_create_part(RSD_F32, 2, shape, 1, 2, box, &made[3], e);
    for (int i = 0; i < 4; i++)
        rsd_layout_free(made[i]);
    return rc;
}

static void no_memory_for_layouts_is_reported(void **state)
{
    (void)state;
    assert_survives_no_memory(make_layouts, NULL);
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(another_dtype_is_refused),
        TEST(another_number_of_dimensions_is_refused),
        TEST(another_size_is_refused),
        TEST(a_missing_layout_is_refused),
        TEST(missing_lists_are_refused),
        TEST(a_negative_rank_is_refused),
        TEST(partial_to_another_reduction_is_refused),
        TEST(partial_to_partial_on_another_mesh_is_refused),
        TEST(partial_to_the_same_partial_keeps_the_contributions),
        TEST(partial_that_is_sharded_anew_moves_within_each_contribution),
        TEST(partial_to_replicate_reduces_one_contribution_of_each_rank),
        TEST(a_target_that_is_partial_sum_gets_equal_shares),
        TEST(a_target_that_is_partial_max_gets_whole_values),
        TEST(a_value_is_not_made_partial_product),
        TEST(an_integer_is_not_divided_into_partial_sum),
        TEST(partial_on_one_rank_alone_is_the_value),
        TEST(a_source_that_lacks_what_is_wanted_is_refused),
        TEST(a_part_is_filled_from_a_mesh),
        TEST(equal_layouts_share_a_class),
        TEST(different_layouts_have_classes_of_their_own),
        TEST(the_same_boxes_in_another_order_are_another_layout),
        TEST(a_layout_given_twice_is_one_class),
        TEST(a_plan_keeps_its_layouts),
        TEST(freeing_a_plan_leaves_the_callers_layouts),
        TEST(a_refused_plan_gives_its_layouts_back),
        TEST(a_plan_of_no_tensors_has_no_moves),
        TEST(freeing_no_plan_is_fine),
        TEST(no_memory_for_a_plan_is_reported),
        TEST(no_memory_for_rules_and_their_layouts_is_reported),
        TEST(no_memory_for_layouts_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
