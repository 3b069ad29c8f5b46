/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt_api.c - the checkpoint section of the public header: arguments, options, layouts. What
 * is read is test_fetch.c's. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"

#include <string.h>

/* "w" [4, 6] in columns on two ranks, "step" 5. */
static void save(rsd_store *store, const char *path, const char *transform)
{
    const int64_t       shape[] = { 4, 6 };
    const rsd_save_opts opts = {
        .size = sizeof(opts), .store = store, .threads = 1, .transform = transform
    };
    int32_t          data[24];
    const rsd_value *five;
    rsd_values      *owner;
    rsd_state       *state;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 5, &five, NULL), RSD_OK);
    fix_add_ramp(state, "w", fix_layout("mesh tp=2; * shard(1)@tp", RSD_I32, 2, shape), 2, shape,
                 data);
    if (!strstr(path, ".safetensors"))
        assert_int_equal(rsd_state_value(state, "step", five, NULL), RSD_OK);
    assert_int_equal(rsd_save(path, NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
    rsd_values_free(owner);
}

static void calls_that_make_no_sense_are_refused(void **state)
{
    rsd_store       *store = fix_store();
    rsd_view         view = { .box = fix_box2(0, 0, 4, 6) };
    rsd_tensor_info  info = { .size = sizeof(info) };
    rsd_chunk        chunk = { .size = sizeof(chunk) };
    rsd_values      *owner;
    const rsd_value *value;
    const char      *name;
    uint64_t         at;
    int64_t          stride[2];
    rsd_layout      *layout;
    rsd_ckpt        *ckpt;
    rsd_error        err;
    size_t           t;

    (void)state;
    save(store, "ck", NULL);
    assert_int_equal(rsd_ckpt_open(store, NULL, &ckpt, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_open(store, "ck", NULL, NULL), RSD_E_INVALID);
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_tensor(NULL, 0, &info, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_tensor(ckpt, 1, &info, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "no tensor 1: the checkpoint has 1");
    assert_int_equal(rsd_ckpt_tensor(ckpt, 0, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_find(ckpt, NULL, &t, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_find(ckpt, "w", NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_find(ckpt, "v", &t, &err), RSD_E_NOTFOUND);
    assert_string_equal(err.msg, "the checkpoint has no tensor \"v\"");
    assert_int_equal(rsd_ckpt_chunk(ckpt, 0, 2, &chunk, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "tensor \"w\" has no chunk 2, it has 2");
    assert_int_equal(rsd_ckpt_chunk(ckpt, 0, 0, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_extent(ckpt, 0, 2, &at, stride, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_extent(ckpt, 0, 0, NULL, stride, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_layout(ckpt, 1, &layout, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_layout(ckpt, 0, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_read(ckpt, 1, &view, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_read(ckpt, 0, NULL, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_object(ckpt, 1, &name, NULL, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_object(ckpt, 0, NULL, NULL, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_object(ckpt, 0, &name, owner, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_object(NULL, 0, &name, owner, &value, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_ckpt_verify(NULL, NULL, NULL, NULL, NULL, NULL), RSD_E_INVALID);
    rsd_values_free(owner);
    rsd_ckpt_close(ckpt);
    rsd_ckpt_close(NULL);
    rsd_store_close(store);
}

static void what_is_not_there_is_not_found(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    fix_refused(store, "ck", RSD_E_NOTFOUND, "ck");
    fix_refused(NULL, "/nowhere/at/all", RSD_E_NOTFOUND, "/nowhere/at/all");
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static void names_of_objects_need_no_owner(void **state)
{
    rsd_store  *store = fix_store();
    rsd_ckpt   *ckpt;
    const char *name;

    (void)state;
    save(store, "ck", NULL);
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_objects(ckpt), 1);
    assert_int_equal(rsd_ckpt_object(ckpt, 0, &name, NULL, NULL, NULL), RSD_OK);
    assert_string_equal(name, "step");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void the_layout_gives_each_chunk_to_its_number(void **state)
{
    rsd_store  *store = fix_store();
    rsd_layout *layout;
    rsd_ckpt   *ckpt;
    rsd_box     box;
    char        text[64];

    (void)state;
    save(store, "ck", NULL);
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_layout(ckpt, 0, &layout, NULL), RSD_OK);
    assert_int_equal(rsd_layout_world(layout), 2);
    assert_int_equal(rsd_layout_dtype(layout), RSD_I32);
    assert_int_equal(rsd_layout_boxes(layout, 1, &box, 1), 1);
    rsd_box_text(&box, text, sizeof(text));
    assert_string_equal(text, "[0:4, 3:6]");
    rsd_layout_free(layout);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void an_extent_leads_to_the_elements(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt;
    int64_t    stride[2];
    int32_t    element;
    uint64_t   at;

    (void)state;
    save(store, "ck", NULL);
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_extent(ckpt, 0, 1, &at, stride, NULL), RSD_OK);
    assert_int_equal(stride[0], 12);
    assert_int_equal(stride[1], 4);
    assert_int_equal(rsi_store_read_all(store, "ck/__1_0.distcp", at + 16, &element, 4, NULL),
                     RSD_OK);
    assert_int_equal(element, 10); /* row 1, column 4 */
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_transformed_chunk_has_no_extent(void **state)
{
    rsd_store *store = fix_store();
    rsd_chunk  chunk = { .size = sizeof(chunk) };
    rsd_ckpt  *ckpt;
    int64_t    stride[2];
    uint64_t   at;

    (void)state;
    save(store, "ck", "stream.zstd");
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_extent(ckpt, 0, 0, &at, stride, NULL), RSD_E_UNSUPPORTED);
    assert_int_equal(rsd_ckpt_chunk(ckpt, 0, 0, &chunk, NULL), RSD_OK);
    assert_int_equal(chunk.ntransforms, 1);
    assert_int_equal(strncmp(chunk.transforms[0], "stream.zstd/", 12), 0);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* A program that was compiled with fewer options: what it does not know stays the default. */
static void options_are_read_as_far_as_the_caller_knows_them(void **state)
{
    rsd_read_opts opts = { .size = offsetof(rsd_read_opts, threads),
                           .threads = -5,
                           .max_memory = 1 };
    rsd_store    *store = fix_store();
    rsd_ckpt     *ckpt;
    int32_t       out[24];
    rsd_view      view = { .box = fix_box2(0, 0, 4, 6), .data = out };

    (void)state;
    save(store, "ck", NULL);
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, &opts, NULL), RSD_OK);
    assert_int_equal(out[23], 23);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* ---- the nth allocation fails ---- */

static rsd_err use(void *arg, rsd_error *err)
{
    rsd_layout      *layout = NULL;
    rsd_values      *owner = NULL;
    const rsd_value *value;
    const char      *name;
    int64_t          stride[2];
    uint64_t         at;
    rsd_err          rc = rsd_ckpt_layout(arg, 0, &layout, err);

    if (!rc)
        rc = rsd_ckpt_extent(arg, 0, 1, &at, stride, err);
    if (!rc)
        rc = rsd_values_create(&owner, err);
    if (!rc)
        rc = rsd_ckpt_object(arg, 0, &name, owner, &value, err);
    rsd_values_free(owner);
    rsd_layout_free(layout);
    return rc;
}

static void asking_without_memory_fails_cleanly(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt;

    (void)state;
    save(store, "ck", NULL);
    ckpt = fix_open(store, "ck");
    fix_every_allocation(use, NULL, ckpt);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

static rsd_err open_transformed(void *arg, rsd_error *err)
{
    int32_t   out[24];
    rsd_view  view = { .box = fix_box2(0, 0, 4, 6), .data = out };
    rsd_ckpt *ckpt;
    rsd_err   rc = rsd_ckpt_open(arg, "ck", &ckpt, err);

    if (!rc) {
        rc = rsd_ckpt_read(ckpt, 0, &view, NULL, err);
        rsd_ckpt_close(ckpt);
    }
    return rc;
}

static void opening_and_reading_without_memory_fails_cleanly(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    save(store, "ck", "stream.zstd");
    fix_every_allocation(open_transformed, NULL, store);
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_make_no_sense_are_refused),
        cmocka_unit_test(what_is_not_there_is_not_found),
        cmocka_unit_test(names_of_objects_need_no_owner),
        cmocka_unit_test(the_layout_gives_each_chunk_to_its_number),
        cmocka_unit_test(an_extent_leads_to_the_elements),
        cmocka_unit_test(a_transformed_chunk_has_no_extent),
        cmocka_unit_test(options_are_read_as_far_as_the_caller_knows_them),
        cmocka_unit_test(asking_without_memory_fails_cleanly),
        cmocka_unit_test(opening_and_reading_without_memory_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
