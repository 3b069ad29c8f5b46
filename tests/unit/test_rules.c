/* SPDX-License-Identifier: Apache-2.0 */
/* test_rules.c - the layout that rules give a tensor by its name, and rules and layouts in words.
 * Texts that can't be read are test_rules_parse.c's. */
#include <reshard/reshard_live.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "shape/box.h"
#include "shape/layout.h"

static const int64_t eight_by_six[] = { 8, 6 };

static rsd_rules *parse(const char *text)
{
    rsd_rules *rules;
    rsd_error  err;

    if (rsd_rules_parse(text, &rules, &err))
        fail_msg("%s", err.msg);
    return rules;
}

/* The layout of an 8 x 6 float32 tensor under rules that it takes. */
static rsd_layout *layout_of(rsd_rules *rules, const char *name)
{
    rsd_layout *layout;
    rsd_error   err;

    if (rsd_rules_layout(rules, name, RSD_F32, 2, eight_by_six, &layout, &err))
        fail_msg("%s", err.msg);
    rsd_rules_free(rules);
    return layout;
}

/* The boxes of a rank in words, "" if it holds nothing. */
static void assert_boxes(const rsd_layout *layout, int32_t rank, const char *want)
{
    rsd_box box[4];
    char    text[RSI_BOX_TEXT] = "";
    size_t  n = rsd_layout_boxes(layout, rank, box, 4), len = 0;

    assert_true(n <= 4);
    for (size_t i = 0; i < n; i++)
        len += rsd_box_text(&box[i], text + len, sizeof(text) - len);
    assert_string_equal(text, want);
}

/* The placements that the rules give the tensor, as rsd_layout_text tells them. Takes the rules. */
static void assert_layout_text(rsd_rules *rules, const char *name, const char *want)
{
    rsd_layout *layout = layout_of(rules, name);
    char        text[256];

    assert_int_equal(rsd_layout_text(layout, text, sizeof(text)), strlen(want));
    assert_string_equal(text, want);
    rsd_layout_free(layout);
}

static void assert_rules_text(const char *text, const char *want)
{
    rsd_rules *rules = parse(text);
    char       got[512];

    assert_int_equal(rsd_rules_text(rules, got, sizeof(got)), strlen(want));
    assert_string_equal(got, want);
    rsd_rules_free(rules);
}

/* ---- which rule ----------------------------------------------------------------------------- */

static const char three_rules[] = "mesh dp=2 tp=2\n"
                                  "*.wq.weight shard(0)@tp\n"
                                  "*.weight shard(1)@tp\n"
                                  "* replicate\n";

static void first_rule_that_matches_wins(void **state)
{
    (void)state;
    assert_layout_text(parse(three_rules), "l.0.wq.weight", "mesh dp=2 tp=2; * shard(0)@tp");
    assert_layout_text(parse(three_rules), "l.0.wo.weight", "mesh dp=2 tp=2; * shard(1)@tp");
    assert_layout_text(parse(three_rules), "l.0.wq.bias", "mesh dp=2 tp=2; * replicate");
}

/* The pattern gives the name its own layout, or leaves it to the next rule. */
static void assert_match(const char *pattern, const char *name, bool want)
{
    char text[128];

    snprintf(text, sizeof(text), "mesh a=2; %s shard(0)@a; * replicate", pattern);
    assert_layout_text(parse(text), name,
                       want ? "mesh a=2; * shard(0)@a" : "mesh a=2; * replicate");
}

static void patterns_are_those_of_the_shell_and_stars_match_dots(void **state)
{
    (void)state;
    assert_match("*.weight", "a.b.c.weight", true);
    assert_match("*.weight", "weight", false);
    assert_match("*", ".hidden/and/slashes", true);
    assert_match("a?c", "abc", true);
    assert_match("a?c", "a.c", true);
    assert_match("a?c", "abbc", false);
    assert_match("l.[0-3].w", "l.2.w", true);
    assert_match("l.[0-3].w", "l.4.w", false);
    assert_match("l.[!0-3].w", "l.4.w", true);
    assert_match("w[qk]", "wk", true);
    assert_match("w[qk]", "wv", false);
    assert_match("w\\*", "w*", true);
    assert_match("w\\*", "wx", false);
    assert_match("W", "w", false);
    assert_match("we", "weight", false);
    assert_match("replicate", "replicate", true);
}

static void tensor_without_a_rule_is_not_found_and_named(void **state)
{
    rsd_rules  *rules = parse("mesh a=2; *.weight replicate; b* replicate");
    rsd_layout *layout = NULL;
    rsd_error   err;

    (void)state;
    assert_int_equal(rsd_rules_layout(rules, "a.bias", RSD_F32, 2, eight_by_six, &layout, &err),
                     RSD_E_NOTFOUND);
    assert_string_equal(err.msg, "no rule matches the tensor \"a.bias\"; a last rule \"* "
                                 "replicate\" would");
    assert_null(layout);
    rsd_rules_free(rules);
}

static void hundred_rules_are_all_kept(void **state)
{
    char   text[4096];
    size_t len = (size_t)snprintf(text, sizeof(text), "mesh a=2");

    (void)state;
    for (int i = 0; i < 100; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "; t%d %s", i,
                                i == 77 ? "shard(1)@a" : "replicate");
    assert_layout_text(parse(text), "t0", "mesh a=2; * replicate");
    assert_layout_text(parse(text), "t77", "mesh a=2; * shard(1)@a");
    assert_layout_text(parse(text), "t99", "mesh a=2; * replicate");
}

/* ---- which layout --------------------------------------------------------------------------- */

static void axes_that_are_not_named_replicate(void **state)
{
    rsd_layout *layout = layout_of(parse("mesh dp=2 tp=2; * shard(0)@dp"), "x");

    (void)state;
    assert_boxes(layout, 0, "[0:4, 0:6]");
    assert_boxes(layout, 1, "[0:4, 0:6]");
    assert_boxes(layout, 2, "[4:8, 0:6]");
    assert_boxes(layout, 3, "[4:8, 0:6]");
    rsd_layout_free(layout);
}

static void placements_are_applied_in_mesh_order_however_they_are_written(void **state)
{
    const char *const written[] = { "mesh dp=2 tp=2; * shard(0)@dp shard(0)@tp",
                                    "mesh dp=2 tp=2; * shard(0)@tp shard(0)@dp" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        rsd_layout *layout = layout_of(parse(written[i]), "x");

        assert_boxes(layout, 1, "[2:4, 0:6]");
        assert_boxes(layout, 2, "[4:6, 0:6]");
        rsd_layout_free(layout);
    }
}

static void strided_rule_is_the_layout_of_fsdp_with_tensor_parallelism(void **state)
{
    /* rows 0-3 are of tp 0, 4-7 of tp 1; dp halves each */
    rsd_layout *layout = layout_of(parse("mesh dp=2 tp=2; * strided(0,2)@dp shard(0)@tp"), "x");

    (void)state;
    assert_boxes(layout, 0, "[0:2, 0:6]");
    assert_boxes(layout, 1, "[4:6, 0:6]");
    assert_boxes(layout, 2, "[2:4, 0:6]");
    assert_boxes(layout, 3, "[6:8, 0:6]");
    rsd_layout_free(layout);
}

static void negative_dimensions_count_from_the_last_of_the_tensor(void **state)
{
    (void)state;
    assert_layout_text(parse("mesh a=2; * shard(-1)@a"), "x", "mesh a=2; * shard(1)@a");
    assert_layout_text(parse("mesh a=2; * strided(-2,3)@a"), "x", "mesh a=2; * strided(0,3)@a");
}

static void on_picks_a_sub_mesh_and_the_others_hold_nothing(void **state)
{
    rsd_layout *layout = layout_of(parse("mesh pp=2 tp=2; * shard(1)@tp on pp=1"), "x");

    (void)state;
    assert_boxes(layout, 0, "");
    assert_boxes(layout, 1, "");
    assert_boxes(layout, 2, "[0:8, 0:3]");
    assert_boxes(layout, 3, "[0:8, 3:6]");
    rsd_layout_free(layout);
    layout = layout_of(parse("mesh pp=2 tp=2 ranks=7,5,3,1; * shard(1)@pp on tp=0"), "x");
    assert_boxes(layout, 7, "[0:8, 0:3]");
    assert_boxes(layout, 3, "[0:8, 3:6]");
    assert_boxes(layout, 5, "");
    assert_boxes(layout, 1, "");
    rsd_layout_free(layout);
}

static void on_several_axes_leaves_the_ranks_at_all_of_these_places(void **state)
{
    rsd_layout *layout = layout_of(parse("mesh a=2 b=3 c=2; * shard(0)@b on a=1 c=0"), "x");

    (void)state;
    assert_boxes(layout, 6, "[0:3, 0:6]");
    assert_boxes(layout, 8, "[3:6, 0:6]");
    assert_boxes(layout, 10, "[6:8, 0:6]");
    for (int32_t rank = 0; rank < 12; rank++)
        if (rank < 6 || rank % 2)
            assert_boxes(layout, rank, "");
    rsd_layout_free(layout);
}

static void on_all_axes_leaves_one_rank(void **state)
{
    rsd_layout *layout = layout_of(parse("mesh a=2 b=2; * replicate on b=0 a=1"), "x");

    (void)state;
    assert_boxes(layout, 2, "[0:8, 0:6]");
    for (int32_t rank = 0; rank < 4; rank++)
        if (rank != 2)
            assert_boxes(layout, rank, "");
    rsd_layout_free(layout);
}

static void scalar_is_replicated_where_a_rule_shards_and_stays_partial(void **state)
{
    rsd_rules  *rules = parse("mesh a=2 b=2 c=2; * shard(0)@a strided(1,2)@b partial(sum)@c");
    rsd_layout *layout;
    char        text[64];

    (void)state;
    assert_int_equal(rsd_rules_layout(rules, "step", RSD_I64, 0, NULL, &layout, NULL), RSD_OK);
    rsd_layout_text(layout, text, sizeof(text));
    assert_string_equal(text, "mesh a=2 b=2 c=2; * partial(sum)@c");
    assert_boxes(layout, 7, "[]");
    rsd_layout_free(layout);
    rsd_rules_free(rules);
}

static void error_of_a_layout_names_the_tensor_and_the_line(void **state)
{
    rsd_rules    *rules = parse("mesh a=2\n\n# a comment\nw* shard(1)@a; b* shard(0)@a");
    const int64_t n = 5, bad = -5;
    rsd_layout   *layout = NULL;
    rsd_error     err;

    (void)state;
    assert_int_equal(rsd_rules_layout(rules, "w.1", RSD_F32, 1, &n, &layout, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "tensor \"w.1\", rule in line 4: axis \"a\" shards dimension 1, "
                                 "but the tensor has 1 dimension");
    assert_int_equal(rsd_rules_layout(rules, "b.1", RSD_F32, 1, &bad, &layout, &err),
                     RSD_E_INVALID);
    assert_string_equal(err.msg, "tensor \"b.1\", rule in line 4: dimension 0 has the size -5");
    assert_null(layout);
    rsd_rules_free(rules);
}

static void layout_without_rules_name_or_output_is_refused(void **state)
{
    rsd_rules  *rules = parse("mesh a=2; * replicate");
    rsd_layout *layout = NULL;
    rsd_error   err;

    (void)state;
    assert_int_equal(rsd_rules_layout(NULL, "x", RSD_F32, 0, NULL, &layout, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "missing argument: rules, name or output pointer");
    assert_int_equal(rsd_rules_layout(rules, NULL, RSD_F32, 0, NULL, &layout, NULL), RSD_E_INVALID);
    assert_int_equal(rsd_rules_layout(rules, "x", RSD_F32, 0, NULL, NULL, NULL), RSD_E_INVALID);
    assert_null(layout);
    rsd_rules_free(rules);
    rsd_rules_free(NULL);
}

static void layout_outlives_its_rules(void **state)
{
    rsd_layout *layout = layout_of(parse("mesh a=2 b=2; * shard(0)@b on a=0"), "x");

    (void)state;
    assert_boxes(layout, 1, "[4:8, 0:6]"); /* layout_of has freed the rules */
    rsd_layout_free(layout);
}

static void rules_tell_their_mesh(void **state)
{
    rsd_rules      *rules = parse("mesh dp=2 tp=3 ranks=0-3,8,5; * replicate on dp=0");
    const rsd_mesh *mesh = rsd_rules_mesh(rules);
    const int32_t   want[] = { 0, 1, 2, 3, 8, 5 };

    (void)state;
    assert_int_equal(rsd_mesh_ndim(mesh), 2);
    assert_string_equal(rsd_mesh_axis(mesh, 1), "tp");
    for (int64_t i = 0; i < 6; i++) {
        const int64_t coord[] = { i / 3, i % 3 };

        assert_int_equal(rsd_mesh_rank(mesh, coord), want[i]);
    }
    rsd_rules_free(rules);
}

/* ---- rules in words ------------------------------------------------------------------------- */

static void usual_form_has_one_rule_to_a_line_and_placements_in_mesh_order(void **state)
{
    (void)state;
    assert_rules_text("mesh dp=2 tp=4;a shard(1)@tp   strided( 0 , 4 )@dp;b replicate",
                      "mesh dp=2 tp=4\na strided(0,4)@dp shard(1)@tp\nb replicate\n");
    assert_rules_text("mesh dp=2 tp=4; * replicate@dp on tp=3",
                      "mesh dp=2 tp=4\n* replicate on tp=3\n");
    assert_rules_text("mesh a=2 b=3 c=2; * partial(avg)@b on c=1 a=0",
                      "mesh a=2 b=3 c=2\n* partial(avg)@b on a=0 c=1\n");
    assert_rules_text("mesh a=2; * shard(-2)@a", "mesh a=2\n* shard(-2)@a\n");
}

static void list_of_ranks_is_written_out_unless_it_counts(void **state)
{
    (void)state;
    assert_rules_text("mesh a=5 ranks=0-3,8; * replicate",
                      "mesh a=5 ranks=0,1,2,3,8\n* replicate\n");
    assert_rules_text("mesh a=4 ranks=0-3; * replicate", "mesh a=4\n* replicate\n");
    assert_rules_text("mesh a=1 ranks=2-2; * replicate", "mesh a=1 ranks=2\n* replicate\n");
}

static void comments_blanks_and_empty_statements_are_left_out(void **state)
{
    (void)state;
    assert_rules_text("# first\n\n  ;; mesh a=2 # two; ranks\r\n\t* replicate # all\n;\n#",
                      "mesh a=2\n* replicate\n");
}

static void reductions_keep_their_names(void **state)
{
    static const char *const name[] = { "sum", "avg", "min", "max", "product" };
    char                     text[64];

    (void)state;
    for (int i = 0; i < 5; i++) {
        snprintf(text, sizeof(text), "mesh a=2\n* partial(%s)@a\n", name[i]);
        assert_rules_text(text, text);
    }
}

static void usual_form_parses_to_itself(void **state)
{
    static const char *const texts[] = {
        "mesh dp=2 tp=4\n*.wq.weight shard(0)@tp\n* strided(0,4)@dp shard(0)@tp\n",
        "mesh dp=2 tp=4\n*.head.* shard(0)@tp on dp=0\n*norm* replicate\n* shard(0)@dp\n",
        "mesh pp=2 tp=4 ranks=7,6,5,4,3,2,1,0\n* shard(-1)@tp on pp=1\n",
        "mesh a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1\n[a-z]? partial(product)@h on a=0 g=0\n",
        "mesh on=2 mesh=2\non replicate\nmesher shard(0)@mesh on on=1\n",
        "mesh a=2\n* strided(-8,9223372036854775807)@a\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_rules_text(texts[i], texts[i]);
}

static void text_that_does_not_fit_is_cut_and_counted_whole(void **state)
{
    rsd_rules  *rules = parse("mesh a=2; * shard(0)@a");
    rsd_layout *layout;
    char        text[32] = "";

    (void)state;
    assert_int_equal(rsd_rules_text(rules, text, 10), 22);
    assert_string_equal(text, "mesh a=2\n");
    assert_int_equal(rsd_rules_text(rules, NULL, 0), 22);
    layout = layout_of(rules, "x");
    assert_int_equal(rsd_layout_text(layout, text, 7), 22);
    assert_string_equal(text, "mesh a");
    assert_int_equal(rsd_layout_text(layout, NULL, 0), 22);
    rsd_layout_free(layout);
}

/* ---- layouts in words ----------------------------------------------------------------------- */

/* The text of the rules' layout, parsed, gives the same boxes and, if `equal`, an equal layout. */
static void assert_text_parses_back(const char *rules)
{
    rsd_layout *layout = layout_of(parse(rules), "x"), *back;
    char        text[256];

    assert_true(rsd_layout_text(layout, text, sizeof(text)) < sizeof(text));
    back = layout_of(parse(text), "x");
    assert_int_equal(rsd_layout_world(layout), rsd_layout_world(back));
    for (int32_t rank = 0; rank < rsd_layout_world(layout); rank++) {
        rsd_box a, b;

        assert_int_equal(rsd_layout_boxes(layout, rank, &a, 1),
                         rsd_layout_boxes(back, rank, &b, 1));
        assert_true(!rsd_layout_boxes(layout, rank, NULL, 0) || rsi_box_equal(&a, &b));
    }
    assert_true(rsd_layout_equal(layout, back));
    rsd_layout_free(layout);
    rsd_layout_free(back);
}

static void text_of_a_mesh_layout_parses_back_to_an_equal_one(void **state)
{
    (void)state;
    assert_text_parses_back("mesh a=4; * replicate");
    assert_text_parses_back("mesh dp=2 tp=3; * strided(0,3)@dp shard(0)@tp");
    assert_text_parses_back("mesh a=2 b=2 c=2; * partial(max)@a shard(-1)@c partial(max)@b");
    assert_text_parses_back("mesh a=2 b=2 ranks=5,0,9,3; * shard(1)@a");
    assert_text_parses_back("mesh a=2 b=2 c=2 ranks=8-15; * shard(0)@a on b=1");
    assert_text_parses_back("mesh a=2 b=3; * shard(0)@b on a=0");
}

static void text_of_a_sub_mesh_layout_parses_back_to_an_equal_one(void **state)
{
    (void)state;
    assert_text_parses_back("mesh a=2 b=3; * shard(0)@b on a=1");
    assert_text_parses_back("mesh a=2 b=3; * shard(0)@a on b=1");
    assert_text_parses_back("mesh a=2 b=3 c=2 d=1; * shard(0)@a shard(1)@d on c=1 b=2");
    assert_text_parses_back("mesh a=2 b=2 ranks=0,1,3,2; * shard(0)@b on a=0");
    assert_text_parses_back("mesh a=1 b=3 c=2; * shard(0)@c on b=0");
    assert_text_parses_back("mesh a=2; * replicate on a=1");
}

static void ranks_of_a_sub_mesh_are_written_out(void **state)
{
    (void)state;
    assert_layout_text(parse("mesh a=2 b=3 c=2; * shard(0)@b on c=1"), "x",
                       "mesh a=2 b=3 ranks=1,3,5,7,9,11; * shard(0)@b");
}

static void table_in_words_is_its_boxes_rank_by_rank(void **state)
{
    const int64_t n = 10;
    const int32_t owner[] = { 3, 0, 3, 1 };
    const rsd_box box[] = { { .ndim = 1, .off = { 7 }, .len = { 3 } },
                            { .ndim = 1, .off = { 4 }, .len = { 3 } },
                            { .ndim = 1, .off = { 0 }, .len = { 4 } },
                            { .ndim = 1, .off = { 4 }, .len = { 3 } } };
    rsd_layout   *layout;
    char          text[128];

    (void)state;
    assert_int_equal(rsd_layout_create_boxes(RSD_U8, 1, &n, 4, owner, box, &layout, NULL), RSD_OK);
    assert_int_equal(rsd_layout_text(layout, text, sizeof(text)), 55);
    assert_string_equal(text, "3 boxes on 3 ranks; 0 [4:7]; 1 [4:7]; 3 [7:10]; 3 [0:4]");
    rsd_layout_free(layout);
}

/* ---- memory --------------------------------------------------------------------------------- */

static const char many_parts[] = "mesh a=2 b=2 c=2 ranks=17-24; 1 shard(0)@a on b=1 c=0; 2 "
                                 "replicate; 3 replicate; 4 replicate; 5 replicate; 6 replicate; "
                                 "7 replicate; 8 replicate; 9 strided(0,2)@c";

static void nth_allocation_that_fails_leaves_no_rules(void **state)
{
    rsd_rules *const untouched = (rsd_rules *)(uintptr_t)&eight_by_six;

    (void)state;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        uint64_t n = 0;
        rsd_err  rc;

        do {
            int64_t    bytes = rsi_mem_stats_get().bytes;
            rsd_rules *rules = untouched;

            rsi_mem_fail_at(++n, for_ever);
            rc = rsd_rules_parse(many_parts, &rules, NULL);
            rsi_mem_fail_at(0, 0);
            assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
            if (!rc)
                rsd_rules_free(rules);
            else
                assert_ptr_equal(rules, untouched);
            assert_int_equal(rsi_mem_stats_get().bytes, bytes);
        } while (rc);
        assert_true(n > 8);
    }
}

static void layout_without_memory_is_refused_with_the_name_of_its_tensor(void **state)
{
    rsd_rules  *rules = parse(many_parts);
    rsd_layout *layout = NULL;
    rsd_error   err;
    rsd_err     rc;

    (void)state;
    rsi_mem_fail_at(1, 0);
    rc = rsd_rules_layout(rules, "2", RSD_F32, 2, eight_by_six, &layout, &err);
    rsi_mem_fail_at(0, 0);
    assert_int_equal(rc, RSD_E_NOMEM);
    assert_string_equal(err.msg, "tensor \"2\", rule in line 1: no memory for a layout");
    assert_null(layout);
    rsd_rules_free(rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_rule_that_matches_wins),
        cmocka_unit_test(patterns_are_those_of_the_shell_and_stars_match_dots),
        cmocka_unit_test(tensor_without_a_rule_is_not_found_and_named),
        cmocka_unit_test(hundred_rules_are_all_kept),
        cmocka_unit_test(axes_that_are_not_named_replicate),
        cmocka_unit_test(placements_are_applied_in_mesh_order_however_they_are_written),
        cmocka_unit_test(strided_rule_is_the_layout_of_fsdp_with_tensor_parallelism),
        cmocka_unit_test(negative_dimensions_count_from_the_last_of_the_tensor),
        cmocka_unit_test(on_picks_a_sub_mesh_and_the_others_hold_nothing),
        cmocka_unit_test(on_several_axes_leaves_the_ranks_at_all_of_these_places),
        cmocka_unit_test(on_all_axes_leaves_one_rank),
        cmocka_unit_test(scalar_is_replicated_where_a_rule_shards_and_stays_partial),
        cmocka_unit_test(error_of_a_layout_names_the_tensor_and_the_line),
        cmocka_unit_test(layout_without_rules_name_or_output_is_refused),
        cmocka_unit_test(layout_outlives_its_rules),
        cmocka_unit_test(rules_tell_their_mesh),
        cmocka_unit_test(usual_form_has_one_rule_to_a_line_and_placements_in_mesh_order),
        cmocka_unit_test(list_of_ranks_is_written_out_unless_it_counts),
        cmocka_unit_test(comments_blanks_and_empty_statements_are_left_out),
        cmocka_unit_test(reductions_keep_their_names),
        cmocka_unit_test(usual_form_parses_to_itself),
        cmocka_unit_test(text_that_does_not_fit_is_cut_and_counted_whole),
        cmocka_unit_test(text_of_a_mesh_layout_parses_back_to_an_equal_one),
        cmocka_unit_test(text_of_a_sub_mesh_layout_parses_back_to_an_equal_one),
        cmocka_unit_test(ranks_of_a_sub_mesh_are_written_out),
        cmocka_unit_test(table_in_words_is_its_boxes_rank_by_rank),
        cmocka_unit_test(nth_allocation_that_fails_leaves_no_rules),
        cmocka_unit_test(layout_without_memory_is_refused_with_the_name_of_its_tensor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
