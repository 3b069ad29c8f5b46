/* SPDX-License-Identifier: Apache-2.0 */
/* test_files.c - the files of a checkpoint: one or a folder of them, in a store or at a local path.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "format/files.h"

#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

static void a_single_file_is_file_0(void **state)
{
    rsd_store *store = fix_store();
    rsi_files  files;
    char       text[6] = { 0 };

    (void)state;
    fix_put_text(store, "deep/one.pt", "hello");
    assert_int_equal(rsi_files_open_held(&files, store, "deep/one.pt", 0, NULL), RSD_OK);
    assert_true(files.single);
    assert_int_equal(files.n, 1);
    assert_int_equal(files.file[0]->size, 5);
    assert_string_equal(rsi_files_name(&files, 0), "one.pt");
    assert_int_equal(rsi_files_read(&files, 0, 1, text, 4, NULL), RSD_OK);
    assert_string_equal(text, "ello");
    assert_int_equal(rsi_files_read(&files, 0, 2, text, 4, NULL), RSD_E_FORMAT);
    rsi_files_close(&files);
    rsd_store_close(store);
}

static void files_of_a_folder_are_opened_once(void **state)
{
    rsd_store *store = fix_store();
    rsi_files  files;
    uint32_t   a, b, again;

    (void)state;
    fix_put_text(store, "x/ck/a", "1");
    fix_put_text(store, "x/ck/b", "22");
    assert_int_equal(rsi_files_open_held(&files, store, "x/ck", 0, NULL), RSD_OK);
    assert_false(files.single);
    assert_int_equal(files.n, 0);
    assert_int_equal(rsi_files_add(&files, "b", false, &b, NULL), RSD_OK);
    assert_int_equal(rsi_files_add(&files, "a", true, &a, NULL), RSD_OK);
    assert_int_equal(rsi_files_add(&files, "b", false, &again, NULL), RSD_OK);
    assert_int_equal(again, b);
    assert_int_not_equal(a, b);
    assert_int_equal(files.n, 2);
    assert_int_equal(files.file[b]->size, 2);
    assert_string_equal(rsi_files_name(&files, a), "a");
    assert_string_equal(rsi_files_name(&files, b), "b");
    rsi_files_close(&files);
    rsd_store_close(store);
}

static void a_store_itself_can_be_the_checkpoint(void **state)
{
    rsd_store *store = fix_store();
    rsi_files  files;
    uint32_t   a;

    (void)state;
    fix_put_text(store, "a", "1");
    assert_int_equal(rsi_files_open_held(&files, store, "", 0, NULL), RSD_OK);
    assert_int_equal(rsi_files_add(&files, "a", false, &a, NULL), RSD_OK);
    assert_string_equal(rsi_files_name(&files, a), "a");
    rsi_files_close(&files);
    rsd_store_close(store);
}

static void what_is_missing_is_not_found(void **state)
{
    rsd_store *store = fix_store();
    rsi_files  files;
    rsd_error  err;
    uint32_t   number;

    (void)state;
    assert_int_equal(rsi_files_open_held(&files, store, "nowhere", 0, &err), RSD_E_NOTFOUND);
    rsi_files_close(&files);
    assert_int_equal(rsi_files_open_held(&files, NULL, "/nowhere/at/all", 0, &err), RSD_E_NOTFOUND);
    assert_non_null(strstr(err.msg, "could not find \"/nowhere/at/all\""));
    rsi_files_close(&files);
    fix_put_text(store, "ck/a", "1");
    assert_int_equal(rsi_files_open_held(&files, store, "ck", 0, NULL), RSD_OK);
    assert_int_equal(rsi_files_add(&files, "b", false, &number, &err), RSD_E_NOTFOUND);
    rsi_files_close(&files);
    rsd_store_close(store);
}

static void names_are_listed_sorted(void **state)
{
    rsd_store *store = fix_store();
    rsi_files  files;
    char     **names;
    size_t     n;

    (void)state;
    fix_put_text(store, "ck/b", "");
    fix_put_text(store, "ck/a/x", "");
    fix_put_text(store, "ck/B", "");
    fix_put_text(store, "ck/.metadata", "");
    assert_int_equal(rsi_files_open_held(&files, store, "ck", 0, NULL), RSD_OK);
    assert_int_equal(rsi_files_list(&files, &names, &n, NULL), RSD_OK);
    assert_int_equal(n, 4);
    assert_string_equal(names[0], ".metadata");
    assert_string_equal(names[1], "B");
    assert_string_equal(names[2], "a");
    assert_string_equal(names[3], "b");
    fix_put_text(store, "ck/c", ""); /* somebody else is at work: the answer stays */
    assert_int_equal(rsi_files_list(&files, &names, &n, NULL), RSD_OK);
    assert_int_equal(n, 4);
    rsi_files_close(&files);
    rsd_store_close(store);
}

static void a_source_is_a_part_of_a_file(void **state)
{
    rsd_store *store = fix_store();
    rsi_files  files;
    rsi_source source;
    char       text[4] = { 0 };

    (void)state;
    fix_put_text(store, "f", "0123456789");
    assert_int_equal(rsi_files_open_held(&files, store, "f", 0, NULL), RSD_OK);
    source = rsi_files_source(&files, 0, 3, 4);
    assert_int_equal(rsi_source_read(&source, 1, text, 3, NULL), RSD_OK);
    assert_string_equal(text, "456");
    assert_int_equal(rsi_source_read(&source, 2, text, 3, NULL), RSD_E_FORMAT);
    assert_string_equal(source.name, "f");
    rsi_files_close(&files);
    rsd_store_close(store);
}

static void local_paths_may_be_symbolic_links(void **state)
{
    char       top[] = "/tmp/test_files.XXXXXX", path[64], link[64];
    rsd_store *store;
    rsi_files  files;
    uint32_t   number;

    (void)state;
    assert_non_null(mkdtemp(top));
    assert_int_equal(rsd_store_open(top, &store, NULL), RSD_OK);
    fix_put_text(store, "blobs/1234", "weights");
    fix_put_text(store, "ck/own", "own");
    snprintf(path, sizeof(path), "%s/ck/model", top);
    assert_int_equal(symlink("../blobs/1234", path), 0);
    snprintf(link, sizeof(link), "%s/latest", top);
    assert_int_equal(symlink("ck", link), 0);
    assert_int_equal(rsi_files_open_held(&files, NULL, link, 0, NULL), RSD_OK);
    assert_true(files.own_store);
    assert_int_equal(rsi_files_add(&files, "own", false, &number, NULL), RSD_OK);
    assert_int_not_equal(rsi_files_add(&files, "model", false, &number, NULL), RSD_OK);
    assert_int_equal(rsi_files_add(&files, "model", true, &number, NULL), RSD_OK);
    assert_int_equal(files.file[number]->size, 7);
    rsi_files_close(&files);
    assert_int_equal(rsi_files_open_held(&files, NULL, path, 0, NULL), RSD_OK);
    assert_true(files.single);
    assert_int_equal(files.file[0]->size, 7);
    rsi_files_close(&files);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rsi_store_remove(store, "ck", NULL), RSD_OK);
    assert_int_equal(rsi_store_remove(store, "blobs", NULL), RSD_OK);
    rsd_store_close(store);
    assert_int_equal(rmdir(top), 0);
}

static rsd_err use(void *arg, rsd_error *err)
{
    rsi_files files;
    char    **names, name[16];
    size_t    n;
    uint32_t  number;
    rsd_err   rc = rsi_files_open_held(&files, arg, "ck", 0, err);

    for (int i = 0; i < 12 && !rc; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        rc = rsi_files_add(&files, name, false, &number, err);
    }
    if (!rc)
        rc = rsi_files_list(&files, &names, &n, err);
    rsi_files_close(&files);
    return rc;
}

static void opening_without_memory_fails_cleanly(void **state)
{
    rsd_store *store = fix_store();
    char       name[24];

    (void)state;
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof(name), "ck/f%d", i);
        fix_put_text(store, name, "1");
    }
    fix_every_allocation(use, NULL, store);
    rsd_store_close(store);
    assert_int_equal(rsi_mem_stats_get().bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_file_is_file_0),
        cmocka_unit_test(files_of_a_folder_are_opened_once),
        cmocka_unit_test(a_store_itself_can_be_the_checkpoint),
        cmocka_unit_test(what_is_missing_is_not_found),
        cmocka_unit_test(names_are_listed_sorted),
        cmocka_unit_test(a_source_is_a_part_of_a_file),
        cmocka_unit_test(local_paths_may_be_symbolic_links),
        cmocka_unit_test(opening_without_memory_fails_cleanly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
