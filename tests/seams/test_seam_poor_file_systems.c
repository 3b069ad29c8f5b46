/* SPDX-License-Identifier: Apache-2.0 */
/* Containers answer EPERM to calls that they don't know, and overlayfs can't rename a folder of a
 * lower layer: what can be done without is done without, what can't is refused before the work. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "convert_fixture.h"
#include "store/file.h"
#include "sys_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a container ---- */

static int64_t written;

static int no_flags(int dir, const char *name, int to_dir, const char *to, unsigned flags)
{
    if (!flags)
        return renameat(dir, name, to_dir, to);
    errno = EPERM;
    return -1;
}

static int no_fallocate(int fd, int mode, off_t off, off_t len)
{
    (void)fd, (void)mode, (void)off, (void)len;
    errno = EPERM;
    return -1;
}

static int no_flock(int fd, int how)
{
    (void)fd, (void)how;
    errno = EPERM;
    return -1;
}

static int no_ring(unsigned depth, struct io_uring *ring)
{
    (void)depth, (void)ring;
    return -EPERM;
}

static int no_submit(struct io_uring *ring, unsigned wait)
{
    (void)ring, (void)wait;
    return -EPERM;
}

static ssize_t counted_pwrite(int fd, const void *buf, size_t len, off_t off)
{
    ssize_t n = pwrite(fd, buf, len, off);

    __atomic_add_fetch(&written, n > 0 ? n : 0, __ATOMIC_RELAXED);
    return n;
}

typedef struct bed {
    char    folder[128], from[160], path[200];
    rsi_sys sys;
} bed;

static rsd_err convert(bed *b, const char *to, bool overwrite, rsd_error *err)
{
    rsi_file_opts    how = { .sys = &b->sys };
    rsd_convert_opts opts = { .sync = RSD_NEVER, .overwrite = overwrite };
    rsd_ckpt        *ckpt;
    rsd_err          rc;

    opts.size = sizeof(opts);
    assert_int_equal(rsi_file_store_open(b->folder, &how, &opts.store, NULL), RSD_OK);
    assert_int_equal(rsd_ckpt_open(NULL, b->from, &ckpt, NULL), RSD_OK);
    written = 0;
    rc = rsd_convert(ckpt, to, NULL, &opts, err);
    rsd_ckpt_close(ckpt);
    rsd_store_close(opts.store);
    snprintf(b->path, sizeof(b->path), "%s/%s", b->folder, to);
    return rc;
}

static void begin(bed *b)
{
    *b = (bed){ .sys = *sys_quick() };
    b->sys.pwrite = counted_pwrite;
    conv_folder(b->folder, sizeof(b->folder));
    snprintf(b->from, sizeof(b->from), "%s/src", b->folder);
    conv_source(NULL, b->from, RSD_FORMAT_DCP, NULL, true, NULL);
}

static void calls_that_a_container_forbids_are_done_without(void **state)
{
    static const char *const targets[] = { "out", "out.safetensors" };
    bed                      b;
    rsd_error                err;

    (void)state;
    begin(&b);
    b.sys.renameat2 = no_flags;
    b.sys.fallocate = no_fallocate;
    b.sys.flock = no_flock;
    for (int ring = 0; ring < 2; ring++) {
        b.sys.ring_init = ring ? sys_quick()->ring_init : no_ring;
        b.sys.ring_submit = no_submit;
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(convert(&b, targets[i], false, &err), RSD_OK);
            conv_same(NULL, b.from, NULL, b.path);
            assert_int_equal(convert(&b, targets[i], false, &err), RSD_E_EXISTS);
            if (i == 1)
                assert_int_equal(convert(&b, targets[i], true, &err), RSD_OK);
            conv_same(NULL, b.from, NULL, b.path);
            conv_remove(b.path);
        }
    }
    conv_remove(b.folder);
}

static void a_folder_that_can_not_be_exchanged_is_refused_before_the_work(void **state)
{
    bed       b;
    rsd_error err;

    (void)state;
    begin(&b);
    b.sys.renameat2 = no_flags;
    assert_int_equal(convert(&b, "out", false, &err), RSD_OK);
    assert_int_equal(convert(&b, "out", true, &err), RSD_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "remove it first or use another name"));
    assert_int_equal(written, 0);
    conv_same(NULL, b.from, NULL, b.path);
    conv_remove(b.folder);
}

/* ---- overlayfs ---- */

enum { DONE, FAILED, CAN_NOT_MOUNT };

/* In a process with mounts of its own. */
static int on_overlay(bed *b)
{
    rsd_convert_opts opts = { .sync = RSD_NEVER };
    char             text[640], lower[200];
    rsd_error        err = { .msg = "" };

    snprintf(text, sizeof(text), "%s/disk", b->folder);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mkdir(text, 0700) < 0 || mount("tmpfs", text, "tmpfs", 0, "size=256m") < 0)
        return CAN_NOT_MOUNT;
    for (const char *const *name = (const char *const[]){ "lower", "upper", "work", "top", NULL };
         *name; name++) {
        snprintf(text, sizeof(text), "%s/disk/%s", b->folder, *name);
        if (mkdir(text, 0700) < 0)
            return FAILED;
    }
    for (const char *const *name = (const char *const[]){ "out", "out.safetensors", NULL }; *name;
         name++) {
        snprintf(lower, sizeof(lower), "%s/disk/lower/%s", b->folder, *name);
        if (conv_run(NULL, b->from, lower, opts, &err))
            return FAILED;
    }
    snprintf(text, sizeof(text),
             "lowerdir=%s/disk/lower,upperdir=%s/disk/upper,workdir=%s/disk/work,redirect_dir=off",
             b->folder, b->folder, b->folder);
    snprintf(lower, sizeof(lower), "%s/disk/top", b->folder);
    if (mount("overlay", lower, "overlay", 0, text) < 0)
        return CAN_NOT_MOUNT;
    strncat(b->folder, "/disk/top", sizeof(b->folder) - strlen(b->folder) - 1);
    /* A folder of the lower layer is refused at once; a file, or a new folder, is replaced. */
    if (convert(b, "out", true, &err) != RSD_E_UNSUPPORTED || written > 0)
        return fprintf(stderr, "lower folder: %s\n", err.msg), FAILED;
    if (convert(b, "out.safetensors", true, &err))
        return fprintf(stderr, "lower file: %s\n", err.msg), FAILED;
    for (int i = 0; i < 2; i++)
        if (convert(b, "new", true, &err))
            return fprintf(stderr, "new folder: %s\n", err.msg), FAILED;
    return DONE;
}

static void a_folder_of_a_lower_layer_is_refused_before_the_work(void **state)
{
    bed   b;
    int   status;
    pid_t child;

    (void)state;
    begin(&b);
    child = fork();
    if (child == 0)
        _exit(on_overlay(&b));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    conv_remove(b.folder);
    if (WEXITSTATUS(status) == CAN_NOT_MOUNT) {
        print_message("skipped: this process may not mount overlayfs\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), DONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_a_container_forbids_are_done_without),
        cmocka_unit_test(a_folder_that_can_not_be_exchanged_is_refused_before_the_work),
        cmocka_unit_test(a_folder_of_a_lower_layer_is_refused_before_the_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
