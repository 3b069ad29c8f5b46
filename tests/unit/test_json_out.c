/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <math.h>
#include <stdlib.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static char  *text;
static size_t len;

static json_out begin(void)
{
    return (json_out){ .out = open_memstream(&text, &len) };
}

static void check(json_out *j, const char *wanted)
{
    fclose(j->out);
    assert_string_equal(text, wanted);
    free(text);
}

static void two_levels_stand_on_lines_and_the_rest_does_not(void **state)
{
    const int64_t shape[] = { 2, 3 };
    json_out      j = begin();

    (void)state;
    json_open_object(&j, NULL);
    json_int(&j, "n", -1);
    json_open_array(&j, "list");
    for (int i = 0; i < 2; i++) {
        json_open_object(&j, NULL);
        json_ints(&j, "shape", i ? 2 : 0, shape);
        json_bool(&j, "yes", i);
        json_close(&j);
    }
    json_close(&j);
    json_open_array(&j, "none");
    json_close(&j);
    json_close(&j);
    check(&j, "{\n  \"n\": -1,\n  \"list\": [\n    {\"shape\": [], \"yes\": false},\n"
              "    {\"shape\": [2, 3], \"yes\": true}\n  ],\n  \"none\": []\n}\n");
}

static void text_is_escaped_and_what_is_no_utf8_replaced(void **state)
{
    json_out j = begin();

    (void)state;
    json_text(&j, NULL, "a\"\\\n\x7f");
    json_text(&j, NULL, "\xc3\xa4|\xff|\xc3|\xed\xa0\x80|\xf0\x9f\x98\x80|\xc0\x80");
    check(&j, "\"a\\\"\\\\\\u000a\\u007f\""
              "\"\xc3\xa4|\\ufffd|\\ufffd|\\ufffd\\ufffd\\ufffd|\xf0\x9f\x98\x80|\\ufffd\\ufffd\"");
}

static void text_for_a_page_has_no_markup(void **state)
{
    json_out j = begin();

    (void)state;
    j.html = true;
    json_text(&j, NULL, "</script>&");
    check(&j, "\"\\u003c/script\\u003e\\u0026\"");
}

static void numbers_are_exact_or_null(void **state)
{
    json_out j = begin();

    (void)state;
    json_open_array(&j, NULL);
    json_uint(&j, NULL, UINT64_MAX);
    json_real(&j, NULL, 0.5);
    json_real(&j, NULL, NAN);
    json_real(&j, NULL, INFINITY);
    json_null(&j, NULL);
    json_raw(&j, NULL, "{\"x\": 1}");
    json_close(&j);
    check(&j, "[\n  18446744073709551615,\n  0.5,\n  null,\n  null,\n  null,\n  {\"x\": 1}\n]\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_levels_stand_on_lines_and_the_rest_does_not),
        cmocka_unit_test(text_is_escaped_and_what_is_no_utf8_replaced),
        cmocka_unit_test(text_for_a_page_has_no_markup),
        cmocka_unit_test(numbers_are_exact_or_null),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
