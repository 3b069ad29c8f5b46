/* SPDX-License-Identifier: Apache-2.0 */
#include "comm_suite.h"

rsd_err comm_suite_run(rsd_comm *comm, size_t n, const comm_case *const *part, int *passed,
                       rsd_error *err)
{
    for (size_t p = 0; p < n; p++)
        for (const comm_case *c = part[p]; c->name; c++) {
            rsd_err rc;

            if (comm->size < c->min_ranks)
                continue;
            rc = rsi_agree(comm, c->run(comm, err), err);
            if (rc)
                return rsi_while(err, rc, "%s", c->name);
            ++*passed;
        }
    return RSD_OK;
}
