/* SPDX-License-Identifier: Apache-2.0 */
/* test_json.c - what the JSON reader accepts, what it says about the rest. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/text.h"
#include "format/json.h"

#include <stdio.h>
#include <string.h>

/* All tokens of a text in short: { } [ ] k(..) s(..) i(..) n(..) t f 0, or the error. */
static rsd_err tokens(const char *json, size_t len, char *buf, size_t cap, rsd_error *err)
{
    static const char *const shapes[] = { "",        "{",       "}",       "[", "]", "k(%.*s)",
                                          "s(%.*s)", "i(%.*s)", "n(%.*s)", "t", "f", "0" };
    rsi_text                 text = rsi_text_begin(buf, cap);
    rsi_arena                mem = { 0 };
    rsi_json                 reader;
    rsi_json_token           token;
    rsd_err                  rc;

    rsi_json_begin(&reader, json, len, 0, &mem);
    do {
        rc = rsi_json_next(&reader, &token, err);
        if (!rc && token.kind >= RSI_JSON_KEY && token.kind <= RSI_JSON_NUMBER) {
            char one[256];

            assert_true(token.len < 200);
            snprintf(one, sizeof(one), "%c(%.*s)", shapes[token.kind][0], (int)token.len,
                     token.text);
            rsi_text_add(&text, "%s", one);
        } else if (!rc) {
            rsi_text_add(&text, "%s", shapes[token.kind]);
        }
    } while (!rc && token.kind != RSI_JSON_END);
    rsi_arena_release(&mem);
    return rc;
}

static void assert_tokens(const char *json, const char *want)
{
    char      got[512];
    rsd_error err = { 0 };

    if (tokens(json, strlen(json), got, sizeof(got), &err))
        fail_msg("%s: %s", json, err.msg);
    assert_string_equal(got, want);
}

static void assert_refused(const char *json, size_t len, const char *msg)
{
    char      got[512];
    rsd_error err = { 0 };

    if (!tokens(json, len, got, sizeof(got), &err))
        fail_msg("accepted: %s", json);
    assert_int_equal(err.code, RSD_E_FORMAT);
    assert_string_equal(err.msg, msg);
}

static void every_kind_of_value_is_told(void **state)
{
    (void)state;
    assert_tokens("{\"a\": [1, -2.5, true, false, null, \"x\"], \"b\": {}, \"c\": []}",
                  "{k(a)[i(1)n(-2.5)tf0s(x)]k(b){}k(c)[]}");
    assert_tokens(" \t\r\n7 \n", "i(7)");
    assert_tokens("\"\"", "s()");
}

static void plain_strings_are_not_copied(void **state)
{
    static const char text[] = "\"plain\"";
    rsi_arena         mem = { 0 };
    rsi_json          json;
    rsi_json_token    token;

    (void)state;
    rsi_json_begin(&json, text, strlen(text), 0, &mem);
    assert_int_equal(rsi_json_next(&json, &token, NULL), RSD_OK);
    assert_ptr_equal(token.text, text + 1);
    assert_false(token.escaped);
    assert_null(mem.blocks);
}

static void escapes_become_utf8_with_a_nul_behind(void **state)
{
    static const char text[] =
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t \\u0041\\u00e9\\u20AC\\ud83d\\ude00 end\"";
    static const char want[] = "\"\\/\b\f\n\r\t A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 end";
    rsi_arena         mem = { 0 };
    rsi_json          json;
    rsi_json_token    token;

    (void)state;
    rsi_json_begin(&json, text, strlen(text), 0, &mem);
    assert_int_equal(rsi_json_next(&json, &token, NULL), RSD_OK);
    assert_true(token.escaped);
    assert_int_equal(token.len, strlen(want));
    assert_string_equal(token.text, want);
    rsi_arena_release(&mem);
}

static void a_nul_can_be_escaped_into_a_string(void **state)
{
    rsi_arena      mem = { 0 };
    rsi_json       json;
    rsi_json_token token;

    (void)state;
    rsi_json_begin(&json, "\"a\\u0000b\"", 10, 0, &mem);
    assert_int_equal(rsi_json_next(&json, &token, NULL), RSD_OK);
    assert_int_equal(token.len, 3);
    assert_memory_equal(token.text, "a\0b", 4);
    rsi_arena_release(&mem);
}

/* The reader looks at eight bytes at a time; the end of a string must be seen at each place among
 * them. */
static void strings_of_every_length_end_where_they_end(void **state)
{
    static const char *const last[] = { "\"", "\\n\"", "\xc3\xa9\"", "\x01", "\xff" };
    char                     text[64], got[128];

    (void)state;
    for (size_t n = 0; n < 24; n++)
        for (size_t k = 0; k < 5; k++) {
            text[0] = '"';
            memset(text + 1, 'x', n);
            snprintf(text + 1 + n, 32, "%s         \"", last[k]);
            if (k < 3)
                text[1 + n + strlen(last[k])] = '\0';
            assert_int_equal(tokens(text, strlen(text), got, sizeof(got), NULL),
                             k < 3 ? RSD_OK : RSD_E_FORMAT);
            if (k == 0)
                assert_int_equal(strlen(got), n + 3);
        }
}

static void integers_are_exact_and_others_told_apart(void **state)
{
    static const struct {
        const char   *text;
        rsi_json_kind kind;
        bool          negative;
        uint64_t      number;
    } cases[] = {
        { "0", RSI_JSON_INTEGER, false, 0 },
        { "-0", RSI_JSON_INTEGER, true, 0 },
        { "9007199254740993", RSI_JSON_INTEGER, false, 9007199254740993u },
        { "18446744073709551615", RSI_JSON_INTEGER, false, UINT64_MAX },
        { "18446744073709551616", RSI_JSON_NUMBER, false, 0 },
        { "99999999999999999999999", RSI_JSON_NUMBER, false, 0 },
        { "-9223372036854775808", RSI_JSON_INTEGER, true, (uint64_t)INT64_MAX + 1 },
        { "-9223372036854775809", RSI_JSON_NUMBER, true, 0 },
        { "1.0", RSI_JSON_NUMBER, false, 0 },
        { "1e0", RSI_JSON_NUMBER, false, 0 },
        { "1E+2", RSI_JSON_NUMBER, false, 0 },
        { "-0.5e-7", RSI_JSON_NUMBER, true, 0 },
    };
    rsi_json       json;
    rsi_json_token token;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rsi_json_begin(&json, cases[i].text, strlen(cases[i].text), 0, NULL);
        assert_int_equal(rsi_json_next(&json, &token, NULL), RSD_OK);
        assert_int_equal(token.kind, cases[i].kind);
        assert_int_equal(token.negative, cases[i].negative);
        assert_int_equal(token.number, cases[i].number);
        assert_int_equal(token.len, strlen(cases[i].text));
    }
}

static void every_error_says_where_what_and_what_instead(void **state)
{
    static const struct {
        const char *text, *msg;
    } cases[] = {
        { "", "line 1, byte 0: expected a value, found the end of the text" },
        { " ", "line 1, byte 1: expected a value, found the end of the text" },
        { "{", "line 1, byte 1: expected a key in quotes or \"}\", found the end of the text" },
        { "{]", "line 1, byte 1: expected a key in quotes or \"}\", found \"]\"" },
        { "{1:2}", "line 1, byte 1: expected a key in quotes or \"}\", found \"1\"" },
        { "{\"a\"}", "line 1, byte 4: expected \":\" after the key, found \"}\"" },
        { "{\"a\":}", "line 1, byte 5: expected a value, found \"}\"" },
        { "{\"a\":1,}", "line 1, byte 7: expected a key in quotes, found \"}\"" },
        { "{\"a\":1 \"b\":2}", "line 1, byte 7: expected \",\" or \"}\", found '\"'" },
        { "{\"a\":1]", "line 1, byte 6: expected \",\" or \"}\", found \"]\"" },
        { "[1,]", "line 1, byte 3: expected a value, found \"]\"" },
        { "[,1]", "line 1, byte 1: expected a value or \"]\", found \",\"" },
        { "[1 2]", "line 1, byte 3: expected \",\" or \"]\", found \"2\"" },
        { "[1}", "line 1, byte 2: expected \",\" or \"]\", found \"}\"" },
        { "[1", "line 1, byte 2: expected \",\" or \"]\", found the end of the text" },
        { "]", "line 1, byte 0: expected a value, found \"]\"" },
        { "1 2", "line 1, byte 2: expected nothing more, found \"2\"" },
        { "{}\n\n,", "line 3, byte 4: expected nothing more, found \",\"" },
        { "nul", "line 1, byte 0: expected a value, found \"nul\"" },
        { "True", "line 1, byte 0: expected a value, found \"True\"" },
        { "truer", "line 1, byte 0: expected a value, found \"truer\"" },
        { "[NaN]", "line 1, byte 1: expected a value or \"]\", found \"NaN\"" },
        { "-", "line 1, byte 1: expected a digit, found the end of the text" },
        { "+1", "line 1, byte 0: expected a value, found \"+1\"" },
        { ".5", "line 1, byte 0: expected a value, found \".5\"" },
        { "1.", "line 1, byte 2: expected a digit after the point, found the end of the text" },
        { "1.e5", "line 1, byte 2: expected a digit after the point, found \"e5\"" },
        { "1e", "line 1, byte 2: expected a digit in the exponent, found the end of the text" },
        { "1e+", "line 1, byte 3: expected a digit in the exponent, found the end of the text" },
        { "01", "line 1, byte 0: expected a number without leading zeros, found \"01\"" },
        { "-00", "line 1, byte 0: expected a number without leading zeros, found \"-00\"" },
        { "\"abc", "line 1, byte 4: expected the closing quote of a string, found the end of the "
                   "text" },
        { "\"a\nb\"", "line 1, byte 2: expected control characters in a string to be escaped, "
                      "found the byte 0x0a" },
        { "\"\\x\"", "line 1, byte 2: expected one of \"\\/bfnrtu after the backslash, found "
                     "\"x\"" },
        { "\"\\", "line 1, byte 2: expected one of \"\\/bfnrtu after the backslash, found the end "
                  "of the text" },
        { "\"\\u12g4\"", "line 1, byte 3: expected four hexadecimal digits after \\u, found "
                         "\"12g4\"" },
        { "\"\\u12", "line 1, byte 3: expected four hexadecimal digits after \\u, found \"12\"" },
        { "\"\\udc00\"", "line 1, byte 1: expected a character, found the second half of a "
                         "surrogate pair alone" },
        { "\"\\ud800\"", "line 1, byte 1: expected a character, found the first half of a "
                         "surrogate pair alone" },
        { "\"\\ud800\\u0041\"", "line 1, byte 1: expected a character, found the first half of a "
                                "surrogate pair alone" },
        { "\"\\ud800\\", "line 1, byte 1: expected a character, found the first half of a "
                         "surrogate pair alone" },
        { "\xef\xbb\xbf{}", "line 1, byte 0: expected a value, found the byte 0xef" },
        { "'a'", "line 1, byte 0: expected a value, found \"'\"" },
        { "// no", "line 1, byte 0: expected a value, found \"/\"" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_refused(cases[i].text, strlen(cases[i].text), cases[i].msg);
    assert_refused("\0", 1, "line 1, byte 0: expected a value, found the byte 0x00");
    assert_refused("\"a\0\"", 4,
                   "line 1, byte 2: expected control characters in a string to be escaped, found "
                   "the byte 0x00");
}

static void byte_offsets_count_from_the_start_of_the_file(void **state)
{
    rsi_json       json;
    rsi_json_token token;
    rsd_error      err;

    (void)state;
    rsi_json_begin(&json, "x", 1, 8, NULL);
    assert_int_equal(rsi_json_next(&json, &token, &err), RSD_E_FORMAT);
    assert_string_equal(err.msg, "line 1, byte 8: expected a value, found \"x\"");
}

static void bytes_that_are_no_utf8_are_refused(void **state)
{
    static const char *const bad[] = {
        "\x80",             /* in the middle of a character */
        "\xc3",             /* cut off */
        "\xc0\xaf",         /* '/' in two bytes */
        "\xe0\x80\xaf",     /* '/' in three */
        "\xed\xa0\x80",     /* half of a surrogate pair */
        "\xf4\x90\x80\x80", /* behind the last character */
        "\xf8\x88\x80\x80\x80",
        "\xff",
        "\xe2\x28\xa1",
    };
    char text[16];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char msg[96];

        snprintf(text, sizeof(text), "\"%s\"", bad[i]);
        snprintf(msg, sizeof(msg), "line 1, byte 1: expected UTF-8, found the byte 0x%02x",
                 (unsigned char)bad[i][0]);
        assert_refused(text, strlen(text), msg);
    }
    assert_tokens("\"\xc2\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf\"",
                  "s(\xc2\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf)");
}

static void containers_nest_128_deep_and_no_deeper(void **state)
{
    char text[2 * (RSI_JSON_DEPTH + 1)], got[2 * sizeof(text)];

    (void)state;
    for (size_t i = 0; i <= RSI_JSON_DEPTH; i++) {
        text[i] = '[';
        text[2 * RSI_JSON_DEPTH + 1 - i] = ']';
    }
    assert_int_equal(tokens(text + 1, 2 * RSI_JSON_DEPTH, got, sizeof(got), NULL), RSD_OK);
    assert_refused(
        text, sizeof(text),
        "line 1, byte 128: expected at most 128 nested objects and arrays, found one more");
}

static void objects_and_arrays_are_kept_apart_at_every_depth(void **state)
{
    rsi_json       json;
    rsi_json_token token;
    char           text[1024];
    size_t         len = 0;

    (void)state;
    for (int d = 0; d < 100; d++) {
        memcpy(text + len, d % 3 ? "{\"\":" : "[    ", d % 3 ? 4 : 1);
        len += d % 3 ? 4 : 1;
    }
    text[len++] = '1';
    for (int d = 99; d >= 0; d--)
        text[len++] = d % 3 ? '}' : ']';
    rsi_json_begin(&json, text, len, 0, NULL);
    do
        assert_int_equal(rsi_json_next(&json, &token, NULL), RSD_OK);
    while (token.kind != RSI_JSON_END);
}

static void a_value_can_be_passed_over(void **state)
{
    static const char text[] = "{\"a\":{\"b\":[1,{}]},\"c\":7}";
    rsi_json          json;
    rsi_json_token    token;

    (void)state;
    rsi_json_begin(&json, text, strlen(text), 0, NULL);
    assert_int_equal(rsi_json_next(&json, &token, NULL), RSD_OK);
    assert_int_equal(rsi_json_next(&json, &token, NULL), RSD_OK);
    assert_int_equal(rsi_json_next(&json, &token, NULL), RSD_OK);
    assert_int_equal(rsi_json_skip(&json, &token, NULL), RSD_OK);
    assert_int_equal(rsi_json_next(&json, &token, NULL), RSD_OK);
    assert_true(rsi_json_is(&token, "c"));
    assert_int_equal(rsi_json_skip(&json, &token, NULL), RSD_E_BUG);
    assert_int_equal(rsi_json_next(&json, &token, NULL), RSD_OK);
    assert_int_equal(rsi_json_skip(&json, &token, NULL), RSD_OK);
    assert_int_equal(rsi_json_next(&json, &token, NULL), RSD_OK);
    assert_int_equal(token.kind, RSI_JSON_OBJECT_END);
}

static void a_token_of_the_wrong_kind_is_named(void **state)
{
    static const struct {
        const char *text, *found;
    } cases[] = {
        { "{}", "an object" },     { "[]", "an array" },        { "\"it\"", "the string \"it\"" },
        { "12", "the number 12" }, { "1.5", "the number 1.5" }, { "true", "true" },
        { "false", "false" }
    };
    rsi_json       json;
    rsi_json_token token;
    rsd_error      err;
    char           msg[128];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rsi_json_begin(&json, cases[i].text, strlen(cases[i].text), 0, NULL);
        assert_int_equal(rsi_json_want(&json, RSI_JSON_NULL, "nothing", &token, &err),
                         RSD_E_FORMAT);
        snprintf(msg, sizeof(msg), "line 1, byte 0: expected nothing, found %s", cases[i].found);
        assert_string_equal(err.msg, msg);
    }
}

static void no_memory_for_an_escaped_string_is_told(void **state)
{
    rsi_arena      mem = { 0 };
    rsi_json       json;
    rsi_json_token token;
    rsd_error      err;

    (void)state;
    rsi_json_begin(&json, "\"\\n\"", 4, 0, &mem);
    rsi_mem_fail_at(1, 0);
    assert_int_equal(rsi_json_next(&json, &token, &err), RSD_E_NOMEM);
    rsi_mem_fail_at(0, 0);
    rsi_arena_release(&mem);
}

static void long_names_are_cut_between_characters(void **state)
{
    char name[200];

    (void)state;
    memset(name, 'x', sizeof(name));
    assert_int_equal(rsi_json_shown(name, 7), 7);
    assert_int_equal(rsi_json_shown(name, sizeof(name)), 120);
    memcpy(name + 118, "\xe2\x82\xac", 3);
    assert_int_equal(rsi_json_shown(name, sizeof(name)), 118);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_value_is_told),
        cmocka_unit_test(plain_strings_are_not_copied),
        cmocka_unit_test(escapes_become_utf8_with_a_nul_behind),
        cmocka_unit_test(a_nul_can_be_escaped_into_a_string),
        cmocka_unit_test(strings_of_every_length_end_where_they_end),
        cmocka_unit_test(integers_are_exact_and_others_told_apart),
        cmocka_unit_test(every_error_says_where_what_and_what_instead),
        cmocka_unit_test(byte_offsets_count_from_the_start_of_the_file),
        cmocka_unit_test(bytes_that_are_no_utf8_are_refused),
        cmocka_unit_test(containers_nest_128_deep_and_no_deeper),
        cmocka_unit_test(objects_and_arrays_are_kept_apart_at_every_depth),
        cmocka_unit_test(a_value_can_be_passed_over),
        cmocka_unit_test(a_token_of_the_wrong_kind_is_named),
        cmocka_unit_test(no_memory_for_an_escaped_string_is_told),
        cmocka_unit_test(long_names_are_cut_between_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
