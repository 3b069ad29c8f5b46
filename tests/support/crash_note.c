/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the disk that forgets: each is made and noted under one lock, so that the notes
 * have the order in which things happened. Next: crash_store.c. */
#include "crash_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static crash_change *note(crash_kind kind, int node)
{
    crash_change *c = &crash.change[crash.nchanges];

    crash_need(crash.nchanges < CRASH_CHANGES, "too many changes");
    crash.nchanges++;
    *c = (crash_change){ .kind = kind, .node = node, .other = -1 };
    return c;
}

/* The folder that a name is in, as a node, -1 if it is outside; *last is the name in it. */
static int folder_of(int dir, const char *name, const char **last)
{
    const char *slash = strrchr(name, '/');
    char        path[512] = ".";
    struct stat st;

    *last = slash ? slash + 1 : name;
    if (slash) {
        crash_need((size_t)(slash - name) < sizeof(path), "a path is too long");
        memcpy(path, name, (size_t)(slash - name));
        path[slash - name] = 0;
        if (slash == name)
            return -1;
    }
    if (fstatat(dir, path, &st, 0) < 0)
        return -1;
    return crash_node(st.st_ino);
}

static int node_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) < 0 ? -1 : crash_node(st.st_ino);
}

static int node_at(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -1 : crash_node(st.st_ino);
}

/* `name` in `dir` is new. */
static void note_new(int dir, const char *name, bool folder)
{
    const char   *last;
    int           at = folder_of(dir, name, &last);
    struct stat   st;
    crash_change *c;

    if (at < 0)
        return;
    crash_need(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0, "what was made is not there");
    c = note(CRASH_SET, at);
    c->name = crash_name(last);
    c->child = crash_new_node(st.st_ino, folder);
}

static int c_openat(int dir, const char *name, int flags, mode_t mode)
{
    int fd;

    pthread_mutex_lock(&lock);
    crash_need(!(flags & O_TRUNC) && (!(flags & O_CREAT) || (flags & O_EXCL)),
               "files that exist are not made anew (C2)");
    fd = rsi_sys_real.openat(dir, name, flags, mode);
    if (fd >= 0 && (flags & O_CREAT) && crash.on)
        note_new(dir, name, false);
    pthread_mutex_unlock(&lock);
    return fd;
}

static int c_mkdirat(int dir, const char *name, mode_t mode)
{
    int rc;

    pthread_mutex_lock(&lock);
    rc = rsi_sys_real.mkdirat(dir, name, mode);
    if (rc == 0 && crash.on)
        note_new(dir, name, true);
    pthread_mutex_unlock(&lock);
    return rc;
}

static ssize_t c_pwrite(int fd, const void *buf, size_t len, off_t off)
{
    ssize_t n;
    int     node;

    pthread_mutex_lock(&lock);
    node = crash.on ? node_of(fd) : -1;
    n = rsi_sys_real.pwrite(fd, buf, len, off);
    for (size_t at = 0; node >= 0 && n > 0 && at < (size_t)n; at += CRASH_PIECE) {
        crash_change *c = note(CRASH_WRITE, node);

        c->off = (size_t)off + at;
        c->len = (size_t)n - at < CRASH_PIECE ? (size_t)n - at : CRASH_PIECE;
        c->bytes = malloc(c->len);
        crash_need(c->bytes, "no memory");
        memcpy(c->bytes, (const char *)buf + at, c->len);
    }
    pthread_mutex_unlock(&lock);
    return n;
}

static int c_fallocate(int fd, int mode, off_t off, off_t len)
{
    int rc, node;

    pthread_mutex_lock(&lock);
    node = crash.on ? node_of(fd) : -1;
    rc = rsi_sys_real.fallocate(fd, mode, off, len);
    if (rc == 0 && node >= 0)
        note(CRASH_SIZE, node)->len = (size_t)(off + len);
    pthread_mutex_unlock(&lock);
    return rc;
}

static int c_fsync(int fd)
{
    bool bad;
    int  node;

    pthread_mutex_lock(&lock);
    node = crash.on ? node_of(fd) : -1;
    crash.nsyncs++;
    bad = crash.fail_sync && (crash.nsyncs == crash.fail_sync ||
                              (crash.fail_for_ever && crash.nsyncs > crash.fail_sync));
    if (node >= 0)
        note(bad ? CRASH_BAD_SYNC : CRASH_SYNC, node);
    pthread_mutex_unlock(&lock);
    if (bad)
        errno = EIO;
    return bad ? -1 : 0;
}

static int c_unlinkat(int dir, const char *name, int flags)
{
    const char *last;
    int         rc, at;

    pthread_mutex_lock(&lock);
    rc = rsi_sys_real.unlinkat(dir, name, flags);
    at = rc == 0 && crash.on ? folder_of(dir, name, &last) : -1;
    if (at >= 0) {
        crash_change *c = note(CRASH_SET, at);

        c->name = crash_name(last);
        c->child = -1;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

static int c_linkat(int dir, const char *name, int new_dir, const char *new_name, int flags)
{
    const char *last;
    int         rc, at, node;

    pthread_mutex_lock(&lock);
    node = node_at(dir, name);
    rc = rsi_sys_real.linkat(dir, name, new_dir, new_name, flags);
    at = rc == 0 && crash.on ? folder_of(new_dir, new_name, &last) : -1;
    if (at >= 0) {
        crash_change *c = note(CRASH_SET, at);

        c->name = crash_name(last);
        c->child = node;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

static int c_renameat2(int dir, const char *name, int new_dir, const char *new_name, unsigned flags)
{
    const char *from, *to;
    int         rc, at, to_at, node, there;

    pthread_mutex_lock(&lock);
    node = node_at(dir, name);
    there = node_at(new_dir, new_name);
    at = crash.on ? folder_of(dir, name, &from) : -1;
    to_at = crash.on ? folder_of(new_dir, new_name, &to) : -1;
    crash_need((at < 0) == (to_at < 0), "renames stay below the folder");
    rc = rsi_sys_real.renameat2(dir, name, new_dir, new_name, flags);
    if (rc == 0 && at >= 0) {
        crash_change *c = note(CRASH_SET, at);

        c->name = crash_name(from);
        c->child = flags & RENAME_EXCHANGE ? there : -1;
        if (to_at != at) { /* the names of two folders: one may be kept without the other */
            c = note(CRASH_SET, to_at);
            c->name = crash_name(to);
            c->child = node;
            pthread_mutex_unlock(&lock);
            return rc;
        }
        c->other = crash_name(to);
        c->other_child = node;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

static int c_ring_init(unsigned depth, struct io_uring *ring)
{
    (void)depth, (void)ring;
    return -ENOSYS;
}

const rsi_sys *crash_sys(void)
{
    static rsi_sys sys;

    sys = rsi_sys_real;
    sys.openat = c_openat;
    sys.mkdirat = c_mkdirat;
    sys.pwrite = c_pwrite;
    sys.fallocate = c_fallocate;
    sys.fsync = c_fsync;
    sys.unlinkat = c_unlinkat;
    sys.linkat = c_linkat;
    sys.renameat2 = c_renameat2;
    sys.ring_init = c_ring_init;
    return &sys;
}
