/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: states, names, casts, names that are damaged. How ranks share reads is in
 * test_load_ranks.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "skip_because.h"

#include <reshard/reshard_folder.h>

#include <stdio.h>
#include <stdlib.h>
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
    rsd_store_close(store);
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
    assert_string_equal(err.msg,
                        "tensor \"m.a\" is int32 in the checkpoint, but float32 was requested");
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
    opts.prefix = NULL;
    assert_int_equal(load_one("a", RSD_I32, 2, shape_a, &view, &opts, &err), RSD_E_NOTFOUND);
    assert_string_equal(err.msg, "the checkpoint has no tensor \"a\" (it has \"m.a\")");
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
    opts.on_missing = note;
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
    assert_string_equal(err.msg, "the checkpoint has no tensor below \"m.\", and lacks 1 more");
    opts.allow_partial = true;
    opts.on_missing = note;
    opts.arg = missing;
    assert_int_equal(rsd_load_below("ck", NULL, 3, names, take, &t, &opts, &err), RSD_OK);
    assert_string_equal(missing, "m. mm ");
}

static void all_names_that_are_missing_are_reported_when_that_is_an_error(void **unused)
{
    rsd_load_opts    opts = options();
    const int64_t    one = 1;
    char             missing[80] = "";
    const rsd_value *none = NULL;
    rsd_state       *state;
    rsd_error        err;

    (void)unused;
    opts.on_missing = note;
    opts.arg = missing;
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(state, "p", NULL, RSD_F32, 1, &one, 0, NULL, NULL), RSD_OK);
    assert_int_equal(rsd_state_want(state, "q", values, &none, NULL), RSD_OK);
    assert_int_equal(rsd_load("ck", NULL, state, &opts, &err), RSD_E_NOTFOUND);
    assert_string_equal(err.msg, "the checkpoint has no tensor \"p\", and lacks 1 more");
    assert_string_equal(missing, "p q ");
    rsd_state_free(state);
}

/* ---- objects as torch.save's bytes ---- */

typedef struct archive {
    unsigned char bytes[4096];
    size_t        len;
} archive;

static rsd_err keep_bytes(void *arg, const void *bytes, size_t len)
{
    archive *a = arg;

    a->len = len < sizeof(a->bytes) ? len : 0;
    memcpy(a->bytes, bytes, a->len);
    return RSD_OK;
}

static const rsd_value *load_object(const char *path, const char *name, archive *out)
{
    rsd_load_opts    opts = options();
    const rsd_value *got = NULL;
    rsd_state       *state;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_state_want_object(state, name, values, &got, keep_bytes, out, NULL),
                     RSD_OK);
    assert_int_equal(rsd_load(path, NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
    return got;
}

static void bytes_of_a_plain_value_are_not_needed(void **unused)
{
    archive got = { .len = 0 };

    (void)unused;
    assert_int_equal(rsd_value_int(load_object("ck", "step", &got)), 7);
    assert_int_equal(got.len, 0);
}

static void bytes_of_an_object_are_stored_and_given_back(void **unused)
{
    rsd_save_opts    opts = { .size = sizeof(opts), .store = store };
    archive          first = { .len = 0 }, again = { .len = 0 };
    const rsd_value *opaque;
    rsd_state       *state;

    (void)unused;
    load_object("ck", "extra", &first);
    rsd_value_create_bytes(values, RSD_VALUE_OPAQUE, "a.B", 3, &opaque, NULL);
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    assert_int_equal(rsd_state_object(state, "x", opaque, first.bytes, first.len, NULL), RSD_OK);
    assert_int_equal(rsd_save("as-bytes", NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
    assert_int_equal(rsd_value_int(rsd_value_get(load_object("as-bytes", "x", &again), "i")), 1);
    assert_int_equal(again.len, first.len);
    assert_memory_equal(again.bytes, first.bytes, first.len);
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

/* ---- damaged metadata ---- */

#define METADATA "ck/.metadata"

/* Asks for all that there is, whatever may be missing; *missed tells if something was. */
static rsd_err load_partly(rsd_choice verify, bool below, bool *missed, rsd_error *err)
{
    static const char *const tops[] = { "m", "m2" };
    const int64_t            shape_b = 5, shape_c[] = { 2, 0 };
    char                     missing[80] = "";
    int32_t                  a[24] = { 0 }, b[5] = { 0 };
    const rsd_value         *step = NULL;
    rsd_view                 view_a = fix_whole(2, shape_a, a), view_b = fix_whole(1, &shape_b, b);
    rsd_load_opts            opts = options();
    taken                    t = { .rc = RSD_OK };
    rsd_state               *state;
    rsd_err                  rc;

    opts.verify = verify;
    opts.allow_partial = true;
    opts.on_missing = note;
    opts.arg = missing;
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    rsd_state_tensor(state, "m.a", NULL, RSD_I32, 2, shape_a, 1, &view_a, NULL);
    rsd_state_tensor(state, "m.b", NULL, RSD_I32, 1, &shape_b, 1, &view_b, NULL);
    rsd_state_tensor(state, "m2.c", NULL, RSD_F32, 2, shape_c, 0, NULL, NULL);
    rsd_state_want(state, "step", values, &step, NULL);
    rc = below ? rsd_load_below("ck", NULL, 2, tops, take, &t, &opts, err)
               : rsd_load("ck", NULL, state, &opts, err);
    *missed = *missing != '\0' || (!rc && below && strcmp(t.names, "m.a m.b m2.c ") != 0);
    rsd_state_free(state);
    return rc;
}

/* Each byte of the metadata is wrong once: with a checksum file nothing is left out for it, without
 * one a key can look as if it were not there. */
static void a_flipped_byte_of_a_name_is_damage_and_no_missing_key(void **unused)
{
    static const unsigned char bits[] = { 0x01, 0xff }; /* letters stay letters, and not */
    size_t                     len, unseen = 0, corrupt = 0;
    rsd_error                  err;
    bool                       missed;

    (void)unused;
    if (!fix_has_sums())
        skip_because("built without xxHash");
    free(fix_get(store, METADATA, &len));
    for (uint64_t i = 0; i < 4 * len; i++) {
        bool    below = i & 1;
        rsd_err rc;

        fix_xor(store, METADATA, i / 4, bits[i / 2 % 2]);
        rc = load_partly(RSD_NEVER, below, &missed, &err);
        unseen += !rc && missed;
        rc = load_partly(RSD_DEFAULT, below, &missed, &err);
        fix_xor(store, METADATA, i / 4, bits[i / 2 % 2]);
        corrupt += rc == RSD_E_CORRUPT;
        if (!rc || missed)
            fail_msg("byte %d: %s", (int)i / 4, rc ? "something is missing" : "it was loaded");
    }
    assert_true(unseen > 0);
    assert_true(corrupt >= unseen);
    assert_int_equal(load_partly(RSD_DEFAULT, false, &missed, &err), RSD_OK);
    assert_false(missed);
}

/* Rank 0 wants nothing, the others "m.a", which is "l.a" now. */
static rsd_err load_damaged(void *arg, rsd_comm *comm, rsd_error *err)
{
    int32_t       x[24] = { 0 };
    rsd_view      view = fix_whole(2, shape_a, x);
    rsd_load_opts opts = options();
    rsd_state    *state;
    rsd_err       rc = rsd_state_create(&state, err);

    opts.allow_partial = true;
    opts.on_missing = note;
    opts.arg = (char *)arg + 80 * rsd_comm_rank(comm);
    if (!rc && rsd_comm_rank(comm) > 0)
        rc = rsd_state_tensor(state, "m.a", NULL, RSD_I32, 2, shape_a, 1, &view, err);
    if (!rc)
        rc = rsd_load("ck", comm, state, &opts, err);
    rsd_state_free(state);
    if (rc != RSD_E_CORRUPT || !strstr(err->msg, "rank 1: "))
        return fix_fails(err, __FILE__, __LINE__, rsd_err_name(rc));
    return RSD_OK;
}

static void a_name_that_is_damaged_fails_all_ranks(void **unused)
{
    char           missing[3][80] = { "" };
    rsd_error      err = { 0 };
    size_t         len;
    unsigned char *bytes = fix_get(store, METADATA, &len), *name;
    rsd_err        rc;

    (void)unused;
    name = memmem(bytes, len, "m.a", 3);
    assert_non_null(name);
    len = (size_t)(name - bytes);
    free(bytes);
    if (!fix_has_sums())
        skip_because("built without xxHash");
    fix_xor(store, METADATA, len, 1);
    rc = rsd_comm_run_threads(3, load_damaged, missing, &err);
    fix_xor(store, METADATA, len, 1);
    if (rc)
        fail_msg("%s", err.msg);
    for (int r = 0; r < 3; r++)
        assert_string_equal(missing[r], "");
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
        cmocka_unit_test(all_names_that_are_missing_are_reported_when_that_is_an_error),
        cmocka_unit_test(bytes_of_an_object_are_stored_and_given_back),
        cmocka_unit_test(bytes_of_a_plain_value_are_not_needed),
        cmocka_unit_test(arguments_that_are_missing_are_refused),
        cmocka_unit_test(a_flipped_byte_of_a_name_is_damage_and_no_missing_key),
        cmocka_unit_test(a_name_that_is_damaged_fails_all_ranks),
        cmocka_unit_test(every_allocation_that_fails_is_told),
    };

    return cmocka_run_group_tests(tests, save_all, drop_all);
}
