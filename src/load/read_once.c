/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks of a machine compute the same parcels, each a few pieces with one reader. There are
 * three ways from a reader to the views of all ranks:
 *
 *   reach     threads: it copies every block, while that is in its cache, straight into the views
 *   rooms     processes: it reads parcels into its room, from which all ranks take their parts; a
 *             room has two halves, so that ranks meet once for each round
 *   messages  otherwise: it sends whole parcels, in rounds as large as staging memory allows */
#include "load/read_once.h"
#include "load/parcels.h"
#include "base/arena.h"
#include "base/checked.h"
#include "base/mem.h"
#include "base/shared.h"
#include "base/workers.h"
#include "comm/rooms.h"
#include "plan/copy.h"
#include "shape/box.h"
#include "view/recast.h"
#include "view/views.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define ROOMS_FROM ((uint64_t)1 << 20) /* bytes for which rooms are worth the trouble */
#define TAG        0x3ff0

/* Between the memory of ranks that reach each other and those that write into it; one for all. A
 * rank that gives up while others still read, which only a broken comm can cause, shuts it: from
 * then on no rank writes. */
typedef struct gate {
    rsi_shared  shared;
    atomic_int  writers;
    atomic_bool shut;
} gate;

/* A parcel that is sent to another rank or comes from it. */
typedef struct message {
    int32_t peer;
    bool    send;
    size_t  parcel;
} message;

typedef struct round {
    const rsi_share     *share;
    const rsi_want      *want;
    const rsd_read_opts *opts;
    rsd_comm            *comm; /* the machine's */
    int32_t              me, size;
    rsi_parcels          parcels;
    gate                *gate;  /* if views can be reached */
    rsi_rooms           *rooms; /* NULL: messages, unless views can be reached */
    size_t               half;  /* bytes of half a room, */
    size_t               turn;  /* and where this round's half begins */
    rsi_area            *to;    /* [parcels.pieces.nhits] reach: where my parcels go */
    unsigned char       *room;  /* of messages */
    unsigned char       *spare; /* for a part of a piece that a view does not take as stored */
    message             *message;
    size_t               nmessages, message_cap;
    void               **request; /* [nmessages] */
    int32_t             *peer;
    rsi_arena            mem; /* of a round */
} round;

/* One piece that I read. */
typedef struct hand {
    const round     *r;
    const rsi_piece *piece;
    rsi_taker        taker;
} hand;

/* ---- the gate ---- */

static bool enter(gate *g)
{
    atomic_fetch_add(&g->writers, 1);
    if (!atomic_load(&g->shut))
        return true;
    atomic_fetch_sub(&g->writers, 1);
    return false;
}

static void free_gate(rsi_shared *shared)
{
    rsi_free(shared);
}

/* [collective] */
static rsd_err make_gate(round *r, bool *go, rsd_error *err)
{
    gate    *made = r->me == 0 ? rsi_calloc(1, sizeof(*made)) : NULL;
    uint64_t number = made ? rsi_shared_add(&made->shared, free_gate) : 0;
    rsd_err  rc = rsi_broadcast(r->comm, 0, &number, sizeof(number), err);

    r->gate = made ? made : (gate *)rsi_shared_find(number);
    if (!rc && !r->gate)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to read for %d ranks", (int)r->size);
    return rsi_share_go(r->comm, rc, go, err);
}

/* `over`: no rank writes any more. Writes in progress copy at most a block, so they end soon. */
static void leave_gate(round *r, bool over)
{
    gate *g = r->gate;

    if (!g)
        return;
    if (!over)
        atomic_store(&g->shut, true);
    while (!over && atomic_load(&g->writers) > 0)
        sched_yield();
    rsi_shared_drop(&g->shared);
}

/* ---- places ---- */

static rsi_area packed_area(const rsi_piece *piece, const rsd_box *box, unsigned char *data)
{
    rsi_area area = { .box = *box, .data = data };

    rsi_strides(box->ndim, box->len, piece->elem_bytes, area.stride);
    return area;
}

/* The view of any rank, whose memory this one can reach. */
static rsi_area reached_area(const rsi_hit *hit)
{
    int            ndim = hit->box.ndim;
    const int64_t *place = hit->ref->box + 2 * (size_t)ndim;
    rsi_area       area = { .box.ndim = ndim, .data = (unsigned char *)(uintptr_t)place[0] };

    for (int d = 0; d < ndim; d++) {
        area.box.off[d] = hit->ref->box[d];
        area.box.len[d] = hit->ref->box[ndim + d];
        area.stride[d] = place[1 + d];
    }
    return area;
}

/* Where a parcel of this round lies, if I read it or it has come. */
static unsigned char *place_of(const round *r, const rsi_read_parcel *p)
{
    return r->rooms ? r->rooms->of[p->reader] + r->turn + p->at : r->room + p->at;
}

static rsd_err add_message(round *r, int32_t peer, bool send, size_t parcel, rsd_error *err)
{
    if (!rsi_grow(&r->message, r->nmessages, &r->message_cap, sizeof(r->message[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu messages", r->nmessages + 1);
    r->message[r->nmessages++] = (message){ .peer = peer, .send = send, .parcel = parcel };
    return RSD_OK;
}

/* Lists the messages of this round and gives every parcel that I read or want its place. */
static rsd_err list_messages(round *r, size_t *bytes, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    *bytes = r->nmessages = 0;
    for (size_t i = 0; i < r->parcels.n && !rc; i++) {
        rsi_read_parcel *p = &r->parcels.parcel[i];
        bool             mine = p->reader == r->me;

        p->at = *bytes;
        if (!mine && !rsi_parcel_wanted(&r->parcels, p, r->me))
            continue;
        *bytes += p->bytes;
        if (!mine)
            rc = add_message(r, p->reader, false, i, err);
        for (int32_t k = 0; k < r->size && mine && !rc; k++)
            if (k != r->me && rsi_parcel_wanted(&r->parcels, p, k))
                rc = add_message(r, k, true, i, err);
    }
    return rc;
}

static rsd_err make_message_room(round *r, rsd_error *err)
{
    size_t  bytes;
    rsd_err rc = list_messages(r, &bytes, err);

    if (rc)
        return rc;
    r->room = rsi_alloc_aligned(4096, bytes ? bytes : 1);
    r->request = rsi_arena_array(&r->mem, r->nmessages, sizeof(r->request[0]));
    r->peer = rsi_arena_array(&r->mem, r->nmessages, sizeof(r->peer[0]));
    if (!r->room || !r->request || !r->peer)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes that other ranks need too",
                        bytes);
    return RSD_OK;
}

/* True if my view takes the hit as it is stored. */
static bool is_plain(const round *r, const rsi_piece *piece, const rsi_hit *hit)
{
    const rsi_want *want = &r->want[hit->want];
    rsd_tensor_info info;

    r->share->ckpt->ops->tensor(r->share->ckpt, piece->t, &info);
    return want->view->data && want->dtype == info.dtype;
}

/* The bytes that the largest such part of a piece needs to be packed. */
static size_t spare_bytes(const round *r)
{
    size_t most = 0;

    for (size_t i = 0; i < r->parcels.pieces.n; i++) {
        const rsi_piece *piece = &r->parcels.pieces.piece[i];

        for (size_t h = piece->first; h < piece->first + piece->n; h++) {
            const rsi_hit *hit = &r->parcels.pieces.hit[h];

            if (hit->rank == r->me && !is_plain(r, piece, hit) &&
                rsi_piece_bytes(piece, &hit->box) > most)
                most = rsi_piece_bytes(piece, &hit->box);
        }
    }
    return most;
}

/* Allocates everything for a round before data are passed on: from then on only the transport can
 * fail. */
static rsd_err make_room(round *r, rsd_error *err)
{
    size_t bytes;

    if (r->share->reach) {
        r->to = rsi_arena_array(&r->mem, r->parcels.pieces.nhits, sizeof(r->to[0]));
        if (!r->to)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", r->parcels.pieces.nhits);
        for (size_t i = 0; i < r->parcels.pieces.nhits; i++)
            r->to[i] = reached_area(&r->parcels.pieces.hit[i]);
        return RSD_OK;
    }
    bytes = spare_bytes(r);
    r->spare = bytes ? rsi_arena_array(&r->mem, bytes, 1) : NULL;
    if (bytes && !r->spare)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes of a view", bytes);
    return r->rooms ? RSD_OK : make_message_room(r, err);
}

/* ---- reading ---- */

static rsd_err take(void *arg, const rsd_box *box, const void *packed, rsd_error *err)
{
    const hand  *h = arg;
    const round *r = h->r;
    rsi_area     from = packed_area(h->piece, box, (unsigned char *)(uintptr_t)packed);

    if (!enter(r->gate))
        return rsi_fail(err, RSD_E_CANCELED, "another rank has given up");
    for (size_t i = h->piece->first; i < h->piece->first + h->piece->n; i++) {
        rsd_box part;

        if (rsd_box_intersect(&r->to[i].box, &h->piece->box, &part) &&
            rsd_box_intersect(&part, box, &part))
            rsi_copy_box_past(&part, h->piece->elem_bytes, &r->to[i], &from);
    }
    atomic_fetch_sub(&r->gate->writers, 1);
    return RSD_OK;
}

static rsd_err read_parcels(round *r, rsd_error *err)
{
    size_t    n = 0;
    rsi_want *want = rsi_arena_array(&r->mem, r->parcels.pieces.n, sizeof(want[0]));
    rsd_view *view = rsi_arena_array(&r->mem, r->parcels.pieces.n, sizeof(view[0]));
    hand     *hands = rsi_arena_array(&r->mem, r->parcels.pieces.n, sizeof(hands[0]));

    if (!want || !view || !hands)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu reads", r->parcels.pieces.n);
    for (size_t p = 0; p < r->parcels.n; p++) {
        const rsi_read_parcel *parcel = &r->parcels.parcel[p];
        unsigned char         *to = r->share->reach ? NULL : place_of(r, parcel);

        for (size_t i = parcel->first; parcel->reader == r->me && i < parcel->end; i++, n++) {
            const rsi_piece *piece = &r->parcels.pieces.piece[i];
            rsd_tensor_info  info;

            r->share->ckpt->ops->tensor(r->share->ckpt, piece->t, &info);
            hands[n] = (hand){ .r = r, .piece = piece, .taker = { take, &hands[n] } };
            view[n].box = piece->box;
            view[n].data = to;
            want[n] = (rsi_want){ .t = piece->t,
                                  .dtype = info.dtype,
                                  .view = &view[n],
                                  .taker = to ? NULL : &hands[n].taker };
            to += to ? rsi_piece_bytes(piece, &piece->box) : 0;
        }
    }
    return rsi_fetch_all(r->share->ckpt, want, n, r->opts, err);
}

/* ---- passing on ---- */

/* Gives a view of this rank its part of a piece, which lies packed at `from`. */
static rsd_err give(const round *r, const rsi_piece *piece, const rsi_hit *hit, unsigned char *from,
                    rsd_error *err)
{
    const rsi_want *want = &r->want[hit->want];
    rsi_area        to = { .box = want->view->box, .data = want->view->data };
    rsi_area        packed = packed_area(piece, &piece->box, from);
    rsi_recast      recast = { .to = want->view, .to_dtype = want->dtype };
    rsd_view        cast = *want->view;
    rsd_tensor_info info;
    rsd_err         rc;

    if (is_plain(r, piece, hit)) {
        memcpy(to.stride, want->view->stride, sizeof(to.stride));
        rsi_copy_box_past(&hit->box, piece->elem_bytes, &to, &packed);
        return RSD_OK;
    }
    r->share->ckpt->ops->tensor(r->share->ckpt, piece->t, &info);
    recast.from_dtype = info.dtype;
    if (want->dtype != info.dtype)
        rsi_recast_view(&recast, &cast);
    rsi_pack(&hit->box, piece->elem_bytes, r->spare, &packed);
    rc = rsi_view_put(&cast, &hit->box, piece->elem_bytes, r->spare, err);
    return rc ? rsi_while(err, rc, "tensor \"%s\"", info.name) : RSD_OK;
}

static rsd_err give_parcel(const round *r, const rsi_read_parcel *p, rsd_error *err)
{
    unsigned char *from = place_of(r, p);
    rsd_err        rc = RSD_OK;

    for (size_t i = p->first; i < p->end; i++) {
        const rsi_piece *piece = &r->parcels.pieces.piece[i];

        for (size_t h = piece->first; h < piece->first + piece->n && !rc; h++)
            if (r->parcels.pieces.hit[h].rank == r->me)
                rc = give(r, piece, &r->parcels.pieces.hit[h], from, err);
        from += rsi_piece_bytes(piece, &piece->box);
    }
    return rc;
}

/* Begins with my own parcels, which are in my cache; then every rank with another's. */
static rsd_err give_all(const round *r, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int32_t k = 0; k < r->size; k++)
        for (size_t i = 0; i < r->parcels.n && !rc; i++)
            if (r->parcels.parcel[i].reader == (r->me + k) % r->size &&
                rsi_parcel_wanted(&r->parcels, &r->parcels.parcel[i], r->me))
                rc = give_parcel(r, &r->parcels.parcel[i], err);
    return rc;
}

/* Receives first: a message that finds its buffer waiting is not copied twice. */
static rsd_err post(round *r, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int sends = 0; sends < 2; sends++)
        for (size_t i = 0; i < r->nmessages && !rc; i++) {
            const message         *m = &r->message[i];
            const rsi_read_parcel *p = &r->parcels.parcel[m->parcel];

            r->peer[i] = m->peer;
            if (m->send && sends)
                rc = rsi_send(r->comm, m->peer, TAG, place_of(r, p), p->bytes, &r->request[i], err);
            else if (!m->send && !sends)
                rc = rsi_recv(r->comm, m->peer, TAG, place_of(r, p), p->bytes, &r->request[i], err);
        }
    return rc;
}

static rsd_err exchange(round *r, rsd_error *err)
{
    rsd_err rc = post(r, err);

    if (!rc)
        rc = rsi_wait_all(r->comm, r->nmessages, r->request, r->peer, "load", err);
    if (rc) {
        rc = rsi_break(r->comm, rc, err);
        if (!rsi_drop(r->comm, r->nmessages, r->request))
            r->room = NULL; /* the transport keeps using it until the comm is freed */
    }
    return rc;
}

/* `rc` is this rank's result so far: what it could not place, the others learn before they go on.
 */
static rsd_err run_round(round *r, rsd_err rc, bool *go, rsd_error *err)
{
    if (!rc)
        rc = rsi_parcels_next(&r->parcels, err);
    if (!rc)
        rc = make_room(r, err);
    if (!rc)
        rc = read_parcels(r, err);
    rc = rsi_share_go(r->comm, rc, go, err);
    if (*go && !r->share->reach) {
        rc = r->rooms ? RSD_OK : exchange(r, err);
        *go = !rc;
        if (!rc)
            rc = give_all(r, err);
    }
    r->turn = r->half - r->turn;
    rsi_arena_release(&r->mem);
    rsi_free(r->room);
    r->room = NULL;
    return rc;
}

/* Rooms with as many parcels for each rank as threads may read at once; short ones, so that they
 * are still in a cache when the others come for them. [collective] */
static rsd_err make_rooms(round *r, rsd_error *err)
{
    int64_t fit = (int64_t)(r->opts->max_memory / (2 * RSI_PIECE_MOST));
    int64_t parcels = rsi_max(1, rsi_min(r->opts->threads, fit));
    rsd_err rc = rsi_allreduce(r->comm, RSI_OP_MAX, &parcels, 1, err);

    r->half = (size_t)(parcels * RSI_PIECE_MOST);
    if (!rc)
        rc = rsi_rooms_make(r->comm, 2 * r->half, &r->rooms, err);
    if (r->rooms) {
        r->parcels.room = r->half / 2;
        if (r->parcels.full > RSI_PIECE_MOST / 2)
            r->parcels.full = RSI_PIECE_MOST / 2;
    }
    return rc;
}

/* Fills the views of every tensor that is read once. Staging bounds memory if a piece fits.
 * [collective] on the machine */
static rsd_err read_share(const rsi_share *share, const rsi_want *want, const rsd_read_opts *opts,
                          bool *go, rsd_error *err)
{
    rsd_read_opts half = *opts; /* the other half is for rooms or messages */
    round         r = { .share = share,
                        .want = want,
                        .opts = share->reach ? opts : &half,
                        .comm = share->comm,
                        .me = share->comm->rank,
                        .size = share->comm->size };
    rsd_err       rc = rsi_parcels_begin(&r.parcels, share, err);

    if (half.threads == 0)
        half.threads = r.size < rsi_cpus() ? rsi_cpus() / r.size : 1;
    half.max_memory = (opts->max_memory ? opts->max_memory : (size_t)64 << 20) / 2;
    rc = rsi_share_go(r.comm, rc, go, err);
    if (*go && share->reach)
        rc = make_gate(&r, go, err);
    else if (*go && rsi_rooms_may(r.comm) && share->bytes >= ROOMS_FROM)
        rc = rsi_share_go(r.comm, make_rooms(&r, err), go, err);
    r.parcels.most = half.max_memory / 2;
    r.parcels.anyone = share->reach || r.rooms;
    while (r.parcels.more && *go)
        rc = run_round(&r, rc, go, err);
    leave_gate(&r, !rc || *go);
    rsi_rooms_free(r.rooms);
    rsi_parcels_release(&r.parcels);
    rsi_free(r.message);
    return rc;
}

rsd_err rsi_read_once(rsd_comm *comm, rsd_ckpt *ckpt, rsi_want *want, size_t *n,
                      rsd_choice cooperate, const rsd_read_opts *opts, bool *go, rsd_error *err)
{
    rsd_comm *host = comm && !comm->alone ? rsi_host(comm) : NULL;
    rsi_share share;
    size_t    kept = 0;
    rsd_err   rc;

    *go = true;
    if (!host || host->size == 1)
        return RSD_OK;
    rc = rsi_share_make(&share, host, ckpt, want, *n, cooperate, go, err);
    if (!*go || share.nonce == 0) {
        rsi_share_release(&share);
        return rc;
    }
    rc = read_share(&share, want, opts, go, err);
    for (size_t i = 0; i < *n; i++)
        if (!share.once[want[i].t])
            want[kept++] = want[i];
    *n = kept;
    rsi_share_release(&share);
    return rc;
}
