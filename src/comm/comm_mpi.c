/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the MPI transport. Only the comm_mpi*.c files call MPI, and its int counts stay
 * here. They depend only on base/ and rsd_comm_ops, since they are built once per MPI, as a library
 * that mpi_plugin.c loads or that programs link. comm_mpi_memory.c has the memory that ranks of one
 * machine share, comm_mpi_open.c how a comm begins. */
#include "comm/comm_mpi_end.h"
#include "comm/comm_mpi.h"
#include "comm/clock.h"
#include "base/free_list.h"

#include <inttypes.h>
#include <sched.h>
#include <time.h>

size_t rsi_mpi_part_bytes = (size_t)1 << 30;

#define SPIN_ROUNDS  2000 /* polls before yielding, if there are enough cores */
#define YIELD_MS     20   /* then it sleeps between polls: nothing comes soon */
#define SLEEP_NS     100000
#define CANCEL_MS    1000 /* for a receive that is being filled */
#define STOP_SEND_MS 1000 /* for the last messages of a broken comm to leave */

/* A message in parts; each is an MPI request. */
typedef struct message {
    bool        receive;
    int32_t     peer, tag;
    size_t      bytes, part_bytes;
    size_t      room;    /* capacity in parts */
    size_t      n, next; /* parts, and the first unfinished one */
    MPI_Request part[];
} message;

/* ---- errors ---- */

rsd_err rsi_mpi_fail(int code, const char *what, rsd_error *err)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int  len = 0;

    if (MPI_Error_string(code, text, &len) != MPI_SUCCESS)
        len = 0;
    text[len] = '\0';
    return rsi_fail(err, RSD_E_COMM, "%s: %s", what, text);
}

rsd_err rsi_mpi_broken(rsi_mpi_end *me, rsd_error *err)
{
    rsi_mpi_family *f = me->family;
    int             came = 0;

    if (!f->broken && MPI_Test(&f->listen, &came, MPI_STATUS_IGNORE) == MPI_SUCCESS && came) {
        f->broken = true;
        f->why = f->heard;
    }
    if (!f->broken)
        return RSD_OK;
    *err = f->why;
    return (rsd_err)f->why.code;
}

/* All ranks listen for this message on a communicator of its own. */
static void mpi_stop(void *self, const rsd_error *why)
{
    rsi_mpi_end    *me = self;
    rsi_mpi_family *f = me->family;
    rsd_error       before;

    if (rsi_mpi_broken(me, &before))
        return;
    f->broken = true;
    f->why = *why;
    for (int r = 0; r < f->size; r++)
        if (r != f->rank && MPI_Isend(&f->why, (int)sizeof(f->why), MPI_BYTE, r, 0, f->control,
                                      &f->told[r]) != MPI_SUCCESS)
            f->told[r] = MPI_REQUEST_NULL;
}

int rsi_mpi_settle(int code, MPI_Request *request)
{
    int done = 0;

    while (code == MPI_SUCCESS && !done) {
        code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (!done)
            sched_yield();
    }
    return code;
}

bool rsi_mpi_all(MPI_Comm comm, bool did)
{
    MPI_Request request;
    int         mine = did, all = 0;
    int         code = MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm, &request);

    return rsi_mpi_settle(code, &request) == MPI_SUCCESS && all;
}

/* ---- messages ---- */

static size_t part_at(const message *m, size_t i)
{
    size_t rest = m->bytes - i * m->part_bytes;

    return rest < m->part_bytes ? rest : m->part_bytes;
}

static rsd_err post(rsi_mpi_end *me, message *m, char *data, rsd_error *err)
{
    for (size_t i = 0; i < m->n; i++) {
        char *at = data ? data + i * m->part_bytes : NULL;
        int   count = (int)part_at(m, i), code;

        code = m->receive ? MPI_Irecv(at, count, MPI_BYTE, m->peer, m->tag, me->comm, &m->part[i])
                          : MPI_Isend(at, count, MPI_BYTE, m->peer, m->tag, me->comm, &m->part[i]);
        if (code != MPI_SUCCESS) {
            m->part[i] = MPI_REQUEST_NULL;
            m->n = i;
            return rsi_mpi_fail(code, m->receive ? "MPI_Irecv" : "MPI_Isend", err);
        }
    }
    return RSD_OK;
}

static rsd_err mismatch(const message *m, const char *how, rsd_error *err)
{
    return rsi_fail(err, RSD_E_MISMATCH,
                    "rank %" PRId32 " sent %s bytes with the tag %" PRId32
                    " than the %zu that were expected",
                    m->peer, how, m->tag, m->bytes);
}

static void old_message(rsi_mpi_end *me, message *m)
{
    if (m->room > 1)
        rsi_free(m);
    else
        rsi_free_list_put(&me->spares, m);
}

/* True: all parts have finished, with *rc as the result. */
static bool finished(message *m, rsd_err *rc, rsd_error *err)
{
    for (; m->next < m->n; m->next++) {
        MPI_Status status;
        int        done = 0, count = 0, class = 0;
        int        code = MPI_Test(&m->part[m->next], &done, &status);

        if (code != MPI_SUCCESS) {
            MPI_Error_class(code, &class);
            *rc = class == MPI_ERR_TRUNCATE ? mismatch(m, "more", err)
                                            : rsi_mpi_fail(code, "MPI_Test", err);
            m->part[m->next] = MPI_REQUEST_NULL;
            continue;
        }
        if (!done)
            return false;
        if (!m->receive || *rc)
            continue;
        MPI_Get_count(&status, MPI_BYTE, &count);
        if (count < 0 || (size_t)count != part_at(m, m->next))
            *rc = mismatch(m, "fewer", err);
    }
    return true;
}

static bool mpi_cancel(void *self, void **request)
{
    message  *m = *request;
    int64_t   end = rsi_clock_ms() + CANCEL_MS;
    rsd_error err;
    rsd_err   rc = RSD_OK;

    /* Sends can't be cancelled: neither MPI supports it. Short ones have left by now. */
    for (size_t i = m->next; i < m->n && m->receive; i++)
        if (m->part[i] != MPI_REQUEST_NULL)
            MPI_Cancel(&m->part[i]);
    while (!finished(m, &rc, &err)) {
        if (!m->receive || rsi_clock_ms() > end)
            return false;
        sched_yield();
    }
    old_message(self, m);
    *request = NULL;
    return true;
}

static rsd_err start(rsi_mpi_end *me, bool receive, int32_t peer, int32_t tag, char *data,
                     size_t bytes, void **request, rsd_error *err)
{
    size_t   limit = rsi_mpi_part_bytes;
    size_t   n = bytes ? (bytes - 1) / limit + 1 : 1;
    message *m;
    rsd_err  rc = rsi_mpi_broken(me, err);

    if (rc)
        return rc;
    m = n > 1 ? rsi_calloc(1, sizeof(*m) + n * sizeof(m->part[0]))
              : rsi_free_list_take(&me->spares, sizeof(*m) + sizeof(m->part[0]));
    if (!m)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a message of %zu bytes", bytes);
    *m = (message){ .receive = receive, .peer = peer, .tag = tag, .bytes = bytes };
    m->part_bytes = limit;
    m->room = m->n = n;
    rc = post(me, m, data, err);
    *request = m;
    if (rc) {
        mpi_cancel(me, request);
        return rc;
    }
    if (!receive && finished(m, &rc, err)) { /* most short ones leave at once */
        old_message(me, m);
        *request = NULL;
    }
    return rc;
}

static rsd_err mpi_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                        void **request, rsd_error *err)
{
    return start(self, false, to, tag, (char *)(uintptr_t)data, bytes, request, err);
}

static rsd_err mpi_recv(void *self, int32_t from, int32_t tag, void *data, size_t bytes,
                        void **request, rsd_error *err)
{
    return start(self, true, from, tag, data, bytes, request, err);
}

/* Sets finished requests to NULL and counts them in *done, the others in *busy. */
static rsd_err reap(rsi_mpi_end *me, size_t n, void **request, size_t *busy, size_t *done,
                    rsd_error *err)
{
    rsd_error other;
    rsd_err   rc = RSD_OK;

    *busy = *done = 0;
    for (size_t i = 0; i < n; i++) {
        rsd_err mine = RSD_OK;

        if (!request[i])
            continue;
        if (!finished(request[i], &mine, rc ? &other : err)) {
            ++*busy;
            continue;
        }
        old_message(me, request[i]);
        request[i] = NULL;
        rc = rc ? rc : mine;
        ++*done;
    }
    return rc;
}

/* Called between two polls. With more ranks than cores, a spinning rank keeps the one it waits for
 * from running. */
static void relax(const rsi_mpi_family *f, uint64_t rounds, int64_t waited_ms)
{
    if (!f->crowded && rounds < SPIN_ROUNDS)
        return;
    if (waited_ms < YIELD_MS)
        sched_yield();
    else
        nanosleep(&(struct timespec){ .tv_nsec = SLEEP_NS }, NULL);
}

static rsd_err mpi_wait_some(void *self, size_t n, void **request, int64_t timeout_ms,
                             rsd_error *err)
{
    rsi_mpi_end *me = self;
    int64_t      begin = rsi_clock_ms();

    for (uint64_t rounds = 0;; rounds++) {
        size_t  busy, done;
        int64_t waited;
        rsd_err rc = reap(me, n, request, &busy, &done, err);

        if (rc || done > 0 || busy == 0)
            return rc;
        rc = rsi_mpi_broken(me, err);
        if (rc)
            return rc;
        waited = rsi_clock_ms() - begin;
        if (waited >= timeout_ms)
            return rsi_fail(err, RSD_E_TIMEOUT, "nothing came within %" PRId64 " ms", timeout_ms);
        relax(me->family, rounds, waited);
    }
}

static rsd_err mpi_test(void *self, void **request, rsd_error *err)
{
    rsd_err rc = mpi_wait_some(self, 1, request, 0, err);

    return rc == RSD_E_TIMEOUT && err->rank < 0 ? RSD_OK : rc;
}

/* ---- groups and closing ---- */

static int32_t mpi_rank(void *self)
{
    return ((rsi_mpi_end *)self)->rank;
}

static int32_t mpi_count(void *self)
{
    return ((rsi_mpi_end *)self)->size;
}

/* True once the message that broke the comm has reached all ranks or is on its way. */
static bool all_told(rsi_mpi_family *f)
{
    int done = 1;

    for (int r = 0; r < f->size && done; r++)
        if (f->told[r] != MPI_REQUEST_NULL)
            MPI_Test(&f->told[r], &done, MPI_STATUS_IGNORE);
    return done;
}

/* Frees what all comms of a family share, with the last of them. After a break MPI's own objects
 * are kept: freeing them takes all ranks, and nobody knows which are left. */
static void family_close(rsi_mpi_family *f)
{
    int64_t end = rsi_clock_ms() + STOP_SEND_MS;
    bool    finalize = f->initialised && !f->broken;

    if (f->listen != MPI_REQUEST_NULL) {
        MPI_Cancel(&f->listen);
        MPI_Wait(&f->listen, MPI_STATUS_IGNORE);
    }
    while (!all_told(f)) {
        if (rsi_clock_ms() > end)
            return; /* leaked, since MPI may still read the message */
        sched_yield();
    }
    if (!f->broken && f->control != MPI_COMM_NULL)
        MPI_Comm_free(&f->control);
    rsi_free(f->told);
    rsi_free(f);
    if (finalize)
        MPI_Finalize();
}

static void mpi_close(void *self)
{
    rsi_mpi_end *me = self;

    if (!me->family->broken) {
        if (me->node != MPI_COMM_NULL)
            MPI_Comm_free(&me->node);
        if (me->comm != MPI_COMM_NULL)
            MPI_Comm_free(&me->comm);
    }
    if (--me->family->ends == 0)
        family_close(me->family);
    rsi_free_list_release(&me->spares);
    rsi_free(me);
}

/* Only MPI_Finalize waits for other ranks, without a deadline, so wait for them here first. */
static rsd_err mpi_meet(void *self, int64_t timeout_ms, rsd_error *err)
{
    rsi_mpi_end *me = self;
    message     *m;
    void        *request;
    int          code;
    rsd_err      rc = rsi_mpi_broken(me, err);

    if (rc || me->family->ends > 1 || !me->family->initialised)
        return rc;
    m = rsi_free_list_take(&me->spares, sizeof(*m) + sizeof(m->part[0]));
    if (!m)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to wait for the other ranks");
    *m = (message){ .room = 1, .n = 1 };
    request = m; /* leaked if it does not finish */
    code = MPI_Ibarrier(me->family->control, &m->part[0]);
    if (code != MPI_SUCCESS)
        return rsi_mpi_fail(code, "MPI_Ibarrier", err);
    rc = mpi_wait_some(me, 1, &request, timeout_ms, err);
    return rc ? rsi_while(err, rc, "freeing the comm") : RSD_OK;
}

rsi_mpi_end *rsi_mpi_end_create(rsi_mpi_family *f)
{
    rsi_mpi_end *me = rsi_calloc(1, sizeof(*me));

    if (!me)
        return NULL;
    me->family = f;
    me->comm = me->node = MPI_COMM_NULL;
    f->ends++;
    return me;
}

void rsi_mpi_end_learn(rsi_mpi_end *me)
{
    MPI_Comm_set_errhandler(me->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(me->comm, &me->rank);
    MPI_Comm_size(me->comm, &me->size);
}

static rsd_err mpi_split(void *self, int32_t n, const int32_t *ranks, void **out, rsd_error *err)
{
    rsi_mpi_end *me = self, *group = NULL;
    MPI_Comm     comm = MPI_COMM_NULL;
    int          place = 0, code;
    rsd_err      rc = rsi_mpi_broken(me, err);

    if (rc)
        return rc;
    while (n > 0 && ranks[place] != me->rank)
        place++;
    code = MPI_Comm_split(me->comm, n > 0 ? ranks[0] : MPI_UNDEFINED, place, &comm);
    if (code != MPI_SUCCESS)
        return rsi_mpi_fail(code, "MPI_Comm_split", err);
    if (n > 0) {
        group = rsi_mpi_end_create(me->family);
        if (!group) { /* the other ranks' comm_free does not wait for this one's */
            MPI_Comm_free(&comm);
            return rsi_fail(err, RSD_E_NOMEM, "no memory for a group of %" PRId32 " ranks", n);
        }
        group->comm = comm;
        rsi_mpi_end_learn(group);
    }
    *out = group;
    return RSD_OK;
}

const rsd_comm_ops rsi_mpi_ops = {
    .size = sizeof(rsd_comm_ops),
    .name = "mpi",
    .rank = mpi_rank,
    .count = mpi_count,
    .send = mpi_send,
    .recv = mpi_recv,
    .test = mpi_test,
    .wait_some = mpi_wait_some,
    .cancel = mpi_cancel,
    .stop = mpi_stop,
    .split = mpi_split,
    .alloc = rsi_mpi_alloc,
    .dealloc = rsi_mpi_dealloc,
    .expose = rsi_mpi_expose,
    .reach = rsi_mpi_reach,
    .close = mpi_close,
    .meet = mpi_meet,
};
