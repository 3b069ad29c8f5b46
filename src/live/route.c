/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the rows of a plan into hops: finds the other receivers of a piece, cuts it among them,
 * adds the parts that they pass on to each other, and sorts. exchange.c runs the hops. */
#include "live/route.h"
#include "base/mem.h"

#include <stdlib.h>

bool rsi_class_computes(const rsi_class *c)
{
    return c->reduce || c->share > 1;
}

/* ---- cutting ---- */

/* Cuts along the first dimension that is long enough for all, else along the longest. */
static void cut_box(rsd_box *box, uint32_t cut, uint32_t cuts)
{
    int     along = 0;
    int64_t start;

    if (cuts <= 1)
        return;
    for (int d = 1; d < box->ndim; d++)
        if (box->len[along] < cuts && box->len[d] > box->len[along])
            along = d;
    if (box->ndim == 0)
        return; /* never cut */
    start = box->len[along] * cut / cuts;
    box->len[along] = box->len[along] * (cut + 1) / cuts - start;
    box->off[along] += start;
}

size_t rsi_hop_box(const rsi_route *route, const rsi_hop *hop, bool given, rsd_box *out)
{
    const rsi_class *c = rsi_plan_class(route->plan, hop->tensor);
    size_t           my_box = rsi_overlaps_get(given ? &c->send : &c->recv, hop->piece, out);

    cut_box(out, hop->cut, hop->cuts);
    return my_box;
}

/* ---- other receivers of a piece ---- */

/* The receivers of one piece: holders of a chunk of the target that lack it in the source. */
typedef struct group {
    const rsi_class *c;
    int64_t          src_where, dst_where; /* as returned by rsi_overlaps_where */
    int64_t          part;                 /* of a matched Partial, else 0 */
    int64_t          copies;               /* holders in the target */
} group;

static int64_t my_where(const rsi_side *side, size_t my_box)
{
    int64_t chunk, copy;

    if (side->layout->mesh)
        return side->my_where;
    rsi_side_mine(side, my_box, &chunk, &copy);
    return chunk;
}

/* The group of a piece that I send (`given`) or receive. */
static group group_of(const rsi_class *c, uint32_t piece, bool given)
{
    const rsi_overlaps *pieces = given ? &c->send : &c->recv;
    int64_t             where = rsi_overlaps_where(pieces, piece), mine;
    rsd_box             box;

    mine = my_where(given ? &c->src : &c->dst, rsi_overlaps_get(pieces, piece, &box));
    return (group){ .c = c,
                    .src_where = given ? mine : where,
                    .dst_where = given ? where : mine,
                    .part = !c->matched ? 0
                            : given     ? c->src.my_part
                                        : c->dst.my_part,
                    .copies = rsi_side_copies(&c->dst, given ? where : mine) };
}

/* The rank of holder i of the target if it has to receive the piece, else -1. */
static int32_t member(const group *g, int64_t i)
{
    int32_t rank = rsi_side_holder(&g->c->dst, g->dst_where, i, g->part);

    if (!g->c->reduce && rsi_side_holds(&g->c->src, g->src_where, g->part, rank))
        return -1;
    return rank;
}

/* Sets into how many parts the hop's piece is cut, and which of them `who` receives first. */
static void cut_hop(const rsi_route *r, rsi_hop *hop, bool given, int32_t who)
{
    const rsi_class *c = rsi_plan_class(r->plan, hop->tensor);
    uint32_t         members = 0, mine = 0;
    rsd_box          box;
    group            g;

    if (r->opts.cut_min < 0 || (r->opts.cut_reduced && !c->reduce) ||
        (c->dst.layout->mesh && c->dst.copies.count == 1))
        return;
    rsi_overlaps_get(given ? &c->send : &c->recv, hop->piece, &box);
    if (box.ndim == 0 || rsd_box_count(&box) * c->src.layout->elem_bytes < r->opts.cut_min)
        return;
    g = group_of(c, hop->piece, given);
    for (int64_t i = 0; i < g.copies; i++) {
        int32_t rank = member(&g, i);

        if (rank == who)
            mine = members;
        members += rank >= 0;
    }
    if (members > 1 && (c->reduce || members > rsi_side_copies(&c->src, g.src_where))) {
        hop->cut = mine;
        hop->cuts = members;
    }
}

/* ---- hops ---- */

static bool add_hop(rsi_hops *hops, rsi_hop hop)
{
    if (!rsi_grow(&hops->at, hops->n, &hops->cap, sizeof(hop)))
        return false;
    hops->at[hops->n++] = hop;
    return true;
}

static uint32_t distance(const rsi_route *r, int32_t from, int32_t to)
{
    int64_t size = r->opts.size;

    return (uint32_t)(((int64_t)to - from + size) % size);
}

/* The contribution that a rank holds. */
static uint32_t part_of(const rsi_class *c, int32_t rank)
{
    rsi_side side;

    if (!c->reduce)
        return 0;
    rsi_side_make(&side, c->src.layout, rank, true);
    return (uint32_t)side.my_part;
}

static bool add_entry(rsi_route *r, rsi_entry entry, int32_t peer, bool given)
{
    int32_t          me = r->plan->rank;
    const rsi_class *c = rsi_plan_class(r->plan, entry.tensor);
    rsi_hop hop = { .tensor = entry.tensor, .piece = entry.piece, .peer = peer, .cuts = 1 };

    if (peer != me || c->reduce)
        cut_hop(r, &hop, given, given ? peer : me);
    if (rsi_class_computes(c)) {
        hop.part = given ? (uint32_t)peer : part_of(c, peer);
        return add_hop(given ? &r->give : &r->take, hop);
    }
    hop.far = given ? distance(r, me, peer) : distance(r, peer, me);
    return add_hop(peer == me ? &r->local : given ? &r->send[0] : &r->recv[0], hop);
}

static bool add_entries(rsi_route *r)
{
    const rsd_plan *plan = r->plan;
    size_t          n = plan->npeers, after = 0; /* the first peer after me */
    bool            ok = true;

    for (size_t i = 0; i < plan->nlocal && ok; i++)
        ok = add_entry(r, plan->local[i], plan->rank, false);
    while (after < n && plan->peer[after] < plan->rank)
        after++;
    for (size_t k = 0; k < n && ok; k++) { /* in their order, so that sorting has little to do */
        size_t to = (after + k) % n, from = (after + n - 1 - k) % n;

        for (size_t i = plan->send.first[to]; i < plan->send.first[to + 1] && ok; i++)
            ok = add_entry(r, plan->send.entry[i], plan->peer[to], true);
        for (size_t i = plan->recv.first[from]; i < plan->recv.first[from + 1] && ok; i++)
            ok = add_entry(r, plan->recv.entry[i], plan->peer[from], false);
    }
    return ok;
}

/* Adds what I pass on of a piece of which I received a part, and what I receive from the others. */
static bool pass_on(rsi_route *r, const rsi_hop *got)
{
    int32_t  me = r->plan->rank;
    group    g;
    uint32_t cut = 0;
    bool     ok = true;

    if (got->cuts == 1)
        return true;
    g = group_of(rsi_plan_class(r->plan, got->tensor), got->piece, false);
    for (int64_t i = 0; i < g.copies && ok; i++) {
        rsi_hop hop = *got;

        hop.part = 0;
        hop.peer = member(&g, i);
        if (hop.peer < 0)
            continue;
        hop.far = distance(r, me, hop.peer);
        ok = hop.peer == me || add_hop(&r->send[1], hop);
        hop.far = distance(r, hop.peer, me);
        hop.cut = cut++;
        ok = ok && (hop.peer == me || add_hop(&r->recv[1], hop));
    }
    return ok;
}

/* ---- order ---- */

static int by_order(const void *a, const void *b)
{
    const rsi_hop *x = a, *y = b;
    uint64_t       p = (uint64_t)x->far << 32 | x->tensor, q = (uint64_t)y->far << 32 | y->tensor;

    if (p == q) {
        p = (uint64_t)x->piece << 32 | x->part;
        q = (uint64_t)y->piece << 32 | y->part;
    }
    return (p > q) - (p < q);
}

static void sort(rsi_hops *hops)
{
    size_t i = 1;

    while (i < hops->n && by_order(&hops->at[i - 1], &hops->at[i]) <= 0)
        i++;
    if (i < hops->n)
        qsort(hops->at, hops->n, sizeof(hops->at[0]), by_order);
}

/* A cut piece appears once per contribution but is passed on only once. */
static bool add_passing(rsi_route *r)
{
    bool ok = true;

    for (size_t i = 0; i < r->recv[0].n && ok; i++)
        ok = pass_on(r, &r->recv[0].at[i]);
    for (size_t i = 0; i < r->take.n && ok; i++)
        ok = (i > 0 && rsi_hop_same(&r->take.at[i - 1], &r->take.at[i])) ||
             pass_on(r, &r->take.at[i]);
    return ok;
}

rsd_err rsi_route_make(rsi_route *r, const rsd_plan *plan, const rsi_route_opts *opts,
                       rsd_error *err)
{
    bool ok;

    *r = (rsi_route){ .plan = plan, .opts = *opts };
    ok = add_entries(r);
    sort(&r->take);
    if (!ok || !add_passing(r)) {
        rsi_route_release(r);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the moves of a plan");
    }
    sort(&r->give);
    for (int p = 0; p < 2; p++) {
        sort(&r->send[p]);
        sort(&r->recv[p]);
    }
    return RSD_OK;
}

void rsi_route_release(rsi_route *route)
{
    rsi_hops *const all[] = { &route->local,   &route->send[0], &route->send[1], &route->recv[0],
                              &route->recv[1], &route->give,    &route->take };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        rsi_free(all[i]->at);
    *route = (rsi_route){ 0 };
}
