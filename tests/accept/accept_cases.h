/* SPDX-License-Identifier: Apache-2.0 */
/* accept_cases.h - PyTorch's own cases as functions over a comm, so that threads
 * (test_dtensor_*.c) and MPI (tests/mpi/mpi_cases.c) run the same ones. */
#ifndef RESHARD_TESTS_ACCEPT_CASES_H
#define RESHARD_TESTS_ACCEPT_CASES_H

#include "comm/comm.h"

typedef struct accept_case {
    const char *name;
    int32_t     ranks; /* that it needs; more look on */
    /* Called on every rank of a comm with at least so many. `folder` is one that all see. Ranks
     * need not fail together. */
    rsd_err (*run)(rsd_comm *comm, const char *folder, rsd_error *err);
} accept_case;

/* Each ends in a case without a name. */
extern const accept_case accept_resharding[];
extern const accept_case accept_checkpoint[];

/* Of the pairs of placements on different numbers of ranks every so manieth is tried: 1 unless
 * told, more where ranks are processes that outnumber the cores. */
extern int accept_every;

/* Runs fn on the first n ranks as a comm of their own; all ranks learn how it went. */
rsd_err accept_on(rsd_comm *comm, int32_t                                         n,
                  rsd_err (*fn)(void *arg, rsd_comm *comm, rsd_error *err), void *arg,
                  rsd_error *err);

/* The main of a program that runs such cases on n threads. */
int accept_threads(const accept_case *cases, int32_t n);

#endif
