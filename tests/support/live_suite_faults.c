/* SPDX-License-Identifier: Apache-2.0 */
/* live_suite_faults.c - ranks that mean different things, views that are missing, callbacks that
 * fail, ranks that do not come; and that sums have the same bits everywhere. */
#include "live_suite.h"

#include <reshard/reshard_live.h>
#include <stdio.h>
#include <string.h>

#define CHECK COMM_CHECK

enum { ROWS = 24, COLS = 10, SHORT_MS = 50 };

/* One float32 tensor of ROWS x COLS, rows to columns, in memory of this rank. */
typedef struct setup {
    rsd_layout *src, *dst;
    rsd_plan   *plan;
    float       from[ROWS * COLS], to[ROWS * COLS];
    rsd_view    view[2];
    rsd_views   in, out;
} setup;

static rsd_err make_side(rsd_comm *comm, rsd_dtype dtype, int64_t rows, rsd_place_kind kind,
                         int32_t dim, rsd_layout **out, rsd_error *err)
{
    const int64_t       shape[] = { rows, COLS }, sizes[] = { comm->size };
    const rsd_placement place = { .kind = kind, .dim = dim, .reduce = RSD_SUM };
    rsd_mesh           *mesh;
    rsd_err             rc = rsd_mesh_create(1, sizes, NULL, NULL, &mesh, err);

    if (!rc)
        rc = rsd_layout_create(mesh, &place, dtype, 2, shape, out, err);
    rsd_mesh_free(mesh);
    return rc;
}

static rsd_err set_up(setup *s, rsd_comm *comm, rsd_dtype dtype, int64_t rows, rsd_place_kind kind,
                      int32_t to_dim, rsd_error *err)
{
    const rsd_layout *src, *dst;
    rsd_err           rc;

    memset(s, 0, sizeof(*s));
    rc = make_side(comm, dtype, rows, kind, 0, &s->src, err);
    if (!rc)
        rc = make_side(comm, dtype, rows, to_dim < 0 ? RSD_REPLICATE : RSD_SHARD, to_dim, &s->dst,
                       err);
    src = s->src;
    dst = s->dst;
    if (!rc)
        rc = rsd_plan_create(1, &src, &dst, comm->rank, &s->plan, err);
    if (rc)
        return rc;
    s->in = (rsd_views){ rsd_layout_views(src, comm->rank, s->from, &s->view[0], 1), &s->view[0] };
    s->out = (rsd_views){ rsd_layout_views(dst, comm->rank, s->to, &s->view[1], 1), &s->view[1] };
    for (int i = 0; i < ROWS * COLS; i++)
        s->to[i] = -1;
    return RSD_OK;
}

static void tear_down(setup *s)
{
    rsd_plan_free(s->plan);
    rsd_layout_free(s->src);
    rsd_layout_free(s->dst);
}

static rsd_err run(const setup *s, rsd_comm *comm, rsd_error *err)
{
    static const char *const name[] = { "layers.0.weight" };
    const rsd_reshard_opts   opts = { .size = sizeof(opts), .name = name };

    return rsd_reshard(s->plan, comm, &s->in, &s->out, &opts, err);
}

static bool untouched(const setup *s)
{
    for (int i = 0; i < ROWS * COLS; i++)
        if (s->to[i] != -1)
            return false;
    return true;
}

/* ---- ranks that differ ---- */

static rsd_err differs(rsd_comm *comm, rsd_dtype dtype, int64_t rows, int32_t to_dim,
                       const char *what, rsd_error *err)
{
    int32_t last = comm->size - 1;
    bool    odd = comm->rank == last;
    char    want[160];
    setup   s;
    rsd_err rc = set_up(&s, comm, odd ? dtype : RSD_F32, odd ? rows : ROWS, RSD_SHARD,
                        odd ? to_dim : 1, err);

    if (rc)
        return rc;
    rc = run(&s, comm, err);
    snprintf(want, sizeof(want), "rank %d: tensor \"layers.0.weight\": %s on rank 0", last, what);
    CHECK(rc == RSD_E_MISMATCH && err->rank == last && err->nfailed == 1);
    CHECK(strcmp(err->msg, want) == 0);
    CHECK(untouched(&s));
    tear_down(&s);
    return rsi_barrier(comm, err); /* the comm is whole */
}

static rsd_err another_dtype_shape_or_layout_is_told_with_tensor_and_rank(rsd_comm  *comm,
                                                                          rsd_error *err)
{
    rsd_err rc = differs(comm, RSD_I32, ROWS, 1, "dtype is int32 here, but float32", err);

    if (!rc)
        rc = differs(comm, RSD_F32, ROWS - 1, 1, "shape is [23, 10] here, but [24, 10]", err);
    if (!rc)
        rc = differs(comm, RSD_F32, ROWS, 0, "target layout differs from that", err);
    return rc;
}

static rsd_err another_number_of_tensors_is_told(rsd_comm *comm, rsd_error *err)
{
    setup             s;
    rsd_plan         *plan = NULL;
    const rsd_layout *twice[2], *both[2];
    rsd_views         in[2], out[2];
    rsd_err           rc = set_up(&s, comm, RSD_F32, ROWS, RSD_SHARD, 1, err);

    if (rc)
        return rc;
    twice[0] = twice[1] = s.src;
    both[0] = both[1] = s.dst;
    in[0] = in[1] = s.in;
    out[0] = out[1] = s.out;
    rc = rsd_plan_create(comm->rank == 1 ? 2 : 1, twice, both, comm->rank, &plan, err);
    if (!rc)
        rc = rsd_reshard(plan, comm, in, out, NULL, err);
    CHECK(rc == RSD_E_MISMATCH && err->rank == 1);
    CHECK(strcmp(err->msg, "rank 1: the number of tensors is 2 here, but 1 on rank 0") == 0);
    rsd_plan_free(plan);
    tear_down(&s);
    return RSD_OK;
}

static rsd_err the_plan_of_another_rank_is_refused(rsd_comm *comm, rsd_error *err)
{
    setup     s;
    rsd_plan *other = NULL;
    rsd_err   rc = set_up(&s, comm, RSD_F32, ROWS, RSD_SHARD, 1, err);

    if (!rc)
        rc = rsd_plan_of_rank(s.plan, 0, &other, err);
    if (rc)
        return rc;
    rc = rsd_reshard(other, comm, &s.in, &s.out, NULL, err);
    CHECK(rc == RSD_E_MISMATCH && err->rank == 1);
    CHECK(strcmp(err->msg, "rank 1: the plan is that of rank 0") == 0);
    rsd_plan_free(other);
    tear_down(&s);
    return RSD_OK;
}

/* ---- memory that is not there ---- */

static rsd_err a_view_too_small_is_refused_before_anything_moves(rsd_comm *comm, rsd_error *err)
{
    setup   s;
    rsd_err rc = set_up(&s, comm, RSD_F32, ROWS, RSD_SHARD, 1, err);

    if (rc)
        return rc;
    if (comm->rank == 1)
        s.view[1].box.len[0]--;
    rc = run(&s, comm, err);
    CHECK(rc == RSD_E_MISMATCH && err->rank == 1);
    CHECK(strstr(err->msg, "rank 1: tensor \"layers.0.weight\": target: the views have "));
    CHECK(untouched(&s));
    tear_down(&s);
    return rsi_barrier(comm, err);
}

static rsd_err a_view_without_memory_is_refused(rsd_comm *comm, rsd_error *err)
{
    setup   s;
    rsd_err rc = set_up(&s, comm, RSD_F32, ROWS, RSD_SHARD, 1, err);

    if (rc)
        return rc;
    if (comm->rank == 0)
        s.view[0].data = NULL;
    rc = run(&s, comm, err);
    CHECK(rc == RSD_E_INVALID && err->rank == 0);
    CHECK(strstr(err->msg, "source: view 0: it has neither memory nor a get"));
    tear_down(&s);
    return RSD_OK;
}

/* ---- failures on the way ---- */

static rsd_err fails(void *arg, uint64_t off, void *host, size_t len)
{
    (void)arg, (void)off, (void)host, (void)len;
    return RSD_E_IO;
}

static rsd_err a_callback_that_fails_fails_all_and_breaks_nothing(rsd_comm *comm, rsd_error *err)
{
    setup   s;
    rsd_err rc = set_up(&s, comm, RSD_F32, ROWS, RSD_SHARD, 1, err);

    if (rc)
        return rc;
    if (comm->rank == 1) {
        s.view[0].data = NULL;
        s.view[0].get = fails;
    }
    rc = run(&s, comm, err);
    CHECK(rc == RSD_E_IO && err->rank == 1 && err->nfailed == 1);
    CHECK(strstr(err->msg, "rank 1: tensor \"layers.0.weight\": the caller's get failed"));
    if (comm->rank == 1)
        s.view[0].data = s.from;
    rc = run(&s, comm, err);
    tear_down(&s);
    return rc;
}

static rsd_err canceled_on_one_rank_ends_on_all(rsd_comm *comm, rsd_error *err)
{
    setup   s;
    rsd_op *op = NULL;
    bool    done = false;
    rsd_err rc = set_up(&s, comm, RSD_F32, ROWS, RSD_SHARD, 1, err);

    if (!rc)
        rc = rsd_reshard_begin(s.plan, comm, &s.in, &s.out, NULL, &op, err);
    if (rc)
        return rc;
    if (comm->rank == 1)
        rsd_op_cancel(op);
    rc = rsd_op_wait(op, RSD_STAGED, err);
    CHECK(rc == RSD_E_CANCELED && err->rank == 1);
    rc = rsd_op_test(op, RSD_DURABLE, &done, err); /* and stays so */
    CHECK(rc == RSD_E_CANCELED && done && err->rank == 1);
    rsd_op_free(op);
    tear_down(&s);
    return rsi_barrier(comm, err);
}

static rsd_err two_operations_at_once_do_not_mix(rsd_comm *comm, rsd_error *err)
{
    setup   s[2];
    rsd_op *op[2] = { NULL, NULL };
    rsd_err rc = RSD_OK;

    for (int i = 0; i < 2 && !rc; i++) {
        rc = set_up(&s[i], comm, RSD_F32, ROWS, RSD_SHARD, 1, err);
        for (int k = 0; k < ROWS * COLS; k++)
            s[i].from[k] = (float)(i + 1);
        if (!rc)
            rc = rsd_reshard_begin(s[i].plan, comm, &s[i].in, &s[i].out, NULL, &op[i], err);
    }
    for (int i = 0; i < 2 && !rc; i++)
        rc = rsd_op_wait(op[i], RSD_DURABLE, err);
    if (rc)
        return rc;
    for (int i = 0; i < 2; i++) {
        CHECK(s[i].out.n == 0 || s[i].to[0] == (float)(i + 1));
        rsd_op_free(op[i]);
        tear_down(&s[i]);
    }
    return RSD_OK;
}

/* All but the last call it; see comm_suite_end.c. */
static rsd_err a_rank_that_does_not_come_is_named(rsd_comm *comm, rsd_error *err)
{
    int32_t last = comm->size - 1;
    char    never, text[64];
    void   *request = NULL;
    setup   s;
    rsd_err rc = set_up(&s, comm, RSD_F32, ROWS, RSD_SHARD, 1, err);

    comm->grace_ms = 60000;
    comm->present = comm->size - 1;
    if (!rc)
        rc = rsd_comm_set_timeout(comm, SHORT_MS, err);
    if (rc)
        return rc;
    if (comm->rank == last) {
        rc = rsi_recv(comm, comm->rank, 77, &never, 1, &request, err);
        if (!rc)
            rc = comm->ops.wait_some(comm->self, 1, &request, 60000, err);
        rsi_drop(comm, 1, &request);
    } else {
        rc = run(&s, comm, err);
    }
    tear_down(&s);
    snprintf(text, sizeof(text), "rank %d did not come", last);
    CHECK(rc == RSD_E_TIMEOUT && err->rank == last && strstr(err->msg, text));
    return RSD_OK;
}

/* ---- sums ---- */

/* Numbers whose sum depends on the order. */
static float awkward(int32_t rank, int i)
{
    return (float)((i * 7919 + rank * 104729) % 1000) * (rank % 2 ? 1e-3f : 1e4f) + 0.1f;
}

static rsd_err sums_are_made_in_the_order_of_the_mesh(rsd_comm *comm, rsd_error *err)
{
    rsd_reshard_opts opts = { .size = sizeof(opts) };
    rsd_err          rc = RSD_OK;

    for (int way = 0; way < 2 && !rc; way++) {
        setup s;

        rc = set_up(&s, comm, RSD_F32, ROWS, RSD_PARTIAL, -1, err);
        for (int i = 0; i < ROWS * COLS; i++)
            s.from[i] = awkward(comm->rank, i);
        opts.direct = way ? RSD_NEVER : RSD_DEFAULT;
        if (!rc)
            rc = rsd_reshard(s.plan, comm, &s.in, &s.out, &opts, err);
        for (int i = 0; i < ROWS * COLS && !rc; i++) {
            float sum = awkward(0, i);

            for (int32_t r = 1; r < comm->size; r++)
                sum += awkward(r, i);
            CHECK(memcmp(&sum, &s.to[i], sizeof(sum)) == 0);
        }
        tear_down(&s);
    }
    return rc;
}

const comm_case live_suite_faults[] = {
    { COMM_CASE(another_dtype_shape_or_layout_is_told_with_tensor_and_rank), 2, false },
    { COMM_CASE(another_number_of_tensors_is_told), 2, false },
    { COMM_CASE(the_plan_of_another_rank_is_refused), 2, false },
    { COMM_CASE(a_view_too_small_is_refused_before_anything_moves), 2, false },
    { COMM_CASE(a_view_without_memory_is_refused), 1, false },
    { COMM_CASE(a_callback_that_fails_fails_all_and_breaks_nothing), 2, false },
    { COMM_CASE(canceled_on_one_rank_ends_on_all), 2, false },
    { COMM_CASE(two_operations_at_once_do_not_mix), 1, false },
    { COMM_CASE(sums_are_made_in_the_order_of_the_mesh), 1, false },
    { COMM_CASE(a_rank_that_does_not_come_is_named), 2, true },
    { NULL, NULL, 0, false },
};
