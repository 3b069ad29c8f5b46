/* SPDX-License-Identifier: Apache-2.0 */
/* test_torch_open.c - torch.save files: nested dicts and lists become names, as torch's own
 * flattening has them. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "zip_build.h"

#include <stdlib.h>
#include <string.h>

static rsd_values   *owner;
static const int32_t numbers[] = { 10, 11, 12, 13, 14, 15 };

static int begin(void **state)
{
    (void)state;
    return rsd_values_create(&owner, NULL) == RSD_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    rsd_values_free(owner);
    return rsi_mem_stats_get().bytes == 0 ? 0 : -1;
}

static const rsd_value *of_int(int64_t x)
{
    const rsd_value *v;

    assert_int_equal(rsd_value_create_int(owner, x, &v, NULL), RSD_OK);
    return v;
}

static const rsd_value *of_text(const char *text)
{
    const rsd_value *v;

    assert_int_equal(rsd_value_create_bytes(owner, RSD_VALUE_STR, text, strlen(text), &v, NULL),
                     RSD_OK);
    return v;
}

/* A vector of `n` elements from element `offset` of storage "0", which has six. */
static const rsd_value *of_tensor(int64_t n, int64_t offset)
{
    const rsd_value_tensor tensor = { .dtype = RSD_I32,
                                      .ndim = 1,
                                      .shape = { n },
                                      .stride = { 1 },
                                      .offset = offset,
                                      .storage_bytes = 24,
                                      .storage = "0",
                                      .location = "cpu" };
    const rsd_value       *v;

    assert_int_equal(rsd_value_create_tensor(owner, &tensor, &v, NULL), RSD_OK);
    return v;
}

/* Items up to a NULL; for a dict keys and values in turn. */
static const rsd_value *of_list(rsd_value_type type, ...)
{
    const rsd_value *item[16], *v;
    size_t           n = 0;
    va_list          args;

    va_start(args, type);
    while ((v = va_arg(args, const rsd_value *)) != NULL)
        item[n++] = v;
    va_end(args);
    assert_int_equal(
        rsd_value_create_list(owner, type, type == RSD_VALUE_DICT ? n / 2 : n, item, &v, NULL),
        RSD_OK);
    return v;
}

static rsd_store *put(const rsd_value *root)
{
    rsd_store *store = fix_store();
    fix_bytes  file = fix_value_item(root, numbers, sizeof(numbers));

    fix_put(store, "x.pt", file.at, file.len);
    free(file.at);
    return store;
}

static void add_text(char *text, size_t cap, const char *more)
{
    strncat(text, *text ? " " : "", cap - strlen(text) - 1);
    strncat(text, more, cap - strlen(text) - 1);
}

/* Names of tensors, and names and texts of objects: "a=1 b=[2, 3]". */
static void assert_names(const rsd_value *root, const char *tensors, const char *objects)
{
    rsd_store *store = put(root);
    rsd_ckpt  *ckpt = fix_open(store, "x.pt");
    char       found[512] = { 0 };

    for (size_t t = 0; t < rsd_ckpt_tensors(ckpt); t++) {
        rsd_tensor_info info = { .size = sizeof(info) };

        assert_int_equal(rsd_ckpt_tensor(ckpt, t, &info, NULL), RSD_OK);
        add_text(found, sizeof(found), info.name);
    }
    assert_string_equal(found, tensors);
    found[0] = 0;
    for (size_t i = 0; i < rsd_ckpt_objects(ckpt); i++) {
        const rsd_value *value;
        const char      *name;
        char             text[128];

        assert_int_equal(rsd_ckpt_object(ckpt, i, &name, owner, &value, NULL), RSD_OK);
        rsd_value_text(value, text, sizeof(text));
        add_text(found, sizeof(found), name);
        strncat(found, "=", 2);
        strncat(found, text, sizeof(found) - strlen(found) - 1);
    }
    assert_string_equal(found, objects);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void dicts_are_opened_and_names_joined(void **state)
{
    (void)state;
    assert_names(of_list(RSD_VALUE_DICT, of_text("a"), of_tensor(2, 0), of_text("n"),
                         of_list(RSD_VALUE_DICT, of_text("b"), of_tensor(3, 1), of_text("step"),
                                 of_int(5), NULL),
                         NULL),
                 "a n.b", "n.step=5");
}

static void integer_keys_become_text(void **state)
{
    (void)state;
    assert_names(of_list(RSD_VALUE_DICT, of_int(0), of_tensor(2, 0), of_int(-7), of_int(1), NULL),
                 "0", "-7=1");
}

static void lists_are_opened_for_tensors(void **state)
{
    const rsd_value *plain = of_list(RSD_VALUE_LIST, of_int(1), of_int(2), NULL);
    const rsd_value *mixed = of_list(RSD_VALUE_LIST, of_int(1), of_tensor(2, 0), plain, NULL);
    const rsd_value *pair = of_list(RSD_VALUE_TUPLE, of_tensor(1, 0), of_tensor(1, 1), NULL);
    const rsd_value *deep = of_list(RSD_VALUE_LIST, of_list(RSD_VALUE_LIST, pair, NULL), NULL);

    (void)state;
    assert_names(
        of_list(RSD_VALUE_DICT, of_text("p"), plain, of_text("m"), mixed, of_text("d"), deep, NULL),
        "m.1 d.0.0.0 d.0.0.1", "p=[1, 2] m.0=1 m.2=[1, 2]");
}

/* As torch's own flattening does, so that a trainer finds "groups.0.lr" in what it becomes. */
static void lists_are_opened_for_dicts_that_have_names(void **state)
{
    const rsd_value *group = of_list(RSD_VALUE_DICT, of_text("lr"), of_int(1), NULL);
    const rsd_value *none = of_list(RSD_VALUE_DICT, NULL);
    const rsd_value *deep = of_list(RSD_VALUE_LIST, of_list(RSD_VALUE_LIST, group, NULL), NULL);

    (void)state;
    assert_names(of_list(RSD_VALUE_DICT, of_text("groups"),
                         of_list(RSD_VALUE_LIST, group, of_int(2), none, NULL), of_text("deep"),
                         deep, of_text("tuple"), of_list(RSD_VALUE_TUPLE, group, NULL),
                         of_text("empty"), of_list(RSD_VALUE_LIST, none, NULL), NULL),
                 "",
                 "groups.0.lr=1 groups.1=2 groups.2={} deep.0.0.lr=1 tuple=({'lr': 1},) "
                 "empty=[{}]");
}

static void empty_dicts_are_objects(void **state)
{
    (void)state;
    assert_names(of_list(RSD_VALUE_DICT, of_text("e"), of_list(RSD_VALUE_DICT, NULL), NULL), "",
                 "e={}");
}

static void dicts_with_other_keys_are_objects(void **state)
{
    const rsd_value *half;

    (void)state;
    assert_int_equal(rsd_value_create_float(owner, 0.5, &half, NULL), RSD_OK);
    assert_names(
        of_list(RSD_VALUE_DICT, of_text("o"), of_list(RSD_VALUE_DICT, half, of_int(1), NULL), NULL),
        "", "o={0.5: 1}");
}

static const rsd_value *of_nan(void)
{
    const rsd_value *v;

    assert_int_equal(rsd_value_create_float(owner, NAN, &v, NULL), RSD_OK);
    return v;
}

static void a_dict_with_one_nan_as_key_is_opened_for_tensors(void **state)
{
    const rsd_value *inner =
        of_list(RSD_VALUE_DICT, of_text("b"), of_tensor(1, 0), of_text("c"), of_tensor(2, 1), NULL);

    (void)state;
    assert_names(of_list(RSD_VALUE_DICT, of_nan(), inner, of_text("n"), of_int(1), NULL),
                 "nan.b nan.c", "n=1");
}

/* Both have the same text. */
static void a_dict_with_two_nans_as_keys_is_an_object(void **state)
{
    const rsd_value *two =
        of_list(RSD_VALUE_DICT, of_nan(), of_tensor(1, 0), of_nan(), of_tensor(1, 1), NULL);

    (void)state;
    assert_names(of_list(RSD_VALUE_DICT, of_text("t"), two, NULL), "",
                 "t={nan: tensor(dtype=int32, shape=[1]), nan: tensor(dtype=int32, shape=[1])}");
}

static void a_dict_with_dtypes_as_keys_is_opened_for_tensors(void **state)
{
    const rsd_value *half, *bytes;

    (void)state;
    assert_int_equal(rsd_value_create_dtype(owner, RSD_F16, &half, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_dtype(owner, RSD_U8, &bytes, NULL), RSD_OK);
    assert_names(of_list(RSD_VALUE_DICT, half, of_tensor(1, 0), bytes, of_tensor(2, 1), NULL),
                 "torch.float16 torch.uint8", "");
}

static void a_lone_tensor_is_called_tensor(void **state)
{
    (void)state;
    assert_names(of_tensor(2, 0), "tensor", "");
}

static void a_lone_object_is_called_object(void **state)
{
    (void)state;
    assert_names(of_int(5), "", "object=5");
}

static void names_that_clash_are_refused(void **state)
{
    const rsd_value *inner = of_list(RSD_VALUE_DICT, of_text("b"), of_tensor(1, 0), NULL);
    rsd_store       *store =
        put(of_list(RSD_VALUE_DICT, of_text("a.b"), of_int(1), of_text("a"), inner, NULL));

    (void)state;
    fix_refused(store, "x.pt", RSD_E_FORMAT,
                "checkpoint \"x.pt\": two things in it have the name \"a.b\"");
    rsd_store_close(store);
    store = put(of_list(RSD_VALUE_DICT, of_int(1), of_int(1), of_text("1"), of_int(2), NULL));
    fix_refused(store, "x.pt", RSD_E_FORMAT, "two things in it have the name \"1\"");
    rsd_store_close(store);
}

static void paths_lead_through_the_nesting(void **state)
{
    rsd_store *store =
        put(of_list(RSD_VALUE_DICT, of_text("l"),
                    of_list(RSD_VALUE_LIST, of_int(1),
                            of_list(RSD_VALUE_DICT, of_text("w"), of_tensor(1, 0), NULL), NULL),
                    NULL));
    rsd_ckpt     *ckpt = fix_open(store, "x.pt");
    rsd_path_part part[4];

    (void)state;
    assert_int_equal(rsd_ckpt_path(ckpt, "l.1.w", part, 4), 3);
    assert_string_equal(part[0].key, "l");
    assert_null(part[1].key);
    assert_int_equal(part[1].index, 1);
    assert_string_equal(part[2].key, "w");
    assert_int_equal(rsd_ckpt_path(ckpt, "l.1.w", NULL, 0), 3);
    assert_int_equal(rsd_ckpt_path(ckpt, "l.0", part, 1), 2);
    assert_int_equal(rsd_ckpt_path(ckpt, "none", part, 4), 0);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void tensors_may_share_a_storage(void **state)
{
    rsd_store *store = put(of_list(RSD_VALUE_DICT, of_text("all"), of_tensor(6, 0), of_text("some"),
                                   of_tensor(2, 3), NULL));
    rsd_ckpt  *ckpt = fix_open(store, "x.pt");
    int32_t    out[6];
    rsd_view   view = { .box = fix_box1(0, 6), .data = out };

    (void)state;
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, NULL, NULL), RSD_OK);
    assert_memory_equal(out, numbers, sizeof(numbers));
    view.box = fix_box1(0, 2);
    assert_int_equal(rsd_ckpt_read(ckpt, 1, &view, NULL, NULL), RSD_OK);
    assert_true(out[0] == 13 && out[1] == 14);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_tensor_without_its_storage_is_refused(void **state)
{
    fix_bytes file =
        fix_value_item(of_list(RSD_VALUE_DICT, of_text("a"), of_tensor(2, 0), NULL), NULL, 0);
    rsd_store *store = fix_store();

    (void)state;
    fix_put(store, "x.pt", file.at, file.len);
    fix_refused(store, "x.pt", RSD_E_FORMAT,
                "tensor \"a\": a tensor's storage \"data/0\" is not in the archive");
    rsd_store_close(store);
    free(file.at);
}

static void a_storage_of_another_size_is_refused(void **state)
{
    const rsd_value *root = of_list(RSD_VALUE_DICT, of_text("a"), of_tensor(2, 0), NULL);
    fix_bytes        file = fix_value_item(root, numbers, 20);
    rsd_store       *store = fix_store();

    (void)state;
    fix_put(store, "x.pt", file.at, file.len);
    fix_refused(store, "x.pt", RSD_E_FORMAT, "tensor \"a\": storage \"data/0\": ");
    rsd_store_close(store);
    free(file.at);
}

/* What it hands out is the caller's: it outlives the checkpoint. */
static void objects_live_as_long_as_their_owner(void **state)
{
    rsd_store *store =
        put(of_list(RSD_VALUE_DICT, of_text("s"), of_text("a long enough text"), NULL));
    rsd_ckpt        *ckpt = fix_open(store, "x.pt");
    const rsd_value *value;
    const char      *name;
    char             text[64];

    (void)state;
    assert_int_equal(rsd_ckpt_object(ckpt, 0, &name, owner, &value, NULL), RSD_OK);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    rsd_value_text(value, text, sizeof(text));
    assert_string_equal(text, "'a long enough text'");
}

static rsd_err open_once(void *arg, rsd_error *err)
{
    rsd_ckpt *ckpt;
    rsd_err   rc = rsd_ckpt_open(arg, "x.pt", &ckpt, err);

    if (!rc)
        rsd_ckpt_close(ckpt);
    return rc;
}

static void programs_are_no_checkpoints(void **state)
{
    const zip_given script[] = { { .name = "jit/data.pkl", .data = "a pickle" },
                                 { .name = "jit/code/__torch__/m.py", .data = "def forward" },
                                 { .name = "jit/version", .data = "3\n" } };
    const zip_given export[] = { { .name = "exp/archive_format", .data = "pt2" },
                                 { .name = "exp/version", .data = "3\n" } };
    rsd_store *store = fix_store();
    zip_built  zip;

    (void)state;
    zip_build(&zip, script, 3, NULL);
    zip_patch(&zip, zip.central[1] + 10, 2, 8);
    fix_put(store, "jit.pt", zip.bytes, zip.len);
    fix_refused(store, "jit.pt", RSD_E_UNSUPPORTED, "it is a TorchScript program");
    zip_build(&zip, export, 2, NULL);
    fix_put(store, "exp.pt2", zip.bytes, zip.len);
    fix_refused(store, "exp.pt2", RSD_E_UNSUPPORTED, "it is a program of torch.export");
    rsd_store_close(store);
}

static void opening_without_memory_fails_cleanly(void **state)
{
    rsd_store *store = put(of_list(RSD_VALUE_DICT, of_text("all"), of_tensor(6, 0), of_text("l"),
                                   of_list(RSD_VALUE_LIST, of_int(1), of_tensor(1, 0), NULL),
                                   of_text("v"), of_int(1), NULL));
    int64_t    before = rsi_mem_stats_get().bytes;

    (void)state;
    fix_every_allocation(open_once, NULL, store);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dicts_are_opened_and_names_joined),
        cmocka_unit_test(integer_keys_become_text),
        cmocka_unit_test(lists_are_opened_for_tensors),
        cmocka_unit_test(lists_are_opened_for_dicts_that_have_names),
        cmocka_unit_test(empty_dicts_are_objects),
        cmocka_unit_test(dicts_with_other_keys_are_objects),
        cmocka_unit_test(a_dict_with_one_nan_as_key_is_opened_for_tensors),
        cmocka_unit_test(a_dict_with_two_nans_as_keys_is_an_object),
        cmocka_unit_test(a_dict_with_dtypes_as_keys_is_opened_for_tensors),
        cmocka_unit_test(a_lone_tensor_is_called_tensor),
        cmocka_unit_test(a_lone_object_is_called_object),
        cmocka_unit_test(names_that_clash_are_refused),
        cmocka_unit_test(paths_lead_through_the_nesting),
        cmocka_unit_test(tensors_may_share_a_storage),
        cmocka_unit_test(a_tensor_without_its_storage_is_refused),
        cmocka_unit_test(a_storage_of_another_size_is_refused),
        cmocka_unit_test(programs_are_no_checkpoints),
        cmocka_unit_test(opening_without_memory_fails_cleanly),
        cmocka_unit_test(objects_live_as_long_as_their_owner),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
