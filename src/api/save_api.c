/* SPDX-License-Identifier: Apache-2.0 */
/* The save and load sections of reshard.h: checks arguments and passes them on. */
#include "api/call_facts.h"
#include "base/opts.h"
#include "comm/signs.h"
#include "load/load.h"
#include "save/save.h"

rsd_err rsd_save(const char *path, rsd_comm *comm, rsd_state *state, const rsd_save_opts *opts,
                 rsd_error *err)
{
    rsd_save_opts known = { .size = sizeof(known) };
    rsi_pulse     before;
    rsd_err       rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_save_opts", err);

    if (!rc && (!path || !*path || !state))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: path or state");
    rc = rsi_same_facts(comm, rsi_save_facts, &(rsi_call){ .path = path, .opts = &known }, rc, err);
    if (rc)
        return rc;
    before = rsi_comm_enter(comm);
    return rsi_comm_leave(before, rsi_save(path, comm, state, &known, err));
}

rsd_err rsd_load(const char *path, rsd_comm *comm, rsd_state *state, const rsd_load_opts *opts,
                 rsd_error *err)
{
    rsd_load_opts known = { .size = sizeof(known) };
    rsi_pulse     before;
    rsd_err       rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_load_opts", err);

    if (!rc && (!path || !*path || !state))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: path or state");
    rc = rsi_same_facts(comm, rsi_load_facts, &(rsi_call){ .path = path, .opts = &known }, rc, err);
    if (rc)
        return rc;
    before = rsi_comm_enter(comm);
    return rsi_comm_leave(before, rsi_load(path, comm, state, &known, err));
}

rsd_err rsd_load_below(const char *path, rsd_comm *comm, size_t n, const char *const *names,
                       rsd_load_alloc alloc, void *arg, const rsd_load_opts *opts, rsd_error *err)
{
    rsd_load_opts known = { .size = sizeof(known) };
    rsi_below     below = { .n = n, .name = names, .alloc = alloc, .arg = arg };
    rsi_pulse     before;
    rsd_err       rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_load_opts", err);

    if (!rc && (!path || !*path || !alloc || (n > 0 && !names)))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: path, alloc or the %zu names", n);
    for (size_t i = 0; i < n && !rc; i++)
        if (!names[i])
            rc = rsi_fail(err, RSD_E_INVALID, "name %zu is missing", i);
    rc = rsi_same_facts(comm, rsi_load_facts, &(rsi_call){ .path = path, .opts = &known }, rc, err);
    if (rc)
        return rc;
    before = rsi_comm_enter(comm);
    return rsi_comm_leave(before, rsi_load_below(path, comm, &below, &known, err));
}
