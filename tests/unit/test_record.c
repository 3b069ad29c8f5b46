/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "store/record.h"

#include <stdio.h>
#include <string.h>

/* Two files in a folder, asked about through a recording store. */
typedef struct heard {
    rsd_store  *real, *record;
    const void *log;
    size_t      len;
} heard;

static rsd_err see(void *arg, const rsd_entry *entry, rsd_error *err)
{
    char  *seen = arg;
    size_t len = strlen(seen);

    (void)err;
    snprintf(seen + len, 80 - len, "%s ", entry->name);
    return RSD_OK;
}

static void ask(rsd_store *store, char *seen)
{
    char      buf[8] = { 0 };
    rsd_entry entry;
    rsd_error err;
    rsi_file *file;

    assert_int_equal(rsi_store_list(store, "d", see, seen, NULL), RSD_OK);
    assert_int_equal(rsi_store_stat(store, "d/a", &entry, NULL), RSD_OK);
    assert_int_equal(entry.kind, RSD_ENTRY_FILE);
    assert_int_equal(entry.size, 5);
    assert_int_equal(rsi_store_stat(store, "d/none", &entry, &err), RSD_E_NOTFOUND);
    assert_non_null(strstr(err.msg, "d/none"));
    assert_int_equal(rsi_file_open(store, "d/a", RSD_OPEN_READ, 0, &file, NULL), RSD_OK);
    assert_int_equal(file->size, 5);
    assert_int_equal(rsi_file_read(file, 1, buf, 3, NULL), RSD_OK);
    assert_string_equal(buf, "ell");
    assert_int_equal(rsi_file_close(file, NULL), RSD_OK);
    assert_int_equal(rsi_file_open(store, "d/none", RSD_OPEN_READ, 0, &file, &err), RSD_E_NOTFOUND);
}

static int hear(void **state)
{
    static heard h;
    char         seen[80] = "";

    h.real = fix_store();
    fix_put_text(h.real, "d/a", "hello");
    fix_put_text(h.real, "d/b", "world");
    assert_int_equal(rsi_record_open(h.real, &h.record, NULL), RSD_OK);
    ask(h.record, seen);
    rsi_record_end(h.record, &h.log, &h.len);
    *state = &h;
    return 0;
}

static int forget(void **state)
{
    heard *h = *state;

    rsd_store_close(h->record);
    rsd_store_close(h->real);
    return 0;
}

static void a_log_answers_without_the_real_store(void **state)
{
    heard     *h = *state;
    rsd_store *empty = fix_store(), *replay;
    char       seen[80] = "";

    assert_int_equal(rsi_replay_open(empty, h->log, h->len, &replay, NULL), RSD_OK);
    ask(replay, seen);
    assert_true(strstr(seen, "a ") && strstr(seen, "b ") && strlen(seen) == 4);
    rsd_store_close(replay);
    rsd_store_close(empty);
}

static void what_a_log_has_not_comes_from_the_real_store(void **state)
{
    heard     *h = *state;
    rsd_store *replay;
    char       buf[8] = { 0 }, seen[80] = "";
    rsi_file  *file;
    rsd_entry  entry;

    assert_int_equal(rsi_replay_open(h->real, h->log, h->len, &replay, NULL), RSD_OK);
    assert_int_equal(rsi_file_open(replay, "d/a", RSD_OPEN_READ, 0, &file, NULL), RSD_OK);
    assert_int_equal(rsi_file_read(file, 1, buf, 4, NULL), RSD_OK);
    assert_string_equal(buf, "ello");
    rsi_file_close(file, NULL);
    assert_int_equal(rsi_file_open(replay, "d/b", RSD_OPEN_READ, 0, &file, NULL), RSD_OK);
    assert_int_equal(rsi_file_read(file, 0, buf, 4, NULL), RSD_OK);
    assert_string_equal(buf, "worl");
    rsi_file_close(file, NULL);
    assert_int_equal(rsi_store_stat(replay, "d/b", &entry, NULL), RSD_OK);
    assert_int_equal(rsi_store_list(replay, "", see, seen, NULL), RSD_OK);
    assert_string_equal(seen, "d ");
    rsd_store_close(replay);
}

static void a_file_that_only_the_log_has_fails_when_it_is_read(void **state)
{
    heard     *h = *state;
    rsd_store *empty = fix_store(), *replay;
    char       buf[8];
    rsd_error  err;
    rsi_file  *file;

    assert_int_equal(rsi_replay_open(empty, h->log, h->len, &replay, NULL), RSD_OK);
    assert_int_equal(rsi_file_open(replay, "d/a", RSD_OPEN_READ, 0, &file, NULL), RSD_OK);
    assert_int_equal(rsi_file_read(file, 0, buf, 5, &err), RSD_E_NOTFOUND);
    assert_non_null(strstr(err.msg, "d/a"));
    rsi_file_close(file, NULL);
    rsd_store_close(replay);
    rsd_store_close(empty);
}

static void a_recording_store_passes_on_when_its_log_has_ended(void **state)
{
    heard *h = *state;
    char   seen[80] = "";
    size_t len = h->len;

    ask(h->record, seen);
    rsi_record_end(h->record, &h->log, &h->len);
    assert_int_equal(h->len, len);
}

static void a_replay_that_has_ended_asks_the_real_store(void **state)
{
    heard     *h = *state;
    rsd_store *empty = fix_store(), *replay;
    rsd_entry  entry;

    assert_int_equal(rsi_replay_open(empty, h->log, h->len, &replay, NULL), RSD_OK);
    assert_int_equal(rsi_store_stat(replay, "d/a", &entry, NULL), RSD_OK);
    rsi_replay_end(replay, NULL);
    assert_int_equal(rsi_store_stat(replay, "d/a", &entry, NULL), RSD_E_NOTFOUND);
    rsd_store_close(replay);
    rsd_store_close(empty);
}

static void a_cut_log_is_refused_or_shorter(void **state)
{
    heard     *h = *state;
    rsd_store *replay;
    size_t     whole = 0;

    for (size_t len = 0; len < h->len; len++) {
        void   *cut = rsi_calloc(len, 1); /* so that a step too far is seen */
        rsd_err rc;

        if (len)
            memcpy(cut, h->log, len);
        rc = rsi_replay_open(h->real, cut, len, &replay, NULL);
        if (!rc) {
            char seen[80] = "";

            ask(replay, seen);
            rsd_store_close(replay);
            whole++;
        } else {
            assert_int_equal(rc, RSD_E_FORMAT);
        }
        rsi_free(cut);
    }
    assert_int_equal(whole, 6); /* before each of the six entries */
}

static void neither_can_be_written_to(void **state)
{
    heard    *h = *state;
    rsi_file *file;
    rsi_tree *tree;

    assert_int_equal(rsi_file_open(h->record, "d/c", RSD_OPEN_CREATE, 0, &file, NULL),
                     RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_store_remove(h->record, "d/a", NULL), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_store_make_folder(h->record, "e", NULL), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_tree_begin(h->record, "e", 0, &tree, NULL), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_tree_attach(h->record, "e", &tree, NULL), RSD_E_UNSUPPORTED);
}

/* Records and replays; only the second can fail for want of memory. */
static rsd_err both(void *arg, rsd_error *err)
{
    rsd_store  *real = arg, *record = NULL, *replay = NULL;
    const void *log;
    size_t      len;
    rsi_file   *file = NULL;
    char        buf[8], seen[80] = "";
    rsd_err     rc = rsi_record_open(real, &record, err);

    if (!rc)
        rc = rsi_file_open(record, "d/a", RSD_OPEN_READ, 0, &file, err);
    if (!rc)
        rc = rsi_file_read(file, 0, buf, 5, err);
    if (!rc)
        rc = rsi_store_list(record, "d", see, seen, err);
    rsi_file_close(file, NULL);
    file = NULL;
    if (!rc)
        rsi_record_end(record, &log, &len);
    if (!rc)
        rc = rsi_replay_open(real, log, len, &replay, err);
    if (!rc)
        rc = rsi_file_open(replay, "d/a", RSD_OPEN_READ, 0, &file, err);
    if (!rc)
        rc = rsi_file_read(file, 0, buf, 5, err);
    if (!rc)
        rc = memcmp(buf, "hello", 5) == 0 ? RSD_OK : RSD_E_BUG;
    rsi_file_close(file, NULL);
    rsd_store_close(replay);
    rsd_store_close(record);
    return rc;
}

static void want_of_memory_shortens_the_log_or_is_told(void **state)
{
    heard *h = *state;

    fix_every_allocation(both, NULL, h->real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_log_answers_without_the_real_store, hear, forget),
        cmocka_unit_test_setup_teardown(what_a_log_has_not_comes_from_the_real_store, hear, forget),
        cmocka_unit_test_setup_teardown(a_file_that_only_the_log_has_fails_when_it_is_read, hear,
                                        forget),
        cmocka_unit_test_setup_teardown(a_recording_store_passes_on_when_its_log_has_ended, hear,
                                        forget),
        cmocka_unit_test_setup_teardown(a_replay_that_has_ended_asks_the_real_store, hear, forget),
        cmocka_unit_test_setup_teardown(a_cut_log_is_refused_or_shorter, hear, forget),
        cmocka_unit_test_setup_teardown(neither_can_be_written_to, hear, forget),
        cmocka_unit_test_setup_teardown(want_of_memory_shortens_the_log_or_is_told, hear, forget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
