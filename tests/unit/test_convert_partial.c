/* SPDX-License-Identifier: Apache-2.0 */
/* test_convert_partial.c - conversions that end early and go on: canceled, killed, with a full
 * disk, by another number of ranks; sources that change meanwhile. Local files. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "convert_fixture.h"
#include "sys_faults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct place {
    char folder[64], from[96], to[96];
} place;

static place make_place(const char *to)
{
    place p;

    conv_folder(p.folder, sizeof(p.folder));
    snprintf(p.from, sizeof(p.from), "%s/src", p.folder);
    snprintf(p.to, sizeof(p.to), "%s/%s", p.folder, to);
    conv_source(NULL, p.from, RSD_FORMAT_DCP, "mesh tp=3; m.small* replicate; * shard(-1)@tp", true,
                NULL);
    return p;
}

/* Entries of the folder whose name has `text`; the path of the last in path[512]. */
static int count(const place *p, const char *text, char *path)
{
    DIR           *dir = opendir(p->folder);
    struct dirent *entry;
    int            n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        if (strstr(entry->d_name, text)) {
            n++;
            if (path)
                snprintf(path, 512, "%s/%s", p->folder, entry->d_name);
        }
    closedir(dir);
    return n;
}

/* How a run is to end: at which call of its progress, and how. */
typedef struct ending {
    int          calls, at;
    bool         kill;
    int          told;
    char         partial[128];
    const place *again; /* starts another run on this in the middle */
    rsd_err      again_rc;
    const char  *change; /* changes this file in the middle */
} ending;

static rsd_err convert(const place *p, rsd_convert_opts opts, ending *e, rsd_error *err);

static int step(void *arg, int64_t done, int64_t total)
{
    ending   *e = arg;
    rsd_error err;

    (void)done;
    (void)total;
    if (++e->calls != e->at)
        return 0;
    if (e->kill)
        raise(SIGKILL);
    if (e->again)
        e->again_rc = convert(e->again, (rsd_convert_opts){ .resume = true }, NULL, &err);
    if (e->change) {
        struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };

        assert_int_equal(utimensat(AT_FDCWD, e->change, times, 0), 0);
    }
    return !e->again && !e->change;
}

static void kept(void *arg, const char *partial)
{
    ending *e = arg;

    e->told++;
    snprintf(e->partial, sizeof(e->partial), "%s", partial);
}

static rsd_err convert(const place *p, rsd_convert_opts opts, ending *e, rsd_error *err)
{
    opts.sync = RSD_NEVER;
    opts.keep = true;
    if (e) {
        opts.on_progress = step;
        opts.on_kept = kept;
        opts.arg = e;
    }
    return conv_run(NULL, p->from, p->to, opts, err);
}

static const char *const targets[] = { "out", "out.safetensors", "out.pt" };

static void a_canceled_run_goes_on_where_it_was(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (int at = 1; at < 4; at += 2) {
            place     p = make_place(targets[i]);
            ending    e = { .at = at }, second = { 0 };
            rsd_error err;

            assert_int_equal(convert(&p, (rsd_convert_opts){ .threads = 1 }, &e, &err),
                             RSD_E_CANCELED);
            assert_int_equal(e.told, 1);
            assert_int_equal(access(e.partial, F_OK), 0);
            assert_int_equal(access(p.to, F_OK), -1);
            assert_int_equal(
                convert(&p, (rsd_convert_opts){ .resume = true, .threads = 1 }, &second, &err),
                RSD_OK);
            assert_int_equal(count(&p, "partial", NULL), 0);
            conv_same(NULL, p.from, NULL, p.to);
            conv_remove(p.folder);
        }
}

static void a_killed_run_goes_on_where_it_was(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (int at = 1; at < 8; at += 2) {
            place     p = make_place(targets[i]);
            ending    e = { .at = at, .kill = true };
            rsd_error err;
            int       status;
            pid_t     child = fork();

            if (child == 0) {
                convert(&p, (rsd_convert_opts){ .threads = 1 }, &e, &err);
                _exit(0);
            }
            assert_int_equal(waitpid(child, &status, 0), child);
            if (WIFSIGNALED(status)) {
                assert_int_equal(access(p.to, F_OK), -1);
                assert_int_equal(
                    convert(&p, (rsd_convert_opts){ .resume = true, .threads = 2 }, NULL, &err),
                    RSD_OK);
            }
            assert_int_equal(count(&p, "partial", NULL), 0);
            assert_int_equal(count(&p, "tmp-", NULL), 0);
            conv_same(NULL, p.from, NULL, p.to);
            conv_remove(p.folder);
        }
}

enum { BLOCK = 4 << 20 }; /* bytes */

static int64_t reused_of(const place *p)
{
    rsd_convert_stats stats = { .size = sizeof(stats), .reused = -1 };
    rsd_error         err;

    assert_int_equal(
        convert(p, (rsd_convert_opts){ .resume = true, .overwrite = true, .stats = &stats }, NULL,
                &err),
        RSD_OK);
    assert_in_range(stats.reused, 0, stats.bytes);
    return stats.reused;
}

static void the_bytes_that_an_interrupted_run_wrote_are_counted(void **state)
{
    place     p = make_place("out.safetensors");
    ending    e = { .at = 3 };
    rsd_error err;

    (void)state;
    assert_int_equal(reused_of(&p), 0);
    assert_int_equal(convert(&p, (rsd_convert_opts){ .threads = 1, .overwrite = true }, &e, &err),
                     RSD_E_CANCELED);
    assert_int_equal(reused_of(&p), 3 * BLOCK);
    conv_remove(p.folder);
}

static void a_damaged_block_is_written_again(void **state)
{
    place         p = make_place("out.safetensors");
    ending        e = { .at = 3 };
    char          path[160];
    unsigned char byte;
    rsd_error     err;
    int           fd;

    (void)state;
    assert_int_equal(convert(&p, (rsd_convert_opts){ .threads = 1 }, &e, &err), RSD_E_CANCELED);
    snprintf(path, sizeof(path), "%s/tree", e.partial);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, 5000000), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 5000000), 1);
    close(fd);
    assert_int_equal(reused_of(&p), 2 * BLOCK);
    conv_same(NULL, p.from, NULL, p.to);
    conv_remove(p.folder);
}

static void a_file_that_was_cut_short_is_written_again(void **state)
{
    place     p = make_place("out.pt");
    ending    e = { .at = 4 };
    char      path[160];
    rsd_error err;

    (void)state;
    assert_int_equal(convert(&p, (rsd_convert_opts){ .threads = 1 }, &e, &err), RSD_E_CANCELED);
    snprintf(path, sizeof(path), "%s/tree", e.partial);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(convert(&p, (rsd_convert_opts){ .resume = true }, NULL, &err), RSD_OK);
    conv_same(NULL, p.from, NULL, p.to);
    conv_remove(p.folder);
}

static void without_resume_a_run_begins_anew_and_clears_up(void **state)
{
    const rsd_cast cast[] = { { NULL, RSD_F16 } };
    place          p = make_place("out");
    ending         e = { .at = 2 };
    rsd_error      err;

    (void)state;
    assert_int_equal(convert(&p, (rsd_convert_opts){ .casts = cast, .ncasts = 1 }, &e, &err),
                     RSD_E_CANCELED);
    e = (ending){ .at = 2 };
    assert_int_equal(convert(&p, (rsd_convert_opts){ .resume = true }, &e, &err), RSD_E_CANCELED);
    assert_int_equal(count(&p, "partial", NULL), 2); /* another conversion's stays */
    assert_int_equal(convert(&p, (rsd_convert_opts){ 0 }, NULL, &err), RSD_OK);
    assert_int_equal(count(&p, "partial", NULL), 0);
    conv_same(NULL, p.from, NULL, p.to);
    conv_remove(p.folder);
}

static void two_runs_cannot_share_a_folder(void **state)
{
    place     p = make_place("out");
    ending    e = { .at = 2, .again = &p };
    rsd_error err;

    (void)state;
    assert_int_equal(convert(&p, (rsd_convert_opts){ .threads = 1 }, &e, &err), RSD_OK);
    assert_int_equal(e.again_rc, RSD_E_EXISTS);
    conv_same(NULL, p.from, NULL, p.to);
    conv_remove(p.folder);
}

static void a_source_that_changes_is_noticed(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        place     p = make_place("out.safetensors");
        char      file[128];
        ending    e = { .at = 2, .change = file };
        rsd_error err;

        snprintf(file, sizeof(file), "%s/__1_0.distcp", p.from);
        assert_int_equal(convert(&p, (rsd_convert_opts){ .resume = keep }, &e, &err),
                         RSD_E_MISMATCH);
        assert_non_null(strstr(err.msg, "__1_0.distcp\" was changed"));
        assert_int_equal(access(p.to, F_OK), -1);
        assert_int_equal(count(&p, "partial", NULL), 0);
        assert_int_equal(e.told, 0);
        conv_remove(p.folder);
    }
}

/* Converts through a store whose calls fail as `faults` says. */
static rsd_err convert_faulty(const place *p, const char *to, bool resume, rsd_error *err)
{
    rsd_convert_opts opts = {
        .size = sizeof(opts), .sync = RSD_NEVER, .threads = 1, .keep = true, .resume = resume
    };
    sys_faults wanted = faults;
    rsd_ckpt  *ckpt;
    rsd_err    rc;

    faults = (sys_faults){ 0 };
    opts.store = conv_faulty_store(p->folder);
    assert_int_equal(rsd_ckpt_open(NULL, p->from, &ckpt, NULL), RSD_OK);
    faults = wanted;
    rc = rsd_convert(ckpt, to, NULL, &opts, err);
    faults = (sys_faults){ 0 };
    rsd_ckpt_close(ckpt);
    rsd_store_close(opts.store);
    return rc;
}

static void a_full_disk_stops_it_and_it_goes_on_when_there_is_room(void **state)
{
    (void)state;
    for (int at = 1; at < 20; at += 3) {
        place     p = make_place("out");
        rsd_error err;
        rsd_err   rc;

        faults = (sys_faults){ .at = at, .only = "pwrite", .error = ENOSPC, .for_ever = true };
        rc = convert_faulty(&p, "out", false, &err);
        if (rc) {
            assert_int_equal(rc, RSD_E_IO);
            assert_int_equal(err.sys_errno, ENOSPC);
            assert_int_equal(access(p.to, F_OK), -1);
            assert_int_equal(convert_faulty(&p, "out", true, &err), RSD_OK);
        }
        conv_same(NULL, p.from, NULL, p.to);
        assert_int_equal(count(&p, "partial", NULL), 0);
        conv_remove(p.folder);
    }
}

static void count_writes(const char *call, void *arg)
{
    *(int *)arg += strcmp(call, "pwrite") == 0;
}

static void what_is_done_is_not_done_again(void **state)
{
    place     p = make_place("out.safetensors");
    int       whole = 0, rest = 0;
    rsd_error err;

    (void)state;
    faults = (sys_faults){ .watch = count_writes, .arg = &whole };
    assert_int_equal(convert_faulty(&p, "other.safetensors", false, &err), RSD_OK);
    faults = (sys_faults){ .at = 10, .only = "pwrite", .error = ENOSPC };
    assert_int_equal(convert_faulty(&p, "out.safetensors", false, &err), RSD_E_IO);
    faults = (sys_faults){ .watch = count_writes, .arg = &rest };
    assert_int_equal(convert_faulty(&p, "out.safetensors", true, &err), RSD_OK);
    assert_true(rest < whole - 4);
    conv_same(NULL, p.from, NULL, p.to);
    conv_remove(p.folder);
}

static void a_target_that_can_not_be_written_is_an_error(void **state)
{
    place     p = make_place("out");
    rsd_error err;

    (void)state;
    faults = (sys_faults){ .at = 1, .only = "mkdirat", .error = EROFS, .for_ever = true };
    assert_int_equal(convert_faulty(&p, "out", false, &err), RSD_E_IO);
    assert_int_equal(err.sys_errno, EROFS);
    assert_int_equal(count(&p, "out", NULL), 0);
    conv_remove(p.folder);
}

/* Every call fails once: the target is there and right, or it is not there. */
static void every_call_may_fail(void **state)
{
    place p = make_place("out.pt");
    int   n = 0;

    (void)state;
    for (rsd_err rc = RSD_E_IO; rc;) {
        rsd_error err;
        char      path[512] = "";

        faults = (sys_faults){ .at = ++n, .error = EIO };
        rc = convert_faulty(&p, "out.pt", n % 2, &err);
        if (rc &&
            access(p.to, F_OK) == 0) { /* only its checksum file failed, or the last sync did */
            conv_same(NULL, p.from, NULL, p.to);
            unlink(p.to);
        }
        if (n % 2 == 0 && count(&p, "partial", path))
            conv_remove(path);
        assert_true(n < 3000);
    }
    conv_same(NULL, p.from, NULL, p.to);
    conv_remove(p.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_canceled_run_goes_on_where_it_was),
        cmocka_unit_test(a_killed_run_goes_on_where_it_was),
        cmocka_unit_test(the_bytes_that_an_interrupted_run_wrote_are_counted),
        cmocka_unit_test(a_damaged_block_is_written_again),
        cmocka_unit_test(a_file_that_was_cut_short_is_written_again),
        cmocka_unit_test(without_resume_a_run_begins_anew_and_clears_up),
        cmocka_unit_test(two_runs_cannot_share_a_folder),
        cmocka_unit_test(a_source_that_changes_is_noticed),
        cmocka_unit_test(a_full_disk_stops_it_and_it_goes_on_when_there_is_room),
        cmocka_unit_test(what_is_done_is_not_done_again),
        cmocka_unit_test(a_target_that_can_not_be_written_is_an_error),
        cmocka_unit_test(every_call_may_fail),
    };

    if (!fix_has_sums()) /* nothing can be kept then */
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
