/* SPDX-License-Identifier: Apache-2.0 */
/* Tables in files and on a terminal of 40 columns, which openpty makes. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static const char *const title[] = { "name", ">bytes", "text", NULL };

static void fill(columns *c, const char *name)
{
    columns_begin(c, title);
    columns_add(c, name);
    columns_add(c, "1");
    columns_add(c, "first");
    columns_add(c, "b");
    columns_addf(c, "%d", 1000);
    columns_add(c, "");
}

static void cells_stand_below_each_other(void **state)
{
    char   *text;
    size_t  len;
    FILE   *out = tmpfile();
    columns c;

    (void)state;
    assert_non_null(out);
    fill(&c, "k\xc3\xa4se\n");
    assert_true(columns_print(&c, out));
    len = (size_t)ftell(out);
    text = calloc(1, len + 1);
    rewind(out);
    assert_int_equal(fread(text, 1, len, out), len);
    assert_string_equal(text, "name      bytes  text\n"
                              "k\xc3\xa4se\\x0a      1  first\n"
                              "b          1000\n");
    free(text);
    fclose(out);
}

static void wide_characters_take_two_cells_and_accents_none(void **state)
{
    (void)state;
    assert_int_equal(text_width("k\xc3\xa4se"), 4);
    assert_int_equal(text_width("\xe6\x97\xa5\xe6\x9c\xac"), 4); /* two of Japanese */
    assert_int_equal(text_width("\xf0\x9f\x99\x82!"), 3);        /* a face */
    assert_int_equal(text_width("a\xcc\x88"), 1);                /* a and an accent */
    assert_int_equal(text_width("\x80\xff\xe6"), 3);             /* no UTF-8 */
    assert_int_equal(text_width(""), 0);
}

/* What columns_print writes to a terminal of 40 columns. */
static void print_narrow(columns *c, char *text, size_t cap)
{
    struct winsize size = { .ws_row = 20, .ws_col = 40 };
    size_t         len = 0;
    ssize_t        got;
    FILE          *out;
    int            top, end;

    setenv("NO_COLOR", "1", 1);
    if (openpty(&top, &end, NULL, NULL, &size) != 0) {
        print_message("no terminal can be opened here: %s\n", strerror(errno));
        skip();
    }
    out = fdopen(end, "w");
    assert_true(columns_print(c, out));
    fflush(out);
    fcntl(top, F_SETFL, O_NONBLOCK);
    while (len < cap - 1 && (got = read(top, text + len, cap - 1 - len)) > 0)
        len += (size_t)got;
    text[len] = 0;
    fclose(out);
    close(top);
}

static void a_long_name_stands_alone_on_a_narrow_terminal(void **state)
{
    char    text[1024];
    columns c;

    (void)state;
    fill(&c, "a.name.of.fifty.characters.that.does.not.fit.at.all");
    print_narrow(&c, text, sizeof(text));
    assert_string_equal(text, "name                        bytes  text\r\n"
                              "a.name.of.fifty.characters.that.does.not.fit.at.all\r\n"
                              "                                1  first\r\n"
                              "b                            1000\r\n");
}

static void a_table_that_is_too_wide_has_no_wider_first_column_for_it(void **state)
{
    static const char *const wide[] = { ">n", ">a.title.of.forty.characters.or.so.or.more", NULL };
    char                     text[1024];
    columns                  c;

    (void)state;
    columns_begin(&c, wide);
    columns_add(&c, "7");
    columns_add(&c, "1");
    print_narrow(&c, text, sizeof(text));
    assert_string_equal(text, "n  a.title.of.forty.characters.or.so.or.more\r\n"
                              "7                                          1\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_stand_below_each_other),
        cmocka_unit_test(wide_characters_take_two_cells_and_accents_none),
        cmocka_unit_test(a_table_that_is_too_wide_has_no_wider_first_column_for_it),
        cmocka_unit_test(a_long_name_stands_alone_on_a_narrow_terminal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
