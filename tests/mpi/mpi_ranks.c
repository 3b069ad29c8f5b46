/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that differ in values, options and arguments, on the ranks that mpirun started. */
#include "launched.h"
#include "ranks_case.h"

#include <stdio.h>

static const comm_case *const part[] = { ranks_values, ranks_options, ranks_arguments };

int main(void)
{
    rsd_comm *comm = launched_comm("ranks");
    rsd_error err = { .rank = -1 };
    rsd_err   rc;
    int       passed = 0;

    if (!comm)
        return 1;
    rc = comm_suite_run(comm, 3, part, &passed, &err);
    return launched_end(comm, "ranks", rc, &err, passed);
}
