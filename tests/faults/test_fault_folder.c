/* SPDX-License-Identifier: Apache-2.0 */
/* test_fault_folder.c - saves inside a folder with other files (C8) are disturbed: each system call
 * fails, the process is killed before each one, the power is cut after each change. The checkpoint
 * is the old or the new one, the other files stay, and the next save succeeds. Also two writers and
 * a reader at once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "crash_store.h"
#include "fault_row.h"
#include "folder_case.h"
#include "store/file.h"
#include "sys_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OLD = 2, NEW = 3, RANKS = 2, FEW = 8, MORE = 16, ROUNDS = 40 };

static char top[128];

static bool all(void)
{
    return getenv("RESHARD_FAULTS") != NULL;
}

static const char *below(const char *name)
{
    static char full[4][200];
    static int  next;

    next = (next + 1) % 4;
    snprintf(full[next], sizeof(full[next]), "%s/%s", top, name);
    return full[next];
}

static rsd_store *open_store(const rsi_sys *sys)
{
    rsi_file_opts opts = { .sys = sys, .io = RSI_FILE_IO_THREADS, .threads = 1 };
    rsd_store    *store;

    assert_int_equal(rsi_file_store_open(top, &opts, &store, NULL), RSD_OK);
    return store;
}

static void put_foreign(void)
{
    FILE *f = fopen(below("ck/meta.pt"), "w");

    assert_non_null(f);
    fputs("theirs", f);
    fclose(f);
}

static bool has_foreign(void)
{
    char  text[16] = "";
    FILE *f = fopen(below("ck/meta.pt"), "r");

    if (!f)
        return false;
    if (!fgets(text, sizeof(text), f))
        text[0] = 0;
    fclose(f);
    return strcmp(text, "theirs") == 0;
}

/* A folder with other files and two generations: the old one and the one before it. */
static void make_bed(void)
{
    folder_how how = { .ranks = RANKS, .sync = RSD_NEVER };
    char       command[200];

    snprintf(command, sizeof(command), "rm -rf '%s/ck'", top);
    assert_int_equal(system(command), 0);
    assert_int_equal(mkdir(below("ck"), 0755), 0);
    put_foreign();
    for (int gen = 1; gen <= OLD; gen++)
        assert_int_equal(folder_save(below("ck"), gen, &how, NULL), RSD_OK);
}

/* What is there: OLD or NEW, anything else is lost; and the next save succeeds and leaves no more
 * than two generations. */
static int look(void)
{
    folder_how how = { .ranks = RANKS, .sync = RSD_NEVER };
    rsd_error  err = { .code = 0 };
    int        found = folder_generation(NULL, below("ck"), &err);

    if (found != OLD && found != NEW)
        print_message("generation %d: %s\n", found, err.msg);
    assert_true(has_foreign());
    for (int gen = 7; gen <= 8; gen++)
        assert_int_equal(folder_save(below("ck"), gen, &how, NULL), RSD_OK);
    assert_int_equal(folder_generation(NULL, below("ck"), NULL), 8);
    return found;
}

static void count(fault_row *row, int found)
{
    row->tried++;
    row->found_old += found == OLD;
    row->found_new += found == NEW;
    row->lost += found != OLD && found != NEW;
}

/* ---- system calls fail ---- */

static void each_call_may_fail_and_the_checkpoint_is_the_old_or_the_new_one(void **state)
{
    static const int errors[] = { EIO, ENOSPC, EMFILE };
    fault_row row = { .fault = "in a folder: system call n fails", .hung = FAULT_NOT_COUNTED };

    (void)state;
    for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++)
        for (int mode = 0; mode < 2; mode++) {
            bool hit = true;

            for (int nth = 1; hit; nth += all() ? 1 : 5) {
                folder_how how = { .store = open_store(&rsi_sys_faulty), .ranks = RANKS };
                rsd_err    rc;
                int        found;

                make_bed();
                faults = (sys_faults){ .at = nth, .for_ever = mode, .error = errors[e] };
                rc = folder_save("ck", NEW, &how, NULL);
                hit = faults.calls >= nth;
                faults = (sys_faults){ 0 };
                rsd_store_close(how.store);
                found = look();
                count(&row, found);
                row.refused += rc != RSD_OK;
                row.silent += rc == RSD_OK && found != NEW;
            }
        }
    fault_row_print(&row);
    assert_int_equal(row.lost + row.silent, 0);
    assert_true(row.tried > 100);
}

/* ---- the process is killed ---- */

static atomic_int calls_left;

static void die(const char *call, void *arg)
{
    (void)call, (void)arg;
    if (atomic_fetch_sub(&calls_left, 1) == 1)
        kill(getpid(), SIGKILL);
}

static void a_killed_writer_leaves_the_old_or_the_new_checkpoint(void **state)
{
    fault_row row = { .fault = "in a folder: killed before system call n",
                      .silent = FAULT_NOT_COUNTED,
                      .hung = FAULT_NOT_COUNTED };
    bool      killed = true;

    (void)state;
    for (int nth = 1; killed; nth += all() ? 1 : 3) {
        int   status;
        pid_t child;

        make_bed();
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            folder_how how = { .store = open_store(&rsi_sys_faulty), .ranks = RANKS };

            atomic_store(&calls_left, nth);
            faults = (sys_faults){ .watch = die };
            _exit(folder_save("ck", NEW, &how, NULL) ? 1 : 0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        killed = WIFSIGNALED(status);
        count(&row, look());
    }
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
    assert_true(row.tried > 20 && row.found_new > 0);
}

/* ---- the power is cut ---- */

typedef struct cut {
    fault_row *row;
    bool       returned;
} cut;

static void look_after_cut(void *arg)
{
    cut       *c = arg;
    rsd_store *store = fix_store();
    rsd_error  err = { .code = 0 };
    int        found;
    bool       fine;

    crash_put(store, true);
    found = folder_generation(store, "ck", &err);
    fine = found == NEW || (found == OLD && !c->returned);
    c->row->tried++;
    c->row->found_old += found == OLD;
    c->row->found_new += found == NEW;
    c->row->lost += !fine;
    if (!fine)
        print_message("generation %d: %s\n", found, err.msg);
    rsd_store_close(store);
}

static void cut_everywhere(fault_row *row)
{
    folder_how how = { .store = open_store(crash_sys()), .ranks = RANKS };
    cut        c = { .row = row };
    int        n;

    make_bed();
    crash_start(top);
    assert_int_equal(folder_save("ck", NEW, &how, NULL), RSD_OK);
    n = crash_changes();
    for (int after = 0; after <= n; after++) {
        c.returned = after == n;
        crash_cut(after, FEW, all() ? 300 : MORE, (uint64_t)after, look_after_cut, &c);
    }
    crash_end();
    rsd_store_close(how.store);
}

static void a_power_cut_leaves_the_old_or_the_new_checkpoint(void **state)
{
    fault_row row = { .fault = "in a folder: power cut",
                      .silent = FAULT_NOT_COUNTED,
                      .hung = FAULT_NOT_COUNTED };

    (void)state;
    cut_everywhere(&row);
    fault_row_print(&row);
    assert_int_equal(row.lost, 0);
    assert_true(row.found_old > 0 && row.found_new > 0);
}

static void a_failed_sync_is_an_error(void **state)
{
    fault_row row = { .fault = "in a folder: sync n fails, then a power cut",
                      .hung = FAULT_NOT_COUNTED };
    bool      hit = true;

    (void)state;
    for (int nth = 1; hit; nth++) {
        folder_how how = { .store = open_store(crash_sys()), .ranks = RANKS };
        cut        c = { .row = &row };
        rsd_err    rc;

        make_bed();
        crash_start(top);
        crash_fail_sync(nth, false);
        rc = folder_save("ck", NEW, &how, NULL);
        hit = crash_syncs() >= nth;
        row.refused += rc != RSD_OK;
        row.silent += hit && rc == RSD_OK;
        crash_cut(crash_changes(), FEW, MORE, 1, look_after_cut, &c);
        crash_end();
        rsd_store_close(how.store);
    }
    fault_row_print(&row);
    assert_int_equal(row.lost + row.silent, 0);
    assert_true(row.refused > 2);
}

/* ---- two writers and a reader ---- */

/* Saves at least once, so that there is a new checkpoint however few turns this process gets. */
static void write_until(int gen, atomic_int *stop)
{
    folder_how how = { .sync = RSD_NEVER };
    rsd_error  err = { .code = 0 };

    do {
        if (folder_save(below("ck"), 10 + gen % 100, &how, &err)) {
            print_message("a save beside another failed: %s\n", err.msg);
            _exit(1);
        }
        gen += 2;
    } while (!atomic_load(stop));
    _exit(0);
}

static void two_writers_and_a_reader_never_mix(void **state)
{
    fault_row row = { .fault = "in a folder: two writers, one reader", .hung = FAULT_NOT_COUNTED };
    char      name[160];
    atomic_int *stop;
    pid_t       child[2];
    int         shared;

    (void)state;
    make_bed();
    stop = mmap(NULL, sizeof(*stop), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(stop != MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] == 0)
            write_until(i, stop);
    }
    snprintf(name, sizeof(name), "%s", below("ck"));
    shared = all() ? 2000 : ROUNDS;
    for (int i = 0; i < shared; i++) {
        rsd_error err = { .code = 0 };
        int       found = folder_generation(NULL, name, &err);

        row.tried++;
        row.found_new += found > 0;
        row.refused += found == 0;
        row.silent += found < 0 && !err.code;
        row.refused += found < 0 && err.code;
        if (found <= 0)
            print_message("a read beside two writers: %s\n", err.code ? err.msg : "mixed");
    }
    atomic_store(stop, 1);
    for (int i = 0; i < 2; i++) {
        int status;

        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_int_equal(status, 0);
    }
    fault_row_print(&row);
    assert_int_equal(row.silent, 0);
    assert_true(row.found_new > 0);
    assert_in_range(folder_generation(NULL, name, NULL), 10, 109);
    assert_true(has_foreign());
}

/* ---- */

static int make_top(void **state)
{
    const char *folder = getenv("RESHARD_FAULTS_FOLDER");

    (void)state;
    snprintf(top, sizeof(top), "%s/reshard-fault-folder-XXXXXX",
             folder                          ? folder
             : access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                             : "/tmp");
    return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
    char command[200];

    (void)state;
    snprintf(command, sizeof(command), "rm -r '%s'", top);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_may_fail_and_the_checkpoint_is_the_old_or_the_new_one),
        cmocka_unit_test(a_killed_writer_leaves_the_old_or_the_new_checkpoint),
        cmocka_unit_test(a_power_cut_leaves_the_old_or_the_new_checkpoint),
        cmocka_unit_test(a_failed_sync_is_an_error),
        cmocka_unit_test(two_writers_and_a_reader_never_mix),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
