/* SPDX-License-Identifier: Apache-2.0 */
/* Answers callers' questions about a plan: its moves one by one, its totals, its inverse, another
 * rank's view. */
#include "base/opts.h"
#include "plan/planner.h"

#include <inttypes.h>

rsd_err rsd_plan_invert(const rsd_plan *plan, rsd_plan **out, rsd_error *err)
{
    if (!plan)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: plan");
    return rsd_plan_create(plan->n, (const rsd_layout *const *)plan->dst,
                           (const rsd_layout *const *)plan->src, plan->rank, out, err);
}

rsd_err rsd_plan_of_rank(const rsd_plan *plan, int32_t rank, rsd_plan **out, rsd_error *err)
{
    if (!plan)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: plan");
    return rsd_plan_create(plan->n, (const rsd_layout *const *)plan->src,
                           (const rsd_layout *const *)plan->dst, rank, out, err);
}

rsd_err rsd_plan_stats_get(const rsd_plan *plan, rsd_plan_stats *out, rsd_error *err)
{
    rsd_err rc = rsi_result_check(out, "rsd_plan_stats", err);

    if (!rc && !plan)
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: plan");
    if (!rc)
        rsi_result_give(out, &plan->stats, sizeof(plan->stats));
    return rc;
}

void rsi_plan_move(const rsd_plan *plan, rsi_entry entry, int32_t peer, bool sends, rsd_move *out)
{
    const rsi_class    *c = plan->class[plan->class_of[entry.tensor]];
    const rsi_overlaps *pieces = sends ? &c->send : &c->recv;
    int64_t             my_box = (int64_t)rsi_overlaps_get(pieces, entry.piece, &out->box);

    out->tensor = entry.tensor;
    out->from = sends ? plan->rank : peer;
    out->to = sends ? peer : plan->rank;
    out->from_box = sends ? my_box : -1;
    out->to_box = sends ? -1 : my_box;
    if (peer == plan->rank)
        out->from_box = (int64_t)rsi_overlaps_my_box(&c->send, &out->box);
    out->reduce = c->reduce;
    out->share = c->share;
}

typedef rsd_err (*visitor)(void *arg, const rsd_move *move);

static rsd_err visit_rows(const rsd_plan *plan, const rsi_entry *entry, size_t n, int32_t peer,
                          bool sends, visitor visit, void *arg)
{
    rsd_move move = { 0 };

    for (size_t i = 0; i < n; i++) {
        rsd_err rc;

        rsi_plan_move(plan, entry[i], peer, sends, &move);
        rc = visit(arg, &move);
        if (rc)
            return rc;
    }
    return RSD_OK;
}

rsd_err rsd_plan_each(const rsd_plan *plan, rsd_err (*visit)(void *arg, const rsd_move *move),
                      void *arg, rsd_error *err)
{
    const rsi_rows *send, *recv;
    rsd_err         rc;

    if (!plan || !visit)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: plan or callback");
    if (err)
        err->code = RSD_OK; /* to see whether the visitor fills it in */
    send = &plan->send;
    recv = &plan->recv;
    rc = visit_rows(plan, plan->local, plan->nlocal, plan->rank, false, visit, arg);
    for (size_t p = 0; p < plan->npeers && !rc; p++) {
        rc = visit_rows(plan, send->entry + send->first[p], send->first[p + 1] - send->first[p],
                        plan->peer[p], true, visit, arg);
        if (!rc)
            rc = visit_rows(plan, recv->entry + recv->first[p], recv->first[p + 1] - recv->first[p],
                            plan->peer[p], false, visit, arg);
    }
    if (rc && err && err->code != (int32_t)rc)
        rsi_fail(err, rc, "the visitor stopped the plan's moves: %s", rsd_err_name(rc));
    return rc;
}
