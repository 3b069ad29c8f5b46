/* SPDX-License-Identifier: Apache-2.0 */
/* test_verify.c - a checkpoint is gone through and everything that is wrong is told once, in the
 * order of the catalogue. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DAMAGES = 8 };

typedef struct damages {
    rsd_error at[DAMAGES];
    size_t    n;
} damages;

static void note(void *arg, const rsd_error *what)
{
    damages *d = arg;

    assert_true(d->n < DAMAGES);
    d->at[d->n++] = *what;
}

/* "a" of [4, 3] on two ranks, "b" of [5], "c" of [2, 2]; "step" 1234567 and "text". */
static void save(rsd_store *store, const char *path, const char *transform)
{
    const int64_t       a_shape[] = { 4, 3 }, b_shape[] = { 5 }, c_shape[] = { 2, 2 };
    const rsd_save_opts opts = { .size = sizeof(opts),
                                 .checksum = RSD_NEVER,
                                 .store = store,
                                 .threads = 1,
                                 .transform = transform };
    int32_t             a[12], b[5], c[4];
    const rsd_value    *step, *text;
    rsd_values         *owner;
    rsd_state          *state;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    fix_add_ramp(state, "a", fix_layout("mesh tp=2; * shard(0)@tp", RSD_I32, 2, a_shape), 2,
                 a_shape, a);
    fix_add_ramp(state, "b", NULL, 1, b_shape, b);
    fix_add_ramp(state, "c", NULL, 2, c_shape, c);
    if (!strstr(path, ".safetensors")) {
        assert_int_equal(rsd_value_create_int(owner, 1234567, &step, NULL), RSD_OK);
        assert_int_equal(rsd_value_create_bytes(owner, RSD_VALUE_STR, "cosine", 6, &text, NULL),
                         RSD_OK);
        assert_int_equal(rsd_state_value(state, "step", step, NULL), RSD_OK);
        assert_int_equal(rsd_state_value(state, "text", text, NULL), RSD_OK);
    }
    assert_int_equal(rsd_save(path, NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
    rsd_values_free(owner);
}

static void verify(rsd_ckpt *ckpt, int32_t threads, damages *found)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .threads = threads };
    size_t              count = 99;

    found->n = 0;
    assert_int_equal(rsd_ckpt_verify(ckpt, &opts, note, found, &count, NULL), RSD_OK);
    assert_int_equal(count, found->n);
}

static void assert_clean(const char *path, const char *transform)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt;
    damages    found;

    save(store, path, transform);
    ckpt = fix_open(store, path);
    verify(ckpt, 2, &found);
    assert_int_equal(found.n, 0);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void what_was_just_saved_is_clean(void **state)
{
    (void)state;
    assert_clean("ck", NULL);
    assert_clean("ck", "stream.zstd");
    assert_clean("ck.pt", NULL);
    assert_clean("ck.safetensors", NULL);
}

/* Turns a byte in the data of chunk i of a tensor. */
static void damage(rsd_store *store, rsd_ckpt *ckpt, const char *top, const char *name, size_t i)
{
    char      path[64];
    int64_t   stride[RSD_MAX_NDIM];
    uint64_t  at;
    rsd_chunk chunk = { .size = sizeof(chunk) };
    size_t    t;

    assert_int_equal(rsd_ckpt_find(ckpt, name, &t, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_chunk(ckpt, t, i, &chunk, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_extent(ckpt, t, i, &at, stride, NULL), RSD_OK);
    snprintf(path, sizeof(path), "%s%s", top, chunk.file);
    fix_flip(store, path, at + 3);
}

static void a_flipped_byte_is_told_once_with_tensor_and_file(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt;
    damages    found;

    (void)state;
    save(store, "ck", NULL);
    ckpt = fix_open(store, "ck");
    damage(store, ckpt, "ck/", "a", 1);
    verify(ckpt, 1, &found);
    assert_int_equal(found.n, 1);
    assert_int_equal(found.at[0].code, RSD_E_CORRUPT);
    assert_non_null(strstr(found.at[0].msg, "tensor \"a\": file \"__1_0.distcp\""));
    assert_non_null(strstr(found.at[0].msg, "CRC32"));
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_flipped_byte_of_a_torch_file_is_told(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt;
    damages    found;

    (void)state;
    save(store, "ck.pt", NULL);
    ckpt = fix_open(store, "ck.pt");
    damage(store, ckpt, "", "b", 0);
    verify(ckpt, 1, &found);
    assert_int_equal(found.n, 1);
    assert_non_null(strstr(found.at[0].msg, "tensor \"b\": file \"ck.pt\""));
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_flipped_byte_of_a_transformed_item_is_told(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt;
    rsd_chunk  chunk = { .size = sizeof(chunk) };
    damages    found;

    (void)state;
    save(store, "ck", "stream.zstd");
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_chunk(ckpt, 1, 0, &chunk, NULL), RSD_OK);
    fix_flip(store, "ck/__0_0.distcp", chunk.offset + chunk.length / 2);
    verify(ckpt, 1, &found);
    assert_int_equal(found.n, 1);
    assert_non_null(strstr(found.at[0].msg, "tensor \"b\": file \"__0_0.distcp\""));
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void damages_are_told_in_the_order_of_the_catalogue(void **state)
{
    static const char *const want[] = { "tensor \"a\": file \"__0_0", "tensor \"a\": file \"__1_0",
                                        "tensor \"b\"", "tensor \"c\"" };
    rsd_store               *store = fix_store();
    rsd_ckpt                *ckpt;
    damages                  found;

    (void)state;
    save(store, "ck", NULL);
    ckpt = fix_open(store, "ck");
    damage(store, ckpt, "ck/", "c", 0);
    damage(store, ckpt, "ck/", "a", 1);
    damage(store, ckpt, "ck/", "b", 0);
    damage(store, ckpt, "ck/", "a", 0);
    for (int round = 0; round < 20; round++) {
        verify(ckpt, 2, &found);
        assert_int_equal(found.n, 4);
        for (size_t i = 0; i < 4; i++)
            assert_non_null(strstr(found.at[i].msg, want[i]));
    }
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* Where `text` stands in a file. */
static uint64_t find_bytes(rsd_store *store, const char *name, const void *text, size_t len)
{
    size_t         n;
    unsigned char *bytes = fix_get(store, name, &n), *hit = memmem(bytes, n, text, len);
    uint64_t       at = (uint64_t)(hit - bytes);

    assert_non_null(hit);
    free(bytes);
    return at;
}

static void a_broken_object_is_told_behind_the_tensors(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt;
    damages    found;

    (void)state;
    save(store, "ck", NULL);
    ckpt = fix_open(store, "ck");
    damage(store, ckpt, "ck/", "c", 0);
    /* The first opcode of its pickle, "J" for four bytes, and 1234567. */
    fix_flip(store, "ck/__0_0.distcp",
             find_bytes(store, "ck/__0_0.distcp", "\x80\x02J\x87\xd6\x12", 6) + 2);
    verify(ckpt, 2, &found);
    assert_int_equal(found.n, 2);
    assert_non_null(strstr(found.at[0].msg, "tensor \"c\""));
    assert_non_null(strstr(found.at[1].msg, "object \"step\""));
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* Still a pickle, but of another number: only the CRC32 of data.pkl tells. */
static void an_object_with_another_value_is_told(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt;
    damages    found;

    (void)state;
    save(store, "ck", NULL);
    ckpt = fix_open(store, "ck");
    fix_flip(store, "ck/__0_0.distcp",
             find_bytes(store, "ck/__0_0.distcp", "\x80\x02J\x87\xd6\x12", 6) + 4);
    verify(ckpt, 1, &found);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    assert_int_equal(found.n, 1);
    assert_non_null(strstr(found.at[0].msg, "object \"step\""));
}

static void an_object_of_a_torch_file_with_another_value_is_told(void **state)
{
    rsd_store *store = fix_store();
    rsd_error  err = { 0 };
    rsd_ckpt  *ckpt = NULL;
    damages    found = { .n = 0 };

    (void)state;
    save(store, "ck.pt", NULL);
    fix_flip(store, "ck.pt", find_bytes(store, "ck.pt", "J\x87\xd6\x12", 4) + 2);
    if (!rsd_ckpt_open(store, "ck.pt", &ckpt, &err)) /* refusing it is as good */
        verify(ckpt, 1, &found);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    assert_int_equal(found.n + (err.code != 0), 1);
}

/* A tensor in a dict whose keys are no names is part of an object, and a record of its own. */
static void a_tensor_inside_an_object_of_a_torch_file_is_checked(void **state)
{
    static const int32_t   data[] = { 10, 11, 12, 13 };
    const rsd_value_tensor tensor = { .dtype = RSD_I32,
                                      .ndim = 1,
                                      .shape = { 4 },
                                      .stride = { 1 },
                                      .storage_bytes = 16,
                                      .storage = "0",
                                      .location = "cpu" };
    rsd_store             *store = fix_store();
    const rsd_value       *pair[2], *dict;
    rsd_values            *owner;
    fix_bytes              file;
    rsd_error              err = { 0 };
    rsd_ckpt              *ckpt = NULL;
    damages                found = { .n = 0 };

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_float(owner, 0.5, &pair[0], NULL), RSD_OK);
    assert_int_equal(rsd_value_create_tensor(owner, &tensor, &pair[1], NULL), RSD_OK);
    assert_int_equal(rsd_value_create_list(owner, RSD_VALUE_DICT, 1, pair, &dict, NULL), RSD_OK);
    file = fix_value_item(dict, data, sizeof(data));
    fix_put(store, "x.pt", file.at, file.len);
    fix_flip(store, "x.pt", find_bytes(store, "x.pt", data, 16) + 1);
    if (!rsd_ckpt_open(store, "x.pt", &ckpt, &err)) /* refusing it is as good */
        verify(ckpt, 1, &found);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    rsd_values_free(owner);
    free(file.at);
    assert_int_equal(found.n + (err.code == RSD_E_CORRUPT), 1);
}

static void a_read_that_fails_is_a_damage(void **state)
{
    rsd_store *inner = fix_store(), *store;
    fix_counts counts = { 0 };
    rsd_ckpt  *ckpt;
    damages    found;

    (void)state;
    save(inner, "ck", NULL);
    store = fix_counting_store(inner, &counts);
    ckpt = fix_open(store, "ck");
    counts = (fix_counts){ .fail_at = 1 };
    verify(ckpt, 1, &found);
    assert_int_equal(found.n, 1);
    assert_int_equal(found.at[0].code, RSD_E_IO);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    rsd_store_close(inner);
}

/* ---- progress ---- */

typedef struct watched {
    int64_t done, total;
    int     calls, stop_at; /* 0: never */
} watched;

static int watch(void *arg, int64_t done, int64_t total)
{
    watched *w = arg;

    assert_true(done >= w->done && done <= total);
    w->done = done;
    w->total = total;
    return ++w->calls == w->stop_at;
}

static rsd_err verify_watched(const char *path, bool seal, const char *transform, watched *w)
{
    const rsd_read_opts opts = {
        .size = sizeof(opts), .threads = 2, .on_progress = watch, .arg = w
    };
    rsd_store *store = fix_store();
    size_t     count = 99;
    rsd_ckpt  *ckpt;
    rsd_err    rc;

    save(store, path, transform);
    if (seal)
        assert_int_equal(rsd_ckpt_add_checksums(store, path, NULL, NULL), RSD_OK);
    ckpt = fix_open(store, path);
    assert_int_equal(rsd_ckpt_has_checksums(ckpt), seal);
    rc = rsd_ckpt_verify(ckpt, &opts, NULL, NULL, &count, NULL);
    assert_int_equal(count, rc ? 99 : 0);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    return rc;
}

static void progress_ends_at_the_bytes_to_check(void **state)
{
    static const struct {
        const char *path, *transform;
        bool        seal;
    } cases[] = { { "ck", NULL, false },           { "ck", NULL, true },
                  { "ck.pt", NULL, false },        { "ck.pt", NULL, true },
                  { "ck", "stream.zstd", false },  { "ck", "stream.zstd", true },
                  { "ck.safetensors", NULL, true } };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        watched w = { 0 };

        assert_int_equal(verify_watched(cases[i].path, cases[i].seal, cases[i].transform, &w),
                         RSD_OK);
        assert_true(w.total >= 21 * 4);
        assert_int_equal(w.done, w.total);
    }
}

static void verifying_can_be_canceled(void **state)
{
    watched alone = { .stop_at = 2 }, rows = { .stop_at = 6 };

    (void)state;
    assert_int_equal(verify_watched("ck", false, NULL, &alone), RSD_E_CANCELED);
    assert_int_equal(verify_watched("ck", true, NULL, &rows), RSD_E_CANCELED);
}

static void nobody_needs_to_listen(void **state)
{
    rsd_store *store = fix_store();
    rsd_ckpt  *ckpt;
    size_t     count;

    (void)state;
    save(store, "ck", NULL);
    ckpt = fix_open(store, "ck");
    damage(store, ckpt, "ck/", "b", 0);
    assert_int_equal(rsd_ckpt_verify(ckpt, NULL, NULL, NULL, &count, NULL), RSD_OK);
    assert_int_equal(count, 1);
    assert_int_equal(rsd_ckpt_verify(ckpt, NULL, NULL, NULL, NULL, NULL), RSD_OK);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static rsd_err verify_all(void *arg, rsd_error *err)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .threads = 1 };
    damages             found = { .n = 0 };
    size_t              count = 0;
    rsd_err             rc = rsd_ckpt_verify(arg, &opts, note, &found, &count, err);

    assert_int_equal(found.n, rc ? 0 : 1); /* no memory is no damage */
    return rc;
}

static void verifying_without_memory_fails_cleanly(void **state)
{
    static const char *const transforms[] = { NULL, "stream.zstd" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        rsd_store *store = fix_store();
        rsd_ckpt  *ckpt;
        rsd_chunk  chunk = { .size = sizeof(chunk) };

        save(store, "ck", transforms[i]);
        ckpt = fix_open(store, "ck");
        assert_int_equal(rsd_ckpt_chunk(ckpt, 1, 0, &chunk, NULL), RSD_OK);
        fix_flip(store, "ck/__0_0.distcp", chunk.offset + (transforms[i] ? chunk.length / 2 : 0));
        fix_every_allocation(verify_all, NULL, ckpt);
        rsd_ckpt_close(ckpt);
        rsd_store_close(store);
        assert_int_equal(rsi_mem_stats_get().bytes, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_just_saved_is_clean),
        cmocka_unit_test(a_flipped_byte_is_told_once_with_tensor_and_file),
        cmocka_unit_test(a_flipped_byte_of_a_torch_file_is_told),
        cmocka_unit_test(a_flipped_byte_of_a_transformed_item_is_told),
        cmocka_unit_test(damages_are_told_in_the_order_of_the_catalogue),
        cmocka_unit_test(a_broken_object_is_told_behind_the_tensors),
        cmocka_unit_test(an_object_with_another_value_is_told),
        cmocka_unit_test(an_object_of_a_torch_file_with_another_value_is_told),
        cmocka_unit_test(a_tensor_inside_an_object_of_a_torch_file_is_checked),
        cmocka_unit_test(a_read_that_fails_is_a_damage),
        cmocka_unit_test(progress_ends_at_the_bytes_to_check),
        cmocka_unit_test(verifying_can_be_canceled),
        cmocka_unit_test(nobody_needs_to_listen),
        cmocka_unit_test(verifying_without_memory_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
