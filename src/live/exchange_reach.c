/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of other ranks: which of it can be read, the tables that describe where a rank's views
 * lie, and the copies. A sender that can't expose everything a peer needs uses messages instead,
 * and says so before anything moves. */
#include "base/mem.h"
#include "live/exchange.h"
#include "shape/box.h"

#include <string.h>

#define TABLE_OF  16   /* a table has at most one byte per this many that it helps to move, */
#define TABLE_MIN 4096 /* or this many bytes */
#define ROOMS_FOR 128  /* shortest messages that a rank sends make rooms worth having */

/* ---- probing ---- */

/* What each rank exposes of itself. */
typedef struct token {
    rsd_exposed shown;
    uint64_t    memory;
    uint64_t    host;     /* rsi_host_id */
    int64_t     sends;    /* bytes */
    uint8_t     shows;    /* `shown` is set */
    uint8_t     hides;    /* some views can't be exposed */
    uint8_t     direct;   /* 0: this rank wants messages */
    uint8_t     readable; /* its targets can be read back */
    uint8_t     busy;     /* its room is in use */
} token;

/* The ranks that send to one or receive from it, the farthest of them. */
enum { APART, REACHED, NEAR }; /* on another machine; there, but it can be read; on its own */

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

/* What is found out about peers. */
typedef struct trial {
    rsi_exchange *x;
    const token  *all; /* [comm->size] */
    bool          direct;
    int64_t      *reach, *where;
} trial;

/* Tests whether a rank's memory can be read, and where it is. */
static void try_peer(const trial *t, int32_t rank)
{
    const token *peer = &t->all[rank];
    bool         reached = false;
    void        *at;

    if (t->direct && peer->shows)
        reached = rsi_reach(t->x->comm, rank, &peer->shown, &at, NULL) == RSD_OK;
    if (peer->shows && !reached)
        *t->reach = 0;
    if (peer->host != t->all[t->x->plan->rank].host && *t->where != APART)
        *t->where = reached ? REACHED : APART;
}

/* A rank on another machine from which a piece might be passed on. */
static bool try_mate(void *arg, int32_t rank)
{
    const trial *t = arg;

    if (t->all[rank].host != t->all[t->x->plan->rank].host)
        try_peer(t, rank);
    return *t->where != APART;
}

/* Tests which of the ranks that send to this one it can read, and where they are. */
static void try_peers(rsi_exchange *x, const token *all, int64_t *reach, int64_t *where)
{
    const rsd_plan *plan = x->plan;
    trial           t = { x, all, *reach, reach, where };
    bool            several = false;

    for (int32_t r = 0; r < x->comm->size; r++)
        several = several || all[r].host != all[0].host;
    for (size_t p = 0; p < plan->npeers; p++)
        try_peer(&t, plan->peer[p]);
    if (several && *where != APART)
        rsi_route_mates(plan, try_mate, &t);
}

static void number_hosts(rsi_exchange *x, const token *all, rsi_place *place)
{
    for (int32_t r = 0; r < x->comm->size; r++)
        place[r] = (rsi_place){ all[r].host, r };
    x->hosts = rsi_hosts_number(place, x->comm->size, x->host_of);
}

/* Keeps the ranks' machines if a piece may have to go from one to another. Then all use messages:
 * the route has other peers than the plan, whose memory nobody has tried to read. */
static void keep_hosts(rsi_exchange *x, const token *all, int64_t where, rsi_place *place)
{
    if (where == NEAR || (where == REACHED && x->reach)) {
        rsi_free(x->host_of);
        x->host_of = NULL;
        return;
    }
    x->reach = false;
    number_hosts(x, all, place);
}

/* What follows from the tokens. Rooms are opened once it pays, if any two ranks are neighbours. */
static rsd_err learn(rsi_exchange *x, const token *all, rsi_place *place, rsd_error *err)
{
    rsd_comm *comm = x->comm;
    bool      direct = true, shown = false, worth = comm->rooms_known, busy = false, hidden = false;
    rsd_err   rc = RSD_OK;

    for (int32_t r = 0; r < x->comm->size; r++) {
        x->memory = all[r].memory < x->memory ? (size_t)all[r].memory : x->memory;
        x->readable = x->readable && all[r].readable;
        direct = direct && all[r].direct;
        shown = shown || all[r].shows;
        hidden = hidden || all[r].hides;
        busy = busy || all[r].busy;
        worth = worth || all[r].sends >= ROOMS_FOR * (int64_t)rsi_exchange_room_least;
    }
    x->reach = direct && shown;
    if (!direct || !hidden || !worth || busy)
        return RSD_OK;
    number_hosts(x, all, place);
    if (x->hosts == x->comm->size)
        return RSD_OK;
    rc = rsi_rooms_open(x->comm, err);
    x->rooms = comm->rooms_busy = !rc && comm->rooms;
    return rc;
}

rsd_err rsi_reach_probe(rsi_exchange *x, rsd_error *err)
{
    size_t     size = (size_t)x->comm->size;
    token      mine = { .memory = x->memory,
                        .sends = x->plan->stats.bytes_sent,
                        .direct = !x->no_direct,
                        .readable = 1,
                        .busy = x->comm->rooms_busy };
    token     *all = rsi_calloc(size, sizeof(all[0]));
    rsi_place *place = rsi_calloc(size, sizeof(place[0]));
    int64_t    can[2] = { 1, NEAR }; /* reach, where the peers are */
    bool       enough;
    rsd_err    rc;

    mine.host = size > 1 ? rsi_host_id(x->comm) : 0;
    x->host_of = rsi_calloc(size, sizeof(x->host_of[0]));
    enough = all && place && x->host_of;
    x->readable = true;
    for (size_t t = 0; t < x->plan->n; t++) {
        show(x, &x->src[t], &mine);
        show(x, &x->dst[t], &mine);
        mine.readable = mine.readable && rsi_views_readable(&x->dst[t]);
    }
    rc = rsi_agree(x->comm, enough ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory to compare"),
                   err);
    if (!rc)
        rc = rsi_allgather(x->comm, &mine, sizeof(mine), all, err);
    if (!rc)
        rc = learn(x, all, place, err);
    can[0] = x->reach;
    if (!rc)
        try_peers(x, all, &can[0], &can[1]);
    if (!rc)
        rc = rsi_allreduce(x->comm, RSI_OP_MIN, can, 2, err);
    x->reach = can[0];
    if (!rc)
        keep_hosts(x, all, can[1], place);
    rsi_free(place);
    rsi_free(all);
    return rc;
}

/* ---- tables ---- */

/* Numbers the hops of each pair. `copies`: the pair is read through them. */
static void add_pairs(rsi_pairs *pairs, rsi_hops *hops, int32_t me, bool copies)
{
    for (size_t i = 0; i < hops->n; i++) {
        int32_t peer = hops->at[i].peer;

        if (peer == me)
            continue;
        if (pairs->of_rank[peer] == 0) {
            pairs->at[pairs->n] = (rsi_pair){ .peer = peer, .first = copies ? i : SIZE_MAX };
            pairs->of_rank[peer] = (int32_t)++pairs->n;
        }
        hops->at[i].seq = rsi_pair_of(pairs, peer)->nhops++;
    }
}

static bool make_pairs(rsi_exchange *x, rsi_pairs *pairs, rsi_hops *copies, rsi_hops *then)
{
    /* At most one pair per rank, and no more pairs than hops. */
    size_t most = copies->n + (then ? then->n : 0), size = (size_t)x->comm->size;

    pairs->at = rsi_arena_array(&x->mem, most < size ? most : size, sizeof(pairs->at[0]));
    pairs->of_rank = rsi_arena_array(&x->mem, size, sizeof(pairs->of_rank[0]));
    if (!pairs->at || !pairs->of_rank)
        return false;
    add_pairs(pairs, copies, x->comm->rank, true);
    if (then)
        add_pairs(pairs, then, x->comm->rank, false);
    return true;
}

/* Sets where the parts of a table lie; returns its bytes. */
static size_t place_table(rsi_pair *pair, void *table)
{
    size_t numbers = (pair->nhops * sizeof(uint32_t) + 7) / 8 * 8;

    pair->view_of = table;
    pair->view = table ? (void *)((char *)table + numbers) : NULL;
    return numbers + pair->head.nviews * sizeof(pair->view[0]);
}

/* Describes a view for the other ranks. False: they can't read it. */
static bool describe(rsi_exchange *x, const rsd_view *view, int64_t elem_bytes, rsi_remote *out)
{
    size_t               bytes;
    const unsigned char *at = rsi_view_extent(view, elem_bytes, &bytes, &out->first);

    memcpy(out->off, view->box.off, sizeof(out->off));
    memcpy(out->stride, view->stride, sizeof(out->stride));
    return rsi_expose(x->comm, at, bytes, &out->where, NULL) == RSD_OK;
}

/* State for making a phase's tables. */
typedef struct making {
    rsi_exchange    *x;
    int              phase;
    const rsi_views *views; /* [plan->n] */
    size_t          *first; /* [plan->n] number of a tensor's first view among all */
    uint64_t        *entry; /* [views] a view's place in the table, after `base`, which rises */
    uint64_t         base;
    rsi_pair        *pair;
    void            *table; /* of the pair, [most] bytes */
    size_t           most;
    int64_t          bytes; /* that it helps to move */
} making;

/* Adds the view of a hop to the table unless already present. False: the table can't cover it. */
static bool add_hop(making *m, const rsi_hop *hop)
{
    const rsi_views *views = &m->views[hop->tensor];
    rsi_pair        *pair = m->pair;
    rsd_box          box;
    size_t           my_box = rsi_hop_box(&m->x->route, hop, m->phase == 0, &box);
    const rsd_view  *view = rsi_views_find(views, &box, my_box);
    uint64_t        *entry;

    m->bytes += rsd_box_count(&box) * views->elem_bytes;
    pair->view_of[hop->seq] = 0;
    if (rsd_box_count(&box) == 0)
        return true;
    if (!view || !view->data)
        return false;
    entry = &m->entry[m->first[hop->tensor] + (size_t)(view - views->view)];
    if (*entry <= m->base) {
        rsi_remote *fresh = &pair->view[pair->head.nviews++];

        if (place_table(pair, pair->view_of) > m->most ||
            !describe(m->x, view, views->elem_bytes, fresh))
            return false;
        *entry = m->base + pair->head.nviews;
    }
    pair->view_of[hop->seq] = (uint32_t)(*entry - m->base - 1);
    return true;
}

static bool add_hops(making *m, const rsi_hops *hops)
{
    for (size_t i = 0; i < hops->n; i++)
        if (hops->at[i].peer == m->pair->peer && !add_hop(m, &hops->at[i]))
            return false;
    return true;
}

/* Makes the table of what I send to one peer. Without it the pair uses messages. False: no
 * memory. */
static bool make_table(making *m, rsi_pair *pair)
{
    const rsi_route *r = &m->x->route;
    size_t           bytes;
    void            *table = NULL;

    m->pair = pair;
    m->bytes = 0;
    m->base += UINT32_MAX;
    if (place_table(pair, m->table) <= m->most && add_hops(m, &r->send[m->phase]) &&
        (m->phase || add_hops(m, &r->give)))
        pair->head.direct = 1;
    bytes = place_table(pair, m->table);
    if (bytes > TABLE_MIN && (int64_t)bytes > m->bytes / TABLE_OF)
        pair->head.direct = 0;
    if (!pair->head.direct) {
        pair->head.nviews = 0;
        return true;
    }
    table = rsi_arena_array(&m->x->mem, 1, bytes);
    if (table)
        memcpy(table, m->table, bytes);
    place_table(pair, table);
    return table;
}

/* Makes all tables of one phase. */
static bool make_tables(rsi_exchange *x, int phase)
{
    rsi_arena mem = { 0 };
    making    m = { .x = x, .phase = phase, .views = phase ? x->dst : x->src };
    size_t    all = 0, hops = 0, most;
    bool      ok;

    m.first = rsi_arena_array(&mem, x->plan->n, sizeof(m.first[0]));
    for (size_t t = 0; t < x->plan->n && m.first; t++) {
        m.first[t] = all;
        all += m.views[t].n;
    }
    for (size_t i = 0; i < x->out[phase].n; i++)
        hops = hops > x->out[phase].at[i].nhops ? hops : x->out[phase].at[i].nhops;
    m.most = x->memory / (4 * (size_t)x->comm->size);
    m.most = m.most > TABLE_MIN ? m.most : TABLE_MIN;
    m.entry = rsi_arena_array(&mem, all, sizeof(m.entry[0]));
    most = (hops + 1) * (sizeof(rsi_remote) + sizeof(uint32_t));
    m.table = rsi_arena_array(&mem, 1, most < m.most ? most : m.most);
    ok = m.first && m.entry && m.table;
    for (size_t i = 0; i < x->out[phase].n && ok; i++)
        ok = make_table(&m, &x->out[phase].at[i]);
    rsi_arena_release(&mem);
    return ok;
}

rsd_err rsi_tables_make(rsi_exchange *x, rsd_error *err)
{
    rsi_route *r = &x->route;
    bool       ok = true;

    for (int p = 0; p < 2 && ok; p++)
        ok = make_pairs(x, &x->in[p], &r->recv[p], p ? NULL : &r->take) &&
             make_pairs(x, &x->out[p], &r->send[p], p ? NULL : &r->give);
    for (int p = 0; p < 2 && ok && x->reach; p++)
        ok = make_tables(x, p);
    return ok ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for the tables of an exchange");
}

/* ---- exchanging tables ---- */

/* Starts one message with every pair: its head, or its table if it has one. */
static rsd_err tell(rsi_exchange *x, bool head, rsd_error *err)
{
    const rsi_pairs *const all[] = { &x->in[0], &x->in[1], &x->out[0], &x->out[1] };
    int32_t                tag = x->tag + (head ? TAG_HEAD : TAG_TABLE);
    rsd_err                rc = RSD_OK;

    for (int k = 0; k < 4; k++)
        for (rsi_pair *pair = all[k]->at; pair < all[k]->at + all[k]->n && !rc; pair++) {
            void  *data = head ? (void *)&pair->head : pair->view_of;
            size_t bytes = head ? sizeof(pair->head) : place_table(pair, data);

            if (!head && !pair->head.direct)
                continue;
            rc = k < 2 ? rsi_recv(x->comm, pair->peer, tag, data, bytes, pair->request, err)
                       : rsi_send(x->comm, pair->peer, tag, data, bytes, pair->request, err);
            if (k == 1 && !head && !rc) /* the peer's target is complete only when it says so */
                rc =
                    rsi_recv(x->comm, pair->peer, x->tag + TAG_GO, NULL, 0, &pair->request[1], err);
        }
    return rc;
}

/* Allocates the announced tables. */
static rsd_err take_heads(rsi_exchange *x, rsd_error *err)
{
    for (int p = 0; p < 2; p++)
        for (rsi_pair *pair = x->in[p].at; pair < x->in[p].at + x->in[p].n; pair++) {
            size_t bytes = place_table(pair, NULL);

            if (pair->head.direct)
                place_table(pair, rsi_arena_array(&x->mem, 1, bytes));
            if (pair->head.direct && !pair->view_of)
                return rsi_fail(err, RSD_E_NOMEM, "no memory for a table of %zu bytes", bytes);
        }
    return RSD_OK;
}

rsd_err rsi_tables_start(rsi_exchange *x, rsd_error *err)
{
    rsd_err rc;

    if (!x->reach)
        return RSD_OK;
    rc = tell(x, true, err);
    if (!rc)
        rc = rsi_wait_all(x->comm, x->nrequests, x->request, x->peer, "reshard", err);
    rc = rsi_break(x->comm, rc, err);
    if (!rc)
        rc = rsi_agree(x->comm, take_heads(x, err), err);
    return rc ? rc : rsi_break(x->comm, tell(x, false, err), err);
}

bool rsi_table_ready(rsi_exchange *x, rsi_pair *pair)
{
    if (pair->request[0])
        return false;
    for (uint32_t i = 0; i < pair->head.nviews && !pair->ready; i++) {
        rsi_remote *v = &pair->view[i];
        void       *at = NULL;
        rsd_error   err;

        rsi_exchange_note(x, rsi_reach(x->comm, pair->peer, &v->where, &at, &err), &err, SIZE_MAX);
        v->where.word[0] = (uint64_t)(uintptr_t)at;
    }
    return pair->ready = true;
}

/* ---- copies ---- */

void rsi_reach_area(const rsi_exchange *x, const rsi_pair *pair, const rsi_hop *hop, rsi_area *from)
{
    const rsi_remote *v = &pair->view[pair->view_of[hop->seq]];

    from->box.ndim = x->plan->src[hop->tensor]->ndim;
    memcpy(from->box.off, v->off, sizeof(v->off));
    memcpy(from->stride, v->stride, sizeof(v->stride));
    from->data = (unsigned char *)(uintptr_t)v->where.word[0] + v->first;
}
