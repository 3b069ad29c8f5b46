/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of one process and name the same store use what rank 0 has opened. For
 * others rank 0 opens the checkpoint through a store that logs everything it reads; the log goes to
 * them, and they open the checkpoint from it (store/record.c). So the metadata are read once,
 * whatever the format, and every process checks them as if it had read them itself. Each rank holds
 * what the name refers to and compares it with rank 0's, so that all read one checkpoint even while
 * another is published. Next: load.c. */
#include "load/open_together.h"
#include "base/digest.h"
#include "base/mem.h"
#include "base/shared.h"
#include "format/open.h"
#include "store/record.h"

#include <string.h>

enum { ROUNDS = 64 };

/* A checkpoint that threads share. */
struct rsi_one_ckpt {
    rsi_shared shared;
    rsd_ckpt  *ckpt;
};

#define PIECE ((size_t)16 << 20) /* bytes sent at once */

static rsd_err hold(rsd_store *store, const char *name, uint32_t flags, rsi_together *t,
                    rsd_error *err)
{
    return *name ? rsi_store_hold(store, name, RSI_SUMS_NAME, flags, &t->held, err) : RSD_OK;
}

/* Rank 0 holds it, files included; a writer that would replace it waits until the other ranks hold
 * it too. */
static rsd_err hold_locked(rsd_store *store, const char *name, rsi_together *t, void **lock,
                           rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (int i = 0; i < ROUNDS && !rc && !*lock; i++) {
        rsd_store_close(t->held);
        t->held = NULL;
        rc = hold(store, name, RSD_HOLD_FILES, t, err);
        if (rc || !t->held)
            break;
        rsi_store_lock(t->held, name, lock, NULL);
        if (*lock && rsi_store_replaced(t->held) != RSD_HELD_CURRENT) {
            rsi_store_unlock(t->held, *lock);
            *lock = NULL;
        }
    }
    return rc;
}

/* All ranks hold the same checkpoint, files included, before anything is read: for a checkpoint
 * that is replaced faster than it can be opened. */
static rsd_err hold_together(rsd_comm *comm, rsd_store *store, const char *name, rsi_together *t,
                             rsd_error *err)
{
    const bool leads = rsd_comm_rank(comm) == 0;
    int64_t    replaced = 1;
    rsd_err    rc = RSD_OK;

    for (int i = 0; i < ROUNDS && replaced && !rc; i++) {
        void *lock = NULL;

        rsd_store_close(t->held);
        t->held = NULL;
        rc = rsi_agree(comm, leads ? hold_locked(store, name, t, &lock, err) : RSD_OK, err);
        if (!rc && !leads)
            hold(store, name, RSD_HOLD_FILES, t, &t->unheld);
        if (!rc)
            rc = rsi_agree(comm, RSD_OK, err);
        replaced = !rc && leads && t->held && rsi_store_replaced(t->held) != RSD_HELD_CURRENT;
        if (lock)
            rsi_store_unlock(t->held, lock);
        if (!rc)
            rc = rsi_broadcast(comm, 0, &replaced, sizeof(replaced), err);
    }
    return rc; /* if it was replaced anyway, that is noticed */
}

/* Opens it on rank 0. */
static rsd_err open_front(rsd_store *store, const char *name, rsi_together *t, const void **log,
                          rsd_error *err)
{
    size_t    len;
    rsi_file *side;
    rsd_err   rc = t->held ? RSD_OK : hold(store, name, 0, t, err);

    if (!rc)
        rc = rsi_record_open(t->held ? t->held : store, &t->front, err);
    if (!rc)
        rc = rsi_ckpt_open(t->front, name, &t->ckpt, err);
    if (rc)
        return rc;
    rsi_record_end(t->front, log, &len);
    t->told.bytes = len;
    side = t->ckpt->sums.file;
    if (side && rsi_ckpt_sums_trailer(side, t->told.trailer, NULL) == RSD_OK)
        t->told.side = side->size;
    return RSD_OK;
}

/* Sends rank 0's bytes to all. The other ranks hold the checkpoint here: not before rank 0 does,
 * and before it looks again. `mine` is this rank's result so far. */
static rsd_err share_log(rsd_comm *comm, rsd_store *store, const char *name, rsi_together *t,
                         const void **log, rsd_err mine, rsd_error *err)
{
    char    *data = (char *)(uintptr_t)*log;
    uint64_t bytes;
    rsd_err  rc;

    t->told.failed = mine != RSD_OK; /* only rank 0's value counts */
    rc = rsi_spread(comm, &t->told, sizeof(t->told), err);
    if (rc || t->told.failed)
        return rc ? rc : rsi_agree(comm, mine, err);
    rc = mine;
    bytes = t->told.bytes;
    if (!rc && rsd_comm_rank(comm) > 0) {
        if (!t->held && !t->unheld.code)
            hold(store, name, 0, t, &t->unheld);
        t->log = rsi_alloc_aligned(64, bytes ? (size_t)bytes : 1);
        if (!t->log)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes of metadata", (size_t)bytes);
        data = t->log;
    }
    rc = rsi_agree(comm, rc, err);
    for (size_t at = 0; at < bytes && !rc; at += PIECE)
        rc = rsi_spread(comm, data + at, bytes - at < PIECE ? (size_t)bytes - at : PIECE, err);
    *log = data;
    return rc;
}

static rsd_err not_the_same(const char *name, rsd_error *err)
{
    return rsi_fail(err, RSD_E_MISMATCH, "\"%s\" is not the checkpoint that rank 0 found", name);
}

/* Runs on the other ranks before they open their first file. */
static rsd_err compare(void *arg, rsd_error *err)
{
    rsi_together   *t = arg;
    const char     *name = t->ckpt->files.top;
    const rsi_file *side = t->ckpt->sums.file;
    char            mine[RSI_SUMS_TRAILER] = { 0 };
    rsi_file       *file = NULL;
    rsd_err         rc = (rsd_err)t->unheld.code;

    if (rc)
        *err = t->unheld;
    if (rc || !t->told.side)
        return rc;
    if (!side)
        return not_the_same(name, err);
    rc = rsi_file_open(t->inner, side->name, side->flags, 0, &file, err);
    if (!rc)
        rc = rsi_ckpt_sums_trailer(file, mine, err);
    if (!rc && (file->size != t->told.side || memcmp(mine, t->told.trailer, sizeof(mine)) != 0))
        rc = not_the_same(name, err);
    rsi_file_close(file, NULL);
    return rc;
}

static rsd_err open_told(rsd_store *store, const char *name, rsi_together *t, const void *log,
                         rsd_error *err)
{
    rsi_replay_check check = { .check = compare, .arg = t, .strict = !t->told.side };
    rsd_err          rc;

    t->inner = t->held ? t->held : store;
    rc = rsi_replay_open(t->inner, log, (size_t)t->told.bytes, &t->front, err);
    if (!rc)
        rc = rsi_ckpt_open(t->front, name, &t->ckpt, err);
    if (rc)
        return rc;
    rsi_replay_end(t->front, &check);
    rsi_free(t->log);
    t->log = NULL;
    return RSD_OK;
}

static rsd_err open_shared(rsd_comm *comm, rsd_store *store, const char *path, bool again,
                           rsi_together *t, rsd_error *err)
{
    const void *log = NULL;
    char       *name = NULL;
    const char *at = path;
    rsd_err     rc = RSD_OK;

    if (!store) {
        rc = rsi_files_local(path, &t->own, &name, err);
        store = t->own;
        at = name;
    }
    if (again) {
        rc = rsi_agree(comm, rc, err);
        if (!rc)
            rc = hold_together(comm, store, at, t, err);
        if (rc)
            goto out;
    }
    if (!rc && rsd_comm_rank(comm) == 0)
        rc = open_front(store, at, t, &log, err);
    rc = share_log(comm, store, at, t, &log, rc, err);
    if (rc)
        goto out;
    if (rsd_comm_rank(comm) > 0)
        rc = open_told(store, at, t, log, err);
    else if (!t->told.side && !again && rsi_store_replaced(t->front) != RSD_HELD_CURRENT)
        rc = not_the_same(at, err);
    rc = rsi_agree(comm, rc, err);
out:
    rsi_free(name);
    return rc;
}

/* ---- threads of one process ---- */

/* True if they also mean the same. A store that only some may still use could go away first. */
static rsd_err can_use_one(rsd_comm *comm, const rsd_store *store, const char *path, bool *out,
                           rsd_error *err)
{
    int64_t mean = (int64_t)rsi_digest((uint64_t)(uintptr_t)store, path, strlen(path));
    int64_t ends[2] = { mean, ~mean };
    rsd_err rc = RSD_OK;

    *out = comm->ops.flags & RSD_COMM_THREADS && !comm->host;
    if (*out)
        rc = rsi_allreduce(comm, RSI_OP_MAX, ends, 2, err);
    *out = *out && !rc && ends[0] == ~ends[1];
    return rc;
}

static void close_one(rsi_shared *shared)
{
    struct rsi_one_ckpt *one = (struct rsi_one_ckpt *)shared;

    rsi_ckpt_close(one->ckpt);
    rsi_free(one);
}

static rsd_err open_one(rsd_comm *comm, rsd_store *store, const char *path, rsi_together *t,
                        rsd_error *err)
{
    struct rsi_one_ckpt *one = NULL;
    uint64_t             number = 0;
    rsd_err              rc = RSD_OK;

    if (comm->rank == 0) {
        one = rsi_calloc(1, sizeof(*one));
        rc = one ? rsi_ckpt_open(store, path, &one->ckpt, err)
                 : rsi_fail(err, RSD_E_NOMEM, "no memory for a checkpoint");
    }
    rc = rsi_agree(comm, rc, err);
    if (rc) {
        if (one)
            close_one(&one->shared);
        return rc;
    }
    if (one)
        number = rsi_shared_add(&one->shared, close_one);
    rc = rsi_broadcast(comm, 0, &number, sizeof(number), err);
    t->one = one ? one : rc ? NULL : (struct rsi_one_ckpt *)rsi_shared_find(number);
    if (!rc && !t->one)
        rc = rsi_fail(err, RSD_E_COMM, "rank 0 has given up");
    rc = rsi_agree(comm, rc, err); /* all have it: from now on any rank may leave */
    t->ckpt = rc ? NULL : t->one->ckpt;
    return rc;
}

/* ---- all ---- */

static bool is_alone(const rsd_comm *comm)
{
    return !comm || comm->size == 1 || comm->alone;
}

rsd_err rsi_together_open(rsd_comm *comm, rsd_store *store, const char *path, bool again,
                          rsi_together *out, rsd_error *err)
{
    bool    one;
    rsd_err rc;

    *out = (rsi_together){ 0 };
    if (!is_alone(comm)) {
        rc = rsi_hosts_find(comm, err);
        if (!rc)
            rc = can_use_one(comm, store, path, &one, err);
        if (rc)
            return rc;
        return one ? open_one(comm, store, path, out, err)
                   : open_shared(comm, store, path, again, out, err);
    }
    rc = rsi_ckpt_open(store, path, &out->ckpt, err);
    return comm ? rsi_agree(comm, rc, err) : rc;
}

bool rsi_together_replaced(rsd_comm *comm, const rsi_together *together, rsd_err rc)
{
    const rsd_store *held = together->held;
    int64_t          any;

    if (!held && together->ckpt)
        held = together->ckpt->files.store;
    any = held && rsi_store_replaced(held) != RSD_HELD_CURRENT;
    if (rc == RSD_E_COMM || rc == RSD_E_TIMEOUT) /* no peers to ask */
        return false;
    if (!is_alone(comm) && rsi_allreduce(comm, RSI_OP_MAX, &any, 1, NULL))
        return false;
    return any;
}

void rsi_together_close(rsi_together *together)
{
    if (together->one)
        rsi_shared_drop(&together->one->shared);
    else
        rsi_ckpt_close(together->ckpt);
    rsd_store_close(together->front);
    rsd_store_close(together->held);
    rsd_store_close(together->own);
    rsi_free(together->log);
    *together = (rsi_together){ 0 };
}
