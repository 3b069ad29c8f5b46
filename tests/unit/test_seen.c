/* SPDX-License-Identifier: Apache-2.0 */
/* test_seen.c - each place is taken by exactly one, whoever comes at the same time. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/workers.h"
#include "ckpt_fixture.h"
#include "read/seen.h"

#include <stdatomic.h>

static bool take(rsi_seen *seen, uint32_t file, uint64_t off)
{
    bool first = false;

    assert_int_equal(rsi_seen_take(seen, file, off, &first, NULL), RSD_OK);
    return first;
}

static void the_first_has_it_and_nobody_after_him(void **state)
{
    rsi_seen *seen;

    (void)state;
    assert_int_equal(rsi_seen_create(&seen, NULL), RSD_OK);
    assert_true(take(seen, 0, 0));
    assert_false(take(seen, 0, 0));
    assert_true(take(seen, 0, 1));
    assert_true(take(seen, 1, 0));
    assert_false(take(seen, 1, 0));
    assert_true(take(seen, UINT32_MAX, UINT64_MAX));
    assert_false(take(seen, UINT32_MAX, UINT64_MAX));
    rsi_seen_free(seen);
    rsi_seen_free(NULL);
}

typedef struct crowd {
    rsi_seen  *seen;
    atomic_int firsts;
} crowd;

/* Jobs i and i + 1000 and so on want the same place. */
static rsd_err want(void *arg, size_t i, rsd_error *err)
{
    crowd  *c = arg;
    bool    first = false;
    rsd_err rc = rsi_seen_take(c->seen, (uint32_t)(i % 10), i % 1000 / 10, &first, err);

    c->firsts += first;
    return rc;
}

static void of_a_crowd_one_has_each_place(void **state)
{
    crowd        c = { 0 };
    rsi_workers *workers;

    (void)state;
    assert_int_equal(rsi_seen_create(&c.seen, NULL), RSD_OK);
    assert_int_equal(rsi_workers_create(8, &workers, NULL), RSD_OK);
    assert_int_equal(rsi_workers_run(workers, 8000, want, &c, NULL), RSD_OK);
    assert_int_equal(c.firsts, 1000);
    rsi_workers_free(workers);
    rsi_seen_free(c.seen);
}

static rsd_err take_many(void *arg, rsd_error *err)
{
    rsi_seen *seen = NULL;
    rsd_err   rc = rsi_seen_create(&seen, err);

    (void)arg;
    for (uint64_t i = 0; i < 200 && !rc; i++) {
        bool first = false;

        rc = rsi_seen_take(seen, 0, i, &first, err);
        if (!rc)
            assert_true(first);
    }
    rsi_seen_free(seen);
    return rc;
}

static void want_of_memory_is_told(void **state)
{
    (void)state;
    fix_every_allocation(take_many, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_has_it_and_nobody_after_him),
        cmocka_unit_test(of_a_crowd_one_has_each_place),
        cmocka_unit_test(want_of_memory_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
