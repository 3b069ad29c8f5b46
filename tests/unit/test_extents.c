/* SPDX-License-Identifier: Apache-2.0 */
/* test_extents.c - how often chunks are looked for, and how long decoded bytes are kept; on a
 * checkpoint that only knows where its chunks are. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/workers.h"
#include "ckpt_fixture.h"
#include "format/decoded.h"
#include "plan_fixture.h"
#include "read/extents.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define FRONT (RSI_DECODED_FRONT + 512) /* bytes that decoded ones take besides, about */

enum { TENSORS = 3, CHUNKS = 300, PLACES = 256, THREADS = 4 };

/* What was looked for, and what is found: `bytes` decoded bytes, all of them the chunk's number. */
typedef struct source {
    rsd_ckpt        ckpt;
    int             looked[TENSORS][CHUNKS];
    size_t          bytes; /* 0: it is not transformed */
    int             fails; /* so many times it can't be found */
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    bool            held, inside; /* nobody gets beyond; somebody waits there */
} source;

static rsd_err read_number(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err)
{
    (void)off;
    (void)err;
    memset(buf, (int)(uintptr_t)arg, len);
    return RSD_OK;
}

static rsd_err find_chunk(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *out,
                          rsd_error *err)
{
    source    *s = ckpt->self;
    rsi_source number;
    rsd_err    rc = RSD_OK;

    (void)all;
    pthread_mutex_lock(&s->lock);
    s->looked[t][i]++;
    s->inside = true;
    pthread_cond_broadcast(&s->changed);
    while (s->held)
        pthread_cond_wait(&s->changed, &s->lock);
    if (s->fails > 0 && s->fails--)
        rc = rsi_fail(err, RSD_E_IO, "could not look");
    pthread_mutex_unlock(&s->lock);
    if (rc)
        return rc;
    *out = (rsi_extent){ .offset = 1000 * t + i };
    if (s->bytes == 0)
        return RSD_OK;
    out->record = 1;
    out->record_bytes = s->bytes - 1;
    number = (rsi_source){ .read = read_number, .size = s->bytes, .name = "numbers" };
    number.arg = (void *)(uintptr_t)(i % 251);
    return rsi_decoded_create(NULL, 0, &number, s->bytes, &out->decoded, err);
}

static void describe(const rsd_ckpt *ckpt, size_t t, rsd_tensor_info *out)
{
    (void)ckpt;
    (void)t;
    *out = (rsd_tensor_info){ .ndim = 1 };
}

static void describe_chunk(const rsd_ckpt *ckpt, size_t t, size_t i, rsd_chunk *out, uint32_t *file)
{
    (void)ckpt;
    (void)t;
    (void)i;
    *out = (rsd_chunk){ .box.ndim = 1 };
    *file = 0;
}

static const rsi_ckpt_ops ops = { .tensor = describe,
                                  .chunk = describe_chunk,
                                  .locate = find_chunk };

/* One decoded byte of an extent. */
static int byte_of(const rsi_extent *extent, uint64_t at)
{
    unsigned char byte = 255;

    assert_int_equal(rsi_decoded_read(extent->decoded, at, &byte, 1, NULL), RSD_OK);
    return byte;
}

static source *make(size_t bytes)
{
    source *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    s->ckpt.ops = &ops;
    s->ckpt.self = s;
    s->bytes = bytes;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    return s;
}

static void drop(source *s, rsi_extents *x)
{
    rsi_extents_free(x);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static rsi_extents *open_extents(source *s, size_t limit)
{
    rsi_extents *x;

    assert_int_equal(rsi_extents_create(&s->ckpt, limit, &x, NULL), RSD_OK);
    return x;
}

static const rsi_extent *get(rsi_extents *x, size_t t, size_t i)
{
    const rsi_extent *extent;

    assert_int_equal(rsi_extents_get(x, t, i, &extent, NULL), RSD_OK);
    assert_int_equal(extent->offset, 1000 * t + i);
    if (extent->decoded)
        assert_int_equal(byte_of(extent, 0), i % 251);
    return extent;
}

static void touch(rsi_extents *x, size_t t, size_t i)
{
    rsi_extents_put(x, get(x, t, i));
}

static void a_chunk_is_looked_for_once(void **state)
{
    source      *s = make(0);
    rsi_extents *x = open_extents(s, 0);

    (void)state;
    for (int k = 0; k < 3; k++) {
        touch(x, 1, 2);
        touch(x, 2, 1);
    }
    assert_int_equal(s->looked[1][2], 1);
    assert_int_equal(s->looked[2][1], 1);
    drop(s, x);
}

static void two_users_of_a_chunk_get_the_same(void **state)
{
    source           *s = make(8);
    rsi_extents      *x = open_extents(s, 0);
    const rsi_extent *one = get(x, 0, 5), *two = get(x, 0, 5);

    (void)state;
    assert_ptr_equal(one, two);
    rsi_extents_put(x, one);
    assert_int_equal(byte_of(two, 7), 5); /* still there for the other */
    touch(x, 0, 5);
    assert_int_equal(s->looked[0][5], 1);
    rsi_extents_put(x, two);
    touch(x, 0, 5); /* nobody had it, and nothing is kept */
    assert_int_equal(s->looked[0][5], 2);
    drop(s, x);
}

static void of_more_chunks_than_places_the_last_ones_are_known(void **state)
{
    source      *s = make(0);
    rsi_extents *x = open_extents(s, 0);

    (void)state;
    for (size_t i = 0; i < CHUNKS; i++)
        touch(x, 0, i);
    for (size_t i = CHUNKS - PLACES; i < CHUNKS; i++)
        touch(x, 0, i);
    for (size_t i = 0; i < CHUNKS; i++)
        assert_int_equal(s->looked[0][i], 1);
    touch(x, 0, 0);
    assert_int_equal(s->looked[0][0], 2);
    drop(s, x);
}

static void decoded_bytes_are_kept_up_to_the_limit(void **state)
{
    source      *s = make(100);
    rsi_extents *x = open_extents(s, 250 + 2 * FRONT);
    int64_t      before = rsi_mem_stats_get().bytes, two;

    (void)state;
    touch(x, 0, 0);
    touch(x, 0, 1);
    two = rsi_mem_stats_get().bytes - before;
    touch(x, 0, 0); /* so that 1 is the one used longest ago */
    touch(x, 0, 2);
    assert_int_equal(rsi_mem_stats_get().bytes - before, two);
    touch(x, 0, 0);
    touch(x, 0, 2);
    assert_int_equal(s->looked[0][0] + s->looked[0][2], 2);
    touch(x, 0, 1);
    assert_int_equal(s->looked[0][1], 2);
    drop(s, x);
}

/* Eight of ten bytes each in use at once, although none may be kept. */
static void bytes_that_are_used_are_not_dropped(void **state)
{
    source           *s = make(10);
    rsi_extents      *x = open_extents(s, 0);
    int64_t           before = rsi_mem_stats_get().bytes;
    const rsi_extent *held[8];

    (void)state;
    for (size_t i = 0; i < 8; i++)
        held[i] = get(x, 0, i);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(byte_of(held[i], 9), i);
        rsi_extents_put(x, held[i]);
    }
    assert_int_equal(rsi_mem_stats_get().bytes, before);
    drop(s, x);
}

static void a_chunk_that_was_not_found_is_looked_for_again(void **state)
{
    source           *s = make(10);
    rsi_extents      *x = open_extents(s, 100 + 10 * FRONT);
    const rsi_extent *extent = NULL;
    rsd_error         err;

    (void)state;
    s->fails = 1;
    assert_int_equal(rsi_extents_get(x, 0, 0, &extent, &err), RSD_E_IO);
    assert_string_equal(err.msg, "could not look");
    assert_null(extent);
    touch(x, 0, 0);
    assert_int_equal(s->looked[0][0], 2);
    drop(s, x);
}

/* ---- threads ---- */

typedef struct user {
    rsi_extents *x;
    size_t       chunk;
    rsd_err      rc;
} user;

static void *use_one(void *arg)
{
    user             *u = arg;
    const rsi_extent *extent;

    u->rc = rsi_extents_get(u->x, 0, u->chunk, &extent, NULL);
    if (!u->rc)
        rsi_extents_put(u->x, extent);
    return NULL;
}

/* The first is held where it looks until the second is on its way; with `fails` the second has to
 * look itself. */
static void two_at_once(int fails, int looked)
{
    source      *s = make(10);
    rsi_extents *x = open_extents(s, 100 + 10 * FRONT);
    user         u[2] = { { .x = x, .chunk = 7 }, { .x = x, .chunk = 7 } };
    pthread_t    thread[2];

    s->held = true;
    s->fails = fails;
    assert_int_equal(pthread_create(&thread[0], NULL, use_one, &u[0]), 0);
    pthread_mutex_lock(&s->lock);
    while (!s->inside)
        pthread_cond_wait(&s->changed, &s->lock);
    assert_int_equal(pthread_create(&thread[1], NULL, use_one, &u[1]), 0);
    s->held = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(thread[0], NULL);
    pthread_join(thread[1], NULL);
    assert_int_equal(u[0].rc, fails ? RSD_E_IO : RSD_OK);
    assert_int_equal(u[1].rc, RSD_OK);
    assert_int_equal(s->looked[0][7], looked);
    drop(s, x);
}

static void a_chunk_that_another_thread_looks_for_is_waited_for(void **state)
{
    (void)state;
    two_at_once(0, 1);
}

static void who_waited_in_vain_looks_himself(void **state)
{
    (void)state;
    two_at_once(1, 2);
}

static void when_all_places_are_used_one_is_waited_for(void **state)
{
    source           *s = make(0);
    rsi_extents      *x = open_extents(s, 0);
    user              u = { .x = x, .chunk = PLACES };
    const rsi_extent *held[PLACES];
    pthread_t         thread;

    (void)state;
    for (size_t i = 0; i < PLACES; i++)
        held[i] = get(x, 0, i);
    assert_int_equal(pthread_create(&thread, NULL, use_one, &u), 0);
    assert_int_equal(s->looked[0][PLACES], 0);
    for (size_t i = 0; i < PLACES; i++)
        rsi_extents_put(x, held[i]);
    pthread_join(thread, NULL);
    assert_int_equal(u.rc, RSD_OK);
    assert_int_equal(s->looked[0][PLACES], 1);
    drop(s, x);
}

static void *use_many(void *arg)
{
    user *u = arg;

    for (size_t k = 0; k < 2000 && !u->rc; k++) {
        size_t            i = (k * (u->chunk + 3)) % 7;
        const rsi_extent *extent;

        u->rc = rsi_extents_get(u->x, 0, i, &extent, NULL);
        if (u->rc)
            break;
        if (extent->offset != i || byte_of(extent, 63) != (int)i)
            u->rc = RSD_E_BUG;
        rsi_extents_put(u->x, extent);
    }
    return NULL;
}

static void what_one_thread_uses_no_other_drops(void **state)
{
    source      *s = make(64);
    rsi_extents *x = open_extents(s, 128 + 2 * FRONT);
    user         u[THREADS];
    pthread_t    thread[THREADS];

    (void)state;
    for (size_t i = 0; i < THREADS; i++) {
        u[i] = (user){ .x = x, .chunk = i };
        assert_int_equal(pthread_create(&thread[i], NULL, use_many, &u[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(u[i].rc, RSD_OK);
    }
    drop(s, x);
}

static rsd_err use_in_turn(void *arg, rsd_error *err)
{
    source           *s = arg;
    const rsi_extent *extent;
    rsi_extents      *x;
    rsd_err           rc = rsi_extents_create(&s->ckpt, 20 + 2 * FRONT, &x, err);

    if (rc)
        return rc;
    for (size_t i = 0; i < 4 && !rc; i++) {
        rc = rsi_extents_get(x, 0, i, &extent, err);
        if (!rc)
            rsi_extents_put(x, extent);
    }
    rsi_extents_free(x);
    return rc;
}

static void every_allocation_that_fails_is_told(void **state)
{
    source *s = make(10);

    (void)state;
    assert_survives_no_memory(use_in_turn, s);
    drop(s, NULL);
}

static bool take(rsi_extents *x, uint32_t file, uint64_t off)
{
    bool first = false;

    assert_int_equal(rsi_extents_first(x, file, off, &first, NULL), RSD_OK);
    return first;
}

static void the_first_has_it_and_nobody_after_him(void **state)
{
    rsi_extents *x;

    (void)state;
    assert_int_equal(rsi_extents_create(NULL, 0, &x, NULL), RSD_OK);
    assert_true(take(x, 0, 0));
    assert_false(take(x, 0, 0));
    assert_true(take(x, 0, 1));
    assert_true(take(x, 1, 0));
    assert_false(take(x, 1, 0));
    assert_true(take(x, UINT32_MAX, UINT64_MAX));
    assert_false(take(x, UINT32_MAX, UINT64_MAX));
    rsi_extents_free(x);
    rsi_extents_free(NULL);
}

typedef struct crowd {
    rsi_extents *x;
    atomic_int   firsts;
} crowd;

/* Jobs i and i + 1000 and so on want the same place. */
static rsd_err want(void *arg, size_t i, rsd_error *err)
{
    crowd  *c = arg;
    bool    first = false;
    rsd_err rc = rsi_extents_first(c->x, (uint32_t)(i % 10), i % 1000 / 10, &first, err);

    c->firsts += first;
    return rc;
}

static void of_a_crowd_one_has_each_place(void **state)
{
    crowd        c = { 0 };
    rsi_workers *workers;

    (void)state;
    assert_int_equal(rsi_extents_create(NULL, 0, &c.x, NULL), RSD_OK);
    assert_int_equal(rsi_workers_create(8, &workers, NULL), RSD_OK);
    assert_int_equal(rsi_workers_run(workers, 8000, want, &c, NULL), RSD_OK);
    assert_int_equal(c.firsts, 1000);
    rsi_workers_free(workers);
    rsi_extents_free(c.x);
}

static rsd_err take_many(void *arg, rsd_error *err)
{
    rsi_extents *x = NULL;
    rsd_err      rc = rsi_extents_create(NULL, 0, &x, err);

    (void)arg;
    for (uint64_t i = 0; i < 200 && !rc; i++) {
        bool first = false;

        rc = rsi_extents_first(x, 0, i, &first, err);
        if (!rc)
            assert_true(first);
    }
    rsi_extents_free(x);
    return rc;
}

static void want_of_memory_for_places_is_told(void **state)
{
    (void)state;
    fix_every_allocation(take_many, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_is_looked_for_once),
        cmocka_unit_test(two_users_of_a_chunk_get_the_same),
        cmocka_unit_test(of_more_chunks_than_places_the_last_ones_are_known),
        cmocka_unit_test(decoded_bytes_are_kept_up_to_the_limit),
        cmocka_unit_test(bytes_that_are_used_are_not_dropped),
        cmocka_unit_test(a_chunk_that_was_not_found_is_looked_for_again),
        cmocka_unit_test(a_chunk_that_another_thread_looks_for_is_waited_for),
        cmocka_unit_test(who_waited_in_vain_looks_himself),
        cmocka_unit_test(when_all_places_are_used_one_is_waited_for),
        cmocka_unit_test(what_one_thread_uses_no_other_drops),
        cmocka_unit_test(every_allocation_that_fails_is_told),
        cmocka_unit_test(the_first_has_it_and_nobody_after_him),
        cmocka_unit_test(of_a_crowd_one_has_each_place),
        cmocka_unit_test(want_of_memory_for_places_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
