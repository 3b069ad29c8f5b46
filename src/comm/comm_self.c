/* SPDX-License-Identifier: Apache-2.0 */
/* One rank with nobody else there, also as rank r of n. Messages to itself go through a mailbox of
 * comm_threads.c with one rank; comm.c refuses those to others. */
#include "comm/comm_threads.h"
#include "base/mem.h"

#include <inttypes.h>

typedef struct alone {
    void   *box; /* the end of a group of one thread */
    int32_t rank, size;
} alone;

static rsd_err self_open(int32_t rank, int32_t size, void **out, rsd_error *err)
{
    alone  *me = rsi_calloc(1, sizeof(*me));
    rsd_err rc;

    if (!me)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a comm");
    me->rank = rank;
    me->size = size;
    rc = rsi_threads_open(1, &me->box, err);
    if (rc) {
        rsi_free(me);
        return rc;
    }
    *out = me;
    return RSD_OK;
}

static int32_t self_rank(void *self)
{
    return ((alone *)self)->rank;
}

static int32_t self_count(void *self)
{
    return ((alone *)self)->size;
}

static rsd_err self_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                         void **request, rsd_error *err)
{
    (void)to;
    return rsi_threads_ops.send(((alone *)self)->box, 0, tag, data, bytes, request, err);
}

static rsd_err self_recv(void *self, int32_t from, int32_t tag, void *data, size_t bytes,
                         void **request, rsd_error *err)
{
    (void)from;
    return rsi_threads_ops.recv(((alone *)self)->box, 0, tag, data, bytes, request, err);
}

static rsd_err self_test(void *self, void **request, rsd_error *err)
{
    return rsi_threads_ops.test(((alone *)self)->box, request, err);
}

static rsd_err self_wait_some(void *self, size_t n, void **request, int64_t timeout_ms,
                              rsd_error *err)
{
    return rsi_threads_ops.wait_some(((alone *)self)->box, n, request, timeout_ms, err);
}

static bool self_cancel(void *self, void **request)
{
    return rsi_threads_ops.cancel(((alone *)self)->box, request);
}

static void self_stop(void *self, const rsd_error *why)
{
    rsi_threads_ops.stop(((alone *)self)->box, why);
}

static rsd_err self_split(void *self, int32_t n, const int32_t *ranks, void **out, rsd_error *err)
{
    alone  *me = self, *group;
    int32_t mine = 0, place = 0;
    void   *box;
    rsd_err rc;

    /* The mailbox is split too, so that the two break together. */
    rc = rsi_threads_ops.split(me->box, n > 0, &mine, &box, err);
    if (rc)
        return rc;
    if (n == 0) {
        *out = NULL;
        return RSD_OK;
    }
    group = rsi_calloc(1, sizeof(*group));
    if (!group) {
        rsi_threads_ops.close(box);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a comm");
    }
    while (ranks[place] != me->rank)
        place++;
    *group = (alone){ .box = box, .rank = place, .size = n };
    *out = group;
    return RSD_OK;
}

static rsd_err self_expose(void *self, const void *data, size_t bytes, rsd_exposed *out,
                           rsd_error *err)
{
    return rsi_threads_ops.expose(((alone *)self)->box, data, bytes, out, err);
}

static rsd_err self_reach(void *self, int32_t owner, const rsd_exposed *what, void **out,
                          rsd_error *err)
{
    alone *me = self;

    if (owner != me->rank)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "rank %" PRId32 " is not there", owner);
    return rsi_threads_ops.reach(me->box, 0, what, out, err);
}

static void self_close(void *self)
{
    rsi_threads_ops.close(((alone *)self)->box);
    rsi_free(self);
}

static const rsd_comm_ops self_ops = {
    .size = sizeof(rsd_comm_ops),
    .name = "self",
    .flags = RSD_COMM_ALONE,
    .rank = self_rank,
    .count = self_count,
    .send = self_send,
    .recv = self_recv,
    .test = self_test,
    .wait_some = self_wait_some,
    .cancel = self_cancel,
    .stop = self_stop,
    .split = self_split,
    .expose = self_expose,
    .reach = self_reach,
    .close = self_close,
};

rsd_err rsd_comm_create_self(int32_t as_rank, int32_t of_size, rsd_comm **out, rsd_error *err)
{
    void   *self = NULL;
    rsd_err rc;

    if (!out || as_rank < 0 || as_rank >= of_size)
        return rsi_fail(err, RSD_E_INVALID, "a comm can't be rank %" PRId32 " of %" PRId32, as_rank,
                        of_size);
    rc = self_open(as_rank, of_size, &self, err);
    if (rc)
        return rc;
    rc = rsd_comm_create(&self_ops, self, out, err);
    if (rc)
        self_close(self);
    return rc;
}
