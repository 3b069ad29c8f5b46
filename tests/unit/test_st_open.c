/* SPDX-License-Identifier: Apache-2.0 */
/* test_st_open.c - safetensors in one file, with an index, and in parts: files and index must tell
 * the same, and parts must tile their tensors. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"

#include <stdlib.h>
#include <string.h>

/* A file of this JSON and `bytes` of data that count up. */
static void put_st(rsd_store *store, const char *name, const char *json, size_t bytes)
{
    size_t         len = strlen(json);
    unsigned char *file = calloc(8 + len + bytes, 1);

    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)((uint64_t)len >> (8 * i));
    memcpy(file + 8, json, len);
    for (size_t i = 0; i < bytes; i++)
        file[8 + len + i] = (unsigned char)i;
    fix_put(store, name, file, 8 + len + bytes);
    free(file);
}

#define U8(name, size, from, to)                                                                   \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" size "],\"data_offsets\":[" from "," to "]}"
#define AT(name, off)                                                                              \
    "\"__metadata__\":{\"DCP_VERSION\":\"1.0\",\"DCP_SHARDING_INFO\":\"{\\\"" name                 \
    "\\\":{\\\"saved_offsets\\\":[" off "]}}\"},"
#define INDEX(map) "{\"metadata\":{\"total_size\":8},\"weight_map\":{" map "}}"

static void refused(rsd_store *store, rsd_err code, const char *text)
{
    fix_refused(store, "ck", code, text);
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void assert_bytes(rsd_ckpt *ckpt, const char *name, int64_t n, const char *want)
{
    unsigned char out[16];
    rsd_view      view = { .box = fix_box1(0, n), .data = out };
    size_t        t;

    assert_int_equal(rsd_ckpt_find(ckpt, name, &t, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_read(ckpt, t, &view, NULL, NULL), RSD_OK);
    assert_memory_equal(out, want, (size_t)n);
}

static void one_file_is_a_checkpoint(void **state)
{
    rsd_store      *store = fix_store();
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_chunk       chunk = { .size = sizeof(chunk) };
    rsd_ckpt       *ckpt;

    (void)state;
    put_st(store, "x", "{" U8("a", "3", "0", "3") "," U8("b", "5", "3", "8") "}", 8);
    ckpt = fix_open(store, "x");
    assert_int_equal(rsd_ckpt_format(ckpt), RSD_FORMAT_SAFETENSORS);
    assert_int_equal(rsd_ckpt_tensors(ckpt), 2);
    assert_int_equal(rsd_ckpt_objects(ckpt), 0);
    assert_int_equal(rsd_ckpt_tensor(ckpt, 1, &info, NULL), RSD_OK);
    assert_string_equal(info.name, "b");
    assert_true(info.dtype == RSD_U8 && info.shape[0] == 5 && info.bytes == 5 && info.chunks == 1);
    assert_int_equal(rsd_ckpt_chunk(ckpt, 1, 0, &chunk, NULL), RSD_OK);
    assert_string_equal(chunk.file, "x");
    assert_int_equal(chunk.length, 5);
    assert_bytes(ckpt, "a", 3, "\0\1\2");
    assert_bytes(ckpt, "b", 5, "\3\4\5\6\7");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static rsd_store *put_two(const char *index)
{
    rsd_store *store = fix_store();

    put_st(store, "ck/m1.safetensors", "{" U8("a", "3", "0", "3") "}", 3);
    put_st(store, "ck/m2.safetensors", "{" U8("b", "2", "0", "2") "," U8("c", "3", "2", "5") "}",
           5);
    if (index)
        fix_put_text(store, "ck/model.safetensors.index.json", index);
    return store;
}

static void an_index_leads_to_the_files(void **state)
{
    rsd_store *store = put_two(INDEX("\"a\":\"m1.safetensors\",\"b\":\"m2.safetensors\","
                                     "\"c\":\"m2.safetensors\""));
    rsd_ckpt  *ckpt;

    (void)state;
    put_st(store, "ck/stray.safetensors", "{" U8("s", "1", "0", "1") "}", 1); /* not listed */
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_tensors(ckpt), 3);
    assert_bytes(ckpt, "c", 3, "\2\3\4");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void an_index_stands_for_its_folder(void **state)
{
    static const char *const path[] = { "model.safetensors.index.json",
                                        "ck/model.safetensors.index.json" };
    rsd_store               *store = put_two(INDEX("\"a\":\"m1.safetensors\""));
    rsd_error                err = { 0 };

    (void)state;
    put_st(store, "m1.safetensors", "{" U8("a", "3", "0", "3") "}", 3);
    fix_put_text(store, path[0], INDEX("\"a\":\"m1.safetensors\""));
    for (int i = 0; i < 2; i++) {
        rsd_ckpt *ckpt = NULL;

        assert_int_equal(rsd_ckpt_open(store, path[i], &ckpt, &err), RSD_OK);
        assert_int_equal(rsd_ckpt_tensors(ckpt), 1);
        assert_bytes(ckpt, "a", 3, "\0\1\2");
        rsd_ckpt_close(ckpt);
    }
    fix_refused(store, "ck/other.safetensors.index.json", RSD_E_NOTFOUND,
                "the folder has no file \"other.safetensors.index.json\"");
    rsd_store_close(store);
}

static void an_index_and_its_files_must_agree(void **state)
{
    (void)state;
    refused(put_two(INDEX("\"a\":\"m2.safetensors\",\"b\":\"m2.safetensors\","
                          "\"c\":\"m1.safetensors\"")),
            RSD_E_FORMAT, "the index says \"");
    refused(put_two(INDEX("\"a\":\"m1.safetensors\",\"b\":\"m2.safetensors\","
                          "\"c\":\"m2.safetensors\",\"d\":\"m1.safetensors\"")),
            RSD_E_FORMAT,
            "the index says that tensor \"d\" is in file \"m1.safetensors\", but it is not");
    refused(put_two(INDEX("\"a\":\"m1.safetensors\",\"b\":\"m3.safetensors\"")), RSD_E_NOTFOUND,
            "m3.safetensors");
}

static void files_may_have_more_than_the_index_says(void **state)
{
    rsd_store *store = put_two(INDEX("\"a\":\"m1.safetensors\",\"b\":\"m2.safetensors\""));
    rsd_ckpt  *ckpt = fix_open(store, "ck");

    (void)state;
    assert_int_equal(rsd_ckpt_tensors(ckpt), 3);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void an_index_that_leads_elsewhere_is_refused(void **state)
{
    (void)state;
    refused(put_two(INDEX("\"a\":\"../m1.safetensors\"")), RSD_E_FORMAT,
            "file \"model.safetensors.index.json\"");
    refused(put_two("{}"), RSD_E_FORMAT, "file \"model.safetensors.index.json\"");
}

static void without_an_index_all_files_are_taken(void **state)
{
    rsd_store *store = put_two(NULL);
    rsd_ckpt  *ckpt = fix_open(store, "ck");

    (void)state;
    assert_int_equal(rsd_ckpt_tensors(ckpt), 3);
    assert_bytes(ckpt, "a", 3, "\0\1\2");
    assert_bytes(ckpt, "b", 2, "\0\1");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_tensor_in_two_files_is_refused(void **state)
{
    rsd_store *store = put_two(NULL);

    (void)state;
    put_st(store, "ck/m3.safetensors", "{" U8("a", "3", "0", "3") "}", 3);
    refused(store, RSD_E_FORMAT, "\"a\"");
}

/* ---- parts ---- */

static rsd_store *put_parts(const char *first, size_t first_bytes, const char *second,
                            size_t second_bytes)
{
    rsd_store *store = fix_store();

    put_st(store, "ck/shard-00001-model-00001-of-00001.safetensors", first, first_bytes);
    put_st(store, "ck/shard-00002-model-00001-of-00001.safetensors", second, second_bytes);
    return store;
}

static void parts_are_put_together(void **state)
{
    rsd_store      *store = put_parts("{" AT("a", "0") U8("a", "3", "0", "3") "}", 3,
                                      "{" AT("a", "3") U8("a", "2", "0", "2") "}", 2);
    rsd_ckpt       *ckpt = fix_open(store, "ck");
    rsd_tensor_info info = { .size = sizeof(info) };

    (void)state;
    assert_int_equal(rsd_ckpt_tensors(ckpt), 1);
    assert_int_equal(rsd_ckpt_tensor(ckpt, 0, &info, NULL), RSD_OK);
    assert_true(info.shape[0] == 5 && info.chunks == 2);
    assert_bytes(ckpt, "a", 5, "\0\1\2\0\1");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void parts_that_leave_a_hole_are_refused(void **state)
{
    (void)state;
    refused(put_parts("{" AT("a", "0") U8("a", "3", "0", "3") "}", 3,
                      "{" AT("a", "4") U8("a", "2", "0", "2") "}", 2),
            RSD_E_FORMAT, "tensor \"a\": chunks: ");
}

static void parts_that_overlap_are_refused(void **state)
{
    (void)state;
    refused(put_parts("{" AT("a", "0") U8("a", "3", "0", "3") "}", 3,
                      "{" AT("a", "2") U8("a", "2", "0", "2") "}", 2),
            RSD_E_FORMAT, "tensor \"a\": the chunks [0:3] and [2:4] overlap");
}

static void a_header_that_is_cut_short_is_refused_by_file(void **state)
{
    rsd_store *store = put_two(NULL);

    (void)state;
    fix_put(store, "ck/m3.safetensors", "\x02\0\0", 3);
    refused(store, RSD_E_FORMAT, "file \"m3.safetensors\": it has 3 bytes, but a header needs 8");
    store = put_two(NULL);
    fix_put(store, "ck/m3.safetensors", "\xff\0\0\0\0\0\0\0{}", 10);
    refused(store, RSD_E_FORMAT, "file \"m3.safetensors\": ");
}

/* A numbered set, and what lies beside it. */
static rsd_store *put_numbered(void)
{
    rsd_store *store = fix_store();

    put_st(store, "ck/model-00001-of-00002.safetensors", "{" U8("a", "3", "0", "3") "}", 3);
    put_st(store, "ck/model-00002-of-00002.safetensors", "{" U8("b", "3", "0", "3") "}", 3);
    put_st(store, "ck/adapter_model.safetensors", "{" U8("c", "3", "0", "3") "}", 3);
    put_st(store, "ck/consolidated.safetensors", "{" U8("c", "3", "0", "3") "}", 3);
    return store;
}

static rsd_err open_once(void *arg, rsd_error *err)
{
    rsd_ckpt *ckpt;
    rsd_err   rc = rsd_ckpt_open(arg, "ck", &ckpt, err);

    if (!rc)
        rsd_ckpt_close(ckpt);
    return rc;
}

static void opening_without_memory_fails_cleanly(void **state)
{
    rsd_store *stores[] = { put_two(INDEX("\"a\":\"m1.safetensors\",\"b\":\"m2.safetensors\","
                                          "\"c\":\"m2.safetensors\"")),
                            put_two(NULL), put_numbered(),
                            put_parts("{" AT("a", "0") U8("a", "3", "0", "3") "}", 3,
                                      "{" AT("a", "3") U8("a", "2", "0", "2") "}", 2) };

    (void)state;
    for (size_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++) {
        fix_every_allocation(open_once, NULL, stores[i]);
        rsd_store_close(stores[i]);
    }
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file_is_a_checkpoint),
        cmocka_unit_test(an_index_leads_to_the_files),
        cmocka_unit_test(an_index_stands_for_its_folder),
        cmocka_unit_test(an_index_and_its_files_must_agree),
        cmocka_unit_test(files_may_have_more_than_the_index_says),
        cmocka_unit_test(an_index_that_leads_elsewhere_is_refused),
        cmocka_unit_test(without_an_index_all_files_are_taken),
        cmocka_unit_test(a_tensor_in_two_files_is_refused),
        cmocka_unit_test(parts_are_put_together),
        cmocka_unit_test(parts_that_leave_a_hole_are_refused),
        cmocka_unit_test(parts_that_overlap_are_refused),
        cmocka_unit_test(a_header_that_is_cut_short_is_refused_by_file),
        cmocka_unit_test(opening_without_memory_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
