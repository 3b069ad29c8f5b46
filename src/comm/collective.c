/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives built from messages: a dissemination barrier, binomial trees for broadcast, gather
 * and reduce, and Bruck's allgather, which fills the result in place. All work for any number of
 * ranks. A transport failure breaks the comm, so that no rank waits for one that has left. Next:
 * agree.c. */
#include "comm/comm.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

enum kind { BARRIER, BROADCAST, ALLGATHER, REDUCE, GATHER, SCATTER };
static const char *const kind_name[] = { "barrier", "broadcast", "allgather",
                                         "reduce",  "gather",    "scatter" };

/* The messages of one step, awaited together. */
#define STEP_MAX 4
typedef struct step {
    rsd_comm  *comm;
    enum kind  kind;
    int32_t    tag;
    size_t     n;
    void      *request[STEP_MAX];
    int32_t    peer[STEP_MAX];
    rsd_error *err;
    rsd_err    rc;
    rsd_error  local;
} step;

/* The tag holds the kind and a sequence number: ranks that call different collectives time out
 * instead of receiving each other's bytes. */
static void begin(step *s, rsd_comm *comm, enum kind kind, rsd_error *err)
{
    memset(s, 0, offsetof(step, local));
    s->comm = comm;
    s->kind = kind;
    s->tag = RSI_TAG_COLLECTIVE | (int32_t)kind << 8 | (int32_t)(comm->calls++ & 0xff);
    s->err = err ? err : &s->local;
}

static void add(step *s, bool send, int32_t peer, void *data, size_t bytes)
{
    if (s->rc)
        return;
    s->peer[s->n] = peer;
    s->rc = send ? rsi_send(s->comm, peer, s->tag, data, bytes, &s->request[s->n], s->err)
                 : rsi_recv(s->comm, peer, s->tag, data, bytes, &s->request[s->n], s->err);
    if (!s->rc)
        s->n++;
}

/* Waits for all messages added; after a failure nothing is pending and the comm is broken. */
static rsd_err finish(step *s)
{
    if (!s->rc)
        s->rc = rsi_wait_all(s->comm, s->n, s->request, s->peer, kind_name[s->kind], s->err);
    if (s->rc) {
        s->rc = rsi_break(s->comm, s->rc, s->err);
        rsi_drop(s->comm, s->n, s->request);
    }
    s->n = 0;
    return s->rc;
}

static rsd_err played_alone(const rsd_comm *comm, enum kind kind, rsd_error *err)
{
    return rsi_fail(err, RSD_E_UNSUPPORTED,
                    "rank %" PRId32 " of %" PRId32 " is played alone: there is no rank to %s with",
                    comm->rank, comm->size, kind_name[kind]);
}

rsd_err rsi_barrier(rsd_comm *comm, rsd_error *err)
{
    int64_t n = comm->size;
    step    s;

    if (comm->alone)
        return RSD_OK;
    begin(&s, comm, BARRIER, err);
    for (int64_t far = 1; far < n && !s.rc; far *= 2) {
        add(&s, false, (int32_t)((comm->rank + n - far) % n), NULL, 0);
        add(&s, true, (int32_t)((comm->rank + far) % n), NULL, 0);
        finish(&s);
    }
    return s.rc;
}

/* Numbers ranks from the root, which is node 0 of the tree; its children are 1, 2, 4 ..., and those
 * of another node are its number plus each power of two below its lowest set bit. */
static int32_t in_tree(const rsd_comm *comm, int32_t root)
{
    return (int32_t)(((int64_t)comm->rank - root + comm->size) % comm->size);
}

static int32_t from_tree(const rsd_comm *comm, int32_t root, int64_t node)
{
    return (int32_t)((node + root) % comm->size);
}

/* The first power of two that is not a child's distance: the distance to the node's parent, or at
 * least the size for the root. */
static int64_t tree_end(const rsd_comm *comm, int32_t node)
{
    int64_t bit = 1;

    while (bit < comm->size && !(node & bit))
        bit *= 2;
    return bit;
}

rsd_err rsi_broadcast(rsd_comm *comm, int32_t root, void *data, size_t bytes, rsd_error *err)
{
    int32_t node = in_tree(comm, root);
    int64_t end = tree_end(comm, node);
    step    s;
    rsd_err rc = rsi_check_rank(comm, root, err);

    if (rc)
        return rc;
    if (comm->alone)
        return root == comm->rank ? RSD_OK : played_alone(comm, BROADCAST, err);
    begin(&s, comm, BROADCAST, err);
    if (node > 0) {
        add(&s, false, from_tree(comm, root, node - end), data, bytes);
        finish(&s);
    }
    /* The farthest child has the largest subtree. */
    for (int64_t far = end / 2; far > 0 && !s.rc; far /= 2) {
        if (node + far >= comm->size)
            continue;
        add(&s, true, from_tree(comm, root, node + far), data, bytes);
        finish(&s);
    }
    return s.rc;
}

/* ---- allgather ---- */

/* One block per rank. */
typedef struct blocks {
    char         *data;
    const size_t *first; /* [size + 1] where they begin; NULL: each has `bytes` */
    size_t        bytes;
} blocks;

static size_t block_at(const blocks *b, int64_t rank)
{
    return b->first ? b->first[rank] : (size_t)rank * b->bytes;
}

/* Adds the blocks of `count` ranks from `start` on, wrapping around, as one or two messages; empty
 * ones are skipped, as both ends know the sizes. */
static void add_blocks(step *s, bool send, int32_t peer, const blocks *b, int64_t start,
                       int64_t count)
{
    int64_t size = s->comm->size;
    int64_t end = start + count < size ? start + count : size;
    size_t  at[2] = { block_at(b, start), 0 };
    size_t  bytes[2] = { block_at(b, end) - at[0], block_at(b, start + count - end) };

    for (int i = 0; i < 2; i++)
        if (bytes[i] > 0)
            add(s, send, peer, b->data + at[i], bytes[i]);
}

static rsd_err allgather(rsd_comm *comm, const blocks *b, rsd_error *err)
{
    int64_t n = comm->size, me = comm->rank;
    step    s;

    begin(&s, comm, ALLGATHER, err);
    /* This rank has the blocks of ranks me .. me+have-1 and gets as many more from the rank after
     * them. */
    for (int64_t have = 1; have < n && !s.rc; have *= 2) {
        int64_t more = have < n - have ? have : n - have;
        int64_t ahead = (me + have) % n;

        add_blocks(&s, false, (int32_t)ahead, b, ahead, more);
        add_blocks(&s, true, (int32_t)((me + n - have) % n), b, me, more);
        finish(&s);
    }
    return s.rc;
}

rsd_err rsi_allgather_at(rsd_comm *comm, void *data, const size_t *first, rsd_error *err)
{
    if (comm->alone)
        return played_alone(comm, ALLGATHER, err);
    return allgather(comm, &(blocks){ .data = data, .first = first }, err);
}

rsd_err rsi_allgather(rsd_comm *comm, const void *mine, size_t bytes, void *out, rsd_error *err)
{
    if (comm->alone)
        return played_alone(comm, ALLGATHER, err);
    if (bytes > 0)
        memmove((char *)out + (size_t)comm->rank * bytes, mine, bytes);
    return allgather(comm, &(blocks){ .data = out, .bytes = bytes }, err);
}

rsd_err rsi_broadcast_any(rsd_comm *comm, int32_t root, rsi_bytes *bytes, rsd_err rc,
                          rsd_error *err)
{
    uint64_t len = bytes->len;
    rsd_err  sent = rsi_broadcast(comm, root, &len, sizeof(len), err);

    if (sent)
        return sent;
    if (!rc && comm->rank != root) {
        *bytes = (rsi_bytes){ .at = rsi_alloc_aligned(64, (size_t)len), .len = (size_t)len };
        if (!bytes->at)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes of rank %" PRId32, bytes->len,
                          root);
    }
    rc = rsi_agree(comm, rc, err);
    return rc ? rc : rsi_broadcast(comm, root, bytes->at, bytes->len, err);
}

/* Turns sizes into offsets; the sum must fit. */
static rsd_err place(rsd_comm *comm, size_t *first, rsd_error *err)
{
    size_t at = 0;

    for (int32_t r = 0; r < comm->size; r++) {
        size_t bytes = first[r];

        first[r] = at;
        if (__builtin_add_overflow(at, bytes, &at))
            return rsi_fail(err, RSD_E_NOMEM, "no memory: the ranks have more bytes than fit");
    }
    first[comm->size] = at;
    return RSD_OK;
}

rsd_err rsi_allgather_any(rsd_comm *comm, const void *mine, size_t bytes, rsi_gathered *out,
                          rsd_error *err)
{
    rsi_gathered all = { 0 };
    rsd_err      rc = RSD_OK;

    err = err ? err : &(rsd_error){ .rank = -1 };
    if (comm->alone)
        return played_alone(comm, ALLGATHER, err);
    all.first = rsi_calloc((size_t)comm->size + 1, sizeof(all.first[0]));
    if (!all.first)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the sizes of %" PRId32 " ranks", comm->size);
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = rsi_allgather(comm, &bytes, sizeof(bytes), all.first, err);
    if (rc)
        goto out;
    rc = place(comm, all.first, err);
    if (!rc) {
        all.data = rsi_alloc_aligned(64, all.first[comm->size]);
        if (!all.data)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes of all ranks",
                          all.first[comm->size]);
    }
    rc = rsi_agree(comm, rc, err);
    if (rc)
        goto out;
    if (bytes > 0)
        memcpy(all.data + all.first[comm->rank], mine, bytes);
    rc = rsi_allgather_at(comm, all.data, all.first, err);
    if (rc)
        goto out;
    *out = all;
out:
    if (rc)
        rsi_gathered_release(&all);
    return rc;
}

/* ---- to and from rank 0 ---- */

/* Rank 0 and every other rank pass block r between them; `mine` is the block of a rank other than
 * 0. Rank 0 has a few messages under way at a time, the others one. */
static rsd_err with_root(rsd_comm *comm, enum kind kind, const blocks *all, void *mine,
                         size_t bytes, rsd_error *err)
{
    step s;

    begin(&s, comm, kind, err);
    if (comm->rank > 0 && bytes > 0)
        add(&s, kind == GATHER, 0, mine, bytes);
    for (int32_t r = 1; comm->rank == 0 && r < comm->size && !s.rc; r++) {
        bytes = block_at(all, r + 1) - block_at(all, r);
        if (bytes > 0)
            add(&s, kind == SCATTER, r, all->data + block_at(all, r), bytes);
        if (s.n == STEP_MAX)
            finish(&s);
    }
    return finish(&s);
}

rsd_err rsi_gather_any(rsd_comm *comm, const void *mine, size_t bytes, rsi_gathered *out,
                       rsd_error *err)
{
    const bool   root = comm->rank == 0;
    rsi_gathered all = { 0 };
    rsd_err      rc = RSD_OK;

    err = err ? err : &(rsd_error){ .rank = -1 };
    if (comm->alone)
        return played_alone(comm, GATHER, err);
    if (root) {
        all.first = rsi_calloc((size_t)comm->size + 1, sizeof(all.first[0]));
        if (!all.first)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the sizes of %" PRId32 " ranks",
                          comm->size);
    }
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = with_root(comm, GATHER,
                       &(blocks){ .data = (char *)all.first, .bytes = sizeof(all.first[0]) },
                       &bytes, sizeof(bytes), err);
    if (rc)
        goto out;
    if (root) {
        all.first[0] = bytes;
        rc = place(comm, all.first, err);
        if (!rc)
            all.data = rsi_alloc_aligned(64, all.first[comm->size]);
        if (!rc && !all.data)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes of all ranks",
                          all.first[comm->size]);
        if (!rc && bytes > 0)
            memcpy(all.data, mine, bytes);
    }
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = with_root(comm, GATHER, &(blocks){ .data = all.data, .first = all.first },
                       (void *)(uintptr_t)mine, bytes, err);
out:
    if (rc)
        rsi_gathered_release(&all);
    else
        *out = all;
    return rc;
}

rsd_err rsi_scatter_any(rsd_comm *comm, const rsi_gathered *parts, rsi_bytes *mine, rsd_err rc,
                        rsd_error *err)
{
    size_t *sizes = NULL, bytes = 0;

    err = err ? err : &(rsd_error){ .rank = -1 };
    if (comm->alone)
        return played_alone(comm, SCATTER, err);
    if (comm->rank == 0 && !rc) {
        sizes = rsi_calloc((size_t)comm->size, sizeof(sizes[0]));
        if (!sizes)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the sizes of %" PRId32 " ranks",
                          comm->size);
        for (int32_t r = 0; sizes && r < comm->size; r++)
            sizes[r] = parts->first[r + 1] - parts->first[r];
    }
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = with_root(comm, SCATTER, &(blocks){ .data = (char *)sizes, .bytes = sizeof(sizes[0]) },
                       &bytes, sizeof(bytes), err);
    rsi_free(sizes);
    if (rc)
        return rc;
    if (comm->rank > 0) {
        *mine = (rsi_bytes){ .at = rsi_alloc_aligned(64, bytes), .len = bytes };
        if (!mine->at)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes of rank 0", bytes);
    }
    rc = rsi_agree(comm, rc, err);
    if (!rc && comm->rank == 0)
        return with_root(comm, SCATTER, &(blocks){ .data = parts->data, .first = parts->first },
                         NULL, 0, err);
    return rc ? rc : with_root(comm, SCATTER, NULL, mine->at, bytes, err);
}

void rsi_gathered_release(rsi_gathered *gathered)
{
    rsi_free(gathered->data);
    rsi_free(gathered->first);
    memset(gathered, 0, sizeof(*gathered));
}

/* ---- reduce ---- */

static int64_t reduce(rsi_reduce_op op, int64_t a, int64_t b)
{
    switch (op) {
    case RSI_OP_SUM:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case RSI_OP_MIN:
        return a < b ? a : b;
    case RSI_OP_MAX:
        return a > b ? a : b;
    }
    return a;
}

#define REDUCE_VALUES 64 /* per round; more take several */

static rsd_err allreduce_few(rsd_comm *comm, rsi_reduce_op op, int64_t *value, size_t n,
                             rsd_error *err)
{
    int64_t end = tree_end(comm, comm->rank);
    int64_t theirs[REDUCE_VALUES];
    step    s;

    begin(&s, comm, REDUCE, err);
    for (int64_t far = 1; far < end && comm->rank + far < comm->size && !s.rc; far *= 2) {
        add(&s, false, (int32_t)(comm->rank + far), theirs, n * sizeof(theirs[0]));
        if (finish(&s))
            break;
        for (size_t i = 0; i < n; i++)
            value[i] = reduce(op, value[i], theirs[i]);
    }
    if (comm->rank > 0 && !s.rc) {
        add(&s, true, (int32_t)(comm->rank - end), value, n * sizeof(value[0]));
        finish(&s);
    }
    return s.rc ? s.rc : rsi_broadcast(comm, 0, value, n * sizeof(value[0]), err);
}

rsd_err rsi_allreduce(rsd_comm *comm, rsi_reduce_op op, int64_t *value, size_t n, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (comm->alone)
        return RSD_OK;
    for (size_t at = 0; at < n && !rc; at += REDUCE_VALUES)
        rc = allreduce_few(comm, op, value + at, n - at < REDUCE_VALUES ? n - at : REDUCE_VALUES,
                           err);
    return rc;
}
