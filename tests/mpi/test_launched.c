/* SPDX-License-Identifier: Apache-2.0 */
/* A program built without MPI, run by mpirun: it loads the library that fits. With the argument
 * "abort" rank 1 gives up, and all ranks must end with code 3 soon. */
#include "launched.h"
#include "comm/comm.h"
#include "comm_suite.h"

#include <stdio.h>
#include <string.h>

enum { GAVE_UP = 3 };

static const comm_case *const part[] = { comm_suite_collectives, comm_suite_groups };

int main(int argc, char **argv)
{
    rsd_comm *comm = launched_comm("launched");
    rsd_error err = { .rank = -1 };
    rsd_err   rc;
    int       passed = 0;

    if (!comm)
        return 1;
    if (argc > 1 && strcmp(argv[1], "abort") == 0) {
        if (rsd_comm_rank(comm) == 1)
            rsd_comm_abort(comm, "told so");
        rc = rsi_barrier(comm, &err);
        rsd_comm_free(comm);
        return rc == RSD_E_COMM ? GAVE_UP : 1;
    }
    rc = comm_suite_run(comm, 2, part, &passed, &err);
    return launched_end(comm, "launched", rc, &err, passed);
}
