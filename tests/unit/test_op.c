/* SPDX-License-Identifier: Apache-2.0 */
/* test_op.c - an operation hands each call on to what it stands for, and to nothing before that is
 * there. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/op.h"
#include "plan_fixture.h"

#include <string.h>

/* What was asked, in which phase, and what to answer. */
typedef struct asked {
    int       tests, waits, cancels, frees;
    rsd_phase phase;
    bool      done;
    rsd_err   rc;
} asked;

static rsd_err note_test(void *self, rsd_phase phase, bool *done, rsd_error *err)
{
    asked *a = self;

    a->tests++;
    a->phase = phase;
    *done = a->done;
    return a->rc ? rsi_fail(err, a->rc, "asked for it") : RSD_OK;
}

static rsd_err note_wait(void *self, rsd_phase phase, rsd_error *err)
{
    asked *a = self;

    a->waits++;
    a->phase = phase;
    return a->rc ? rsi_fail(err, a->rc, "asked for it") : RSD_OK;
}

static void note_cancel(void *self)
{
    asked *a = self;

    a->cancels++;
}

static void note_free(void *self)
{
    asked *a = self;

    a->frees++;
}

static const rsi_op_ops ops = { note_test, note_wait, note_cancel, note_free };

static rsd_op *make(asked *a)
{
    rsd_op *op;

    assert_int_equal(rsi_op_create(&ops, a, &op, NULL), RSD_OK);
    return op;
}

static void each_call_reaches_what_the_operation_stands_for(void **state)
{
    asked   a = { .done = true };
    rsd_op *op = make(&a);
    bool    done = false;

    (void)state;
    assert_int_equal(rsd_op_test(op, RSD_STAGED, &done, NULL), RSD_OK);
    assert_true(done);
    assert_int_equal(a.phase, RSD_STAGED);
    assert_int_equal(rsd_op_wait(op, RSD_DURABLE, NULL), RSD_OK);
    assert_int_equal(a.phase, RSD_DURABLE);
    rsd_op_cancel(op);
    assert_int_equal(a.frees, 0);
    rsd_op_free(op);
    assert_int_equal(a.tests, 1);
    assert_int_equal(a.waits, 1);
    assert_int_equal(a.cancels, 1);
    assert_int_equal(a.frees, 1);
}

static void its_error_is_what_the_caller_gets(void **state)
{
    asked     a = { .rc = RSD_E_CANCELED };
    rsd_op   *op = make(&a);
    bool      done = true;
    rsd_error err = { 0 };

    (void)state;
    assert_int_equal(rsd_op_test(op, RSD_DURABLE, &done, &err), RSD_E_CANCELED);
    assert_string_equal(err.msg, "asked for it");
    err = (rsd_error){ 0 };
    assert_int_equal(rsd_op_wait(op, RSD_STAGED, &err), RSD_E_CANCELED);
    assert_string_equal(err.msg, "asked for it");
    rsd_op_free(op);
}

static void a_phase_that_there_is_not_reaches_nobody(void **state)
{
    static const int phase[] = { -1, RSD_STAGED + RSD_DURABLE + 1, 1 << 20 };
    asked            a = { 0 };
    rsd_op          *op = make(&a);
    bool             done = true;
    rsd_error        err;

    (void)state;
    for (size_t i = 0; i < sizeof(phase) / sizeof(phase[0]); i++) {
        assert_int_equal(rsd_op_test(op, (rsd_phase)phase[i], &done, &err), RSD_E_INVALID);
        assert_string_equal(err.msg, "missing argument: operation or a valid phase");
        assert_int_equal(rsd_op_wait(op, (rsd_phase)phase[i], &err), RSD_E_INVALID);
    }
    assert_int_equal(rsd_op_test(op, RSD_STAGED, NULL, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "missing argument: output pointer");
    assert_int_equal(a.tests + a.waits, 0);
    assert_true(done);
    rsd_op_free(op);
}

static void without_an_operation_nothing_happens(void **state)
{
    bool      done = true;
    rsd_error err;

    (void)state;
    assert_int_equal(rsd_op_test(NULL, RSD_STAGED, &done, &err), RSD_E_INVALID);
    assert_int_equal(rsd_op_wait(NULL, RSD_DURABLE, &err), RSD_E_INVALID);
    rsd_op_cancel(NULL);
    rsd_op_free(NULL);
}

static void what_never_came_is_not_freed(void **state)
{
    rsd_op *op;

    (void)state;
    assert_int_equal(rsi_op_create(&ops, NULL, &op, NULL), RSD_OK);
    rsd_op_free(op); /* would count in NULL */
}

static void what_comes_later_is_asked_and_freed(void **state)
{
    asked   a = { 0 };
    rsd_op *op;

    (void)state;
    assert_int_equal(rsi_op_create(&ops, NULL, &op, NULL), RSD_OK);
    rsi_op_set(op, &a);
    assert_int_equal(rsd_op_wait(op, RSD_STAGED, NULL), RSD_OK);
    rsd_op_free(op);
    assert_int_equal(a.waits, 1);
    assert_int_equal(a.frees, 1);
}

/* Takes nothing over where it fails. */
static rsd_err make_and_free(void *arg, rsd_error *err)
{
    asked  *a = arg;
    rsd_op *op;
    rsd_err rc;

    *a = (asked){ 0 };
    rc = rsi_op_create(&ops, a, &op, err);
    if (!rc)
        rsd_op_free(op);
    assert_int_equal(a->frees, rc ? 0 : 1);
    return rc;
}

static void no_memory_leaves_the_work_with_the_caller(void **state)
{
    asked a;

    (void)state;
    assert_survives_no_memory(make_and_free, &a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_reaches_what_the_operation_stands_for),
        cmocka_unit_test(its_error_is_what_the_caller_gets),
        cmocka_unit_test(a_phase_that_there_is_not_reaches_nobody),
        cmocka_unit_test(without_an_operation_nothing_happens),
        cmocka_unit_test(what_never_came_is_not_freed),
        cmocka_unit_test(what_comes_later_is_asked_and_freed),
        cmocka_unit_test(no_memory_leaves_the_work_with_the_caller),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
