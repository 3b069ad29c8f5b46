/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans: finds the class of each tensor, then goes through all pieces twice, once to count
 * the rows and once to fill them. overlap.c has the pieces, side.c the holders, plan.c what callers
 * ask of a plan. */
#include "plan/planner.h"
#include "base/checked.h"
#include "base/map.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- peers: rank to row, while rows are being counted and filled ---- */

typedef struct peer {
    int32_t rank;         /* -1: a free slot */
    size_t  sends, recvs; /* moves; later the next free entry of the row */
} peer;

typedef struct peers {
    peer  *slot;
    size_t cap, n; /* cap is a power of two */
} peers;

static size_t slot_of(const peers *p, int32_t rank)
{
    size_t i = ((uint32_t)rank * 0x9e3779b1u >> 7) & (p->cap - 1);

    while (p->slot[i].rank >= 0 && p->slot[i].rank != rank)
        i = (i + 1) & (p->cap - 1);
    return i;
}

static bool grow_peers(peers *p)
{
    peers bigger = { .cap = p->cap ? 2 * p->cap : 64, .n = p->n };

    bigger.slot = rsi_calloc(bigger.cap, sizeof(bigger.slot[0]));
    if (!bigger.slot)
        return false;
    for (size_t i = 0; i < bigger.cap; i++)
        bigger.slot[i].rank = -1;
    for (size_t i = 0; i < p->cap; i++)
        if (p->slot[i].rank >= 0)
            bigger.slot[slot_of(&bigger, p->slot[i].rank)] = p->slot[i];
    rsi_free(p->slot);
    *p = bigger;
    return true;
}

static peer *peer_of(peers *p, int32_t rank)
{
    size_t i;

    if (2 * p->n >= p->cap && !grow_peers(p))
        return NULL;
    i = slot_of(p, rank);
    if (p->slot[i].rank < 0) {
        p->slot[i] = (peer){ .rank = rank };
        p->n++;
    }
    return &p->slot[i];
}

/* ---- going through all moves ---- */

typedef struct building {
    rsd_plan *plan;
    peers     peers;
    size_t    nlocal;
    bool      fill; /* the second time: rows have their place */
} building;

static void note_local(building *b, rsi_entry entry)
{
    if (b->fill)
        b->plan->local[b->nlocal] = entry;
    b->nlocal++;
}

static bool note_move(building *b, int32_t rank, bool sends, rsi_entry entry)
{
    peer   *p = peer_of(&b->peers, rank);
    size_t *next;

    if (!p)
        return false;
    next = sends ? &p->sends : &p->recvs;
    if (b->fill)
        (sends ? b->plan->send.entry : b->plan->recv.entry)[*next] = entry;
    (*next)++;
    return true;
}

/* The closed form: which of n holders serves. `sum` adds up the tensor, the chunks on both sides,
 * the receiver's place among its copies and the contribution: neighbours in any of them are served
 * by different holders. */
static int64_t serving(int64_t sum, int64_t n)
{
    return n > 1 ? sum % n : 0;
}

/* The first receiver that holder `me` of n serves, when receiver r has the sum `sum + r`; it serves
 * every nth from there. */
static int64_t first_served(int64_t sum, int64_t me, int64_t n)
{
    return n > 1 ? (me + n - sum % n) % n : 0;
}

/* What I receive of one tensor, and what I have myself. */
static bool note_recvs(building *b, const rsi_class *c, uint32_t tensor)
{
    rsd_plan_stats *stats = &b->plan->stats;
    rsi_piece_iter  it;

    for (rsi_iter_begin(&it, &c->recv); it.i < c->recv.n; rsi_iter_next(&it)) {
        rsi_entry entry = { .tensor = tensor, .piece = (uint32_t)it.i };
        int64_t   where = rsi_iter_where(&it), copies = rsi_side_copies(&c->src, where);
        int64_t   first = c->matched ? c->dst.my_part : 0;
        int64_t   end = c->matched ? first + 1 : c->src.parts.count;
        int64_t   bytes = rsi_iter_count(&it) * c->dst.layout->elem_bytes;
        int64_t   my_chunk, my_copy;

        rsi_side_mine(&c->dst, rsi_iter_my_box(&it), &my_chunk, &my_copy);
        for (int64_t part = first; part < end; part++) {
            int64_t sum = tensor + rsi_iter_chunk(&it) + my_chunk + my_copy + part;

            if (rsi_side_have(&c->src, where, part)) {
                stats->bytes_local += bytes;
                note_local(b, entry);
                continue;
            }
            stats->bytes_recv += bytes;
            if (!note_move(b, rsi_side_holder(&c->src, where, serving(sum, copies), part), false,
                           entry))
                return false;
        }
    }
    return true;
}

/* What I send of one tensor: each piece to those of its new holders that don't have it and that I
 * serve. */
static bool note_sends(building *b, const rsi_class *c, uint32_t tensor)
{
    rsd_plan_stats *stats = &b->plan->stats;
    rsi_piece_iter  it;

    for (rsi_iter_begin(&it, &c->send); it.i < c->send.n; rsi_iter_next(&it)) {
        rsi_entry entry = { .tensor = tensor, .piece = (uint32_t)it.i };
        int64_t   where = rsi_iter_where(&it), receivers = rsi_side_copies(&c->dst, where);
        int64_t   bytes = rsi_iter_count(&it) * c->src.layout->elem_bytes;
        int64_t   my_chunk, my_copy, my_where, copies, sum;

        rsi_side_mine(&c->src, rsi_iter_my_box(&it), &my_chunk, &my_copy);
        my_where = c->src.layout->mesh ? c->src.my_where : my_chunk;
        copies = rsi_side_copies(&c->src, my_where);
        sum = tensor + my_chunk + rsi_iter_chunk(&it) + c->src.my_part;
        for (int64_t r = first_served(sum, my_copy, copies); r < receivers; r += copies) {
            int32_t to = rsi_side_holder(&c->dst, where, r, c->src.my_part);

            if (to == b->plan->rank ||
                (copies > 1 && rsi_side_holds(&c->src, my_where, c->src.my_part, to)))
                continue; /* it has the piece itself */
            stats->bytes_sent += bytes;
            if (!note_move(b, to, true, entry))
                return false;
        }
    }
    return true;
}

static rsd_err go_through(building *b, rsd_error *err)
{
    rsd_plan *plan = b->plan;

    plan->stats.bytes_local = plan->stats.bytes_sent = plan->stats.bytes_recv = 0;
    b->nlocal = 0;
    for (size_t t = 0; t < plan->n; t++) {
        const rsi_class *c = plan->class[plan->class_of[t]];

        if (!note_recvs(b, c, (uint32_t)t) || !note_sends(b, c, (uint32_t)t))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the peers of a plan");
    }
    return RSD_OK;
}

static int by_rank(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Gives each row its place, now that the counts are known, and turns the counts into "next free
 * entry". */
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
    for (size_t i = 0, n = 0; i < p->cap; i++)
        if (p->slot[i].rank >= 0)
            plan->peer[n++] = p->slot[i].rank;
    qsort(plan->peer, p->n, sizeof(plan->peer[0]), by_rank);
    for (size_t i = 0; i < p->n; i++) {
        peer  *row = peer_of(p, plan->peer[i]);
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

static rsd_err make_rows(rsd_plan *plan, rsd_error *err)
{
    building b = { .plan = plan };
    rsd_err  rc = go_through(&b, err);

    if (!rc)
        rc = place_rows(&b, err);
    b.fill = true;
    if (!rc)
        rc = go_through(&b, err);
    rsi_free(b.peers.slot);
    return rc;
}

/* ---- classes ---- */

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

/* A source that need not cover the tensor must still have all that I want of it. */
static rsd_err check_cover(const rsi_class *c, rsd_error *err)
{
    const rsd_layout *src = c->src.layout, *dst = c->dst.layout;
    int64_t           bytes = 0, want = rsd_layout_bytes(dst, c->dst.rank);
    rsi_piece_iter    it;

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
    if (src->reduce && dst->reduce && !c->matched)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "partial to another partial layout: go through replicate or shard");
    c->reduce = c->matched ? 0 : src->reduce;
    c->share = dst->reduce == RSD_SUM && !src->reduce ? rsi_layout_ways(dst, RSD_PARTIAL) : 1;
    rsi_side_make(&c->src, src, rank, true);
    rsi_side_make(&c->dst, dst, rank, c->matched);
    rc = rsi_pieces_make(&c->send, src, dst, rank, mem, err);
    if (!rc)
        rc = rsi_pieces_make(&c->recv, dst, src, rank, mem, err);
    return rc ? rc : check_cover(c, err);
}

/* Finds the class of tensor t or makes it. */
static rsd_err class_for(rsd_plan *plan, size_t t, rsi_map *known, rsd_error *err)
{
    const rsd_layout *src = plan->src[t], *dst = plan->dst[t];
    uint64_t          which = plan->nclasses;
    uint64_t         *key = rsi_arena_array(&plan->mem, 2, sizeof(key[0]));
    rsi_class        *c;
    bool              was = false;

    if (!key)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a plan");
    key[0] = src->hash;
    key[1] = dst->hash;
    if (!rsi_map_add(known, key, 2 * sizeof(key[0]), &which, &was))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a plan");
    if (was && rsd_layout_equal(plan->class[which] -> src.layout, src) &&
        rsd_layout_equal(plan->class[which] -> dst.layout, dst)) {
        plan->class_of[t] = (uint32_t)which;
        return RSD_OK;
    }
    c = rsi_arena_array(&plan->mem, 1, sizeof(*c));
    if (!c)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a plan");
    plan->class_of[t] = (uint32_t)plan->nclasses;
    plan->class[plan->nclasses++] = c;
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

/* ---- the plan ---- */

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
        return rsi_fail(err, RSD_E_INVALID, "there is no rank %" PRId32, rank);
    plan = rsi_calloc(1, sizeof(*plan));
    if (!plan)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a plan");
    plan->rank = rank;
    rc = take_layouts(plan, n, src, dst, err);
    if (!rc)
        rc = make_classes(plan, err);
    if (!rc)
        rc = make_rows(plan, err);
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
