/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between ranks and within this one: messages of whole blocks, a few under way at a time,
 * and direct copies from peers whose tables have come. Next: exchange_math.c. */
#include "base/checked.h"
#include "live/exchange_core.h"
#include "shape/box.h"

#include <string.h>

int64_t rsi_hop_blocks(const rsi_exchange *x, const rsi_hop *hop, bool given, int64_t most,
                       rsi_region *out, size_t *my_box)
{
    int64_t elem_bytes = x->plan->src[hop->tensor]->elem_bytes, packed[RSD_MAX_NDIM];
    rsd_box box;

    *my_box = rsi_hop_box(&x->route, hop, given, &box);
    if (rsd_box_count(&box) == 0)
        return 0;
    rsi_strides(box.ndim, box.len, elem_bytes, packed);
    rsi_region_make(out, &box, &box, elem_bytes, 0, packed, most);
    return out->nblocks;
}

void rsi_hop_block(const rsi_region *region, int64_t i, rsd_box *out)
{
    rsi_block block;

    rsi_region_block(region, i, &block);
    rsi_region_box(region, &block.box, out);
}

bool rsi_slots_idle(const rsi_slot *slot)
{
    for (int i = 0; i < SLOTS; i++)
        if (slot[i].used)
            return false;
    return true;
}

/* ---- messages ---- */

/* One direction of a phase. */
typedef struct stream {
    rsi_exchange    *x;
    const rsi_hops  *hops;
    const rsi_pairs *pairs;
    rsi_views       *views; /* [plan->n] what is packed or filled */
    bool             sends, given;
} stream;

static stream stream_of(rsi_exchange *x, int phase, bool sends)
{
    return (stream){ .x = x,
                     .hops = sends ? &x->route.send[phase] : &x->route.recv[phase],
                     .pairs = sends ? &x->out[phase] : &x->in[phase],
                     .views = sends && phase == 0 ? x->src : x->dst,
                     .sends = sends,
                     .given = sends && phase == 0 };
}

static bool skipped(const stream *s, const rsi_hop *hop)
{
    return rsi_pair_of(s->pairs, hop->peer)->direct;
}

typedef rsd_err (*visitor)(const stream *s, const rsi_hop *hop, const rsd_box *box, size_t my_box,
                           unsigned char *at, rsd_error *err);

/* Goes through the blocks of the message that starts at *at and leaves *at behind it. Returns its
 * bytes; 0: there are no more. `visit` NULL: only counts. What goes wrong is noted. */
static size_t each_block(const stream *s, rsi_cursor *at, unsigned char *data, visitor visit)
{
    rsi_exchange *x = s->x;
    size_t        bytes = 0;
    int32_t       peer = -1;

    for (; at->hop < s->hops->n; at->hop++, at->block = 0) {
        const rsi_hop *hop = &s->hops->at[at->hop];
        int64_t        n, elem_bytes = x->plan->src[hop->tensor]->elem_bytes;
        rsi_region     region;
        size_t         my_box;

        if (skipped(s, hop))
            continue;
        n = rsi_hop_blocks(x, hop, s->given, x->seg, &region, &my_box);
        for (; at->block < n; at->block++) {
            rsd_box   box;
            size_t    more;
            rsd_error err;
            rsd_err   rc = RSD_OK;

            rsi_hop_block(&region, at->block, &box);
            more = (size_t)(rsd_box_count(&box) * elem_bytes);
            if (bytes > 0 && (hop->peer != peer || bytes + more > (size_t)x->seg))
                return bytes;
            peer = hop->peer;
            if (visit && !x->rc)
                rc = visit(s, hop, &box, my_box, data + bytes, &err);
            if (rc)
                rsi_exchange_note(x, rc, &err, hop->tensor);
            bytes += more;
        }
    }
    return bytes;
}

static rsd_err pack(const stream *s, const rsi_hop *hop, const rsd_box *box, size_t my_box,
                    unsigned char *at, rsd_error *err)
{
    return rsi_views_pack(&s->views[hop->tensor], box, my_box, at, err);
}

static rsd_err unpack(const stream *s, const rsi_hop *hop, const rsd_box *box, size_t my_box,
                      unsigned char *at, rsd_error *err)
{
    return rsi_views_unpack(&s->views[hop->tensor], box, my_box, at, err);
}

/* A message that is one block and lies together in the caller's memory needs no buffer. */
static unsigned char *in_place(const stream *s, const rsi_slot *slot)
{
    const rsi_hop *hop = &s->hops->at[slot->from.hop];
    rsi_region     region;
    rsd_box        box;
    size_t         my_box;

    if (rsi_hop_blocks(s->x, hop, s->given, s->x->seg, &region, &my_box) <= slot->from.block)
        return NULL;
    rsi_hop_block(&region, slot->from.block, &box);
    if ((size_t)(rsd_box_count(&box) * s->views[hop->tensor].elem_bytes) != slot->bytes)
        return NULL;
    return rsi_views_direct(&s->views[hop->tensor], &box, my_box);
}

/* The first hop that sends messages, from the cursor on. */
static void skip(const stream *s, rsi_cursor *at)
{
    rsi_region region;
    size_t     my_box;

    while (
        at->hop < s->hops->n && at->block == 0 &&
        (skipped(s, &s->hops->at[at->hop]) ||
         rsi_hop_blocks(s->x, &s->hops->at[at->hop], s->given, s->x->seg, &region, &my_box) == 0))
        at->hop++;
}

/* Starts the next message of the stream in a free slot; none if there are no more. */
static rsd_err start(const stream *s, rsi_slot *slot, rsi_cursor *next, rsd_error *err)
{
    rsi_exchange *x = s->x;
    rsi_cursor    again;
    rsd_err       rc;

    skip(s, next);
    slot->from = again = *next;
    slot->bytes = each_block(s, next, NULL, NULL);
    if (slot->bytes == 0)
        return RSD_OK;
    slot->to = *next;
    slot->peer = s->hops->at[slot->from.hop].peer;
    slot->data = in_place(s, slot);
    if (!slot->data) {
        slot->data = slot->buf;
        if (s->sends)
            each_block(s, &again, slot->buf, pack);
    }
    if (s->sends)
        rc = rsi_send(x->comm, slot->peer, x->tag + TAG_DATA, slot->data, slot->bytes,
                      &slot->request, err);
    else
        rc = rsi_recv(x->comm, slot->peer, x->tag + TAG_DATA, slot->data, slot->bytes,
                      &slot->request, err);
    if (rc)
        return rc;
    slot->used = true;
    x->stats.bytes_sent += s->sends ? (int64_t)slot->bytes : 0;
    x->stats.bytes_recv += s->sends ? 0 : (int64_t)slot->bytes;
    x->stats.messages += s->sends;
    return RSD_OK;
}

/* Ends the messages that have finished and starts others. */
static rsd_err run_stream(const stream *s, rsi_slot *slot, rsi_cursor *next, bool *moved,
                          rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int i = 0; i < SLOTS && !rc; i++) {
        if (slot[i].used && slot[i].request)
            continue;
        if (slot[i].used && !s->sends && slot[i].data == slot[i].buf)
            each_block(s, &slot[i].from, slot[i].buf, unpack);
        *moved = *moved || slot[i].used;
        slot[i].used = false;
        rc = start(s, &slot[i], next, err);
        *moved = *moved || slot[i].used; /* it may have finished at once */
    }
    return rc;
}

/* ---- direct copies ---- */

/* To a place that is not one piece of memory: block by block through the scratch buffer. */
static rsd_err through_scratch(rsi_exchange *x, const rsi_pair *pair, const rsi_hop *hop,
                               rsd_error *err)
{
    const rsi_views *views = &x->dst[hop->tensor];
    rsi_region       region;
    size_t           my_box;
    int64_t          n = rsi_hop_blocks(x, hop, false, x->seg, &region, &my_box);
    rsd_err          rc = RSD_OK;

    for (int64_t i = 0; i < n && !rc; i++) {
        rsi_area to = { .data = x->scratch };

        rsi_hop_block(&region, i, &to.box);
        rsi_strides(to.box.ndim, to.box.len, views->elem_bytes, to.stride);
        rc = rsi_reach_copy(x, pair, hop, &to.box, &to, views->elem_bytes, err);
        if (!rc)
            rc = rsi_views_unpack(views, &to.box, my_box, x->scratch, err);
    }
    return rc;
}

static rsd_err read_hop(rsi_exchange *x, const rsi_pair *pair, const rsi_hop *hop, rsd_error *err)
{
    const rsi_views *views = &x->dst[hop->tensor];
    rsd_box          box;
    size_t           my_box = rsi_hop_box(&x->route, hop, false, &box);
    const rsd_view  *view;
    rsi_area         to;

    if (rsd_box_count(&box) == 0)
        return RSD_OK;
    view = rsi_views_find(views, &box, my_box);
    if (!view || !view->data)
        return through_scratch(x, pair, hop, err);
    to = rsi_view_area(view);
    return rsi_reach_copy(x, pair, hop, &box, &to, views->elem_bytes, err);
}

/* The first copy that comes from a peer: they are sorted by distance. */
static size_t first_from(const rsi_exchange *x, const rsi_hops *hops, int32_t peer)
{
    int64_t  size = x->comm->size;
    uint32_t key = (uint32_t)(((int64_t)x->comm->rank - peer + size) % size);
    size_t   lo = 0, hi = hops->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (hops->at[mid].far < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void read_pair(rsi_exchange *x, int phase, rsi_pair *pair)
{
    const rsi_hops *hops = &x->route.recv[phase];

    for (size_t i = first_from(x, hops, pair->peer);
         i < hops->n && hops->at[i].peer == pair->peer && !x->rc; i++) {
        rsd_error err;
        rsd_err   rc = read_hop(x, pair, &hops->at[i], &err);

        if (rc)
            rsi_exchange_note(x, rc, &err, hops->at[i].tensor);
    }
    pair->read = true;
}

/* Reads from one peer whose table has come; *left tells if others have not. */
static void read_some(rsi_exchange *x, int phase, bool *moved, bool *left)
{
    for (size_t i = 0; i < x->in[phase].n; i++) {
        rsi_pair *pair = &x->in[phase].at[i];

        if (!pair->direct || pair->read)
            continue;
        if (*moved || pair->go_request || !rsi_table_ready(x, pair)) {
            *left = true;
            continue;
        }
        read_pair(x, phase, pair);
        *moved = true;
    }
}

/* ---- within this rank ---- */

static rsd_err copy_own(rsi_exchange *x, const rsi_hop *hop, rsd_error *err)
{
    const rsi_class *c = x->plan->class[x->plan->class_of[hop->tensor]];
    const rsi_views *src = &x->src[hop->tensor], *dst = &x->dst[hop->tensor];
    rsd_box          box;
    size_t           to_box = rsi_hop_box(&x->route, hop, false, &box);
    size_t           from_box = rsi_pieces_my_box(&c->send, &box), my_box;
    const rsd_view  *from = rsi_views_find(src, &box, from_box);
    const rsd_view  *to = rsi_views_find(dst, &box, to_box);
    rsi_region       region;
    int64_t          n;
    rsd_err          rc = RSD_OK;

    x->stats.bytes_local += rsd_box_count(&box) * src->elem_bytes;
    if (from && to && from->data && to->data) {
        rsi_area from_area = rsi_view_area(from), to_area = rsi_view_area(to);

        rsi_copy_box(&box, src->elem_bytes, &to_area, &from_area);
        return RSD_OK;
    }
    n = rsi_hop_blocks(x, hop, false, x->seg, &region, &my_box);
    for (int64_t i = 0; i < n && !rc; i++) {
        rsi_hop_block(&region, i, &box);
        rc = rsi_views_pack(src, &box, from_box, x->scratch, err);
        if (!rc)
            rc = rsi_views_unpack(dst, &box, to_box, x->scratch, err);
    }
    return rc;
}

static void copy_local(rsi_exchange *x, int phase, bool *moved)
{
    const rsi_hops *local = &x->route.local;

    if (phase > 0 || x->local_done)
        return;
    for (size_t i = 0; i < local->n && !x->rc; i++) {
        rsd_error err;
        rsd_err   rc = copy_own(x, &local->at[i], &err);

        if (rc)
            rsi_exchange_note(x, rc, &err, local->at[i].tensor);
    }
    x->local_done = *moved = true;
}

rsd_err rsi_exchange_copy(rsi_exchange *x, int phase, bool *moved, bool *done, rsd_error *err)
{
    stream  in = stream_of(x, phase, false), out = stream_of(x, phase, true);
    bool    left = false;
    rsd_err rc;

    rc = run_stream(&in, x->recv, &x->to_recv, moved, err); /* receives first: a message that */
    if (!rc)                                                /* finds its place is copied once */
        rc = run_stream(&out, x->send, &x->to_send, moved, err);
    if (rc)
        return rc;
    copy_local(x, phase, moved);
    read_some(x, phase, moved, &left);
    *done = !left && rsi_slots_idle(x->send) && rsi_slots_idle(x->recv);
    return RSD_OK;
}
