/* SPDX-License-Identifier: Apache-2.0 */
/* test_store.c - what every store does with files and names: files with threads, files with
 * io_uring, memory; and what applies of it to the null store. Queues are in test_store_queue.c,
 * trees in test_store_tree.c; what only files do is in test_store_file.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "store_case.h"

#include <string.h>

/* ---- files ---- */

static void what_was_written_is_read(void **state)
{
    store_case *f = *state;
    char        part[4] = "";

    store_put_text(f, "a", "hello world");
    store_assert_text(f, "a", "hello world");
    ok(rsi_store_read_all(f->store, "a", 6, part, 3, &f->err));
    assert_string_equal(part, "wor");
}

static void creating_a_file_that_exists_is_refused(void **state)
{
    store_case *f = *state;
    rsi_file   *file;

    store_put_text(f, "a", "old");
    assert_int_equal(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, 0, &file, &f->err),
                     RSD_E_EXISTS);
    assert_non_null(strstr(f->err.msg, "\"a\""));
    store_assert_text(f, "a", "old");
}

static void a_file_that_is_not_there_is_not_found(void **state)
{
    store_case *f = *state;
    rsi_file   *file;

    assert_int_equal(rsi_file_open(f->store, "a", RSD_OPEN_READ, 0, &file, &f->err),
                     RSD_E_NOTFOUND);
    assert_int_equal(rsi_file_open(f->store, "a", RSD_OPEN_WRITE, 0, &file, &f->err),
                     RSD_E_NOTFOUND);
    assert_int_equal(rsi_file_open(f->store, "no/a", RSD_OPEN_CREATE, 0, &file, &f->err),
                     RSD_E_NOTFOUND);
    store_assert_missing(f, "a");
}

static void a_folder_is_no_file(void **state)
{
    store_case *f = *state;
    rsi_file   *file;
    uint64_t    size;

    ok(rsi_store_make_folder(f->store, "d", &f->err));
    assert_int_equal(rsi_file_open(f->store, "d", RSD_OPEN_READ, 0, &file, &f->err), RSD_E_INVALID);
    assert_int_equal(rsi_file_open(f->store, "d", RSD_OPEN_WRITE, 0, &file, &f->err),
                     RSD_E_INVALID);
    assert_int_equal(rsi_store_file_size(f->store, "d", &size, &f->err), RSD_E_INVALID);
}

static void a_second_writer_adds_to_a_file_in_any_order(void **state)
{
    store_case *f = *state;
    rsi_file   *file;

    store_put_text(f, "a", "0123");
    ok(rsi_file_open(f->store, "a", RSD_OPEN_WRITE, 0, &file, &f->err));
    assert_int_equal(file->size, 4);
    ok(rsi_file_write(file, 6, "67", 2, &f->err));
    ok(rsi_file_write(file, 4, "45", 2, &f->err));
    ok(rsi_file_close(file, &f->err));
    store_assert_text(f, "a", "01234567");
}

static void a_hole_reads_as_zeros(void **state)
{
    store_case *f = *state;
    rsi_file   *file;
    char        buf[5], zero[4] = { 0 };

    ok(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, 0, &file, &f->err));
    ok(rsi_file_write(file, 4, "x", 1, &f->err));
    ok(rsi_file_close(file, &f->err));
    ok(rsi_store_read_all(f->store, "a", 0, buf, 5, &f->err));
    assert_memory_equal(buf, zero, 4);
    assert_int_equal(buf[4], 'x');
}

static void a_file_of_known_size_has_it_from_the_start(void **state)
{
    store_case *f = *state;
    rsi_file   *file;
    uint64_t    size;

    ok(rsi_file_open(f->store, "a", RSD_OPEN_CREATE, 100000, &file, &f->err));
    assert_int_equal(file->size, 100000);
    ok(rsi_file_write(file, 99999, "x", 1, &f->err));
    ok(rsi_file_close(file, &f->err));
    ok(rsi_store_file_size(f->store, "a", &size, &f->err));
    assert_int_equal(size, 100000);
}

static void reading_behind_the_end_names_file_and_byte(void **state)
{
    store_case *f = *state;
    char        buf[8];

    store_put_text(f, "a", "01234");
    assert_int_equal(rsi_store_read_all(f->store, "a", 2, buf, 8, &f->err), RSD_E_FORMAT);
    assert_non_null(strstr(f->err.msg, "\"a\""));
    assert_non_null(strstr(f->err.msg, "ends at byte 5, 8 bytes are needed at byte 2"));
    assert_int_equal(rsi_store_read_all(f->store, "a", 1u << 30, buf, 1, &f->err), RSD_E_FORMAT);
}

static void an_offset_that_no_file_has_is_refused(void **state)
{
    store_case *f = *state;
    char        buf[2];

    store_put_text(f, "a", "01234");
    assert_int_equal(rsi_store_read_all(f->store, "a", UINT64_MAX, buf, 2, &f->err), RSD_E_INVALID);
    assert_int_equal(rsi_store_read_all(f->store, "a", INT64_MAX, buf, 2, &f->err), RSD_E_INVALID);
}

static void a_reader_can_not_write_nor_a_writer_read(void **state)
{
    store_case *f = *state;
    rsi_file   *file;
    char        c;

    store_put_text(f, "a", "x");
    ok(rsi_file_open(f->store, "a", RSD_OPEN_READ, 0, &file, &f->err));
    assert_int_equal(rsi_file_write(file, 0, "y", 1, &f->err), RSD_E_INVALID);
    ok(rsi_file_close(file, &f->err));
    ok(rsi_file_open(f->store, "a", RSD_OPEN_WRITE, 0, &file, &f->err));
    assert_int_equal(rsi_file_read(file, 0, &c, 1, &f->err), RSD_E_INVALID);
    ok(rsi_file_close(file, &f->err));
    store_assert_text(f, "a", "x");
}

static void moving_nothing_succeeds(void **state)
{
    store_case *f = *state;

    store_put(f, "a", NULL, 0);
    ok(rsi_store_read_all(f->store, "a", 0, NULL, 0, &f->err));
}

static void names_that_leave_the_store_are_refused(void **state)
{
    static const char *const bad[] = { "",  "/",   "/etc/passwd", "..", "../a", "a/..", "a/../b",
                                       ".", "./a", "a//b",        "a/", "a\nb", "a\x7f" };
    store_case              *f = *state;
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
    assert_int_equal(store_entries(f, ""), 0);
}

static void an_open_file_survives_its_removal(void **state)
{
    store_case *f = *state;
    rsi_file   *file;
    char        buf[3];

    store_put_text(f, "a", "abc");
    ok(rsi_file_open(f->store, "a", RSD_OPEN_READ, 0, &file, &f->err));
    ok(rsi_store_remove(f->store, "a", &f->err));
    ok(rsi_file_read(file, 0, buf, 3, &f->err));
    assert_memory_equal(buf, "abc", 3);
    ok(rsi_file_close(file, &f->err));
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
    store_case *f = *state;
    seen        s = { 0 };

    ok(rsi_store_make_folder(f->store, "d/e", &f->err));
    store_put_text(f, "d/x", "12345");
    store_put_text(f, "d/y", "");
    ok(rsi_store_list(f->store, "d", see, &s, &f->err));
    assert_int_equal(s.files, 2);
    assert_int_equal(s.folders, 1);
    assert_int_equal(s.bytes, 5);
    assert_int_equal(rsi_store_list(f->store, "no", see, &s, &f->err), RSD_E_NOTFOUND);
    assert_int_equal(rsi_store_list(f->store, "d/x", see, &s, &f->err), RSD_E_NOTFOUND);
}

static void a_list_stops_when_the_visitor_says_so(void **state)
{
    store_case *f = *state;
    int         calls = 0;

    store_put_text(f, "x", "");
    store_put_text(f, "y", "");
    assert_int_equal(rsi_store_list(f->store, "", refuse, &calls, &f->err), RSD_E_CANCELED);
    assert_int_equal(calls, 1);
    assert_non_null(strstr(f->err.msg, "no more"));
}

static void the_top_is_a_folder(void **state)
{
    store_case *f = *state;
    rsd_entry   entry;

    ok(rsi_store_stat(f->store, "", &entry, &f->err));
    assert_int_equal(entry.kind, RSD_ENTRY_FOLDER);
}

static void folders_above_are_made_too_and_may_be_there(void **state)
{
    store_case *f = *state;
    rsd_entry   entry;

    ok(rsi_store_make_folder(f->store, "a/b/c", &f->err));
    ok(rsi_store_make_folder(f->store, "a/b/c", &f->err));
    ok(rsi_store_make_folder(f->store, "a/b/d", &f->err));
    ok(rsi_store_stat(f->store, "a/b/d", &entry, &f->err));
    assert_int_equal(entry.kind, RSD_ENTRY_FOLDER);
}

static void a_file_in_the_way_of_a_folder_is_an_error(void **state)
{
    store_case *f = *state;

    store_put_text(f, "a", "");
    assert_int_equal(rsi_store_make_folder(f->store, "a", &f->err), RSD_E_EXISTS);
    assert_int_not_equal(rsi_store_make_folder(f->store, "a/b", &f->err), RSD_OK);
}

static void removing_takes_a_folder_with_all_that_is_in_it(void **state)
{
    store_case *f = *state;

    ok(rsi_store_make_folder(f->store, "d/e/f", &f->err));
    ok(rsi_store_make_folder(f->store, "d/g", &f->err));
    store_put_text(f, "d/x", "1");
    store_put_text(f, "d/e/f/x", "1");
    store_put_text(f, "d/g/x", "1");
    ok(rsi_store_remove(f->store, "d", &f->err));
    assert_int_equal(store_entries(f, ""), 0);
    assert_int_equal(rsi_store_remove(f->store, "d", &f->err), RSD_E_NOTFOUND);
}

static int run_for(const store_backend *b)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(b, what_was_written_is_read),
        STORE_TEST(b, creating_a_file_that_exists_is_refused),
        STORE_TEST(b, a_file_that_is_not_there_is_not_found),
        STORE_TEST(b, a_folder_is_no_file),
        STORE_TEST(b, a_second_writer_adds_to_a_file_in_any_order),
        STORE_TEST(b, a_hole_reads_as_zeros),
        STORE_TEST(b, a_file_of_known_size_has_it_from_the_start),
        STORE_TEST(b, reading_behind_the_end_names_file_and_byte),
        STORE_TEST(b, an_offset_that_no_file_has_is_refused),
        STORE_TEST(b, a_reader_can_not_write_nor_a_writer_read),
        STORE_TEST(b, moving_nothing_succeeds),
        STORE_TEST(b, names_that_leave_the_store_are_refused),
        STORE_TEST(b, an_open_file_survives_its_removal),
        STORE_TEST(b, a_list_shows_names_kinds_and_sizes),
        STORE_TEST(b, a_list_stops_when_the_visitor_says_so),
        STORE_TEST(b, the_top_is_a_folder),
        STORE_TEST(b, folders_above_are_made_too_and_may_be_there),
        STORE_TEST(b, a_file_in_the_way_of_a_folder_is_an_error),
        STORE_TEST(b, removing_takes_a_folder_with_all_that_is_in_it),
    };

    return cmocka_run_group_tests_name(b->name, tests, NULL, NULL);
}

int main(void)
{
    return store_each_backend(run_for);
}
