/* SPDX-License-Identifier: Apache-2.0 */
/* test_error.c - one line of text, cut to fit, safe to print, with where before what. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"

#include <errno.h>
#include <string.h>

enum { MOST = 495 }; /* bytes of text that fit into rsd_error.msg */

/* `n` times `c` and then `end`; one buffer for all. */
static const char *text_of(size_t n, char c, const char *end)
{
    static char text[2048];

    assert_true(n + strlen(end) < sizeof(text));
    memset(text, c, n);
    memcpy(text + n, end, strlen(end) + 1);
    return text;
}

static void failing_returns_the_code_and_fills_the_error(void **state)
{
    rsd_error err;

    (void)state;
    memset(&err, 0xee, sizeof(err));
    assert_int_equal(rsi_fail(&err, RSD_E_FORMAT, "byte %d of \"%s\"", 7, "a.pt"), RSD_E_FORMAT);
    assert_int_equal(err.code, RSD_E_FORMAT);
    assert_int_equal(err.sys_errno, 0);
    assert_int_equal(err.rank, -1);
    assert_int_equal(err.nfailed, 0);
    assert_string_equal(err.msg, "byte 7 of \"a.pt\"");
}

static void failing_without_an_error_returns_the_code(void **state)
{
    (void)state;
    assert_int_equal(rsi_fail(NULL, RSD_E_IO, "x"), RSD_E_IO);
    assert_int_equal(rsi_fail_errno(NULL, RSD_E_IO, ENOENT, "x"), RSD_E_IO);
    assert_int_equal(rsi_while(NULL, RSD_E_BUG, "x"), RSD_E_BUG);
}

static void text_that_just_fits_is_not_cut(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_INVALID, "%s", text_of(MOST, 'a', ""));
    assert_int_equal(strlen(err.msg), MOST);
    assert_string_equal(err.msg, text_of(MOST, 'a', ""));
}

static void text_one_byte_too_long_ends_in_dots(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_INVALID, "%s", text_of(MOST + 1, 'a', ""));
    assert_string_equal(err.msg, text_of(MOST - 3, 'a', "..."));
}

static void a_character_that_the_cut_halves_is_left_out(void **state)
{
    rsd_error err;

    (void)state;
    /* e acute is two bytes, at 491 and 492; the dots would begin at 492 */
    rsi_fail(&err, RSD_E_INVALID, "%s", text_of(491, 'a', "\xc3\xa9 and much more"));
    assert_string_equal(err.msg, text_of(491, 'a', "..."));
    /* a smiling face is four bytes, at 489 .. 492 */
    rsi_fail(&err, RSD_E_INVALID, "%s", text_of(489, 'a', "\xf0\x9f\x98\x80 and much more"));
    assert_string_equal(err.msg, text_of(489, 'a', "..."));
}

static void a_character_that_ends_before_the_dots_is_kept(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_INVALID, "%s", text_of(490, 'a', "\xc3\xa9 and much more"));
    assert_string_equal(err.msg, text_of(490, 'a', "\xc3\xa9..."));
}

static void a_character_that_begins_where_the_dots_do_is_left_out(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_INVALID, "%s", text_of(492, 'a', "\xf0\x9f\x98\x80 and much more"));
    assert_string_equal(err.msg, text_of(492, 'a', "..."));
}

static void bytes_that_are_no_text_at_all_are_cut_to_dots(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_INVALID, "%s", text_of(600, (char)0x80, ""));
    assert_string_equal(err.msg, "...");
}

static void control_characters_become_question_marks(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_INVALID, "a\nb\x1b[31mc\x7f\t\x01z\x1f ~");
    assert_string_equal(err.msg, "a?b?[31mc???z? ~");
}

static void control_characters_in_the_context_become_question_marks(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_INVALID, "bad");
    rsi_while(&err, RSD_E_INVALID, "file \"%s\"", "a\r\nb");
    assert_string_equal(err.msg, "file \"a??b\": bad");
}

static void letters_beyond_ascii_are_kept(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_INVALID, "gr\xc3\xbc\xc3\x9f");
    assert_string_equal(err.msg, "gr\xc3\xbc\xc3\x9f");
}

static void the_last_context_comes_first(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_FORMAT, "no brace");
    assert_int_equal(rsi_while(&err, RSD_E_FORMAT, "byte %d", 8), RSD_E_FORMAT);
    assert_int_equal(rsi_while(&err, RSD_E_FORMAT, "file \"%s\"", "m"), RSD_E_FORMAT);
    assert_string_equal(err.msg, "file \"m\": byte 8: no brace");
    assert_int_equal(err.code, RSD_E_FORMAT);
}

static void context_keeps_errno_and_rank(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail_errno(&err, RSD_E_IO, ENOSPC, "write");
    err.rank = 3;
    err.nfailed = 2;
    rsi_while(&err, RSD_E_IO, "rank %d", 3);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_int_equal(err.rank, 3);
    assert_int_equal(err.nfailed, 2);
}

static void context_with_another_code_replaces_it(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_INVALID, "reason");
    assert_int_equal(rsi_while(&err, RSD_E_FORMAT, "file"), RSD_E_FORMAT);
    assert_int_equal(err.code, RSD_E_FORMAT);
    assert_string_equal(err.msg, "file: reason");
}

static void context_in_front_of_a_full_message_cuts_its_end(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_INVALID, "%s", text_of(MOST, 'a', ""));
    rsi_while(&err, RSD_E_INVALID, "xyz"); /* "xyz: " and 490 of the 495 */
    assert_int_equal(strlen(err.msg), MOST);
    assert_memory_equal(err.msg, "xyz: aaa", 8);
    assert_string_equal(err.msg + MOST - 4, "a...");
}

static void context_longer_than_a_message_ends_in_dots(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail(&err, RSD_E_INVALID, "reason");
    rsi_while(&err, RSD_E_INVALID, "%s", text_of(1000, 'b', ""));
    assert_string_equal(err.msg, text_of(MOST - 3, 'b', "..."));
}

static void errno_adds_the_reason_after_a_colon(void **state)
{
    rsd_error err;

    (void)state;
    assert_int_equal(rsi_fail_errno(&err, RSD_E_IO, ENOENT, "could not open \"%s\"", "x"),
                     RSD_E_IO);
    assert_int_equal(err.code, RSD_E_IO);
    assert_int_equal(err.sys_errno, ENOENT);
    assert_int_equal(err.rank, -1);
    assert_string_equal(err.msg, "could not open \"x\": No such file or directory");
}

static void errno_on_a_full_message_ends_in_dots(void **state)
{
    rsd_error err;

    (void)state;
    rsi_fail_errno(&err, RSD_E_IO, ENOENT, "%s", text_of(MOST - 2, 'a', ""));
    assert_string_equal(err.msg, text_of(MOST - 3, 'a', "..."));
}

static void every_code_has_its_own_name(void **state)
{
    (void)state;
    assert_string_equal(rsd_err_name(RSD_OK), "RSD_OK");
    assert_string_equal(rsd_err_name(RSD_E_INVALID), "RSD_E_INVALID");
    assert_string_equal(rsd_err_name(RSD_E_MISMATCH), "RSD_E_MISMATCH");
    assert_string_equal(rsd_err_name(RSD_E_UNSUPPORTED), "RSD_E_UNSUPPORTED");
    assert_string_equal(rsd_err_name(RSD_E_NOTFOUND), "RSD_E_NOTFOUND");
    assert_string_equal(rsd_err_name(RSD_E_EXISTS), "RSD_E_EXISTS");
    assert_string_equal(rsd_err_name(RSD_E_FORMAT), "RSD_E_FORMAT");
    assert_string_equal(rsd_err_name(RSD_E_CORRUPT), "RSD_E_CORRUPT");
    assert_string_equal(rsd_err_name(RSD_E_NOMEM), "RSD_E_NOMEM");
    assert_string_equal(rsd_err_name(RSD_E_IO), "RSD_E_IO");
    assert_string_equal(rsd_err_name(RSD_E_COMM), "RSD_E_COMM");
    assert_string_equal(rsd_err_name(RSD_E_CANCELED), "RSD_E_CANCELED");
    assert_string_equal(rsd_err_name(RSD_E_TIMEOUT), "RSD_E_TIMEOUT");
    assert_string_equal(rsd_err_name(RSD_E_BUG), "RSD_E_BUG");
}

static void a_number_that_is_no_code_is_unknown(void **state)
{
    int number = 4;

    (void)state;
    assert_string_equal(rsd_err_name((rsd_err)number), "unknown error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failing_returns_the_code_and_fills_the_error),
        cmocka_unit_test(failing_without_an_error_returns_the_code),
        cmocka_unit_test(text_that_just_fits_is_not_cut),
        cmocka_unit_test(text_one_byte_too_long_ends_in_dots),
        cmocka_unit_test(a_character_that_the_cut_halves_is_left_out),
        cmocka_unit_test(a_character_that_ends_before_the_dots_is_kept),
        cmocka_unit_test(a_character_that_begins_where_the_dots_do_is_left_out),
        cmocka_unit_test(bytes_that_are_no_text_at_all_are_cut_to_dots),
        cmocka_unit_test(control_characters_become_question_marks),
        cmocka_unit_test(control_characters_in_the_context_become_question_marks),
        cmocka_unit_test(letters_beyond_ascii_are_kept),
        cmocka_unit_test(the_last_context_comes_first),
        cmocka_unit_test(context_keeps_errno_and_rank),
        cmocka_unit_test(context_with_another_code_replaces_it),
        cmocka_unit_test(context_in_front_of_a_full_message_cuts_its_end),
        cmocka_unit_test(context_longer_than_a_message_ends_in_dots),
        cmocka_unit_test(errno_adds_the_reason_after_a_colon),
        cmocka_unit_test(errno_on_a_full_message_ends_in_dots),
        cmocka_unit_test(every_code_has_its_own_name),
        cmocka_unit_test(a_number_that_is_no_code_is_unknown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
