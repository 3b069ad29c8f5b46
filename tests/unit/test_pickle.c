/* SPDX-License-Identifier: Apache-2.0 */
/* test_pickle.c - the pickle reader: what opcodes make, what is refused, what it costs.
 *
 * Pickles are written out as bytes: what Python writes for real objects is in test_value.c and
 * test_dcp_meta.c. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "format/pickle.h"

#include <stdlib.h>

#define MIB (1 << 20)

/* A literal with its length: pickles have NULs in them. */
#define PICKLE(text) text, sizeof(text) - 1

static const rsi_pickle_class classes[] = {
    { "m", "Known", 1, 0 },
    { "m", "Folds", 2, RSI_PICKLE_FOLD_BUILD },
    { "m", "Calls", 3, RSI_PICKLE_FOLD_CALL },
};

typedef struct reading {
    rsi_pickle *p;
    rsi_pv      root;
    rsd_error   err;
    rsd_err     rc;
    uint64_t    used;
    int         folds; /* times that the hook was called */
    bool        keep;
} reading;

/* An object of "Folds" becomes the number of pairs in its state, a call of "Calls" None. */
static rsd_err fold(void *arg, const rsi_pickle *p, rsi_pickle_object *object, rsi_pv *out,
                    rsd_error *err)
{
    reading *r = arg;

    (void)err;
    r->folds++;
    object->keep = r->keep;
    *out = object->id == 3 ? rsi_pickle_none()
                           : rsi_pickle_user((uint32_t)rsi_pickle_count(p, object->state) / 2);
    return RSD_OK;
}

static reading open_reader(void)
{
    rsi_pickle_options options = { .classes = classes, .nclasses = 3, .fold = fold };
    reading            r = { 0 };

    assert_int_equal(rsi_pickle_create(&options, &r.p, &r.err), RSD_OK);
    return r;
}

/* The hook's argument must stay where it is, so reading is by pointer. */
static void load(reading *r, const char *bytes, size_t len)
{
    rsi_pickle_options options = { .classes = classes, .nclasses = 3, .fold = fold, .arg = r };
    rsi_source         source = rsi_memory_source(bytes, len, "test");
    bool               keep = r->keep;

    *r = (reading){ .keep = keep };
    assert_int_equal(rsi_pickle_create(&options, &r->p, &r->err), RSD_OK);
    r->rc = rsi_pickle_read(r->p, &source, &r->root, &r->used, &r->err);
}

static void refuse(const char *bytes, size_t len, const char *message)
{
    reading r = { 0 };

    load(&r, bytes, len);
    assert_int_equal(r.rc, RSD_E_FORMAT);
    if (!strstr(r.err.msg, message))
        fail_msg("\"%s\" is not in \"%s\"", message, r.err.msg);
    rsi_pickle_free(r.p);
}

static void accept(reading *r, const char *bytes, size_t len)
{
    load(r, bytes, len);
    if (r->rc)
        fail_msg("%s", r->err.msg);
}

/* ---- What opcodes make ------------------------------------------------------------------------
 */

static void assert_reads_int(const char *bytes, size_t len, int64_t want)
{
    reading r = { 0 };
    int64_t got = 0;

    accept(&r, bytes, len);
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
    reading r = { 0 };
    size_t  len = 0;

    (void)state;
    accept(&r, PICKLE("\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_BIGINT);
    assert_non_null(rsi_pickle_bytes(r.p, r.root, &len));
    assert_int_equal(len, 9);
    rsi_pickle_free(r.p);
}

static void float_is_big_endian(void **state)
{
    reading r = { 0 };

    (void)state;
    accept(&r, PICKLE("G\x3f\xf8\x00\x00\x00\x00\x00\x00."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_FLOAT);
    assert_true(rsi_pickle_float(r.p, r.root) == 1.5);
    rsi_pickle_free(r.p);
}

static void constants_are_read(void **state)
{
    reading r = { 0 };
    rsi_pv  v[3];

    (void)state;
    accept(&r, PICKLE("N\x88\x89\x87."));
    assert_int_equal(rsi_pickle_items(r.p, r.root, v, 3), 3);
    assert_int_equal(rsi_pickle_kind_of(r.p, v[0]), RSI_PICKLE_NONE);
    assert_int_equal(rsi_pickle_kind_of(r.p, v[1]), RSI_PICKLE_TRUE);
    assert_int_equal(rsi_pickle_kind_of(r.p, v[2]), RSI_PICKLE_FALSE);
    rsi_pickle_free(r.p);
}

static void equal_text_is_one_value_and_bytes_are_another(void **state)
{
    reading     r = { 0 };
    rsi_pv      v[3];
    size_t      len = 0;
    const char *text;

    (void)state;
    accept(&r, PICKLE("\x8c\x02hiX\x02\x00\x00\x00hiC\x02hi\x87."));
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
    reading r = { 0 };
    int64_t x[3] = { 0 };

    (void)state;
    accept(&r, PICKLE("(K\x01J\x00\x00\x00\x7fJ\xff\xff\xff\xfft."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_INTS);
    assert_int_equal(rsi_pickle_ints(r.p, r.root, x, 3), 3);
    assert_int_equal(x[0], 1);
    assert_int_equal(x[1], 0x7f000000);
    assert_int_equal(x[2], -1);
    rsi_pickle_free(r.p);
}

static void empty_tuple_is_no_integers(void **state)
{
    reading r = { 0 };

    (void)state;
    accept(&r, PICKLE(")."));
    assert_int_equal(rsi_pickle_ints(r.p, r.root, NULL, 0), 0);
    rsi_pickle_free(r.p);
}

/* [1] + what is added in two batches, with another list made in between. */
static void list_keeps_the_order_of_its_batches(void **state)
{
    reading         r = { 0 };
    rsi_pickle_iter it;
    rsi_pv          v;
    int64_t         x, want = 1;

    (void)state;
    accept(&r, PICKLE("]K\x01"
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
    reading r = { 0 };
    rsi_pv  v[4];
    int64_t x;

    (void)state;
    accept(&r, PICKLE("}\x8c\x01"
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
    reading r = { 0 };

    (void)state;
    accept(&r, PICKLE("\x8f(K\x01K\x02\x90."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_SET);
    assert_int_equal(rsi_pickle_count(r.p, r.root), 2);
    rsi_pickle_free(r.p);
    accept(&r, PICKLE("(K\x01\x91."));
    assert_int_equal(rsi_pickle_count(r.p, r.root), 1);
    rsi_pickle_free(r.p);
}

static void memo_gives_the_same_value_again(void **state)
{
    reading r = { 0 };
    rsi_pv  v[2];

    (void)state;
    accept(&r, PICKLE("]\x94h\x00\x86."));
    assert_int_equal(rsi_pickle_items(r.p, r.root, v, 2), 2);
    assert_int_equal(v[0], v[1]);
    rsi_pickle_free(r.p);
}

static void memo_places_may_start_at_one_as_in_python_2(void **state)
{
    reading r = { 0 };

    (void)state;
    accept(&r, PICKLE("]q\x01]q\x02h\x01\x87."));
    assert_int_equal(rsi_pickle_count(r.p, r.root), 3);
    rsi_pickle_free(r.p);
}

static void persistent_id_is_kept(void **state)
{
    reading r = { 0 };

    (void)state;
    accept(&r, PICKLE("\x8c\x03keyQ."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_PERSID);
    assert_string_equal(rsi_pickle_text(r.p, rsi_pickle_persid(r.p, r.root)), "key");
    rsi_pickle_free(r.p);
}

static void bytes_behind_stop_are_not_read(void **state)
{
    reading r = { 0 };

    (void)state;
    accept(&r, PICKLE("N.garbage"));
    assert_int_equal(r.used, 2);
    rsi_pickle_free(r.p);
}

/* ---- Classes and calls --------------------------------------------------------------------------
 */

static void call_becomes_an_object_that_names_its_class(void **state)
{
    reading           r = { 0 };
    rsi_pickle_object object;
    const char       *module, *name;

    (void)state;
    accept(&r, PICKLE("cm\nKnown\n)\x81}b."));
    object = rsi_pickle_object_of(r.p, r.root);
    assert_int_equal(object.id, 1);
    assert_int_equal(object.at, 10);
    assert_int_equal(rsi_pickle_kind_of(r.p, object.state), RSI_PICKLE_DICT);
    assert_int_equal(rsi_pickle_class_of(r.p, object.callee, &module, &name), 1);
    assert_string_equal(module, "m");
    assert_string_equal(name, "Known");
    rsi_pickle_free(r.p);
}

static void what_is_set_on_an_object_becomes_its_items(void **state)
{
    reading r = { 0 };

    (void)state;
    accept(&r, PICKLE("cm\nKnown\n)R\x8c\x01"
                      "aK\x01s."));
    assert_int_equal(rsi_pickle_count(r.p, rsi_pickle_object_of(r.p, r.root).items), 2);
    rsi_pickle_free(r.p);
}

static void assert_calls(const char *bytes, size_t len, const char *module, const char *name,
                         uint64_t at)
{
    reading             r = { 0 };
    rsi_pickle_unlisted bad = { 0 };

    accept(&r, bytes, len);
    assert_true(rsi_pickle_calls_unlisted(r.p, &bad));
    assert_string_equal(bad.module, module);
    assert_string_equal(bad.name, name);
    assert_int_equal(bad.at, at);
    rsi_pickle_free(r.p);
}

static void foreign_calls_are_named_with_their_byte(void **state)
{
    (void)state;
    assert_calls(PICKLE("cos\nsystem\n\x8c\x02id\x85R."), "os", "system", 16);
    assert_calls(PICKLE("\x8c\x08"
                        "builtins\x8c\x04"
                        "eval\x93\x8c\x01"
                        "1\x85R."),
                 "builtins", "eval", 21);
    assert_calls(PICKLE("csubprocess\nPopen\n)\x81."), "subprocess", "Popen", 19);
    assert_calls(PICKLE("cposix\nsystem\n)}\x92."), "posix", "system", 16);
    /* the first of two, inside an argument */
    assert_calls(PICKLE("cm\nKnown\n(ca\nb\n)Rcc\nd\n)RtR."), "a", "b", 16);
}

static void known_calls_are_not_foreign(void **state)
{
    reading             r = { 0 };
    rsi_pickle_unlisted bad;

    (void)state;
    accept(&r, PICKLE("cm\nKnown\n)R."));
    assert_false(rsi_pickle_calls_unlisted(r.p, &bad));
    assert_false(rsi_pickle_names_unlisted(r.p, &bad));
    rsi_pickle_free(r.p);
}

static void name_that_is_not_called_is_reported_as_named_only(void **state)
{
    reading             r = { 0 };
    rsi_pickle_unlisted bad = { 0 };

    (void)state;
    accept(&r, PICKLE("cos\nsystem\n."));
    assert_false(rsi_pickle_calls_unlisted(r.p, &bad));
    assert_true(rsi_pickle_names_unlisted(r.p, &bad));
    assert_string_equal(bad.name, "system");
    rsi_pickle_free(r.p);
}

/* ---- Folding
 * -------------------------------------------------------------------------------------- */

/* Class, object, memo, state with one pair. */
#define FOLDING "cm\nFolds\nq\x00)\x81q\x01}q\x02\x8c\x01kK\x05s"

static void object_folds_when_it_gets_its_state(void **state)
{
    reading r = { 0 };

    (void)state;
    accept(&r, PICKLE(FOLDING "b."));
    assert_int_equal(r.folds, 1);
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_USER);
    assert_int_equal(rsi_pickle_user_of(r.root), 1);
    rsi_pickle_free(r.p);
}

static void memo_of_a_folded_object_gives_what_it_folded_to(void **state)
{
    reading r = { 0 };
    rsi_pv  v[2];

    (void)state;
    accept(&r, PICKLE(FOLDING "bh\x01\x86."));
    assert_int_equal(rsi_pickle_items(r.p, r.root, v, 2), 2);
    assert_int_equal(v[0], v[1]);
    rsi_pickle_free(r.p);
}

static void class_that_was_named_inside_a_folded_object_stays(void **state)
{
    reading r = { 0 };

    (void)state;
    accept(&r, PICKLE("cm\nFolds\n)\x81}\x8c\x01kcm\nKnown\nq\x00sbh\x00\x86."));
    assert_int_equal(rsi_pickle_count(r.p, r.root), 2);
    rsi_pickle_free(r.p);
}

static void state_of_a_folded_object_is_gone(void **state)
{
    (void)state;
    refuse(PICKLE(FOLDING "bh\x02\x86."), "already closed");
}

static void state_that_a_hook_keeps_stays(void **state)
{
    reading r = { .keep = true };
    rsi_pv  v[2];

    (void)state;
    accept(&r, PICKLE(FOLDING "bh\x02\x86."));
    assert_int_equal(rsi_pickle_items(r.p, r.root, v, 2), 2);
    assert_int_equal(rsi_pickle_count(r.p, v[1]), 2);
    rsi_pickle_free(r.p);
}

static void folded_objects_give_their_memory_back(void **state)
{
    static const char one[] = "h\x00)\x81}\x8c\x01k(K\x01\x8c\x01xtsb0";
    enum { TIMES = 10000 };
    size_t  len = 12 + TIMES * (sizeof(one) - 1) + 2;
    char   *bytes = calloc(1, len), *at = bytes;
    reading r = { 0 };

    (void)state;
    memcpy(at,
           "cm\nFolds\nq\x00"
           "0",
           12);
    at += 12;
    for (int i = 0; i < TIMES; i++, at += sizeof(one) - 1)
        memcpy(at, one, sizeof(one) - 1);
    memcpy(at, "N.", 2);
    accept(&r, bytes, len);
    assert_int_equal(r.folds, TIMES);
    rsi_pickle_trim(r.p); /* the window is as long as the input */
    assert_in_range(rsi_pickle_memory(r.p), 1, 16384);
    rsi_pickle_free(r.p);
    free(bytes);
}

/* What refers to cells that a fold would take back must not be there: one way each. */
static void object_that_something_older_refers_to_does_not_fold(void **state)
{
    (void)state;
    /* an older list gets a new tuple while the object waits */
    refuse(PICKLE("]q\x00"
                  "cm\nFolds\n)\x81h\x00N\x85"
                  "a0}b."),
           "before it is complete");
    /* an older memo place gets a new list */
    refuse(PICKLE("Nq\x00"
                  "cm\nFolds\n)\x81]q\x00"
                  "0}b."),
           "before it is complete");
    /* the object was taken off the stack and came back above something new */
    refuse(PICKLE("cm\nFolds\n)\x81q\x00"
                  "0]h\x00}b."),
           "before it is complete");
    /* a copy of it gets the state */
    refuse(PICKLE("cm\nFolds\n)\x81q\x00]h\x00}b."), "before it is complete");
    /* it gets its state while another one waits above it */
    refuse(PICKLE("cm\nFolds\n)\x81q\x00"
                  "cm\nFolds\n)\x81h\x00}b."),
           "before it is complete");
}

static void objects_that_wait_inside_each_other_are_limited(void **state)
{
    char bytes[16 * 20], *at = bytes;

    (void)state;
    memcpy(at, "cm\nFolds\nq\x00", 11);
    at += 11;
    for (int i = 0; i < 17; i++, at += 4)
        memcpy(at, "h\x00)\x81", 4);
    refuse(bytes, (size_t)(at - bytes), "in each other");
}

static void call_of_a_folding_class_is_replaced(void **state)
{
    reading r = { 0 };

    (void)state;
    accept(&r, PICKLE("cm\nCalls\n)R."));
    assert_int_equal(r.folds, 1);
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_NONE);
    rsi_pickle_free(r.p);
}

/* ---- What is refused
 * ------------------------------------------------------------------------------- */

static void opcodes_that_are_not_for_data_are_refused_by_name(void **state)
{
    (void)state;
    refuse(PICKLE("(i"
                  "os\nsystem\n."),
           "byte 1: the opcode INST, which would call \"os.system\"");
    refuse(PICKLE("(o."), "byte 1: the pickle opcode OBJ is refused");
    refuse(PICKLE("Pid\n."), "byte 0: the pickle opcode PERSID is refused");
    refuse(PICKLE("N\x82\x01."), "byte 1: the pickle opcode EXT1 is refused");
    refuse(PICKLE("\x83\x01\x01."), "EXT2");
    refuse(PICKLE("\x84\x01\x01\x01\x01."), "EXT4");
    refuse(PICKLE("\x97."), "NEXT_BUFFER");
    refuse(PICKLE("I1\n."), "opcode INT is");
    refuse(PICKLE("\xff."), "0xff is no pickle opcode");
}

static void opcodes_without_their_values_are_refused(void **state)
{
    (void)state;
    refuse(PICKLE("N"), "byte 1: the pickle ends without STOP");
    refuse(PICKLE("."), "0 values on its stack");
    refuse(PICKLE("NN."), "2 values on its stack");
    refuse(PICKLE("(N."), "instead of 1");
    refuse(PICKLE("N\x86."), "takes 2 values");
    refuse(PICKLE("N(\x85."), "takes 1 values");
    refuse(PICKLE("t."), "needs a MARK");
    refuse(PICKLE("NNa."), "adds to a list");
    refuse(PICKLE("]NNs."), "adds to a dict");
    refuse(PICKLE("}(Nu."), "key without a value");
    refuse(PICKLE("NNR."), "no class");
    refuse(PICKLE("cm\nKnown\nNR."), "no tuple");
    refuse(PICKLE("NNb."), "no object");
    refuse(PICKLE("cm\nKnown\n)R}b}b."), "has one already");
    refuse(PICKLE("NN\x93."), "no str");
    refuse(PICKLE("h\x00."), "memo place 0 is empty");
    refuse(PICKLE("\x94."), "takes 1 values");
    refuse(PICKLE("0."), "needs a MARK");
}

static void text_that_is_not_utf8_is_refused(void **state)
{
    (void)state;
    refuse(PICKLE("\x8c\x01\xff."), "not UTF-8");
    refuse(PICKLE("\x8c\x02\xc0\x80."), "not UTF-8");
    refuse(PICKLE("\x8c\x02\xe2\x82."), "not UTF-8");
    refuse(PICKLE("\x8c\x04\xf5\x80\x80\x80."), "not UTF-8");
}

static void surrogate_halves_are_text(void **state)
{
    reading r = { 0 };

    (void)state;
    accept(&r, PICKLE("\x8c\x03\xed\xa0\x80."));
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_STR);
    rsi_pickle_free(r.p);
}

static void lengths_beyond_the_input_are_refused(void **state)
{
    (void)state;
    refuse(PICKLE("X\xff\xff\xff\x00"
                  "abc."),
           "needs 16777215 more bytes, the pickle has 4");
    refuse(PICKLE("X\xff\xff\xff\xff"
                  "abc."),
           "16777216 are the limit");
    refuse(PICKLE("\x8e\xff\xff\xff\xff\xff\xff\xff\xff"
                  "abc."),
           "the pickle has 4");
    refuse(PICKLE("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                  "abc."),
           "are the limit");
    refuse(PICKLE("\x8a\xff."), "needs 255 more bytes");
    refuse(PICKLE("\x8b\x01\x01\x00\x00."), "an integer of 257 bytes");
    refuse(PICKLE("\x95\xff\x00\x00\x00\x00\x00\x00\x00N."), "a frame of 255 bytes");
}

static void protocol_6_is_refused(void **state)
{
    reading r = { 0 };

    (void)state;
    load(&r, PICKLE("\x80\x06N."));
    assert_int_equal(r.rc, RSD_E_UNSUPPORTED);
    rsi_pickle_free(r.p);
}

static void every_truncation_is_refused(void **state)
{
    static const char whole[] = "\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00"
                                "cm\nKnown\nq\x00)\x81}(\x8c\x01kX\x01\x00\x00\x00vK\x01M\x01\x00u"
                                "bh\x00J\x01\x00\x00\x00G\x00\x00\x00\x00\x00\x00\x00\x00\x87\x86.";
    reading           r = { 0 };

    (void)state;
    accept(&r, PICKLE(whole));
    rsi_pickle_free(r.p);
    for (size_t len = 0; len < sizeof(whole) - 1; len++) {
        char *exact = malloc(len ? len : 1); /* so that a read behind the end is seen */

        memcpy(exact, whole, len);
        load(&r, exact, len);
        assert_int_equal(r.rc, RSD_E_FORMAT);
        rsi_pickle_free(r.p);
        free(exact);
    }
}

/* ---- Limits
 * ---------------------------------------------------------------------------------------- */

static void memo_place_far_away_is_refused_without_memory(void **state)
{
    reading r = { 0 };

    (void)state;
    load(&r, PICKLE("Nr\x00\x00\x00\x40."));
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
    char   *bytes = repeat(start, unit, unit_len, LEN);
    reading r = { 0 };

    rsi_mem_fail_at(0, 0);
    load(&r, bytes, LEN);
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
    char   *bytes = malloc(5 * N);
    reading r = { 0 };

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
    load(&r, bytes, 5 * N);
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
    reading    r = open_reader();
    rsi_source source = rsi_memory_source("....N(t\xff", 8, "test");

    (void)state;
    source.start = 4;
    source.size = 4;
    assert_int_equal(rsi_pickle_read(r.p, &source, &r.root, NULL, &r.err), RSD_E_FORMAT);
    assert_non_null(strstr(r.err.msg, "byte 7: 0xff"));
    rsi_pickle_free(r.p);
}

static void reader_can_be_used_again(void **state)
{
    reading             r = open_reader();
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
            reading            r = { 0 };
            rsi_pickle_options options = {
                .classes = classes, .nclasses = 3, .fold = fold, .arg = &r
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
        cmocka_unit_test(call_becomes_an_object_that_names_its_class),
        cmocka_unit_test(what_is_set_on_an_object_becomes_its_items),
        cmocka_unit_test(foreign_calls_are_named_with_their_byte),
        cmocka_unit_test(known_calls_are_not_foreign),
        cmocka_unit_test(name_that_is_not_called_is_reported_as_named_only),
        cmocka_unit_test(object_folds_when_it_gets_its_state),
        cmocka_unit_test(memo_of_a_folded_object_gives_what_it_folded_to),
        cmocka_unit_test(class_that_was_named_inside_a_folded_object_stays),
        cmocka_unit_test(state_of_a_folded_object_is_gone),
        cmocka_unit_test(state_that_a_hook_keeps_stays),
        cmocka_unit_test(folded_objects_give_their_memory_back),
        cmocka_unit_test(object_that_something_older_refers_to_does_not_fold),
        cmocka_unit_test(objects_that_wait_inside_each_other_are_limited),
        cmocka_unit_test(call_of_a_folding_class_is_replaced),
        cmocka_unit_test(opcodes_that_are_not_for_data_are_refused_by_name),
        cmocka_unit_test(opcodes_without_their_values_are_refused),
        cmocka_unit_test(text_that_is_not_utf8_is_refused),
        cmocka_unit_test(surrogate_halves_are_text),
        cmocka_unit_test(lengths_beyond_the_input_are_refused),
        cmocka_unit_test(protocol_6_is_refused),
        cmocka_unit_test(every_truncation_is_refused),
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
