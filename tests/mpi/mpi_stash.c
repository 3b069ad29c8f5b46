/* SPDX-License-Identifier: Apache-2.0 */
/* The suites of stash_suite.c on the ranks that mpirun started, with chunks that are copied from
 * memory that ranks share, and once more with chunks in messages, as between machines. */
#include "stash_suite.h"

#include <stdio.h>

static const comm_case *const part[] = { stash_suite, stash_suite_faults };

int main(void)
{
    rsd_comm *comm;
    rsd_error err = { .rank = -1 };
    rsd_err   rc;
    int       passed = 0, rank;

    rc = rsd_comm_create_launched(&comm, &err);
    if (rc) {
        fprintf(stderr, "%s: %s\n", rsd_err_name(rc), err.msg);
        return 1;
    }
    rank = rsd_comm_rank(comm);
    rc = comm_suite_run(comm, 2, part, &passed, &err);
    comm->ops.expose = NULL;
    comm->ops.reach = NULL;
    if (!rc)
        rc = comm_suite_run(comm, 2, part, &passed, &err);
    if (rc)
        fprintf(stderr, "rank %d: %s: %s\n", rank, rsd_err_name(rc), err.msg);
    if (rank == 0)
        printf("%d ranks\n[  PASSED  ] %d test(s).\n", rsd_comm_size(comm), passed);
    if (rank == 0 && rc)
        printf("[  FAILED  ] stash: 1 test(s), listed below:\n");
    fflush(stdout);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}
