/* SPDX-License-Identifier: Apache-2.0 */
/* live_suite.c - layouts that become others: PyTorch's cases and all pairs of placements. Next:
 * live_suite_faults.c. */
#include "live_suite.h"

#include "live/exchange.h"
#include "live_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 64, TINY = 5120 };

const comm_case *comm_suite(size_t i)
{
    const comm_case *const part[] = { live_suite_layouts, live_suite_faults };

    rsi_exchange_room_least = 1; /* the tensors are small */
    for (size_t p = 0; p < sizeof(part) / sizeof(part[0]); p++)
        for (const comm_case *c = part[p]; c->name; c++)
            if (i-- == 0)
                return c;
    return NULL;
}

/* Every way to move bytes that a caller can ask for. */
static const live_how ways[] = {
    { .direct = true, .count = true },
    { .count = true },
    { .memory = TINY, .count = true, .in_steps = true },
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static rsd_err run_ways(rsd_comm *comm, size_t n, const live_tensor *tensor, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int w = 0; w < WAYS && !rc; w++) {
        rc = live_run(comm, n, tensor, &ways[w], NULL, err);
        if (rc)
            rsi_while(err, rc, "way %d", w);
    }
    return rc;
}

/* ---- ShardedTensor.reshard ---- */

/* Some orders of n ranks: rising, falling, rotated (one cycle over all), pairs swapped. */
static void order_ranks(int which, int32_t n, int32_t *out)
{
    for (int32_t i = 0; i < n; i++)
        out[i] = which == 0    ? i
                 : which == 1  ? n - 1 - i
                 : which == 2  ? (i + 1) % n
                 : (i ^ 1) < n ? i ^ 1
                               : i;
}

static rsd_err chunked_to_chunked(rsd_comm *comm, const int64_t *shape, int dims, int orders,
                                  rsd_error *err)
{
    int32_t     before[RANKS], after[RANKS], n = comm->size;
    rsd_layout *src = NULL, *dst = NULL;
    live_tensor tensor = { .parts = 1 };
    rsd_err     rc;

    order_ranks(orders % 4, n, before);
    order_ranks(orders / 4, n, after);
    rc = rsd_layout_create_chunked(dims % 2, (size_t)n, before, RSD_F32, 2, shape, &src, err);
    if (!rc)
        rc = rsd_layout_create_chunked(dims / 2, (size_t)n, after, RSD_F32, 2, shape, &dst, err);
    tensor.src = src;
    tensor.dst = dst;
    if (!rc)
        rc = run_ways(comm, 1, &tensor, err);
    rsd_layout_free(src);
    rsd_layout_free(dst);
    return rc;
}

static rsd_err chunked_tensors_take_any_dimension_and_order_of_ranks(rsd_comm *comm, rsd_error *err)
{
    static const int64_t shape[][2] = { { 13, 21 }, { 14, 23 }, { 15, 26 }, { 12, 24 } };
    rsd_err              rc = RSD_OK;

    for (int s = 0; s < 4 && !rc; s++)
        for (int dims = 0; dims < 4 && !rc; dims++)
            for (int orders = s; orders < 16 && !rc; orders += 5)
                rc = chunked_to_chunked(comm, shape[s], dims, orders, err);
    return rc;
}

static rsd_err the_shards_of_a_chunked_tensor_are_those_of_its_layout(rsd_comm  *comm,
                                                                      rsd_error *err)
{
    static const int64_t shape[] = { 13, 21 };
    int32_t              ranks[RANKS], n = comm->size;
    rsd_shard            shard[RANKS];
    rsd_layout          *layout;
    rsd_box              box;
    rsd_err              rc;

    order_ranks(2, n, ranks);
    rc = rsd_chunk_shards(1, (size_t)n, ranks, 2, shape, shard, err);
    if (!rc)
        rc = rsd_layout_create_chunked(1, (size_t)n, ranks, RSD_F32, 2, shape, &layout, err);
    if (rc)
        return rc;
    for (int32_t r = 0; r < n; r++) {
        size_t have = rsd_layout_boxes(layout, r, &box, 1);

        COMM_CHECK(shard[r].rank == r);
        COMM_CHECK(have == (rsd_box_count(&shard[r].box) > 0));
        COMM_CHECK(have == 0 || oracle_same(&box, &shard[r].box));
        COMM_CHECK(have == 1 || shard[r].box.off[1] == 21);
    }
    rsd_layout_free(layout);
    return RSD_OK;
}

/* ---- all pairs of placements ---- */

static const char *const place_names[] = { "R", "S0", "S1", "P" };

static rsd_placement place_of(int which)
{
    return (rsd_placement){ .kind = which == 0   ? RSD_REPLICATE
                                    : which == 3 ? RSD_PARTIAL
                                                 : RSD_SHARD,
                            .dim = which == 2,
                            .reduce = RSD_SUM };
}

/* A mesh of a * b ranks, and which contribution each holds. */
typedef struct grid {
    int64_t a, b;
    int     place[2]; /* of the source */
} grid;

static int32_t part_on_grid(int32_t rank, void *arg)
{
    const grid *g = arg;
    int64_t     part = 0;

    if (g->place[0] == 3)
        part = rank / g->b;
    if (g->place[1] == 3)
        part = part * g->b + rank % g->b;
    return (int32_t)part;
}

static rsd_err make_layout(const grid *g, const int *place, rsd_dtype dtype, const int64_t *shape,
                           rsd_layout **out, rsd_error *err)
{
    const int64_t       sizes[] = { g->a, g->b };
    const rsd_placement places[] = { place_of(place[0]), place_of(place[1]) };
    rsd_mesh           *mesh;
    rsd_err             rc = rsd_mesh_create(2, sizes, NULL, NULL, &mesh, err);

    if (rc)
        return rc;
    rc = rsd_layout_create(mesh, places, dtype, 2, shape, out, err);
    rsd_mesh_free(mesh);
    return rc;
}

static rsd_err pair_on_grid(rsd_comm *comm, const grid *g, const int *to, const live_how *how,
                            rsd_error *err)
{
    static const int64_t shape[] = { 13, 21 };
    rsd_dtype            dtype = g->place[0] == 3 || g->place[1] == 3 ? RSD_BF16 : RSD_I32;
    rsd_layout          *src = NULL, *dst = NULL;
    live_tensor          tensor = { .parts = 1, .part_of = part_on_grid, .arg = (void *)g };
    rsd_err              rc;

    tensor.parts = (int32_t)((g->place[0] == 3 ? g->a : 1) * (g->place[1] == 3 ? g->b : 1));
    if (to[0] == 3 || to[1] == 3)
        dtype = RSD_F32;
    rc = make_layout(g, g->place, dtype, shape, &src, err);
    if (!rc)
        rc = make_layout(g, to, dtype, shape, &dst, err);
    tensor.src = src;
    tensor.dst = dst;
    if (!rc)
        rc = live_run(comm, 1, &tensor, how, NULL, err);
    if (rc)
        rsi_while(err, rc, "(%s,%s) to (%s,%s)", place_names[g->place[0]], place_names[g->place[1]],
                  place_names[to[0]], place_names[to[1]]);
    rsd_layout_free(src);
    rsd_layout_free(dst);
    return rc;
}

/* From every placement to every one; Partial only on one side, or nothing would be combined. */
static rsd_err every_pair(rsd_comm *comm, int64_t a, const live_how *how, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int i = 0; i < 256 && !rc; i++) {
        grid      g = { a, comm->size / a, { i % 4, i / 4 % 4 } };
        const int to[] = { i / 16 % 4, i / 64 };
        bool      from_partial = g.place[0] == 3 || g.place[1] == 3;
        bool      to_partial = to[0] == 3 || to[1] == 3;

        if ((a == 1 && (g.place[0] || to[0])) || (from_partial && to_partial))
            continue;
        rc = pair_on_grid(comm, &g, to, how, err);
    }
    return rc;
}

/* The two sides of the grid that is nearest to a square. */
static int64_t side_of(int32_t n)
{
    int64_t side = 1;

    for (int64_t a = 2; a * a <= n; a++)
        side = n % a == 0 ? a : side;
    return side;
}

static rsd_err every_pair_of_placements_on_a_line(rsd_comm *comm, rsd_error *err)
{
    rsd_err rc = every_pair(comm, 1, &ways[0], err);

    if (!rc)
        rc = every_pair(comm, 1, &ways[1], err);
    return rc;
}

static rsd_err every_pair_of_placements_on_a_grid(rsd_comm *comm, rsd_error *err)
{
    rsd_err rc = every_pair(comm, side_of(comm->size), &ways[0], err);

    if (!rc)
        rc = every_pair(comm, side_of(comm->size), &ways[1], err);
    return rc;
}

/* ---- other ranks ---- */

static rsd_err between_ranks(rsd_comm *comm, int32_t first, int32_t from, int32_t start, int32_t to,
                             rsd_error *err)
{
    static const int64_t shape[] = { 37, 19 };
    int32_t              before[RANKS], after[RANKS];
    rsd_layout          *src = NULL, *dst = NULL;
    live_tensor          tensor = { .parts = 1 };
    rsd_err              rc;

    for (int32_t i = 0; i < from; i++)
        before[i] = first + i;
    for (int32_t i = 0; i < to; i++)
        after[i] = start + to - 1 - i;
    rc = rsd_layout_create_chunked(0, (size_t)from, before, RSD_F16, 2, shape, &src, err);
    if (!rc)
        rc = rsd_layout_create_chunked(1, (size_t)to, after, RSD_F16, 2, shape, &dst, err);
    tensor.src = src;
    tensor.dst = dst;
    if (!rc)
        rc = run_ways(comm, 1, &tensor, err);
    rsd_layout_free(src);
    rsd_layout_free(dst);
    return rc;
}

/* 8 ranks of a trainer to 3 of a server, with as many ranks as there are. */
static rsd_err the_new_owners_may_be_other_ranks(rsd_comm *comm, rsd_error *err)
{
    int32_t n = comm->size, few = n * 3 / 8 > 0 ? n * 3 / 8 : 1;
    rsd_err rc = between_ranks(comm, 0, n, n - few, few, err); /* some of the old ones */

    if (!rc && n > 1)
        rc = between_ranks(comm, 0, n - few, n - few, few, err); /* none of them */
    if (!rc && n > 1)
        rc = between_ranks(comm, n - few, few, 0, n - few, err); /* and back */
    return rc;
}

static rsd_err many_tensors_move_in_one_call(rsd_comm *comm, rsd_error *err)
{
    enum { MANY = 40 };
    grid        g = { 1, comm->size, { 0, 1 } };
    rsd_layout *layout[MANY][2] = { { NULL } };
    live_tensor tensor[MANY];
    rsd_err     rc = RSD_OK;

    for (int t = 0; t < MANY && !rc; t++) {
        const int64_t shape[] = { 1 + t % 7, 3 + t % 5 };
        const int     to[] = { 0, (t + 2) % 3 }, from[] = { 0, t % 3 };

        rc = make_layout(&g, from, t % 2 ? RSD_I64 : RSD_U8, shape, &layout[t][0], err);
        if (!rc)
            rc = make_layout(&g, to, t % 2 ? RSD_I64 : RSD_U8, shape, &layout[t][1], err);
        tensor[t] = (live_tensor){ .src = layout[t][0], .dst = layout[t][1], .parts = 1 };
    }
    if (!rc)
        rc = run_ways(comm, MANY, tensor, err);
    for (int t = 0; t < 2 * MANY; t++)
        rsd_layout_free(layout[t / 2][t % 2]);
    return rc;
}

/* ---- what is sent ---- */

/* As much as is cut, from rank 0 to all: cut and passed on, nobody sends it twice. */
static rsd_err a_replica_for_everyone_leaves_its_holder_once(rsd_comm *comm, rsd_error *err)
{
    static const int64_t shape[] = { 256, 64 };
    static const int32_t zero = 0;
    const live_how       how = { .count = true };
    grid                 g = { 1, comm->size, { 0, 0 } };
    rsd_layout          *src = NULL, *dst = NULL;
    live_tensor          tensor = { .parts = 1 };
    rsd_reshard_stats    stats = { .size = sizeof(stats) };
    rsd_err              rc = rsd_layout_create_chunked(0, 1, &zero, RSD_F32, 2, shape, &src, err);

    if (!rc)
        rc = make_layout(&g, g.place, RSD_F32, shape, &dst, err);
    tensor.src = src;
    tensor.dst = dst;
    if (!rc)
        rc = live_run(comm, 1, &tensor, &how, &stats, err);
    rsd_layout_free(src);
    rsd_layout_free(dst);
    if (rc)
        return rc;
    COMM_CHECK(stats.bytes_sent <= 256 * 64 * 4);
    COMM_CHECK(stats.bytes_recv == (comm->rank ? 256 * 64 * 4 : 0));
    return RSD_OK;
}

/* Rows to columns in memory from rsd_comm_alloc. */
static rsd_err memory_of_the_comm_is_reached_where_that_can_be_had(rsd_comm *comm, rsd_error *err)
{
    static const int64_t shape[] = { 37, 40 };
    const live_how       how = { .direct = true, .shared = true, .count = true, .in_steps = true };
    grid                 g = { 1, comm->size, { 0, 1 } };
    const int            to[] = { 0, 2 };
    rsd_layout          *src = NULL, *dst = NULL;
    live_tensor          tensor = { .parts = 1 };
    rsd_reshard_stats    stats = { .size = sizeof(stats) };
    rsd_err              rc = make_layout(&g, g.place, RSD_F32, shape, &src, err);

    if (!rc)
        rc = make_layout(&g, to, RSD_F32, shape, &dst, err);
    tensor.src = src;
    tensor.dst = dst;
    if (!rc)
        rc = live_run(comm, 1, &tensor, &how, &stats, err);
    rsd_layout_free(src);
    rsd_layout_free(dst);
    if (rc)
        return rc;
    /* MPI may have no window to give; threads always share their memory. */
    COMM_CHECK(strcmp(comm->ops.name, "threads") != 0 || stats.bytes_recv == 0);
    return RSD_OK;
}

static rsd_err extra_memory_stays_below_the_limit(rsd_comm *comm, rsd_error *err)
{
    enum { LIMIT = 128 << 10 };
    static const int64_t shape[] = { 512, 600 };
    const live_how       how = { .count = true, .memory = LIMIT };
    grid                 g = { 1, comm->size, { 0, 1 } };
    const int            to[] = { 0, 2 };
    rsd_layout          *src = NULL, *dst = NULL;
    live_tensor          tensor = { .parts = 1 };
    rsd_reshard_stats    stats = { .size = sizeof(stats) };
    rsd_err              rc = make_layout(&g, g.place, RSD_U8, shape, &src, err);

    if (!rc)
        rc = make_layout(&g, to, RSD_U8, shape, &dst, err);
    tensor.src = src;
    tensor.dst = dst;
    if (!rc)
        rc = live_run(comm, 1, &tensor, &how, &stats, err);
    rsd_layout_free(src);
    rsd_layout_free(dst);
    if (rc)
        return rc;
    COMM_CHECK(stats.extra_bytes > 0 && stats.extra_bytes <= LIMIT);
    return RSD_OK;
}

const comm_case live_suite_layouts[] = {
    { COMM_CASE(chunked_tensors_take_any_dimension_and_order_of_ranks), 1, false },
    { COMM_CASE(the_shards_of_a_chunked_tensor_are_those_of_its_layout), 1, false },
    { COMM_CASE(every_pair_of_placements_on_a_line), 1, false },
    { COMM_CASE(every_pair_of_placements_on_a_grid), 4, false },
    { COMM_CASE(the_new_owners_may_be_other_ranks), 1, false },
    { COMM_CASE(many_tensors_move_in_one_call), 1, false },
    { COMM_CASE(memory_of_the_comm_is_reached_where_that_can_be_had), 1, false },
    { COMM_CASE(a_replica_for_everyone_leaves_its_holder_once), 2, false },
    { COMM_CASE(extra_memory_stays_below_the_limit), 1, false },
    { NULL, NULL, 0, false },
};
