/* SPDX-License-Identifier: Apache-2.0 */
/* test_arena.c - memory that comes zeroed and aligned, never exceeds its limit and goes at once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/mem.h"

#include <stdalign.h>
#include <string.h>

/* Each test starts with an empty arena and leaves none of its memory behind. */
static rsi_arena arena;
static int64_t   bytes_before;

static int begin(void **state)
{
    (void)state;
    bytes_before = rsi_mem_stats_get().bytes;
    arena = (rsi_arena){ 0 };
    return 0;
}

static int end(void **state)
{
    (void)state;
    rsi_mem_fail_at(0, 0);
    rsi_arena_release(&arena);
    return rsi_mem_stats_get().bytes == bytes_before ? 0 : -1;
}

static void arrays_are_zero_whatever_their_size(void **state)
{
    (void)state;
    for (size_t n = 1; n < 5000; n = n * 3 + 1) {
        unsigned char *p = rsi_arena_array(&arena, n, 3);

        assert_non_null(p);
        for (size_t i = 0; i < 3 * n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, 3 * n);
    }
}

static void arrays_are_aligned_for_any_type(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 200; bytes++)
        assert_int_equal((uintptr_t)rsi_arena_array(&arena, bytes, 1) % alignof(max_align_t), 0);
}

static void arrays_do_not_overlap(void **state)
{
    unsigned char *p[300];

    (void)state;
    for (size_t i = 0; i < 300; i++) {
        p[i] = rsi_arena_array(&arena, i, 1);
        memset(p[i], (int)(i & 0xff), i);
    }
    for (size_t i = 0; i < 300; i++)
        for (size_t k = 0; k < i; k++)
            assert_int_equal(p[i][k], i & 0xff);
}

static void an_array_of_nothing_is_not_null(void **state)
{
    (void)state;
    assert_non_null(rsi_arena_array(&arena, 0, 8));
    assert_non_null(rsi_arena_array(&arena, 8, 0));
    assert_non_null(rsi_arena_array(&arena, 1024, 1));
    assert_non_null(rsi_arena_array(&arena, 0, 8)); /* the block is full now */
}

static void many_small_arrays_take_few_calls(void **state)
{
    (void)state;
    rsi_mem_fail_at(0, 0);
    for (int i = 0; i < 64000; i++)
        assert_non_null(rsi_arena_array(&arena, 1, 16));
    /* 1,024,000 bytes in blocks of 1, 2, 4 .. 512 KiB: 1023 KiB are enough */
    assert_int_equal(rsi_mem_stats_get().calls, 10);
}

static void an_array_larger_than_any_block_is_given(void **state)
{
    unsigned char *p = rsi_arena_array(&arena, 3, 1 << 20);

    (void)state;
    assert_non_null(p);
    p[(3 << 20) - 1] = 1;
    assert_non_null(rsi_arena_array(&arena, 1, 1));
}

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    assert_null(rsi_arena_array(&arena, SIZE_MAX / 2 + 1, 2));
    assert_null(rsi_arena_array(&arena, SIZE_MAX, 1));
    assert_null(rsi_arena_array(&arena, SIZE_MAX - 15, 1)); /* fits until it is rounded up */
    assert_null(rsi_arena_array(&arena, SIZE_MAX - 31, 1)); /* fits until the head is added */
    assert_null(rsi_arena_text(&arena, "", SIZE_MAX));
    assert_int_equal(arena.used, 0);
}

static void used_counts_what_was_taken_with_the_heads(void **state)
{
    size_t first;

    (void)state;
    assert_non_null(rsi_arena_array(&arena, 1, 1));
    first = arena.used;
    assert_in_range(first, 1024, 1024 + 64);
    assert_non_null(rsi_arena_array(&arena, 1000, 1)); /* still the first block */
    assert_int_equal(arena.used, first);
    assert_non_null(rsi_arena_array(&arena, 100, 1)); /* the second has 2 KiB */
    assert_int_equal(arena.used, 2 * first + 1024);
}

static void the_limit_is_never_exceeded(void **state)
{
    int given = 0;

    (void)state;
    arena.limit = 100000;
    while (given < 100000 && rsi_arena_array(&arena, 1, 16))
        given++;
    assert_in_range(given, 100000 / 16 / 4, 100000 / 16);
    assert_true(arena.used <= 100000);
}

static void an_array_beyond_the_limit_is_refused_and_takes_nothing(void **state)
{
    (void)state;
    arena.limit = 10000;
    rsi_mem_fail_at(0, 0);
    assert_null(rsi_arena_array(&arena, 10001, 1));
    assert_null(rsi_arena_array(&arena, SIZE_MAX - 64, 1));
    assert_int_equal(arena.used, 0);
    assert_int_equal(rsi_mem_stats_get().calls, 0);
    assert_non_null(rsi_arena_array(&arena, 9000, 1));
}

static void a_limit_that_just_holds_the_block_is_enough(void **state)
{
    size_t need;

    (void)state;
    assert_non_null(rsi_arena_array(&arena, 5008, 1));
    need = arena.used;
    rsi_arena_release(&arena);
    arena.limit = need - 1;
    assert_null(rsi_arena_array(&arena, 5008, 1));
    arena.limit = need;
    assert_non_null(rsi_arena_array(&arena, 5008, 1));
}

static void no_memory_gives_null_and_leaves_the_arena_usable(void **state)
{
    char *kept = rsi_arena_text(&arena, "kept", 4);

    (void)state;
    rsi_mem_fail_at(1, 0);
    assert_null(rsi_arena_array(&arena, 4096, 1));
    assert_string_equal(kept, "kept");
    assert_non_null(rsi_arena_array(&arena, 4096, 1));
}

static void a_text_is_copied_with_a_nul_behind_it(void **state)
{
    char *text = rsi_arena_text(&arena, "weights", 6);

    (void)state;
    assert_string_equal(text, "weight");
    assert_string_equal(rsi_arena_text(&arena, "", 0), "");
}

static void a_text_may_hold_nul_bytes(void **state)
{
    char *text = rsi_arena_text(&arena, "a\0b", 3);

    (void)state;
    assert_memory_equal(text, "a\0b", 4);
}

static void a_released_arena_is_empty_and_usable(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        assert_non_null(rsi_arena_array(&arena, 1, 1000));
    rsi_arena_release(&arena);
    assert_int_equal(arena.used, 0);
    assert_null(arena.blocks);
    assert_int_equal(rsi_mem_stats_get().bytes, bytes_before);
    rsi_arena_release(&arena);
    assert_non_null(rsi_arena_array(&arena, 1, 1));
}

static void releasing_keeps_the_limit(void **state)
{
    (void)state;
    arena.limit = 5000;
    assert_non_null(rsi_arena_array(&arena, 4000, 1));
    assert_null(rsi_arena_array(&arena, 4000, 1));
    rsi_arena_release(&arena);
    assert_non_null(rsi_arena_array(&arena, 4000, 1));
    assert_null(rsi_arena_array(&arena, 4000, 1));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(arrays_are_zero_whatever_their_size),
        TEST(arrays_are_aligned_for_any_type),
        TEST(arrays_do_not_overlap),
        TEST(an_array_of_nothing_is_not_null),
        TEST(many_small_arrays_take_few_calls),
        TEST(an_array_larger_than_any_block_is_given),
        TEST(sizes_that_overflow_are_refused),
        TEST(used_counts_what_was_taken_with_the_heads),
        TEST(the_limit_is_never_exceeded),
        TEST(an_array_beyond_the_limit_is_refused_and_takes_nothing),
        TEST(a_limit_that_just_holds_the_block_is_enough),
        TEST(no_memory_gives_null_and_leaves_the_arena_usable),
        TEST(a_text_is_copied_with_a_nul_behind_it),
        TEST(a_text_may_hold_nul_bytes),
        TEST(a_released_arena_is_empty_and_usable),
        TEST(releasing_keeps_the_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
