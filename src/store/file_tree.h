/* SPDX-License-Identifier: Apache-2.0 */
/* What file_tree.c (begin) and file_publish.c (commit, abort) share. */
#ifndef RSI_FILE_TREE_H
#define RSI_FILE_TREE_H

#include "store/file.h"

#include <fcntl.h>

enum {
    RSI_TREE_TRIES = 16, /* each one lost means that another process was at work at that very
                            moment */
    RSI_OPEN_ANY = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
};

typedef struct rsi_fs_tree {
    int    parent; /* the folder that the name is in, to be synced; attached: -1 */
    int    from;   /* the folder that the tree is written in: `parent`, unless it was adopted */
    int    lock;   /* the temporary folder or file, opened and locked; adopted: -1 */
    bool   attached, one_file, overwrite;
    bool   failed; /* a commit did: no second try (C3) */
    bool   keep;   /* abort leaves the temporary name: a power cut may still swap the two */
    mode_t mode;   /* that it is published with; until then it is private; adopted: 0 */
    char  *name;   /* as begin was given it */
    char  *last;   /* its last part */
    char  *temp;   /* the name it is written under, from the top */
    char  *temp_last;
} rsi_fs_tree;

void rsi_fs_tree_free(const rsi_fs *fs, rsi_fs_tree *t);
/* Of the tree itself. Where modes can't be changed there are none. -1 and errno. */
int rsi_fs_tree_mode(const rsi_fs *fs, const rsi_fs_tree *t, mode_t mode);

/* Overwriting takes the place of the same kind only: folders of folders, files of files. */
typedef enum rsi_target { RSI_TARGET_NONE, RSI_TARGET_SAME, RSI_TARGET_OTHER } rsi_target;

rsi_target rsi_fs_target(const rsi_fs *fs, const rsi_fs_tree *t);
/* True if there is something of that name. */
bool    rsi_fs_is_there(const rsi_fs *fs, int dir, const char *name);
rsd_err rsi_fs_refuse_replace(const rsi_fs *fs, const rsi_fs_tree *t, rsd_error *err);
rsd_err rsi_fs_refuse_kind(const rsi_fs *fs, const rsi_fs_tree *t, rsd_error *err);

/* This errno means that the file system has no such call. */
bool rsi_fs_cannot(int sys_errno);
/* It may mean that: containers answer EPERM to calls that they don't know. */
bool rsi_fs_may_be_unable(int sys_errno);

#endif
