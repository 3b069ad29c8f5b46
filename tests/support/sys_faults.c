/* SPDX-License-Identifier: Apache-2.0 */
/* Each call of the table counts itself, asks whether it is to fail, and is handed on. */
#include "sys_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>

sys_faults faults;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* True: this one is to fail (errno is set) or to be short (error is 0). */
static bool hit(const char *call)
{
    bool mine, yes;

    pthread_mutex_lock(&lock);
    mine = !faults.only || strcmp(faults.only, call) == 0;
    faults.calls += mine;
    yes = mine && faults.at &&
          (faults.calls == faults.at || (faults.for_ever && faults.calls > faults.at)) &&
          (!faults.times || faults.calls < faults.at + faults.times);
    pthread_mutex_unlock(&lock);
    if (faults.watch)
        faults.watch(call, faults.arg);
    if (yes)
        errno = faults.error;
    return yes;
}

static bool fails(const char *call)
{
    return hit(call) && faults.error;
}

static int f_openat(int dir, const char *name, int flags, mode_t mode)
{
    if (fails("openat"))
        return -1;
    if ((flags & O_DIRECT) && faults.no_direct) {
        errno = EINVAL;
        return -1;
    }
    return rsi_sys_real.openat(dir, name, flags, mode);
}

/* Linux closes the descriptor even if it reports a failure. */
static int f_close(int fd)
{
    bool fail = fails("close");
    int  rc = rsi_sys_real.close(fd);

    if (fail)
        errno = faults.error;
    return fail ? -1 : rc;
}

static int f_setfl(int fd, int flags)
{
    return fails("setfl") ? -1 : rsi_sys_real.setfl(fd, flags);
}

static int f_statx(int dir, const char *name, int flags, unsigned mask, struct statx *out)
{
    return fails("statx") ? -1 : rsi_sys_real.statx(dir, name, flags, mask, out);
}

static int f_fstatfs(int fd, struct statfs *out)
{
    int rc = fails("fstatfs") ? -1 : rsi_sys_real.fstatfs(fd, out);

    if (rc == 0 && faults.tmpfs_left) {
        out->f_type = 0x01021994;
        out->f_bsize = 4096;
        out->f_blocks = 1 << 20;
        out->f_bavail = (fsblkcnt_t)(faults.tmpfs_left / 4096);
    }
    return rc;
}

static ssize_t f_getdents(int fd, void *buf, size_t cap)
{
    return fails("getdents") ? -1 : rsi_sys_real.getdents(fd, buf, cap);
}

static off_t f_lseek(int fd, off_t off, int whence)
{
    return rsi_sys_real.lseek(fd, off, whence); /* on a folder it can't */
}

static ssize_t counted(int64_t *bytes, ssize_t n)
{
    pthread_mutex_lock(&lock);
    *bytes += n > 0 ? n : 0;
    pthread_mutex_unlock(&lock);
    return n;
}

static ssize_t f_pread(int fd, void *buf, size_t len, off_t off)
{
    bool now = hit("pread");

    if (now && faults.error)
        return -1;
    return counted(&faults.bytes_read, rsi_sys_real.pread(fd, buf, now && len ? 1 : len, off));
}

static ssize_t f_pwrite(int fd, const void *buf, size_t len, off_t off)
{
    bool now = hit("pwrite");

    if (now && faults.error)
        return -1;
    if (faults.no_direct_write && (fcntl(fd, F_GETFL) & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    return counted(&faults.bytes_written, rsi_sys_real.pwrite(fd, buf, now && len ? 1 : len, off));
}

static int f_fallocate(int fd, int mode, off_t off, off_t len)
{
    return fails("fallocate") ? -1 : rsi_sys_real.fallocate(fd, mode, off, len);
}

static int quick_fsync(int fd)
{
    return fcntl(fd, F_GETFD) < 0 ? -1 : 0;
}

static int f_fsync(int fd)
{
    faults.fsyncs++;
    return fails("fsync") ? -1 : quick_fsync(fd);
}

static int f_mkdirat(int dir, const char *name, mode_t mode)
{
    return fails("mkdirat") ? -1 : rsi_sys_real.mkdirat(dir, name, mode);
}

static int f_fchmod(int fd, mode_t mode)
{
    return fails("fchmod") ? -1 : rsi_sys_real.fchmod(fd, mode);
}

static int f_unlinkat(int dir, const char *name, int flags)
{
    return fails("unlinkat") ? -1 : rsi_sys_real.unlinkat(dir, name, flags);
}

static int f_linkat(int dir, const char *name, int new_dir, const char *new_name, int flags)
{
    if (fails("linkat"))
        return -1;
    if (faults.no_link) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return rsi_sys_real.linkat(dir, name, new_dir, new_name, flags);
}

static int f_renameat2(int dir, const char *name, int new_dir, const char *new_name, unsigned flags)
{
    if (fails("renameat2"))
        return -1;
    if (flags & faults.no_flags) {
        errno = EINVAL;
        return -1;
    }
    return rsi_sys_real.renameat2(dir, name, new_dir, new_name, flags);
}

static int f_flock(int fd, int how)
{
    return fails("flock") ? -1 : rsi_sys_real.flock(fd, how);
}

static ssize_t f_getrandom(void *buf, size_t len, unsigned flags)
{
    return fails("getrandom") ? -1 : rsi_sys_real.getrandom(buf, len, flags);
}

static int f_ring_init(unsigned depth, struct io_uring *ring)
{
    return fails("ring_init") ? -faults.error : rsi_sys_real.ring_init(depth, ring);
}

static int f_ring_submit(struct io_uring *ring, unsigned wait)
{
    return fails("ring_submit") ? -faults.error : rsi_sys_real.ring_submit(ring, wait);
}

/* A transfer that claims to have moved one byte only is continued behind it. */
static int f_ring_result(int res)
{
    bool now = hit("ring_result");

    if (now && faults.error)
        return -faults.error;
    return now && res > 1 ? 1 : res;
}

const rsi_sys rsi_sys_faulty = {
    .openat = f_openat,
    .close = f_close,
    .setfl = f_setfl,
    .statx = f_statx,
    .fstatfs = f_fstatfs,
    .getdents = f_getdents,
    .lseek = f_lseek,
    .pread = f_pread,
    .pwrite = f_pwrite,
    .fallocate = f_fallocate,
    .fsync = f_fsync,
    .mkdirat = f_mkdirat,
    .fchmod = f_fchmod,
    .unlinkat = f_unlinkat,
    .linkat = f_linkat,
    .renameat2 = f_renameat2,
    .flock = f_flock,
    .getrandom = f_getrandom,
    .ring_init = f_ring_init,
    .ring_submit = f_ring_submit,
    .ring_result = f_ring_result,
};

const rsi_sys *sys_quick(void)
{
    static rsi_sys quick;

    quick = rsi_sys_real;
    quick.fsync = quick_fsync;
    return &quick;
}
