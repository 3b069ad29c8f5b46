/* SPDX-License-Identifier: Apache-2.0 */
/* One digest over everything that must be equal. Only when the ranks' digests differ is more sent:
 * rank 0's facts, tensor by tensor, so that each rank can say what it has otherwise. */
#include "save/same.h"
#include "base/digest.h"
#include "base/map.h"
#include "base/mem.h"

#include <string.h>

/* What has to be the same of one tensor or value; a value has only a name. */
typedef struct facts {
    uint64_t name, dtype, shape, layout;
} facts;

static facts facts_of(const rsd_state *state, size_t i)
{
    const rsi_state_tensor *t = &state->tensor[i];
    facts                   f = { .layout = 1 };

    if (i >= state->ntensors) {
        const char *name = state->value[i - state->ntensors].spot.name;

        return (facts){ .name = rsi_digest(2, name, strlen(name)) };
    }
    f.name = rsi_digest(1, t->spot.name, strlen(t->spot.name));
    f.dtype = (uint64_t)t->dtype;
    f.shape = rsi_digest(0, t->shape, (size_t)t->ndim * sizeof(t->shape[0]));
    if (t->layout)
        f.layout = rsi_layout_digest(t->layout);
    return f;
}

static const char *name_of(const rsd_state *state, size_t i)
{
    return i < state->ntensors ? state->tensor[i].spot.name
                               : state->value[i - state->ntensors].spot.name;
}

/* This rank's facts against rank 0's: in words, for the first that differs. */
static rsd_err compare(const rsd_state *state, const facts *mine, size_t n, const facts *first,
                       size_t nfirst, rsd_error *err)
{
    for (size_t i = 0; i < n || i < nfirst; i++) {
        const char *what;

        if (i >= n)
            return rsi_fail(err, RSD_E_MISMATCH, "has %zu tensors and values, rank 0 has %zu", n,
                            nfirst);
        if (i < nfirst && memcmp(&mine[i], &first[i], sizeof(mine[i])) == 0)
            continue;
        if (i >= nfirst || mine[i].name != first[i].name)
            return rsi_fail(err, RSD_E_MISMATCH, "has \"%s\" as number %zu, rank 0 has not",
                            name_of(state, i), i);
        what = mine[i].dtype != first[i].dtype   ? "dtype"
               : mine[i].shape != first[i].shape ? "shape"
                                                 : "layout";
        return rsi_fail(err, RSD_E_MISMATCH, "tensor \"%s\" has another %s than on rank 0",
                        name_of(state, i), what);
    }
    return RSD_OK;
}

rsd_err rsi_same_state(rsd_comm *comm, const rsd_state *state, rsd_err rc, rsd_error *err)
{
    size_t   n = state->ntensors + state->nvalues;
    facts   *mine = rsi_calloc(n, sizeof(mine[0])), *first = NULL;
    uint64_t digest, nfirst = n;
    int64_t  ends[2];

    if (!rc && !mine)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to compare");
    rc = rsi_agree(comm, rc, err);
    for (size_t i = 0; i < n && !rc; i++)
        mine[i] = facts_of(state, i);
    digest = mine && !rc ? rsi_digest(n, mine, n * sizeof(mine[0])) : 0;
    ends[0] = (int64_t)digest;
    ends[1] = (int64_t)~digest; /* the lowest of these is the highest digest, upside down */
    if (!rc)
        rc = rsi_allreduce(comm, RSI_OP_MIN, ends, 2, err);
    if (rc || ends[0] == ~ends[1]) {
        rsi_free(mine);
        return rc;
    }
    rc = rsi_broadcast(comm, 0, &nfirst, sizeof(nfirst), err);
    if (!rc) {
        first = rsi_calloc((size_t)nfirst, sizeof(first[0]));
        rc = rsi_agree(comm, first ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory to compare"),
                       err);
    }
    if (!rc && rsd_comm_rank(comm) == 0 && n)
        memcpy(first, mine, n * sizeof(first[0]));
    if (!rc)
        rc = rsi_broadcast(comm, 0, first, (size_t)nfirst * sizeof(first[0]), err);
    if (!rc)
        rc = rsi_agree(comm, compare(state, mine, n, first, (size_t)nfirst, err), err);
    rsi_free(mine);
    rsi_free(first);
    return rc;
}
