/* SPDX-License-Identifier: Apache-2.0 */
/* test_pickle.c - the pickle reader: what it costs, how it reads its input.
 *
 * Pickles are written out as bytes: what Python writes for real objects is in test_value.c and
 * test_dcp_meta.c. Opcodes are in test_pickle_op.c, classes in test_pickle_call.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "pickle_case.h"

#include <stdlib.h>
#include <string.h>

/* ---- Limits
 * ---------------------------------------------------------------------------------------- */

static void memo_place_far_away_is_refused_without_memory(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_load(&r, PICKLE("Nr\x00\x00\x00\x40."));
    assert_int_equal(r.rc, RSD_E_FORMAT);
    assert_non_null(strstr(r.err.msg, "byte 1: memo place 1073741824 after only 0 values"));
    assert_in_range(rsi_pickle_memory(r.p), 1, 16384);
    rsi_pickle_free(r.p);
}

/* `unit` again and again between a start and an end, `len` bytes in all. */
static char *repeat(const char *start, const char *unit, size_t unit_len, size_t len)
{
    char  *bytes = malloc(len);
    size_t at = strlen(start);

    memcpy(bytes, start, at);
    while (at < len) {
        size_t n = len - at < unit_len ? len - at : unit_len;

        memcpy(bytes + at, unit, n);
        at += n;
    }
    bytes[len - 1] = '.';
    return bytes;
}

/* Reads it in full or not, within 16 bytes of memory for each byte and a fixed part. */
static void assert_cheap(const char *start, const char *unit, size_t unit_len)
{
    enum { LEN = 4 * MIB };
    char          *bytes = repeat(start, unit, unit_len, LEN);
    pickle_reading r = { 0 };

    rsi_mem_fail_at(0, 0);
    pickle_load(&r, bytes, LEN);
    assert_in_range(rsi_mem_stats_get().peak, 1, 16 * (int64_t)LEN + MIB + 65536);
    rsi_pickle_free(r.p);
    free(bytes);
}

static void bombs_stay_within_the_memory_limit(void **state)
{
    (void)state;
    assert_cheap("", PICKLE("]"));
    assert_cheap("", PICKLE("]\x94"));
    assert_cheap("", PICKLE("("));
    assert_cheap("", PICKLE(")"));
    assert_cheap("N", PICKLE("\x85"));
    assert_cheap("N", PICKLE("2"));
    assert_cheap("N", PICKLE("\x94"));
    assert_cheap("]", PICKLE("]a"));
    assert_cheap("cm\nKnown\n", PICKLE(")R"));
    assert_cheap("cm\nKnown\n", PICKLE(")\x81}b0"));
    assert_cheap("", PICKLE("}NNs"));
}

/* Different texts, tuples and classes, as many as fit. */
static void different_names_stay_within_the_memory_limit(void **state)
{
    enum { N = 1 << 19 };
    char          *bytes = malloc(5 * N);
    pickle_reading r = { 0 };

    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        char *at = bytes + 5 * (size_t)i;

        memcpy(at, "\x8c\x02xx0", 5);
        at[2] = (char)(i & 127);
        at[3] = (char)(i >> 7 & 127);
        if (i >= 1 << 14) { /* no more texts of two letters: integers from here on */
            memcpy(at,
                   "M\0\0\x85"
                   "0",
                   5);
            at[1] = (char)i;
            at[2] = (char)(i >> 8);
        }
    }
    rsi_mem_fail_at(0, 0);
    pickle_load(&r, bytes, 5 * N);
    assert_in_range(rsi_mem_stats_get().peak, 1, 16 * (int64_t)5 * N + MIB);
    rsi_pickle_free(r.p);
    free(bytes);
}

static void stack_deeper_than_its_limit_is_refused(void **state)
{
    rsi_pickle_options options = { .max_stack = 3 };
    rsi_source         source = rsi_memory_source("NNNNN.", 6, "test");
    rsi_pickle        *p;
    rsi_pv             root;
    rsd_error          err;

    (void)state;
    assert_int_equal(rsi_pickle_create(&options, &p, &err), RSD_OK);
    assert_int_equal(rsi_pickle_read(p, &source, &root, NULL, &err), RSD_E_FORMAT);
    assert_non_null(strstr(err.msg, "more than 3 values"));
    rsi_pickle_free(p);
}

static void input_longer_than_its_limit_is_refused(void **state)
{
    rsi_pickle_options options = { .max_input = 1 };
    rsi_source         source = rsi_memory_source("N.", 2, "test");
    rsi_pickle        *p;
    rsi_pv             root;

    (void)state;
    assert_int_equal(rsi_pickle_create(&options, &p, NULL), RSD_OK);
    assert_int_equal(rsi_pickle_read(p, &source, &root, NULL, NULL), RSD_E_FORMAT);
    rsi_pickle_free(p);
}

/* ---- The reader
 * ------------------------------------------------------------------------------------- */

static rsd_err read_slowly(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err)
{
    return rsi_memory_read(arg, off, buf, len, err);
}

static void any_window_reads_the_same(void **state)
{
    static const char whole[] = "\x80\x04(cmodule\nname\n\x8c\x0a"
                                "0123456789J\x01\x02\x03\x04t.";

    (void)state;
    for (size_t window = 1; window < 30; window++) {
        rsi_pickle_options options = { .window = window };
        rsi_source         source = rsi_memory_source(whole, sizeof(whole) - 1, "test");
        rsi_pickle        *p;
        rsi_pv             root, v[3];
        uint64_t           used;
        int64_t            x = 0;

        source.read = read_slowly;
        assert_int_equal(rsi_pickle_create(&options, &p, NULL), RSD_OK);
        assert_int_equal(rsi_pickle_read(p, &source, &root, &used, NULL), RSD_OK);
        assert_int_equal(used, sizeof(whole) - 1);
        assert_int_equal(rsi_pickle_items(p, root, v, 3), 3);
        assert_string_equal(rsi_pickle_text(p, v[1]), "0123456789");
        assert_true(rsi_pickle_int(p, v[2], &x));
        assert_int_equal(x, 0x04030201);
        rsi_pickle_free(p);
    }
}

static rsd_err read_badly(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err)
{
    (void)arg;
    (void)buf;
    (void)len;
    return rsi_fail(err, RSD_E_IO, "bad sector at %d", (int)off);
}

static void failing_input_gives_its_error(void **state)
{
    rsi_pickle_options options = { 0 };
    rsi_source         source = { .read = read_badly, .size = 10 };
    rsi_pickle        *p;
    rsi_pv             root;
    rsd_error          err;

    (void)state;
    assert_int_equal(rsi_pickle_create(&options, &p, NULL), RSD_OK);
    assert_int_equal(rsi_pickle_read(p, &source, &root, NULL, &err), RSD_E_IO);
    assert_string_equal(err.msg, "bad sector at 0");
    rsi_pickle_free(p);
}

static void places_in_messages_count_from_the_start_of_the_file(void **state)
{
    pickle_reading r = pickle_open();
    rsi_source     source = rsi_memory_source("....N(t\xff", 8, "test");

    (void)state;
    source.start = 4;
    source.size = 4;
    assert_int_equal(rsi_pickle_read(r.p, &source, &r.root, NULL, &r.err), RSD_E_FORMAT);
    assert_non_null(strstr(r.err.msg, "byte 7: 0xff"));
    rsi_pickle_free(r.p);
}

static void reader_can_be_used_again(void **state)
{
    pickle_reading      r = pickle_open();
    rsi_source          bad = rsi_memory_source("ca\nb\n)R\xff", 8, "test");
    rsi_source          good = rsi_memory_source("\x8c\x01k.", 4, "test");
    rsi_pv              known = rsi_pickle_intern(r.p, "k");
    rsi_pickle_unlisted unlisted;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rsi_pickle_read(r.p, &bad, &r.root, NULL, NULL), RSD_E_FORMAT);
        assert_int_equal(rsi_pickle_read(r.p, &good, &r.root, NULL, NULL), RSD_OK);
        assert_int_equal(r.root, known);
        assert_false(rsi_pickle_calls_unlisted(r.p, &unlisted));
        rsi_pickle_trim(r.p);
    }
    rsi_pickle_free(r.p);
}

static void every_allocation_may_fail(void **state)
{
    static const char whole[] = FOLDING "b]((\x8c\x01xK\x01tt\x87.";
    rsi_source        source = rsi_memory_source(whole, sizeof(whole) - 1, "test");
    int64_t           before = rsi_mem_stats_get().bytes;

    (void)state;
    source.read = read_slowly;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        rsd_err rc = RSD_E_NOMEM;

        for (uint64_t n = 1; rc; n++) {
            pickle_reading     r = { 0 };
            rsi_pickle_options options = {
                .classes = pickle_classes, .nclasses = 3, .fold = pickle_fold, .arg = &r
            };

            rsi_mem_fail_at(n, for_ever);
            rc = rsi_pickle_create(&options, &r.p, &r.err);
            if (!rc)
                rc = rsi_pickle_read(r.p, &source, &r.root, NULL, &r.err);
            rsi_mem_fail_at(0, 0);
            rsi_pickle_free(r.p);
            assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
            assert_int_equal(rsi_mem_stats_get().bytes, before);
            assert_in_range(n, 1, 100);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memo_place_far_away_is_refused_without_memory),
        cmocka_unit_test(bombs_stay_within_the_memory_limit),
        cmocka_unit_test(different_names_stay_within_the_memory_limit),
        cmocka_unit_test(stack_deeper_than_its_limit_is_refused),
        cmocka_unit_test(input_longer_than_its_limit_is_refused),
        cmocka_unit_test(any_window_reads_the_same),
        cmocka_unit_test(failing_input_gives_its_error),
        cmocka_unit_test(places_in_messages_count_from_the_start_of_the_file),
        cmocka_unit_test(reader_can_be_used_again),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
