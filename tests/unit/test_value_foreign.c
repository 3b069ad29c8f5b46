/* SPDX-License-Identifier: Apache-2.0 */
/* test_value_foreign.c - objects of unknown classes keep their opcodes in a copy. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "ckpt_fixture.h"
#include "format/value_pickle.h"

#include <string.h>

/* Reads a pickle and writes its value; the first byte is 0 if it can't be written. */
static void copy(const char *pickle, size_t len, rsi_bytes *out)
{
    rsi_source       source = rsi_memory_source(pickle, len, "test");
    rsi_storages     storages = { 0 };
    rsi_value_pickle read;
    rsd_values      *owner;

    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsi_value_read(&source, owner, &read, NULL), RSD_OK);
    if (rsi_value_to_pickle(read.root, out, &storages, NULL))
        assert_true(rsi_bytes_add(out, "", 1));
    rsi_free(storages.tensor);
    rsd_values_free(owner);
}

#define ASSERT_COPY(pickle, expected)                                                              \
    do {                                                                                           \
        rsi_bytes made = { 0 };                                                                    \
                                                                                                   \
        copy(pickle, sizeof(pickle) - 1, &made);                                                   \
        assert_int_equal(made.len, sizeof(expected) - 1);                                          \
        assert_memory_equal(made.at, expected, made.len);                                          \
        rsi_free(made.at);                                                                         \
    } while (0)

static void a_call_and_a_new_object_stay_what_they_are(void **state)
{
    (void)state;
    ASSERT_COPY("\x80\x02"
                "cm\nf\nK\x01K\x02\x86R.",
                "\x80\x02"
                "cm\nf\n(K\x01K\x02tRr\0\0\0\0.");
    ASSERT_COPY("\x80\x02"
                "cm\nC\n)\x81.",
                "\x80\x02"
                "cm\nC\n(t\x81r\0\0\0\0.");
    ASSERT_COPY("\x80\x04"
                "cm\nC\nK\x01\x85}\x92.",
                "\x80\x02"
                "cm\nC\n(K\x01t}r\0\0\0\0\x92r\x01\0\0\0.");
}

static void items_and_state_follow_the_call(void **state)
{
    (void)state;
    ASSERT_COPY("\x80\x02"
                "cm\nC\n)\x81(NK\x05u}X\1\0\0\0aG?\xf8\0\0\0\0\0\0sb.",
                "\x80\x02"
                "cm\nC\n(t\x81r\0\0\0\0(NK\x05u}r\1\0\0\0(X\1\0\0\0aG?\xf8\0\0\0\0\0\0ub.");
}

static void an_object_in_its_own_state_stays_one_object(void **state)
{
    (void)state;
    ASSERT_COPY("\x80\x02"
                "cm\nC\n)\x81q\0}X\1\0\0\0ah\0sb.",
                "\x80\x02"
                "cm\nC\n(t\x81r\0\0\0\0}r\1\0\0\0(X\1\0\0\0aj\0\0\0\0ub.");
}

static void a_part_that_occurs_twice_stays_one_part(void **state)
{
    (void)state;
    ASSERT_COPY("\x80\x02"
                "cm\nf\n]q\0h\0\x86R.",
                "\x80\x02"
                "cm\nf\n(]r\0\0\0\0j\0\0\0\0tr\1\0\0\0Rr\2\0\0\0.");
}

static void objects_lie_between_other_values(void **state)
{
    (void)state;
    ASSERT_COPY("\x80\x02"
                "](K\x07"
                "cm\nC\n)\x81"
                "cm\nC\n)\x81"
                "e.",
                "\x80\x02"
                "](K\x07"
                "cm\nC\n(t\x81r\0\0\0\0"
                "cm\nC\n(t\x81r\0\0\0\0"
                "e.");
}

static void a_storage_inside_can_not_be_copied(void **state)
{
    (void)state;
    ASSERT_COPY("\x80\x02"
                "cm\nC\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\1tQtR.",
                "\0");
}

static void a_frozenset_by_its_own_opcode_can_not_be_told_from_a_set(void **state)
{
    (void)state;
    ASSERT_COPY("\x80\x04"
                "cm\nC\n(K\1\x91\x85R.",
                "\0");
    ASSERT_COPY("\x80\x04"
                "cm\nC\n\x8f(K\1\x90\x85R.",
                "\x80\x02"
                "cm\nC\n(\x8fr\0\0\0\0(K\1\x90tr\1\0\0\0Rr\2\0\0\0.");
}

static void a_call_that_contains_itself_is_not_copied(void **state)
{
    (void)state;
    /* ([itself],): the list is complete before the call, and gets the object after it */
    ASSERT_COPY("\x80\x02"
                "]q\0"
                "cm\nC\nh\0\x85Rq\1"
                "h\0h\1a\x87.",
                "\0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_and_a_new_object_stay_what_they_are),
        cmocka_unit_test(items_and_state_follow_the_call),
        cmocka_unit_test(an_object_in_its_own_state_stays_one_object),
        cmocka_unit_test(a_part_that_occurs_twice_stays_one_part),
        cmocka_unit_test(objects_lie_between_other_values),
        cmocka_unit_test(a_storage_inside_can_not_be_copied),
        cmocka_unit_test(a_frozenset_by_its_own_opcode_can_not_be_told_from_a_set),
        cmocka_unit_test(a_call_that_contains_itself_is_not_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
