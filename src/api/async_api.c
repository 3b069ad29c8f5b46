/* SPDX-License-Identifier: Apache-2.0 */
/* The section of reshard.h on operations in progress: checks arguments and passes them on. */
#include "api/call_facts.h"
#include "base/opts.h"
#include "comm/signs.h"
#include "save/async.h"
#include "save/stage.h"

#include <reshard/reshard_folder.h>

rsd_err rsd_save_begin(const char *path, rsd_comm *comm, rsd_state *state, rsd_stage_way how,
                       const rsd_save_opts *opts, rsd_op **out, rsd_error *err)
{
    rsd_save_opts known = { .size = sizeof(known) };
    rsi_pulse     before;
    rsi_async    *async = NULL;
    rsd_err       rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_save_opts", err);

    if (!rc && (!path || !*path || !state || !out))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: path, state or output pointer");
    if (!rc && how != RSD_STAGE_COPY && how != RSD_STAGE_FORK)
        rc = rsi_fail(err, RSD_E_INVALID, "%d is not a way of staging", (int)how);
    if (!rc)
        rc = rsi_async_create(path, how, &known, &async, err);
    rc = rsi_same_facts(comm, rsi_save_facts, &(rsi_call){ path, &known, how }, rc, err);
    if (rc) {
        rsi_async_free(async);
        return rc;
    }
    before = rsi_comm_enter(comm);
    return rsi_comm_leave(before, rsi_async_begin(async, comm, state, &known, out, err));
}

void rsd_state_unstage(rsd_state *state)
{
    if (state)
        rsi_stage_forget(state);
}

void rsd_state_restage(rsd_state *to, rsd_state *from)
{
    if (to && from && to != from)
        rsi_stage_move(to, from);
}
