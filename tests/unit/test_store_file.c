/* SPDX-License-Identifier: Apache-2.0 */
/* test_store_file.c - what only a store of files can get wrong: links, FIFOs, writers that die,
 * system calls that fail, orders of calls that a power cut would punish. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "store/file.h"
#include "store/store.h"
#include "sys_faults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct fixture {
    rsd_store *store;
    rsd_store *plain; /* the same folder, with calls that don't fail */
    char       dir[64];
    rsd_error  err;
} fixture;

static int open_below(void **state, const char *top)
{
    fixture      *f = calloc(1, sizeof(*f));
    rsi_file_opts plain = { .sys = sys_quick() };
    rsi_file_opts opts = {
        .sys = &rsi_sys_faulty, .io = RSI_FILE_IO_THREADS, .threads = 1, .direct_min = 4096
    };

    faults = (sys_faults){ 0 };
    *state = f;
    snprintf(f->dir, sizeof(f->dir), "%s/rsd_file_XXXXXX", top);
    if (!mkdtemp(f->dir))
        return -1;
    if (rsi_file_store_open(f->dir, &plain, &f->plain, &f->err))
        return -1;
    return (int)rsi_file_store_open(f->dir, &opts, &f->store, &f->err);
}

static int open_dir(void **state)
{
    return open_below(state, "/tmp");
}

/* For tests that save hundreds of times: in memory, if there is such a place. */
static int open_fast_dir(void **state)
{
    return open_below(state, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
}

static rsd_err remove_it(void *arg, const rsd_entry *entry, rsd_error *err)
{
    return rsi_store_remove(arg, entry->name, err);
}

static int close_dir(void **state)
{
    fixture *f = *state;
    int      rc;

    faults = (sys_faults){ 0 };
    rc = (int)rsi_store_list(f->plain, "", remove_it, f->plain, NULL);
    rsd_store_free(f->store);
    rsd_store_free(f->plain);
    rc |= rmdir(f->dir);
    free(f);
    return rc;
}

/* Another store at the same folder, queues on io_uring or on one thread. */
static rsd_store *another(fixture *f, rsi_file_io io)
{
    rsi_file_opts opts = { .sys = &rsi_sys_faulty, .io = io, .threads = 1, .direct_min = 4096 };
    rsd_store    *store;

    assert_int_equal(rsi_file_store_open(f->dir, &opts, &store, &f->err), RSD_OK);
    return store;
}

static void in_dir(const fixture *f, const char *name, char *path, size_t cap)
{
    snprintf(path, cap, "%s/%s", f->dir, name);
}

static rsd_err put(rsd_store *store, const char *name, const char *text, rsd_error *err)
{
    rsi_file *file;
    rsd_err   rc = rsi_file_open(store, name, RSD_OPEN_CREATE, 0, &file, err);

    if (rc)
        return rc;
    rc = rsi_file_write(file, 0, text, strlen(text), err);
    if (!rc)
        rc = rsi_file_sync(file, err);
    if (rc)
        rsi_file_close(file, NULL);
    return rc ? rc : rsi_file_close(file, err);
}

static rsd_err put_in(rsd_store *store, const rsi_tree *tree, const char *name, const char *text,
                      rsd_error *err)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", tree->temp, name);
    return put(store, path, text, err);
}

static bool holds(rsd_store *store, const char *name, const char *text)
{
    char     buf[64] = "";
    uint64_t size;

    return rsi_store_file_size(store, name, &size, NULL) == RSD_OK && size == strlen(text) &&
           rsi_store_read_all(store, name, 0, buf, (size_t)size, NULL) == RSD_OK &&
           strcmp(buf, text) == 0;
}

static rsd_err count_it(void *arg, const rsd_entry *entry, rsd_error *err)
{
    (void)entry;
    (void)err;
    ++*(int *)arg;
    return RSD_OK;
}

static int entries(const fixture *f)
{
    int n = 0;

    assert_int_equal(rsi_store_list(f->plain, "", count_it, &n, NULL), RSD_OK);
    return n;
}

static int open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int  n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* ---- what is not a regular file ---- */

static void a_symbolic_link_is_refused_unless_asked_for(void **state)
{
    fixture  *f = *state;
    char      path[128];
    rsi_file *file;

    assert_int_equal(put(f->store, "a", "text", &f->err), RSD_OK);
    in_dir(f, "link", path, sizeof(path));
    assert_int_equal(symlink("a", path), 0);
    assert_int_equal(rsi_file_open(f->store, "link", RSD_OPEN_READ, 0, &file, &f->err),
                     RSD_E_INVALID);
    assert_non_null(strstr(f->err.msg, "symbolic link"));
    assert_int_equal(rsi_file_open(f->store, "link", RSD_OPEN_WRITE, 0, &file, &f->err),
                     RSD_E_INVALID);
    assert_int_equal(
        rsi_file_open(f->store, "link", RSD_OPEN_READ | RSD_OPEN_FOLLOW, 0, &file, &f->err),
        RSD_OK);
    assert_int_equal(file->size, 4);
    assert_int_equal(rsi_file_close(file, &f->err), RSD_OK);
}

static void a_link_in_the_place_of_a_folder_is_refused(void **state)
{
    fixture  *f = *state;
    char      path[128];
    rsi_tree *tree;
    int       n = 0;

    assert_int_equal(rsi_store_make_folder(f->store, "d", &f->err), RSD_OK);
    assert_int_equal(put(f->store, "d/a", "text", &f->err), RSD_OK);
    in_dir(f, "link", path, sizeof(path));
    assert_int_equal(symlink("d", path), 0);
    assert_false(holds(f->store, "link/a", "text"));
    assert_int_not_equal(rsi_tree_begin(f->store, "link/ck", 0, &tree, &f->err), RSD_OK);
    assert_int_not_equal(rsi_store_list(f->store, "link", count_it, &n, &f->err), RSD_OK);
    assert_int_not_equal(rsi_store_make_folder(f->store, "link/e", &f->err), RSD_OK);
    assert_int_equal(rsi_store_remove(f->store, "link", &f->err), RSD_OK);
    assert_true(holds(f->store, "d/a", "text"));
}

static void removing_a_folder_does_not_follow_the_links_in_it(void **state)
{
    fixture *f = *state;
    char     path[128];

    assert_int_equal(rsi_store_make_folder(f->store, "keep", &f->err), RSD_OK);
    assert_int_equal(put(f->store, "keep/a", "text", &f->err), RSD_OK);
    assert_int_equal(rsi_store_make_folder(f->store, "d", &f->err), RSD_OK);
    in_dir(f, "d/link", path, sizeof(path));
    assert_int_equal(symlink("../keep", path), 0);
    assert_int_equal(rsi_store_remove(f->store, "d", &f->err), RSD_OK);
    assert_true(holds(f->store, "keep/a", "text"));
}

static void a_fifo_is_refused_without_waiting_for_its_other_end(void **state)
{
    fixture  *f = *state;
    rsd_entry entry;
    char      path[128];
    rsi_file *file;

    in_dir(f, "fifo", path, sizeof(path));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(rsi_file_open(f->store, "fifo", RSD_OPEN_READ, 0, &file, &f->err),
                     RSD_E_INVALID);
    assert_non_null(strstr(f->err.msg, "not a regular file"));
    assert_int_equal(rsi_file_open(f->store, "fifo", RSD_OPEN_WRITE, 0, &file, &f->err),
                     RSD_E_INVALID);
    assert_int_equal(rsi_store_stat(f->store, "fifo", &entry, &f->err), RSD_OK);
    assert_int_equal(entry.kind, RSD_ENTRY_OTHER);
}

static void a_device_is_refused(void **state)
{
    fixture   *f = *state;
    rsd_store *dev;
    rsi_file  *file;

    assert_int_equal(rsd_store_open("/dev", &dev, &f->err), RSD_OK);
    assert_int_equal(rsi_file_open(dev, "zero", RSD_OPEN_READ, 0, &file, &f->err), RSD_E_INVALID);
    rsd_store_free(dev);
}

static void a_store_needs_its_folder(void **state)
{
    fixture   *f = *state;
    char       path[128];
    rsd_store *store;

    in_dir(f, "no", path, sizeof(path));
    assert_int_equal(rsd_store_open(path, &store, &f->err), RSD_E_NOTFOUND);
    assert_non_null(strstr(f->err.msg, path));
    assert_int_equal(put(f->plain, "a", "", &f->err), RSD_OK);
    in_dir(f, "a", path, sizeof(path));
    assert_int_equal(rsd_store_open(path, &store, &f->err), RSD_E_NOTFOUND);
}

static void a_path_becomes_a_store_and_a_name(void **state)
{
    fixture   *f = *state;
    char       path[128], *name;
    rsd_store *store;

    in_dir(f, "p/q/ck//", path, sizeof(path));
    assert_int_equal(rsi_store_open_beside(path, false, &store, &name, &f->err), RSD_E_NOTFOUND);
    assert_int_equal(rsi_store_open_beside(path, true, &store, &name, &f->err), RSD_OK);
    assert_string_equal(name, "ck");
    assert_int_equal(put(store, name, "text", &f->err), RSD_OK);
    assert_true(holds(f->store, "p/q/ck", "text"));
    rsi_free(name);
    rsd_store_free(store);
    for (const char *const *bad = (const char *const[]){ "", "/", ".", "a/..", NULL }; *bad; bad++)
        assert_int_equal(rsi_store_open_beside(*bad, true, &store, &name, &f->err), RSD_E_INVALID);
    assert_int_equal(rsi_store_open_beside(NULL, false, &store, &name, &f->err), RSD_E_INVALID);
}

/* ---- writers that die ---- */

/* A process that begins "ck" and waits to be killed; its temporary name goes to `temp`. */
static pid_t begin_elsewhere(const fixture *f, char *temp, size_t cap)
{
    int       end[2];
    rsi_tree *tree;
    pid_t     pid;
    ssize_t   n;

    assert_int_equal(pipe(end), 0);
    pid = fork();
    if (pid == 0) {
        if (rsi_tree_begin(f->plain, "ck", 0, &tree, NULL) ||
            put_in(f->plain, tree, "x", "1", NULL) ||
            write(end[1], tree->temp, strlen(tree->temp)) < 0)
            _exit(1);
        close(end[1]);
        for (;;)
            pause();
    }
    close(end[1]);
    n = read(end[0], temp, cap - 1);
    close(end[0]);
    assert_true(n > 0);
    temp[n] = 0;
    return pid;
}

static void end_process(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static bool begin_and_see(fixture *f, const char *temp)
{
    rsd_entry entry;
    rsi_tree *tree;
    bool      there;

    assert_int_equal(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err), RSD_OK);
    there = rsi_store_stat(f->store, temp, &entry, NULL) == RSD_OK;
    assert_int_equal(rsi_tree_abort(tree, &f->err), RSD_OK);
    return there;
}

static void a_tree_of_another_process_is_removed_only_when_that_is_dead(void **state)
{
    fixture *f = *state;
    char     temp[64];
    pid_t    pid = begin_elsewhere(f, temp, sizeof(temp));

    assert_true(begin_and_see(f, temp));
    end_process(pid);
    assert_false(begin_and_see(f, temp));
    assert_int_equal(entries(f), 0);
}

static void an_attached_writer_keeps_the_tree_of_a_dead_one(void **state)
{
    fixture  *f = *state;
    char      temp[64];
    rsi_tree *mine;
    pid_t     pid = begin_elsewhere(f, temp, sizeof(temp));

    assert_int_equal(rsi_tree_attach(f->store, temp, &mine, &f->err), RSD_OK);
    end_process(pid);
    assert_true(begin_and_see(f, temp));
    assert_int_equal(rsi_tree_abort(mine, &f->err), RSD_OK);
    assert_false(begin_and_see(f, temp));
}

static void a_dead_writers_single_file_is_removed_too(void **state)
{
    fixture *f = *state;

    assert_int_equal(put(f->plain, ".ck.tmp-00000000000000ff", "x", &f->err), RSD_OK);
    assert_false(begin_and_see(f, ".ck.tmp-00000000000000ff"));
}

/* ---- the order of calls ---- */

typedef struct call_log {
    fixture *f;
    char     calls[256]; /* F fsync, R rename, U unlink, in order */
    int      bad;        /* moments without a complete "ck" */
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
    if (!holds(log->f->plain, "ck/x", "old") && !holds(log->f->plain, "ck/x", "new"))
        log->bad++;
}

static rsd_err publish(rsd_store *store, const char *text, uint32_t flags, rsd_error *err)
{
    rsi_tree *tree;
    rsd_err   rc = rsi_tree_begin(store, "ck", flags, &tree, err);

    if (rc)
        return rc;
    rc = put_in(store, tree, "x", text, err);
    if (!rc)
        rc = rsi_tree_commit(tree, err);
    if (rc)
        rsi_tree_abort(tree, NULL);
    return rc;
}

static void publishing_syncs_the_folder_then_renames_then_syncs_the_parent(void **state)
{
    fixture  *f = *state;
    call_log  log = { .f = f };
    rsi_tree *tree;

    assert_int_equal(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err), RSD_OK);
    assert_int_equal(put_in(f->store, tree, "x", "new", &f->err), RSD_OK);
    faults.watch = note_call;
    faults.arg = &log;
    assert_int_equal(rsi_tree_commit(tree, &f->err), RSD_OK);
    assert_string_equal(log.calls, "FRF");
}

static void what_is_replaced_is_removed_when_the_new_one_is_durable(void **state)
{
    fixture  *f = *state;
    call_log  log = { .f = f };
    rsi_tree *tree;

    assert_int_equal(publish(f->plain, "old", 0, &f->err), RSD_OK);
    assert_int_equal(rsi_tree_begin(f->store, "ck", RSD_TREE_OVERWRITE, &tree, &f->err), RSD_OK);
    assert_int_equal(put_in(f->store, tree, "x", "new", &f->err), RSD_OK);
    faults.watch = note_call;
    faults.arg = &log;
    assert_int_equal(rsi_tree_commit(tree, &f->err), RSD_OK);
    assert_string_equal(log.calls, "FRFUU");
    assert_int_equal(entries(f), 1);
}

static void the_name_shows_a_complete_tree_at_every_call_of_an_overwrite(void **state)
{
    fixture *f = *state;
    call_log log = { .f = f };

    assert_int_equal(publish(f->plain, "old", 0, &f->err), RSD_OK);
    faults.watch = note_call;
    faults.arg = &log;
    assert_int_equal(publish(f->store, "new", RSD_TREE_OVERWRITE, &f->err), RSD_OK);
    faults.watch = NULL;
    assert_int_equal(log.bad, 0);
    assert_true(holds(f->store, "ck/x", "new"));
}

/* At the sync behind the exchange someone else begins to write the same name. */
static void begin_in_between(const char *call, void *arg)
{
    fixture  *f = arg;
    rsi_tree *tree;

    if (strcmp(call, "fsync") != 0 || !holds(f->plain, "ck/x", "new"))
        return;
    faults.watch = NULL;
    assert_int_equal(rsi_tree_begin(f->plain, "ck", RSD_TREE_OVERWRITE, &tree, &f->err), RSD_OK);
    assert_int_equal(entries(f), 3); /* the new, the old, and the other's */
    assert_int_equal(rsi_tree_abort(tree, &f->err), RSD_OK);
}

static void what_is_replaced_is_not_taken_for_a_dead_writers(void **state)
{
    fixture *f = *state;

    assert_int_equal(publish(f->plain, "old", 0, &f->err), RSD_OK);
    faults.watch = begin_in_between;
    faults.arg = f;
    assert_int_equal(publish(f->store, "new", RSD_TREE_OVERWRITE, &f->err), RSD_OK);
    assert_null(faults.watch);
    assert_int_equal(entries(f), 1);
}

static void a_file_that_there_is_no_room_for_is_not_created(void **state)
{
    fixture  *f = *state;
    rsi_file *file;

    faults = (sys_faults){ .at = 1, .only = "fallocate", .error = ENOSPC };
    assert_int_equal(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, 1 << 20, &file, &f->err),
                     RSD_E_IO);
    assert_int_equal(f->err.sys_errno, ENOSPC);
    assert_int_equal(entries(f), 0);
}

static void removing_a_folder_hides_its_name_durably_first(void **state)
{
    fixture *f = *state;
    call_log log = { .f = f };

    assert_int_equal(publish(f->plain, "old", 0, &f->err), RSD_OK);
    faults.watch = note_call;
    faults.arg = &log;
    assert_int_equal(rsi_store_remove(f->store, "ck", &f->err), RSD_OK);
    assert_string_equal(log.calls, "RFUU");
}

static void a_failed_sync_is_final(void **state)
{
    fixture  *f = *state;
    rsi_file *file;
    int       fsyncs;

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
    fixture  *f = *state;
    rsi_tree *tree;

    assert_int_equal(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err), RSD_OK);
    faults.at = faults.calls + 1;
    faults.for_ever = true;
    faults.error = EIO;
    assert_int_equal(rsi_tree_commit(tree, &f->err), RSD_E_IO);
    faults.at = 0;
    assert_int_equal(rsi_tree_commit(tree, &f->err), RSD_E_IO);
    assert_int_equal(rsi_tree_abort(tree, &f->err), RSD_OK);
    assert_int_equal(entries(f), 0);
}

/* ---- file systems that can do less ---- */

static void without_exchange_overwriting_is_refused_before_the_work(void **state)
{
    fixture  *f = *state;
    rsi_tree *tree;

    assert_int_equal(publish(f->plain, "old", 0, &f->err), RSD_OK);
    faults.no_flags = RENAME_EXCHANGE;
    assert_int_equal(rsi_tree_begin(f->store, "ck", RSD_TREE_OVERWRITE, &tree, &f->err),
                     RSD_E_UNSUPPORTED);
    assert_non_null(strstr(f->err.msg, "exchange"));
    assert_int_equal(entries(f), 1);
    assert_true(holds(f->store, "ck/x", "old"));
}

static void without_exchange_a_name_that_came_meanwhile_is_not_replaced(void **state)
{
    fixture  *f = *state;
    rsi_tree *tree;

    faults.no_flags = RENAME_EXCHANGE;
    assert_int_equal(rsi_tree_begin(f->store, "ck", RSD_TREE_OVERWRITE, &tree, &f->err), RSD_OK);
    assert_int_equal(publish(f->plain, "old", 0, &f->err), RSD_OK);
    assert_int_equal(rsi_tree_commit(tree, &f->err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_tree_abort(tree, &f->err), RSD_OK);
    assert_true(holds(f->store, "ck/x", "old"));
}

static void without_noreplace_a_tree_is_still_published_and_replaces_nothing(void **state)
{
    fixture  *f = *state;
    rsi_tree *a, *b;

    faults.no_flags = RENAME_NOREPLACE | RENAME_EXCHANGE;
    assert_int_equal(rsi_tree_begin(f->store, "ck", 0, &b, &f->err), RSD_OK);
    assert_int_equal(rsi_tree_begin(f->store, "ck", 0, &a, &f->err), RSD_OK);
    assert_int_equal(put_in(f->store, a, "x", "a", &f->err), RSD_OK);
    assert_int_equal(rsi_tree_commit(a, &f->err), RSD_OK);
    assert_int_equal(rsi_tree_commit(b, &f->err), RSD_E_EXISTS);
    assert_int_equal(rsi_tree_abort(b, &f->err), RSD_OK);
    assert_true(holds(f->store, "ck/x", "a"));
}

static rsd_err publish_file(fixture *f, const char *text, uint32_t flags)
{
    rsi_file *file;
    rsi_tree *tree;
    rsd_err   rc = rsi_tree_begin(f->store, "ck", RSD_TREE_FILE | flags, &tree, &f->err);

    if (rc)
        return rc;
    assert_int_equal(rsi_file_open(f->store, tree->temp, RSD_OPEN_WRITE, 0, &file, &f->err),
                     RSD_OK);
    assert_int_equal(rsi_file_write(file, 0, text, strlen(text), &f->err), RSD_OK);
    assert_int_equal(rsi_file_sync(file, &f->err), RSD_OK);
    assert_int_equal(rsi_file_close(file, &f->err), RSD_OK);
    rc = rsi_tree_commit(tree, &f->err);
    if (rc)
        rsi_tree_abort(tree, NULL);
    return rc;
}

static void without_any_flags_one_file_is_linked_and_replaced_by_rename(void **state)
{
    fixture *f = *state;

    faults.no_flags = RENAME_NOREPLACE | RENAME_EXCHANGE;
    assert_int_equal(publish_file(f, "old", 0), RSD_OK);
    assert_true(holds(f->store, "ck", "old"));
    assert_int_equal(publish_file(f, "new", RSD_TREE_OVERWRITE), RSD_OK);
    assert_true(holds(f->store, "ck", "new"));
    assert_int_equal(entries(f), 1);
    assert_int_equal(rsi_store_remove(f->store, "ck", &f->err), RSD_OK);
    faults.no_link = true;
    assert_int_equal(publish_file(f, "old", 0), RSD_E_UNSUPPORTED);
    assert_int_equal(entries(f), 0);
}

static void a_name_too_long_for_a_temporary_one_is_refused(void **state)
{
    fixture  *f = *state;
    char      name[256];
    rsi_tree *tree;

    memset(name, 'a', sizeof(name));
    name[234] = 0;
    assert_int_equal(rsi_tree_begin(f->store, name, 0, &tree, &f->err), RSD_E_INVALID);
    name[233] = 0;
    assert_int_equal(rsi_tree_begin(f->store, name, 0, &tree, &f->err), RSD_OK);
    assert_int_equal(rsi_tree_abort(tree, &f->err), RSD_OK);
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
static int which_is_there(const fixture *f)
{
    unsigned char buf[BIG];
    uint64_t      size;

    if (rsi_store_file_size(f->plain, "ck/x", &size, NULL) || size != BIG ||
        rsi_store_read_all(f->plain, "ck/x", 0, buf, BIG, NULL))
        return -1;
    return memcmp(buf, big[0], BIG) == 0 ? 0 : memcmp(buf, big[1], BIG) == 0 ? 1 : -1;
}

/* Saves "new" over "old" with a fault at every call in turn. */
static void fail_every_call(fixture *f, rsi_file_io io, int error, bool for_ever)
{
    rsd_store *store = another(f, io);
    int        fds = open_fds(), n = 0, calls;
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
        assert_int_equal(entries(f), 1);
        assert_int_equal(open_fds(), fds);
    } while (calls >= n);
    assert_true(n > 40);
    rsd_store_free(store);
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
    fixture *f = *state;

    for (int i = 0; i < 2; i++) {
        rsd_store     *store = another(f, i ? RSI_FILE_IO_URING : RSI_FILE_IO_THREADS);
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
        rsd_store_free(store);
    }
}

static void io_uring_that_is_refused_is_replaced_by_threads(void **state)
{
    static const int errors[] = { EPERM, ENOSYS, ENOMEM };
    fixture         *f = *state;
    rsd_store       *store = another(f, RSI_FILE_IO_URING);
    rsi_queue       *queue;

    for (size_t i = 0; i < 3; i++) {
        faults = (sys_faults){ .at = 1, .only = "ring_init", .error = errors[i] };
        assert_int_equal(rsi_queue_open(store, 4, &queue, &f->err), RSD_OK);
        rsi_queue_close(queue);
    }
    faults = (sys_faults){ 0 };
    rsd_store_free(store);
}

/* Requests are under way when the ring takes no more: all of them still end. */
static void a_ring_that_stops_working_finishes_its_requests(void **state)
{
    static const int errors[] = { ENOMEM, EBUSY, EINVAL };
    fixture         *f = *state;
    rsd_store       *store = another(f, RSI_FILE_IO_URING);
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
    rsd_store_free(store);
}

static void direct_io_that_is_refused_changes_no_byte(void **state)
{
    fixture *f = *state;

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

#define T(test)    cmocka_unit_test_setup_teardown(test, open_dir, close_dir)
#define FAST(test) cmocka_unit_test_setup_teardown(test, open_fast_dir, close_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_symbolic_link_is_refused_unless_asked_for),
        T(a_link_in_the_place_of_a_folder_is_refused),
        T(removing_a_folder_does_not_follow_the_links_in_it),
        T(a_fifo_is_refused_without_waiting_for_its_other_end),
        T(a_device_is_refused),
        T(a_store_needs_its_folder),
        T(a_path_becomes_a_store_and_a_name),
        T(a_tree_of_another_process_is_removed_only_when_that_is_dead),
        T(an_attached_writer_keeps_the_tree_of_a_dead_one),
        T(a_dead_writers_single_file_is_removed_too),
        T(publishing_syncs_the_folder_then_renames_then_syncs_the_parent),
        T(what_is_replaced_is_removed_when_the_new_one_is_durable),
        T(the_name_shows_a_complete_tree_at_every_call_of_an_overwrite),
        T(what_is_replaced_is_not_taken_for_a_dead_writers),
        T(a_file_that_there_is_no_room_for_is_not_created),
        T(removing_a_folder_hides_its_name_durably_first),
        T(a_failed_sync_is_final),
        T(a_commit_that_failed_can_not_be_tried_again),
        T(without_exchange_overwriting_is_refused_before_the_work),
        T(without_exchange_a_name_that_came_meanwhile_is_not_replaced),
        T(without_noreplace_a_tree_is_still_published_and_replaces_nothing),
        T(without_any_flags_one_file_is_linked_and_replaced_by_rename),
        T(a_name_too_long_for_a_temporary_one_is_refused),
        FAST(any_call_that_fails_once_leaves_old_or_new),
        FAST(calls_that_fail_from_some_point_on_leave_old_or_new),
        T(transfers_of_one_byte_are_continued),
        T(io_uring_that_is_refused_is_replaced_by_threads),
        T(a_ring_that_stops_working_finishes_its_requests),
        T(direct_io_that_is_refused_changes_no_byte),
    };

    return cmocka_run_group_tests(tests, prepare, NULL);
}
