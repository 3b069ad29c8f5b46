/* SPDX-License-Identifier: Apache-2.0 */
/* A stash is made, saved into and freed here. All memory is taken when it is made: the arena for
 * the chunks, which other ranks copy from where they can, the tables, and what the comm needs for
 * as many messages as can be under way. Next: stash_room.c, stash_way.c. */
#include "live/stash.h"
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/alike.h"
#include "plan/copy.h"
#include "shape/box.h"
#include "shape/placement.h"

#include <inttypes.h>
#include <string.h>

#define ALIGN       64
#define HANDLES_MAX ((size_t)1 << 20)

/* ---- pieces ---- */

void rsi_piece_text(rsd_dtype dtype, int ndim, const int64_t *shape, char out[RSI_PIECE_TEXT])
{
    const char *name = rsd_dtype_name(dtype);
    rsi_text    text = rsi_text_begin(out, RSI_PIECE_TEXT);

    rsi_text_add(&text, "%s [", name ? name : "?");
    for (int d = 0; d < ndim; d++)
        rsi_text_add(&text, "%s%" PRId64, d ? ", " : "", shape[d]);
    rsi_text_add(&text, "]");
}

int64_t rsi_stash_chunk(const rsi_piece *piece, int32_t size, int32_t r, int64_t *start)
{
    int64_t first = 0, n;

    if (piece->whole) {
        *start = 0;
        return piece->pitch;
    }
    n = rsi_chunk(piece->length, size, r, &first);
    *start = first * piece->unit;
    return n * piece->unit;
}

rsd_err rsi_piece_make(rsd_dtype dtype, int ndim, const int64_t *shape, int32_t dim, int32_t size,
                       bool replicated, rsi_piece *out, rsd_error *err)
{
    rsi_piece p = { .dtype = dtype, .ndim = ndim };
    int64_t   elems, start;
    char      text[RSI_PIECE_TEXT];
    rsd_err   rc = rsi_shape_check(dtype, ndim, shape, &elems, err);

    if (rc)
        return rc;
    if (ndim > 0)
        memcpy(p.shape, shape, (size_t)ndim * sizeof(shape[0]));
    p.bytes = elems * (int64_t)rsd_dtype_size(dtype);
    p.whole = size == 1 || dim < 0 || !replicated || elems < size;
    p.outer = 1;
    p.pitch = p.bytes;
    if (!p.whole && dim >= ndim) {
        rsi_piece_text(dtype, ndim, shape, text);
        return rsi_fail(err, RSD_E_INVALID, "%s can't be cut along dimension %" PRId32, text, dim);
    }
    if (!p.whole) {
        for (int d = 0; d < dim; d++)
            p.outer *= shape[d];
        p.pitch = p.bytes / p.outer; /* there are elements: no size is 0 */
        p.length = shape[dim];
        p.unit = p.pitch / p.length;
    }
    p.room = (size_t)(p.outer * rsi_stash_chunk(&p, size, 0, &start)); /* the first is largest */
    *out = p;
    return RSD_OK;
}

/* ---- making ---- */

static rsd_err check_opts(const rsd_stash_opts *opts, rsd_error *err)
{
    if (opts->handles == 0 || opts->handles > HANDLES_MAX)
        return rsi_fail(err, RSD_E_INVALID, "a stash can't have %zu handles, 1 to %zu are possible",
                        opts->handles, HANDLES_MAX);
    if (opts->budget > (size_t)PTRDIFF_MAX / 2)
        return rsi_fail(err, RSD_E_INVALID, "a stash can't have a budget of %zu bytes",
                        opts->budget);
    return RSD_OK;
}

/* The tables; what is missing is seen by the caller, who frees. */
static rsd_err make_tables(rsd_stash *s, rsd_error *err)
{
    size_t size = (size_t)s->size, each = size * RSI_STASH_KINDS;

    s->nslots = s->handles + RSI_STASH_WAYS;
    s->arena_bytes = s->budget + s->nslots * ALIGN;
    s->piece = rsi_calloc(s->nslots, sizeof(s->piece[0]));
    s->order = rsi_calloc(s->nslots, sizeof(s->order[0]));
    if (!s->piece || !s->order)
        goto nomem;
    if (size == 1)
        return RSD_OK;
    s->nrequests = RSI_STASH_WAYS * each;
    s->request = rsi_calloc(s->nrequests, sizeof(s->request[0]));
    s->peer = rsi_calloc(s->nrequests, sizeof(s->peer[0]));
    s->reach = rsi_calloc(size, sizeof(s->reach[0]));
    s->reached = rsi_calloc(size, sizeof(s->reached[0]));
    s->begun = rsi_calloc(size, sizeof(s->begun[0]));
    s->way[0].mate = rsi_calloc(RSI_STASH_WAYS * size, sizeof(s->way[0].mate[0]));
    if (!s->request || !s->peer || !s->reach || !s->reached || !s->begun || !s->way[0].mate)
        goto nomem;
    for (size_t w = 0; w < RSI_STASH_WAYS; w++) {
        s->way[w].mate = s->way[0].mate + w * size;
        s->way[w].request = s->request + w * each;
        for (size_t i = 0; i < each; i++)
            s->peer[w * each + i] = (int32_t)(i / RSI_STASH_KINDS);
    }
    return RSD_OK;
nomem:
    return rsi_fail(err, RSD_E_NOMEM, "no memory for a stash of %zu handles on %" PRId32 " ranks",
                    s->handles, s->size);
}

typedef struct exposure {
    rsd_exposed where;
    int64_t     is;
} exposure;

/* Finds out whose arena can be read directly; the others' chunks come in messages. */
static rsd_err reach_others(rsd_stash *s, exposure *all, unsigned char *seen, rsd_error *err)
{
    size_t   size = (size_t)s->size;
    exposure mine = { 0 };
    rsd_err  rc;

    mine.is = rsi_expose(s->comm, s->arena, s->arena_bytes, &mine.where, NULL) == RSD_OK;
    rc = rsi_allgather(s->comm, &mine, sizeof(mine), all, err);
    for (int32_t r = 0; r < s->size && !rc; r++) {
        void *at = NULL;

        if (all[r].is && rsi_reach(s->comm, r, &all[r].where, &at, NULL) == RSD_OK)
            s->reach[r] = at;
        seen[(size_t)s->rank * size + (size_t)r] = s->reach[r] != NULL;
    }
    if (!rc)
        rc = rsi_allgather(s->comm, seen + (size_t)s->rank * size, size, seen, err);
    for (size_t r = 0; r < size && !rc; r++)
        s->reached[r] = seen[r * size + (size_t)s->rank];
    return rc;
}

/* Has as many messages under way at once as there can ever be, half of them sent before they are
 * asked for: the comm keeps what it takes for them. */
static rsd_err warm_up(rsd_stash *s, void **request, int32_t *peer, size_t each, rsd_error *err)
{
    size_t  n = 0;
    rsd_err rc = RSD_OK;

    for (int pass = 0; pass < 2 && !rc; pass++) {
        for (int32_t r = 0; r < s->size && !rc; r++)
            for (size_t i = 0; i < 2 * each && r != s->rank && !rc; i++, n++) {
                int kind = i >= each; /* 0: asked for in the first pass; it is the tag, too */

                peer[n] = r;
                rc = kind == pass ? rsi_recv(s->comm, r, kind, NULL, 0, &request[n], err)
                                  : rsi_send(s->comm, r, kind, NULL, 0, &request[n], err);
            }
        if (!rc)
            rc = rsi_barrier(s->comm, err);
    }
    if (!rc)
        rc = rsi_wait_all(s->comm, n, request, peer, "making a stash", err);
    rsi_break(s->comm, rc, err);
    rsi_drop(s->comm, n, request);
    return rc;
}

/* Memory that is needed only while a stash is made. */
typedef struct setup {
    exposure      *exposed; /* [size] */
    unsigned char *seen;    /* [size * size] */
    int32_t       *ranks;   /* [size] */
    void         **request; /* [4 * each * size] */
    int32_t       *peer;
    size_t         each; /* messages of each kind between two ranks */
} setup;

static void setup_release(setup *u)
{
    rsi_free(u->exposed);
    rsi_free(u->seen);
    rsi_free(u->ranks);
    rsi_free(u->request);
    rsi_free(u->peer);
}

static rsd_err setup_make(setup *u, int32_t ranks, rsd_error *err)
{
    size_t size = (size_t)ranks;

    u->each = 2 * RSI_STASH_WAYS + 4; /* a rank can be ahead of others by a few messages */
    u->exposed = rsi_calloc(size, sizeof(u->exposed[0]));
    u->seen = rsi_calloc(size, size);
    u->ranks = rsi_calloc(size, sizeof(u->ranks[0]));
    u->request = rsi_calloc(4 * u->each * size, sizeof(u->request[0]));
    u->peer = rsi_calloc(4 * u->each * size, sizeof(u->peer[0]));
    if (!u->exposed || !u->seen || !u->ranks || !u->request || !u->peer)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to make a stash on %" PRId32 " ranks", ranks);
    for (int32_t r = 0; r < ranks; r++)
        u->ranks[r] = r;
    return RSD_OK;
}

/* All but the local kind: a comm of its own, arenas that reach each other, messages. */
static rsd_err connect_all(rsd_stash *s, rsd_comm *comm, setup *u, rsd_error *err)
{
    void   *arena = NULL;
    bool    far = false;
    rsd_err rc = rsd_comm_split(comm, s->size, u->ranks, &s->comm, err);

    if (!rc)
        rc = rsd_comm_alloc(s->comm, s->arena_bytes, &arena, err);
    s->arena = arena;
    if (!rc)
        rc = reach_others(s, u->exposed, u->seen, err);
    if (rc)
        return rc;
    for (int32_t r = 0; r < s->size; r++)
        far = far || !s->reach[r];
    if (far) {
        s->staging = rsi_alloc_aligned(ALIGN, (size_t)s->size * (size_t)RSI_STASH_STAGE);
        if (!s->staging)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the messages of a stash");
    }
    rc = rsi_agree(s->comm, rc, err);
    return rc ? rc : warm_up(s, u->request, u->peer, u->each, err);
}

static rsd_err make_local(rsd_stash *s, rsd_error *err)
{
    s->arena = rsi_alloc_aligned(ALIGN, s->arena_bytes);
    if (!s->arena)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a stash of %zu bytes", s->budget);
    return RSD_OK;
}

/* Its own memory, before any rank depends on this one. */
static rsd_err make_one(rsd_comm *comm, const rsd_stash_opts *opts, setup *u, rsd_stash **out,
                        rsd_error *err)
{
    rsd_stash *s;
    rsd_err    rc = check_opts(opts, err);

    if (rc)
        return rc;
    s = rsi_calloc(1, sizeof(*s));
    if (!s)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a stash");
    *out = s;
    s->dim = opts->dim < 0 ? RSD_NO_DIM : opts->dim;
    s->budget = opts->budget;
    s->handles = opts->handles;
    s->size = comm && s->dim >= 0 ? comm->size : 1;
    s->rank = comm && s->dim >= 0 ? comm->rank : 0;
    rc = make_tables(s, err);
    if (!rc && comm)
        rc = setup_make(u, comm->size, err);
    return rc;
}

rsd_err rsi_stash_create(rsd_comm *comm, const rsd_stash_opts *opts, rsd_err rc, rsd_stash **out,
                         rsd_error *err)
{
    rsd_stash *s = NULL;
    rsi_terms  terms = { 0 };
    setup      u = { 0 };
    rsd_error  local;

    err = err ? err : &local;
    if (!rc)
        rc = make_one(comm, opts, &u, &s, err);
    rsi_terms_call(&terms, "rsd_stash_create");
    if (opts->dim < 0)
        rsi_terms_word(&terms, "dim", "none");
    else
        rsi_terms_number(&terms, "dim", (uint64_t)opts->dim);
    rsi_terms_number(&terms, "budget", opts->budget);
    rsi_terms_number(&terms, "handles", opts->handles);
    rc = rsi_alike(comm, &terms, rc, err);
    if (!rc && s->size > 1) {
        rc = connect_all(s, comm, &u, err);
    } else if (!rc) {
        rc = make_local(s, err);
        if (comm)
            rc = rsi_agree(comm, rc, err);
    }
    setup_release(&u);
    if (rc) {
        rsi_stash_free(s);
        return rc;
    }
    *out = s;
    return RSD_OK;
}

void rsi_stash_free(rsd_stash *s)
{
    if (!s)
        return;
    if (s->comm) {
        rsi_way_end(s);
        rsd_comm_dealloc(s->comm, s->arena);
        rsd_comm_free(s->comm);
    } else {
        rsi_free(s->arena);
    }
    rsi_free(s->piece);
    rsi_free(s->order);
    rsi_free(s->request);
    rsi_free(s->peer);
    rsi_free(s->reach);
    rsi_free(s->reached);
    rsi_free(s->begun);
    rsi_free(s->staging);
    rsi_free(s->way[0].mate);
    rsi_free(s);
}

/* ---- saving ---- */

/* Refuses what all ranks must refuse alike. */
static rsd_err check_budget(const rsd_stash *s, const rsi_piece *what, rsd_error *err)
{
    char text[RSI_PIECE_TEXT];

    rsi_piece_text(what->dtype, what->ndim, what->shape, text);
    if ((size_t)s->stats.tensors == s->handles)
        return rsi_fail(err, RSD_E_NOMEM,
                        "%s is one more than the %zu tensors that the stash has handles for", text,
                        s->handles);
    if (what->room > s->budget - (size_t)s->reserved)
        return rsi_fail(err, RSD_E_NOMEM,
                        "%s takes %zu bytes of each rank%s, but of the budget of %zu bytes %zu are "
                        "left",
                        text, what->room, what->whole ? ", as it is kept whole" : "", s->budget,
                        s->budget - (size_t)s->reserved);
    return RSD_OK;
}

/* Moves things together. Places depend only on the calls that were made, not on how fast others
 * read, so that all ranks find room or none does. */
static rsd_err make_room(rsd_stash *s, size_t slot, rsd_error *err)
{
    rsd_err rc = s->comm ? rsi_way_settle(s, 0, s->arena_bytes, err) : RSD_OK;

    if (rc)
        return rc;
    rsi_room_compact(s);
    if (!rsi_room_take(s, slot))
        return rsi_fail(err, RSD_E_NOMEM,
                        "%zu of the budget of %zu bytes are left, but not in one part while "
                        "tensors are under way",
                        s->budget - (size_t)s->reserved, s->budget);
    return RSD_OK;
}

/* A slot with a place in the arena. There are slots enough for all handles and ways. */
static rsd_err find_place(rsd_stash *s, const rsi_piece *what, size_t *out, rsd_error *err)
{
    size_t  slot = 0;
    rsd_err rc = RSD_OK;

    while (s->piece[slot].number)
        slot++;
    s->piece[slot] = *what;
    if (!rsi_room_take(s, slot))
        rc = make_room(s, slot, err);
    else if (s->comm)
        rc = rsi_way_settle(s, s->piece[slot].offset, what->room, err);
    if (!rc)
        *out = slot;
    return rc;
}

rsd_err rsi_stash_save(rsd_stash *s, const rsi_piece *what, const void *data, rsd_stashed *out,
                       rsd_error *err)
{
    rsi_piece *p;
    int64_t    start, run;
    size_t     slot;
    rsd_err    rc;

    rc = check_budget(s, what, err);
    if (!rc && s->comm)
        rc = rsi_way_drive(s, err);
    if (!rc)
        rc = find_place(s, what, &slot, err);
    if (rc)
        return rc;
    p = &s->piece[slot];
    p->number = ++s->saves;
    run = rsi_stash_chunk(p, s->size, s->rank, &start);
    p->held = (size_t)(run * p->outer);
    rsi_stash_rows(s->arena + p->offset, run, (const unsigned char *)data + start, p->pitch,
                   p->outer, run);
    s->reserved += (int64_t)p->room;
    s->stats.tensors++;
    s->stats.bytes_saved += p->bytes;
    s->stats.bytes_held += (int64_t)p->held;
    if (s->stats.bytes_held > s->stats.bytes_peak)
        s->stats.bytes_peak = s->stats.bytes_held;
    *out = (rsd_stashed){ .stash = s, .number = p->number, .slot = slot };
    return RSD_OK;
}

void rsi_stash_rows(void *to, int64_t to_pitch, const void *from, int64_t from_pitch, int64_t rows,
                    int64_t run)
{
    rsi_loops loops = { .n = 1, .run = run, .count = { rows }, .to = { to_pitch } };

    loops.from[0] = from_pitch;
    if (rows == 0 || run == 0)
        return;
    if (rows == 1 || (run == to_pitch && run == from_pitch))
        memcpy(to, from, (size_t)(rows * run));
    else
        rsi_copy(&loops, to, from);
}
