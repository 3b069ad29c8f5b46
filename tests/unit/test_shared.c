/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/shared.h"

static int destroyed;

static void destroy(rsi_shared *shared)
{
    (void)shared;
    destroyed++;
}

static void the_last_user_destroys_it(void **state)
{
    rsi_shared one;
    uint64_t   number = rsi_shared_add(&one, destroy);

    (void)state;
    destroyed = 0;
    assert_ptr_equal(rsi_shared_find(number), &one);
    rsi_shared_drop(&one);
    assert_int_equal(destroyed, 0);
    rsi_shared_drop(&one);
    assert_int_equal(destroyed, 1);
}

static void one_that_is_gone_is_not_found_though_its_memory_is_used_again(void **state)
{
    rsi_shared one;
    uint64_t   first = rsi_shared_add(&one, destroy), second;

    (void)state;
    rsi_shared_drop(&one);
    assert_null(rsi_shared_find(first));
    second = rsi_shared_add(&one, destroy);
    assert_null(rsi_shared_find(first));
    assert_ptr_equal(rsi_shared_find(second), &one);
    rsi_shared_drop(&one);
    rsi_shared_drop(&one);
}

static void each_of_several_is_found_by_its_number(void **state)
{
    rsi_shared one, two;
    uint64_t   first = rsi_shared_add(&one, destroy), second = rsi_shared_add(&two, destroy);

    (void)state;
    assert_null(rsi_shared_find(0));
    assert_ptr_equal(rsi_shared_find(first), &one);
    rsi_shared_drop(&one);
    rsi_shared_drop(&one);
    assert_null(rsi_shared_find(first));
    assert_ptr_equal(rsi_shared_find(second), &two);
    rsi_shared_drop(&two);
    rsi_shared_drop(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_user_destroys_it),
        cmocka_unit_test(one_that_is_gone_is_not_found_though_its_memory_is_used_again),
        cmocka_unit_test(each_of_several_is_found_by_its_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
