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
#include <stdio.h>
#include <stdlib.h>

#include "random_live.h"

enum { SEED = 4711, CASES = 60 };

typedef struct job {
    random_live       drawn;
    const random_way *way;
} job;

static rsd_err run_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job *j = arg;

    return live_run(comm, j->drawn.drawn.n, j->drawn.tensor, &j->way->how, NULL, err);
}

static void run_case(uint64_t seed, const random_way *way)
{
    static job j; /* too large for the stack */
    rsd_error  err = { 0 };
    rsd_err    rc;

    random_live_make(&j.drawn, seed, CASE_RANKS);
    j.way = way;
    rc = rsd_comm_run_threads(random_live_world(&j.drawn), run_rank, &j, &err);
    random_live_free(&j.drawn);
    if (rc) {
        random_case_tell(&j.drawn.drawn);
        fail_msg("%s: RESHARD_SEED=%" PRIu64 " RESHARD_LIVE_CASES=1", err.msg, seed);
    }
}

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);

    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void every_element_arrives(void **state)
{
    const random_way *way = *state;
    uint64_t          seed = number_from("RESHARD_SEED", SEED);
    uint64_t          cases = number_from("RESHARD_LIVE_CASES", CASES);

    print_message("seed %" PRIu64 "\n", seed);
    random_way_take(way);
    for (uint64_t i = 0; i < cases; i++)
        run_case(seed + i, way);
    random_way_take(NULL);
}

int main(void)
{
    static char              name[RANDOM_WAYS][96];
    static struct CMUnitTest tests[RANDOM_WAYS];

    for (size_t w = 0; w < RANDOM_WAYS; w++) {
        snprintf(name[w], sizeof(name[w]), "every element arrives: %s", random_ways[w].name);
        tests[w] = (struct CMUnitTest){ name[w], every_element_arrives, NULL, NULL,
                                        (void *)&random_ways[w] };
    }
    return _cmocka_run_group_tests("random_live", tests, RANDOM_WAYS, NULL, NULL);
}
