/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a tree of local files its name, atomically and durably (C1, C3, C5), or aborts it.
 * file_tree.c begins trees. */
#include "store/file_tree.h"
#include "store/store.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

/* Renames a file without replacing anything, where neither RENAME_NOREPLACE nor links are
 * supported: a lock makes writers check and rename one after the other. */
static int rename_if_none(const rsi_fs *fs, const rsi_fs_tree *t)
{
    int rc = -1, locked = -1;

    for (int i = 0; i < RSI_TREE_TRIES && locked < 0; i++) {
        locked = rsi_fs_flock(fs, t->parent, LOCK_EX | LOCK_NB);
        if (locked < 0 && errno != EWOULDBLOCK)
            break; /* locks are unsupported too */
        if (locked < 0)
            sched_yield();
    }
    errno = EEXIST;
    if (!rsi_fs_is_there(fs, t->parent, t->last))
        rc = rsi_fs_rename(fs, t->from, t->temp_last, t->parent, t->last, 0);
    if (locked == 0) {
        int kept = errno;

        rsi_fs_flock(fs, t->parent, LOCK_UN);
        errno = kept;
    }
    return rc;
}

/* Gives the tree its name if that is free, without RENAME_NOREPLACE. A plain rename of a folder
 * replaces at most an empty folder; a file is linked to its name instead. */
static int publish_plain(const rsi_fs *fs, rsi_fs_tree *t)
{
    if (rsi_fs_is_there(fs, t->parent, t->last)) {
        errno = EEXIST;
        return -1;
    }
    if (!t->one_file)
        return rsi_fs_rename(fs, t->from, t->temp_last, t->parent, t->last, 0);
    if (rsi_fs_linkat(fs, t->from, t->temp_last, t->parent, t->last) == 0) {
        rsi_fs_close(fs, t->lock); /* some file systems can't remove an open file (FUSE, NFS) */
        t->lock = -1;
        rsi_fs_unlinkat(fs, t->from, t->temp_last, 0); /* if it fails, the next begin removes it */
        return 0;
    }
    return rsi_fs_may_be_unable(errno) || errno == EMLINK ? rename_if_none(fs, t) : -1;
}

/* The result of publishing. */
typedef struct outcome {
    bool swapped;  /* the previous tree now has the temporary name */
    bool replaced; /* the previous tree is gone */
} outcome;

/* Replaces the tree that has the name. -1 and errno; ENOENT: it was removed meanwhile. */
static int replace(const rsi_fs *fs, const rsi_fs_tree *t, outcome *o)
{
    int rc = rsi_fs_rename(fs, t->from, t->temp_last, t->parent, t->last, RENAME_EXCHANGE);

    o->swapped = rc == 0;
    if (rc == 0 || !rsi_fs_may_be_unable(errno) || !t->one_file)
        return rc;
    rc = rsi_fs_rename(fs, t->from, t->temp_last, t->parent, t->last, 0);
    o->replaced = rc == 0;
    return rc;
}

/* Gives the tree its name. -1 and errno. */
static int publish(const rsi_fs *fs, rsi_fs_tree *t, outcome *o)
{
    for (int i = 0; i < RSI_TREE_TRIES; i++) {
        rsi_target there = t->overwrite ? rsi_fs_target(fs, t) : RSI_TARGET_NONE;

        errno = EEXIST;
        if (there == RSI_TARGET_OTHER)
            return -1;
        if (there == RSI_TARGET_SAME) {
            if (replace(fs, t, o) == 0)
                return 0;
            if (errno != ENOENT)
                return -1;
        }
        if (rsi_fs_rename(fs, t->from, t->temp_last, t->parent, t->last, RENAME_NOREPLACE) == 0)
            return 0;
        if (rsi_fs_may_be_unable(errno) && publish_plain(fs, t) == 0)
            return 0;
        if (!(t->overwrite && errno == EEXIST)) /* it was created meanwhile */
            return -1;
    }
    return -1;
}

static rsd_err publish_failed(const rsi_fs *fs, const rsi_fs_tree *t, int sys_errno, rsd_error *err)
{
    if (t->overwrite && rsi_fs_target(fs, t) == RSI_TARGET_OTHER)
        return rsi_fs_refuse_kind(fs, t, err);
    if (sys_errno == EEXIST || sys_errno == ENOTEMPTY || sys_errno == ENOTDIR)
        return rsi_fail(err, RSD_E_EXISTS, RSI_EXISTS_ALREADY);
    if ((rsi_fs_cannot(sys_errno) || sys_errno == EXDEV) && t->overwrite &&
        rsi_fs_is_there(fs, t->parent, t->last))
        return rsi_fs_refuse_replace(fs, t, err);
    return rsi_fail_errno(err, rsi_fs_cannot(sys_errno) ? RSD_E_UNSUPPORTED : RSD_E_IO, sys_errno,
                          "could not give \"%s\" its name \"%s\" in \"%s\"", t->temp, t->name,
                          fs->path);
}

/* The parent could not be synced: restores the previous state, so that a failed commit leaves no
 * trace. */
static rsd_err unpublish(const rsi_fs *fs, rsi_fs_tree *t, const outcome *o, int sys_errno,
                         rsd_error *err)
{
    unsigned how = o->swapped ? RENAME_EXCHANGE : RENAME_NOREPLACE;

    if (!o->replaced && rsi_fs_rename(fs, t->parent, t->last, t->from, t->temp_last, how) == 0) {
        /* The name may or may not be durable. Unless its undoing is, abort must not remove the tree
         * that the name may refer to after a power cut. */
        t->keep = rsi_fs_fsync(fs, t->parent) < 0;
        return rsi_fail_errno(err, RSD_E_IO, sys_errno,
                              "could not sync the folder that \"%s\" is in", t->name);
    }
    t->keep = true; /* the only copy that may survive a power cut */
    return rsi_fail_errno(err, RSD_E_IO, sys_errno,
                          "\"%s\" has its name, but could not sync the folder it is in", t->name);
}

static rsd_err publish_durably(const rsi_fs *fs, rsi_fs_tree *t, rsd_error *err)
{
    outcome o = { 0 };
    bool    gone = false; /* the replaced tree may be removed */
    rsd_err rc = RSD_OK;
    int     old = -1;

    if (t->mode && rsi_fs_tree_mode(fs, t, t->mode) < 0)
        return rsi_fs_fail(fs, err, errno, "give a mode to", t->temp);
    if (!t->one_file && rsi_fs_sync_folders(fs, t->from, t->temp_last) < 0)
        return rsi_fail_errno(err, rsi_errno_code(errno), errno,
                              "could not sync the folder \"%s\" in \"%s\"", t->temp, fs->path);
    /* After the exchange the replaced tree has a temporary name: without a lock another writer's
     * begin would remove it before the exchange is durable. Readers that lock it too are about to
     * hold it on all ranks, which takes less time than this waits; a writer that publishes a data
     * file and its checksum file has already waited (file_hold.c). */
    if (t->overwrite)
        old = rsi_fs_openat(fs, t->parent, t->last, RSI_OPEN_ANY, 0);
    if (old >= 0 && rsi_fs_lock_wait(fs, old, LOCK_EX, t->one_file ? 0 : RSI_READERS_MS) == 0)
        rsi_fs_flock(fs, old, LOCK_SH | LOCK_NB);
    if (publish(fs, t, &o) < 0)
        rc = publish_failed(fs, t, errno, err);
    else if (rsi_fs_fsync(fs, t->parent) < 0)
        rc = unpublish(fs, t, &o, errno, err);
    else if (t->from != t->parent && rsi_fs_fsync(fs, t->from) < 0)
        rc = RSD_OK; /* the name is durable; the replaced tree is left to the adopting writer */
    else
        gone = o.swapped;
    rsi_fs_close(fs, old);
    if (gone)
        rsi_fs_remove_tree(fs, t->from, t->temp_last); /* if it fails, the next begin removes it */
    return rc;
}

rsd_err rsi_fs_commit(void *self, void *handle, rsd_error *err)
{
    const rsi_fs *fs = self;
    rsi_fs_tree  *t = handle;
    rsd_err       rc;

    if (t->attached)
        return rsi_fail(err, RSD_E_BUG, "\"%s\" is published by the rank that began it", t->name);
    if (t->failed)
        return rsi_fail(err, RSD_E_IO, "publishing \"%s\" failed before", t->name);
    rc = publish_durably(fs, t, err);
    if (rc)
        t->failed = true;
    else
        rsi_fs_tree_free(fs, t);
    return rc;
}

rsd_err rsi_fs_abort(void *self, void *handle, rsd_error *err)
{
    const rsi_fs *fs = self;
    rsi_fs_tree  *t = handle;
    rsd_err       rc = RSD_OK;

    rsi_fs_close(fs, t->lock); /* before removal, as above */
    t->lock = -1;
    if (!t->attached && !t->keep && t->from == t->parent &&
        rsi_fs_remove_tree(fs, t->from, t->temp_last) < 0)
        rc = rsi_fs_fail(fs, err, errno, "remove", t->temp);
    rsi_fs_tree_free(fs, t);
    return rc;
}
