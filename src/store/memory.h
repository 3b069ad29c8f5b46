/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two parts of the memory store: memory.c (nodes and files) and memory_tree.c (names
 * and trees). */
#ifndef RSI_MEMORY_H
#define RSI_MEMORY_H

#include "base/error.h"

#include <reshard/reshard_plugin.h>
#include <pthread.h>
#include <stdatomic.h>

/* A file or a folder. Freed when it has neither a name nor users. */
typedef struct rsi_node {
    char            *name; /* in its folder; the top has "" */
    struct rsi_node *parent;
    bool             folder;
    int              users;   /* handles */
    int              writers; /* trees begun at it or attached to it */
    /* folder */
    struct rsi_node **child; /* [n], sorted by name */
    size_t            n, room;
    /* file */
    unsigned char *bytes; /* [cap] zero from `size` on */
    size_t         cap;
    _Atomic size_t size;
} rsi_node;

/* Reading and writing take the lock shared (requests don't overlap in bytes); changing names or
 * moving a file's memory takes it exclusively. */
typedef struct rsi_ram {
    pthread_rwlock_t lock;
    rsi_node        *top;
    uint64_t         temps; /* temporary names made so far */
} rsi_ram;

/* For all of these the lock is held. */
rsi_node *rsi_ram_child(const rsi_node *folder, const char *name, size_t len, size_t *at);
/* NULL: it does not exist, as *err says. "" is the top. */
rsi_node *rsi_ram_find(const rsi_ram *mem, const char *name, rsd_error *err);
/* The folder that contains a name, and the name's last part. */
rsi_node *rsi_ram_parent(const rsi_ram *mem, const char *name, const char **last, rsd_error *err);
/* Adds a node to `folder`, which must not have that name yet; NULL: no memory. */
rsi_node *rsi_ram_add(rsi_node *folder, const char *name, size_t len, bool is_folder);
/* Renames a node within its folder; takes over `name`, which is freed with rsi_free. */
void rsi_ram_rename(rsi_node *node, char *name);
/* Removes a node and everything below it from its folder, and frees what is not in use. */
void rsi_ram_drop(rsi_node *node);
void rsi_ram_let_go(rsi_node *node); /* one user fewer */

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
