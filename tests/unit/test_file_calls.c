/* SPDX-License-Identifier: Apache-2.0 */
/* test_file_calls.c - the system calls of a store of files: orders that a power cut would punish,
 * and every one of them failing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "file_case.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- the order of calls ---- */

typedef struct call_log {
    file_case *f;
    char       calls[256]; /* F fsync, R rename, U unlink, in order */
    int        bad;        /* moments without a complete "ck" */
} call_log;

static void note_call(const char *call, void *arg)
{
    call_log *log = arg;
    size_t    n = strlen(log->calls);
    char      c = strcmp(call, "fsync") == 0       ? 'F'
                  : strcmp(call, "renameat2") == 0 ? 'R'
                  : strcmp(call, "unlinkat") == 0  ? 'U'
                                                   : 0;

    if (c && n + 1 < sizeof(log->calls))
        log->calls[n] = c;
    if (!file_holds(log->f->plain, "ck/x", "old") && !file_holds(log->f->plain, "ck/x", "new"))
        log->bad++;
}

static void publishing_syncs_the_folder_then_renames_then_syncs_the_parent(void **state)
{
    file_case *f = *state;
    call_log   log = { .f = f };
    rsi_tree  *tree;

    assert_int_equal(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err), RSD_OK);
    assert_int_equal(file_put_in(f->store, tree, "x", "new", &f->err), RSD_OK);
    faults.watch = note_call;
    faults.arg = &log;
    assert_int_equal(rsi_tree_commit(tree, &f->err), RSD_OK);
    assert_string_equal(log.calls, "FRF");
}

static void what_is_replaced_is_removed_when_the_new_one_is_durable(void **state)
{
    file_case *f = *state;
    call_log   log = { .f = f };
    rsi_tree  *tree;

    assert_int_equal(file_publish(f->plain, "old", 0, &f->err), RSD_OK);
    assert_int_equal(rsi_tree_begin(f->store, "ck", RSD_TREE_OVERWRITE, &tree, &f->err), RSD_OK);
    assert_int_equal(file_put_in(f->store, tree, "x", "new", &f->err), RSD_OK);
    faults.watch = note_call;
    faults.arg = &log;
    assert_int_equal(rsi_tree_commit(tree, &f->err), RSD_OK);
    assert_string_equal(log.calls, "FRFUU");
    assert_int_equal(file_entries(f), 1);
}

static void the_name_shows_a_complete_tree_at_every_call_of_an_overwrite(void **state)
{
    file_case *f = *state;
    call_log   log = { .f = f };

    assert_int_equal(file_publish(f->plain, "old", 0, &f->err), RSD_OK);
    faults.watch = note_call;
    faults.arg = &log;
    assert_int_equal(file_publish(f->store, "new", RSD_TREE_OVERWRITE, &f->err), RSD_OK);
    faults.watch = NULL;
    assert_int_equal(log.bad, 0);
    assert_true(file_holds(f->store, "ck/x", "new"));
}

/* At the sync behind the exchange someone else begins to write the same name. */
static void begin_in_between(const char *call, void *arg)
{
    file_case *f = arg;
    rsi_tree  *tree;

    if (strcmp(call, "fsync") != 0 || !file_holds(f->plain, "ck/x", "new"))
        return;
    faults.watch = NULL;
    assert_int_equal(rsi_tree_begin(f->plain, "ck", RSD_TREE_OVERWRITE, &tree, &f->err), RSD_OK);
    assert_int_equal(file_entries(f), 3); /* the new, the old, and the other's */
    assert_int_equal(rsi_tree_abort(tree, &f->err), RSD_OK);
}

static void what_is_replaced_is_not_taken_for_a_dead_writers(void **state)
{
    file_case *f = *state;

    assert_int_equal(file_publish(f->plain, "old", 0, &f->err), RSD_OK);
    faults.watch = begin_in_between;
    faults.arg = f;
    assert_int_equal(file_publish(f->store, "new", RSD_TREE_OVERWRITE, &f->err), RSD_OK);
    assert_null(faults.watch);
    assert_int_equal(file_entries(f), 1);
}

static void a_file_that_there_is_no_room_for_is_not_created(void **state)
{
    file_case *f = *state;
    rsi_file  *file;

    faults = (sys_faults){ .at = 1, .only = "fallocate", .error = ENOSPC };
    assert_int_equal(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, 1 << 20, &file, &f->err),
                     RSD_E_IO);
    assert_int_equal(f->err.sys_errno, ENOSPC);
    assert_int_equal(file_entries(f), 0);
}

/* tmpfs would reserve page by page, so it is only asked for its room. */
static void on_tmpfs_a_large_file_is_not_reserved(void **state)
{
    const int64_t bytes = 8 << 20;
    file_case    *f = *state;
    rsi_file     *file;

    faults = (sys_faults){ .at = 1, .only = "fallocate", .error = EIO, .tmpfs_left = bytes };
    assert_int_equal(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, (uint64_t)bytes, &file, &f->err),
                     RSD_OK);
    assert_int_equal(rsi_file_close(file, &f->err), RSD_OK);
    assert_int_equal(file_entries(f), 1);
    faults.tmpfs_left = bytes - 4096;
    assert_int_equal(rsi_file_open(f->store, "b", RSD_OPEN_CREATE, (uint64_t)bytes, &file, &f->err),
                     RSD_E_IO);
    assert_int_equal(f->err.sys_errno, ENOSPC);
    assert_int_equal(file_entries(f), 1);
}

static void removing_a_folder_hides_its_name_durably_first(void **state)
{
    file_case *f = *state;
    call_log   log = { .f = f };

    assert_int_equal(file_publish(f->plain, "old", 0, &f->err), RSD_OK);
    faults.watch = note_call;
    faults.arg = &log;
    assert_int_equal(rsi_store_remove(f->store, "ck", &f->err), RSD_OK);
    assert_string_equal(log.calls, "RFUU");
}

static void a_failed_sync_is_final(void **state)
{
    file_case *f = *state;
    rsi_file  *file;
    int        fsyncs;

    assert_int_equal(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, 0, &file, &f->err), RSD_OK);
    assert_int_equal(rsi_file_write(file, 0, "x", 1, &f->err), RSD_OK);
    faults.at = faults.calls + 1;
    faults.error = EIO;
    assert_int_equal(rsi_file_sync(file, &f->err), RSD_E_IO);
    assert_int_equal(f->err.sys_errno, EIO);
    fsyncs = faults.fsyncs;
    faults.at = 0;
    assert_int_equal(rsi_file_sync(file, &f->err), RSD_E_IO);
    assert_non_null(strstr(f->err.msg, "\"a\""));
    assert_int_equal(faults.fsyncs, fsyncs);
    assert_int_equal(rsi_file_close(file, &f->err), RSD_OK);
}

static void a_commit_that_failed_can_not_be_tried_again(void **state)
{
    file_case *f = *state;
    rsi_tree  *tree;

    assert_int_equal(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err), RSD_OK);
    faults.at = faults.calls + 1;
    faults.for_ever = true;
    faults.error = EIO;
    assert_int_equal(rsi_tree_commit(tree, &f->err), RSD_E_IO);
    faults.at = 0;
    assert_int_equal(rsi_tree_commit(tree, &f->err), RSD_E_IO);
    assert_int_equal(rsi_tree_abort(tree, &f->err), RSD_OK);
    assert_int_equal(file_entries(f), 0);
}

/* ---- every call fails once, or from then on ---- */

enum { BIG = 3 * 4096 + 77 };

static unsigned char big[2][BIG]; /* what the old and the new checkpoint hold */

static void fill_big(void)
{
    for (size_t i = 0; i < BIG; i++) {
        big[0][i] = (unsigned char)(i * 31 + 7);
        big[1][i] = (unsigned char)(i * 17 + 3);
    }
}

/* Two requests through a queue: one of whole blocks, one of the rest. */
static rsd_err write_big(rsd_store *store, rsi_file *file, int which, rsd_error *err)
{
    unsigned char *buf = rsi_alloc_aligned(4096, BIG);
    rsi_queue     *queue;
    rsd_io         io[2], *got[2];
    size_t         cut = 2 * 4096;
    rsd_err        rc = rsi_queue_open(store, 2, &queue, err);

    memcpy(buf, big[which], BIG);
    if (!rc) {
        io[0] = (rsd_io){ .op = RSD_IO_WRITE, .file = file->handle, .buf = buf, .len = cut };
        io[1] = (rsd_io){
            .op = RSD_IO_WRITE, .file = file->handle, .off = cut, .buf = buf + cut, .len = BIG - cut
        };
        rsi_queue_submit(queue, io, 2);
        assert_int_equal(rsi_queue_reap(queue, 2, 2, got), 2);
        for (int i = 0; !rc && i < 2; i++)
            rc = rsi_io_check(file, &io[i], err);
        rsi_queue_close(queue);
    }
    rsi_free(buf);
    return rc;
}

static rsd_err save_big(rsd_store *store, int which, rsd_error *err)
{
    rsi_tree *tree;
    rsi_file *file = NULL;
    char      path[64];
    rsd_err   rc = rsi_tree_begin(store, "ck", RSD_TREE_OVERWRITE, &tree, err);

    if (rc)
        return rc;
    snprintf(path, sizeof(path), "%s/sub", tree->temp);
    rc = rsi_store_make_folder(store, path, err);
    snprintf(path, sizeof(path), "%s/x", tree->temp);
    if (!rc)
        rc = rsi_file_open(store, path, RSD_OPEN_CREATE | RSD_OPEN_DIRECT, BIG, &file, err);
    if (!rc)
        rc = write_big(store, file, which, err);
    if (!rc)
        rc = rsi_file_sync(file, err);
    if (rc)
        rsi_file_close(file, NULL);
    else
        rc = rsi_file_close(file, err);
    if (!rc)
        rc = rsi_tree_commit(tree, err);
    if (rc)
        rsi_tree_abort(tree, NULL);
    return rc;
}

/* 0 or 1: the complete checkpoint that is there; -1: something else is. */
static int which_is_there(const file_case *f)
{
    unsigned char buf[BIG];
    uint64_t      size;

    if (rsi_store_file_size(f->plain, "ck/x", &size, NULL) || size != BIG ||
        rsi_store_read_all(f->plain, "ck/x", 0, buf, BIG, NULL))
        return -1;
    return memcmp(buf, big[0], BIG) == 0 ? 0 : memcmp(buf, big[1], BIG) == 0 ? 1 : -1;
}

/* Saves "new" over "old" with a fault at every call in turn. */
static void fail_every_call(file_case *f, rsi_file_io io, int error, bool for_ever)
{
    rsd_store *store = file_another(f, io);
    int        fds = file_open_fds(), n = 0, calls;
    rsi_tree  *tree;

    do {
        rsd_err rc;
        int     there;
        bool    kept;

        faults = (sys_faults){ 0 };
        if (which_is_there(f) != 0) {
            rsi_store_remove(f->plain, "ck", NULL);
            assert_int_equal(save_big(f->plain, 0, &f->err), RSD_OK);
        }
        faults = (sys_faults){ .at = ++n, .error = error, .for_ever = for_ever };
        rc = save_big(store, 1, &f->err);
        calls = faults.calls;
        faults = (sys_faults){ 0 };
        there = which_is_there(f);
        if (rc) {
            assert_int_equal(f->err.sys_errno, error);
            assert_int_equal(rc, RSD_E_IO);
        }
        /* Only when the name can't be taken back either does a failed commit show, and says so. */
        kept = rc && for_ever && strstr(f->err.msg, "has its name");
        assert_int_equal(there, rc && !kept ? 0 : 1);
        if (error == EINTR)
            assert_int_equal(rc, RSD_OK);
        assert_int_equal(rsi_tree_begin(store, "ck", RSD_TREE_OVERWRITE, &tree, &f->err), RSD_OK);
        assert_int_equal(rsi_tree_abort(tree, &f->err), RSD_OK);
        assert_int_equal(file_entries(f), 1);
        assert_int_equal(file_open_fds(), fds);
    } while (calls >= n);
    assert_true(n > 40);
    rsd_store_close(store);
}

static void any_call_that_fails_once_leaves_old_or_new(void **state)
{
    static const int errors[] = { EIO, ENOSPC, EINTR };

    for (size_t i = 0; i < 3; i++) {
        fail_every_call(*state, RSI_FILE_IO_THREADS, errors[i], false);
        fail_every_call(*state, RSI_FILE_IO_URING, errors[i], false);
    }
}

static void calls_that_fail_from_some_point_on_leave_old_or_new(void **state)
{
    fail_every_call(*state, RSI_FILE_IO_THREADS, EIO, true);
    fail_every_call(*state, RSI_FILE_IO_URING, EIO, true);
}

static void transfers_of_one_byte_are_continued(void **state)
{
    file_case *f = *state;

    for (int i = 0; i < 2; i++) {
        rsd_store     *store = file_another(f, i ? RSI_FILE_IO_URING : RSI_FILE_IO_THREADS);
        unsigned char *buf = rsi_alloc_aligned(4096, BIG);
        rsi_file      *file;

        faults = (sys_faults){ .at = 1, .for_ever = true };
        assert_int_equal(save_big(store, 1, &f->err), RSD_OK);
        assert_int_equal(
            rsi_file_open(store, "ck/x", RSD_OPEN_READ | RSD_OPEN_DIRECT, 0, &file, &f->err),
            RSD_OK);
        assert_int_equal(rsi_file_read(file, 0, buf, BIG, &f->err), RSD_OK);
        assert_memory_equal(buf, big[1], BIG);
        assert_true(faults.calls > 2 * BIG);
        assert_int_equal(rsi_file_close(file, &f->err), RSD_OK);
        faults = (sys_faults){ 0 };
        assert_int_equal(rsi_store_remove(store, "ck", &f->err), RSD_OK);
        rsi_free(buf);
        rsd_store_close(store);
    }
}

static void io_uring_that_is_refused_is_replaced_by_threads(void **state)
{
    static const int errors[] = { EPERM, ENOSYS, ENOMEM };
    file_case       *f = *state;
    rsd_store       *store = file_another(f, RSI_FILE_IO_URING);
    rsi_queue       *queue;

    for (size_t i = 0; i < 3; i++) {
        faults = (sys_faults){ .at = 1, .only = "ring_init", .error = errors[i] };
        assert_int_equal(rsi_queue_open(store, 4, &queue, &f->err), RSD_OK);
        rsi_queue_close(queue);
    }
    faults = (sys_faults){ 0 };
    rsd_store_close(store);
}

/* Requests are under way when the ring takes no more: all of them still end. */
static void a_ring_that_stops_working_finishes_its_requests(void **state)
{
    static const int errors[] = { ENOMEM, EBUSY, EINVAL };
    file_case       *f = *state;
    rsd_store       *store = file_another(f, RSI_FILE_IO_URING);
    unsigned char    buf[64][64];
    rsi_file        *file;
    rsi_queue       *queue;
    rsd_io           io[64], *got[64];

    assert_int_equal(save_big(f->plain, 0, &f->err), RSD_OK);
    assert_int_equal(rsi_file_open(store, "ck/x", RSD_OPEN_READ, 0, &file, &f->err), RSD_OK);
    for (size_t e = 0; e < 3; e++) {
        assert_int_equal(rsi_queue_open(store, 16, &queue, &f->err), RSD_OK);
        memset(buf, 0, sizeof(buf));
        for (size_t i = 0; i < 64; i++)
            io[i] = (rsd_io){
                .op = RSD_IO_READ, .file = file->handle, .off = 64 * i, .buf = buf[i], .len = 64
            };
        rsi_queue_submit(queue, io, 8);
        faults = (sys_faults){ .at = 1, .only = "ring_submit", .error = errors[e] };
        rsi_queue_submit(queue, io + 8, 40);
        rsi_queue_submit(queue, io + 48, 16);
        assert_int_equal(rsi_queue_reap(queue, 64, 64, got), 64);
        for (size_t i = 0; i < 64; i++)
            assert_int_equal(rsi_io_check(file, &io[i], &f->err), RSD_OK);
        assert_memory_equal(buf, big[0], sizeof(buf));
        rsi_queue_close(queue);
    }
    assert_int_equal(rsi_file_close(file, &f->err), RSD_OK);
    rsd_store_close(store);
}

static void direct_io_that_is_refused_changes_no_byte(void **state)
{
    file_case *f = *state;

    for (int i = 0; i < 3; i++) {
        faults = (sys_faults){ .no_direct = i == 1, .no_direct_write = i == 2 };
        assert_int_equal(save_big(f->store, i & 1, &f->err), RSD_OK);
        assert_int_equal(which_is_there(f), i & 1);
    }
}

static int prepare(void **state)
{
    (void)state;
    fill_big();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(publishing_syncs_the_folder_then_renames_then_syncs_the_parent),
        FILE_TEST(what_is_replaced_is_removed_when_the_new_one_is_durable),
        FILE_TEST(the_name_shows_a_complete_tree_at_every_call_of_an_overwrite),
        FILE_TEST(what_is_replaced_is_not_taken_for_a_dead_writers),
        FILE_TEST(a_file_that_there_is_no_room_for_is_not_created),
        FILE_TEST(on_tmpfs_a_large_file_is_not_reserved),
        FILE_TEST(removing_a_folder_hides_its_name_durably_first),
        FILE_TEST(a_failed_sync_is_final),
        FILE_TEST(a_commit_that_failed_can_not_be_tried_again),
        FAST_TEST(any_call_that_fails_once_leaves_old_or_new),
        FAST_TEST(calls_that_fail_from_some_point_on_leave_old_or_new),
        FILE_TEST(transfers_of_one_byte_are_continued),
        FILE_TEST(io_uring_that_is_refused_is_replaced_by_threads),
        FILE_TEST(a_ring_that_stops_working_finishes_its_requests),
        FILE_TEST(direct_io_that_is_refused_changes_no_byte),
    };

    return cmocka_run_group_tests(tests, prepare, NULL);
}
