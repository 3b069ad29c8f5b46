/* SPDX-License-Identifier: Apache-2.0 */
/* test_save_api.c - rsd_save: the whole checkpoint or nothing, the same bytes every time, refusals
 * before anything is written. In memory and in folders. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int32_t a_data[24], b_data[30], c_data[10];

/* "a" [4, 6] in columns on 3 ranks, "n.b" [30] on 4 ranks unevenly, "n.c" [10] replicated; values
 * if there is an owner. */
static rsd_state *make(rsd_values *owner)
{
    const int64_t    a[] = { 4, 6 }, b[] = { 30 }, c[] = { 10 };
    const rsd_value *step, *text;
    rsd_state       *state;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    fix_add_ramp(state, "a", fix_layout("mesh tp=3; * shard(1)@tp", RSD_I32, 2, a), 2, a, a_data);
    assert_int_equal(rsd_state_push(state, "n", NULL), RSD_OK);
    fix_add_ramp(state, "b", fix_layout("mesh tp=4; * shard(0)@tp", RSD_I32, 1, b), 1, b, b_data);
    fix_add_ramp(state, "c", fix_layout("mesh tp=4; * replicate", RSD_I32, 1, c), 1, c, c_data);
    if (owner) {
        assert_int_equal(rsd_value_create_int(owner, 1234567, &step, NULL), RSD_OK);
        assert_int_equal(rsd_value_create_bytes(owner, RSD_VALUE_STR, "cosine", 6, &text, NULL),
                         RSD_OK);
        assert_int_equal(rsd_state_value(state, "step", step, NULL), RSD_OK);
        assert_int_equal(rsd_state_value(state, "text", text, NULL), RSD_OK);
    }
    assert_int_equal(rsd_state_pop(state, NULL), RSD_OK);
    return state;
}

static rsd_err save(rsd_store *store, const char *path, bool values, rsd_save_opts opts,
                    rsd_error *err)
{
    rsd_values *owner = NULL;
    rsd_state  *state;
    rsd_err     rc;

    if (values)
        assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    state = make(owner);
    opts.size = sizeof(opts);
    opts.store = store;
    rc = rsd_save(path, NULL, state, &opts, err);
    rsd_state_free(state);
    rsd_values_free(owner);
    return rc;
}

static void assert_ramp(rsd_ckpt *ckpt, const char *name, int64_t n)
{
    rsd_tensor_info info = { .size = sizeof(info) };
    int32_t         out[64];
    rsd_view        view = { .data = out };
    size_t          t;

    assert_int_equal(rsd_ckpt_find(ckpt, name, &t, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_tensor(ckpt, t, &info, NULL), RSD_OK);
    assert_int_equal(info.bytes, 4 * n);
    view = fix_whole(info.ndim, info.shape, out);
    assert_int_equal(rsd_ckpt_read(ckpt, t, &view, NULL, NULL), RSD_OK);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(out[i], i);
}

static void assert_saved(rsd_store *store, const char *path)
{
    rsd_ckpt *ckpt = fix_open(store, path);

    assert_int_equal(rsd_ckpt_tensors(ckpt), 3);
    assert_ramp(ckpt, "a", 24);
    assert_ramp(ckpt, "n.b", 30);
    assert_ramp(ckpt, "n.c", 10);
    rsd_ckpt_close(ckpt);
}

typedef struct kind {
    const char   *path;
    bool          values;
    rsd_save_opts opts;
} kind;

static const kind kinds[] = {
    { "ck", true, { 0 } },
    { "ck", true, { .transform = "stream.zstd" } },
    { "ck", false, { .format = RSD_FORMAT_SAFETENSORS } },
    { "ck", false, { .format = RSD_FORMAT_SAFETENSORS, .shard_size = 120 } },
    { "ck", false, { .format = RSD_FORMAT_SAFETENSORS, .distributed = true } },
    { "ck.safetensors", false, { 0 } },
    { "ck.pt", true, { 0 } },
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* What lies where the checkpoint does: it, and the checksum file of a single one. */
static const char *beside(const kind *k)
{
    static char text[64];

    snprintf(text, sizeof(text), strchr(k->path, '.') && fix_has_sums() ? "%s %s%s" : "%s", k->path,
             k->path, FIX_SUMS);
    return text;
}

static void everything_comes_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        rsd_store *store = fix_store();

        assert_int_equal(save(store, kinds[i].path, kinds[i].values, kinds[i].opts, NULL), RSD_OK);
        assert_string_equal(fix_list(store, ""), beside(&kinds[i]));
        assert_saved(store, kinds[i].path);
        rsd_store_close(store);
    }
}

/* The folder that a checkpoint is in, or the top for a single file. */
static const char *folder_of(const kind *k)
{
    return strchr(k->path, '.') ? "" : k->path;
}

static void the_same_state_gives_the_same_bytes_with_any_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        uint32_t first = 0;

        for (int32_t threads = 1; threads <= 4; threads++) {
            rsd_store    *store = fix_store();
            rsd_save_opts opts = kinds[i].opts;
            uint32_t      sum;

            opts.threads = threads > 2 ? 2 : threads;
            assert_int_equal(save(store, kinds[i].path, kinds[i].values, opts, NULL), RSD_OK);
            sum = fix_sum(store, folder_of(&kinds[i]));
            first = threads == 1 ? sum : first;
            assert_int_equal(sum, first);
            rsd_store_close(store);
        }
    }
}

static void the_end_of_the_path_says_the_format(void **state)
{
    static const struct {
        const char *path;
        rsd_format  format;
    } ends[] = { { "x.safetensors", RSD_FORMAT_SAFETENSORS },
                 { "x.pt", RSD_FORMAT_TORCH },
                 { "x.pth", RSD_FORMAT_TORCH },
                 { "x.bin", RSD_FORMAT_TORCH },
                 { "x", RSD_FORMAT_DCP },
                 { "x.ckpt", RSD_FORMAT_DCP } };

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        rsd_store *store = fix_store();
        rsd_ckpt  *ckpt;

        assert_int_equal(save(store, ends[i].path, false, (rsd_save_opts){ 0 }, NULL), RSD_OK);
        ckpt = fix_open(store, ends[i].path);
        assert_int_equal(rsd_ckpt_format(ckpt), ends[i].format);
        rsd_ckpt_close(ckpt);
        rsd_store_close(store);
    }
}

static void data_in_every_file_are_aligned_to_64_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        rsd_store *store = fix_store();
        rsd_ckpt  *ckpt;

        if (kinds[i].opts.transform) {
            rsd_store_close(store);
            continue;
        }
        assert_int_equal(save(store, kinds[i].path, kinds[i].values, kinds[i].opts, NULL), RSD_OK);
        ckpt = fix_open(store, kinds[i].path);
        for (size_t t = 0; rsd_ckpt_format(ckpt) == RSD_FORMAT_DCP && t < 3; t++) {
            rsd_tensor_info info = { .size = sizeof(info) };

            assert_int_equal(rsd_ckpt_tensor(ckpt, t, &info, NULL), RSD_OK);
            for (size_t c = 0; c < info.chunks; c++) {
                int64_t  stride[RSD_MAX_NDIM];
                uint64_t at;

                assert_int_equal(rsd_ckpt_extent(ckpt, t, c, &at, stride, NULL), RSD_OK);
                assert_int_equal(at % 64, 0);
            }
        }
        rsd_ckpt_close(ckpt);
        rsd_store_close(store);
    }
}

static void a_replicated_tensor_is_stored_once(void **state)
{
    rsd_store          *store = fix_store();
    const rsd_save_opts opts = { .checksum = RSD_NEVER };
    rsd_tensor_info     info = { .size = sizeof(info) };
    rsd_ckpt           *ckpt;
    size_t              t;

    (void)state;
    assert_int_equal(save(store, "ck", false, opts, NULL), RSD_OK);
    ckpt = fix_open(store, "ck");
    assert_int_equal(rsd_ckpt_find(ckpt, "n.c", &t, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_tensor(ckpt, t, &info, NULL), RSD_OK);
    assert_int_equal(info.chunks, 1);
    assert_string_equal(fix_list(store, "ck"),
                        ".metadata __0_0.distcp __1_0.distcp __2_0.distcp __3_0.distcp");
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void files_of_safetensors_are_split_at_their_size(void **state)
{
    rsd_store          *store = fix_store();
    const rsd_save_opts opts = { .format = RSD_FORMAT_SAFETENSORS,
                                 .shard_size = 120,
                                 .checksum = RSD_NEVER };
    unsigned char      *index;
    size_t              len;

    (void)state;
    assert_int_equal(save(store, "ck", false, opts, NULL), RSD_OK); /* 96, 120 and 40 bytes */
    assert_string_equal(fix_list(store, "ck"),
                        "model-00001-of-00003.safetensors model-00002-of-00003.safetensors "
                        "model-00003-of-00003.safetensors model.safetensors.index.json");
    index = fix_get(store, "ck/model.safetensors.index.json", &len);
    assert_non_null(strstr((char *)index, "\"total_size\": 256"));
    assert_non_null(strstr((char *)index, "\"n.b\": \"model-00002-of-00003.safetensors\""));
    free(index);
    rsd_store_close(store);
}

/* ---- what is refused leaves nothing ---- */

static void assert_refused(rsd_state *state, const char *path, rsd_save_opts opts, rsd_err code,
                           const char *text)
{
    rsd_store *store = fix_store();
    rsd_error  err = { 0 };

    opts.size = sizeof(opts);
    opts.store = store;
    assert_int_equal(rsd_save(path, NULL, state, &opts, &err), code);
    if (!strstr(err.msg, text))
        fail_msg("\"%s\" has no \"%s\"", err.msg, text);
    assert_string_equal(fix_list(store, ""), "");
    rsd_store_close(store);
}

static void complex128_in_safetensors_is_refused_by_name(void **state)
{
    const int64_t two[] = { 2 };
    double        numbers[4] = { 0 };
    rsd_view      view = fix_whole(1, two, numbers);
    rsd_state    *made = make(NULL);

    (void)state;
    assert_int_equal(rsd_state_tensor(made, "z", NULL, RSD_C128, 1, two, 1, &view, NULL), RSD_OK);
    assert_refused(made, "x.safetensors", (rsd_save_opts){ 0 }, RSD_E_UNSUPPORTED, "\"z\"");
    assert_refused(made, "x.safetensors", (rsd_save_opts){ 0 }, RSD_E_UNSUPPORTED, "complex128");
    rsd_state_free(made);
}

static void values_in_safetensors_are_refused_by_name(void **state)
{
    rsd_values *owner;
    rsd_state  *made;

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    made = make(owner);
    assert_refused(made, "x.safetensors", (rsd_save_opts){ 0 }, RSD_E_UNSUPPORTED,
                   "not the value \"n.step\"");
    rsd_state_free(made);
    rsd_values_free(owner);
}

static void values_of_foreign_classes_are_refused_by_name(void **state)
{
    const int64_t    before = fix_memory();
    const rsd_value *odd;
    rsd_values      *owner;
    rsd_state       *made = make(NULL);

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_bytes(owner, RSD_VALUE_OPAQUE, "os.system", 9, &odd, NULL),
                     RSD_OK);
    assert_int_equal(rsd_state_value(made, "odd", odd, NULL), RSD_OK);
    assert_refused(made, "ck", (rsd_save_opts){ 0 }, RSD_E_UNSUPPORTED, "value \"odd\": ");
    assert_refused(made, "ck", (rsd_save_opts){ 0 }, RSD_E_UNSUPPORTED, "os.system");
    assert_refused(made, "x.pt", (rsd_save_opts){ 0 }, RSD_E_UNSUPPORTED, "os.system");
    rsd_state_free(made);
    rsd_values_free(owner);
    assert_int_equal(fix_memory(), before);
}

static void views_that_do_not_cover_are_refused(void **state)
{
    const int64_t  ten[] = { 10 };
    const rsd_view view = { .box = fix_box1(0, 9), .data = c_data };
    rsd_state     *made = make(NULL);

    (void)state;
    assert_int_equal(rsd_state_tensor(made, "h", NULL, RSD_I32, 1, ten, 1, &view, NULL), RSD_OK);
    assert_refused(made, "ck", (rsd_save_opts){ 0 }, RSD_E_MISMATCH,
                   "tensor \"h\": the views have 9 of the 10 elements of [0:10]");
    assert_refused(made, "x.pt", (rsd_save_opts){ 0 }, RSD_E_MISMATCH, "tensor \"h\"");
    rsd_state_free(made);
}

static rsd_err deny(void *arg, uint64_t off, void *host, size_t len)
{
    (void)arg, (void)off, (void)host, (void)len;
    return RSD_E_TIMEOUT;
}

static void a_get_that_fails_leaves_nothing(void **state)
{
    const int64_t  ten[] = { 10 };
    const rsd_view view = { .box = fix_box1(0, 10), .get = deny };
    rsd_state     *made = make(NULL);

    (void)state;
    assert_int_equal(rsd_state_tensor(made, "h", NULL, RSD_I32, 1, ten, 1, &view, NULL), RSD_OK);
    assert_refused(made, "ck", (rsd_save_opts){ 0 }, RSD_E_TIMEOUT,
                   "tensor \"h\": the caller's get");
    rsd_state_free(made);
}

static int stop(void *arg, int64_t done, int64_t total)
{
    (void)arg, (void)total;
    return done > 100;
}

static void a_canceled_save_leaves_nothing(void **state)
{
    rsd_state *made = make(NULL);

    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        rsd_save_opts opts = kinds[i].opts;

        opts.on_progress = stop;
        assert_refused(made, kinds[i].path, opts, RSD_E_CANCELED, "canceled by the caller");
    }
    rsd_state_free(made);
}

static void calls_that_make_no_sense_are_refused(void **state)
{
    rsd_state *made = make(NULL);

    (void)state;
    assert_int_equal(rsd_save(NULL, NULL, made, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_save("", NULL, made, NULL, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_save("x", NULL, NULL, NULL, NULL), RSD_E_INVALID);
    assert_refused(made, "../x", (rsd_save_opts){ 0 }, RSD_E_INVALID, "../x");
    assert_refused(made, "x", (rsd_save_opts){ .format = (rsd_format)9 }, RSD_E_INVALID, "format");
    rsd_state_free(made);
}

/* ---- what is there already ---- */

static void a_target_that_exists_is_left_alone_or_replaced(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        rsd_store    *store = fix_store();
        rsd_save_opts opts = kinds[i].opts;
        const int64_t ten[] = { 10 };
        int32_t       other[10];
        rsd_state    *made;
        uint32_t      sum;

        assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
        fix_add_ramp(made, "other", NULL, 1, ten, other);
        opts.size = sizeof(opts);
        opts.store = store;
        assert_int_equal(rsd_save(kinds[i].path, NULL, made, &opts, NULL), RSD_OK);
        rsd_state_free(made);
        sum = fix_sum(store, folder_of(&kinds[i]));
        assert_int_equal(save(store, kinds[i].path, kinds[i].values, opts, NULL), RSD_E_EXISTS);
        assert_string_equal(fix_list(store, ""), beside(&kinds[i]));
        assert_int_equal(fix_sum(store, folder_of(&kinds[i])), sum);
        opts.overwrite = true;
        assert_int_equal(save(store, kinds[i].path, kinds[i].values, opts, NULL), RSD_OK);
        assert_string_equal(fix_list(store, ""), beside(&kinds[i]));
        assert_saved(store, kinds[i].path);
        rsd_store_close(store);
    }
}

/* ---- local files ---- */

static void a_local_path_is_written_and_its_folder_made(void **state)
{
    char       top[] = "/tmp/test_save_api.XXXXXX", path[64];
    rsd_store *store;

    (void)state;
    assert_non_null(mkdtemp(top));
    assert_int_equal(rsd_store_open(top, &store, NULL), RSD_OK);
    for (size_t i = 0; i < KINDS; i++) {
        rsd_save_opts opts = kinds[i].opts;

        snprintf(path, sizeof(path), "%s/new%zu/%s", top, i, kinds[i].path);
        opts.sync = RSD_NEVER;
        assert_int_equal(save(NULL, path, kinds[i].values, opts, NULL), RSD_OK);
        assert_saved(NULL, path);
        snprintf(path, sizeof(path), "new%zu", i);
        assert_string_equal(fix_list(store, path), beside(&kinds[i]));
        assert_int_equal(fix_remove(store, path), RSD_OK);
    }
    assert_string_equal(fix_list(store, ""), "");
    rsd_store_close(store);
    assert_int_equal(rmdir(top), 0);
}

/* ---- checksums ---- */

static void count_damage(void *arg, const rsd_error *what)
{
    (void)what;
    ++*(int *)arg;
}

/* Opening fails, or verify reports damage. */
static void assert_noticed(rsd_store *store, const char *path)
{
    rsd_ckpt *ckpt;
    int       found = 0;

    if (rsd_ckpt_open(store, path, &ckpt, NULL))
        return;
    assert_int_equal(rsd_ckpt_verify(ckpt, NULL, count_damage, &found, NULL, NULL), RSD_OK);
    assert_true(found > 0);
    rsd_ckpt_close(ckpt);
}

/* Padding included: CRCs don't see that. */
static void a_changed_byte_of_any_file_is_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS && fix_has_sums(); i++) {
        rsd_store *store = fix_store();
        char       names[512], *rest = names, path[128];

        assert_int_equal(save(store, kinds[i].path, kinds[i].values, kinds[i].opts, NULL), RSD_OK);
        snprintf(names, sizeof(names), "%s", fix_list(store, folder_of(&kinds[i])));
        for (char *name = strsep(&rest, " "); name; name = strsep(&rest, " ")) {
            size_t len;

            snprintf(path, sizeof(path), "%s%s%s", folder_of(&kinds[i]),
                     *folder_of(&kinds[i]) ? "/" : "", name);
            free(fix_get(store, path, &len));
            for (size_t at = 0; at < len; at += len / 40 + 1) {
                fix_flip(store, path, at);
                assert_noticed(store, kinds[i].path);
                fix_flip(store, path, at);
            }
        }
        rsd_store_close(store);
    }
}

static void a_side_file_that_is_stale_goes_with_its_file(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    assert_int_equal(save(store, "ck.pt", true, (rsd_save_opts){ 0 }, NULL), RSD_OK);
    assert_int_equal(save(store, "ck.pt", true,
                          (rsd_save_opts){ .overwrite = true, .checksum = RSD_NEVER }, NULL),
                     RSD_OK);
    assert_string_equal(fix_list(store, ""), "ck.pt");
    rsd_store_close(store);
}

static void checksums_that_are_a_must_need_xxhash(void **state)
{
    rsd_store          *store = fix_store();
    const rsd_save_opts opts = { .checksum = RSD_ALWAYS };

    (void)state;
    assert_int_equal(save(store, "ck", true, opts, NULL),
                     fix_has_sums() ? RSD_OK : RSD_E_UNSUPPORTED);
    rsd_store_close(store);
}

/* ---- the nth allocation fails ---- */

typedef struct saving {
    rsd_store  *store;
    rsd_state  *state;
    const kind *kind;
} saving;

static rsd_err save_once(void *arg, rsd_error *err)
{
    saving       *s = arg;
    rsd_save_opts opts = s->kind->opts;

    opts.size = sizeof(opts);
    opts.store = s->store;
    opts.threads = 1;
    return rsd_save(s->kind->path, NULL, s->state, &opts, err);
}

static void look_after(void *arg, rsd_err rc)
{
    saving *s = arg;

    char side[64];

    if (rc && strcmp(fix_list(s->store, ""), "") == 0)
        return;
    /* What was published stays, also when its checksums could not be. */
    assert_string_equal(fix_list(s->store, ""), rc ? s->kind->path : beside(s->kind));
    assert_true(!rc || strchr(s->kind->path, '.'));
    assert_int_equal(fix_remove(s->store, s->kind->path), RSD_OK);
    snprintf(side, sizeof(side), "%s%s", s->kind->path, FIX_SUMS);
    fix_remove(s->store, side);
}

static void saving_without_memory_leaves_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        rsd_values *owner;
        saving      s = { .kind = &kinds[i] };
        int64_t     before = fix_memory();

        assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
        s.store = fix_store();
        s.state = make(kinds[i].values ? owner : NULL);
        fix_every_allocation(save_once, look_after, &s);
        rsd_state_free(s.state);
        rsd_store_close(s.store);
        rsd_values_free(owner);
        assert_int_equal(fix_memory(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_comes_back),
        cmocka_unit_test(the_same_state_gives_the_same_bytes_with_any_threads),
        cmocka_unit_test(the_end_of_the_path_says_the_format),
        cmocka_unit_test(data_in_every_file_are_aligned_to_64_bytes),
        cmocka_unit_test(a_replicated_tensor_is_stored_once),
        cmocka_unit_test(files_of_safetensors_are_split_at_their_size),
        cmocka_unit_test(complex128_in_safetensors_is_refused_by_name),
        cmocka_unit_test(values_in_safetensors_are_refused_by_name),
        cmocka_unit_test(values_of_foreign_classes_are_refused_by_name),
        cmocka_unit_test(views_that_do_not_cover_are_refused),
        cmocka_unit_test(a_get_that_fails_leaves_nothing),
        cmocka_unit_test(a_canceled_save_leaves_nothing),
        cmocka_unit_test(calls_that_make_no_sense_are_refused),
        cmocka_unit_test(a_target_that_exists_is_left_alone_or_replaced),
        cmocka_unit_test(a_local_path_is_written_and_its_folder_made),
        cmocka_unit_test(a_changed_byte_of_any_file_is_noticed),
        cmocka_unit_test(a_side_file_that_is_stale_goes_with_its_file),
        cmocka_unit_test(checksums_that_are_a_must_need_xxhash),
        cmocka_unit_test(saving_without_memory_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
