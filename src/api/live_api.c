/* SPDX-License-Identifier: Apache-2.0 */
/* The live section of reshard.h: checks arguments and hands them on to live/exchange.c. */
#include "base/opts.h"
#include "comm/facts.h"
#include "live/exchange.h"
#include "comm/op.h"
#include "shape/box.h"
#include "shape/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static rsd_err test_exchange(void *self, rsd_phase phase, bool *done, rsd_error *err)
{
    (void)phase;
    return rsi_exchange_step(self, false, done, err);
}

static rsd_err wait_exchange(void *self, rsd_phase phase, rsd_error *err)
{
    bool done;

    (void)phase;
    return rsi_exchange_step(self, true, &done, err);
}

static void cancel_exchange(void *self)
{
    rsi_exchange_cancel(self);
}

static void free_exchange(void *self)
{
    rsi_exchange_free(self);
}

static const rsi_op_ops exchange_ops = { test_exchange, wait_exchange, cancel_exchange,
                                         free_exchange };

static rsd_err take_args(const rsd_plan *plan, rsd_comm *comm, const rsd_views *src,
                         const rsd_views *dst, const rsd_reshard_opts *opts, rsi_exchange_args *out,
                         rsd_error *err)
{
    rsd_reshard_opts known = { .size = sizeof(known) };
    rsd_err          rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_reshard_opts", err);

    if (!rc && (!plan || !comm))
        rc = rsi_fail(err, RSD_E_INVALID, "a plan and a comm are needed");
    *out = (rsi_exchange_args){ .comm = comm,
                                .plan = plan,
                                .src = src,
                                .dst = dst,
                                .name = known.name,
                                .memory = known.memory,
                                .no_direct = known.direct == RSD_NEVER,
                                .stats = known.stats };
    return rc;
}

/* `rc` is how taking the arguments went. The memory first: later a rank without any would leave the
 * others alone. */
static rsd_err begin(const rsi_exchange_args *args, rsd_err rc, rsi_exchange **out, rsd_error *err)
{
    rsi_exchange *x = NULL;

    if (!rc)
        rc = rsi_exchange_create(&x, err);
    rc = rsi_same_call(args->comm, "rsd_reshard", rc, err);
    if (!rc)
        rc = rsi_exchange_begin(x, args, err);
    if (rc)
        rsi_exchange_free(x);
    else
        *out = x;
    return rc;
}

rsd_err rsd_reshard(const rsd_plan *plan, rsd_comm *comm, const rsd_views *src,
                    const rsd_views *dst, const rsd_reshard_opts *opts, rsd_error *err)
{
    rsi_exchange_args args;
    rsi_exchange     *x;
    bool              done;
    rsd_err           rc = take_args(plan, comm, src, dst, opts, &args, err);

    rc = begin(&args, rc, &x, err);
    if (rc)
        return rc;
    rc = rsi_exchange_step(x, true, &done, err);
    rsi_exchange_free(x);
    return rc;
}

rsd_err rsd_reshard_begin(const rsd_plan *plan, rsd_comm *comm, const rsd_views *src,
                          const rsd_views *dst, const rsd_reshard_opts *opts, rsd_op **out,
                          rsd_error *err)
{
    rsi_exchange_args args;
    rsi_exchange     *x;
    rsd_op           *op = NULL;
    rsd_err           rc = take_args(plan, comm, src, dst, opts, &args, err);

    if (!rc && !out)
        rc = rsi_fail(err, RSD_E_INVALID, "a place for the operation is needed");
    if (!rc)
        rc = rsi_op_create(&exchange_ops, NULL, &op, err);
    rc = begin(&args, rc, &x, err);
    if (rc) {
        rsd_op_free(op);
        return rc;
    }
    rsi_op_set(op, x);
    *out = op;
    return RSD_OK;
}

size_t rsd_layout_views(const rsd_layout *layout, int32_t rank, void *data, rsd_view *out,
                        size_t cap)
{
    size_t n = rsd_layout_boxes(layout, rank, NULL, 0);

    for (size_t i = 0; out && i < n && i < cap; i++) {
        rsd_local local;

        if (rsd_layout_local(layout, rank, i, &local, NULL) != RSD_OK)
            return i;
        out[i] = (rsd_view){ .box = local.box, .data = (char *)data + local.offset };
        memcpy(out[i].stride, local.stride, sizeof(local.stride));
    }
    return n;
}

static int by_rank(const void *a, const void *b)
{
    const rsd_shard *x = a, *y = b;

    return (x->rank > y->rank) - (x->rank < y->rank);
}

rsd_err rsd_chunk_shards(int32_t dim, size_t n, const int32_t *ranks, int ndim,
                         const int64_t *shape, rsd_shard *out, rsd_error *err)
{
    int64_t elems, each, start = 0;
    rsd_err rc;

    if (n == 0 || !ranks || !out)
        return rsi_fail(err, RSD_E_INVALID, "ranks and a place for their shards are needed");
    rc = rsi_shape_check(RSD_U8, ndim, shape, &elems, err);
    if (rc)
        return rc;
    if (dim < -ndim || dim >= ndim)
        return rsi_fail(err, RSD_E_INVALID, "there is no dimension %" PRId32 " of %d", dim, ndim);
    dim += dim < 0 ? ndim : 0;
    each = shape[dim] / (int64_t)n + (shape[dim] % (int64_t)n != 0);
    for (size_t i = 0; i < n; i++) {
        int64_t left = shape[dim] - start;

        out[i] = (rsd_shard){ .rank = ranks[i], .box.ndim = ndim };
        memcpy(out[i].box.len, shape, (size_t)ndim * sizeof(shape[0]));
        out[i].box.off[dim] = start;
        out[i].box.len[dim] = each < left ? each : left;
        start += out[i].box.len[dim];
    }
    qsort(out, n, sizeof(out[0]), by_rank);
    for (size_t i = 1; i < n; i++)
        if (out[i].rank == out[i - 1].rank)
            return rsi_fail(err, RSD_E_INVALID, "rank %" PRId32 " is listed twice", out[i].rank);
    return RSD_OK;
}
