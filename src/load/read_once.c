/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks of a machine compute the same parcels, each a few pieces with one reader, so that
 * messages need no headers. The reader copies every block it reads, while that is in its cache, to
 * the places that want a part of it: its own views, the views of other ranks where it can reach
 * them, else the messages for them. Messages are collected in rounds as large as staging memory
 * allows; where memory can be reached one round does it all. */
#include "load/read_once.h"
#include "base/arena.h"
#include "base/mem.h"
#include "base/shared.h"
#include "plan/copy.h"
#include "shape/box.h"
#include "view/recast.h"
#include "view/views.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* Bytes at which a parcel is full: few enough that each rank reads several, if there is enough
 * data. */
#define PARCEL_MOST  ((uint64_t)4 << 20)
#define PARCEL_LEAST ((uint64_t)64 << 10)
#define PARCELS      4 /* per rank */
#define TAG          0x3ff0

/* Between the memory of ranks that reach each other and those that write into it; one for all. A
 * rank that gives up while others still read, which only a broken comm can cause, shuts it: from
 * then on no rank writes. */
typedef struct gate {
    rsi_shared  shared;
    atomic_int  writers;
    atomic_bool shut;
} gate;

typedef struct parcel {
    int32_t reader;
    size_t  first, end; /* pieces */
    size_t  bytes;
} parcel;

/* A parcel's message to or from another rank, at this offset of `room`. */
typedef struct message {
    int32_t peer;
    bool    send;
    size_t  parcel, at, bytes;
} message;

typedef struct round {
    const rsi_share     *share;
    const rsi_want      *want;
    const rsd_read_opts *opts;
    rsd_comm            *comm; /* the machine's */
    int32_t              me, size;
    rsi_share_at         at;
    bool                 more;
    gate                *gate; /* if memory can be reached */
    rsi_pieces           pieces;
    parcel              *parcel;
    size_t               nparcels, parcel_cap;
    uint64_t             full;   /* bytes at which a parcel is full */
    uint64_t            *shares; /* [size] bytes that each rank has read in all rounds, */
    size_t              *load;   /* and needs in this one */
    rsi_area            *to;     /* [pieces.nhits] where my parcels go; data NULL: nowhere, or the
                                    same place as another's */
    unsigned char *room;         /* messages, and parts of my own that views don't take as stored */
    message       *message;
    size_t         nmessages, message_cap;
    void         **request; /* [nmessages] */
    int32_t       *peer;
    rsi_arena      mem; /* of a round */
} round;

/* One piece that I read. */
typedef struct hand {
    const round     *r;
    const rsi_piece *piece;
    rsi_taker        taker;
} hand;

static size_t box_bytes(const rsi_piece *piece, const rsd_box *box)
{
    return (size_t)(rsd_box_count(box) * piece->elem_bytes);
}

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

/* ---- parcels ---- */

static bool wants(const round *r, const rsi_piece *piece, int32_t rank)
{
    for (size_t h = piece->first; h < piece->first + piece->n; h++)
        if (r->pieces.hit[h].rank == rank)
            return true;
    return false;
}

/* The reader of a parcel that begins with this piece: the rank that has read least; without reach
 * one that wants the piece. */
static int32_t choose_reader(const round *r, const rsi_piece *piece)
{
    int32_t best = r->share->reach ? 0 : r->pieces.hit[piece->first].rank;

    for (int32_t k = best + 1; k < r->size; k++)
        if (r->shares[k] < r->shares[best] && (r->share->reach || wants(r, piece, k)))
            best = k;
    return best;
}

/* Bytes of the parcel's message for `rank`. *whole: the message is the parcel exactly as read. */
static size_t message_bytes(const round *r, const parcel *p, int32_t rank, bool *whole)
{
    size_t bytes = 0;

    *whole = true;
    for (size_t i = p->first; i < p->end; i++) {
        const rsi_piece *piece = &r->pieces.piece[i];
        size_t           found = 0;

        for (size_t h = piece->first; h < piece->first + piece->n; h++) {
            if (r->pieces.hit[h].rank != rank)
                continue;
            bytes += box_bytes(piece, &r->pieces.hit[h].box);
            *whole = *whole && rsi_box_equal(&r->pieces.hit[h].box, &piece->box);
            found++;
        }
        *whole = *whole && found == 1;
    }
    return bytes;
}

/* Charges a parcel to its reader and receivers; true if a rank has now reached its limit. */
static bool charge(round *r, const parcel *p, size_t most)
{
    size_t shared = 0;
    bool   full = false, whole;

    r->shares[p->reader] += p->bytes;
    for (int32_t k = 0; k < r->size && !r->share->reach; k++) {
        size_t bytes = message_bytes(r, p, k, &whole);

        if (bytes && whole)
            shared = p->bytes;
        else
            r->load[p->reader] += bytes;
        r->load[k] += k == p->reader ? 0 : bytes;
        full = full || r->load[k] >= most;
    }
    r->load[p->reader] += shared;
    return full || r->load[p->reader] >= most;
}

/* Adds pieces with one reader until the parcel is full. A piece that its reader does not want
 * starts the next parcel, unless memory can be reached. */
static rsd_err next_parcel(round *r, rsd_error *err)
{
    parcel *p;

    if (!rsi_grow(&r->parcel, r->nparcels, &r->parcel_cap, sizeof(r->parcel[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu parcels", r->nparcels + 1);
    p = &r->parcel[r->nparcels];
    *p = (parcel){ .first = r->pieces.n, .end = r->pieces.n, .reader = -1 };
    while (p->bytes < r->full) {
        rsi_share_at before = r->at;
        size_t       nhits = r->pieces.nhits;
        rsi_piece   *piece;
        rsd_err      rc = rsi_share_next(r->share, &r->at, &r->pieces, &r->more, err);

        if (rc || !r->more)
            return rc;
        piece = &r->pieces.piece[p->end];
        if (p->reader < 0) {
            p->reader = choose_reader(r, piece);
        } else if (!r->share->reach && !wants(r, piece, p->reader)) {
            r->at = before;
            r->pieces.n--;
            r->pieces.nhits = nhits;
            break;
        }
        p->bytes += box_bytes(piece, &piece->box);
        p->end++;
    }
    return RSD_OK;
}

/* Where memory is reached, only my own pieces are needed. */
static rsd_err plan_round(round *r, rsd_error *err)
{
    size_t most = r->opts->max_memory ? r->opts->max_memory : (size_t)64 << 20;
    bool   full = false;

    r->pieces.n = r->pieces.nhits = r->nparcels = 0;
    memset(r->load, 0, (size_t)r->size * sizeof(r->load[0]));
    while (r->more && !full) {
        size_t  nhits = r->pieces.nhits;
        rsd_err rc = next_parcel(r, err);
        parcel *p = &r->parcel[r->nparcels];

        if (rc)
            return rc;
        if (p->bytes == 0)
            break;
        full = charge(r, p, most / 2); /* a parcel may exceed it */
        if (r->share->reach && p->reader != r->me) {
            r->pieces.n = p->first;
            r->pieces.nhits = nhits;
        } else {
            r->nparcels++;
        }
    }
    return RSD_OK;
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

/* True if my view takes the hit as it is stored. */
static bool is_plain(const round *r, const rsi_piece *piece, const rsi_hit *hit)
{
    const rsi_want *want = &r->want[hit->want];
    rsd_tensor_info info;

    r->share->ckpt->ops->tensor(r->share->ckpt, piece->t, &info);
    return want->view->data && want->dtype == info.dtype;
}

/* Places a rank's hits of a parcel that I read one after the other from `at` on, and those of mine
 * that are plain in their views. With `whole` all pieces, for any number of ranks. Returns the
 * bytes; `room` NULL: only counts. */
static size_t place_hits(round *r, const parcel *p, int32_t rank, bool whole, unsigned char *room,
                         size_t at)
{
    size_t begin = at;

    for (size_t i = p->first; i < p->end; i++) {
        const rsi_piece *piece = &r->pieces.piece[i];

        for (size_t h = piece->first; h < piece->first + piece->n; h++) {
            const rsi_hit *hit = &r->pieces.hit[h];

            if (hit->rank != rank)
                continue;
            if (rank == r->me && is_plain(r, piece, hit)) {
                const rsd_view *view = r->want[hit->want].view;

                r->to[h] = (rsi_area){ .box = view->box, .data = view->data };
                memcpy(r->to[h].stride, view->stride, sizeof(view->stride));
                continue;
            }
            if (room)
                r->to[h] = packed_area(piece, whole ? &piece->box : &hit->box, room + at);
            at += box_bytes(piece, &hit->box);
        }
    }
    return at - begin;
}

static rsd_err add_message(round *r, const message *m, rsd_error *err)
{
    if (!rsi_grow(&r->message, r->nmessages, &r->message_cap, sizeof(r->message[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu messages", r->nmessages + 1);
    r->message[r->nmessages++] = *m;
    return RSD_OK;
}

/* Finds the messages of this round and the places of all that I read. `room` NULL: only counts
 * *bytes. */
static rsd_err place_round(round *r, unsigned char *room, size_t *bytes, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    *bytes = r->nmessages = 0;
    for (size_t i = 0; i < r->nparcels; i++) {
        const parcel *p = &r->parcel[i];
        size_t        shared = SIZE_MAX; /* where the parcel lies as read */

        for (int32_t k = 0; k < r->size && !rc; k++) {
            message m = { .peer = k, .send = true, .parcel = i, .at = *bytes };
            bool    whole;

            if (p->reader != r->me && k != r->me)
                continue;
            m.bytes = message_bytes(r, p, k, &whole);
            if (m.bytes && p->reader != r->me) {
                m.peer = p->reader;
                m.send = false;
                *bytes += m.bytes;
            } else if (k == r->me || !whole) {
                *bytes += place_hits(r, p, k, false, room, *bytes);
            } else if (m.bytes && shared == SIZE_MAX) {
                shared = *bytes;
                *bytes += place_hits(r, p, k, true, room, *bytes);
            } else {
                m.at = shared;
            }
            rc = m.bytes && m.peer != r->me ? add_message(r, &m, err) : RSD_OK;
        }
    }
    return rc;
}

/* Allocates everything for a round before the first message: from then on only the transport can
 * fail. */
static rsd_err make_room(round *r, rsd_error *err)
{
    size_t  bytes = 0;
    rsd_err rc = RSD_OK;

    r->to = rsi_arena_array(&r->mem, r->pieces.nhits, sizeof(r->to[0]));
    if (!r->to)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu boxes", r->pieces.nhits);
    for (size_t i = 0; i < r->pieces.nhits && r->share->reach; i++)
        r->to[i] = reached_area(&r->pieces.hit[i]);
    if (!r->share->reach)
        rc = place_round(r, NULL, &bytes, err);
    if (rc || r->share->reach)
        return rc;
    r->room = rsi_alloc_aligned(4096, bytes ? bytes : 1);
    r->request = rsi_arena_array(&r->mem, r->nmessages, sizeof(r->request[0]));
    r->peer = rsi_arena_array(&r->mem, r->nmessages, sizeof(r->peer[0]));
    if (!r->room || !r->request || !r->peer)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes that other ranks need too",
                        bytes);
    return place_round(r, r->room, &bytes, err);
}

/* ---- reading ---- */

static rsd_err take(void *arg, const rsd_box *box, const void *packed, rsd_error *err)
{
    const hand  *h = arg;
    const round *r = h->r;
    rsi_area     from = packed_area(h->piece, box, (unsigned char *)(uintptr_t)packed);

    if (r->gate && !enter(r->gate))
        return rsi_fail(err, RSD_E_CANCELED, "another rank has given up");
    for (size_t i = h->piece->first; i < h->piece->first + h->piece->n; i++) {
        rsd_box part;

        if (r->to[i].data && rsd_box_intersect(&r->to[i].box, &h->piece->box, &part) &&
            rsd_box_intersect(&part, box, &part))
            rsi_copy_box_past(&part, h->piece->elem_bytes, &r->to[i], &from);
    }
    if (r->gate)
        atomic_fetch_sub(&r->gate->writers, 1);
    return RSD_OK;
}

static rsd_err read_parcels(round *r, rsd_error *err)
{
    size_t    n = 0;
    rsi_want *want = rsi_arena_array(&r->mem, r->pieces.n, sizeof(want[0]));
    rsd_view *view = rsi_arena_array(&r->mem, r->pieces.n, sizeof(view[0]));
    hand     *hands = rsi_arena_array(&r->mem, r->pieces.n, sizeof(hands[0]));

    if (!want || !view || !hands)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu reads", r->pieces.n);
    for (size_t p = 0; p < r->nparcels; p++)
        for (size_t i = r->parcel[p].first; r->parcel[p].reader == r->me && i < r->parcel[p].end;
             i++, n++) {
            const rsi_piece *piece = &r->pieces.piece[i];
            rsd_tensor_info  info;

            r->share->ckpt->ops->tensor(r->share->ckpt, piece->t, &info);
            hands[n] = (hand){ .r = r, .piece = piece, .taker = { take, &hands[n] } };
            view[n].box = piece->box;
            want[n] = (rsi_want){
                .t = piece->t, .dtype = info.dtype, .view = &view[n], .taker = &hands[n].taker
            };
        }
    return rsi_fetch_all(r->share->ckpt, want, n, r->opts, err);
}

/* ---- passing on ---- */

/* Moves a packed box to its place in a view of this rank. */
static rsd_err give(const round *r, const rsi_piece *piece, const rsi_hit *hit,
                    const unsigned char *packed, rsd_error *err)
{
    const rsi_want *want = &r->want[hit->want];
    rsi_area        to = { .box = want->view->box, .data = want->view->data };
    rsi_recast      recast = { .to = want->view, .to_dtype = want->dtype };
    rsd_view        cast = *want->view;
    rsd_tensor_info info;
    rsd_err         rc;

    if (is_plain(r, piece, hit)) {
        memcpy(to.stride, want->view->stride, sizeof(to.stride));
        rsi_unpack(&hit->box, piece->elem_bytes, &to, packed);
        return RSD_OK;
    }
    r->share->ckpt->ops->tensor(r->share->ckpt, piece->t, &info);
    recast.from_dtype = info.dtype;
    if (want->dtype != info.dtype)
        rsi_recast_view(&recast, &cast);
    rc = rsi_view_put(&cast, &hit->box, piece->elem_bytes, packed, err);
    return rc ? rsi_while(err, rc, "tensor \"%s\"", info.name) : RSD_OK;
}

/* Gives my views their hits of a parcel: `from` is its message or, if I read it, NULL. */
static rsd_err give_parcel(const round *r, const parcel *p, const unsigned char *from,
                           rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = p->first; i < p->end; i++) {
        const rsi_piece *piece = &r->pieces.piece[i];

        for (size_t h = piece->first; h < piece->first + piece->n && !rc; h++) {
            const rsi_hit *hit = &r->pieces.hit[h];

            if (hit->rank != r->me || (!from && is_plain(r, piece, hit)))
                continue;
            rc = give(r, piece, hit, from ? from : r->to[h].data, err);
            from += from ? box_bytes(piece, &hit->box) : 0;
        }
    }
    return rc;
}

/* Receives first: a message that finds its buffer waiting is not copied twice. */
static rsd_err post(round *r, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int sends = 0; sends < 2; sends++)
        for (size_t i = 0; i < r->nmessages && !rc; i++) {
            const message *m = &r->message[i];

            r->peer[i] = m->peer;
            if (m->send && sends)
                rc =
                    rsi_send(r->comm, m->peer, TAG, r->room + m->at, m->bytes, &r->request[i], err);
            else if (!m->send && !sends)
                rc =
                    rsi_recv(r->comm, m->peer, TAG, r->room + m->at, m->bytes, &r->request[i], err);
        }
    return rc;
}

/* My own parts are moved into place while messages are in flight. *given: whether views took what
 * they got. */
static rsd_err exchange(round *r, rsd_err *given, rsd_error *err)
{
    rsd_err rc = post(r, err);

    for (size_t i = 0; i < r->nparcels && !rc && !*given; i++)
        if (r->parcel[i].reader == r->me)
            *given = give_parcel(r, &r->parcel[i], NULL, err);
    if (!rc)
        rc = rsi_wait_all(r->comm, r->nmessages, r->request, r->peer, "load", err);
    if (rc) {
        rc = rsi_break(r->comm, rc, err);
        if (!rsi_drop(r->comm, r->nmessages, r->request))
            r->room = NULL; /* the transport keeps using it until the comm is freed */
        return rc;
    }
    for (size_t i = 0; i < r->nmessages && !*given; i++)
        if (!r->message[i].send)
            *given =
                give_parcel(r, &r->parcel[r->message[i].parcel], r->room + r->message[i].at, err);
    return RSD_OK;
}

/* `rc` is this rank's result so far: what it could not place, the others learn before they send. */
static rsd_err run_round(round *r, rsd_err rc, bool *go, rsd_error *err)
{
    rsd_err given = RSD_OK;

    if (!rc)
        rc = plan_round(r, err);
    if (!rc)
        rc = make_room(r, err);
    if (!rc)
        rc = read_parcels(r, err);
    rc = rsi_share_go(r->comm, rc, go, err);
    if (*go && !r->share->reach) {
        rc = exchange(r, &given, err);
        *go = !rc;
    }
    rsi_arena_release(&r->mem);
    rsi_free(r->room);
    r->room = NULL;
    return rc ? rc : given;
}

rsd_err rsi_read_once(const rsi_share *share, const rsi_want *want, const rsd_read_opts *opts,
                      bool *go, rsd_error *err)
{
    rsd_read_opts half = *opts; /* the other half is for messages */
    round         r = { .share = share,
                        .want = want,
                        .opts = share->reach ? opts : &half,
                        .comm = share->comm,
                        .me = share->comm->rank,
                        .size = share->comm->size,
                        .at.end = share->ckpt->ntensors,
                        .more = true };
    rsd_err       rc = RSD_OK;

    half.max_memory = (opts->max_memory ? opts->max_memory : (size_t)64 << 20) / 2;
    r.full = share->bytes / (PARCELS * (uint64_t)r.size);
    r.full = r.full < PARCEL_LEAST ? PARCEL_LEAST : r.full > PARCEL_MOST ? PARCEL_MOST : r.full;
    r.load = rsi_calloc((size_t)r.size, sizeof(r.load[0]));
    r.shares = rsi_calloc((size_t)r.size, sizeof(r.shares[0]));
    if (!r.load || !r.shares)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %d ranks", (int)r.size);
    rc = rsi_share_go(r.comm, rc, go, err);
    if (*go && share->reach)
        rc = make_gate(&r, go, err);
    while (r.more && *go)
        rc = run_round(&r, rc, go, err);
    leave_gate(&r, !rc || *go);
    rsi_pieces_release(&r.pieces);
    rsi_free(r.parcel);
    rsi_free(r.message);
    rsi_free(r.load);
    rsi_free(r.shares);
    return rc;
}
