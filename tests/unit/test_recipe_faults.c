/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of the kind that conversions by hand let through, injected into a small model of experts,
 * its numbers and the recipe hf-megatron: each is refused, or rsd_recipe_check shows it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <reshard/reshard_recipe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TENSORS = 64, MOST_TEXT = 1 << 16 };

typedef struct tensor {
    char      name[96];
    int64_t   shape[2];
    rsd_dtype dtype;
} tensor;

typedef struct model {
    tensor at[MOST_TENSORS];
    size_t n;
} model;

typedef struct fault {
    const char *what;
    const char *drop;     /* tensors whose names contain it */
    const char *old, *by; /* replaced in the names of tensors */
    const char *add;      /* a further tensor [4, 4] */
    const char *odd;      /* a tensor that gets another dtype */
    const char *turn;     /* a tensor with its axes exchanged */
    const char *number;   /* set to `value` */
    double      value;
    const char *text, *to; /* replaced in the recipe */
    const char *why;       /* in the message; NULL: it is not refused, but shown */
} fault;

static const char up_rule[] =
    "model.layers.{i}.mlp.experts.{e}.{gate,up}_proj.weight[x h]\n    <-> "
    "decoder.layers.mlp.experts.experts.linear_fc1.weight[i e (x + x) h] for i in 0..L for e in "
    "0..E\n";
static const char down_rule[] =
    "model.layers.{i}.mlp.experts.{e}.down_proj.weight[h x]\n    <-> "
    "decoder.layers.mlp.experts.experts.linear_fc2.weight[i e h x] for i in 0..L for e in 0..E\n";

static const fault faults[] = {
    { "an expert's matrix is missing", .drop = "layers.1.mlp.experts.2.up", .why = "experts.2.up" },
    { "an expert is missing", .drop = "layers.0.mlp.experts.1.", .why = "experts.1" },
    { "the last expert of all layers is missing", .drop = "experts.2.", .why = "experts.2" },
    { "the experts of a layer are missing", .drop = "layers.1.mlp.experts.", .why = "layers.1" },
    { "an expert has a wrong number", .old = "experts.2.", .by = "experts.7.", .why = "experts" },
    { "an expert more than the config says", .number = "num_experts", .value = 2,
      .why = "experts.2" },
    { "an expert fewer than the config says", .number = "num_experts", .value = 4,
      .why = "experts.3" },
    { "a layer is doubled", .add = "model.layers.2.self_attn.o_proj.weight", .why = "layers.2" },
    { "a layer is missing", .drop = "layers.1.", .why = "layers.1" },
    { "a layer more than the config says", .number = "num_hidden_layers", .value = 1,
      .why = "layers.1" },
    { "the head is lost, and not tied", .drop = "lm_head", .why = "lm_head" },
    { "a head that the config calls tied", .number = "tie_word_embeddings", .value = 1 },
    { "the embedding is lost", .drop = "embed_tokens", .why = "embed_tokens" },
    { "a matrix is transposed in the source", .turn = "layers.1.self_attn.k_proj",
      .why = "differ" },
    { "an expert is transposed in the source", .turn = "experts.1.down", .why = "differ" },
    { "an expert has another dtype", .odd = "experts.1.down", .why = "differ" },
    { "a tensor that nobody knows", .add = "model.layers.0.self_attn.extra.weight",
      .why = "extra" },
    { "a bias of one layer only", .add = "model.layers.0.self_attn.q_proj.bias", .why = "bias" },
    { "a wrong number of key heads", .number = "num_key_value_heads", .value = 2, .why = "axis 0" },
    { "the recipe transposes a square matrix",
      .text = "o_proj.weight[...] <-> decoder.layers.self_attention.linear_proj.weight[i ...]",
      .to = "o_proj.weight[a b] <-> decoder.layers.self_attention.linear_proj.weight[i b a]" },
    { "the recipe exchanges gate and up", .text = "experts.{e}.{gate,up}_proj",
      .to = "experts.{e}.{up,gate}_proj" },
    { "the recipe exchanges keys and values", .text = "self_attn.{k,v}_proj.weight",
      .to = "self_attn.{v,k}_proj.weight" },
    { "the recipe takes rows of heads in another order", .text = "q_proj.weight[(G r d) h]",
      .to = "q_proj.weight[(G d r) h]" },
    { "the recipe has no rule for experts", .text = down_rule, .to = "", .why = "down_proj" },
    { "the recipe drops the experts' last matrix", .text = down_rule,
      .to = "model.layers.{i}.mlp.experts.{e}.down_proj.weight -> drop\n" },
    { "the recipe takes only some experts", .text = up_rule,
      .to = "model.layers.{i}.mlp.experts.{e}.{gate,up}_proj.weight[x h] <-> "
            "decoder.layers.mlp.experts.experts.linear_fc1.weight[i e (x + x) h] for i in 0..L for "
            "e in 0..E - 1\n",
      .why = "experts.2" },
    { "the recipe forgets the padding",
      .text =
          "embedding.word_embeddings.weight[(v + p:0) h] where p = up(v, multiple) - v required",
      .to = "embedding.word_embeddings.weight[v h] required" },
    { "the recipe gives two tensors one name", .text = "decoder.final_layernorm.weight",
      .to = "output_layer.weight", .why = "made twice" },
    { "the recipe casts", .text = "<-> decoder.final_layernorm.weight",
      .to = "<-> decoder.final_layernorm.weight as f16" },
    { "the recipe scales", .text = "<-> decoder.final_layernorm.weight",
      .to = "<-> decoder.final_layernorm.weight times 2" },
};

/* ---- the model ---- */

static void add(model *m, int64_t a, int64_t b, const char *fmt, ...)
{
    tensor *t = &m->at[m->n++];
    va_list args;

    assert_true(m->n <= MOST_TENSORS);
    va_start(args, fmt);
    vsnprintf(t->name, sizeof(t->name), fmt, args);
    va_end(args);
    t->shape[0] = a;
    t->shape[1] = b;
    t->dtype = RSD_F32;
}

/* Two layers, three experts, two heads of size 2 in one group: o_proj is square. */
static void make_model(model *m)
{
    m->n = 0;
    add(m, 7, 4, "model.embed_tokens.weight");
    add(m, 7, 4, "lm_head.weight");
    add(m, 4, 0, "model.norm.weight");
    for (int i = 0; i < 2; i++) {
        add(m, 4, 4, "model.layers.%d.self_attn.q_proj.weight", i);
        add(m, 2, 4, "model.layers.%d.self_attn.k_proj.weight", i);
        add(m, 2, 4, "model.layers.%d.self_attn.v_proj.weight", i);
        add(m, 4, 4, "model.layers.%d.self_attn.o_proj.weight", i);
        add(m, 4, 0, "model.layers.%d.input_layernorm.weight", i);
        add(m, 4, 0, "model.layers.%d.post_attention_layernorm.weight", i);
        add(m, 3, 4, "model.layers.%d.mlp.gate.weight", i);
        for (int e = 0; e < 3; e++) {
            add(m, 6, 4, "model.layers.%d.mlp.experts.%d.gate_proj.weight", i, e);
            add(m, 6, 4, "model.layers.%d.mlp.experts.%d.up_proj.weight", i, e);
            add(m, 4, 6, "model.layers.%d.mlp.experts.%d.down_proj.weight", i, e);
        }
    }
}

/* `text` with the first `old` replaced; false: it has none. */
static bool replace(char *text, size_t cap, const char *old, const char *by)
{
    char *at = strstr(text, old), *rest;

    if (!at)
        return false;
    rest = strdup(at + strlen(old));
    assert_non_null(rest);
    snprintf(at, cap - (size_t)(at - text), "%s%s", by, rest);
    free(rest);
    return true;
}

static void inject(model *m, const fault *f)
{
    size_t kept = 0;
    bool   done = !f->drop && !f->old && !f->odd && !f->turn;

    for (size_t i = 0; i < m->n; i++) {
        tensor t = m->at[i];

        if (f->drop && strstr(t.name, f->drop)) {
            done = true;
            continue;
        }
        if (f->old && replace(t.name, sizeof(t.name), f->old, f->by))
            done = true;
        if (f->odd && !done && strstr(t.name, f->odd)) {
            t.dtype = RSD_BF16;
            done = true;
        }
        if (f->turn && !done && strstr(t.name, f->turn)) {
            int64_t a = t.shape[0];

            t.shape[0] = t.shape[1];
            t.shape[1] = a;
            done = true;
        }
        m->at[kept++] = t;
    }
    assert_true(done);
    m->n = kept;
    if (f->add)
        add(m, 4, strstr(f->add, "bias") ? 0 : 4, "%s", f->add);
}

static rsd_ckpt *save(rsd_store *store, const model *m)
{
    static float        zeros[64];
    const rsd_save_opts opts = { .size = sizeof(opts), .store = store, .overwrite = true };
    rsd_state          *state;
    rsd_ckpt           *ckpt;

    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    for (size_t i = 0; i < m->n; i++) {
        const tensor *t = &m->at[i];
        int           ndim = t->shape[1] ? 2 : 1;
        rsd_view      view = { .box = { .ndim = ndim, .len = { t->shape[0], t->shape[1] } },
                               .data = zeros };

        assert_int_equal(
            rsd_state_tensor(state, t->name, NULL, t->dtype, ndim, t->shape, 1, &view, NULL),
            RSD_OK);
    }
    assert_int_equal(rsd_save("model", NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
    assert_int_equal(rsd_ckpt_open(store, "model", &ckpt, NULL), RSD_OK);
    return ckpt;
}

/* ---- what the check shows ---- */

static void note(char *all, const char *fmt, ...)
{
    size_t  used = strlen(all);
    va_list args;

    va_start(args, fmt);
    vsnprintf(all + used, MOST_TEXT - used, fmt, args);
    va_end(args);
    assert_true(strlen(all) < MOST_TEXT - 1);
}

static void note_made(void *arg, const rsd_made *made)
{
    note(arg, "%s %s", made->name, rsd_dtype_name(made->dtype));
    for (int d = 0; d < made->ndim; d++)
        note(arg, " %lld", (long long)made->shape[d]);
    note(arg, " %d%d%d:", made->tied, made->reordered, made->scaled);
    for (size_t i = 0; i < made->nfrom; i++)
        note(arg, " %s", made->from[i]);
    note(arg, "\n");
}

static void note_dropped(void *arg, const char *name, int32_t line)
{
    (void)line;
    note(arg, "%s is dropped\n", name);
}

static rsd_err check(rsd_store *store, const char *text, const fault *f, char *shown,
                     rsd_error *err)
{
    static const char config[] =
        "{\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 2, "
        "\"hidden_size\": 4, \"num_hidden_layers\": 2, \"num_experts\": 3}";
    model       m;
    rsd_recipe *recipe = NULL;
    rsd_ckpt   *ckpt;
    rsd_err     rc;

    make_model(&m);
    inject(&m, f);
    ckpt = save(store, &m);
    shown[0] = '\0';
    rc = rsd_recipe_parse(text, false, &recipe, err);
    if (!rc)
        rc = rsd_recipe_config(recipe, config, sizeof(config) - 1, err);
    if (!rc && f->number)
        rc = rsd_recipe_set(recipe, f->number, f->value, err);
    if (!rc)
        rc = rsd_recipe_check(recipe, ckpt, note_made, note_dropped, shown, err);
    rsd_recipe_free(recipe);
    rsd_ckpt_close(ckpt);
    return rc;
}

static void every_fault_is_refused_or_shown(void **state)
{
    static char  text[MOST_TEXT], good[MOST_TEXT], shown[MOST_TEXT], bad[MOST_TEXT];
    const fault  none = { .what = "none" };
    const size_t n = sizeof(faults) / sizeof(faults[0]);
    FILE        *file = fopen(RESHARD_TEST_DATA "/../../recipes/hf-megatron.recipe", "r");
    rsd_store   *store;
    rsd_error    err = { .msg = "" };
    size_t       refused = 0;

    (void)state;
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(rsd_store_open("mem:", &store, NULL), RSD_OK);
    if (check(store, text, &none, good, &err))
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < n; i++) {
        const fault *f = &faults[i];
        rsd_err      rc;

        snprintf(bad, sizeof(bad), "%s", text);
        if (f->text && !replace(bad, sizeof(bad), f->text, f->to))
            fail_msg("%s: the recipe has no \"%s\"", f->what, f->text);
        err.msg[0] = '\0';
        rc = check(store, bad, f, shown, &err);
        print_message("%-50s %s\n", f->what, rc ? err.msg : "is shown");
        if (f->why && (!rc || !strstr(err.msg, f->why)))
            fail_msg("%s: \"%s\" is not in \"%s\"", f->what, f->why, err.msg);
        if (!f->why && (rc || strcmp(good, shown) == 0))
            fail_msg("%s: it is not shown: %s", f->what, err.msg);
        refused += rc != RSD_OK;
    }
    print_message("%zu faults: %zu refused, %zu shown\n", n, refused, n - refused);
    rsd_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_is_refused_or_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
