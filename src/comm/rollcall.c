/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out which ranks are missing. A rank that times out mostly waits for one that waits itself.
 * So each tells all others that it is here, which ranks it waits for and whose signs of life it has
 * heard lately: the ranks that do not answer are missing, most likely those that are waited for and
 * were not heard. Then the comm is broken with that verdict, which also wakes ranks that come late.
 * This takes one small message between any two ranks, and only after the comm has failed anyway. */
#include "comm/comm.h"
#include "comm/clock.h"
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"

#include <inttypes.h>

#define GRACE_MIN_MS 250
#define GRACE_MAX_MS 10000

#define RANKS_MAX 4096 /* with more, only ranks that this one waits for are named */
#define WAITS_MAX 15   /* that a rank reports */
#define NAMES_MAX 8    /* that a message lists */

typedef struct sign { /* of life */
    int32_t n;
    int32_t wait[WAITS_MAX];
    int32_t heard[RSI_SIGN_LINKS]; /* -1: none */
} sign;

typedef struct roll {
    rsd_comm *comm;
    sign     *seen;    /* [size] from each rank, including this one */
    void    **request; /* [2 * size] receive from r at r, send to r at size + r */
    bool     *waited;  /* [size] a rank that is here waits for it */
    bool     *heard;   /* [size] by a rank that is here: it is slow, not gone */
    int       how;     /* flags of is_missing that select the named ranks */
} roll;

static sign own_sign(const rsd_comm *comm, size_t n, void *const *request, const int32_t *peer)
{
    int64_t now = rsi_comm_clock();
    sign    s = { 0 };
    int32_t last = -1;

    for (int i = 0; i < RSI_SIGN_LINKS; i++) {
        const rsi_sign_link *link = &comm->signs.link[i];
        bool heard = comm->signs.ready && rsi_signs_heard(link, comm->timeout_ms, now);

        s.heard[i] = heard ? link->peer : -1;
    }

    for (size_t i = 0; i < n && s.n < WAITS_MAX; i++) {
        if (!request[i] || peer[i] == last || peer[i] == comm->rank)
            continue;
        last = peer[i];
        s.wait[s.n++] = last;
    }
    return s;
}

static bool is_here(const roll *r, int32_t rank)
{
    return rank == r->comm->rank || !r->request[rank];
}

static bool enough_here(const roll *r)
{
    int32_t here = 0;

    for (int32_t i = 0; i < r->comm->size; i++)
        here += is_here(r, i);
    return here == r->comm->size || here == r->comm->present;
}

/* By how much scheduling and unequal starts may spread the ranks' timeouts: a tenth of the timeout,
 * within limits. */
static int64_t grace(const rsd_comm *comm)
{
    if (comm->grace_ms > 0)
        return comm->grace_ms;
    return rsi_min(rsi_max(comm->timeout_ms / 10, GRACE_MIN_MS), GRACE_MAX_MS);
}

static void mark(const roll *r, const int32_t *rank, int32_t n, bool *out)
{
    for (int32_t i = 0; i < n; i++)
        if (rank[i] >= 0 && rank[i] < r->comm->size)
            out[rank[i]] = true;
}

enum { WAITED = 1, UNHEARD = 2 };

static bool is_missing(const roll *r, int32_t rank, int how)
{
    return !is_here(r, rank) && (!(how & WAITED) || r->waited[rank]) &&
           (!(how & UNHEARD) || !r->heard[rank]);
}

/* Marks the ranks that those here wait for and those they have heard. The ones waited for and
 * silent are named; failing that the silent ones, since a working rank waits for nobody yet. */
static void find_missing(roll *r)
{
    static const int how[] = { WAITED | UNHEARD, UNHEARD, WAITED, 0 };
    const int32_t    size = r->comm->size;
    bool             found = false;

    for (int32_t i = 0; i < size; i++) {
        if (!is_here(r, i))
            continue;
        mark(r, r->seen[i].wait, (int32_t)rsi_min(r->seen[i].n, WAITS_MAX), r->waited);
        mark(r, r->seen[i].heard, RSI_SIGN_LINKS, r->heard);
    }
    for (size_t k = 0; k < sizeof(how) / sizeof(how[0]) && !found; k++) {
        r->how = how[k];
        for (int32_t i = 0; i < size && !found; i++)
            found = is_missing(r, i, r->how);
    }
}

/* Says "here" to all ranks and listens until enough have answered or time is up. An error is that
 * of a rank that reached a verdict earlier. */
static rsd_err call(roll *r, rsd_error *err)
{
    rsd_comm *comm = r->comm;
    int64_t   end = rsi_clock_ms() + grace(comm);
    int32_t   size = comm->size;
    rsd_err   rc = RSD_OK;

    for (int32_t i = 0; i < size && !rc; i++) {
        if (i == comm->rank)
            continue;
        rc = rsi_recv(comm, i, RSI_TAG_ROLLCALL, &r->seen[i], sizeof(sign), &r->request[i], err);
        if (!rc)
            rc = rsi_send(comm, i, RSI_TAG_ROLLCALL, &r->seen[comm->rank], sizeof(sign),
                          &r->request[size + i], err);
    }
    while (!rc) {
        int64_t left = end - rsi_clock_ms();

        if (enough_here(r) || left <= 0)
            return RSD_OK;
        rc = comm->ops.wait_some(comm->self, 2 * (size_t)size, r->request, left, err);
        if (rc == RSD_E_TIMEOUT && err->rank < 0)
            rc = RSD_OK;
    }
    return rc;
}

/* The roll call's missing ranks, or without one the ranks that this one waits for. */
static bool is_named(const roll *r, const sign *own, int32_t rank)
{
    if (r->seen)
        return is_missing(r, rank, r->how);
    for (int32_t w = 0; w < own->n; w++)
        if (own->wait[w] == rank)
            return true;
    return false;
}

static rsd_err verdict(const roll *r, const sign *own, const char *what, rsd_error *err)
{
    const rsd_comm *comm = r->comm;
    char            names[256];
    rsi_text        text = rsi_text_begin(names, sizeof(names));
    int64_t         ms = comm->timeout_ms;
    bool            whole = ms % 1000 == 0;
    int32_t         n = 0, first = -1;

    for (int32_t i = 0; i < comm->size; i++) {
        if (!is_named(r, own, i))
            continue;
        if (n < NAMES_MAX)
            rsi_text_add(&text, "%s%" PRId32, n ? ", " : "", rsi_origin(comm, i));
        first = n ? first : rsi_origin(comm, i);
        n++;
    }
    if (n > NAMES_MAX)
        rsi_text_add(&text, " and %" PRId32 " more", n - NAMES_MAX);
    if (n == 0)
        rsi_fail(err, RSD_E_TIMEOUT,
                 "%s: all ranks are present, but have waited for each other for %" PRId64
                 " %s: they did not call the same things in the same order",
                 what, whole ? ms / 1000 : ms, whole ? "s" : "ms");
    else
        rsi_fail(err, RSD_E_TIMEOUT, "%s: rank%s %s did not come within %" PRId64 " %s", what,
                 n > 1 ? "s" : "", names, whole ? ms / 1000 : ms, whole ? "s" : "ms");
    err->rank = n ? first : rsi_origin(comm, 0);
    err->nfailed = n ? n : comm->size;
    return RSD_E_TIMEOUT;
}

rsd_err rsi_rollcall(rsd_comm *comm, size_t n, void *const *request, const int32_t *peer,
                     const char *what, rsd_error *err)
{
    size_t  size = (size_t)comm->size;
    size_t  bytes = size * (sizeof(sign) + 2 * sizeof(void *) + 2 * sizeof(bool));
    sign    own = own_sign(comm, n, request, peer);
    roll    r = { .comm = comm };
    char   *mem = NULL;
    rsd_err rc = RSD_OK;

    if (comm->size <= RANKS_MAX && !comm->alone)
        mem = rsi_calloc(1, bytes);
    if (mem) {
        r.request = (void **)(void *)mem;
        r.seen = (sign *)(void *)(mem + 2 * size * sizeof(void *));
        r.waited = (bool *)(void *)(r.seen + size);
        r.heard = r.waited + size;
        r.seen[comm->rank] = own;
        rc = call(&r, err);
        find_missing(&r);
    }
    if (rc && err->rank < 0)
        r.seen = NULL; /* not all ranks could be asked */
    if (!rc || err->rank < 0)
        rc = verdict(&r, &own, what, err);
    comm->ops.stop(comm->self, err);
    if (mem && !rsi_drop(comm, 2 * size, r.request) && !comm->stuck)
        comm->stuck = mem;
    else
        rsi_free(mem);
    return rc;
}
