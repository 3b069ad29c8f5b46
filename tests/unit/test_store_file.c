/* SPDX-License-Identifier: Apache-2.0 */
/* test_store_file.c - what only a store of files can get wrong: links, FIFOs, writers that die,
 * file systems that can do less. The order of calls and calls that fail are in test_file_calls.c.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "file_case.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what is not a regular file ---- */

static void a_symbolic_link_is_refused_unless_asked_for(void **state)
{
    file_case *f = *state;
    char       path[128];
    rsi_file  *file;

    assert_int_equal(file_put(f->store, "a", "text", &f->err), RSD_OK);
    file_in_dir(f, "link", path, sizeof(path));
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
    file_case *f = *state;
    char       path[128];
    rsi_tree  *tree;
    int        n = 0;

    assert_int_equal(rsi_store_make_folder(f->store, "d", &f->err), RSD_OK);
    assert_int_equal(file_put(f->store, "d/a", "text", &f->err), RSD_OK);
    file_in_dir(f, "link", path, sizeof(path));
    assert_int_equal(symlink("d", path), 0);
    assert_false(file_holds(f->store, "link/a", "text"));
    assert_int_not_equal(rsi_tree_begin(f->store, "link/ck", 0, &tree, &f->err), RSD_OK);
    assert_int_not_equal(rsi_store_list(f->store, "link", file_count, &n, &f->err), RSD_OK);
    assert_int_not_equal(rsi_store_make_folder(f->store, "link/e", &f->err), RSD_OK);
    assert_int_equal(rsi_store_remove(f->store, "link", &f->err), RSD_OK);
    assert_true(file_holds(f->store, "d/a", "text"));
}

static void removing_a_folder_does_not_follow_the_links_in_it(void **state)
{
    file_case *f = *state;
    char       path[128];

    assert_int_equal(rsi_store_make_folder(f->store, "keep", &f->err), RSD_OK);
    assert_int_equal(file_put(f->store, "keep/a", "text", &f->err), RSD_OK);
    assert_int_equal(rsi_store_make_folder(f->store, "d", &f->err), RSD_OK);
    file_in_dir(f, "d/link", path, sizeof(path));
    assert_int_equal(symlink("../keep", path), 0);
    assert_int_equal(rsi_store_remove(f->store, "d", &f->err), RSD_OK);
    assert_true(file_holds(f->store, "keep/a", "text"));
}

static void a_fifo_is_refused_without_waiting_for_its_other_end(void **state)
{
    file_case *f = *state;
    rsd_entry  entry;
    char       path[128];
    rsi_file  *file;

    file_in_dir(f, "fifo", path, sizeof(path));
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
    file_case *f = *state;
    rsd_store *dev;
    rsi_file  *file;

    assert_int_equal(rsd_store_open("/dev", &dev, &f->err), RSD_OK);
    assert_int_equal(rsi_file_open(dev, "zero", RSD_OPEN_READ, 0, &file, &f->err), RSD_E_INVALID);
    rsd_store_close(dev);
}

static void a_store_needs_its_folder(void **state)
{
    file_case *f = *state;
    char       path[128];
    rsd_store *store;

    file_in_dir(f, "no", path, sizeof(path));
    assert_int_equal(rsd_store_open(path, &store, &f->err), RSD_E_NOTFOUND);
    assert_non_null(strstr(f->err.msg, path));
    assert_int_equal(file_put(f->plain, "a", "", &f->err), RSD_OK);
    file_in_dir(f, "a", path, sizeof(path));
    assert_int_equal(rsd_store_open(path, &store, &f->err), RSD_E_NOTFOUND);
}

static void a_path_becomes_a_store_and_a_name(void **state)
{
    file_case *f = *state;
    char       path[128], *name;
    rsd_store *store;

    file_in_dir(f, "p/q/ck//", path, sizeof(path));
    assert_int_equal(rsi_store_open_beside(path, false, &store, &name, &f->err), RSD_E_NOTFOUND);
    assert_int_equal(rsi_store_open_beside(path, true, &store, &name, &f->err), RSD_OK);
    assert_string_equal(name, "ck");
    assert_int_equal(file_put(store, name, "text", &f->err), RSD_OK);
    assert_true(file_holds(f->store, "p/q/ck", "text"));
    rsi_free(name);
    rsd_store_close(store);
    for (const char *const *bad = (const char *const[]){ "", "/", ".", "a/..", NULL }; *bad; bad++)
        assert_int_equal(rsi_store_open_beside(*bad, true, &store, &name, &f->err), RSD_E_INVALID);
    assert_int_equal(rsi_store_open_beside(NULL, false, &store, &name, &f->err), RSD_E_INVALID);
}

/* ---- writers that die ---- */

/* A process that begins "ck" and waits to be killed; its temporary name goes to `temp`. */
static pid_t begin_elsewhere(const file_case *f, char *temp, size_t cap)
{
    int       end[2];
    rsi_tree *tree;
    pid_t     pid;
    ssize_t   n;

    assert_int_equal(pipe(end), 0);
    pid = fork();
    if (pid == 0) {
        if (rsi_tree_begin(f->plain, "ck", 0, &tree, NULL) ||
            file_put_in(f->plain, tree, "x", "1", NULL) ||
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

static bool begin_and_see(file_case *f, const char *temp)
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
    file_case *f = *state;
    char       temp[64];
    pid_t      pid = begin_elsewhere(f, temp, sizeof(temp));

    assert_true(begin_and_see(f, temp));
    end_process(pid);
    assert_false(begin_and_see(f, temp));
    assert_int_equal(file_entries(f), 0);
}

static void an_attached_writer_keeps_the_tree_of_a_dead_one(void **state)
{
    file_case *f = *state;
    char       temp[64];
    rsi_tree  *mine;
    pid_t      pid = begin_elsewhere(f, temp, sizeof(temp));

    assert_int_equal(rsi_tree_attach(f->store, temp, &mine, &f->err), RSD_OK);
    end_process(pid);
    assert_true(begin_and_see(f, temp));
    assert_int_equal(rsi_tree_abort(mine, &f->err), RSD_OK);
    assert_false(begin_and_see(f, temp));
}

static void a_dead_writers_single_file_is_removed_too(void **state)
{
    file_case *f = *state;

    assert_int_equal(file_put(f->plain, ".ck.tmp-00000000000000ff", "x", &f->err), RSD_OK);
    assert_false(begin_and_see(f, ".ck.tmp-00000000000000ff"));
}

/* ---- file systems that can do less ---- */

static void without_exchange_overwriting_is_refused_before_the_work(void **state)
{
    file_case *f = *state;
    rsi_tree  *tree;

    assert_int_equal(file_publish(f->plain, "old", 0, &f->err), RSD_OK);
    faults.no_flags = RENAME_EXCHANGE;
    assert_int_equal(rsi_tree_begin(f->store, "ck", RSD_TREE_OVERWRITE, &tree, &f->err),
                     RSD_E_UNSUPPORTED);
    assert_non_null(strstr(f->err.msg, "exchange"));
    assert_int_equal(file_entries(f), 1);
    assert_true(file_holds(f->store, "ck/x", "old"));
}

static void without_exchange_a_name_that_came_meanwhile_is_not_replaced(void **state)
{
    file_case *f = *state;
    rsi_tree  *tree;

    faults.no_flags = RENAME_EXCHANGE;
    assert_int_equal(rsi_tree_begin(f->store, "ck", RSD_TREE_OVERWRITE, &tree, &f->err), RSD_OK);
    assert_int_equal(file_publish(f->plain, "old", 0, &f->err), RSD_OK);
    assert_int_equal(rsi_tree_commit(tree, &f->err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_tree_abort(tree, &f->err), RSD_OK);
    assert_true(file_holds(f->store, "ck/x", "old"));
}

static void without_noreplace_a_tree_is_still_published_and_replaces_nothing(void **state)
{
    file_case *f = *state;
    rsi_tree  *a, *b;

    faults.no_flags = RENAME_NOREPLACE | RENAME_EXCHANGE;
    assert_int_equal(rsi_tree_begin(f->store, "ck", 0, &b, &f->err), RSD_OK);
    assert_int_equal(rsi_tree_begin(f->store, "ck", 0, &a, &f->err), RSD_OK);
    assert_int_equal(file_put_in(f->store, a, "x", "a", &f->err), RSD_OK);
    assert_int_equal(rsi_tree_commit(a, &f->err), RSD_OK);
    assert_int_equal(rsi_tree_commit(b, &f->err), RSD_E_EXISTS);
    assert_int_equal(rsi_tree_abort(b, &f->err), RSD_OK);
    assert_true(file_holds(f->store, "ck/x", "a"));
}

static rsd_err publish_file(file_case *f, const char *text, uint32_t flags)
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
    file_case *f = *state;

    faults.no_flags = RENAME_NOREPLACE | RENAME_EXCHANGE;
    assert_int_equal(publish_file(f, "old", 0), RSD_OK);
    assert_true(file_holds(f->store, "ck", "old"));
    assert_int_equal(publish_file(f, "new", RSD_TREE_OVERWRITE), RSD_OK);
    assert_true(file_holds(f->store, "ck", "new"));
    assert_int_equal(file_entries(f), 1);
    assert_int_equal(rsi_store_remove(f->store, "ck", &f->err), RSD_OK);
    faults.no_link = true;
    assert_int_equal(publish_file(f, "old", 0), RSD_OK);
    assert_int_equal(publish_file(f, "new", 0), RSD_E_EXISTS);
    assert_true(file_holds(f->store, "ck", "old"));
    assert_int_equal(file_entries(f), 1);
}

static void a_name_may_have_all_bytes_that_the_file_system_takes(void **state)
{
    file_case *f = *state;
    char       name[257] = "";
    rsi_tree  *tree;

    memset(name, 'a', 256);
    assert_int_equal(rsi_tree_begin(f->store, name, 0, &tree, &f->err), RSD_E_INVALID);
    name[255] = 0;
    assert_int_equal(rsi_tree_begin(f->store, name, 0, &tree, &f->err), RSD_OK);
    assert_int_equal(rsi_tree_abort(tree, &f->err), RSD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(a_symbolic_link_is_refused_unless_asked_for),
        FILE_TEST(a_link_in_the_place_of_a_folder_is_refused),
        FILE_TEST(removing_a_folder_does_not_follow_the_links_in_it),
        FILE_TEST(a_fifo_is_refused_without_waiting_for_its_other_end),
        FILE_TEST(a_device_is_refused),
        FILE_TEST(a_store_needs_its_folder),
        FILE_TEST(a_path_becomes_a_store_and_a_name),
        FILE_TEST(a_tree_of_another_process_is_removed_only_when_that_is_dead),
        FILE_TEST(an_attached_writer_keeps_the_tree_of_a_dead_one),
        FILE_TEST(a_dead_writers_single_file_is_removed_too),
        FILE_TEST(without_exchange_overwriting_is_refused_before_the_work),
        FILE_TEST(without_exchange_a_name_that_came_meanwhile_is_not_replaced),
        FILE_TEST(without_noreplace_a_tree_is_still_published_and_replaces_nothing),
        FILE_TEST(without_any_flags_one_file_is_linked_and_replaced_by_rename),
        FILE_TEST(a_name_may_have_all_bytes_that_the_file_system_takes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
