/* SPDX-License-Identifier: Apache-2.0 */
/* test_placement.c - the closed forms of shard and strided shard on one dimension against lists of
 * indices that are really cut, and at sizes at which no list fits. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "shape/placement.h"

enum { MOST = 40 }; /* size of a dimension whose lists are written down */

/* ---- chunk ---------------------------------------------------------------------------------- */

/* Piece i of n cut into k starts at start[i] and has len[i] indices. */
static void assert_chunks(int64_t n, int64_t k, const int64_t *start, const int64_t *len)
{
    for (int64_t i = 0; i < k; i++) {
        int64_t got_start = -7;

        assert_int_equal(rsi_chunk(n, k, i, &got_start), len[i]);
        assert_int_equal(got_start, start[i]);
    }
}

static void chunks_are_those_of_torch(void **state)
{
    (void)state;
    assert_chunks(8, 4, (int64_t[]){ 0, 2, 4, 6 }, (int64_t[]){ 2, 2, 2, 2 });
    assert_chunks(7, 3, (int64_t[]){ 0, 3, 6 }, (int64_t[]){ 3, 3, 1 });
    assert_chunks(10, 4, (int64_t[]){ 0, 3, 6, 9 }, (int64_t[]){ 3, 3, 3, 1 });
    assert_chunks(5, 4, (int64_t[]){ 0, 2, 4, 5 }, (int64_t[]){ 2, 2, 1, 0 });
    assert_chunks(6, 5, (int64_t[]){ 0, 2, 4, 6, 6 }, (int64_t[]){ 2, 2, 2, 0, 0 });
    assert_chunks(5, 1, (int64_t[]){ 0 }, (int64_t[]){ 5 });
}

static void chunks_behind_the_last_index_are_empty_and_start_at_the_end(void **state)
{
    (void)state;
    assert_chunks(1, 4, (int64_t[]){ 0, 1, 1, 1 }, (int64_t[]){ 1, 0, 0, 0 });
    assert_chunks(3, 5, (int64_t[]){ 0, 1, 2, 3, 3 }, (int64_t[]){ 1, 1, 1, 0, 0 });
    assert_chunks(0, 3, (int64_t[]){ 0, 0, 0 }, (int64_t[]){ 0, 0, 0 });
}

static void chunks_of_huge_sizes_do_not_overflow(void **state)
{
    const int64_t huge = (int64_t)1 << 62;
    int64_t       start;

    (void)state;
    assert_int_equal(rsi_chunk(huge, 4, 3, &start), huge / 4);
    assert_int_equal(start, huge / 4 * 3);
    assert_int_equal(rsi_chunk(INT64_MAX, 2, 1, &start), INT64_MAX / 2);
    assert_int_equal(start, INT64_MAX / 2 + 1);
    /* 2^62 + 1 over 2^61 ranks: 3 each, so the last third get nothing */
    assert_int_equal(rsi_chunk(huge + 1, huge / 2, huge / 2 - 1, &start), 0);
    assert_int_equal(start, huge + 1);
    assert_int_equal(rsi_chunk(INT64_MAX, INT64_MAX, INT64_MAX - 1, &start), 1);
    assert_int_equal(start, INT64_MAX - 1);
    assert_int_equal(rsi_chunk(INT64_MAX, INT64_MAX - 1, INT64_MAX - 2, &start), 0);
    assert_int_equal(start, INT64_MAX);
    assert_int_equal(rsi_chunk(INT64_MAX, 1, INT64_MAX, &start), 0);
    assert_int_equal(start, INT64_MAX);
    assert_int_equal(rsi_chunk(3, INT64_MAX, 2, &start), 1);
    assert_int_equal(start, 2);
}

/* ---- literal lists -------------------------------------------------------------------------- */

/* The indices of one owner are want[0 .. n-1]. */
static void assert_list(const rsi_dim *dim, const int64_t *coord, int64_t n, const int64_t *want)
{
    rsi_run run;
    int64_t at = 0;

    assert_int_equal(rsi_dim_length(dim, coord), n);
    while (at < n) {
        assert_true(rsi_dim_run(dim, coord, at, &run));
        assert_int_equal(run.local, at);
        assert_true(run.len > 0 && at + run.len <= n);
        for (int64_t i = 0; i < run.len; i++)
            assert_int_equal(run.start + i, want[at + i]);
        at += run.len;
        if (at < n) /* the run was the longest */
            assert_int_not_equal(want[at], want[at - 1] + 1);
    }
    assert_false(rsi_dim_run(dim, coord, n, &run));
    assert_false(rsi_dim_run(dim, coord, n + 1, &run));
    assert_false(rsi_dim_run(dim, coord, -1, &run));
}

static void dimension_that_no_axis_shards_is_one_run(void **state)
{
    const rsi_dim dim = { .n = 5 };
    int64_t       coord[1] = { 0 };

    (void)state;
    assert_list(&dim, coord, 5, (int64_t[]){ 0, 1, 2, 3, 4 });
    assert_int_equal(rsi_dim_owner(&dim, 2, coord), 3);
}

static void nested_shards_of_10_on_2_by_3_have_these_indices(void **state)
{
    /* 5 and 5, each cut into 2, 2, 1 */
    const rsi_dim dim = { .n = 10, .nlevels = 2, .level = { { 0, 2, 1 }, { 1, 3, 1 } } };

    (void)state;
    assert_list(&dim, (int64_t[]){ 0, 0 }, 2, (int64_t[]){ 0, 1 });
    assert_list(&dim, (int64_t[]){ 0, 2 }, 1, (int64_t[]){ 4 });
    assert_list(&dim, (int64_t[]){ 1, 1 }, 2, (int64_t[]){ 7, 8 });
    assert_list(&dim, (int64_t[]){ 1, 2 }, 1, (int64_t[]){ 9 });
}

static void strided_shard_of_11_with_split_3_on_2_has_these_indices(void **state)
{
    /* blocks 0-3, 4-7, 8-10; each in 2: 2 and 2, 2 and 2, 2 and 1 */
    const rsi_dim dim = { .n = 11, .nlevels = 1, .level = { { 0, 2, 3 } } };

    (void)state;
    assert_list(&dim, (int64_t[]){ 0 }, 6, (int64_t[]){ 0, 1, 4, 5, 8, 9 });
    assert_list(&dim, (int64_t[]){ 1 }, 5, (int64_t[]){ 2, 3, 6, 7, 10 });
}

static void strided_then_plain_shard_of_13_has_these_indices(void **state)
{
    /* strided over 3 with split 2: blocks 0-6 (3, 3, 1) and 7-12 (2, 2, 2); then over 2 */
    const rsi_dim dim = { .n = 13, .nlevels = 2, .level = { { 0, 3, 2 }, { 1, 2, 1 } } };

    (void)state;
    assert_list(&dim, (int64_t[]){ 0, 0 }, 3, (int64_t[]){ 0, 1, 2 });
    assert_list(&dim, (int64_t[]){ 0, 1 }, 2, (int64_t[]){ 7, 8 });
    assert_list(&dim, (int64_t[]){ 1, 0 }, 3, (int64_t[]){ 3, 4, 5 });
    assert_list(&dim, (int64_t[]){ 1, 1 }, 2, (int64_t[]){ 9, 10 });
    assert_list(&dim, (int64_t[]){ 2, 0 }, 2, (int64_t[]){ 6, 11 });
    assert_list(&dim, (int64_t[]){ 2, 1 }, 1, (int64_t[]){ 12 });
}

static void owner_of_an_index_and_how_long_it_stays_are_told(void **state)
{
    const rsi_dim dim = { .n = 13, .nlevels = 2, .level = { { 0, 3, 2 }, { 1, 2, 1 } } };
    int64_t       coord[2];

    (void)state;
    assert_int_equal(rsi_dim_owner(&dim, 4, coord), 2);
    assert_int_equal(coord[0], 1);
    assert_int_equal(coord[1], 0);
    assert_int_equal(rsi_dim_owner(&dim, 12, coord), 1);
    assert_int_equal(coord[0], 2);
    assert_int_equal(coord[1], 1);
}

static void split_into_more_blocks_than_indices_leaves_all_to_the_first(void **state)
{
    const rsi_dim dim = { .n = 4, .nlevels = 1, .level = { { 0, 2, INT64_MAX } } };

    (void)state;
    assert_list(&dim, (int64_t[]){ 0 }, 4, (int64_t[]){ 0, 1, 2, 3 });
    assert_list(&dim, (int64_t[]){ 1 }, 0, NULL);
}

static void dimension_of_size_0_gives_nobody_anything(void **state)
{
    const rsi_dim dim = { .n = 0, .nlevels = 2, .level = { { 0, 2, 3 }, { 1, 2, 1 } } };

    (void)state;
    for (int64_t i = 0; i < 4; i++)
        assert_list(&dim, (int64_t[]){ i / 2, i % 2 }, 0, NULL);
}

/* ---- brute force ---------------------------------------------------------------------------- */

typedef struct list {
    int64_t n;
    int64_t at[MOST];
} list;

/* What coordinate i gets of a list, piece by piece as the words of placement.h say. */
static void cut_list(const list *from, const rsi_level *level, int64_t i, list *out)
{
    int64_t block = (from->n + level->split - 1) / level->split;

    out->n = 0;
    for (int64_t first = 0; first < from->n; first += block) {
        int64_t end = first + block < from->n ? first + block : from->n;
        int64_t piece = (end - first + level->ways - 1) / level->ways;

        for (int64_t x = first + i * piece; x < end && x < first + (i + 1) * piece; x++)
            out->at[out->n++] = from->at[x];
    }
}

static void assert_owner(const rsi_dim *dim, const int64_t *coord, const list *want)
{
    for (int64_t i = 0; i < want->n; i++) {
        int64_t got[RSD_MAX_NDIM] = { 0 };
        int64_t stays = rsi_dim_owner(dim, want->at[i], got);

        if (stays < 1 || i + stays > want->n || want->at[i + stays - 1] != want->at[i] + stays - 1)
            fail_msg("index %d of %d is said to stay for %d", (int)want->at[i], (int)dim->n,
                     (int)stays);
        if (memcmp(got, coord, (size_t)dim->nlevels * sizeof(got[0])) != 0)
            fail_msg("index %d of %d has another owner", (int)want->at[i], (int)dim->n);
    }
}

/* Runs of one owner, each as long as can be. Plain comparisons: there are many of them. */
static void assert_runs(const rsi_dim *dim, const int64_t *coord, const list *want)
{
    rsi_run run;
    int64_t at = 0;

    if (rsi_dim_length(dim, coord) != want->n)
        fail_msg("%d indices of %d instead of %d", (int)rsi_dim_length(dim, coord), (int)dim->n,
                 (int)want->n);
    while (at < want->n) {
        int64_t len = 1;

        while (at + len < want->n && want->at[at + len] == want->at[at] + len)
            len++;
        if (!rsi_dim_run(dim, coord, at, &run) || run.local != at || run.start != want->at[at] ||
            run.len != len)
            fail_msg("run at %d of %d is not %d from %d on", (int)at, (int)dim->n, (int)len,
                     (int)want->at[at]);
        at += len;
    }
    if (rsi_dim_run(dim, coord, at, &run))
        fail_msg("a run behind the last of %d", (int)dim->n);
}

/* Every owner from level l on, whose list the levels before have cut to `from`. */
static void assert_owners(const rsi_dim *dim, int l, const list *from, int64_t *coord)
{
    list mine;

    if (l == dim->nlevels) {
        assert_runs(dim, coord, from);
        assert_owner(dim, coord, from);
        return;
    }
    for (coord[l] = 0; coord[l] < dim->level[l].ways; coord[l]++) {
        cut_list(from, &dim->level[l], coord[l], &mine);
        assert_owners(dim, l + 1, &mine, coord);
    }
}

/* All ways up to 4 and splits up to 5 on each of the levels, or one in `few` of them, which are
 * others for each of `few` sizes that follow each other; 20 and `few` have no common factor. */
static void assert_all_cuts(int nlevels, int64_t n, int64_t few)
{
    int64_t coord[RSD_MAX_NDIM];
    int     cuts = 1;
    list    all = { .n = n };

    for (int64_t i = 0; i < n; i++)
        all.at[i] = i;
    for (int l = 0; l < nlevels; l++)
        cuts *= 20;
    for (int cut = 0; cut < cuts; cut++) {
        rsi_dim dim = { .n = n, .nlevels = nlevels };

        if ((cut + n) % few != 0)
            continue;
        for (int l = 0, rest = cut; l < nlevels; l++, rest /= 20)
            dim.level[l] =
                (rsi_level){ .axis = l, .ways = 1 + rest % 4, .split = 1 + rest / 4 % 5 };
        assert_owners(&dim, 0, &all, coord);
    }
}

static void one_cut_of_all_sizes_is_the_cut_of_a_list(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= MOST; n++)
        assert_all_cuts(1, n, 1);
}

static void two_cuts_of_all_sizes_are_the_cuts_of_a_list(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= MOST; n++)
        assert_all_cuts(2, n, 1);
}

static void three_cuts_of_all_sizes_are_the_cuts_of_a_list(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= MOST; n++)
        assert_all_cuts(3, n, 7);
}

/* ---- huge sizes ----------------------------------------------------------------------------- */

/* From owner to run and back, at the ends and in the middle of what one owner has. */
static void assert_both_ways(const rsi_dim *dim, const int64_t *coord)
{
    int64_t       n = rsi_dim_length(dim, coord);
    const int64_t at[] = { 0, n / 3, n / 2, n - 1 };

    for (int i = 0; i < 4; i++) {
        int64_t back[RSD_MAX_NDIM] = { 0 };
        rsi_run run;

        assert_true(rsi_dim_run(dim, coord, at[i], &run));
        assert_int_equal(run.local, at[i]);
        assert_true(rsi_dim_owner(dim, run.start, back) >= 1);
        assert_memory_equal(back, coord, (size_t)dim->nlevels * sizeof(back[0]));
        assert_true(rsi_dim_owner(dim, run.start + run.len - 1, back) >= 1);
        assert_memory_equal(back, coord, (size_t)dim->nlevels * sizeof(back[0]));
    }
    assert_false(rsi_dim_run(dim, coord, n, &(rsi_run){ 0 }));
}

static void plain_shard_of_2_to_the_62_is_closed_form(void **state)
{
    const int64_t huge = ((int64_t)1 << 62) + 3;
    const rsi_dim dim = { .n = huge, .nlevels = 2, .level = { { 0, 1024, 1 }, { 1, 7, 1 } } };
    rsi_run       run;

    (void)state;
    for (int64_t i = 0; i < 1024; i += 93)
        for (int64_t j = 0; j < 7; j++)
            assert_both_ways(&dim, (int64_t[]){ i, j });
    /* ceil(n / 1024) = 2^52 + 1, so the last has 2^62 + 3 - 1023 * (2^52 + 1); ceil of a 7th each
     */
    assert_true(rsi_dim_run(&dim, (int64_t[]){ 1023, 0 }, 0, &run));
    assert_int_equal(run.start, 1023 * (((int64_t)1 << 52) + 1));
    assert_int_equal(run.len, (((int64_t)1 << 52) - 1020 + 6) / 7);
}

static void strided_shard_of_2_to_the_62_is_closed_form(void **state)
{
    const int64_t huge = ((int64_t)1 << 62) + 3, splits[] = { 2, 1000003, (int64_t)1 << 40 };

    (void)state;
    for (int s = 0; s < 3; s++) {
        const rsi_dim dim = { .n = huge,
                              .nlevels = 3,
                              .level = { { 0, 5, splits[s] }, { 1, 3, 1 }, { 2, 2, 7 } } };

        for (int64_t i = 0; i < 30; i++)
            assert_both_ways(&dim, (int64_t[]){ i / 6, i / 2 % 3, i % 2 });
    }
}

static void most_ranks_on_the_largest_dimension_do_not_overflow(void **state)
{
    const int64_t most = INT32_MAX - 1;
    const rsi_dim dim = { .n = INT64_MAX, .nlevels = 1, .level = { { 0, most, 1 } } };
    int64_t       coord[1] = { 0 };
    rsi_run       run;

    (void)state;
    /* 2^63 = (2^31 - 2) * (2^32 + 4) + 8, so each has 2^32 + 5 and the last what is left */
    assert_int_equal(rsi_dim_length(&dim, coord), ((int64_t)1 << 32) + 5);
    assert_int_equal(rsi_dim_owner(&dim, INT64_MAX - 1, coord), 1);
    assert_int_equal(coord[0], most - 1);
    assert_true(rsi_dim_run(&dim, coord, 0, &run));
    assert_int_equal(run.len, ((int64_t)1 << 31) + 14);
    assert_int_equal(run.start, INT64_MAX - run.len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_those_of_torch),
        cmocka_unit_test(chunks_behind_the_last_index_are_empty_and_start_at_the_end),
        cmocka_unit_test(chunks_of_huge_sizes_do_not_overflow),
        cmocka_unit_test(dimension_that_no_axis_shards_is_one_run),
        cmocka_unit_test(nested_shards_of_10_on_2_by_3_have_these_indices),
        cmocka_unit_test(strided_shard_of_11_with_split_3_on_2_has_these_indices),
        cmocka_unit_test(strided_then_plain_shard_of_13_has_these_indices),
        cmocka_unit_test(owner_of_an_index_and_how_long_it_stays_are_told),
        cmocka_unit_test(split_into_more_blocks_than_indices_leaves_all_to_the_first),
        cmocka_unit_test(dimension_of_size_0_gives_nobody_anything),
        cmocka_unit_test(one_cut_of_all_sizes_is_the_cut_of_a_list),
        cmocka_unit_test(two_cuts_of_all_sizes_are_the_cuts_of_a_list),
        cmocka_unit_test(three_cuts_of_all_sizes_are_the_cuts_of_a_list),
        cmocka_unit_test(plain_shard_of_2_to_the_62_is_closed_form),
        cmocka_unit_test(strided_shard_of_2_to_the_62_is_closed_form),
        cmocka_unit_test(most_ranks_on_the_largest_dimension_do_not_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
