/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange from start to finish: checks, agreement, memory, then stage after stage. Copies come
 * first, then contributions are combined, then receivers of cut pieces pass on their parts. A vote
 * ends it, so that no rank's memory is released while another still reads it. Once begun, a failure
 * local to one rank (in a callback) is only noted: messages continue without meaning, and all ranks
 * learn of it in the vote. Next: exchange_copy.c. */
#include "live/exchange.h"
#include "base/mem.h"
#include "base/opts.h"
#include "base/pulse.h"
#include "comm/facts.h"
#include "comm/op.h"
#include "live/reduce.h"

#include <inttypes.h>

#define MEMORY     ((size_t)16 << 20)
#define TAG_FIRST  0x1000
#define TAG_ROUNDS 0x1ff /* exchanges that may be in flight at once, less one */
#define ALIGN      64

/* Buffers and tables share the memory that the caller allows. */
#define BUFFERS     (2 * SLOTS + 2)
#define LEAST_BYTES 256 /* of a buffer */

int64_t rsi_exchange_cut_min = 64 << 10;
size_t  rsi_exchange_memory_min = 64 << 10;

void rsi_exchange_note(rsi_exchange *x, rsd_err rc, const rsd_error *err, size_t tensor)
{
    char name[128];

    if (x->rc || !rc)
        return;
    x->rc = rc;
    x->err = *err;
    if (tensor < x->plan->n)
        rsi_while(&x->err, rc, "%s", rsi_exchange_name(x, tensor, name, sizeof(name)));
}

/* ---- checks ---- */

static rsd_err check_plan(const rsi_exchange *x, const rsd_views *src, const rsd_views *dst,
                          rsd_error *err)
{
    const rsd_plan *plan = x->plan;

    if (plan->rank != x->comm->rank)
        return rsi_fail(err, RSD_E_MISMATCH, "the plan is that of rank %" PRId32, plan->rank);
    if (plan->n > 0 && (!src || !dst))
        return rsi_fail(err, RSD_E_INVALID, "a plan of %zu tensors needs as many views", plan->n);
    if (x->comm->alone && plan->npeers > 0)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "rank %" PRId32 " is played alone, the plan needs rank %" PRId32,
                        plan->rank, plan->peer[0]);
    return RSD_OK;
}

static rsd_err check_class(const rsi_exchange *x, const rsi_class *c, rsd_error *err)
{
    int32_t src = rsd_layout_world(c->src.layout), dst = rsd_layout_world(c->dst.layout);

    if (src > x->comm->size || dst > x->comm->size)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "a layout names rank %" PRId32 ", there are %" PRId32 " ranks",
                        (src > dst ? src : dst) - 1, x->comm->size);
    return rsi_class_computes(c) ? rsi_reduce_check(c->dst.layout->dtype, c->reduce, err) : RSD_OK;
}

static rsd_err take_views(rsi_exchange *x, const rsd_views *src, const rsd_views *dst, size_t t,
                          rsd_error *err)
{
    const rsd_plan *plan = x->plan;
    char            name[128];
    rsd_err         rc = check_class(x, rsi_plan_class(plan, t), err);

    for (int to = 0; to < 2 && !rc; to++) {
        const rsd_views *given = to ? dst : src;

        rc = rsi_views_make(to ? &x->dst[t] : &x->src[t], to ? plan->dst[t] : plan->src[t],
                            plan->rank, given->n, given->view, to, &x->mem, err);
        if (rc)
            rsi_while(err, rc, to ? "target" : "source");
    }
    return rc ? rsi_while(err, rc, "%s", rsi_exchange_name(x, t, name, sizeof(name))) : RSD_OK;
}

static rsd_err check_all(rsi_exchange *x, const rsd_views *src, const rsd_views *dst,
                         rsd_error *err)
{
    rsd_err rc = check_plan(x, src, dst, err);

    if (rc)
        return rc;
    x->src = rsi_arena_array(&x->mem, x->plan->n, sizeof(x->src[0]));
    x->dst = rsi_arena_array(&x->mem, x->plan->n, sizeof(x->dst[0]));
    if (!x->src || !x->dst)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the views of %zu tensors", x->plan->n);
    for (size_t t = 0; t < x->plan->n && !rc; t++)
        rc = take_views(x, &src[t], &dst[t], t, err);
    return rc;
}

/* ---- memory ---- */

/* The requests of pairs, after those of the slots. */
static void place_pairs(rsi_exchange *x, const rsi_pairs *pairs, size_t *at)
{
    for (size_t i = 0; i < pairs->n; i++, *at += 2) {
        pairs->at[i].request = &x->request[*at];
        x->peer[*at] = x->peer[*at + 1] = pairs->at[i].peer;
    }
}

/* The slots that send have their buffers in my room, if there are rooms. */
static void place_slots(rsi_exchange *x, size_t room)
{
    unsigned char *buf = x->buffers;

    for (size_t i = 0; i < 2 * SLOTS; i++) {
        rsi_slot *slot = i < SLOTS ? &x->recv[i] : &x->send[i - SLOTS];

        *slot = (rsi_slot){ .buf = buf,
                            .number = (uint32_t)(i % SLOTS),
                            .request = &x->request[2 * i],
                            .peer = &x->peer[2 * i] };
        if (i >= SLOTS && x->rooms)
            slot->buf = x->comm->rooms->mine + (i - SLOTS) * (size_t)x->seg;
        else
            buf += room;
    }
    x->scratch = buf;
    x->acc = x->scratch + room;
}

/* Bytes that no message exceeds. Between machines a rank may send more than the plan says, but to
 * each peer no more than all it has. */
static int64_t message_max(const rsi_exchange *x)
{
    const rsd_plan_stats *s = &x->plan->stats;
    int64_t               bytes = s->bytes_local + s->bytes_sent + s->bytes_recv;

    for (size_t t = 0; t < x->plan->n && x->host_of && bytes < x->seg; t++)
        bytes += rsd_layout_bytes(x->plan->src[t], x->plan->rank);
    return bytes;
}

static rsd_err take_buffers(rsi_exchange *x, rsd_error *err)
{
    const rsi_pairs *const all[] = { &x->in[0], &x->in[1], &x->out[0], &x->out[1] };
    const rsd_plan_stats  *s = &x->plan->stats;
    int64_t                bytes = message_max(x), room = x->seg;
    size_t                 n = 4 * SLOTS;

    x->past = s->bytes_local + s->bytes_recv >= RSI_COPY_PAST;
    /* Stores to a room that the reader still has in another cache would wait for that. */
    for (size_t t = 0; t < x->plan->n; t++) {
        x->src[t].pack_past = x->dst[t].pack_past =
            x->past && x->rooms && !x->comm->rooms->one_cache;
        x->dst[t].unpack_past = x->past;
    }
    /* No buffer needs more than the total that moves; accumulators are wider than elements. */
    if (bytes < room / RSI_WIDEST)
        room = bytes * RSI_WIDEST;
    room = (room + ALIGN - 1) / ALIGN * ALIGN;
    x->nrequests = n + 2 * (all[0]->n + all[1]->n + all[2]->n + all[3]->n);
    x->request = rsi_arena_array(&x->mem, x->nrequests, sizeof(x->request[0]));
    x->peer = rsi_arena_array(&x->mem, x->nrequests, sizeof(x->peer[0]));
    x->buffers = rsi_alloc_aligned(
        ALIGN, (size_t)room * (size_t)(x->rooms ? BUFFERS - SLOTS : BUFFERS) + ALIGN);
    if (!x->request || !x->peer || !x->buffers)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %" PRId64 " bytes of buffers",
                        room * BUFFERS);
    place_slots(x, (size_t)room);
    for (int k = 0; k < 4; k++)
        place_pairs(x, all[k], &n);
    x->stats.extra_bytes = room * BUFFERS + (int64_t)x->mem.used;
    return RSD_OK;
}

static rsd_err prepare(rsi_exchange *x, rsd_error *err)
{
    rsi_route_opts opts = { .size = x->comm->size,
                            .cut_min = rsi_exchange_cut_min,
                            .host_of = x->host_of,
                            .hosts = x->hosts };
    rsd_err        rc;

    /* Half for buffers, half for tables. */
    x->seg = (int64_t)(x->memory / 2 / BUFFERS / ALIGN * ALIGN);
    x->seg = x->seg > LEAST_BYTES ? x->seg : LEAST_BYTES;
    if (x->rooms && x->seg > (int64_t)(RSI_ROOM_BYTES / SLOTS))
        x->seg = (int64_t)(RSI_ROOM_BYTES / SLOTS);
    if (!x->readable)
        opts.cut_min = -1; /* parts could not be passed on */
    opts.cut_reduced = x->reach;
    rc = rsi_route_make(&x->route, x->plan, &opts, err);
    if (!rc)
        rc = rsi_tables_make(x, err);
    return rc ? rc : take_buffers(x, err);
}

/* ---- progress ---- */

/* Checks for completed requests; `wait`: until one completes. */
static rsd_err poll(rsi_exchange *x, bool wait, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (wait)
        return rsi_wait_some(x->comm, x->nrequests, x->request, x->peer, "reshard", err);
    for (size_t i = 0; i < x->nrequests && !rc; i++)
        if (x->request[i])
            rc = rsi_test(x->comm, &x->request[i], err);
    return rc;
}

/* My target is complete except for what others pass on: they may read it. */
static rsd_err say_go(rsi_exchange *x, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < x->out[1].n && !rc; i++) {
        rsi_pair *pair = &x->out[1].at[i];

        if (pair->head.direct)
            rc = rsi_send(x->comm, pair->peer, x->tag + TAG_GO, NULL, 0, &pair->request[1], err);
    }
    return rc;
}

/* Advances the current stage once. */
static rsd_err run_stage(rsi_exchange *x, bool *moved, rsd_error *err)
{
    bool    done = false;
    rsd_err rc = RSD_OK;

    if (!x->entered) {
        x->to_send = x->to_recv = (rsi_cursor){ 0 };
        x->entered = true;
        rc = x->stage == STAGE_PASS ? say_go(x, err) : RSD_OK;
    }
    if (rc)
        return rc;
    if (x->stage == STAGE_MATH)
        rc = rsi_exchange_math(x, moved, &done, err);
    else
        rc = rsi_exchange_copy(x, x->stage == STAGE_PASS, moved, &done, err);
    if (done && !rc) {
        x->stage++;
        x->entered = false;
        *moved = true;
    }
    return rc;
}

/* True if all tables and words that I sent have left. */
static bool all_left(const rsi_exchange *x)
{
    for (size_t i = 0; i < x->nrequests; i++)
        if (x->request[i])
            return false;
    return true;
}

/* All ranks have ended, or the comm is broken: nobody needs my room any more. */
static void finish(rsi_exchange *x)
{
    x->stage = STAGE_DONE;
    if (x->rooms)
        x->comm->rooms_busy = false;
    x->rooms = false;
}

static rsd_err run_vote(rsi_exchange *x, bool wait, rsd_error *err)
{
    bool    done = false;
    rsd_err rc = RSD_OK;

    if (!x->entered) {
        do
            rc = poll(x, wait && !all_left(x), err);
        while (wait && !all_left(x) && !rc);
        if (rc || !all_left(x))
            return rsi_break(x->comm, rc, err);
        x->entered = true;
        rc = rsi_vote_begin(&x->vote, x->comm, x->tag + TAG_VOTE, x->rc != RSD_OK, err);
    }
    if (!rc)
        rc = rsi_vote_step(&x->vote, wait, &done, err);
    if (rc || !done)
        return rsi_break(x->comm, rc, err);
    finish(x);
    if (x->vote.sum > 0) {
        *err = x->err;
        rc = rsi_agree(x->comm, x->rc, err);
    }
    if (x->stats_out)
        rsi_result_give(x->stats_out, &x->stats, sizeof(x->stats));
    return rc;
}

/* Advances as far as possible; `done` NULL: to the end. Once *done, the result is that of the
 * exchange, the same on all ranks. */
static rsd_err test_exchange(void *self, rsd_phase phase, bool *done, rsd_error *err)
{
    rsi_exchange *x = self;
    rsd_error     local = { .rank = -1 };
    rsi_pulse     before = rsi_comm_enter(x->comm);
    rsd_err       rc = x->stage < STAGE_VOTE ? poll(x, false, &local) : RSD_OK;

    (void)phase;
    while (x->stage < STAGE_VOTE && !rc) {
        bool moved = false;

        rc = run_stage(x, &moved, &local);
        if (moved)
            rsi_beat();
        if (!rc && (!done || moved))
            rc = poll(x, !done && !moved, &local);
        else if (!rc)
            break;
    }
    rc = rsi_break(x->comm, rc, &local);
    if (!rc && x->stage == STAGE_VOTE)
        rc = run_vote(x, !done, &local);
    if (rc) {
        finish(x);
        x->result = rc;
        x->err = local;
    }
    if (done)
        *done = x->stage == STAGE_DONE;
    rc = x->stage == STAGE_DONE ? x->result : RSD_OK;
    if (rc && err)
        *err = x->err;
    return rsi_comm_leave(before, rc);
}

static rsd_err wait_exchange(void *self, rsd_phase phase, rsd_error *err)
{
    return test_exchange(self, phase, NULL, err);
}

/* The data no longer matter, but the ranks still finish together. */
static void cancel_exchange(void *self)
{
    rsi_exchange *x = self;
    rsd_error     err;

    if (x->stage == STAGE_DONE || (x->stage == STAGE_VOTE && x->entered))
        return;
    rsi_fail(&err, RSD_E_CANCELED, "the caller canceled it");
    rsi_exchange_note(x, RSD_E_CANCELED, &err, SIZE_MAX);
}

/* Freeing an exchange that has begun but not finished breaks the comm. */
static void free_exchange(void *self)
{
    rsi_exchange *x = self;
    rsd_error     err;
    bool          mine;

    if (x->stage != STAGE_DONE) {
        rsi_fail(&err, RSD_E_COMM, "an exchange was freed before it had finished");
        rsi_break(x->comm, RSD_E_COMM, &err);
    }
    mine = !x->request || rsi_drop(x->comm, x->nrequests, x->request);
    mine = rsi_vote_drop(&x->vote) && mine;
    if (!mine)
        return; /* still used by the transport: never freed */
    rsi_route_release(&x->route);
    rsi_arena_release(&x->mem);
    rsi_free(x->host_of);
    rsi_free(x->buffers);
    rsi_free(x);
}

/* ---- beginning ---- */

/* Creates an operation without starting it. Memory comes first: a rank that ran out of it later
 * would leave the others waiting. */
static rsd_err create(rsi_exchange **x, rsd_op **out, rsd_error *err)
{
    static const rsi_op_ops ops = { test_exchange, wait_exchange, cancel_exchange, free_exchange };
    rsd_err                 rc;

    *x = rsi_calloc(1, sizeof(**x));
    if (!*x)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for an exchange");
    (*x)->stage = STAGE_DONE;
    rc = rsi_op_create(&ops, *x, out, err);
    if (rc)
        rsi_free(*x);
    return rc;
}

/* Compares the ranks' plans, checks the views and allocates all memory. */
static rsd_err begin(rsi_exchange *x, const rsd_views *src, const rsd_views *dst, rsd_error *err)
{
    rsd_err rc;

    x->memory = x->memory ? x->memory : MEMORY;
    x->memory = x->memory > rsi_exchange_memory_min ? x->memory : rsi_exchange_memory_min;
    x->tag = TAG_FIRST + (int32_t)(x->comm->calls & TAG_ROUNDS) * RSI_EXCHANGE_TAGS;
    rc = rsi_exchange_compare(x, check_all(x, src, dst, err), err);
    if (!rc)
        rc = rsi_reach_probe(x, err);
    if (!rc)
        rc = rsi_agree(x->comm, prepare(x, err), err);
    if (!rc)
        rc = rsi_tables_start(x, err);
    if (rc)
        finish(x);
    else
        x->stage = STAGE_COPY;
    return rc;
}

rsd_err rsd_reshard_begin(const rsd_plan *plan, rsd_comm *comm, const rsd_views *src,
                          const rsd_views *dst, const rsd_reshard_opts *opts, rsd_op **out,
                          rsd_error *err)
{
    rsd_reshard_opts known = { .size = sizeof(known) };
    rsi_exchange    *x = NULL;
    rsd_op          *op = NULL;
    rsd_error        local;
    rsd_err          rc;

    err = err ? err : &local;
    rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_reshard_opts", err);
    if (!rc && known.stats)
        rc = rsi_result_check(known.stats, "rsd_reshard_stats", err);
    if (!rc && (!plan || !comm))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: plan or comm");
    if (!rc && !out)
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: output pointer for the operation");
    if (!rc)
        rc = create(&x, &op, err);
    rc = rsi_same_call(comm, "rsd_reshard", rc, err);
    if (!rc) {
        x->comm = comm;
        x->plan = plan;
        x->name = known.name;
        x->memory = known.max_memory;
        x->no_direct = known.direct == RSD_NEVER;
        x->stats_out = known.stats;
        rc = begin(x, src, dst, err);
    }
    if (rc)
        rsd_op_free(op);
    else
        *out = op;
    return rc;
}

rsd_err rsd_reshard(const rsd_plan *plan, rsd_comm *comm, const rsd_views *src,
                    const rsd_views *dst, const rsd_reshard_opts *opts, rsd_error *err)
{
    rsd_op *op = NULL;
    rsd_err rc = rsd_reshard_begin(plan, comm, src, dst, opts, &op, err);

    if (!rc)
        rc = rsd_op_wait(op, RSD_DURABLE, err);
    rsd_op_free(op);
    return rc;
}
