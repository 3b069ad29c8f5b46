/* SPDX-License-Identifier: Apache-2.0 */
/* The file store's system calls, repeated when a signal interrupts them. */
#include "store/file.h"
#include "base/pulse.h"
#include "store/handles.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define TMPFS         0x01021994          /* in statfs */
#define RESERVE_QUICK ((uint64_t)1 << 20) /* bytes; any file system reserves so few at once */

/* Repeats a call until no signal interrupts it. */
#define RETRY(call) ((__typeof__(call))TEMP_FAILURE_RETRY(call))

int rsi_fs_openat(const rsi_fs *fs, int dir, const char *name, int flags, mode_t mode)
{
    const bool to_write = (flags & O_ACCMODE) != O_RDONLY;
    int        fd, tries = 0;

    do
        fd = RETRY(fs->sys->openat(dir, name, flags, mode));
    while (fd < 0 && (errno == EMFILE || errno == ENFILE) && rsi_handles_spare(to_write, tries++));
    return fd;
}

int rsi_fs_setfl(const rsi_fs *fs, int fd, int flags)
{
    return RETRY(fs->sys->setfl(fd, flags));
}

int rsi_fs_statx(const rsi_fs *fs, int dir, const char *name, int flags, unsigned mask,
                 struct statx *out)
{
    return RETRY(fs->sys->statx(dir, name, flags, mask, out));
}

ssize_t rsi_fs_getdents(const rsi_fs *fs, int fd, void *buf, size_t cap)
{
    return RETRY(fs->sys->getdents(fd, buf, cap));
}

int rsi_fs_fsync(const rsi_fs *fs, int fd)
{
    int rc = RETRY(fs->sys->fsync(fd));

    rsi_beat();
    return rc;
}

int rsi_fs_fchmod(const rsi_fs *fs, int fd, mode_t mode)
{
    return RETRY(fs->sys->fchmod(fd, mode));
}

int rsi_fs_mkdirat(const rsi_fs *fs, int dir, const char *name, mode_t mode)
{
    return RETRY(fs->sys->mkdirat(dir, name, mode));
}

int rsi_fs_unlinkat(const rsi_fs *fs, int dir, const char *name, int flags)
{
    int rc = RETRY(fs->sys->unlinkat(dir, name, flags));

    rsi_beat();
    return rc;
}

int rsi_fs_rename(const rsi_fs *fs, int dir, const char *name, int to_dir, const char *to,
                  unsigned flags)
{
    return RETRY(fs->sys->renameat2(dir, name, to_dir, to, flags));
}

int rsi_fs_linkat(const rsi_fs *fs, int dir, const char *name, int to_dir, const char *to)
{
    return RETRY(fs->sys->linkat(dir, name, to_dir, to, 0));
}

int rsi_fs_flock(const rsi_fs *fs, int fd, int how)
{
    return RETRY(fs->sys->flock(fd, how));
}

bool rsi_fs_scarce(int fd)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd >= limit.rlim_cur / 2;
}

bool rsi_fs_limited(void)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

/* Blocks SIGXFSZ in this thread during a call; the process's signal handling is left alone. */
typedef struct hush {
    bool     on;
    sigset_t before;
} hush;

static void hush_begin(hush *h)
{
    sigset_t too_long, pending;

    h->on = rsi_fs_limited() && sigpending(&pending) == 0 && !sigismember(&pending, SIGXFSZ);
    if (!h->on)
        return; /* a pending signal is not ours, and already blocked */
    sigemptyset(&too_long);
    sigaddset(&too_long, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &too_long, &h->before);
}

static void hush_end(const hush *h)
{
    const struct timespec now = { 0 };
    sigset_t              too_long;
    int                   kept = errno;

    if (!h->on)
        return;
    sigemptyset(&too_long);
    sigaddset(&too_long, SIGXFSZ);
    sigtimedwait(&too_long, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &h->before, NULL);
    errno = kept;
}

ssize_t rsi_fs_pwrite(const rsi_fs *fs, int fd, const void *buf, size_t len, off_t off)
{
    hush    h;
    ssize_t n;

    hush_begin(&h);
    n = fs->sys->pwrite(fd, buf, len, off);
    hush_end(&h);
    return n;
}

/* tmpfs would allocate all pages at once, in one thread while the others wait. Writing allocates
 * them as well, in less time in all. Whether there is room its free blocks say; 0 in all: no limit.
 */
static bool is_tmpfs(const rsi_fs *fs, int fd, uint64_t bytes, bool *room)
{
    struct statfs st;

    if (bytes <= RESERVE_QUICK || fs->sys->fstatfs(fd, &st) < 0 ||
        ((unsigned long)st.f_type & 0xffffffff) != TMPFS)
        return false;
    *room = st.f_blocks == 0 || (bytes - 1) / (uint64_t)st.f_bsize < st.f_bavail;
    return true;
}

int rsi_fs_fallocate(const rsi_fs *fs, int fd, uint64_t bytes)
{
    hush h;
    bool room = true;
    int  rc;

    if (bytes == 0)
        return 0;
    if (is_tmpfs(fs, fd, bytes, &room)) {
        errno = ENOSPC;
        return room ? 0 : -1;
    }
    hush_begin(&h);
    rc = RETRY(fs->sys->fallocate(fd, 0, 0, (off_t)bytes));
    hush_end(&h);
    if (rc < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL || errno == EPERM))
        return 0;
    return rc;
}

int rsi_fs_random(const rsi_fs *fs, uint64_t *out)
{
    /* never short for up to 256 bytes */
    return RETRY(fs->sys->getrandom(out, sizeof(*out), 0)) < 0 ? -1 : 0;
}

void rsi_fs_close(const rsi_fs *fs, int fd)
{
    int kept = errno;

    if (fd >= 0)
        fs->sys->close(fd);
    errno = kept;
}
