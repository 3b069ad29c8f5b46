/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint is loaded while another process overwrites it as fast as it can: each load gets one
 * save whole, old or new. RESHARD_LOADS says how many loads; tools/run-faults asks for more.
 * Writers wait for ranks that are about to hold a file, and keep nothing meanwhile that these need.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "overwriting.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOKS = 20000 }; /* a few milliseconds at least */

static char folder[256];

typedef struct job {
    const overwriting *o;
    int64_t            loads;
    overwriting_counts counts;
} job;

static int64_t loads(void)
{
    const char *text = getenv("RESHARD_LOADS");

    return text ? strtoll(text, NULL, 10) : 200;
}

static rsd_err on_ranks(void *arg, rsd_comm *comm, rsd_error *err)
{
    job               *j = arg;
    overwriting_counts counts;
    rsd_err            rc = overwriting_loads(j->o, comm, j->loads, &counts, err);

    if (!rc && rsd_comm_rank(comm) == 0)
        j->counts = counts;
    return rc;
}

static void try_kind(const overwriting_kind *kind, int ranks)
{
    overwriting o;
    job         j = { .o = &o, .loads = loads() / (OVERWRITING_KINDS / 2) };
    rsd_error   err = { 0 };
    char        label[64];
    rsd_err     rc;

    assert_true(overwriting_begin(&o, kind, folder, 1));
    if (ranks == 1)
        rc = overwriting_loads(&o, NULL, j.loads, &j.counts, &err);
    else
        rc = rsd_comm_run_threads(ranks, on_ranks, &j, &err);
    assert_true(overwriting_end(&o));
    if (rc)
        fail_msg("%s on %d ranks: %s", kind->name, ranks, err.msg);
    snprintf(label, sizeof(label), "read while overwritten, %s, %d rank%s", kind->name, ranks,
             ranks > 1 ? "s" : "");
    overwriting_row(label, &j.counts);
    assert_int_equal(j.counts.mixed, 0);
    assert_true(j.counts.whole * 100 >= j.counts.tried * 99);
}

static void one_process_loads_the_old_or_the_new_checkpoint_whole(void **state)
{
    (void)state;
    for (int i = 0; i < OVERWRITING_KINDS; i++)
        try_kind(&overwriting_kinds[i], 1);
}

static void four_ranks_load_the_old_or_the_new_checkpoint_whole(void **state)
{
    (void)state;
    for (int i = 0; i < OVERWRITING_KINDS; i++)
        try_kind(&overwriting_kinds[i], 4);
}

/* Where rank 0 has locked the file and the others come, the second file and the lock of the folder
 * are theirs to take. */
static void a_writer_that_waits_for_readers_lets_them_in(void **state)
{
    overwriting o = { .kind = &overwriting_kinds[4] };
    int         dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd, status = 1;
    char        side[600];
    rsd_error   err = { 0 };
    int64_t     number;
    struct stat mine, now;
    pid_t       child;

    (void)state;
    snprintf(o.path, sizeof(o.path), "%s/locked.safetensors", folder);
    snprintf(side, sizeof(side), "%s.reshard-sums", o.path);
    assert_true(overwriting_save(o.kind, o.path, 1));
    fd = open(o.path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &mine), 0);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    child = fork();
    if (child == 0) {
        close(fd); /* the lock stays the parent's */
        _exit(overwriting_save(o.kind, o.path, 2) ? 0 : 1);
    }
    for (int i = 0; i < LOOKS; i++) {
        assert_int_equal(flock(dir, LOCK_SH), 0);
        assert_int_equal(stat(o.path, &now), 0);
        assert_int_equal(now.st_ino, mine.st_ino);
        assert_int_equal(access(side, F_OK), 0);
        assert_int_equal(flock(dir, LOCK_UN), 0);
    }
    assert_int_equal(waitpid(child, &status, WNOHANG), 0);
    assert_int_equal(flock(fd, LOCK_UN), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(fd);
    close(dir);
    assert_int_equal(overwriting_load(&o, NULL, 0, &number, &err), RSD_OK);
    assert_int_equal(number, 2);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "%s/reshard-overwritten-XXXXXX",
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
        cmocka_unit_test(one_process_loads_the_old_or_the_new_checkpoint_whole),
        cmocka_unit_test(four_ranks_load_the_old_or_the_new_checkpoint_whole),
        cmocka_unit_test(a_writer_that_waits_for_readers_lets_them_in),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
