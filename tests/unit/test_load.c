/* SPDX-License-Identifier: Apache-2.0 */
/* Loading by one process: states, names, casts. Ranks are in test_load_ranks.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"

#include <stdio.h>
#include <string.h>

static rsd_store  *store;
static rsd_values *values;

/* "m.a": 4 x 6 int32, their own index; "m.b": 5 of them; "m2.c": 2 x 0; "step": 7; "extra": a dict
 * with an int and a tensor. */
static int save_all(void **unused)
{
    static int32_t   a[24], b[5];
    static float     zero[1] = { 0.5f };
    const int64_t    shape_a[] = { 4, 6 }, shape_b = 5, shape_c[] = { 2, 0 };
    rsd_value_tensor tensor = { .dtype = RSD_F32, .ndim = 1, .shape = { 1 }, .stride = { 1 } };
    rsd_save_opts    opts = { .size = sizeof(opts), .threads = 1 };
    const rsd_value *pair[4], *step, *extra;
    rsd_state       *state;

    (void)unused;
    store = fix_store();
    opts.store = store;
    tensor.storage_bytes = sizeof(zero);
    tensor.bytes = zero;
    assert_int_equal(rsd_values_create(&values, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(values, 7, &step, NULL), RSD_OK);
    rsd_value_create_bytes(values, RSD_VALUE_STR, "i", 1, &pair[0], NULL);
    rsd_value_create_int(values, 1, &pair[1], NULL);
    rsd_value_create_bytes(values, RSD_VALUE_STR, "t", 1, &pair[2], NULL);
    rsd_value_create_tensor(values, &tensor, &pair[3], NULL);
    assert_int_equal(rsd_value_create_list(values, RSD_VALUE_DICT, 2, pair, &extra, NULL), RSD_OK);
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    fix_add_ramp(state, "m.a", fix_layout("mesh n=3; * shard(0)@n", RSD_I32, 2, shape_a), 2,
                 shape_a, a);
    fix_add_ramp(state, "m.b", fix_layout("mesh n=3; * shard(0)@n", RSD_I32, 1, &shape_b), 1,
                 &shape_b, b);
    assert_int_equal(rsd_state_tensor(state, "m2.c", NULL, RSD_F32, 2, shape_c, 0, NULL, NULL),
                     RSD_OK);
    assert_int_equal(rsd_state_value(state, "step", step, NULL), RSD_OK);
    assert_int_equal(rsd_state_value(state, "extra", extra, NULL), RSD_OK);
    assert_int_equal(rsd_save("ck", NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
    return 0;
}

static int drop_all(void **unused)
{
    (void)unused;
    rsd_values_free(values);
    rsd_store_free(store);
    return 0;
}

static rsd_load_opts options(void)
{
    return (rsd_load_opts){ .size = sizeof(rsd_load_opts), .store = store, .threads = 1 };
}

/* Loads "<name>" of that dtype into one view. */
static rsd_err load_one(const char *name, rsd_dtype dtype, int ndim, const int64_t *shape,
                        const rsd_view *view, const rsd_load_opts *opts, rsd_error *err)
{
    rsd_state *state;
    rsd_err    rc = rsd_state_create(&state, err);

    if (!rc)
        rc = rsd_state_tensor(state, name, NULL, dtype, ndim, shape, 1, view, err);
    if (!rc)
        rc = rsd_load("ck", NULL, state, opts, err);
    rsd_state_free(state);
    return rc;
}

static const int64_t shape_a[] = { 4, 6 };

static void another_dtype_is_refused_unless_it_may_be_cast(void **unused)
{
    float         x[24] = { 0 };
    rsd_view      view = fix_whole(2, shape_a, x);
    rsd_load_opts opts = options();
    rsd_error     err;

    (void)unused;
    assert_int_equal(load_one("m.a", RSD_F32, 2, shape_a, &view, &opts, &err), RSD_E_MISMATCH);
    assert_string_equal(err.msg, "tensor \"m.a\" is int32 in the checkpoint, float32 is wanted");
    opts.cast = true;
    assert_int_equal(load_one("m.a", RSD_F32, 2, shape_a, &view, &opts, NULL), RSD_OK);
    for (int i = 0; i < 24; i++)
        assert_true(x[i] == (float)i);
}

static void a_cast_goes_to_strides_and_parts(void **unused)
{
    double        x[5][4] = { { 0 } }; /* the transpose of columns 1 to 5 */
    rsd_view      view = { .box = fix_box2(0, 1, 4, 5), .data = x, .stride = { 8, 32 } };
    rsd_load_opts opts = options();

    (void)unused;
    opts.cast = true;
    assert_int_equal(load_one("m.a", RSD_F64, 2, shape_a, &view, &opts, NULL), RSD_OK);
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 5; c++)
            assert_true(x[c][r] == r * 6 + c + 1);
}

static rsd_err keep(void *arg, uint64_t off, const void *host, size_t len)
{
    memcpy((char *)arg + off, host, len);
    return RSD_OK;
}

static void a_cast_goes_through_a_callback(void **unused)
{
    int8_t        x[24] = { 0 };
    rsd_view      view = { .box = fix_box2(0, 0, 4, 6), .put = keep, .arg = x };
    rsd_load_opts opts = options();

    (void)unused;
    opts.cast = true;
    assert_int_equal(load_one("m.a", RSD_I8, 2, shape_a, &view, &opts, NULL), RSD_OK);
    for (int i = 0; i < 24; i++)
        assert_int_equal(x[i], i);
}

static void a_cast_that_nobody_can_do_names_the_tensor(void **unused)
{
    float         x[48] = { 0 };
    rsd_view      view = fix_whole(2, shape_a, x);
    rsd_load_opts opts = options();
    rsd_error     err;

    (void)unused;
    opts.cast = true;
    assert_int_equal(load_one("m.a", RSD_C64, 2, shape_a, &view, &opts, &err), RSD_E_UNSUPPORTED);
    assert_string_equal(err.msg, "tensor \"m.a\": int32 can't be cast to complex64");
}

static void a_prefix_stands_before_every_name(void **unused)
{
    int32_t          x[24] = { 0 };
    const rsd_value *step = NULL;
    rsd_view         view = fix_whole(2, shape_a, x);
    rsd_load_opts    opts = options();
    rsd_state       *state;
    rsd_error        err;

    (void)unused;
    opts.prefix = "m.";
    assert_int_equal(load_one("a", RSD_I32, 2, shape_a, &view, &opts, NULL), RSD_OK);
    assert_int_equal(x[23], 23);
    opts.prefix = "n.";
    assert_int_equal(load_one("a", RSD_I32, 2, shape_a, &view, &opts, &err), RSD_E_NOTFOUND);
    assert_string_equal(err.msg, "the checkpoint has no tensor \"n.a\"");
    opts.prefix = "st";
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_state_want(state, "ep", values, &step, NULL), RSD_OK);
    assert_int_equal(rsd_load("ck", NULL, state, &opts, NULL), RSD_OK);
    assert_int_equal(rsd_value_int(step), 7);
    rsd_state_free(state);
}

static void a_value_comes_back_with_the_tensor_inside(void **unused)
{
    const rsd_value        *step = NULL, *extra = NULL;
    rsd_load_opts           opts = options();
    const rsd_value_tensor *t;
    rsd_state              *state;

    (void)unused;
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_state_want(state, "step", values, &step, NULL), RSD_OK);
    assert_int_equal(rsd_state_want(state, "extra", values, &extra, NULL), RSD_OK);
    assert_int_equal(rsd_state_want(state, "step", values, &extra, NULL), RSD_E_EXISTS);
    assert_int_equal(rsd_load("ck", NULL, state, &opts, NULL), RSD_OK);
    assert_int_equal(rsd_value_int(step), 7);
    assert_int_equal(rsd_value_int(rsd_value_get(extra, "i")), 1);
    t = rsd_value_tensor_of(rsd_value_get(extra, "t"));
    assert_non_null(t);
    assert_int_equal(t->dtype, RSD_F32);
    assert_true(*(const float *)t->bytes == 0.5f);
    rsd_state_free(state);
}

static void note(void *arg, const char *name)
{
    char  *list = arg;
    size_t len = strlen(list);

    snprintf(list + len, 80 - len, "%s ", name);
}

static void a_value_that_is_missing_is_named_or_reported(void **unused)
{
    const rsd_value *other = NULL;
    rsd_load_opts    opts = options();
    char             missing[80] = "";
    rsd_state       *state;
    rsd_error        err;

    (void)unused;
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_state_want(state, "epoch", values, &other, NULL), RSD_OK);
    assert_int_equal(rsd_load("ck", NULL, state, &opts, &err), RSD_E_NOTFOUND);
    assert_string_equal(err.msg, "the checkpoint has no value \"epoch\"");
    opts.allow_partial = true;
    opts.missing = note;
    opts.arg = missing;
    assert_int_equal(rsd_load("ck", NULL, state, &opts, &err), RSD_OK);
    assert_null(other);
    assert_string_equal(missing, "epoch ");
    rsd_state_free(state);
}

static void a_want_needs_an_owner_and_a_place(void **unused)
{
    const rsd_value *value;
    rsd_state       *state;

    (void)unused;
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_state_want(state, "x", NULL, &value, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_state_want(state, "x", values, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_state_want(NULL, "x", values, &value, NULL), RSD_E_INVALID);
    rsd_state_free(state);
}

/* ---- without a state ---- */

typedef struct taken {
    char    names[80];
    int32_t a[24];
    rsd_box box; /* of "m.a"; ndim 0: all of it */
    rsd_err rc;
} taken;

static rsd_err take(void *arg, const rsd_tensor_info *info, rsd_view *out)
{
    taken *t = arg;

    note(t->names, info->name);
    if (strcmp(info->name, "m.a") == 0) {
        out->box = t->box.ndim ? t->box : out->box;
        out->data = t->a;
    }
    return t->rc;
}

static void all_below_a_name_is_asked_for(void **unused)
{
    const char *const m[] = { "m" }, *const both[] = { "m2", "m.a" };
    rsd_load_opts opts = options();
    taken         t = { .rc = RSD_OK };

    (void)unused;
    assert_int_equal(rsd_load_below("ck", NULL, 1, m, take, &t, &opts, NULL), RSD_OK);
    assert_string_equal(t.names, "m.a m.b ");
    for (int i = 0; i < 24; i++)
        assert_int_equal(t.a[i], i);
    t.names[0] = '\0';
    assert_int_equal(rsd_load_below("ck", NULL, 2, both, take, &t, &opts, NULL), RSD_OK);
    assert_string_equal(t.names, "m.a m2.c ");
    t.names[0] = '\0';
    assert_int_equal(rsd_load_below("ck", NULL, 0, NULL, take, &t, &opts, NULL), RSD_OK);
    assert_string_equal(t.names, "m.a m.b m2.c ");
}

static void the_callback_may_take_a_part(void **unused)
{
    rsd_load_opts opts = options();
    taken         t = { .box = fix_box2(1, 2, 2, 3) };

    (void)unused;
    assert_int_equal(rsd_load_below("ck", NULL, 0, NULL, take, &t, &opts, NULL), RSD_OK);
    for (int i = 0; i < 6; i++)
        assert_int_equal(t.a[i], (1 + i / 3) * 6 + 2 + i % 3);
}

static void a_part_outside_the_tensor_is_refused_by_name(void **unused)
{
    rsd_load_opts opts = options();
    taken         t = { .box = fix_box2(1, 2, 4, 3) };
    rsd_error     err;

    (void)unused;
    assert_int_equal(rsd_load_below("ck", NULL, 0, NULL, take, &t, &opts, &err), RSD_E_INVALID);
    assert_non_null(strstr(err.msg, "tensor \"m.a\""));
}

static void what_the_callback_returns_is_what_the_caller_gets(void **unused)
{
    rsd_load_opts opts = options();
    taken         t = { .rc = RSD_E_CANCELED };
    rsd_error     err;

    (void)unused;
    assert_int_equal(rsd_load_below("ck", NULL, 0, NULL, take, &t, &opts, &err), RSD_E_CANCELED);
    assert_string_equal(err.msg, "tensor \"m.a\": the caller's alloc failed: RSD_E_CANCELED");
}

static void a_name_with_nothing_below_is_an_error_or_reported(void **unused)
{
    const char *const names[] = { "m", "m.", "mm" };
    rsd_load_opts     opts = options();
    char              missing[80] = "";
    taken             t = { .rc = RSD_OK };
    rsd_error         err;

    (void)unused;
    assert_int_equal(rsd_load_below("ck", NULL, 3, names, take, &t, &opts, &err), RSD_E_NOTFOUND);
    assert_string_equal(err.msg, "the checkpoint has no tensor below \"m.\"");
    opts.allow_partial = true;
    opts.missing = note;
    opts.arg = missing;
    assert_int_equal(rsd_load_below("ck", NULL, 3, names, take, &t, &opts, &err), RSD_OK);
    assert_string_equal(missing, "m. mm ");
}

static void arguments_that_are_missing_are_refused(void **unused)
{
    const char *const names[] = { NULL };
    taken             t = { .rc = RSD_OK };

    (void)unused;
    assert_int_equal(rsd_load_below(NULL, NULL, 0, NULL, take, &t, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_load_below("ck", NULL, 0, NULL, NULL, &t, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_load_below("ck", NULL, 1, NULL, take, &t, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_load_below("ck", NULL, 1, names, take, &t, NULL, NULL), RSD_E_INVALID);
}

/* ---- want of memory ---- */

static rsd_err load_much(void *arg, rsd_error *err)
{
    float            x[24] = { 0 };
    const rsd_value *extra = NULL;
    rsd_view         view = fix_whole(2, shape_a, x);
    rsd_load_opts    opts = options();
    const char      *prefix = arg;
    rsd_values      *own = NULL;
    rsd_state       *state = NULL;
    rsd_err          rc = rsd_values_create(&own, err);

    opts.cast = true;
    opts.prefix = prefix;
    if (!rc)
        rc = rsd_state_create(&state, err);
    if (!rc)
        rc = rsd_state_tensor(state, *prefix ? "a" : "m.a", NULL, RSD_F32, 2, shape_a, 1, &view,
                              err);
    if (!rc && !*prefix)
        rc = rsd_state_want(state, "extra", own, &extra, err);
    if (!rc)
        rc = rsd_load("ck", NULL, state, &opts, err);
    rsd_state_free(state);
    rsd_values_free(own);
    return rc;
}

static rsd_err load_below(void *arg, rsd_error *err)
{
    const char *const names[] = { "m" };
    rsd_load_opts     opts = options();
    taken             t = { .rc = RSD_OK };

    (void)arg;
    return rsd_load_below("ck", NULL, 1, names, take, &t, &opts, err);
}

static void every_allocation_that_fails_is_told(void **unused)
{
    static char prefix[] = "m.", none[] = "";

    (void)unused;
    fix_every_allocation(load_much, NULL, prefix);
    fix_every_allocation(load_much, NULL, none);
    fix_every_allocation(load_below, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_dtype_is_refused_unless_it_may_be_cast),
        cmocka_unit_test(a_cast_goes_to_strides_and_parts),
        cmocka_unit_test(a_cast_goes_through_a_callback),
        cmocka_unit_test(a_cast_that_nobody_can_do_names_the_tensor),
        cmocka_unit_test(a_prefix_stands_before_every_name),
        cmocka_unit_test(a_value_comes_back_with_the_tensor_inside),
        cmocka_unit_test(a_value_that_is_missing_is_named_or_reported),
        cmocka_unit_test(a_want_needs_an_owner_and_a_place),
        cmocka_unit_test(all_below_a_name_is_asked_for),
        cmocka_unit_test(the_callback_may_take_a_part),
        cmocka_unit_test(a_part_outside_the_tensor_is_refused_by_name),
        cmocka_unit_test(what_the_callback_returns_is_what_the_caller_gets),
        cmocka_unit_test(a_name_with_nothing_below_is_an_error_or_reported),
        cmocka_unit_test(arguments_that_are_missing_are_refused),
        cmocka_unit_test(every_allocation_that_fails_is_told),
    };

    return cmocka_run_group_tests(tests, save_all, drop_all);
}
