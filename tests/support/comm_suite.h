/* SPDX-License-Identifier: Apache-2.0 */
/* comm_suite.h - what every comm must do, as cases that run on all its ranks at once. The callers
 * bring the comm: tests/unit/test_comm.c threads, tests/mpi/test_comm_mpi.c MPI. */
#ifndef RESHARD_TESTS_COMM_SUITE_H
#define RESHARD_TESTS_COMM_SUITE_H

#include "comm/comm.h"

typedef struct comm_case {
    const char *name;
    /* Called on every rank with a comm that is thrown away afterwards. Failed checks are
     * RSD_E_BUG with the line; ranks need not fail together. */
    rsd_err (*run)(rsd_comm *comm, rsd_error *err);
    int32_t min_ranks;
} comm_case;

extern const comm_case comm_suite[];
extern const size_t    comm_suite_count;

/* Ends a case: for code that runs on a thread of its own, where cmocka can't. */
#define COMM_CHECK(what)                                                                           \
    do {                                                                                           \
        if (!(what))                                                                               \
            return rsi_fail(err, RSD_E_BUG, "line %d: not so: %s", __LINE__, #what);               \
    } while (0)

#endif
