/* SPDX-License-Identifier: Apache-2.0 */
/* test_fault_calls.c - the nth allocation or system call of a save fails, for every n: the save
 * says so on every rank or succeeds, the previous checkpoint is intact to the last bit,
 * nothing leaks, and the next save leaves nothing of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault_case.h"
#include "base/mem.h"
#include "sys_faults.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { AGAIN = 50 }; /* signals in a row that a call is interrupted by */

/* What one save must come to: RSD_OK, or `code` if that is allowed. */
typedef struct trial {
    fault_bed  bed;
    fault_row *row;
    int64_t    bytes; /* in use before the bed was opened */
    int        descriptors;
    char       what[160]; /* for messages */
} trial;

static void begin(trial *t)
{
    t->descriptors = fault_descriptors();
}

/* States and stores keep things for the next save, so memory is counted when they are gone. */
static void end(trial *t)
{
    fault_bed_close(&t->bed);
    if (rsi_mem_stats_get().bytes != t->bytes)
        fail_msg("%s: %d bytes are left", t->bed.c->name,
                 (int)(rsi_mem_stats_get().bytes - t->bytes));
}

static void check(trial *t, bool same, rsd_err code)
{
    fault_bed  *bed = &t->bed;
    fault_found found = fault_look(bed);
    fault_found before = bed->c->overwrite ? FAULT_OLD : FAULT_NONE;

    fault_count(t->row, bed, found);
    if (!same && found != FAULT_NEW) /* when it is published, not all may learn it */
        fail_msg("%s: the ranks' codes differ: %s and %s", t->what, bed->err[0].msg,
                 bed->err[bed->c->ranks - 1].msg);
    for (int32_t r = 0; r < bed->c->ranks; r++) {
        if (bed->rc[r] && bed->rc[r] != code)
            fail_msg("%s: %s: %s", t->what, rsd_err_name(bed->rc[r]), bed->err[r].msg);
        if (bed->rc[r] && (bed->err[r].code != (int32_t)bed->rc[r] || bed->err[r].rank < 0 ||
                           bed->err[r].rank >= bed->c->ranks))
            fail_msg("%s: the error names no rank: %s", t->what, bed->err[r].msg);
    }
    if (found == FAULT_LOST ||
        (bed->rc[0] ? found != before && found != FAULT_NEW : found != FAULT_NEW))
        fail_msg("%s: the save said \"%s\" and left %d", t->what, bed->err[0].msg, (int)found);
    fault_reset(bed);
    if (fault_descriptors() != t->descriptors)
        fail_msg("%s: %d descriptors are left", t->what, fault_descriptors() - t->descriptors);
}

/* ---- allocations ---- */

static void every_allocation(trial *t, int for_ever)
{
    for (uint64_t nth = 1;; nth++) {
        rsi_mem_stats stats;
        bool          same;

        snprintf(t->what, sizeof(t->what), "%s, allocation %d%s", t->bed.c->name, (int)nth,
                 for_ever ? " and all after it" : "");
        begin(t);
        t->bed.no_memory = nth;
        t->bed.for_ever = for_ever;
        same = fault_save_version(&t->bed, 2, t->bed.c->overwrite);
        stats = rsi_mem_stats_get();
        rsi_mem_fail_at(0, 0);
        check(t, same, RSD_E_NOMEM);
        if (stats.calls < nth)
            break;
    }
}

static void the_nth_allocation_fails(void **state)
{
    fault_row row = { .fault = "allocation n fails" };

    (void)state;
    for (const fault_case *c = fault_next_forked(NULL); c; c = fault_next_forked(c)) {
        trial t = { .row = &row, .bytes = rsi_mem_stats_get().bytes };

        fault_bed_open(&t.bed, c, NULL);
        every_allocation(&t, 0);
        every_allocation(&t, 1);
        end(&t);
    }
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

/* ---- system calls ---- */

/* In the short form every n meets one of the errors in turn. */
static const struct {
    const char *name;
    int         error;
} errors[] = { { "EIO", EIO },       { "ENOSPC", ENOSPC }, { "EINTR", EINTR },
               { "EDQUOT", EDQUOT }, { "EROFS", EROFS },   { "EMFILE", EMFILE } };
enum { ERRORS = sizeof(errors) / sizeof(errors[0]) };

/* True: the nth call happened. */
static bool one_call(trial *t, int nth, bool for_ever, int error, const char *name)
{
    bool same;
    int  calls;

    snprintf(t->what, sizeof(t->what), "%s, call %d%s: %s", t->bed.c->name, nth,
             for_ever ? " and all after it" : "", name);
    begin(t);
    faults = (sys_faults){ .at = nth,
                           .for_ever = for_ever,
                           .times = error == EINTR ? AGAIN : 0, /* nobody survives it for ever */
                           .error = error };
    same = fault_save_version(&t->bed, 2, t->bed.c->overwrite);
    calls = faults.calls;
    faults = (sys_faults){ 0 };
    check(t, same, error == EINTR || error == 0 ? RSD_OK : RSD_E_IO);
    return calls >= nth;
}

static void open_faulty(trial *t, const fault_case *c, rsi_file_io io)
{
    fault_bed_open(&t->bed, c, NULL);
    faults = (sys_faults){ 0 };
    for (int32_t r = 0; r < c->ranks; r++)
        t->bed.on[r] = fault_store(&t->bed, &rsi_sys_faulty, io);
}

static void close_faulty(trial *t)
{
    for (int32_t r = 0; r < t->bed.c->ranks; r++)
        rsd_store_close(t->bed.on[r]);
    end(t);
}

static void every_call(trial *t)
{
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        for (int e = 0; e < (fault_long() ? ERRORS : 1); e++) {
            int nth = 1, which = e;

            while (one_call(t, nth, for_ever, errors[which].error, errors[which].name)) {
                nth++;
                which = fault_long() ? e : nth % ERRORS;
            }
        }
    }
}

static void the_nth_system_call_fails(void **state)
{
    fault_row row = { .fault = "system call n fails, once or from then on" };

    (void)state;
    for (const fault_case *c = fault_next_forked(NULL); c; c = fault_next_forked(c)) {
        for (int ring = 0; ring <= fault_long(); ring++) {
            trial t = { .row = &row, .bytes = rsi_mem_stats_get().bytes };

            open_faulty(&t, c, ring ? RSI_FILE_IO_URING : RSI_FILE_IO_THREADS);
            every_call(&t);
            close_faulty(&t);
        }
    }
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

static void transfers_of_one_byte_are_continued(void **state)
{
    fault_row row = { .fault = "read or write n moves one byte" };

    (void)state;
    for (const fault_case *c = fault_next_forked(NULL); c; c = fault_next_forked(c)) {
        trial t = { .row = &row, .bytes = rsi_mem_stats_get().bytes };

        open_faulty(&t, c, RSI_FILE_IO_BEST);
        one_call(&t, 1, true, 0, "one byte"); /* in every place that reads or writes */
        for (int nth = 1; one_call(&t, nth, false, 0, "one byte"); nth += fault_long() ? 1 : 7)
            ;
        close_faulty(&t);
    }
    fault_row_print(&row);
    assert_int_equal(row.found_new, row.tried);
}

/* Only one of the ranks has trouble. */
static void the_nth_system_call_of_one_rank_fails(void **state)
{
    fault_row row = { .fault = "system call n of one rank fails" };

    (void)state;
    for (const fault_case *c = fault_next_forked(NULL); c; c = fault_next_forked(c)) {
        for (int32_t rank = 0; rank < c->ranks && c->ranks > 1; rank += fault_long() ? 1 : 3) {
            trial t = { .row = &row, .bytes = rsi_mem_stats_get().bytes };
            int   nth = 1;

            fault_bed_open(&t.bed, c, NULL);
            faults = (sys_faults){ 0 };
            t.bed.on[rank] = fault_store(&t.bed, &rsi_sys_faulty, RSI_FILE_IO_BEST);
            while (one_call(&t, nth, nth % 2, ENOSPC, "ENOSPC on one rank"))
                nth++;
            rsd_store_close(t.bed.on[rank]);
            end(&t);
        }
    }
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nth_allocation_fails),
        cmocka_unit_test(the_nth_system_call_fails),
        cmocka_unit_test(the_nth_system_call_of_one_rank_fails),
        cmocka_unit_test(transfers_of_one_byte_are_continued),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
