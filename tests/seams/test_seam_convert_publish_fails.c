/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion that fails while it publishes keeps what it has done, says so only if it is true,
 * and goes on from there. Each call that gives names or writes metadata fails in turn. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash128.h"
#include "convert_fixture.h"
#include "fault_row.h"
#include "store/file.h"
#include "sys_faults.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct run {
    const char *folder, *to;
    bool        overwrite, resume;
    int64_t     done, total;   /* as it was told last */
    char        kept[160];     /* "": nothing was said */
    int         writes, calls; /* calls: of the kind that is counted */
} run;

/* Of all failures: how they ended. */
static struct {
    int tried, refused, lost, silent, hung;
} seen;

static int progress(void *arg, int64_t done, int64_t total)
{
    run *r = arg;

    r->done = done;
    r->total = total;
    return 0;
}

static void kept(void *arg, const char *partial)
{
    run *r = arg;

    snprintf(r->kept, sizeof(r->kept), "%s/%s", r->folder, partial);
}

static void watch(const char *call, void *arg)
{
    run *r = arg;

    r->writes += strcmp(call, "pwrite") == 0;
}

/* The source is "src" in the folder; calls fail as `wanted` says. */
static rsd_err convert(run *r, sys_faults wanted, rsd_error *err)
{
    rsi_file_opts    how = { .sys = &rsi_sys_faulty, .io = RSI_FILE_IO_THREADS };
    rsd_convert_opts opts = { .size = sizeof(opts),
                              .threads = 1,
                              .keep = true,
                              .resume = r->resume,
                              .overwrite = r->overwrite,
                              .on_progress = progress,
                              .on_kept = kept,
                              .arg = r };
    char             from[128];
    rsd_ckpt        *ckpt;
    time_t           start = time(NULL);
    rsd_err          rc;

    faults = (sys_faults){ 0 };
    snprintf(from, sizeof(from), "%s/src", r->folder);
    assert_int_equal(rsi_file_store_open(r->folder, &how, &opts.store, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_open(NULL, from, &ckpt, NULL), RSD_OK);
    r->done = r->total = 0;
    r->writes = 0;
    r->kept[0] = 0;
    faults = wanted;
    faults.watch = watch;
    faults.arg = r;
    rc = rsd_convert(ckpt, r->to, NULL, &opts, err);
    r->calls = faults.calls;
    seen.hung += time(NULL) - start > FAULT_HUNG;
    faults = (sys_faults){ 0 };
    rsd_ckpt_close(ckpt);
    rsd_store_close(opts.store);
    return rc;
}

static bool has_tree(const run *r)
{
    char path[200];

    snprintf(path, sizeof(path), "%s/tree", r->kept);
    return r->kept[0] && access(path, F_OK) == 0;
}

/* Which file or folder has the name; 0: none. */
static ino_t number_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* The nth call of a kind fails, then it is resumed. */
static void fail_and_resume(run *r, sys_faults fault)
{
    char      path[128], from[128];
    ino_t     before;
    rsd_error err;
    rsd_err   rc;

    snprintf(path, sizeof(path), "%s/%s", r->folder, r->to);
    snprintf(from, sizeof(from), "%s/src", r->folder);
    before = number_of(path);
    r->resume = false;
    rc = convert(r, fault, &err);
    seen.tried++;
    seen.refused += rc != RSD_OK;
    if (rc && number_of(path) == before) {
        bool all = r->done == r->total && r->total > 0; /* so it failed while publishing */

        seen.silent += r->kept[0] && !has_tree(r); /* it said what is not true */
        seen.lost += all && !has_tree(r);
        r->resume = true;
        assert_int_equal(convert(r, (sys_faults){ 0 }, &err), RSD_OK);
        if (all)
            assert_true(r->writes <= 3); /* the journal's head, metadata, checksums */
    } else if (rc) {
        assert_int_equal(r->kept[0], 0); /* it is published, only its checksums are not */
    }
    conv_same(NULL, from, NULL, path);
    if (!r->overwrite)
        conv_remove(path);
}

/* The last calls of a kind fail one after the other: those of publishing, and a few before. */
static void last_calls_fail(const char *call, int error, bool for_ever)
{
    static const char *const targets[] = { "out", "out.safetensors" };

    for (size_t i = 0; i < 2; i++)
        for (int overwrite = 0; overwrite < 2; overwrite++) {
            char folder[64], path[128];
            run  r = { .folder = folder, .to = targets[i], .overwrite = overwrite };
            int  calls;

            conv_folder(folder, sizeof(folder));
            snprintf(path, sizeof(path), "%s/src", folder);
            conv_source(NULL, path, RSD_FORMAT_DCP, NULL, true, NULL);
            for (int k = 0; k <= overwrite; k++)
                assert_int_equal(convert(&r, (sys_faults){ .only = call }, NULL), RSD_OK);
            calls = r.calls;
            assert_true(calls > 0);
            snprintf(path, sizeof(path), "%s/%s", folder, r.to);
            if (!overwrite)
                conv_remove(path);
            for (int n = calls > 6 ? calls - 6 : 1; n <= calls; n++)
                fail_and_resume(
                    &r,
                    (sys_faults){ .at = n, .only = call, .error = error, .for_ever = for_ever });
            conv_remove(folder);
        }
}

static void a_full_disk_while_publishing_loses_no_work(void **state)
{
    (void)state;
    last_calls_fail("pwrite", ENOSPC, true);
    last_calls_fail("openat", ENOSPC, false);
    last_calls_fail("renameat2", ENOSPC, true);
    assert_int_equal(seen.lost, 0);
    assert_int_equal(seen.silent, 0);
    assert_int_equal(seen.hung, 0);
}

static void a_sync_that_fails_while_publishing_loses_no_work(void **state)
{
    (void)state;
    last_calls_fail("fsync", EIO, false);
    assert_int_equal(seen.lost, 0);
    assert_int_equal(seen.silent, 0);
    assert_int_equal(seen.hung, 0);
}

/* For the table of `make test-faults`. */
static int print_row(void **state)
{
    (void)state;
    fault_row_print(&(fault_row){ .fault = "full disk while publishing with keep",
                                  .tried = seen.tried,
                                  .found_new = seen.tried,
                                  .refused = seen.refused,
                                  .lost = seen.lost,
                                  .silent = seen.silent,
                                  .hung = seen.hung });
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_full_disk_while_publishing_loses_no_work, print_row),
        cmocka_unit_test(a_sync_that_fails_while_publishing_loses_no_work),
    };

    if (!rsi_hash128_available()) /* nothing can be kept then */
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
