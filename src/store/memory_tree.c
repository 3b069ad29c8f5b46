/* SPDX-License-Identifier: Apache-2.0 */
/* Names and trees of the memory store: the same steps as in file_tree.c, each under one lock. A
 * tree without open handles is a dead writer's. */
#include "store/memory.h"
#include "base/mem.h"
#include "store/store.h"

#include <string.h>

typedef struct mem_tree {
    rsi_node *node;
    bool      attached, overwrite;
    char     *name; /* as passed to begin */
    char     *temp;
} mem_tree;

/* ---- names ---- */

static rsd_entry entry_of(const rsi_node *node, const char *name)
{
    return (rsd_entry){ .name = name,
                        .kind = node->folder ? RSD_ENTRY_FOLDER : RSD_ENTRY_FILE,
                        .size = node->size };
}

/* Gets the i-th entry of a folder, with its name copied into a buffer kept in *name. */
static rsd_err entry_at(rsi_ram *mem, const char *folder, size_t i, char **name, rsd_entry *out,
                        bool *end, rsd_error *err)
{
    rsd_err   rc = RSD_OK;
    rsi_node *node;

    pthread_rwlock_rdlock(&mem->lock);
    node = rsi_ram_find(mem, folder, err);
    if (!node || !node->folder) {
        rc = rsi_fail(err, RSD_E_NOTFOUND, "no folder \"%s\"", folder);
    } else if (i < node->n) {
        rsi_free(*name);
        *name = rsi_strdup(node->child[i]->name);
        if (*name)
            *out = entry_of(node->child[i], *name);
        else
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory to list \"%s\"", folder);
    } else {
        *end = true;
    }
    pthread_rwlock_unlock(&mem->lock);
    return rc;
}

/* The lock is not held during a visit, which may use the store. */
rsd_err rsi_ram_list(void *self, const char *name, rsi_visit visit, void *arg, rsd_error *err)
{
    char     *kept = NULL;
    rsd_entry entry;
    bool      end = false;
    rsd_err   rc = RSD_OK;

    for (size_t i = 0; !rc; i++) {
        rc = entry_at(self, name, i, &kept, &entry, &end, err);
        if (rc || end)
            break;
        rc = visit(arg, &entry, err);
    }
    rsi_free(kept);
    return rc;
}

rsd_err rsi_ram_stat(void *self, const char *name, rsd_entry *out, rsd_error *err)
{
    rsi_ram  *mem = self;
    rsi_node *node;

    pthread_rwlock_rdlock(&mem->lock);
    node = rsi_ram_find(mem, name, err);
    if (node)
        *out = entry_of(node, name);
    pthread_rwlock_unlock(&mem->lock);
    return node ? RSD_OK : RSD_E_NOTFOUND;
}

rsd_err rsi_ram_make_folder(void *self, const char *name, rsd_error *err)
{
    rsi_ram    *mem = self;
    rsi_node   *at;
    const char *part = name;
    rsd_err     rc = RSD_OK;

    pthread_rwlock_wrlock(&mem->lock);
    at = mem->top;
    while (!rc && *part) {
        const char *end = strchrnul(part, '/');
        size_t      place;
        rsi_node   *next = rsi_ram_child(at, part, (size_t)(end - part), &place);

        if (next && !next->folder)
            rc = rsi_fail(err, *end ? RSD_E_NOTFOUND : RSD_E_EXISTS,
                          "could not make the folder \"%s\": a file is in the way", name);
        if (!next)
            next = rsi_ram_add(at, part, (size_t)(end - part), true);
        if (!next)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the folder \"%s\"", name);
        at = next;
        part = *end ? end + 1 : end;
    }
    pthread_rwlock_unlock(&mem->lock);
    return rc;
}

rsd_err rsi_ram_remove(void *self, const char *name, rsd_error *err)
{
    rsi_ram  *mem = self;
    rsi_node *node;

    pthread_rwlock_wrlock(&mem->lock);
    node = rsi_ram_find(mem, name, err);
    if (node)
        rsi_ram_drop(node);
    pthread_rwlock_unlock(&mem->lock);
    return node ? RSD_OK : RSD_E_NOTFOUND;
}

/* ---- trees ---- */

static void free_tree(mem_tree *t)
{
    if (!t)
        return;
    rsi_free(t->name);
    rsi_free(t->temp);
    rsi_free(t);
}

static mem_tree *new_tree(const char *name)
{
    mem_tree *t = rsi_calloc(1, sizeof(*t));
    size_t    len = strlen(name);

    if (!t)
        return NULL;
    t->name = rsi_strdup(name);
    t->temp = rsi_calloc(len + RSI_TEMP_EXTRA + 1, 1);
    if (t->name && t->temp)
        return t;
    free_tree(t);
    return NULL;
}

/* Drops one writer. */
static void leave_tree(mem_tree *t)
{
    t->node->writers--;
    t->node->users++;
    rsi_ram_let_go(t->node);
    free_tree(t);
}

static void sweep(rsi_node *folder, const char *last)
{
    for (size_t i = folder->n; i > 0; i--)
        if (folder->child[i - 1]->writers == 0 && rsi_temp_match(folder->child[i - 1]->name, last))
            rsi_ram_drop(folder->child[i - 1]);
}

static rsd_err begin_locked(rsi_ram *mem, mem_tree *t, uint32_t flags, rsd_error *err)
{
    const char *last;
    rsi_node   *folder = rsi_ram_parent(mem, t->name, &last, err);
    char       *temp_last;
    size_t      at;

    if (!folder)
        return RSD_E_NOTFOUND;
    sweep(folder, last);
    t->overwrite = flags & RSD_TREE_OVERWRITE;
    if (!t->overwrite && rsi_ram_child(folder, last, strlen(last), &at))
        return rsi_fail(err, RSD_E_EXISTS, RSI_EXISTS_ALREADY);
    memcpy(t->temp, t->name, (size_t)(last - t->name));
    temp_last = t->temp + (last - t->name);
    do
        rsi_temp_name(last, mem->temps++, temp_last);
    while (rsi_ram_child(folder, temp_last, strlen(temp_last), &at));
    t->node = rsi_ram_add(folder, temp_last, strlen(temp_last), !(flags & RSD_TREE_FILE));
    if (!t->node)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to write \"%s\"", t->name);
    t->node->writers++;
    return RSD_OK;
}

rsd_err rsi_ram_begin(void *self, const char *name, uint32_t flags, void **out, const char **temp,
                      rsd_error *err)
{
    rsi_ram  *mem = self;
    mem_tree *t = new_tree(name);
    rsd_err   rc;

    if (!t)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to write \"%s\"", name);
    pthread_rwlock_wrlock(&mem->lock);
    rc = begin_locked(mem, t, flags, err);
    pthread_rwlock_unlock(&mem->lock);
    if (rc) {
        free_tree(t);
        return rc;
    }
    *out = t;
    *temp = t->temp;
    return RSD_OK;
}

rsd_err rsi_ram_attach(void *self, const char *temp, void **out, rsd_error *err)
{
    rsi_ram  *mem = self;
    mem_tree *t = new_tree(temp);

    if (!t)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to write \"%s\"", temp);
    t->attached = true;
    pthread_rwlock_wrlock(&mem->lock);
    t->node = rsi_ram_find(mem, temp, err);
    if (t->node)
        t->node->writers++;
    pthread_rwlock_unlock(&mem->lock);
    if (!t->node) {
        free_tree(t);
        return RSD_E_NOTFOUND;
    }
    *out = t;
    return RSD_OK;
}

static rsd_err commit_locked(mem_tree *t, rsd_error *err)
{
    const char *last = rsi_last_part(t->name);
    char       *name;
    rsi_node   *there;
    size_t      at;

    if (!t->node->parent)
        return rsi_fail(err, RSD_E_NOTFOUND, "\"%s\" was removed", t->temp);
    there = rsi_ram_child(t->node->parent, last, strlen(last), &at);
    if (there && !t->overwrite)
        return rsi_fail(err, RSD_E_EXISTS, RSI_EXISTS_ALREADY);
    if (there && there->folder != t->node->folder)
        return rsi_fail(err, RSD_E_EXISTS, "\"%s\" is not a %s and is not replaced by one", t->name,
                        t->node->folder ? "folder" : "file");
    name = rsi_strdup(last);
    if (!name)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to publish \"%s\"", t->name);
    if (there)
        rsi_ram_drop(there);
    rsi_ram_rename(t->node, name);
    leave_tree(t);
    return RSD_OK;
}

rsd_err rsi_ram_commit(void *self, void *tree, rsd_error *err)
{
    rsi_ram  *mem = self;
    mem_tree *t = tree;
    rsd_err   rc;

    if (t->attached)
        return rsi_fail(err, RSD_E_BUG, "\"%s\" is published by the rank that began it", t->name);
    pthread_rwlock_wrlock(&mem->lock);
    rc = commit_locked(t, err);
    pthread_rwlock_unlock(&mem->lock);
    return rc;
}

rsd_err rsi_ram_abort(void *self, void *tree, rsd_error *err)
{
    rsi_ram  *mem = self;
    mem_tree *t = tree;

    (void)err;
    pthread_rwlock_wrlock(&mem->lock);
    if (!t->attached && t->node->parent)
        rsi_ram_drop(t->node);
    leave_tree(t);
    pthread_rwlock_unlock(&mem->lock);
    return RSD_OK;
}
