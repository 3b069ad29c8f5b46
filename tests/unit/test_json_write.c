/* SPDX-License-Identifier: Apache-2.0 */
/* test_json_write.c - the bytes that the JSON writer makes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/json_write.h"

#include <string.h>

static void put_sample(rsi_json_out *out)
{
    rsi_json_open(out, '{');
    rsi_json_key(out, "a", 1);
    rsi_json_open(out, '[');
    rsi_json_u64(out, UINT64_MAX);
    rsi_json_i64(out, INT64_MIN);
    rsi_json_close(out, ']');
    rsi_json_key(out, "b", 1);
    rsi_json_open(out, '{');
    rsi_json_close(out, '}');
    rsi_json_key(out, "c", 1);
    rsi_json_string(out, "x", 1);
    rsi_json_close(out, '}');
}

static void assert_text(rsi_json_out *out, const char *want)
{
    assert_int_equal(rsi_json_out_end(out, NULL), RSD_OK);
    assert_int_equal(out->len, strlen(want));
    assert_memory_equal(out->buf, want, out->len);
    rsi_json_out_release(out);
}

static void compact_has_no_spaces(void **state)
{
    rsi_json_out out = { .style = RSI_JSON_COMPACT };

    (void)state;
    put_sample(&out);
    assert_text(&out, "{\"a\":[18446744073709551615,-9223372036854775808],\"b\":{},\"c\":\"x\"}");
}

static void spaced_is_what_python_writes(void **state)
{
    rsi_json_out out = { .style = RSI_JSON_SPACED };

    (void)state;
    put_sample(&out);
    assert_text(&out, "{\"a\": [18446744073709551615, -9223372036854775808], \"b\": {}, "
                      "\"c\": \"x\"}");
}

static void indented_is_what_python_writes(void **state)
{
    rsi_json_out out = { .style = RSI_JSON_INDENTED };

    (void)state;
    put_sample(&out);
    assert_text(&out, "{\n  \"a\": [\n    18446744073709551615,\n    -9223372036854775808\n"
                      "  ],\n  \"b\": {},\n  \"c\": \"x\"\n}");
}

static void only_what_must_be_is_escaped(void **state)
{
    static const char text[] = "\"\\/\b\f\n\r\t\x01\x1f\x7f \xc3\xa9 \xf0\x9f\x98\x80";
    rsi_json_out      out = { 0 };

    (void)state;
    rsi_json_string(&out, text, strlen(text));
    assert_text(&out, "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f \xc3\xa9 \xf0\x9f\x98\x80\"");
    rsi_json_string(&out, "\0", 1);
    assert_text(&out, ",\"\\u0000\"");
}

static void ascii_escapes_everything_else_too(void **state)
{
    static const char text[] = "~\x7f \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80";
    rsi_json_out      out = { .ascii = true };

    (void)state;
    rsi_json_string(&out, text, strlen(text));
    assert_text(&out, "\"~\\u007f \\u00e9 \\u20ac \\ud83d\\ude00\"");
}

static void text_that_is_no_utf8_is_refused_and_the_first_failure_stays(void **state)
{
    rsi_json_out out = { 0 };
    rsd_error    err;

    (void)state;
    rsi_json_string(&out, "ab\xff", 3);
    rsi_json_string(&out, "\xfe", 1);
    assert_int_equal(rsi_json_out_end(&out, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "\"ab\" is not UTF-8 at its byte 2");
    rsi_json_out_release(&out);
}

typedef struct gathered {
    char   text[1 << 20];
    size_t len, calls;
    size_t fail_at;
} gathered;

static rsd_err gather(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    gathered *g = arg;

    if (++g->calls == g->fail_at) {
        memset(err, 0, sizeof(*err));
        return RSD_E_IO;
    }
    assert_true(g->len + len <= sizeof(g->text));
    memcpy(g->text + g->len, bytes, len);
    g->len += len;
    return RSD_OK;
}

static void a_callback_gets_the_same_bytes_in_parts(void **state)
{
    static gathered got;
    rsi_json_out    whole = { 0 }, parts = { .put = gather, .arg = &got };

    (void)state;
    got = (gathered){ .len = 0 };
    rsi_json_open(&whole, '[');
    rsi_json_open(&parts, '[');
    for (uint64_t i = 0; i < 50000; i++) {
        rsi_json_u64(&whole, i);
        rsi_json_u64(&parts, i);
    }
    rsi_json_close(&whole, ']');
    rsi_json_close(&parts, ']');
    assert_int_equal(rsi_json_out_end(&whole, NULL), RSD_OK);
    assert_int_equal(rsi_json_out_end(&parts, NULL), RSD_OK);
    assert_true(got.calls > 2);
    assert_int_equal(got.len, whole.len);
    assert_memory_equal(got.text, whole.buf, got.len);
    rsi_json_out_release(&whole);
    rsi_json_out_release(&parts);
}

static void a_failure_of_the_callback_is_kept(void **state)
{
    static gathered got;
    rsi_json_out    out = { .put = gather, .arg = &got };

    (void)state;
    got = (gathered){ .fail_at = 1 };
    rsi_json_open(&out, '[');
    for (uint64_t i = 0; i < 50000; i++)
        rsi_json_u64(&out, i);
    rsi_json_close(&out, ']');
    assert_int_equal(rsi_json_out_end(&out, NULL), RSD_E_IO);
    assert_int_equal(got.calls, 1);
    rsi_json_out_release(&out);
}

static void every_failed_allocation_is_told(void **state)
{
    rsd_err rc = RSD_E_NOMEM;

    (void)state;
    for (uint64_t n = 1; rc; n++) {
        rsi_json_out out = { 0 };
        rsd_error    err = { 0 };

        rsi_mem_fail_at(n, 0);
        for (int i = 0; i < 100; i++)
            put_sample(&out);
        rc = rsi_json_out_end(&out, &err);
        rsi_mem_fail_at(0, 0);
        assert_int_equal(err.code, rc);
        assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
        rsi_json_out_release(&out);
        assert_true(rc || n > 3);
    }
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compact_has_no_spaces),
        cmocka_unit_test(spaced_is_what_python_writes),
        cmocka_unit_test(indented_is_what_python_writes),
        cmocka_unit_test(only_what_must_be_is_escaped),
        cmocka_unit_test(ascii_escapes_everything_else_too),
        cmocka_unit_test(text_that_is_no_utf8_is_refused_and_the_first_failure_stays),
        cmocka_unit_test(a_callback_gets_the_same_bytes_in_parts),
        cmocka_unit_test(a_failure_of_the_callback_is_kept),
        cmocka_unit_test(every_failed_allocation_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
