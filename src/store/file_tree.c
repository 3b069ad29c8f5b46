/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of local files: written beside their name and published by one rename (C1 to C5).
 *
 * All writers share a flock on the temporary folder (or file) itself while their handles are open:
 * the system releases it when they die, for whatever reason. The next begin of the name treats a
 * tree that it can lock exclusively as a dead writer's. Nothing is added to the tree for this, so
 * nothing has to be removed when it is published. Next: file_publish.c. */
#include "store/file_tree.h"
#include "base/mem.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum { OVERLAY = 0x794c7630 }; /* overlayfs, in statfs */

void rsi_fs_tree_free(const rsi_fs *fs, rsi_fs_tree *t)
{
    if (!t)
        return;
    rsi_fs_close(fs, t->lock);
    if (t->from != t->parent)
        rsi_fs_close(fs, t->from);
    rsi_fs_close(fs, t->parent);
    rsi_free(t->name);
    rsi_free(t->temp);
    rsi_free(t);
}

/* ---- locks ---- */

/* On these file systems a folder's lock may hold on this machine only: trees of other machines'
 * writers look dead, so nothing is removed. */
bool rsi_fs_locks_reach_everyone(const rsi_fs *fs, int fd)
{
    static const unsigned long remote[] = {
        0x6969,     /* NFS */
        0xff534d42, /* CIFS */
        0xfe534d42, /* SMB2 */
        0x65735546, /* FUSE */
        0x0bd00bd0, /* Lustre */
        0x47504653, /* GPFS */
        0x19830326, /* BeeGFS */
        0x01021997, /* 9p */
        0x5346414f, /* AFS */
    };
    struct statfs st;
    unsigned long type;

    if (fs->sys->fstatfs(fd, &st) < 0)
        return false;
    type = (unsigned long)st.f_type & 0xffffffff;
    for (size_t i = 0; i < sizeof(remote) / sizeof(remote[0]); i++)
        if (type == remote[i])
            return false;
    return true;
}

int rsi_fs_lock_shared(const rsi_fs *fs, int fd)
{
    struct statx st;

    if (rsi_fs_flock(fs, fd, LOCK_SH | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return 0;
        if (errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK && errno != EINVAL &&
            errno != EBADF && errno != EPERM)
            return -1;
    }
    if (rsi_fs_statx(fs, fd, "", AT_EMPTY_PATH, STATX_NLINK, &st) < 0)
        return -1;
    return st.stx_nlink > 0; /* 0: it was removed before we had the lock */
}

/* ---- leftovers of dead writers ---- */

typedef struct sweep {
    const rsi_fs *fs;
    const char   *last;
    bool          synced; /* the folder has been synced */
} sweep;

/* Best effort: a tree that can't be removed must not stop a save. A writer that died between its
 * rename and its sync left names that a power cut may still undo: they are made durable before any
 * leftover tree is removed (C1). */
static int sweep_entry(void *arg, int dir, const char *name, unsigned char type)
{
    sweep *s = arg;
    int    fd;

    (void)type;
    if (!rsi_temp_match(name, s->last))
        return 0;
    if (!s->synced && rsi_fs_fsync(s->fs, dir) < 0)
        return 1;
    s->synced = true;
    fd = rsi_fs_openat(s->fs, dir, name, RSI_OPEN_ANY, 0);
    if (fd < 0)
        return 0;
    if (rsi_fs_flock(s->fs, fd, LOCK_EX | LOCK_NB) == 0)
        rsi_fs_remove_tree(s->fs, dir, name);
    rsi_fs_close(s->fs, fd);
    return 0;
}

/* ---- begin ---- */

/* True if the name exists. */
bool rsi_fs_is_there(const rsi_fs *fs, int dir, const char *name)
{
    struct statx st;

    return rsi_fs_statx(fs, dir, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) == 0;
}

rsi_target rsi_fs_target(const rsi_fs *fs, const rsi_fs_tree *t)
{
    struct statx st;

    if (rsi_fs_statx(fs, t->parent, t->last, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) < 0)
        return RSI_TARGET_NONE;
    return (t->one_file ? S_ISREG(st.stx_mode) : S_ISDIR(st.stx_mode)) ? RSI_TARGET_SAME
                                                                       : RSI_TARGET_OTHER;
}

/* True if the errno means that the file system lacks the call. */
bool rsi_fs_cannot(int sys_errno)
{
    return sys_errno == EINVAL || sys_errno == ENOSYS || sys_errno == EOPNOTSUPP;
}

/* True if it may mean that: containers answer EPERM to unknown calls. */
bool rsi_fs_may_be_unable(int sys_errno)
{
    return rsi_fs_cannot(sys_errno) || sys_errno == EPERM;
}

/* Sets the mode of the tree itself; does nothing if modes are unsupported. -1 and errno. */
int rsi_fs_tree_mode(const rsi_fs *fs, const rsi_fs_tree *t, mode_t mode)
{
    int rc = rsi_fs_fchmod(fs, t->lock, mode);

    return rc < 0 && rsi_fs_may_be_unable(errno) ? 0 : rc;
}

/* Removes permissions beyond `mode`, durably. -1 and errno. */
static int take_away(const rsi_fs *fs, int fd, uint32_t mode)
{
    struct statx st;
    uint32_t     most;

    if (rsi_fs_statx(fs, fd, "", AT_EMPTY_PATH, STATX_MODE, &st) < 0)
        return -1;
    most = st.stx_mode | (st.stx_mode & 0444u) >> 2; /* readers may also execute */
    mode &= most & 0777;
    if (mode == (st.stx_mode & 0777u))
        return 0;
    if (rsi_fs_fchmod(fs, fd, mode) < 0)
        return rsi_fs_may_be_unable(errno) ? 0 : -1; /* modes are unsupported */
    return rsi_fs_fsync(fs, fd);
}

rsd_err rsi_fs_protect(void *self, const char *name, uint32_t mode, rsd_error *err)
{
    const rsi_fs *fs = self;
    const char   *last;
    int           dir, fd;
    rsd_err       rc = rsi_fs_enter(fs, name, false, &dir, &last, err);

    if (rc)
        return rc;
    fd = rsi_fs_openat(fs, dir, last, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0 || take_away(fs, fd, mode) < 0)
        rc = rsi_fs_fail(fs, err, errno, "take permissions from", name);
    rsi_fs_close(fs, fd);
    rsi_fs_leave(fs, dir);
    return rc;
}

/* Makes a new, unused temporary name. */
static int new_temp(const rsi_fs *fs, rsi_fs_tree *t)
{
    uint64_t random;

    if (rsi_fs_random(fs, &random) < 0)
        return -1;
    rsi_temp_name(t->last, random, t->temp_last);
    return 0;
}

/* overlayfs can't rename a folder of a lower layer: EXDEV. Tested by a rename that can't succeed,
 * onto a non-empty folder. */
static bool can_move(const rsi_fs *fs, rsi_fs_tree *t)
{
    char          full[NAME_MAX + RSI_TEMP_EXTRA + 1];
    struct statfs st;
    bool          can = true;
    int           dir;

    if (fs->sys->fstatfs(t->parent, &st) < 0 || ((unsigned long)st.f_type & 0xffffffff) != OVERLAY)
        return true;
    if (new_temp(fs, t) < 0)
        return true;
    snprintf(full, sizeof(full), "%s", t->temp_last);
    if (rsi_fs_mkdirat(fs, t->parent, full, 0700) < 0)
        return true;
    dir = rsi_fs_openat(fs, t->parent, full, RSI_OPEN_ANY | O_DIRECTORY, 0);
    if (dir >= 0 && rsi_fs_mkdirat(fs, dir, "full", 0700) == 0) {
        can = rsi_fs_rename(fs, t->parent, t->last, t->parent, full, 0) == 0 || errno != EXDEV;
        rsi_fs_unlinkat(fs, dir, "full", AT_REMOVEDIR);
    }
    rsi_fs_close(fs, dir);
    rsi_fs_unlinkat(fs, t->parent, full, AT_REMOVEDIR);
    return can;
}

/* Checks before the work, not after it: tries an exchange on two folders of its own. 1: supported,
 * 0: unsupported; -1 and errno. */
static int can_exchange(const rsi_fs *fs, rsi_fs_tree *t)
{
    char other[NAME_MAX + RSI_TEMP_EXTRA + 1];
    int  rc, sys_errno;

    if (new_temp(fs, t) < 0)
        return -1;
    snprintf(other, sizeof(other), "%s", t->temp_last);
    if (rsi_fs_mkdirat(fs, t->parent, other, 0700) < 0)
        return -1;
    rc = new_temp(fs, t);
    if (rc == 0)
        rc = rsi_fs_mkdirat(fs, t->parent, t->temp_last, 0700);
    if (rc == 0)
        rc = rsi_fs_rename(fs, t->parent, t->temp_last, t->parent, other, RENAME_EXCHANGE);
    sys_errno = errno;
    rsi_fs_unlinkat(fs, t->parent, other, AT_REMOVEDIR);
    rsi_fs_unlinkat(fs, t->parent, t->temp_last, AT_REMOVEDIR);
    errno = sys_errno;
    if (rc < 0 && rsi_fs_may_be_unable(sys_errno))
        return 0;
    return rc < 0 && sys_errno != ENOENT ? -1 : 1; /* ENOENT: another process has swept them away */
}

/* Records the mode that follows from the umask and the parent folder, and withholds it until the
 * tree is published. -1 and errno. */
static int set_private(const rsi_fs *fs, rsi_fs_tree *t)
{
    static const char *const probe = "mode"; /* in the new folder, which no other user may enter */
    struct statx             st;
    int                      rc;

    if (!t->one_file && rsi_fs_mkdirat(fs, t->lock, probe, 0777) < 0)
        return -1;
    rc = rsi_fs_statx(fs, t->lock, t->one_file ? "" : probe,
                      t->one_file ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW, STATX_MODE, &st);
    t->mode = rc == 0 ? st.stx_mode & 07777 : 0;
    if (!t->one_file && rsi_fs_unlinkat(fs, t->lock, probe, AT_REMOVEDIR) < 0)
        return -1;
    return rc == 0 && t->one_file ? rsi_fs_tree_mode(fs, t, 0600) : rc;
}

/* Creates, opens and locks the temporary folder or file. */
static rsd_err make_temp(const rsi_fs *fs, rsi_fs_tree *t, rsd_error *err)
{
    for (int i = 0; i < RSI_TREE_TRIES; i++) {
        int made, locked;

        if (new_temp(fs, t) < 0)
            return rsi_fs_fail(fs, err, errno, "find a random name for", t->name);
        if (t->one_file)
            made = t->lock = rsi_fs_openat(fs, t->parent, t->temp_last,
                                           O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        else
            made = rsi_fs_mkdirat(fs, t->parent, t->temp_last, 0700);
        if (made < 0 && errno == EEXIST)
            continue;
        if (made < 0)
            return rsi_fs_fail(fs, err, errno, "create", t->temp);
        if (!t->one_file)
            t->lock = rsi_fs_openat(fs, t->parent, t->temp_last, RSI_OPEN_ANY | O_DIRECTORY, 0);
        locked = t->lock < 0 ? -1 : rsi_fs_lock_shared(fs, t->lock);
        if (locked > 0 && set_private(fs, t) == 0)
            return RSD_OK;
        if (locked > 0 || (locked < 0 && errno != ENOENT)) {
            rsd_err rc = rsi_fs_fail(fs, err, errno, "lock", t->temp);

            rsi_fs_remove_tree(fs, t->parent, t->temp_last);
            return rc;
        }
        rsi_fs_close(fs, t->lock);
        t->lock = -1;
    }
    return rsi_fail(err, RSD_E_IO, "could not begin \"%s\": others remove its temporary names",
                    t->name);
}

rsd_err rsi_fs_refuse_replace(const rsi_fs *fs, const rsi_fs_tree *t, rsd_error *err)
{
    return rsi_fail(err, RSD_E_UNSUPPORTED,
                    "\"%s\" in \"%s\" exists, and this file system can't exchange it atomically: "
                    "remove it first or use another name",
                    t->name, fs->path);
}

rsd_err rsi_fs_refuse_kind(const rsi_fs *fs, const rsi_fs_tree *t, rsd_error *err)
{
    return rsi_fail(err, RSD_E_EXISTS, "\"%s\" in \"%s\" is not a %s and is not replaced by one",
                    t->name, fs->path, t->one_file ? "file" : "folder");
}

static rsd_err check_target(const rsi_fs *fs, rsi_fs_tree *t, rsd_error *err)
{
    rsi_target there = rsi_fs_target(fs, t);
    int        can;

    if (there == RSI_TARGET_NONE)
        return RSD_OK;
    if (!t->overwrite)
        return rsi_fail(err, RSD_E_EXISTS, RSI_EXISTS_ALREADY);
    if (there == RSI_TARGET_OTHER)
        return rsi_fs_refuse_kind(fs, t, err);
    if (t->one_file)
        return RSD_OK; /* any rename replaces a file with a file */
    can = can_move(fs, t) ? can_exchange(fs, t) : 0;
    if (can < 0)
        return rsi_fs_fail(fs, err, errno, "try to replace", t->name);
    return can ? RSD_OK : rsi_fs_refuse_replace(fs, t, err);
}

static rsd_err new_tree(const char *name, uint32_t flags, rsi_fs_tree **out, rsd_error *err)
{
    rsi_fs_tree *t = rsi_calloc(1, sizeof(*t));
    size_t       len = strlen(name);

    if (!t)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to write \"%s\"", name);
    t->parent = -1;
    t->from = -1;
    t->lock = -1;
    t->one_file = flags & RSD_TREE_FILE;
    t->overwrite = flags & RSD_TREE_OVERWRITE;
    t->name = rsi_strdup(name);
    t->temp = rsi_calloc(len + RSI_TEMP_EXTRA + 1, 1);
    if (!t->name || !t->temp) {
        rsi_free(t->name);
        rsi_free(t->temp);
        rsi_free(t);
        return rsi_fail(err, RSD_E_NOMEM, "no memory to write \"%s\"", name);
    }
    t->last = t->name + (rsi_last_part(name) - name);
    memcpy(t->temp, name, (size_t)(t->last - t->name));
    t->temp_last = t->temp + (t->last - t->name);
    *out = t;
    return RSD_OK;
}

/* The tree is the existing one at `from`, and stays there until it is published: its writer, which
 * wrote it piece by piece, keeps others away from it and still has it if publishing fails. */
static rsd_err adopt(const rsi_fs *fs, rsi_fs_tree *t, const char *from, rsd_error *err)
{
    const char *last;
    int         dir;
    rsd_err     rc = rsi_fs_enter(fs, from, false, &dir, &last, err);

    if (rc)
        return rc;
    t->from = rsi_fs_openat(fs, dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (t->from < 0)
        rc = rsi_fs_fail(fs, err, errno, "open the folder of", from);
    else if (!rsi_fs_is_there(fs, t->from, last))
        rc = rsi_fs_fail(fs, err, errno, "find", from);
    rsi_free(t->temp);
    t->temp = rsi_strdup(from);
    if (!rc && !t->temp)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to write \"%s\"", t->name);
    t->temp_last = t->temp ? t->temp + (last - from) : NULL;
    rsi_fs_leave(fs, dir);
    return rc;
}

/* `from` NULL: starts with a new, empty tree. */
static rsd_err begin(const rsi_fs *fs, const char *name, uint32_t flags, const char *from,
                     void **out, const char **temp, rsd_error *err)
{
    rsi_fs_tree *t = NULL;
    sweep        s = { .fs = fs };
    const char  *last;
    int          dir;
    rsd_err      rc = rsi_fs_enter(fs, name, false, &dir, &last, err);

    if (rc)
        return rc;
    if (strlen(last) > NAME_MAX) {
        rc = rsi_fail(err, RSD_E_INVALID, "the name \"%s\" has more than %d bytes", name, NAME_MAX);
        goto out;
    }
    rc = new_tree(name, flags, &t, err);
    if (rc)
        goto out;
    t->parent = rsi_fs_openat(fs, dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (t->parent < 0) {
        rc = rsi_fs_fail(fs, err, errno, "open the folder of", name);
        goto out;
    }
    s.last = t->last;
    if (rsi_fs_locks_reach_everyone(fs, t->parent))
        rsi_fs_entries(fs, t->parent, sweep_entry, &s);
    rc = check_target(fs, t, err);
    if (!rc && from) {
        rc = adopt(fs, t, from, err);
    } else if (!rc) {
        t->from = t->parent;
        rc = make_temp(fs, t, err);
    }
    if (rc)
        goto out;
    *out = t;
    *temp = t->temp;
out:
    if (rc)
        rsi_fs_tree_free(fs, t);
    rsi_fs_leave(fs, dir);
    return rc;
}

rsd_err rsi_fs_begin(void *self, const char *name, uint32_t flags, void **out, const char **temp,
                     rsd_error *err)
{
    return begin(self, name, flags, NULL, out, temp, err);
}

rsd_err rsi_fs_adopt(void *self, const char *name, uint32_t flags, const char *from, void **out,
                     const char **temp, rsd_error *err)
{
    return begin(self, name, flags, from, out, temp, err);
}

rsd_err rsi_fs_attach(void *self, const char *temp, void **out, rsd_error *err)
{
    const rsi_fs *fs = self;
    rsi_fs_tree  *t = NULL;
    const char   *last;
    int           dir, locked;
    rsd_err       rc = rsi_fs_enter(fs, temp, false, &dir, &last, err);

    if (rc)
        return rc;
    rc = new_tree(temp, 0, &t, err);
    if (rc)
        goto out;
    t->attached = true;
    t->lock = rsi_fs_openat(fs, dir, last, RSI_OPEN_ANY, 0);
    locked = t->lock < 0 ? -1 : rsi_fs_lock_shared(fs, t->lock);
    if (locked < 0)
        rc = rsi_fs_fail(fs, err, errno, "attach to", temp);
    else if (locked == 0)
        rc = rsi_fail(err, RSD_E_NOTFOUND, "\"%s\" in \"%s\" is being removed", temp, fs->path);
    if (!rc)
        *out = t;
out:
    if (rc)
        rsi_fs_tree_free(fs, t);
    rsi_fs_leave(fs, dir);
    return rc;
}
