/* SPDX-License-Identifier: Apache-2.0 */
/* test_pickle_op.c - what opcodes make, and which are refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pickle_case.h"

#include <stdlib.h>
#include <string.h>

/* ---- What opcodes make ------------------------------------------------------------------------
 */

static void assert_reads_int(const char *bytes, size_t len, int64_t want)
{
    pickle_reading r = { 0 };
    int64_t        got = 0;

    pickle_accept(&r, bytes, len);
    assert_true(rsi_pickle_int(r.p, r.root, &got));
    assert_int_equal(got, want);
    rsi_pickle_free(r.p);
}

static void integers_of_every_opcode_are_read(void **state)
{
    (void)state;
    assert_reads_int(PICKLE("K\xff."), 255);
    assert_reads_int(PICKLE("M\xff\xff."), 65535);
    assert_reads_int(PICKLE("J\xff\xff\xff\xff."), -1);
    assert_reads_int(PICKLE("J\x00\x00\x00\x80."), INT32_MIN);
    assert_reads_int(PICKLE("\x8a\x00."), 0);
    assert_reads_int(PICKLE("\x8a\x01\x80."), -128);
    assert_reads_int(PICKLE("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."), INT64_MAX);
    assert_reads_int(PICKLE("\x8b\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80."), INT64_MIN);
}

static void integers_around_the_inline_limit_are_read(void **state)
{
    (void)state;
    assert_reads_int(PICKLE("J\xff\xff\xff\x07."), (1 << 27) - 1);
    assert_reads_int(PICKLE("J\x00\x00\x00\x08."), 1 << 27);
    assert_reads_int(PICKLE("J\x00\x00\x00\xf8."), -(1 << 27));
    assert_reads_int(PICKLE("J\xff\xff\xff\xf7."), -(1 << 27) - 1);
}

static void integer_of_nine_bytes_is_kept_as_bytes(void **state)
{
    pickle_reading r = { 0 };
    size_t         len = 0;

    (void)state;
    pickle_accept(&r, PICKLE("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_BIGINT);
    assert_non_null(rsi_pickle_bytes(r.p, r.root, &len));
    assert_int_equal(len, 9);
    rsi_pickle_free(r.p);
}

static void float_is_big_endian(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE("G\x3f\xf8\x00\x00\x00\x00\x00\x00."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_FLOAT);
    assert_true(rsi_pickle_float(r.p, r.root) == 1.5);
    rsi_pickle_free(r.p);
}

static void constants_are_read(void **state)
{
    pickle_reading r = { 0 };
    rsi_pv         v[3];

    (void)state;
    pickle_accept(&r, PICKLE("N\x88\x89\x87."));
    assert_int_equal(rsi_pickle_items(r.p, r.root, v, 3), 3);
    assert_int_equal(rsi_pickle_kind_of(r.p, v[0]), RSI_PICKLE_NONE);
    assert_int_equal(rsi_pickle_kind_of(r.p, v[1]), RSI_PICKLE_TRUE);
    assert_int_equal(rsi_pickle_kind_of(r.p, v[2]), RSI_PICKLE_FALSE);
    rsi_pickle_free(r.p);
}

static void equal_text_is_one_value_and_bytes_are_another(void **state)
{
    pickle_reading r = { 0 };
    rsi_pv         v[3];
    size_t         len = 0;
    const char    *text;

    (void)state;
    pickle_accept(&r, PICKLE("\x8c\x02hiX\x02\x00\x00\x00hiC\x02hi\x87."));
    assert_int_equal(rsi_pickle_items(r.p, r.root, v, 3), 3);
    assert_int_equal(v[0], v[1]);
    assert_int_not_equal(v[0], v[2]);
    text = rsi_pickle_bytes(r.p, v[2], &len);
    assert_int_equal(len, 2);
    assert_string_equal(text, "hi");
    rsi_pickle_free(r.p);
}

static void tuple_of_integers_is_integers(void **state)
{
    pickle_reading r = { 0 };
    int64_t        x[3] = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE("(K\x01J\x00\x00\x00\x7fJ\xff\xff\xff\xfft."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_INTS);
    assert_int_equal(rsi_pickle_ints(r.p, r.root, x, 3), 3);
    assert_int_equal(x[0], 1);
    assert_int_equal(x[1], 0x7f000000);
    assert_int_equal(x[2], -1);
    rsi_pickle_free(r.p);
}

static void empty_tuple_is_no_integers(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE(")."));
    assert_int_equal(rsi_pickle_ints(r.p, r.root, NULL, 0), 0);
    rsi_pickle_free(r.p);
}

/* [1] + what is added in two batches, with another list made in between. */
static void list_keeps_the_order_of_its_batches(void **state)
{
    pickle_reading  r = { 0 };
    rsi_pickle_iter it;
    rsi_pv          v;
    int64_t         x, want = 1;

    (void)state;
    pickle_accept(&r, PICKLE("]K\x01"
                             "a](K\x09"
                             "e0(K\x02K\x03"
                             "e]0K\x04"
                             "a."));
    assert_int_equal(rsi_pickle_count(r.p, r.root), 4);
    it = rsi_pickle_each(r.p, r.root);
    while (rsi_pickle_next(r.p, &it, &v)) {
        assert_true(rsi_pickle_int(r.p, v, &x));
        assert_int_equal(x, want++);
    }
    assert_int_equal(want, 5);
    rsi_pickle_free(r.p);
}

static void dict_gives_keys_and_values_in_turn(void **state)
{
    pickle_reading r = { 0 };
    rsi_pv         v[4];
    int64_t        x;

    (void)state;
    pickle_accept(&r, PICKLE("}\x8c\x01"
                             "aK\x01s(\x8c\x01"
                             "bK\x02u."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_DICT);
    assert_int_equal(rsi_pickle_items(r.p, r.root, v, 4), 4);
    assert_string_equal(rsi_pickle_text(r.p, v[2]), "b");
    assert_true(rsi_pickle_int(r.p, v[3], &x));
    assert_int_equal(x, 2);
    rsi_pickle_free(r.p);
}

static void sets_are_read(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE("\x8f(K\x01K\x02\x90."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_SET);
    assert_int_equal(rsi_pickle_count(r.p, r.root), 2);
    rsi_pickle_free(r.p);
    pickle_accept(&r, PICKLE("(K\x01\x91."));
    assert_int_equal(rsi_pickle_count(r.p, r.root), 1);
    rsi_pickle_free(r.p);
}

static void memo_gives_the_same_value_again(void **state)
{
    pickle_reading r = { 0 };
    rsi_pv         v[2];

    (void)state;
    pickle_accept(&r, PICKLE("]\x94h\x00\x86."));
    assert_int_equal(rsi_pickle_items(r.p, r.root, v, 2), 2);
    assert_int_equal(v[0], v[1]);
    rsi_pickle_free(r.p);
}

static void memo_places_may_start_at_one_as_in_python_2(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE("]q\x01]q\x02h\x01\x87."));
    assert_int_equal(rsi_pickle_count(r.p, r.root), 3);
    rsi_pickle_free(r.p);
}

static void persistent_id_is_kept(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE("\x8c\x03keyQ."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_PERSID);
    assert_string_equal(rsi_pickle_text(r.p, rsi_pickle_persid(r.p, r.root)), "key");
    rsi_pickle_free(r.p);
}

static void bytes_behind_stop_are_not_read(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE("N.garbage"));
    assert_int_equal(r.used, 2);
    rsi_pickle_free(r.p);
}

/* ---- What is refused
 * ------------------------------------------------------------------------------- */

static void opcodes_that_are_not_for_data_are_refused_by_name(void **state)
{
    (void)state;
    pickle_refuse(PICKLE("(i"
                         "os\nsystem\n."),
                  "byte 1: the opcode INST, which would call \"os.system\"");
    pickle_refuse(PICKLE("(o."), "byte 1: the pickle opcode OBJ is refused");
    pickle_refuse(PICKLE("Pid\n."), "byte 0: the pickle opcode PERSID is refused");
    pickle_refuse(PICKLE("N\x82\x01."), "byte 1: the pickle opcode EXT1 is refused");
    pickle_refuse(PICKLE("\x83\x01\x01."), "EXT2");
    pickle_refuse(PICKLE("\x84\x01\x01\x01\x01."), "EXT4");
    pickle_refuse(PICKLE("\x97."), "NEXT_BUFFER");
    pickle_refuse(PICKLE("I1\n."), "opcode INT is");
    pickle_refuse(PICKLE("\xff."), "0xff is not a pickle opcode");
}

static void opcodes_without_their_values_are_refused(void **state)
{
    (void)state;
    pickle_refuse(PICKLE("N"), "byte 1: the pickle ends without STOP");
    pickle_refuse(PICKLE("."), "0 values on its stack");
    pickle_refuse(PICKLE("NN."), "2 values on its stack");
    pickle_refuse(PICKLE("(N."), "instead of 1");
    pickle_refuse(PICKLE("N\x86."), "takes 2 values");
    pickle_refuse(PICKLE("N(\x85."), "takes 1 values");
    pickle_refuse(PICKLE("t."), "needs a MARK");
    pickle_refuse(PICKLE("NNa."), "adds to a list");
    pickle_refuse(PICKLE("]NNs."), "adds to a dict");
    pickle_refuse(PICKLE("}(Nu."), "key without a value");
    pickle_refuse(PICKLE("NNR."), "not a class");
    pickle_refuse(PICKLE("cm\nKnown\nNR."), "not a tuple");
    pickle_refuse(PICKLE("NNb."), "not an object");
    pickle_refuse(PICKLE("cm\nKnown\n)R}b}b."), "already has one");
    pickle_refuse(PICKLE("NN\x93."), "not a str");
    pickle_refuse(PICKLE("h\x00."), "memo place 0 is empty");
    pickle_refuse(PICKLE("\x94."), "takes 1 values");
    pickle_refuse(PICKLE("0."), "needs a MARK");
}

static void text_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    pickle_refuse(PICKLE("\x8c\x01\xff."), "not UTF-8");
    pickle_refuse(PICKLE("\x8c\x02\xc0\x80."), "not UTF-8");
    pickle_refuse(PICKLE("\x8c\x02\xe2\x82."), "not UTF-8");
    pickle_refuse(PICKLE("\x8c\x04\xf5\x80\x80\x80."), "not UTF-8");
}

static void surrogate_halves_are_text(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE("\x8c\x03\xed\xa0\x80."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_STR);
    rsi_pickle_free(r.p);
}

static void lengths_beyond_the_input_are_refused(void **state)
{
    (void)state;
    pickle_refuse(PICKLE("X\xff\xff\xff\x00"
                         "abc."),
                  "needs 16777215 more bytes, the pickle has 4");
    pickle_refuse(PICKLE("X\xff\xff\xff\xff"
                         "abc."),
                  "the limit is 16777216");
    pickle_refuse(PICKLE("\x8e\xff\xff\xff\xff\xff\xff\xff\xff"
                         "abc."),
                  "the pickle has 4");
    pickle_refuse(PICKLE("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                         "abc."),
                  "the limit");
    pickle_refuse(PICKLE("\x8a\xff."), "needs 255 more bytes");
    pickle_refuse(PICKLE("\x8b\x01\x01\x00\x00."), "an integer of 257 bytes");
    pickle_refuse(PICKLE("\x95\xff\x00\x00\x00\x00\x00\x00\x00N."), "a frame of 255 bytes");
}

static void protocol_6_is_refused(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_load(&r, PICKLE("\x80\x06N."));
    assert_int_equal(r.rc, RSD_E_UNSUPPORTED);
    rsi_pickle_free(r.p);
}

static void every_truncation_is_refused(void **state)
{
    static const char whole[] = "\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00"
                                "cm\nKnown\nq\x00)\x81}(\x8c\x01kX\x01\x00\x00\x00vK\x01M\x01\x00u"
                                "bh\x00J\x01\x00\x00\x00G\x00\x00\x00\x00\x00\x00\x00\x00\x87\x86.";
    pickle_reading    r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE(whole));
    rsi_pickle_free(r.p);
    for (size_t len = 0; len < sizeof(whole) - 1; len++) {
        char *exact = malloc(len ? len : 1); /* so that a read behind the end is seen */

        memcpy(exact, whole, len);
        pickle_load(&r, exact, len);
        assert_int_equal(r.rc, RSD_E_FORMAT);
        rsi_pickle_free(r.p);
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_of_every_opcode_are_read),
        cmocka_unit_test(integers_around_the_inline_limit_are_read),
        cmocka_unit_test(integer_of_nine_bytes_is_kept_as_bytes),
        cmocka_unit_test(float_is_big_endian),
        cmocka_unit_test(constants_are_read),
        cmocka_unit_test(equal_text_is_one_value_and_bytes_are_another),
        cmocka_unit_test(tuple_of_integers_is_integers),
        cmocka_unit_test(empty_tuple_is_no_integers),
        cmocka_unit_test(list_keeps_the_order_of_its_batches),
        cmocka_unit_test(dict_gives_keys_and_values_in_turn),
        cmocka_unit_test(sets_are_read),
        cmocka_unit_test(memo_gives_the_same_value_again),
        cmocka_unit_test(memo_places_may_start_at_one_as_in_python_2),
        cmocka_unit_test(persistent_id_is_kept),
        cmocka_unit_test(bytes_behind_stop_are_not_read),
        cmocka_unit_test(opcodes_that_are_not_for_data_are_refused_by_name),
        cmocka_unit_test(opcodes_without_their_values_are_refused),
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(surrogate_halves_are_text),
        cmocka_unit_test(lengths_beyond_the_input_are_refused),
        cmocka_unit_test(protocol_6_is_refused),
        cmocka_unit_test(every_truncation_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
