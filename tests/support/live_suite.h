/* SPDX-License-Identifier: Apache-2.0 */
/* live_suite.h - what a reshard between ranks must do, as cases for any comm: threads run them in
 * tests/accept/test_live_reshard.c, MPI through tests/mpi/test_comm_mpi.c. */
#ifndef RESHARD_TESTS_LIVE_SUITE_H
#define RESHARD_TESTS_LIVE_SUITE_H

#include "comm_suite.h"

/* The parts; each ends in a case without a name. live_suite.c defines comm_suite() over them. */
extern const comm_case live_suite_layouts[];
extern const comm_case live_suite_faults[];

#endif
