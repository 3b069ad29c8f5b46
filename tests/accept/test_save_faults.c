/* SPDX-License-Identifier: Apache-2.0 */
/* test_save_faults.c - what goes wrong on some ranks goes wrong on all, with every rank that failed
 * listed; the previous checkpoint stays, and the next save leaves nothing but itself. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "comm/comm.h"
#include "store/file.h"
#include "sys_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, ROWS = 1024 };

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        rsd_error was = *err;                                                                      \
                                                                                                   \
        if (!(x))                                                                                  \
            return rsi_fail(err, RSD_E_BUG, "%s:%d: %s: rank %d, %d failed, \"%s\"", __FILE__,     \
                            __LINE__, #x, (int)was.rank, (int)was.nfailed, was.msg);               \
    } while (0)

/* One save by four ranks. */
typedef struct bed {
    char           top[64];
    const char    *path; /* below it */
    const rsi_sys *sys[RANKS];
    rsd_save_opts  opts;
    int32_t        version;
    rsd_err        want;
    const char    *text;          /* in the error of all ranks */
    int32_t        rank, nfailed; /* as the error has them; rank -1: any */
    int32_t        failed[RANKS]; /* [nfailed] */
    int32_t        away;          /* a rank that does not save; -1: none */
    bool           stays;         /* it waits until the others have given up, else it leaves */
} bed;

static rsd_store *open_store(const bed *b, const rsi_sys *sys)
{
    const rsi_file_opts opts = { .sys = sys, .io = RSI_FILE_IO_THREADS, .threads = 1 };
    rsd_store          *store = NULL;

    rsi_file_store_open(b->top, &opts, &store, NULL);
    return store;
}

/* What a rank does that does not save. */
static rsd_err stay_away(const bed *b, rsd_comm *comm, rsd_error *err)
{
    char    never;
    void   *request = NULL;
    rsd_err rc;

    if (!b->stays)
        return RSD_OK;
    rc = rsi_recv(comm, comm->rank, 77, &never, 1, &request, err);
    if (!rc)
        rc = comm->ops.wait_some(comm->self, 1, &request, 60000, err);
    rsi_drop(comm, 1, &request);
    return rc == RSD_E_TIMEOUT && err->rank >= 0 ? RSD_OK : RSD_E_BUG;
}

static rsd_err check_error(const bed *b, rsd_comm *comm, rsd_error *err)
{
    rsd_error failed[RANKS];

    CHECK(strstr(err->msg, b->text));
    CHECK(b->rank < 0 || (err->rank == b->rank && err->nfailed == b->nfailed));
    if (b->away >= 0)
        return RSD_OK;
    CHECK(rsd_comm_failures(comm, failed, RANKS) == (size_t)b->nfailed);
    for (int32_t i = 0; i < b->nfailed; i++)
        CHECK(failed[i].rank == b->failed[i] && failed[i].code == (int32_t)b->want);
    return RSD_OK;
}

static rsd_err save_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    const bed    *b = arg;
    const int64_t shape[] = { ROWS };
    int32_t       part[ROWS / RANKS];
    rsd_view      view = { .data = part };
    rsd_save_opts opts = b->opts;
    rsd_layout   *layout = fix_layout("mesh r=4; * shard(0)@r", RSD_I32, 1, shape);
    rsd_state    *state;
    rsd_err       rc;

    if (b->stays) { /* the verdict waits for the three that come, however slowly they run */
        comm->grace_ms = 60000;
        comm->present = RANKS - 1;
        CHECK(!rsd_comm_set_timeout(comm, 50, err));
    }
    if (comm->rank == b->away) {
        rsd_layout_free(layout);
        return stay_away(b, comm, err);
    }
    view.box = fix_box1(comm->rank * ROWS / RANKS, ROWS / RANKS);
    for (int32_t i = 0; i < ROWS / RANKS; i++)
        part[i] = (int32_t)view.box.off[0] + i + 100000 * b->version;
    CHECK(!rsd_state_create(&state, err));
    CHECK(!rsd_state_tensor(state, "x", layout, RSD_I32, 1, shape, 1, &view, err));
    rsd_layout_free(layout);
    opts.size = sizeof(opts);
    opts.threads = 1;
    opts.store = open_store(b, b->sys[comm->rank]);
    CHECK(opts.store);
    rc = rsd_save(b->path, comm, state, &opts, err);
    rsd_store_close(opts.store);
    rsd_state_free(state);
    CHECK(rc == b->want);
    return rc ? check_error(b, comm, err) : RSD_OK;
}

static rsd_err run_bed(bed *b, rsd_error *err)
{
    return rsd_comm_run_threads(RANKS, save_rank, b, err);
}

static void run(bed *b)
{
    rsd_error err = { 0 };

    if (run_bed(b, &err))
        fail_msg("%s", err.msg);
}

/* Version 1 stands in a new folder. */
static bed make_bed(const char *path)
{
    bed b = { .top = "/tmp/test_save_faults.XXXXXX", .path = path, .version = 1, .away = -1 };

    memset(&faults, 0, sizeof(faults));
    assert_non_null(mkdtemp(b.top));
    for (int r = 0; r < RANKS; r++)
        b.sys[r] = sys_quick();
    run(&b);
    b.version = 2;
    b.opts.overwrite = true;
    return b;
}

static void assert_version(const bed *b, int32_t version)
{
    rsd_store    *store = open_store(b, sys_quick());
    const int64_t shape[] = { ROWS };
    int32_t       out[ROWS] = { 0 };
    rsd_view      view = fix_whole(1, shape, out);
    rsd_ckpt     *ckpt = fix_open(store, b->path);

    assert_int_equal(rsd_ckpt_read(ckpt, 0, &view, NULL, NULL), RSD_OK);
    for (int32_t i = 0; i < ROWS; i++)
        assert_int_equal(out[i], i + 100000 * version);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
}

/* The old one is there; the next save succeeds and leaves nothing else in the folder. */
static void end_bed(bed *b)
{
    rsd_store *store;

    memset(&faults, 0, sizeof(faults));
    assert_version(b, 1);
    b->want = RSD_OK;
    b->away = -1;
    b->stays = false;
    b->opts.overwrite = true;
    b->opts.checksum = RSD_NEVER;
    for (int r = 0; r < RANKS; r++)
        b->sys[r] = sys_quick();
    run(b);
    assert_version(b, 2);
    store = open_store(b, sys_quick());
    assert_string_equal(fix_list(store, ""), b->path);
    assert_int_equal(rsi_store_remove(store, b->path, NULL), RSD_OK);
    rsd_store_close(store);
    assert_int_equal(rmdir(b->top), 0);
}

static void full_disks_of_two_ranks_fail_all_and_are_listed(void **state)
{
    static const char *const path[] = { "ck", "ck.pt", "ck.safetensors" };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        bed b = make_bed(path[i]);

        b.want = RSD_E_IO;
        b.text = "No space left on device";
        b.sys[1] = b.sys[3] = &rsi_sys_faulty;
        b.rank = 1;
        b.nfailed = 2;
        b.failed[0] = 1;
        b.failed[1] = 3;
        faults = (sys_faults){ .at = 1, .for_ever = true, .only = "pwrite", .error = ENOSPC };
        if (i > 0) { /* one block: rank 3 writes it, being the last */
            b.rank = 3;
            b.nfailed = 1;
            b.failed[0] = 3;
        }
        run(&b);
        end_bed(&b);
    }
}

/* ---- metadata ---- */

static int no_metadata(int dir, const char *name, int flags, mode_t mode)
{
    if (strcmp(name, ".metadata") == 0 && (flags & O_ACCMODE) != O_RDONLY) {
        errno = EACCES;
        return -1;
    }
    return rsi_sys_real.openat(dir, name, flags, mode);
}

static void metadata_that_can_not_be_written_fail_all(void **state)
{
    rsi_sys sys = rsi_sys_real;
    bed     b = make_bed("ck");

    (void)state;
    sys.openat = no_metadata;
    b.sys[0] = &sys;
    b.want = RSD_E_IO;
    b.text = ".metadata";
    b.nfailed = 1;
    run(&b);
    end_bed(&b);
}

static void a_target_that_exists_is_refused_on_all_ranks(void **state)
{
    bed b = make_bed("ck");

    (void)state;
    b.opts.overwrite = false;
    b.want = RSD_E_EXISTS;
    b.text = "exists";
    b.nfailed = 1;
    run(&b);
    end_bed(&b);
}

/* ---- permissions ---- */

/* In a process without privileges; 0: all was as expected. */
static int run_unprivileged(bed *b)
{
    pid_t child = fork();
    int   status = -1;

    if (child == 0) {
        rsd_error err = { 0 };

        if (getuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(2);
        if (run_bed(b, &err) == RSD_OK)
            _exit(0);
        fprintf(stderr, "%s\n", err.msg);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_read_only_folder_fails_all_ranks(void **state)
{
    bed b = make_bed("ck");

    (void)state;
    assert_int_equal(chmod(b.top, 0555), 0);
    b.want = RSD_E_IO;
    b.text = "Permission denied";
    b.nfailed = 1;
    assert_int_equal(run_unprivileged(&b), 0);
    assert_int_equal(chmod(b.top, 0755), 0);
    end_bed(&b);
}

/* ---- ranks that don't come ---- */

static void a_rank_that_returns_early_fails_the_others(void **state)
{
    bed b = make_bed("ck");

    (void)state;
    b.away = 2;
    b.want = RSD_E_COMM;
    b.text = "rank 2 has left";
    b.rank = -1; /* whoever sees it first */
    run(&b);
    end_bed(&b);
}

static void a_rank_that_does_not_come_is_named_when_time_is_up(void **state)
{
    static const char *const path[] = { "ck", "ck.safetensors" };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bed b = make_bed(path[i]);

        b.away = 1;
        b.stays = true;
        b.want = RSD_E_TIMEOUT;
        b.text = "rank 1 did not come";
        b.rank = 1;
        b.nfailed = 1;
        run(&b);
        end_bed(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_disks_of_two_ranks_fail_all_and_are_listed),
        cmocka_unit_test(metadata_that_can_not_be_written_fail_all),
        cmocka_unit_test(a_target_that_exists_is_refused_on_all_ranks),
        cmocka_unit_test(a_read_only_folder_fails_all_ranks),
        cmocka_unit_test(a_rank_that_returns_early_fails_the_others),
        cmocka_unit_test(a_rank_that_does_not_come_is_named_when_time_is_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
