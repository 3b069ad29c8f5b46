/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that are no recipes: each is refused with line, column and reason. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "recipe/recipe.h"

#include <stdio.h>
#include <string.h>

static void expect(const char *text, const char *want)
{
    rsd_recipe *recipe = NULL;
    rsd_error   err = { .msg = "" };

    assert_int_equal(rsd_recipe_parse(text, false, &recipe, &err), RSD_E_INVALID);
    assert_null(recipe);
    assert_string_equal(err.msg, want);
}

static void a_text_without_rules_is_refused(void **state)
{
    (void)state;
    expect("", "line 1, column 1: expected a rule, found the end of the line");
    expect("# nothing\n\n", "line 3, column 1: expected a rule, found the end of the line");
    expect("let a = 1", "line 1, column 10: expected a rule, found the end of the line");
    expect("a <- b", "no rule of the recipe goes forward: all have \"<-\"");
}

static void words_in_the_wrong_place_are_named(void **state)
{
    static const char *const bad[][2] = {
        { "a", "line 1, column 2: expected \"->\", \"<-\" or \"<->\", found the end of the line" },
        { "a => b", "line 1, column 6: expected \"->\", \"<-\" or \"<->\", found \"b\"" },
        { "let a = b; let b = 1 + a; x -> y", "line 1, column 5: \"a\" is defined by itself" },
        { "a ->", "line 1, column 5: expected the name of a tensor, found the end of the line" },
        { "\n a -> b c", "line 2, column 9: expected as, times, plus, where, for, if, required or "
                         "the end of the rule, found \"c\"" },
        { "a -> b as f31", "line 1, column 11: unknown dtype \"f31\"" },
        { "a -> b as bf16 as f32", "line 1, column 16: expected as, times, plus, where, for, if, "
                                   "required or the end of the rule, found \"as\"" },
        { "let 1 = 2", "line 1, column 5: expected the name of a number, found \"1\"" },
        { "let a 2", "line 1, column 7: expected \"=\", found \"2\"" },
        { "let a = ", "line 1, column 9: expected a number or its name, found the end of the "
                      "line" },
        { "let a = (1", "line 1, column 11: expected \")\", found the end of the line" },
        { "let a = up(1)", "line 1, column 13: expected \",\", found \")\"" },
        { "let a = 1; let a = 2", "line 1, column 16: \"a\" was already defined in line 1" },
        { "let a = has(x.{i})", "line 1, column 5: {i} has no value here" },
        { "a[i -> b", "line 1, column 5: expected an axis, found \"->\"" },
        { "a[(i] -> b[i]", "line 1, column 5: expected an axis, found \"]\"" },
        { "a[] b -> c", "line 1, column 5: expected \"->\", \"<-\" or \"<->\", found \"b\"" },
        { "a[0] -> b[0]", "line 1, column 3: an axis needs a size of at least 1" },
        { "a[i:x] -> b[i]", "line 1, column 5: expected a number, found \"x\"" },
        { "a[... ...] -> b[...]", "line 1, column 7: \"...\" occurs twice" },
        { "a[(... i)] -> b[...]", "line 1, column 4: \"...\" stands alone, not in ()" },
        { "a.{i -> b", "line 1, column 5: expected \"}\", found the end of the line" },
        { "a.{2} -> b", "line 1, column 4: expected the name of a capture, found \"2}\"" },
        { "a.{i}.{*i} -> b", "line 1, column 1: \"i\" is both a number and text" },
        { "a.{b,c}.{d,e} -> f",
          "line 1, column 1: the name \"a.{b,c}.{d,e}\" has two lists of alternatives" },
        { "int4(a, b) -> c",
          "line 1, column 1: unknown form \"int4\": expected fp8, mxfp4 or lora" },
        { "a -> b for i in 0..2", "line 1, column 12: no name of the rule has the number {i}" },
        { "a.{i} -> b.{i} for i in 0", "line 1, column 26: expected \"..\", found the end of the "
                                       "line" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        expect(bad[i][0], bad[i][1]);
}

static void sides_that_are_no_bijection_are_refused(void **state)
{
    static const char *const bad[][2] = {
        { "a[(i + j) h] -> b[i h]",
          "line 1, column 1: the sources have 2 parts, but the targets 1: "
          "every part needs a place" },
        { "a[i h] -> b[(i + i) h]",
          "line 1, column 1: the sources have 1 parts, but the targets 2: "
          "every part needs a place" },
        { "a[i h], a[i h] -> b[(i + i) h]", "line 1, column 9: \"a\" is listed twice" },
        { "a[i h] -> b[i h], b[i h]", "line 1, column 19: \"b\" is listed twice" },
        { "a[i h] -> b[i]", "line 1, column 1: \"a\" has the factor \"h\", but \"b\" lacks it" },
        { "a[i] -> b[i h]", "line 1, column 9: \"b\" has the factor \"h\", but \"a\" lacks it" },
        { "a[i i] -> b[i]", "line 1, column 3: \"i\" occurs twice" },
        { "a[i] -> b", "line 1, column 9: the axes of \"b\" are missing" },
        { "a, b -> c", "line 1, column 1: 2 tensors can't become 1 without axes" },
        { "a[i ...] -> b[i]", "line 1, column 1: \"...\" is on one side only" },
        { "a.{e}[i] -> b[i]",
          "line 1, column 13: \"b\" has {e} neither in its name nor as an axis" },
        { "a.{e}[i], b[i] -> c[e (i + i)]",
          "line 1, column 11: all names of a side need the same captures" },
        { "a.{e}[e i] -> b.{e}[e i]", "line 1, column 1: {e} is both in the name and an axis" },
        { "a[*r i] -> b[i]",
          "line 1, column 1: \"*r\" has no inverse: use it on the right of \"->\"" },
        { "a[i] <-> b[*r i]",
          "line 1, column 10: \"*r\" has no inverse: use it on the right of \"->\"" },
        { "a <-> drop", "line 1, column 1: what is dropped does not come back: use \"->\"" },
        { "drop -> a", "line 1, column 1: nothing can be made of \"drop\"" },
        { "1 -> a.{i}[] as f32", "line 1, column 1: {i} needs a range: for i in 0..N" },
        { "a, 1 -> b, c", "line 1, column 4: a number stands alone, left of \"->\"" },
        { "a -> lora(b, c, d, 1)", "line 1, column 6: what lora merges can't be taken apart" },
        { "lora(a, b, c) -> d", "line 1, column 13: expected \",\", found \")\"" },
        { "lora(a, b.{i}, c, 1) -> d",
          "line 1, column 1: all names of a side need the same captures" },
        { "a -> fp8(b, c) = d", "line 1, column 16: expected as, times, plus, where, for, if, "
                                "required or the end of the rule, found \"=\"" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        expect(bad[i][0], bad[i][1]);
}

static void deep_nesting_is_refused(void **state)
{
    char   text[4096] = "let a = ";
    size_t n = strlen(text);

    (void)state;
    memset(text + n, '(', 1000);
    expect(text, "line 1, column 41: expected fewer parentheses, found \"(\"");
    memset(text + n, '-', 1000);
    expect(text, "line 1, column 41: expected fewer signs, found "
                 "\"----------------------------------------------------------------\"");
    memcpy(text, "a[     ", 7);
    memset(text + n - 1, '(', 1001);
    expect(text, "line 1, column 41: expected fewer parentheses, found \"(\"");
}

static void long_expressions_and_deep_definitions_are_refused(void **state)
{
    char   text[8192] = "let a = 1";
    size_t n = strlen(text);

    (void)state;
    for (int i = 0; i < 1000; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "+1");
    expect(text, "line 1, column 265: expected a shorter expression, found "
                 "\"1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+\"");
    n = (size_t)snprintf(text, sizeof(text), "let a0 = 1\n");
    for (int i = 1; i < 20; i++) /* 3^19 evaluations */
        n += (size_t)snprintf(text + n, sizeof(text) - n, "let a%d = a%d + a%d + a%d\n", i, i - 1,
                              i - 1, i - 1);
    snprintf(text + n, sizeof(text) - n, "a -> b");
    expect(text, "line 9, column 5: \"a8\" depends on too many others");
    n = (size_t)snprintf(text, sizeof(text), "let a0 = 1\n");
    for (int i = 99; i > 0; i--)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "let a%d = a%d\n", i, i - 1);
    snprintf(text + n, sizeof(text) - n, "a -> b");
    expect(text, "line 34, column 5: \"a67\" depends on too many others");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_without_rules_is_refused),
        cmocka_unit_test(words_in_the_wrong_place_are_named),
        cmocka_unit_test(sides_that_are_no_bijection_are_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(long_expressions_and_deep_definitions_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
