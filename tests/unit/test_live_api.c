/* SPDX-License-Identifier: Apache-2.0 */
/* What the live calls do with arguments and without memory; what they move is tested in
 * tests/accept/test_live_reshard.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan_fixture.h"

#include <string.h>

enum { RANKS = 2 };

static const int64_t shape[] = { 6, 4 };

/* Rows, of which each of two ranks has three, to columns. */
typedef struct moving {
    rsd_layout *src, *dst;
} moving;

static rsd_err move_rows(rsd_comm *comm, const moving *m, rsd_error *err)
{
    float             from[24] = { 1 }, to[24];
    rsd_view          view[2];
    rsd_views         in = { 1, &view[0] }, out = { 1, &view[1] };
    const rsd_layout *src = m->src, *dst = m->dst;
    rsd_plan         *plan;
    rsd_op           *op;
    rsd_err           rc = rsd_plan_create(1, &src, &dst, rsd_comm_rank(comm), &plan, err);

    if (rc)
        return rc;
    rsd_layout_views(src, rsd_comm_rank(comm), from, &view[0], 1);
    rsd_layout_views(dst, rsd_comm_rank(comm), to, &view[1], 1);
    rc = rsd_reshard_begin(plan, comm, &in, &out, NULL, &op, err);
    if (!rc) {
        rc = rsd_op_wait(op, RSD_DURABLE, err);
        rsd_op_free(op);
    }
    rsd_plan_free(plan);
    return rc;
}

static rsd_err move_alone(void *arg, rsd_error *err)
{
    rsd_comm *comm;
    rsd_err   rc = rsd_comm_create_self(0, 1, &comm, err);

    if (rc)
        return rc;
    rc = move_rows(comm, arg, err);
    rsd_comm_free(comm);
    return rc;
}

static void no_memory_is_survived_by_one_rank(void **state)
{
    moving m = { fixture_layout("mesh a=1; * shard(0)@a", 2, shape),
                 fixture_layout("mesh a=1; * shard(1)@a", 2, shape) };

    (void)state;
    assert_survives_no_memory(move_alone, &m);
    rsd_layout_free(m.src);
    rsd_layout_free(m.dst);
}

static rsd_err move_one_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    return move_rows(comm, arg, err);
}

static rsd_err move_together(void *arg, rsd_error *err)
{
    return rsd_comm_run_threads(RANKS, move_one_rank, arg, err);
}

static void no_memory_on_one_rank_fails_both(void **state)
{
    moving m = { fixture_layout("mesh a=2; * shard(0)@a", 2, shape),
                 fixture_layout("mesh a=2; * shard(1)@a", 2, shape) };

    (void)state;
    assert_survives_no_memory(move_together, &m);
    rsd_layout_free(m.src);
    rsd_layout_free(m.dst);
}

static void a_plan_and_a_comm_are_needed(void **state)
{
    rsd_error err;
    bool      done;

    (void)state;
    assert_int_equal(rsd_reshard(NULL, NULL, NULL, NULL, NULL, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "missing argument: plan or comm");
    assert_int_equal(rsd_op_test(NULL, RSD_STAGED, &done, &err), RSD_E_INVALID);
    assert_int_equal(rsd_op_wait(NULL, RSD_STAGED, &err), RSD_E_INVALID);
    rsd_op_cancel(NULL);
    rsd_op_free(NULL);
}

static void a_rank_played_alone_cannot_move_what_others_have(void **state)
{
    rsd_layout *src = fixture_layout("mesh a=2; * shard(0)@a", 2, shape);
    rsd_layout *dst = fixture_layout("mesh a=2; * shard(1)@a", 2, shape);
    moving      m = { src, dst };
    rsd_comm   *comm;
    rsd_error   err;

    (void)state;
    assert_int_equal(rsd_comm_create_self(0, 2, &comm, &err), RSD_OK);
    assert_int_equal(move_rows(comm, &m, &err), RSD_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "rank 0 is played alone, the plan needs rank 1"));
    rsd_comm_free(comm);
    rsd_layout_free(src);
    rsd_layout_free(dst);
}

static void the_usual_views_of_a_strided_part_lie_in_one_dense_tensor(void **state)
{
    rsd_layout *layout = fixture_layout("mesh a=2; * strided(0,2)@a", 2, (int64_t[]){ 8, 3 });
    float       data[12];
    rsd_view    view[2];

    (void)state;
    assert_int_equal(rsd_layout_views(layout, 1, data, NULL, 0), 2);
    assert_int_equal(rsd_layout_views(layout, 1, data, view, 2), 2);
    assert_box(&view[0].box, "[2:4, 0:3]");
    assert_box(&view[1].box, "[6:8, 0:3]");
    assert_ptr_equal(view[1].data, &data[6]);
    assert_int_equal(view[1].stride[0], 12);
    rsd_layout_free(layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory_is_survived_by_one_rank),
        cmocka_unit_test(no_memory_on_one_rank_fails_both),
        cmocka_unit_test(a_plan_and_a_comm_are_needed),
        cmocka_unit_test(a_rank_played_alone_cannot_move_what_others_have),
        cmocka_unit_test(the_usual_views_of_a_strided_part_lie_in_one_dense_tensor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
