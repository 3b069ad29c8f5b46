/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the library with the UCX transport (comm_ucx.c) when a program asks for it or was started
 * with RESHARD_MEET. It is never unloaded, since UCX's hooks can't be. */
#include "comm/ucx_plugin.h"
#include "comm/comm.h"
#include "comm/mpi_plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define UCX "libreshard_ucx.so.1"

static rsd_err find_transport(rsd_err (**out)(int32_t, int32_t, const rsd_meeting *,
                                              const rsd_comm_ops **, void **, rsd_error *),
                              rsd_error *err)
{
    void       *library = rsi_plugin_load(UCX);
    void       *symbol = library ? dlsym(library, RSI_UCX_SYMBOL) : NULL;
    const char *reason = symbol ? NULL : dlerror();

    if (!symbol)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "reshard's library for UCX can't be loaded: %s",
                        reason ? reason : UCX);
    memcpy(out, &symbol, sizeof(symbol)); /* C has no cast for this, POSIX allows it */
    return RSD_OK;
}

rsd_err rsd_comm_create_ucx(int32_t rank, int32_t count, const rsd_meeting *with, rsd_comm **out,
                            rsd_error *err)
{
    rsd_err (*transport)(int32_t, int32_t, const rsd_meeting *, const rsd_comm_ops **, void **,
                         rsd_error *) = NULL;
    rsd_meeting         known = { .size = 0 };
    const rsd_comm_ops *ops;
    void               *self;
    rsd_err             rc;

    err = err ? err : &(rsd_error){ .rank = -1 };
    rc = rsi_meeting_take(rank, count, with, out, &known, err);
    if (rc)
        return rc;
    rc = find_transport(&transport, err);
    if (!rc)
        rc = transport(rank, count, &known, &ops, &self, err);
    if (rc)
        return rc;
    rc = rsd_comm_create_custom(ops, self, out, err);
    if (rc)
        ops->close(self);
    return rc;
}

/* ---- ranks started by any launcher ---- */

static bool number_in(const char *(*env)(const char *), const char *name, int32_t *out)
{
    const char *text = env(name);
    char       *end = NULL;
    long        n = text ? strtol(text, &end, 10) : -1;

    if (!text || end == text || *end || n < 0 || n > INT32_MAX)
        return false;
    *out = (int32_t)n;
    return true;
}

rsd_err rsi_comm_create_met(const char *(*env)(const char *name), rsd_comm **out, rsd_error *err)
{
    static const char *const names[][2] = { { "RESHARD_RANK", "RESHARD_RANKS" },
                                            { "RANK", "WORLD_SIZE" },
                                            { "SLURM_PROCID", "SLURM_STEP_NUM_TASKS" } };
    rsd_meeting              with = { .size = sizeof(with) };
    int32_t                  rank = -1, count = 0;
    bool                     found = false;
    rsd_err                  rc;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !found; i++)
        found = number_in(env, names[i][0], &rank) && number_in(env, names[i][1], &count);
    if (!found)
        return rsi_fail(err, RSD_E_INVALID,
                        "RESHARD_MEET is set, but neither RESHARD_RANK and RESHARD_RANKS nor RANK "
                        "and WORLD_SIZE say which rank this is");
    rc = rsd_meeting_in_folder(env("RESHARD_MEET"), &with, err);
    if (rc)
        return rc;
    rc = rsd_comm_create_ucx(rank, count, &with, out, err);
    if (rc)
        with.hangup(with.arg, true);
    return rc;
}
