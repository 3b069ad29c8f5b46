/* SPDX-License-Identifier: Apache-2.0 */
/* test_state.c - tensors and values under names, as a caller hands them over. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "state/state.h"

#include <string.h>

static const int64_t shape[] = { 2, 3 };
static int32_t       data[6];

static rsd_state *make(void)
{
    rsd_state *made;

    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    return made;
}

static rsd_err add(rsd_state *made, const char *name, rsd_error *err)
{
    const rsd_view whole = fix_whole(2, shape, data);

    return rsd_state_tensor(made, name, NULL, RSD_I32, 2, shape, 1, &whole, err);
}

static void names_are_the_keys_joined_by_dots(void **state)
{
    rsd_state       *made = make();
    const rsi_spot  *spot;
    const rsd_value *one;
    rsd_values      *owner;

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 1, &one, NULL), RSD_OK);
    assert_int_equal(add(made, "top", NULL), RSD_OK);
    assert_int_equal(rsd_state_push(made, "optim", NULL), RSD_OK);
    assert_int_equal(rsd_state_push(made, "state", NULL), RSD_OK);
    assert_int_equal(rsd_state_push_index(made, 12, NULL), RSD_OK);
    assert_int_equal(add(made, "exp_avg", NULL), RSD_OK);
    assert_int_equal(rsd_state_value(made, "step", one, NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(made, NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(made, NULL), RSD_OK);
    assert_int_equal(add(made, "lr", NULL), RSD_OK);
    assert_string_equal(made->tensor[0].spot.name, "top");
    assert_int_equal(made->tensor[0].spot.nparts, 1);
    spot = &made->tensor[1].spot;
    assert_string_equal(spot->name, "optim.state.12.exp_avg");
    assert_int_equal(spot->nparts, 4);
    assert_string_equal(spot->part[0].key, "optim");
    assert_string_equal(spot->part[1].key, "state");
    assert_null(spot->part[2].key);
    assert_int_equal(spot->part[2].index, 12);
    assert_string_equal(spot->part[3].key, "exp_avg");
    assert_string_equal(made->tensor[2].spot.name, "optim.lr");
    assert_string_equal(made->value[0].spot.name, "optim.state.12.step");
    assert_int_equal(rsd_value_int(made->value[0].value), 1);
    rsd_state_free(made);
    rsd_values_free(owner);
}

static void without_a_name_a_tensor_stands_where_the_last_push_leads(void **state)
{
    rsd_state *made = make();
    rsd_error  err;

    (void)state;
    assert_int_equal(rsd_state_push(made, "list", NULL), RSD_OK);
    assert_int_equal(rsd_state_push_index(made, 0, NULL), RSD_OK);
    assert_int_equal(add(made, NULL, NULL), RSD_OK);
    assert_string_equal(made->tensor[0].spot.name, "list.0");
    assert_int_equal(made->tensor[0].spot.nparts, 2);
    assert_int_equal(rsd_state_pop(made, NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(made, NULL), RSD_OK);
    assert_int_equal(add(made, NULL, &err), RSD_E_INVALID);
    assert_non_null(strstr(err.msg, "missing argument: name"));
    rsd_state_free(made);
}

static void a_name_that_is_there_is_refused(void **state)
{
    rsd_state       *made = make();
    const rsd_value *one;
    rsd_values      *owner;
    rsd_error        err;

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 1, &one, NULL), RSD_OK);
    assert_int_equal(add(made, "a.b", NULL), RSD_OK);
    assert_int_equal(add(made, "a.b", &err), RSD_E_EXISTS);
    assert_non_null(strstr(err.msg, "\"a.b\" is in the state twice"));
    assert_int_equal(rsd_state_value(made, "a.b", one, &err), RSD_E_EXISTS);
    assert_int_equal(rsd_state_push(made, "a", NULL), RSD_OK);
    assert_int_equal(add(made, "b", &err), RSD_E_EXISTS); /* another way to the same name */
    assert_int_equal(made->ntensors, 1);
    assert_int_equal(made->nvalues, 0);
    rsd_state_free(made);
    rsd_values_free(owner);
}

static void pop_without_push_is_refused(void **state)
{
    rsd_state *made = make();
    rsd_error  err;

    (void)state;
    assert_int_equal(rsd_state_pop(made, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "nothing to pop: nothing was pushed");
    assert_int_equal(rsd_state_push(made, "a", NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(made, NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(made, NULL), RSD_E_INVALID);
    rsd_state_free(made);
}

static void nesting_has_an_end(void **state)
{
    rsd_state *made = make();

    (void)state;
    for (int i = 0; i < 256; i++)
        assert_int_equal(rsd_state_push(made, "k", NULL), RSD_OK);
    assert_int_equal(rsd_state_push(made, "k", NULL), RSD_E_UNSUPPORTED);
    assert_int_equal(rsd_state_push_index(made, 0, NULL), RSD_E_UNSUPPORTED);
    assert_int_equal(add(made, "x", NULL), RSD_OK);
    assert_int_equal(strlen(made->tensor[0].spot.name), 2 * 256 + 1);
    rsd_state_free(made);
}

static void calls_that_make_no_sense_are_refused(void **state)
{
    const rsd_view whole = fix_whole(2, shape, data);
    rsd_state     *made = make();
    int64_t        bad[] = { 2, -3 };

    (void)state;
    assert_int_equal(rsd_state_create(NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_state_push(NULL, "a", NULL), RSD_E_INVALID);
    assert_int_equal(rsd_state_push(made, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_state_push_index(made, -1, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_state_pop(NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_state_value(made, "x", NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_state_tensor(NULL, "x", NULL, RSD_I32, 2, shape, 1, &whole, NULL),
                     RSD_E_INVALID);
    assert_int_equal(rsd_state_tensor(made, "x", NULL, RSD_I32, 2, shape, 1, NULL, NULL),
                     RSD_E_INVALID);
    assert_int_equal(rsd_state_tensor(made, "x", NULL, (rsd_dtype)99, 2, shape, 1, &whole, NULL),
                     RSD_E_INVALID);
    assert_int_equal(rsd_state_tensor(made, "x", NULL, RSD_I32, 2, bad, 1, &whole, NULL),
                     RSD_E_INVALID);
    assert_int_equal(made->ntensors, 0);
    rsd_state_free(NULL);
    rsd_state_free(made);
}

static void assert_view_refused(const rsd_view *view, const char *text)
{
    rsd_state *made = make();
    rsd_error  err = { 0 };

    assert_int_equal(rsd_state_tensor(made, "x", NULL, RSD_I32, 2, shape, 1, view, &err),
                     RSD_E_INVALID);
    if (!strstr(err.msg, text))
        fail_msg("\"%s\" has no \"%s\"", err.msg, text);
    assert_int_equal(add(made, "x", NULL), RSD_OK); /* the name is still free */
    rsd_state_free(made);
}

static void views_that_do_not_fit_are_refused(void **state)
{
    const rsd_view outside = { .box = fix_box2(0, 1, 2, 3), .data = data };
    const rsd_view flat = { .box = fix_box1(0, 6), .data = data };
    const rsd_view nowhere = { .box = fix_box2(0, 0, 2, 3) };

    (void)state;
    assert_view_refused(&outside, "tensor \"x\": view 0: ");
    assert_view_refused(&flat, "tensor \"x\": view 0: ");
    assert_view_refused(&nowhere, "tensor \"x\": view 0 has neither memory nor callbacks");
}

static void an_empty_view_needs_no_memory(void **state)
{
    const rsd_view empty = { .box = fix_box2(2, 0, 0, 3) };
    rsd_state     *made = make();

    (void)state;
    assert_int_equal(rsd_state_tensor(made, "x", NULL, RSD_I32, 2, shape, 1, &empty, NULL), RSD_OK);
    rsd_state_free(made);
}

static void strides_of_packed_views_are_spelled_out(void **state)
{
    const rsd_view views[] = { { .box = fix_box2(0, 0, 1, 3), .data = data },
                               { .box = fix_box2(1, 0, 1, 3), .data = data, .stride = { 4, 8 } } };
    rsd_state     *made = make();

    (void)state;
    assert_int_equal(rsd_state_tensor(made, "x", NULL, RSD_I32, 2, shape, 2, views, NULL), RSD_OK);
    assert_int_equal(made->tensor[0].views.view[0].stride[0], 12);
    assert_int_equal(made->tensor[0].views.view[0].stride[1], 4);
    assert_int_equal(made->tensor[0].views.view[1].stride[0], 4);
    assert_int_equal(made->tensor[0].views.view[1].stride[1], 8);
    rsd_state_free(made);
}

static void assert_layout_refused(rsd_layout *layout, rsd_err code, const char *text)
{
    const rsd_view whole = fix_whole(2, shape, data);
    rsd_state     *made = make();
    rsd_error      err = { 0 };

    assert_int_equal(rsd_state_tensor(made, "x", layout, RSD_I32, 2, shape, 1, &whole, &err), code);
    assert_non_null(strstr(err.msg, text));
    rsd_state_free(made);
    rsd_layout_free(layout);
}

static void layouts_of_other_tensors_are_refused(void **state)
{
    const int64_t wide[] = { 2, 4 }, flat[] = { 6 };
    const char   *rules = "mesh tp=2; * shard(0)@tp";

    (void)state;
    assert_layout_refused(fix_layout(rules, RSD_F32, 2, shape), RSD_E_MISMATCH,
                          "the tensor is int32, its layout float32");
    assert_layout_refused(fix_layout(rules, RSD_I32, 2, wide), RSD_E_MISMATCH, "different shapes");
    assert_layout_refused(fix_layout(rules, RSD_I32, 1, flat), RSD_E_MISMATCH, "different shapes");
}

static void a_partial_layout_is_refused(void **state)
{
    (void)state;
    assert_layout_refused(fix_layout("mesh tp=2; * partial(sum)@tp", RSD_I32, 2, shape),
                          RSD_E_UNSUPPORTED, "a partial layout can't be saved");
}

static void a_state_keeps_its_layouts(void **state)
{
    rsd_state *made = make();

    (void)state;
    fix_add_ramp(made, "x", fix_layout("mesh tp=2; * shard(0)@tp", RSD_I32, 2, shape), 2, shape,
                 data); /* frees its own */
    assert_int_equal(rsd_layout_world(made->tensor[0].layout), 2);
    rsd_state_free(made);
}

static rsd_err build(void *arg, rsd_error *err)
{
    const rsd_view whole = fix_whole(2, shape, data);
    rsd_state     *made;
    rsd_err        rc = rsd_state_create(&made, err);

    if (rc)
        return rc;
    for (int64_t i = 0; i < 20 && !rc; i++) {
        rc = rsd_state_push_index(made, i, err);
        if (!rc)
            rc = rsd_state_push(made, "deep", err);
        if (!rc)
            rc = rsd_state_tensor(made, "x", NULL, RSD_I32, 2, shape, 1, &whole, err);
        if (!rc)
            rc = rsd_state_value(made, "v", arg, err);
    }
    rsd_state_free(made);
    return rc;
}

static void adding_without_memory_fails_cleanly(void **state)
{
    const rsd_value *one;
    rsd_values      *owner;

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 1, &one, NULL), RSD_OK);
    fix_every_allocation(build, NULL, (void *)(uintptr_t)one);
    rsd_values_free(owner);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_the_keys_joined_by_dots),
        cmocka_unit_test(without_a_name_a_tensor_stands_where_the_last_push_leads),
        cmocka_unit_test(a_name_that_is_there_is_refused),
        cmocka_unit_test(pop_without_push_is_refused),
        cmocka_unit_test(nesting_has_an_end),
        cmocka_unit_test(calls_that_make_no_sense_are_refused),
        cmocka_unit_test(views_that_do_not_fit_are_refused),
        cmocka_unit_test(an_empty_view_needs_no_memory),
        cmocka_unit_test(strides_of_packed_views_are_spelled_out),
        cmocka_unit_test(layouts_of_other_tensors_are_refused),
        cmocka_unit_test(a_partial_layout_is_refused),
        cmocka_unit_test(a_state_keeps_its_layouts),
        cmocka_unit_test(adding_without_memory_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
