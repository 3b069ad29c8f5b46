/* SPDX-License-Identifier: Apache-2.0 */
/* test_transform.c - transforms are found by their descriptors, undone last first, bounded and
 * watched. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "rot13.h"
#include "transform_help.h"
#include "skip_because.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static held_bytes made, twice;

static rsd_err refuse_all(void *arg, const void *piece, size_t len, rsd_error *err)
{
    (void)arg, (void)piece, (void)len;
    return rsi_fail(err, RSD_E_IO, "the disk is full");
}

static void need_zstd(void)
{
    if (!rsi_transform_zstd(0))
        skip_because("built without zstd");
}

/* ---- registry -------------------------------------------------------------------------------- */

static void a_registered_transform_is_found_by_its_descriptor(void **state)
{
    const rsd_transform *found = NULL;
    char                 text[32];

    (void)state;
    assert_int_equal(rsi_transform_find(ROT13, &found, NULL), RSD_OK);
    assert_string_equal(found->name, "stream.rot13");
    assert_int_equal(rsi_transform_descriptor(found, text, sizeof(text)), strlen(ROT13));
    assert_string_equal(text, ROT13);
}

static void minor_versions_and_no_version_are_accepted(void **state)
{
    const rsd_transform *found = NULL;

    (void)state;
    assert_int_equal(rsi_transform_find("stream.rot13/1.25", &found, NULL), RSD_OK);
    assert_int_equal(rsi_transform_find("stream.rot13", &found, NULL), RSD_OK);
}

static void another_major_version_is_refused(void **state)
{
    (void)state;
    assert_refused("stream.rot13/2", "x", 1, 1, RSD_E_UNSUPPORTED, "\"stream.rot13/2\" is needed");
    assert_refused("stream.rot13/11", "x", 1, 1, RSD_E_UNSUPPORTED, "stream.rot13/11");
}

static void an_unknown_transform_is_named_with_the_file(void **state)
{
    (void)state;
    assert_refused("stream.lzma/1", "x", 1, 1, RSD_E_UNSUPPORTED, "\"stream.lzma/1\"");
    assert_refused("", "x", 1, 1, RSD_E_UNSUPPORTED, "unknown transform");
}

static void the_domain_is_part_of_the_name(void **state)
{
    (void)state;
    assert_refused("stream.rot13@example.org/1", "x", 1, 1, RSD_E_UNSUPPORTED, "@example.org");
}

static void a_name_can_be_registered_once(void **state)
{
    rsd_error err;

    (void)state;
    assert_int_equal(rsd_transform_register(rot13(), &err), RSD_E_EXISTS);
    assert_non_null(strstr(err.msg, "stream.rot13"));
}

static void a_transform_without_a_function_or_a_name_is_refused(void **state)
{
    rsd_transform bad = *rot13();

    (void)state;
    assert_int_equal(rsd_transform_register(NULL, NULL), RSD_E_INVALID);
    bad.end = NULL;
    bad.name = "stream.half";
    assert_int_equal(rsd_transform_register(&bad, NULL), RSD_E_INVALID);
    bad = *rot13();
    bad.name = "with/slash";
    assert_int_equal(rsd_transform_register(&bad, NULL), RSD_E_INVALID);
    bad.name = "";
    assert_int_equal(rsd_transform_register(&bad, NULL), RSD_E_INVALID);
}

static void *register_or_find(void *arg)
{
    rsd_transform        mine = *rot13();
    const rsd_transform *found = NULL;
    uintptr_t            wins = 0;

    mine.name = arg;
    wins = rsd_transform_register(&mine, NULL) == RSD_OK;
    return rsi_transform_find(arg, &found, NULL) == RSD_OK ? (void *)wins : (void *)(uintptr_t)100;
}

static void of_many_threads_that_register_a_name_one_wins(void **state)
{
    pthread_t   thread[8];
    uintptr_t   wins = 0;
    static char name[] = "stream.race"; /* the registry keeps it */

    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, register_or_find, name), 0);
    for (int i = 0; i < 8; i++) {
        void *won;

        pthread_join(thread[i], &won);
        wins += (uintptr_t)won;
    }
    assert_int_equal(wins, 1);
}

/* ---- rot13 ----------------------------------------------------------------------------------- */

static void rot13_swaps_the_case_of_letters_and_of_nothing_else(void **state)
{
    (void)state;
    assert_int_equal(encode_bytes(ROT13, "aZ@[`{ 9\xe4", 9, 4, &made, NULL), RSD_OK);
    assert_int_equal(made.len, 9);
    assert_memory_equal(made.at, "Az@[`{ 9\xe4", 9);
}

static void rot13_comes_back(void **state)
{
    (void)state;
    assert_int_equal(encode_bytes(ROT13, long_text(), LONG, 70000, &made, NULL), RSD_OK);
    assert_undone(ROT13, NULL, &made, long_text(), LONG);
}

static void no_transform_gives_the_bytes_as_they_are(void **state)
{
    held_bytes plain = { .at = "abc", .len = 3 };

    (void)state;
    assert_undone(NULL, NULL, &plain, "abc", 3);
    assert_refused(NULL, "abc", 3, 2, RSD_E_FORMAT, "3 bytes where 2 are allowed");
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static void a_stack_is_undone_last_first(void **state)
{
    (void)state;
    need_zstd();
    assert_int_equal(encode_bytes(ROT13, long_text(), LONG, LONG, &made, NULL), RSD_OK);
    assert_int_equal(encode_bytes(ZSTD, made.at, made.len, LONG, &twice, NULL), RSD_OK);
    assert_undone(ROT13, ZSTD, &twice, long_text(), LONG);
    assert_int_equal(encode_bytes(ZSTD, long_text(), LONG, LONG, &made, NULL), RSD_OK);
    assert_int_equal(encode_bytes(ROT13, made.at, made.len, LONG, &twice, NULL), RSD_OK);
    assert_undone(ZSTD, ROT13, &twice, long_text(), LONG);
}

static void a_stack_that_is_too_high_is_refused(void **state)
{
    const char    *high[9] = { ROT13, ROT13, ROT13, ROT13, ROT13, ROT13, ROT13, ROT13, ROT13 };
    rsi_source     source = rsi_memory_source("abc", 3, "f");
    unsigned char *got = NULL;
    size_t         len = 0;

    (void)state;
    assert_int_equal(rsi_undo_all(high, 9, &source, 3, &got, &len, NULL), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_undo_all(high, 8, &source, 3, &got, &len, NULL), RSD_OK);
    assert_memory_equal(got, "abc", 3);
    rsi_free(got);
}

static void reading_byte_by_byte_gives_the_same(void **state)
{
    const char *descriptor[] = { ROT13, ZSTD };
    rsi_source  source;
    rsi_undo   *stream = NULL;
    size_t      got = 1, at = 0;

    (void)state;
    need_zstd();
    assert_int_equal(encode_bytes(ROT13, long_text(), 5000, 5000, &made, NULL), RSD_OK);
    assert_int_equal(encode_bytes(ZSTD, made.at, made.len, 5000, &twice, NULL), RSD_OK);
    source = rsi_memory_source(twice.at, twice.len, "f");
    assert_int_equal(rsi_undo_create(descriptor, 2, &source, 5000, &stream, NULL), RSD_OK);
    while (got) {
        unsigned char byte;

        assert_int_equal(rsi_undo_read(stream, &byte, 1, &got, NULL), RSD_OK);
        if (got)
            assert_int_equal(byte, long_text()[at++]);
    }
    assert_int_equal(at, 5000);
    rsi_undo_free(stream);
}

/* ---- failures -------------------------------------------------------------------------------- */

static rsd_err stuck_feed(void *stream, const void *in, size_t in_len, size_t *used, void *out,
                          size_t out_cap, size_t *put, rsd_error *err)
{
    (void)stream, (void)in, (void)in_len, (void)out, (void)out_cap, (void)err;
    *used = *put = 0;
    return RSD_OK;
}

static rsd_err stuck_end(void *stream, void *out, size_t out_cap, size_t *put, bool *done,
                         rsd_error *err)
{
    (void)stream, (void)out, (void)out_cap, (void)err;
    *put = 0;
    *done = false;
    return RSD_OK;
}

static void a_transform_that_makes_no_progress_is_stopped(void **state)
{
    rsd_transform stuck = *rot13();

    (void)state;
    stuck.name = "test.stuck";
    stuck.feed = stuck_feed;
    assert_int_equal(rsd_transform_register(&stuck, NULL), RSD_OK);
    assert_refused("test.stuck", "abc", 3, 3, RSD_E_BUG, "\"test.stuck\" breaks its contract");
    stuck = *rot13();
    stuck.name = "test.endless";
    stuck.end = stuck_end;
    assert_int_equal(rsd_transform_register(&stuck, NULL), RSD_OK);
    assert_refused("test.endless", "abc", 3, 3, RSD_E_BUG, "\"test.endless\"");
}

static rsd_err broken_read(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err)
{
    (void)arg, (void)off, (void)buf, (void)len;
    return rsi_fail(err, RSD_E_IO, "the disk is gone");
}

static void a_failing_read_is_reported(void **state)
{
    const char    *descriptor[] = { ROT13 };
    rsi_source     source = { .read = broken_read, .size = 5, .name = "__0_0.distcp" };
    unsigned char *got = NULL;
    size_t         len;
    rsd_error      err;

    (void)state;
    assert_int_equal(rsi_undo_all(descriptor, 1, &source, 5, &got, &len, &err), RSD_E_IO);
    assert_string_equal(err.msg, "file \"__0_0.distcp\": the disk is gone");
}

static void a_failing_sink_is_reported(void **state)
{
    rsi_encoder *encoder = NULL;
    rsd_error    err;

    (void)state;
    assert_int_equal(rsi_encoder_create(ROT13, refuse_all, NULL, &encoder, NULL), RSD_OK);
    assert_int_equal(rsi_encoder_feed(encoder, "abc", 3, &err), RSD_E_IO);
    rsi_encoder_free(encoder);
}

static void every_allocation_that_fails_is_no_memory(void **state)
{
    unsigned char *got = NULL;
    size_t         len;
    const char    *outer = rsi_transform_zstd(0) ? ZSTD : ROT13;
    rsd_err        rc = RSD_E_NOMEM;
    int64_t        before = rsi_mem_stats_get().bytes;
    uint64_t       n;

    (void)state;
    for (n = 1; rc; n++) {
        rsi_mem_fail_at(n, 0);
        rc = encode_bytes(outer, long_text(), 9000, 9000, &made, NULL);
        rsi_mem_fail_at(0, 0);
        assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
        assert_int_equal(rsi_mem_stats_get().bytes, before);
    }
    assert_true(n > 2);
    rc = RSD_E_NOMEM;
    for (n = 1; rc; n++) {
        rsi_mem_fail_at(n, 1);
        rc = undo_bytes(ROT13, outer, made.at, made.len, 9000, &got, &len, NULL);
        rsi_mem_fail_at(0, 0);
        assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
        assert_true(rc == RSD_OK || rsi_mem_stats_get().bytes == before);
    }
    assert_true(n > 4);
    rsi_free(got);
}

static int register_rot13(void **state)
{
    (void)state;
    return rsd_transform_register(rot13(), NULL) ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_registered_transform_is_found_by_its_descriptor),
        cmocka_unit_test(minor_versions_and_no_version_are_accepted),
        cmocka_unit_test(another_major_version_is_refused),
        cmocka_unit_test(an_unknown_transform_is_named_with_the_file),
        cmocka_unit_test(the_domain_is_part_of_the_name),
        cmocka_unit_test(a_name_can_be_registered_once),
        cmocka_unit_test(a_transform_without_a_function_or_a_name_is_refused),
        cmocka_unit_test(of_many_threads_that_register_a_name_one_wins),
        cmocka_unit_test(rot13_swaps_the_case_of_letters_and_of_nothing_else),
        cmocka_unit_test(rot13_comes_back),
        cmocka_unit_test(no_transform_gives_the_bytes_as_they_are),
        cmocka_unit_test(a_stack_is_undone_last_first),
        cmocka_unit_test(a_stack_that_is_too_high_is_refused),
        cmocka_unit_test(reading_byte_by_byte_gives_the_same),
        cmocka_unit_test(a_transform_that_makes_no_progress_is_stopped),
        cmocka_unit_test(a_failing_read_is_reported),
        cmocka_unit_test(a_failing_sink_is_reported),
        cmocka_unit_test(every_allocation_that_fails_is_no_memory),
    };

    return cmocka_run_group_tests(tests, register_rot13, NULL);
}
