/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and frees a stash. All memory is allocated at creation: the arena for the chunks, which
 * other ranks copy from where they can, the tables, and what the comm needs for the maximum number
 * of messages in flight. Next: stash_keep.c. */
#include "live/stash.h"
#include "base/mem.h"
#include "base/opts.h"
#include "comm/facts.h"

#include <inttypes.h>

#define HANDLES_MAX ((size_t)1 << 20)

typedef struct exposure {
    rsd_exposed where;
    int64_t     is;
} exposure;

static rsd_err check_opts(const rsd_stash_opts *opts, rsd_error *err)
{
    if (opts->handles == 0 || opts->handles > HANDLES_MAX)
        return rsi_fail(err, RSD_E_INVALID, "a stash can't have %zu handles: 1 to %zu are possible",
                        opts->handles, HANDLES_MAX);
    if (opts->budget > (size_t)PTRDIFF_MAX / 2)
        return rsi_fail(err, RSD_E_INVALID, "a stash can't have a budget of %zu bytes",
                        opts->budget);
    return RSD_OK;
}

/* False: no memory. */
static bool make_tables(rsd_stash *s)
{
    size_t          size = (size_t)s->size, each = size * RSI_STASH_KINDS;
    rsi_stash_head *head;

    s->nslots = s->handles + RSI_STASH_WAYS;
    s->arena_bytes = s->budget + s->nslots * RSI_STASH_ALIGN;
    s->tensor = rsi_arena_array(&s->mem, s->nslots, sizeof(s->tensor[0]));
    if (size == 1)
        return s->tensor;
    s->nrequests = RSI_STASH_WAYS * each;
    s->request = rsi_arena_array(&s->mem, s->nrequests, sizeof(s->request[0]));
    s->peer = rsi_arena_array(&s->mem, s->nrequests, sizeof(s->peer[0]));
    s->reach = rsi_arena_array(&s->mem, size, sizeof(s->reach[0]));
    s->reached = rsi_arena_array(&s->mem, size, 1);
    s->way = rsi_arena_array(&s->mem, RSI_STASH_WAYS, sizeof(s->way[0]));
    head = rsi_arena_array(&s->mem, RSI_STASH_WAYS * size, sizeof(head[0]));
    if (!s->tensor || !s->request || !s->peer || !s->reach || !s->reached || !s->way || !head)
        return false;
    for (size_t w = 0; w < RSI_STASH_WAYS; w++)
        s->way[w] = (rsi_stash_way){ .head = head + w * size, .request = s->request + w * each };
    for (size_t i = 0; i < s->nrequests; i++)
        s->peer[i] = (int32_t)(i % size);
    return true;
}

/* Allocates its own memory, before any rank depends on this one. */
static rsd_err make_one(const rsd_comm *comm, const rsd_stash_opts *opts, rsd_stash **out,
                        rsd_error *err)
{
    rsd_stash *s;
    rsd_err    rc = check_opts(opts, err);

    if (rc)
        return rc;
    *out = s = rsi_calloc(1, sizeof(*s));
    if (!s)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a stash");
    *s = (rsd_stash){ .dim = opts->dim < 0 ? RSD_NO_DIM : opts->dim,
                      .size = comm && opts->dim >= 0 ? comm->size : 1,
                      .rank = comm && opts->dim >= 0 ? comm->rank : 0,
                      .budget = opts->budget,
                      .handles = opts->handles };
    if (!make_tables(s))
        return rsi_fail(err, RSD_E_NOMEM,
                        "no memory for a stash of %zu handles on %" PRId32 " ranks", s->handles,
                        s->size);
    return RSD_OK;
}

/* Finds out which arenas can be read directly; chunks of other ranks come in messages. */
static rsd_err reach_others(rsd_stash *s, rsd_error *err)
{
    size_t       size = (size_t)s->size;
    exposure     mine = { 0 };
    rsi_gathered all = { 0 };
    rsd_err      rc;

    mine.is = rsi_expose(s->comm, s->arena, s->arena_bytes, &mine.where, NULL) == RSD_OK;
    rc = rsi_allgather_any(s->comm, &mine, sizeof(mine), &all, err);
    for (int32_t r = 0; r < s->size && !rc; r++) {
        const exposure *other = (exposure *)(void *)all.data + r;
        void           *at = NULL;

        if (r == s->rank)
            s->reach[r] = s->arena;
        else if (other->is && rsi_reach(s->comm, r, &other->where, &at, NULL) == RSD_OK)
            s->reach[r] = at;
        s->reached[r] = s->reach[r] != NULL; /* by me, */
    }
    rsi_gathered_release(&all);
    if (!rc)
        rc = rsi_allgather_any(s->comm, s->reached, size, &all, err);
    for (size_t r = 0; r < size && !rc; r++) /* and now mine by them */
        s->reached[r] = (unsigned char)all.data[r * size + (size_t)s->rank];
    rsi_gathered_release(&all);
    return rc;
}

/* Puts as many messages in flight as there can ever be: the comm keeps the memory that it allocates
 * for them. `late`: they are sent before their receives are posted. */
static rsd_err warm_up(rsd_stash *s, bool late, rsd_error *err)
{
    size_t  half = s->nrequests / 2;
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < s->nrequests && !rc; i++) {
        if (i == half)
            rc = rsi_barrier(s->comm, err);
        if (s->peer[i] == s->rank || rc)
            continue;
        rc = late == (i < half) ? rsi_send(s->comm, s->peer[i], 0, NULL, 0, &s->request[i], err)
                                : rsi_recv(s->comm, s->peer[i], 0, NULL, 0, &s->request[i], err);
    }
    if (!rc)
        rc = rsi_wait_all(s->comm, s->nrequests, s->request, s->peer, "making a stash", err);
    rsi_break(s->comm, rc, err);
    rsi_drop(s->comm, s->nrequests, s->request);
    return rc;
}

/* Sets up its own comm, arenas that reach each other, and messages. */
static rsd_err connect_all(rsd_stash *s, rsd_comm *comm, rsd_error *err)
{
    size_t  size = (size_t)s->size;
    void   *arena = NULL;
    rsd_err rc = rsd_comm_split(comm, s->size, s->peer, &s->comm, err);

    if (!rc)
        rc = rsd_comm_alloc(s->comm, s->arena_bytes, &arena, err);
    s->arena = arena;
    if (!rc)
        rc = reach_others(s, err);
    if (rc)
        return rc;
    for (size_t r = 0; r < size && !s->staging && !rc; r++)
        if (!s->reach[r]) {
            s->staging = rsi_alloc_aligned(RSI_STASH_ALIGN, size * (size_t)RSI_STASH_STAGE);
            if (!s->staging)
                rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the messages of a stash");
        }
    rc = rsi_agree(s->comm, rc, err);
    for (int late = 0; late < 2 && !rc; late++)
        rc = warm_up(s, late, err);
    return rc;
}

static rsd_err make_local(rsd_stash *s, rsd_comm *comm, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    s->arena = rsi_alloc_aligned(RSI_STASH_ALIGN, s->arena_bytes);
    if (!s->arena)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a stash of %zu bytes", s->budget);
    return comm ? rsi_agree(comm, rc, err) : rc;
}

static void tell_opts(rsi_facts *f, const void *arg)
{
    const rsd_stash_opts *opts = arg;

    rsi_fact_word(f, "the call", "rsd_stash_create");
    if (opts->dim < 0)
        rsi_fact_word(f, "dim", "none");
    else
        rsi_fact_number(f, "dim", (uint64_t)opts->dim);
    rsi_fact_number(f, "budget", opts->budget);
    rsi_fact_number(f, "handles", opts->handles);
}

rsd_err rsd_stash_create(rsd_comm *comm, const rsd_stash_opts *opts, rsd_stash **out,
                         rsd_error *err)
{
    rsd_stash_opts known = { .size = sizeof(known) };
    rsd_stash     *s = NULL;
    rsd_error      local;
    rsd_err        rc;

    err = err ? err : &local;
    rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_stash_opts", err);
    if (!rc && (!out || !opts))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: options or output pointer");
    if (!rc && !comm && known.dim >= 0)
        rc = rsi_fail(err, RSD_E_INVALID, "a stash that cuts tensors needs a comm");
    if (!rc)
        rc = make_one(comm, &known, &s, err);
    rc = rsi_same_facts(comm, tell_opts, &known, rc, err);
    if (!rc)
        rc = (s->size > 1 ? connect_all : make_local)(s, comm, err);
    if (rc)
        rsd_stash_free(s);
    else
        *out = s;
    return rc;
}

void rsd_stash_free(rsd_stash *s)
{
    if (!s)
        return;
    if (s->comm) {
        rsi_stash_end(s);
        rsd_comm_dealloc(s->comm, s->arena);
        rsd_comm_free(s->comm);
    } else {
        rsi_free(s->arena);
    }
    rsi_free(s->staging);
    rsi_arena_release(&s->mem);
    rsi_free(s);
}
