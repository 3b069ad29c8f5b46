/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan_fixture.h"

#include <string.h>

static const int64_t shape[] = { 24, 10 };

static void a_rotated_target_needs_no_byte_to_move(void **state)
{
    rsd_layout       *src = fixture_layout("mesh a=4; * shard(0)@a", 2, shape);
    rsd_layout       *dst = fixture_layout("mesh a=4 ranks=1,2,3,0; * shard(0)@a", 2, shape);
    const rsd_layout *from = src, *to = dst;
    int32_t           relabel[4];
    int64_t           saved = 0;

    (void)state;
    assert_int_equal(rsd_plan_relabel(1, &from, &to, 4, relabel, &saved, NULL), RSD_OK);
    assert_int_equal(saved, 24 * 10 * 4);
    for (int32_t r = 0; r < 4; r++)
        assert_int_equal(relabel[r], (r + 3) % 4);
    rsd_layout_free(src);
    rsd_layout_free(dst);
}

static void the_best_permutation_of_five_ranks_is_found(void **state)
{
    /* Every rank has some of every part; compared with all 120 permutations. */
    rsd_layout       *src = fixture_layout("mesh a=5 ranks=3,0,4,1,2; * strided(0,2)@a", 2, shape);
    rsd_layout       *dst = fixture_layout("mesh a=5; * shard(0)@a", 2, shape);
    const rsd_layout *from = src, *to = dst;
    int32_t           relabel[5], at[5];
    int64_t           saved = 0, have[5][5] = { { 0 } }, best = 0, stay = 0;

    (void)state;
    for (int32_t q = 0; q < 5; q++)
        for (int32_t r = 0; r < 5; r++)
            for (size_t i = 0; i < rsd_layout_boxes(src, r, NULL, 0); i++) {
                rsd_box mine[4], want, both;

                assert_true(rsd_layout_boxes(src, r, mine, 4) <= 4);
                if (rsd_layout_boxes(dst, q, &want, 1) == 1 &&
                    rsd_box_intersect(&mine[i], &want, &both))
                    have[q][r] += rsd_box_count(&both) * 4;
            }
    for (int code = 0; code < 3125; code++) {
        int64_t sum = 0;
        int     used = 0;

        for (int q = 0, c = code; q < 5; q++, c /= 5) {
            at[q] = c % 5;
            used |= 1 << at[q];
            sum += have[q][at[q]];
        }
        if (used == 31)
            best = sum > best ? sum : best;
    }
    for (int q = 0; q < 5; q++)
        stay += have[q][q];
    assert_int_equal(rsd_plan_relabel(1, &from, &to, 5, relabel, &saved, NULL), RSD_OK);
    assert_int_equal(saved, best - stay);
    assert_true(saved > 0);
    rsd_layout_free(src);
    rsd_layout_free(dst);
}

static void ranks_outside_the_target_stay(void **state)
{
    rsd_layout       *src = fixture_layout("mesh a=5; * shard(0)@a", 2, shape);
    rsd_layout       *dst = fixture_layout("mesh a=2 ranks=3,1; * shard(0)@a", 2, shape);
    const rsd_layout *from = src, *to = dst;
    int32_t           relabel[5];

    (void)state;
    assert_int_equal(rsd_plan_relabel(1, &from, &to, 5, relabel, NULL, NULL), RSD_OK);
    assert_int_equal(relabel[0], 0);
    assert_int_equal(relabel[2], 2);
    assert_int_equal(relabel[4], 4);
    assert_int_equal(relabel[3], 1); /* rank 1 has rows 5 to 10 of the first half, 3 has none */
    assert_int_equal(relabel[1], 3);
    rsd_layout_free(src);
    rsd_layout_free(dst);
}

static void a_rank_beyond_the_number_given_is_refused(void **state)
{
    rsd_layout       *src = fixture_layout("mesh a=5; * shard(0)@a", 2, shape);
    const rsd_layout *from = src;
    int32_t           relabel[4];
    rsd_error         err;

    (void)state;
    assert_int_equal(rsd_plan_relabel(1, &from, &from, 4, relabel, NULL, &err), RSD_E_MISMATCH);
    assert_non_null(strstr(err.msg, "beyond 3"));
    rsd_layout_free(src);
}

static rsd_err relabel_some(void *arg, rsd_error *err)
{
    const rsd_layout *const *pair = arg;
    int32_t                  relabel[4];

    return rsd_plan_relabel(1, &pair[0], &pair[1], 4, relabel, NULL, err);
}

static void no_memory_is_survived(void **state)
{
    rsd_layout       *src = fixture_layout("mesh a=4; * shard(0)@a", 2, shape);
    rsd_layout       *dst = fixture_layout("mesh a=4 ranks=1,2,3,0; * shard(0)@a", 2, shape);
    const rsd_layout *pair[] = { src, dst };

    (void)state;
    assert_survives_no_memory(relabel_some, (void *)pair);
    rsd_layout_free(src);
    rsd_layout_free(dst);
}

static void empty_shards_of_a_chunked_tensor_start_at_its_end(void **state)
{
    const int32_t ranks[] = { 2, 0, 3, 1 };
    const int64_t five[] = { 5, 3 };
    rsd_shard     shard[4];

    (void)state;
    assert_int_equal(rsd_chunk_shards(0, 4, ranks, 2, five, shard, NULL), RSD_OK);
    assert_box(&shard[0].box, "[2:4, 0:3]");
    assert_box(&shard[1].box, "[5:5, 0:3]");
    assert_box(&shard[2].box, "[0:2, 0:3]");
    assert_box(&shard[3].box, "[4:5, 0:3]");
    for (int32_t r = 0; r < 4; r++)
        assert_int_equal(shard[r].rank, r);
}

static void a_chunked_tensor_refuses_a_rank_twice_and_a_dimension_too_many(void **state)
{
    const int32_t ranks[] = { 2, 2 };
    rsd_shard     shard[2];

    (void)state;
    assert_int_equal(rsd_chunk_shards(0, 2, ranks, 2, shape, shard, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_chunk_shards(2, 1, ranks, 2, shape, shard, NULL), RSD_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rotated_target_needs_no_byte_to_move),
        cmocka_unit_test(the_best_permutation_of_five_ranks_is_found),
        cmocka_unit_test(ranks_outside_the_target_stay),
        cmocka_unit_test(a_rank_beyond_the_number_given_is_refused),
        cmocka_unit_test(no_memory_is_survived),
        cmocka_unit_test(empty_shards_of_a_chunked_tensor_start_at_its_end),
        cmocka_unit_test(a_chunked_tensor_refuses_a_rank_twice_and_a_dimension_too_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
