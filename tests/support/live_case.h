/* SPDX-License-Identifier: Apache-2.0 */
/* live_case.h - tensors that are resharded between ranks, and the check of what arrives.
 *
 * Every rank of a comm calls these with the same arguments. They fail with an error, as ranks may
 * be threads on which cmocka can't end a test. */
#ifndef RESHARD_TESTS_LIVE_CASE_H
#define RESHARD_TESTS_LIVE_CASE_H

#include "random_case.h"

#include <reshard/reshard_live.h>

/* One tensor between two layouts. Every element is found by its number in the whole tensor. */
typedef struct live_tensor {
    const rsd_layout *src, *dst;
    int32_t           parts;                     /* contributions in the source */
    int32_t (*part_of)(int32_t rank, void *arg); /* which of them a rank holds; NULL: 0 */
    void *arg;
} live_tensor;

/* How it is run. */
typedef struct live_how {
    bool   shared;    /* memory from rsd_comm_alloc */
    bool   callbacks; /* get and put instead of pointers */
    bool   in_steps;  /* begin, test, wait */
    bool   direct;
    size_t memory; /* 0: the default */
    bool   count;  /* what crosses is the least there can be */
} live_how;

/* Fills the sources, reshards all tensors at once and checks every element of the targets. */
rsd_err live_run(rsd_comm *comm, size_t n, const live_tensor *tensor, const live_how *how,
                 rsd_reshard_stats *stats, rsd_error *err);

/* The value of element e in a contribution, and the result; both whole numbers that every type
 * holds. `share`: of a Partial(sum) target. */
double live_value(rsd_reduce reduce, int64_t e, int32_t part, int32_t parts, int64_t share);
double live_result(rsd_reduce reduce, int64_t e, int32_t parts);

#endif
