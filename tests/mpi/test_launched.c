/* SPDX-License-Identifier: Apache-2.0 */
/* A program built without MPI, run by mpirun: it loads the library that fits. With the argument
 * "abort" rank 1 gives up, and all ranks must end with code 3 soon. */
#include "comm/comm.h"
#include "comm_suite.h"

#include <stdio.h>
#include <string.h>

enum { GAVE_UP = 3 };

static const comm_case *const part[] = { comm_suite_collectives, comm_suite_groups };

int main(int argc, char **argv)
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
    if (argc > 1 && strcmp(argv[1], "abort") == 0) {
        if (rank == 1)
            rsd_comm_abort(comm, "told so");
        rc = rsi_barrier(comm, &err);
        rsd_comm_free(comm);
        return rc == RSD_E_COMM ? GAVE_UP : 1;
    }
    rc = comm_suite_run(comm, 2, part, &passed, &err);
    if (rc)
        fprintf(stderr, "rank %d: %s: %s\n", rank, rsd_err_name(rc), err.msg);
    if (rank == 0)
        printf("%d ranks\n[  PASSED  ] %d test(s).\n", rsd_comm_size(comm), passed);
    if (rank == 0 && rc)
        printf("[  FAILED  ] launched: 1 test(s), listed below:\n");
    fflush(stdout);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}
