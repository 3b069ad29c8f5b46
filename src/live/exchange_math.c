/* SPDX-License-Identifier: Apache-2.0 */
/* Contributions that are combined, and values that are shared out: block by block, each of them in
 * the order of the contributions. The arithmetic is in reduce.c. */
#include "live/exchange_core.h"
#include "live/reduce.h"
#include "shape/box.h"

static int64_t block_most(const rsi_exchange *x)
{
    return x->seg / RSI_WIDEST;
}

static const rsi_class *class_of(const rsi_exchange *x, const rsi_hop *hop)
{
    return x->plan->class[x->plan->class_of[hop->tensor]];
}

/* How many contributions the piece has that starts at hop `first`. */
static size_t parts_of(const rsi_exchange *x, size_t first)
{
    const rsi_hops *take = &x->route.take;
    size_t          n = 1;

    while (first + n < take->n && take->at[first + n].tensor == take->at[first].tensor &&
           take->at[first + n].piece == take->at[first].piece)
        n++;
    return n;
}

/* ---- giving ---- */

static rsd_err start_give(rsi_exchange *x, rsi_slot *slot, rsd_error *err)
{
    const rsi_hops *give = &x->route.give;

    for (; x->to_send.hop < give->n; x->to_send.hop++, x->to_send.block = 0) {
        const rsi_hop   *hop = &give->at[x->to_send.hop];
        const rsi_views *src = &x->src[hop->tensor];
        rsi_region       region;
        size_t           my_box;
        rsd_box          box;
        rsd_error        mine;
        rsd_err          rc = RSD_OK;

        if (rsi_pair_of(&x->out[0], hop->peer)->direct ||
            rsi_hop_blocks(x, hop, true, block_most(x), &region, &my_box) <= x->to_send.block)
            continue;
        rsi_hop_block(&region, x->to_send.block++, &box);
        slot->bytes = (size_t)(rsd_box_count(&box) * src->elem_bytes);
        if (!x->rc)
            rc = rsi_views_pack(src, &box, my_box, slot->buf, &mine);
        if (rc)
            rsi_exchange_note(x, rc, &mine, hop->tensor);
        slot->peer = hop->peer;
        slot->used = true;
        x->stats.bytes_sent += (int64_t)slot->bytes;
        x->stats.messages++;
        return rsi_send(x->comm, hop->peer, x->tag + TAG_DATA, slot->buf, slot->bytes,
                        &slot->request, err);
    }
    return RSD_OK;
}

static rsd_err run_give(rsi_exchange *x, bool *moved, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int i = 0; i < SLOTS && !rc; i++) {
        rsi_slot *slot = &x->send[i];

        if (slot->used && slot->request)
            continue;
        *moved = *moved || slot->used;
        slot->used = false;
        rc = start_give(x, slot, err);
        *moved = *moved || slot->used; /* it may have finished at once */
    }
    return rc;
}

/* ---- taking ---- */

/* Messages are asked for in the order in which they will be combined: block by block, and of each
 * block one contribution after the other. to_recv.hop stands at the contribution. */
static bool next_take(rsi_exchange *x, const rsi_hop **out, rsd_box *box)
{
    const rsi_hops *take = &x->route.take;

    while (x->to_recv.hop < take->n) {
        const rsi_hop *hop = &take->at[x->to_recv.hop];
        size_t         first = x->to_recv.hop, my_box;
        rsi_region     region;
        int64_t        n = rsi_hop_blocks(x, hop, false, block_most(x), &region, &my_box);
        int64_t        block = x->to_recv.block;
        bool           last =
            first + 1 == take->n || hop[1].tensor != hop->tensor || hop[1].piece != hop->piece;

        while (first > 0 && take->at[first - 1].tensor == hop->tensor &&
               take->at[first - 1].piece == hop->piece)
            first--;
        x->to_recv.hop++;
        if (last && block + 1 < n) {
            x->to_recv.hop = first;
            x->to_recv.block++;
        } else if (last) {
            x->to_recv.block = 0;
        }
        if (block >= n || hop->peer == x->comm->rank || rsi_pair_of(&x->in[0], hop->peer)->direct)
            continue;
        rsi_hop_block(&region, block, box);
        *out = hop;
        return true;
    }
    return false;
}

static rsd_err run_take(rsi_exchange *x, bool *moved, rsd_error *err)
{
    for (size_t i = 0; i < SLOTS; i++) {
        rsi_slot      *slot = &x->recv[(x->oldest + i) % SLOTS];
        const rsi_hop *hop;
        rsd_box        box;
        rsd_err        rc;

        if (slot->used)
            continue;
        if (!next_take(x, &hop, &box))
            return RSD_OK;
        slot->bytes = (size_t)(rsd_box_count(&box) * x->dst[hop->tensor].elem_bytes);
        slot->peer = hop->peer;
        slot->used = *moved = true;
        x->stats.bytes_recv += (int64_t)slot->bytes;
        rc = rsi_recv(x->comm, hop->peer, x->tag + TAG_DATA, slot->buf, slot->bytes, &slot->request,
                      err);
        if (rc)
            return rc;
    }
    return RSD_OK;
}

/* Brings the contribution of a block together; *in stays NULL while it has not come. */
static rsd_err fetch_part(rsi_exchange *x, const rsi_hop *hop, const rsd_box *box,
                          const unsigned char **in, rsd_error *err)
{
    const rsi_views *src = &x->src[hop->tensor];
    rsi_area         to = { .box = *box, .data = x->scratch };
    rsi_slot        *slot = &x->recv[x->oldest];
    rsi_pair        *pair;
    rsd_err          rc = RSD_OK;

    if (hop->peer == x->comm->rank) {
        rc = rsi_views_pack(src, box, rsi_pieces_my_box(&class_of(x, hop)->send, box), x->scratch,
                            err);
        x->stats.bytes_local += rsd_box_count(box) * src->elem_bytes;
        *in = x->scratch;
        return rc;
    }
    pair = rsi_pair_of(&x->in[0], hop->peer);
    if (pair->direct) {
        if (!rsi_table_ready(x, pair))
            return RSD_OK;
        rsi_strides(box->ndim, box->len, src->elem_bytes, to.stride);
        *in = x->scratch;
        return rsi_reach_copy(x, pair, hop, box, &to, src->elem_bytes, err);
    }
    if (!slot->used || slot->request)
        return RSD_OK;
    slot->used = false;
    x->oldest = (x->oldest + 1) % SLOTS;
    *in = slot->buf;
    return RSD_OK;
}

/* The block is complete: to where it belongs. */
static rsd_err store_block(rsi_exchange *x, const rsi_hop *hop, const rsd_box *box, size_t my_box,
                           size_t parts, rsd_error *err)
{
    const rsi_class *c = class_of(x, hop);
    rsd_dtype        dtype = c->dst.layout->dtype;
    int64_t          divisor = c->reduce == RSD_AVG ? (int64_t)parts : c->share;

    rsi_reduce_last(dtype, divisor, x->scratch, x->acc, (size_t)rsd_box_count(box));
    return rsi_views_unpack(&x->dst[hop->tensor], box, my_box, x->scratch, err);
}

/* Adds one contribution to the block at hand. False: it has not come yet. */
static bool combine_one(rsi_exchange *x, const rsd_box *box, size_t my_box, size_t parts)
{
    const rsi_hop       *hop = &x->route.take.at[x->job.hop + x->part];
    const rsi_class     *c = class_of(x, hop);
    rsd_dtype            dtype = c->dst.layout->dtype;
    const unsigned char *in = NULL;
    size_t               n = (size_t)rsd_box_count(box);
    rsd_error            err;
    rsd_err              rc = fetch_part(x, hop, box, &in, &err);

    if (!in && !rc)
        return false;
    if (!rc && !x->rc && x->part == 0)
        rsi_reduce_first(dtype, x->acc, in, n);
    else if (!rc && !x->rc)
        rsi_reduce_more(dtype, c->reduce, x->acc, in, n);
    if (++x->part == parts && !rc && !x->rc)
        rc = store_block(x, hop, box, my_box, parts, &err);
    if (rc)
        rsi_exchange_note(x, rc, &err, hop->tensor);
    return true;
}

/* As far as contributions have come. */
static rsd_err run_jobs(rsi_exchange *x, bool *moved, rsd_error *err)
{
    const rsi_hops *take = &x->route.take;

    while (x->job.hop < take->n) {
        size_t     parts = parts_of(x, x->job.hop), my_box;
        rsi_region region;
        int64_t    n =
            rsi_hop_blocks(x, &take->at[x->job.hop], false, block_most(x), &region, &my_box);

        for (; x->job.block < n; x->job.block++, x->part = 0) {
            rsd_box box;

            rsi_hop_block(&region, x->job.block, &box);
            while (x->part < parts) {
                rsd_err rc;

                if (!combine_one(x, &box, my_box, parts))
                    return RSD_OK;
                *moved = true;
                rc = run_take(x, moved, err);
                if (rc)
                    return rc;
            }
        }
        x->job = (rsi_cursor){ .hop = x->job.hop + parts };
    }
    return RSD_OK;
}

rsd_err rsi_exchange_math(rsi_exchange *x, bool *moved, bool *done, rsd_error *err)
{
    rsd_err rc = run_take(x, moved, err);

    if (!rc)
        rc = run_give(x, moved, err);
    if (!rc)
        rc = run_jobs(x, moved, err);
    *done = x->job.hop >= x->route.take.n && rsi_slots_idle(x->send) &&
            x->to_send.hop >= x->route.give.n;
    return rc;
}
