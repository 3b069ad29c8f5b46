/* SPDX-License-Identifier: Apache-2.0 */
/* test_image.c - which files a checkpoint will have, who writes them and what is in them, for every
 * kind of layout; image.c and the three formats' image_*.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/text.h"
#include "ckpt_fixture.h"
#include "shape/box.h"
#include "write/image.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int32_t data[1024];

static rsd_state *make(void)
{
    rsd_state *made;

    assert_int_equal(rsd_state_create(&made, NULL), RSD_OK);
    return made;
}

/* What a rank above 0 finds without looking at the others is its part of the whole list. */
static void assert_own_chunks(const rsd_state *made, size_t t, bool empties,
                              const rsi_stored_list *all)
{
    for (int32_t rank = 1; rank < 12; rank++) {
        rsi_stored_list own = { 0 };
        size_t          n = 0;

        assert_int_equal(rsi_stored_chunks(made, t, empties, rank, &own, NULL), RSD_OK);
        for (size_t i = 0; i < all->n; i++) {
            if (all->at[i].rank != rank)
                continue;
            assert_true(n < own.n);
            assert_int_equal(own.at[n].rank, rank);
            assert_true(rsi_box_equal(&own.at[n++].box, &all->at[i].box));
        }
        assert_int_equal(own.n, n);
        rsi_free(own.at);
    }
}

/* "0:[0:2, 0:3] 1:[2:4, 0:3]": rank and box of each chunk. */
static void assert_chunks(rsd_layout *layout, int ndim, const int64_t *shape, size_t ordinal,
                          bool empties, const char *want)
{
    char            text[1 << 14];
    rsi_text        out = rsi_text_begin(text, sizeof(text));
    rsd_state      *made = make();
    rsi_stored_list list = { 0 };

    for (size_t i = 0; i < ordinal; i++) { /* so many stand before it */
        char name[32];

        snprintf(name, sizeof(name), "%zu", i);
        assert_int_equal(rsd_state_tensor(made, name, NULL, RSD_I32, 0, NULL, 0, NULL, NULL),
                         RSD_OK);
    }
    assert_int_equal(rsd_state_tensor(made, "x", layout, RSD_I32, ndim, shape, 0, NULL, NULL),
                     RSD_OK);
    rsd_layout_free(layout);
    assert_int_equal(rsi_stored_chunks(made, ordinal, empties, -1, &list, NULL), RSD_OK);
    for (size_t i = 0; i < list.n; i++) {
        char box[64];

        rsd_box_text(&list.at[i].box, box, sizeof(box));
        rsi_text_add(&out, "%s%" PRId32 ":%s", i ? " " : "", list.at[i].rank, box);
    }
    assert_own_chunks(made, ordinal, empties, &list);
    if (want)
        assert_string_equal(text, want);
    rsi_free(list.at);
    rsd_state_free(made);
}

static const int64_t sq[] = { 4, 6 };

static void chunks_are_the_boxes_of_the_layout(void **state)
{
    (void)state;
    assert_chunks(NULL, 2, sq, 5, true, "0:[0:4, 0:6]");
    assert_chunks(fix_layout("mesh tp=2; * shard(0)@tp", RSD_I32, 2, sq), 2, sq, 0, true,
                  "0:[0:2, 0:6] 1:[2:4, 0:6]");
    assert_chunks(fix_layout("mesh tp=3; * shard(1)@tp", RSD_I32, 2, sq), 2, sq, 0, true,
                  "0:[0:4, 0:2] 1:[0:4, 2:4] 2:[0:4, 4:6]");
    assert_chunks(fix_layout("mesh dp=2 tp=2; * shard(0)@dp shard(1)@tp", RSD_I32, 2, sq), 2, sq, 0,
                  true, "0:[0:2, 0:3] 1:[0:2, 3:6] 2:[2:4, 0:3] 3:[2:4, 3:6]");
}

static void replicated_tensors_are_written_by_each_rank_in_turn(void **state)
{
    (void)state;
    for (size_t t = 0; t < 7; t++) {
        char want[32];

        rsi_text_add(&(rsi_text){ .buf = want, .cap = sizeof(want) }, "%zu:[0:4, 0:6]", t % 3);
        assert_chunks(fix_layout("mesh dp=3; * replicate", RSD_I32, 2, sq), 2, sq, t, true, want);
    }
}

/* Chunk c is held by ranks c and c + 2. */
static void replicated_shards_are_spread_over_their_holders(void **state)
{
    const char *hsdp = "mesh dp=2 tp=2; * shard(0)@tp";

    (void)state;
    assert_chunks(fix_layout(hsdp, RSD_I32, 2, sq), 2, sq, 0, true, "0:[0:2, 0:6] 3:[2:4, 0:6]");
    assert_chunks(fix_layout(hsdp, RSD_I32, 2, sq), 2, sq, 1, true, "2:[0:2, 0:6] 1:[2:4, 0:6]");
}

/* 3 MiB in 8 rows on 3 ranks; the turn of tensor 1 begins at rank 1. Two rows of 3 MiB are two
 * parts, and one row is cut in its columns. */
static void large_replicated_boxes_are_split_over_their_holders(void **state)
{
    const int64_t eight[] = { 8, 98304 }, two[] = { 2, 393216 }, one[] = { 1, 786432 };
    const char   *rules = "mesh dp=3; * replicate";

    (void)state;
    assert_chunks(fix_layout(rules, RSD_I32, 2, eight), 2, eight, 1, true,
                  "1:[0:3, 0:98304] 2:[3:6, 0:98304] 0:[6:8, 0:98304]");
    assert_chunks(fix_layout(rules, RSD_I32, 2, two), 2, two, 0, true,
                  "0:[0:1, 0:393216] 1:[1:2, 0:393216]");
    assert_chunks(fix_layout(rules, RSD_I32, 2, one), 2, one, 0, true,
                  "0:[0:1, 0:262144] 1:[0:1, 262144:524288] 2:[0:1, 524288:786432]");
}

static void a_rank_finds_its_own_chunks_alone(void **state)
{
    static const char *rules[] = {
        "mesh dp=2 tp=5; * shard(0)@tp",
        "mesh dp=2 tp=5; * shard(0)@tp shard(1)@dp",
        "mesh dp=2 tp=5; * shard(0)@dp shard(0)@tp",
        "mesh dp=3 tp=3; * shard(1)@tp",
        "mesh dp=3 tp=3; * replicate",
        "mesh a=2 b=2 c=2; * shard(0)@a shard(1)@c",
        "mesh a=2 b=2 c=2; * strided(0,2)@a shard(0)@b",
    };
    static const int64_t shapes[][2] = { { 4, 6 }, { 1, 1 }, { 3, 700001 }, { 9, 2 }, { 0, 5 } };

    (void)state;
    for (size_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++)
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            for (size_t t = 0; t < 4; t++) {
                assert_chunks(fix_layout(rules[r], RSD_I32, 2, shapes[s]), 2, shapes[s], t, true,
                              NULL);
                assert_chunks(fix_layout(rules[r], RSD_I32, 2, shapes[s]), 2, shapes[s], t, false,
                              NULL);
            }
}

static void uneven_shards_keep_their_sizes(void **state)
{
    const int64_t five[] = { 5 };

    (void)state;
    assert_chunks(fix_layout("mesh tp=3; * shard(0)@tp", RSD_I32, 1, five), 1, five, 0, true,
                  "0:[0:2] 1:[2:4] 2:[4:5]");
}

/* torch: 5 rows on 4 ranks are 2, 2, 1 and an empty one that starts at 5. */
static void empty_shards_are_chunks_only_where_torch_has_them(void **state)
{
    const int64_t five[] = { 5 };
    const char   *rules = "mesh tp=4; * shard(0)@tp";

    (void)state;
    assert_chunks(fix_layout(rules, RSD_I32, 1, five), 1, five, 0, true,
                  "0:[0:2] 1:[2:4] 2:[4:5] 3:[5:5]");
    assert_chunks(fix_layout(rules, RSD_I32, 1, five), 1, five, 0, false,
                  "0:[0:2] 1:[2:4] 2:[4:5]");
}

static void several_empty_shards_are_one_chunk(void **state)
{
    const int64_t two[] = { 2 };

    (void)state;
    assert_chunks(fix_layout("mesh tp=4; * shard(0)@tp", RSD_I32, 1, two), 1, two, 0, true,
                  "0:[0:1] 1:[1:2] 2:[2:2]");
}

static void a_tensor_of_nothing_is_one_empty_chunk(void **state)
{
    const int64_t none[] = { 0, 3 };

    (void)state;
    assert_chunks(NULL, 2, none, 0, true, "0:[0:0, 0:3]");
    assert_chunks(fix_layout("mesh tp=2; * shard(0)@tp", RSD_I32, 2, none), 2, none, 0, true,
                  "0:[0:0, 0:3]");
}

static void strided_shards_are_several_chunks_of_a_rank(void **state)
{
    const int64_t eight[] = { 8 };

    (void)state;
    assert_chunks(fix_layout("mesh dp=2 tp=2; * strided(0,2)@dp shard(0)@tp", RSD_I32, 1, eight), 1,
                  eight, 0, true, "0:[0:2] 1:[4:6] 2:[2:4] 3:[6:8]");
    assert_chunks(fix_layout("mesh dp=2; * strided(0,2)@dp", RSD_I32, 1, eight), 1, eight, 0, true,
                  "0:[0:2] 0:[4:6] 1:[2:4] 1:[6:8]");
}

static rsd_layout *table(size_t n, const int32_t *owner, const rsd_box *box, int64_t size)
{
    rsd_layout *layout;

    assert_int_equal(rsd_layout_create_boxes(RSD_I32, 1, &size, n, owner, box, &layout, NULL),
                     RSD_OK);
    return layout;
}

static void boxes_of_a_table_are_written_by_one_of_their_holders(void **state)
{
    const int64_t six[] = { 6 };
    const int32_t owner[] = { 2, 0, 1, 2 };
    const rsd_box box[] = { fix_box1(0, 3), fix_box1(3, 3), fix_box1(3, 3), fix_box1(3, 3) };

    (void)state;
    /* Box [3:6] is row 1, held by 0, 1 and 2. */
    assert_chunks(table(4, owner, box, 6), 1, six, 0, true, "2:[0:3] 1:[3:6]");
    assert_chunks(table(4, owner, box, 6), 1, six, 1, true, "2:[0:3] 2:[3:6]");
    assert_chunks(table(4, owner, box, 6), 1, six, 2, true, "2:[0:3] 0:[3:6]");
}

/* ---- files ---- */

/* "name@owner/items" of each file; the checkpoint itself is ".". */
static void assert_files(rsd_state *made, const rsi_image_spec *spec, const char *want)
{
    char      text[1024] = { 0 };
    rsi_text  out = rsi_text_begin(text, sizeof(text));
    rsi_image image;
    rsd_error err;

    if (rsi_image_make(&image, made, spec, &err))
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < image.nfiles; i++)
        rsi_text_add(&out, "%s%s@%" PRId32 "/%zu", i ? " " : "",
                     image.file[i].name ? image.file[i].name : ".", image.file[i].owner,
                     image.file[i].nitems);
    assert_string_equal(text, want);
    rsi_image_release(&image);
}

/* "r" in rows on 3 ranks, "s" replicated, two values. */
static rsd_state *small_state(rsd_values *owner)
{
    const int64_t    six[] = { 6 };
    rsd_state       *made = make();
    const rsd_value *v;

    fix_add_ramp(made, "r", fix_layout("mesh tp=3; * shard(0)@tp", RSD_I32, 1, six), 1, six, data);
    fix_add_ramp(made, "s", fix_layout("mesh tp=3; * replicate", RSD_I32, 1, six), 1, six, data);
    if (owner) {
        assert_int_equal(rsd_value_create_int(owner, 7, &v, NULL), RSD_OK);
        assert_int_equal(rsd_state_value(made, "u", v, NULL), RSD_OK);
        assert_int_equal(rsd_state_value(made, "v", v, NULL), RSD_OK);
    }
    return made;
}

static void dcp_has_a_file_for_each_rank_that_writes(void **state)
{
    const rsi_image_spec spec = { .format = RSD_FORMAT_DCP };
    rsd_values          *owner;
    rsd_state           *made;

    (void)state;
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    made = small_state(owner);
    assert_files(made, &spec, "__0_0.distcp@0/3 __1_0.distcp@1/2 __2_0.distcp@2/1");
    rsd_state_free(made);
    made = make();
    assert_files(made, &spec, "");
    rsd_state_free(made);
    rsd_values_free(owner);
}

static void ranks_that_write_nothing_have_no_file(void **state)
{
    const rsi_image_spec spec = { .format = RSD_FORMAT_DCP };
    const int64_t        six[] = { 6 };
    const int32_t        owner[] = { 1, 4 };
    const rsd_box        box[] = { fix_box1(0, 3), fix_box1(3, 3) };
    rsd_state           *made = make();

    (void)state;
    fix_add_ramp(made, "x", table(2, owner, box, 6), 1, six, data);
    assert_files(made, &spec, "__1_0.distcp@1/1 __4_0.distcp@4/1");
    rsd_state_free(made);
}

static void safetensors_are_one_file_or_several_with_an_index(void **state)
{
    rsd_state     *made = small_state(NULL);
    rsi_image_spec spec = { .format = RSD_FORMAT_SAFETENSORS, .one_file = true };

    (void)state;
    assert_files(made, &spec, ".@0/1");
    spec.shard_size = 24;
    assert_files(made, &spec, ".@0/1");
    spec = (rsi_image_spec){ .format = RSD_FORMAT_SAFETENSORS };
    assert_files(made, &spec, "model.safetensors@0/1");
    spec.shard_size = 24;
    assert_files(made, &spec,
                 "model-00001-of-00002.safetensors@0/1 model-00002-of-00002.safetensors@0/1 "
                 "model.safetensors.index.json@0/1");
    spec.shard_size = 48;
    assert_files(made, &spec, "model.safetensors@0/1");
    rsd_state_free(made);
}

static void distributed_safetensors_have_a_file_for_each_rank(void **state)
{
    const rsi_image_spec spec = { .format = RSD_FORMAT_SAFETENSORS, .distributed = true };
    rsd_state           *made = small_state(NULL);

    (void)state;
    assert_files(made, &spec,
                 "shard-00001-model-00001-of-00001.safetensors@0/1 "
                 "shard-00002-model-00001-of-00001.safetensors@1/1 "
                 "shard-00003-model-00001-of-00001.safetensors@2/1");
    rsd_state_free(made);
}

static void several_boxes_of_a_rank_are_several_distributed_files(void **state)
{
    const rsi_image_spec spec = { .format = RSD_FORMAT_SAFETENSORS, .distributed = true };
    const int64_t        eight[] = { 8 };
    rsd_state           *made = make();

    (void)state;
    fix_add_ramp(made, "x", fix_layout("mesh dp=2; * strided(0,2)@dp", RSD_I32, 1, eight), 1, eight,
                 data);
    assert_files(made, &spec,
                 "shard-00001-model-00001-of-00002.safetensors@0/1 "
                 "shard-00001-model-00002-of-00002.safetensors@0/1 "
                 "shard-00002-model-00001-of-00002.safetensors@1/1 "
                 "shard-00002-model-00002-of-00002.safetensors@1/1");
    rsd_state_free(made);
}

/* Boxes of a table are sorted by place, so those of a rank need not stand together. */
static void boxes_of_ranks_in_turn_are_several_distributed_files_too(void **state)
{
    const rsi_image_spec spec = { .format = RSD_FORMAT_SAFETENSORS, .distributed = true };
    const int64_t        six[] = { 6 };
    const int32_t        owner[] = { 0, 1, 0 };
    const rsd_box        box[] = { fix_box1(0, 2), fix_box1(2, 2), fix_box1(4, 2) };
    rsd_state           *made = make();

    (void)state;
    fix_add_ramp(made, "x", table(3, owner, box, 6), 1, six, data);
    assert_files(made, &spec,
                 "shard-00001-model-00001-of-00002.safetensors@0/1 "
                 "shard-00002-model-00001-of-00002.safetensors@1/1 "
                 "shard-00001-model-00002-of-00002.safetensors@0/1");
    rsd_state_free(made);
}

static void torch_save_is_one_file(void **state)
{
    const rsi_image_spec spec = { .format = RSD_FORMAT_TORCH, .one_file = true };
    rsd_state           *made = small_state(NULL);

    (void)state;
    assert_files(made, &spec, ".@0/1");
    rsd_state_free(made);
}

/* ---- balance ---- */

enum { VOCAB = 128256, HIDDEN = 4096, LAYERS = 32, KV = 1024, FFN = 14336 };

static void add_weight(rsd_state *made, const rsd_rules *rules, const char *name, int ndim,
                       int64_t rows, int64_t cols)
{
    const int64_t shape[] = { rows, cols };
    rsd_layout   *layout;

    assert_int_equal(rsd_rules_layout(rules, name, RSD_BF16, ndim, shape, &layout, NULL), RSD_OK);
    assert_int_equal(rsd_state_tensor(made, name, layout, RSD_BF16, ndim, shape, 0, NULL, NULL),
                     RSD_OK);
    rsd_layout_free(layout);
}

static void add_layer(rsd_state *made, const rsd_rules *rules, int i)
{
    static const struct {
        const char *name;
        int         ndim;
        int64_t     rows, cols;
    } weight[] = {
        { "wq", 2, HIDDEN, HIDDEN }, { "wk", 2, KV, HIDDEN },       { "wv", 2, KV, HIDDEN },
        { "wo", 2, HIDDEN, HIDDEN }, { "w1", 2, FFN, HIDDEN },      { "w2", 2, HIDDEN, FFN },
        { "w3", 2, FFN, HIDDEN },    { "attn_norm", 1, HIDDEN, 0 }, { "ffn_norm", 1, HIDDEN, 0 },
    };

    for (size_t k = 0; k < sizeof(weight) / sizeof(weight[0]); k++) {
        char name[64];

        rsi_text_add(&(rsi_text){ .buf = name, .cap = sizeof(name) }, "layers.%d.%s.weight", i,
                     weight[k].name);
        add_weight(made, rules, name, weight[k].ndim, weight[k].rows, weight[k].cols);
    }
}

/* Bytes that the ranks write of Llama-3-8B's tensors differ by 10 % at most. */
static void assert_balanced(const char *text)
{
    const rsi_image_spec spec = { .format = RSD_FORMAT_DCP };
    uint64_t             bytes[8] = { 0 }, least = UINT64_MAX, most = 0;
    rsd_state           *made = make();
    rsd_rules           *rules;
    rsi_image            image;

    assert_int_equal(rsd_rules_parse(text, &rules, NULL), RSD_OK);
    add_weight(made, rules, "tok_embeddings.weight", 2, VOCAB, HIDDEN);
    for (int i = 0; i < LAYERS; i++)
        add_layer(made, rules, i);
    add_weight(made, rules, "norm.weight", 1, HIDDEN, 0);
    add_weight(made, rules, "output.weight", 2, VOCAB, HIDDEN);
    assert_int_equal(rsi_image_make(&image, made, &spec, NULL), RSD_OK);
    for (size_t i = 0; i < image.nfiles; i++)
        bytes[image.file[i].owner] += image.file[i].bytes;
    for (int r = 0; r < 8; r++) {
        least = bytes[r] < least ? bytes[r] : least;
        most = bytes[r] > most ? bytes[r] : most;
    }
    if (most - least > least / 10)
        fail_msg("%s: %" PRIu64 " to %" PRIu64 " bytes", text, least, most);
    rsi_image_release(&image);
    rsd_rules_free(rules);
    rsd_state_free(made);
}

static void ranks_write_about_as_much_of_a_real_model(void **state)
{
    (void)state;
    assert_balanced("mesh dp=8; * shard(0)@dp");
    assert_balanced("mesh dp=2 fsdp=4; * shard(0)@fsdp");
    assert_balanced("mesh tp=8; *norm* replicate; *.wo.* shard(1)@tp; *.w2.* shard(1)@tp; "
                    "* shard(0)@tp");
    assert_balanced("mesh dp=8; * replicate");
    assert_balanced("mesh dp=4 tp=2; *norm* replicate; *.w2.* shard(1)@tp; * shard(0)@tp");
}

/* ---- what is refused ---- */

static void assert_refused(rsd_state *made, const rsi_image_spec *spec, rsd_err code,
                           const char *text)
{
    rsd_error err = { 0 };
    rsi_image image;

    assert_int_equal(rsi_image_make(&image, made, spec, &err), code);
    if (!strstr(err.msg, text))
        fail_msg("\"%s\" has no \"%s\"", err.msg, text);
    assert_null(image.file);
}

static void what_a_format_is_not_is_refused(void **state)
{
    rsd_state     *made = small_state(NULL);
    rsi_image_spec spec = { .format = RSD_FORMAT_DCP, .one_file = true };

    (void)state;
    assert_refused(made, &spec, RSD_E_INVALID, "a DCP checkpoint is a folder");
    spec =
        (rsi_image_spec){ .format = RSD_FORMAT_SAFETENSORS, .one_file = true, .distributed = true };
    assert_refused(made, &spec, RSD_E_INVALID, "distributed safetensors are a folder");
    spec = (rsi_image_spec){ .format = RSD_FORMAT_AUTO };
    assert_refused(made, &spec, RSD_E_INVALID, "no output format given");
    spec = (rsi_image_spec){ .format = RSD_FORMAT_TORCH, .transform = "stream.zstd" };
    assert_refused(made, &spec, RSD_E_UNSUPPORTED, "only DCP checkpoints can be transformed");
    spec = (rsi_image_spec){ .format = RSD_FORMAT_DCP, .transform = "stream.nobody" };
    assert_refused(made, &spec, RSD_E_UNSUPPORTED, "stream.nobody");
    rsd_state_free(made);
}

static void assert_nesting_refused(const char *first, int64_t index, const char *text)
{
    const rsi_image_spec spec = { .format = RSD_FORMAT_TORCH, .one_file = true };
    const int64_t        six[] = { 6 };
    rsd_state           *made = make();

    fix_add_ramp(made, first, NULL, 1, six, data);
    assert_int_equal(rsd_state_push(made, "l", NULL), RSD_OK);
    assert_int_equal(rsd_state_push_index(made, index, NULL), RSD_OK);
    fix_add_ramp(made, NULL, NULL, 1, six, data);
    assert_int_equal(rsd_state_pop(made, NULL), RSD_OK);
    assert_int_equal(rsd_state_pop(made, NULL), RSD_OK);
    assert_refused(made, &spec, RSD_E_INVALID, text);
    rsd_state_free(made);
}

static void nesting_that_torch_save_can_not_have_is_refused(void **state)
{
    const rsi_image_spec spec = { .format = RSD_FORMAT_TORCH, .one_file = true };
    const int64_t        six[] = { 6 };
    rsd_state           *made = make();

    (void)state;
    assert_nesting_refused("a", 1, "the list of \"l.1\" has no index 0");
    assert_nesting_refused("l", 0, "\"l\" is a value and has others in it");
    assert_int_equal(rsd_state_push(made, "l", NULL), RSD_OK);
    fix_add_ramp(made, "k", NULL, 1, six, data);
    assert_int_equal(rsd_state_push_index(made, 0, NULL), RSD_OK);
    fix_add_ramp(made, NULL, NULL, 1, six, data);
    assert_refused(made, &spec, RSD_E_INVALID, "lies in a dict and in a list");
    rsd_state_free(made);
}

/* ---- the nth allocation fails ---- */

typedef struct making {
    rsd_state     *state;
    rsi_image_spec spec;
} making;

static rsd_err make_image(void *arg, rsd_error *err)
{
    making   *m = arg;
    rsi_image image;
    rsd_err   rc = rsi_image_make(&image, m->state, &m->spec, err);

    if (!rc)
        rsi_image_release(&image);
    return rc;
}

static rsd_err add_bytes(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    (void)err;
    return rsi_bytes_add(arg, bytes, len) ? RSD_OK : RSD_E_NOMEM;
}

/* The metadata, then the name, writer and size of every file. */
static rsi_bytes all_of(const rsd_state *made, bool own_only)
{
    const rsi_image_spec spec = { .format = RSD_FORMAT_DCP, .own_only = own_only };
    rsi_bytes            out = { 0 };
    rsi_image            image;
    rsd_error            err;

    if (rsi_image_make(&image, made, &spec, &err) ||
        rsi_dcp_meta_write(image.meta, add_bytes, &out, &err))
        fail_msg("%s", err.msg);
    for (size_t f = 0; f < image.nfiles; f++) {
        assert_true(rsi_bytes_add(&out, image.file[f].name, strlen(image.file[f].name)));
        assert_true(rsi_bytes_add(&out, &image.file[f].owner, sizeof(image.file[f].owner)));
        assert_true(rsi_bytes_add(&out, &image.file[f].bytes, sizeof(image.file[f].bytes)));
    }
    rsi_image_release(&image);
    return out;
}

static void rank_0_lists_what_all_ranks_write(void **state)
{
    static const char *const rules[] = {
        "mesh dp=4; * shard(0)@dp",
        "mesh dp=4; * replicate",
        "mesh dp=4 tp=3; * shard(0)@dp shard(1)@tp",
        "mesh dp=3 tp=2; * shard(1)@tp",
        "mesh dp=7; * shard(0)@dp",
        "mesh pp=2 dp=4; * shard(0)@dp",
        "mesh dp=2 tp=5; * shard(0)@dp shard(0)@tp",
    };
    const int64_t    shape[][2] = { { 24, 18 }, { 5, 3 }, { 0, 4 }, { 4096, 4096 }, { 1, 1 } };
    rsd_values      *values;
    const rsd_value *value;

    (void)state;
    assert_int_equal(rsd_values_create(&values, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_int(values, 7, &value, NULL), RSD_OK);
    for (int with = 0; with < 2; with++) {
        rsd_state *made = make();
        rsi_bytes  all, listed;
        char       name[32];

        for (size_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++)
            for (size_t k = 0; k < 5; k++) {
                rsd_layout *layout = fix_layout(rules[r], RSD_I32, 2, shape[k]);

                snprintf(name, sizeof(name), "%zu.%zu", r, k);
                assert_int_equal(rsd_state_tensor(made, name, k == 4 ? NULL : layout, RSD_I32, 2,
                                                  shape[k], 0, NULL, NULL),
                                 RSD_OK);
                rsd_layout_free(layout);
            }
        if (with)
            assert_int_equal(rsd_state_value(made, "step", value, NULL), RSD_OK);
        all = all_of(made, false);
        listed = all_of(made, true);
        assert_int_equal(all.len, listed.len);
        assert_memory_equal(all.at, listed.at, all.len);
        rsi_free(all.at);
        rsi_free(listed.at);
        rsd_state_free(made);
    }
    rsd_values_free(values);
}

static void images_without_memory_fail_cleanly(void **state)
{
    static const rsi_image_spec spec[] = {
        { .format = RSD_FORMAT_DCP },
        { .format = RSD_FORMAT_DCP, .own_only = true },
        { .format = RSD_FORMAT_DCP, .transform = "stream.zstd" },
        { .format = RSD_FORMAT_SAFETENSORS, .one_file = true },
        { .format = RSD_FORMAT_SAFETENSORS, .shard_size = 24 },
        { .format = RSD_FORMAT_SAFETENSORS, .distributed = true },
        { .format = RSD_FORMAT_TORCH, .one_file = true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(spec) / sizeof(spec[0]); i++) {
        rsd_values *owner;
        making      m = { .spec = spec[i] };
        int64_t     before;

        assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
        m.state = small_state(spec[i].format == RSD_FORMAT_SAFETENSORS ? NULL : owner);
        before = rsi_mem_stats_get().bytes;
        fix_every_allocation(make_image, NULL, &m);
        assert_int_equal(rsi_mem_stats_get().bytes, before);
        rsd_state_free(m.state);
        rsd_values_free(owner);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_the_boxes_of_the_layout),
        cmocka_unit_test(replicated_tensors_are_written_by_each_rank_in_turn),
        cmocka_unit_test(replicated_shards_are_spread_over_their_holders),
        cmocka_unit_test(large_replicated_boxes_are_split_over_their_holders),
        cmocka_unit_test(a_rank_finds_its_own_chunks_alone),
        cmocka_unit_test(uneven_shards_keep_their_sizes),
        cmocka_unit_test(empty_shards_are_chunks_only_where_torch_has_them),
        cmocka_unit_test(several_empty_shards_are_one_chunk),
        cmocka_unit_test(a_tensor_of_nothing_is_one_empty_chunk),
        cmocka_unit_test(strided_shards_are_several_chunks_of_a_rank),
        cmocka_unit_test(boxes_of_a_table_are_written_by_one_of_their_holders),
        cmocka_unit_test(dcp_has_a_file_for_each_rank_that_writes),
        cmocka_unit_test(ranks_that_write_nothing_have_no_file),
        cmocka_unit_test(safetensors_are_one_file_or_several_with_an_index),
        cmocka_unit_test(distributed_safetensors_have_a_file_for_each_rank),
        cmocka_unit_test(several_boxes_of_a_rank_are_several_distributed_files),
        cmocka_unit_test(boxes_of_ranks_in_turn_are_several_distributed_files_too),
        cmocka_unit_test(torch_save_is_one_file),
        cmocka_unit_test(ranks_write_about_as_much_of_a_real_model),
        cmocka_unit_test(what_a_format_is_not_is_refused),
        cmocka_unit_test(nesting_that_torch_save_can_not_have_is_refused),
        cmocka_unit_test(rank_0_lists_what_all_ranks_write),
        cmocka_unit_test(images_without_memory_fail_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
