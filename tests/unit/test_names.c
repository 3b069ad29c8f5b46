/* SPDX-License-Identifier: Apache-2.0 */
/* test_names.c - the table that finds names in an array. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/names.h"

#include <stdio.h>
#include <string.h>

enum { N = 3000 };

typedef struct named {
    rsi_name name;
    int      more;
} named;

static char  texts[N][8];
static named list[N];

static void fill(void)
{
    for (size_t i = 0; i < N; i++) {
        int len = snprintf(texts[i], sizeof(texts[i]), "n%zu", i);

        list[i] = (named){ .name = { .text = texts[i], .len = (uint32_t)len } };
    }
}

static void every_name_is_found_at_its_place(void **state)
{
    (void)state;
    fill();
    for (size_t n = 0; n < N; n = 2 * n + 1) {
        rsi_names names = { 0 };
        size_t    twice;

        assert_true(rsi_names_build(&names, list, sizeof(list[0]), n, &twice));
        assert_int_equal(twice, n);
        for (size_t i = 0; i < N; i++)
            assert_int_equal(rsi_names_find(&names, texts[i], strlen(texts[i])),
                             i < n ? i : SIZE_MAX);
        rsi_names_release(&names);
    }
}

static void the_first_name_that_repeats_is_told(void **state)
{
    rsi_names names = { 0 };
    size_t    twice;

    (void)state;
    fill();
    list[70].name = list[33].name;
    list[2000].name = list[1].name;
    assert_true(rsi_names_build(&names, list, sizeof(list[0]), N, &twice));
    assert_int_equal(twice, 70);
    rsi_names_release(&names);
}

static void nothing_is_found_in_an_empty_table(void **state)
{
    rsi_names names = { 0 };

    (void)state;
    assert_int_equal(rsi_names_find(&names, "a", 1), SIZE_MAX);
    rsi_names_release(&names);
}

static void no_memory_leaves_the_table_as_it_was(void **state)
{
    rsi_names names = { 0 };
    size_t    twice;

    (void)state;
    fill();
    rsi_mem_fail_at(1, 0);
    assert_false(rsi_names_build(&names, list, sizeof(list[0]), N, &twice));
    rsi_mem_fail_at(0, 0);
    assert_null(names.slot);
}

static void an_array_grows_when_it_is_full(void **state)
{
    uint64_t *array = NULL;
    size_t    cap = 0;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        assert_true(rsi_grow(&array, (size_t)i, &cap, sizeof(array[0])));
        array[i] = i;
    }
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(array[i], i);
    rsi_mem_fail_at(1, 0);
    assert_false(rsi_grow(&array, cap, &cap, sizeof(array[0])));
    rsi_mem_fail_at(0, 0);
    assert_int_equal(array[999], 999);
    rsi_free(array);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_is_found_at_its_place),
        cmocka_unit_test(the_first_name_that_repeats_is_told),
        cmocka_unit_test(nothing_is_found_in_an_empty_table),
        cmocka_unit_test(no_memory_leaves_the_table_as_it_was),
        cmocka_unit_test(an_array_grows_when_it_is_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
