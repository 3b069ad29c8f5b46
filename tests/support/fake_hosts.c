/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_hosts.h"
#include "base/error.h"
#include "comm/comm_threads.h"
#include "live/exchange.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct end {
    fake_hosts *hosts;
    void       *inner;
    int32_t    *number; /* [count] ranks in the first comm */
} end;

typedef struct one_rank {
    pthread_t thread;
    rsd_err (*fn)(void *arg, rsd_comm *comm, rsd_error *err);
    void     *arg;
    rsd_comm *comm;
    rsd_err   rc;
    rsd_error err;
} one_rank;

static const rsd_comm_ops *const real = &rsi_threads_ops;

static int32_t host_of(const end *e, int32_t rank)
{
    int32_t number = e->number[rank];

    return e->hosts->of ? e->hosts->of[number] : number / e->hosts->per_host;
}

static int32_t rank_of(void *self)
{
    return real->rank(((end *)self)->inner);
}

static int32_t count_of(void *self)
{
    return real->count(((end *)self)->inner);
}

static rsd_err send_to(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                       void **request, rsd_error *err)
{
    end *e = self;

    if (host_of(e, to) != host_of(e, rank_of(e)) && tag != RSI_TAG_SIGN) { /* depend on time */
        atomic_fetch_add(&e->hosts->messages[host_of(e, to)], 1);
        atomic_fetch_add(&e->hosts->bytes[host_of(e, to)], (int64_t)bytes);
        if (tag <= RSI_TAG_MAX && tag % RSI_EXCHANGE_TAGS == TAG_DATA)
            atomic_fetch_add(&e->hosts->moved[host_of(e, to)], (int64_t)bytes);
    }
    return real->send(e->inner, to, tag, data, bytes, request, err);
}

static rsd_err recv_from(void *self, int32_t from, int32_t tag, void *data, size_t bytes,
                         void **request, rsd_error *err)
{
    return real->recv(((end *)self)->inner, from, tag, data, bytes, request, err);
}

static rsd_err test_one(void *self, void **request, rsd_error *err)
{
    return real->test(((end *)self)->inner, request, err);
}

static rsd_err wait_some(void *self, size_t n, void **request, int64_t timeout_ms, rsd_error *err)
{
    return real->wait_some(((end *)self)->inner, n, request, timeout_ms, err);
}

static bool cancel(void *self, void **request)
{
    return real->cancel(((end *)self)->inner, request);
}

static void stop(void *self, const rsd_error *why)
{
    real->stop(((end *)self)->inner, why);
}

static void close_end(void *self)
{
    end *e = self;

    real->close(e->inner);
    free(e->number);
    free(e);
}

static end *make_end(fake_hosts *hosts, void *inner, int32_t n)
{
    end *e = calloc(1, sizeof(*e));

    if (!e)
        abort();
    *e = (end){ .hosts = hosts, .inner = inner, .number = calloc((size_t)n, sizeof(int32_t)) };
    if (!e->number)
        abort();
    return e;
}

static rsd_err split(void *self, int32_t n, const int32_t *ranks, void **out, rsd_error *err)
{
    const end *e = self;
    void      *inner = NULL;
    end       *part;
    rsd_err    rc = real->split(e->inner, n, ranks, &inner, err);

    *out = NULL;
    if (rc || n == 0)
        return rc;
    part = make_end(e->hosts, inner, n);
    for (int32_t i = 0; i < n; i++)
        part->number[i] = e->number[ranks[i]];
    *out = part;
    return RSD_OK;
}

static rsd_err expose(void *self, const void *data, size_t bytes, rsd_exposed *out, rsd_error *err)
{
    const end *e = self;

    return e->hosts->blind ? rsi_fail(err, RSD_E_UNSUPPORTED, "no memory is exposed")
                           : real->expose(e->inner, data, bytes, out, err);
}

static rsd_err reach(void *self, int32_t owner, const rsd_exposed *what, void **out, rsd_error *err)
{
    end *e = self;

    return host_of(e, owner) != host_of(e, rank_of(e))
               ? rsi_fail(err, RSD_E_UNSUPPORTED, "rank %d is on another machine", (int)owner)
               : real->reach(e->inner, owner, what, out, err);
}

static uint64_t host(void *self)
{
    end *e = self;

    return (uint64_t)host_of(e, rank_of(e));
}

static const rsd_comm_ops ops = {
    .size = sizeof(ops),
    .name = "fake hosts",
    .rank = rank_of,
    .count = count_of,
    .send = send_to,
    .recv = recv_from,
    .test = test_one,
    .wait_some = wait_some,
    .cancel = cancel,
    .stop = stop,
    .split = split,
    .expose = expose,
    .reach = reach,
    .close = close_end,
    .host = host,
};

static void *run_rank(void *arg)
{
    one_rank *r = arg;

    r->rc = r->fn(r->arg, r->comm, &r->err);
    rsd_comm_free(r->comm);
    return NULL;
}

/* Makes the comms of all ranks, or none. */
static rsd_err make_comms(fake_hosts *hosts, one_rank *rank, rsd_error *err)
{
    int32_t      made = 0, n = hosts->ranks;
    void       **self = calloc((size_t)n, sizeof(self[0]));
    rsd_err      rc = self ? rsi_threads_open(n, self, err) : RSD_E_NOMEM;
    rsd_comm_ops mine = ops;

    if (rc) {
        free(self);
        return rc;
    }
    for (int32_t r = 0; r < n; r++) {
        end *e = make_end(hosts, self[r], n);

        for (int32_t k = 0; k < n; k++)
            e->number[k] = k;
        self[r] = e;
    }
    mine.flags = hosts->blind ? 0 : RSD_COMM_THREADS;
    while (made < n && !rc) {
        rc = rsd_comm_create_custom(&mine, self[made], &rank[made].comm, err);
        made += !rc;
    }
    for (int32_t r = 0; r < n && rc; r++)
        if (r < made)
            rsd_comm_free(rank[r].comm);
        else
            close_end(self[r]);
    free(self);
    return rc;
}

rsd_err fake_hosts_run(fake_hosts *hosts, rsd_err (*fn)(void *arg, rsd_comm *comm, rsd_error *err),
                       void *arg, rsd_error *err)
{
    one_rank *rank = calloc((size_t)hosts->ranks, sizeof(rank[0]));
    rsd_err   rc = rank ? make_comms(hosts, rank, err) : RSD_E_NOMEM;
    bool      made = !rc;

    for (int32_t r = 0; r < hosts->ranks && made; r++) {
        rank[r].fn = fn;
        rank[r].arg = arg;
        if (pthread_create(&rank[r].thread, NULL, run_rank, &rank[r]) != 0)
            abort();
    }
    for (int32_t r = 0; r < hosts->ranks && made; r++) {
        pthread_join(rank[r].thread, NULL);
        if (rank[r].rc && (!rc || rc == RSD_E_COMM)) {
            rc = rank[r].rc;
            *err = rank[r].err;
        }
    }
    free(rank);
    return rc;
}
