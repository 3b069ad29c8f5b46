/* SPDX-License-Identifier: Apache-2.0 */
/* test_convert.c - rsd_convert: every format and layout into every other, filters, names, casts,
 * what a target can't hold, memory, failures. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "ckpt_sample.h"
#include "convert_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A kind of checkpoint. */
typedef struct kind {
    const char *path;
    rsd_format  format;
    const char *rules;
    const char *transform;
    uint64_t    shard_size;
} kind;

static const kind kinds[] = {
    { "rows", RSD_FORMAT_DCP, "mesh dp=4; * shard(0)@dp", NULL, 0 },
    { "cols", RSD_FORMAT_DCP, "mesh tp=3; m.small* replicate; * shard(-1)@tp", NULL, 0 },
    { "grid", RSD_FORMAT_DCP,
      "mesh dp=2 tp=2; m.small* replicate; m.* strided(0,2)@dp shard(1)@tp; * replicate", NULL, 0 },
    { "zstd", RSD_FORMAT_DCP, "mesh dp=2; * shard(0)@dp", "stream.zstd", 0 },
    { "one.safetensors", RSD_FORMAT_SAFETENSORS, NULL, NULL, 0 },
    { "several", RSD_FORMAT_SAFETENSORS, NULL, NULL, 4000000 },
    { "parts", RSD_FORMAT_SAFETENSORS, "mesh tp=2; m.small* replicate; * shard(-1)@tp", NULL, 0 },
    { "one.pt", RSD_FORMAT_TORCH, NULL, NULL, 0 },
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static bool can(const kind *k)
{
    return !k->transform || fix_has_zstd();
}

static rsd_err convert_to(rsd_store *store, const char *from, const char *to, const kind *k,
                          rsd_error *err)
{
    rsd_convert_opts opts = { .format = k->format,
                              .transform = k->transform,
                              .shard_size = k->shard_size };
    rsd_rules       *rules = NULL;
    rsd_err          rc;

    if (k->rules)
        assert_int_equal(rsd_rules_parse(k->rules, &rules, err), RSD_OK);
    opts.rules = rules;
    rc = conv_run(store, from, to, opts, err);
    rsd_rules_free(rules);
    return rc;
}

static void save_kind(rsd_store *store, const kind *k)
{
    conv_source(store, k->path, k->format, k->rules, k->format != RSD_FORMAT_SAFETENSORS,
                k->transform);
}

static void every_format_and_layout_becomes_every_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        rsd_store *store = fix_store();

        if (can(&kinds[i]))
            save_kind(store, &kinds[i]);
        for (size_t j = 0; j < KINDS && can(&kinds[i]); j++) {
            char      to[64];
            rsd_error err;

            if (!can(&kinds[j]))
                continue;
            snprintf(to, sizeof(to), "to-%s", kinds[j].path);
            if (convert_to(store, kinds[i].path, to, &kinds[j], &err))
                fail_msg("%s to %s: %s", kinds[i].path, to, err.msg);
            conv_same(store, kinds[i].path, store, to);
        }
        rsd_store_close(store);
    }
}

/* What is saved at once and what is converted are the same file for file (C7). */
static void a_converted_checkpoint_has_the_bytes_of_a_saved_one(void **state)
{
    rsd_store *store = fix_store();

    (void)state;
    for (size_t j = 0; j < KINDS; j++) {
        char           to[64];
        unsigned char *a, *b;
        size_t         a_len, b_len;
        rsd_error      err;

        if (strcmp(kinds[j].path, "rows") != 0 && !strchr(kinds[j].path, '.'))
            continue;
        conv_source(store, kinds[j].path, kinds[j].format, kinds[j].rules, false, NULL);
        snprintf(to, sizeof(to), "to-%s", kinds[j].path);
        assert_int_equal(convert_to(store, "rows", to, &kinds[j], &err), RSD_OK);
        if (strchr(to, '.')) {
            a = fix_get(store, kinds[j].path, &a_len);
            b = fix_get(store, to, &b_len);
        } else {
            a = fix_get(store, "rows/__1_0.distcp", &a_len);
            b = fix_get(store, "to-rows/__1_0.distcp", &b_len);
        }
        assert_int_equal(a_len, b_len);
        assert_memory_equal(a, b, a_len);
        free(a);
        free(b);
    }
    rsd_store_close(store);
}

/* The file of the chunk that starts where chunk i of tensor t of another checkpoint does. */
static const char *same_place(rsd_ckpt *ckpt, size_t t, const rsd_chunk *as)
{
    rsd_chunk chunk = { .size = sizeof(chunk) };

    for (size_t i = 0; rsd_ckpt_chunk(ckpt, t, i, &chunk, NULL) == RSD_OK; i++)
        if (memcmp(chunk.box.off, as->box.off, sizeof(as->box.off)) == 0)
            return chunk.file;
    return "nowhere";
}

static void without_a_layout_dcp_keeps_its_chunks_and_their_ranks(void **state)
{
    rsd_store      *store = fix_store();
    rsd_tensor_info a = { .size = sizeof(a) }, b = a;
    rsd_ckpt       *x, *y;
    rsd_error       err;

    (void)state;
    save_kind(store, &kinds[2]);
    assert_int_equal(conv_run(store, "grid", "copy", (rsd_convert_opts){ 0 }, &err), RSD_OK);
    conv_same(store, "grid", store, "copy");
    x = fix_open(store, "grid");
    y = fix_open(store, "copy");
    for (size_t t = 0; t < rsd_ckpt_tensors(x); t++) {
        size_t u;

        rsd_ckpt_tensor(x, t, &a, NULL);
        assert_int_equal(rsd_ckpt_find(y, a.name, &u, NULL), RSD_OK);
        rsd_ckpt_tensor(y, u, &b, NULL);
        assert_int_equal(a.chunks, b.chunks);
        for (size_t i = 0; i < a.chunks && a.bytes > 0; i++) {
            rsd_chunk chunk = { .size = sizeof(chunk) };

            assert_int_equal(rsd_ckpt_chunk(x, t, i, &chunk, NULL), RSD_OK);
            assert_string_equal(same_place(y, u, &chunk), chunk.file);
        }
    }
    rsd_ckpt_close(x);
    rsd_ckpt_close(y);
    rsd_store_close(store);
}

/* ---- what is taken ---- */

static size_t left_out;

static void count_left_out(void *arg, const char *name, const char *why)
{
    (void)arg;
    assert_non_null(name);
    assert_non_null(strstr(why, "hold no objects"));
    left_out++;
}

static void objects_go_along_or_are_named(void **state)
{
    rsd_store       *store = fix_store();
    rsd_convert_opts opts = { .on_left_out = count_left_out };
    rsd_values      *owner;
    const rsd_value *value;
    const char      *name;
    rsd_ckpt        *ckpt;
    rsd_error        err;

    (void)state;
    left_out = 0;
    conv_source(store, "a", RSD_FORMAT_DCP, NULL, true, NULL);
    assert_int_equal(conv_run(store, "a", "b.safetensors", opts, &err), RSD_OK);
    assert_int_equal(left_out, 2);
    assert_int_equal(conv_run(store, "a", "b.pt", opts, &err), RSD_OK);
    assert_int_equal(conv_run(store, "b.pt", "c", opts, &err), RSD_OK);
    assert_int_equal(left_out, 2);
    ckpt = fix_open(store, "c");
    assert_int_equal(rsd_ckpt_objects(ckpt), 2);
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rsd_ckpt_object(ckpt, i, &name, owner, &value, &err), RSD_OK);
        if (strcmp(name, "m.step") == 0)
            assert_int_equal(rsd_value_int(value), 7);
        else
            assert_string_equal(rsd_value_bytes(value, NULL), "hello");
    }
    rsd_values_free(owner);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void only_what_is_included_and_not_excluded_is_taken(void **state)
{
    const char *const include[] = { "m.*" }, *const exclude[] = { "*.big", "*.step" };
    rsd_store       *store = fix_store();
    rsd_convert_opts opts = {
        .include = include, .ninclude = 1, .exclude = exclude, .nexclude = 2
    };
    rsd_ckpt *ckpt;
    rsd_error err;

    (void)state;
    conv_source(store, "a", RSD_FORMAT_DCP, NULL, true, NULL);
    assert_int_equal(conv_run(store, "a", "b", opts, &err), RSD_OK);
    ckpt = fix_open(store, "b");
    assert_int_equal(rsd_ckpt_tensors(ckpt), 6);
    assert_int_equal(rsd_ckpt_objects(ckpt), 0);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static void a_list_with_holes_becomes_flat_names(void **state)
{
    const char *const exclude[] = { "m.small.0" };
    rsd_store        *store = fix_store();
    rsd_convert_opts  opts = { .exclude = exclude, .nexclude = 1 };
    rsd_path_part     part[4];
    rsd_ckpt         *ckpt;
    size_t            t;
    rsd_error         err;

    (void)state;
    conv_source(store, "a", RSD_FORMAT_DCP, NULL, false, NULL);
    assert_int_equal(conv_run(store, "a", "b.pt", opts, &err), RSD_OK);
    ckpt = fix_open(store, "b.pt");
    assert_int_equal(rsd_ckpt_find(ckpt, "m.small.1", &t, &err), RSD_OK);
    assert_int_equal(rsd_ckpt_path(ckpt, "m.small.1", part, 4), 1);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

static const char *add_x(void *arg, const char *name)
{
    static char buf[64];

    (void)arg;
    snprintf(buf, sizeof(buf), "x.%s", name);
    return buf;
}

static const char *all_one(void *arg, const char *name)
{
    (void)arg;
    (void)name;
    return "one";
}

static void names_can_be_changed_but_not_into_one(void **state)
{
    rsd_store       *store = fix_store();
    rsd_convert_opts opts = { .rename = add_x };
    rsd_ckpt        *ckpt;
    size_t           t;
    rsd_error        err;

    (void)state;
    conv_source(store, "a", RSD_FORMAT_DCP, NULL, false, NULL);
    assert_int_equal(conv_run(store, "a", "b", opts, &err), RSD_OK);
    ckpt = fix_open(store, "b");
    assert_int_equal(rsd_ckpt_find(ckpt, "x.m.cols", &t, &err), RSD_OK);
    rsd_ckpt_close(ckpt);
    opts.rename = all_one;
    assert_int_equal(conv_run(store, "a", "c", opts, &err), RSD_E_INVALID);
    assert_non_null(strstr(err.msg, "the name \"one\" is given twice, the second time to"));
    rsd_store_close(store);
}

static void casts_see_new_names_and_the_first_wins(void **state)
{
    const rsd_cast   cast[] = { { "x.m.cols", RSD_F16 }, { NULL, RSD_F64 } };
    rsd_store       *store = fix_store();
    rsd_convert_opts opts = { .rename = add_x, .casts = cast, .ncasts = 2 };
    rsd_tensor_info  info = { .size = sizeof(info) };
    rsd_ckpt        *ckpt;
    rsd_error        err;

    (void)state;
    conv_source(store, "a", RSD_FORMAT_DCP, "mesh tp=3; m.small* replicate; * shard(-1)@tp", false,
                NULL);
    assert_int_equal(conv_run(store, "a", "b.safetensors", opts, &err), RSD_OK);
    ckpt = fix_open(store, "b.safetensors");
    for (size_t t = 0; t < rsd_ckpt_tensors(ckpt); t++) {
        rsd_ckpt_tensor(ckpt, t, &info, NULL);
        if (strcmp(info.name, "x.m.cols") == 0)
            assert_int_equal(info.dtype, RSD_F16);
        else
            assert_int_equal(info.dtype, strstr(info.name, "small") ? RSD_I64 : RSD_F64);
    }
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* float32 to float64 and back is the same. */
static void a_cast_that_loses_nothing_can_be_undone(void **state)
{
    const rsd_cast   wide[] = { { "m.big", RSD_F64 } }, back[] = { { "m.big", RSD_F32 } };
    rsd_store       *store = fix_store();
    rsd_convert_opts opts = { .casts = wide, .ncasts = 1 };
    rsd_error        err;

    (void)state;
    conv_source(store, "a", RSD_FORMAT_DCP, "mesh dp=4; * shard(0)@dp", false, NULL);
    assert_int_equal(conv_run(store, "a", "b", opts, &err), RSD_OK);
    opts.casts = back;
    assert_int_equal(conv_run(store, "b", "c.pt", opts, &err), RSD_OK);
    conv_same(store, "a", store, "c.pt");
    rsd_store_close(store);
}

static void every_tensor_of_a_type_that_the_target_lacks_is_named(void **state)
{
    const rsd_cast   cast[] = { { "*[gs]", RSD_C128 } };
    const int64_t    shape[] = { 2 };
    double           data[4] = { 0 };
    rsd_store       *store = fix_store();
    rsd_save_opts    save = { .size = sizeof(save), .store = store };
    rsd_convert_opts opts = { .casts = cast, .ncasts = 1 };
    rsd_view         view = fix_whole(1, shape, data);
    rsd_state       *made;
    rsd_error        err;

    (void)state;
    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rsd_state_tensor(made, (const char *[]){ "ag", "bs", "c" }[i], NULL,
                                          RSD_C64, 1, shape, 1, &view, NULL),
                         RSD_OK);
    assert_int_equal(rsd_save("a", NULL, made, &save, &err), RSD_OK);
    rsd_state_free(made);
    assert_int_equal(conv_run(store, "a", "b.safetensors", opts, &err), RSD_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "2 of the tensors: \"ag\" (complex128), \"bs\" (complex128)"));
    assert_null(strstr(fix_list(store, ""), "b.safetensors"));
    rsd_store_close(store);
}

/* ---- bounds and failures ---- */

static int cancel_at_once(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    (void)done;
    (void)total;
    return 1;
}

static void a_canceled_conversion_leaves_nothing(void **state)
{
    rsd_store       *store = fix_store();
    rsd_convert_opts opts = { .on_progress = cancel_at_once };
    rsd_error        err;

    (void)state;
    conv_source(store, "a", RSD_FORMAT_DCP, NULL, false, NULL);
    assert_int_equal(conv_run(store, "a", "b", opts, &err), RSD_E_CANCELED);
    assert_string_equal(fix_list(store, ""), "a");
    rsd_store_close(store);
}

static int64_t last_done, last_total;

static int note_progress(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    assert_true(done >= last_done && done <= total);
    last_done = done;
    last_total = total;
    return 0;
}

static void progress_ends_at_the_bytes_of_the_files(void **state)
{
    rsd_store       *store = fix_store();
    rsd_convert_opts opts = { .on_progress = note_progress };
    size_t           len;
    rsd_error        err;

    (void)state;
    last_done = 0;
    conv_source(store, "a", RSD_FORMAT_DCP, NULL, false, NULL);
    assert_int_equal(conv_run(store, "a", "b.pt", opts, &err), RSD_OK);
    free(fix_get(store, "b.pt", &len));
    assert_int_equal(last_done, len);
    assert_int_equal(last_total, len);
    rsd_store_close(store);
}

static void an_existing_target_is_replaced_only_if_asked(void **state)
{
    rsd_store       *store = fix_store();
    rsd_convert_opts opts = { 0 };
    rsd_error        err;

    (void)state;
    conv_source(store, "a", RSD_FORMAT_DCP, NULL, false, NULL);
    fix_put_text(store, "b.pt", "old");
    assert_int_equal(conv_run(store, "a", "b.pt", opts, &err), RSD_E_EXISTS);
    opts.overwrite = true;
    assert_int_equal(conv_run(store, "a", "b.pt", opts, &err), RSD_OK);
    conv_same(store, "a", store, "b.pt");
    rsd_store_close(store);
}

static void a_layout_for_one_file_or_without_a_rule_is_refused(void **state)
{
    rsd_store *store = fix_store();
    rsd_rules *rules;
    rsd_error  err;

    (void)state;
    conv_source(store, "a", RSD_FORMAT_DCP, NULL, false, NULL);
    assert_int_equal(rsd_rules_parse("mesh dp=2; m.* replicate", &rules, &err), RSD_OK);
    assert_int_equal(conv_run(store, "a", "b.pt", (rsd_convert_opts){ .rules = rules }, &err),
                     RSD_E_INVALID);
    assert_int_equal(conv_run(store, "a", "b", (rsd_convert_opts){ .rules = rules }, &err),
                     RSD_E_NOTFOUND);
    assert_non_null(strstr(err.msg, "\"scalar\""));
    rsd_rules_free(rules);
    rsd_store_close(store);
}

static void keeping_half_done_work_needs_local_files(void **state)
{
    rsd_store *store = fix_store();
    rsd_error  err;

    (void)state;
    conv_source(store, "a", RSD_FORMAT_DCP, NULL, false, NULL);
    assert_int_equal(conv_run(store, "a", "b", (rsd_convert_opts){ .keep = true }, &err),
                     RSD_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "memory store"));
    rsd_store_close(store);
}

typedef struct allocating {
    rsd_store *store, *target;
    kind       to;
} allocating;

static rsd_err run_once(void *arg, rsd_error *err)
{
    allocating      *x = arg;
    rsd_convert_opts opts = { .size = sizeof(opts),
                              .store = x->target,
                              .format = x->to.format,
                              .threads = 1,
                              .overwrite = true };
    rsd_ckpt        *ckpt;
    rsd_err          rc = rsd_ckpt_open(x->store, ckpt_sample_path(SAMPLE_DCP), &ckpt, err);

    if (rc)
        return rc;
    rc = rsd_convert(ckpt, x->to.path, NULL, &opts, err);
    rsd_ckpt_close(ckpt);
    return rc;
}

static void every_allocation_may_fail(void **state)
{
    allocating x = { .store = fix_store() };

    (void)state;
    assert_int_equal(ckpt_sample_save(x.store, SAMPLE_DCP, NULL), RSD_OK);
    assert_int_equal(rsd_store_open("null:", &x.target, NULL), RSD_OK);
    for (size_t j = 0; j < KINDS; j++) {
        x.to = kinds[j];
        if (strchr(kinds[j].path, '.') || strcmp(kinds[j].path, "rows") == 0)
            fix_every_allocation(run_once, NULL, &x);
    }
    rsd_store_close(x.target);
    rsd_store_close(x.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_and_layout_becomes_every_other),
        cmocka_unit_test(a_converted_checkpoint_has_the_bytes_of_a_saved_one),
        cmocka_unit_test(without_a_layout_dcp_keeps_its_chunks_and_their_ranks),
        cmocka_unit_test(objects_go_along_or_are_named),
        cmocka_unit_test(only_what_is_included_and_not_excluded_is_taken),
        cmocka_unit_test(a_list_with_holes_becomes_flat_names),
        cmocka_unit_test(names_can_be_changed_but_not_into_one),
        cmocka_unit_test(casts_see_new_names_and_the_first_wins),
        cmocka_unit_test(a_cast_that_loses_nothing_can_be_undone),
        cmocka_unit_test(every_tensor_of_a_type_that_the_target_lacks_is_named),
        cmocka_unit_test(a_canceled_conversion_leaves_nothing),
        cmocka_unit_test(progress_ends_at_the_bytes_of_the_files),
        cmocka_unit_test(an_existing_target_is_replaced_only_if_asked),
        cmocka_unit_test(a_layout_for_one_file_or_without_a_rule_is_refused),
        cmocka_unit_test(keeping_half_done_work_needs_local_files),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
