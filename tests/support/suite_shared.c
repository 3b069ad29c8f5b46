/* SPDX-License-Identifier: Apache-2.0 */
/* The suite of comm_suite.c for meetings whose functions are not in C:
 * python/tests/test_torch_comm.py loads this as a shared object and runs every case over gloo and
 * over UCX. */
#include "comm_suite.h"

#include <reshard/reshard_plugin.h>

#include <stdio.h>

/* The name of case i; "" if it needs more ranks, NULL after the last. */
__attribute__((visibility("default"))) const char *comm_suite_name(size_t i, int32_t ranks);
/* Runs case i on this rank with a new comm; 0, or the error's code with its message in `msg`. */
__attribute__((visibility("default"))) int comm_suite_meet(size_t i, int32_t rank, int32_t ranks,
                                                           const rsd_meeting *with, bool ucx,
                                                           char *msg, size_t cap);

const char *comm_suite_name(size_t i, int32_t ranks)
{
    const comm_case *what = comm_suite(i);

    if (!what)
        return NULL;
    return ranks < what->min_ranks ? "" : what->name;
}

int comm_suite_meet(size_t i, int32_t rank, int32_t ranks, const rsd_meeting *with, bool ucx,
                    char *msg, size_t cap)
{
    rsd_comm *comm = NULL;
    rsd_error err;
    rsd_err   rc = ucx ? rsd_comm_create_ucx(rank, ranks, with, &comm, &err)
                       : rsd_comm_create_processes(rank, ranks, with, &comm, &err);

    if (!rc)
        rc = comm_suite(i)->run(comm, &err);
    if (rc)
        snprintf(msg, cap, "%s", err.msg);
    rsd_comm_free(comm);
    return (int)rc;
}
