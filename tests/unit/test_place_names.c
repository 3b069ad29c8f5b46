/* SPDX-License-Identifier: Apache-2.0 */
/* test_place_names.c - a place of a file is told by what lies there. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "verify/place_names.h"

#include <string.h>

/* "a" of [4, 3, 2] int32 and "b" of [5] behind it. */
static rsd_ckpt *save(rsd_store *store, const char *path)
{
    const int64_t       a_shape[] = { 4, 3, 2 }, b_shape[] = { 5 };
    const rsd_save_opts opts = {
        .size = sizeof(opts), .checksum = RSD_NEVER, .store = store, .threads = 1
    };
    int32_t          a[24], b[5];
    const rsd_value *step;
    rsd_values      *owner;
    rsd_state       *state;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    fix_add_ramp(state, "a", NULL, 3, a_shape, a);
    fix_add_ramp(state, "b", NULL, 1, b_shape, b);
    assert_int_equal(rsd_value_create_int(owner, 7, &step, NULL), RSD_OK);
    if (!strstr(path, ".safetensors"))
        assert_int_equal(rsd_state_value(state, "step", step, NULL), RSD_OK);
    assert_int_equal(rsd_save(path, NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
    rsd_values_free(owner);
    return fix_open(store, path);
}

static void note(void *arg, size_t number)
{
    (void)arg;
    (void)number;
}

static void assert_text(rsd_ckpt *ckpt, uint32_t file, uint64_t off, uint64_t len, const char *want)
{
    rsi_place_names names;
    char            text[256];

    assert_int_equal(rsi_place_names_make(ckpt, &names, NULL), RSD_OK);
    assert_int_equal(rsi_place_names_text(&names, file, off, len, note, NULL, text, sizeof(text)),
                     strlen(want));
    assert_string_equal(text, want);
    rsi_place_names_release(&names);
}

static uint64_t start_of(rsd_ckpt *ckpt, const char *name, rsd_chunk *chunk)
{
    size_t t;

    assert_int_equal(rsd_ckpt_find(ckpt, name, &t, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_chunk(ckpt, t, 0, chunk, NULL), RSD_OK);
    return chunk->offset;
}

static void a_range_of_elements_is_told_as_the_smallest_box(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt = save(store, "x.safetensors");
    rsd_chunk  chunk = { .size = sizeof(chunk) };
    uint64_t   a = start_of(ckpt, "a", &chunk);

    (void)state;
    assert_text(ckpt, 0, a, 4, "tensor \"a\" [0:1, 0:1, 0:1]");
    assert_text(ckpt, 0, a + 3, 2, "tensor \"a\" [0:1, 0:1, 0:2]");
    assert_text(ckpt, 0, a + 4, 8, "tensor \"a\" [0:1, 0:2, 0:2]");
    assert_text(ckpt, 0, a + 24, 48, "tensor \"a\" [1:3, 0:3, 0:2]");
    assert_text(ckpt, 0, a + 95, 1, "tensor \"a\" [3:4, 2:3, 1:2]");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void all_that_lies_in_the_range_is_told(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt = save(store, "x.safetensors");
    rsd_chunk  chunk = { .size = sizeof(chunk) };
    uint64_t   b = start_of(ckpt, "b", &chunk);

    (void)state;
    assert_text(ckpt, 0, b - 1, 2, "tensor \"a\" [3:4, 2:3, 1:2], tensor \"b\" [0:1]");
    assert_text(ckpt, 0, 0, b + 20, "header, tensor \"a\" [0:4, 0:3, 0:2], tensor \"b\" [0:5]");
    assert_text(ckpt, 0, b + 20, 100, "padding");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void headers_of_items_objects_and_metadata_are_told(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt = save(store, "ck");
    rsi_item   span;
    rsd_chunk  chunk = { .size = sizeof(chunk) };
    uint64_t   a = start_of(ckpt, "a", &chunk);

    (void)state;
    assert_text(ckpt, 0, 0, 1, "metadata");
    assert_text(ckpt, 1, a, 4, "tensor \"a\" (not its elements)");
    assert_text(ckpt, 1, a, chunk.length, "tensor \"a\" [0:4, 0:3, 0:2]");
    assert_true(ckpt->ops->span(ckpt, 1, &span));
    assert_string_equal(span.object, "step");
    assert_text(ckpt, 1, span.off + 3, 1, "object \"step\"");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void many_tensors_are_counted(void **state)
{
    const int64_t       shape[] = { 1 };
    rsd_store          *store = fix_store();
    const rsd_save_opts opts = {
        .size = sizeof(opts), .checksum = RSD_NEVER, .store = store, .threads = 1
    };
    int32_t         data[5];
    rsd_state      *saved;
    rsd_ckpt       *ckpt;
    rsi_place_names names;
    char            text[256];

    (void)state;
    assert_int_equal(rsd_state_create(&saved, NULL), RSD_OK);
    for (int i = 0; i < 5; i++) {
        char name[2] = { (char)('a' + i), '\0' };

        fix_add_ramp(saved, name, NULL, 1, shape, &data[i]);
    }
    assert_int_equal(rsd_save("x.safetensors", NULL, saved, &opts, NULL), RSD_OK);
    ckpt = fix_open(store, "x.safetensors");
    assert_int_equal(rsi_place_names_make(ckpt, &names, NULL), RSD_OK);
    rsi_place_names_text(&names, 0, 0, 100000, note, NULL, text, sizeof(text));
    assert_string_equal(text, "header, tensor \"a\" [0:1], tensor \"b\" [0:1] and 3 more");
    rsi_place_names_release(&names);
    rsd_state_free(saved);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static rsd_err make(void *arg, rsd_error *err)
{
    rsi_place_names names = { 0 };
    rsd_err         rc = rsi_place_names_make(arg, &names, err);

    rsi_place_names_release(&names);
    return rc;
}

static void without_memory_it_fails_cleanly(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt = save(store, "ck");

    (void)state;
    fix_every_allocation(make, NULL, ckpt);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_of_elements_is_told_as_the_smallest_box),
        cmocka_unit_test(all_that_lies_in_the_range_is_told),
        cmocka_unit_test(headers_of_items_objects_and_metadata_are_told),
        cmocka_unit_test(many_tensors_are_counted),
        cmocka_unit_test(without_memory_it_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
