/* SPDX-License-Identifier: Apache-2.0 */
/* test_explain.c - a plan in words. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan_fixture.h"

#include <stdio.h>
#include <string.h>

static rsd_layout *src, *dst;
static rsd_plan   *plan;
static char        text[4096];

static void free_all(void)
{
    rsd_plan_free(plan);
    rsd_layout_free(src);
    rsd_layout_free(dst);
    plan = NULL;
    src = dst = NULL;
}

static int end(void **state)
{
    (void)state;
    free_all();
    return 0;
}

/* The plan of a rank for n bytes; its text is in `text`. */
static void tell(int64_t n, const char *from, const char *to, int32_t rank)
{
    size_t len;

    free_all();
    src = fixture_layout_of(from, RSD_U8, 1, &n);
    dst = fixture_layout_of(to, RSD_U8, 1, &n);
    plan = fixture_plan(src, dst, rank);
    memset(text, 'x', sizeof(text));
    len = rsd_plan_text(plan, text, sizeof(text));
    assert_int_equal(len, strlen(text));
}

static void totals_and_a_line_for_each_peer(void **state)
{
    (void)state;
    tell(8, "mesh a=2; * shard(0)@a", "mesh a=2; * strided(0,2)@a", 0);
    assert_string_equal(text,
                        "rank 0: 1 tensor, 3 moves; keeps 2 B, sends 2 B, receives 2 B; 1 peer, "
                        "2 messages\n"
                        "  rank 1: sends it 2 B in 1 move, receives from it 2 B in 1 move\n");
}

static void lines_tell_only_what_there_is(void **state)
{
    (void)state;
    tell(9, "mesh a=3; * shard(0)@a", "mesh a=3 ranks=1,2,0; * shard(0)@a", 0);
    assert_string_equal(text,
                        "rank 0: 1 tensor, 2 moves; keeps 0 B, sends 3 B, receives 3 B; 2 peers, "
                        "2 messages\n"
                        "  rank 1: sends it 3 B in 1 move\n"
                        "  rank 2: receives from it 3 B in 1 move\n");
}

static void several_moves_to_a_peer_are_added_up(void **state)
{
    (void)state;
    tell(8, "mesh a=2; * shard(0)@a", "mesh a=2; * strided(0,4)@a", 1);
    assert_string_equal(text,
                        "rank 1: 1 tensor, 6 moves; keeps 2 B, sends 2 B, receives 2 B; 1 peer, "
                        "2 messages\n"
                        "  rank 0: sends it 2 B in 2 moves, receives from it 2 B in 2 moves\n");
}

static void a_plan_of_nothing_is_one_line(void **state)
{
    (void)state;
    assert_int_equal(rsd_plan_create(0, NULL, NULL, 3, &plan, NULL), RSD_OK);
    rsd_plan_text(plan, text, sizeof(text));
    assert_string_equal(text, "rank 3: 0 tensors, 0 moves; keeps 0 B, sends 0 B, receives 0 B; "
                              "0 peers, 0 messages\n");
}

static void bytes_of_elements_are_counted(void **state)
{
    int64_t n = 5;

    (void)state;
    src = fixture_layout_of("mesh a=1; * replicate", RSD_C128, 1, &n);
    dst = fixture_layout_of("mesh a=1 ranks=4; * replicate", RSD_C128, 1, &n);
    plan = fixture_plan(src, dst, 4);
    rsd_plan_text(plan, text, sizeof(text));
    assert_string_equal(text, "rank 4: 1 tensor, 1 move; keeps 0 B, sends 0 B, receives 80 B; "
                              "1 peer, 1 message\n"
                              "  rank 0: receives from it 80 B in 1 move\n");
}

/* How so many bytes are written. */
static void assert_bytes(int64_t bytes, const char *want)
{
    char line[128];

    tell(bytes, "mesh a=1; * replicate", "mesh a=1; * replicate", 0);
    snprintf(line, sizeof(line),
             "rank 0: 1 tensor, 1 move; keeps %s, sends 0 B, receives 0 B; 0 peers, 0 messages\n",
             want);
    assert_string_equal(text, line);
}

static void bytes_have_the_unit_that_keeps_them_short(void **state)
{
    (void)state;
    assert_bytes(1, "1 B");
    assert_bytes(1023, "1023 B");
    assert_bytes(1024, "1.0 KiB");
    assert_bytes(1536, "1.5 KiB");
    assert_bytes((int64_t)5 << 20, "5.0 MiB");
    assert_bytes((int64_t)5 << 29, "2.5 GiB");
    assert_bytes((int64_t)3 << 40, "3.0 TiB");
    assert_bytes((int64_t)3 << 50, "3.0 PiB");
    assert_bytes((int64_t)3 << 61, "6.0 EiB");
}

/* Lines of the text. */
static size_t lines(void)
{
    size_t n = 0;

    for (const char *at = text; (at = strchr(at, '\n')); at++)
        n++;
    return n;
}

static void sixteen_peers_have_a_line_each(void **state)
{
    (void)state;
    tell(17, "mesh a=17; * shard(0)@a", "mesh a=1; * replicate", 0);
    assert_int_equal(lines(), 1 + 16);
    assert_non_null(strstr(text, "; 16 peers, 16 messages\n"));
    assert_non_null(strstr(text, "\n  rank 16: receives from it 1 B in 1 move\n"));
    assert_null(strstr(text, "more"));
}

static void more_than_sixteen_peers_are_folded_into_one_line(void **state)
{
    (void)state;
    tell(20, "mesh a=20; * shard(0)@a", "mesh a=1; * replicate", 0);
    assert_int_equal(lines(), 1 + 16 + 1);
    assert_non_null(strstr(text, "; 19 peers, 19 messages\n  rank 1: receives"));
    assert_non_null(strstr(text, "\n  rank 16: receives from it 1 B in 1 move\n  and 3 more "
                                 "peers\n"));
    assert_null(strstr(text, "rank 17"));
}

static void text_that_does_not_fit_is_cut_and_counted(void **state)
{
    char   small[11], none[2] = "x";
    size_t whole;

    (void)state;
    tell(8, "mesh a=2; * shard(0)@a", "mesh a=2; * strided(0,2)@a", 0);
    whole = strlen(text);
    assert_int_equal(rsd_plan_text(plan, small, sizeof(small)), whole);
    assert_string_equal(small, "rank 0: 1 ");
    assert_int_equal(rsd_plan_text(plan, none, 0), whole);
    assert_string_equal(none, "x");
    assert_int_equal(rsd_plan_text(plan, NULL, 0), whole);
}

#define TEST(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(totals_and_a_line_for_each_peer),
        TEST(lines_tell_only_what_there_is),
        TEST(several_moves_to_a_peer_are_added_up),
        TEST(a_plan_of_nothing_is_one_line),
        TEST(bytes_of_elements_are_counted),
        TEST(bytes_have_the_unit_that_keeps_them_short),
        TEST(sixteen_peers_have_a_line_each),
        TEST(more_than_sixteen_peers_are_folded_into_one_line),
        TEST(text_that_does_not_fit_is_cut_and_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
