/* SPDX-License-Identifier: Apache-2.0 */
/* What both runners of the cases need. */
#include "accept_cases.h"

#include <reshard/reshard_live.h>

int accept_every = 1;

rsd_err accept_on(rsd_comm *comm, int32_t                                         n,
                  rsd_err (*fn)(void *arg, rsd_comm *comm, rsd_error *err), void *arg,
                  rsd_error *err)
{
    int32_t   ranks[64];
    rsd_comm *group = NULL;
    rsd_err   rc;

    for (int32_t r = 0; r < n && r < 64; r++)
        ranks[r] = r;
    rc = rsd_comm_split(comm, comm->rank < n ? n : 0, ranks, &group, err);
    if (rc)
        return rc;
    if (group)
        rc = fn(arg, group, err);
    rsd_comm_free(group);
    return rsi_agree(comm, rc, err);
}
