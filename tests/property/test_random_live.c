/* SPDX-License-Identifier: Apache-2.0 */
/* test_random_live.c - random tensors resharded between threads, every element checked.
 *
 *     RESHARD_SEED=7 RESHARD_LIVE_CASES=1000 test_random_live
 *
 * Case k is drawn from seed + k, as in test_random_plans.c, which checks the layouts and plans that
 * are used here against the oracle. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exchange.h"
#include "live_case.h"

enum { SEED = 4711, CASES = 60, TINY = 5120 };

typedef struct job {
    size_t      n;
    live_tensor tensor[CASE_TENSORS];
    random_side side[CASE_TENSORS][2];
    live_how    how;
} job;

static int32_t part_of(int32_t rank, void *arg)
{
    return ((const oracle *)arg)->part[rank];
}

static rsd_err run_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job *j = arg;

    return live_run(comm, j->n, j->tensor, &j->how, NULL, err);
}

/* Types in which small whole numbers can be combined. */
static void use_number_types(random_case *c)
{
    static const rsd_dtype types[] = { RSD_I32, RSD_F32, RSD_BF16, RSD_F64, RSD_I16, RSD_I64 };

    for (size_t t = 0; t < c->n; t++)
        if (c->partial[0])
            c->tensor[t].dtype = types[(size_t)c->tensor[t].dtype % 6];
        else if (c->partial[1])
            c->tensor[t].dtype = types[1 + (size_t)c->tensor[t].dtype % 3];
}

static int32_t world_of(const job *j)
{
    int32_t world = 1;

    for (size_t i = 0; i < 2 * j->n; i++) {
        int32_t w = rsd_layout_world(j->side[i / 2][i % 2].layout);

        world = w > world ? w : world;
    }
    return world;
}

static void run_case(uint64_t seed, const live_how *how)
{
    random_case c;
    job         j = { .how = *how };
    rsd_error   err = { 0 };
    rsd_err     rc;

    random_case_draw(&c, seed);
    use_number_types(&c);
    j.n = c.n;
    for (size_t t = 0; t < c.n; t++) {
        assert_int_equal(random_side_make(&j.side[t][0], &c.tensor[t], 0, CASE_RANKS, &err), 0);
        assert_int_equal(random_side_make(&j.side[t][1], &c.tensor[t], 1, CASE_RANKS, &err), 0);
        j.tensor[t] = (live_tensor){ .src = j.side[t][0].layout,
                                     .dst = j.side[t][1].layout,
                                     .parts = j.side[t][0].want.parts,
                                     .part_of = part_of,
                                     .arg = &j.side[t][0].want };
    }
    rc = rsd_comm_run_threads(world_of(&j), run_rank, &j, &err);
    for (size_t i = 0; i < 2 * c.n; i++)
        random_side_free(&j.side[i / 2][i % 2]);
    if (rc) {
        random_case_tell(&c);
        fail_msg("%s: RESHARD_SEED=%" PRIu64 " RESHARD_LIVE_CASES=1", err.msg, seed);
    }
}

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void each_case(const live_how *how)
{
    uint64_t seed = number_from("RESHARD_SEED", SEED);
    uint64_t cases = number_from("RESHARD_LIVE_CASES", CASES);

    print_message("seed %" PRIu64 "\n", seed);
    for (uint64_t i = 0; i < cases; i++)
        run_case(seed + i, how);
}

static void memory_that_is_reached_is_copied_once(void **state)
{
    (void)state;
    each_case(&(live_how){ .direct = true, .count = true });
}

static void messages_bring_every_element(void **state)
{
    (void)state;
    each_case(&(live_how){ .count = true });
}

static void buffers_of_a_few_bytes_bring_every_element(void **state)
{
    (void)state;
    rsi_exchange_memory_min = TINY;
    each_case(&(live_how){ .memory = TINY, .count = true, .in_steps = true });
    rsi_exchange_memory_min = 64 << 10;
}

static void pieces_cut_among_their_receivers_arrive_whole(void **state)
{
    (void)state;
    rsi_exchange_cut_min = 1;
    rsi_exchange_memory_min = TINY;
    each_case(&(live_how){ .memory = TINY, .count = true });
    each_case(&(live_how){ .direct = true, .count = true, .in_steps = true });
    rsi_exchange_memory_min = 64 << 10;
    rsi_exchange_cut_min = 64 << 10;
}

static void callbacks_bring_every_element(void **state)
{
    (void)state;
    rsi_exchange_cut_min = 1;
    each_case(&(live_how){ .direct = true, .count = true, .callbacks = true });
    rsi_exchange_cut_min = 64 << 10;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_reached_is_copied_once),
        cmocka_unit_test(messages_bring_every_element),
        cmocka_unit_test(buffers_of_a_few_bytes_bring_every_element),
        cmocka_unit_test(pieces_cut_among_their_receivers_arrive_whole),
        cmocka_unit_test(callbacks_bring_every_element),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
