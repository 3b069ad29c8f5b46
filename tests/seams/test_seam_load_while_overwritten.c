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

#include "fake_hosts.h"
#include "overwriting.h"
#include "store/file.h"
#include "sys_faults.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STEPS = 1000
}; /* system calls of a writer; it waits for readers for several times as many */

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

/* `apart`: the ranks are on two machines, or else threads. */
static void try_kind(const overwriting_kind *kind, int ranks, bool apart)
{
    fake_hosts  hosts = { .ranks = ranks, .per_host = (ranks + 1) / 2, .blind = true };
    overwriting o;
    job         j = { .o = &o, .loads = loads() / (OVERWRITING_KINDS / 2) };
    rsd_error   err = { 0 };
    char        label[64];
    rsd_err     rc;

    assert_true(overwriting_begin(&o, kind, folder, 1));
    if (ranks == 1)
        rc = overwriting_loads(&o, NULL, j.loads, &j.counts, &err);
    else if (apart)
        rc = fake_hosts_run(&hosts, on_ranks, &j, &err);
    else
        rc = rsd_comm_run_threads(ranks, on_ranks, &j, &err);
    assert_true(overwriting_end(&o));
    if (rc)
        fail_msg("%s on %d ranks: %s", kind->name, ranks, err.msg);
    snprintf(label, sizeof(label), "read while overwritten, %s, %d rank%s%s", kind->name, ranks,
             ranks > 1 ? "s" : "", apart ? " apart" : "");
    overwriting_row(label, &j.counts);
    assert_true(overwriting_ok(&j.counts));
}

static void one_process_loads_the_old_or_the_new_checkpoint_whole(void **state)
{
    (void)state;
    for (int i = 0; i < OVERWRITING_KINDS; i++)
        try_kind(&overwriting_kinds[i], 1, false);
}

static void four_ranks_load_the_old_or_the_new_checkpoint_whole(void **state)
{
    (void)state;
    for (int i = 0; i < OVERWRITING_KINDS; i++)
        try_kind(&overwriting_kinds[i], 4, false);
}

static void ranks_of_two_machines_load_the_old_or_the_new_checkpoint_whole(void **state)
{
    (void)state;
    for (int i = 0; i < OVERWRITING_KINDS; i++)
        try_kind(&overwriting_kinds[i], 4, true);
}

/* A process that overwrites `path` and waits for leave before each of its system calls. */
typedef struct stepping {
    pid_t pid;
    int   fd;
    bool  freely;
} stepping;

static void ask_for_leave(const char *call, void *arg)
{
    stepping *s = arg;
    char      answer = 0;

    (void)call;
    if (s->freely)
        return;
    if (write(s->fd, "?", 1) != 1 || read(s->fd, &answer, 1) != 1)
        _exit(2);
    s->freely = answer == 'f';
}

static void start_stepping(stepping *s, const char *name, int close_fd)
{
    rsi_file_opts file = { .sys = &rsi_sys_faulty, .io = RSI_FILE_IO_THREADS };
    rsd_save_opts opts = {
        .size = sizeof(opts), .overwrite = true, .sync = RSD_NEVER, .threads = 1
    };
    int        end[2];
    rsd_state *empty;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end), 0);
    s->pid = fork();
    s->fd = end[s->pid == 0];
    close(end[s->pid != 0]);
    if (s->pid != 0)
        return;
    close(close_fd); /* a lock on it stays the parent's */
    if (rsd_state_create(&empty, NULL) || rsi_file_store_open(folder, &file, &opts.store, NULL))
        _exit(1);
    faults = (sys_faults){ .watch = ask_for_leave, .arg = s };
    _exit(rsd_save(name, NULL, empty, &opts, NULL) ? 1 : 0);
}

/* Where rank 0 has locked the file and the others come, the second file and the lock of the folder
 * are theirs to take. */
static void a_writer_that_waits_for_readers_lets_them_in(void **state)
{
    const overwriting_kind *kind = &overwriting_kinds[4];
    int                     dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd, status = 1;
    int                     in = 0;
    char                    path[300], side[400], asked;
    struct stat             mine, now;
    stepping                s = { 0 };

    (void)state;
    snprintf(path, sizeof(path), "%s/locked.safetensors", folder);
    snprintf(side, sizeof(side), "%s.reshard-sums", path);
    assert_true(overwriting_save(kind, path, 1));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &mine), 0);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    start_stepping(&s, "locked.safetensors", fd);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(read(s.fd, &asked, 1), 1); /* it stands still now */
        assert_int_equal(stat(path, &now), 0);
        assert_int_equal(now.st_ino, mine.st_ino);
        assert_int_equal(access(side, F_OK), 0);
        if (i >= STEPS / 2) /* it waits by then */
            in += flock(dir, LOCK_SH | LOCK_NB) == 0;
        assert_int_equal(flock(dir, LOCK_UN), 0);
        assert_int_equal(write(s.fd, "o", 1), 1);
    }
    assert_true(in > STEPS / 20);
    assert_int_equal(flock(fd, LOCK_UN), 0);
    assert_int_equal(read(s.fd, &asked, 1), 1);
    assert_int_equal(write(s.fd, "f", 1), 1);
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    assert_int_equal(status, 0);
    assert_int_equal(stat(path, &now), 0);
    assert_int_not_equal(now.st_ino, mine.st_ino);
    close(s.fd);
    close(fd);
    close(dir);
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
        cmocka_unit_test(ranks_of_two_machines_load_the_old_or_the_new_checkpoint_whole),
        cmocka_unit_test(a_writer_that_waits_for_readers_lets_them_in),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
