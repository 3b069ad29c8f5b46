/* SPDX-License-Identifier: Apache-2.0 */
/* test_live_hosts.c - what live moves by ranks of several machines send over the network between
 * them: to a machine, every element that its ranks want and none of them has, once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_hosts.h"
#include "plan_fixture.h"
#include "random_live.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 3, SEED = 815, CASES = 60, MOST = 64 };

static const int64_t shape[] = { 26, 18 };

/* Machines of ranks 0 .. 20, at most; a test takes as many as it has ranks. */
static const int32_t in_threes[] = {
    0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6
};
static const int32_t crosswise[] = {
    0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0
};
static const int32_t unevenly[] = { 0, 0, 0, 0, 1, 2, 2, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 3, 1, 1 };
static const int32_t *const machines[] = { in_threes, crosswise, unevenly };

typedef struct job {
    size_t             n;
    const live_tensor *tensor;
    live_how           how;
} job;

/* ---- what has to cross ---- */

/* Sets has[e] if a rank of the machine holds element e. */
static void add_elements(const rsd_layout *layout, const int32_t *of, int32_t host, int32_t ranks,
                         unsigned char *has)
{
    int64_t size[RSD_MAX_NDIM];

    rsd_layout_shape(layout, size);
    for (int32_t r = 0; r < ranks; r++) {
        static rsd_box box[MOST];
        int64_t        index[RSD_MAX_NDIM];
        size_t         n = of[r] == host ? rsd_layout_boxes(layout, r, box, MOST) : 0;

        assert_true(n <= MOST);
        for (size_t i = 0; i < n; i++)
            for (bool go = oracle_first(&box[i], index); go; go = oracle_next(&box[i], index))
                has[oracle_element(box[i].ndim, size, index)] = 1;
    }
}

/* Bytes that a machine's ranks want and none of them has. */
static int64_t missing(const live_tensor *t, const int32_t *of, int32_t host, int32_t ranks)
{
    static unsigned char has[CASE_ELEMENTS], wants[CASE_ELEMENTS];
    int64_t              n = 0;

    memset(has, 0, sizeof(has));
    memset(wants, 0, sizeof(wants));
    add_elements(t->src, of, host, ranks, has);
    add_elements(t->dst, of, host, ranks, wants);
    for (int e = 0; e < CASE_ELEMENTS; e++)
        n += wants[e] && !has[e];
    return n * (int64_t)rsd_dtype_size(rsd_layout_dtype(t->src));
}

static rsd_err move(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job *j = arg;

    return live_run(comm, j->n, j->tensor, &j->how, NULL, err);
}

/* Moves, which checks every element, and compares what came to each machine. */
static void run(const job *j, const int32_t *of, int32_t ranks, bool count)
{
    fake_hosts hosts = { .ranks = ranks, .of = of };
    rsd_error  err = { 0 };

    if (fake_hosts_run(&hosts, move, (void *)j, &err))
        fail_msg("%s", err.msg);
    for (int32_t host = 0; host < FAKE_HOSTS && count; host++) {
        int64_t want = 0;

        for (size_t t = 0; t < j->n; t++)
            want += missing(&j->tensor[t], of, host, ranks);
        assert_int_equal(hosts.moved[host], want);
    }
}

/* The same with pieces that are cut, that are not, and in small messages. Returns how many bytes
 * crossed altogether, as every way must send the same. */
static int64_t run_layouts(const char *from, const char *to, const int32_t *of, int32_t ranks)
{
    rsd_layout *src = fixture_layout(from, 2, shape), *dst = fixture_layout(to, 2, shape);
    live_tensor tensor[TENSORS];
    int64_t     want = 0;

    for (int t = 0; t < TENSORS; t++) {
        tensor[t] = (live_tensor){ .src = src, .dst = dst, .parts = 1 };
        for (int32_t host = 0; host < FAKE_HOSTS; host++)
            want += missing(&tensor[t], of, host, ranks);
    }
    for (int w = 0; w < RANDOM_WAYS; w++) {
        job j = { TENSORS, tensor, random_ways[w].how }, one = { 1, tensor, random_ways[w].how };

        if (j.how.shared)
            continue;
        random_way_take(&random_ways[w]);
        run(&j, of, ranks, true);
        run(&one, of, ranks, true);
    }
    random_way_take(NULL);
    rsd_layout_free(src);
    rsd_layout_free(dst);
    return want / (TENSORS * (int64_t)sizeof(float));
}

/* ---- layouts ---- */

enum { ELEMENTS = 26 * 18 };

static void shards_that_all_want_come_to_each_machine_once(void **state)
{
    (void)state;
    assert_int_equal(run_layouts("mesh a=6; * shard(0)@a", "mesh a=6; * replicate", in_threes, 6),
                     ELEMENTS); /* each half to the other machine */
    assert_int_equal(run_layouts("mesh a=6; * shard(0)@a", "mesh a=6; * replicate", crosswise, 6),
                     ELEMENTS);
    assert_int_equal(run_layouts("mesh a=7; * shard(1)@a", "mesh a=7; * replicate", unevenly, 7),
                     2 * ELEMENTS); /* three machines lack two thirds on average */
}

static void what_one_rank_has_comes_to_the_other_machines_once(void **state)
{
    (void)state;
    assert_int_equal(
        run_layouts("mesh a=1 ranks=4; * replicate", "mesh a=9; * replicate", in_threes, 9),
        2 * ELEMENTS);
}

/* Each machine has every row: along b ranks differ, along a they don't. */
static void what_a_machine_has_does_not_come_to_it(void **state)
{
    (void)state;
    assert_int_equal(
        run_layouts("mesh a=2 b=3; * shard(0)@b", "mesh a=2 b=3; * replicate", in_threes, 6), 0);
    assert_int_equal(
        run_layouts("mesh a=2 b=3; * shard(0)@b", "mesh a=2 b=3; * shard(1)@b", in_threes, 6), 0);
    assert_int_equal(
        run_layouts("mesh b=3 a=2; * shard(0)@b", "mesh a=6; * replicate", crosswise, 6), 0);
}

/* For one tensor the plan's senders are all on the machines of their receivers, but what is cut
 * would be passed on from one to the other. */
static void what_only_receivers_would_pass_on_does_not_cross(void **state)
{
    (void)state;
    assert_int_equal(
        run_layouts("mesh a=2 ranks=0,1; * replicate", "mesh a=6; * replicate", crosswise, 6), 0);
    assert_int_equal(
        run_layouts("mesh a=2 b=3; * shard(0)@b", "mesh a=6; * replicate", crosswise, 6), 0);
}

static int32_t third(int32_t rank, void *arg)
{
    (void)arg;
    return rank % 3;
}

/* The same for sums: nobody has tried to read the memory of those who would pass them on. */
static void sums_of_near_ranks_are_passed_on_between_machines(void **state)
{
    rsd_layout *src = fixture_layout("mesh a=2 b=3; * partial(sum)@b", 2, shape);
    rsd_layout *dst = fixture_layout("mesh a=6; * replicate", 2, shape);
    live_tensor tensor = { .src = src, .dst = dst, .parts = 3, .part_of = third };

    (void)state;
    for (int w = 0; w < RANDOM_WAYS; w++) {
        job j = { 1, &tensor, random_ways[w].how };

        random_way_take(&random_ways[w]);
        run(&j, crosswise, 6, false);
    }
    random_way_take(NULL);
    rsd_layout_free(src);
    rsd_layout_free(dst);
}

/* Rows are on one machine each; both axes are replicated in the end. */
static void replicas_on_one_machine_go_to_the_other_once(void **state)
{
    (void)state;
    assert_int_equal(
        run_layouts("mesh a=2 b=3; * shard(0)@a", "mesh a=2 b=3; * replicate", in_threes, 6),
        ELEMENTS);
    assert_int_equal(
        run_layouts("mesh a=2 b=3; * shard(0)@a", "mesh a=2 b=3; * shard(1)@a", in_threes, 6),
        ELEMENTS / 2);
    assert_int_equal(
        run_layouts("mesh a=2 b=3; * shard(0)@a", "mesh a=2 b=3; * shard(1)@b", in_threes, 6),
        ELEMENTS);
}

static void meshes_that_lie_across_machines_are_followed(void **state)
{
    static const char *const mesh = "mesh a=2 b=3 ranks=5,0,3,1,4,2; * shard(0)@a";

    (void)state;
    assert_true(run_layouts(mesh, "mesh a=6; * replicate", in_threes, 6) < ELEMENTS);
    assert_true(run_layouts(mesh, "mesh a=2 b=3; * shard(1)@a", crosswise, 6) < ELEMENTS);
}

/* Divided among the contributions of a sum. */
static void what_is_shared_out_comes_once(void **state)
{
    (void)state;
    assert_int_equal(
        run_layouts("mesh a=6; * shard(0)@a", "mesh a=6; * partial(sum)@a", in_threes, 6),
        ELEMENTS);
}

/* ---- a rank that can't do its part ---- */

enum { FAULT_RANKS = 7, BAD = 2 }; /* `unevenly`: machines of 4, 1 and 2 ranks */

typedef enum fault { GET_MISSING, GET_FAILS, PUT_FAILS, OTHER_TARGET, CANCELED } fault;

/* Rows on all ranks, which all get whole through callbacks, but for what rank BAD does. */
typedef struct fault_job {
    fault       fault;
    rsd_layout *src, *dst, *other;
    rsd_err     rc[FAULT_RANKS];
    rsd_error   err[FAULT_RANKS];
    bool        right[FAULT_RANKS]; /* the whole tensor has come */
} fault_job;

typedef struct fault_target {
    bool          get_fails, put_fails;
    unsigned char bytes[ELEMENTS * sizeof(float)];
} fault_target;

static rsd_err get_target(void *arg, uint64_t off, void *host, size_t len)
{
    fault_target *t = arg;

    memcpy(host, t->bytes + off, len);
    return t->get_fails ? RSD_E_IO : RSD_OK;
}

static rsd_err put_target(void *arg, uint64_t off, const void *host, size_t len)
{
    fault_target *t = arg;

    memcpy(t->bytes + off, host, len);
    return t->put_fails ? RSD_E_IO : RSD_OK;
}

static rsd_err run_plan(const rsd_plan *plan, rsd_comm *comm, const rsd_views *src,
                        const rsd_views *dst, bool cancel, rsd_error *err)
{
    rsd_op *op = NULL;
    rsd_err rc = rsd_reshard_begin(plan, comm, src, dst, NULL, &op, err);

    if (!rc && cancel)
        rsd_op_cancel(op);
    if (!rc)
        rc = rsd_op_wait(op, RSD_DURABLE, err);
    rsd_op_free(op);
    return rc;
}

static rsd_err move_badly(void *arg, rsd_comm *comm, rsd_error *err)
{
    fault_job        *j = arg;
    int32_t           rank = rsd_comm_rank(comm);
    fault             f = rank == BAD ? j->fault : (fault)-1;
    const rsd_layout *from = j->src, *to = f == OTHER_TARGET ? j->other : j->dst;
    fault_target     *target = calloc(1, sizeof(*target));
    float             rows[ELEMENTS];
    rsd_view          in = { 0 }, out = { .put = put_target, .get = get_target, .arg = target };
    rsd_views         src = { .view = &in }, dst = { 1, &out };
    rsd_plan         *plan = NULL;

    src.n = rsd_layout_views(from, rank, rows, &in, 1);
    rsd_layout_boxes(to, rank, &out.box, 1);
    for (int64_t i = 0; i < rsd_box_count(&in.box); i++)
        rows[i] = (float)(in.box.off[0] * shape[1] + i);
    target->get_fails = f == GET_FAILS;
    target->put_fails = f == PUT_FAILS;
    if (f == GET_MISSING)
        out.get = NULL;
    j->err[rank] = (rsd_error){ .rank = -1 };
    j->rc[rank] = rsd_plan_create(1, &from, &to, rank, &plan, &j->err[rank]);
    if (!j->rc[rank])
        j->rc[rank] = run_plan(plan, comm, &src, &dst, f == CANCELED, &j->err[rank]);
    j->right[rank] = true;
    for (int e = 0; e < ELEMENTS; e++) {
        float value;

        memcpy(&value, target->bytes + (size_t)e * sizeof(value), sizeof(value));
        j->right[rank] = j->right[rank] && value == (float)e;
    }
    rsd_plan_free(plan);
    free(target);
    (void)err;
    return RSD_OK;
}

/* Cut among the ranks of a machine, and passed on by one. Returns the bytes that crossed. */
static int64_t run_badly(fault what, rsd_err want, const char *says)
{
    fault_job j = { .fault = what };
    int64_t   crossed = 0;

    j.src = fixture_layout("mesh a=7; * shard(0)@a", 2, shape);
    j.dst = fixture_layout("mesh a=7; * replicate", 2, shape);
    j.other = fixture_layout("mesh a=7; * shard(1)@a", 2, shape);
    for (int cut = 0; cut < 2; cut++) {
        fake_hosts hosts = { .ranks = FAULT_RANKS, .of = unevenly };
        rsd_error  err = { 0 };

        random_way_take(&random_ways[cut ? 4 : 2]);
        assert_int_equal(fake_hosts_run(&hosts, move_badly, &j, &err), RSD_OK);
        for (int32_t r = 0; r < FAULT_RANKS; r++) {
            assert_int_equal(j.rc[r], want);
            if (want && !strstr(j.err[r].msg, says))
                fail_msg("rank %d: \"%s\" lacks \"%s\"", (int)r, j.err[r].msg, says);
            assert_true(want || j.right[r]);
        }
        for (int host = 0; host < FAKE_HOSTS; host++)
            crossed += hosts.moved[host];
    }
    random_way_take(NULL);
    rsd_layout_free(j.src);
    rsd_layout_free(j.dst);
    rsd_layout_free(j.other);
    return crossed;
}

/* Then nobody passes anything on: each rank gets its own copy of what its machine lacks. */
static void a_target_that_cant_be_read_makes_all_get_their_own_copy(void **state)
{
    const int64_t rows[] = { 4, 4, 4, 4, 4, 4, 2 }; /* of each rank */
    int64_t       want = 0;

    (void)state;
    for (int r = 0; r < FAULT_RANKS; r++)
        for (int from = 0; from < FAULT_RANKS; from++)
            want += unevenly[r] != unevenly[from] ? rows[from] : 0;
    assert_int_equal(run_badly(GET_MISSING, RSD_OK, ""),
                     2 * want * shape[1] * (int64_t)sizeof(float));
}

static void a_callback_that_fails_on_the_way_fails_on_all_ranks(void **state)
{
    (void)state;
    run_badly(GET_FAILS, RSD_E_IO, "rank 2");
    run_badly(PUT_FAILS, RSD_E_IO, "rank 2");
}

static void a_rank_with_another_target_is_named_by_all(void **state)
{
    (void)state;
    run_badly(OTHER_TARGET, RSD_E_MISMATCH, "rank 2");
}

static void a_move_that_one_rank_cancels_ends_on_all(void **state)
{
    (void)state;
    run_badly(CANCELED, RSD_E_CANCELED, "rank 2");
}

/* ---- random layouts ---- */

static void random_layouts_send_every_element_once(void **state)
{
    static random_live l;

    (void)state;
    for (uint64_t i = 0; i < CASES; i++) {
        const random_way *way = &random_ways[2 + i % (RANDOM_WAYS - 2)];
        job               j = { .tensor = l.tensor, .how = way->how };

        random_live_make(&l, SEED + i, CASE_RANKS);
        j.n = l.drawn.n;
        random_way_take(way);
        print_message("seed %" PRIu64 "\n", SEED + i);
        for (int m = 0; m < 3; m++) /* what is reduced comes from all ranks */
            run(&j, machines[m], random_live_world(&l), !l.drawn.partial[0]);
        random_live_free(&l);
    }
    random_way_take(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_that_all_want_come_to_each_machine_once),
        cmocka_unit_test(what_one_rank_has_comes_to_the_other_machines_once),
        cmocka_unit_test(what_a_machine_has_does_not_come_to_it),
        cmocka_unit_test(what_only_receivers_would_pass_on_does_not_cross),
        cmocka_unit_test(sums_of_near_ranks_are_passed_on_between_machines),
        cmocka_unit_test(replicas_on_one_machine_go_to_the_other_once),
        cmocka_unit_test(meshes_that_lie_across_machines_are_followed),
        cmocka_unit_test(what_is_shared_out_comes_once),
        cmocka_unit_test(a_target_that_cant_be_read_makes_all_get_their_own_copy),
        cmocka_unit_test(a_callback_that_fails_on_the_way_fails_on_all_ranks),
        cmocka_unit_test(a_rank_with_another_target_is_named_by_all),
        cmocka_unit_test(a_move_that_one_rank_cancels_ends_on_all),
        cmocka_unit_test(random_layouts_send_every_element_once),
    };

    return cmocka_run_group_tests_name("live_hosts", tests, NULL, NULL);
}
