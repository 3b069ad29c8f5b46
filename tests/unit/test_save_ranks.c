/* SPDX-License-Identifier: Apache-2.0 */
/* test_save_ranks.c - what ranks do together before they save: states that differ, replicas that
 * differ, plans that are used again. states_same.c, states_join.c, replicas.c, image_cache.c,
 * layout_local.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "ckpt_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK FIX_CHECK

typedef struct job {
    rsd_store    *store;
    const char   *path;
    rsd_save_opts opts;
    rsd_err       want;
    const char   *text; /* in the error */
    int           odd;  /* rank that has something otherwise */
} job;

static rsd_err run(int32_t n, rsd_err (*fn)(void *arg, rsd_comm *comm, rsd_error *err), job *j)
{
    rsd_error err = { 0 };
    rsd_err   rc = rsd_comm_run_threads(n, fn, j, &err);

    if (rc)
        print_message("%s\n", err.msg);
    return rc;
}

static rsd_err save(const job *j, rsd_comm *comm, rsd_state *state, rsd_error *err)
{
    rsd_save_opts opts = j->opts;
    rsd_err       rc;

    opts.size = sizeof(opts);
    opts.store = j->store;
    opts.threads = 1;
    rc = rsd_save(j->path, comm, state, &opts, err);
    rsd_state_free(state);
    CHECK(rc == j->want);
    CHECK(!j->text || strstr(err->msg, j->text));
    CHECK(!strstr(err->msg, "rank 0: rank 0"));
    return RSD_OK;
}

/* ---- keys that only some ranks hold ---- */

static const int64_t eight[] = { 8 };

/* "all" in rows on every rank, "stage<r>" on rank r alone, without a layout. */
static rsd_err save_stages(void *arg, rsd_comm *comm, rsd_error *err)
{
    job             *j = arg;
    int32_t          part[8], own[8];
    char             name[16];
    rsd_view         view = { .data = part };
    const rsd_value *v;
    rsd_values      *owner;
    rsd_state       *state;
    rsd_err          rc;

    snprintf(name, sizeof(name), "stage%d", (int)rsd_comm_rank(comm));
    view.box = fix_box1(8 / rsd_comm_size(comm) * rsd_comm_rank(comm), 8 / rsd_comm_size(comm));
    for (int i = 0; i < 8; i++) {
        part[i] = (int32_t)view.box.off[0] + i;
        own[i] = 100 * rsd_comm_rank(comm) + i;
    }
    CHECK(!rsd_values_create(&owner, err) &&
          !rsd_value_create_int(owner, rsd_comm_rank(comm), &v, err));
    CHECK(!rsd_state_create(&state, err));
    CHECK(!rsd_state_tensor(state, "all", NULL, j->odd == rsd_comm_rank(comm) ? RSD_F32 : RSD_I32,
                            1, eight, 1, &view, err));
    view = fix_whole(1, eight, own);
    CHECK(!rsd_state_push(state, "n", err) &&
          !rsd_state_push_index(state, rsd_comm_rank(comm), err));
    CHECK(!rsd_state_tensor(state, name, NULL, RSD_I32, 1, eight, 1, &view, err));
    CHECK(!rsd_state_value(state, "value", v, err));
    rc = save(j, comm, state, err);
    rsd_values_free(owner);
    return rc;
}

static void assert_row(rsd_ckpt *ckpt, const char *name, int32_t first)
{
    int32_t  out[8] = { 0 };
    rsd_view view = fix_whole(1, eight, out);
    size_t   t;

    assert_int_equal(rsd_ckpt_find(ckpt, name, &t, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_read(ckpt, t, &view, NULL, NULL), RSD_OK);
    for (int32_t i = 0; i < 8; i++)
        assert_int_equal(out[i], first + i);
}

static void ranks_with_other_keys_are_refused_unless_told(void **state)
{
    job j = { .store = fix_store(), .path = "ck", .odd = -1, .want = RSD_E_MISMATCH };

    (void)state;
    j.text = "rank 1: tensor 1 is \"n.1.stage1\" here, but \"n.0.stage0\" on rank 0";
    assert_int_equal(run(4, save_stages, &j), RSD_OK);
    assert_string_equal(fix_list(j.store, ""), "");
    rsd_store_close(j.store);
}

static void what_only_some_ranks_hold_is_saved_when_told(void **state)
{
    static const char *const transform[] = { NULL, "stream.zstd" };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        job       j = { .store = fix_store(), .path = "ck", .odd = -1 };
        rsd_ckpt *ckpt;
        ckpt_walk walk;

        j.opts = (rsd_save_opts){ .uneven_keys = true, .transform = transform[i] };
        assert_int_equal(run(4, save_stages, &j), RSD_OK);
        ckpt = fix_open(j.store, "ck");
        assert_int_equal(rsd_ckpt_tensors(ckpt), 5);
        assert_row(ckpt, "all", 0);
        assert_row(ckpt, "n.0.stage0", 0);
        assert_row(ckpt, "n.3.stage3", 300);
        assert_int_equal(rsd_ckpt_objects(ckpt), 4);
        rsd_ckpt_close(ckpt);
        ckpt_walk_run(j.store, "ck", INT64_MAX, &walk);
        assert_false(ckpt_walk_noticed(&walk));
        rsd_store_close(j.store);
    }
}

/* "both" on two ranks of three, replicated and large enough to be divided; "rows" on these two;
 * rank 2 has only a value, rank 0 nothing else. */
static rsd_err save_by_pairs(void *arg, rsd_comm *comm, rsd_error *err)
{
    enum { N = 1 << 20 };
    const int64_t    shape[] = { 2, N };
    const int32_t    rank = rsd_comm_rank(comm);
    int32_t         *data = calloc(2, N * sizeof(*data));
    rsd_view         whole = fix_whole(2, shape, data), half = whole;
    rsd_values      *owner;
    const rsd_value *v;
    rsd_state       *state;
    rsd_err          rc;

    CHECK(data);
    for (int32_t i = 0; i < 2 * N; i++)
        data[i] = i;
    half.box = fix_box2(rank == 1, 0, 1, N);
    half.data = data + (rank == 1 ? N : 0);
    CHECK(!rsd_state_create(&state, err) && !rsd_values_create(&owner, err));
    CHECK(!rsd_value_create_int(owner, 7, &v, err));
    if (rank != 0)
        CHECK(!rsd_state_value(state, "step", v, err));
    if (rank < 2) {
        CHECK(!rsd_state_tensor(state, "rows", NULL, RSD_I32, 2, shape, 1, &half, err));
        CHECK(!rsd_state_tensor(state, "both", NULL, RSD_I32, 2, shape, 1, &whole, err));
    }
    rc = save(arg, comm, state, err);
    rsd_values_free(owner);
    free(data);
    return rc;
}

/* With check_equal all ranks join all states, otherwise rank 0 alone does. */
static void who_joins_the_states_makes_no_difference(void **state)
{
    uint32_t sum[2];

    (void)state;
    for (int all = 0; all < 2; all++) {
        job       j = { .store = fix_store(), .path = "ck" };
        rsd_ckpt *ckpt;
        ckpt_walk walk;

        j.opts = (rsd_save_opts){ .uneven_keys = true, .check_equal = all };
        assert_int_equal(run(3, save_by_pairs, &j), RSD_OK);
        assert_string_equal(fix_list(j.store, "ck"),
                            fix_has_sums() ? ".metadata .reshard-sums __0_0.distcp __1_0.distcp"
                                           : ".metadata __0_0.distcp __1_0.distcp");
        sum[all] = fix_sum(j.store, "ck");
        ckpt = fix_open(j.store, "ck");
        assert_int_equal(rsd_ckpt_tensors(ckpt), 2);
        assert_int_equal(rsd_ckpt_objects(ckpt), 1);
        rsd_ckpt_close(ckpt);
        ckpt_walk_run(j.store, "ck", INT64_MAX, &walk);
        assert_false(ckpt_walk_noticed(&walk));
        rsd_store_close(j.store);
    }
    assert_int_equal(sum[0], sum[1]);
}

static void a_tensor_that_ranks_mean_differently_is_named(void **state)
{
    job j = { .store = fix_store(), .path = "ck", .odd = 2, .want = RSD_E_MISMATCH };

    (void)state;
    j.opts.uneven_keys = true;
    j.text = "\"all\": the dtype of rank 2 differs from that of rank 0";
    assert_int_equal(run(4, save_stages, &j), RSD_OK);
    rsd_store_close(j.store);
}

static rsd_err save_complex(void *arg, rsd_comm *comm, rsd_error *err)
{
    double     z[16] = { 0 };
    rsd_view   view = fix_whole(1, eight, z);
    rsd_state *state;

    CHECK(!rsd_state_create(&state, err));
    CHECK(!rsd_state_tensor(state, "z", NULL, RSD_C128, 1, eight, 1, &view, err));
    return save(arg, comm, state, err);
}

static void a_format_that_can_not_hold_a_tensor_names_the_rank_once(void **state)
{
    job j = { .store = fix_store(), .path = "ck.safetensors", .want = RSD_E_UNSUPPORTED };

    (void)state;
    j.text = "rank 0: tensor \"z\": safetensors can't hold complex128";
    assert_int_equal(run(4, save_complex, &j), RSD_OK);
    rsd_store_close(j.store);
}

/* ---- layouts with more ranks than there are ---- */

static rsd_err save_on_eight(void *arg, rsd_comm *comm, rsd_error *err)
{
    int32_t    part[8] = { 0 };
    rsd_rules *rules;
    rsd_state *state;

    CHECK(!rsd_rules_parse("mesh tp=8; * shard(0)@tp", &rules, err));
    CHECK(!rsd_state_create(&state, err));
    CHECK(!rsd_state_add(state, "w", rules, rsd_comm_rank(comm), RSD_I32, 1, eight, part, err));
    rsd_rules_free(rules);
    return save(arg, comm, state, err);
}

static void a_layout_on_more_ranks_than_the_comm_has_is_refused(void **state)
{
    const rsd_format format[] = { RSD_FORMAT_DCP, RSD_FORMAT_SAFETENSORS, RSD_FORMAT_TORCH };

    (void)state;
    for (int i = 0; i < 3; i++) {
        job j = { .store = fix_store(), .path = "ck", .want = RSD_E_MISMATCH };

        j.opts.format = format[i];
        j.opts.checksum = RSD_NEVER;
        j.text = "tensor \"w\": the layout names rank 7, but the comm has only ranks 0 to 3";
        assert_int_equal(run(4, save_on_eight, &j), RSD_OK);
        assert_string_equal(fix_list(j.store, ""), "");
        rsd_store_close(j.store);
    }
}

/* Rank 2 has another layout. */
static rsd_err begin_odd(void *arg, rsd_comm *comm, rsd_error *err)
{
    const bool    odd = rsd_comm_rank(comm) == 2;
    rsd_save_opts opts = { .size = sizeof(opts), .store = ((job *)arg)->store };
    int32_t       part[8] = { 0 };
    rsd_rules    *rules;
    rsd_state    *state;
    rsd_op       *op;

    CHECK(
        !rsd_rules_parse(odd ? "mesh tp=4; * replicate" : "mesh tp=4; * shard(0)@tp", &rules, err));
    CHECK(!rsd_state_create(&state, err));
    CHECK(!rsd_state_add(state, "w", rules, rsd_comm_rank(comm), RSD_I32, 1, eight, part, err));
    CHECK(rsd_save_begin("ck", comm, state, RSD_STAGE_COPY, &opts, &op, err) == RSD_E_MISMATCH);
    CHECK(err->rank == 2 && err->nfailed == 1);
    CHECK(strstr(err->msg, ": rank 2: tensor \"w\": layout differs from that on rank 0"));
    CHECK(!strstr(err->msg, "rank 0: rank 2"));
    rsd_rules_free(rules);
    rsd_state_free(state);
    return RSD_OK;
}

static void an_async_save_names_the_rank_that_differs_once(void **state)
{
    job j = { .store = fix_store() };

    (void)state;
    assert_int_equal(run(4, begin_odd, &j), RSD_OK);
    rsd_store_close(j.store);
}

/* ---- layouts of which each rank knows its own part ---- */

static rsd_err make_local(void *arg, rsd_comm *comm, rsd_error *err)
{
    const rsd_box box[] = { fix_box1(rsd_comm_rank(comm), 1),
                            fix_box1(rsd_comm_size(comm) + rsd_comm_rank(comm), 1) };
    job          *j = arg;
    rsd_layout   *layout = NULL;
    rsd_box       back[2];
    rsd_err       rc = rsd_layout_create_local(comm, RSD_I32, 1, eight,
                                         rsd_comm_rank(comm) == j->odd ? 1 : 2, box, &layout, err);

    CHECK(rc == j->want);
    if (rc)
        return strstr(err->msg, j->text) ? RSD_OK : rc;
    CHECK(rsd_layout_world(layout) == rsd_comm_size(comm));
    CHECK(rsd_layout_boxes(layout, rsd_comm_size(comm) - 1, back, 2) == 2);
    CHECK(back[0].off[0] == rsd_comm_size(comm) - 1);
    rsd_layout_free(layout);
    return RSD_OK;
}

static void a_layout_is_made_of_what_each_rank_holds(void **state)
{
    job j = { .odd = -1 };

    (void)state;
    assert_int_equal(run(4, make_local, &j), RSD_OK);
}

static void a_layout_with_a_hole_is_refused_on_all_ranks(void **state)
{
    job j = { .odd = 1, .want = RSD_E_INVALID, .text = "no box holds element [5]" };

    (void)state;
    assert_int_equal(run(4, make_local, &j), RSD_OK);
}

/* ---- what is meant to be equal ---- */

/* "plain" without a layout, "copied" replicated on pairs; the odd rank has one other element. */
static rsd_err save_copies(void *arg, rsd_comm *comm, rsd_error *err)
{
    job        *j = arg;
    int32_t     plain[8] = { 1, 2, 3 }, half[4] = { 0 };
    rsd_layout *layout = fix_layout("mesh dp=2 tp=2; * shard(0)@tp", RSD_I32, 1, eight);
    rsd_view    whole = fix_whole(1, eight, plain), part = { .data = half };
    rsd_state  *state;

    part.box = fix_box1(rsd_comm_rank(comm) % 2 * 4, 4);
    half[0] = rsd_comm_rank(comm) % 2;
    half[3] += rsd_comm_rank(comm) == j->odd;
    CHECK(!rsd_state_create(&state, err));
    CHECK(!rsd_state_tensor(state, "plain", NULL, RSD_I32, 1, eight, 1, &whole, err));
    CHECK(!rsd_state_tensor(state, "copied", layout, RSD_I32, 1, eight, 1, &part, err));
    rsd_layout_free(layout);
    return save(j, comm, state, err);
}

static void replicas_that_differ_are_named_with_their_ranks(void **state)
{
    job j = { .store = fix_store(), .path = "ck", .odd = 3, .want = RSD_E_MISMATCH };

    (void)state;
    j.opts.check_equal = true;
    j.text = "tensor \"copied\": replicas differ: rank 3 does not match rank 1";
    assert_int_equal(run(4, save_copies, &j), RSD_OK);
    assert_string_equal(fix_list(j.store, ""), "");
    j = (job){ .store = j.store, .path = "ck", .odd = -1, .opts = { .check_equal = true } };
    assert_int_equal(run(4, save_copies, &j), RSD_OK);
    rsd_store_close(j.store);
}

/* ---- plans that are used again ---- */

static rsd_err save_again(rsd_state *state, rsd_store *store, const char *path,
                          const char *transform)
{
    const rsd_save_opts opts = { .size = sizeof(opts),
                                 .store = store,
                                 .overwrite = true,
                                 .threads = 1,
                                 .transform = transform };

    return rsd_save(path, NULL, state, &opts, NULL);
}

static void a_second_save_uses_the_plan_again_until_something_changes(void **state)
{
    static const char *const transform[] = { NULL, "stream.zstd" };
    rsd_values              *owner;
    const rsd_value         *one, *two;

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 1, &one, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(owner, 1000000, &two, NULL), RSD_OK);
    for (size_t i = 0; i < 2; i++) {
        rsd_store *store = fix_store();
        uint64_t   before = fix_images_reused();
        int32_t    data[8];
        rsd_state *made;
        rsd_ckpt  *ckpt;
        uint32_t   first;

        assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
        fix_add_ramp(made, "x", NULL, 1, eight, data);
        assert_int_equal(rsd_state_value(made, "step", one, NULL), RSD_OK);
        assert_int_equal(save_again(made, store, "ck", transform[i]), RSD_OK);
        first = fix_sum(store, "ck");
        assert_int_equal(save_again(made, store, "ck", transform[i]), RSD_OK);
        assert_int_equal(fix_images_reused(), before + 1);
        assert_int_equal(fix_sum(store, "ck"), first);
        for (int k = 0; k < 8; k++)
            data[k] += 7;
        assert_int_equal(save_again(made, store, "ck", transform[i]), RSD_OK);
        assert_int_equal(fix_images_reused(), before + 2);
        ckpt = fix_open(store, "ck");
        assert_row(ckpt, "x", 7);
        rsd_ckpt_close(ckpt);
        assert_int_equal(rsd_state_set_value(made, "none", two, NULL), RSD_E_NOTFOUND);
        assert_int_equal(rsd_state_set_value(made, "step", two, NULL), RSD_OK);
        assert_int_equal(save_again(made, store, "ck", transform[i]), RSD_OK);
        assert_int_equal(save_again(made, store, "ck.pt", NULL), RSD_OK); /* another format */
        assert_int_equal(fix_images_reused(), before + 2);
        rsd_state_free(made);
        rsd_store_close(store);
    }
    rsd_values_free(owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_with_other_keys_are_refused_unless_told),
        cmocka_unit_test(what_only_some_ranks_hold_is_saved_when_told),
        cmocka_unit_test(who_joins_the_states_makes_no_difference),
        cmocka_unit_test(a_tensor_that_ranks_mean_differently_is_named),
        cmocka_unit_test(a_format_that_can_not_hold_a_tensor_names_the_rank_once),
        cmocka_unit_test(a_layout_on_more_ranks_than_the_comm_has_is_refused),
        cmocka_unit_test(an_async_save_names_the_rank_that_differs_once),
        cmocka_unit_test(a_layout_is_made_of_what_each_rank_holds),
        cmocka_unit_test(a_layout_with_a_hole_is_refused_on_all_ranks),
        cmocka_unit_test(replicas_that_differ_are_named_with_their_ranks),
        cmocka_unit_test(a_second_save_uses_the_plan_again_until_something_changes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
