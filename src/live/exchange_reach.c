/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of other ranks: which of it can be read, the tables that tell where a rank's views lie,
 * and the copies. A sender that can't show all that a peer needs sends messages instead, and says
 * so before anything moves. */
#include "base/digest.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "live/exchange_core.h"
#include "shape/box.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define RUN_MIN   512 /* bytes: shorter runs are packed faster than another process' are read */
#define MOST_IOV  512
#define TABLE_OF  16   /* a table has at most one in so many bytes of what it helps to move, */
#define TABLE_MIN 4096 /* or so many */

size_t rsi_reach_part_bytes = (size_t)1 << 30;

/* ---- can it be read? ---- */

/* What each rank shows of itself. */
typedef struct token {
    uint64_t    cookie, cookie_at, memory;
    int64_t     pid;
    rsd_exposed shown;
    uint32_t    shows;    /* `shown` is there */
    uint32_t    hides;    /* some views can't be exposed */
    uint32_t    direct;   /* 0: this rank wants messages */
    uint32_t    readable; /* its targets can be read back */
} token;

static void show(rsi_exchange *x, const rsi_views *views, token *mine)
{
    for (size_t i = 0; i < views->n; i++) {
        const rsd_view      *view = &views->view[i];
        size_t               bytes;
        int64_t              first;
        const unsigned char *at;

        if (!view->data || rsd_box_count(&view->box) == 0)
            continue;
        at = rsi_view_extent(view, views->elem_bytes, &bytes, &first);
        if (rsi_expose(x->comm, at, bytes, &mine->shown, NULL) == RSD_OK)
            mine->shows = 1;
        else
            mine->hides = 1;
    }
}

static bool can_read_process(const token *t)
{
    uint64_t     got = 0;
    struct iovec to = { &got, sizeof(got) };
    struct iovec from = { (void *)(uintptr_t)t->cookie_at, sizeof(got) };

    return process_vm_readv((pid_t)t->pid, &to, 1, &from, 1, 0) == (ssize_t)sizeof(got) &&
           got == t->cookie;
}

/* What of the others this rank can read, of those that it gets something from. */
static void try_peers(rsi_exchange *x, const token *all, int64_t *reach, int64_t *process)
{
    const rsd_plan *plan = x->plan;
    bool            hidden = false;

    for (int32_t r = 0; r < x->comm->size; r++)
        hidden = hidden || all[r].hides;
    *process = hidden;
    for (size_t p = 0; p < plan->npeers; p++) {
        const token *t = &all[plan->peer[p]];
        void        *at;

        if (t->shows && rsi_reach(x->comm, plan->peer[p], &t->shown, &at, NULL) != RSD_OK)
            *reach = 0;
        if (*process && !can_read_process(t))
            *process = 0;
    }
}

rsd_err rsi_reach_probe(rsi_exchange *x, rsd_error *err)
{
    token    mine = { .pid = getpid(), .readable = 1, .direct = !x->no_direct };
    token   *all = rsi_calloc((size_t)x->comm->size, sizeof(all[0]));
    int64_t  can[3] = { 1, 1, 1 };
    uint64_t id[2] = { (uint64_t)mine.pid, (uint64_t)(uintptr_t)x };
    rsd_err  rc;

    rc = rsi_agree(x->comm, all ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory to compare"), err);
    if (rc)
        goto out;
    x->cookie = rsi_digest(x->comm->calls, id, sizeof(id));
    mine.cookie = x->cookie;
    mine.cookie_at = (uint64_t)(uintptr_t)&x->cookie;
    mine.memory = x->memory;
    for (size_t t = 0; t < x->plan->n; t++) {
        show(x, &x->src[t], &mine);
        show(x, &x->dst[t], &mine);
        mine.readable = mine.readable && rsi_views_readable(&x->dst[t]);
    }
    rc = rsi_allgather(x->comm, &mine, sizeof(mine), all, err);
    if (rc)
        goto out;
    for (int32_t r = 0; r < x->comm->size; r++) {
        x->memory = all[r].memory < x->memory ? (size_t)all[r].memory : x->memory;
        can[0] = can[0] && all[r].direct;
        can[2] = can[2] && all[r].readable;
    }
    can[1] = can[0];
    if (can[0])
        try_peers(x, all, &can[0], &can[1]);
    rc = rsi_allreduce(x->comm, RSI_OP_MIN, can, 3, err);
    x->reach = can[0];
    x->process = can[1];
    x->readable = can[2];
out:
    rsi_free(all);
    return rc;
}

/* ---- tables ---- */

static bool add_pairs(rsi_pairs *pairs, rsi_hops *hops, int32_t me)
{
    for (size_t i = 0; i < hops->n; i++) {
        int32_t peer = hops->at[i].peer;

        if (peer == me)
            continue;
        if (pairs->of_rank[peer] == 0) {
            pairs->at[pairs->n].peer = peer;
            pairs->of_rank[peer] = (int32_t)++pairs->n;
        }
        hops->at[i].seq = rsi_pair_of(pairs, peer)->nhops++;
    }
    return true;
}

static bool make_pairs(rsi_exchange *x, rsi_pairs *pairs, rsi_hops *hops, rsi_hops *then)
{
    /* Of each rank at most one pair, and no more pairs than hops. */
    size_t most = hops->n + then->n;

    most = most < (size_t)x->comm->size ? most : (size_t)x->comm->size;
    pairs->at = rsi_arena_array(&x->mem, most, sizeof(pairs->at[0]));
    pairs->of_rank = rsi_arena_array(&x->mem, (size_t)x->comm->size, sizeof(pairs->of_rank[0]));
    return pairs->at && pairs->of_rank && add_pairs(pairs, hops, x->comm->rank) &&
           add_pairs(pairs, then, x->comm->rank);
}

/* A view as the others are to see it. False: they can't. */
static bool describe(rsi_exchange *x, const rsd_view *view, int64_t elem_bytes, rsi_remote *out)
{
    size_t               bytes;
    const unsigned char *at = rsi_view_extent(view, elem_bytes, &bytes, &out->first);

    memcpy(out->off, view->box.off, sizeof(out->off));
    memcpy(out->stride, view->stride, sizeof(out->stride));
    out->kind = RSI_REACH_SHARED;
    if (x->reach && rsi_expose(x->comm, at, bytes, &out->where, NULL) == RSD_OK)
        return true;
    out->kind = RSI_REACH_PROCESS;
    out->where = (rsd_exposed){ { (uint64_t)getpid(), (uint64_t)(uintptr_t)at } };
    return x->process;
}

/* Everything about the views of one pair while its table is made. */
typedef struct making {
    rsi_exchange    *x;
    rsi_pair        *pair;
    const rsi_views *views; /* [plan->n] */
    bool             given;
    rsi_remote      *view;    /* [cap] */
    uint32_t        *view_of; /* [nhops] */
    const size_t    *first;   /* [plan->n] number of a tensor's first view among all */
    uint32_t        *entry;   /* [views] where a view is in the table, + 1; 0: not there */
    size_t          *met;     /* [cap] which view view[i] describes */
    size_t           cap, table_most;
    int64_t          bytes;
} making;

/* The number of the view in the table, which gets it if it is new. */
static bool number_of(making *m, size_t tensor, const rsd_view *view, uint32_t *out)
{
    size_t which = m->first[tensor] + (size_t)(view - m->views[tensor].view);

    if (m->entry[which] == 0) {
        if (m->pair->nviews == m->cap ||
            !describe(m->x, view, m->views[tensor].elem_bytes, &m->view[m->pair->nviews]))
            return false;
        m->met[m->pair->nviews] = which;
        m->entry[which] = ++m->pair->nviews;
    }
    *out = m->entry[which] - 1;
    return true;
}

static bool add_hop(making *m, const rsi_hop *hop)
{
    const rsi_views *views = &m->views[hop->tensor];
    rsd_box          box;
    size_t           my_box = rsi_hop_box(&m->x->route, hop, m->given, &box);
    const rsd_view  *view = rsi_views_find(views, &box, my_box);
    rsi_loops        loops;

    m->bytes += rsd_box_count(&box) * views->elem_bytes;
    if (rsd_box_count(&box) == 0)
        return true;
    if (!view || !view->data || !number_of(m, hop->tensor, view, &m->view_of[hop->seq]))
        return false;
    if (m->view[m->view_of[hop->seq]].kind == RSI_REACH_SHARED)
        return true;
    rsi_loops_make(&loops, box.ndim, box.len, views->elem_bytes, NULL, view->stride);
    return loops.run >= RUN_MIN;
}

static bool add_hops(making *m, const rsi_hops *hops)
{
    for (size_t i = 0; i < hops->n; i++)
        if (hops->at[i].peer == m->pair->peer && !add_hop(m, &hops->at[i]))
            return false;
    return true;
}

/* Where the parts of a table lie. */
static void place_table(rsi_pair *pair, void *table)
{
    pair->view = table;
    pair->view_of = (uint32_t *)(void *)(pair->view + pair->nviews);
    pair->table_bytes = pair->nviews * sizeof(pair->view[0]) + pair->nhops * sizeof(uint32_t);
}

/* The table of what I send to one peer. Without it the pair uses messages: nothing fails here. */
static bool make_table(rsi_exchange *x, rsi_pair *pair, int phase, const size_t *first,
                       uint32_t *entry)
{
    making m = { .x = x,
                 .pair = pair,
                 .views = phase ? x->dst : x->src,
                 .given = phase == 0,
                 .first = first,
                 .entry = entry };
    void  *table = NULL;
    bool   ok;

    m.table_most = x->memory / (4 * (size_t)x->comm->size);
    m.table_most = m.table_most > TABLE_MIN ? m.table_most : TABLE_MIN;
    m.cap = m.table_most / sizeof(rsi_remote);
    m.cap = m.cap < pair->nhops ? m.cap : pair->nhops;
    m.view = rsi_calloc(m.cap, sizeof(m.view[0]));
    m.met = rsi_calloc(m.cap, sizeof(m.met[0]));
    m.view_of = rsi_calloc(pair->nhops, sizeof(m.view_of[0]));
    ok = m.view && m.met && m.view_of;
    pair->direct = ok && pair->nhops <= m.table_most / sizeof(uint32_t) &&
                   add_hops(&m, &x->route.send[phase]) && (phase || add_hops(&m, &x->route.give));
    place_table(pair, NULL);
    if (pair->table_bytes > m.table_most ||
        (pair->table_bytes > TABLE_MIN && (int64_t)pair->table_bytes > m.bytes / TABLE_OF))
        pair->direct = false;
    if (pair->direct)
        table = rsi_arena_array(&x->mem, 1, pair->table_bytes);
    ok = ok && (table || !pair->direct);
    if (table) {
        place_table(pair, table);
        memcpy(pair->view, m.view, pair->nviews * sizeof(m.view[0]));
        memcpy(pair->view_of, m.view_of, pair->nhops * sizeof(m.view_of[0]));
    }
    for (uint32_t i = 0; m.met && i < pair->nviews; i++)
        entry[m.met[i]] = 0;
    rsi_free(m.view);
    rsi_free(m.met);
    rsi_free(m.view_of);
    return ok;
}

/* All tables of one phase. */
static bool make_tables(rsi_exchange *x, int phase)
{
    const rsi_views *views = phase ? x->dst : x->src;
    size_t          *first = rsi_calloc(x->plan->n, sizeof(first[0])), all = 0;
    uint32_t        *entry = NULL;
    bool             ok = first != NULL;

    for (size_t t = 0; t < x->plan->n && ok; t++) {
        first[t] = all;
        all += views[t].n;
    }
    if (ok)
        entry = rsi_calloc(all, sizeof(entry[0]));
    ok = ok && entry;
    for (size_t i = 0; i < x->out[phase].n && ok; i++)
        ok = make_table(x, &x->out[phase].at[i], phase, first, entry);
    rsi_free(first);
    rsi_free(entry);
    return ok;
}

rsd_err rsi_tables_make(rsi_exchange *x, rsd_error *err)
{
    rsi_hops   none = { 0 };
    rsi_route *r = &x->route;
    bool       ok = true;

    for (int p = 0; p < 2 && ok; p++)
        ok = make_pairs(x, &x->in[p], &r->recv[p], p ? &none : &r->take) &&
             make_pairs(x, &x->out[p], &r->send[p], p ? &none : &r->give);
    for (int p = 0; p < 2 && ok && (x->reach || x->process); p++)
        ok = make_tables(x, p);
    return ok ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for the tables of an exchange");
}

/* ---- telling each other ---- */

typedef struct head {
    uint32_t direct, nviews;
} head;

typedef struct heads {
    head    *at;
    void   **request;
    int32_t *peer;
    size_t   n;
} heads;

/* One head from and to each peer of each phase. */
static rsd_err swap_heads(rsi_exchange *x, heads *h, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int p = 0; p < 2; p++)
        for (size_t i = 0; i < x->in[p].n && !rc; i++, h->n++) {
            h->peer[h->n] = x->in[p].at[i].peer;
            rc = rsi_recv(x->comm, h->peer[h->n], x->tag + TAG_HEAD, &h->at[h->n], sizeof(head),
                          &h->request[h->n], err);
        }
    for (int p = 0; p < 2; p++)
        for (size_t i = 0; i < x->out[p].n && !rc; i++, h->n++) {
            const rsi_pair *pair = &x->out[p].at[i];

            h->peer[h->n] = pair->peer;
            h->at[h->n] = (head){ pair->direct, pair->direct ? pair->nviews : 0 };
            rc = rsi_send(x->comm, pair->peer, x->tag + TAG_HEAD, &h->at[h->n], sizeof(head),
                          &h->request[h->n], err);
        }
    return rc ? rc : rsi_wait_all(x->comm, h->n, h->request, h->peer, "reshard", err);
}

/* Room for the tables that were announced. */
static rsd_err take_heads(rsi_exchange *x, const heads *h, rsd_error *err)
{
    size_t n = 0;

    for (int p = 0; p < 2; p++)
        for (size_t i = 0; i < x->in[p].n; i++, n++) {
            rsi_pair *pair = &x->in[p].at[i];
            void     *table;

            pair->direct = h->at[n].direct != 0;
            pair->nviews = h->at[n].nviews;
            place_table(pair, NULL);
            table = rsi_arena_array(&x->mem, 1, pair->table_bytes);
            if (!table)
                return rsi_fail(err, RSD_E_NOMEM, "no memory for a table of %zu bytes",
                                pair->table_bytes);
            place_table(pair, table);
        }
    return RSD_OK;
}

static rsd_err start_tables(rsi_exchange *x, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int p = 0; p < 2; p++)
        for (size_t i = 0; i < x->in[p].n && !rc; i++) {
            rsi_pair *pair = &x->in[p].at[i];

            if (pair->direct)
                rc = rsi_recv(x->comm, pair->peer, x->tag + TAG_TABLE, pair->view,
                              pair->table_bytes, &pair->table_request, err);
            if (pair->direct && p > 0 && !rc) /* the peer's target is there only when it says so */
                rc = rsi_recv(x->comm, pair->peer, x->tag + TAG_GO, &pair->go, 1, &pair->go_request,
                              err);
        }
    for (int p = 0; p < 2; p++)
        for (size_t i = 0; i < x->out[p].n && !rc; i++) {
            rsi_pair *pair = &x->out[p].at[i];

            if (pair->direct)
                rc = rsi_send(x->comm, pair->peer, x->tag + TAG_TABLE, pair->view,
                              pair->table_bytes, &pair->table_request, err);
        }
    return rc;
}

rsd_err rsi_tables_start(rsi_exchange *x, rsd_error *err)
{
    heads   h = { 0 };
    size_t  most = x->in[0].n + x->in[1].n + x->out[0].n + x->out[1].n;
    rsd_err rc = RSD_OK;

    if (!x->reach && !x->process)
        return RSD_OK;
    h.at = rsi_calloc(most, sizeof(h.at[0]));
    h.request = rsi_calloc(most, sizeof(h.request[0]));
    h.peer = rsi_calloc(most, sizeof(h.peer[0]));
    if (!h.at || !h.request || !h.peer)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu peers", most);
    rc = rsi_agree(x->comm, rc, err);
    if (!rc) {
        rc = rsi_break(x->comm, swap_heads(x, &h, err), err);
        if (rc && !rsi_drop(x->comm, h.n, h.request))
            return rc; /* the transport keeps using them: they stay for good */
        if (!rc)
            rc = rsi_agree(x->comm, take_heads(x, &h, err), err);
    }
    if (!rc)
        rc = rsi_break(x->comm, start_tables(x, err), err);
    rsi_free(h.at);
    rsi_free(h.request);
    rsi_free(h.peer);
    return rc;
}

bool rsi_table_ready(rsi_exchange *x, rsi_pair *pair)
{
    if (pair->ready)
        return true;
    if (pair->table_request)
        return false;
    for (uint32_t i = 0; i < pair->nviews; i++) {
        rsi_remote *v = &pair->view[i];
        void       *at = NULL;
        rsd_error   err;
        rsd_err     rc = RSD_OK;

        if (v->kind == RSI_REACH_SHARED)
            rc = rsi_reach(x->comm, pair->peer, &v->where, &at, &err);
        if (rc)
            rsi_exchange_note(x, rc, &err, SIZE_MAX);
        if (v->kind == RSI_REACH_SHARED)
            v->where.word[0] = (uint64_t)(uintptr_t)at;
    }
    pair->ready = true;
    return true;
}

/* ---- copies ---- */

/* Some runs of another process, given as pairs of places. */
typedef struct batch {
    struct iovec to[MOST_IOV], from[MOST_IOV];
    size_t       n;
    pid_t        pid;
} batch;

/* Reads what one call may move from run `at` on: whole runs, or the head of a longer one. */
static ssize_t read_some(const batch *b, size_t at)
{
    struct iovec cut = { b->to[at].iov_base, rsi_reach_part_bytes };
    size_t       n = 0, left = rsi_reach_part_bytes;

    while (at + n < b->n && b->to[at + n].iov_len <= left)
        left -= b->to[at + n++].iov_len;
    if (n == 0) /* the shorter side ends the call */
        return process_vm_readv(b->pid, &cut, 1, &b->from[at], 1, 0);
    return process_vm_readv(b->pid, &b->to[at], n, &b->from[at], n, 0);
}

static void skip_bytes(struct iovec *v, size_t bytes)
{
    v->iov_base = (char *)v->iov_base + bytes;
    v->iov_len -= bytes;
}

static rsd_err read_batch(batch *b, rsd_error *err)
{
    for (size_t at = 0; at < b->n;) {
        ssize_t got = read_some(b, at);
        size_t  more = got > 0 ? (size_t)got : 0;

        rsi_beat();
        if (got < 0)
            return rsi_fail_errno(err, RSD_E_COMM, errno, "could not read another rank's memory");
        if (got == 0)
            return rsi_fail(err, RSD_E_COMM, "could not read another rank's memory");
        for (; at < b->n && more >= b->to[at].iov_len; at++)
            more -= b->to[at].iov_len;
        if (more > 0) {
            skip_bytes(&b->to[at], more);
            skip_bytes(&b->from[at], more);
        }
    }
    b->n = 0;
    return RSD_OK;
}

/* The loops of copy.c, through the system. */
static rsd_err copy_process(const rsi_loops *l, pid_t pid, unsigned char *to, uint64_t from,
                            rsd_error *err)
{
    int64_t at[RSD_MAX_NDIM] = { 0 };
    batch   b = { .pid = pid };

    for (;;) {
        int d = l->n - 1;

        b.to[b.n] = (struct iovec){ to, (size_t)l->run };
        b.from[b.n++] = (struct iovec){ (void *)(uintptr_t)from, (size_t)l->run };
        if (b.n == MOST_IOV) {
            rsd_err rc = read_batch(&b, err);

            if (rc)
                return rc;
        }
        for (; d >= 0 && ++at[d] == l->count[d]; d--) {
            to -= (l->count[d] - 1) * l->to[d];
            from -= (uint64_t)((l->count[d] - 1) * l->from[d]);
            at[d] = 0;
        }
        if (d < 0)
            return read_batch(&b, err);
        to += l->to[d];
        from += (uint64_t)l->from[d];
    }
}

rsd_err rsi_reach_copy(rsi_exchange *x, const rsi_pair *pair, const rsi_hop *hop,
                       const rsd_box *box, const rsi_area *to, int64_t elem_bytes, rsd_error *err)
{
    const rsi_remote *v = &pair->view[pair->view_of[hop->seq]];
    rsi_area          from = { .box.ndim = box->ndim };
    rsi_loops         loops;
    unsigned char    *at;
    int64_t           offset;

    x->stats.bytes_reached += rsd_box_count(box) * elem_bytes;
    memcpy(from.box.off, v->off, sizeof(v->off));
    memcpy(from.stride, v->stride, sizeof(v->stride));
    if (v->kind == RSI_REACH_SHARED) {
        from.data = (unsigned char *)(uintptr_t)v->where.word[0] + v->first;
        rsi_copy_box(box, elem_bytes, to, &from);
        return RSD_OK;
    }
    rsi_loops_make(&loops, box->ndim, box->len, elem_bytes, to->stride, from.stride);
    at = to->data + rsi_box_offset(box, &to->box, to->stride);
    offset = v->first + rsi_box_offset(box, &from.box, from.stride);
    return copy_process(&loops, (pid_t)v->where.word[0], at, v->where.word[1] + (uint64_t)offset,
                        err);
}
