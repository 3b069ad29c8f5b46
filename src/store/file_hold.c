/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of local files alongside writers. Holding: a reader keeps open what a name refers to, so
 * that a publication under that name does not affect it. For a folder the descriptor suffices until
 * it is removed; files opened by then stay readable. A data file and its checksum file are both
 * opened, and reopened until they come from one writer. Locking: a writer that publishes two names
 * keeps others out of their folder between the first and the second; a reader can lock what it
 * holds, and writers wait a moment before they replace that, but never between their two names.
 * Next: file_publish.c. */
#include "store/file.h"
#include "base/mem.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

enum {
    TRIES = 64,            /* each lost try means that a writer published at that moment */
    READER_WAIT_MS = 5000, /* for a writer between its two names */
    WRITER_WAIT_MS = 30000,
    MOST_FILES = 64, /* files of a folder that are opened when it is held */
    NONE = -1,       /* there is no checksum file */
    NOT_HELD = -2,   /* it exists but can't be opened for reading: opening it later reports why */
    READ_FILE = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
};

/* ---- locks ---- */

static void wait_ms(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

int rsi_fs_lock_wait(const rsi_fs *fs, int fd, int how, int most_ms)
{
    for (int i = 0;; i++) {
        if (rsi_fs_flock(fs, fd, how | LOCK_NB) == 0)
            return 1;
        if (errno != EWOULDBLOCK)
            return -1;
        if (i == most_ms)
            return 0;
        wait_ms();
    }
}

/* Unlocks before closing: a child process forked meanwhile has the descriptor too. */
static void unlock_folder(const rsi_fs *fs, int fd)
{
    if (fd >= 0)
        rsi_fs_flock(fs, fd, LOCK_UN);
    rsi_fs_close(fs, fd);
}

static int open_folder(const rsi_fs *fs, int dir)
{
    return rsi_fs_openat(fs, dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
}

/* Locks what is held, so that it is not replaced for a moment. */
static rsd_err lock_held(const rsi_fs *fs, void **out, rsd_error *err)
{
    int fd = fs->held.single ? fs->held.file[0].fd : open_folder(fs, fs->held.folder);

    if (fd >= 0 && rsi_fs_lock_wait(fs, fd, LOCK_SH, 0) != 0) {
        *out = (void *)(intptr_t)(fd + 1);
        return RSD_OK;
    }
    if (!fs->held.single)
        rsi_fs_close(fs, fd);
    return rsi_fail(err, RSD_E_NOTFOUND, "\"%s\" is being replaced", fs->held.name);
}

/* True if a reader has locked the file of that name. */
static bool has_readers(const rsi_fs *fs, int dir, const char *last)
{
    int  fd = rsi_fs_openat(fs, dir, last, READ_FILE, 0);
    bool has = fd >= 0 && rsi_fs_lock_wait(fs, fd, LOCK_EX, 0) == 0;

    rsi_fs_close(fs, fd);
    return has;
}

/* Readers that have locked a file may need its folder's lock to proceed, so a writer never waits
 * for them while it holds that lock. False: another writer has held it for too long. */
static bool lock_folder(const rsi_fs *fs, int dir, const char *last, int fd)
{
    for (int i = 0; i < WRITER_WAIT_MS; i++) {
        int locked = rsi_fs_lock_wait(fs, fd, LOCK_EX, 0);

        if (locked < 0 || (locked && (i >= RSI_READERS_MS || !has_readers(fs, dir, last))))
            return true;
        if (locked)
            rsi_fs_flock(fs, fd, LOCK_UN);
        wait_ms();
    }
    return false;
}

rsd_err rsi_fs_lock(void *self, const char *name, void **out, rsd_error *err)
{
    const rsi_fs *fs = self;
    const char   *last;
    int           dir, fd;
    rsd_err       rc;

    if (fs->held.name && strcmp(name, fs->held.name) == 0)
        return lock_held(fs, out, err);
    rc = rsi_fs_enter(fs, name, false, &dir, &last, err);
    if (rc)
        return rc;
    fd = open_folder(fs, dir);
    if (fd < 0) {
        rc = rsi_fs_fail(fs, err, errno, "open the folder of", name);
    } else if (!lock_folder(fs, dir, last, fd)) {
        rsi_fs_close(fs, fd);
        rc = rsi_fail(err, RSD_E_IO,
                      "could not publish \"%s\" in \"%s\": another program keeps its folder locked",
                      name, fs->path);
    }
    rsi_fs_leave(fs, dir);
    if (!rc)
        *out = (void *)(intptr_t)(fd + 1);
    return rc;
}

void rsi_fs_unlock(void *self, void *lock)
{
    const rsi_fs *fs = self;
    int           fd = (int)(intptr_t)lock - 1;

    if (fs->held.single && fd == fs->held.file[0].fd)
        rsi_fs_flock(fs, fd, LOCK_UN); /* it stays open */
    else
        unlock_folder(fs, fd);
}

/* ---- a data file and its checksum file ---- */

/* True if the name refers to the open file. Its inode can't be reused while it is open. */
static bool is_named(const rsi_fs *fs, int dir, const char *name, int fd)
{
    struct statx mine, now;

    return rsi_fs_statx(fs, fd, "", AT_EMPTY_PATH, STATX_INO, &mine) == 0 &&
           rsi_fs_statx(fs, dir, name, AT_SYMLINK_NOFOLLOW, STATX_INO, &now) == 0 &&
           mine.stx_ino == now.stx_ino && mine.stx_dev_major == now.stx_dev_major &&
           mine.stx_dev_minor == now.stx_dev_minor;
}

/* A writer removes the checksum file, then renames the data file into place, then the checksum
 * file. So a checksum file found while the data file still has its name belongs to it; if there is
 * none, a writer may be at work, as its lock shows. Consecutive writers leave the lock free for
 * moments only, so it is checked between two checks of the files and never merely waited for. -1
 * and errno. */
static int open_pair(const rsi_fs *fs, int dir, const char *last, const char *side, int *side_fd)
{
    int  fd = -1, folder = -1, kept;
    bool sure = false; /* no writer is between its two names */

    for (int i = 0; i < READER_WAIT_MS + TRIES; i++) {
        fd = rsi_fs_openat(fs, dir, last, READ_FILE, 0);
        if (fd < 0)
            break;
        *side_fd = rsi_fs_openat(fs, dir, side, READ_FILE, 0);
        if (*side_fd < 0)
            *side_fd = errno == ENOENT ? NONE : NOT_HELD;
        if (is_named(fs, dir, last, fd) && (*side_fd != NONE || sure))
            break;
        rsi_fs_close(fs, *side_fd);
        rsi_fs_close(fs, fd);
        fd = -1;
        if (folder < 0)
            folder = open_folder(fs, dir);
        sure = sure || i >= READER_WAIT_MS || rsi_fs_lock_wait(fs, folder, LOCK_SH, 0) != 0;
        if (!sure)
            wait_ms();
        errno = EBUSY;
    }
    kept = errno;
    unlock_folder(fs, folder);
    errno = kept;
    return fd;
}

/* ---- holding ---- */

rsd_err rsi_fs_list_held(const rsi_fs *fs,
                         rsd_err (*visit)(void *arg, const char *name, int fd, rsd_error *err),
                         void *arg, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < fs->held.n && !rc; i++)
        rc = visit(arg, rsi_last_part(fs->held.file[i].name), fs->held.file[i].fd, err);
    return rc;
}

int rsi_fs_find_held(const rsi_fs *fs, const char *name)
{
    for (size_t i = 0; i < fs->held.n; i++)
        if (strcmp(name, fs->held.file[i].name) == 0)
            return fs->held.file[i].fd;
    return NOT_HELD;
}

void rsi_fs_let_go(rsi_fs *fs)
{
    for (size_t i = 0; i < fs->held.n; i++) {
        rsi_fs_close(fs, fs->held.file[i].fd);
        rsi_free(fs->held.file[i].name);
    }
    rsi_free(fs->held.file);
    rsi_fs_close(fs, fs->held.folder);
    rsi_free(fs->held.name);
}

/* Adds "<name of what is held><slash><rest>". False: no memory. */
static bool keep(rsi_fs *fs, const char *slash, const char *rest, int fd)
{
    rsi_fs_held *h = &fs->held;
    size_t       len = strlen(h->name) + strlen(slash) + strlen(rest) + 1;
    char        *full = rsi_calloc(len, 1);

    if (!full || !rsi_grow(&h->file, h->n, &h->cap, sizeof(h->file[0]))) {
        rsi_free(full);
        return false;
    }
    snprintf(full, len, "%s%s%s", h->name, slash, rest);
    h->file[h->n++] = (rsi_fs_held_file){ .name = full, .fd = fd };
    return true;
}

static rsd_err hold_file(rsi_fs *fs, int dir, const char *last, const char *tail, rsd_error *err)
{
    rsi_fs_held *h = &fs->held;

    h->single = true;
    if (!keep(fs, "", "", NONE) || !keep(fs, "", tail, NONE))
        return rsi_fail(err, RSD_E_NOMEM, "no memory to open \"%s\"", h->name);
    h->file[0].fd = open_pair(fs, dir, last, rsi_last_part(h->file[1].name), &h->file[1].fd);
    return h->file[0].fd < 0 ? rsi_fs_fail(fs, err, errno, "open", h->name) : RSD_OK;
}

/* A file that can't be opened now is opened when needed. */
static int hold_entry(void *arg, int dir, const char *name, unsigned char type)
{
    rsi_fs *fs = arg;
    int     fd;

    fs->held.complete = fs->held.n < MOST_FILES;
    if (!fs->held.complete)
        return 1;
    fd = type == DT_REG || type == DT_UNKNOWN ? rsi_fs_openat(fs, dir, name, READ_FILE, 0) : -1;
    if (fd >= 0 && keep(fs, "/", name, fd))
        return 0;
    rsi_fs_close(fs, fd);
    fs->held.complete = false;
    return 1;
}

/* Holds the folder's files too, before a writer removes them: it renames the folder first, which
 * the check at the end detects. */
static void hold_files(rsi_fs *fs, int dir, const char *last)
{
    int fd = open_folder(fs, fs->held.folder);

    if (fd >= 0 && rsi_fs_entries(fs, fd, hold_entry, fs) < 0)
        fs->held.complete = false;
    rsi_fs_close(fs, fd);
    fs->held.complete = fs->held.complete && is_named(fs, dir, last, fs->held.folder);
}

/* Holds a folder or file; *held is false for anything else. */
static rsd_err hold(rsi_fs *fs, int dir, const char *last, const char *tail, uint32_t flags,
                    bool *held, rsd_error *err)
{
    struct statx st;
    int          fd = rsi_fs_openat(fs, dir, last, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);

    *held = false;
    if (fd < 0 || rsi_fs_statx(fs, fd, "", AT_EMPTY_PATH, STATX_TYPE, &st) < 0) {
        rsd_err rc = rsi_fs_fail(fs, err, errno, "find", fs->held.name);

        rsi_fs_close(fs, fd);
        return rc;
    }
    *held = S_ISDIR(st.stx_mode) || S_ISREG(st.stx_mode);
    if (S_ISDIR(st.stx_mode)) {
        fs->held.folder = fd;
        if (flags & RSD_HOLD_FILES)
            hold_files(fs, dir, last);
        return RSD_OK;
    }
    rsi_fs_close(fs, fd);
    return *held ? hold_file(fs, dir, last, tail, err) : RSD_OK;
}

rsd_err rsi_fs_hold(void *self, const char *name, const char *tail, uint32_t flags, rsd_store **out,
                    rsd_error *err)
{
    const rsi_fs *from = self;
    rsi_fs       *fs = rsi_calloc(1, sizeof(*fs));
    bool          held = false;
    const char   *last;
    int           dir;
    rsd_err       rc;

    if (!fs)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a store");
    *fs = *from;
    fs->held = (rsi_fs_held){ .name = rsi_strdup(name), .folder = -1 };
    rc = fs->held.name ? rsi_fs_enter(from, name, false, &dir, &last, err)
                       : rsi_fail(err, RSD_E_NOMEM, "no memory for a store");
    if (!rc) {
        rc = hold(fs, dir, last, tail, flags, &held, err);
        rsi_fs_leave(from, dir);
    }
    if (!rc && held)
        rc = rsi_file_store_make(fs, out, err);
    if (!rc && !held)
        *out = NULL;
    if (rc || !held) {
        rsi_fs_let_go(fs);
        rsi_free(fs);
    }
    return rc;
}

rsd_held rsi_fs_replaced(void *self)
{
    rsi_fs      fs = *(const rsi_fs *)self;
    rsi_fs_held held = fs.held;
    const char *last;
    int         dir;
    bool        same;
    rsd_held    lost = held.single || held.complete ? RSD_HELD_REPLACED : RSD_HELD_LOST;

    fs.held = (rsi_fs_held){ 0 }; /* look the name up as other processes do */
    if (!held.name)
        return RSD_HELD_CURRENT;
    if (rsi_fs_enter(&fs, held.name, false, &dir, &last, NULL))
        return lost;
    same = is_named(&fs, dir, last, held.single ? held.file[0].fd : held.folder);
    rsi_fs_leave(&fs, dir);
    return same ? RSD_HELD_CURRENT : lost;
}
