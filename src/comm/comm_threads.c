/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of one process. Each rank has a mailbox with its pending receives and with
 * messages that have no receive yet. A message is copied once, from the sender's memory to the
 * receiver's, by whichever side comes second; only short messages that come first are buffered, so
 * that their sender need not wait. comm_run.c starts the threads.
 *
 * Locks: a box's lock guards its lists and the `done` of requests that its rank owns. No thread
 * holds two box locks; the family's lock is taken before them. Bytes are copied without a lock. */
#include "comm/comm_threads.h"
#include "comm/clock.h"
#include "comm/comm.h"
#include "comm/mailbox.h"
#include "base/free_list.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define EAGER_BYTES 8192 /* longer messages wait for their receiver */
#define SPARE_ROOM  192  /* bytes of a message that fit into a reusable record */

typedef struct box {
    pthread_mutex_t lock;
    pthread_cond_t  ring;    /* a request of this rank is done, or the family is broken */
    rsi_mail_list   asked;   /* receives */
    rsi_mail_list   waiting; /* messages */
    rsi_free_list   spares;  /* records that its rank owns */
    int32_t         number;  /* its rank in the family's first group, for messages */
    _Atomic bool    gone;    /* the rank has closed its end */
} box;

typedef struct family family;

typedef struct group {
    struct group *next; /* in the family */
    family       *family;
    uint64_t      id;     /* in the family */
    uint64_t      parent; /* id of the group it was split from, */
    uint64_t      nth;    /* number of the split there, */
    int32_t       leader; /* and first rank of its list there */
    int32_t       size;
    int32_t       left;  /* ranks that have closed their ends */
    box           box[]; /* [size] */
} group;

/* All groups split from one: they break together and are freed when the last end is closed. */
struct family {
    pthread_mutex_t lock; /* of all below and of the groups' `left` */
    group          *groups;
    uint64_t        made; /* groups so far */
    int32_t         ends; /* open */
    _Atomic bool    broken;
    rsd_error       why; /* set before `broken`, then constant */
};

typedef struct end {
    group   *group;
    int32_t  rank;             /* its box in the group */
    int32_t  as_rank, of_size; /* what its user sees: differs if it plays a rank alone */
    uint64_t splits;           /* so far */
} end;

/* Its group has one box, whatever size it reports. */
static bool plays_alone(const end *me)
{
    return me->of_size > me->group->size;
}

static int32_t box_of(const end *me, int32_t rank)
{
    return rank == me->as_rank ? me->rank : rank;
}

/* ---- records; the box is the owner's, and locked ---- */

static rsi_mail *new_message(box *mine, size_t room)
{
    if (room > SPARE_ROOM)
        return rsi_calloc(1, sizeof(rsi_mail) + room);
    return rsi_free_list_take(&mine->spares, sizeof(rsi_mail) + SPARE_ROOM);
}

static void old_message(box *mine, rsi_mail *m)
{
    if (m->eager && m->bytes > SPARE_ROOM)
        rsi_free(m);
    else
        rsi_free_list_put(&mine->spares, m);
}

static void give_back(group *g, rsi_mail *m)
{
    box *mine = &g->box[m->owner];

    pthread_mutex_lock(&mine->lock);
    old_message(mine, m);
    pthread_mutex_unlock(&mine->lock);
}

/* ---- making and freeing ---- */

static void box_init(box *b)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->ring, &attr);
    pthread_condattr_destroy(&attr);
    b->asked.end = &b->asked.first;
    b->waiting.end = &b->waiting.first;
    atomic_init(&b->gone, false);
}

static group *group_create(family *f, uint64_t parent, uint64_t nth, int32_t leader, int32_t size)
{
    group *g = rsi_calloc(1, sizeof(*g) + (size_t)size * sizeof(g->box[0]));

    if (!g)
        return NULL;
    for (int32_t i = 0; i < size; i++)
        box_init(&g->box[i]);
    g->family = f;
    g->id = ++f->made;
    g->parent = parent;
    g->nth = nth;
    g->leader = leader;
    g->size = size;
    g->next = f->groups;
    f->groups = g;
    return g;
}

static void group_free(group *g)
{
    for (int32_t i = 0; i < g->size; i++) {
        rsi_mail *m = g->box[i].waiting.first;

        while (m) {
            rsi_mail *next = m->next;

            if (m->eager)
                rsi_free(m);
            m = next;
        }
        rsi_free_list_release(&g->box[i].spares);
        pthread_cond_destroy(&g->box[i].ring);
        pthread_mutex_destroy(&g->box[i].lock);
    }
    rsi_free(g);
}

static void family_free(family *f)
{
    while (f->groups) {
        group *next = f->groups->next;

        group_free(f->groups);
        f->groups = next;
    }
    pthread_mutex_destroy(&f->lock);
    rsi_free(f);
}

/* Opens one rank's end; the family's lock is held, or no other thread knows the family yet. */
static end *open_end(group *g, int32_t rank, int32_t number)
{
    end *me = rsi_calloc(1, sizeof(*me));

    if (!me)
        return NULL;
    *me = (end){ .group = g, .rank = rank, .as_rank = rank, .of_size = g->size };
    g->box[rank].number = number;
    g->family->ends++;
    return me;
}

rsd_err rsi_threads_open(int32_t n, void **out, rsd_error *err)
{
    family *f;
    group  *g;
    int32_t made = 0;

    f = rsi_calloc(1, sizeof(*f));
    if (!f)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a comm of %" PRId32 " threads", n);
    pthread_mutex_init(&f->lock, NULL);
    g = group_create(f, 0, 0, 0, n);
    while (g && made < n && (out[made] = open_end(g, made, made)) != NULL)
        made++;
    if (made == n)
        return RSD_OK;
    while (made > 0)
        rsi_free(out[--made]);
    family_free(f);
    return rsi_fail(err, RSD_E_NOMEM, "no memory for a comm of %" PRId32 " threads", n);
}

void rsi_threads_play(void *self, int32_t rank, int32_t size)
{
    end *me = self;

    me->as_rank = rank;
    me->of_size = size;
}

static void wake_all(group *g)
{
    for (int32_t i = 0; i < g->size; i++) {
        pthread_mutex_lock(&g->box[i].lock);
        pthread_cond_broadcast(&g->box[i].ring);
        pthread_mutex_unlock(&g->box[i].lock);
    }
}

static void forget_group(family *f, group *g)
{
    group **at = &f->groups;

    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    group_free(g);
}

static void threads_close(void *self)
{
    end    *me = self;
    group  *g = me->group;
    family *f = g->family;
    bool    last;

    atomic_store(&g->box[me->rank].gone, true);
    pthread_mutex_lock(&f->lock);
    wake_all(g);
    last = --f->ends == 0;
    /* A group that some ranks could not join for lack of memory is freed with the family. */
    if (++g->left == g->size && !last)
        forget_group(f, g);
    pthread_mutex_unlock(&f->lock);
    if (last)
        family_free(f);
    rsi_free(me);
}

/* ---- errors ---- */

static rsd_err broken(const end *me, rsd_error *err)
{
    const family *f = me->group->family;

    if (!atomic_load(&f->broken))
        return RSD_OK;
    *err = f->why;
    return (rsd_err)f->why.code;
}

static void threads_stop(void *self, const rsd_error *why)
{
    end    *me = self;
    family *f = me->group->family;

    pthread_mutex_lock(&f->lock);
    if (!atomic_load(&f->broken)) {
        f->why = *why;
        atomic_store(&f->broken, true);
        for (group *g = f->groups; g; g = g->next)
            wake_all(g);
    }
    pthread_mutex_unlock(&f->lock);
}

static rsd_err compare(const rsi_mail *m, rsd_error *err)
{
    if (m->came == m->bytes)
        return RSD_OK;
    return rsi_fail(err, RSD_E_MISMATCH,
                    "rank %" PRId32 " sent %zu bytes with the tag %" PRId32
                    " where %zu were expected",
                    m->from, m->came, m->tag, m->bytes);
}

/* ---- messages ---- */

static void copy(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

static void set_done(group *g, rsi_mail *m)
{
    box *b = &g->box[m->owner];

    pthread_mutex_lock(&b->lock);
    m->done = true; /* from here on the owner may free it */
    pthread_cond_broadcast(&b->ring);
    pthread_mutex_unlock(&b->lock);
}

static rsd_err threads_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                            void **request, rsd_error *err)
{
    end      *me = self;
    group    *g = me->group;
    box      *b = &g->box[box_of(me, to)], *mine = &g->box[me->rank];
    bool      eager = bytes <= EAGER_BYTES;
    rsi_mail *asked, *m;
    rsd_err   rc = broken(me, err);

    if (rc)
        return rc;
    pthread_mutex_lock(&mine->lock);
    m = new_message(mine, eager ? bytes : 0);
    pthread_mutex_unlock(&mine->lock);
    if (m) {
        *m = (rsi_mail){ .owner = me->rank, .from = me->rank, .tag = tag, .src = data };
        m->to = box_of(me, to);
        m->bytes = m->came = bytes;
        m->eager = eager;
    }
    pthread_mutex_lock(&b->lock);
    asked = rsi_mail_take(&b->asked, me->rank, tag, NULL);
    if (asked) {
        pthread_mutex_unlock(&b->lock);
        if (m)
            give_back(g, m);
        asked->came = bytes;
        copy(asked->dst, data, bytes < asked->bytes ? bytes : asked->bytes);
        set_done(g, asked);
        *request = NULL;
        return RSD_OK;
    }
    if (m && eager) {
        copy(m->data, data, bytes);
        m->src = m->data;
    }
    if (m)
        rsi_mail_put(&b->waiting, m);
    pthread_mutex_unlock(&b->lock);
    if (!m)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a message of %zu bytes", bytes);
    *request = eager ? NULL : m;
    return RSD_OK;
}

static rsd_err threads_recv(void *self, int32_t from, int32_t tag, void *data, size_t bytes,
                            void **request, rsd_error *err)
{
    end      *me = self;
    group    *g = me->group;
    box      *b = &g->box[me->rank];
    rsi_mail *m, *ask = NULL;
    rsd_err   rc = broken(me, err);

    if (rc)
        return rc;
    from = box_of(me, from);
    pthread_mutex_lock(&b->lock);
    m = rsi_mail_take(&b->waiting, from, tag, NULL);
    if (!m) {
        ask = new_message(b, 0);
        if (ask) {
            *ask = (rsi_mail){ .owner = me->rank, .from = from, .to = me->rank, .tag = tag };
            ask->receive = true;
            ask->dst = data;
            ask->bytes = bytes;
            rsi_mail_put(&b->asked, ask);
        }
    }
    pthread_mutex_unlock(&b->lock);
    if (!m && !ask)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to ask for a message of %zu bytes", bytes);
    if (m) {
        rsi_mail got = { .from = from, .tag = tag, .bytes = bytes, .came = m->bytes };

        copy(data, m->src, bytes < m->bytes ? bytes : m->bytes);
        if (m->eager)
            give_back(g, m);
        else
            set_done(g, m);
        rc = compare(&got, err);
        if (rc)
            return rc;
    }
    *request = ask;
    return RSD_OK;
}

/* Sets finished requests to NULL and counts them; the box is locked. */
static rsd_err reap(box *mine, size_t n, void **request, size_t *finished, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    *finished = 0;
    for (size_t i = 0; i < n; i++) {
        rsi_mail *m = request[i];

        if (!m || !m->done)
            continue;
        if (!rc)
            rc = compare(m, err);
        old_message(mine, m);
        request[i] = NULL;
        ++*finished;
    }
    return rc;
}

/* Fails if a pending request depends on a rank that has closed its end; messages that it sent
 * before have been received. */
static rsd_err hopeless(const end *me, size_t n, void *const *request, rsd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const rsi_mail *m = request[i];
        const box      *b;

        if (!m)
            continue;
        b = &me->group->box[m->receive ? m->from : m->to];
        if (atomic_load(&b->gone))
            return rsi_fail(err, RSD_E_COMM, "rank %" PRId32 " has left", b->number);
    }
    return RSD_OK;
}

static bool all_null(size_t n, void *const *request)
{
    for (size_t i = 0; i < n; i++)
        if (request[i])
            return false;
    return true;
}

static struct timespec after_ms(int64_t ms)
{
    int64_t ns = rsi_clock_ns() + ms % 1000 * 1000000;

    return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000 + ms / 1000),
                              .tv_nsec = (long)(ns % 1000000000) };
}

static rsd_err threads_wait_some(void *self, size_t n, void **request, int64_t timeout_ms,
                                 rsd_error *err)
{
    end            *me = self;
    box            *b = &me->group->box[me->rank];
    struct timespec until = after_ms(timeout_ms);
    size_t          finished = 0;
    bool            late = timeout_ms == 0;
    rsd_err         rc;

    if (all_null(n, request))
        return RSD_OK;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        rc = reap(b, n, request, &finished, err);
        if (rc || finished > 0)
            break;
        rc = broken(me, err);
        if (!rc)
            rc = hopeless(me, n, request, err);
        if (rc)
            break;
        if (late) {
            rc = rsi_fail(err, RSD_E_TIMEOUT, "nothing came within %" PRId64 " ms", timeout_ms);
            break;
        }
        late = pthread_cond_timedwait(&b->ring, &b->lock, &until) == ETIMEDOUT;
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

static rsd_err threads_test(void *self, void **request, rsd_error *err)
{
    rsd_err rc = threads_wait_some(self, 1, request, 0, err);

    return rc == RSD_E_TIMEOUT && err->rank < 0 ? RSD_OK : rc;
}

static bool threads_cancel(void *self, void **request)
{
    end      *me = self;
    group    *g = me->group;
    rsi_mail *m = *request;
    box      *b = &g->box[m->to];
    bool      queued;

    pthread_mutex_lock(&b->lock);
    queued = m->queued;
    if (queued)
        rsi_mail_take(m->receive ? &b->asked : &b->waiting, 0, 0, m);
    pthread_mutex_unlock(&b->lock);
    if (!queued) { /* the other side is copying or has finished */
        b = &g->box[me->rank];
        pthread_mutex_lock(&b->lock);
        while (!m->done)
            pthread_cond_wait(&b->ring, &b->lock);
        pthread_mutex_unlock(&b->lock);
    }
    give_back(g, m);
    *request = NULL;
    return true;
}

/* ---- groups, memory ---- */

static rsd_err threads_split(void *self, int32_t n, const int32_t *ranks, void **out,
                             rsd_error *err)
{
    end     *me = self, *mine = NULL;
    family  *f = me->group->family;
    uint64_t nth = me->splits++;
    bool     alone = plays_alone(me);
    int32_t  place = 0;
    group   *g;
    rsd_err  rc = broken(me, err);

    if (rc)
        return rc;
    if (n == 0) {
        *out = NULL;
        return RSD_OK;
    }
    while (ranks[place] != me->as_rank)
        place++;
    /* The first rank to arrive creates the group; the others find it by its parent, split and
     * leader. */
    pthread_mutex_lock(&f->lock);
    for (g = f->groups; g; g = g->next)
        if (g->parent == me->group->id && g->nth == nth && g->leader == ranks[0])
            break;
    if (!g)
        g = group_create(f, me->group->id, nth, ranks[0], alone ? 1 : n);
    if (g)
        mine = open_end(g, alone ? 0 : place, me->group->box[me->rank].number);
    pthread_mutex_unlock(&f->lock);
    if (!mine)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a group of %" PRId32 " threads", n);
    rsi_threads_play(mine, place, n);
    *out = mine;
    return RSD_OK;
}

/* All ranks share one address space. */
static rsd_err threads_expose(void *self, const void *data, size_t bytes, rsd_exposed *out,
                              rsd_error *err)
{
    (void)self;
    (void)err;
    *out = (rsd_exposed){ { (uint64_t)(uintptr_t)data, bytes } };
    return RSD_OK;
}

static rsd_err threads_reach(void *self, int32_t owner, const rsd_exposed *what, void **out,
                             rsd_error *err)
{
    const end *me = self;

    if (plays_alone(me) && owner != me->as_rank)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "rank %" PRId32 " does not exist here", owner);
    *out = (void *)(uintptr_t)what->word[0];
    return RSD_OK;
}

static int32_t threads_rank(void *self)
{
    return ((end *)self)->as_rank;
}

static int32_t threads_count(void *self)
{
    return ((end *)self)->of_size;
}

const rsd_comm_ops rsi_threads_ops = {
    .size = sizeof(rsd_comm_ops),
    .name = "threads",
    .flags = RSD_COMM_THREADS,
    .rank = threads_rank,
    .count = threads_count,
    .send = threads_send,
    .recv = threads_recv,
    .test = threads_test,
    .wait_some = threads_wait_some,
    .cancel = threads_cancel,
    .stop = threads_stop,
    .split = threads_split,
    .expose = threads_expose,
    .reach = threads_reach,
    .close = threads_close,
};
