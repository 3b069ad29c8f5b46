/* SPDX-License-Identifier: Apache-2.0 */
/* Combines contributions and divides values that are shared out, block by block, each block in the
 * order of its contributions. The arithmetic is in reduce.c. */
#include "live/exchange.h"
#include "live/reduce.h"

/* One contribution to one block. */
typedef struct turn {
    const rsi_hop *hop;
    rsd_box        box;
    size_t         my_box, parts; /* parts: all contributions to the block */
} turn;

/* The contribution at a cursor; false: none is left. Goes block by block, and within a block
 * contribution by contribution. */
static bool turn_at(const rsi_exchange *x, rsi_cursor *at, turn *out)
{
    const rsi_hops *take = &x->route.take;

    for (; at->hop < take->n; *at = (rsi_cursor){ .hop = at->hop + out->parts }) {
        const rsi_hop *hop = &take->at[at->hop];
        rsi_region     region;
        int64_t n = rsi_hop_blocks(x, hop, false, x->seg / RSI_WIDEST, &region, &out->my_box);

        out->parts = 1;
        while (at->hop + out->parts < take->n && rsi_hop_same(hop, hop + out->parts))
            out->parts++;
        if (at->part == out->parts) {
            at->part = 0;
            at->block++;
        }
        if (at->block >= n)
            continue;
        rsi_region_part(&region, at->block, &out->box);
        out->hop = hop + at->part;
        return true;
    }
    return false;
}

/* The pair through whose table a contribution is read, or NULL. */
static rsi_pair *direct_pair(const rsi_exchange *x, const rsi_hop *hop)
{
    rsi_pair *pair = hop->peer == x->comm->rank ? NULL : rsi_pair_of(&x->in[0], hop->peer);

    return pair && pair->head.direct ? pair : NULL;
}

/* Posts receives in the order in which the messages will be combined. */
static rsd_err run_take(rsi_exchange *x, bool *moved, rsd_error *err)
{
    rsd_err rc = RSD_OK;
    turn    t;

    for (size_t i = 0; i < SLOTS && !rc; i++) {
        rsi_slot *slot = &x->recv[(x->oldest + i) % SLOTS];

        if (slot->used)
            continue;
        if (slot->request[1])
            break;
        while (turn_at(x, &x->to_recv, &t) &&
               (t.hop->peer == x->comm->rank || direct_pair(x, t.hop)))
            x->to_recv.part++;
        if (x->to_recv.hop >= x->route.take.n)
            break;
        x->to_recv.part++;
        slot->bytes = (size_t)(rsd_box_count(&t.box) * x->dst[t.hop->tensor].elem_bytes);
        *slot->peer = t.hop->peer;
        *moved = true;
        rc = rsi_slot_recv(x, slot, NULL, err);
    }
    return rc;
}

/* Collects a block's contribution; *in stays NULL until it has arrived. */
static rsd_err fetch_part(rsi_exchange *x, const turn *t, const unsigned char **in, rsd_error *err)
{
    const rsi_slot *slot = &x->recv[x->oldest];
    rsi_pair       *pair = direct_pair(x, t->hop);

    if (pair || t->hop->peer == x->comm->rank) {
        if (pair && !rsi_table_ready(x, pair))
            return RSD_OK;
        *in = x->scratch;
        return rsi_hop_read(x, pair, t->hop, &t->box, err);
    }
    if (slot->used && !*slot->request)
        *in = rsi_slot_data(x, slot);
    return RSD_OK;
}

/* Frees the slot that a contribution came in, if it did. */
static rsd_err leave_part(rsi_exchange *x, const turn *t, rsd_error *err)
{
    rsi_slot *slot = &x->recv[x->oldest];

    if (t->hop->peer == x->comm->rank || direct_pair(x, t->hop))
        return RSD_OK;
    x->oldest = (x->oldest + 1) % SLOTS;
    return rsi_slot_done(x, slot, err);
}

/* Adds one contribution to the current block; the last one completes it. False: it has not arrived
 * yet. */
static bool combine_one(rsi_exchange *x, const turn *t)
{
    const rsi_class     *c = rsi_plan_class(x->plan, t->hop->tensor);
    rsd_dtype            dtype = c->dst.layout->dtype;
    const unsigned char *in = NULL;
    size_t               n = (size_t)rsd_box_count(&t->box);
    rsd_error            err;
    rsd_err              rc = fetch_part(x, t, &in, &err);

    if (!in && !rc)
        return false;
    if (!rc && !x->rc && x->job.part == 0)
        rsi_reduce_first(dtype, x->acc, in, n);
    else if (!rc && !x->rc)
        rsi_reduce_more(dtype, c->reduce, x->acc, in, n);
    if (++x->job.part == t->parts && !rc && !x->rc) {
        rsi_reduce_last(dtype, c->reduce == RSD_AVG ? (int64_t)t->parts : c->share, x->scratch,
                        x->acc, n);
        rc = rsi_views_unpack(&x->dst[t->hop->tensor], &t->box, t->my_box, x->scratch, &err);
    }
    rsi_exchange_note(x, rc, &err, t->hop->tensor);
    return true;
}

rsd_err rsi_exchange_math(rsi_exchange *x, bool *moved, bool *done, rsd_error *err)
{
    turn    t;
    rsd_err rc = run_take(x, moved, err);

    if (!rc)
        rc = rsi_exchange_give(x, moved, err);
    while (!rc && turn_at(x, &x->job, &t) && combine_one(x, &t)) { /* as far as they have arrived */
        *moved = true;
        rc = leave_part(x, &t, err);
        if (!rc)
            rc = run_take(x, moved, err);
    }
    *done = x->job.hop >= x->route.take.n && rsi_slots_idle(x->send) &&
            x->to_send.hop >= x->route.give.n;
    return rc;
}
