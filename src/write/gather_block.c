/* SPDX-License-Identifier: Apache-2.0 */
/* Receives are posted first; then each rank packs the bytes that others need, a few messages at a
 * time, and moves received bytes into place. A rank that is a round ahead waits for slower ranks,
 * never the other way round. */
#include "write/gather_block.h"
#include "base/mem.h"
#include "state/tensor.h"
#include "plan/copy.h"
#include "shape/box.h"

#include <string.h>

enum { TAG_BLOCK = 0x101 };

rsd_err rsi_gather_open(rsi_gather_block *g, rsd_comm *comm, const rsi_holders *sources,
                        rsd_error *err)
{
    size_t n = (size_t)rsd_comm_size(comm);

    *g = (rsi_gather_block){ .comm = comm, .sources = sources, .err.rank = -1 };
    g->count = rsi_calloc(n, sizeof(g->count[0]));
    g->coming = rsi_calloc(n, sizeof(g->coming[0]));
    g->peer = rsi_calloc(n, sizeof(g->peer[0]));
    for (size_t r = 0; r < n && g->peer; r++)
        g->peer[r] = (int32_t)r;
    if (g->count && g->coming && g->peer)
        return RSD_OK;
    rsi_gather_close(g);
    return rsi_fail(err, RSD_E_NOMEM, "no memory to gather from %zu ranks", n);
}

void rsi_gather_close(rsi_gather_block *g)
{
    rsi_free(g->count);
    rsi_free(g->coming);
    rsi_free(g->peer);
    *g = (rsi_gather_block){ 0 };
}

/* A pass over the pieces of one block. */
typedef struct pass {
    rsi_gather_block *g;
    int32_t           from; /* holder of the pieces to handle */
    unsigned char    *at;   /* where packed bytes come from or go to */
    unsigned char    *buf;  /* the block */
    size_t            bytes;
} pass;

static rsd_err count_piece(void *arg, const rsi_held_piece *p)
{
    ((rsi_gather_block *)arg)->count[p->from] += p->bytes;
    return RSD_OK;
}

static rsd_err measure_piece(void *arg, const rsi_held_piece *p)
{
    pass *x = arg;

    x->bytes += p->from == x->from ? p->bytes : 0;
    return RSD_OK;
}

static rsi_area area_of(const pass *x, const rsi_held_piece *p)
{
    rsi_area area = { .box = p->run, .data = x->buf + p->at };

    rsi_strides(p->run.ndim, p->run.len, x->g->sources->state->tensor[p->tensor].views.elem_bytes,
                area.stride);
    return area;
}

static void keep_failure(rsi_gather_block *g, rsd_err rc, const rsd_error *why,
                         const rsi_state_tensor *tensor)
{
    if (!rc || g->rc)
        return;
    g->rc = rc;
    g->err = *why;
    rsi_while(&g->err, rc, "tensor \"%s\"", tensor->spot.name);
}

/* Packs my piece for another rank. */
static rsd_err pack_piece(void *arg, const rsi_held_piece *p)
{
    pass                   *x = arg;
    const rsi_state_tensor *tensor = &x->g->sources->state->tensor[p->tensor];
    rsd_error               why = { .rank = -1 };

    if (p->from != x->from)
        return RSD_OK;
    keep_failure(x->g, rsi_views_pack(&tensor->views, &p->box, 0, x->at, &why), &why, tensor);
    x->at += p->bytes;
    return RSD_OK;
}

/* Moves a piece, received or my own, to its place in my block. */
static rsd_err place_piece(void *arg, const rsi_held_piece *p)
{
    pass                   *x = arg;
    const rsi_state_tensor *tensor = &x->g->sources->state->tensor[p->tensor];
    rsi_area                to = area_of(x, p);

    if (p->from != x->from)
        return RSD_OK;
    rsi_unpack(&p->box, tensor->views.elem_bytes, &to, x->at);
    x->at += p->bytes;
    return RSD_OK;
}

static rsd_err place_own(void *arg, const rsi_held_piece *p)
{
    pass                   *x = arg;
    const rsi_state_tensor *tensor = &x->g->sources->state->tensor[p->tensor];
    rsi_area                to = area_of(x, p);
    rsd_error               why = { .rank = -1 };
    rsd_err                 rc;

    if (p->from != x->from)
        return RSD_OK;
    rc = rsi_views_pack(&tensor->views, &p->box, 0, x->at, &why);
    keep_failure(x->g, rc, &why, tensor);
    if (!rc)
        rsi_unpack(&p->box, tensor->views.elem_bytes, &to, x->at);
    return RSD_OK;
}

static void each(const rsi_gather_block *g, const rsi_block_span *span, int32_t to,
                 rsd_err (*visit)(void *, const rsi_held_piece *), void *arg)
{
    if (span->len > 0)
        rsi_holders_each(g->sources, span->file, span->at, span->len, to, visit, arg);
}

/* Posts receives for the bytes of my block that other ranks hold. */
static rsd_err post(rsi_gather_block *g, const rsi_block_span *mine, rsd_error *err)
{
    size_t  at = 0;
    rsd_err rc = RSD_OK;

    memset(g->count, 0, (size_t)g->comm->size * sizeof(g->count[0]));
    each(g, mine, g->comm->rank, count_piece, g);
    for (int32_t r = 0; r < g->comm->size && !rc; r++) {
        if (r == g->comm->rank || g->count[r] == 0)
            continue;
        rc = rsi_recv(g->comm, r, TAG_BLOCK, g->inbox + at, g->count[r], &g->coming[r], err);
        at += g->count[r];
    }
    return rc;
}

/* Finds a free outgoing buffer. */
static rsd_err free_slot(rsi_gather_block *g, size_t *slot, rsd_error *err)
{
    for (;;) {
        rsd_err rc;

        for (*slot = 0; *slot < RSI_GATHER_OUT; (*slot)++)
            if (g->out[*slot] && !g->sending[*slot])
                return RSD_OK;
        rc = rsi_wait_some(g->comm, RSI_GATHER_OUT, g->sending, g->to, "a file written together",
                           err);
        if (rc)
            return rc;
    }
}

static rsd_err send_all(rsi_gather_block *g, const rsi_block_span *span, rsd_error *err)
{
    int32_t size = g->comm->size, me = g->comm->rank;
    rsd_err rc = RSD_OK;

    for (int32_t i = 1; i < size && !rc; i++) { /* each rank starts with a different peer */
        int32_t to = (int32_t)(((int64_t)me + i) % size);
        pass    x = { .g = g, .from = me };
        size_t  slot;

        each(g, &span[to], to, measure_piece, &x);
        if (x.bytes == 0)
            continue;
        rc = free_slot(g, &slot, err);
        if (rc)
            break;
        x.at = g->out[slot];
        each(g, &span[to], to, pack_piece, &x);
        g->to[slot] = to;
        rc = rsi_send(g->comm, to, TAG_BLOCK, g->out[slot], x.bytes, &g->sending[slot], err);
    }
    return rc;
}

rsd_err rsi_gather_round(rsi_gather_block *g, const rsi_block_span *span, unsigned char *buf,
                         rsd_error *err)
{
    int32_t me = g->comm->rank;
    pass    x = { .g = g, .from = me, .buf = buf };
    rsd_err rc = post(g, &span[me], err);

    if (!rc)
        rc = send_all(g, span, err);
    if (!rc)
        rc = rsi_wait_all(g->comm, (size_t)g->comm->size, g->coming, g->peer,
                          "a file written together", err);
    x.at = g->inbox;
    for (int32_t r = 0; r < g->comm->size && !rc && buf; r++) {
        x.from = r;
        if (r != me && g->count[r])
            each(g, &span[me], me, place_piece, &x);
    }
    x.from = me;
    x.at = g->inbox; /* the received bytes are now in place */
    if (!rc && buf)
        each(g, &span[me], me, place_own, &x);
    if (!rc)
        rc = rsi_wait_all(g->comm, RSI_GATHER_OUT, g->sending, g->to, "a file written together",
                          err);
    if (rc) {
        rc = rsi_break(g->comm, rc, err);
        rsi_drop(g->comm, (size_t)g->comm->size, g->coming);
        rsi_drop(g->comm, RSI_GATHER_OUT, g->sending);
    }
    return rc;
}
