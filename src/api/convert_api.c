/* SPDX-License-Identifier: Apache-2.0 */
/* The convert section of reshard.h: checks arguments and passes them on. */
#include "api/call_facts.h"
#include "base/opts.h"
#include "comm/signs.h"
#include "convert/convert.h"

static rsd_err check_opts(const rsd_convert_opts *o, rsd_error *err)
{
    if ((o->ninclude && !o->include) || (o->nexclude && !o->exclude) || (o->ncasts && !o->casts))
        return rsi_fail(err, RSD_E_INVALID, "a list of patterns or casts is missing");
    for (size_t i = 0; i < o->ninclude; i++)
        if (!o->include[i])
            return rsi_fail(err, RSD_E_INVALID, "pattern %zu to include is missing", i);
    for (size_t i = 0; i < o->nexclude; i++)
        if (!o->exclude[i])
            return rsi_fail(err, RSD_E_INVALID, "pattern %zu to exclude is missing", i);
    for (size_t i = 0; i < o->ncasts; i++)
        if (!rsd_dtype_size(o->casts[i].dtype))
            return rsi_fail(err, RSD_E_INVALID, "cast %zu: unknown dtype", i);
    if (o->threads < 0)
        return rsi_fail(err, RSD_E_INVALID, "%d threads asked for", (int)o->threads);
    return o->stats ? rsi_result_check(o->stats, "rsd_convert_stats", err) : RSD_OK;
}

rsd_err rsd_convert(rsd_ckpt *source, const char *path, rsd_comm *comm,
                    const rsd_convert_opts *opts, rsd_error *err)
{
    rsd_convert_opts known = { .size = sizeof(known) };
    rsi_pulse        before;
    rsd_err          rc = rsi_opts_take(&known, sizeof(known), opts, "rsd_convert_opts", err);

    if (!rc && (!source || !path || !*path))
        rc = rsi_fail(err, RSD_E_INVALID, "missing argument: checkpoint or path");
    if (!rc)
        rc = check_opts(&known, err);
    rc = rsi_same_facts(comm, rsi_convert_facts, &(rsi_call){ .path = path, .opts = &known }, rc,
                        err);
    if (rc)
        return rc;
    before = rsi_comm_enter(comm);
    return rsi_comm_leave(before, rsi_convert(source, path, comm, &known, err));
}
