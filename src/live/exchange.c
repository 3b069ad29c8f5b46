/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange from beginning to end: checks, agreement, memory, then stage after stage. Copies go
 * first, then contributions are combined, then receivers of cut pieces pass their parts on; a vote
 * ends it, so that nobody's memory is given back while another still reads it. Once begun, a
 * failure of one rank's own (a callback's) is only noted: messages go on without meaning and all
 * learn of it in the vote. Next: exchange_copy.c. */
#include "live/exchange.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "live/exchange_core.h"
#include "live/reduce.h"

#include <inttypes.h>
#include <string.h>

#define MEMORY     ((size_t)16 << 20)
#define TAG_FIRST  0x1000
#define TAG_ROUNDS 0x3ff /* exchanges that may be under way at once, less one */
#define ALIGN      64

int64_t rsi_exchange_cut_min = 64 << 10;
size_t  rsi_exchange_memory_min = 64 << 10;

void rsi_exchange_note(rsi_exchange *x, rsd_err rc, const rsd_error *err, size_t tensor)
{
    char name[128];

    if (x->rc)
        return;
    x->rc = rc;
    x->err = *err;
    if (tensor < x->plan->n)
        rsi_while(&x->err, rc, "%s", rsi_exchange_name(x, tensor, name, sizeof(name)));
}

/* ---- checks ---- */

static rsd_err check_plan(const rsi_exchange_args *args, rsd_error *err)
{
    const rsd_plan *plan = args->plan;

    if (plan->rank != args->comm->rank)
        return rsi_fail(err, RSD_E_MISMATCH, "the plan is that of rank %" PRId32, plan->rank);
    if (plan->n > 0 && (!args->src || !args->dst))
        return rsi_fail(err, RSD_E_INVALID, "a plan of %zu tensors needs as many views", plan->n);
    if (args->comm->alone && plan->npeers > 0)
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

static rsd_err take_views(rsi_exchange *x, const rsi_exchange_args *args, size_t t, rsd_error *err)
{
    const rsd_plan *plan = x->plan;
    rsd_err         rc = check_class(x, plan->class[plan->class_of[t]], err);

    if (rc)
        return rc;
    rc = rsi_views_make(&x->src[t], plan->src[t], plan->rank, args->src[t].n, args->src[t].view,
                        false, &x->mem, err);
    if (rc)
        return rsi_while(err, rc, "source");
    rc = rsi_views_make(&x->dst[t], plan->dst[t], plan->rank, args->dst[t].n, args->dst[t].view,
                        true, &x->mem, err);
    return rc ? rsi_while(err, rc, "target") : RSD_OK;
}

static rsd_err check_all(rsi_exchange *x, const rsi_exchange_args *args, rsd_error *err)
{
    rsd_err rc = check_plan(args, err);
    char    name[128];

    if (rc)
        return rc;
    x->src = rsi_arena_array(&x->mem, x->plan->n, sizeof(x->src[0]));
    x->dst = rsi_arena_array(&x->mem, x->plan->n, sizeof(x->dst[0]));
    if (!x->src || !x->dst)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the views of %zu tensors", x->plan->n);
    for (size_t t = 0; t < x->plan->n && !rc; t++) {
        rc = take_views(x, args, t, err);
        if (rc)
            rc = rsi_while(err, rc, "%s", rsi_exchange_name(x, t, name, sizeof(name)));
    }
    return rc;
}

/* ---- memory ---- */

static rsd_err take_buffers(rsi_exchange *x, rsd_error *err)
{
    const rsd_plan_stats *s = &x->plan->stats;
    size_t                pairs = x->in[0].n + x->in[1].n + x->out[0].n + x->out[1].n;
    size_t                most = 2 * SLOTS + 2 * pairs;
    int64_t               all = s->bytes_local + s->bytes_sent + s->bytes_recv, room = x->seg;

    /* No buffer is ever fuller than all that moves; accumulators are wider than elements. */
    if (all < room / RSI_WIDEST)
        room = all * RSI_WIDEST;
    room = (room + ALIGN - 1) / ALIGN * ALIGN;
    x->open = rsi_arena_array(&x->mem, most, sizeof(x->open[0]));
    x->open_copy = rsi_arena_array(&x->mem, most, sizeof(x->open_copy[0]));
    x->open_peer = rsi_arena_array(&x->mem, most, sizeof(x->open_peer[0]));
    x->buffers = rsi_alloc_aligned(ALIGN, (size_t)room * RSI_BUFFERS + ALIGN);
    if (!x->open || !x->open_copy || !x->open_peer || !x->buffers)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %" PRId64 " bytes of buffers",
                        room * RSI_BUFFERS);
    for (size_t i = 0; i < SLOTS; i++) {
        x->send[i].buf = x->buffers + i * (size_t)room;
        x->recv[i].buf = x->buffers + (SLOTS + i) * (size_t)room;
    }
    x->scratch = x->buffers + 2 * SLOTS * (size_t)room;
    x->acc = x->scratch + room;
    x->stats.extra_bytes = room * RSI_BUFFERS + (int64_t)x->mem.used;
    return RSD_OK;
}

static rsd_err prepare(rsi_exchange *x, rsd_error *err)
{
    rsi_route_opts opts = { .size = x->comm->size, .cut_min = rsi_exchange_cut_min };
    rsd_err        rc;

    /* A half is for buffers, the other for tables. */
    x->seg = (int64_t)(x->memory / 2 / RSI_BUFFERS / ALIGN * ALIGN);
    x->seg = x->seg > RSI_LEAST_BYTES ? x->seg : RSI_LEAST_BYTES;
    if (!x->readable)
        opts.cut_min = -1; /* parts could not be passed on */
    opts.cut_reduced = x->reach || x->process;
    rc = rsi_route_make(&x->route, x->plan, &opts, err);
    if (!rc)
        rc = rsi_tables_make(x, err);
    return rc ? rc : take_buffers(x, err);
}

rsd_err rsi_exchange_create(rsi_exchange **out, rsd_error *err)
{
    rsi_exchange *x = rsi_calloc(1, sizeof(*x));

    if (!x)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for an exchange");
    x->stage = STAGE_DONE;
    *out = x;
    return RSD_OK;
}

rsd_err rsi_exchange_begin(rsi_exchange *x, const rsi_exchange_args *args, rsd_error *err)
{
    rsd_error local;
    rsd_err   rc;

    err = err ? err : &local;
    x->comm = args->comm;
    x->plan = args->plan;
    x->name = args->name;
    x->no_direct = args->no_direct;
    x->stats_out = args->stats;
    x->memory = args->memory ? args->memory : MEMORY;
    x->memory = x->memory > rsi_exchange_memory_min ? x->memory : rsi_exchange_memory_min;
    x->tag = TAG_FIRST + (int32_t)(args->comm->calls & TAG_ROUNDS) * RSI_EXCHANGE_TAGS;
    rc = rsi_exchange_compare(x, check_all(x, args, err), err);
    if (!rc)
        rc = rsi_reach_probe(x, err);
    if (!rc)
        rc = rsi_agree(x->comm, prepare(x, err), err);
    if (!rc)
        rc = rsi_tables_start(x, err);
    if (!rc)
        x->stage = STAGE_COPY;
    return rc;
}

/* ---- progress ---- */

static void add_open(rsi_exchange *x, void **request, int32_t peer)
{
    if (!*request)
        return;
    x->open[x->nopen] = request;
    x->open_copy[x->nopen] = *request;
    x->open_peer[x->nopen++] = peer;
}

static void list_open(rsi_exchange *x)
{
    rsi_pairs *const pairs[] = { &x->in[0], &x->in[1], &x->out[0], &x->out[1] };

    x->nopen = 0;
    if (!x->open)
        return;
    for (size_t i = 0; i < SLOTS; i++) {
        add_open(x, &x->send[i].request, x->send[i].peer);
        add_open(x, &x->recv[i].request, x->recv[i].peer);
    }
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < pairs[k]->n; i++) {
            add_open(x, &pairs[k]->at[i].table_request, pairs[k]->at[i].peer);
            add_open(x, &pairs[k]->at[i].go_request, pairs[k]->at[i].peer);
        }
}

/* Sees what has finished; `wait`: until something has. */
static rsd_err poll(rsi_exchange *x, bool wait, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    list_open(x);
    if (!wait) {
        for (size_t i = 0; i < x->nopen && !rc; i++)
            rc = rsi_test(x->comm, x->open[i], err);
        return rc;
    }
    rc = rsi_wait_some(x->comm, x->nopen, x->open_copy, x->open_peer, "reshard", err);
    for (size_t i = 0; i < x->nopen; i++)
        *x->open[i] = x->open_copy[i];
    return rc;
}

/* My target is complete but for what others pass on: they may read it. */
static rsd_err say_go(rsi_exchange *x, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < x->out[1].n && !rc; i++) {
        rsi_pair *pair = &x->out[1].at[i];

        if (pair->direct)
            rc = rsi_send(x->comm, pair->peer, x->tag + TAG_GO, &pair->go, 1, &pair->go_request,
                          err);
    }
    return rc;
}

static rsd_err enter_stage(rsi_exchange *x, rsd_error *err)
{
    x->to_send = x->to_recv = (rsi_cursor){ 0 };
    x->entered = true;
    if (x->stage == STAGE_PASS)
        return say_go(x, err);
    return RSD_OK;
}

/* One look at the stage at hand. */
static rsd_err run_stage(rsi_exchange *x, bool *moved, rsd_error *err)
{
    bool    done = false;
    rsd_err rc = x->entered ? RSD_OK : enter_stage(x, err);

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

/* Tables and words that I sent have left. */
static bool all_left(rsi_exchange *x)
{
    list_open(x);
    return x->nopen == 0;
}

/* How it ended for all. */
static rsd_err settle(rsi_exchange *x, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (x->vote.sum > 0) {
        *err = x->err;
        rc = rsi_agree(x->comm, x->rc, err);
    }
    if (x->stats_out)
        *x->stats_out = x->stats;
    return rc;
}

static rsd_err run_vote(rsi_exchange *x, bool wait, rsd_error *err)
{
    bool    done = false;
    rsd_err rc = RSD_OK;

    if (!x->entered) {
        while (wait && !all_left(x) && !rc)
            rc = poll(x, true, err);
        if (!wait)
            rc = poll(x, false, err);
        if (rc || !all_left(x))
            return rsi_break(x->comm, rc, err);
        x->entered = true;
        rc = rsi_vote_begin(&x->vote, x->comm, x->tag + TAG_VOTE, x->rc != RSD_OK, err);
    }
    if (!rc)
        rc = rsi_vote_step(&x->vote, wait, &done, err);
    if (rc)
        return rsi_break(x->comm, rc, err);
    if (done) {
        x->stage = STAGE_DONE;
        rc = settle(x, err);
    }
    return rc;
}

static void finish(rsi_exchange *x, rsd_err rc, const rsd_error *err)
{
    x->stage = STAGE_DONE;
    x->result = rc;
    x->err = *err;
}

rsd_err rsi_exchange_step(rsi_exchange *x, bool wait, bool *done, rsd_error *err)
{
    rsd_error local = { .rank = -1 };
    rsi_pulse before = rsi_comm_enter(x->comm);
    rsd_err   rc = x->stage < STAGE_VOTE ? poll(x, false, &local) : RSD_OK;

    while (x->stage < STAGE_VOTE && !rc) {
        bool moved = false;

        rc = run_stage(x, &moved, &local);
        if (moved)
            rsi_beat();
        if (!rc && (wait || moved))
            rc = poll(x, wait && !moved, &local);
        else if (!rc)
            break;
    }
    rc = rsi_break(x->comm, rc, &local);
    if (!rc && x->stage == STAGE_VOTE)
        rc = run_vote(x, wait, &local);
    if (rc)
        finish(x, rc, &local);
    *done = x->stage == STAGE_DONE;
    if (*done && x->result && err)
        *err = x->err;
    return rsi_comm_leave(before, *done ? x->result : RSD_OK);
}

void rsi_exchange_cancel(rsi_exchange *x)
{
    rsd_error err;

    if (x->stage == STAGE_DONE || (x->stage == STAGE_VOTE && x->entered))
        return;
    rsi_fail(&err, RSD_E_CANCELED, "the caller canceled it");
    rsi_exchange_note(x, RSD_E_CANCELED, &err, SIZE_MAX);
}

void rsi_exchange_free(rsi_exchange *x)
{
    rsd_error err;
    bool      mine = true;

    if (!x)
        return;
    if (x->stage != STAGE_DONE) {
        rsi_fail(&err, RSD_E_COMM, "an exchange was freed before it had finished");
        rsi_break(x->comm, RSD_E_COMM, &err);
    }
    list_open(x);
    for (size_t i = 0; i < x->nopen; i++)
        mine = rsi_drop(x->comm, 1, x->open[i]) && mine;
    mine = rsi_vote_drop(&x->vote) && mine;
    if (!mine)
        return; /* the transport still uses it: it stays for good */
    rsi_route_release(&x->route);
    rsi_arena_release(&x->mem);
    rsi_free(x->buffers);
    rsi_free(x);
}
