/* SPDX-License-Identifier: Apache-2.0 */
/* Two jobs overwrite one checkpoint at the same time: what is left is one of theirs, whole, and a
 * file has the checksums of the job that wrote it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault_row.h"
#include "overwriting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[256];

static int64_t rounds(void)
{
    const char *text = getenv("RESHARD_LOADS");

    return text ? strtoll(text, NULL, 10) / 10 : 20;
}

/* The checksum file exists and matches. */
static bool is_whole(const char *path)
{
    rsd_read_opts opts = { .size = sizeof(opts), .threads = 1 };
    rsd_error     err = { 0 };
    rsd_ckpt     *ckpt;
    size_t        bad = 0;
    rsd_err       rc = rsd_ckpt_open(NULL, path, &ckpt, &err);

    if (!rc) {
        rc = rsd_ckpt_has_checksums(ckpt) ? rsd_ckpt_verify(ckpt, &opts, NULL, NULL, &bad, &err)
                                          : RSD_E_NOTFOUND;
        rsd_ckpt_close(ckpt);
    }
    if (rc || bad)
        print_message("%s: %s, %zu damages: %s\n", path, rsd_err_name(rc), bad, err.msg);
    return !rc && !bad;
}

/* Readers look while both write: the pair is one writer's at every moment. */
static void two_writers_never_mix(const overwriting_kind *kind)
{
    overwriting_counts counts = { .hung = FAULT_NOT_COUNTED };
    overwriting        o;
    char               label[64];

    assert_true(overwriting_begin(&o, kind, folder, 2));
    while (counts.tried < rounds() || atomic_load(o.published) < rounds()) {
        counts.tried++;
        if (is_whole(o.path))
            counts.whole++;
        else
            counts.mixed++;
    }
    assert_true(overwriting_end(&o));
    snprintf(label, sizeof(label), "two writers, %s", kind->name);
    overwriting_row(label, &counts);
    assert_int_equal(counts.mixed, 0);
}

static void two_writers_of_a_folder_never_mix(void **state)
{
    (void)state;
    two_writers_never_mix(&overwriting_kinds[0]);
}

static void two_writers_of_a_safetensors_file_never_mix(void **state)
{
    (void)state;
    two_writers_never_mix(&overwriting_kinds[4]);
}

static void two_writers_of_a_pt_file_never_mix(void **state)
{
    (void)state;
    two_writers_never_mix(&overwriting_kinds[5]);
}

/* Two jobs that end after one save each, again and again: nobody comes after them to put it right.
 */
static void what_two_jobs_leave_is_one_of_theirs(void **state)
{
    overwriting_counts counts = { .hung = FAULT_NOT_COUNTED };
    char               path[300];

    (void)state;
    snprintf(path, sizeof(path), "%s/left.safetensors", folder);
    while (counts.tried++ < rounds()) {
        pid_t job[2];

        for (int i = 0; i < 2; i++) {
            job[i] = fork();
            if (job[i] == 0)
                _exit(overwriting_save(&overwriting_kinds[4], path, counts.tried * 2 + i) ? 0 : 1);
        }
        for (int i = 0; i < 2; i++) {
            int status = 1;

            assert_int_equal(waitpid(job[i], &status, 0), job[i]);
            assert_int_equal(status, 0);
        }
        if (is_whole(path))
            counts.whole++;
        else
            counts.mixed++;
    }
    counts.tried--;
    overwriting_row("two jobs leave one of theirs, safetensors", &counts);
    assert_int_equal(counts.mixed, 0);
}

/* A writer that stopped between its two names has the lock of the folder: others wait for it and do
 * not mix with it. */
static void a_writer_waits_for_the_one_that_publishes(void **state)
{
    char  path[300], command[400];
    int   fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status = 0;
    pid_t job;

    (void)state;
    snprintf(path, sizeof(path), "%s/locked.pt", folder);
    assert_true(overwriting_save(&overwriting_kinds[5], path, 1));
    assert_int_equal(flock(fd, LOCK_EX), 0);
    job = fork();
    if (job == 0) {
        close(fd); /* the lock stays the parent's */
        _exit(overwriting_save(&overwriting_kinds[5], path, 2) ? 0 : 1);
    }
    /* The temporary names show that it has come as far as it can. */
    do {
        if (waitpid(job, &status, WNOHANG) != 0)
            fail_msg("it published although the folder was locked");
        snprintf(command, sizeof(command), "test -e %s/.locked.pt.reshard-sums.tmp-*", folder);
    } while (system(command) != 0);
    assert_true(is_whole(path));
    assert_int_equal(flock(fd, LOCK_UN), 0);
    close(fd);
    assert_int_equal(waitpid(job, &status, 0), job);
    assert_int_equal(status, 0);
    assert_true(is_whole(path));
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "%s/reshard-writers-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"); /* where publishing is fast */
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[300];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_writers_of_a_folder_never_mix),
        cmocka_unit_test(two_writers_of_a_safetensors_file_never_mix),
        cmocka_unit_test(two_writers_of_a_pt_file_never_mix),
        cmocka_unit_test(what_two_jobs_leave_is_one_of_theirs),
        cmocka_unit_test(a_writer_waits_for_the_one_that_publishes),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
