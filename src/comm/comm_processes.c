/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are processes: the operations of a comm, on the wires of processes.h. A rank matches
 * messages with receives in its own memory, like a rank that is a thread (comm_threads.c).
 * processes_meet.c creates the comm. Next: processes_wire.c. */
#include "comm/processes.h"
#include "comm/clock.h"
#include "base/digest.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define EAGER_BYTES  16384 /* longer messages wait for their receiver */
#define STOP_SEND_MS 1000  /* for the last messages of a broken comm to leave */

/* ---- errors ---- */

rsd_err rsi_house_usable(const rsi_house *h, rsd_error *err)
{
    if (!h->broken)
        return RSD_OK;
    *err = h->why;
    return (rsd_err)h->why.code;
}

rsd_err rsi_house_enter(rsi_house *h, rsd_error *err)
{
    rsd_err rc;

    if (h->pid != getpid()) /* another thread of the parent may have held the lock */
        return rsi_fail(err, RSD_E_INVALID,
                        "the comm belongs to process %ld; a child forked from it can't use it",
                        (long)h->pid);
    pthread_mutex_lock(&h->lock);
    rc = rsi_house_usable(h, err);
    if (rc)
        pthread_mutex_unlock(&h->lock);
    return rc;
}

/* Fails if a pending request depends on a rank that has closed its end; messages that it sent
 * before have been received. */
static rsd_err hopeless(const rsi_group *g, size_t n, void *const *request, rsd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const rsi_mail *m = request[i];
        int32_t         peer = m ? m->receive ? m->from : m->to : g->house->rank;
        bool            left = g->house->wire[peer].gone && peer != g->house->rank;

        for (int32_t k = 0; m && k < g->size && !left; k++)
            left = g->left[k] && g->ranks[k] == peer;
        if (left && m)
            return rsi_fail(err, RSD_E_COMM, "rank %" PRId32 " has left", peer);
    }
    return RSD_OK;
}

static rsd_err compare(const rsi_mail *m, size_t came, rsd_error *err)
{
    if (came == m->bytes)
        return RSD_OK;
    return rsi_fail(err, RSD_E_MISMATCH,
                    "rank %" PRId32 " sent %zu bytes with the tag %" PRId32
                    " where %zu were expected",
                    m->from, came, m->tag, m->bytes);
}

/* ---- messages ---- */

static void copy(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

/* A message from this rank to itself. */
static rsd_err send_self(rsi_group *g, const rsi_mail *what, void **request, rsd_error *err)
{
    rsi_house *h = g->house;
    rsi_mail  *asked = rsi_mail_take(&g->asked, h->rank, what->tag, NULL);
    rsi_mail  *m;

    *request = NULL;
    if (asked) {
        asked->came = what->bytes;
        copy(asked->dst, what->src, what->bytes == asked->bytes ? what->bytes : 0);
        asked->done = true;
        return RSD_OK;
    }
    m = rsi_house_mail(h, what->eager ? what->bytes : 0);
    if (!m)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a message of %zu bytes", what->bytes);
    *m = *what;
    if (m->eager) {
        copy(m->data, what->src, what->bytes);
        m->src = m->data;
    } else {
        *request = m;
    }
    rsi_mail_put(&g->waiting, m);
    return RSD_OK;
}

static rsd_err send_wire(rsi_house *h, const rsi_mail *what, void **request, rsd_error *err)
{
    rsi_frame head = { .kind = RSI_FRAME_MAIL, .tag = what->tag, .group = what->group };
    rsi_mail *m = NULL;
    bool      sent;

    head.bytes = what->bytes;
    if (!what->eager) {
        m = rsi_house_mail(h, 0);
        if (!m)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for a message of %zu bytes", what->bytes);
        *m = *what;
        head.kind = RSI_FRAME_OFFER;
        head.number = m->number = ++h->numbers;
        head.at = (uint64_t)(uintptr_t)what->src;
        rsi_mail_put(&h->wire[what->to].offered, m);
    }
    sent = rsi_wire_send(h, what->to, &head, what->src, what->eager ? what->bytes : 0, -1);
    if (sent) {
        *request = m;
        return RSD_OK;
    }
    if (m) {
        rsi_mail_take(&h->wire[what->to].offered, 0, 0, m);
        rsi_house_drop(h, m);
    }
    return rsi_fail(err, RSD_E_NOMEM, "no memory for a message of %zu bytes", what->bytes);
}

static rsd_err processes_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                              void **request, rsd_error *err)
{
    rsi_group *g = self;
    rsi_house *h = g->house;
    rsi_mail   what = { .from = h->rank, .to = g->ranks[to], .tag = tag, .src = data };
    rsd_err    rc;

    what.bytes = what.came = bytes;
    what.eager = bytes <= EAGER_BYTES;
    what.group = g->id;
    rc = rsi_house_enter(h, err);
    if (rc)
        return rc;
    rc = what.to == h->rank ? send_self(g, &what, request, err) : send_wire(h, &what, request, err);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* Hands a message that has come, or was offered, to its receive. */
static rsd_err take_waiting(rsi_house *h, rsi_mail *m, rsi_mail *ask, void **request,
                            rsd_error *err)
{
    if (!m->eager && m->from != h->rank) {
        *request = ask;
        rsi_wire_pull(h, m->from, ask, m->number, m->at, m->bytes);
        rsi_wire_read(h, m->from);
        rsi_house_drop(h, m);
        return RSD_OK;
    }
    *request = NULL;
    ask->came = m->bytes;
    copy(ask->dst, m->eager ? m->data : m->src, m->bytes == ask->bytes ? m->bytes : 0);
    if (m->eager)
        rsi_house_drop(h, m);
    else
        m->done = true;
    return compare(ask, ask->came, err);
}

static rsd_err recv_locked(rsi_group *g, const rsi_mail *what, void **request, rsd_error *err)
{
    rsi_house *h = g->house;
    rsi_mail  *m, *ask;
    rsd_err    rc;

    ask = rsi_house_mail(h, 0);
    if (!ask)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to ask for a message of %zu bytes",
                        what->bytes);
    *ask = *what;
    m = rsi_mail_take(&g->waiting, what->from, what->tag, NULL);
    if (!m) {
        rsi_mail_put(&g->asked, ask);
        *request = ask;
        return RSD_OK;
    }
    rc = take_waiting(h, m, ask, request, err);
    if (!*request)
        rsi_house_drop(h, ask);
    return rc;
}

static rsd_err processes_recv(void *self, int32_t from, int32_t tag, void *data, size_t bytes,
                              void **request, rsd_error *err)
{
    rsi_group *g = self;
    rsi_house *h = g->house;
    rsi_mail   what = { .from = g->ranks[from], .to = h->rank, .tag = tag, .dst = data };
    rsd_err    rc;

    what.bytes = bytes;
    what.receive = true;
    what.group = g->id;
    rc = rsi_house_enter(h, err);
    if (rc)
        return rc;
    rc = recv_locked(g, &what, request, err);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* Sets finished requests to NULL and counts them in *done, the others in *busy. */
static rsd_err reap(rsi_house *h, size_t n, void **request, size_t *busy, size_t *done,
                    rsd_error *err)
{
    rsd_err rc = RSD_OK;

    *busy = *done = 0;
    for (size_t i = 0; i < n; i++) {
        rsi_mail *m = request[i];

        if (!m || !m->done) {
            *busy += m != NULL;
            continue;
        }
        if (!rc && m->receive)
            rc = compare(m, m->came, err);
        rsi_house_drop(h, m);
        request[i] = NULL;
        ++*done;
    }
    return rc;
}

/* The lock is held. */
static rsd_err wait_locked(rsi_group *g, size_t n, void **request, int64_t timeout_ms,
                           rsd_error *err)
{
    rsi_house *h = g->house;
    int64_t    until = rsi_clock_ms() + timeout_ms;
    bool       late = false, once = false;

    for (;;) {
        size_t  busy, done;
        rsd_err rc = reap(h, n, request, &busy, &done, err);

        if (rc || done > 0 || busy == 0)
            return rc;
        rc = rsi_house_usable(h, err);
        if (!rc && once)
            rc = hopeless(g, n, request, err);
        if (rc)
            return rc;
        if (late)
            return rsi_fail(err, RSD_E_TIMEOUT, "nothing came within %" PRId64 " ms", timeout_ms);
        rsi_house_pump(h, once ? until : 0);
        late = once && rsi_clock_ms() >= until;
        if (!once && timeout_ms == 0)
            late = true;
        once = true;
    }
}

static rsd_err processes_wait_some(void *self, size_t n, void **request, int64_t timeout_ms,
                                   rsd_error *err)
{
    rsi_group *g = self;
    rsi_house *h = g->house;
    rsd_err    rc;

    if (h->pid != getpid())
        return rsi_house_enter(h, err);
    pthread_mutex_lock(&h->lock); /* a broken comm still reports what had finished */
    rc = wait_locked(g, n, request, timeout_ms, err);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

static rsd_err processes_test(void *self, void **request, rsd_error *err)
{
    rsd_err rc = processes_wait_some(self, 1, request, 0, err);

    return rc == RSD_E_TIMEOUT && err->rank < 0 ? RSD_OK : rc;
}

static bool processes_cancel(void *self, void **request)
{
    rsi_group *g = self;
    rsi_house *h = g->house;
    bool       gone;

    if (h->pid != getpid()) {
        *request = NULL;
        return true;
    }
    pthread_mutex_lock(&h->lock);
    gone = rsi_wire_withdraw(h, *request);
    if (gone) {
        rsi_house_drop(h, *request);
        *request = NULL;
    }
    pthread_mutex_unlock(&h->lock);
    return gone;
}

static void processes_stop(void *self, const rsd_error *why)
{
    rsi_house *h = ((rsi_group *)self)->house;

    if (h->pid != getpid())
        return;
    pthread_mutex_lock(&h->lock);
    rsi_house_break(h, why);
    pthread_mutex_unlock(&h->lock);
}

/* ---- groups ---- */

rsi_group *rsi_group_open(rsi_house *h, uint64_t id, int32_t rank, int32_t n, const int32_t *ranks)
{
    rsi_group *g = rsi_calloc(1, sizeof(*g));
    int32_t   *list = rsi_calloc((size_t)n, sizeof(list[0]));
    bool      *left = rsi_calloc((size_t)n, sizeof(left[0]));

    if (!g || !list || !left) {
        rsi_free(g);
        rsi_free(list);
        rsi_free(left);
        return NULL;
    }
    *g = (rsi_group){ .house = h, .id = id, .rank = rank, .size = n, .ranks = list, .left = left };
    for (int32_t i = 0; i < n; i++) {
        list[i] = ranks[i];
        left[i] = h->wire[ranks[i]].left;
    }
    g->asked.end = &g->asked.first;
    g->waiting.end = &g->waiting.first;
    g->next = h->groups;
    h->groups = g;
    h->ends++;
    return g;
}

static rsd_err processes_split(void *self, int32_t n, const int32_t *ranks, void **out,
                               rsd_error *err)
{
    rsi_group *g = self, *made = NULL;
    rsi_house *h = g->house;
    uint64_t   id[3] = { g->id, ++g->splits, n > 0 ? (uint64_t)ranks[0] : 0 };
    int32_t   *list; /* [n] in the first group */
    int32_t    place = 0;
    rsd_err    rc = rsi_house_enter(h, err);

    if (rc)
        return rc;
    list = rsi_calloc((size_t)n, sizeof(list[0]));
    for (int32_t i = 0; i < n && list; i++) {
        list[i] = g->ranks[ranks[i]];
        place = list[i] == h->rank ? i : place;
    }
    if (n > 0 && list)
        made = rsi_group_open(h, rsi_digest(1, id, sizeof(id)), place, n, list);
    pthread_mutex_unlock(&h->lock);
    rsi_free(list);
    if (n > 0 && !made)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a group of %" PRId32 " ranks", n);
    *out = made;
    return RSD_OK;
}

static int32_t processes_rank(void *self)
{
    return ((rsi_group *)self)->rank;
}

static int32_t processes_count(void *self)
{
    return ((rsi_group *)self)->size;
}

/* ---- closing ---- */

static bool all_sent(const rsi_house *h)
{
    for (int32_t r = 0; r < h->size; r++)
        if (!rsi_wire_empty(&h->wire[r]) && !h->wire[r].deaf)
            return false;
    return true;
}

/* Waits until the sockets have taken everything. */
static bool send_all(rsi_house *h, int64_t timeout_ms)
{
    int64_t until = rsi_clock_ms() + timeout_ms;

    while (!all_sent(h)) {
        if (rsi_clock_ms() >= until)
            return false;
        rsi_house_pump(h, until);
    }
    return true;
}

static void free_list(rsi_house *h, rsi_mail_list *list, uint64_t group, bool all)
{
    rsi_mail *m = list->first;

    while (m) {
        rsi_mail *next = m->next;

        if (all || m->group == group) {
            rsi_mail_take(list, 0, 0, m);
            rsi_house_drop(h, m);
        }
        m = next;
    }
}

/* Requests are left over only on a broken comm, and nobody looks at them again. */
static void forget_mail(rsi_group *g)
{
    rsi_house *h = g->house;

    for (int32_t r = 0; r < h->size; r++) {
        rsi_wire *w = &h->wire[r];

        if (w->into && w->into->group == g->id) {
            rsi_house_drop(h, w->into);
            w->into = NULL;
            w->dst = NULL;
        }
        if (w->part_of && w->part_of->group == g->id)
            w->part_of = NULL;
        free_list(h, &w->offered, g->id, false);
        free_list(h, &w->streams, g->id, false);
        free_list(h, &w->filling, g->id, false);
        free_list(h, &w->settling, g->id, false);
    }
    free_list(h, &g->asked, 0, true);
    free_list(h, &g->waiting, 0, true);
}

static void say_left(rsi_group *g)
{
    rsi_house      *h = g->house;
    const rsi_frame head = { .kind = RSI_FRAME_LEFT, .group = g->id };

    if (g->said_left)
        return;
    g->said_left = true;
    for (int32_t i = 0; i < g->size; i++) {
        if (g->ranks[i] == h->rank)
            continue;
        if (h->broken) /* the rank that broke it may be slower to tell than this one to leave */
            rsi_wire_tell(h, g->ranks[i]);
        rsi_wire_send(h, g->ranks[i], &head, NULL, 0, -1);
    }
}

void rsi_house_free(rsi_house *h)
{
    for (int32_t r = 0; r < h->size && h->wire; r++)
        rsi_wire_close(h, r);
    if (h->poll_fd >= 0)
        close(h->poll_fd);
    if (h->wake_fd >= 0)
        close(h->wake_fd);
    rsi_free_list_release(&h->spares);
    rsi_free(h->wire);
    rsi_free(h->buffer);
    pthread_cond_destroy(&h->change);
    pthread_mutex_destroy(&h->lock);
    if (h->meeting.hangup)
        h->meeting.hangup(h->meeting.arg, h->broken);
    rsi_free(h);
}

/* So that peers notice when the parent ends. */
static void close_copies(rsi_house *h)
{
    for (int32_t r = 0; r < h->size; r++) {
        if (h->wire[r].fd >= 0)
            close(h->wire[r].fd);
        h->wire[r].fd = -1;
    }
}

static void processes_close(void *self)
{
    rsi_group  *g = self;
    rsi_house  *h = g->house;
    rsi_group **at = &h->groups;
    bool        last;

    if (h->pid != getpid()) { /* the parent's; only the descriptors are closed */
        close_copies(h);
        return;
    }
    pthread_mutex_lock(&h->lock);
    say_left(g);
    forget_mail(g);
    rsi_shared_memory_free(&g->memory);
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    last = --h->ends == 0;
    if (last)
        send_all(h, h->broken ? STOP_SEND_MS : 0);
    pthread_mutex_unlock(&h->lock);
    rsi_free(g->ranks);
    rsi_free(g->left);
    rsi_free(g);
    if (last)
        rsi_house_free(h);
}

/* What waits for room in a socket would be lost: the last close waits for it here. */
static rsd_err processes_meet(void *self, int64_t timeout_ms, rsd_error *err)
{
    rsi_group *g = self;
    rsi_house *h = g->house;
    rsd_err    rc;

    rc = rsi_house_enter(h, err);
    if (rc || h->ends > 1) {
        if (!rc)
            pthread_mutex_unlock(&h->lock);
        return rc;
    }
    say_left(g);
    if (!send_all(h, timeout_ms))
        rc = rsi_fail(err, RSD_E_TIMEOUT, "freeing the comm: messages were not taken");
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* The lowest rank of the machine, as connections told. */
static uint64_t processes_host(void *self)
{
    const rsi_house *h = ((const rsi_group *)self)->house;
    int32_t          r = 0;

    while (r < h->rank && !h->wire[r].near)
        r++;
    return (uint64_t)r;
}

const rsd_comm_ops rsi_processes_ops = {
    .size = sizeof(rsd_comm_ops),
    .name = "processes",
    .rank = processes_rank,
    .count = processes_count,
    .send = processes_send,
    .recv = processes_recv,
    .test = processes_test,
    .wait_some = processes_wait_some,
    .cancel = processes_cancel,
    .stop = processes_stop,
    .split = processes_split,
    .alloc = rsi_processes_alloc,
    .dealloc = rsi_processes_dealloc,
    .expose = rsi_processes_expose,
    .reach = rsi_processes_reach,
    .close = processes_close,
    .meet = processes_meet,
    .host = processes_host,
};
