/* SPDX-License-Identifier: Apache-2.0 */
/* The UCX transport's messages: starting, advancing, withdrawing, and what happens when a rank is
 * lost. An endpoint whose peer is gone fails, which breaks the family and names the rank. A peer
 * that is stopped still acknowledges what it is sent; comm/signs.c notices that one. Next:
 * comm_ucx_memory.c. */
#include "comm/comm_ucx_end.h"
#include "comm/clock.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#define YIELD_MS  20 /* of silence; then it sleeps between polls */
#define SLEEP_NS  100000
#define LOOKS     1000
#define GRACE_MS  1000 /* for the reason why a rank left to come, perhaps from another */
#define CANCEL_MS 1000 /* for a receive that is being filled, or the last messages of a rank */

/* ---- the lock ---- */

static _Thread_local int quiet; /* this thread is inside the transport */

/* UCX prints warnings and errors; those of this transport are returned instead. */
static ucs_log_func_rc_t hear_log(const char *file, unsigned line, const char *function,
                                  ucs_log_level_t level, const ucs_log_component_config_t *comp,
                                  const char *message, va_list ap)
{
    (void)file, (void)line, (void)function, (void)level, (void)comp, (void)message, (void)ap;
    return quiet > 0 ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

static void silence(void)
{
    if (!getenv("UCX_LOG_LEVEL"))
        ucs_log_push_handler(hear_log);
}

rsd_err rsi_ucx_lock(rsi_ucx_family *f, rsd_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (f->pid != getpid()) /* another thread of the parent may have held the lock */
        return rsi_fail(err, RSD_E_INVALID,
                        "the comm belongs to process %ld; a child forked from it can't use it",
                        (long)f->pid);
    pthread_once(&once, silence);
    pthread_mutex_lock(&f->lock);
    quiet++;
    return RSD_OK;
}

void rsi_ucx_unlock(rsi_ucx_family *f)
{
    quiet--;
    pthread_mutex_unlock(&f->lock);
}

rsd_err rsi_ucx_usable(const rsi_ucx_family *f, rsd_error *err)
{
    if (!f->broken)
        return RSD_OK;
    *err = f->why;
    return (rsd_err)f->why.code;
}

rsd_err rsi_ucx_enter(rsi_ucx_family *f, rsd_error *err)
{
    rsd_err rc = rsi_ucx_lock(f, err);

    if (rc)
        return rc;
    rc = rsi_ucx_usable(f, err);
    if (rc)
        rsi_ucx_unlock(f);
    return rc;
}

void rsi_ucx_relax(int64_t idle_ms)
{
    if (idle_ms < YIELD_MS)
        sched_yield();
    else
        nanosleep(&(struct timespec){ .tv_nsec = SLEEP_NS }, NULL);
}

/* ---- endpoints ---- */

static rsd_err gone(const rsi_ucx_peer *p, ucs_status_t status, rsd_error *err)
{
    const int32_t rank = (int32_t)(p - p->family->peer);

    rsi_fail(err, RSD_E_COMM, "rank %" PRId32 " is gone: %s", rank, ucs_status_string(status));
    err->rank = rank;
    err->nfailed = 1;
    return RSD_E_COMM;
}

static void endpoint_failed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    rsi_ucx_peer   *p = arg;
    rsi_ucx_family *f = p->family;

    (void)ep;
    p->failed = status;
    if (f->lost >= 0)
        return;
    f->lost = (int32_t)(p - f->peer);
    f->lost_at = rsi_clock_ms();
}

rsd_err rsi_ucx_connect(rsi_ucx_peer *p, rsd_error *err)
{
    ucp_ep_params_t how = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = p->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = { endpoint_failed, p },
    };
    ucs_status_t status;

    if (p - p->family->peer == p->family->rank)
        how.err_mode = UCP_ERR_HANDLING_MODE_NONE; /* the fast way to itself has no other */
    if (p->ep || p->failed || p->bye)
        return RSD_OK;
    status = ucp_ep_create(p->family->worker, &how, &p->ep);
    if (status == UCS_OK)
        return RSD_OK;
    p->ep = NULL;
    return gone(p, status, err);
}

/* UCX (all versions up to 1.22) ends the program if it is asked to connect to a rank whose own
 * connection it has taken up, and which has gone unnoticed since. Where ranks are so many that they
 * connect when they first send, this makes that unlikely; connect_all avoids it. */
static void look_around(const rsi_ucx_peer *p)
{
    for (int i = 0; !p->ep && i < LOOKS && ucp_worker_progress(p->family->worker); i++)
        continue;
}

/* ---- messages ---- */

uint64_t rsi_ucx_tag(const rsi_ucx_family *f, uint64_t group, int32_t from, int32_t tag)
{
    return (group << f->rank_bits | (uint64_t)from) << RSI_UCX_TAG_BITS | (uint64_t)tag;
}

static void sent(void *request, ucs_status_t status, void *arg)
{
    rsi_ucx_message *m = arg;

    m->request = request;
    m->status = status;
    m->done = true;
}

static void received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *arg)
{
    rsi_ucx_message *m = arg;

    m->came = status == UCS_OK ? info->length : 0;
    m->with = status == UCS_OK ? info->sender_tag : 0;
    sent(request, status, arg);
}

/* What UCX returned for `m`: a request, whose callback may have been called already, an error, or
 * nothing if it has finished. */
static void take_status(rsi_ucx_message *m, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        m->request = request;
        return;
    }
    m->status = UCS_PTR_STATUS(request);
    m->done = true;
}

static void receive(rsi_ucx_family *f, rsi_ucx_message *m, uint64_t tag, void *data, size_t bytes)
{
    ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL, /* only the callback is told the length */
        .cb.recv = received,
        .user_data = m,
    };
    uint64_t mask = tag & RSI_UCX_STOP ? RSI_UCX_STOP : UINT64_MAX;

    take_status(m, ucp_tag_recv_nbx(f->worker, data, bytes, tag, mask, &how));
}

rsd_err rsi_ucx_start(rsi_ucx_family *f, bool is_receive, int32_t peer, uint64_t tag, void *data,
                      size_t bytes, rsi_ucx_message **out, rsd_error *err)
{
    rsi_ucx_message    *m = rsi_free_list_take(&f->spares, sizeof(*m));
    ucp_request_param_t how = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = sent,
        .user_data = m,
    };
    rsd_err rc = RSD_OK;

    if (!m)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a message of %zu bytes", bytes);
    *m = (rsi_ucx_message){ .receive = is_receive, .peer = peer, .bytes = bytes };
    m->tag = (int32_t)(tag & (((uint64_t)1 << RSI_UCX_TAG_BITS) - 1));
    if (is_receive) {
        receive(f, m, tag, data, bytes);
    } else {
        look_around(&f->peer[peer]);
        rc = rsi_ucx_connect(&f->peer[peer], err);
        /* Otherwise it never finishes: the family is about to break. */
        if (!rc && f->peer[peer].ep && !f->peer[peer].failed)
            take_status(m, ucp_tag_send_nbx(f->peer[peer].ep, data, bytes, tag, &how));
    }
    if (rc)
        rsi_free_list_put(&f->spares, m);
    else
        *out = m;
    return rc;
}

void rsi_ucx_drop(rsi_ucx_family *f, rsi_ucx_message *m)
{
    if (m && m->request)
        ucp_request_free(m->request);
    if (m)
        rsi_free_list_put(&f->spares, m);
}

void rsi_ucx_hang_up(rsi_ucx_peer *p, bool force)
{
    rsi_ucx_family     *f = p->family;
    rsi_ucx_message    *m = rsi_free_list_take(&f->spares, sizeof(*m));
    ucp_request_param_t how = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = force || p->failed ? UCP_EP_CLOSE_FLAG_FORCE : 0,
        .cb.send = sent,
        .user_data = m,
    };

    if (!m || !p->ep || p->bye) {
        if (m)
            rsi_free_list_put(&f->spares, m);
        return;
    }
    *m = (rsi_ucx_message){ .peer = (int32_t)(p - f->peer) };
    p->bye = m;
    take_status(m, ucp_ep_close_nbx(p->ep, &how));
    p->ep = NULL;
}

bool rsi_ucx_withdraw(rsi_ucx_family *f, rsi_ucx_message *m)
{
    rsi_ucx_peer *p = m->receive ? NULL : &f->peer[m->peer];
    int64_t       end = rsi_clock_ms() + CANCEL_MS;

    rsi_ucx_progress(f);
    if (!m->request)
        m->done = true; /* it was never started */
    if (!m->done && m->receive)
        ucp_request_cancel(f->worker, m->request);
    while (!m->done && (m->receive || f->broken)) {
        int64_t left = end - rsi_clock_ms();

        /* UCX takes a send back only with all others to that rank. */
        if (p && (!p->told || p->told->done || left < CANCEL_MS / 2))
            rsi_ucx_hang_up(p, true);
        if (left < 0)
            break;
        rsi_ucx_progress(f);
        rsi_ucx_relax(0);
    }
    if (!m->done)
        return false;
    rsi_ucx_drop(f, m);
    return true;
}

/* ---- progress ---- */

static void tell(rsi_ucx_family *f, int32_t r)
{
    const uint64_t tag = RSI_UCX_STOP | (uint64_t)f->rank;
    rsd_error      err;

    if (r != f->rank && !f->peer[r].told)
        rsi_ucx_start(f, false, r, tag, &f->why, sizeof(f->why), &f->peer[r].told, &err);
}

void rsi_ucx_break(rsi_ucx_family *f, const rsd_error *why)
{
    if (f->broken)
        return;
    f->broken = true;
    f->why = *why;
    for (int32_t r = 0; r < f->size; r++)
        tell(f, r);
}

void rsi_ucx_listen(rsi_ucx_family *f)
{
    rsd_error err;

    if (rsi_ucx_start(f, true, f->rank, RSI_UCX_STOP, &f->heard, sizeof(f->heard), &f->listen,
                      &err))
        f->listen = NULL;
}

/* A rank that hears of the break passes it on: to the one it heard from, which may close its
 * connections then, and to those it is connected with, which would take a rank that leaves for the
 * reason. */
static void hear(rsi_ucx_family *f)
{
    rsi_ucx_message *m = f->listen;
    const int64_t    from = (int64_t)(m->with & ~RSI_UCX_STOP);
    const bool       good = m->status == UCS_OK && m->came == m->bytes && from < f->size;

    rsi_ucx_drop(f, m);
    f->listen = NULL;
    if (!good)
        return;
    f->peer[from].knows = true;
    if (!f->broken) {
        f->broken = true;
        f->why = f->heard;
        for (int32_t r = 0; r < f->size; r++)
            if (r == from || f->peer[r].ep)
                tell(f, r);
    }
    rsi_ucx_listen(f);
}

bool rsi_ucx_progress(rsi_ucx_family *f)
{
    bool      moved = ucp_worker_progress(f->worker) != 0;
    rsd_error err;

    /* A rank that left said why before, so read on to there. */
    for (int i = 0; f->lost >= 0 && !f->broken && i < LOOKS && ucp_worker_progress(f->worker); i++)
        continue;
    while (f->listen && f->listen->done)
        hear(f);
    if (!f->broken && !f->closing && f->lost >= 0 && rsi_clock_ms() - f->lost_at >= GRACE_MS) {
        gone(&f->peer[f->lost], f->peer[f->lost].failed, &err);
        rsi_ucx_break(f, &err);
    }
    return moved;
}

/* ---- waiting ---- */

/* A send to a rank that is lost: the family is about to break, and then the reason is known. */
static bool left_out(const rsi_ucx_family *f, const rsi_ucx_message *m)
{
    return !m->receive && m->status != UCS_OK && !f->broken && f->lost >= 0 && !f->closing;
}

static rsd_err result_of(const rsi_ucx_family *f, const rsi_ucx_message *m, rsd_error *err)
{
    const char *how = m->came < m->bytes ? "fewer" : "more";

    if (m->status == UCS_ERR_MESSAGE_TRUNCATED)
        how = "more";
    else if (m->status != UCS_OK)
        return f->broken ? rsi_ucx_usable(f, err) : gone(&f->peer[m->peer], m->status, err);
    else if (!m->receive || m->came == m->bytes)
        return RSD_OK;
    return rsi_fail(err, RSD_E_MISMATCH,
                    "rank %" PRId32 " sent %s bytes with the tag %" PRId32
                    " than the %zu that were expected",
                    m->peer, how, m->tag, m->bytes);
}

/* Sets finished messages to NULL and counts them in *done, the others in *busy. */
static rsd_err reap(rsi_ucx_family *f, size_t n, void **message, size_t *busy, size_t *done,
                    rsd_error *err)
{
    rsd_err rc = RSD_OK;

    *busy = *done = 0;
    for (size_t i = 0; i < n; i++) {
        rsi_ucx_message *m = message[i];

        if (!m || !m->done || left_out(f, m)) {
            *busy += m != NULL;
            continue;
        }
        rc = rc ? rc : result_of(f, m, err);
        rsi_ucx_drop(f, m);
        message[i] = NULL;
        ++*done;
    }
    return rc;
}

rsd_err rsi_ucx_wait(rsi_ucx_family *f, size_t n, void **message, int64_t timeout_ms,
                     rsd_error *err)
{
    int64_t begin = rsi_clock_ms(), moved = begin;

    for (;;) {
        size_t  busy, done;
        int64_t now;
        bool    moves = rsi_ucx_progress(f);
        rsd_err rc = reap(f, n, message, &busy, &done, err);

        if (rc || done > 0 || busy == 0)
            return rc;
        rc = rsi_ucx_usable(f, err);
        if (rc)
            return rc;
        now = rsi_clock_ms();
        moved = moves ? now : moved;
        if (now - begin >= timeout_ms)
            return rsi_fail(err, RSD_E_TIMEOUT, "nothing came within %" PRId64 " ms", timeout_ms);
        if (moves)
            continue;
        rsi_ucx_unlock(f);
        rsi_ucx_relax(now - moved);
        rc = rsi_ucx_lock(f, err);
        if (rc)
            return rc;
    }
}

/* One message each way. */
static rsd_err swap(rsi_ucx_family *f, void *message[2], int64_t until, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    while (!rc && (message[0] || message[1])) {
        int64_t left = until - rsi_clock_ms();

        rc = rsi_ucx_wait(f, 2, message, left > 0 ? left : 0, err);
    }
    return rc;
}

rsd_err rsi_ucx_all(rsi_ucx_family *f, const rsi_ucx_end *group, bool mine, int64_t timeout_ms,
                    bool *all, rsd_error *err)
{
    const int32_t        n = group ? group->size : f->size, me = group ? group->rank : f->rank;
    const int64_t        until = rsi_clock_ms() + timeout_ms;
    static unsigned char flag[2] = { 0, 1 }; /* outlives a send that can't be withdrawn */
    unsigned char        in = 1;
    rsd_err              rc = RSD_OK;

    for (int32_t k = 0; k < 31 && (int32_t)1 << k < n && !rc; k++) {
        const int32_t    step = (int32_t)1 << k;
        int32_t          to = (int32_t)(((int64_t)me + step) % n), from = (me - step % n + n) % n;
        uint64_t         id = group ? group->id : 0;
        void            *message[2] = { NULL, NULL };
        rsi_ucx_message *m = NULL;

        to = group ? group->ranks[to] : to;
        from = group ? group->ranks[from] : from;
        rc = rsi_ucx_start(f, true, from, rsi_ucx_tag(f, id, from, RSI_UCX_VOTE | k), &in, 1, &m,
                           err);
        message[0] = m;
        if (!rc)
            rc = rsi_ucx_start(f, false, to, rsi_ucx_tag(f, id, f->rank, RSI_UCX_VOTE | k),
                               &flag[mine], 1, &m, err);
        message[1] = rc ? NULL : m;
        if (!rc)
            rc = swap(f, message, until, err);
        for (int i = 0; i < 2; i++)
            if (message[i])
                rsi_ucx_withdraw(f, message[i]); /* one byte has left by now */
        mine = mine && in;
    }
    *all = mine;
    return rc;
}
