/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between ranks and within this one: messages of whole blocks, a few in flight at a time,
 * and direct copies from peers whose tables have arrived. Next: exchange_math.c. */
#include "live/exchange.h"
#include "live/reduce.h"
#include "shape/box.h"

#include <inttypes.h>

size_t rsi_exchange_room_least = 8192;

int64_t rsi_hop_blocks(const rsi_exchange *x, const rsi_hop *hop, bool given, int64_t most,
                       rsi_region *out, size_t *my_box)
{
    rsd_box box;

    *my_box = rsi_hop_box(&x->route, hop, given, &box);
    return rsi_region_packed(out, &box, x->src[hop->tensor].elem_bytes, most);
}

bool rsi_slots_idle(const rsi_slot *slot)
{
    for (int i = 0; i < SLOTS; i++)
        if (slot[i].used || slot[i].request[1])
            return false;
    return true;
}

/* ---- messages ---- */

/* True if the slot's message goes through the sender's room; both ends know. */
static bool in_room(const rsi_exchange *x, const rsi_slot *slot)
{
    return x->rooms && slot->bytes >= rsi_exchange_room_least && x->comm->rooms->of[*slot->peer];
}

rsd_err rsi_slot_recv(rsi_exchange *x, rsi_slot *slot, unsigned char *into, rsd_error *err)
{
    int32_t tag = x->tag + TAG_DATA;

    slot->used = true;
    x->stats.bytes_recv += (int64_t)slot->bytes;
    if (in_room(x, slot)) {
        slot->data = NULL;
        return rsi_recv(x->comm, *slot->peer, tag, &slot->number, sizeof(slot->number),
                        slot->request, err);
    }
    slot->data = into ? into : slot->buf;
    return rsi_recv(x->comm, *slot->peer, tag, slot->data, slot->bytes, slot->request, err);
}

const unsigned char *rsi_slot_data(const rsi_exchange *x, const rsi_slot *slot)
{
    return slot->data ? slot->data
                      : x->comm->rooms->of[*slot->peer] + slot->number % SLOTS * (size_t)x->seg;
}

rsd_err rsi_slot_done(rsi_exchange *x, rsi_slot *slot, rsd_error *err)
{
    slot->used = false;
    if (!in_room(x, slot))
        return RSD_OK;
    slot->peer[1] = slot->peer[0];
    return rsi_send(x->comm, *slot->peer, x->tag + TAG_TAKEN + (int32_t)(slot->number % SLOTS),
                    NULL, 0, &slot->request[1], err);
}

/* Sends what lies at slot->data. */
static rsd_err send_slot(rsi_exchange *x, rsi_slot *slot, rsd_error *err)
{
    int32_t tag = x->tag + TAG_DATA;
    rsd_err rc;

    slot->used = true;
    x->stats.bytes_sent += (int64_t)slot->bytes;
    x->stats.messages++;
    if (!in_room(x, slot))
        return rsi_send(x->comm, *slot->peer, tag, slot->data, slot->bytes, slot->request, err);
    slot->peer[1] = slot->peer[0];
    rc = rsi_recv(x->comm, *slot->peer, x->tag + TAG_TAKEN + (int32_t)slot->number, NULL, 0,
                  &slot->request[1], err);
    return rc ? rc
              : rsi_send(x->comm, *slot->peer, tag, &slot->number, sizeof(slot->number),
                         slot->request, err);
}

/* One direction of a phase. */
typedef struct stream {
    rsi_exchange    *x;
    const rsi_hops  *hops;
    const rsi_pairs *pairs;
    rsi_views       *views; /* [plan->n] to be packed or filled */
    rsi_slot        *slot;  /* [SLOTS] */
    rsi_cursor      *next;
    int64_t          most; /* bytes of a message */
    bool             sends, given;
    bool             single; /* a message is one block */
} stream;

/* Visits the blocks of the message that starts at *at and moves *at past it. With `moves` they are
 * packed into the slot's buffer or unpacked from it, and failures are noted. Otherwise sets the
 * slot's start, its bytes (0: no more messages) and, if the message is one block that is contiguous
 * in the caller's memory and needs no buffer, its address. */
static void each_block(const stream *s, rsi_cursor *at, rsi_slot *slot, bool moves)
{
    rsi_exchange        *x = s->x;
    const unsigned char *data = moves && !s->sends ? rsi_slot_data(x, slot) : NULL;
    size_t               bytes = 0;

    for (; at->hop < s->hops->n; at->hop++, at->block = 0) {
        const rsi_hop   *hop = &s->hops->at[at->hop];
        const rsi_views *views = &s->views[hop->tensor];
        rsi_region       region;
        size_t           my_box = 0;
        int64_t          n = 0;

        if (!rsi_pair_of(s->pairs, hop->peer)->head.direct)
            n = rsi_hop_blocks(x, hop, s->given, s->most, &region, &my_box);
        for (; at->block < n; at->block++) {
            rsd_box   box;
            size_t    more;
            rsd_error err;
            rsd_err   rc = RSD_OK;

            rsi_region_part(&region, at->block, &box);
            more = (size_t)(rsd_box_count(&box) * views->elem_bytes);
            if (bytes > 0 &&
                (s->single || hop->peer != *slot->peer || bytes + more > (size_t)s->most))
                return;
            if (moves && !x->rc)
                rc = s->sends ? rsi_views_pack(views, &box, my_box, slot->buf + bytes, &err)
                              : rsi_views_unpack(views, &box, my_box, data + bytes, &err);
            rsi_exchange_note(x, rc, &err, hop->tensor);
            if (!moves) {
                slot->from = bytes > 0 ? slot->from : *at;
                slot->data = bytes > 0 ? NULL : rsi_views_direct(views, &box, my_box);
                slot->bytes = bytes + more;
                *slot->peer = hop->peer;
            }
            bytes += more;
        }
    }
}

/* Starts the stream's next message, if any, in a free slot. */
static rsd_err start(const stream *s, rsi_slot *slot, rsd_error *err)
{
    slot->bytes = 0;
    each_block(s, s->next, slot, false);
    if (slot->bytes == 0)
        return RSD_OK;
    if (!s->sends)
        return rsi_slot_recv(s->x, slot, slot->data, err);
    if (!slot->data || in_room(s->x, slot)) {
        each_block(s, &(rsi_cursor){ slot->from.hop, slot->from.block, 0 }, slot, true);
        slot->data = slot->buf;
    }
    return send_slot(s->x, slot, err);
}

/* Completes finished messages and starts new ones. */
static rsd_err run_stream(const stream *s, bool *moved, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (rsi_slot *slot = s->slot; slot < s->slot + SLOTS && !rc; slot++) {
        if (slot->request[0] || slot->request[1])
            continue;
        if (slot->used && !s->sends && (!slot->data || slot->data == slot->buf))
            each_block(s, &slot->from, slot, true);
        *moved = *moved || slot->used;
        if (slot->used && !s->sends)
            rc = rsi_slot_done(s->x, slot, err);
        slot->used = false;
        if (slot->request[1])
            continue;
        rc = rc ? rc : start(s, slot, err);
        *moved = *moved || slot->used; /* it may already have finished */
    }
    return rc;
}

static stream stream_of(rsi_exchange *x, rsi_hops *hops, rsi_pairs *pairs, bool sends, bool given)
{
    return (stream){ .x = x,
                     .hops = hops,
                     .pairs = pairs,
                     .views = given ? x->src : x->dst,
                     .slot = sends ? x->send : x->recv,
                     .next = sends ? &x->to_send : &x->to_recv,
                     .most = x->seg,
                     .sends = sends,
                     .given = given };
}

rsd_err rsi_exchange_give(rsi_exchange *x, bool *moved, rsd_error *err)
{
    stream give = stream_of(x, &x->route.give, &x->out[0], true, true);

    give.most = x->seg / RSI_WIDEST;
    give.single = true;
    return run_stream(&give, moved, err);
}

/* ---- direct copies ---- */

static void count(rsi_exchange *x, const rsi_pair *pair, const rsi_hop *hop, const rsd_box *box)
{
    *(pair ? &x->stats.bytes_reached : &x->stats.bytes_local) +=
        rsd_box_count(box) * x->src[hop->tensor].elem_bytes;
}

rsd_err rsi_hop_read(rsi_exchange *x, const rsi_pair *pair, const rsi_hop *hop, const rsd_box *box,
                     rsd_error *err)
{
    const rsi_views *src = &x->src[hop->tensor];
    const rsi_class *c = rsi_plan_class(x->plan, hop->tensor);
    rsi_area         to = { .box = *box, .data = x->scratch }, from;

    count(x, pair, hop, box);
    if (!pair)
        return rsi_views_pack(src, box, rsi_overlaps_my_box(&c->send, box), x->scratch, err);
    rsi_strides(box->ndim, box->len, src->elem_bytes, to.stride);
    rsi_reach_area(x, pair, hop, &from);
    rsi_copy_box(box, src->elem_bytes, &to, &from);
    return RSD_OK;
}

/* Prepares to copy a hop from memory to memory; false if a side has none, or it is empty. `pair`
 * NULL: within this rank. */
static bool plan_copy(rsi_exchange *x, const rsi_pair *pair, const rsi_hop *hop, rsi_copying *out)
{
    const rsi_views *src = &x->src[hop->tensor];
    const rsi_class *c = rsi_plan_class(x->plan, hop->tensor);
    rsd_box          box;
    size_t           my_box = rsi_hop_box(&x->route, hop, false, &box);
    const rsd_view  *to = rsi_views_find(&x->dst[hop->tensor], &box, my_box), *mine = NULL;
    rsi_area         to_area, from;

    if (!to || !to->data || rsd_box_count(&box) == 0)
        return false;
    if (pair) {
        rsi_reach_area(x, pair, hop, &from);
    } else {
        mine = rsi_views_find(src, &box, rsi_overlaps_my_box(&c->send, &box));
        if (!mine || !mine->data)
            return false;
        from = rsi_view_area(mine);
    }
    to_area = rsi_view_area(to);
    count(x, pair, hop, &box);
    rsi_copy_plan(out, &box, src->elem_bytes, &to_area, &from, x->past);
    return true;
}

/* Copies a hop block by block. */
static rsd_err copy_blocks(rsi_exchange *x, const rsi_pair *pair, const rsi_hop *hop,
                           rsd_error *err)
{
    const rsi_views *dst = &x->dst[hop->tensor];
    rsi_region       region;
    rsd_box          box;
    size_t           my_box;
    int64_t          n = rsi_hop_blocks(x, hop, false, x->seg, &region, &my_box);
    rsd_err          rc = RSD_OK;

    for (int64_t i = 0; i < n && !rc; i++) {
        rsi_region_part(&region, i, &box);
        rc = rsi_hop_read(x, pair, hop, &box, err);
        if (!rc)
            rc = rsi_views_unpack(dst, &box, my_box, x->scratch, err);
    }
    return rc;
}

/* Copies the hops of one peer, starting with the first. The next one is prepared before one is
 * copied. */
static void copy_hops(rsi_exchange *x, const rsi_pair *pair, const rsi_hops *hops, size_t i)
{
    rsi_copying  copying[2];
    rsi_copying *before = NULL;

    for (; i < hops->n && (!pair || hops->at[i].peer == pair->peer) && !x->rc; i++) {
        rsi_copying *next = &copying[i % 2];
        rsd_error    err;

        if (!plan_copy(x, pair, &hops->at[i], next))
            next = NULL;
        if (before)
            rsi_copy_planned(before, next);
        before = next;
        if (!next)
            rsi_exchange_note(x, copy_blocks(x, pair, &hops->at[i], &err), &err,
                              hops->at[i].tensor);
    }
    if (before)
        rsi_copy_planned(before, NULL);
}

/* Reads from one peer whose table has arrived; *left is set if others are still missing. */
static void read_some(rsi_exchange *x, int phase, bool *moved, bool *left)
{
    for (size_t i = 0; i < x->in[phase].n; i++) {
        rsi_pair *pair = &x->in[phase].at[i];

        if (!pair->head.direct || pair->read)
            continue;
        if (*moved || pair->request[1] || !rsi_table_ready(x, pair)) {
            *left = true;
            continue;
        }
        copy_hops(x, pair, &x->route.recv[phase], pair->first);
        pair->read = *moved = true;
    }
}

rsd_err rsi_exchange_copy(rsi_exchange *x, int phase, bool *moved, bool *done, rsd_error *err)
{
    stream  in = stream_of(x, &x->route.recv[phase], &x->in[phase], false, false);
    stream  out = stream_of(x, &x->route.send[phase], &x->out[phase], true, phase == 0);
    bool    left = false;
    rsd_err rc;

    rc = run_stream(&in, moved, err); /* receives first: a message that */
    if (!rc)                          /* finds its place is copied once */
        rc = run_stream(&out, moved, err);
    if (rc)
        return rc;
    if (phase == 0 && !x->local_done) {
        copy_hops(x, NULL, &x->route.local, 0);
        x->local_done = *moved = true;
    }
    read_some(x, phase, moved, &left);
    *done = !left && rsi_slots_idle(x->send) && rsi_slots_idle(x->recv);
    return RSD_OK;
}
