/* SPDX-License-Identifier: Apache-2.0 */
/* test_rename.c - names changed by 's/RE/TO/', as sed -E changes them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "rename.h"

#include <stdlib.h>
#include <string.h>

/* The renaming `text` makes `want` of `name`. */
static void assert_renamed(const char *text, const char *name, const char *want)
{
    char       *buf = NULL;
    size_t      cap = 0;
    renaming    r;
    const char *why = rename_parse(&r, text), *got;

    if (why)
        fail_msg("%s: %s", text, why);
    got = rename_apply(&r, 1, name, &buf, &cap);
    if (!got || strcmp(got, want) != 0)
        fail_msg("%s makes \"%s\" of \"%s\", not \"%s\"", text, got ? got : "nothing", name, want);
    rename_free(&r);
    free(buf);
}

static void assert_refused(const char *text, const char *want)
{
    renaming    r;
    const char *why = rename_parse(&r, text);

    assert_non_null(why);
    assert_string_equal(why, want);
    rename_free(&r); /* nothing is left to free */
}

static void the_first_match_is_replaced(void **state)
{
    (void)state;
    assert_renamed("s/\\./_/", "a.b.c", "a_b.c");
    assert_renamed("s/^model\\.//", "model.model.w", "model.w");
    assert_renamed("s/x/y/", "abc", "abc");
    assert_renamed("s/x//", "", "");
    assert_renamed("s/^/model./", "w", "model.w");
    assert_renamed("s/$/.weight/", "w", "w.weight");
}

static void with_g_every_match_is_replaced(void **state)
{
    (void)state;
    assert_renamed("s/\\./_/g", "a.b.c", "a_b_c");
    assert_renamed("s/a/aa/g", "banana", "baanaanaa");
    assert_renamed("s/^a//g", "aab", "ab"); /* the second is not at the beginning */
}

/* What sed prints for each of them. */
static void empty_matches_are_those_of_sed(void **state)
{
    (void)state;
    assert_renamed("s/x*/-/g", "abc", "-a-b-c-");
    assert_renamed("s/a*/x/g", "baaac", "xbxcx");
    assert_renamed("s/b*$/x/g", "ab", "ax");
    assert_renamed("s/a|$/-/g", "aab", "--b-");
    assert_renamed("s/o*$|o/x/g", "foo", "fx");
    assert_renamed("s/x*/-/g", "", "-");
    assert_renamed("s/x*/-/", "abc", "-abc");
}

static void what_matched_stands_where_it_is_asked_for(void **state)
{
    (void)state;
    assert_renamed("s/(h)\\.([0-9]+)/layers.\\2.\\1/", "h.12.w", "layers.12.h.w");
    assert_renamed("s/b/[&]/", "abc", "a[b]c");
    assert_renamed("s/(X)|(Y)/[\\1\\2\\0\\\\\\&]/", "aXb", "a[XX\\&]b");
    assert_renamed("s/b/\\9/", "abc", "ac"); /* a group that there is not matched nothing */
    assert_renamed("s/(.)(.)(.)(.)(.)(.)(.)(.)(.)/\\9\\1/", "123456789", "91");
}

static void any_sign_may_part_the_text(void **state)
{
    (void)state;
    assert_renamed("s|a/b|c|", "a/b", "c");
    assert_renamed("s,a\\,b,c\\,d,", "a,b", "c,d");
    assert_renamed("s/a\\/b/c\\/d/", "a/b", "c/d");
    assert_renamed("sxaxbx", "aaa", "baa");
}

static void a_text_of_another_form_is_refused(void **state)
{
    static const char *const text[] = { "",      "s",         "s/",     "s/a",     "s/a/",
                                        "s/a/b", "s\\a\\b\\", "y/a/b/", "s/a\\/b/" };

    (void)state;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++)
        assert_refused(text[i], "expected s/RE/TO/");
    assert_refused("s/a/b/x", "only the flag g is allowed after it");
    assert_refused("s/a/b/gg", "only the flag g is allowed after it");
}

static void a_bad_expression_is_refused_with_its_reason(void **state)
{
    renaming    r;
    const char *why = rename_parse(&r, "s/(a/b/");

    (void)state;
    assert_non_null(why);
    assert_true(strlen(why) > 0);
    assert_null(strstr(why, "s/RE/TO/"));
    assert_false(r.made);
    assert_null(r.to);
    rename_free(&r);
}

static void several_are_applied_one_after_the_other(void **state)
{
    static const char *const text[] = { "s/a/b/g", "s/bb/c/", "s/^/x./" };
    char                    *buf = NULL;
    size_t                   cap = 0;
    renaming                 r[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_null(rename_parse(&r[i], text[i]));
    assert_string_equal(rename_apply(r, 3, "aab", &buf, &cap), "x.cb");
    assert_string_equal(rename_apply(r, 2, "ab", &buf, &cap), "c");
    assert_string_equal(rename_apply(r, 0, "as it is", &buf, &cap), "as it is");
    for (int i = 0; i < 3; i++)
        rename_free(&r[i]);
    free(buf);
}

/* Short and long names in turn, so that what was there before is seen if it stays. */
static void the_buffer_grows_and_is_used_again(void **state)
{
    char     name[3000], *buf = NULL;
    size_t   cap = 0;
    renaming r;

    (void)state;
    assert_null(rename_parse(&r, "s/a/bbb/g"));
    for (size_t len = 0; len < sizeof(name); len = len * 3 + 1) {
        const char *got;

        memset(name, 'a', len);
        name[len] = '\0';
        got = rename_apply(&r, 1, name, &buf, &cap);
        assert_non_null(got);
        assert_int_equal(strlen(got), 3 * len);
        assert_int_equal(strspn(got, "b"), 3 * len);
        assert_true(cap > 3 * len);
        assert_string_equal(rename_apply(&r, 1, "xa", &buf, &cap), "xbbb");
    }
    rename_free(&r);
    free(buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_match_is_replaced),
        cmocka_unit_test(with_g_every_match_is_replaced),
        cmocka_unit_test(empty_matches_are_those_of_sed),
        cmocka_unit_test(what_matched_stands_where_it_is_asked_for),
        cmocka_unit_test(any_sign_may_part_the_text),
        cmocka_unit_test(a_text_of_another_form_is_refused),
        cmocka_unit_test(a_bad_expression_is_refused_with_its_reason),
        cmocka_unit_test(several_are_applied_one_after_the_other),
        cmocka_unit_test(the_buffer_grows_and_is_used_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
