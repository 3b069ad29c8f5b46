/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0 opens the checkpoint through a store that logs all it is told; the log goes to the other
 * ranks, which open theirs from it (store/record.c). So the metadata are read once whatever their
 * format is, and every rank checks them as if it had read them itself. Next: load.c. */
#include "exec/together.h"
#include "base/mem.h"
#include "format/open.h"
#include "store/record.h"

#define PIECE ((size_t)16 << 20) /* bytes that are sent at once */

static rsd_err open_front(rsd_store *store, const char *name, rsi_together *t, const void **log,
                          size_t *len, rsd_error *err)
{
    rsd_err rc = rsi_record_open(store, &t->front, err);

    if (!rc)
        rc = rsi_ckpt_open(t->front, name, &t->ckpt, err);
    if (!rc)
        rsi_record_end(t->front, log, len);
    return rc;
}

/* Rank 0's bytes to all. */
static rsd_err share_log(rsd_comm *comm, rsi_together *t, const void **log, size_t *len,
                         rsd_error *err)
{
    uint64_t bytes = *len;
    char    *data = (char *)(uintptr_t)*log;
    rsd_err  rc = rsi_broadcast(comm, 0, &bytes, sizeof(bytes), err);

    if (rc)
        return rc;
    if (rsd_comm_rank(comm) > 0) {
        t->log = rsi_alloc_aligned(64, bytes ? (size_t)bytes : 1);
        if (!t->log)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu bytes of metadata", (size_t)bytes);
        data = t->log;
    }
    rc = rsi_agree(comm, rc, err);
    for (size_t at = 0; at < bytes && !rc; at += PIECE)
        rc =
            rsi_broadcast(comm, 0, data + at, bytes - at < PIECE ? (size_t)bytes - at : PIECE, err);
    *log = data;
    *len = (size_t)bytes;
    return rc;
}

static rsd_err open_shared(rsd_comm *comm, rsd_store *store, const char *path, rsi_together *t,
                           rsd_error *err)
{
    const void *log = NULL;
    char       *name = NULL;
    const char *at = path;
    size_t      len = 0;
    rsd_err     rc = RSD_OK;

    if (!store) {
        rc = rsi_files_local(path, &t->own, &name, err);
        store = t->own;
        at = name;
    }
    if (!rc && rsd_comm_rank(comm) == 0)
        rc = open_front(store, at, t, &log, &len, err);
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = share_log(comm, t, &log, &len, err);
    if (rc)
        goto out;
    if (rsd_comm_rank(comm) > 0) {
        rc = rsi_replay_open(store, log, len, &t->front, err);
        if (!rc)
            rc = rsi_ckpt_open(t->front, at, &t->ckpt, err);
        if (!rc) {
            rsi_replay_end(t->front);
            rsi_free(t->log);
            t->log = NULL;
        }
    }
    rc = rsi_agree(comm, rc, err);
out:
    rsi_free(name);
    return rc;
}

rsd_err rsi_together_open(rsd_comm *comm, rsd_store *store, const char *path, rsi_together *out,
                          rsd_error *err)
{
    rsi_together t = { 0 };
    rsd_err      rc;

    if (!comm || comm->size == 1 || comm->alone) {
        rc = rsi_ckpt_open(store, path, &t.ckpt, err);
        rc = comm ? rsi_agree(comm, rc, err) : rc;
    } else {
        rc = open_shared(comm, store, path, &t, err);
    }
    if (rc) {
        rsi_together_close(&t);
        return rc;
    }
    *out = t;
    return RSD_OK;
}

void rsi_together_close(rsi_together *together)
{
    rsi_ckpt_close(together->ckpt);
    rsd_store_free(together->front);
    rsd_store_free(together->own);
    rsi_free(together->log);
    *together = (rsi_together){ 0 };
}
