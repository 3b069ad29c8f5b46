/* SPDX-License-Identifier: Apache-2.0 */
/* test_st_index.c - the index of a checkpoint of several safetensors files. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/st_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAP(file) "{\"weight_map\":{\"a\":\"" file "\"}}"

static rsd_err parse(const char *text, char **copy, rsi_st_index *out, rsd_error *err)
{
    size_t len = strlen(text);

    *copy = malloc(len + 1);
    assert_non_null(*copy);
    memcpy(*copy, text, len + 1);
    (*copy)[len] = 'x';
    return rsi_st_index_read(*copy, len, out, err);
}

static void assert_refused(const char *text, const char *msg)
{
    rsi_st_index index;
    rsd_error    err = { 0 };
    char        *copy;

    if (!parse(text, &copy, &index, &err))
        fail_msg("accepted: %s", text);
    assert_int_equal(err.code, RSD_E_FORMAT);
    assert_string_equal(err.msg, msg);
    free(copy);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void an_index_tells_the_file_of_each_tensor(void **state)
{
    static const char text[] =
        "{\n  \"metadata\": {\"note\": [1, {\"a\": null}], \"total_size\": 24},\n"
        "  \"other\": {\"weight_map\": 1},\n"
        "  \"weight_map\": {\"b\\u0031\": \"two\", \"a\": \"\\u006fne\", \"c\": \"two\"}\n}\n";
    rsi_st_index index;
    char        *copy;

    (void)state;
    assert_int_equal(parse(text, &copy, &index, NULL), RSD_OK);
    assert_int_equal(index.nweights, 3);
    assert_int_equal(index.nfiles, 2);
    assert_string_equal(index.file[0], "two");
    assert_string_equal(rsi_st_index_file(&index, "b1", 2), "two");
    assert_string_equal(rsi_st_index_file(&index, "a", 1), "one");
    assert_string_equal(rsi_st_index_file(&index, "c", 1), "two");
    assert_null(rsi_st_index_file(&index, "d", 1));
    rsi_st_index_release(&index);
    free(copy);
}

static void a_total_that_is_no_integer_is_passed_over(void **state)
{
    rsi_st_index index;
    char        *copy;

    (void)state;
    assert_int_equal(
        parse("{\"metadata\":{\"total_size\":1.5e10},\"weight_map\":{}}", &copy, &index, NULL),
        RSD_OK);
    assert_int_equal(index.nweights, 0);
    rsi_st_index_release(&index);
    free(copy);
}

static void files_outside_the_directory_are_refused(void **state)
{
    static const char *const bad[] = { "", ".", "..", "/etc/passwd", "../a", "a/../b", "a/" };
    char                     text[64], msg[128];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), MAP("%s"), bad[i]);
        snprintf(msg, sizeof(msg),
                 "tensor \"a\": byte 19: \"%s\" is not the name of a file in the folder", bad[i]);
        assert_refused(text, msg);
    }
    assert_refused(MAP("\\u002e\\u002e\\/a"),
                   "tensor \"a\": byte 19: \"../a\" is not the name of a file in the folder");
    assert_refused(MAP("a\\u0000b"),
                   "tensor \"a\": byte 19: \"a\" is not the name of a file in the folder");
    assert_true(rsi_one_component("...", 3));
    assert_true(rsi_one_component(".a", 2));
}

static void an_index_of_another_shape_is_refused(void **state)
{
    (void)state;
    assert_refused("[]", "line 1, byte 0: expected an object with weight_map, found an array");
    assert_refused("{}", "the index has no \"weight_map\"");
    assert_refused("{} x", "line 1, byte 3: expected nothing more, found \"x\"");
    assert_refused("{\"metadata\":null}",
                   "line 1, byte 12: expected an object as metadata, found null");
    assert_refused(
        "{\"weight_map\":[]}",
        "line 1, byte 14: expected an object of file names as weight_map, found an array");
    assert_refused(
        "{\"weight_map\":{\"a\":1}}",
        "tensor \"a\": line 1, byte 19: expected a file name as a string, found the number 1");
    assert_refused("{\"weight_map\":{},\"weight_map\":{}}",
                   "byte 17: \"weight_map\" is a duplicate");
    assert_refused("{\"weight_map\":{\"a\":\"x\",\"\\u0061\":\"x\"}}",
                   "byte 23: tensor \"a\" is a duplicate");
    assert_refused("{\"weight_map\":{\"a\\u0000\":\"x\"}}", "byte 15: a name contains a NUL");
}

static void what_is_written_is_sorted_and_indented(void **state)
{
    static const char *const name[] = { "b", "\xc3\xa9", "a" };
    static const char *const file[] = { "one", "two" };
    static const uint32_t    of[] = { 1, 0, 0 };
    static const char        want[] =
        "{\n  \"metadata\": {\n    \"total_size\": 12\n  },\n  \"weight_map\": {\n"
        "    \"a\": \"one\",\n    \"b\": \"two\",\n    \"\\u00e9\": \"one\"\n  }\n}\n";
    rsi_json_out out = { 0 };
    rsi_st_index index;
    char        *copy;

    (void)state;
    assert_int_equal(rsi_st_index_write(3, name, of, file, 12, &out, NULL), RSD_OK);
    assert_int_equal(out.len, strlen(want));
    assert_memory_equal(out.buf, want, out.len);
    rsi_json_out_release(&out);
    assert_int_equal(parse(want, &copy, &index, NULL), RSD_OK);
    assert_string_equal(rsi_st_index_file(&index, "\xc3\xa9", 2), "one");
    rsi_st_index_release(&index);
    free(copy);
}

static void a_name_that_is_there_twice_is_not_written(void **state)
{
    static const char *const name[] = { "b", "a", "b" };
    static const char *const file[] = { "one" };
    static const uint32_t    of[] = { 0, 0, 0 };
    rsi_json_out             out = { 0 };
    rsd_error                err;

    (void)state;
    assert_int_equal(rsi_st_index_write(3, name, of, file, 12, &out, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "tensor \"b\" is a duplicate");
    assert_int_equal(out.len, 0);
}

static void memory_stays_below_16_bytes_for_each_byte_of_index(void **state)
{
    size_t       n = 100000, len;
    char        *text = malloc(n * 32);
    rsi_st_index index;

    (void)state;
    assert_non_null(text);
    len = (size_t)snprintf(text, 32, "{\"weight_map\":{");
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, 32, "%s\"%zx\":\"%zx\"", i ? "," : "", i, i);
    len += (size_t)snprintf(text + len, 32, "}}");
    rsi_mem_fail_at(0, 0);
    assert_int_equal(rsi_st_index_read(text, len, &index, NULL), RSD_OK);
    assert_int_equal(index.nfiles, n);
    assert_true(rsi_mem_stats_get().peak <= (int64_t)(16 * len + (1 << 20)));
    rsi_st_index_release(&index);
    free(text);
}

static void every_failed_allocation_is_told_and_leaks_nothing(void **state)
{
    static const char *const name[] = { "b", "a" };
    static const char *const file[] = { "one" };
    static const uint32_t    of[] = { 0, 0 };
    rsd_err                  rc = RSD_E_NOMEM;

    (void)state;
    for (uint64_t n = 1; rc; n++) {
        rsi_st_index index = { 0 };
        rsi_json_out out = { 0 };
        rsd_error    err = { 0 };
        char        *copy;

        rsi_mem_fail_at(n, 0);
        rc = parse("{\"weight_map\":{\"a\\n\":\"x\",\"b\":\"\\u0061\"}}", &copy, &index, &err);
        if (!rc)
            rc = rsi_st_index_write(2, name, of, file, 12, &out, &err);
        rsi_mem_fail_at(0, 0);
        if (rc)
            assert_int_equal(err.code, RSD_E_NOMEM);
        assert_true(rc || n > 6);
        rsi_st_index_release(&index);
        rsi_json_out_release(&out);
        free(copy);
        assert_int_equal(rsi_mem_stats_get().bytes, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_tells_the_file_of_each_tensor),
        cmocka_unit_test(a_total_that_is_no_integer_is_passed_over),
        cmocka_unit_test(files_outside_the_directory_are_refused),
        cmocka_unit_test(an_index_of_another_shape_is_refused),
        cmocka_unit_test(what_is_written_is_sorted_and_indented),
        cmocka_unit_test(a_name_that_is_there_twice_is_not_written),
        cmocka_unit_test(memory_stays_below_16_bytes_for_each_byte_of_index),
        cmocka_unit_test(every_failed_allocation_is_told_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
