/* SPDX-License-Identifier: Apache-2.0 */
/* The section of reshard.h on operations under way: checks arguments and hands them on. */
#include "comm/signs.h"
#include "exec/async.h"

#include <string.h>

rsd_err rsd_save_begin(const char *path, rsd_comm *comm, const rsd_state *state, rsd_stage_way how,
                       const rsd_save_opts *opts, rsd_op **out, rsd_error *err)
{
    rsd_save_opts known = { .size = sizeof(known) };
    rsi_pulse     before;

    if (!path || !*path || !state || !out)
        return rsi_fail(err, RSD_E_INVALID, "a path, a state and a place for the save are needed");
    if (how != RSD_STAGE_COPY && how != RSD_STAGE_FORK)
        return rsi_fail(err, RSD_E_INVALID, "%d is no way of staging", (int)how);
    if (opts)
        memcpy(&known, opts, opts->size < sizeof(known) ? opts->size : sizeof(known));
    before = rsi_comm_enter(comm);
    return rsi_comm_leave(before, rsi_async_begin(path, comm, state, how, &known, out, err));
}

void rsd_state_unstage(const rsd_state *state)
{
    if (state)
        rsi_async_forget(state);
}
