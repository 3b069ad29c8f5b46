/* SPDX-License-Identifier: Apache-2.0 */
/* test_store_queue.c - requests to every kind of store, many at a time. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "store_case.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- queues ---- */

enum { MANY = 300, DEPTH = 8 };

static size_t piece_len(size_t i)
{
    return 1 + i * 7919 % 20011;
}

/* Submits all requests, some at a time, and sees each of them come back once. */
static void run_all(store_case *f, rsi_file *file, rsd_io *io, size_t n, size_t step)
{
    rsi_queue *queue;
    rsd_io    *got[DEPTH];
    size_t     back = 0, next = 0, g;

    ok(rsi_queue_open(f->store, DEPTH, &queue, &f->err));
    while (back < n) {
        if (next < n) {
            size_t now = n - next < step ? n - next : step;

            rsi_queue_submit(queue, io + next, now);
            next += now;
        }
        g = rsi_queue_reap(queue, next == n, DEPTH, got);
        for (size_t i = 0; i < g; i++) {
            ok(rsi_io_check(file, got[i], &f->err));
            assert_ptr_equal(got[i]->tag, got[i]); /* the first time */
            got[i]->tag = NULL;
        }
        back += g;
    }
    assert_int_equal(rsi_queue_reap(queue, 1, DEPTH, got), 0);
    rsi_queue_close(queue);
}

static void requests_of_all_lengths_arrive_once_each(void **state)
{
    store_case    *f = *state;
    rsd_io        *io = calloc(MANY, sizeof(*io));
    rsi_file      *file;
    unsigned char *bytes, *back;
    size_t         total = 0;

    for (size_t i = 0; i < MANY; i++)
        total += piece_len(i);
    bytes = store_pattern_bytes(0, total);
    back = rsi_calloc(total, 1);
    for (int step = 1; step <= MANY; step += 100) {
        uint32_t how[] = { RSD_OPEN_CREATE | RSD_OPEN_DIRECT, RSD_OPEN_READ | RSD_OPEN_DIRECT };

        memset(back, 0, total);
        for (int r = 0; r < 2; r++) {
            size_t off = 0;

            ok(rsi_file_open(f->store, "a", how[r], r ? 0 : total, &file, &f->err));
            for (size_t i = 0; i < MANY; off += piece_len(i++)) /* written from the last on */
                io[r ? i : MANY - 1 - i] = (rsd_io){ .op = r ? RSD_IO_READ : RSD_IO_WRITE,
                                                     .file = file->handle,
                                                     .off = off,
                                                     .buf = (r ? back : bytes) + off,
                                                     .len = piece_len(i) };
            for (size_t i = 0; i < MANY; i++)
                io[i].tag = &io[i];
            run_all(f, file, io, MANY, (size_t)step);
            ok(rsi_file_close(file, &f->err));
        }
        assert_memory_equal(back, bytes, total);
        ok(rsi_store_remove(f->store, "a", &f->err));
    }
    rsi_free(bytes);
    rsi_free(back);
    free(io);
}

static void one_bad_request_does_not_harm_the_others(void **state)
{
    store_case *f = *state;
    char        buf[3][4];
    rsi_file   *file;
    rsi_queue  *queue;
    rsd_io      io[3], *got[3];

    store_put_text(f, "a", "abcd");
    ok(rsi_file_open(f->store, "a", RSD_OPEN_READ, 0, &file, &f->err));
    ok(rsi_queue_open(f->store, 2, &queue, &f->err));
    for (int i = 0; i < 3; i++)
        io[i] = (rsd_io){ .op = RSD_IO_READ, .file = file->handle, .buf = buf[i], .len = 4 };
    io[0].off = UINT64_MAX - 2;
    io[1].off = 2;
    rsi_queue_submit(queue, io, 3);
    assert_int_equal(rsi_queue_reap(queue, 3, 3, got), 3);
    assert_int_equal(rsi_io_check(file, &io[0], &f->err), RSD_E_INVALID);
    assert_int_equal(io[1].rc, RSD_OK);
    assert_int_equal(io[1].done, 2);
    assert_int_equal(rsi_io_check(file, &io[1], &f->err), RSD_E_FORMAT);
    ok(rsi_io_check(file, &io[2], &f->err));
    assert_memory_equal(buf[2], "abcd", 4);
    rsi_queue_close(queue);
    ok(rsi_file_close(file, &f->err));
}

static void closing_a_queue_finishes_what_is_under_way(void **state)
{
    store_case    *f = *state;
    unsigned char *bytes = store_pattern_bytes(0, 32 * 1000),
                  *back = store_pattern_bytes(1, 32 * 1000);
    rsi_file  *file;
    rsi_queue *queue;
    rsd_io     io[32];

    ok(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, 0, &file, &f->err));
    ok(rsi_queue_open(f->store, 4, &queue, &f->err));
    for (size_t i = 0; i < 32; i++)
        io[i] = (rsd_io){ .op = RSD_IO_WRITE,
                          .file = file->handle,
                          .off = i * 1000,
                          .buf = bytes + i * 1000,
                          .len = 1000 };
    rsi_queue_submit(queue, io, 32);
    rsi_queue_close(queue);
    ok(rsi_file_close(file, &f->err));
    ok(rsi_store_read_all(f->store, "a", 0, back, 32 * 1000, &f->err));
    assert_memory_equal(back, bytes, 32 * 1000);
    rsi_free(bytes);
    rsi_free(back);
}

static void looking_in_without_waiting_gets_there_too(void **state)
{
    store_case *f = *state;
    rsi_file   *file;
    rsi_queue  *queue;
    char        buf[4];
    rsd_io      io, *got;

    store_put_text(f, "a", "abcd");
    ok(rsi_file_open(f->store, "a", RSD_OPEN_READ, 0, &file, &f->err));
    ok(rsi_queue_open(f->store, 1, &queue, &f->err));
    assert_int_equal(rsi_queue_reap(queue, 1, 1, &got), 0); /* nothing is under way */
    io = (rsd_io){ .op = RSD_IO_READ, .file = file->handle, .buf = buf, .len = 4 };
    rsi_queue_submit(queue, &io, 1);
    while (rsi_queue_reap(queue, 0, 1, &got) == 0)
        ;
    assert_ptr_equal(got, &io);
    ok(rsi_io_check(file, got, &f->err));
    rsi_queue_close(queue);
    ok(rsi_file_close(file, &f->err));
}

enum { WRITERS = 4, EACH = 64, STEP = 3000 };

typedef struct writer {
    store_case *f;
    rsi_file   *file;
    size_t      index;
    rsd_err     rc;
} writer;

static void *write_my_part(void *arg)
{
    writer        *w = arg;
    uint64_t       from = w->index * EACH * STEP;
    unsigned char *bytes = store_pattern_bytes(from, EACH * STEP);
    rsi_queue     *queue;
    rsd_io         io[EACH], *got[EACH];

    w->rc = rsi_queue_open(w->f->store, 8, &queue, NULL);
    if (!w->rc) {
        for (size_t i = 0; i < EACH; i++)
            io[i] = (rsd_io){ .op = RSD_IO_WRITE,
                              .file = w->file->handle,
                              .off = from + i * STEP,
                              .buf = bytes + i * STEP,
                              .len = STEP };
        rsi_queue_submit(queue, io, EACH);
        if (rsi_queue_reap(queue, EACH, EACH, got) != EACH)
            w->rc = RSD_E_BUG;
        for (size_t i = 0; !w->rc && i < EACH; i++)
            w->rc = rsi_io_check(w->file, &io[i], NULL);
        rsi_queue_close(queue);
    }
    rsi_free(bytes);
    return NULL;
}

static void threads_with_a_queue_each_write_one_file(void **state)
{
    store_case    *f = *state;
    unsigned char *want = store_pattern_bytes(0, WRITERS * EACH * STEP);
    unsigned char *back = store_pattern_bytes(1, WRITERS * EACH * STEP);
    writer         w[WRITERS];
    pthread_t      thread[WRITERS];
    rsi_file      *file;

    ok(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, 0, &file, &f->err));
    for (size_t i = 0; i < WRITERS; i++) {
        w[i] = (writer){ .f = f, .file = file, .index = i };
        assert_int_equal(pthread_create(&thread[i], NULL, write_my_part, &w[i]), 0);
    }
    for (size_t i = 0; i < WRITERS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(w[i].rc, RSD_OK);
    }
    ok(rsi_file_close(file, &f->err));
    ok(rsi_store_read_all(f->store, "a", 0, back, WRITERS * EACH * STEP, &f->err));
    assert_memory_equal(back, want, WRITERS * EACH * STEP);
    rsi_free(want);
    rsi_free(back);
}

static int run_for(const store_backend *b)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(b, requests_of_all_lengths_arrive_once_each),
        STORE_TEST(b, one_bad_request_does_not_harm_the_others),
        STORE_TEST(b, closing_a_queue_finishes_what_is_under_way),
        STORE_TEST(b, looking_in_without_waiting_gets_there_too),
        STORE_TEST(b, threads_with_a_queue_each_write_one_file),
    };

    return cmocka_run_group_tests_name(b->name, tests, NULL, NULL);
}

int main(void)
{
    return store_each_backend(run_for);
}
