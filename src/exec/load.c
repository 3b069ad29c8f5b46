/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: every tensor of the state is found and compared before the first byte is read, then each
 * view is filled, whatever chunks the checkpoint has. */
#include "exec/load.h"
#include "base/mem.h"
#include "exec/fetch.h"
#include "exec/together.h"

#include <inttypes.h>
#include <string.h>

typedef struct loading {
    rsd_ckpt            *ckpt;
    rsd_state           *state;
    const rsd_load_opts *opts;
    size_t              *found; /* [ntensors] number in the checkpoint; SIZE_MAX: not there */
} loading;

static rsd_err check_tensor(const rsi_state_tensor *want, const rsd_tensor_info *have,
                            rsd_error *err)
{
    if (have->dtype != want->dtype)
        return rsi_fail(err, RSD_E_MISMATCH, "tensor \"%s\" is %s in the checkpoint, %s is wanted",
                        want->spot.name, rsd_dtype_name(have->dtype), rsd_dtype_name(want->dtype));
    if (have->ndim != want->ndim)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "tensor \"%s\" has %" PRId32 " dimensions in the checkpoint, %" PRId32
                        " are wanted",
                        want->spot.name, have->ndim, want->ndim);
    for (int d = 0; d < want->ndim; d++)
        if (have->shape[d] != want->shape[d])
            return rsi_fail(err, RSD_E_MISMATCH,
                            "dimension %d of tensor \"%s\" has the size %" PRId64
                            " in the checkpoint, %" PRId64 " is wanted",
                            d, want->spot.name, have->shape[d], want->shape[d]);
    return RSD_OK;
}

static rsd_err find_all(loading *l, rsd_error *err)
{
    l->found = rsi_calloc(l->state->ntensors, sizeof(l->found[0]));
    if (!l->found)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu tensors", l->state->ntensors);
    for (size_t i = 0; i < l->state->ntensors; i++) {
        const rsi_state_tensor *want = &l->state->tensor[i];
        rsd_tensor_info         info;
        rsd_err                 rc = RSD_OK;

        if (!l->ckpt->ops->find(l->ckpt, want->spot.name, &l->found[i])) {
            l->found[i] = SIZE_MAX;
            if (!l->opts->allow_partial)
                rc = rsi_fail(err, RSD_E_NOTFOUND, "the checkpoint has no tensor \"%s\"",
                              want->spot.name);
            else if (l->opts->missing)
                l->opts->missing(l->opts->arg, want->spot.name);
        } else {
            l->ckpt->ops->tensor(l->ckpt, l->found[i], &info);
            rc = check_tensor(want, &info, err);
        }
        if (rc)
            return rc;
    }
    return RSD_OK;
}

static rsd_err read_all(loading *l, rsd_error *err)
{
    rsd_read_opts read = { .size = sizeof(read),
                           .verify = l->opts->verify,
                           .threads = l->opts->threads,
                           .staging = l->opts->staging };

    for (size_t i = 0; i < l->state->ntensors; i++) {
        const rsi_state_tensor *want = &l->state->tensor[i];

        for (size_t v = 0; v < want->nviews && l->found[i] != SIZE_MAX; v++) {
            rsd_err rc = rsi_fetch(l->ckpt, l->found[i], &want->view[v], &read, err);

            if (rc)
                return rc;
        }
    }
    return RSD_OK;
}

rsd_err rsi_load(const char *path, rsd_comm *comm, rsd_state *state, const rsd_load_opts *opts,
                 rsd_error *err)
{
    loading      l = { .state = state, .opts = opts };
    rsi_together together;
    rsd_err      rc = rsi_together_open(comm, opts->store, path, &together, err);

    if (rc)
        return rc;
    l.ckpt = together.ckpt;
    rc = find_all(&l, err);
    if (comm)
        rc = rsi_agree(comm, rc, err); /* nobody's memory is touched unless all will be filled */
    if (!rc) {
        rc = read_all(&l, err);
        if (comm)
            rc = rsi_agree(comm, rc, err);
    }
    rsi_free(l.found);
    rsi_together_close(&together);
    return rc;
}
