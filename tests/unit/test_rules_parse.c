/* SPDX-License-Identifier: Apache-2.0 */
/* test_rules_parse.c - what the reader of rules says about texts that it can't read: line, column,
 * what was expected, what was found. What rules mean is test_rules.c's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "shape/rules.h"

typedef struct bad_text {
    const char *text;
    const char *why;
} bad_text;

static rsd_rules *const untouched = (rsd_rules *)(uintptr_t) "untouched";

static void assert_refused(const bad_text *bad, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t    bytes = rsi_mem_stats_get().bytes;
        rsd_rules *rules = untouched;
        rsd_error  err;

        if (rsd_rules_parse(bad[i].text, &rules, &err) != RSD_E_INVALID)
            fail_msg("\"%s\" was not refused", bad[i].text);
        assert_string_equal(err.msg, bad[i].why);
        assert_int_equal(err.code, RSD_E_INVALID);
        assert_ptr_equal(rules, untouched);
        assert_int_equal(rsi_mem_stats_get().bytes, bytes);
    }
}

#define REFUSED(bad) assert_refused(bad, sizeof(bad) / sizeof((bad)[0]))

/* ---- the mesh ------------------------------------------------------------------------------- */

static void text_that_does_not_begin_with_a_mesh_is_refused(void **state)
{
    static const bad_text bad[] = {
        { "", "line 1, column 1: expected \"mesh\" and its axes, found the end of the line" },
        { "  \n# only\n",
          "line 3, column 1: expected \"mesh\" and its axes, found the end of the line" },
        { "dp=2 tp=4; * replicate",
          "line 1, column 1: expected \"mesh\" and its axes, found \"dp=2\"" },
        { "meshes dp=2", "line 1, column 1: expected \"mesh\" and its axes, found \"meshes\"" },
        { "Mesh dp=2", "line 1, column 1: expected \"mesh\" and its axes, found \"Mesh\"" },
        { ";;* replicate", "line 1, column 3: expected \"mesh\" and its axes, found \"*\"" },
    };

    (void)state;
    REFUSED(bad);
}

static void bad_axes_are_refused(void **state)
{
    static const bad_text bad[] = {
        { "mesh", "line 1, column 5: expected a rule after the mesh, found the end of the line" },
        { "mesh dp", "line 1, column 6: expected AXIS=SIZE, found \"dp\"" },
        { "mesh dp = 2", "line 1, column 6: expected AXIS=SIZE, found \"dp\"" },
        { "mesh =2", "line 1, column 6: expected AXIS=SIZE, found \"=2\"" },
        { "mesh a=2 4", "line 1, column 10: expected AXIS=SIZE, found \"4\"" },
        { "mesh dp=",
          "line 1, column 9: expected a size of at least 1, found the end of the line" },
        { "mesh dp=;",
          "line 1, column 9: expected a size of at least 1, found the end of the rule" },
        { "mesh dp=0", "line 1, column 9: expected a size of at least 1, found \"0\"" },
        { "mesh dp=-1", "line 1, column 9: expected a size of at least 1, found \"-1\"" },
        { "mesh dp=two", "line 1, column 9: expected a size of at least 1, found \"two\"" },
        { "mesh dp=2147483647",
          "line 1, column 9: expected a size of at least 1, found \"2147483647\"" },
        { "mesh dp=99999999999999999999",
          "line 1, column 9: expected a size of at least 1, found \"99999999999999999999\"" },
        { "mesh dp=2x", "line 1, column 10: expected a space after the size, found \"x\"" },
        { "mesh dp=2,tp=4", "line 1, column 10: expected a space after the size, found \",tp=4\"" },
        { "mesh a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1",
          "line 1, column 38: expected no more than 8 axes, found \"i=1\"" },
        { "mesh dp=2 dp=3; * replicate", "line 1, column 1: mesh axis \"dp\" is named twice" },
        { "\n mesh d.p=2; * replicate", "line 2, column 2: mesh axis 0 can't be named \"d.p\"" },
        { "mesh a=65536 b=65536; * replicate",
          "line 1, column 1: a mesh can't have more than 2147483646 ranks" },
    };

    (void)state;
    REFUSED(bad);
}

static void bad_lists_of_ranks_are_refused(void **state)
{
    static const bad_text bad[] = {
        { "mesh a=2 ranks=", "line 1, column 16: expected a rank, found the end of the line" },
        { "mesh a=2 ranks=x", "line 1, column 16: expected a rank, found \"x\"" },
        { "mesh a=2 ranks=0,,1", "line 1, column 18: expected a rank, found \",1\"" },
        { "mesh a=2 ranks=0,1,", "line 1, column 20: expected a rank, found the end of the line" },
        { "mesh a=2 ranks=-1,0", "line 1, column 16: expected a rank, found \"-1,0\"" },
        { "mesh a=2 ranks=2147483647,0",
          "line 1, column 16: expected a rank, found \"2147483647,0\"" },
        { "mesh a=2 ranks=3-2",
          "line 1, column 18: expected a rank not below the first of its range, found \"2\"" },
        { "mesh a=2 ranks=3-;",
          "line 1, column 18: expected a rank not below the first of its range, found the end of "
          "the rule" },
        { "mesh a=2 ranks=0,1x",
          "line 1, column 19: expected \",\" or the end of the list of ranks, found \"x\"" },
        { "mesh a=2 ranks=0-1-2",
          "line 1, column 19: expected \",\" or the end of the list of ranks, found \"-2\"" },
        { "mesh a=2 ranks=0,1 b=2",
          "line 1, column 20: expected the end of the line after the ranks, found \"b=2\"" },
        { "mesh a=2 ranks=0,1 ranks=0,1",
          "line 1, column 20: expected the end of the line after the ranks, found \"ranks=0,1\"" },
        { "mesh ranks=0",
          "line 1, column 13: expected a rule after the mesh, found the end of the line" },
        { "mesh a=2 ranks=0; * replicate", "line 1, column 1: the mesh has 2 places but 1 ranks" },
        { "mesh a=2 b=3 ranks=0-6; * replicate",
          "line 1, column 23: the mesh has 6 places, but more ranks are listed" },
        { "mesh a=2 ranks=0-99999999; * replicate",
          "line 1, column 26: the mesh has 2 places, but more ranks are listed" },
        { "mesh a=2147483646 b=2147483646 ranks=0,1,2",
          "line 1, column 1: a mesh can't have more than 2147483646 ranks" },
        { "mesh a= 2", "line 1, column 8: expected a size of at least 1, found a space" },
        { "mesh a=2 ranks=1,1; * replicate", "line 1, column 1: rank 1 is in the mesh twice" },
    };

    (void)state;
    REFUSED(bad);
}

static void mesh_without_rules_or_a_second_one_is_refused(void **state)
{
    static const bad_text bad[] = {
        { "mesh a=2", "line 1, column 9: expected a rule after the mesh, found the end of the "
                      "line" },
        { "mesh a=2 # two\n\n",
          "line 3, column 1: expected a rule after the mesh, found the end of the line" },
        { "mesh a=2\nmesh b=2\n* replicate",
          "line 2, column 1: expected a rule: there can be only one mesh, found \"mesh\"" },
        { "mesh a=2; * replicate; mesh b=2",
          "line 1, column 24: expected a rule: there can be only one mesh, found \"mesh\"" },
    };

    (void)state;
    REFUSED(bad);
}

/* ---- rules ---------------------------------------------------------------------------------- */

#define RULE "mesh a=2; * " /* what follows starts in column 13 */
#define PLACEMENT                                                                                  \
    "replicate, shard(DIM)@AXIS, strided(DIM,SPLIT)@AXIS, partial(OP)@AXIS or on AXIS=INDEX"

static void words_that_are_no_placement_are_refused(void **state)
{
    static const bad_text bad[] = {
        { "mesh a=2; *", "line 1, column 12: expected " PLACEMENT ", found the end of the line" },
        { "mesh a=2; *; x replicate",
          "line 1, column 12: expected " PLACEMENT ", found the end of the rule" },
        { "mesh a=2; * # replicate",
          "line 1, column 24: expected " PLACEMENT ", found the end of the line" },
        { RULE "shards(0)@a", "line 1, column 13: expected " PLACEMENT ", found \"shards(0)@a\"" },
        { RULE "shard0@a", "line 1, column 13: expected " PLACEMENT ", found \"shard0@a\"" },
        { RULE "(0)@a", "line 1, column 13: expected " PLACEMENT ", found \"(0)@a\"" },
        { RULE "Replicate", "line 1, column 13: expected " PLACEMENT ", found \"Replicate\"" },
        { RULE "replicate a=1", "line 1, column 23: expected " PLACEMENT ", found \"a=1\"" },
        { RULE "replicate(0)@a",
          "line 1, column 22: expected a space after \"replicate\", found \"(0)@a\"" },
    };

    (void)state;
    REFUSED(bad);
}

static void bad_arguments_of_placements_are_refused(void **state)
{
    static const bad_text bad[] = {
        { RULE "shard", "line 1, column 18: expected \"(\", found the end of the line" },
        { RULE "shard@a", "line 1, column 18: expected \"(\", found \"@a\"" },
        { RULE "shard()@a", "line 1, column 19: expected a dimension, found \")@a\"" },
        { RULE "shard(x)@a", "line 1, column 19: expected a dimension, found \"x)@a\"" },
        { RULE "shard(8)@a", "line 1, column 19: expected a dimension, found \"8)@a\"" },
        { RULE "shard(-9)@a", "line 1, column 19: expected a dimension, found \"-9)@a\"" },
        { RULE "shard(-)@a", "line 1, column 19: expected a dimension, found \"-)@a\"" },
        { RULE "shard(0@a", "line 1, column 20: expected \")\", found \"@a\"" },
        { RULE "shard(0,1)@a", "line 1, column 20: expected \")\", found \",1)@a\"" },
        { RULE "shard(0 # )@a", "line 1, column 26: expected \")\", found the end of the line" },
        { RULE "strided(0)@a",
          "line 1, column 22: expected \",\" and a split factor, found \")@a\"" },
        { RULE "strided(0,)@a",
          "line 1, column 23: expected a split factor of at least 1, found \")@a\"" },
        { RULE "strided(0,0)@a",
          "line 1, column 23: expected a split factor of at least 1, found \"0)@a\"" },
        { RULE "strided(0,-2)@a",
          "line 1, column 23: expected a split factor of at least 1, found \"-2)@a\"" },
        { RULE "strided(0,9223372036854775808)@a",
          "line 1, column 23: expected a split factor of at least 1, found "
          "\"9223372036854775808)@a\"" },
        { RULE "strided(0,2,3)@a", "line 1, column 24: expected \")\", found \",3)@a\"" },
        { RULE "partial()@a",
          "line 1, column 21: expected sum, avg, min, max or product, found \")@a\"" },
        { RULE "partial(mean)@a",
          "line 1, column 21: expected sum, avg, min, max or product, found \"mean)@a\"" },
        { RULE "partial(sum", "line 1, column 24: expected \")\", found the end of the line" },
    };

    (void)state;
    REFUSED(bad);
}

static void bad_axes_of_placements_are_refused(void **state)
{
    static const bad_text bad[] = {
        { RULE "shard(0)",
          "line 1, column 21: expected \"@\" and an axis of the mesh, found the end of the line" },
        { RULE "shard(0)a",
          "line 1, column 21: expected \"@\" and an axis of the mesh, found \"a\"" },
        { RULE "shard(0)@",
          "line 1, column 22: expected an axis of the mesh, found the end of the line" },
        { RULE "shard(0)@b", "line 1, column 22: expected an axis of the mesh, found \"b\"" },
        { RULE "shard(0)@aa", "line 1, column 22: expected an axis of the mesh, found \"aa\"" },
        { RULE "shard(0)@a,", "line 1, column 22: expected an axis of the mesh, found \"a,\"" },
        { RULE "replicate@b", "line 1, column 23: expected an axis of the mesh, found \"b\"" },
        { RULE "shard(0)@a shard(1)@a",
          "line 1, column 33: expected an axis that the rule has not named yet, found \"a\"" },
        { RULE "replicate@a partial(sum)@a",
          "line 1, column 38: expected an axis that the rule has not named yet, found \"a\"" },
    };

    (void)state;
    REFUSED(bad);
}

static void bad_sub_meshes_are_refused(void **state)
{
    static const bad_text bad[] = {
        { RULE "replicate on",
          "line 1, column 25: expected an axis of the mesh, found the end of the line" },
        { RULE "replicate on b=0",
          "line 1, column 26: expected an axis of the mesh, found \"b=0\"" },
        { RULE "replicate on a",
          "line 1, column 27: expected \"=\" and an index on the axis, found the end of the line" },
        { RULE "replicate on a=",
          "line 1, column 28: expected an index on the axis, found the end of the line" },
        { RULE "replicate on a=2",
          "line 1, column 28: expected an index on the axis, found \"2\"" },
        { RULE "replicate on a=-1",
          "line 1, column 28: expected an index on the axis, found \"-1\"" },
        { RULE "replicate on a=0x",
          "line 1, column 29: expected a space or the end of the rule, found \"x\"" },
        { RULE "replicate on a=0 a=1",
          "line 1, column 30: expected an axis that the rule has not named yet, found \"a=1\"" },
        { RULE "shard(0)@a on a=0",
          "line 1, column 27: expected an axis that the rule has not named yet, found \"a=0\"" },
        { RULE "replicate on a=0 shard(0)@a",
          "line 1, column 30: expected an axis of the mesh, found \"shard(0)@a\"" },
    };

    (void)state;
    REFUSED(bad);
}

/* ---- places --------------------------------------------------------------------------------- */

static void lines_and_columns_count_from_1_and_columns_are_bytes(void **state)
{
    static const bad_text bad[] = {
        { "mesh a=2\n  x replicate\n\ty shardy\n",
          "line 3, column 4: expected " PLACEMENT ", found \"shardy\"" },
        { "mesh a=2\r\nx replicate\r\ny\r\n",
          "line 3, column 3: expected " PLACEMENT ", found the end of the line" },
        { "mesh a=2\nx replicate; y no",
          "line 2, column 16: expected " PLACEMENT ", found \"no\"" },
        { "mesh a=2\n\xc3\xa9* no", "line 2, column 5: expected " PLACEMENT ", found \"no\"" },
    };

    (void)state;
    REFUSED(bad);
}

static void what_was_found_is_cut_at_64_characters_and_made_safe(void **state)
{
    static const bad_text bad[] = {
        { RULE "0123456789012345678901234567890123456789012345678901234567890123456789",
          "line 1, column 13: expected " PLACEMENT
          ", found \"0123456789012345678901234567890123456789012345678901234567890123\"" },
        { RULE "no\x1b[31m\x7f", "line 1, column 13: expected " PLACEMENT ", found \"no?[31m?\"" },
    };

    (void)state;
    REFUSED(bad);
}

static void parse_without_a_text_or_a_place_is_refused(void **state)
{
    rsd_rules *rules = untouched;
    rsd_error  err;

    (void)state;
    assert_int_equal(rsd_rules_parse(NULL, &rules, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "missing argument: text or output pointer");
    assert_ptr_equal(rules, untouched);
    assert_int_equal(rsd_rules_parse("mesh a=2; * replicate", NULL, NULL), RSD_E_INVALID);
}

/* ---- damaged texts -------------------------------------------------------------------------- */

static const char good[] = "mesh dp=2 tp=2 ranks=0-2,8 # four\n"
                           "*.w? strided(0,4)@dp shard(-1)@tp; b partial(sum)@tp on dp=1\n"
                           "* replicate\n";

/* Read, or refused with a place; either way nothing is left behind. */
static void assert_read_or_refused(const char *text)
{
    int64_t    bytes = rsi_mem_stats_get().bytes;
    rsd_rules *rules = untouched;
    rsd_error  err;
    rsd_err    rc = rsd_rules_parse(text, &rules, &err);

    if (!rc) {
        rsd_rules_free(rules);
    } else {
        assert_int_equal(rc, RSD_E_INVALID);
        assert_memory_equal(err.msg, "line ", 5);
        assert_ptr_equal(rules, untouched);
    }
    assert_int_equal(rsi_mem_stats_get().bytes, bytes);
}

static void every_beginning_of_a_good_text_is_read_or_refused(void **state)
{
    char text[sizeof(good)];

    (void)state;
    for (size_t len = 0; len < sizeof(good); len++) {
        memcpy(text, good, len);
        text[len] = '\0';
        assert_read_or_refused(text);
    }
}

static void every_changed_byte_of_a_good_text_is_read_or_refused(void **state)
{
    char text[sizeof(good)];

    (void)state;
    for (size_t at = 0; at + 1 < sizeof(good); at++)
        for (int byte = 1; byte < 256; byte++) {
            memcpy(text, good, sizeof(good));
            text[at] = (char)byte;
            assert_read_or_refused(text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_that_does_not_begin_with_a_mesh_is_refused),
        cmocka_unit_test(bad_axes_are_refused),
        cmocka_unit_test(bad_lists_of_ranks_are_refused),
        cmocka_unit_test(mesh_without_rules_or_a_second_one_is_refused),
        cmocka_unit_test(words_that_are_no_placement_are_refused),
        cmocka_unit_test(bad_arguments_of_placements_are_refused),
        cmocka_unit_test(bad_axes_of_placements_are_refused),
        cmocka_unit_test(bad_sub_meshes_are_refused),
        cmocka_unit_test(lines_and_columns_count_from_1_and_columns_are_bytes),
        cmocka_unit_test(what_was_found_is_cut_at_64_characters_and_made_safe),
        cmocka_unit_test(parse_without_a_text_or_a_place_is_refused),
        cmocka_unit_test(every_beginning_of_a_good_text_is_read_or_refused),
        cmocka_unit_test(every_changed_byte_of_a_good_text_is_read_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
