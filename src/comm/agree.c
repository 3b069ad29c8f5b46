/* SPDX-License-Identifier: Apache-2.0 */
/* Makes ranks fail together. If all succeeded this is one small reduction; otherwise every rank
 * also gets the messages. rollcall.c handles a rank that never arrives. */
#include "comm/comm.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

rsd_error rsi_failure_of(int32_t rank, rsd_err mine, const rsd_error *err)
{
    rsd_error own;

    if (err && err->code == (int32_t)mine)
        own = *err;
    else
        rsi_fail(&own, mine, "%s", rsd_err_name(mine));
    own.rank = rank;
    own.nfailed = 1;
    return own;
}

static rsd_err keep_none(rsd_comm *comm)
{
    rsi_free(comm->failed);
    comm->failed = NULL;
    comm->nfailed = 0;
    return RSD_OK;
}

/* Leaves the messages of the first failures in comm->failed. `count` is the total number of
 * failures. */
static rsd_err share_texts(rsd_comm *comm, const rsd_error *own, size_t count, rsd_error *err)
{
    size_t     kept = count < RSI_FAILURES_MAX ? count : RSI_FAILURES_MAX;
    rsd_error *failed = rsi_calloc(kept, sizeof(failed[0]));
    int32_t   *flag = rsi_calloc((size_t)comm->size, sizeof(flag[0])); /* [size] */
    size_t    *first = rsi_calloc((size_t)comm->size + 1, sizeof(first[0]));
    int32_t    mine = own != NULL;
    size_t     at = 0;
    rsd_err    rc;

    if (!failed || !flag || !first) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the errors of %zu ranks", count);
        rc = rsi_break(comm, rc, err);
        goto out;
    }
    rc = rsi_allgather(comm, &mine, sizeof(mine), flag, err);
    if (rc)
        goto out;
    for (int32_t r = 0; r < comm->size; r++) {
        first[r] = at * sizeof(failed[0]);
        if (r == comm->rank && own && at < kept)
            failed[at] = *own;
        at += flag[r] && at < kept;
    }
    first[comm->size] = at * sizeof(failed[0]);
    rc = rsi_allgather_at(comm, failed, first, err);
    if (rc)
        goto out;
    keep_none(comm);
    comm->failed = failed;
    comm->nfailed = kept;
    failed = NULL;
out:
    rsi_free(failed);
    rsi_free(flag);
    rsi_free(first);
    return rc;
}

rsd_err rsi_also(rsd_err rc, const rsd_error *own, rsd_error *err)
{
    rsd_error both = *err;

    if (!own || strcmp(own->msg, err->msg) == 0)
        return rc;
    rsi_fail(&both, rc, "%s; before that, here: %s", err->msg, own->msg);
    memcpy(err->msg, both.msg, sizeof(err->msg));
    return rc;
}

static rsd_err agree_alone(rsd_comm *comm, const rsd_error *own, rsd_error *err)
{
    keep_none(comm);
    if (!own)
        return RSD_OK;
    comm->failed = rsi_calloc(1, sizeof(*own));
    if (comm->failed) {
        *comm->failed = *own;
        comm->nfailed = 1;
    }
    *err = *own;
    return (rsd_err)own->code;
}

rsd_err rsi_name_rank(rsd_error *err)
{
    char front[32];

    snprintf(front, sizeof(front), "rank %" PRId32 ": ", err->rank);
    return strncmp(err->msg, front, strlen(front)) == 0
               ? (rsd_err)err->code
               : rsi_while(err, (rsd_err)err->code, "rank %" PRId32, err->rank);
}

rsd_err rsi_agree(rsd_comm *comm, rsd_err mine, rsd_error *err)
{
    rsd_error  local, text;
    rsd_error *own = NULL;
    int64_t    count = mine ? 1 : 0;
    rsd_err    rc;

    if (mine) {
        text = rsi_failure_of(comm->rank, mine, err);
        own = &text;
    }
    err = err ? err : &local;
    if (comm->size == 1 || comm->alone) {
        rc = agree_alone(comm, own, err);
        return rc ? rsi_name_rank(err) : RSD_OK;
    }
    rc = rsi_allreduce(comm, RSI_OP_SUM, &count, 1, err);
    if (rc)
        return rsi_also(rc, own, err);
    if (count == 0)
        return keep_none(comm);
    rc = share_texts(comm, own, (size_t)count, err);
    if (rc)
        return rsi_also(rc, own, err);
    *err = comm->failed[0];
    err->nfailed = (int32_t)count;
    return rsi_name_rank(err);
}
