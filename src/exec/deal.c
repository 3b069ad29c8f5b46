/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces are dealt out by bytes, so that each rank reads its part of the files from front to
 * back whatever the views are; a block goes from the reader's cache to all that want some of it.
 * A rank that gives up while others still read, which only a broken comm makes it do, shuts its
 * gate: from then on nobody writes into its memory. */
#include "exec/deal.h"
#include "base/mem.h"
#include "plan/copy.h"
#include "shape/box.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* Between one rank's memory and all who write into it. The last one to leave frees it. */
typedef struct gate {
    atomic_int  holders;
    atomic_int  writers;
    atomic_bool shut;
    pid_t       pid; /* of the owner */
} gate;

typedef struct dealing {
    rsd_comm        *comm;
    const rsi_share *share;
    gate           **gate;   /* [size] */
    rsi_pieces       pieces; /* that this rank reads */
    unsigned char  **first;  /* [pieces.nhits] the first element of each hit's view */
} dealing;

/* One piece and the way to its takers. */
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

/* Writes that are under way are copies of at most a block: they end. */
static void shut(gate *g)
{
    atomic_store(&g->shut, true);
    while (atomic_load(&g->writers) > 0)
        sched_yield();
}

static void let_go(gate *g)
{
    if (g && atomic_fetch_sub(&g->holders, 1) == 1 && g->pid == getpid())
        rsi_free(g);
}

static rsd_err open_gates(dealing *d, rsd_error *err)
{
    size_t       n = (size_t)d->comm->size, me = (size_t)d->comm->rank;
    rsd_exposed *all = rsi_calloc(n, sizeof(all[0])), mine = { { 0 } };
    gate        *own = rsi_calloc(1, sizeof(*own));
    rsd_err      rc = RSD_OK;

    d->gate = rsi_calloc(n, sizeof(d->gate[0]));
    if (!all || !own || !d->gate) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu ranks", n);
    } else {
        own->pid = getpid();
        atomic_init(&own->holders, d->comm->size);
        rc = rsi_expose(d->comm, own, sizeof(*own), &mine, err);
    }
    rc = rsi_agree(d->comm, rc, err);
    if (rc)
        rsi_free(own);
    else
        d->gate[me] = own;
    if (!rc)
        rc = rsi_allgather(d->comm, &mine, sizeof(mine), all, err);
    for (size_t r = 0; r < n && !rc; r++) {
        void *at = own;

        if (r != me)
            rc = rsi_reach(d->comm, (int32_t)r, &all[r], &at, err);
        d->gate[r] = rc ? NULL : at;
    }
    rsi_free(all);
    return d->gate && d->gate[me] ? rsi_agree(d->comm, rc, err) : rc;
}

static void close_gates(dealing *d)
{
    if (d->gate && d->gate[d->comm->rank])
        shut(d->gate[d->comm->rank]);
    for (int32_t r = 0; d->gate && r < d->comm->size; r++)
        let_go(d->gate[r]);
    rsi_free(d->gate);
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

/* Before threads begin: a comm is one thread's. */
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

/* The view that wants a hit, as this rank sees it. */
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
    dealing d = { .comm = comm, .share = share };
    rsd_err rc = open_gates(&d, err);

    if (!rc) {
        rc = take_pieces(&d, err);
        if (!rc)
            rc = find_views(&d, err);
        if (!rc)
            rc = read_pieces(&d, opts, err);
        rc = rsi_agree(comm, rc, err);
    }
    close_gates(&d);
    rsi_pieces_release(&d.pieces);
    rsi_free(d.first);
    return rc;
}
