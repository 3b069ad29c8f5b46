/* SPDX-License-Identifier: Apache-2.0 */
/* test_mem.c - the door to malloc counts what goes through and fails when it is told to. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The sanitizer's own allocator would rather end the program than return NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static int reset(void **state)
{
    (void)state;
    rsi_mem_fail_at(0, 0);
    return 0;
}

static void fresh_memory_is_zero(void **state)
{
    unsigned char *p = rsi_calloc(100, 3);

    (void)state;
    assert_non_null(p);
    for (int i = 0; i < 300; i++)
        assert_int_equal(p[i], 0);
    rsi_free(p);
}

static void no_elements_give_a_pointer_that_can_be_freed(void **state)
{
    void *p = rsi_calloc(0, 8), *q = rsi_calloc(8, 0), *r = rsi_realloc(NULL, 0, 4);
    void *s = rsi_alloc_aligned(64, 0);

    (void)state;
    assert_non_null(p);
    assert_non_null(q);
    assert_non_null(r);
    assert_non_null(s);
    rsi_free(p);
    rsi_free(q);
    rsi_free(r);
    rsi_free(s);
}

static void freeing_nothing_is_fine(void **state)
{
    int64_t before = rsi_mem_stats_get().bytes;

    (void)state;
    rsi_free(NULL);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

static void a_size_that_overflows_is_refused(void **state)
{
    char *old = rsi_strdup("kept");

    (void)state;
    assert_null(rsi_calloc(SIZE_MAX / 2 + 1, 2));
    assert_null(rsi_realloc(old, SIZE_MAX / 2 + 1, 2));
    assert_string_equal(old, "kept");
    rsi_free(old);
}

static void growing_keeps_what_was_there(void **state)
{
    char *p = rsi_strdup("abc");

    (void)state;
    p = rsi_realloc(p, 1000, 8);
    assert_non_null(p);
    assert_string_equal(p, "abc");
    rsi_free(p);
}

static void a_failed_growth_leaves_the_old_memory(void **state)
{
    char *p = rsi_strdup("abc");

    (void)state;
    rsi_mem_fail_at(1, 0);
    assert_null(rsi_realloc(p, 1000, 8));
    assert_string_equal(p, "abc");
    rsi_free(p);
}

static void aligned_memory_is_aligned(void **state)
{
    (void)state;
    for (size_t align = 1; align <= 4096; align *= 2) {
        void *p = rsi_alloc_aligned(align, 10);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % align, 0);
        rsi_free(p);
    }
}

static void a_copy_of_a_text_is_equal_and_its_own(void **state)
{
    char  text[] = "weight";
    char *copy = rsi_strdup(text);

    (void)state;
    text[0] = 'W';
    assert_string_equal(copy, "weight");
    rsi_free(copy);
}

static void pages_are_zero_and_begin_where_a_huge_page_can(void **state)
{
    static const size_t sizes[] = { 1, 4096, 4097, 1 << 20, 2 << 20, (5 << 20) + 1 };

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *p = rsi_pages_alloc(sizes[i]);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (2 << 20), 0);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(p[k], 0);
        memset(p, 0xff, sizes[i]);
        rsi_pages_free(p, sizes[i]);
    }
    rsi_pages_free(NULL, 4096);
}

static void the_page_behind_pages_can_not_be_touched(void **state)
{
    char *p = rsi_pages_alloc(5000);
    int   ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], p + 8191, 1), 1);
    assert_int_equal(write(ends[1], p + 8192, 1), -1);
    assert_int_equal(errno, EFAULT);
    close(ends[0]);
    close(ends[1]);
    rsi_pages_free(p, 5000);
}

static void pages_are_counted_and_fail_like_the_rest(void **state)
{
    int64_t before = rsi_mem_stats_get().bytes;
    void   *p = rsi_pages_alloc(5000);

    (void)state;
    assert_int_equal(rsi_mem_stats_get().bytes, before + 8192);
    rsi_pages_free(p, 5000);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
    rsi_mem_fail_at(1, 0);
    assert_null(rsi_pages_alloc(5000));
    assert_null(rsi_pages_alloc(SIZE_MAX));
    assert_null(rsi_pages_alloc(SIZE_MAX - (2 << 20)));
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

/* One call of each kind of allocation; NULL are those that failed. */
static void allocate_four(void *p[4])
{
    p[0] = rsi_calloc(1, 8);
    p[1] = rsi_realloc(NULL, 1, 8);
    p[2] = rsi_alloc_aligned(16, 8);
    p[3] = rsi_strdup("x");
}

static void free_four(void *p[4])
{
    for (int i = 0; i < 4; i++)
        rsi_free(p[i]);
}

static void the_nth_allocation_alone_fails(void **state)
{
    void *p[4];

    (void)state;
    for (int nth = 1; nth <= 4; nth++) {
        rsi_mem_fail_at((uint64_t)nth, 0);
        allocate_four(p);
        for (int i = 0; i < 4; i++)
            assert_int_equal(p[i] == NULL, i == nth - 1);
        free_four(p);
    }
}

static void the_nth_allocation_and_all_after_it_fail(void **state)
{
    void *p[4];

    (void)state;
    for (int nth = 1; nth <= 4; nth++) {
        rsi_mem_fail_at((uint64_t)nth, 1);
        allocate_four(p);
        for (int i = 0; i < 4; i++)
            assert_int_equal(p[i] == NULL, i >= nth - 1);
        free_four(p);
    }
}

static void nothing_fails_once_it_is_switched_off(void **state)
{
    void *p[4];

    (void)state;
    rsi_mem_fail_at(1, 1);
    rsi_mem_fail_at(0, 0);
    allocate_four(p);
    for (int i = 0; i < 4; i++)
        assert_non_null(p[i]);
    free_four(p);
}

static void calls_are_counted_from_the_last_setting_on(void **state)
{
    void *p[4];

    (void)state;
    rsi_mem_fail_at(0, 0);
    assert_int_equal(rsi_mem_stats_get().calls, 0);
    allocate_four(p);
    assert_int_equal(rsi_mem_stats_get().calls, 4);
    free_four(p);
    assert_int_equal(rsi_mem_stats_get().calls, 4);
}

static void calls_that_fail_are_counted(void **state)
{
    void *p[4];

    (void)state;
    rsi_mem_fail_at(1, 1);
    allocate_four(p);
    assert_int_equal(rsi_mem_stats_get().calls, 4);
}

static void bytes_in_use_rise_and_fall_back(void **state)
{
    int64_t before = rsi_mem_stats_get().bytes;
    void   *p[4];

    (void)state;
    allocate_four(p);
    assert_true(rsi_mem_stats_get().bytes >= before + 8 + 8 + 8 + 2);
    free_four(p);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

static void growing_counts_only_what_is_added(void **state)
{
    int64_t before = rsi_mem_stats_get().bytes;
    void   *p = rsi_realloc(NULL, 1000, 1);

    (void)state;
    p = rsi_realloc(p, 100000, 1);
    assert_in_range(rsi_mem_stats_get().bytes - before, 100000, 101000);
    p = rsi_realloc(p, 10, 1);
    assert_in_range(rsi_mem_stats_get().bytes - before, 10, 1000);
    rsi_free(p);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

static void failed_allocations_use_no_bytes(void **state)
{
    int64_t before = rsi_mem_stats_get().bytes;
    void   *p = rsi_calloc(1, 100), *grown;
    int64_t with = rsi_mem_stats_get().bytes;

    (void)state;
    rsi_mem_fail_at(1, 1);
    grown = rsi_realloc(p, 1, 100000);
    assert_null(grown);
    assert_null(rsi_calloc(1, 100));
    assert_int_equal(rsi_mem_stats_get().bytes, with);
    rsi_free(p);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

static void the_peak_stays_when_the_memory_is_gone(void **state)
{
    int64_t before;
    void   *p;

    (void)state;
    rsi_mem_fail_at(0, 0);
    before = rsi_mem_stats_get().bytes;
    assert_int_equal(rsi_mem_stats_get().peak, before);
    p = rsi_calloc(1, 1 << 20);
    rsi_free(p);
    p = rsi_calloc(1, 1 << 10);
    rsi_free(p);
    assert_in_range(rsi_mem_stats_get().peak - before, 1 << 20, (1 << 20) + 65536);
    assert_int_equal(rsi_mem_stats_get().bytes, before);
}

static void the_peak_starts_anew_with_each_setting(void **state)
{
    void *p = rsi_calloc(1, 1 << 20);

    (void)state;
    rsi_free(p);
    rsi_mem_fail_at(0, 0);
    assert_int_equal(rsi_mem_stats_get().peak, rsi_mem_stats_get().bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(fresh_memory_is_zero, reset),
        cmocka_unit_test_teardown(no_elements_give_a_pointer_that_can_be_freed, reset),
        cmocka_unit_test_teardown(freeing_nothing_is_fine, reset),
        cmocka_unit_test_teardown(a_size_that_overflows_is_refused, reset),
        cmocka_unit_test_teardown(growing_keeps_what_was_there, reset),
        cmocka_unit_test_teardown(a_failed_growth_leaves_the_old_memory, reset),
        cmocka_unit_test_teardown(aligned_memory_is_aligned, reset),
        cmocka_unit_test_teardown(a_copy_of_a_text_is_equal_and_its_own, reset),
        cmocka_unit_test_teardown(pages_are_zero_and_begin_where_a_huge_page_can, reset),
        cmocka_unit_test_teardown(the_page_behind_pages_can_not_be_touched, reset),
        cmocka_unit_test_teardown(pages_are_counted_and_fail_like_the_rest, reset),
        cmocka_unit_test_teardown(the_nth_allocation_alone_fails, reset),
        cmocka_unit_test_teardown(the_nth_allocation_and_all_after_it_fail, reset),
        cmocka_unit_test_teardown(nothing_fails_once_it_is_switched_off, reset),
        cmocka_unit_test_teardown(calls_are_counted_from_the_last_setting_on, reset),
        cmocka_unit_test_teardown(calls_that_fail_are_counted, reset),
        cmocka_unit_test_teardown(bytes_in_use_rise_and_fall_back, reset),
        cmocka_unit_test_teardown(growing_counts_only_what_is_added, reset),
        cmocka_unit_test_teardown(failed_allocations_use_no_bytes, reset),
        cmocka_unit_test_teardown(the_peak_stays_when_the_memory_is_gone, reset),
        cmocka_unit_test_teardown(the_peak_starts_anew_with_each_setting, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
