/* SPDX-License-Identifier: Apache-2.0 */
/* test_store_tree.c - trees that every kind of store publishes all at once, also without memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "store_case.h"

#include <stdio.h>
#include <string.h>

/* ---- trees ---- */

static void publish(store_case *f, const char *name, uint32_t flags, const char *text)
{
    rsi_tree *tree;

    ok(rsi_tree_begin(f->store, name, flags, &tree, &f->err));
    store_put_in(f, tree, "x", text);
    ok(rsi_tree_commit(tree, &f->err));
}

static void a_tree_has_its_name_only_once_it_is_committed(void **state)
{
    store_case *f = *state;
    rsi_tree   *tree;

    ok(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err));
    store_put_in(f, tree, "x", "1");
    store_assert_missing(f, "ck");
    ok(rsi_tree_commit(tree, &f->err));
    store_assert_text(f, "ck/x", "1");
    assert_int_equal(store_entries(f, ""), 1);
    assert_int_equal(store_entries(f, "ck"), 1);
}

static void a_tree_lies_beside_its_name(void **state)
{
    store_case *f = *state;
    rsi_tree   *tree;

    ok(rsi_store_make_folder(f->store, "a/b", &f->err));
    ok(rsi_tree_begin(f->store, "a/b/ck", 0, &tree, &f->err));
    assert_int_equal(strncmp(tree->temp, "a/b/.ck.tmp-", 12), 0);
    assert_int_equal(strlen(tree->temp), 12 + 16);
    store_put_in(f, tree, "x", "1");
    ok(rsi_tree_commit(tree, &f->err));
    store_assert_text(f, "a/b/ck/x", "1");
    assert_int_equal(rsi_tree_begin(f->store, "no/ck", 0, &tree, &f->err), RSD_E_NOTFOUND);
}

static void folders_in_a_tree_are_published_with_it(void **state)
{
    store_case *f = *state;
    rsi_tree   *tree;
    char        path[128];

    ok(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err));
    for (const char *const *sub = (const char *const[]){ "p/q", "p/r", "s", NULL }; *sub; sub++) {
        snprintf(path, sizeof(path), "%s/%s", tree->temp, *sub);
        ok(rsi_store_make_folder(f->store, path, &f->err));
    }
    store_put_in(f, tree, "p/q/x", "deep");
    ok(rsi_tree_commit(tree, &f->err));
    store_assert_text(f, "ck/p/q/x", "deep");
}

static void an_aborted_tree_leaves_nothing(void **state)
{
    store_case *f = *state;
    rsi_tree   *tree;

    ok(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err));
    store_put_in(f, tree, "x", "1");
    ok(rsi_tree_abort(tree, &f->err));
    assert_int_equal(store_entries(f, ""), 0);
}

static void beginning_a_name_that_exists_is_refused(void **state)
{
    store_case *f = *state;
    rsi_tree   *tree;

    publish(f, "ck", 0, "old");
    assert_int_equal(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err), RSD_E_EXISTS);
    assert_non_null(strstr(f->err.msg, "exists already"));
    assert_int_equal(store_entries(f, ""), 1);
}

static void the_second_of_two_who_publish_a_name_is_refused(void **state)
{
    store_case *f = *state;
    rsi_tree   *a, *b;

    ok(rsi_tree_begin(f->store, "ck", 0, &a, &f->err));
    ok(rsi_tree_begin(f->store, "ck", 0, &b, &f->err));
    store_put_in(f, a, "x", "a");
    store_put_in(f, b, "x", "b");
    ok(rsi_tree_commit(b, &f->err));
    assert_int_equal(rsi_tree_commit(a, &f->err), RSD_E_EXISTS);
    ok(rsi_tree_abort(a, &f->err));
    store_assert_text(f, "ck/x", "b");
    assert_int_equal(store_entries(f, ""), 1);
}

static void overwriting_keeps_the_old_tree_until_the_commit(void **state)
{
    store_case *f = *state;
    rsi_tree   *tree;

    publish(f, "ck", RSD_TREE_OVERWRITE, "old"); /* fine if there is nothing */
    ok(rsi_tree_begin(f->store, "ck", RSD_TREE_OVERWRITE, &tree, &f->err));
    store_put_in(f, tree, "y", "new");
    store_assert_text(f, "ck/x", "old");
    ok(rsi_tree_commit(tree, &f->err));
    store_assert_text(f, "ck/y", "new");
    store_assert_missing(f, "ck/x");
    assert_int_equal(store_entries(f, ""), 1);
}

static void one_file_is_published_and_replaced_like_a_tree(void **state)
{
    static const char *const text[] = { "old", "new" };
    store_case              *f = *state;
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
            store_assert_text(f, "ck", "old");
        ok(rsi_tree_commit(tree, &f->err));
        store_assert_text(f, "ck", text[i]);
        assert_int_equal(store_entries(f, ""), 1);
    }
    assert_int_equal(rsi_tree_begin(f->store, "ck", RSD_TREE_FILE, &tree, &f->err), RSD_E_EXISTS);
    store_assert_text(f, "ck", "new");
}

static void a_folder_does_not_replace_a_file_nor_a_file_a_folder(void **state)
{
    store_case *f = *state;
    rsi_tree   *tree = NULL;
    rsd_err     rc;

    for (uint32_t file = 0; file < 2; file++) {
        const char *name = file ? "folder" : "file";

        if (file)
            ok(rsi_store_make_folder(f->store, name, &f->err));
        else
            store_put_text(f, name, "1");
        rc = rsi_tree_begin(f->store, name, RSD_TREE_OVERWRITE | (file ? RSD_TREE_FILE : 0), &tree,
                            &f->err);
        if (!rc) { /* not every store looks so early */
            rc = rsi_tree_commit(tree, &f->err);
            rsi_tree_abort(tree, NULL);
        }
        assert_int_equal(rc, RSD_E_EXISTS);
        assert_int_equal(store_entries(f, ""), file + 1);
    }
}

static void others_write_into_a_tree_by_its_temporary_name(void **state)
{
    store_case *f = *state;
    rsi_tree   *tree, *other;

    ok(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err));
    ok(rsi_tree_attach(f->store, tree->temp, &other, &f->err));
    store_put_in(f, tree, "x", "0");
    store_put_in(f, other, "y", "1");
    assert_int_equal(rsi_tree_commit(other, &f->err), RSD_E_BUG);
    ok(rsi_tree_abort(other, &f->err));
    ok(rsi_tree_commit(tree, &f->err));
    store_assert_text(f, "ck/x", "0");
    store_assert_text(f, "ck/y", "1");
    assert_int_equal(rsi_tree_attach(f->store, ".ck.tmp-0123456789abcdef", &other, &f->err),
                     RSD_E_NOTFOUND);
}

static void beginning_removes_what_dead_writers_of_that_name_left(void **state)
{
    static const char *const dead[] = { ".ck.tmp-0123456789abcdef", ".ck.tmp-fedcba9876543210" };
    static const char *const other[] = { ".ck.tmp-0123456789abcde", ".ck.tmp-0123456789abcdeg",
                                         ".ck.tmp-backup", ".kc.tmp-0123456789abcdef",
                                         "ck.tmp-0123456789abcdef" };
    store_case              *f = *state;
    rsi_tree                *tree;
    rsd_entry                entry;
    char                     path[64];

    ok(rsi_store_make_folder(f->store, dead[0], &f->err));
    snprintf(path, sizeof(path), "%s/x", dead[0]);
    store_put_text(f, path, "1");
    store_put_text(f, dead[1], "1");
    for (size_t i = 0; i < 5; i++)
        ok(rsi_store_make_folder(f->store, other[i], &f->err));
    ok(rsi_tree_begin(f->store, "ck", 0, &tree, &f->err));
    for (size_t i = 0; i < 2; i++)
        store_assert_missing(f, dead[i]);
    for (size_t i = 0; i < 5; i++)
        ok(rsi_store_stat(f->store, other[i], &entry, &f->err));
    ok(rsi_tree_abort(tree, &f->err));
    for (size_t i = 0; i < 5; i++)
        ok(rsi_store_remove(f->store, other[i], &f->err));
}

static void beginning_leaves_what_living_writers_work_on(void **state)
{
    store_case *f = *state;
    rsi_tree   *a, *b, *c;

    ok(rsi_tree_begin(f->store, "ck", 0, &a, &f->err));
    store_put_in(f, a, "x", "a");
    ok(rsi_tree_attach(f->store, a->temp, &b, &f->err));
    ok(rsi_tree_begin(f->store, "ck", 0, &c, &f->err));
    assert_int_equal(store_entries(f, a->temp), 1);
    ok(rsi_tree_abort(c, &f->err));
    ok(rsi_tree_abort(b, &f->err));
    ok(rsi_tree_commit(a, &f->err));
    store_assert_text(f, "ck/x", "a");
}

/* ---- memory ---- */

/* Begin, write through a queue, sync, commit. */
static rsd_err save(store_case *f, rsd_error *err)
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
    store_case *f = *state;
    rsd_err     rc = RSD_E_NOMEM;

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
        assert_int_equal(store_entries(f, "ck"), 1);
    }
    ok(save(f, &f->err));
    assert_int_equal(store_entries(f, ""), 1);
}

static int run_for(const store_backend *b)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(b, a_tree_has_its_name_only_once_it_is_committed),
        STORE_TEST(b, a_tree_lies_beside_its_name),
        STORE_TEST(b, folders_in_a_tree_are_published_with_it),
        STORE_TEST(b, an_aborted_tree_leaves_nothing),
        STORE_TEST(b, beginning_a_name_that_exists_is_refused),
        STORE_TEST(b, the_second_of_two_who_publish_a_name_is_refused),
        STORE_TEST(b, overwriting_keeps_the_old_tree_until_the_commit),
        STORE_TEST(b, one_file_is_published_and_replaced_like_a_tree),
        STORE_TEST(b, a_folder_does_not_replace_a_file_nor_a_file_a_folder),
        STORE_TEST(b, others_write_into_a_tree_by_its_temporary_name),
        STORE_TEST(b, beginning_removes_what_dead_writers_of_that_name_left),
        STORE_TEST(b, beginning_leaves_what_living_writers_work_on),
        STORE_TEST(b, every_allocation_that_fails_is_reported),
    };

    return cmocka_run_group_tests_name(b->name, tests, NULL, NULL);
}

int main(void)
{
    return store_each_backend(run_for);
}
