/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that differ in values, options and arguments, on the ranks that mpirun started. */
#include "ranks_case.h"

#include <stdio.h>

static const comm_case *const part[] = { ranks_values, ranks_options, ranks_arguments };

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
    rc = comm_suite_run(comm, 3, part, &passed, &err);
    if (rc)
        fprintf(stderr, "rank %d: %s: %s\n", rank, rsd_err_name(rc), err.msg);
    if (rank == 0)
        printf("%d ranks\n[  PASSED  ] %d test(s).\n", rsd_comm_size(comm), passed);
    if (rank == 0 && rc)
        printf("[  FAILED  ] ranks: 1 test(s), listed below:\n");
    fflush(stdout);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}
