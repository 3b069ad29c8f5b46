/* SPDX-License-Identifier: Apache-2.0 */
/* The start and the end of a program that mpirun runs on every rank. */
#ifndef LAUNCHED_H
#define LAUNCHED_H

#include <reshard/reshard.h>

#include <stdio.h>

/* NULL, and says why, if this process is no rank. */
static inline rsd_comm *launched_comm(const char *program)
{
    rsd_error err = { .rank = -1 };
    rsd_comm *comm = NULL;

    if (rsd_comm_create_launched(&comm, &err))
        fprintf(stderr, "%s: %s\n", program, err.msg);
    return comm;
}

/* Says how it went, as cmocka does, and frees the comm. Returns what main returns. */
static inline int launched_end(rsd_comm *comm, const char *what, rsd_err rc, const rsd_error *err,
                               int passed)
{
    int rank = rsd_comm_rank(comm);

    if (rc)
        fprintf(stderr, "rank %d: %s: %s\n", rank, rsd_err_name(rc), err->msg);
    if (rank == 0)
        printf("%d ranks\n[  PASSED  ] %d test(s).\n", rsd_comm_size(comm), passed);
    if (rank == 0 && rc)
        printf("[  FAILED  ] %s: 1 test(s), listed below:\n", what);
    fflush(stdout);
    rsd_comm_free(comm);
    return rc ? 1 : 0;
}

#endif
