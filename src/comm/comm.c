/* SPDX-License-Identifier: Apache-2.0 */
/* The comm object: argument checks, messages, memory of peers, subgroups. The transports behind it
 * are comm_self.c, comm_threads.c and comm_mpi.c. Next: collective.c. */
#include "comm/comm.h"
#include "base/digest.h"
#include "base/mem.h"
#include "base/opts.h"
#include "comm/facts.h"
#include "comm/rooms.h"

#include <reshard/reshard_live.h>
#include <inttypes.h>
#include <string.h>

#define TIMEOUT_MS 300000
#define PAGE_BYTES 4096

rsd_err rsd_comm_create_custom(const rsd_comm_ops *ops, void *self, rsd_comm **out, rsd_error *err)
{
    rsd_comm_ops known = { .size = 0 };
    rsd_comm    *comm;
    int32_t      rank, count;
    rsd_err      rc = rsi_opts_take(&known, sizeof(known), ops, "rsd_comm_ops", err);

    if (rc)
        return rc;
    if (!ops || !out || ops->size < offsetof(rsd_comm_ops, close) + sizeof(ops->close))
        return rsi_fail(err, RSD_E_INVALID, "a comm needs a whole table of operations");
    ops = &known;
    if (!ops->rank || !ops->count || !ops->send || !ops->recv || !ops->test || !ops->wait_some ||
        !ops->cancel || !ops->stop || !ops->split || !ops->close || !ops->alloc != !ops->dealloc ||
        !ops->expose != !ops->reach)
        return rsi_fail(err, RSD_E_INVALID, "the comm \"%s\" lacks an operation",
                        ops->name ? ops->name : "");
    rank = ops->rank(self);
    count = ops->count(self);
    if (count < 1 || rank < 0 || rank >= count)
        return rsi_fail(err, RSD_E_INVALID, "a comm can't be rank %" PRId32 " of %" PRId32, rank,
                        count);
    comm = rsi_calloc(1, sizeof(*comm));
    if (!comm)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a comm");
    comm->ops = known;
    comm->self = self;
    comm->rank = rank;
    comm->size = count;
    comm->timeout_ms = TIMEOUT_MS;
    comm->alone = ops->flags & RSD_COMM_ALONE && count > 1;
    *out = comm;
    return RSD_OK;
}

rsd_err rsi_meeting_take(int32_t rank, int32_t count, const rsd_meeting *with, rsd_comm **out,
                         rsd_meeting *known, rsd_error *err)
{
    rsd_err rc = rsi_opts_take(known, sizeof(*known), with, "rsd_meeting", err);

    if (!rc &&
        (!with || !out || count < 1 || rank < 0 || rank >= count || !known->put || !known->get))
        rc = rsi_fail(err, RSD_E_INVALID,
                      "a comm can't be rank %" PRId32 " of %" PRId32 " without put and get", rank,
                      count);
    return rc;
}

void rsd_comm_free(rsd_comm *comm)
{
    rsd_error err;

    if (!comm)
        return;
    rsd_comm_free(comm->host);
    rsd_comm_free(comm->leads);
    rsi_signs_end(comm);
    if (comm->ops.meet && comm->ops.meet(comm->self, comm->timeout_ms, &err))
        comm->ops.stop(comm->self, &err);
    rsi_rooms_close(comm);
    comm->ops.close(comm->self);
    rsi_free(comm->origin);
    rsi_free(comm->failed);
    rsi_free(comm->stuck);
    rsi_free(comm);
}

int32_t rsd_comm_rank(const rsd_comm *comm)
{
    return comm->rank;
}

int32_t rsd_comm_size(const rsd_comm *comm)
{
    return comm->size;
}

rsd_err rsd_comm_set_timeout(rsd_comm *comm, int64_t ms, rsd_error *err)
{
    if (!comm || ms < 1)
        return rsi_fail(err, RSD_E_INVALID, "a comm can't wait for %" PRId64 " ms", ms);
    comm->timeout_ms = ms;
    return RSD_OK;
}

size_t rsd_comm_failures(const rsd_comm *comm, rsd_error *out, size_t cap)
{
    if (out && comm->nfailed > 0)
        memcpy(out, comm->failed, (cap < comm->nfailed ? cap : comm->nfailed) * sizeof(out[0]));
    return comm->nfailed;
}

void rsd_comm_abort(rsd_comm *comm, const char *why)
{
    rsd_error err;

    if (!comm)
        return;
    rsi_fail(&err, RSD_E_COMM, "rank %" PRId32 " gave up: %s", rsi_origin(comm, comm->rank),
             why ? why : "no reason given");
    err.rank = rsi_origin(comm, comm->rank);
    err.nfailed = 1;
    comm->ops.stop(comm->self, &err);
}

/* ---- messages ---- */

rsd_err rsi_check_rank(const rsd_comm *comm, int32_t rank, rsd_error *err)
{
    if (rank < 0 || rank >= comm->size)
        return rsi_fail(err, RSD_E_INVALID,
                        "rank %" PRId32 " does not exist, the comm has %" PRId32 " ranks", rank,
                        comm->size);
    return RSD_OK;
}

static rsd_err check_peer(const rsd_comm *comm, int32_t peer, int32_t tag, const void *data,
                          size_t bytes, rsd_error *err)
{
    rsd_err rc = rsi_check_rank(comm, peer, err);

    if (rc)
        return rc;
    if (tag < 0 || tag > RSI_TAG_ROLLCALL || (!data && bytes > 0))
        return rsi_fail(err, RSD_E_INVALID, "a message can't have the tag %" PRId32 " and no bytes",
                        tag);
    if (comm->alone && peer != comm->rank)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "rank %" PRId32 " of %" PRId32 " is played alone: rank %" PRId32
                        " does not exist here",
                        comm->rank, comm->size, peer);
    return RSD_OK;
}

rsd_err rsi_send(rsd_comm *comm, int32_t to, int32_t tag, const void *data, size_t bytes,
                 void **request, rsd_error *err)
{
    rsd_err rc;

    err = err ? err : &(rsd_error){ .rank = -1 };
    rc = check_peer(comm, to, tag, data, bytes, err);
    return rc ? rc : comm->ops.send(comm->self, to, tag, data, bytes, request, err);
}

rsd_err rsi_recv(rsd_comm *comm, int32_t from, int32_t tag, void *data, size_t bytes,
                 void **request, rsd_error *err)
{
    rsd_err rc;

    err = err ? err : &(rsd_error){ .rank = -1 };
    rc = check_peer(comm, from, tag, data, bytes, err);
    return rc ? rc : comm->ops.recv(comm->self, from, tag, data, bytes, request, err);
}

rsd_err rsi_test(rsd_comm *comm, void **request, rsd_error *err)
{
    return comm->ops.test(comm->self, request, err ? err : &(rsd_error){ .rank = -1 });
}

rsd_err rsi_wait_some(rsd_comm *comm, size_t n, void **request, const int32_t *peer,
                      const char *what, rsd_error *err)
{
    int64_t begin = rsi_comm_clock(), now = begin;
    bool    called;
    rsd_err rc;

    err = err ? err : &(rsd_error){ .rank = -1 };
    do {
        called = rsi_signs_look(comm, now);
        rc = comm->ops.wait_some(comm->self, n, request, rsi_signs_slice(comm), err);
        if (rc != RSD_E_TIMEOUT || err->rank >= 0) /* another rank's timeout names a rank */
            return rc;
        now = rsi_comm_clock();
    } while (!called && (now - begin < comm->timeout_ms || rsi_signs_good(comm, now)));
    rsi_signs_alarm(comm);
    return rsi_rollcall(comm, n, request, peer, what, err);
}

rsd_err rsi_wait_all(rsd_comm *comm, size_t n, void **request, const int32_t *peer,
                     const char *what, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < n && !rc; i++)
        while (request[i] && !rc)
            rc = rsi_wait_some(comm, n, request, peer, what, err);
    return rc;
}

bool rsi_drop(rsd_comm *comm, size_t n, void **request)
{
    bool all = true;

    for (size_t i = 0; i < n; i++)
        if (request[i])
            all = comm->ops.cancel(comm->self, &request[i]) && all;
    return all;
}

rsd_err rsi_break(rsd_comm *comm, rsd_err rc, rsd_error *err)
{
    rsd_error local;
    int32_t   me = rsi_origin(comm, comm->rank);

    if (!rc)
        return RSD_OK;
    if (!err) {
        err = &local;
        rsi_fail(err, rc, "%s", rsd_err_name(rc));
    }
    if (err->rank < 0) {
        rsi_while(err, rc, "rank %" PRId32, me);
        err->rank = me;
        err->nfailed = 1;
    }
    comm->ops.stop(comm->self, err);
    return rc;
}

/* ---- memory of peers ---- */

rsd_err rsi_expose(rsd_comm *comm, const void *data, size_t bytes, rsd_exposed *out, rsd_error *err)
{
    if (!comm->ops.expose)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "no memory can be exposed on the comm \"%s\"",
                        comm->ops.name);
    return comm->ops.expose(comm->self, data, bytes, out, err ? err : &(rsd_error){ .rank = -1 });
}

rsd_err rsi_reach(rsd_comm *comm, int32_t owner, const rsd_exposed *what, void **out,
                  rsd_error *err)
{
    rsd_err rc = rsi_check_rank(comm, owner, err);

    if (rc)
        return rc;
    if (!comm->ops.reach)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "no memory can be reached on the comm \"%s\"",
                        comm->ops.name);
    return comm->ops.reach(comm->self, owner, what, out, err ? err : &(rsd_error){ .rank = -1 });
}

rsd_err rsd_comm_alloc(rsd_comm *comm, size_t bytes, void **out, rsd_error *err)
{
    void   *data = NULL;
    rsd_err rc = RSD_OK;

    err = err ? err : &(rsd_error){ .rank = -1 };
    if (!comm || !out)
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: comm or output pointer");
    /* The transport may wait for all ranks without a deadline, so make sure that they have arrived.
     */
    rc = rsi_same_call(comm, "rsd_comm_alloc", rc, err);
    if (rc)
        return rc;
    if (comm->ops.alloc)
        rc = comm->ops.alloc(comm->self, bytes, &data, err);
    else
        data = rsi_alloc_aligned(PAGE_BYTES, bytes);
    if (!rc && !data)
        rc =
            rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes that other ranks can reach", bytes);
    rc = rsi_agree(comm, rc, err);
    if (rc) {
        if (!comm->ops.alloc)
            rsi_free(data);
        return rc;
    }
    *out = data;
    return RSD_OK;
}

void rsd_comm_dealloc(rsd_comm *comm, void *data)
{
    if (!data)
        return;
    rsi_barrier(comm, NULL); /* peers may still be copying; on a broken comm none is */
    if (comm->ops.dealloc)
        comm->ops.dealloc(comm->self, data);
    else
        rsi_free(data);
}

/* ---- subgroups ---- */

/* The list is a valid group that includes this rank. */
static rsd_err check_group(const rsd_comm *comm, int32_t n, const int32_t *ranks, uint64_t *seen,
                           rsd_error *err)
{
    bool mine = n == 0;

    if (n < 0 || n > comm->size || (n > 0 && !ranks))
        return rsi_fail(err, RSD_E_INVALID,
                        "a group of %" PRId32 " ranks can't be made from %" PRId32, n, comm->size);
    for (int32_t i = 0; i < n; i++) {
        int32_t r = ranks[i];

        if (rsi_check_rank(comm, r, err))
            return RSD_E_INVALID;
        if (seen[r]++)
            return rsi_fail(err, RSD_E_INVALID, "rank %" PRId32 " is in the group twice", r);
        mine = mine || r == comm->rank;
    }
    if (!mine)
        return rsi_fail(err, RSD_E_INVALID,
                        "rank %" PRId32 " lists a group that it is not in itself", comm->rank);
    return RSD_OK;
}

/* All ranks of a group give the same list; since each is in its own list, groups are then disjoint.
 */
static rsd_err compare_groups(rsd_comm *comm, int32_t n, const int32_t *ranks, uint64_t *hash,
                              rsd_error *err)
{
    uint64_t mine = rsi_digest(0, ranks, (size_t)n * sizeof(ranks[0]));
    rsd_err  rc;

    if (comm->alone)
        return RSD_OK;
    rc = rsi_allgather(comm, &mine, sizeof(mine), hash, err);
    if (rc)
        return rc;
    for (int32_t i = 0; i < n && !rc; i++)
        if (hash[ranks[i]] != mine)
            rc = rsi_fail(err, RSD_E_MISMATCH,
                          "the group of rank %" PRId32 " and that of rank %" PRId32 " differ",
                          comm->rank, ranks[i]);
    return rsi_agree(comm, rc, err);
}

/* Wraps the transport's group and keeps its ranks' numbers in the first comm. */
static rsd_err make_group(const rsd_comm *comm, int32_t n, const int32_t *ranks, void *self,
                          rsd_comm **out, rsd_error *err)
{
    rsd_comm *group;
    rsd_err   rc = rsd_comm_create_custom(&comm->ops, self, &group, err);

    if (rc) {
        comm->ops.close(self);
        return rc;
    }
    group->timeout_ms = comm->timeout_ms;
    group->origin = rsi_calloc((size_t)n, sizeof(group->origin[0]));
    if (!group->origin) {
        rsd_comm_free(group);
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a group of %" PRId32 " ranks", n);
    }
    for (int32_t i = 0; i < n; i++)
        group->origin[i] = rsi_origin(comm, ranks[i]);
    *out = group;
    return RSD_OK;
}

rsd_err rsd_comm_split(rsd_comm *comm, int32_t n, const int32_t *ranks, rsd_comm **out,
                       rsd_error *err)
{
    rsd_comm *group = NULL;
    uint64_t *hash = NULL; /* [size] */
    void     *self = NULL;
    rsd_err   rc = RSD_OK;

    err = err ? err : &(rsd_error){ .rank = -1 };
    if (!comm || !out)
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: comm or output pointer");
    if (!rc) {
        hash = rsi_calloc((size_t)comm->size, sizeof(hash[0]));
        rc = hash ? check_group(comm, n, ranks, hash, err)
                  : rsi_fail(err, RSD_E_NOMEM, "no memory for a group of %" PRId32 " ranks", n);
    }
    rc = rsi_same_call(comm, "rsd_comm_split", rc, err);
    if (!rc)
        rc = compare_groups(comm, n, ranks, hash, err);
    rsi_free(hash);
    if (rc)
        return rc;
    rc = comm->ops.split(comm->self, n, ranks, &self, err);
    if (!rc && n > 0)
        rc = make_group(comm, n, ranks, self, &group, err);
    rc = rsi_agree(comm, rc, err);
    if (rc) {
        rsd_comm_free(group);
        return rc;
    }
    *out = group;
    return RSD_OK;
}
