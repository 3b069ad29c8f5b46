/* SPDX-License-Identifier: Apache-2.0 */
/* Works in rounds, each as large as staging memory allows: every rank reads its own parcels, all
 * agree that they have them, then each reader sends messages to the ranks that want parts of them.
 * A parcel is a few pieces with one reader. All ranks compute the same parcels and sizes, so
 * messages need no headers; receives are posted before sends. */
#include "load/read_and_send.h"
#include "base/mem.h"
#include "view/recast.h"
#include "view/views.h"
#include "plan/copy.h"
#include "shape/box.h"

#include <string.h>

/* Bytes at which a parcel is full: few enough that each rank reads several, if there is enough
 * data. */
#define PARCEL_MOST  ((uint64_t)4 << 20)
#define PARCEL_LEAST ((uint64_t)64 << 10)
#define PARCELS      4 /* per rank */
#define TAG          0x3ff0

typedef struct parcel {
    int32_t reader;
    size_t  first, end; /* pieces */
    size_t  bytes;
    size_t  in; /* receiver: bytes of the message; 0: nothing for me */
} parcel;

typedef struct round {
    const rsi_pass *pass;
    int32_t         me, size;
    rsi_share_at    at;
    bool            more;
    rsi_pieces      pieces;
    parcel         *parcel;
    size_t          nparcels, parcel_cap;
    uint64_t        full;  /* bytes at which a parcel is full */
    size_t          turn;  /* parcels so far: decides the next reader */
    size_t         *load;  /* [size] bytes that each rank needs in this round */
    unsigned char  *read;  /* my parcels, one after the other */
    unsigned char  *moved; /* incoming messages, then outgoing packed ones */
    void          **request;
    int32_t        *peer;
    size_t          nrequests, request_cap;
} round;

static size_t box_bytes(const rsi_piece *piece, const rsd_box *box)
{
    return (size_t)(rsd_box_count(box) * piece->elem_bytes);
}

/* ---- messages ---- */

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

/* The reader of a parcel that begins with this piece: the ranks that want it take turns. */
static int32_t choose_reader(const round *r, const rsi_piece *piece)
{
    const rsi_hit *hit = &r->pieces.hit[piece->first];
    size_t         takers = 1, turn;

    for (size_t i = 1; i < piece->n; i++)
        takers += hit[i].rank != hit[i - 1].rank;
    turn = r->turn % takers;
    for (size_t i = 1; i < piece->n && turn > 0; i++) {
        turn -= hit[i].rank != hit[i - 1].rank;
        if (turn == 0)
            return hit[i].rank;
    }
    return hit[0].rank;
}

static bool wants(const round *r, const rsi_piece *piece, int32_t rank)
{
    for (size_t h = piece->first; h < piece->first + piece->n; h++)
        if (r->pieces.hit[h].rank == rank)
            return true;
    return false;
}

/* Charges a parcel to its reader and receivers; true if a rank has now reached its limit. */
static bool charge(round *r, const parcel *p, size_t most)
{
    bool full = false, whole;

    r->load[p->reader] += p->bytes;
    for (int32_t k = 0; k < r->size; k++) {
        size_t bytes = k == p->reader ? 0 : message_bytes(r, p, k, &whole);

        r->load[k] += bytes;
        if (bytes && !whole)
            r->load[p->reader] += bytes; /* packed before it is sent */
        full = full || r->load[k] >= most;
    }
    return full || r->load[p->reader] >= most;
}

/* Adds pieces with one reader until the parcel is full. A piece that its reader does not want
 * starts the next parcel. */
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
        rsd_err      rc = rsi_share_next(r->pass->share, &r->at, &r->pieces, &r->more, err);

        if (rc || !r->more)
            return rc;
        piece = &r->pieces.piece[p->end];
        if (p->reader < 0) {
            p->reader = choose_reader(r, piece);
        } else if (!wants(r, piece, p->reader)) {
            r->at = before;
            r->pieces.n--;
            r->pieces.nhits = nhits;
            break;
        }
        piece->at = p->bytes;
        p->bytes += box_bytes(piece, &piece->box);
        p->end++;
    }
    return RSD_OK;
}

static rsd_err plan_round(round *r, rsd_error *err)
{
    size_t most = r->pass->opts->max_memory ? r->pass->opts->max_memory : (size_t)64 << 20;
    bool   full = false;

    r->pieces.n = r->pieces.nhits = r->nparcels = 0;
    memset(r->load, 0, (size_t)r->size * sizeof(r->load[0]));
    while (r->more && !full) {
        rsd_err rc = next_parcel(r, err);

        if (rc)
            return rc;
        if (r->parcel[r->nparcels].bytes == 0)
            break;
        full = charge(r, &r->parcel[r->nparcels], most / 2);
        r->nparcels++;
        r->turn++;
    }
    return RSD_OK;
}

/* ---- reading ---- */

static rsd_err read_parcels(round *r, rsd_error *err)
{
    size_t         n = 0, k = 0, bytes = 0;
    rsi_want      *want;
    rsd_view      *view;
    unsigned char *at;
    rsd_err        rc;

    for (size_t p = 0; p < r->nparcels; p++)
        if (r->parcel[p].reader == r->me) {
            n += r->parcel[p].end - r->parcel[p].first;
            bytes += r->parcel[p].bytes;
        }
    want = rsi_calloc(n, sizeof(want[0]));
    view = rsi_calloc(n, sizeof(view[0]));
    at = r->read = rsi_alloc_aligned(4096, bytes ? bytes : 1);
    if (!want || !view || !r->read) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes that other ranks need too", bytes);
        goto out;
    }
    for (size_t i = 0, p = 0; p < r->nparcels; p++) {
        for (i = r->parcel[p].first; r->parcel[p].reader == r->me && i < r->parcel[p].end; i++) {
            const rsi_piece *piece = &r->pieces.piece[i];
            rsd_tensor_info  info;

            r->pass->share->ckpt->ops->tensor(r->pass->share->ckpt, piece->t, &info);
            view[k] = (rsd_view){ .box = piece->box, .data = at + piece->at };
            rsi_strides(info.ndim, piece->box.len, piece->elem_bytes, view[k].stride);
            want[k] = (rsi_want){ .t = piece->t, .dtype = info.dtype, .view = &view[k] };
            k++;
        }
        at += r->parcel[p].reader == r->me ? r->parcel[p].bytes : 0;
    }
    rc = rsi_fetch_all(r->pass->share->ckpt, want, n, r->pass->opts, err);
out:
    rsi_free(want);
    rsi_free(view);
    return rc;
}

/* ---- passing on ---- */

/* Moves a packed box to its place in a view of this rank. */
static rsd_err give(const round *r, const rsi_hit *hit, const rsd_tensor_info *info,
                    const unsigned char *packed, rsd_error *err)
{
    const rsi_want *want = &r->pass->want[hit->want];
    int64_t         elem = (int64_t)rsd_dtype_size(info->dtype);
    rsi_area        to = { .box = want->view->box, .data = want->view->data };
    rsi_recast      recast = { .to = want->view, .from_dtype = info->dtype };
    rsd_view        cast = *want->view;
    rsd_err         rc;

    if (want->dtype == info->dtype && to.data) {
        memcpy(to.stride, want->view->stride, sizeof(to.stride));
        rsi_unpack(&hit->box, elem, &to, packed);
        return RSD_OK;
    }
    if (want->dtype != info->dtype) {
        recast.to_dtype = want->dtype;
        rsi_recast_view(&recast, &cast);
    }
    rc = rsi_view_put(&cast, &hit->box, elem, packed, err);
    return rc ? rsi_while(err, rc, "tensor \"%s\"", info->name) : RSD_OK;
}

/* Takes my part of a parcel, from my own read buffer or from a message. */
static rsd_err take_parcel(const round *r, const parcel *p, const unsigned char *from, bool message,
                           unsigned char *spare, rsd_error *err)
{
    for (size_t i = p->first; i < p->end; i++) {
        const rsi_piece *piece = &r->pieces.piece[i];
        rsi_area         area = { .box = piece->box };
        rsd_tensor_info  info;

        r->pass->share->ckpt->ops->tensor(r->pass->share->ckpt, piece->t, &info);
        rsi_strides(info.ndim, piece->box.len, piece->elem_bytes, area.stride);
        area.data = (unsigned char *)(uintptr_t)from + piece->at;
        for (size_t h = piece->first; h < piece->first + piece->n; h++) {
            const rsi_hit       *hit = &r->pieces.hit[h];
            const unsigned char *packed = area.data;
            rsd_err              rc;

            if (hit->rank != r->me)
                continue;
            if (message) {
                packed = from;
                from += box_bytes(piece, &hit->box);
            } else if (!rsi_box_equal(&hit->box, &piece->box)) {
                rsi_pack(&hit->box, piece->elem_bytes, spare, &area);
                packed = spare;
            }
            rc = give(r, hit, &info, packed, err);
            if (rc)
                return rc;
        }
    }
    return RSD_OK;
}

static void pack_for(const round *r, const parcel *p, int32_t rank, const unsigned char *from,
                     unsigned char *to)
{
    for (size_t i = p->first; i < p->end; i++) {
        const rsi_piece *piece = &r->pieces.piece[i];
        rsi_area         area = { .box = piece->box };

        rsi_strides(piece->box.ndim, piece->box.len, piece->elem_bytes, area.stride);
        area.data = (unsigned char *)(uintptr_t)from + piece->at;
        for (size_t h = piece->first; h < piece->first + piece->n; h++)
            if (r->pieces.hit[h].rank == rank) {
                rsi_pack(&r->pieces.hit[h].box, piece->elem_bytes, to, &area);
                to += box_bytes(piece, &r->pieces.hit[h].box);
            }
    }
}

static rsd_err add_request(round *r, int32_t peer, rsd_error *err)
{
    size_t cap = r->request_cap;

    if (!rsi_grow(&r->request, r->nrequests, &r->request_cap, sizeof(r->request[0])) ||
        !rsi_grow(&r->peer, r->nrequests, &cap, sizeof(r->peer[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu messages", r->nrequests + 1);
    r->request[r->nrequests] = NULL;
    r->peer[r->nrequests++] = peer;
    return RSD_OK;
}

/* Allocates everything for incoming and packed messages and for the requests before the first
 * message: from then on only the transport can fail. */
static rsd_err make_room(round *r, rsd_error *err)
{
    size_t  bytes = 1, most = 0;
    rsd_err rc = RSD_OK;

    r->nrequests = 0;
    for (size_t i = 0; i < r->nparcels && !rc; i++) {
        parcel *p = &r->parcel[i];
        bool    whole = true;

        most = p->bytes > most ? p->bytes : most;
        if (p->reader != r->me) {
            p->in = message_bytes(r, p, r->me, &whole);
            bytes += p->in;
            rc = p->in ? add_request(r, p->reader, err) : RSD_OK;
        }
        for (int32_t k = 0; k < r->size && !rc && p->reader == r->me; k++) {
            size_t out = k == r->me ? 0 : message_bytes(r, p, k, &whole);

            bytes += whole ? 0 : out;
            rc = out ? add_request(r, k, err) : RSD_OK;
        }
    }
    if (rc)
        return rc;
    r->moved = rsi_alloc_aligned(4096, bytes + most); /* the last part is spare, for my own */
    return r->moved ? RSD_OK
                    : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes of other ranks", bytes);
}

/* Receives first: a message that finds its buffer waiting is not copied twice. */
static rsd_err post(round *r, unsigned char **spare, rsd_error *err)
{
    unsigned char *in = r->moved, *from = r->read;
    size_t         n = 0;
    rsd_err        rc = RSD_OK;

    for (size_t i = 0; i < r->nparcels && !rc; i++) {
        const parcel *p = &r->parcel[i];

        if (p->reader == r->me || p->in == 0)
            continue;
        r->peer[n] = p->reader;
        rc = rsi_recv(r->pass->comm, p->reader, TAG, in, p->in, &r->request[n++], err);
        in += p->in;
    }
    for (size_t i = 0; i < r->nparcels && !rc; i++) {
        const parcel *p = &r->parcel[i];

        for (int32_t k = 0; k < r->size && !rc && p->reader == r->me; k++) {
            bool   whole = true;
            size_t out = k == r->me ? 0 : message_bytes(r, p, k, &whole);

            if (out == 0)
                continue;
            if (!whole)
                pack_for(r, p, k, from, in);
            r->peer[n] = k;
            rc = rsi_send(r->pass->comm, k, TAG, whole ? from : in, out, &r->request[n++], err);
            in += whole ? 0 : out;
        }
        from += p->reader == r->me ? p->bytes : 0;
    }
    *spare = in;
    return rc;
}

/* My own parts are moved into place while messages are in flight. */
static rsd_err exchange(round *r, rsd_err *given, rsd_error *err)
{
    const unsigned char *in = r->moved, *from = r->read;
    unsigned char       *spare = r->moved;
    rsd_err              rc = post(r, &spare, err);

    for (size_t i = 0; i < r->nparcels && !rc; i++)
        if (r->parcel[i].reader == r->me) {
            if (!*given)
                *given = take_parcel(r, &r->parcel[i], from, false, spare, err);
            from += r->parcel[i].bytes;
        }
    if (!rc && r->nrequests)
        rc = rsi_wait_all(r->pass->comm, r->nrequests, r->request, r->peer, "load", err);
    if (rc) {
        rc = rsi_break(r->pass->comm, rc, err);
        if (!rsi_drop(r->pass->comm, r->nrequests, r->request))
            r->moved = r->read = NULL; /* the transport keeps using them until the comm is freed */
        return rc;
    }
    for (size_t i = 0; i < r->nparcels; i++) {
        if (r->parcel[i].reader == r->me || r->parcel[i].in == 0)
            continue;
        if (!*given)
            *given = take_parcel(r, &r->parcel[i], in, true, spare, err);
        in += r->parcel[i].in;
    }
    return RSD_OK;
}

static rsd_err run_round(round *r, rsd_error *err)
{
    rsd_err given = RSD_OK, rc = plan_round(r, err);

    if (!rc && r->nparcels)
        rc = read_parcels(r, err);
    if (!rc && r->nparcels)
        rc = make_room(r, err);
    rc = rsi_agree(r->pass->comm, rc, err);
    if (!rc && r->nparcels) {
        rc = exchange(r, &given, err);
        if (!rc)
            rc = rsi_agree(r->pass->comm, given, err);
    }
    rsi_free(r->read);
    rsi_free(r->moved);
    r->read = r->moved = NULL;
    return rc;
}

rsd_err rsi_pass_run(const rsi_pass *pass, rsd_error *err)
{
    round   r = { .pass = pass,
                  .me = pass->comm->rank,
                  .size = pass->comm->size,
                  .at.end = pass->share->ckpt->ntensors,
                  .more = true };
    rsd_err rc = RSD_OK;

    r.full = pass->share->bytes / (PARCELS * (uint64_t)r.size);
    r.full = r.full < PARCEL_LEAST ? PARCEL_LEAST : r.full > PARCEL_MOST ? PARCEL_MOST : r.full;
    r.load = rsi_calloc((size_t)r.size, sizeof(r.load[0]));
    if (!r.load)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %d ranks", (int)r.size);
    rc = rsi_agree(pass->comm, rc, err);
    while (r.more && !rc)
        rc = run_round(&r, err);
    rsi_pieces_release(&r.pieces);
    rsi_free(r.parcel);
    rsi_free(r.load);
    rsi_free(r.request);
    rsi_free(r.peer);
    return rc;
}
