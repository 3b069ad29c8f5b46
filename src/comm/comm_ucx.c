/* SPDX-License-Identifier: Apache-2.0 */
/* The UCX transport: the operations of a comm. Like comm_mpi.c it depends only on base/ and
 * rsd_comm_ops, since it is built as a library of its own, which ucx_plugin.c loads. Next:
 * comm_ucx_wait.c. */
#include "comm/comm_ucx_end.h"
#include "base/digest.h"

#include <inttypes.h>

static int32_t ucx_rank(void *self)
{
    return ((rsi_ucx_end *)self)->rank;
}

static int32_t ucx_count(void *self)
{
    return ((rsi_ucx_end *)self)->size;
}

/* ---- messages ---- */

static rsd_err start(rsi_ucx_end *e, bool receive, int32_t peer, int32_t tag, void *data,
                     size_t bytes, void **request, rsd_error *err)
{
    rsi_ucx_family  *f = e->family;
    int32_t          rank = e->ranks[peer];
    uint64_t         whole = rsi_ucx_tag(f, e->id, receive ? rank : f->rank, tag);
    rsi_ucx_message *m = NULL;
    rsd_err          rc = rsi_ucx_enter(f, err);

    if (rc)
        return rc;
    rc = rsi_ucx_start(f, receive, rank, whole, data, bytes, &m, err);
    if (!rc && !receive && m->done && m->status == UCS_OK) { /* most short ones leave at once */
        rsi_ucx_drop(f, m);
        m = NULL;
    }
    if (!rc)
        *request = m;
    rsi_ucx_unlock(f);
    return rc;
}

static rsd_err ucx_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                        void **request, rsd_error *err)
{
    return start(self, false, to, tag, (void *)(uintptr_t)data, bytes, request, err);
}

static rsd_err ucx_recv(void *self, int32_t from, int32_t tag, void *data, size_t bytes,
                        void **request, rsd_error *err)
{
    return start(self, true, from, tag, data, bytes, request, err);
}

static rsd_err ucx_wait_some(void *self, size_t n, void **request, int64_t timeout_ms,
                             rsd_error *err)
{
    rsi_ucx_family *f = ((rsi_ucx_end *)self)->family;
    rsd_err         rc = rsi_ucx_lock(f, err); /* a broken comm still reports what had finished */

    if (rc)
        return rc;
    rc = rsi_ucx_wait(f, n, request, timeout_ms, err);
    rsi_ucx_unlock(f);
    return rc;
}

static rsd_err ucx_test(void *self, void **request, rsd_error *err)
{
    rsd_err rc = ucx_wait_some(self, 1, request, 0, err);

    return rc == RSD_E_TIMEOUT && err->rank < 0 ? RSD_OK : rc;
}

static bool ucx_cancel(void *self, void **request)
{
    rsi_ucx_family *f = ((rsi_ucx_end *)self)->family;
    rsd_error       err;
    bool            gone;

    if (rsi_ucx_lock(f, &err)) { /* a child's copy */
        *request = NULL;
        return true;
    }
    gone = rsi_ucx_withdraw(f, *request);
    if (gone)
        *request = NULL;
    rsi_ucx_unlock(f);
    return gone;
}

static void ucx_stop(void *self, const rsd_error *why)
{
    rsi_ucx_family *f = ((rsi_ucx_end *)self)->family;
    rsd_error       err;

    if (rsi_ucx_lock(f, &err))
        return;
    rsi_ucx_progress(f); /* the first reason wins */
    rsi_ucx_break(f, why);
    rsi_ucx_unlock(f);
}

/* ---- groups ---- */

rsi_ucx_end *rsi_ucx_end_open(rsi_ucx_family *f, uint64_t id, int32_t rank, int32_t n,
                              const int32_t *ranks)
{
    rsi_ucx_end *e = rsi_calloc(1, sizeof(*e));
    int32_t     *list = rsi_calloc((size_t)n, sizeof(list[0]));

    if (!e || !list) {
        rsi_free(e);
        rsi_free(list);
        return NULL;
    }
    for (int32_t i = 0; i < n; i++)
        list[i] = ranks ? ranks[i] : i;
    *e = (rsi_ucx_end){ .family = f, .id = id, .rank = rank, .size = n, .ranks = list };
    e->next = f->ends;
    f->ends = e;
    return e;
}

/* A group's id has the bits of a tag that are left: 63 without the sender and the tag. Ids of two
 * groups that share ranks must differ, which those ranks see. */
static rsd_err new_id(rsi_ucx_end *e, int32_t first, uint64_t *out, rsd_error *err)
{
    const rsi_ucx_family *f = e->family;
    const uint64_t        words[3] = { e->id, ++e->splits, (uint64_t)first };
    const int             bits = 63 - RSI_UCX_TAG_BITS - f->rank_bits;

    *out = rsi_digest(1, words, sizeof(words)) >> (64 - bits);
    for (const rsi_ucx_end *other = f->ends; other; other = other->next)
        if (other->id == *out)
            return rsi_fail(err, RSD_E_COMM, "two groups got the same number; split once more");
    return RSD_OK;
}

static rsd_err ucx_split(void *self, int32_t n, const int32_t *ranks, void **out, rsd_error *err)
{
    rsi_ucx_end    *e = self, *made = NULL;
    rsi_ucx_family *f = e->family;
    int32_t        *list; /* [n] in the first group */
    int32_t         place = 0;
    uint64_t        id = 0;
    rsd_err         rc = rsi_ucx_enter(f, err);

    if (rc)
        return rc;
    list = rsi_calloc((size_t)n, sizeof(list[0]));
    for (int32_t i = 0; i < n && list; i++) {
        list[i] = e->ranks[ranks[i]];
        place = list[i] == f->rank ? i : place;
    }
    rc = new_id(e, n > 0 ? ranks[0] : -1, &id, err);
    if (n > 0 && list && !rc)
        made = rsi_ucx_end_open(f, id, place, n, list);
    rsi_ucx_unlock(f);
    rsi_free(list);
    if (!rc && n > 0 && !made)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a group of %" PRId32 " ranks", n);
    if (!rc)
        *out = made;
    return n > 0 ? rc : RSD_OK;
}

const rsd_comm_ops rsi_ucx_ops = {
    .size = sizeof(rsd_comm_ops),
    .name = "ucx",
    .rank = ucx_rank,
    .count = ucx_count,
    .send = ucx_send,
    .recv = ucx_recv,
    .test = ucx_test,
    .wait_some = ucx_wait_some,
    .cancel = ucx_cancel,
    .stop = ucx_stop,
    .split = ucx_split,
    .alloc = rsi_ucx_alloc,
    .dealloc = rsi_ucx_dealloc,
    .expose = rsi_ucx_expose,
    .reach = rsi_ucx_reach,
    .close = rsi_ucx_close,
    .meet = rsi_ucx_meet,
};
