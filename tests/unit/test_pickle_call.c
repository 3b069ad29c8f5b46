/* SPDX-License-Identifier: Apache-2.0 */
/* test_pickle_call.c - classes that a pickle names or calls, and objects that a hook folds. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pickle_case.h"

#include <stdlib.h>
#include <string.h>

/* ---- Classes and calls --------------------------------------------------------------------------
 */

static void call_becomes_an_object_that_names_its_class(void **state)
{
    pickle_reading    r = { 0 };
    rsi_pickle_object object;
    const char       *module, *name;

    (void)state;
    pickle_accept(&r, PICKLE("cm\nKnown\n)\x81}b."));
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
    pickle_reading r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE("cm\nKnown\n)R\x8c\x01"
                             "aK\x01s."));
    assert_int_equal(rsi_pickle_count(r.p, rsi_pickle_object_of(r.p, r.root).items), 2);
    rsi_pickle_free(r.p);
}

static void assert_calls(const char *bytes, size_t len, const char *module, const char *name,
                         uint64_t at)
{
    pickle_reading      r = { 0 };
    rsi_pickle_unlisted bad = { 0 };

    pickle_accept(&r, bytes, len);
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
    pickle_reading      r = { 0 };
    rsi_pickle_unlisted bad;

    (void)state;
    pickle_accept(&r, PICKLE("cm\nKnown\n)R."));
    assert_false(rsi_pickle_calls_unlisted(r.p, &bad));
    assert_false(rsi_pickle_names_unlisted(r.p, &bad));
    rsi_pickle_free(r.p);
}

static void name_that_is_not_called_is_reported_as_named_only(void **state)
{
    pickle_reading      r = { 0 };
    rsi_pickle_unlisted bad = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE("cos\nsystem\n."));
    assert_false(rsi_pickle_calls_unlisted(r.p, &bad));
    assert_true(rsi_pickle_names_unlisted(r.p, &bad));
    assert_string_equal(bad.name, "system");
    rsi_pickle_free(r.p);
}

/* ---- Folding
 * -------------------------------------------------------------------------------------- */

static void object_folds_when_it_gets_its_state(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE(FOLDING "b."));
    assert_int_equal(r.folds, 1);
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_USER);
    assert_int_equal(rsi_pickle_user_of(r.root), 1);
    rsi_pickle_free(r.p);
}

static void memo_of_a_folded_object_gives_what_it_folded_to(void **state)
{
    pickle_reading r = { 0 };
    rsi_pv         v[2];

    (void)state;
    pickle_accept(&r, PICKLE(FOLDING "bh\x01\x86."));
    assert_int_equal(rsi_pickle_items(r.p, r.root, v, 2), 2);
    assert_int_equal(v[0], v[1]);
    rsi_pickle_free(r.p);
}

static void class_that_was_named_inside_a_folded_object_stays(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE("cm\nFolds\n)\x81}\x8c\x01kcm\nKnown\nq\x00sbh\x00\x86."));
    assert_int_equal(rsi_pickle_count(r.p, r.root), 2);
    rsi_pickle_free(r.p);
}

static void state_of_a_folded_object_is_gone(void **state)
{
    (void)state;
    pickle_refuse(PICKLE(FOLDING "bh\x02\x86."), "already closed");
}

static void state_that_a_hook_keeps_stays(void **state)
{
    pickle_reading r = { .keep = true };
    rsi_pv         v[2];

    (void)state;
    pickle_accept(&r, PICKLE(FOLDING "bh\x02\x86."));
    assert_int_equal(rsi_pickle_items(r.p, r.root, v, 2), 2);
    assert_int_equal(rsi_pickle_count(r.p, v[1]), 2);
    rsi_pickle_free(r.p);
}

static void folded_objects_give_their_memory_back(void **state)
{
    static const char one[] = "h\x00)\x81}\x8c\x01k(K\x01\x8c\x01xtsb0";
    enum { TIMES = 10000 };
    size_t         len = 12 + TIMES * (sizeof(one) - 1) + 2;
    char          *bytes = calloc(1, len), *at = bytes;
    pickle_reading r = { 0 };

    (void)state;
    memcpy(at,
           "cm\nFolds\nq\x00"
           "0",
           12);
    at += 12;
    for (int i = 0; i < TIMES; i++, at += sizeof(one) - 1)
        memcpy(at, one, sizeof(one) - 1);
    memcpy(at, "N.", 2);
    pickle_accept(&r, bytes, len);
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
    pickle_refuse(PICKLE("]q\x00"
                         "cm\nFolds\n)\x81h\x00N\x85"
                         "a0}b."),
                  "before it is complete");
    /* an older memo place gets a new list */
    pickle_refuse(PICKLE("Nq\x00"
                         "cm\nFolds\n)\x81]q\x00"
                         "0}b."),
                  "before it is complete");
    /* the object was taken off the stack and came back above something new */
    pickle_refuse(PICKLE("cm\nFolds\n)\x81q\x00"
                         "0]h\x00}b."),
                  "before it is complete");
    /* a copy of it gets the state */
    pickle_refuse(PICKLE("cm\nFolds\n)\x81q\x00]h\x00}b."), "before it is complete");
    /* it gets its state while another one waits above it */
    pickle_refuse(PICKLE("cm\nFolds\n)\x81q\x00"
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
    pickle_refuse(bytes, (size_t)(at - bytes), "nested more than 16 deep");
}

static void call_of_a_folding_class_is_replaced(void **state)
{
    pickle_reading r = { 0 };

    (void)state;
    pickle_accept(&r, PICKLE("cm\nCalls\n)R."));
    assert_int_equal(r.folds, 1);
    assert_int_equal(rsi_pickle_kind_of(r.p, r.root), RSI_PICKLE_NONE);
    rsi_pickle_free(r.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
