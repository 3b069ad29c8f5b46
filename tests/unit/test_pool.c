/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool.c - never more buffers than the limit allows, and who waits is woken. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* The sanitizer's own allocator would rather end the program than return NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static rsi_pool *pool_of(size_t limit, size_t buffer_bytes)
{
    rsi_pool *pool;

    assert_int_equal(rsi_pool_create(limit, buffer_bytes, &pool, NULL), RSD_OK);
    return pool;
}

static void *get(rsi_pool *pool)
{
    void *buffer = NULL;

    assert_int_equal(rsi_pool_get(pool, &buffer, NULL), RSD_OK);
    assert_non_null(buffer);
    return buffer;
}

static void as_many_buffers_as_fit_into_the_limit(void **state)
{
    rsi_pool *pool = pool_of(1000, 300);

    (void)state;
    assert_int_equal(rsi_pool_count(pool), 3);
    rsi_pool_free(pool);
}

static void a_limit_of_exactly_one_buffer_is_enough(void **state)
{
    rsi_pool *pool = pool_of(300, 300);

    (void)state;
    assert_int_equal(rsi_pool_count(pool), 1);
    rsi_pool_free(pool);
}

static void a_limit_smaller_than_a_buffer_is_refused(void **state)
{
    rsi_pool *pool = NULL;
    rsd_error err;

    (void)state;
    assert_int_equal(rsi_pool_create(299, 300, &pool, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "a pool of 299 bytes has no room for a buffer of 300");
    assert_int_equal(rsi_pool_create(0, 300, &pool, &err), RSD_E_INVALID);
    assert_null(pool);
}

static void buffers_of_no_bytes_are_refused(void **state)
{
    rsi_pool *pool = NULL;

    (void)state;
    assert_int_equal(rsi_pool_create(1000, 0, &pool, NULL), RSD_E_INVALID);
    assert_null(pool);
}

static void more_buffers_than_can_be_listed_are_refused(void **state)
{
    rsi_pool *pool = NULL;

    (void)state;
    /* 2^64 - 1 buffers: their list would need more bytes than 64 bits count */
    assert_int_equal(rsi_pool_create(SIZE_MAX, 1, &pool, NULL), RSD_E_NOMEM);
    assert_null(pool);
}

static void buffers_are_different_page_aligned_and_whole(void **state)
{
    rsi_pool      *pool = pool_of(5 * 10000, 10000);
    unsigned char *buffer[5];

    (void)state;
    for (int i = 0; i < 5; i++) {
        buffer[i] = get(pool);
        assert_int_equal((uintptr_t)buffer[i] % 4096, 0);
        memset(buffer[i], i, 10000);
    }
    for (int i = 0; i < 5; i++) {
        assert_int_equal(buffer[i][0], i);
        assert_int_equal(buffer[i][9999], i);
        rsi_pool_put(pool, buffer[i]);
    }
    rsi_pool_free(pool);
}

static void trying_gives_null_when_all_are_out(void **state)
{
    rsi_pool *pool = pool_of(200, 100);
    void     *a = get(pool), *b = NULL, *c = a;

    (void)state;
    assert_int_equal(rsi_pool_try(pool, &b, NULL), RSD_OK);
    assert_non_null(b);
    assert_int_equal(rsi_pool_try(pool, &c, NULL), RSD_OK);
    assert_null(c);
    rsi_pool_put(pool, a);
    assert_int_equal(rsi_pool_try(pool, &c, NULL), RSD_OK);
    assert_ptr_equal(c, a);
    rsi_pool_put(pool, b);
    rsi_pool_put(pool, c);
    rsi_pool_free(pool);
}

static void buffers_are_made_on_first_use_and_kept(void **state)
{
    rsi_pool *pool = pool_of(10 << 20, 1 << 20);
    int64_t   before = rsi_mem_stats_get().bytes;
    void     *a;

    (void)state;
    rsi_mem_fail_at(0, 0);
    for (int i = 0; i < 20; i++) {
        a = get(pool);
        rsi_pool_put(pool, a);
    }
    assert_int_equal(rsi_mem_stats_get().calls, 1);
    assert_in_range(rsi_mem_stats_get().bytes - before, 1 << 20, (1 << 20) + 65536);
    rsi_pool_free(pool);
}

static void the_buffer_put_last_is_got_first(void **state)
{
    rsi_pool *pool = pool_of(300, 100);
    void     *a = get(pool), *b = get(pool);

    (void)state;
    rsi_pool_put(pool, a);
    rsi_pool_put(pool, b);
    assert_ptr_equal(get(pool), b);
    assert_ptr_equal(get(pool), a);
    rsi_pool_put(pool, a);
    rsi_pool_put(pool, b);
    rsi_pool_free(pool);
}

static void no_memory_for_the_pool_is_reported(void **state)
{
    rsi_pool *pool = NULL;
    rsd_error err;

    (void)state;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        rsi_mem_fail_at(1, for_ever);
        assert_int_equal(rsi_pool_create(300, 100, &pool, &err), RSD_E_NOMEM);
        assert_string_equal(err.msg, "no memory for a pool of 3 buffers");
        assert_null(pool);
    }
    rsi_mem_fail_at(0, 0);
}

static void no_memory_for_a_buffer_is_reported_and_passes(void **state)
{
    rsi_pool *pool = pool_of(300, 100);
    void     *a = get(pool), *b = pool;
    rsd_error err;

    (void)state;
    rsi_mem_fail_at(1, 1);
    assert_int_equal(rsi_pool_get(pool, &b, &err), RSD_E_NOMEM);
    assert_string_equal(err.msg, "no memory for a buffer of 100 bytes");
    assert_int_equal(rsi_pool_try(pool, &b, &err), RSD_E_NOMEM);
    assert_ptr_equal(b, pool);
    rsi_pool_put(pool, a);
    assert_ptr_equal(get(pool), a); /* one that is there needs no memory */
    rsi_mem_fail_at(0, 0);
    b = get(pool);
    rsi_pool_put(pool, a);
    rsi_pool_put(pool, b);
    rsi_pool_free(pool);
}

static void freeing_no_pool_is_fine(void **state)
{
    (void)state;
    rsi_pool_free(NULL);
}

/* ---- several threads; results are looked at after they have ended ---- */

static struct {
    rsi_pool   *pool;
    atomic_int  started, out, most_out, failed;
    atomic_bool put;  /* main has put its buffer back */
    bool        late; /* the waiting thread got its buffer after that */
    void       *got;
} shared;

static void *get_one(void *arg)
{
    (void)arg;
    shared.started = 1;
    if (rsi_pool_get(shared.pool, &shared.got, NULL) != RSD_OK)
        shared.failed++;
    shared.late = shared.put;
    return NULL;
}

static void a_put_wakes_a_get_that_waits(void **state)
{
    pthread_t thread;
    void     *only;

    (void)state;
    memset(&shared, 0, sizeof(shared));
    shared.pool = pool_of(100, 100);
    only = get(shared.pool);
    assert_int_equal(pthread_create(&thread, NULL, get_one, NULL), 0);
    while (!shared.started)
        sched_yield();
    for (int i = 0; i < 1000; i++)
        sched_yield(); /* time for it to begin to wait; right if it has not, too */
    shared.put = true;
    rsi_pool_put(shared.pool, only);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(shared.late);
    assert_int_equal(shared.failed, 0);
    assert_ptr_equal(shared.got, only);
    rsi_pool_put(shared.pool, only);
    rsi_pool_free(shared.pool);
}

static void *get_and_put(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3000; i++) {
        void *buffer;
        int   out;

        if (rsi_pool_get(shared.pool, &buffer, NULL) != RSD_OK) {
            shared.failed++;
            break;
        }
        out = ++shared.out;
        if (out > shared.most_out)
            shared.most_out = out;
        if (i % 16 == 0)
            sched_yield(); /* so that others come while it is out */
        shared.out--;
        rsi_pool_put(shared.pool, buffer);
    }
    return NULL;
}

static void threads_never_have_more_buffers_out_than_there_are(void **state)
{
    pthread_t thread[4];

    (void)state;
    memset(&shared, 0, sizeof(shared));
    shared.pool = pool_of(200, 100);
    rsi_mem_fail_at(0, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, get_and_put, NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(shared.failed, 0);
    assert_in_range(shared.most_out, 1, 2);
    assert_in_range(rsi_mem_stats_get().calls, 1, 2);
    rsi_pool_free(shared.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_buffers_as_fit_into_the_limit),
        cmocka_unit_test(a_limit_of_exactly_one_buffer_is_enough),
        cmocka_unit_test(a_limit_smaller_than_a_buffer_is_refused),
        cmocka_unit_test(buffers_of_no_bytes_are_refused),
        cmocka_unit_test(more_buffers_than_can_be_listed_are_refused),
        cmocka_unit_test(buffers_are_different_page_aligned_and_whole),
        cmocka_unit_test(trying_gives_null_when_all_are_out),
        cmocka_unit_test(buffers_are_made_on_first_use_and_kept),
        cmocka_unit_test(the_buffer_put_last_is_got_first),
        cmocka_unit_test(no_memory_for_the_pool_is_reported),
        cmocka_unit_test(no_memory_for_a_buffer_is_reported_and_passes),
        cmocka_unit_test(freeing_no_pool_is_fine),
        cmocka_unit_test(a_put_wakes_a_get_that_waits),
        cmocka_unit_test(threads_never_have_more_buffers_out_than_there_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
