/* SPDX-License-Identifier: Apache-2.0 */
/* Freeing a comm waits for ranks that never come no longer than for others. The transport here is a
 * custom one whose close would wait; mpi/mpi_leave.c does it with MPI_Finalize. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "comm/comm_threads.h"

#include <stdio.h>
#include <string.h>

enum { LIMIT = 1234 };

static char    calls[64];
static rsd_err came; /* what meeting the others gives */

static rsd_err meet(void *self, int64_t timeout_ms, rsd_error *err)
{
    (void)self;
    assert_int_equal(timeout_ms, LIMIT);
    snprintf(err->msg, sizeof(err->msg), "they did not come");
    err->code = (int32_t)came;
    err->rank = -1;
    strcat(calls, " meet");
    return came;
}

static void stop(void *self, const rsd_error *why)
{
    assert_string_equal(why->msg, "they did not come");
    strcat(calls, " stop");
    rsi_threads_ops.stop(self, why);
}

static void close_end(void *self)
{
    strcat(calls, " close");
    rsi_threads_ops.close(self);
}

static void free_one(size_t table_bytes)
{
    rsd_comm_ops ops = rsi_threads_ops;
    void        *self;
    rsd_comm    *comm;

    ops.size = table_bytes;
    ops.stop = stop;
    ops.close = close_end;
    ops.meet = meet;
    calls[0] = '\0';
    assert_int_equal(rsi_threads_open(1, &self, NULL), RSD_OK);
    assert_int_equal(rsd_comm_create_custom(&ops, self, &comm, NULL), RSD_OK);
    assert_int_equal(rsd_comm_set_timeout(comm, LIMIT, NULL), RSD_OK);
    rsd_comm_free(comm);
}

static void ranks_are_waited_for_within_the_limit(void **state)
{
    (void)state;
    came = RSD_OK;
    free_one(sizeof(rsd_comm_ops));
    assert_string_equal(calls, " meet close");
}

static void a_comm_is_stopped_before_it_is_closed_without_them(void **state)
{
    (void)state;
    came = RSD_E_TIMEOUT;
    free_one(sizeof(rsd_comm_ops));
    assert_string_equal(calls, " meet stop close");
}

static void a_table_from_before_does_without(void **state)
{
    (void)state;
    free_one(offsetof(rsd_comm_ops, meet));
    assert_string_equal(calls, " close");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_waited_for_within_the_limit),
        cmocka_unit_test(a_comm_is_stopped_before_it_is_closed_without_them),
        cmocka_unit_test(a_table_from_before_does_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
