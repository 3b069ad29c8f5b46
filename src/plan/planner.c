/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans: checks the pairs of layouts and puts equal pairs into one class. overlap.c finds the
 * pieces, piece_holders.c the holders, peer_moves.c sorts the moves by peer, plan.c answers
 * callers' questions. */
#include "plan/planner.h"
#include "base/map.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

static rsd_err check_pair(const rsd_layout *src, const rsd_layout *dst, rsd_error *err)
{
    if (!src || !dst)
        return rsi_fail(err, RSD_E_INVALID, "a layout is missing");
    if (src->dtype != dst->dtype)
        return rsi_fail(err, RSD_E_MISMATCH, "the source is %s, the target %s",
                        rsd_dtype_name(src->dtype), rsd_dtype_name(dst->dtype));
    if (src->ndim != dst->ndim)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "the source has %" PRId32 " dimensions, the target %" PRId32, src->ndim,
                        dst->ndim);
    for (int d = 0; d < src->ndim; d++)
        if (src->shape[d] != dst->shape[d])
            return rsi_fail(err, RSD_E_MISMATCH,
                            "dimension %d has the size %" PRId64 " in the source, %" PRId64
                            " in the target",
                            d, src->shape[d], dst->shape[d]);
    return RSD_OK;
}

static bool same_parts(const rsd_layout *src, const rsd_layout *dst)
{
    if (src->reduce != dst->reduce || !src->mesh || !dst->mesh ||
        !rsi_mesh_equal(src->mesh, dst->mesh))
        return false;
    for (int a = 0; a < src->mesh->ndim; a++)
        if ((src->place[a].kind == RSD_PARTIAL) != (dst->place[a].kind == RSD_PARTIAL))
            return false;
    return true;
}

/* Integers come first; the last two types hold only scales and pairs of tiny values. */
static bool can_be_shared_out(rsd_dtype dtype)
{
    return dtype >= RSD_F16 && dtype < RSD_F8_E8M0FNU;
}

/* Checks that a Partial target can be made. Contributions only make the same contributions. Values
 * v make sum with v / n on each of n ranks (so no integers), and avg, min and max with v; for
 * product no n equal values give v in general. */
static rsd_err check_partial(const rsd_layout *src, const rsd_layout *dst, rsd_error *err)
{
    int64_t ways = rsi_layout_ways(dst, RSD_PARTIAL);

    if (src->reduce && dst->reduce)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "partial to another partial layout: go through replicate or shard");
    if (dst->reduce == RSD_PRODUCT && ways > 1)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "a value can't be made partial(product)");
    if (dst->reduce == RSD_SUM && ways > 1 && !can_be_shared_out(dst->dtype))
        return rsi_fail(err, RSD_E_UNSUPPORTED, "%s can't be divided into partial(sum)",
                        rsd_dtype_name(dst->dtype));
    return RSD_OK;
}

/* A source that need not cover the tensor must still have everything that I want of it. */
static rsd_err check_cover(const rsi_class *c, rsd_error *err)
{
    const rsd_layout *src = c->src.layout, *dst = c->dst.layout;
    int64_t           bytes = 0, want = rsd_layout_bytes(dst, c->dst.rank);
    rsi_overlap_iter  it;

    if (src->covers)
        return RSD_OK;
    for (rsi_iter_begin(&it, &c->recv); it.i < c->recv.n; rsi_iter_next(&it))
        bytes += rsi_iter_count(&it) * dst->elem_bytes;
    if (bytes < want)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "the source has only %" PRId64 " of the %" PRId64
                        " bytes that rank %" PRId32 " wants",
                        bytes, want, c->dst.rank);
    return RSD_OK;
}

static rsd_err fill_class(rsi_class *c, const rsd_layout *src, const rsd_layout *dst, int32_t rank,
                          rsi_arena *mem, rsd_error *err)
{
    rsd_err rc;

    c->matched = src->reduce && dst->reduce && same_parts(src, dst);
    rc = c->matched ? RSD_OK : check_partial(src, dst, err);
    if (rc)
        return rc;
    c->share = dst->reduce == RSD_SUM && !c->matched ? rsi_layout_ways(dst, RSD_PARTIAL) : 1;
    rsi_side_make(&c->src, src, rank, true);
    rsi_side_make(&c->dst, dst, rank, c->matched);
    c->reduce = c->matched || c->src.parts.count == 1 ? 0 : src->reduce;
    rc = rsi_overlaps_make(&c->send, src, dst, rank, mem, err);
    if (!rc)
        rc = rsi_overlaps_make(&c->recv, dst, src, rank, mem, err);
    return rc ? rc : check_cover(c, err);
}

static rsi_class *new_class(rsd_plan *plan, rsi_map *known, uint64_t src_hash, uint64_t dst_hash)
{
    rsi_class *c = rsi_arena_array(&plan->mem, 1, sizeof(*c));
    uint64_t   which = plan->nclasses;

    if (!c)
        return NULL;
    c->key[0] = src_hash;
    c->key[1] = dst_hash;
    if (!rsi_map_add(known, c->key, sizeof(c->key), &which, NULL))
        return NULL;
    plan->class[plan->nclasses++] = c;
    return c;
}

/* Finds or makes the class of tensor t. */
static rsd_err class_for(rsd_plan *plan, size_t t, rsi_map *known, rsd_error *err)
{
    const rsd_layout *src = plan->src[t], *dst = plan->dst[t];
    uint64_t          key[2] = { src->hash, dst->hash }, which;
    rsi_class        *c;

    if (rsi_map_get(known, key, sizeof(key), &which) &&
        rsd_layout_equal(plan->class[which] -> src.layout, src) &&
        rsd_layout_equal(plan->class[which] -> dst.layout, dst)) {
        plan->class_of[t] = (uint32_t)which;
        return RSD_OK;
    }
    plan->class_of[t] = (uint32_t)plan->nclasses;
    c = new_class(plan, known, src->hash, dst->hash);
    if (!c)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a plan");
    return fill_class(c, src, dst, plan->rank, &plan->mem, err);
}

static rsd_err make_classes(rsd_plan *plan, rsd_error *err)
{
    rsi_map known = { 0 };
    rsd_err rc = RSD_OK;

    for (size_t t = 0; t < plan->n && !rc; t++) {
        if (t > 0 && plan->src[t] == plan->src[t - 1] && plan->dst[t] == plan->dst[t - 1]) {
            plan->class_of[t] = plan->class_of[t - 1];
            continue;
        }
        rc = class_for(plan, t, &known, err);
        if (rc)
            rc = rsi_while(err, rc, "tensor %zu", t);
    }
    rsi_map_release(&known);
    return rc;
}

static rsd_err take_layouts(rsd_plan *plan, size_t n, const rsd_layout *const *src,
                            const rsd_layout *const *dst, rsd_error *err)
{
    plan->src = rsi_arena_array(&plan->mem, n, sizeof(plan->src[0]));
    plan->dst = rsi_arena_array(&plan->mem, n, sizeof(plan->dst[0]));
    plan->class_of = rsi_arena_array(&plan->mem, n, sizeof(plan->class_of[0]));
    plan->class = rsi_arena_array(&plan->mem, n, sizeof(plan->class[0]));
    if (!plan->src || !plan->dst || !plan->class_of || !plan->class)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a plan of %zu tensors", n);
    for (size_t t = 0; t < n; t++) {
        rsd_err rc = check_pair(src[t], dst[t], err);

        if (rc)
            return rsi_while(err, rc, "tensor %zu", t);
        plan->src[t] = rsi_layout_ref(src[t]);
        plan->dst[t] = rsi_layout_ref(dst[t]);
        plan->n++;
    }
    return RSD_OK;
}

rsd_err rsd_plan_create(size_t n, const rsd_layout *const *src, const rsd_layout *const *dst,
                        int32_t rank, rsd_plan **out, rsd_error *err)
{
    rsd_plan *plan;
    rsd_err   rc;

    if (!out || (n > 0 && (!src || !dst)) || n > UINT32_MAX)
        return rsi_fail(err, RSD_E_INVALID, "a plan needs as many sources as targets");
    if (rank < 0)
        return rsi_fail(err, RSD_E_INVALID, "%" PRId32 " is not a rank", rank);
    plan = rsi_calloc(1, sizeof(*plan));
    if (!plan)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a plan");
    plan->rank = rank;
    rc = take_layouts(plan, n, src, dst, err);
    if (!rc)
        rc = make_classes(plan, err);
    if (!rc)
        rc = rsi_plan_rows(plan, err);
    if (rc) {
        rsd_plan_free(plan);
        return rc;
    }
    plan->stats.tensors = (int64_t)n;
    plan->stats.plan_bytes = sizeof(*plan) + plan->mem.used;
    *out = plan;
    return RSD_OK;
}

void rsd_plan_free(rsd_plan *plan)
{
    if (!plan)
        return;
    for (size_t t = 0; t < plan->n; t++) {
        rsd_layout_free(plan->src[t]);
        rsd_layout_free(plan->dst[t]);
    }
    rsi_arena_release(&plan->mem);
    rsi_free(plan);
}
