/* SPDX-License-Identifier: Apache-2.0 */
/* The suite of live_suite.c on forked processes of one machine, which sockets or, with ON_UCX, UCX
 * connects. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/comm.h"
#include "forked_ranks.h"
#include "live_case.h"
#include "plan_fixture.h"

#ifndef ON_UCX
#define ON_UCX 0
#endif

static const int64_t shape[] = { 64, 48 };

/* Moves ordinary memory twice; then *arg tells whether there must be rooms. */
static rsd_err move_twice(void *arg, rsd_comm *comm, rsd_error *err)
{
    rsd_layout    *src = fixture_layout("mesh a=3; * shard(0)@a", 2, shape);
    rsd_layout    *dst = fixture_layout("mesh a=3; * shard(1)@a", 2, shape);
    live_tensor    tensor = { .src = src, .dst = dst, .parts = 1 };
    const live_how how = { .direct = true, .count = true };
    rsd_err        rc = RSD_OK;

    for (int i = 0; i < 2 && !rc; i++)
        rc = live_run(comm, 1, &tensor, &how, NULL, err);
    rsd_layout_free(src);
    rsd_layout_free(dst);
    if (!rc && (comm->rooms != NULL) != *(const bool *)arg)
        rc = rsi_fail(err, RSD_E_BUG, comm->rooms ? "there are rooms" : "there are no rooms");
    if (!rc && comm->rooms_busy)
        rc = rsi_fail(err, RSD_E_BUG, "a room is in use");
    return rc;
}

static void ordinary_memory_goes_through_rooms_on_one_machine(void **state)
{
    bool       rooms = true;
    forked_job job = { .ranks = 3, .run = move_twice, .arg = &rooms, .absent = -1 };

    (void)state;
    job.how = ON_UCX ? FORKED_UCX : FORKED_NEAR;
    assert_true(forked_well(&job));
}

static void ranks_without_neighbours_have_no_rooms(void **state)
{
    bool       rooms = false;
    forked_job job = {
        .ranks = 3, .how = FORKED_FAR, .run = move_twice, .arg = &rooms, .absent = -1
    };

    (void)state;
    assert_true(forked_well(&job));
}

int main(void)
{
    const struct CMUnitTest own[] = {
        cmocka_unit_test(ordinary_memory_goes_through_rooms_on_one_machine),
        cmocka_unit_test(ranks_without_neighbours_have_no_rooms),
    };

    if (ON_UCX)
        return forked_suite("live_ucx", 1, (const int[]){ FORKED_UCX }, own, 1);
    return forked_suite("live_processes", 1, (const int[]){ FORKED_NEAR }, own, 2);
}
