/* SPDX-License-Identifier: Apache-2.0 */
/* test_text.c - appending counts the way snprintf does. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/text.h"

#include <string.h>

/* "abc7" in two steps into a buffer said to have `cap` bytes. */
static size_t add_two(char *buf, size_t cap)
{
    rsi_text text = rsi_text_begin(buf, cap);

    rsi_text_add(&text, "%s", "abc");
    rsi_text_add(&text, "%d", 7);
    return text.len;
}

static void without_room_only_the_length_comes_out(void **state)
{
    char buf[8] = "xxxxxxx";

    (void)state;
    assert_int_equal(add_two(NULL, 0), 4);
    assert_int_equal(add_two(buf, 0), 4);
    assert_string_equal(buf, "xxxxxxx");
}

static void room_for_one_byte_holds_the_nul(void **state)
{
    char buf[8] = "xxxxxxx";

    (void)state;
    assert_int_equal(add_two(buf, 1), 4);
    assert_memory_equal(buf, "\0xxxxxx", 7);
}

static void text_that_does_not_fit_is_cut_and_counted(void **state)
{
    char buf[8] = "xxxxxxx";

    (void)state;
    assert_int_equal(add_two(buf, 3), 4);
    assert_memory_equal(buf, "ab\0xxxx", 7);
}

static void the_nul_of_a_full_buffer_is_kept_when_more_is_added(void **state)
{
    char buf[8] = "xxxxxxx";

    (void)state;
    assert_int_equal(add_two(buf, 4), 4);
    assert_memory_equal(buf, "abc\0xxx", 7);
}

static void text_that_just_fits_is_whole(void **state)
{
    char buf[8] = "xxxxxxx";

    (void)state;
    assert_int_equal(add_two(buf, 5), 4);
    assert_memory_equal(buf, "abc7\0xx", 7);
}

static void beginning_empties_the_buffer(void **state)
{
    char     buf[4] = "old", one[1] = { 'x' };
    rsi_text text = rsi_text_begin(buf, sizeof(buf));

    (void)state;
    assert_string_equal(buf, "");
    assert_int_equal(text.len, 0);
    rsi_text_begin(one, 1);
    assert_int_equal(one[0], '\0');
}

static void adding_nothing_changes_nothing(void **state)
{
    char     buf[4] = "";
    rsi_text text = rsi_text_begin(buf, sizeof(buf));

    (void)state;
    rsi_text_add(&text, "ab");
    rsi_text_add(&text, "%s", "");
    assert_string_equal(buf, "ab");
    assert_int_equal(text.len, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_room_only_the_length_comes_out),
        cmocka_unit_test(room_for_one_byte_holds_the_nul),
        cmocka_unit_test(text_that_does_not_fit_is_cut_and_counted),
        cmocka_unit_test(the_nul_of_a_full_buffer_is_kept_when_more_is_added),
        cmocka_unit_test(text_that_just_fits_is_whole),
        cmocka_unit_test(beginning_empties_the_buffer),
        cmocka_unit_test(adding_nothing_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
