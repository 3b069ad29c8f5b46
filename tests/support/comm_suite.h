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
    bool    slow; /* waits for a deadline: need not be run with every number of ranks */
} comm_case;

/* The ith case; NULL behind the last. For up to 60 ranks. */
const comm_case *comm_suite(size_t i);

/* The parts; each ends in a case without a name. */
extern const comm_case comm_suite_messages[];
extern const comm_case comm_suite_collectives[];
extern const comm_case comm_suite_groups[];
extern const comm_case comm_suite_end[];
/* Runs n parts on the ranks of a comm that stays, all cases that they are enough for; ends at the
 * first that fails on any rank. */
rsd_err comm_suite_run(rsd_comm *comm, size_t n, const comm_case *const *part, int *passed,
                       rsd_error *err);
#define COMM_CASE(name) #name, name /* the first two fields */

/* Byte i of message `id` from rank `from`; such a message, freed by the caller; if it is one. */
unsigned char  suite_byte(int32_t from, size_t id, size_t i);
unsigned char *suite_message(int32_t from, size_t id, size_t bytes);
bool           suite_is_message(const unsigned char *data, int32_t from, size_t id, size_t bytes);

/* Ends a case: for code that runs on a thread of its own, where cmocka can't. */
#define COMM_CHECK(what)                                                                           \
    do {                                                                                           \
        if (!(what))                                                                               \
            return rsi_fail(err, RSD_E_BUG, "line %d: not so: %s", __LINE__, #what);               \
    } while (0)

#endif
