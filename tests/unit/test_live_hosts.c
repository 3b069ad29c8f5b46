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
        job j = { TENSORS, tensor, random_ways[w].how };

        if (j.how.shared)
            continue;
        random_way_take(&random_ways[w]);
        run(&j, of, ranks, true);
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
        cmocka_unit_test(replicas_on_one_machine_go_to_the_other_once),
        cmocka_unit_test(meshes_that_lie_across_machines_are_followed),
        cmocka_unit_test(what_is_shared_out_comes_once),
        cmocka_unit_test(random_layouts_send_every_element_once),
    };

    return cmocka_run_group_tests_name("live_hosts", tests, NULL, NULL);
}
