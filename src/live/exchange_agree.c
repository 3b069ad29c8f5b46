/* SPDX-License-Identifier: Apache-2.0 */
/* Do all ranks run the same plan? One digest of each rank is compared; only when they differ is
 * more sent, so that the error can name the tensor and what is different about it. */
#include "base/digest.h"
#include "base/mem.h"
#include "live/exchange_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What has to be the same of one tensor. */
typedef struct facts {
    uint64_t dtype, shape, src, dst;
} facts;

const char *rsi_exchange_name(const rsi_exchange *x, size_t tensor, char *buf, size_t cap)
{
    if (x->name && x->name[tensor])
        snprintf(buf, cap, "tensor \"%s\"", x->name[tensor]);
    else
        snprintf(buf, cap, "tensor %zu", tensor);
    return buf;
}

/* Tensors of one class have the same layouts, whose digests take time. */
static bool list_facts(const rsd_plan *plan, facts *out)
{
    facts *of_class = rsi_calloc(plan->nclasses, sizeof(of_class[0]));

    if (!of_class)
        return false;
    for (size_t i = 0; i < plan->nclasses; i++) {
        of_class[i].src = rsi_layout_digest(plan->class[i] -> src.layout);
        of_class[i].dst = rsi_layout_digest(plan->class[i] -> dst.layout);
    }
    for (size_t t = 0; t < plan->n; t++) {
        const rsd_layout *l = plan->src[t];

        out[t] = of_class[plan->class_of[t]];
        out[t].dtype = (uint64_t)l->dtype;
        out[t].shape = rsi_digest((uint64_t)l->ndim, l->shape, (size_t)l->ndim * sizeof(int64_t));
    }
    rsi_free(of_class);
    return true;
}

static rsd_err compare(const rsi_exchange *x, const facts *mine, const facts *first, size_t nfirst,
                       rsd_error *err)
{
    size_t n = x->plan->n;

    if (n != nfirst)
        return rsi_fail(err, RSD_E_MISMATCH, "moves %zu tensors, rank 0 moves %zu", n, nfirst);
    for (size_t t = 0; t < n; t++) {
        const char *what = mine[t].dtype != first[t].dtype   ? "dtype"
                           : mine[t].shape != first[t].shape ? "shape"
                           : mine[t].src != first[t].src     ? "source layout"
                                                             : "target layout";
        char        name[128];

        if (memcmp(&mine[t], &first[t], sizeof(mine[t])) != 0)
            return rsi_fail(err, RSD_E_MISMATCH, "%s has another %s than on rank 0",
                            rsi_exchange_name(x, t, name, sizeof(name)), what);
    }
    return RSD_OK;
}

/* The digests differ: rank 0's facts go to all. */
static rsd_err find_difference(rsi_exchange *x, const facts *mine, rsd_error *err)
{
    uint64_t nfirst = x->plan->n;
    facts   *first = NULL;
    rsd_err  rc = rsi_broadcast(x->comm, 0, &nfirst, sizeof(nfirst), err);

    if (rc)
        return rc;
    first = rsi_calloc((size_t)nfirst, sizeof(first[0]));
    rc = rsi_agree(x->comm, first ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory to compare"),
                   err);
    if (!rc && x->comm->rank == 0 && nfirst > 0)
        memcpy(first, mine, (size_t)nfirst * sizeof(first[0]));
    if (!rc)
        rc = rsi_broadcast(x->comm, 0, first, (size_t)nfirst * sizeof(first[0]), err);
    if (!rc)
        rc = rsi_agree(x->comm, compare(x, mine, first, (size_t)nfirst, err), err);
    rsi_free(first);
    return rc;
}

rsd_err rsi_exchange_compare(rsi_exchange *x, rsd_err rc, rsd_error *err)
{
    size_t   n = x->plan->n;
    facts   *mine = rsi_calloc(n, sizeof(mine[0]));
    int64_t  ends[2];
    uint64_t digest;

    if (!rc && (!mine || !list_facts(x->plan, mine)))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to compare %zu tensors", n);
    rc = rsi_agree(x->comm, rc, err);
    if (rc)
        goto out;
    digest = rsi_digest(n, mine, n * sizeof(mine[0]));
    ends[0] = (int64_t)digest;
    ends[1] = (int64_t)~digest; /* the lowest of these is the highest digest, upside down */
    rc = rsi_allreduce(x->comm, RSI_OP_MIN, ends, 2, err);
    if (!rc && ends[0] != ~ends[1])
        rc = find_difference(x, mine, err);
out:
    rsi_free(mine);
    return rc;
}
