/* SPDX-License-Identifier: Apache-2.0 */
/* What recipes make of small tensors whose elements are their own numbers, converted and loaded in
 * memory and compared with the index arithmetic written out; and what they refuse. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"

#include <reshard/reshard_recipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096 }; /* elements of a tensor */

typedef struct world {
    rsd_store *store;
    rsd_state *state;
    float      data[8][MOST];
    int        n;
} world;

static int begin(void **state)
{
    world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    assert_int_equal(rsd_store_open("mem:", &w->store, NULL), RSD_OK);
    assert_int_equal(rsd_state_create(&w->state, NULL), RSD_OK);
    *state = w;
    return 0;
}

static int end(void **state)
{
    world *w = *state;

    rsd_state_free(w->state);
    rsd_store_close(w->store);
    free(w);
    return 0;
}

/* A tensor of [a, b] or, if b is 0, [a], whose elements are first, first + 1, ... */
static void add(world *w, const char *name, int64_t a, int64_t b, float first)
{
    const int64_t shape[] = { a, b };
    float        *data = w->data[w->n++];
    int           ndim = b ? 2 : 1;
    rsd_view      view = { .box = { .ndim = ndim, .len = { a, b } }, .data = data };

    for (int64_t i = 0; i < a * (b ? b : 1); i++)
        data[i] = first + (float)i;
    assert_int_equal(rsd_state_tensor(w->state, name, NULL, RSD_F32, ndim, shape, 1, &view, NULL),
                     RSD_OK);
}

static rsd_ckpt *save(world *w)
{
    const rsd_save_opts opts = { .size = sizeof(opts), .store = w->store, .overwrite = true };
    rsd_ckpt           *ckpt;

    assert_int_equal(rsd_save("from", NULL, w->state, &opts, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_open(w->store, "from", &ckpt, NULL), RSD_OK);
    return ckpt;
}

static rsd_recipe *parse(const char *text, bool reverse)
{
    rsd_recipe *recipe = NULL;
    rsd_error   err = { .msg = "" };

    if (rsd_recipe_parse(text, reverse, &recipe, &err))
        fail_msg("%s", err.msg);
    return recipe;
}

static rsd_err convert(world *w, const char *text, bool reverse, rsd_error *err)
{
    rsd_recipe      *recipe = parse(text, reverse);
    rsd_ckpt        *ckpt = save(w);
    rsd_convert_opts opts = {
        .size = sizeof(opts), .store = w->store, .recipe = recipe, .overwrite = true
    };
    rsd_err rc = rsd_convert(ckpt, "to", NULL, &opts, err);

    rsd_ckpt_close(ckpt);
    rsd_recipe_free(recipe);
    return rc;
}

/* The tensor of the conversion, and the same loaded from the source with the recipe. */
static void expect(world *w, const char *text, bool reverse, const char *name, int ndim,
                   const int64_t *shape, const float *want)
{
    float         got[MOST], loaded[MOST];
    rsd_view      view = { .box = { .ndim = ndim }, .data = got };
    rsd_recipe   *recipe = parse(text, reverse);
    rsd_load_opts opts = { .size = sizeof(opts), .store = w->store };
    rsd_error     err = { .msg = "" };
    int64_t       n = 1;

    if (convert(w, text, reverse, &err))
        fail_msg("%s", err.msg);
    for (int d = 0; d < ndim; d++)
        n *= view.box.len[d] = shape[d];
    for (int way = 0; way < 2; way++) {
        rsd_state *state;

        view.data = way ? loaded : got;
        opts.recipe = way ? recipe : NULL;
        assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
        assert_int_equal(rsd_state_tensor(state, name, NULL, RSD_F32, ndim, shape, 1, &view, NULL),
                         RSD_OK);
        if (rsd_load(way ? "from" : "to", NULL, state, &opts, &err))
            fail_msg("%s", err.msg);
        rsd_state_free(state);
    }
    rsd_recipe_free(recipe);
    assert_memory_equal(got, want, (size_t)n * sizeof(float));
    assert_memory_equal(loaded, want, (size_t)n * sizeof(float));
}

/* ---- what is made ---- */

static const char qkv[] = "q[(g r d) h], k[(g d) h], v[(g d) h] <-> "
                          "qkv[(g (r d + d + d)) h] where g = 2, d = 3";

static void add_qkv(world *w)
{
    add(w, "q", 2 * 4 * 3, 5, 0);
    add(w, "k", 2 * 3, 5, 1000);
    add(w, "v", 2 * 3, 5, 2000);
}

static void heads_of_a_group_stand_together_in_a_fused_qkv(void **state)
{
    float want[2 * 18 * 5];

    add_qkv(*state);
    for (int g = 0; g < 2; g++)
        for (int x = 0; x < 18; x++)
            for (int h = 0; h < 5; h++)
                want[(g * 18 + x) * 5 + h] = x < 12   ? (float)((g * 12 + x) * 5 + h)
                                             : x < 15 ? 1000 + (float)((g * 3 + x - 12) * 5 + h)
                                                      : 2000 + (float)((g * 3 + x - 15) * 5 + h);
    expect(*state, qkv, false, "qkv", 2, (int64_t[]){ 36, 5 }, want);
}

static void the_reverse_of_a_recipe_splits_what_it_fused(void **state)
{
    float want[6 * 5];

    add(*state, "qkv", 36, 5, 0);
    for (int g = 0; g < 2; g++)
        for (int d = 0; d < 3; d++)
            for (int h = 0; h < 5; h++)
                want[(g * 3 + d) * 5 + h] = (float)((g * 18 + 12 + d) * 5 + h);
    expect(*state, qkv, true, "k", 2, (int64_t[]){ 6, 5 }, want);
}

static void a_capture_that_is_an_axis_stacks_tensors(void **state)
{
    float want[3 * 8 * 2];

    for (int e = 0; e < 3; e++) {
        char name[16];

        snprintf(name, sizeof(name), "e.%d.up", e);
        add(*state, name, 4, 2, 500 + 100 * (float)e);
        snprintf(name, sizeof(name), "e.%d.gate", e);
        add(*state, name, 4, 2, 100 * (float)e);
        for (int i = 0; i < 16; i++)
            want[e * 16 + i] =
                (i < 8 ? 100 * (float)e + (float)i : 500 + 100 * (float)e + (float)i - 8);
    }
    expect(*state, "e.{e}.{gate,up}[i h] <-> fc1[e (i + i) h] for e in 0..3", false, "fc1", 3,
           (int64_t[]){ 3, 8, 2 }, want);
}

static void a_stacked_tensor_is_unstacked_in_reverse(void **state)
{
    float want[] = { 12, 13, 14, 15, 16, 17 };

    add(*state, "l.w", 4, 6, 0);
    expect(*state, "l.{i+5}.{*x}[...] <-> l.{*x}[i ...]", true, "l.7.w", 1, (int64_t[]){ 6 }, want);
}

static void factors_may_change_their_order(void **state)
{
    float want[2 * 2 * 3 * 5];

    add(*state, "q", 12, 5, 0); /* (n i two) h -> (n two i) h */
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 3; i++)
            for (int two = 0; two < 2; two++)
                for (int h = 0; h < 5; h++)
                    want[((n * 2 + two) * 3 + i) * 5 + h] =
                        (float)(((n * 3 + i) * 2 + two) * 5 + h);
    expect(*state, "q[(n i 2) h] <-> q[(n 2 i) h] where n = 2", false, "q", 2, (int64_t[]){ 12, 5 },
           want);
}

static void a_large_matrix_is_transposed_in_slabs(void **state)
{
    static float want[64 * 64];

    add(*state, "a", 64, 64, 0);
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 64; j++)
            want[j * 64 + i] = (float)(i * 64 + j);
    expect(*state, "a[i j] <-> b[j i]", false, "b", 2, (int64_t[]){ 64, 64 }, want);
}

static void padding_is_filled_and_cropped_again(void **state)
{
    float want[] = { 0, 1, 2, 3, 4, 5, -1, -1 };

    add(*state, "e", 3, 2, 0);
    expect(*state, "e[v h] <-> e[(v + p:-1) h] where p = up(v, 4) - v, v = 3", false, "e", 2,
           (int64_t[]){ 4, 2 }, want);
    rsd_state_free(((world *)*state)->state);
    assert_int_equal(rsd_state_create(&((world *)*state)->state, NULL), RSD_OK);
    add(*state, "e", 4, 2, 0);
    expect(*state, "e[v h] <-> e[(v + p:-1) h] where p = up(v, 4) - v, v = 3", true, "e", 2,
           (int64_t[]){ 3, 2 }, (float[]){ 0, 1, 2, 3, 4, 5 });
}

static void a_factor_with_a_star_is_repeated(void **state)
{
    float want[] = { 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3 };

    add(*state, "k", 4, 0, 0);
    expect(*state, "k[(g d)] -> k[(g *r d)] where g = 2, r = 3", false, "k", 1, (int64_t[]){ 12 },
           want);
}

static void constants_are_made_for_every_number_of_a_range(void **state)
{
    add(*state, "k", 2, 0, 0);
    expect(*state, "k -> k; 1.5 -> s.{i}[2] as f32 for i in 0..3", false, "s.2", 1,
           (int64_t[]){ 2 }, (float[]){ 1.5f, 1.5f });
}

static void a_tied_tensor_gets_both_names(void **state)
{
    add(*state, "e", 2, 0, 7);
    expect(*state, "e <-> emb = head", false, "head", 1, (int64_t[]){ 2 }, (float[]){ 7, 8 });
}

static void affine_is_undone_by_the_reverse(void **state)
{
    add(*state, "n", 3, 0, 4);
    expect(*state, "n <-> n times 2 plus -1", false, "n", 1, (int64_t[]){ 3 },
           (float[]){ 7, 9, 11 });
    expect(*state, "n <-> n times 2 plus -1", true, "n", 1, (int64_t[]){ 3 },
           (float[]){ 2.5f, 3, 3.5f });
}

static void the_first_rule_that_matches_wins(void **state)
{
    add(*state, "l.0.w", 2, 0, 0);
    add(*state, "l.1.w", 2, 0, 10);
    expect(*state, "l.{i}.w -> dense.{i} if i < 1; l.{i}.w -> moe.{i-1}", false, "moe.0", 1,
           (int64_t[]){ 2 }, (float[]){ 10, 11 });
}

static void a_rule_may_depend_on_what_the_source_has(void **state)
{
    add(*state, "w", 2, 0, 0);
    add(*state, "w_scale", 1, 0, 10);
    expect(*state, "w_scale -> drop; w -> quantised if has(w_scale); w -> plain", false,
           "quantised", 1, (int64_t[]){ 2 }, (float[]){ 0, 1 });
}

static void numbers_come_from_the_config(void **state)
{
    static const char json[] = "{\"heads\": 2, \"tie\": true, \"name\": \"x\", \"list\": [1, {}],"
                               " \"text_config\": {\"dim\": 3}}";
    rsd_recipe       *recipe =
        parse("let h = missing else heads; a[(h d)] -> a[h d] if tie and dim == 3", false);
    rsd_ckpt *ckpt;

    add(*state, "a", 6, 0, 0);
    ckpt = save(*state);
    assert_int_equal(rsd_recipe_config(recipe, json, strlen(json), NULL), RSD_OK);
    assert_int_equal(rsd_recipe_check(recipe, ckpt, NULL, NULL, NULL, NULL), RSD_OK);
    assert_int_equal(rsd_recipe_set(recipe, "heads", 4, NULL), RSD_OK);
    assert_int_equal(rsd_recipe_check(recipe, ckpt, NULL, NULL, NULL, NULL), RSD_E_MISMATCH);
    rsd_ckpt_close(ckpt);
    rsd_recipe_free(recipe);
}

/* ---- what is refused ---- */

/* Nothing is written, and the message contains `why`. */
static void refuse(world *w, const char *text, const char *why)
{
    rsd_error err = { .msg = "" };
    rsd_ckpt *ckpt;

    assert_int_not_equal(convert(w, text, false, &err), RSD_OK);
    if (!strstr(err.msg, why))
        fail_msg("\"%s\" is not in \"%s\"", why, err.msg);
    assert_int_not_equal(rsd_ckpt_open(w->store, "to", &ckpt, NULL), RSD_OK);
}

static void what_does_not_fit_is_refused_before_anything_is_written(void **state)
{
    world *w = *state;

    add(w, "a", 6, 4, 0);
    add(w, "b", 6, 5, 100);
    add(w, "e.0", 2, 2, 0);
    add(w, "e.2", 2, 2, 0);
    refuse(w, "a -> x", "no rule of the recipe matches tensor \"b\"");
    refuse(w, "{*x} -> {*x} times 0 / 0", "division by 0");
}

static void faults_in_sources_are_found(void **state)
{
    static const char        rest[] = "; {*x} -> {*x}";
    world                   *w = *state;
    char                     text[256];
    static const char *const bad[][2] = {
        { "e.{e}[i h] -> e[e i h]", "the source has no \"e.1\"" },
        { "e.{e}[i h] -> e[e i h] for e in 0..4", "the source has no \"e.1\"" },
        { "e.{e} -> f.{e} for e in 0..3", "for e = 1" },
        { "e.{e}[i h] -> e[e i h] for e in 0..1000000000",
          "are more tensors than a source can have" },
        { "e.{e}[i h] -> e[e i h] for e in -9007199254740992..9007199254740992",
          "more tensors than" },
        { "a[i j], b[i j] -> c[(i + i) j]", "axis 1 has the size 5" },
        { "a[(g d) h] -> a[g d h] where g = 4", "which does not fit" },
        { "a[(g d) h] -> a[g d h]", "the sizes of \"g\" and \"d\" are not known" },
        { "let g = 5 / 2; a[(g d) h] -> a[g d h] where d = 2", "\"g\" is 2.5, which is no size" },
        { "let g = -3; a[(g d) h] -> a[g d h] where d = 2", "\"g\" is -3, which is no size" },
        { "let g = 1 % 0; a[(g d) h] -> a[g d h] where d = 2", "\"%\" needs whole numbers" },
        { "a[(g d) h] -> a[g d h] where g = heads", "the sizes of" },
        { "a[i] -> a[i]", "it has 2 axes, but the recipe says 1" },
        { "a -> x; b -> x", "would be made twice" },
        { "z -> z required", "which the recipe requires" },
        { "a, z -> a, z", "the source has no \"z\"" },
        { "a[i j] -> a[(i + p:0) j]", "the size of \"p\" is not known" },
        { "a -> a if heads > 2", "\"heads\" is not set" },
        { "a[v h] -> a[v h] where v = 7", "axis 0 has the size 6, but the recipe's is 7" },
        { "a[(v + p:_) h] -> a[v h] where v = 9", "which does not fit" },
        { "let g = k; let k = g; a -> a if g", "is defined by itself" },
        { "fp8(a, b) -> a", "are not float8_e4m3fn" },
        { "a -> a as f4", "f4" },
        { "1 -> one[2]", "a constant needs a dtype" },
        { "a[v h] -> a[(v + p:0) h] where p = v / 4", "is not a whole number" },
        { "a[i j] -> a[j i], {*y}[i j]", "all names of a side" },
    };

    add(w, "a", 6, 4, 0);
    add(w, "b", 6, 5, 100);
    add(w, "e.0", 2, 2, 0);
    add(w, "e.2", 2, 2, 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        rsd_recipe *recipe;
        rsd_error   err = { .msg = "" };

        snprintf(text, sizeof(text), "%s%s", bad[i][0], rest);
        if (rsd_recipe_parse(text, false, &recipe, &err) == RSD_OK) {
            rsd_recipe_free(recipe);
            refuse(w, text, bad[i][1]);
        } else if (!strstr(err.msg, bad[i][1])) {
            fail_msg("\"%s\" is not in \"%s\"", bad[i][1], err.msg);
        }
    }
}

static void every_failing_allocation_is_reported(void **state)
{
    static const char text[] = "let g = 2; q[(g r d) h], k[(g d) h], v[(g d) h] -> "
                               "x[(g (r d + d + d)) h] if has(k); {*x} -> {*x}";
    rsd_ckpt         *ckpt;
    rsd_err           rc = RSD_E_NOMEM;

    add_qkv(*state);
    ckpt = save(*state);
    for (uint64_t nth = 1; rc; nth++) {
        rsd_recipe *recipe = NULL;

        rsi_mem_fail_at(nth, 0);
        rc = rsd_recipe_parse(text, false, &recipe, NULL);
        if (!rc)
            rc = rsd_recipe_set(recipe, "d", 3, NULL);
        if (!rc)
            rc = rsd_recipe_check(recipe, ckpt, NULL, NULL, NULL, NULL);
        rsi_mem_fail_at(0, 0);
        rsd_recipe_free(recipe);
        assert_true(rc == RSD_OK || rc == RSD_E_NOMEM || rc == RSD_E_INVALID);
        assert_true(nth < 1000);
    }
    rsd_ckpt_close(ckpt);
}

#define T(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(heads_of_a_group_stand_together_in_a_fused_qkv),
        T(the_reverse_of_a_recipe_splits_what_it_fused),
        T(a_capture_that_is_an_axis_stacks_tensors),
        T(a_stacked_tensor_is_unstacked_in_reverse),
        T(factors_may_change_their_order),
        T(a_large_matrix_is_transposed_in_slabs),
        T(padding_is_filled_and_cropped_again),
        T(a_factor_with_a_star_is_repeated),
        T(constants_are_made_for_every_number_of_a_range),
        T(a_tied_tensor_gets_both_names),
        T(affine_is_undone_by_the_reverse),
        T(the_first_rule_that_matches_wins),
        T(a_rule_may_depend_on_what_the_source_has),
        T(numbers_come_from_the_config),
        T(what_does_not_fit_is_refused_before_anything_is_written),
        T(faults_in_sources_are_found),
        T(every_failing_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
