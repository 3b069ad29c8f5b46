/* SPDX-License-Identifier: Apache-2.0 */
/* test_st_read.c - safetensors headers, good and bad ones. The bad ones that the reference library
 * accepts have a table of their own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/st_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sample {
    const char *json;
    uint64_t    data_bytes;
    rsd_err     rc;
    const char *msg;
} sample;

/* Parses a copy of the text, which the header then points into. */
static rsd_err parse(const char *json, size_t len, uint64_t data_bytes, char **copy,
                     rsi_st_header *out, rsd_error *err)
{
    *copy = malloc(len + 1);
    assert_non_null(*copy);
    memcpy(*copy, json, len);
    (*copy)[len] = 'x'; /* no NUL that a careless reader could stop at */
    return rsi_st_parse_cut(*copy, len, 8 + len + data_bytes, false, out, err);
}

static void check_samples(const sample *samples, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const sample *s = &samples[i];
        rsi_st_header header = { 0 };
        rsd_error     err = { 0 };
        char         *copy;
        rsd_err       rc = parse(s->json, strlen(s->json), s->data_bytes, &copy, &header, &err);

        if (rc != s->rc)
            fail_msg("%s: got %s \"%s\"", s->json, rsd_err_name(rc), err.msg);
        if (rc)
            assert_string_equal(err.msg, s->msg);
        rsi_st_release(&header);
        free(copy);
        assert_int_equal(rsi_mem_stats_get().bytes, 0);
    }
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define A            "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"
#define SHAPED(size) "{\"a\":{\"dtype\":\"F32\",\"shape\":" size ",\"data_offsets\":[0,8]}}"
#define PLACED(at)   "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" at "}}"
#define TYPED(type)  "{\"a\":{\"dtype\":" type ",\"shape\":[2],\"data_offsets\":[0,8]}}"
#define TWO(at, then)                                                                              \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" at "},"                            \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" then "}}"
#define SIZE_WANTED   "expected a size as a whole number from 0 to 2^64-1, found the "
#define OFFSET_WANTED "expected an offset as a whole number from 0 to 2^64-1, found the "

/* ---- what is in a header ------------------------------------------------------------------------
 */

static void a_header_tells_its_tensors_and_metadata(void **state)
{
    static const char json[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"n\\u006fte\":\"a\\u0000b\"},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
        "\"\\u00e9\\n\":{\"data_offsets\":[0,8],\"shape\":[],\"dtype\":\"I64\"}}   ";
    const rsi_st_tensor *b, *e;
    rsi_st_header        header;
    char                *copy;

    (void)state;
    assert_int_equal(parse(json, strlen(json), 20, &copy, &header, NULL), RSD_OK);
    assert_int_equal(header.ntensors, 2);
    assert_int_equal(header.data_start, 8 + strlen(json));
    assert_int_equal(header.data_bytes, 20);
    b = &header.tensor[0];
    assert_string_equal(b->name.text, "b");
    assert_int_equal(b->dtype, RSD_BF16);
    assert_int_equal(b->ndim, 2);
    assert_int_equal(rsi_st_shape(&header, b)[0], 2);
    assert_int_equal(rsi_st_shape(&header, b)[1], 3);
    assert_int_equal(b->begin, 8);
    assert_int_equal(b->end, 20);
    e = rsi_st_find(&header, "\xc3\xa9\n", 3);
    assert_ptr_equal(e, &header.tensor[1]);
    assert_int_equal(e->ndim, 0);
    assert_null(rsi_st_find(&header, "c", 1));
    assert_ptr_equal(rsi_st_nth(&header, 0), e); /* its data come first */
    assert_ptr_equal(rsi_st_nth(&header, 1), b);
    assert_string_equal(rsi_st_meta_find(&header, "format")->value, "pt");
    assert_int_equal(rsi_st_meta_find(&header, "note")->value_len, 3);
    assert_memory_equal(rsi_st_meta_find(&header, "note")->value, "a\0b", 4);
    assert_null(rsi_st_meta_find(&header, "none"));
    rsi_st_release(&header);
    free(copy);
}

static void every_dtype_of_the_format_is_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < RSI_ST_DTYPES; i++) {
        char          json[128];
        size_t        bytes = rsd_dtype_size(rsi_st_dtypes[i]);
        int           values = rsi_st_dtypes[i] == RSD_F4_E2M1FN_X2 ? 6 : 3;
        rsi_st_header header;
        char         *copy;

        snprintf(json, sizeof(json),
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%zu]}}",
                 rsd_dtype_safetensors_name(rsi_st_dtypes[i]), values, 3 * bytes);
        assert_int_equal(parse(json, strlen(json), 3 * bytes, &copy, &header, NULL), RSD_OK);
        assert_int_equal(header.tensor[0].dtype, rsi_st_dtypes[i]);
        assert_int_equal(header.dim[0], 3);
        rsi_st_release(&header);
        free(copy);
    }
}

static void headers_of_the_format_are_accepted(void **state)
{
    static const sample good[] = {
        { "{}", 0, RSD_OK, NULL },
        { A, 8, RSD_OK, NULL },
        { A "     ", 8, RSD_OK, NULL },
        { "{ \"a\" :\n\t{\"dtype\":\"F32\" , \"shape\": [ 2 ],\"data_offsets\":[ 0,8]}\r\n}", 8,
          RSD_OK, NULL },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, RSD_OK, NULL },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]}}", 0, RSD_OK, NULL },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8,
          RSD_OK, NULL },
        { "{\"__metadata__\":{}}", 0, RSD_OK, NULL },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"__metadata__\":{\"a\":"
          "\"\"}}",
          8, RSD_OK, NULL },
        { TWO("[0,8]", "[8,16]"), 16, RSD_OK, NULL },
        { TWO("[8,16]", "[0,8]"), 16, RSD_OK, NULL },
        { "{\"\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, RSD_OK, NULL },
        { "{\"../a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, RSD_OK, NULL },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[3,2],\"data_offsets\":[0,3]}}", 3, RSD_OK, NULL },
        /* empty tensors lie anywhere between others */
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"z\":{\"dtype\":"
          "\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
          8, RSD_OK, NULL },
        { "{\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"a\":{\"dtype\":"
          "\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
          8, RSD_OK, NULL },
        { "{\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]},\"a\":{\"dtype\":"
          "\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
          8, RSD_OK, NULL },
    };

    (void)state;
    check_samples(good, COUNT(good));
}

/* ---- what is refused ----------------------------------------------------------------------------
 */

static void headers_that_are_no_such_json_are_refused(void **state)
{
    static const sample bad[] = {
        { "", 0, RSD_E_FORMAT, "byte 8: the header does not start with \"{\"" },
        { "[]", 0, RSD_E_FORMAT, "byte 8: the header does not start with \"{\"" },
        { "null", 0, RSD_E_FORMAT, "byte 8: the header does not start with \"{\"" },
        { "{", 0, RSD_E_FORMAT,
          "line 1, byte 9: expected a key in quotes or \"}\", found the end of the text" },
        { "{\"a\":null}", 0, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 13: expected an object with dtype, shape and data_offsets, "
          "found null" },
        { "{\"a\":[\"F32\",[2],[0,8]]}", 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 13: expected an object with dtype, shape and data_offsets, "
          "found an array" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},}", 8, RSD_E_FORMAT,
          "line 1, byte 62: expected a key in quotes, found \"}\"" },
        { A "}", 8, RSD_E_FORMAT, "byte 62: 0x7d after the JSON, only white space is allowed" },
        { "{\"\xff\":{}}", 0, RSD_E_FORMAT,
          "line 1, byte 10: expected UTF-8, found the byte 0xff" },
        { "{\"\\ud800\":{}}", 0, RSD_E_FORMAT,
          "line 1, byte 10: expected a character, found the first half of a surrogate pair alone" },
        { "{\"__metadata__\":[]}", 0, RSD_E_FORMAT,
          "line 1, byte 24: expected an object of strings as __metadata__, found an array" },
        { "{\"__metadata__\":{\"a\":1}}", 0, RSD_E_FORMAT,
          "line 1, byte 29: expected an object of strings as __metadata__, found the number 1" },
        { "{\"__metadata__\":{},\"__metadata__\":{}}", 0, RSD_E_FORMAT,
          "byte 27: \"__metadata__\" is a duplicate" },
    };

    (void)state;
    check_samples(bad, COUNT(bad));
}

static void fields_that_are_wrong_are_refused(void **state)
{
    static const sample bad[] = {
        { "{\"a\":{}}", 8, RSD_E_FORMAT, "tensor \"a\": byte 14: the field \"dtype\" is missing" },
        { "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, RSD_E_FORMAT,
          "tensor \"a\": byte 48: the field \"shape\" is missing" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, RSD_E_FORMAT,
          "tensor \"a\": byte 39: the field \"data_offsets\" is missing" },
        { "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 8, RSD_E_FORMAT,
          "tensor \"a\": byte 28: the field \"dtype\" is a duplicate" },
        { TYPED("\"F33\""), 8, RSD_E_FORMAT, "tensor \"a\": byte 22: unknown dtype \"F33\"" },
        { TYPED("\"float32\""), 8, RSD_E_FORMAT,
          "tensor \"a\": byte 22: unknown dtype \"float32\"" },
        { TYPED("\"f32\""), 8, RSD_E_FORMAT, "tensor \"a\": byte 22: unknown dtype \"f32\"" },
        { TYPED("\"C128\""), 8, RSD_E_FORMAT, "tensor \"a\": byte 22: unknown dtype \"C128\"" },
        { TYPED("\"\""), 8, RSD_E_FORMAT, "tensor \"a\": byte 22: unknown dtype \"\"" },
        { TYPED("18"), 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 22: expected a dtype as a string, found the number 18" },
        { TYPED("\"F6_E2M4\""), 8, RSD_E_FORMAT,
          "tensor \"a\": byte 22: unknown dtype \"F6_E2M4\"" },
        { SHAPED("2"), 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 36: expected an array of sizes, found the number 2" },
        { SHAPED("[2.0]"), 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 37: " SIZE_WANTED "number 2.0" },
        { SHAPED("[2e0]"), 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 37: " SIZE_WANTED "number 2e0" },
        { SHAPED("[-2]"), 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 37: " SIZE_WANTED "number -2" },
        { SHAPED("[-0]"), 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 37: " SIZE_WANTED "number -0" },
        { SHAPED("[\"2\"]"), 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 37: " SIZE_WANTED "string \"2\"" },
        { SHAPED("[18446744073709551616]"), 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 37: " SIZE_WANTED "number 18446744073709551616" },
        { SHAPED("[9223372036854775808]"), 8, RSD_E_FORMAT,
          "tensor \"a\": byte 36: a size in the shape is more than 2^63-1" },
        { PLACED("8"), 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 55: expected an array of two offsets, found the number 8" },
        { PLACED("[]"), 8, RSD_E_FORMAT,
          "tensor \"a\": byte 55: data_offsets has fewer than two numbers" },
        { PLACED("[8]"), 8, RSD_E_FORMAT,
          "tensor \"a\": byte 55: data_offsets has fewer than two numbers" },
        { PLACED("[0,8,8]"), 8, RSD_E_FORMAT,
          "tensor \"a\": byte 55: data_offsets has more than two numbers" },
        { PLACED("[0,8.0]"), 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 58: " OFFSET_WANTED "number 8.0" },
        { PLACED("[-8,0]"), 8, RSD_E_FORMAT,
          "tensor \"a\": line 1, byte 56: " OFFSET_WANTED "number -8" },
    };

    (void)state;
    check_samples(bad, COUNT(bad));
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    static const sample bad[] = {
        { SHAPED("[3]"), 8, RSD_E_FORMAT,
          "tensor \"a\": F32 [3] takes 12 bytes, but data_offsets [0, 8] hold 8" },
        { SHAPED("[]"), 8, RSD_E_FORMAT,
          "tensor \"a\": F32 [] takes 4 bytes, but data_offsets [0, 8] hold 8" },
        { SHAPED("[4194305,4194305,211106198978564]"), 8, RSD_E_FORMAT,
          "tensor \"a\": F32 [4194305, 4194305, 211106198978564]: the size does not fit into 64 "
          "bits" },
        { PLACED("[8,0]"), 8, RSD_E_FORMAT,
          "tensor \"a\": data_offsets [8, 0] end before they begin" },
        { PLACED("[8,16]"), 8, RSD_E_FORMAT,
          "tensor \"a\": data_offsets [8, 16] end after the 8 bytes of data that the file has" },
        { PLACED("[18446744073709551607,18446744073709551615]"), 8, RSD_E_FORMAT,
          "tensor \"a\": data_offsets [18446744073709551607, 18446744073709551615] end after the "
          "8 bytes of data that the file has" },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, RSD_E_FORMAT,
          "tensor \"a\": F4 [3]: 3 values of 4 bits are not a whole number of bytes" },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, RSD_E_FORMAT,
          "tensor \"a\": F4 []: 1 values of 4 bits are not a whole number of bytes" },
        { "{\"a\":{\"dtype\":\"F6_E3M2\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, RSD_E_FORMAT,
          "tensor \"a\": F6_E3M2 [3]: 3 values of 6 bits are not a whole number of bytes" },
        { "{\"a\":{\"dtype\":\"F6_E3M2\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, RSD_E_FORMAT,
          "tensor \"a\": F6_E3M2 [4] takes 3 bytes, but data_offsets [0, 4] hold 4" },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[2,4],\"data_offsets\":[0,8]}}", 8, RSD_E_FORMAT,
          "tensor \"a\": F4 [2, 4] takes 4 bytes, but data_offsets [0, 8] hold 8" },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", 8,
          RSD_E_FORMAT,
          "tensor \"a\": F4 [4294967296, 4294967296]: the size does not fit into 64 bits" },
    };

    (void)state;
    check_samples(bad, COUNT(bad));
}

static void tensors_that_can_only_be_listed_come_last(void **state)
{
    static const char json[] =
        "{\"six\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]},"
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]},"
        "\"deep\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[4,5]}}";
    static const char *const name[] = { "a", "six", "deep" };
    rsi_st_header            header = { 0 };
    char                    *copy, text[64];

    (void)state;
    assert_int_equal(parse(json, strlen(json), 5, &copy, &header, NULL), RSD_OK);
    assert_int_equal(header.ntensors, 1);
    assert_int_equal(header.nlisted, 2);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(header.tensor[i].name.text, name[i]);
    rsi_st_describe(&header, &header.tensor[1], text, sizeof(text));
    assert_string_equal(text, "F6_E2M3 [4]");
    rsi_st_release(&header);
    free(copy);
}

static void data_that_are_not_tiled_are_refused(void **state)
{
    static const sample bad[] = {
        { "{}", 1, RSD_E_FORMAT, "the tensors end at byte 10 of the file, which has 1 bytes more" },
        { A, 9, RSD_E_FORMAT, "the tensors end at byte 70 of the file, which has 1 bytes more" },
        { PLACED("[8,16]"), 16, RSD_E_FORMAT,
          "byte 9: tensor \"a\" begins at 8 of the data, which leaves a hole after 0" },
        { TWO("[0,8]", "[16,24]"), 24, RSD_E_FORMAT,
          "byte 62: tensor \"b\" begins at 16 of the data, which leaves a hole after 8" },
        { TWO("[16,24]", "[0,8]"), 24, RSD_E_FORMAT,
          "byte 9: tensor \"a\" begins at 16 of the data, which leaves a hole after 8" },
        { TWO("[0,8]", "[4,12]"), 12, RSD_E_FORMAT,
          "byte 62: tensor \"b\" begins at 4 of the data and overlaps \"a\", which ends at 8" },
        { TWO("[0,8]", "[0,8]"), 8, RSD_E_FORMAT,
          "byte 62: tensor \"b\" begins at 0 of the data and overlaps \"a\", which ends at 8" },
        { "{\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},\"a\":{\"dtype\":"
          "\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
          8, RSD_E_FORMAT,
          "byte 9: tensor \"z\" begins at 4 of the data and overlaps \"a\", which ends at 8" },
    };

    (void)state;
    check_samples(bad, COUNT(bad));
}

/* The reference library takes these; the format's text forbids them, or no two readers would agree
 * on them. */
static void what_the_reference_library_lets_pass_is_refused(void **state)
{
    static const sample bad[] = {
        { "{\"__metadata__\":{\"a\":\"1\",\"a\":\"1\"}}", 0, RSD_E_FORMAT,
          "byte 33: the metadata key \"a\" is a duplicate" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"\\u0061\":{\"dtype\":"
          "\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
          8, RSD_E_FORMAT, "byte 62: tensor \"a\" is a duplicate" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
          RSD_E_FORMAT,
          "tensor \"a\": byte 61: unknown field \"x\", only dtype, shape and data_offsets are "
          "allowed" },
        { "{\"a\\u0000\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
          RSD_E_FORMAT, "byte 9: a name contains a NUL" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,0],\"data_offsets\":[0,0]}}", 0,
          RSD_E_FORMAT,
          "tensor \"a\": F32 [4611686018427387904, 0]: the size does not fit into 64 bits" },
    };

    (void)state;
    check_samples(bad, COUNT(bad));
}

static void nesting_costs_no_stack(void **state)
{
    size_t        len = 1000000;
    char         *deep = malloc(len), *copy;
    rsi_st_header header;

    (void)state;
    assert_non_null(deep);
    memset(deep, '[', len);
    memcpy(deep, "{\"a\":{\"shape\":", 14);
    assert_int_equal(parse(deep, len, 0, &copy, &header, NULL), RSD_E_FORMAT);
    free(copy);
    free(deep);
}

/* ---- the length ---------------------------------------------------------------------------------
 */

static void the_length_is_checked_before_anything_is_read(void **state)
{
    static const struct {
        unsigned char prefix[8];
        uint64_t      file_bytes;
        const char   *msg;
    } bad[] = {
        { { 0 }, 0, "a file of 0 bytes is not a safetensors file" },
        { { 2 }, 7, "a file of 7 bytes is not a safetensors file" },
        { { 3 }, 10, "byte 0: the header claims 3 bytes, the file has 2 after the length" },
        { { 1, 0xe1, 0xf5, 5 },
          1u << 30,
          "byte 0: the header claims 100000001 bytes, the maximum is 100000000" },
        { { 255, 255, 255, 255, 255, 255, 255, 255 },
          10,
          "byte 0: the header claims 18446744073709551615 bytes, the maximum is 100000000" },
    };
    static const unsigned char most[8] = { 0, 0xe1, 0xf5, 5 };
    rsd_error                  err;
    size_t                     len = 0;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(rsi_st_length(bad[i].prefix, bad[i].file_bytes, &len, &err), RSD_E_FORMAT);
        assert_string_equal(err.msg, bad[i].msg);
        assert_int_equal(len, 0);
    }
    assert_int_equal(rsi_st_length(most, 100000008, &len, NULL), RSD_OK);
    assert_int_equal(len, 100000000);
}

static void a_header_longer_than_its_file_is_the_callers_mistake(void **state)
{
    char          json[] = "{}";
    rsi_st_header header;
    rsd_error     err;

    (void)state;
    assert_int_equal(rsi_st_parse_cut(json, 2, 9, false, &header, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "a header of 2 bytes does not fit into the file");
}

/* ---- many tensors and little memory
 * --------------------------------------------------------------- */

/* n tensors of 2 bytes, the data of the first last if `reverse`. */
static char *many(size_t n, bool reverse, size_t *len)
{
    char  *json = malloc(n * 80 + 3);
    size_t at = 0;

    assert_non_null(json);
    json[at++] = '{';
    for (size_t i = 0; i < n; i++) {
        size_t off = 2 * (reverse ? n - 1 - i : i);

        at += (size_t)snprintf(
            json + at, 80, "%s\"t%zu\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[%zu,%zu]}",
            i ? "," : "", i, off, off + 2);
    }
    json[at++] = '}';
    *len = at;
    return json;
}

static void many_tensors_are_found_by_name_and_by_place(void **state)
{
    size_t n = 5000, len;

    (void)state;
    for (int reverse = 0; reverse < 2; reverse++) {
        char         *json = many(n, reverse, &len);
        rsi_st_header header;

        assert_int_equal(rsi_st_parse_cut(json, len, 8 + len + 2 * n, false, &header, NULL),
                         RSD_OK);
        assert_int_equal(header.ntensors, n);
        for (size_t i = 0; i < n; i++) {
            char name[16];

            snprintf(name, sizeof(name), "t%zu", i);
            assert_ptr_equal(rsi_st_find(&header, name, strlen(name)), &header.tensor[i]);
            assert_int_equal(rsi_st_nth(&header, i)->begin, 2 * i);
        }
        assert_int_equal(header.order != NULL, reverse);
        rsi_st_release(&header);
        free(json);
    }
}

static void memory_stays_below_16_bytes_for_each_byte_of_header(void **state)
{
    char  *json;
    size_t len, n = 200000, at = 0;

    (void)state;
    json = malloc(n * 32);
    assert_non_null(json);
    at += (size_t)snprintf(json, 32, "{\"__metadata__\":{");
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(json + at, 32, "%s\"%zx\":\"\"", i ? "," : "", i);
    at += (size_t)snprintf(json + at, 32, "}}");
    for (int k = 0; k < 2; k++) {
        rsi_st_header header;
        uint64_t      data = 0;

        if (k == 1) {
            free(json);
            json = many(n, true, &at);
            data = 2 * n;
        }
        len = at;
        rsi_mem_fail_at(0, 0);
        assert_int_equal(rsi_st_parse_cut(json, len, 8 + len + data, false, &header, NULL), RSD_OK);
        assert_true(rsi_mem_stats_get().peak <= (int64_t)(16 * len + (1 << 20)));
        rsi_st_release(&header);
    }
    free(json);
}

static void every_failed_allocation_is_told_and_leaks_nothing(void **state)
{
    static const char json[] = "{\"__metadata__\":{\"k\\n\":\"v\"},"
                               "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
                               "\"a\\t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";

    (void)state;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        rsd_err rc = RSD_E_NOMEM;

        for (uint64_t n = 1; rc; n++) {
            rsi_st_header header = { 0 };
            rsd_error     err = { 0 };
            char         *copy;

            rsi_mem_fail_at(n, for_ever);
            rc = parse(json, strlen(json), 16, &copy, &header, &err);
            rsi_mem_fail_at(0, 0);
            if (rc)
                assert_int_equal(err.code, RSD_E_NOMEM);
            assert_true(rc || n > 6);
            rsi_st_release(&header);
            free(copy);
            assert_int_equal(rsi_mem_stats_get().bytes, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_tells_its_tensors_and_metadata),
        cmocka_unit_test(every_dtype_of_the_format_is_known),
        cmocka_unit_test(headers_of_the_format_are_accepted),
        cmocka_unit_test(headers_that_are_no_such_json_are_refused),
        cmocka_unit_test(fields_that_are_wrong_are_refused),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(tensors_that_can_only_be_listed_come_last),
        cmocka_unit_test(data_that_are_not_tiled_are_refused),
        cmocka_unit_test(what_the_reference_library_lets_pass_is_refused),
        cmocka_unit_test(nesting_costs_no_stack),
        cmocka_unit_test(the_length_is_checked_before_anything_is_read),
        cmocka_unit_test(a_header_longer_than_its_file_is_the_callers_mistake),
        cmocka_unit_test(many_tensors_are_found_by_name_and_by_place),
        cmocka_unit_test(memory_stays_below_16_bytes_for_each_byte_of_header),
        cmocka_unit_test(every_failed_allocation_is_told_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
