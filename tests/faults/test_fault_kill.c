/* SPDX-License-Identifier: Apache-2.0 */
/* test_fault_kill.c - a process that saves is killed before its nth system call, for every n: what
 * has the name is the old checkpoint or the new one, and the next save leaves nothing else. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault_case.h"
#include "sys_faults.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int calls_left;

static void die(const char *call, void *arg)
{
    (void)call, (void)arg;
    if (atomic_fetch_sub(&calls_left, 1) == 1)
        kill(getpid(), SIGKILL);
}

/* True: it was killed, or the child that writes for it; false: it had fewer calls and has saved. */
static bool save_and_die(fault_bed *bed, int nth)
{
    int   status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        atomic_store(&calls_left, nth);
        faults = (sys_faults){ .watch = die };
        fault_save_version(bed, 2, bed->c->overwrite);
        _exit(bed->rc[0] ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    while (waitpid(-1, NULL, 0) > 0) /* what it forked ends when it has */
        ;
    if (WIFSIGNALED(status)) {
        assert_int_equal(WTERMSIG(status), SIGKILL);
        return true;
    }
    assert_true(WEXITSTATUS(status) == 0 || bed->c->forked);
    return WEXITSTATUS(status) != 0;
}

static void kill_everywhere(fault_bed *bed, fault_row *row)
{
    bool killed = true;

    for (int nth = 1; killed; nth++) {
        fault_found found;

        killed = save_and_die(bed, nth);
        found = fault_look(bed);
        fault_count(row, bed, found);
        if (found == FAULT_LOST || (bed->c->overwrite && found == FAULT_NONE))
            fail_msg("%s: killed before call %d, the checkpoint is lost", bed->c->name, nth);
        if (!killed)
            assert_int_equal(found, FAULT_NEW);
        fault_reset(bed);
    }
    assert_true(row->tried > 20);
}

static void a_process_that_is_killed_leaves_the_old_or_the_new_checkpoint(void **state)
{
    fault_row row = { .fault = "killed before system call n",
                      .silent = FAULT_NOT_COUNTED, /* it never says anything */
                      .hung = FAULT_NOT_COUNTED };

    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    for (const fault_case *c = fault_next_forked(NULL); c; c = fault_next_forked(c)) {
        fault_bed bed;

        fault_bed_open(&bed, c, NULL);
        faults = (sys_faults){ 0 };
        for (int32_t r = 0; r < c->ranks; r++)
            bed.on[r] = fault_store(&bed, &rsi_sys_faulty, RSI_FILE_IO_BEST);
        kill_everywhere(&bed, &row);
        for (int32_t r = 0; r < c->ranks; r++)
            rsd_store_close(bed.on[r]);
        fault_bed_close(&bed);
    }
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_that_is_killed_leaves_the_old_or_the_new_checkpoint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
