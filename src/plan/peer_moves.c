/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts the moves of all tensors into rows, one per peer. First finds each class's links: which
 * piece goes to or comes from which peer. If these are the same for all tensors of the class, they
 * are found only once. Then counts, places and fills the rows, in the order of the tensors. */
#include "plan/planner.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* ---- peers: rank to number ---- */

typedef struct peer {
    int32_t rank;
    size_t  sends, recvs; /* number of moves; later the next free entry of the row */
} peer;

typedef struct peers {
    peer     *peer; /* [n] in order of appearance */
    size_t    n, cap;
    uint32_t *slot;  /* [slots] a peer's number + 1, hashed by its rank; 0: free */
    size_t    slots; /* a power of two, at least 2 * cap */
} peers;

static size_t slot_of(const peers *p, int32_t rank)
{
    size_t i = ((uint32_t)rank * 0x9e3779b1u >> 7) & (p->slots - 1);

    while (p->slot[i] && p->peer[p->slot[i] - 1].rank != rank)
        i = (i + 1) & (p->slots - 1);
    return i;
}

static bool grow_peers(peers *p)
{
    size_t    cap = p->cap ? 2 * p->cap : 64;
    peer     *more = rsi_realloc(p->peer, cap, sizeof(more[0]));
    uint32_t *slot = more ? rsi_calloc(2 * cap, sizeof(slot[0])) : NULL;

    if (more)
        p->peer = more;
    if (!slot)
        return false;
    rsi_free(p->slot);
    p->slot = slot;
    p->slots = 2 * cap;
    p->cap = cap;
    for (size_t i = 0; i < p->n; i++)
        p->slot[slot_of(p, p->peer[i].rank)] = (uint32_t)i + 1;
    return true;
}

static bool peer_number(peers *p, int32_t rank, uint32_t *out)
{
    size_t i;

    if (p->n == p->cap && !grow_peers(p))
        return false;
    i = slot_of(p, rank);
    if (!p->slot[i]) {
        p->peer[p->n++] = (peer){ .rank = rank };
        p->slot[i] = (uint32_t)p->n;
    }
    *out = p->slot[i] - 1;
    return true;
}

/* ---- links: where the pieces of one tensor go to and come from ---- */

enum way { KEEP, SEND, RECV };

struct link {
    uint32_t piece, peer; /* peer: its number */
    enum way way;
};

typedef struct links {
    struct link *link;
    size_t       n, cap;
    bool         fixed;    /* the same for every tensor of the class */
    int64_t      bytes[3]; /* [way] */
} links;

typedef struct building {
    rsd_plan *plan;
    peers     peers;
    links    *of_class; /* [nclasses] the fixed ones */
    links     scratch;  /* all others, for one tensor at a time */
    size_t    nlocal;
} building;

static bool add_link(building *b, links *l, enum way way, int32_t rank, size_t piece, int64_t bytes)
{
    struct link link = { .piece = (uint32_t)piece, .way = way };

    if (way != KEEP && !peer_number(&b->peers, rank, &link.peer))
        return false;
    if (!rsi_grow(&l->link, l->n, &l->cap, sizeof(l->link[0])))
        return false;
    l->link[l->n++] = link;
    l->bytes[way] += bytes;
    return true;
}

/* The closed form that selects which of n holders serves. `sum` adds up the tensor, the chunks on
 * both sides, the receiver's index among its copies and the contribution: neighbours in any of them
 * are served by different holders. */
static int64_t serving(int64_t sum, int64_t n)
{
    return n > 1 ? sum % n : 0;
}

/* The first receiver that holder `me` of n serves, if receiver r has the sum `sum + r`; from there
 * it serves every nth. */
static int64_t first_served(int64_t sum, int64_t me, int64_t n)
{
    return n > 1 ? (me + n - sum % n) % n : 0;
}

/* Finds what I receive of one tensor, and what I already have. */
static bool find_recvs(building *b, const rsi_class *c, uint32_t tensor, links *l)
{
    rsi_overlap_iter it;

    for (rsi_iter_begin(&it, &c->recv); it.i < c->recv.n; rsi_iter_next(&it)) {
        int64_t where = rsi_iter_where(&it), copies = rsi_side_copies(&c->src, where);
        int64_t first = c->matched ? c->dst.my_part : 0;
        int64_t end = c->matched ? first + 1 : c->src.parts.count;
        int64_t bytes = rsi_iter_count(&it) * c->dst.layout->elem_bytes;
        int64_t my_chunk, my_copy;

        rsi_side_mine(&c->dst, rsi_iter_my_box(&it), &my_chunk, &my_copy);
        for (int64_t part = first; part < end; part++) {
            int64_t sum = tensor + rsi_iter_chunk(&it) + my_chunk + my_copy + part;
            bool    have = rsi_side_have(&c->src, where, part);
            int32_t from =
                have ? b->plan->rank : rsi_side_holder(&c->src, where, serving(sum, copies), part);

            l->fixed = l->fixed && (have || copies == 1);
            if (!add_link(b, l, have ? KEEP : RECV, from, it.i, bytes))
                return false;
        }
    }
    return true;
}

/* Finds what I send of one tensor: each piece goes to those of its new holders that lack it and
 * that I serve. */
static bool find_sends(building *b, const rsi_class *c, uint32_t tensor, links *l)
{
    rsi_overlap_iter it;

    for (rsi_iter_begin(&it, &c->send); it.i < c->send.n; rsi_iter_next(&it)) {
        int64_t where = rsi_iter_where(&it), receivers = rsi_side_copies(&c->dst, where);
        int64_t bytes = rsi_iter_count(&it) * c->src.layout->elem_bytes;
        int64_t my_chunk, my_copy, my_where, copies, sum;

        rsi_side_mine(&c->src, rsi_iter_my_box(&it), &my_chunk, &my_copy);
        my_where = c->src.layout->mesh ? c->src.my_where : my_chunk;
        copies = rsi_side_copies(&c->src, my_where);
        l->fixed = l->fixed && copies == 1;
        sum = tensor + my_chunk + rsi_iter_chunk(&it) + c->src.my_part;
        for (int64_t r = first_served(sum, my_copy, copies); r < receivers; r += copies) {
            int32_t to = rsi_side_holder(&c->dst, where, r, c->src.my_part);

            if (to == b->plan->rank ||
                (copies > 1 && rsi_side_holds(&c->src, my_where, c->src.my_part, to)))
                continue; /* it already has the piece */
            if (!add_link(b, l, SEND, to, it.i, bytes))
                return false;
        }
    }
    return true;
}

/* The links of tensor t: newly found, or its class's. NULL: no memory. */
static const links *links_of(building *b, size_t t)
{
    uint32_t         which = b->plan->class_of[t];
    const rsi_class *c = b->plan->class[which];
    links           *l = &b->scratch;

    if (b->of_class[which].fixed)
        return &b->of_class[which];
    l->n = 0;
    l->fixed = true;
    memset(l->bytes, 0, sizeof(l->bytes));
    if (!find_recvs(b, c, (uint32_t)t, l) || !find_sends(b, c, (uint32_t)t, l))
        return NULL;
    if (!l->fixed)
        return l;
    b->of_class[which] = *l;
    b->scratch = (links){ 0 };
    return &b->of_class[which];
}

static rsd_err count_rows(building *b, rsd_error *err)
{
    rsd_plan_stats *stats = &b->plan->stats;

    for (size_t t = 0; t < b->plan->n; t++) {
        const links *l = links_of(b, t);

        if (!l)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the moves of a plan");
        stats->bytes_local += l->bytes[KEEP];
        stats->bytes_sent += l->bytes[SEND];
        stats->bytes_recv += l->bytes[RECV];
        for (size_t i = 0; i < l->n; i++) {
            const struct link *link = &l->link[i];

            if (link->way == KEEP)
                b->nlocal++;
            else if (link->way == SEND)
                b->peers.peer[link->peer].sends++;
            else
                b->peers.peer[link->peer].recvs++;
        }
    }
    return RSD_OK;
}

static rsd_err fill_rows(building *b, rsd_error *err)
{
    rsd_plan *plan = b->plan;
    size_t    nlocal = 0;

    for (size_t t = 0; t < plan->n; t++) {
        const links *l = links_of(b, t);

        if (!l)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the moves of a plan");
        for (size_t i = 0; i < l->n; i++) {
            const struct link *link = &l->link[i];
            rsi_entry          entry = { .tensor = (uint32_t)t, .piece = link->piece };

            if (link->way == KEEP)
                plan->local[nlocal++] = entry;
            else if (link->way == SEND)
                plan->send.entry[b->peers.peer[link->peer].sends++] = entry;
            else
                plan->recv.entry[b->peers.peer[link->peer].recvs++] = entry;
        }
    }
    return RSD_OK;
}

static int by_rank(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Places each row, now that the counts are known, and turns the counts into "next free entry". */
static rsd_err place_rows(building *b, rsd_error *err)
{
    rsd_plan *plan = b->plan;
    peers    *p = &b->peers;
    size_t    sends = 0, recvs = 0;

    plan->npeers = p->n;
    plan->nlocal = b->nlocal;
    plan->peer = rsi_arena_array(&plan->mem, p->n, sizeof(plan->peer[0]));
    plan->send.first = rsi_arena_array(&plan->mem, p->n + 1, sizeof(size_t));
    plan->recv.first = rsi_arena_array(&plan->mem, p->n + 1, sizeof(size_t));
    if (!plan->peer || !plan->send.first || !plan->recv.first)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a plan with %zu peers", p->n);
    for (size_t i = 0; i < p->n; i++)
        plan->peer[i] = p->peer[i].rank;
    qsort(plan->peer, p->n, sizeof(plan->peer[0]), by_rank);
    for (size_t i = 0; i < p->n; i++) {
        peer  *row = &p->peer[p->slot[slot_of(p, plan->peer[i])] - 1];
        size_t nsends = row->sends, nrecvs = row->recvs;

        plan->stats.messages += (nsends > 0) + (nrecvs > 0);
        row->sends = plan->send.first[i] = sends;
        row->recvs = plan->recv.first[i] = recvs;
        sends += nsends;
        recvs += nrecvs;
    }
    plan->send.first[p->n] = sends;
    plan->recv.first[p->n] = recvs;
    plan->local = rsi_arena_array(&plan->mem, b->nlocal, sizeof(rsi_entry));
    plan->send.entry = rsi_arena_array(&plan->mem, sends, sizeof(rsi_entry));
    plan->recv.entry = rsi_arena_array(&plan->mem, recvs, sizeof(rsi_entry));
    if (!plan->local || !plan->send.entry || !plan->recv.entry)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a plan of %zu moves",
                        b->nlocal + sends + recvs);
    plan->stats.moves = (int64_t)(b->nlocal + sends + recvs);
    plan->stats.peers = (int32_t)p->n;
    return RSD_OK;
}

rsd_err rsi_plan_rows(rsd_plan *plan, rsd_error *err)
{
    building b = { .plan = plan };
    rsd_err  rc;

    b.of_class = rsi_calloc(plan->nclasses, sizeof(b.of_class[0]));
    if (!b.of_class)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the moves of a plan");
    rc = count_rows(&b, err);
    if (!rc)
        rc = place_rows(&b, err);
    if (!rc)
        rc = fill_rows(&b, err);
    for (size_t i = 0; i < plan->nclasses; i++)
        rsi_free(b.of_class[i].link);
    rsi_free(b.of_class);
    rsi_free(b.scratch.link);
    rsi_free(b.peers.peer);
    rsi_free(b.peers.slot);
    return rc;
}
