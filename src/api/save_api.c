/* SPDX-License-Identifier: Apache-2.0 */
/* The save and load sections of reshard.h: checks arguments and hands them on. */
#include "comm/signs.h"
#include "exec/load.h"
#include "exec/save.h"

#include <string.h>

rsd_err rsd_save(const char *path, rsd_comm *comm, const rsd_state *state,
                 const rsd_save_opts *opts, rsd_error *err)
{
    rsd_save_opts known = { .size = sizeof(known) };
    rsi_pulse     before;

    if (!path || !*path || !state)
        return rsi_fail(err, RSD_E_INVALID, "a path and a state are needed");
    if (opts)
        memcpy(&known, opts, opts->size < sizeof(known) ? opts->size : sizeof(known));
    before = rsi_comm_enter(comm);
    return rsi_comm_leave(before, rsi_save(path, comm, state, &known, err));
}

rsd_err rsd_load(const char *path, rsd_comm *comm, rsd_state *state, const rsd_load_opts *opts,
                 rsd_error *err)
{
    rsd_load_opts known = { .size = sizeof(known) };
    rsi_pulse     before;

    if (!path || !*path || !state)
        return rsi_fail(err, RSD_E_INVALID, "a path and a state are needed");
    if (opts)
        memcpy(&known, opts, opts->size < sizeof(known) ? opts->size : sizeof(known));
    before = rsi_comm_enter(comm);
    return rsi_comm_leave(before, rsi_load(path, comm, state, &known, err));
}

rsd_err rsd_load_below(const char *path, rsd_comm *comm, size_t n, const char *const *names,
                       rsd_load_alloc alloc, void *arg, const rsd_load_opts *opts, rsd_error *err)
{
    rsd_load_opts known = { .size = sizeof(known) };
    rsi_below     below = { .n = n, .name = names, .alloc = alloc, .arg = arg };
    rsi_pulse     before;

    if (!path || !*path || !alloc || (n > 0 && !names))
        return rsi_fail(err, RSD_E_INVALID, "a path, a place for tensors and %zu names are needed",
                        n);
    for (size_t i = 0; i < n; i++)
        if (!names[i])
            return rsi_fail(err, RSD_E_INVALID, "name %zu is missing", i);
    if (opts)
        memcpy(&known, opts, opts->size < sizeof(known) ? opts->size : sizeof(known));
    before = rsi_comm_enter(comm);
    return rsi_comm_leave(before, rsi_load_below(path, comm, &below, &known, err));
}
