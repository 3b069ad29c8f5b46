/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the rows of a plan into hops: finds who else gets a piece, cuts it among them, adds what
 * they pass on to each other, and sorts. exchange.c runs the hops. */
#include "live/route.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

bool rsi_class_computes(const rsi_class *c)
{
    return c->reduce || c->share > 1;
}

/* ---- cutting ---- */

/* Along the first dimension that is long enough for all, else along the longest. */
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
        return; /* is never cut */
    start = box->len[along] * cut / cuts;
    box->len[along] = box->len[along] * (cut + 1) / cuts - start;
    box->off[along] += start;
}

size_t rsi_hop_box(const rsi_route *route, const rsi_hop *hop, bool given, rsd_box *out)
{
    const rsd_plan  *plan = route->plan;
    const rsi_class *c = plan->class[plan->class_of[hop->tensor]];
    size_t           my_box = rsi_pieces_get(given ? &c->send : &c->recv, hop->piece, out);

    cut_box(out, hop->cut, hop->cuts);
    return my_box;
}

/* ---- who else gets a piece ---- */

/* Those who get one piece: the holders of a chunk of the target that lack it in the source. */
typedef struct group {
    const rsi_class *c;
    int64_t          src_where, dst_where; /* as in rsi_piece.where */
    int64_t          part;                 /* of a matched Partial, else 0 */
    int64_t          copies;               /* holders in the target */
} group;

/* rsi_piece.where of every piece of a class, on both sides; NULL where nothing can be cut. */
typedef struct wheres {
    int64_t *send, *recv;
} wheres;

typedef struct building {
    rsi_route            *route;
    const rsi_route_opts *opts;
    wheres               *where; /* [nclasses] */
} building;

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the moves of a plan");
}

static int64_t *list_wheres(const rsi_pieces *pieces)
{
    int64_t       *list = rsi_calloc(pieces->n, sizeof(list[0]));
    rsi_piece_iter it;

    if (!list)
        return NULL;
    for (rsi_iter_begin(&it, pieces); it.i < pieces->n; rsi_iter_next(&it))
        list[it.i] = rsi_iter_where(&it);
    return list;
}

static rsd_err find_wheres(building *b, rsd_error *err)
{
    const rsd_plan *plan = b->route->plan;

    b->where = rsi_calloc(plan->nclasses, sizeof(b->where[0]));
    if (!b->where)
        return no_memory(err);
    for (size_t i = 0; i < plan->nclasses; i++) {
        const rsi_class *c = plan->class[i];

        if (b->opts->cut_min < 0 || (b->opts->cut_reduced && !c->reduce) ||
            (c->dst.layout->mesh && c->dst.copies.count == 1))
            continue;
        b->where[i].send = list_wheres(&c->send);
        b->where[i].recv = list_wheres(&c->recv);
        if (!b->where[i].send || !b->where[i].recv)
            return no_memory(err);
    }
    return RSD_OK;
}

static int64_t my_where(const rsi_side *side, size_t my_box)
{
    int64_t chunk, copy;

    if (side->layout->mesh)
        return side->my_where;
    rsi_side_mine(side, my_box, &chunk, &copy);
    return chunk;
}

/* The group of a piece that I send (`given`) or get. */
static group group_of(const building *b, uint32_t tensor, uint32_t piece, bool given)
{
    const rsd_plan  *plan = b->route->plan;
    const rsi_class *c = plan->class[plan->class_of[tensor]];
    const wheres    *w = &b->where[plan->class_of[tensor]];
    group            g = { .c = c };
    rsd_box          box;
    size_t           my_box = rsi_pieces_get(given ? &c->send : &c->recv, piece, &box);

    g.src_where = given ? my_where(&c->src, my_box) : w->recv[piece];
    g.dst_where = given ? w->send[piece] : my_where(&c->dst, my_box);
    g.part = !c->matched ? 0 : given ? c->src.my_part : c->dst.my_part;
    g.copies = rsi_side_copies(&c->dst, g.dst_where);
    return g;
}

/* The rank of holder i of the target if it has to get the piece, else -1. */
static int32_t member(const group *g, int64_t i)
{
    int32_t rank = rsi_side_holder(&g->c->dst, g->dst_where, i, g->part);

    if (!g->c->reduce && rsi_side_holds(&g->c->src, g->src_where, g->part, rank))
        return -1;
    return rank;
}

/* Into how many parts the piece of `hop` is cut, and which of them `who` gets first. */
static void cut_hop(const building *b, rsi_hop *hop, bool given, int32_t who)
{
    const rsd_plan  *plan = b->route->plan;
    uint32_t         which = plan->class_of[hop->tensor], members = 0;
    const rsi_class *c = plan->class[which];
    rsd_box          box;
    group            g;

    hop->cut = 0;
    hop->cuts = 1;
    if (!b->where[which].send)
        return;
    rsi_pieces_get(given ? &c->send : &c->recv, hop->piece, &box);
    if (box.ndim == 0 || rsd_box_count(&box) * c->src.layout->elem_bytes < b->opts->cut_min)
        return;
    g = group_of(b, hop->tensor, hop->piece, given);
    for (int64_t i = 0; i < g.copies; i++) {
        int32_t rank = member(&g, i);

        if (rank == who)
            hop->cut = members;
        members += rank >= 0;
    }
    if (members > 1 && (c->reduce || members > rsi_side_copies(&c->src, g.src_where)))
        hop->cuts = members;
    else
        hop->cut = 0;
}

/* ---- hops ---- */

static bool add_hop(rsi_hops *hops, rsi_hop hop)
{
    if (!rsi_grow(&hops->at, hops->n, &hops->cap, sizeof(hop)))
        return false;
    hops->at[hops->n++] = hop;
    return true;
}

static uint32_t distance(const building *b, int32_t from, int32_t to)
{
    int64_t size = b->opts->size;

    return (uint32_t)(((int64_t)to - from + size) % size);
}

/* Which contribution a rank holds. */
static uint32_t part_of(const rsi_class *c, int32_t rank)
{
    rsi_side side;

    if (!c->reduce)
        return 0;
    rsi_side_make(&side, c->src.layout, rank, true);
    return (uint32_t)side.my_part;
}

static bool add_entry(building *b, rsi_entry entry, int32_t peer, bool given)
{
    rsi_route       *r = b->route;
    int32_t          me = r->plan->rank;
    const rsi_class *c = r->plan->class[r->plan->class_of[entry.tensor]];
    rsi_hop hop = { .tensor = entry.tensor, .piece = entry.piece, .peer = peer, .cuts = 1 };

    if (peer != me || c->reduce)
        cut_hop(b, &hop, given, given ? peer : me);
    if (rsi_class_computes(c)) {
        hop.key = given ? (uint32_t)peer : part_of(c, peer);
        return add_hop(given ? &r->give : &r->take, hop);
    }
    if (peer == me)
        return add_hop(&r->local, hop);
    hop.key = given ? distance(b, me, peer) : distance(b, peer, me);
    return add_hop(given ? &r->send[0] : &r->recv[0], hop);
}

static rsd_err add_entries(building *b, rsd_error *err)
{
    const rsd_plan *plan = b->route->plan;
    bool            ok = true;

    for (size_t i = 0; i < plan->nlocal && ok; i++)
        ok = add_entry(b, plan->local[i], plan->rank, false);
    for (size_t p = 0; p < plan->npeers && ok; p++) {
        for (size_t i = plan->send.first[p]; i < plan->send.first[p + 1] && ok; i++)
            ok = add_entry(b, plan->send.entry[i], plan->peer[p], true);
        for (size_t i = plan->recv.first[p]; i < plan->recv.first[p + 1] && ok; i++)
            ok = add_entry(b, plan->recv.entry[i], plan->peer[p], false);
    }
    return ok ? RSD_OK : no_memory(err);
}

/* What I pass on of a piece that I got a part of, and what I get of it from the others. */
static bool pass_on(building *b, const rsi_hop *got)
{
    rsi_route *r = b->route;
    int32_t    me = r->plan->rank;
    group      g;
    uint32_t   cut = 0;
    bool       ok = true;

    if (got->cuts == 1)
        return true;
    g = group_of(b, got->tensor, got->piece, false);
    for (int64_t i = 0; i < g.copies && ok; i++) {
        rsi_hop hop = *got;

        hop.peer = member(&g, i);
        if (hop.peer < 0)
            continue;
        hop.key = distance(b, me, hop.peer);
        ok = hop.peer == me || add_hop(&r->send[1], hop);
        hop.key = distance(b, hop.peer, me);
        hop.cut = cut++;
        ok = ok && (hop.peer == me || add_hop(&r->recv[1], hop));
    }
    return ok;
}

/* ---- order ---- */

static int by_number(uint32_t a, uint32_t b)
{
    return (a > b) - (a < b);
}

static int by_distance(const void *a, const void *b)
{
    const rsi_hop *x = a, *y = b;
    int            order = by_number(x->key, y->key);

    order = order ? order : by_number(x->tensor, y->tensor);
    return order ? order : by_number(x->piece, y->piece);
}

static int by_piece(const void *a, const void *b)
{
    const rsi_hop *x = a, *y = b;
    int            order = by_number(x->tensor, y->tensor);

    order = order ? order : by_number(x->piece, y->piece);
    return order ? order : by_number(x->key, y->key);
}

static void sort(rsi_hops *hops, int (*order)(const void *, const void *))
{
    if (hops->n > 1)
        qsort(hops->at, hops->n, sizeof(hops->at[0]), order);
}

/* Pieces that were cut come once for each contribution: passed on once. */
static rsd_err add_passing(building *b, rsd_error *err)
{
    const rsi_route *r = b->route;
    bool             ok = true;

    for (size_t i = 0; i < r->recv[0].n && ok; i++)
        ok = pass_on(b, &r->recv[0].at[i]);
    for (size_t i = 0; i < r->take.n && ok; i++) {
        const rsi_hop *hop = &r->take.at[i];

        if (i == 0 || hop[-1].tensor != hop->tensor || hop[-1].piece != hop->piece)
            ok = pass_on(b, hop);
    }
    return ok ? RSD_OK : no_memory(err);
}

/* Numbers the hops of each peer; `next` has a counter for each rank. */
static void number(rsi_hops *hops, uint32_t *next)
{
    for (size_t i = 0; i < hops->n; i++)
        hops->at[i].seq = next[hops->at[i].peer]++;
}

static rsd_err number_all(rsi_route *r, int32_t size, rsd_error *err)
{
    rsi_hops *const first[] = { &r->send[0], &r->recv[0], &r->send[1], &r->recv[1] };
    rsi_hops *const then[] = { &r->give, &r->take, NULL, NULL };
    uint32_t       *next = rsi_calloc((size_t)size, sizeof(next[0]));

    if (!next)
        return no_memory(err);
    for (size_t i = 0; i < 4; i++) {
        memset(next, 0, (size_t)size * sizeof(next[0]));
        number(first[i], next);
        if (then[i])
            number(then[i], next);
    }
    rsi_free(next);
    return RSD_OK;
}

rsd_err rsi_route_make(rsi_route *route, const rsd_plan *plan, const rsi_route_opts *opts,
                       rsd_error *err)
{
    building b = { .route = route, .opts = opts };
    rsd_err  rc;

    *route = (rsi_route){ .plan = plan };
    rc = find_wheres(&b, err);
    if (!rc)
        rc = add_entries(&b, err);
    if (!rc) {
        sort(&route->take, by_piece);
        rc = add_passing(&b, err);
    }
    for (int p = 0; p < 2 && !rc; p++) {
        sort(&route->send[p], by_distance);
        sort(&route->recv[p], by_distance);
    }
    if (!rc) {
        sort(&route->give, by_piece);
        rc = number_all(route, opts->size, err);
    }
    for (size_t i = 0; b.where && i < plan->nclasses; i++) {
        rsi_free(b.where[i].send);
        rsi_free(b.where[i].recv);
    }
    rsi_free(b.where);
    if (rc)
        rsi_route_release(route);
    return rc;
}

void rsi_route_release(rsi_route *route)
{
    rsi_hops *const all[] = { &route->local,   &route->send[0], &route->send[1], &route->recv[0],
                              &route->recv[1], &route->give,    &route->take };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        rsi_free(all[i]->at);
    *route = (rsi_route){ 0 };
}
