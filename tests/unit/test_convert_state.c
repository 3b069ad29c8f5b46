/* SPDX-License-Identifier: Apache-2.0 */
/* test_convert_state.c - what of a source a conversion takes, and where in the nesting it stands.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "convert_fixture.h"

#include <string.h>

static rsd_err save(rsd_store *store, const char *path, rsd_state *made)
{
    const rsd_save_opts opts = { .size = sizeof(opts), .store = store };

    return rsd_save(path, NULL, made, &opts, NULL);
}

/* As torch.save keeps the state of an optimizer, before its first step ("b") and after ("a"). */
static void put_optimizers(rsd_store *store)
{
    static const int32_t data[] = { 1, 2 };
    const int64_t        shape[] = { 2 };
    const rsd_view       view = { .box = fix_box1(0, 2), .data = (void *)(uintptr_t)data };
    const rsd_value     *nothing, *one;
    rsd_values          *owner;
    rsd_state           *made;

    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_DICT, 0, NULL, &nothing, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 1, &one, NULL), RSD_OK);
    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    assert_int_equal(rsd_state_push(made, "a", NULL), RSD_OK);
    assert_int_equal(rsd_state_push_number(made, -3, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(made, "m", NULL, RSD_I32, 1, shape, 1, &view, NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(made, NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(made, NULL), RSD_OK);
    assert_int_equal(rsd_state_value(made, "b", nothing, NULL), RSD_OK);
    assert_int_equal(rsd_state_value(made, "one", one, NULL), RSD_OK);
    assert_int_equal(save(store, "x.pt", made), RSD_OK);
    rsd_state_free(made);
    rsd_values_free(owner);
}

/* torch's optimizers look their state up by number; under the text "-3" they would not find it. */
static void keys_that_are_numbers_stay_numbers(void **state)
{
    rsd_store    *store = fix_store();
    rsd_path_part part[3];
    rsd_ckpt     *ckpt;
    rsd_error     err;

    (void)state;
    put_optimizers(store);
    assert_int_equal(conv_run(store, "x.pt", "y.pt", (rsd_convert_opts){ 0 }, &err), RSD_OK);
    ckpt = fix_open(store, "y.pt");
    assert_int_equal(rsd_ckpt_path(ckpt, "a.-3.m", part, 3), 3);
    assert_string_equal(part[0].key, "a");
    assert_false(part[0].number);
    assert_string_equal(part[1].key, "-3");
    assert_true(part[1].number);
    assert_int_equal(part[1].index, -3);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_dict_with_other_keys_of_the_same_text_is_refused(void **state)
{
    rsd_state *made;

    (void)state;
    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    assert_int_equal(rsd_state_push(made, "3", NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(made, NULL, NULL, RSD_I32, 0, NULL, 0, NULL, NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(made, NULL), RSD_OK);
    assert_int_equal(rsd_state_push_number(made, 3, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(made, NULL, NULL, RSD_I32, 0, NULL, 0, NULL, NULL),
                     RSD_E_EXISTS);
    rsd_state_free(made);
}

static void note(void *arg, const char *name, const char *why)
{
    char *said = arg;

    strncat(said, name, 32);
    strncat(said, ": ", 3);
    strncat(said, why, 64);
}

/* dcp.load takes the key of an empty dict for one of an old version, and then misses others. */
static void an_empty_dict_of_a_torch_file_is_left_out_of_dcp_and_named(void **state)
{
    char             said[128] = "";
    rsd_store       *store = fix_store();
    rsd_convert_opts opts = { .on_left_out = note, .arg = said };
    rsd_ckpt        *ckpt;
    const char      *name;
    rsd_error        err;

    (void)state;
    put_optimizers(store);
    assert_int_equal(conv_run(store, "x.pt", "d", opts, &err), RSD_OK);
    assert_string_equal(said, "b: DCP can't hold an empty dict");
    ckpt = fix_open(store, "d");
    assert_int_equal(rsd_ckpt_objects(ckpt), 1);
    assert_int_equal(rsd_ckpt_object(ckpt, 0, &name, NULL, NULL, &err), RSD_OK);
    assert_string_equal(name, "one");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void assert_refused(rsd_convert_opts opts, const char *why)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt = NULL;
    rsd_error  err;

    put_optimizers(store);
    assert_int_equal(conv_run(store, "x.pt", "d", opts, &err), RSD_E_INVALID);
    if (!strstr(err.msg, why))
        fail_msg("\"%s\" is not in \"%s\"", why, err.msg);
    assert_int_not_equal(rsd_ckpt_open(store, "d", &ckpt, &err), RSD_OK);
    rsd_store_close(store);
}

static void a_pattern_that_nothing_matches_is_refused(void **state)
{
    const char *const include[] = { "a.*", "optm.*" };

    (void)state;
    assert_refused((rsd_convert_opts){ .include = include, .ninclude = 2 },
                   "nothing in the source matches \"optm.*\"");
}

static void a_conversion_of_nothing_is_refused(void **state)
{
    const char *const all[] = { "*" };

    (void)state;
    assert_refused((rsd_convert_opts){ .exclude = all, .nexclude = 1 },
                   "nothing of the source is left to write");
}

static const char *to_nothing(void *arg, const char *name)
{
    (void)arg;
    (void)name;
    return "";
}

static void a_name_that_becomes_empty_is_refused(void **state)
{
    (void)state;
    assert_refused((rsd_convert_opts){ .rename = to_nothing },
                   "\"a.-3.m\" would be renamed to an empty name");
}

static void an_empty_name_of_the_source_has_to_be_changed(void **state)
{
    static const char st[] = "\x38\0\0\0\0\0\0\0"
                             "{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}    x";
    rsd_store        *store = fix_store();
    rsd_error         err;

    (void)state;
    fix_put(store, "x.safetensors", st, sizeof(st) - 1);
    assert_int_equal(conv_run(store, "x.safetensors", "d", (rsd_convert_opts){ 0 }, &err),
                     RSD_E_INVALID);
    assert_non_null(strstr(err.msg, "something in the source has an empty name: rename it"));
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_are_numbers_stay_numbers),
        cmocka_unit_test(a_dict_with_other_keys_of_the_same_text_is_refused),
        cmocka_unit_test(an_empty_dict_of_a_torch_file_is_left_out_of_dcp_and_named),
        cmocka_unit_test(a_pattern_that_nothing_matches_is_refused),
        cmocka_unit_test(a_conversion_of_nothing_is_refused),
        cmocka_unit_test(a_name_that_becomes_empty_is_refused),
        cmocka_unit_test(an_empty_name_of_the_source_has_to_be_changed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
