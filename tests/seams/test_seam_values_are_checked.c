/* SPDX-License-Identifier: Apache-2.0 */
/* test_seam_values_are_checked.c - what can be handed over to be saved can be opened again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"

#include <reshard/reshard.h>

#include <stdlib.h>
#include <string.h>

static rsd_values *owner;

static int begin(void **state)
{
    (void)state;
    return (int)rsd_values_create(&owner, NULL);
}

static int end(void **state)
{
    (void)state;
    rsd_values_free(owner);
    return 0;
}

static rsd_err make(rsd_value_type type, const char *bytes, size_t len, const rsd_value **out)
{
    return rsd_value_create_bytes(owner, type, bytes, len, out, NULL);
}

#define ASSERT_REFUSED(type, literal)                                                              \
    assert_int_equal(make(type, literal, sizeof(literal) - 1, &v), RSD_E_INVALID)

static void text_that_is_not_utf8_is_refused_at_the_call(void **state)
{
    const rsd_value *v = NULL;

    (void)state;
    ASSERT_REFUSED(RSD_VALUE_STR, "caf\xe9");
    ASSERT_REFUSED(RSD_VALUE_STR, "\xc0\x80");
    ASSERT_REFUSED(RSD_VALUE_STR, "cut \xe2\x82");
    ASSERT_REFUSED(RSD_VALUE_OPAQUE, "module.\xff");
    assert_null(v);
}

static void big_integers_are_decimal_digits(void **state)
{
    const rsd_value *v = NULL;
    char             many[800];

    (void)state;
    ASSERT_REFUSED(RSD_VALUE_BIGINT, "12x");
    ASSERT_REFUSED(RSD_VALUE_BIGINT, "");
    ASSERT_REFUSED(RSD_VALUE_BIGINT, "-");
    ASSERT_REFUSED(RSD_VALUE_BIGINT, "--1");
    ASSERT_REFUSED(RSD_VALUE_BIGINT, "1 ");
    ASSERT_REFUSED(RSD_VALUE_BIGINT, "0x10");
    memset(many, '9', sizeof(many));
    assert_int_equal(make(RSD_VALUE_BIGINT, many, sizeof(many), &v), RSD_E_INVALID);
}

static void devices_are_names_with_a_number(void **state)
{
    const rsd_value *v = NULL;

    (void)state;
    ASSERT_REFUSED(RSD_VALUE_DEVICE, "");
    ASSERT_REFUSED(RSD_VALUE_DEVICE, "cuda:x");
    ASSERT_REFUSED(RSD_VALUE_DEVICE, "cuda:");
    ASSERT_REFUSED(RSD_VALUE_DEVICE, "cuda:1000");
    ASSERT_REFUSED(RSD_VALUE_DEVICE, "a b");
}

static void keys_of_dicts_and_items_of_sets_can_not_change(void **state)
{
    const rsd_value *list, *tuple, *v = NULL, *pair[2];

    (void)state;
    assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_LIST, 0, NULL, &list, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_TUPLE, 1, &list, &tuple, NULL), RSD_OK);
    pair[0] = tuple;
    pair[1] = list;
    assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_DICT, 1, pair, &v, NULL),
                     RSD_E_INVALID);
    assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_SET, 1, &list, &v, NULL),
                     RSD_E_INVALID);
}

static void tensors_stay_inside_their_storage(void **state)
{
    rsd_value_tensor tensor = { .dtype = RSD_F32, .ndim = 1, .shape = { 4 }, .stride = { 1 } };
    const rsd_value *v = NULL;
    float            bytes[4] = { 0 };

    (void)state;
    tensor.bytes = bytes;
    tensor.storage_bytes = 15;
    assert_int_equal(rsd_value_create_tensor(owner, &tensor, &v, NULL), RSD_E_INVALID);
    tensor.storage_bytes = 16;
    tensor.conj = true;
    assert_int_equal(rsd_value_create_tensor(owner, &tensor, &v, NULL), RSD_E_INVALID);
    tensor.conj = false;
    tensor.shape[0] = -1;
    assert_int_equal(rsd_value_create_tensor(owner, &tensor, &v, NULL), RSD_E_INVALID);
    tensor.shape[0] = 4;
    assert_int_equal(rsd_value_create_tensor(owner, &tensor, &v, NULL), RSD_OK);
}

static void names_that_are_not_utf8_are_refused_at_the_call(void **state)
{
    const int64_t      one = 1;
    int32_t            data[1] = { 0 };
    const rsd_view     whole = fix_whole(1, &one, data);
    const rsd_stateful object = { .size = sizeof(object), .produce = NULL };
    const rsd_value   *v;
    rsd_state         *made;

    (void)state;
    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 1, &v, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(made, "w\xff", NULL, RSD_I32, 1, &one, 1, &whole, NULL),
                     RSD_E_INVALID);
    assert_int_equal(rsd_state_value(made, "v\xe9", v, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_state_push(made, "k\x80", NULL), RSD_E_INVALID);
    assert_int_equal(rsd_state_want(made, "k\x80", owner, &v, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_state_stateful(made, "k\x80", &object, NULL), RSD_E_INVALID);
    rsd_state_free(made);
}

/* A torch.save file is opened by names: "v.0" must be one thing. */
static void keys_that_would_be_one_name_are_refused_at_the_call(void **state)
{
    static const struct {
        const char *key, *inner;
        size_t      len;
    } cases[] = { { "0", NULL, 1 }, { "a\0b", NULL, 3 }, { "a.b", "a", 3 } };
    const rsd_value *zero, *v, *item[4];
    rsd_state       *made;

    (void)state;
    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 0, &zero, NULL), RSD_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(make(RSD_VALUE_STR, cases[i].key, cases[i].len, &item[0]), RSD_OK);
        item[1] = item[2] = item[3] = zero;
        if (cases[i].inner) {
            const rsd_value *pair[2] = { NULL, zero };

            assert_int_equal(make(RSD_VALUE_STR, "b", 1, &pair[0]), RSD_OK);
            assert_int_equal(make(RSD_VALUE_STR, cases[i].inner, 1, &item[2]), RSD_OK);
            assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_DICT, 1, pair, &item[3], NULL),
                             RSD_OK);
        }
        assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_DICT, 2, item, &v, NULL), RSD_OK);
        assert_int_equal(rsd_state_value(made, "v", v, NULL), RSD_E_INVALID);
    }
    rsd_state_free(made);
}

/* ---- what is not refused comes back ---- */

static rsd_err save(rsd_store *store, rsd_state *made, const char *path)
{
    rsd_save_opts opts = { .size = sizeof(opts), .store = store, .overwrite = true };

    return rsd_save(path, NULL, made, &opts, NULL);
}

static void assert_comes_back(const rsd_value *v, const char *path)
{
    rsd_store       *store = fix_store();
    const rsd_value *back = NULL;
    const char      *name;
    rsd_values      *mine;
    rsd_state       *made;
    rsd_ckpt        *ckpt;
    rsd_error        err = { 0 };
    char             was[256], is[256];
    size_t           len, back_len;

    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    assert_int_equal(rsd_values_create(&mine, NULL), RSD_OK);
    assert_int_equal(rsd_state_value(made, "v", v, NULL), RSD_OK);
    assert_int_equal(save(store, made, path), RSD_OK);
    if (rsd_ckpt_open(store, path, &ckpt, &err))
        fail_msg("%s", err.msg);
    if (rsd_ckpt_object(ckpt, 0, &name, mine, &back, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(rsd_value_text(v, was, sizeof(was)), rsd_value_text(back, is, sizeof(is)));
    assert_string_equal(was, is);
    assert_int_equal(rsd_value_count(v), rsd_value_count(back));
    rsd_value_bytes(v, &len);
    rsd_value_bytes(back, &back_len);
    assert_int_equal(len, back_len);
    rsd_ckpt_close(ckpt);
    rsd_state_free(made);
    rsd_values_free(mine);
    rsd_store_close(store);
}

static void every_kind_of_value_comes_back(void **state)
{
    static const struct {
        rsd_value_type type;
        const char    *text;
    } cases[] = { { RSD_VALUE_STR, "" },
                  { RSD_VALUE_STR, "\xed\xa0\x80 half of a pair" },
                  { RSD_VALUE_STR, "\xf0\x9f\x94\xa5 \n '\"" },
                  { RSD_VALUE_BYTES, "\xff\xfe" },
                  { RSD_VALUE_BIGINT, "-9223372036854775809" },
                  { RSD_VALUE_BIGINT, "340282366920938463463374607431768211456" },
                  { RSD_VALUE_DEVICE, "cuda:7" },
                  { RSD_VALUE_DEVICE, "meta" } };
    const rsd_value *v;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(make(cases[i].type, cases[i].text, strlen(cases[i].text), &v), RSD_OK);
        assert_comes_back(v, "a.pt");
        assert_comes_back(v, "folder");
    }
}

static void text_and_bytes_of_18_MB_come_back(void **state)
{
    const size_t     len = 18000000;
    char            *many = malloc(len);
    const rsd_value *v;

    (void)state;
    assert_non_null(many);
    memset(many, 'x', len);
    assert_int_equal(make(RSD_VALUE_STR, many, len, &v), RSD_OK);
    assert_comes_back(v, "a.pt");
    assert_int_equal(make(RSD_VALUE_BYTES, many, len, &v), RSD_OK);
    assert_comes_back(v, "folder");
    free(many);
}

static void containers_of_more_than_a_million_items_come_back(void **state)
{
    static const rsd_value_type type[] = { RSD_VALUE_LIST, RSD_VALUE_TUPLE, RSD_VALUE_SET };
    const size_t                n = (1 << 20) + 2;
    const rsd_value           **item = malloc(n * sizeof(item[0])), *v;

    (void)state;
    assert_non_null(item);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(rsd_value_create_int(owner, (int64_t)(i % 9), &item[i], NULL), RSD_OK);
    for (size_t k = 0; k < sizeof(type) / sizeof(type[0]); k++) {
        assert_int_equal(rsd_value_create_list(owner, type[k], n, item, &v, NULL), RSD_OK);
        assert_comes_back(v, "folder");
    }
    free(item);
}

/* In a torch.save file the containers of the state are around those of the value. */
static void nesting_is_saved_as_deep_as_it_can_be_read(void **state)
{
    rsd_store       *store = fix_store();
    const rsd_value *v;
    rsd_state       *made;
    rsd_ckpt        *ckpt;
    rsd_err          rc;

    (void)state;
    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 1, &v, NULL), RSD_OK);
    for (int i = 0; i < RSD_VALUE_MAX_DEPTH; i++)
        assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_LIST, 1, &v, &v, NULL), RSD_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(rsd_state_push(made, "k", NULL), RSD_OK);
    rc = rsd_state_value(made, "v", v, NULL);
    if (!rc) {
        assert_int_equal(save(store, made, "a.pt"), RSD_OK);
        assert_int_equal(rsd_ckpt_open(store, "a.pt", &ckpt, NULL), RSD_OK);
    }
    assert_int_equal(rc, RSD_E_UNSUPPORTED);
    rsd_state_free(made);
    rsd_store_close(store);
}

/* Refused or readable, nothing between. */
static void every_name_is_refused_or_can_be_read(void **state)
{
    static const char *const names[] = { "",
                                         ".",
                                         "a.",
                                         ".a",
                                         "a/b",
                                         "..",
                                         "__metadata__",
                                         "a\nb",
                                         "\xed\xa0\x80",
                                         "\"",
                                         "data.pkl",
                                         "\xe2\x80\xae",
                                         "\\",
                                         "0",
                                         "__0_0.distcp" };
    static const char *const paths[] = { "a.pt", "a.safetensors", "folder" };
    const int64_t            one = 1;
    int32_t                  data[1] = { 0 };
    const rsd_view           whole = fix_whole(1, &one, data);

    (void)state;
    for (size_t i = 0; i < 3 * sizeof(names) / sizeof(names[0]); i++) {
        rsd_store *store = fix_store();
        rsd_state *made;
        rsd_ckpt  *ckpt = NULL;
        rsd_error  err = { 0 };
        rsd_err    rc;

        assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
        rc = rsd_state_tensor(made, names[i / 3], NULL, RSD_I32, 1, &one, 1, &whole, NULL);
        if (!rc)
            rc = save(store, made, paths[i % 3]);
        if (!rc && rsd_ckpt_open(store, paths[i % 3], &ckpt, &err))
            fail_msg("\"%s\" in %s: %s", names[i / 3], paths[i % 3], err.msg);
        if (!rc)
            assert_int_equal(rsd_ckpt_tensors(ckpt), 1);
        rsd_ckpt_close(ckpt);
        rsd_state_free(made);
        rsd_store_close(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_that_is_not_utf8_is_refused_at_the_call),
        cmocka_unit_test(big_integers_are_decimal_digits),
        cmocka_unit_test(devices_are_names_with_a_number),
        cmocka_unit_test(keys_of_dicts_and_items_of_sets_can_not_change),
        cmocka_unit_test(tensors_stay_inside_their_storage),
        cmocka_unit_test(names_that_are_not_utf8_are_refused_at_the_call),
        cmocka_unit_test(keys_that_would_be_one_name_are_refused_at_the_call),
        cmocka_unit_test(every_kind_of_value_comes_back),
        cmocka_unit_test(text_and_bytes_of_18_MB_come_back),
        cmocka_unit_test(containers_of_more_than_a_million_items_come_back),
        cmocka_unit_test(nesting_is_saved_as_deep_as_it_can_be_read),
        cmocka_unit_test(every_name_is_refused_or_can_be_read),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
