/* SPDX-License-Identifier: Apache-2.0 */
/* The real system calls. */
#include "store/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifdef RSI_HAVE_URING
#include <liburing.h>
#endif

/* Raises the limit of descriptors as far as this process may. True: it is higher than before. */
static bool raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return false;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int real_openat(int dir, const char *name, int flags, mode_t mode)
{
    int fd = openat(dir, name, flags, mode);

    if (fd < 0 && errno == EMFILE && raise_limit())
        fd = openat(dir, name, flags, mode);
    return fd;
}

static int real_setfl(int fd, int flags)
{
    return fcntl(fd, F_SETFL, flags);
}

static ssize_t real_getdents(int fd, void *buf, size_t cap)
{
    return getdents64(fd, buf, cap);
}

static int real_ring_result(int res)
{
    return res;
}

#ifdef RSI_HAVE_URING
static int real_ring_init(unsigned depth, struct io_uring *ring)
{
    return io_uring_queue_init(depth, ring, 0);
}

static int real_ring_submit(struct io_uring *ring, unsigned wait)
{
    return wait ? io_uring_submit_and_wait(ring, wait) : io_uring_submit(ring);
}
#else
static int real_ring_init(unsigned depth, struct io_uring *ring)
{
    (void)depth;
    (void)ring;
    return -ENOSYS;
}

static int real_ring_submit(struct io_uring *ring, unsigned wait)
{
    (void)ring;
    (void)wait;
    return -ENOSYS;
}
#endif

const rsi_sys rsi_sys_real = {
    .openat = real_openat,
    .close = close,
    .setfl = real_setfl,
    .statx = statx,
    .fstatfs = fstatfs,
    .getdents = real_getdents,
    .lseek = lseek,
    .pread = pread,
    .pwrite = pwrite,
    .fallocate = fallocate,
    .fsync = fsync,
    .mkdirat = mkdirat,
    .fchmod = fchmod,
    .unlinkat = unlinkat,
    .linkat = linkat,
    .renameat2 = renameat2,
    .flock = flock,
    .getrandom = getrandom,
    .ring_init = real_ring_init,
    .ring_submit = real_ring_submit,
    .ring_result = real_ring_result,
};
