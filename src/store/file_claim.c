/* SPDX-License-Identifier: Apache-2.0 */
/* Claims on local files: a flock on the file itself, which the system releases when its owner dies.
 * The descriptors are open for reading and writing, because NFS passes locks on such files to the
 * server, and refuses others. Next: file_hold.c. */
#include "store/file_tree.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

enum {
    OPEN_CLAIM = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY,
    SHARED_MS = 2000 /* for a process that has it alone and finds that it is needed */
};

static int open_folder(const rsi_fs *fs, int dir)
{
    return rsi_fs_openat(fs, dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
}

/* 1: locked; 0: another process has it or it is gone; -1 and errno. */
static int lock_alone(const rsi_fs *fs, int fd, rsd_claim how)
{
    struct statx st;
    int          locked = rsi_fs_lock_wait(fs, fd, LOCK_EX, 0);

    if (locked == 0)
        return 0;
    if (how == RSD_CLAIM_ALONE && (locked < 0 || !rsi_fs_locks_reach_everyone(fs, fd))) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (rsi_fs_statx(fs, fd, "", AT_EMPTY_PATH, STATX_NLINK | STATX_TYPE, &st) < 0)
        return -1;
    return st.stx_nlink > 0 && S_ISREG(st.stx_mode);
}

static int lock_claim(const rsi_fs *fs, int fd, rsd_claim how)
{
    if (how == RSD_CLAIM_ALONE || how == RSD_CLAIM_OLD)
        return lock_alone(fs, fd, how);
    if (how == RSD_CLAIM_SHARED && rsi_fs_lock_wait(fs, fd, LOCK_SH, SHARED_MS) == 0)
        return 0;
    return rsi_fs_lock_shared(fs, fd);
}

/* A new file that another process removes before it is locked is created again. */
static int open_claim(const rsi_fs *fs, int dir, const char *last, rsd_claim how, int *locked)
{
    int flags = OPEN_CLAIM | (how == RSD_CLAIM_NEW ? O_CREAT | O_EXCL : 0), fd = -1;

    *locked = 0;
    for (int i = 0; i < RSI_TREE_TRIES; i++) {
        fd = rsi_fs_openat(fs, dir, last, flags, 0666);
        if (fd < 0)
            return -1;
        *locked = lock_claim(fs, fd, how);
        if (*locked > 0 || how != RSD_CLAIM_NEW || (*locked < 0 && errno != ENOENT))
            break;
        rsi_fs_close(fs, fd);
        fd = -1;
        errno = EBUSY;
    }
    return fd;
}

rsd_err rsi_fs_claim(void *self, const char *name, rsd_claim how, void **out, rsd_error *err)
{
    const rsi_fs *fs = self;
    const char   *last;
    int           dir, fd, locked;
    rsd_err       rc = rsi_fs_enter(fs, name, false, &dir, &last, err);

    if (rc)
        return rc;
    fd = open_claim(fs, dir, last, how, &locked);
    if (fd < 0 || (locked < 0 && errno != EOPNOTSUPP))
        rc = rsi_fs_fail(fs, err, errno, how == RSD_CLAIM_NEW ? "create" : "claim", name);
    else if (locked < 0)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED, "other machines may use \"%s\" in \"%s\"", name,
                      fs->path);
    else if (locked == 0 && how == RSD_CLAIM_SHARED)
        rc = rsi_fail(err, RSD_E_NOTFOUND, "\"%s\" in \"%s\" is being removed", name, fs->path);
    else if (locked == 0)
        rc = rsi_fail(err, RSD_E_EXISTS, "\"%s\" in \"%s\" is in use", name, fs->path);
    if (rc && fd >= 0 && how == RSD_CLAIM_NEW)
        rsi_fs_unlinkat(fs, dir, last, 0);
    if (rc)
        rsi_fs_close(fs, fd);
    else
        *out = (void *)(intptr_t)(fd + 1);
    rsi_fs_leave(fs, dir);
    return rc;
}

/* Unlocks first: a child process forked meanwhile has the descriptor too. */
void rsi_fs_unclaim(void *self, void *claim)
{
    const rsi_fs *fs = self;
    int           fd = (int)(intptr_t)claim - 1;

    rsi_fs_flock(fs, fd, LOCK_UN);
    rsi_fs_close(fs, fd);
}

rsd_err rsi_fs_sync_names(void *self, const char *name, rsd_error *err)
{
    const rsi_fs *fs = self;
    const char   *last;
    int           dir, folder, fd;
    rsd_err       rc = rsi_fs_enter(fs, name, false, &dir, &last, err);

    if (rc)
        return rc;
    folder = *last ? rsi_fs_openat(fs, dir, last, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0)
                   : dir;
    fd = folder < 0 ? -1 : open_folder(fs, folder);
    if (fd < 0 || rsi_fs_fsync(fs, fd) < 0)
        rc = rsi_fs_fail(fs, err, errno, "sync the folder", name);
    rsi_fs_close(fs, fd);
    if (*last)
        rsi_fs_close(fs, folder);
    rsi_fs_leave(fs, dir);
    return rc;
}
