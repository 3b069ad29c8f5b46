/* SPDX-License-Identifier: Apache-2.0 */
/* test_stateful.c - objects that bring their own tensors and values: stateful.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"

#include <string.h>

static const int64_t four[] = { 4 };

/* A tensor, a number, and a part that is an object of its own. */
typedef struct object {
    int32_t          w[4];
    int64_t          step;
    rsd_values      *values;
    const rsd_value *value;
    struct object   *inner;
    int             *clock; /* counts what is restored */
    int              restored;
    rsd_err          fails;
} object;

static rsd_err produce(void *arg, rsd_state *state, bool loading, rsd_error *err);

static rsd_err restored(void *arg, rsd_error *err)
{
    object *o = arg;

    (void)err;
    o->step = rsd_value_int(o->value);
    o->restored = ++*o->clock;
    return o->fails;
}

static rsd_stateful table(object *o)
{
    return (rsd_stateful){
        .size = sizeof(rsd_stateful), .produce = produce, .restored = restored, .arg = o
    };
}

static rsd_err produce(void *arg, rsd_state *state, bool loading, rsd_error *err)
{
    object      *o = arg;
    rsd_view     view = fix_whole(1, four, o->w);
    rsd_stateful inner = table(o->inner);
    rsd_err      rc = rsd_state_tensor(state, "w", NULL, RSD_I32, 1, four, 1, &view, err);

    if (!loading && o->fails)
        return o->fails;
    if (!rc && loading)
        rc = rsd_state_want(state, "step", o->values, &o->value, err);
    if (!rc && !loading)
        rc = rsd_value_create_int(o->values, o->step, &o->value, err);
    if (!rc && !loading)
        rc = rsd_state_value(state, "step", o->value, err);
    if (!rc && o->inner)
        rc = rsd_state_stateful(state, "inner", &inner, err);
    return rc;
}

typedef struct pair {
    object      outer, inner;
    rsd_values *values;
    rsd_state  *state;
    rsd_store  *store;
    int         clock;
} pair;

static void open_pair(pair *p, rsd_store *store)
{
    rsd_stateful outer;

    memset(p, 0, sizeof(*p));
    p->store = store;
    assert_int_equal(rsd_values_create(&p->values, NULL), RSD_OK);
    assert_int_equal(rsd_state_create(&p->state, NULL), RSD_OK);
    p->outer.values = p->inner.values = p->values;
    p->outer.clock = p->inner.clock = &p->clock;
    p->outer.inner = &p->inner;
    outer = table(&p->outer);
    assert_int_equal(rsd_state_push(p->state, "app", NULL), RSD_OK);
    assert_int_equal(rsd_state_stateful(p->state, "opt", &outer, NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(p->state, NULL), RSD_OK);
}

static void close_pair(pair *p)
{
    rsd_state_free(p->state);
    rsd_values_free(p->values);
}

static rsd_err save_pair(void *arg, rsd_error *err)
{
    pair         *p = arg;
    rsd_save_opts opts = {
        .size = sizeof(opts), .store = p->store, .threads = 1, .overwrite = true
    };

    return rsd_save("ck", NULL, p->state, &opts, err);
}

static rsd_err load_pair(void *arg, rsd_error *err)
{
    pair         *p = arg;
    rsd_load_opts opts = { .size = sizeof(opts), .store = p->store, .threads = 1 };

    return rsd_load("ck", NULL, p->state, &opts, err);
}

static void objects_are_saved_as_they_are_then_and_restored_inner_first(void **state)
{
    rsd_store *store = fix_store();
    pair       a, b;

    (void)state;
    open_pair(&a, store);
    open_pair(&b, store);
    for (int32_t v = 1; v < 3; v++) { /* the second time they have changed */
        for (int32_t i = 0; i < 4; i++) {
            a.outer.w[i] = 10 * v + i;
            a.inner.w[i] = 100 * v + i;
        }
        a.outer.step = v;
        a.inner.step = 7 * v;
        assert_int_equal(save_pair(&a, NULL), RSD_OK);
        b.clock = 0;
        assert_int_equal(load_pair(&b, NULL), RSD_OK);
        assert_memory_equal(b.outer.w, a.outer.w, sizeof(a.outer.w));
        assert_memory_equal(b.inner.w, a.inner.w, sizeof(a.inner.w));
        assert_int_equal(b.outer.step, v);
        assert_int_equal(b.inner.step, 7 * v);
        assert_int_equal(b.inner.restored, 1);
        assert_int_equal(b.outer.restored, 2);
    }
    assert_int_equal(a.clock, 0);
    close_pair(&a);
    close_pair(&b);
    rsd_store_close(store);
}

static void what_objects_add_stands_below_their_prefix(void **state)
{
    rsd_store    *store = fix_store();
    rsd_path_part path[4];
    rsd_ckpt     *ckpt;
    size_t        t;
    pair          a;

    (void)state;
    open_pair(&a, store);
    assert_int_equal(save_pair(&a, NULL), RSD_OK);
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_find(ckpt, "app.opt.w", &t, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_find(ckpt, "app.opt.inner.w", &t, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_path(ckpt, "app.opt.inner.w", path, 4), 4);
    assert_string_equal(path[2].key, "inner");
    rsd_ckpt_close(ckpt);
    close_pair(&a);
    rsd_store_close(store);
}

static void an_object_that_fails_fails_the_save_and_is_named(void **state)
{
    rsd_store *store = fix_store();
    rsd_error  err = { .rank = -1 };
    pair       a;

    (void)state;
    open_pair(&a, store);
    a.inner.fails = RSD_E_IO;
    assert_int_equal(save_pair(&a, &err), RSD_E_IO);
    assert_non_null(strstr(err.msg, "\"inner\": it failed"));
    assert_string_equal(fix_list(store, ""), "");
    a.inner.fails = RSD_OK;
    assert_int_equal(save_pair(&a, NULL), RSD_OK);
    a.outer.fails = RSD_E_MISMATCH;
    assert_int_equal(load_pair(&a, &err), RSD_E_MISMATCH);
    close_pair(&a);
    rsd_store_close(store);
}

static rsd_err push_only(void *arg, rsd_state *state, bool loading, rsd_error *err)
{
    (void)arg, (void)loading;
    return rsd_state_push(state, "deeper", err);
}

static void an_object_that_does_not_pop_or_takes_a_name_twice_is_refused(void **state)
{
    rsd_stateful uneven = { .size = sizeof(uneven), .produce = push_only };
    rsd_store   *store = fix_store();
    rsd_error    err = { .rank = -1 };
    rsd_view     view;
    pair         a;

    (void)state;
    open_pair(&a, store);
    view = fix_whole(1, four, a.outer.w);
    assert_int_equal(rsd_state_push(a.state, "app", NULL), RSD_OK);
    assert_int_equal(rsd_state_push(a.state, "opt", NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(a.state, "w", NULL, RSD_I32, 1, four, 1, &view, NULL), 0);
    assert_int_equal(save_pair(&a, &err), RSD_E_EXISTS);
    assert_non_null(strstr(err.msg, "app.opt.w"));
    close_pair(&a);
    open_pair(&a, store);
    assert_int_equal(rsd_state_stateful(a.state, "odd", &uneven, NULL), RSD_OK);
    assert_int_equal(save_pair(&a, &err), RSD_E_INVALID);
    assert_non_null(strstr(err.msg, "unevenly"));
    close_pair(&a);
    rsd_store_close(store);
}

static void without_memory_nothing_is_lost(void **state)
{
    rsd_store *store = fix_store();
    pair       a;

    (void)state;
    open_pair(&a, store);
    fix_every_allocation(save_pair, NULL, &a);
    fix_every_allocation(load_pair, NULL, &a);
    close_pair(&a);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_saved_as_they_are_then_and_restored_inner_first),
        cmocka_unit_test(what_objects_add_stands_below_their_prefix),
        cmocka_unit_test(an_object_that_fails_fails_the_save_and_is_named),
        cmocka_unit_test(an_object_that_does_not_pop_or_takes_a_name_twice_is_refused),
        cmocka_unit_test(without_memory_nothing_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
