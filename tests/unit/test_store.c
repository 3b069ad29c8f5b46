/* SPDX-License-Identifier: Apache-2.0 */
/* test_store.c - one suite for every store: files with threads, files with io_uring, memory; and
 * what applies of it to the null store. What only files do is in test_store_file.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "store/file.h"
#include "store/store.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct backend {
    const char *name;
    int         kind; /* 0: memory, else rsi_file_io */
} backend;

typedef struct fixture {
    rsd_store *store;
    int64_t    bytes; /* of memory before */
    char       dir[64];
    rsd_error  err;
} fixture;

static int open_store(void **state)
{
    const backend *b = *state;
    fixture       *f = calloc(1, sizeof(*f));
    rsi_file_opts  opts = { .io = (rsi_file_io)b->kind, .direct_min = 8192 };

    f->bytes = rsi_mem_stats_get().bytes;
    *state = f;
    if (!b->kind)
        return (int)rsd_store_open("mem:", &f->store, &f->err);
    snprintf(f->dir, sizeof(f->dir), "/tmp/rsd_store_XXXXXX");
    if (!mkdtemp(f->dir))
        return -1;
    return (int)rsi_file_store_open(f->dir, &opts, &f->store, &f->err);
}

static rsd_err remove_it(void *arg, const rsd_entry *entry, rsd_error *err)
{
    return rsi_store_remove(arg, entry->name, err);
}

/* Empties the folder and checks that nothing leaked. */
static int close_store(void **state)
{
    fixture *f = *state;
    int      rc = 0;

    if (f->dir[0] && rsi_store_list(f->store, "", remove_it, f->store, NULL) != RSD_OK)
        rc = -1;
    rsd_store_free(f->store);
    if (f->dir[0] && rmdir(f->dir) != 0)
        rc = -1;
    if (rsi_mem_stats_get().bytes != f->bytes)
        rc = -1;
    free(f);
    return rc;
}

#define ok(call) assert_int_equal_msg((call), f)
static void assert_int_equal_msg(rsd_err rc, const fixture *f)
{
    if (rc)
        print_error("%s\n", f->err.msg);
    assert_int_equal(rc, RSD_OK);
}

/* A file with these bytes. */
static void put(fixture *f, const char *name, const void *bytes, size_t len)
{
    rsi_file *file;

    ok(rsi_file_open(f->store, name, RSD_OPEN_CREATE, 0, &file, &f->err));
    ok(rsi_file_write(file, 0, bytes, len, &f->err));
    ok(rsi_file_sync(file, &f->err));
    ok(rsi_file_close(file, &f->err));
}

static void put_text(fixture *f, const char *name, const char *text)
{
    put(f, name, text, strlen(text));
}

static void put_in(fixture *f, const rsi_tree *tree, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", tree->temp, name);
    put_text(f, path, text);
}

static void assert_text(fixture *f, const char *name, const char *text)
{
    char     buf[256] = "";
    uint64_t size;

    ok(rsi_store_file_size(f->store, name, &size, &f->err));
    assert_int_equal(size, strlen(text));
    ok(rsi_store_read_all(f->store, name, 0, buf, (size_t)size, &f->err));
    assert_string_equal(buf, text);
}

static void assert_missing(fixture *f, const char *name)
{
    rsd_entry entry;

    assert_int_equal(rsi_store_stat(f->store, name, &entry, &f->err), RSD_E_NOTFOUND);
}

static rsd_err count_it(void *arg, const rsd_entry *entry, rsd_error *err)
{
    (void)entry;
    (void)err;
    ++*(size_t *)arg;
    return RSD_OK;
}

static size_t entries(fixture *f, const char *folder)
{
    size_t n = 0;

    ok(rsi_store_list(f->store, folder, count_it, &n, &f->err));
    return n;
}

/* The byte that position `at` of test files has. */
static unsigned char pattern(uint64_t at)
{
    return (unsigned char)(at * 167 >> 3 ^ at);
}

static unsigned char *pattern_bytes(uint64_t from, size_t len)
{
    unsigned char *bytes = rsi_alloc_aligned(4096, len);

    for (size_t i = 0; i < len; i++)
        bytes[i] = pattern(from + i);
    return bytes;
}

/* ---- files ---- */

static void what_was_written_is_read(void **state)
{
    fixture *f = *state;
    char     part[4] = "";

    put_text(f, "a", "hello world");
    assert_text(f, "a", "hello world");
    ok(rsi_store_read_all(f->store, "a", 6, part, 3, &f->err));
    assert_string_equal(part, "wor");
}

static void creating_a_file_that_exists_is_refused(void **state)
{
    fixture  *f = *state;
    rsi_file *file;

    put_text(f, "a", "old");
    assert_int_equal(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, 0, &file, &f->err),
                     RSD_E_EXISTS);
    assert_non_null(strstr(f->err.msg, "\"a\""));
    assert_text(f, "a", "old");
}

static void a_file_that_is_not_there_is_not_found(void **state)
{
    fixture  *f = *state;
    rsi_file *file;

    assert_int_equal(rsi_file_open(f->store, "a", RSD_OPEN_READ, 0, &file, &f->err),
                     RSD_E_NOTFOUND);
    assert_int_equal(rsi_file_open(f->store, "a", RSD_OPEN_WRITE, 0, &file, &f->err),
                     RSD_E_NOTFOUND);
    assert_int_equal(rsi_file_open(f->store, "no/a", RSD_OPEN_CREATE, 0, &file, &f->err),
                     RSD_E_NOTFOUND);
    assert_missing(f, "a");
}

static void a_folder_is_no_file(void **state)
{
    fixture  *f = *state;
    rsi_file *file;
    uint64_t  size;

    ok(rsi_store_make_folder(f->store, "d", &f->err));
    assert_int_equal(rsi_file_open(f->store, "d", RSD_OPEN_READ, 0, &file, &f->err), RSD_E_INVALID);
    assert_int_equal(rsi_file_open(f->store, "d", RSD_OPEN_WRITE, 0, &file, &f->err),
                     RSD_E_INVALID);
    assert_int_equal(rsi_store_file_size(f->store, "d", &size, &f->err), RSD_E_INVALID);
}

static void a_second_writer_adds_to_a_file_in_any_order(void **state)
{
    fixture  *f = *state;
    rsi_file *file;

    put_text(f, "a", "0123");
    ok(rsi_file_open(f->store, "a", RSD_OPEN_WRITE, 0, &file, &f->err));
    assert_int_equal(file->size, 4);
    ok(rsi_file_write(file, 6, "67", 2, &f->err));
    ok(rsi_file_write(file, 4, "45", 2, &f->err));
    ok(rsi_file_close(file, &f->err));
    assert_text(f, "a", "01234567");
}

static void a_hole_reads_as_zeros(void **state)
{
    fixture  *f = *state;
    rsi_file *file;
    char      buf[5], zero[4] = { 0 };

    ok(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, 0, &file, &f->err));
    ok(rsi_file_write(file, 4, "x", 1, &f->err));
    ok(rsi_file_close(file, &f->err));
    ok(rsi_store_read_all(f->store, "a", 0, buf, 5, &f->err));
    assert_memory_equal(buf, zero, 4);
    assert_int_equal(buf[4], 'x');
}

static void a_file_of_known_size_has_it_from_the_start(void **state)
{
    fixture  *f = *state;
    rsi_file *file;
    uint64_t  size;

    ok(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, 100000, &file, &f->err));
    assert_int_equal(file->size, 100000);
    ok(rsi_file_write(file, 99999, "x", 1, &f->err));
    ok(rsi_file_close(file, &f->err));
    ok(rsi_store_file_size(f->store, "a", &size, &f->err));
    assert_int_equal(size, 100000);
}

static void reading_behind_the_end_names_file_and_byte(void **state)
{
    fixture *f = *state;
    char     buf[8];

    put_text(f, "a", "01234");
    assert_int_equal(rsi_store_read_all(f->store, "a", 2, buf, 8, &f->err), RSD_E_FORMAT);
    assert_non_null(strstr(f->err.msg, "\"a\""));
    assert_non_null(strstr(f->err.msg, "ends at byte 5, 8 bytes are needed at byte 2"));
    assert_int_equal(rsi_store_read_all(f->store, "a", 1u << 30, buf, 1, &f->err), RSD_E_FORMAT);
}

static void an_offset_that_no_file_has_is_refused(void **state)
{
    fixture *f = *state;
    char     buf[2];

    put_text(f, "a", "01234");
    assert_int_equal(rsi_store_read_all(f->store, "a", UINT64_MAX, buf, 2, &f->err), RSD_E_INVALID);
    assert_int_equal(rsi_store_read_all(f->store, "a", INT64_MAX, buf, 2, &f->err), RSD_E_INVALID);
}

static void a_reader_can_not_write_nor_a_writer_read(void **state)
{
    fixture  *f = *state;
    rsi_file *file;
    char      c;

    put_text(f, "a", "x");
    ok(rsi_file_open(f->store, "a", RSD_OPEN_READ, 0, &file, &f->err));
    assert_int_equal(rsi_file_write(file, 0, "y", 1, &f->err), RSD_E_INVALID);
    ok(rsi_file_close(file, &f->err));
    ok(rsi_file_open(f->store, "a", RSD_OPEN_WRITE, 0, &file, &f->err));
    assert_int_equal(rsi_file_read(file, 0, &c, 1, &f->err), RSD_E_INVALID);
    ok(rsi_file_close(file, &f->err));
    assert_text(f, "a", "x");
}

static void moving_nothing_succeeds(void **state)
{
    fixture *f = *state;

    put(f, "a", NULL, 0);
    ok(rsi_store_read_all(f->store, "a", 0, NULL, 0, &f->err));
}

static void names_that_leave_the_store_are_refused(void **state)
{
    static const char *const bad[] = { "",  "/",   "/etc/passwd", "..", "../a", "a/..", "a/../b",
                                       ".", "./a", "a//b",        "a/", "a\nb", "a\x7f" };
    fixture                 *f = *state;
    rsi_file                *file;
    rsi_tree                *tree;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(rsi_file_open(f->store, bad[i], RSD_OPEN_CREATE, 0, &file, &f->err),
                         RSD_E_INVALID);
        assert_int_equal(rsi_tree_begin(f->store, bad[i], 0, &tree, &f->err), RSD_E_INVALID);
        assert_int_equal(rsi_tree_attach(f->store, bad[i], &tree, &f->err), RSD_E_INVALID);
        assert_int_equal(rsi_store_make_folder(f->store, bad[i], &f->err), RSD_E_INVALID);
        assert_int_equal(rsi_store_remove(f->store, bad[i], &f->err), RSD_E_INVALID);
    }
    assert_int_equal(entries(f, ""), 0);
}

static void an_open_file_survives_its_removal(void **state)
{
    fixture  *f = *state;
    rsi_file *file;
    char      buf[3];

    put_text(f, "a", "abc");
    ok(rsi_file_open(f->store, "a", RSD_OPEN_READ, 0, &file, &f->err));
    ok(rsi_store_remove(f->store, "a", &f->err));
    ok(rsi_file_read(file, 0, buf, 3, &f->err));
    assert_memory_equal(buf, "abc", 3);
    ok(rsi_file_close(file, &f->err));
}

static void a_map_shows_the_bytes_from_any_offset(void **state)
{
    fixture       *f = *state;
    rsi_file      *file;
    unsigned char *bytes = pattern_bytes(0, 20000);
    const void    *at;

    put(f, "a", bytes, 20000);
    ok(rsi_file_open(f->store, "a", RSD_OPEN_READ, 0, &file, &f->err));
    ok(rsi_file_map(file, 5001, 14999, &at, &f->err));
    assert_memory_equal(at, bytes + 5001, 14999);
    rsi_file_unmap(file, at, 14999);
    assert_int_equal(rsi_file_map(file, 5001, 15000, &at, &f->err), RSD_E_FORMAT);
    assert_int_equal(rsi_file_map(file, UINT64_MAX - 1, 1, &at, &f->err), RSD_E_FORMAT);
    ok(rsi_file_close(file, &f->err));
    rsi_free(bytes);
}

/* ---- queues ---- */

enum { MANY = 300, DEPTH = 8 };

static size_t piece_len(size_t i)
{
    return 1 + i * 7919 % 20011;
}

/* Submits all requests, some at a time, and sees each of them come back once. */
static void run_all(fixture *f, rsi_file *file, rsd_io *io, size_t n, size_t step)
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
    fixture       *f = *state;
    rsd_io        *io = calloc(MANY, sizeof(*io));
    rsi_file      *file;
    unsigned char *bytes, *back;
    size_t         total = 0;

    for (size_t i = 0; i < MANY; i++)
        total += piece_len(i);
    bytes = pattern_bytes(0, total);
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
    fixture   *f = *state;
    char       buf[3][4];
    rsi_file  *file;
    rsi_queue *queue;
    rsd_io     io[3], *got[3];

    put_text(f, "a", "abcd");
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
    fixture       *f = *state;
    unsigned char *bytes = pattern_bytes(0, 32 * 1000), *back = pattern_bytes(1, 32 * 1000);
    rsi_file      *file;
    rsi_queue     *queue;
    rsd_io         io[32];

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
    fixture   *f = *state;
    rsi_file  *file;
    rsi_queue *queue;
    char       buf[4];
    rsd_io     io, *got;

    put_text(f, "a", "abcd");
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
    fixture  *f;
    rsi_file *file;
    size_t    index;
    rsd_err   rc;
} writer;

static void *write_my_part(void *arg)
{
    writer        *w = arg;
    uint64_t       from = w->index * EACH * STEP;
    unsigned char *bytes = pattern_bytes(from, EACH * STEP);
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
    fixture       *f = *state;
    unsigned char *want = pattern_bytes(0, WRITERS * EACH * STEP);
    unsigned char *back = pattern_bytes(1, WRITERS * EACH * STEP);
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

/* ---- names ---- */

typedef struct seen {
    int      files, folders;
    uint64_t bytes;
} seen;

static rsd_err see(void *arg, const rsd_entry *entry, rsd_error *err)
{
    seen *s = arg;

    (void)err;
    if (strcmp(entry->name, "x") == 0 && entry->kind == RSD_ENTRY_FILE)
        s->bytes = entry->size;
    s->files += entry->kind == RSD_ENTRY_FILE;
    s->folders += entry->kind == RSD_ENTRY_FOLDER;
    return RSD_OK;
}

static rsd_err refuse(void *arg, const rsd_entry *entry, rsd_error *err)
{
    ++*(int *)arg;
    return rsi_fail(err, RSD_E_CANCELED, "no more of \"%s\"", entry->name);
}

static void a_list_shows_names_kinds_and_sizes(void **state)
{
    fixture *f = *state;
    seen     s = { 0 };

    ok(rsi_store_make_folder(f->store, "d/e", &f->err));
    put_text(f, "d/x", "12345");
    put_text(f, "d/y", "");
    ok(rsi_store_list(f->store, "d", see, &s, &f->err));
    assert_int_equal(s.files, 2);
    assert_int_equal(s.folders, 1);
    assert_int_equal(s.bytes, 5);
    assert_int_equal(rsi_store_list(f->store, "no", see, &s, &f->err), RSD_E_NOTFOUND);
    assert_int_equal(rsi_store_list(f->store, "d/x", see, &s, &f->err), RSD_E_NOTFOUND);
}

static void a_list_stops_when_the_visitor_says_so(void **state)
{
    fixture *f = *state;
    int      calls = 0;

    put_text(f, "x", "");
    put_text(f, "y", "");
    assert_int_equal(rsi_store_list(f->store, "", refuse, &calls, &f->err), RSD_E_CANCELED);
    assert_int_equal(calls, 1);
    assert_non_null(strstr(f->err.msg, "no more"));
}

static void the_top_is_a_folder(void **state)
{
    fixture  *f = *state;
    rsd_entry entry;

    ok(rsi_store_stat(f->store, "", &entry, &f->err));
    assert_int_equal(entry.kind, RSD_ENTRY_FOLDER);
}

static void folders_above_are_made_too_and_may_be_there(void **state)
{
    fixture  *f = *state;
    rsd_entry entry;

    ok(rsi_store_make_folder(f->store, "a/b/c", &f->err));
    ok(rsi_store_make_folder(f->store, "a/b/c", &f->err));
    ok(rsi_store_make_folder(f->store, "a/b/d", &f->err));
    ok(rsi_store_stat(f->store, "a/b/d", &entry, &f->err));
    assert_int_equal(entry.kind, RSD_ENTRY_FOLDER);
}

static void a_file_in_the_way_of_a_folder_is_an_error(void **state)
{
    fixture *f = *state;

    put_text(f, "a", "");
    assert_int_equal(rsi_store_make_folder(f->store, "a", &f->err), RSD_E_EXISTS);
    assert_int_not_equal(rsi_store_make_folder(f->store, "a/b", &f->err), RSD_OK);
}

static void removing_takes_a_folder_with_all_that_is_in_it(void **state)
{
    fixture *f = *state;

    ok(rsi_store_make_folder(f->store, "d/e/f", &f->err));
    ok(rsi_store_make_folder(f->store, "d/g", &f->err));
    put_text(f, "d/x", "1");
    put_text(f, "d/e/f/x", "1");
    put_text(f, "d/g/x", "1");
    ok(rsi_store_remove(f->store, "d", &f->err));
    assert_int_equal(entries(f, ""), 0);
    assert_int_equal(rsi_store_remove(f->store, "d", &f->err), RSD_E_NOTFOUND);
}

/* ---- trees ---- */

static void publish(fixture *f, const char *name, uint32_t flags, const char *text)
{
    rsi_tree *tree;

    ok(rsi_tree_begin(f->store, name, flags, &tree, &f->err));
    put_in(f, tree, "x", text);
    ok(rsi_tree_commit(tree, &f->err));
}

static void a_tree_has_its_name_only_once_it_is_committed(void **state)
{
    fixture  *f = *state;
    rsi_tree *tree;

    ok(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err));
    put_in(f, tree, "x", "1");
    assert_missing(f, "ck");
    ok(rsi_tree_commit(tree, &f->err));
    assert_text(f, "ck/x", "1");
    assert_int_equal(entries(f, ""), 1);
    assert_int_equal(entries(f, "ck"), 1);
}

static void a_tree_lies_beside_its_name(void **state)
{
    fixture  *f = *state;
    rsi_tree *tree;

    ok(rsi_store_make_folder(f->store, "a/b", &f->err));
    ok(rsi_tree_begin(f->store, "a/b/ck", 0, &tree, &f->err));
    assert_int_equal(strncmp(tree->temp, "a/b/.ck.tmp-", 12), 0);
    assert_int_equal(strlen(tree->temp), 12 + 16);
    put_in(f, tree, "x", "1");
    ok(rsi_tree_commit(tree, &f->err));
    assert_text(f, "a/b/ck/x", "1");
    assert_int_equal(rsi_tree_begin(f->store, "no/ck", 0, &tree, &f->err), RSD_E_NOTFOUND);
}

static void folders_in_a_tree_are_published_with_it(void **state)
{
    fixture  *f = *state;
    rsi_tree *tree;
    char      path[128];

    ok(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err));
    for (const char *const *sub = (const char *const[]){ "p/q", "p/r", "s", NULL }; *sub; sub++) {
        snprintf(path, sizeof(path), "%s/%s", tree->temp, *sub);
        ok(rsi_store_make_folder(f->store, path, &f->err));
    }
    put_in(f, tree, "p/q/x", "deep");
    ok(rsi_tree_commit(tree, &f->err));
    assert_text(f, "ck/p/q/x", "deep");
}

static void an_aborted_tree_leaves_nothing(void **state)
{
    fixture  *f = *state;
    rsi_tree *tree;

    ok(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err));
    put_in(f, tree, "x", "1");
    ok(rsi_tree_abort(tree, &f->err));
    assert_int_equal(entries(f, ""), 0);
}

static void beginning_a_name_that_exists_is_refused(void **state)
{
    fixture  *f = *state;
    rsi_tree *tree;

    publish(f, "ck", 0, "old");
    assert_int_equal(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err), RSD_E_EXISTS);
    assert_non_null(strstr(f->err.msg, "\"ck\""));
    assert_int_equal(entries(f, ""), 1);
}

static void the_second_of_two_who_publish_a_name_is_refused(void **state)
{
    fixture  *f = *state;
    rsi_tree *a, *b;

    ok(rsi_tree_begin(f->store, "ck", 0, &a, &f->err));
    ok(rsi_tree_begin(f->store, "ck", 0, &b, &f->err));
    put_in(f, a, "x", "a");
    put_in(f, b, "x", "b");
    ok(rsi_tree_commit(b, &f->err));
    assert_int_equal(rsi_tree_commit(a, &f->err), RSD_E_EXISTS);
    ok(rsi_tree_abort(a, &f->err));
    assert_text(f, "ck/x", "b");
    assert_int_equal(entries(f, ""), 1);
}

static void overwriting_keeps_the_old_tree_until_the_commit(void **state)
{
    fixture  *f = *state;
    rsi_tree *tree;

    publish(f, "ck", RSD_TREE_OVERWRITE, "old"); /* fine if there is nothing */
    ok(rsi_tree_begin(f->store, "ck", RSD_TREE_OVERWRITE, &tree, &f->err));
    put_in(f, tree, "y", "new");
    assert_text(f, "ck/x", "old");
    ok(rsi_tree_commit(tree, &f->err));
    assert_text(f, "ck/y", "new");
    assert_missing(f, "ck/x");
    assert_int_equal(entries(f, ""), 1);
}

static void one_file_is_published_and_replaced_like_a_tree(void **state)
{
    static const char *const text[] = { "old", "new" };
    fixture                 *f = *state;
    rsi_tree                *tree;
    rsi_file                *file;

    for (uint32_t i = 0; i < 2; i++) {
        ok(rsi_tree_begin(f->store, "ck", RSD_TREE_FILE | (i ? RSD_TREE_OVERWRITE : 0), &tree,
                          &f->err));
        ok(rsi_file_open(f->store, tree->temp, RSD_OPEN_WRITE, 0, &file, &f->err));
        ok(rsi_file_write(file, 0, text[i], 3, &f->err));
        ok(rsi_file_sync(file, &f->err));
        ok(rsi_file_close(file, &f->err));
        if (i)
            assert_text(f, "ck", "old");
        ok(rsi_tree_commit(tree, &f->err));
        assert_text(f, "ck", text[i]);
        assert_int_equal(entries(f, ""), 1);
    }
    assert_int_equal(rsi_tree_begin(f->store, "ck", RSD_TREE_FILE, &tree, &f->err), RSD_E_EXISTS);
    publish(f, "ck", RSD_TREE_OVERWRITE, "folder"); /* a tree may take a file's place */
    assert_text(f, "ck/x", "folder");
}

static void others_write_into_a_tree_by_its_temporary_name(void **state)
{
    fixture  *f = *state;
    rsi_tree *tree, *other;

    ok(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err));
    ok(rsi_tree_attach(f->store, tree->temp, &other, &f->err));
    put_in(f, tree, "x", "0");
    put_in(f, other, "y", "1");
    assert_int_equal(rsi_tree_commit(other, &f->err), RSD_E_BUG);
    ok(rsi_tree_abort(other, &f->err));
    ok(rsi_tree_commit(tree, &f->err));
    assert_text(f, "ck/x", "0");
    assert_text(f, "ck/y", "1");
    assert_int_equal(rsi_tree_attach(f->store, ".ck.tmp-0123456789abcdef", &other, &f->err),
                     RSD_E_NOTFOUND);
}

static void beginning_removes_what_dead_writers_of_that_name_left(void **state)
{
    static const char *const dead[] = { ".ck.tmp-0123456789abcdef", ".ck.tmp-fedcba9876543210" };
    static const char *const other[] = { ".ck.tmp-0123456789abcde", ".ck.tmp-0123456789abcdeg",
                                         ".ck.tmp-backup", ".kc.tmp-0123456789abcdef",
                                         "ck.tmp-0123456789abcdef" };
    fixture                 *f = *state;
    rsi_tree                *tree;
    rsd_entry                entry;
    char                     path[64];

    ok(rsi_store_make_folder(f->store, dead[0], &f->err));
    snprintf(path, sizeof(path), "%s/x", dead[0]);
    put_text(f, path, "1");
    put_text(f, dead[1], "1");
    for (size_t i = 0; i < 5; i++)
        ok(rsi_store_make_folder(f->store, other[i], &f->err));
    ok(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err));
    for (size_t i = 0; i < 2; i++)
        assert_missing(f, dead[i]);
    for (size_t i = 0; i < 5; i++)
        ok(rsi_store_stat(f->store, other[i], &entry, &f->err));
    ok(rsi_tree_abort(tree, &f->err));
    for (size_t i = 0; i < 5; i++)
        ok(rsi_store_remove(f->store, other[i], &f->err));
}

static void beginning_leaves_what_living_writers_work_on(void **state)
{
    fixture  *f = *state;
    rsi_tree *a, *b, *c;

    ok(rsi_tree_begin(f->store, "ck", 0, &a, &f->err));
    put_in(f, a, "x", "a");
    ok(rsi_tree_attach(f->store, a->temp, &b, &f->err));
    ok(rsi_tree_begin(f->store, "ck", 0, &c, &f->err));
    assert_int_equal(entries(f, a->temp), 1);
    ok(rsi_tree_abort(c, &f->err));
    ok(rsi_tree_abort(b, &f->err));
    ok(rsi_tree_commit(a, &f->err));
    assert_text(f, "ck/x", "a");
}

/* ---- memory ---- */

/* Begin, write through a queue, sync, commit. */
static rsd_err save(fixture *f, rsd_error *err)
{
    rsi_tree  *tree = NULL;
    rsi_file  *file = NULL;
    rsi_queue *queue = NULL;
    rsd_io     io, *got;
    char       path[64];
    rsd_err    rc = rsi_tree_begin(f->store, "ck", RSD_TREE_OVERWRITE, &tree, err);

    if (rc)
        return rc;
    snprintf(path, sizeof(path), "%s/x", tree->temp);
    rc = rsi_file_open(f->store, path, RSD_OPEN_CREATE, 4, &file, err);
    if (!rc)
        rc = rsi_queue_open(f->store, 2, &queue, err);
    if (!rc) {
        io = (rsd_io){ .op = RSD_IO_WRITE, .file = file->handle, .buf = path, .len = 4 };
        rsi_queue_submit(queue, &io, 1);
        rsi_queue_reap(queue, 1, 1, &got);
        rc = rsi_io_check(file, &io, err);
    }
    rsi_queue_close(queue);
    if (!rc)
        rc = rsi_file_sync(file, err);
    rsi_file_close(file, NULL);
    if (!rc)
        rc = rsi_tree_commit(tree, err);
    if (rc)
        rsi_tree_abort(tree, NULL);
    return rc;
}

static void every_allocation_that_fails_is_reported(void **state)
{
    fixture *f = *state;
    rsd_err  rc = RSD_E_NOMEM;

    for (uint64_t n = 1; rc; n++) {
        rsi_mem_fail_at(n, n % 2 == 0);
        rc = save(f, &f->err);
        rsi_mem_fail_at(0, 0);
        if (rc)
            assert_int_equal(rc, RSD_E_NOMEM);
        assert_true(n < 100);
    }
    for (uint64_t n = 1; n < 40; n++) { /* overwriting, and some removals fail silently */
        rsi_mem_fail_at(n, 0);
        rc = save(f, &f->err);
        rsi_mem_fail_at(0, 0);
        assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
        assert_int_equal(entries(f, "ck"), 1);
    }
    ok(save(f, &f->err));
    assert_int_equal(entries(f, ""), 1);
}

#define IN(b, test)                                                                                \
    {                                                                                              \
#test, test, open_store, close_store, (void *)(uintptr_t)(b)                               \
    }

static int run_for(const backend *b)
{
    const struct CMUnitTest tests[] = {
        IN(b, what_was_written_is_read),
        IN(b, creating_a_file_that_exists_is_refused),
        IN(b, a_file_that_is_not_there_is_not_found),
        IN(b, a_folder_is_no_file),
        IN(b, a_second_writer_adds_to_a_file_in_any_order),
        IN(b, a_hole_reads_as_zeros),
        IN(b, a_file_of_known_size_has_it_from_the_start),
        IN(b, reading_behind_the_end_names_file_and_byte),
        IN(b, an_offset_that_no_file_has_is_refused),
        IN(b, a_reader_can_not_write_nor_a_writer_read),
        IN(b, moving_nothing_succeeds),
        IN(b, names_that_leave_the_store_are_refused),
        IN(b, an_open_file_survives_its_removal),
        IN(b, a_map_shows_the_bytes_from_any_offset),
        IN(b, requests_of_all_lengths_arrive_once_each),
        IN(b, one_bad_request_does_not_harm_the_others),
        IN(b, closing_a_queue_finishes_what_is_under_way),
        IN(b, looking_in_without_waiting_gets_there_too),
        IN(b, threads_with_a_queue_each_write_one_file),
        IN(b, a_list_shows_names_kinds_and_sizes),
        IN(b, a_list_stops_when_the_visitor_says_so),
        IN(b, the_top_is_a_folder),
        IN(b, folders_above_are_made_too_and_may_be_there),
        IN(b, a_file_in_the_way_of_a_folder_is_an_error),
        IN(b, removing_takes_a_folder_with_all_that_is_in_it),
        IN(b, a_tree_has_its_name_only_once_it_is_committed),
        IN(b, a_tree_lies_beside_its_name),
        IN(b, folders_in_a_tree_are_published_with_it),
        IN(b, an_aborted_tree_leaves_nothing),
        IN(b, beginning_a_name_that_exists_is_refused),
        IN(b, the_second_of_two_who_publish_a_name_is_refused),
        IN(b, overwriting_keeps_the_old_tree_until_the_commit),
        IN(b, one_file_is_published_and_replaced_like_a_tree),
        IN(b, others_write_into_a_tree_by_its_temporary_name),
        IN(b, beginning_removes_what_dead_writers_of_that_name_left),
        IN(b, beginning_leaves_what_living_writers_work_on),
        IN(b, every_allocation_that_fails_is_reported),
    };

    return cmocka_run_group_tests_name(b->name, tests, NULL, NULL);
}

int main(void)
{
    static const backend backends[] = { { "memory", 0 },
                                        { "files, threads", RSI_FILE_IO_THREADS },
                                        { "files, io_uring", RSI_FILE_IO_URING } };
    int                  failed = 0;

    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        failed += run_for(&backends[i]);
    return failed;
}
