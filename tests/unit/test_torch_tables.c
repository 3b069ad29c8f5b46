/* SPDX-License-Identifier: Apache-2.0 */
/* test_torch_tables.c - what PyTorch computes for known sizes, as literal tables.
 *
 * Shards of DTensor and ShardedTensor, the overlap of boxes, and the sizes that PyTorch's tests of
 * resharding use, at the level of plans. Random sizes are left to test_random_plans.c. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "oracle.h"

enum { WORLD = 16 };

static const int32_t counted[WORLD] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
static const rsd_placement shard_0 = { .kind = RSD_SHARD, .dim = 0 };
static const rsd_placement replicate = { .kind = RSD_REPLICATE };

/* ---- shards --------------------------------------------------------------------------------- */

/* A float32 tensor on a mesh of 1 or 2 axes; sizes[1] = 0 leaves out the second. */
static rsd_layout *lay_out(const int64_t sizes[2], const int32_t *ranks, rsd_placement first,
                           rsd_placement second, int ndim, const int64_t *shape)
{
    const rsd_placement place[] = { first, second };
    rsd_layout         *layout;
    rsd_mesh           *mesh;

    assert_int_equal(rsd_mesh_create(sizes[1] ? 2 : 1, sizes, NULL, ranks, &mesh, NULL), RSD_OK);
    assert_int_equal(rsd_layout_create(mesh, place, RSD_F32, ndim, shape, &layout, NULL), RSD_OK);
    rsd_mesh_free(mesh);
    return layout;
}

/* n rows over k ranks */
static rsd_layout *shard_rows(int64_t n, int64_t k)
{
    const int64_t sizes[] = { k, 0 };

    return lay_out(sizes, NULL, shard_0, replicate, 1, &n);
}

/* The rank holds `len` rows from `off` on in one box, or no box at all. */
static void assert_rows(const rsd_layout *layout, int32_t rank, int64_t off, int64_t len)
{
    rsd_box box;

    assert_int_equal(rsd_layout_boxes(layout, rank, &box, 1), len > 0);
    assert_int_equal(rsd_layout_bytes(layout, rank), 4 * len);
    if (len == 0)
        return;
    assert_int_equal(box.ndim, 1);
    assert_int_equal(box.off[0], off);
    assert_int_equal(box.len[0], len);
}

/* Takes the layout. */
static void assert_chunks(rsd_layout *layout, const int64_t off[4], const int64_t len[4])
{
    for (int32_t rank = 0; rank < 4; rank++)
        assert_rows(layout, rank, off[rank], len[rank]);
    rsd_layout_free(layout);
}

static void chunking_10_rows_on_4_ranks_gives_3_3_3_1(void **state)
{
    (void)state;
    assert_chunks(shard_rows(10, 4), (int64_t[]){ 0, 3, 6, 9 }, (int64_t[]){ 3, 3, 3, 1 });
}

static void chunking_5_rows_on_4_ranks_gives_2_2_1_0(void **state)
{
    (void)state;
    assert_chunks(shard_rows(5, 4), (int64_t[]){ 0, 2, 4, 5 }, (int64_t[]){ 2, 2, 1, 0 });
}

static void chunking_2_rows_on_4_ranks_gives_1_1_0_0(void **state)
{
    (void)state;
    assert_chunks(shard_rows(2, 4), (int64_t[]){ 0, 1, 2, 2 }, (int64_t[]){ 1, 1, 0, 0 });
}

static void sharding_10_rows_twice_on_2_by_2_gives_3_2_3_2(void **state)
{
    const int64_t sizes[] = { 2, 2 }, n = 10;

    (void)state;
    assert_chunks(lay_out(sizes, NULL, shard_0, shard_0, 1, &n), (int64_t[]){ 0, 3, 5, 8 },
                  (int64_t[]){ 3, 2, 3, 2 });
}

static void empty_shard_has_no_box_and_no_bytes(void **state)
{
    rsd_layout *layout = shard_rows(1, 4);
    rsd_local   local;

    (void)state;
    for (int32_t rank = 1; rank < 4; rank++) {
        assert_int_equal(rsd_layout_boxes(layout, rank, NULL, 0), 0);
        assert_int_equal(rsd_layout_bytes(layout, rank), 0);
        assert_int_not_equal(rsd_layout_local(layout, rank, 0, &local, NULL), RSD_OK);
    }
    assert_int_equal(rsd_layout_world(layout), 4);
    rsd_layout_free(layout);
}

static void rank_outside_the_mesh_holds_nothing(void **state)
{
    const int64_t sizes[] = { 3, 0 }, n = 6;
    const int32_t even[] = { 0, 2, 4 }, outside[] = { 1, 3, 5, 6, 100 };
    rsd_layout   *sharded = lay_out(sizes, even, shard_0, replicate, 1, &n);
    rsd_layout   *replicated = lay_out(sizes, even, replicate, replicate, 1, &n);

    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_rows(sharded, outside[i], 0, 0);
        assert_rows(replicated, outside[i], 0, 0);
    }
    assert_rows(sharded, 4, 4, 2);
    assert_rows(replicated, 4, 0, 6);
    assert_int_equal(rsd_layout_world(sharded), 5);
    rsd_layout_free(sharded);
    rsd_layout_free(replicated);
}

static void dimension_of_size_0_leaves_every_rank_empty(void **state)
{
    const rsd_placement places[] = { shard_0, { .kind = RSD_SHARD, .dim = 1 }, replicate };
    const int64_t       sizes[] = { 4, 0 }, shape[] = { 0, 8 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        rsd_layout *layout = lay_out(sizes, NULL, places[i], replicate, 2, shape);

        for (int32_t rank = 0; rank < 4; rank++)
            assert_rows(layout, rank, 0, 0);
        rsd_layout_free(layout);
    }
}

static void replicated_scalar_is_one_box_of_one_element_on_each_rank(void **state)
{
    const int64_t sizes[] = { 3, 0 };
    rsd_layout   *layout = lay_out(sizes, NULL, replicate, replicate, 0, NULL);
    rsd_box       box;

    (void)state;
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(rsd_layout_boxes(layout, rank, &box, 1), 1);
        assert_int_equal(box.ndim, 0);
        assert_int_equal(rsd_box_count(&box), 1);
        assert_int_equal(rsd_layout_bytes(layout, rank), 4);
    }
    assert_int_equal(rsd_layout_boxes(layout, 3, NULL, 0), 0);
    rsd_layout_free(layout);
}

/* The rank holds one box of a matrix. */
static void assert_block(const rsd_layout *layout, int32_t rank, int64_t row, int64_t rows,
                         int64_t column, int64_t columns)
{
    const rsd_box want = { .ndim = 2, .off = { row, column }, .len = { rows, columns } };
    rsd_box       box;

    assert_int_equal(rsd_layout_boxes(layout, rank, &box, 1), 1);
    assert_true(oracle_same(&box, &want));
}

static void negative_dimension_counts_from_the_last(void **state)
{
    const rsd_placement last = { .kind = RSD_SHARD, .dim = -1 };
    const int64_t       sizes[] = { 2, 0 }, shape[] = { 3, 7 };
    rsd_layout         *layout = lay_out(sizes, NULL, last, replicate, 2, shape);

    (void)state;
    assert_block(layout, 0, 0, 3, 0, 4);
    assert_block(layout, 1, 0, 3, 4, 3);
    rsd_layout_free(layout);
}

/* ---- strided shards ------------------------------------------------------------------------- */

/* n rows on (dp, tp) as FSDP2 with tensor parallelism lays them out */
static rsd_layout *shard_strided(int64_t dp, int64_t tp, int64_t n)
{
    const rsd_placement strided = { .kind = RSD_STRIDED, .dim = 0, .split = tp };
    const int64_t       sizes[] = { dp, tp };

    return lay_out(sizes, NULL, strided, shard_0, 1, &n);
}

static void lone_strided_shard_interleaves_rows(void **state)
{
    const rsd_placement strided = { .kind = RSD_STRIDED, .dim = 0, .split = 2 };
    const int64_t       sizes[] = { 2, 0 }, n = 8;
    rsd_layout         *layout = lay_out(sizes, NULL, strided, replicate, 1, &n);
    rsd_local           local;
    rsd_box             first;

    (void)state;
    for (int32_t i = 0; i < 4; i++) { /* box i / 2 of rank i % 2 */
        assert_int_equal(rsd_layout_boxes(layout, i % 2, &first, 1), 2);
        assert_int_equal(first.off[0], 2 * (i % 2));
        assert_int_equal(rsd_layout_local(layout, i % 2, (size_t)i / 2, &local, NULL), RSD_OK);
        assert_int_equal(local.box.off[0], 2 * i);
        assert_int_equal(local.box.len[0], 2);
        assert_int_equal(local.offset, i / 2 * 2 * 4);
        assert_int_equal(local.stride[0], 4);
    }
    rsd_layout_free(layout);
}

static void even_strided_shard_is_tensor_parallel_first_then_data_parallel(void **state)
{
    static const int64_t cases[][3] = { { 2, 2, 16 }, { 2, 4, 64 }, { 4, 2, 24 }, { 3, 2, 12 } };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        int64_t     dp = cases[i][0], tp = cases[i][1], n = cases[i][2];
        rsd_layout *layout = shard_strided(dp, tp, n);

        for (int32_t rank = 0; rank < dp * tp; rank++)
            assert_rows(layout, rank, rank % tp * (n / tp) + rank / tp * (n / tp / dp),
                        n / tp / dp);
        rsd_layout_free(layout);
    }
}

/* Each row has exactly one owner, the oracle's. */
static void assert_strided_tiles(int64_t dp, int64_t tp, int64_t n)
{
    const rsd_placement place[] = { { .kind = RSD_STRIDED, .dim = 0, .split = tp }, shard_0 };
    const int64_t       sizes[] = { dp, tp };
    int                 owners[64] = { 0 };
    rsd_layout         *layout = shard_strided(dp, tp, n);
    oracle              want;
    rsd_box             box[8];

    oracle_mesh(&want, WORLD, 1, &n, 2, sizes, counted, place);
    for (int32_t r = 0; r < dp * tp; r++) {
        size_t nboxes = rsd_layout_boxes(layout, r, box, 8);

        assert_in_range(nboxes, 0, 8);
        for (size_t b = 0; b < nboxes; b++)
            for (int64_t row = box[b].off[0]; row < box[b].off[0] + box[b].len[0]; row++) {
                assert_true(oracle_pos(&want, r, row) >= 0);
                owners[row]++;
            }
    }
    for (int64_t row = 0; row < n; row++)
        assert_int_equal(owners[row], 1);
    oracle_free(&want);
    rsd_layout_free(layout);
}

static void uneven_strided_shards_that_dcp_can_not_save_tile_the_tensor(void **state)
{
    (void)state;
    assert_strided_tiles(3, 2, 13);
    assert_strided_tiles(3, 2, 19);
    assert_strided_tiles(3, 2, 25);
    assert_strided_tiles(3, 3, 20);
    assert_strided_tiles(4, 2, 25);
}

static void strided_shards_of_all_small_sizes_tile_the_tensor(void **state)
{
    (void)state;
    for (int64_t dp = 2; dp <= 4; dp++)
        for (int64_t tp = 2; tp <= 4; tp++)
            for (int64_t n = 0; n <= 25; n++)
                assert_strided_tiles(dp, tp, n);
}

/* 13 rows on (3, 2): halves of 7 and 6, their thirds 3 3 1 and 2 2 2, joined and halved again */
static void strided_shard_of_13_rows_on_3_by_2_has_these_boxes(void **state)
{
    static const struct {
        size_t  n;
        int64_t off[2], len[2];
    } want[] = { { 1, { 0 }, { 3 } }, { 1, { 7 }, { 2 } },        { 1, { 3 }, { 3 } },
                 { 1, { 9 }, { 2 } }, { 2, { 6, 11 }, { 1, 1 } }, { 1, { 12 }, { 1 } } };
    rsd_layout *layout = shard_strided(3, 2, 13);
    rsd_box     box[2];

    (void)state;
    for (int32_t rank = 0; rank < 6; rank++) {
        assert_int_equal(rsd_layout_boxes(layout, rank, box, 2), want[rank].n);
        for (size_t b = 0; b < want[rank].n; b++) {
            assert_int_equal(box[b].off[0], want[rank].off[b]);
            assert_int_equal(box[b].len[0], want[rank].len[b]);
        }
    }
    rsd_layout_free(layout);
}

/* ---- ChunkShardingSpec ---------------------------------------------------------------------- */

static rsd_layout *chunk(int32_t dim, const int32_t ranks[4], int64_t rows, int64_t columns)
{
    const int64_t shape[] = { rows, columns };
    rsd_layout   *layout;

    assert_int_equal(rsd_layout_create_chunked(dim, 4, ranks, RSD_F32, 2, shape, &layout, NULL),
                     RSD_OK);
    return layout;
}

static void chunk_goes_to_the_rank_at_its_place(void **state)
{
    const int32_t ranks[] = { 2, 0, 3, 1 };
    rsd_layout   *layout = chunk(0, ranks, 10, 2);

    (void)state;
    assert_block(layout, 2, 0, 3, 0, 2);
    assert_block(layout, 0, 3, 3, 0, 2);
    assert_block(layout, 3, 6, 3, 0, 2);
    assert_block(layout, 1, 9, 1, 0, 2);
    rsd_layout_free(layout);
}

static void chunk_beyond_the_end_is_empty(void **state)
{
    const int32_t ranks[] = { 3, 1, 0, 2 };
    rsd_layout   *layout = chunk(0, ranks, 5, 1);

    (void)state;
    assert_int_equal(rsd_layout_boxes(layout, 2, NULL, 0), 0);
    assert_int_equal(rsd_layout_bytes(layout, 0), 4);
    rsd_layout_free(layout);
}

/* ---- overlap -------------------------------------------------------------------------------- */

static rsd_box row_box(int64_t off, int64_t len)
{
    return (rsd_box){ .ndim = 1, .off = { off }, .len = { len } };
}

static void assert_overlap(const rsd_overlap *got, int32_t dim, int64_t saved_off,
                           int64_t wanted_off, int64_t len)
{
    assert_int_equal(got->dim, dim);
    assert_int_equal(got->saved_off, saved_off);
    assert_int_equal(got->wanted_off, wanted_off);
    assert_int_equal(got->len, len);
}

static void overlap_is_told_for_each_dimension_from_each_start(void **state)
{
    const rsd_box saved = { .ndim = 3, .off = { 0, 8, 5 }, .len = { 4, 8, 2 } };
    const rsd_box wanted = { .ndim = 3, .off = { 2, 10, 0 }, .len = { 4, 2, 9 } };
    rsd_overlap   got[3];

    (void)state;
    assert_true(rsd_box_overlap(&saved, &wanted, got));
    assert_overlap(&got[0], 0, 2, 0, 2);
    assert_overlap(&got[1], 1, 2, 0, 2);
    assert_overlap(&got[2], 2, 0, 5, 2);
}

static void boxes_apart_in_one_dimension_do_not_overlap(void **state)
{
    const rsd_box saved = { .ndim = 2, .off = { 0, 0 }, .len = { 4, 4 } };
    const rsd_box wanted = { .ndim = 2, .off = { 0, 4 }, .len = { 4, 4 } };
    rsd_overlap   got[2];

    (void)state;
    assert_false(rsd_box_overlap(&saved, &wanted, got));
    assert_false(rsd_box_overlap(&wanted, &saved, got));
    assert_false(rsd_box_intersect(&saved, &wanted, NULL));
}

static void two_scalars_always_overlap(void **state)
{
    const rsd_box scalar = { .ndim = 0 };
    rsd_overlap   got[1];
    rsd_box       both = { .ndim = 7 };

    (void)state;
    assert_true(rsd_box_overlap(&scalar, &scalar, got));
    assert_true(rsd_box_intersect(&scalar, &scalar, &both));
    assert_int_equal(both.ndim, 0);
}

static void empty_box_overlaps_nothing_not_even_where_it_lies(void **state)
{
    const rsd_box full = row_box(0, 4), empty = row_box(2, 0);
    rsd_overlap   got[1];

    (void)state;
    assert_false(rsd_box_overlap(&full, &empty, got));
    assert_false(rsd_box_overlap(&empty, &full, got));
    assert_false(rsd_box_overlap(&empty, &empty, got));
    assert_false(rsd_box_intersect(&empty, &full, NULL));
}

/* Counts the rows that are in both, one by one, and compares. */
static void assert_rows_overlap(const rsd_box *saved, const rsd_box *wanted)
{
    int64_t     first = -1, n = 0;
    rsd_overlap got;
    rsd_box     both;

    for (int64_t row = saved->off[0]; row < saved->off[0] + saved->len[0]; row++)
        if (row >= wanted->off[0] && row < wanted->off[0] + wanted->len[0])
            first = n++ ? first : row;
    assert_int_equal(rsd_box_overlap(saved, wanted, &got), n > 0);
    assert_int_equal(rsd_box_intersect(saved, wanted, &both), n > 0);
    if (n == 0)
        return;
    assert_overlap(&got, 0, first - saved->off[0], first - wanted->off[0], n);
    assert_int_equal(both.off[0], first);
    assert_int_equal(both.len[0], n);
}

static void overlap_of_all_short_rows_is_what_they_share(void **state)
{
    enum { ENDS = 7 }; /* off and len of both boxes run from 0 to 6 */

    (void)state;
    for (int i = 0; i < ENDS * ENDS * ENDS * ENDS; i++) {
        const rsd_box saved = row_box(i % ENDS, i / ENDS % ENDS);
        const rsd_box wanted = row_box(i / (ENDS * ENDS) % ENDS, i / (ENDS * ENDS * ENDS));

        assert_rows_overlap(&saved, &wanted);
    }
}

/* ---- resharding of ShardedTensor ------------------------------------------------------------ */

/* What arrives at a rank. */
typedef struct arrival {
    const oracle  *src;
    const int64_t *shape; /* [2] */
    int32_t        rank;
    int            got[15 * 26]; /* how often; of the largest tensor here */
} arrival;

static rsd_err receive(void *arg, const rsd_move *move)
{
    arrival *a = arg;
    int64_t  index[RSD_MAX_NDIM];

    for (bool go = oracle_first(&move->box, index); go; go = oracle_next(&move->box, index)) {
        int64_t e = oracle_element(2, a->shape, index);

        assert_true(oracle_pos(a->src, move->from, e) >= 0);
        a->got[e] += move->to == a->rank;
    }
    return RSD_OK;
}

static rsd_plan *make_plan(const rsd_layout *src, const rsd_layout *dst, int32_t rank)
{
    rsd_plan *plan;

    assert_int_equal(rsd_plan_create(1, &src, &dst, rank, &plan, NULL), RSD_OK);
    return plan;
}

/* Each rank's plan brings every element of its new part once, and nothing else. */
static void assert_new_parts_arrive(const rsd_layout *src, const oracle *have,
                                    const rsd_layout *dst, const oracle *want, const int64_t *shape)
{
    for (int32_t rank = 0; rank < 4; rank++) {
        arrival   a = { .src = have, .shape = shape, .rank = rank };
        rsd_plan *plan = make_plan(src, dst, rank);

        assert_int_equal(rsd_plan_each(plan, receive, &a, NULL), RSD_OK);
        for (int64_t e = 0; e < want->count; e++)
            assert_int_equal(a.got[e], oracle_pos(want, rank, e) >= 0);
        rsd_plan_free(plan);
    }
}

/* The last two move all ranks in a cycle, where PyTorch's reshard aborts. */
static const int32_t orders[][4] = { { 0, 1, 2, 3 }, { 2, 0, 3, 1 }, { 3, 2, 1, 0 },
                                     { 1, 0, 3, 2 }, { 1, 2, 3, 0 }, { 3, 0, 1, 2 } };
enum { ORDERS = sizeof(orders) / sizeof(*orders) };

static void assert_chunks_reshard(int64_t rows, int64_t columns)
{
    const int64_t shape[] = { rows, columns }, four = 4;

    for (int i = 0; i < 2 * 2 * ORDERS * ORDERS; i++) {
        const rsd_placement from = { .kind = RSD_SHARD, .dim = i & 1 };
        const rsd_placement to = { .kind = RSD_SHARD, .dim = i >> 1 & 1 };
        const int32_t      *before = orders[i / 4 % ORDERS], *after = orders[i / 4 / ORDERS];
        rsd_layout         *src = chunk(from.dim, before, rows, columns);
        rsd_layout         *dst = chunk(to.dim, after, rows, columns);
        oracle              have, want;

        oracle_mesh(&have, 4, 2, shape, 1, &four, before, &from);
        oracle_mesh(&want, 4, 2, shape, 1, &four, after, &to);
        assert_new_parts_arrive(src, &have, dst, &want, shape);
        oracle_free(&have);
        oracle_free(&want);
        rsd_layout_free(src);
        rsd_layout_free(dst);
    }
}

static void chunks_of_13_by_21_and_others_reshard_to_any_dimension_and_order(void **state)
{
    (void)state;
    assert_chunks_reshard(13, 21);
    assert_chunks_reshard(14, 23);
    assert_chunks_reshard(15, 26);
    assert_chunks_reshard(12, 24);
}

static void cycle_of_4_ranks_is_one_message_out_and_one_in(void **state)
{
    rsd_layout    *src = chunk(0, orders[4], 12, 24), *dst = chunk(0, orders[0], 12, 24);
    rsd_plan_stats stats = { .size = sizeof(stats) };

    (void)state;
    for (int32_t rank = 0; rank < 4; rank++) {
        rsd_plan *plan = make_plan(src, dst, rank);

        rsd_plan_stats_get(plan, &stats, NULL);
        assert_int_equal(stats.moves, 2);
        assert_int_equal(stats.messages, 2);
        assert_int_equal(stats.peers, 2);
        assert_int_equal(stats.bytes_local, 0);
        assert_int_equal(stats.bytes_sent, 3 * 24 * 4);
        assert_int_equal(stats.bytes_recv, 3 * 24 * 4);
        rsd_plan_free(plan);
    }
    rsd_layout_free(src);
    rsd_layout_free(dst);
}

/* Some rows on each of 4 ranks */
static rsd_layout *lay_rows(const int64_t shape[2], const int64_t off[4], const int64_t len[4],
                            oracle *want)
{
    rsd_layout *layout;
    rsd_box     box[4];

    for (int i = 0; i < 4; i++)
        box[i] = (rsd_box){ .ndim = 2, .off = { off[i], 0 }, .len = { len[i], 1 } };
    assert_int_equal(rsd_layout_create_boxes(RSD_F32, 2, shape, 4, counted, box, &layout, NULL),
                     RSD_OK);
    oracle_boxes(want, 4, 2, shape, 4, counted, box);
    return layout;
}

static void explicit_uneven_boxes_reshard_to_other_ones(void **state)
{
    static const int64_t off[][4] = { { 0, 4, 7, 11 }, { 0, 2, 6, 12 }, { 0, 6, 8, 9 } };
    static const int64_t len[][4] = { { 4, 3, 4, 5 }, { 2, 4, 6, 4 }, { 6, 2, 1, 7 } };
    const int64_t        shape[] = { 16, 1 };
    rsd_layout          *layout[3];
    oracle               want[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        layout[i] = lay_rows(shape, off[i], len[i], &want[i]);
    for (int i = 0; i < 3 * 3; i++)
        assert_new_parts_arrive(layout[i / 3], &want[i / 3], layout[i % 3], &want[i % 3], shape);
    for (int i = 0; i < 3; i++) {
        rsd_layout_free(layout[i]);
        oracle_free(&want[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunking_10_rows_on_4_ranks_gives_3_3_3_1),
        cmocka_unit_test(chunking_5_rows_on_4_ranks_gives_2_2_1_0),
        cmocka_unit_test(chunking_2_rows_on_4_ranks_gives_1_1_0_0),
        cmocka_unit_test(sharding_10_rows_twice_on_2_by_2_gives_3_2_3_2),
        cmocka_unit_test(empty_shard_has_no_box_and_no_bytes),
        cmocka_unit_test(rank_outside_the_mesh_holds_nothing),
        cmocka_unit_test(dimension_of_size_0_leaves_every_rank_empty),
        cmocka_unit_test(replicated_scalar_is_one_box_of_one_element_on_each_rank),
        cmocka_unit_test(negative_dimension_counts_from_the_last),
        cmocka_unit_test(lone_strided_shard_interleaves_rows),
        cmocka_unit_test(even_strided_shard_is_tensor_parallel_first_then_data_parallel),
        cmocka_unit_test(uneven_strided_shards_that_dcp_can_not_save_tile_the_tensor),
        cmocka_unit_test(strided_shards_of_all_small_sizes_tile_the_tensor),
        cmocka_unit_test(strided_shard_of_13_rows_on_3_by_2_has_these_boxes),
        cmocka_unit_test(chunk_goes_to_the_rank_at_its_place),
        cmocka_unit_test(chunk_beyond_the_end_is_empty),
        cmocka_unit_test(overlap_is_told_for_each_dimension_from_each_start),
        cmocka_unit_test(boxes_apart_in_one_dimension_do_not_overlap),
        cmocka_unit_test(two_scalars_always_overlap),
        cmocka_unit_test(empty_box_overlaps_nothing_not_even_where_it_lies),
        cmocka_unit_test(overlap_of_all_short_rows_is_what_they_share),
        cmocka_unit_test(chunks_of_13_by_21_and_others_reshard_to_any_dimension_and_order),
        cmocka_unit_test(cycle_of_4_ranks_is_one_message_out_and_one_in),
        cmocka_unit_test(explicit_uneven_boxes_reshard_to_other_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
