/* SPDX-License-Identifier: Apache-2.0 */
/* random_live.h - the cases of random_case.h as tensors for live_run, and every way to move them.
 * tests/property/test_random_live.c runs them on threads, tests/mpi/mpi_random.c under mpirun. */
#ifndef RESHARD_TESTS_RANDOM_LIVE_H
#define RESHARD_TESTS_RANDOM_LIVE_H

#include "live_case.h"

typedef struct random_live {
    random_case drawn;
    live_tensor tensor[CASE_TENSORS]; /* [drawn.n] */
    random_side side[CASE_TENSORS][2];
} random_live;

/* Draws and makes a case; asserts, as cmocka does. */
void random_live_make(random_live *l, uint64_t seed, int32_t ranks);
void random_live_free(random_live *l);
/* Ranks that it takes. */
int32_t random_live_world(const random_live *l);

/* A way to move bytes, and limits that the whole process has while it is taken. */
typedef struct random_way {
    const char *name;
    live_how    how;
    int64_t     cut_min;    /* of live/exchange.h; 0: the default */
    size_t      memory_min; /* the same */
} random_way;

enum { RANDOM_WAYS = 7 };
extern const random_way random_ways[RANDOM_WAYS];
/* Sets the limits; NULL: back to the defaults. Not while anything is moved. */
void random_way_take(const random_way *way);

#endif
