/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the rows of a plan into hops: finds the other receivers of a piece, cuts it among them,
 * adds the parts that they pass on to each other, and sorts. With several machines, pieces that
 * have replicas get other senders than the plan's. exchange.c runs the hops. */
#include "live/route.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

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
    int64_t          copies;               /* holders in the target, or of `near` */
    const int32_t   *near;                 /* [copies] those on my machine; NULL: on all */
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
    int32_t rank = g->near ? g->near[i] : rsi_side_holder(&g->c->dst, g->dst_where, i, g->part);

    if (!g->c->reduce && rsi_side_holds(&g->c->src, g->src_where, g->part, rank))
        return -1;
    return rank;
}

/* True if a piece is large enough to be cut. */
static bool can_cut(const rsi_route *r, const rsi_class *c, uint32_t piece, bool given)
{
    rsd_box box;

    if (r->opts.cut_min < 0 || (r->opts.cut_reduced && !c->reduce))
        return false;
    rsi_overlaps_get(given ? &c->send : &c->recv, piece, &box);
    return box.ndim > 0 && rsd_box_count(&box) * c->src.layout->elem_bytes >= r->opts.cut_min;
}

static bool has_copies(const rsi_side *side)
{
    return !side->layout->mesh || side->copies.count > 1;
}

/* Sets into how many parts the hop's piece is cut, and which of them `who` receives first. */
static void cut_hop(const rsi_route *r, rsi_hop *hop, bool given, int32_t who)
{
    const rsi_class *c = rsi_plan_class(r->plan, hop->tensor);
    uint32_t         members = 0, mine = 0;
    group            g;

    if (!has_copies(&c->dst) || !can_cut(r, c, hop->piece, given))
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

/* Adds a hop to the list of the first phase that it belongs to. */
static bool add_first(rsi_route *r, rsi_hop hop, bool given)
{
    int32_t          me = r->plan->rank;
    const rsi_class *c = rsi_plan_class(r->plan, hop.tensor);

    if (rsi_class_computes(c)) {
        hop.part = given ? (uint32_t)hop.peer : part_of(c, hop.peer);
        return add_hop(given ? &r->give : &r->take, hop);
    }
    hop.far = given ? distance(r, me, hop.peer) : distance(r, hop.peer, me);
    return add_hop(hop.peer == me ? &r->local : given ? &r->send[0] : &r->recv[0], hop);
}

/* True if machines decide which rank sends a piece of the class to which. What is reduced comes
 * from all over anyway. */
static bool by_machine(const rsi_route *r, const rsi_class *c)
{
    return r->opts.host_of && !c->reduce && (has_copies(&c->src) || has_copies(&c->dst));
}

static bool add_entry(rsi_route *r, rsi_entry entry, int32_t peer, bool given)
{
    int32_t          me = r->plan->rank;
    const rsi_class *c = rsi_plan_class(r->plan, entry.tensor);
    rsi_hop hop = { .tensor = entry.tensor, .piece = entry.piece, .peer = peer, .cuts = 1 };

    if (peer != me && by_machine(r, c))
        return true;
    if (peer != me || c->reduce)
        cut_hop(r, &hop, given, given ? peer : me);
    return add_first(r, hop, given);
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

/* Adds what I pass on of a piece of which I received a part, and what I receive from the others. A
 * piece that is not cut has come to `lead`. */
static bool pass_on(rsi_route *r, const rsi_hop *got, const group *g, int32_t lead)
{
    int32_t  me = r->plan->rank;
    uint32_t cut = 0;
    bool     ok = true, whole = got->cuts == 1;

    for (int64_t i = 0; i < g->copies && ok; i++) {
        rsi_hop hop = *got;

        hop.part = 0;
        hop.peer = member(g, i);
        if (hop.peer < 0)
            continue;
        hop.far = distance(r, me, hop.peer);
        ok = hop.peer == me || (whole && me != lead) || add_hop(&r->send[1], hop);
        hop.far = distance(r, hop.peer, me);
        hop.cut = whole ? 0 : cut++;
        ok = ok && (hop.peer == me || (whole && hop.peer != lead) || add_hop(&r->recv[1], hop));
    }
    return ok;
}

/* ---- several machines ---- */

/* How a piece comes to its receivers on one machine. */
enum way {
    WAY_EACH, /* to each of them whole */
    WAY_CUT,  /* a part to each, which passes it on to the others */
    WAY_ONE   /* whole to one of them, which passes it on */
};

/* A piece that I send or receive. */
typedef struct deal {
    group   g;       /* of all machines */
    rsi_hop hop;     /* without a peer */
    int64_t sum;     /* as in peer_moves.c, but for the receiver's index */
    int64_t holders; /* in the source, on all machines */
    bool    cut;     /* it is large enough */
} deal;

static deal deal_of(rsi_route *r, uint32_t tensor, const rsi_overlap_iter *it, bool given)
{
    const rsi_class *c = rsi_plan_class(r->plan, tensor);
    deal             d = { .g = group_of(c, (uint32_t)it->i, given),
                           .hop = { .tensor = tensor, .piece = (uint32_t)it->i, .cuts = 1 },
                           .cut = can_cut(r, c, (uint32_t)it->i, given) };
    int64_t          my_chunk, my_copy;

    rsi_side_mine(given ? &c->src : &c->dst, rsi_iter_my_box(it), &my_chunk, &my_copy);
    d.sum = tensor + rsi_iter_chunk(it) + my_chunk + d.g.part;
    d.holders = rsi_side_copies(&c->src, d.g.src_where);
    return d;
}

static int32_t holder(const deal *d, int64_t i)
{
    return rsi_side_holder(&d->g.c->src, d->g.src_where, i, d->g.part);
}

/* Limits a group to my machine. Its ranks are found once for all pieces of a chunk, since there may
 * be as many of them as ranks. */
static void keep_near(rsi_route *r, group *g)
{
    const int32_t *host_of = r->opts.host_of;
    rsi_near      *near = &r->near;

    if (near->c != g->c || near->where != g->dst_where || near->part != g->part) {
        near->c = g->c;
        near->where = g->dst_where;
        near->part = g->part;
        near->n = 0;
        for (int64_t i = 0; i < g->copies; i++) {
            int32_t rank = rsi_side_holder(&g->c->dst, g->dst_where, i, g->part);

            if (host_of[rank] == host_of[r->plan->rank])
                near->rank[near->n++] = rank;
        }
    }
    g->near = near->rank;
    g->copies = near->n;
}

static enum way way_of(const rsi_route *r, const deal *d, const rsi_team *team)
{
    if (team->members <= 1 || team->members <= team->holders || r->opts.cut_min < 0)
        return WAY_EACH;
    if (d->cut)
        return WAY_CUT;
    return team->holders > 0 ? WAY_EACH : WAY_ONE;
}

/* Sets what receiver number i of a machine gets first. Returns which of its machine's holders sends
 * it, or which of all if it has none; -1: the receiver gets it from another on its machine. */
static int64_t assign(const rsi_route *r, deal *d, int32_t host, int64_t i)
{
    const rsi_team *team = &r->team[host];
    enum way        way = way_of(r, d, team);

    if (way == WAY_ONE && i != d->sum % team->members)
        return -1;
    if (way == WAY_CUT) {
        d->hop.cut = (uint32_t)i;
        d->hop.cuts = (uint32_t)team->members;
    } else {
        d->hop.cut = 0;
        d->hop.cuts = 1;
    }
    if (team->holders > 0)
        return (d->sum + i) % team->holders;
    return (d->sum + host + (way == WAY_ONE ? 0 : i)) % d->holders;
}

/* Counts the teams of all machines, which are zero before. False: there is no receiver. */
static bool count_teams(rsi_route *r, const deal *d)
{
    const int32_t *host_of = r->opts.host_of;
    bool           any = false;

    for (int64_t i = 0; i < d->g.copies; i++) {
        int32_t rank = member(&d->g, i);

        if (rank >= 0)
            r->team[host_of[rank]].members++;
        any = any || rank >= 0;
    }
    for (int64_t i = 0; i < d->holders && any; i++)
        r->team[host_of[holder(d, i)]].holders++;
    return any;
}

static void forget_teams(rsi_route *r, const deal *d)
{
    const int32_t *host_of = r->opts.host_of;

    for (int64_t i = 0; i < d->g.copies; i++) {
        int32_t rank = member(&d->g, i);

        if (rank >= 0)
            r->team[host_of[rank]] = (rsi_team){ 0 };
    }
    for (int64_t i = 0; i < d->holders; i++)
        r->team[host_of[holder(d, i)]] = (rsi_team){ 0 };
}

/* Adds what I send of a piece that I have. */
static bool add_sends(rsi_route *r, uint32_t tensor, const rsi_overlap_iter *it)
{
    deal           d = deal_of(r, tensor, it, true);
    const int32_t *host_of = r->opts.host_of;
    int32_t        me = r->plan->rank;
    int64_t        number = -1, near = 0; /* mine among all holders, and on my machine */
    bool           ok = true;

    if (!count_teams(r, &d))
        return true;
    for (int64_t i = 0; number < 0; i++) {
        int32_t rank = holder(&d, i);

        if (rank == me)
            number = i;
        else
            near += host_of[rank] == host_of[me];
    }
    for (int64_t i = 0; i < d.g.copies && ok; i++) {
        int32_t   to = member(&d.g, i);
        rsi_team *team = to < 0 ? NULL : &r->team[host_of[to]];
        int64_t   from;

        if (!team)
            continue;
        from = assign(r, &d, host_of[to], team->assigned++);
        if (team->holders > 0 ? host_of[to] != host_of[me] || from != near : from != number)
            continue;
        d.hop.peer = to;
        ok = add_first(r, d.hop, true);
    }
    forget_teams(r, &d);
    return ok;
}

/* The rank of a holder that assign returned. */
static int32_t sender_of(const rsi_route *r, const deal *d, int64_t number)
{
    const int32_t *host_of = r->opts.host_of;
    int32_t        host = host_of[r->plan->rank], rank;

    for (int64_t i = r->team[host].holders > 0 ? 0 : number;; i++) {
        rank = holder(d, i);
        if (r->team[host].holders == 0 || (host_of[rank] == host && number-- == 0))
            return rank;
    }
}

/* Adds what I receive of a piece that I lack, and what I pass on. */
static bool add_recvs(rsi_route *r, uint32_t tensor, const rsi_overlap_iter *it)
{
    deal           d = deal_of(r, tensor, it, false);
    const int32_t *host_of = r->opts.host_of;
    int32_t        me = r->plan->rank, lead = -1;
    rsi_team      *team = &r->team[host_of[me]], zero = { 0 };
    int64_t        number = 0, from;
    bool           ok = true;

    keep_near(r, &d.g);
    for (int64_t i = 0; i < d.g.copies; i++) {
        int32_t rank = member(&d.g, i);

        if (rank == me)
            number = team->members;
        team->members += rank >= 0;
    }
    for (int64_t i = 0; i < d.holders; i++)
        team->holders += host_of[holder(&d, i)] == host_of[me];
    for (int64_t i = 0, n = 0; lead < 0; i++) {
        int32_t rank = member(&d.g, i);

        if (rank >= 0 && n++ == d.sum % team->members)
            lead = rank;
    }
    from = assign(r, &d, host_of[me], number);
    d.hop.peer = from < 0 ? lead : sender_of(r, &d, from);
    if (from >= 0)
        ok = add_first(r, d.hop, false);
    if (ok && way_of(r, &d, team) != WAY_EACH)
        ok = pass_on(r, &d.hop, &d.g, lead);
    *team = zero;
    return ok;
}

/* Adds all moves of the tensors whose pieces are dealt out by machine. */
static bool add_by_machine(rsi_route *r)
{
    rsi_overlap_iter it;
    bool             ok = true;

    for (uint32_t t = 0; t < r->plan->n && ok; t++) {
        const rsi_class *c = rsi_plan_class(r->plan, t);
        int64_t          part = c->matched ? c->dst.my_part : 0;

        if (!by_machine(r, c))
            continue;
        for (rsi_iter_begin(&it, &c->send); it.i < c->send.n && ok; rsi_iter_next(&it))
            ok = add_sends(r, t, &it);
        for (rsi_iter_begin(&it, &c->recv); it.i < c->recv.n && ok; rsi_iter_next(&it))
            ok = rsi_side_have(&c->src, rsi_iter_where(&it), part) || add_recvs(r, t, &it);
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

/* Adds what is passed on of pieces that are cut among all their receivers. */
static bool pass_cut(rsi_route *r, const rsi_hop *got)
{
    const rsi_class *c = rsi_plan_class(r->plan, got->tensor);
    group            g;

    if (got->cuts == 1 || by_machine(r, c))
        return true;
    g = group_of(c, got->piece, false);
    return pass_on(r, got, &g, -1);
}

/* A cut piece appears once per contribution but is passed on only once. */
static bool add_passing(rsi_route *r)
{
    bool ok = true;

    for (size_t i = 0; i < r->recv[0].n && ok; i++)
        ok = pass_cut(r, &r->recv[0].at[i]);
    for (size_t i = 0; i < r->take.n && ok; i++)
        ok = (i > 0 && rsi_hop_same(&r->take.at[i - 1], &r->take.at[i])) ||
             pass_cut(r, &r->take.at[i]);
    return ok;
}

static bool tell_mates(const rsd_plan *plan, const group *g, bool (*fn)(void *arg, int32_t rank),
                       void *arg)
{
    bool go = true;

    for (int64_t i = 0; i < g->copies && go; i++) {
        int32_t rank = member(g, i);

        go = rank < 0 || rank == plan->rank || fn(arg, rank);
    }
    return go;
}

void rsi_route_mates(const rsd_plan *plan, bool (*fn)(void *arg, int32_t rank), void *arg)
{
    for (size_t k = 0; k < plan->nclasses; k++) {
        const rsi_class *c = plan->class[k];

        for (uint32_t i = 0; i < c->recv.n && has_copies(&c->dst); i++) {
            group g = group_of(c, i, false);

            if (!c->reduce && rsi_side_have(&c->src, g.src_where, g.part))
                continue; /* I have it */
            if (!tell_mates(plan, &g, fn, arg))
                return;
        }
    }
}

rsd_err rsi_route_make(rsi_route *r, const rsd_plan *plan, const rsi_route_opts *opts,
                       rsd_error *err)
{
    bool ok;

    *r = (rsi_route){ .plan = plan, .opts = *opts };
    if (opts->host_of) {
        r->team = rsi_calloc((size_t)opts->hosts, sizeof(r->team[0]));
        r->near.rank = rsi_calloc((size_t)opts->size, sizeof(r->near.rank[0]));
    }
    ok = ((r->team && r->near.rank) || !opts->host_of) && add_entries(r);
    ok = ok && (!opts->host_of || add_by_machine(r));
    rsi_free(r->team);
    rsi_free(r->near.rank);
    r->team = NULL;
    r->near = (rsi_near){ 0 };
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
