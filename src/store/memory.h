/* SPDX-License-Identifier: Apache-2.0 */
/* What the two parts of the memory store share: memory.c (nodes and files) and memory_tree.c (names
 * and trees). */
#ifndef RSI_MEMORY_H
#define RSI_MEMORY_H

#include "base/error.h"

#include <reshard/reshard_plugin.h>
#include <pthread.h>
#include <stdatomic.h>

/* A file or a folder. Freed when it has neither a name nor a user any more. */
typedef struct rsi_node {
    char            *name; /* in its folder; the top has "" */
    struct rsi_node *parent;
    bool             folder;
    int              users;   /* handles */
    int              writers; /* trees that are begun at it or attached to it */
    /* folder */
    struct rsi_node **child; /* [n], sorted by name */
    size_t            n, room;
    /* file */
    unsigned char *bytes; /* [cap] zero from `size` on */
    size_t         cap;
    _Atomic size_t size;
} rsi_node;

/* Reading and writing take the lock shared (requests don't share bytes); what changes names, or
 * moves a file's memory, takes it alone. */
typedef struct rsi_ram {
    pthread_rwlock_t lock;
    rsi_node        *top;
    uint64_t         temps; /* temporary names that were made */
} rsi_ram;

/* All with the lock held. */
rsi_node *rsi_ram_child(const rsi_node *folder, const char *name, size_t len, size_t *at);
/* NULL: there is none, and *err says so. "" is the top. */
rsi_node *rsi_ram_find(const rsi_ram *mem, const char *name, rsd_error *err);
/* The folder that a name is in, and the name's last part. */
rsi_node *rsi_ram_parent(const rsi_ram *mem, const char *name, const char **last, rsd_error *err);
/* A new node in `folder`; NULL: no memory. Nothing there has that name. */
rsi_node *rsi_ram_add(rsi_node *folder, const char *name, size_t len, bool is_folder);
/* Gives a node another name in its folder; `name` is rsi_free's, and the node's from now on. */
void rsi_ram_rename(rsi_node *node, char *name);
/* Takes a node out of its folder, with all below it, and frees what nobody uses. */
void rsi_ram_drop(rsi_node *node);
void rsi_ram_let_go(rsi_node *node); /* one user less */

rsd_err rsi_ram_list(void *self, const char *name,
                     rsd_err (*visit)(void *arg, const rsd_entry *entry, rsd_error *err), void *arg,
                     rsd_error *err);
rsd_err rsi_ram_stat(void *self, const char *name, rsd_entry *out, rsd_error *err);
rsd_err rsi_ram_make_folder(void *self, const char *name, rsd_error *err);
rsd_err rsi_ram_remove(void *self, const char *name, rsd_error *err);
rsd_err rsi_ram_begin(void *self, const char *name, uint32_t flags, void **tree, const char **temp,
                      rsd_error *err);
rsd_err rsi_ram_attach(void *self, const char *temp, void **tree, rsd_error *err);
rsd_err rsi_ram_commit(void *self, void *tree, rsd_error *err);
rsd_err rsi_ram_abort(void *self, void *tree, rsd_error *err);

#endif
