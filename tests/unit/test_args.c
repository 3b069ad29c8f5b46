/* SPDX-License-Identifier: Apache-2.0 */
/* The command line's parser; its messages are tested by tests/cli. */
#include "cli.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static const option_spec options[] = {
    { "all", 'a', OPT_FLAG, NULL, "" },    { "name", 'n', OPT_TEXT, "NAME", "" },
    { "size", 's', OPT_SIZE, "SIZE", "" }, { "count", 0, OPT_COUNT, "N", "" },
    { "real", 0, OPT_REAL, "X", "" },      { 0 },
};
static const command cmd = { .name = "test", .operands = "X", .max = -1, .options = options };

#define PARSE(a, ...)                                                                              \
    args_parse(a, &cmd, (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)),           \
               (const char *[]){ __VA_ARGS__ })

static void sizes_have_units_of_1024_and_of_1000(void **state)
{
    uint64_t x = 0;

    (void)state;
    assert_true(size_parse("17", &x) && x == 17);
    assert_true(size_parse("64M", &x) && x == (uint64_t)64 << 20);
    assert_true(size_parse("5g", &x) && x == (uint64_t)5 << 30);
    assert_true(size_parse("1KiB", &x) && x == 1024);
    assert_true(size_parse("1KB", &x) && x == 1000);
    assert_true(size_parse("2TB", &x) && x == 2000000000000);
    assert_true(size_parse("100B", &x) && x == 100);
}

static void sizes_that_make_no_sense_are_refused(void **state)
{
    static const char *const wrong[] = {
        "", "M", "-1", "1.5G", "64Q", "1Mx", "1iB", "1 KiB", "17179869184G", "18446744073709551616"
    };
    uint64_t x = 7;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(size_parse(wrong[i], &x));
    assert_int_equal(x, 7);
}

static void options_and_operands_may_be_mixed(void **state)
{
    args a = { 0 };

    (void)state;
    assert_int_equal(PARSE(&a, "one", "--size", "4K", "two", "-a", "three"), EXIT_DONE);
    assert_int_equal(a.noperands, 3);
    assert_string_equal(a.operand[2], "three");
    assert_int_equal(args_size(&a, "size", 0), 4096);
    assert_true(args_has(&a, "all"));
    args_free(&a);
}

static void letters_may_be_joined_and_take_the_rest_as_value(void **state)
{
    args a = { 0 };

    (void)state;
    assert_int_equal(PARSE(&a, "-ans=x", "-s", "2"), EXIT_DONE);
    assert_true(args_has(&a, "all"));
    assert_string_equal(args_text(&a, "name", ""), "s=x");
    assert_int_equal(args_size(&a, "size", 0), 2);
    args_free(&a);
}

static void the_last_value_counts_and_all_are_kept(void **state)
{
    args a = { 0 };

    (void)state;
    assert_int_equal(PARSE(&a, "--name=1", "--name", "2", "-n3"), EXIT_DONE);
    assert_string_equal(args_text(&a, "name", ""), "3");
    assert_int_equal(args_count(&a, "name"), 3);
    assert_string_equal(args_at(&a, "name", 1), "2");
    assert_null(args_at(&a, "name", 3));
    args_free(&a);
}

static void an_empty_value_is_a_value(void **state)
{
    args a = { 0 };

    (void)state;
    assert_int_equal(PARSE(&a, "--name=", "--count=0", "--real=.5"), EXIT_DONE);
    assert_string_equal(args_text(&a, "name", "x"), "");
    assert_int_equal(args_number(&a, "count", 9), 0);
    assert_true(args_real(&a, "real", 9) == 0.5);
    args_free(&a);
}

static void what_was_not_given_has_its_default(void **state)
{
    args a = { 0 };

    (void)state;
    assert_int_equal(PARSE(&a, "x"), EXIT_DONE);
    assert_false(args_has(&a, "all"));
    assert_int_equal(args_size(&a, "size", 5), 5);
    assert_int_equal(args_number(&a, "count", 6), 6);
    assert_null(args_text(&a, "name", NULL));
    args_free(&a);
}

static void two_dashes_end_the_options(void **state)
{
    args a = { 0 };

    (void)state;
    assert_int_equal(PARSE(&a, "-a", "--", "-a", "--name", "--"), EXIT_DONE);
    assert_int_equal(args_count(&a, "all"), 1);
    assert_int_equal(a.noperands, 3);
    assert_string_equal(a.operand[2], "--");
    args_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_units_of_1024_and_of_1000),
        cmocka_unit_test(sizes_that_make_no_sense_are_refused),
        cmocka_unit_test(options_and_operands_may_be_mixed),
        cmocka_unit_test(letters_may_be_joined_and_take_the_rest_as_value),
        cmocka_unit_test(the_last_value_counts_and_all_are_kept),
        cmocka_unit_test(an_empty_value_is_a_value),
        cmocka_unit_test(what_was_not_given_has_its_default),
        cmocka_unit_test(two_dashes_end_the_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
