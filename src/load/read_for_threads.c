/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces are dealt out by bytes, so that each rank reads its part of the files front to back
 * whatever the views are; a block goes from the reader's cache to all ranks that want part of it. A
 * rank that gives up while others still read, which only a broken comm can cause, shuts its gate:
 * from then on no rank writes into its memory. */
#include "load/read_for_threads.h"
#include "base/mem.h"
#include "plan/copy.h"
#include "shape/box.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* Between one rank's memory and the ranks that write into it. */
typedef struct gate {
    atomic_int   writers;
    atomic_bool  shut;
    struct gate *next; /* in the list of abandoned gates */
} gate;

typedef struct dealing {
    rsd_comm        *comm;
    const rsi_share *share;
    gate           **gate;   /* [size] */
    rsi_pieces       pieces; /* those that this rank reads */
    unsigned char  **first;  /* [pieces.nhits] the first element of each hit's view */
} dealing;

/* One piece and its takers. */
typedef struct hand {
    const dealing   *d;
    const rsi_piece *piece;
    rsi_taker        taker;
} hand;

/* ---- gates ---- */

static bool enter(gate *g)
{
    atomic_fetch_add(&g->writers, 1);
    if (!atomic_load(&g->shut))
        return true;
    atomic_fetch_sub(&g->writers, 1);
    return false;
}

static void leave(gate *g)
{
    atomic_fetch_sub(&g->writers, 1);
}

/* Writes in progress copy at most a block, so they end soon. */
static void shut(gate *g)
{
    atomic_store(&g->shut, true);
    while (atomic_load(&g->writers) > 0)
        sched_yield();
}

/* After a broken comm, other ranks may still look at this rank's gate, so it is never freed. */
static _Atomic(gate *) abandoned;

static void abandon(gate *g)
{
    g->next = atomic_load(&abandoned);
    while (!atomic_compare_exchange_weak(&abandoned, &g->next, g))
        ;
}

/* `over`: no rank ever wrote, or all ranks have agreed that none does any more. */
static void close_gates(dealing *d, bool over)
{
    gate *own = d->gate ? d->gate[d->comm->rank] : NULL;

    if (own)
        shut(own);
    if (own && over)
        rsi_free(own);
    else if (own)
        abandon(own);
    rsi_free(d->gate);
    d->gate = NULL;
}

static rsd_err make_gate(dealing *d, rsd_exposed *shown, rsd_error *err)
{
    size_t n = (size_t)d->comm->size;

    d->gate = rsi_calloc(n, sizeof(d->gate[0]));
    if (d->gate)
        d->gate[d->comm->rank] = rsi_calloc(1, sizeof(gate));
    if (!d->gate || !d->gate[d->comm->rank])
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu ranks", n);
    return rsi_expose(d->comm, d->gate[d->comm->rank], sizeof(gate), shown, err);
}

/* [collective] */
static rsd_err reach_gates(dealing *d, const rsd_exposed *shown, rsd_error *err)
{
    rsi_gathered all;
    rsd_err      rc = rsi_allgather_any(d->comm, shown, sizeof(*shown), &all, err);

    if (rc)
        return rc;
    for (int32_t r = 0; r < d->comm->size && !rc; r++) {
        rsd_exposed theirs;
        void       *at = d->gate[r];

        memcpy(&theirs, all.data + all.first[r], sizeof(theirs));
        if (r != d->comm->rank)
            rc = rsi_reach(d->comm, r, &theirs, &at, err);
        d->gate[r] = rc ? d->gate[r] : at;
    }
    rsi_gathered_release(&all);
    return rc;
}

/* ---- pieces ---- */

/* Rank r reads the pieces that begin in the rth part of all bytes. */
static rsd_err take_pieces(dealing *d, rsd_error *err)
{
    rsi_share_at at = { .end = d->share->ckpt->ntensors };
    uint64_t     before = 0, size = (uint64_t)d->comm->size;
    uint64_t     part = (d->share->bytes + size - 1) / size;
    bool         more = true;

    while (more) {
        size_t           nhits = d->pieces.nhits;
        const rsi_piece *piece;
        rsd_err          rc = rsi_share_next(d->share, &at, &d->pieces, &more, err);

        if (rc || !more)
            return rc;
        piece = &d->pieces.piece[d->pieces.n - 1];
        if (before / part != (uint64_t)d->comm->rank) {
            d->pieces.n--;
            d->pieces.nhits = nhits;
        }
        before += (uint64_t)(rsd_box_count(&piece->box) * piece->elem_bytes);
    }
    return RSD_OK;
}

static const int64_t *place_of(const rsi_hit *hit)
{
    return hit->ref->box + 2 * hit->box.ndim;
}

/* Before threads start: only one thread may use a comm. */
static rsd_err find_views(dealing *d, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    d->first = rsi_calloc(d->pieces.nhits, sizeof(d->first[0]));
    if (!d->first)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", d->pieces.nhits);
    for (size_t i = 0; i < d->pieces.nhits && !rc; i++) {
        const int64_t *place = place_of(&d->pieces.hit[i]);
        rsd_exposed    shown;
        void          *at = NULL;

        memcpy(&shown, place, sizeof(shown));
        rc = rsi_reach(d->comm, d->pieces.hit[i].rank, &shown, &at, err);
        d->first[i] = rc ? NULL : (unsigned char *)at + place[4];
    }
    return rc;
}

/* The view that wants a hit, as addressed by this rank. */
static rsi_area area_of(const dealing *d, size_t i)
{
    const rsi_hit *hit = &d->pieces.hit[i];
    int            ndim = hit->box.ndim;
    rsi_area       area = { .box.ndim = ndim, .data = d->first[i] };

    for (int k = 0; k < ndim; k++) {
        area.box.off[k] = hit->ref->box[k];
        area.box.len[k] = hit->ref->box[ndim + k];
        area.stride[k] = place_of(hit)[5 + k];
    }
    return area;
}

static rsd_err take(void *arg, const rsd_box *box, const void *packed, rsd_error *err)
{
    const hand *h = arg;
    rsi_area    from = { .box = *box, .data = (unsigned char *)(uintptr_t)packed }, to;

    rsi_strides(box->ndim, box->len, h->piece->elem_bytes, from.stride);
    for (size_t i = h->piece->first; i < h->piece->first + h->piece->n; i++) {
        const rsi_hit *hit = &h->d->pieces.hit[i];
        gate          *g = h->d->gate[hit->rank];
        rsd_box        part;

        if (!rsd_box_intersect(box, &hit->box, &part))
            continue;
        to = area_of(h->d, i);
        if (!enter(g))
            return rsi_fail(err, RSD_E_CANCELED, "rank %d has given up",
                            (int)rsi_origin(h->d->comm, hit->rank));
        rsi_copy_box_past(&part, h->piece->elem_bytes, &to, &from);
        leave(g);
    }
    return RSD_OK;
}

static rsd_err read_pieces(const dealing *d, const rsd_read_opts *opts, rsd_error *err)
{
    size_t    n = d->pieces.n;
    rsi_want *want = rsi_calloc(n, sizeof(want[0]));
    rsd_view *view = rsi_calloc(n, sizeof(view[0]));
    hand     *hands = rsi_calloc(n, sizeof(hands[0]));
    rsd_err   rc = RSD_OK;

    if (!want || !view || !hands)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu reads", n);
    for (size_t i = 0; i < n && !rc; i++) {
        const rsi_piece *piece = &d->pieces.piece[i];
        rsd_tensor_info  info;

        d->share->ckpt->ops->tensor(d->share->ckpt, piece->t, &info);
        hands[i] = (hand){ .d = d, .piece = piece, .taker = { take, &hands[i] } };
        view[i].box = piece->box;
        want[i] = (rsi_want){
            .t = piece->t, .dtype = info.dtype, .view = &view[i], .taker = &hands[i].taker
        };
    }
    if (!rc)
        rc = rsi_fetch_all(d->share->ckpt, want, n, opts, err);
    rsi_free(want);
    rsi_free(view);
    rsi_free(hands);
    return rc;
}

rsd_err rsi_deal_run(rsd_comm *comm, const rsi_share *share, const rsd_read_opts *opts,
                     rsd_error *err)
{
    dealing     d = { .comm = comm, .share = share };
    rsd_exposed shown = { { 0 } };
    bool        ready = false; /* and announced it: from then on others may write */
    rsd_err     rc = rsi_agree(comm, make_gate(&d, &shown, err), err);

    if (!rc) {
        rc = reach_gates(&d, &shown, err);
        if (!rc)
            rc = take_pieces(&d, err);
        if (!rc)
            rc = find_views(&d, err);
        ready = !rc;
        rc = rsi_agree(comm, rc, err);
        if (!rc)
            rc = rsi_agree(comm, read_pieces(&d, opts, err), err);
    }
    close_gates(&d, !ready || !rc || comm->nfailed > 0);
    rsi_pieces_release(&d.pieces);
    rsi_free(d.first);
    return rc;
}
