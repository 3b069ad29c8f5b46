/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint is replaced before the nth system call of a load, for every n: what is loaded is the
 * old one or the new one. One that is written to in place is loaded as it was or refused. A save
 * that overwrites it finds it whole too, and nothing foreign in it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "overwriting.h"
#include "store/file.h"
#include "store/store.h"
#include "sys_faults.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OLD = 11, NEW = 22, MOST_CALLS = 100000 };

static char folder[256];

typedef struct disturbed {
    const overwriting_kind *kind;
    char                    path[400];
    atomic_int              left;     /* calls before it happens */
    bool                    each;     /* it happens before all that follow too */
    bool                    in_place; /* a file is written to instead */
    bool                    happened;
} disturbed;

static void each_file(const char *path, void (*visit)(int folder, int to, const char *name), int to)
{
    int            fd = open(path, O_RDONLY | O_DIRECTORY);
    DIR           *dir = fdopendir(fd);
    struct dirent *e;

    assert_non_null(dir);
    while ((e = readdir(dir)) != NULL)
        if (e->d_type == DT_REG)
            visit(fd, to, e->d_name);
    closedir(dir);
}

static void make_old(int dir, int to, const char *name)
{
    const struct timespec long_ago[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };

    (void)to;
    assert_int_equal(utimensat(dir, name, long_ago, 0), 0);
}

static void copy_over(int dir, int to, const char *name)
{
    char    bytes[1 << 16];
    int     in = openat(dir, name, O_RDONLY), out = openat(to, name, O_WRONLY | O_TRUNC);
    ssize_t n = read(in, bytes, sizeof(bytes));

    assert_true(n > 0 && n < (ssize_t)sizeof(bytes));
    assert_true(write(out, bytes, (size_t)n) == n);
    close(in);
    close(out);
}

/* All files of the new one over those of the old one, as stock torch does it. */
static void write_in_place(const disturbed *d)
{
    char other[600];
    int  to = open(d->path, O_RDONLY | O_DIRECTORY);

    snprintf(other, sizeof(other), "%s/other/%s", folder, d->kind->name);
    each_file(other, copy_over, to);
    close(to);
}

static void happen(const char *call, void *arg)
{
    disturbed *d = arg;

    (void)call;
    if (atomic_fetch_sub(&d->left, 1) > 1 || (d->happened && !d->each))
        return;
    d->happened = true;
    if (d->in_place)
        write_in_place(d);
    else
        assert_true(overwriting_save(d->kind, d->path, NEW));
}

static void prepare(disturbed *d, const overwriting_kind *kind)
{
    d->kind = kind;
    d->happened = false;
    snprintf(d->path, sizeof(d->path), "%s/%s", folder, kind->name);
    assert_true(overwriting_save(kind, d->path, OLD));
    if (d->in_place)
        each_file(d->path, make_old, -1);
}

/* One load, disturbed at call n; *number is what was loaded. */
static rsd_err load_at(disturbed *d, int n, int64_t *number, rsd_error *err)
{
    rsi_file_opts opts = { .sys = &rsi_sys_faulty, .io = RSI_FILE_IO_THREADS };
    overwriting   o = { .kind = d->kind };
    rsd_err       rc;

    assert_int_equal(rsi_file_store_open(folder, &opts, &o.store, NULL), RSD_OK);
    snprintf(o.path, sizeof(o.path), "%s", d->kind->name);
    atomic_store(&d->left, n);
    faults = (sys_faults){ .watch = happen, .arg = d };
    rc = overwriting_load(&o, NULL, 1, number, err);
    faults = (sys_faults){ 0 };
    rsd_store_close(o.store);
    return rc;
}

static void a_load_gets_the_old_one_or_the_new_one_whole(void **state)
{
    disturbed d = { 0 };

    (void)state;
    for (int k = 0; k < OVERWRITING_KINDS; k++) {
        int     n = 1, old = 0;
        int64_t number;

        for (bool more = true; more; n++) {
            rsd_error err = { 0 };

            prepare(&d, &overwriting_kinds[k]);
            if (load_at(&d, n, &number, &err))
                fail_msg("%s, replaced at call %d: %s", d.kind->name, n, err.msg);
            if (number != OLD && number != NEW)
                fail_msg("%s, replaced at call %d: mixed", d.kind->name, n);
            old += d.happened && number == OLD;
            more = d.happened && n < MOST_CALLS;
        }
        assert_true(n > 10);
        assert_true(old > 0); /* which was held */
    }
}

static void one_that_is_replaced_again_and_again_is_refused_in_the_end(void **state)
{
    disturbed d = { .each = true };
    rsd_error err = { 0 };
    int64_t   number;

    (void)state;
    prepare(&d, &overwriting_kinds[0]);
    assert_int_equal(load_at(&d, 1, &number, &err), RSD_E_MISMATCH);
    assert_non_null(strstr(err.msg, "was replaced while it was read, 5 times in a row"));
}

static void one_that_is_written_to_in_place_is_loaded_as_it_was_or_refused(void **state)
{
    disturbed d = { .in_place = true };
    char      command[600];
    int       refused = 0;

    (void)state;
    snprintf(command, sizeof(command), "mkdir -p %s/other", folder);
    assert_int_equal(system(command), 0);
    for (int k = 2; k < 4; k++) { /* those without a checksum file */
        snprintf(command, sizeof(command), "%s/other/%s", folder, overwriting_kinds[k].name);
        assert_true(overwriting_save(&overwriting_kinds[k], command, NEW));
        for (int n = 1; n < MOST_CALLS; n++) {
            rsd_error err = { 0 };
            int64_t   number;
            rsd_err   rc;

            prepare(&d, &overwriting_kinds[k]);
            rc = load_at(&d, n, &number, &err);
            if (rc && rc != RSD_E_MISMATCH)
                fail_msg("%s, changed at call %d: %s: %s", d.kind->name, n, rsd_err_name(rc),
                         err.msg);
            if (!rc && number != OLD && number != NEW)
                fail_msg("%s, changed at call %d: mixed", d.kind->name, n);
            refused += rc == RSD_E_MISMATCH;
            if (!d.happened)
                break;
        }
    }
    assert_true(refused > 10);
}

/* ---- a save that overwrites ---- */

/* A checkpoint with a file of that name that was carried along, which only its checksum file tells.
 */
static void make_carried(const char *name, const char *file)
{
    rsd_convert_opts opts = { .size = sizeof(opts), .sync = RSD_NEVER };
    char             from[600], to[600], command[1400];
    rsd_ckpt        *ckpt;

    snprintf(from, sizeof(from), "%s/from", folder);
    snprintf(to, sizeof(to), "%s/%s", folder, name);
    assert_true(overwriting_save(&overwriting_kinds[3], from, OLD));
    snprintf(command, sizeof(command), "echo {} >%s/%s", from, file);
    assert_int_equal(system(command), 0);
    assert_int_equal(rsd_ckpt_open(NULL, from, &ckpt, NULL), RSD_OK);
    assert_int_equal(rsd_convert(ckpt, to, NULL, &opts, NULL), RSD_OK);
    rsd_ckpt_close(ckpt);
    snprintf(command, sizeof(command), "test -e %s/%s && rm -r %s", to, file, from);
    assert_int_equal(system(command), 0);
}

static void one_remover(int dir, int to, const char *name)
{
    (void)to;
    assert_int_equal(unlinkat(dir, name, 0), 0);
}

/* What another writer does to it: the new one has its name, then the old one is removed. */
static void exchange(const char *call, void *arg)
{
    disturbed *d = arg;
    char new[600];

    (void)call;
    if (atomic_fetch_sub(&d->left, 1) != 1)
        return;
    d->happened = true;
    snprintf(new, sizeof(new), "%s/new", folder);
    assert_int_equal(renameat2(AT_FDCWD, new, AT_FDCWD, d->path, RENAME_EXCHANGE), 0);
    each_file(new, one_remover, -1);
    assert_int_equal(rmdir(new), 0);
}

static void a_save_takes_no_file_of_the_old_one_for_a_foreign_one_in_the_new(void **state)
{
    disturbed d = { .happened = true };
    char      command[900];

    (void)state;
    make_carried("a", "config.json");
    make_carried("b", "tokenizer.json");
    snprintf(d.path, sizeof(d.path), "%s/one", folder);
    snprintf(command, sizeof(command), "cd %s && rm -rf one new && cp -r a one && cp -r b new",
             folder);
    for (int n = 1; d.happened && n < MOST_CALLS; n++) {
        rsd_save_opts opts = { .size = sizeof(opts), .overwrite = true, .sync = RSD_NEVER };
        rsi_file_opts file = { .sys = &rsi_sys_faulty, .io = RSI_FILE_IO_THREADS };
        rsd_error     err = { 0 };
        rsd_state    *empty;

        assert_int_equal(system(command), 0);
        assert_int_equal(rsd_state_create(&empty, NULL), RSD_OK);
        assert_int_equal(rsi_file_store_open(folder, &file, &opts.store, NULL), RSD_OK);
        d.happened = false;
        atomic_store(&d.left, n);
        faults = (sys_faults){ .watch = exchange, .arg = &d };
        if (rsd_save("one", NULL, empty, &opts, &err))
            fail_msg("replaced at call %d: %s", n, err.msg);
        faults = (sys_faults){ 0 };
        rsd_store_close(opts.store);
        rsd_state_free(empty);
    }
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "%s/reshard-replaced-XXXXXX",
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
        cmocka_unit_test(a_load_gets_the_old_one_or_the_new_one_whole),
        cmocka_unit_test(one_that_is_replaced_again_and_again_is_refused_in_the_end),
        cmocka_unit_test(one_that_is_written_to_in_place_is_loaded_as_it_was_or_refused),
        cmocka_unit_test(a_save_takes_no_file_of_the_old_one_for_a_foreign_one_in_the_new),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
