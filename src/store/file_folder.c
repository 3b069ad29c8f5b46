/* SPDX-License-Identifier: Apache-2.0 */
/* Names in the file store: descends to a folder without following links, lists, creates and
 * removes. Uses only calls relative to an open folder, so that nothing outside the store is reached
 * even if another process replaces folders with links meanwhile. Next: file_tree.c. */
#include "store/file.h"
#include "base/mem.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    DEPTH_MAX = 16, /* nesting limit of remove and sync; our folders have one or two levels */
    ENTRY_BYTES = 8192,
    ASK_ENTRY = STATX_TYPE | STATX_SIZE | STATX_MTIME,
    READ_FOLDER = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW
};

/* ---- descending ---- */

/* Opens the component at *part and advances *part past it. -1 and errno. */
static int step(const rsi_fs *fs, int dir, const char **part, bool follow)
{
    char        name[NAME_MAX + 1];
    const char *slash = strchr(*part, '/');
    size_t      len = (size_t)(slash - *part);

    if (len > NAME_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(name, *part, len);
    name[len] = 0;
    *part = slash + 1;
    return rsi_fs_openat(fs, dir, name,
                         O_PATH | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW), 0);
}

/* The rest of a name below the held folder, "" for that folder itself; NULL: it is elsewhere. */
static const char *below_held(const rsi_fs *fs, const char *name)
{
    size_t len;

    if (!fs->held.name || fs->held.single)
        return NULL;
    len = strlen(fs->held.name);
    if (strncmp(name, fs->held.name, len) != 0 || (name[len] && name[len] != '/'))
        return NULL;
    return name + len + (name[len] == '/');
}

rsd_err rsi_fs_enter(const rsi_fs *fs, const char *name, bool follow, int *dir, const char **last,
                     rsd_error *err)
{
    const char *held = below_held(fs, name), *part = held ? held : name;
    int         at = held ? fs->held.folder : fs->top;

    while (strchr(part, '/')) {
        int next = step(fs, at, &part, follow);

        rsi_fs_leave(fs, at);
        if (next < 0)
            return rsi_fs_fail(fs, err, errno, "go to the folder of", name);
        at = next;
    }
    *dir = at;
    *last = part;
    return RSD_OK;
}

void rsi_fs_leave(const rsi_fs *fs, int dir)
{
    if (dir != fs->top && !(fs->held.name && dir == fs->held.folder))
        rsi_fs_close(fs, dir);
}

/* ---- listing ---- */

int rsi_fs_entries(const rsi_fs *fs, int dir,
                   int (*visit)(void *arg, int dir, const char *name, unsigned char type),
                   void *arg)
{
    _Alignas(struct dirent64) char buf[ENTRY_BYTES];
    ssize_t                        n;

    if (fs->sys->lseek(dir, 0, SEEK_SET) < 0)
        return -1;
    while ((n = rsi_fs_getdents(fs, dir, buf, sizeof(buf))) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct dirent64 *e = (const struct dirent64 *)(buf + at);
            int                    rc;

            at += e->d_reclen;
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                continue;
            rc = visit(arg, dir, e->d_name, e->d_type);
            if (rc)
                return rc;
        }
    }
    return n < 0 ? -1 : 0;
}

static rsd_entry entry_of(const char *name, const struct statx *st)
{
    rsd_entry entry = { .name = name, .kind = RSD_ENTRY_OTHER };

    if (S_ISDIR(st->stx_mode))
        entry.kind = RSD_ENTRY_FOLDER;
    if (S_ISREG(st->stx_mode)) {
        entry.kind = RSD_ENTRY_FILE;
        entry.size = st->stx_size;
        entry.version = rsi_fs_version(st);
    }
    return entry;
}

typedef struct listing {
    const rsi_fs *fs;
    rsi_visit     visit;
    void         *arg;
    rsd_err       rc;
    rsd_error    *err;
} listing;

static rsd_err list_open(void *arg, const char *name, int fd, rsd_error *err)
{
    listing     *l = arg;
    rsd_entry    entry;
    struct statx st;

    if (rsi_fs_statx(l->fs, fd, "", AT_EMPTY_PATH, ASK_ENTRY, &st) < 0)
        return rsi_fs_fail(l->fs, err, errno, "look at", name);
    entry = entry_of(name, &st);
    return l->visit(l->arg, &entry, err);
}

static int list_entry(void *arg, int dir, const char *name, unsigned char type)
{
    listing     *l = arg;
    rsd_entry    entry;
    struct statx st;

    (void)type; /* statx is needed anyway, for the size */
    if (rsi_fs_statx(l->fs, dir, name, AT_SYMLINK_NOFOLLOW, ASK_ENTRY, &st) < 0) {
        if (errno == ENOENT)
            return 0; /* removed meanwhile */
        l->rc = rsi_fs_fail(l->fs, l->err, errno, "look at", name);
        return 1;
    }
    entry = entry_of(name, &st);
    l->rc = l->visit(l->arg, &entry, l->err);
    return l->rc != RSD_OK;
}

rsd_err rsi_fs_list(void *self, const char *name, rsi_visit visit, void *arg, rsd_error *err)
{
    const rsi_fs *fs = self;
    listing       l = { .fs = fs, .visit = visit, .arg = arg, .err = err };
    const char   *last;
    int           dir, fd;
    rsd_err       rc;

    if (fs->held.complete && strcmp(name, fs->held.name) == 0)
        return rsi_fs_list_held(fs, list_open, &l, err);
    rc = rsi_fs_enter(fs, name, false, &dir, &last, err);
    if (rc)
        return rc;
    fd = rsi_fs_openat(fs, dir, last[0] ? last : ".", READ_FOLDER, 0);
    if (fd < 0)
        rc = rsi_fs_fail(fs, err, errno, "list", name);
    else if (rsi_fs_entries(fs, fd, list_entry, &l) < 0)
        rc = rsi_fs_fail(fs, err, errno, "list", name);
    else
        rc = l.rc;
    rsi_fs_close(fs, fd);
    rsi_fs_leave(fs, dir);
    return rc;
}

rsd_err rsi_fs_stat(void *self, const char *name, rsd_entry *out, rsd_error *err)
{
    const rsi_fs *fs = self;
    int           held = rsi_fs_find_held(fs, name);
    struct statx  st;
    const char   *last;
    int           dir;
    rsd_err       rc = rsi_fs_enter(fs, name, false, &dir, &last, err);

    if (rc)
        return rc;
    if (rsi_fs_statx(fs, held >= 0 ? held : dir, held >= 0 ? "" : last,
                     AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, ASK_ENTRY, &st) < 0)
        rc = rsi_fs_fail(fs, err, errno, "find", name);
    else
        *out = entry_of(name, &st);
    rsi_fs_leave(fs, dir);
    return rc;
}

/* ---- trees of folders ---- */

/* The path down to the current folder. */
typedef struct way {
    const rsi_fs *fs;
    bool          removing; /* false: sync folders */
    int           n;
    int           done[DEPTH_MAX + 1]; /* number of subfolders already synced at each level */
    int           seen;                /* subfolders found in this pass */
    int           fd[DEPTH_MAX + 1];   /* fd[0]: contains the tree; the caller's */
    char          name[DEPTH_MAX + 1][NAME_MAX + 1]; /* name[i]: name of fd[i] in fd[i - 1] */
    char          next[NAME_MAX + 1]; /* the next folder to descend to; "": none left */
} way;

/* Removal tolerates another process that removes the same tree. */
static int may_be_gone(const way *w, int rc)
{
    return rc < 0 && w->removing && errno == ENOENT ? 0 : rc;
}

static int way_down(way *w, const char *name)
{
    int fd;

    if (w->n == DEPTH_MAX) {
        errno = ELOOP;
        return -1;
    }
    fd = rsi_fs_openat(w->fs, w->fd[w->n], name, READ_FOLDER, 0);
    if (fd < 0)
        return may_be_gone(w, -1);
    w->n++;
    w->fd[w->n] = fd;
    w->done[w->n] = 0;
    snprintf(w->name[w->n], sizeof(w->name[0]), "%s", name);
    return 0;
}

static void way_up(way *w)
{
    rsi_fs_close(w->fs, w->fd[w->n]);
    w->n--;
}

/* 1: a folder, 0: something else; -1 and errno. */
static int is_folder(const rsi_fs *fs, int dir, const char *name, unsigned char type)
{
    struct statx st;

    if (type != DT_UNKNOWN)
        return type == DT_DIR;
    if (rsi_fs_statx(fs, dir, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) < 0)
        return -1;
    return S_ISDIR(st.stx_mode);
}

/* Finds the next folder to descend to, and removes files on the way if the walk is a removal. */
static int visit_entry(void *arg, int dir, const char *name, unsigned char type)
{
    way *w = arg;
    int  rc = is_folder(w->fs, dir, name, type);

    if (rc > 0 && w->seen++ < w->done[w->n])
        return 0;
    if (rc > 0)
        snprintf(w->next, sizeof(w->next), "%s", name);
    if (rc == 0 && w->removing)
        rc = rsi_fs_unlinkat(w->fs, dir, name, 0);
    return may_be_gone(w, rc);
}

/* Finishes the current folder, which has no subfolders left. */
static int leave_folder(way *w)
{
    if (!w->removing && rsi_fs_fsync(w->fs, w->fd[w->n]) < 0)
        return -1;
    way_up(w);
    if (!w->removing)
        return 0;
    return may_be_gone(w, rsi_fs_unlinkat(w->fs, w->fd[w->n], w->name[w->n + 1], AT_REMOVEDIR));
}

/* Descends into each folder and back up, and finally handles the top folder itself. */
static int walk(way *w, const char *name)
{
    int rc = way_down(w, name);

    while (w->n > 0 && rc >= 0) {
        w->next[0] = 0;
        w->seen = 0;
        rc = rsi_fs_entries(w->fs, w->fd[w->n], visit_entry, w);
        if (rc >= 0 && w->next[0]) {
            w->done[w->n] += !w->removing;
            rc = way_down(w, w->next);
        } else if (rc >= 0) {
            rc = leave_folder(w);
        }
    }
    return rc;
}

static int walk_tree(const rsi_fs *fs, int dir, const char *name, bool removing)
{
    way *w = rsi_calloc(1, sizeof(*w));
    int  rc, kept;

    if (!w) {
        errno = ENOMEM;
        return -1;
    }
    w->fs = fs;
    w->fd[0] = dir;
    w->removing = removing;
    rc = walk(w, name);
    kept = errno;
    while (w->n > 0)
        way_up(w);
    rsi_free(w);
    errno = kept;
    return rc < 0 ? -1 : 0;
}

int rsi_fs_remove_tree(const rsi_fs *fs, int dir, const char *name)
{
    int rc = is_folder(fs, dir, name, DT_UNKNOWN);

    if (rc > 0)
        return walk_tree(fs, dir, name, true);
    if (rc == 0)
        rc = rsi_fs_unlinkat(fs, dir, name, 0);
    return rc < 0 && errno != ENOENT ? -1 : 0;
}

int rsi_fs_sync_folders(const rsi_fs *fs, int dir, const char *name)
{
    return walk_tree(fs, dir, name, false);
}

/* ---- creating and removing ---- */

/* Opens a folder and syncs it once, which makes entries created or renamed in it durable. -1 and
 * errno. */
static int sync_at(const rsi_fs *fs, int dir, const char *name)
{
    int fd = rsi_fs_openat(fs, dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    int rc = fd < 0 ? -1 : rsi_fs_fsync(fs, fd);

    rsi_fs_close(fs, fd);
    return rc;
}

/* Creates a folder in `dir`, durably; fine if it exists already. -1 and errno. */
static int make_one(const rsi_fs *fs, int dir, const char *name)
{
    int folder;

    if (rsi_fs_mkdirat(fs, dir, name, 0777) == 0)
        return sync_at(fs, dir, ".");
    if (errno != EEXIST)
        return -1;
    folder = is_folder(fs, dir, name, DT_UNKNOWN);
    if (folder == 0)
        errno = EEXIST;
    return folder > 0 ? 0 : -1;
}

rsd_err rsi_fs_make_folder(void *self, const char *name, rsd_error *err)
{
    const rsi_fs *fs = self;
    char          part[NAME_MAX + 1];
    const char   *at = name;
    int           dir = fs->top;
    rsd_err       rc = RSD_OK;

    for (;;) {
        const char *end = strchrnul(at, '/');
        size_t      len = (size_t)(end - at);
        int         next = -1;

        if (len > NAME_MAX) {
            rc = rsi_fs_fail(fs, err, ENAMETOOLONG, "make the folder", name);
            break;
        }
        memcpy(part, at, len);
        part[len] = 0;
        if (make_one(fs, dir, part) == 0)
            next = *end ? step(fs, dir, &at, false) : dir;
        if (next < 0)
            rc = rsi_fs_fail(fs, err, errno, "make the folder", name);
        if (next < 0 || !*end)
            break;
        rsi_fs_leave(fs, dir);
        dir = next;
    }
    rsi_fs_leave(fs, dir);
    return rc;
}

/* 1: only this user may write to the open folder; 0: others may; -1 and errno. A probe file shows
 * our user on this file system, and whether it supports modes. */
static int is_private(const rsi_fs *fs, int dir)
{
    char         probe[sizeof("probe") + RSI_TEMP_EXTRA];
    struct statx folder, ours;
    uint64_t     random;
    int          fd, rc;

    if (rsi_fs_random(fs, &random) < 0)
        return -1;
    rsi_temp_name("probe", random, probe);
    fd = rsi_fs_openat(fs, dir, probe, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EACCES || errno == EPERM ? 0 : -1;
    rc = rsi_fs_statx(fs, fd, "", AT_EMPTY_PATH, STATX_UID | STATX_MODE, &ours);
    if (rc == 0)
        rc = rsi_fs_statx(fs, dir, "", AT_EMPTY_PATH, STATX_UID | STATX_MODE, &folder);
    rsi_fs_close(fs, fd);
    rsi_fs_unlinkat(fs, dir, probe, 0);
    if (rc < 0)
        return -1;
    return folder.stx_uid == ours.stx_uid && !(folder.stx_mode & ~ours.stx_mode & 022);
}

rsd_err rsi_fs_make_private(void *self, const char *name, rsd_error *err)
{
    const rsi_fs *fs = self;
    const char   *last;
    int           dir, fd = -1, mine = 1;
    rsd_err       rc = rsi_fs_enter(fs, name, false, &dir, &last, err);

    if (rc)
        return rc;
    if (rsi_fs_mkdirat(fs, dir, last, 0700) < 0) {
        fd = errno == EEXIST ? rsi_fs_openat(fs, dir, last, READ_FOLDER, 0) : -1;
        if (fd >= 0)
            mine = is_private(fs, fd);
        else
            mine = errno == EACCES ? 0 : -1;
    }
    /* Even if it existed: an earlier writer's changes beside it may not be durable (C1). */
    if (mine > 0 && sync_at(fs, dir, ".") < 0)
        mine = -1;
    if (mine < 0)
        rc = rsi_fs_fail(fs, err, errno, "make the folder", name);
    else if (mine == 0)
        rc = rsi_fail(
            err, RSD_E_EXISTS,
            "\"%s\" in \"%s\" belongs to another user or others may write to it: it is not "
            "used, remove it",
            name, fs->path);
    rsi_fs_close(fs, fd);
    rsi_fs_leave(fs, dir);
    return rc;
}

rsd_err rsi_file_store_make_top(const char *path, const rsi_sys *sys, rsd_error *err)
{
    rsi_fs  fs = { .sys = sys ? sys : &rsi_sys_real, .top = AT_FDCWD };
    char   *part = rsi_calloc(strlen(path) + 1, 1);
    rsd_err rc = RSD_OK;

    if (!part)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the path \"%s\"", path);
    for (size_t start = 0, end = 0; !rc && path[end]; start = end) {
        start += strspn(path + start, "/");
        end = start + strcspn(path + start, "/");
        memcpy(part, path, end);
        if (rsi_fs_mkdirat(&fs, AT_FDCWD, part, 0777) == 0) {
            part[start] = 0;
            if (sync_at(&fs, AT_FDCWD, start ? part : ".") < 0)
                rc = rsi_fail_errno(err, RSD_E_IO, errno, "could not sync the folder of \"%.*s\"",
                                    (int)end, path);
        } else if (errno != EEXIST) { /* opening the store reports a file in the way */
            rc = rsi_fail_errno(err, rsi_errno_code(errno), errno,
                                "could not make the folder \"%s\"", part);
        }
    }
    rsi_free(part);
    return rc;
}

/* Renames it first, durably: a power cut in the middle must not leave half a checkpoint under its
 * name (C1). The next begin removes any remains as a dead writer's. */
static int hide(const rsi_fs *fs, int dir, const char *last, char *temp)
{
    uint64_t random;

    if (rsi_fs_random(fs, &random) < 0)
        return -1;
    rsi_temp_name(last, random, temp);
    return rsi_fs_rename(fs, dir, last, dir, temp, 0) < 0 ? -1 : sync_at(fs, dir, ".");
}

rsd_err rsi_fs_remove(void *self, const char *name, rsd_error *err)
{
    const rsi_fs *fs = self;
    char          temp[NAME_MAX + RSI_TEMP_EXTRA + 1];
    struct statx  st;
    const char   *last;
    int           dir, failed;
    rsd_err       rc = rsi_fs_enter(fs, name, false, &dir, &last, err);

    if (rc)
        return rc;
    failed = rsi_fs_statx(fs, dir, last, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st);
    if (failed == 0 && S_ISDIR(st.stx_mode)) {
        failed = hide(fs, dir, last, temp);
        if (failed == 0)
            failed = rsi_fs_remove_tree(fs, dir, temp);
    } else if (failed == 0) {
        failed = rsi_fs_unlinkat(fs, dir, last, 0);
        if (failed == 0)
            failed = sync_at(fs, dir, ".");
    }
    if (failed < 0)
        rc = rsi_fs_fail(fs, err, errno, "remove", name);
    rsi_fs_leave(fs, dir);
    return rc;
}
