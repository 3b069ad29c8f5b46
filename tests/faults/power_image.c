/* SPDX-License-Identifier: Apache-2.0 */
/* power_image.c - one side of the power cuts on real file systems; tools/run-faults is the other
 * and mounts.
 *
 *   power_image save CASE FOLDER IMAGE COPIES   saves version 2 in a folder of a mounted image and
 *                                               copies the image before each change; the last copy
 *                                               is of the moment when the save returned
 *   power_image look CASE FOLDER                says what it finds: old, new, none or lost
 *
 * What the file system has given to the device is in the image, the rest is in the memory that a
 * power cut empties. No other change is made while a copy is. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "fault_case.h"
#include "sys_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 65536 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char     *image, *copies;
static int             ncopies;

static void need(bool true_that, const char *what)
{
    if (true_that)
        return;
    fprintf(stderr, "power_image: %s: %s\n", what, strerror(errno));
    _exit(2);
}

/* Blocks of zeros are left out. */
static void copy_image(void)
{
    static char block[BLOCK], zero[BLOCK];
    char        path[512];
    off_t       end, at = 0;
    int         in, out;

    need(snprintf(path, sizeof(path), "%s/%04d", copies, ncopies++) < (int)sizeof(path), copies);
    in = open(image, O_RDONLY | O_CLOEXEC);
    out = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    need(in >= 0 && out >= 0, "open");
    end = lseek(in, 0, SEEK_END);
    need(ftruncate(out, end) == 0, "ftruncate");
    while ((at = lseek(in, at, SEEK_DATA)) >= 0 && at < end) {
        ssize_t n = pread(in, block, BLOCK, at - at % BLOCK);

        need(n > 0, "read");
        at -= at % BLOCK;
        if (memcmp(block, zero, (size_t)n) != 0)
            need(pwrite(out, block, (size_t)n, at) == n, "write");
        at += n;
    }
    close(in);
    close(out);
}

static void before(void)
{
    pthread_mutex_lock(&lock);
    copy_image();
}

static int after(int rc)
{
    pthread_mutex_unlock(&lock);
    return rc;
}

static int p_openat(int dir, const char *name, int flags, mode_t mode)
{
    if (!(flags & O_CREAT))
        return rsi_sys_real.openat(dir, name, flags, mode);
    before();
    return after(rsi_sys_real.openat(dir, name, flags, mode));
}

static ssize_t p_pwrite(int fd, const void *buf, size_t len, off_t off)
{
    before();
    return after((int)rsi_sys_real.pwrite(fd, buf, len, off));
}

static int p_fallocate(int fd, int mode, off_t off, off_t len)
{
    before();
    return after(rsi_sys_real.fallocate(fd, mode, off, len));
}

static int p_fsync(int fd)
{
    before();
    return after(rsi_sys_real.fsync(fd));
}

static int p_mkdirat(int dir, const char *name, mode_t mode)
{
    before();
    return after(rsi_sys_real.mkdirat(dir, name, mode));
}

static int p_unlinkat(int dir, const char *name, int flags)
{
    before();
    return after(rsi_sys_real.unlinkat(dir, name, flags));
}

static int p_linkat(int dir, const char *name, int new_dir, const char *new_name, int flags)
{
    before();
    return after(rsi_sys_real.linkat(dir, name, new_dir, new_name, flags));
}

static int p_renameat2(int dir, const char *name, int new_dir, const char *new_name, unsigned flags)
{
    before();
    return after(rsi_sys_real.renameat2(dir, name, new_dir, new_name, flags));
}

static int p_ring_init(unsigned depth, struct io_uring *ring)
{
    (void)depth, (void)ring;
    return -ENOSYS;
}

static int save(const fault_case *c, const char *folder)
{
    fault_bed bed;
    rsi_sys   sys = rsi_sys_real;
    int       fd;

    sys.openat = p_openat;
    sys.pwrite = p_pwrite;
    sys.fallocate = p_fallocate;
    sys.fsync = p_fsync;
    sys.mkdirat = p_mkdirat;
    sys.unlinkat = p_unlinkat;
    sys.linkat = p_linkat;
    sys.renameat2 = p_renameat2;
    sys.ring_init = p_ring_init;
    fault_bed_open(&bed, c, folder);
    fd = open(folder, O_RDONLY | O_CLOEXEC);
    need(fd >= 0 && syncfs(fd) == 0, folder); /* what is there now is durable */
    close(fd);
    for (int32_t r = 0; r < c->ranks; r++)
        bed.on[r] = fault_store(&bed, &sys, RSI_FILE_IO_THREADS);
    fault_save_version(&bed, 2, c->overwrite);
    copy_image();
    if (bed.rc[0])
        fprintf(stderr, "power_image: %s\n", bed.err[0].msg);
    for (int32_t r = 0; r < c->ranks; r++)
        rsd_store_close(bed.on[r]);
    fault_bed_detach(&bed);
    return bed.rc[0] ? 1 : 0;
}

static int look(const fault_case *c, const char *folder)
{
    static const char *const word[] = { "none", "old", "new", "lost" };
    fault_bed                bed;

    fault_bed_attach(&bed, c, folder);
    puts(word[fault_look(&bed)]);
    fault_bed_detach(&bed);
    return 0;
}

int main(int argc, char **argv)
{
    const fault_case *c = NULL;

    for (int i = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0; i >= 0; i--)
        if (!(c = fault_next(c)))
            return 3; /* there are no more cases */
    if (argc == 6 && strcmp(argv[1], "save") == 0) {
        image = argv[4];
        copies = argv[5];
        return save(c, argv[3]);
    }
    if (argc == 4 && strcmp(argv[1], "look") == 0)
        return look(c, argv[3]);
    fprintf(stderr, "power_image: save CASE FOLDER IMAGE COPIES | look CASE FOLDER\n");
    return 2;
}
