/* SPDX-License-Identifier: Apache-2.0 */
/* Signals become a flag that work under way sees, and an exit code. Each test that raises one does
 * it in a process of its own. */
#include "cli.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

static const option_spec options[] = { OPTIONS_PROGRESS, { 0 } };
static const command     cmd = { .name = "test", .operands = "", .options = options };

/* What a process ends with in which `sig` came `times` times during some work. */
static int end_after(int sig, int times)
{
    pid_t pid = fork();
    int   status;

    if (pid == 0) {
        const rsd_error err = { .code = RSD_E_CANCELED, .msg = "canceled" };
        args            a = { .cmd = &cmd };
        progress        p;

        progress_begin(&p, &a, "working");
        if (progress_step(&p, 1, 2) != 0)
            _exit(99);
        for (int i = 0; i < times; i++)
            raise(sig);
        if (progress_step(&p, 1, 2) != 1)
            _exit(98);
        progress_end(&p);
        _exit((fail)(&a, &err)); /* cmocka has a macro of that name */
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void the_first_signal_cancels_and_gives_its_code(void **state)
{
    (void)state;
    assert_int_equal(end_after(SIGINT, 1), 130);
    assert_int_equal(end_after(SIGTERM, 1), 143);
}

static void the_second_signal_still_waits_and_the_third_ends_at_once(void **state)
{
    (void)state;
    assert_int_equal(end_after(SIGTERM, 2), 143);
    assert_int_equal(end_after(SIGINT, 3), -SIGINT);
    assert_int_equal(end_after(SIGTERM, 3), -SIGTERM);
}

static void every_error_has_its_exit_code(void **state)
{
    static const struct {
        rsd_err code;
        int     end;
    } table[] = {
        { RSD_OK, 0 },         { RSD_E_INVALID, 2 },
        { RSD_E_MISMATCH, 2 }, { RSD_E_UNSUPPORTED, 3 },
        { RSD_E_NOTFOUND, 3 }, { RSD_E_EXISTS, 3 },
        { RSD_E_FORMAT, 4 },   { RSD_E_CORRUPT, 4 },
        { RSD_E_NOMEM, 3 },    { RSD_E_IO, 3 },
        { RSD_E_COMM, 3 },     { RSD_E_TIMEOUT, 3 },
        { RSD_E_CANCELED, 3 }, { RSD_E_BUG, 3 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        assert_int_equal(exit_code(&(rsd_error){ .code = (int32_t)table[i].code }), table[i].end);
}

/* Without the timer it would wait for ever; the test's own alarm ends that. */
static void work_that_does_not_look_is_ended(void **state)
{
    pid_t pid = fork();
    int   status;

    (void)state;
    if (pid == 0) {
        signals_watch();
        raise(SIGTERM);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    alarm(60);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    alarm(0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 128 + SIGTERM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_signal_cancels_and_gives_its_code),
        cmocka_unit_test(the_second_signal_still_waits_and_the_third_ends_at_once),
        cmocka_unit_test(work_that_does_not_look_is_ended),
        cmocka_unit_test(every_error_has_its_exit_code),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
