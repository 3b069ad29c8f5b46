/* SPDX-License-Identifier: Apache-2.0 */
/* test_facts.c - ranks that tell different facts: the first that differs is named on all. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/facts.h"

#include <string.h>

enum { RANKS = 3, ODD = 2 };

typedef struct told {
    const char *path;
    uint64_t    number;
    int64_t     shape[2];
    uint64_t    layout;
    size_t      names;
    const char *name[3];
} told;

static const told usual = { "ck", 7, { 4, 6 }, 11, 2, { "a", "b", "c" } };

static void tell(rsi_facts *f, const void *arg)
{
    const told *t = arg;

    rsi_fact_word(f, "the call", "test");
    rsi_fact_text(f, "path", t->path);
    rsi_fact_number(f, "number", t->number);
    for (size_t i = 0; i < t->names; i++) {
        rsi_facts_item(f, "tensor", i, t->name[i]);
        rsi_fact_shape(f, "shape", 2, t->shape);
        rsi_fact_digest(f, "layout", t->layout);
    }
    rsi_facts_count(f, "the number of tensors", t->names);
}

typedef struct job {
    told        odd;
    rsd_err     fails; /* on rank ODD, before it tells anything */
    const char *want;  /* NULL: all mean the same */
} job;

static rsd_err compare(void *arg, rsd_comm *comm, rsd_error *err)
{
    const job *j = arg;
    bool       odd = comm->rank == ODD;
    rsd_err    mine = odd && j->fails ? rsi_fail(err, j->fails, "no path") : RSD_OK;
    rsd_err    rc = rsi_same_facts(comm, tell, odd ? &j->odd : &usual, mine, err);

    if (!j->want && !rc)
        return rsi_barrier(comm, err);
    if (!j->want || rc != (j->fails ? j->fails : RSD_E_MISMATCH) || err->rank != ODD ||
        strcmp(err->msg, j->want) != 0)
        return rsi_fail(err, RSD_E_BUG, "rank %d has %s", (int)comm->rank, err->msg);
    return rsi_barrier(comm, err); /* the comm is whole */
}

static void assert_told(told odd, rsd_err fails, const char *want)
{
    job       j = { .odd = odd, .fails = fails, .want = want };
    rsd_error err = { 0 };

    if (rsd_comm_run_threads(RANKS, compare, &j, &err))
        fail_msg("%s", err.msg);
}

static told with(told t, const char *path, uint64_t number)
{
    t.path = path;
    t.number = number;
    return t;
}

static void the_first_fact_that_differs_is_named(void **state)
{
    told other = usual;

    (void)state;
    assert_told(usual, RSD_OK, NULL);
    assert_told(with(usual, "other", 8), RSD_OK,
                "rank 2: path is \"other\" here, but \"ck\" on rank 0");
    assert_told(with(usual, NULL, 7), RSD_OK, "rank 2: path is none here, but \"ck\" on rank 0");
    assert_told(with(usual, "ck", 8), RSD_OK, "rank 2: number is 8 here, but 7 on rank 0");
    other.shape[1] = 5;
    assert_told(other, RSD_OK, "rank 2: tensor \"a\": shape is [4, 5] here, but [4, 6] on rank 0");
    other = usual;
    other.layout = 12;
    assert_told(other, RSD_OK, "rank 2: tensor \"a\": layout differs from that on rank 0");
    other = usual;
    other.name[1] = "x";
    assert_told(other, RSD_OK, "rank 2: tensor 1 is \"x\" here, but \"b\" on rank 0");
}

static void a_list_that_goes_on_names_what_comes_next(void **state)
{
    told other = usual;

    (void)state;
    other.names = 3;
    assert_told(other, RSD_OK,
                "rank 2: tensor 2 is \"c\" here, but the number of tensors is 2 on rank 0");
    other.names = 1;
    assert_told(other, RSD_OK,
                "rank 2: the number of tensors is 1 here, but tensor 1 is \"b\" on rank 0");
}

static void a_failure_comes_before_a_difference(void **state)
{
    (void)state;
    assert_told(with(usual, "other", 8), RSD_E_INVALID, "rank 2: no path");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_fact_that_differs_is_named),
        cmocka_unit_test(a_list_that_goes_on_names_what_comes_next),
        cmocka_unit_test(a_failure_comes_before_a_difference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
