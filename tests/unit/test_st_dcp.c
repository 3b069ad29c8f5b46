/* SPDX-License-Identifier: Apache-2.0 */
/* test_st_dcp.c - where the parts in a file of torch's distributed safetensors begin. Joining is
 * test_st_join.c's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/st_dcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A header with the tensors "a" (F32 [2, 3]) and "s" (F32 []), and the metadata in JSON. */
static char *open_header(const char *metadata, rsi_st_header *out)
{
    char   *json = malloc(1024);
    int     len;
    rsd_err rc;

    assert_non_null(json);
    len = snprintf(
        json, 1024,
        "{\"__metadata__\":%s,\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]}}",
        metadata);
    rc = rsi_st_parse_cut(json, (size_t)len, (uint64_t)len + 8 + 28, false, out, NULL);
    assert_int_equal(rc, RSD_OK);
    return json;
}

static void assert_refused(const char *metadata, rsd_err code, const char *msg)
{
    rsi_st_header header;
    rsi_st_dcp    dcp = { 0 };
    rsd_error     err = { 0 };
    char         *json = open_header(metadata, &header);

    if (!rsi_st_dcp_read(&header, &dcp, &err))
        fail_msg("accepted: %s", metadata);
    assert_int_equal(err.code, code);
    assert_string_equal(err.msg, msg);
    assert_null(dcp.off);
    rsi_st_release(&header);
    free(json);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void offsets_come_from_the_metadata(void **state)
{
    rsi_st_header header;
    rsi_st_dcp    dcp;
    char         *json = open_header(
                "{\"DCP_SHARDING_INFO\":\"{\\\"s\\\": {\\\"saved_offsets\\\": []}, "
                        "\\\"\\\\u0061\\\": {\\\"saved_offsets\\\": [4, 0]}}\",\"DCP_VERSION\":\"1.0\"}",
                &header);

    (void)state;
    assert_int_equal(rsi_st_dcp_read(&header, &dcp, NULL), RSD_OK);
    assert_true(dcp.sharded);
    assert_int_equal(dcp.off[header.tensor[0].shape], 4);
    assert_int_equal(dcp.off[header.tensor[0].shape + 1], 0);
    rsi_st_dcp_release(&dcp);
    rsi_st_release(&header);
    free(json);
}

static void plain_files_begin_at_0(void **state)
{
    rsi_st_header header;
    rsi_st_dcp    dcp;
    char         *json = open_header("{\"format\":\"pt\",\"DCP_VERSION\":\"9\"}", &header);

    (void)state;
    assert_int_equal(rsi_st_dcp_read(&header, &dcp, NULL), RSD_OK);
    assert_false(dcp.sharded);
    assert_int_equal(dcp.off[0], 0);
    assert_int_equal(dcp.off[1], 0);
    rsi_st_dcp_release(&dcp);
    rsi_st_release(&header);
    free(json);
}

#define INFO(text) "{\"DCP_SHARDING_INFO\":\"" text "\"}"
#define S          "\\\"s\\\":{\\\"saved_offsets\\\":[]}"
#define A(value)   "{\\\"a\\\":" value "," S "}"
#define AT(list)   A("{\\\"saved_offsets\\\":" list "}")

static void sharding_info_that_does_not_fit_the_tensors_is_refused(void **state)
{
    (void)state;
    assert_refused(
        INFO(""), RSD_E_FORMAT,
        "DCP_SHARDING_INFO: line 1, byte 0: expected a value, found the end of the text");
    assert_refused(INFO("[]"), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: line 1, byte 0: expected an object, found an array");
    assert_refused(INFO("{" S "}"), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: tensor \"a\" has no saved_offsets");
    assert_refused(
        INFO("{" S "," S "}"), RSD_E_FORMAT,
        "DCP_SHARDING_INFO: line 1, byte 26: expected each tensor once, found the key \"s\"");
    assert_refused(INFO("{\\\"x\\\":{}}"), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: line 1, byte 1: expected a tensor that the file has, found "
                   "the key \"x\"");
    assert_refused(INFO(A("[]")), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: tensor \"a\": line 1, byte 5: expected an object with "
                   "saved_offsets, found an array");
    assert_refused(INFO(A("{}")), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: tensor \"a\": line 1, byte 6: expected the key "
                   "\"saved_offsets\", found the end of the object");
    assert_refused(INFO(A("{\\\"x\\\":1}")), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: tensor \"a\": line 1, byte 6: expected the key "
                   "\"saved_offsets\", found the key \"x\"");
    assert_refused(INFO(AT("1")), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: tensor \"a\": line 1, byte 22: expected an array of "
                   "offsets, found the number 1");
    assert_refused(INFO(AT("[1]")), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: tensor \"a\": line 1, byte 24: expected one offset for each "
                   "dimension, found the end of the array");
    assert_refused(INFO(AT("[1,2,3]")), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: tensor \"a\": line 1, byte 27: expected one offset for each "
                   "dimension, found the number 3");
    assert_refused(INFO(AT("[1,-2]")), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: tensor \"a\": line 1, byte 25: expected an offset as a "
                   "whole number, found the number -2");
    assert_refused(INFO(AT("[1,2.0]")), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: tensor \"a\": line 1, byte 25: expected an offset as a "
                   "whole number, found the number 2.0");
    assert_refused(INFO(AT("[9223372036854775806,0]")), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: tensor \"a\": line 1, byte 23: expected an offset that fits "
                   "into 63 bits, found the number 9223372036854775806");
    assert_refused(INFO(A("{\\\"saved_offsets\\\":[0,0],\\\"x\\\":1}")), RSD_E_FORMAT,
                   "DCP_SHARDING_INFO: tensor \"a\": line 1, byte 28: expected nothing but "
                   "saved_offsets, found the key \"x\"");
}

static void an_unknown_version_is_refused(void **state)
{
    (void)state;
    assert_refused("{\"DCP_SHARDING_INFO\":\"{}\",\"DCP_VERSION\":\"2.0\"}", RSD_E_UNSUPPORTED,
                   "DCP_VERSION is \"2.0\", only 1.x is supported");
}

static void what_is_written_is_what_torch_writes(void **state)
{
    static const char *const    name[] = { "w", "\xc3\xa9", "s" };
    static const int            ndim[] = { 2, 1, 0 };
    static const int64_t        w[] = { 4, 0 }, e[] = { 7 };
    static const int64_t *const off[] = { w, e, NULL };
    static const char           want[] =
        "{\"w\": {\"saved_offsets\": [4, 0]}, \"\\u00e9\": {\"saved_offsets\": [7]}, "
        "\"s\": {\"saved_offsets\": []}}";
    rsi_json_out out = { 0 };

    (void)state;
    assert_int_equal(rsi_st_dcp_write(3, name, ndim, off, &out, NULL), RSD_OK);
    assert_int_equal(out.len, strlen(want));
    assert_memory_equal(out.buf, want, out.len);
    rsi_json_out_release(&out);
}

static void file_names_have_five_digits_and_are_read_back(void **state)
{
    static const char *const bad[] = {
        "",
        "model-00001-of-00002.safetensors",
        "shard-0001-model-00001-of-00002.safetensors",
        "shard-00001-model-00001-of-00002.safetensors.tmp",
        "shard-00001-model-00001-of-99999999999999999999.safetensors",
        "shard-00001-model-00001.safetensors",
    };
    char    name[RSI_ST_FILE_NAME];
    int64_t shard = 0, file = 0, files = 0;

    (void)state;
    rsi_st_shard_name(3, 12, 123456, name, sizeof(name));
    assert_string_equal(name, "shard-00003-model-00012-of-123456.safetensors");
    assert_true(rsi_st_shard_parse(name, &shard, &file, &files));
    assert_int_equal(shard, 3);
    assert_int_equal(file, 12);
    assert_int_equal(files, 123456);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(rsi_st_shard_parse(bad[i], &shard, &file, &files));
}

static void every_failed_allocation_is_told_and_leaks_nothing(void **state)
{
    rsi_st_header header;
    char         *json = open_header(INFO(AT("[4,0]")), &header);
    int64_t       before = rsi_mem_stats_get().bytes;
    rsd_err       rc = RSD_E_NOMEM;

    (void)state;
    for (uint64_t n = 1; rc; n++) {
        rsi_st_dcp dcp = { 0 };
        rsd_error  err = { 0 };

        rsi_mem_fail_at(n, 0);
        rc = rsi_st_dcp_read(&header, &dcp, &err);
        rsi_mem_fail_at(0, 0);
        if (rc)
            assert_int_equal(err.code, RSD_E_NOMEM);
        assert_true(rc || n > 2);
        rsi_st_dcp_release(&dcp);
        assert_int_equal(rsi_mem_stats_get().bytes, before);
    }
    rsi_st_release(&header);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_come_from_the_metadata),
        cmocka_unit_test(plain_files_begin_at_0),
        cmocka_unit_test(sharding_info_that_does_not_fit_the_tensors_is_refused),
        cmocka_unit_test(an_unknown_version_is_refused),
        cmocka_unit_test(what_is_written_is_what_torch_writes),
        cmocka_unit_test(file_names_have_five_digits_and_are_read_back),
        cmocka_unit_test(every_failed_allocation_is_told_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
