/* SPDX-License-Identifier: Apache-2.0 */
/* slow_rank.h - calls in which one rank works for longer than the time limit, as cases that run on
 * all ranks at once. Time is a number that only the slow rank moves, a little with each block, and
 * only when all others have looked at it: so no case depends on how fast anything runs. */
#ifndef RESHARD_TESTS_SLOW_RANK_H
#define RESHARD_TESTS_SLOW_RANK_H

#include "comm/comm.h"

#include <stdatomic.h>

enum { SLOW_RANKS_MAX = 7 };

/* In memory that all ranks have. */
typedef struct slow_page {
    _Atomic int64_t  now;
    _Atomic uint64_t looks[SLOW_RANKS_MAX]; /* at the clock, by each rank */
    _Atomic int32_t  returned;              /* ranks that gave up or failed */
} slow_page;

typedef struct slow_case {
    const char *name;
    /* `path`: a name that is free, the same on all ranks. */
    rsd_err (*run)(rsd_comm *comm, const char *path, rsd_error *err);
    bool processes; /* ranks must be processes */
    bool breaks;    /* the comm, with which mpirun does not end well */
} slow_case;

extern const slow_case slow_cases[]; /* ends in one without a name */

/* On each rank, before the first case. */
void slow_begin(slow_page *page, rsd_comm *comm);

#endif
