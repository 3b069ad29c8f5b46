/* SPDX-License-Identifier: Apache-2.0 */
/* One rule for every struct that begins with its size, so that programs and libraries of different
 * versions meet: 0 is a mistake, smaller is an older caller, larger is a newer one, which is
 * refused only if it asks for what is unknown here. And for their fields: a choice is one of those
 * that there are. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "comm/comm_threads.h"

#include <stdio.h>
#include <string.h>

/* A struct as callers of other versions would have it. */
typedef union any_opts {
    size_t            size;
    rsd_save_opts     save;
    rsd_load_opts     load;
    rsd_convert_opts  convert;
    rsd_read_opts     read;
    rsd_checksum_opts seal;
    rsd_reshard_opts  reshard;
    rsd_stash_opts    stash;
    rsd_stateful      stateful;
    rsd_comm_ops      comm;
    rsd_store_ops     store;
    char              room[2048];
} any_opts;

static rsd_store *store;
static rsd_state *tensors;
static float      data[4];

static rsd_err save(const any_opts *o, rsd_error *err)
{
    any_opts mine = *o;

    mine.save.store = store;
    return rsd_save("to", NULL, tensors, &mine.save, err);
}

static rsd_err save_begin(const any_opts *o, rsd_error *err)
{
    any_opts mine = *o;
    rsd_op  *op = NULL;
    rsd_err  rc;

    mine.save.store = store;
    rc = rsd_save_begin("to", NULL, tensors, RSD_STAGE_COPY, &mine.save, &op, err);
    if (!rc)
        rc = rsd_op_wait(op, RSD_DURABLE, err);
    rsd_op_free(op);
    return rc;
}

static rsd_err load(const any_opts *o, rsd_error *err)
{
    any_opts mine = *o;

    mine.load.store = store;
    return rsd_load("ck", NULL, tensors, &mine.load, err);
}

static rsd_err leave_out(void *arg, const rsd_tensor_info *info, rsd_view *out)
{
    (void)arg, (void)info, (void)out;
    return RSD_OK;
}

static rsd_err load_below(const any_opts *o, rsd_error *err)
{
    any_opts mine = *o;

    mine.load.store = store;
    return rsd_load_below("ck", NULL, 0, NULL, leave_out, NULL, &mine.load, err);
}

static rsd_err convert(const any_opts *o, rsd_error *err)
{
    rsd_ckpt *ckpt = fix_open(store, "ck");
    any_opts  mine = *o;
    rsd_err   rc;

    mine.convert.store = store;
    rc = rsd_convert(ckpt, "to", NULL, &mine.convert, err);
    rsd_ckpt_close(ckpt);
    return rc;
}

static rsd_err read_one(const any_opts *o, rsd_error *err)
{
    const int64_t four[] = { 4 };
    rsd_ckpt     *ckpt = fix_open(store, "ck");
    rsd_view      view = fix_whole(1, four, data);
    rsd_err       rc = rsd_ckpt_read(ckpt, 0, &view, &o->read, err);

    rsd_ckpt_close(ckpt);
    return rc;
}

static rsd_err verify(const any_opts *o, rsd_error *err)
{
    rsd_ckpt *ckpt = fix_open(store, "ck");
    rsd_err   rc = rsd_ckpt_verify(ckpt, &o->read, NULL, NULL, NULL, err);

    rsd_ckpt_close(ckpt);
    return rc;
}

static rsd_err seal(const any_opts *o, rsd_error *err)
{
    return rsd_ckpt_add_checksums(store, "bare", &o->seal, err);
}

static rsd_err reshard(const any_opts *o, rsd_error *err)
{
    rsd_plan *plan;
    rsd_comm *comm;
    rsd_err   rc;

    assert_int_equal(rsd_comm_create_self(0, 1, &comm, NULL), RSD_OK);
    assert_int_equal(rsd_plan_create(0, NULL, NULL, 0, &plan, NULL), RSD_OK);
    rc = rsd_reshard(plan, comm, NULL, NULL, &o->reshard, err);
    rsd_plan_free(plan);
    rsd_comm_free(comm);
    return rc;
}

static rsd_err stash(const any_opts *o, rsd_error *err)
{
    rsd_stash *made = NULL;
    any_opts   mine = *o;
    rsd_err    rc;

    mine.stash.dim = RSD_NO_DIM;
    mine.stash.budget = 64;
    mine.stash.handles = 1;
    rc = rsd_stash_create(NULL, &mine.stash, &made, err);
    rsd_stash_free(made);
    return rc;
}

static rsd_err produce(void *arg, rsd_state *state, bool loading, rsd_error *err)
{
    (void)arg, (void)state, (void)loading, (void)err;
    return RSD_OK;
}

static rsd_err stateful(const any_opts *o, rsd_error *err)
{
    rsd_state *state;
    any_opts   mine = *o;
    rsd_err    rc;

    mine.stateful.produce = produce;
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    rc = rsd_state_stateful(state, "x", &mine.stateful, err);
    rsd_state_free(state);
    return rc;
}

static rsd_err make_comm(const any_opts *o, rsd_error *err)
{
    any_opts  mine = *o;
    rsd_comm *comm = NULL;
    void     *self;
    rsd_err   rc;

    mine.comm = rsi_threads_ops;
    mine.size = o->size;
    assert_int_equal(rsi_threads_open(1, &self, NULL), RSD_OK);
    rc = rsd_comm_create_custom(&mine.comm, self, &comm, err);
    if (rc)
        rsi_threads_ops.close(self);
    rsd_comm_free(comm);
    return rc;
}

static void never(void)
{
    fail_msg("nothing is asked of this store");
}

static rsd_err make_store(const any_opts *o, rsd_error *err)
{
    void (*const op)(void) = never;
    any_opts   mine = *o;
    rsd_store *made = NULL;
    rsd_err    rc;

    for (size_t at = offsetof(rsd_store_ops, open); at < sizeof(rsd_store_ops); at += sizeof(op))
        memcpy(mine.room + at, &op, sizeof(op));
    rc = rsd_store_open_custom(&mine.store, NULL, &made, err);
    rsd_store_close(made);
    return rc;
}

static const struct {
    const char *name; /* of the struct */
    rsd_err (*call)(const any_opts *opts, rsd_error *err);
    size_t bytes;
    size_t older; /* the size that a caller may have who lacks the last fields; 0: there is none */
} list[] = {
    { "rsd_save_opts", save, sizeof(rsd_save_opts), offsetof(rsd_save_opts, checksum) },
    { "rsd_save_opts", save_begin, sizeof(rsd_save_opts), offsetof(rsd_save_opts, checksum) },
    { "rsd_load_opts", load, sizeof(rsd_load_opts), offsetof(rsd_load_opts, cast) },
    { "rsd_load_opts", load_below, sizeof(rsd_load_opts), offsetof(rsd_load_opts, cast) },
    { "rsd_convert_opts", convert, sizeof(rsd_convert_opts), offsetof(rsd_convert_opts, verify) },
    { "rsd_read_opts", read_one, sizeof(rsd_read_opts), offsetof(rsd_read_opts, threads) },
    { "rsd_read_opts", verify, sizeof(rsd_read_opts), offsetof(rsd_read_opts, threads) },
    { "rsd_checksum_opts", seal, sizeof(rsd_checksum_opts), offsetof(rsd_checksum_opts, threads) },
    { "rsd_reshard_opts", reshard, sizeof(rsd_reshard_opts), offsetof(rsd_reshard_opts, stats) },
    { "rsd_stash_opts", stash, sizeof(rsd_stash_opts), 0 },
    { "rsd_stateful", stateful, sizeof(rsd_stateful), offsetof(rsd_stateful, arg) },
    { "rsd_comm_ops", make_comm, sizeof(rsd_comm_ops), 0 },
    { "rsd_store_ops", make_store, sizeof(rsd_store_ops), offsetof(rsd_store_ops, adopt) },
};
enum { CALLS = sizeof(list) / sizeof(list[0]) };

static void open_all(void)
{
    const int64_t four[] = { 4 };
    rsd_view      view = fix_whole(1, four, data);
    rsd_save_opts opts = { .size = sizeof(opts), .checksum = RSD_NEVER };

    store = fix_store();
    assert_int_equal(rsd_state_create(&tensors, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(tensors, "w", NULL, RSD_F32, 1, four, 1, &view, NULL),
                     RSD_OK);
    opts.store = store;
    assert_int_equal(rsd_save("ck", NULL, tensors, &opts, NULL), RSD_OK);
    assert_int_equal(rsd_save("bare", NULL, tensors, &opts, NULL), RSD_OK);
}

static void close_all(void)
{
    rsd_state_free(tensors);
    rsd_store_close(store);
}

/* Calls with this size; `extra` is what lies behind the struct. */
static rsd_err call(size_t i, size_t size, char extra, rsd_error *err)
{
    any_opts opts;
    rsd_err  rc;

    memset(&opts, 0, sizeof(opts));
    opts.room[list[i].bytes] = extra;
    opts.size = size;
    open_all();
    rc = list[i].call(&opts, err);
    close_all();
    return rc;
}

static void a_size_of_0_is_a_mistake(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        rsd_error err = { .rank = -1 };
        char      text[128];

        snprintf(text, sizeof(text), "%s.size is 0: set it to sizeof(%s)", list[i].name,
                 list[i].name);
        assert_int_equal(call(i, 0, 0, &err), RSD_E_INVALID);
        assert_non_null(strstr(err.msg, text));
    }
}

static void no_size_at_all_is_a_mistake(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        assert_int_equal(call(i, SIZE_MAX, 0, NULL), RSD_E_INVALID);
        assert_int_equal(call(i, 3, 0, NULL), RSD_E_INVALID);
    }
}

static void a_newer_caller_is_refused_if_it_asks_for_what_is_unknown(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        rsd_error err = { .rank = -1 };

        assert_int_equal(call(i, list[i].bytes + 16, 1, &err), RSD_E_INVALID);
        assert_non_null(strstr(err.msg, list[i].name));
        assert_non_null(strstr(err.msg, "the rest must be zero"));
        if (call(i, list[i].bytes + 16, 0, &err) != RSD_OK)
            fail_msg("%s: %s", list[i].name, err.msg);
    }
}

static void a_smaller_struct_is_that_of_an_older_caller(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        rsd_error err = { .rank = -1 };

        if (call(i, list[i].bytes, 0, &err) != RSD_OK)
            fail_msg("%s: %s", list[i].name, err.msg);
        if (list[i].older && call(i, list[i].older, 1, &err) != RSD_OK)
            fail_msg("%s, older: %s", list[i].name, err.msg);
    }
}

/* Fields of these structs that are one of a few values. */
static const struct {
    const char *name, *field;
    size_t      at;
    int         most;
} few[] = {
    { "rsd_save_opts", "sync", offsetof(rsd_save_opts, sync), 2 },
    { "rsd_save_opts", "checksum", offsetof(rsd_save_opts, checksum), 2 },
    { "rsd_save_opts", "format", offsetof(rsd_save_opts, format), 5 },
    { "rsd_load_opts", "verify", offsetof(rsd_load_opts, verify), 2 },
    { "rsd_load_opts", "cooperate", offsetof(rsd_load_opts, cooperate), 2 },
    { "rsd_convert_opts", "sync", offsetof(rsd_convert_opts, sync), 2 },
    { "rsd_convert_opts", "checksum", offsetof(rsd_convert_opts, checksum), 2 },
    { "rsd_convert_opts", "verify", offsetof(rsd_convert_opts, verify), 2 },
    { "rsd_convert_opts", "carry", offsetof(rsd_convert_opts, carry), 2 },
    { "rsd_convert_opts", "format", offsetof(rsd_convert_opts, format), 5 },
    { "rsd_read_opts", "verify", offsetof(rsd_read_opts, verify), 2 },
    { "rsd_reshard_opts", "direct", offsetof(rsd_reshard_opts, direct), 2 },
};

static void a_value_that_is_no_choice_is_a_mistake(void **state)
{
    const int values[] = { 3, 4, 77, -1, INT32_MIN };

    (void)state;
    open_all();
    for (size_t k = 0; k < sizeof(few) / sizeof(few[0]); k++)
        for (size_t i = 0; i < CALLS * 5; i++) {
            any_opts  opts;
            rsd_error err = { .rank = -1 };
            char      text[128];
            int       value = values[i % 5];

            if (strcmp(list[i / 5].name, few[k].name) != 0 || (value >= 0 && value <= few[k].most))
                continue;
            memset(&opts, 0, sizeof(opts));
            opts.size = list[i / 5].bytes;
            memcpy(opts.room + few[k].at, &value, sizeof(value));
            assert_int_equal(list[i / 5].call(&opts, &err), RSD_E_INVALID);
            snprintf(text, sizeof(text), "%s.%s is %d", few[k].name, few[k].field, value);
            assert_non_null(strstr(err.msg, text));
        }
    close_all();
}

/* What the library fills has the same rule: a caller gets the fields that it knows, and nothing is
 * written behind them. */
static void results_are_filled_as_far_as_both_know_them(void **state)
{
    union {
        rsd_tensor_info info;
        rsd_chunk       chunk;
        char            room[1024];
    } u;
    const size_t older = offsetof(rsd_tensor_info, bytes);
    rsd_error    err = { .rank = -1 };
    rsd_ckpt    *ckpt;

    (void)state;
    open_all();
    ckpt = fix_open(store, "ck");
    memset(&u, 0, sizeof(u));
    assert_int_equal(rsd_ckpt_tensor(ckpt, 0, &u.info, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "rsd_tensor_info.size is 0: set it to sizeof(rsd_tensor_info)");
    assert_int_equal(rsd_ckpt_chunk(ckpt, 0, 0, &u.chunk, NULL), RSD_E_INVALID);

    memset(&u, 7, sizeof(u));
    u.info.size = older;
    assert_int_equal(rsd_ckpt_tensor(ckpt, 0, &u.info, NULL), RSD_OK);
    assert_int_equal(u.info.size, older);
    assert_int_equal(u.info.ndim, 1);
    for (size_t i = older; i < sizeof(u); i++)
        assert_int_equal(u.room[i], 7);

    u.info.size = sizeof(u); /* a newer caller: what is unknown here stays as it was */
    assert_int_equal(rsd_ckpt_tensor(ckpt, 0, &u.info, NULL), RSD_OK);
    assert_int_equal(u.info.bytes, 16);
    assert_int_equal(u.info.size, sizeof(u));
    assert_int_equal(u.room[sizeof(rsd_tensor_info)], 7);
    rsd_ckpt_close(ckpt);
    close_all();
}

static void the_number_of_the_version_is_that_of_its_text(void **state)
{
    char text[32];

    (void)state;
    snprintf(text, sizeof(text), "%d.%d.%d", rsd_version_number() / 10000,
             rsd_version_number() / 100 % 100, rsd_version_number() % 100);
    assert_string_equal(text, rsd_version());
    assert_int_equal(rsd_version_number(), RSD_VERSION_NUMBER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_filled_as_far_as_both_know_them),
        cmocka_unit_test(the_number_of_the_version_is_that_of_its_text),
        cmocka_unit_test(a_size_of_0_is_a_mistake),
        cmocka_unit_test(no_size_at_all_is_a_mistake),
        cmocka_unit_test(a_newer_caller_is_refused_if_it_asks_for_what_is_unknown),
        cmocka_unit_test(a_smaller_struct_is_that_of_an_older_caller),
        cmocka_unit_test(a_value_that_is_no_choice_is_a_mistake),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
