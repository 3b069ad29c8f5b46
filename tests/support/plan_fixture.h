/* SPDX-License-Identifier: Apache-2.0 */
/* plan_fixture.h - what the tests of plan/ share: layouts from a line of rules, boxes as literals,
 * the moves of a plan as a list, and the loop in which every allocation fails once.
 *
 * Everything here ends the test when it can't be done, so callers check no results. */
#ifndef RESHARD_TESTS_PLAN_FIXTURE_H
#define RESHARD_TESTS_PLAN_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include <reshard/reshard_live.h>

/* The layout that one rule gives a float32 tensor: fixture_layout("mesh a=2; * shard(0)@a", 2,
 * (int64_t[]){ 4, 6 }). The caller frees it. */
rsd_layout *fixture_layout(const char *rules, int ndim, const int64_t *shape);
rsd_layout *fixture_layout_of(const char *rules, rsd_dtype dtype, int ndim, const int64_t *shape);

/* Boxes of one and two dimensions from where they start to where they end. */
rsd_box fixture_box1(int64_t from, int64_t to);
rsd_box fixture_box2(int64_t from0, int64_t to0, int64_t from1, int64_t to1);
/* The box, as rsd_box_text has it, is `want`: "[0:4, 8:16]". */
void assert_box(const rsd_box *box, const char *want);

/* The plan of one tensor, freed by the caller. */
rsd_plan *fixture_plan(const rsd_layout *src, const rsd_layout *dst, int32_t rank);

enum { FIXTURE_MOVES = 256 };
typedef struct fixture_moves {
    rsd_move at[FIXTURE_MOVES];
    size_t   n;
} fixture_moves;
/* All moves of a plan, in the order they are visited. */
void fixture_list(const rsd_plan *plan, fixture_moves *out);
/* The move as text is `want`: "0: 1>2 [0:4]", tensor, from, to, box. */
void assert_move(const rsd_move *move, const char *want);

/* Calls make(arg) with the first, the second ... allocation failing until none is left to fail:
 * once with that one alone, once with it and all that follow. Each failure must be RSD_E_NOMEM and
 * leave the memory in use as it was. `make` frees what it made. */
void assert_survives_no_memory(rsd_err (*make)(void *arg, rsd_error *err), void *arg);

#endif
