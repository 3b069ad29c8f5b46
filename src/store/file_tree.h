/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by file_tree.c (begin) and file_publish.c (commit, abort). */
#ifndef RSI_FILE_TREE_H
#define RSI_FILE_TREE_H

#include "store/file.h"

#include <fcntl.h>

enum {
    RSI_TREE_TRIES = 16, /* each lost try means that another process interfered at that moment */
    RSI_OPEN_ANY = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
};

typedef struct rsi_fs_tree {
    int    parent; /* the folder that contains the name, to be synced; attached: -1 */
    int    from;   /* the folder that contains the tree: `parent`, unless it was adopted */
    int    lock;   /* the temporary folder or file, opened and locked; adopted: -1 */
    bool   attached, one_file, overwrite;
    bool   failed; /* a commit failed: no second try (C3) */
    bool   keep;   /* abort keeps the temporary name: a power cut may still swap the two */
    mode_t mode;   /* the mode once published; private until then; adopted: 0 */
    char  *name;   /* as passed to begin */
    char  *last;   /* its last part */
    char  *temp;   /* the name it is written under, relative to the top */
    char  *temp_last;
} rsi_fs_tree;

void rsi_fs_tree_free(const rsi_fs *fs, rsi_fs_tree *t);
/* Sets the mode of the tree itself; does nothing if modes are unsupported. -1 and errno. */
int rsi_fs_tree_mode(const rsi_fs *fs, const rsi_fs_tree *t, mode_t mode);

/* Overwriting replaces only the same kind: folders with folders, files with files. */
typedef enum rsi_target { RSI_TARGET_NONE, RSI_TARGET_SAME, RSI_TARGET_OTHER } rsi_target;

rsi_target rsi_fs_target(const rsi_fs *fs, const rsi_fs_tree *t);
/* True if the name exists. */
bool    rsi_fs_is_there(const rsi_fs *fs, int dir, const char *name);
rsd_err rsi_fs_refuse_replace(const rsi_fs *fs, const rsi_fs_tree *t, rsd_error *err);
rsd_err rsi_fs_refuse_kind(const rsi_fs *fs, const rsi_fs_tree *t, rsd_error *err);

/* False: locks may hold on this machine only. */
bool rsi_fs_locks_reach_everyone(const rsi_fs *fs, int fd);
/* Locks what a writer has open. 1: locked, or locks are unsupported (then no process removes
 * anything either); 0: another process is about to remove it; -1 and errno. */
int rsi_fs_lock_shared(const rsi_fs *fs, int fd);

/* True if the errno means that the file system lacks the call. */
bool rsi_fs_cannot(int sys_errno);
/* True if it may mean that: containers answer EPERM to unknown calls. */
bool rsi_fs_may_be_unable(int sys_errno);

#endif
