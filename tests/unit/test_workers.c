/* SPDX-License-Identifier: Apache-2.0 */
/* test_workers.c - every job runs once, and a failure is reported the same way whatever the
 * threads do. Jobs only note what happened; it is looked at on the caller's thread. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { JOBS = 100000 };

static struct {
    atomic_int        runs[JOBS];
    atomic_int        started;
    size_t            fails_from; /* jobs from this on fail */
    pthread_barrier_t all_in;
    size_t            order[8]; /* of jobs, on one thread */
} seen;

static rsi_workers *workers_of(int threads)
{
    rsi_workers *workers;

    memset(&seen, 0, sizeof(seen));
    seen.fails_from = SIZE_MAX;
    assert_int_equal(rsi_workers_create(threads, &workers, NULL), RSD_OK);
    return workers;
}

static rsd_err note_job(void *arg, size_t i, rsd_error *err)
{
    if (arg != &seen)
        return rsi_fail(err, RSD_E_BUG, "another argument than that given");
    seen.runs[i]++;
    seen.started++;
    return RSD_OK;
}

static void every_job_runs_once_on_several_threads(void **state)
{
    rsi_workers *workers = workers_of(4);

    (void)state;
    assert_int_equal(rsi_workers_run(workers, JOBS, note_job, &seen, NULL), RSD_OK);
    for (size_t i = 0; i < JOBS; i++)
        assert_int_equal(seen.runs[i], 1);
    rsi_workers_free(workers);
}

static void every_job_of_every_round_runs_once(void **state)
{
    rsi_workers *workers = workers_of(3);

    (void)state;
    for (int round = 1; round <= 2000; round++) {
        assert_int_equal(rsi_workers_run(workers, 5, note_job, &seen, NULL), RSD_OK);
        for (int i = 0; i < 5; i++)
            assert_int_equal(seen.runs[i], round);
    }
    assert_int_equal(seen.runs[5], 0);
    rsi_workers_free(workers);
}

static void the_caller_alone_does_all_when_there_are_no_workers(void **state)
{
    rsi_workers *none = workers_of(1);

    (void)state;
    assert_int_equal(rsi_workers_run(NULL, 1000, note_job, &seen, NULL), RSD_OK);
    assert_int_equal(rsi_workers_run(none, 1000, note_job, &seen, NULL), RSD_OK);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(seen.runs[i], 2);
    rsi_workers_free(none);
}

static void no_jobs_is_no_work(void **state)
{
    rsi_workers *workers = workers_of(3);

    (void)state;
    assert_int_equal(rsi_workers_run(workers, 0, note_job, &seen, NULL), RSD_OK);
    assert_int_equal(rsi_workers_run(NULL, 0, note_job, &seen, NULL), RSD_OK);
    assert_int_equal(seen.started, 0);
    rsi_workers_free(workers);
}

static void one_job_runs_once_on_several_threads(void **state)
{
    rsi_workers *workers = workers_of(3);

    (void)state;
    assert_int_equal(rsi_workers_run(workers, 1, note_job, &seen, NULL), RSD_OK);
    assert_int_equal(seen.runs[0], 1);
    assert_int_equal(seen.started, 1);
    rsi_workers_free(workers);
}

static void the_caller_is_counted(void **state)
{
    rsi_workers *one = workers_of(1), *three = workers_of(3);

    (void)state;
    assert_int_equal(rsi_workers_count(NULL), 1);
    assert_int_equal(rsi_workers_count(one), 1);
    assert_int_equal(rsi_workers_count(three), 3);
    rsi_workers_free(one);
    rsi_workers_free(three);
}

static void zero_threads_means_one_for_each_cpu_of_the_process(void **state)
{
    rsi_workers *workers = workers_of(0);
    cpu_set_t    cpus;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
    assert_int_equal(rsi_workers_count(workers), CPU_COUNT(&cpus));
    rsi_workers_free(workers);
}

static void fewer_than_zero_threads_are_refused(void **state)
{
    rsi_workers *workers = NULL;
    rsd_error    err;

    (void)state;
    assert_int_equal(rsi_workers_create(-2, &workers, &err), RSD_E_INVALID);
    assert_string_equal(err.msg, "-2 threads asked for");
    assert_null(workers);
}

static void no_memory_for_the_workers_is_reported(void **state)
{
    rsi_workers *workers = NULL;
    rsd_error    err;

    (void)state;
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        rsi_mem_fail_at(1, for_ever);
        assert_int_equal(rsi_workers_create(4, &workers, &err), RSD_E_NOMEM);
        assert_string_equal(err.msg, "no memory for 4 worker threads");
        assert_null(workers);
    }
    rsi_mem_fail_at(0, 0);
}

static void freeing_no_workers_is_fine(void **state)
{
    (void)state;
    rsi_workers_free(NULL);
}

/* ---- failures ---- */

static rsd_err fail_late_jobs(void *arg, size_t i, rsd_error *err)
{
    int nth = seen.started++;

    (void)arg;
    if (nth < 8)
        seen.order[nth] = i;
    return i >= seen.fails_from ? rsi_fail(err, RSD_E_IO, "job %zu", i) : RSD_OK;
}

static void one_thread_starts_no_job_after_a_failure(void **state)
{
    rsi_workers *workers = workers_of(1);
    rsd_error    err;

    (void)state;
    seen.fails_from = 3;
    assert_int_equal(rsi_workers_run(workers, 100, fail_late_jobs, NULL, &err), RSD_E_IO);
    assert_string_equal(err.msg, "job 3");
    assert_int_equal(seen.started, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(seen.order[i], i);
    seen.started = 0;
    assert_int_equal(rsi_workers_run(NULL, 100, fail_late_jobs, NULL, &err), RSD_E_IO);
    assert_int_equal(seen.started, 4);
    rsi_workers_free(workers);
}

/* All fail, but only when every thread has a job of its own in hand. */
static rsd_err fail_together(void *arg, size_t i, rsd_error *err)
{
    (void)arg;
    seen.started++;
    pthread_barrier_wait(&seen.all_in);
    return i >= seen.fails_from ? rsi_fail(err, (rsd_err)(RSD_E_NOMEM + i), "job %zu", i) : RSD_OK;
}

/* Runs 4 jobs on 4 threads, one on each. */
static rsd_err run_together(rsi_workers *workers, size_t fails_from, rsd_error *err)
{
    rsd_err rc;

    seen.fails_from = fails_from;
    seen.started = 0;
    pthread_barrier_init(&seen.all_in, NULL, 4);
    rc = rsi_workers_run(workers, 4, fail_together, NULL, err);
    pthread_barrier_destroy(&seen.all_in);
    return rc;
}

static void the_error_is_that_of_the_lowest_job_that_failed(void **state)
{
    rsi_workers *workers = workers_of(4);
    rsd_error    err;

    (void)state;
    assert_int_equal(rsi_workers_count(workers), 4);
    for (int round = 0; round < 200; round++) {
        assert_int_equal(run_together(workers, 0, &err), RSD_E_NOMEM);
        assert_string_equal(err.msg, "job 0");
        assert_int_equal(run_together(workers, 1, &err), RSD_E_IO);
        assert_string_equal(err.msg, "job 1");
        assert_int_equal(err.code, RSD_E_IO);
    }
    rsi_workers_free(workers);
}

static void several_threads_start_no_job_after_all_they_had_failed(void **state)
{
    rsi_workers *workers = workers_of(4);

    (void)state;
    seen.fails_from = 0;
    pthread_barrier_init(&seen.all_in, NULL, 4);
    /* Whoever comes back to take a fifth job has seen its own fail. */
    assert_int_equal(rsi_workers_run(workers, 1000, fail_together, NULL, NULL), RSD_E_NOMEM);
    assert_int_equal(seen.started, 4);
    pthread_barrier_destroy(&seen.all_in);
    rsi_workers_free(workers);
}

static void a_failure_is_forgotten_in_the_next_round(void **state)
{
    rsi_workers *workers = workers_of(4);

    (void)state;
    assert_int_equal(run_together(workers, 2, NULL), RSD_E_COMM);
    assert_int_equal(rsi_workers_run(workers, 1000, note_job, &seen, NULL), RSD_OK);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(seen.runs[i], 1);
    rsi_workers_free(workers);
}

static void success_leaves_the_error_alone(void **state)
{
    rsi_workers *workers = workers_of(2);
    rsd_error    err = { .code = 77 };

    (void)state;
    assert_int_equal(rsi_workers_run(workers, 100, note_job, &seen, &err), RSD_OK);
    assert_int_equal(err.code, 77);
    rsi_workers_free(workers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_runs_once_on_several_threads),
        cmocka_unit_test(every_job_of_every_round_runs_once),
        cmocka_unit_test(the_caller_alone_does_all_when_there_are_no_workers),
        cmocka_unit_test(no_jobs_is_no_work),
        cmocka_unit_test(one_job_runs_once_on_several_threads),
        cmocka_unit_test(the_caller_is_counted),
        cmocka_unit_test(zero_threads_means_one_for_each_cpu_of_the_process),
        cmocka_unit_test(fewer_than_zero_threads_are_refused),
        cmocka_unit_test(no_memory_for_the_workers_is_reported),
        cmocka_unit_test(freeing_no_workers_is_fine),
        cmocka_unit_test(one_thread_starts_no_job_after_a_failure),
        cmocka_unit_test(the_error_is_that_of_the_lowest_job_that_failed),
        cmocka_unit_test(several_threads_start_no_job_after_all_they_had_failed),
        cmocka_unit_test(a_failure_is_forgotten_in_the_next_round),
        cmocka_unit_test(success_leaves_the_error_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
