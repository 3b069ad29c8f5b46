/* SPDX-License-Identifier: Apache-2.0 */
/* A dict that was saved is found under its name whatever the format is, whether that keeps it as
 * one object, as it is nested, or as what is in it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"

#include <string.h>

static const rsd_value *text(rsd_values *owner, const char *s)
{
    const rsd_value *v;

    assert_int_equal(rsd_value_create_bytes(owner, RSD_VALUE_STR, s, strlen(s), &v, NULL), RSD_OK);
    return v;
}

static const rsd_value *number(rsd_values *owner, int64_t n)
{
    const rsd_value *v;

    assert_int_equal(rsd_value_create_int(owner, n, &v, NULL), RSD_OK);
    return v;
}

static const rsd_value *list(rsd_values *owner, rsd_value_type type, size_t n,
                             const rsd_value *const *item)
{
    const rsd_value *v;

    assert_int_equal(rsd_value_create_list(owner, type, n, item, &v, NULL), RSD_OK);
    return v;
}

/* {"a": 1, "groups": [{"lr": 2, "t": (3, 4)}, {"lr": 5}], "y": ..., "z": ...} */
static const rsd_value *make_dict(rsd_values *owner, const rsd_value *y, const rsd_value *z)
{
    const rsd_value *pair[] = { number(owner, 3), number(owner, 4) };
    const rsd_value *first[] = { text(owner, "lr"), number(owner, 2), text(owner, "t"),
                                 list(owner, RSD_VALUE_TUPLE, 2, pair) };
    const rsd_value *second[] = { text(owner, "lr"), number(owner, 5) };
    const rsd_value *group[] = { list(owner, RSD_VALUE_DICT, 2, first),
                                 list(owner, RSD_VALUE_DICT, 1, second) };
    const rsd_value *all[] = { text(owner, "a"),      number(owner, 1),
                               text(owner, "groups"), list(owner, RSD_VALUE_LIST, 2, group),
                               text(owner, "y"),      y,
                               text(owner, "z"),      z };

    return list(owner, RSD_VALUE_DICT, 4, all);
}

static const rsd_value *make_tensor(rsd_values *owner)
{
    static const unsigned char bytes[] = { 9, 8, 7 };
    rsd_value_tensor t = { .dtype = RSD_U8, .ndim = 1, .bytes = bytes, .storage_bytes = 3 };
    const rsd_value *v;

    t.shape[0] = 3;
    t.stride[0] = 1;
    assert_int_equal(rsd_value_create_tensor(owner, &t, &v, NULL), RSD_OK);
    return v;
}

static void save(rsd_store *store, const char *path, const char *name, const rsd_value *value)
{
    rsd_save_opts opts = { .size = sizeof(opts), .store = store };
    rsd_state    *state;
    rsd_error     err;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_state_push(state, "extra", NULL), RSD_OK);
    assert_int_equal(rsd_state_value(state, name, value, NULL), RSD_OK);
    if (rsd_save(path, NULL, state, &opts, &err))
        fail_msg("%s", err.msg);
    rsd_state_free(state);
}

static rsd_err want(rsd_store *store, const char *path, const char *name, const char *prefix,
                    rsd_values *owner, const rsd_value **out, rsd_error *err)
{
    rsd_load_opts opts = { .size = sizeof(opts), .store = store, .prefix = prefix };
    rsd_state    *state;
    rsd_err       rc;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_state_want(state, name, owner, out, NULL), RSD_OK);
    rc = rsd_load(path, NULL, state, &opts, err);
    rsd_state_free(state);
    return rc;
}

static void assert_wanted(rsd_store *store, const char *path, const char *name,
                          const rsd_value *expected)
{
    char             want_text[1024], got_text[1024];
    const rsd_value *got = NULL;
    rsd_values      *owner;
    rsd_error        err;

    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    if (want(store, path, name, NULL, owner, &got, &err))
        fail_msg("%s: %s", path, err.msg);
    rsd_value_text(expected, want_text, sizeof(want_text));
    rsd_value_text(got, got_text, sizeof(got_text));
    assert_string_equal(got_text, want_text);
    rsd_values_free(owner);
}

static void convert(rsd_store *store, const char *from, const char *to)
{
    rsd_convert_opts opts = { .size = sizeof(opts), .store = store };
    rsd_ckpt        *ckpt = fix_open(store, from);
    rsd_error        err;

    if (rsd_convert(ckpt, to, NULL, &opts, &err))
        fail_msg("%s", err.msg);
    rsd_ckpt_close(ckpt);
}

static void a_dict_is_found_under_its_name_in_dcp_and_torch_files(void **state)
{
    rsd_store       *store = fix_store();
    rsd_values      *owner;
    const rsd_value *dict;

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    dict = make_dict(owner, number(owner, 6), text(owner, "end"));
    save(store, "ck", "cfg", dict);
    save(store, "ck.pt", "cfg", dict);
    assert_wanted(store, "ck", "extra.cfg", dict);
    assert_wanted(store, "ck.pt", "extra.cfg", dict);
    /* What converting made of them. */
    convert(store, "ck", "back.pt");
    convert(store, "ck.pt", "flat");
    assert_wanted(store, "back.pt", "extra.cfg", dict);
    assert_wanted(store, "flat", "extra.cfg", dict);
    assert_wanted(store, "flat", "extra.cfg.groups", rsd_value_get(dict, "groups"));
    assert_wanted(store, "ck.pt", "extra.cfg.groups", rsd_value_get(dict, "groups"));
    rsd_values_free(owner);
    rsd_store_close(store);
}

static void so_are_one_with_tensors_in_it_and_the_bytes_of_these(void **state)
{
    static const char *const path[] = { "ck", "ck.pt" };
    rsd_store               *store = fix_store();
    rsd_values              *owner, *made;
    const rsd_value         *dict, *got;

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    dict = make_dict(owner, list(owner, RSD_VALUE_DICT, 0, NULL), make_tensor(owner));
    for (size_t i = 0; i < 2; i++) {
        const rsd_value_tensor *t;

        save(store, path[i], "cfg", dict);
        assert_wanted(store, path[i], "extra.cfg", dict);
        assert_int_equal(rsd_values_create(&made, NULL), RSD_OK);
        assert_int_equal(want(store, path[i], "cfg", "extra.", made, &got, NULL), RSD_OK);
        t = rsd_value_tensor_of(rsd_value_get(got, "z"));
        assert_non_null(t);
        assert_memory_equal(t->bytes, "\x09\x08\x07", 3);
        rsd_values_free(made);
    }
    rsd_values_free(owner);
    rsd_store_close(store);
}

static void tensors_that_dcp_keeps_apart_are_told_so(void **state)
{
    rsd_store       *store = fix_store();
    rsd_values      *owner;
    const rsd_value *got;
    rsd_error        err;

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    save(store, "ck.pt", "cfg",
         make_dict(owner, list(owner, RSD_VALUE_DICT, 0, NULL), make_tensor(owner)));
    convert(store, "ck.pt", "flat");
    assert_int_equal(want(store, "flat", "extra.cfg", NULL, owner, &got, &err), RSD_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "\"extra.cfg\" has tensors in it"));
    assert_int_equal(want(store, "flat", "extra.cf", NULL, owner, &got, &err), RSD_E_NOTFOUND);
    assert_int_equal(want(store, "ck.pt", "extra.cf", NULL, owner, &got, &err), RSD_E_NOTFOUND);
    assert_int_equal(want(store, "ck.pt", "extra.cfg.groups.2", NULL, owner, &got, &err),
                     RSD_E_NOTFOUND);
    rsd_values_free(owner);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dict_is_found_under_its_name_in_dcp_and_torch_files),
        cmocka_unit_test(so_are_one_with_tensors_in_it_and_the_bytes_of_these),
        cmocka_unit_test(tensors_that_dcp_keeps_apart_are_told_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
