/* SPDX-License-Identifier: Apache-2.0 */
/* The suites of stash_suite.c on the ranks that mpirun started, with chunks that are copied from
 * memory that ranks share, and once more with chunks in messages, as between machines. */
#include "launched.h"
#include "stash_suite.h"

#include <stdio.h>

static const comm_case *const part[] = { stash_suite, stash_suite_faults };

int main(void)
{
    rsd_comm *comm = launched_comm("stash");
    rsd_error err = { .rank = -1 };
    rsd_err   rc;
    int       passed = 0;

    if (!comm)
        return 1;
    rc = comm_suite_run(comm, 2, part, &passed, &err);
    comm->ops.expose = NULL;
    comm->ops.reach = NULL;
    if (!rc)
        rc = comm_suite_run(comm, 2, part, &passed, &err);
    return launched_end(comm, "stash", rc, &err, passed);
}
