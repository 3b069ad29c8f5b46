/* SPDX-License-Identifier: Apache-2.0 */
/* A store in memory, with the semantics of the file store, for tests and for staging. This file has
 * the nodes and the files; memory_tree.c has names and trees. */
#include "store/memory.h"
#include "base/mem.h"
#include "store/io_queue.h"
#include "store/store.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* ---- nodes ---- */

rsi_node *rsi_ram_child(const rsi_node *folder, const char *name, size_t len, size_t *at)
{
    size_t lo = 0, hi = folder->n;

    while (lo < hi) {
        size_t      mid = lo + (hi - lo) / 2;
        const char *there = folder->child[mid]->name;
        int         order = strncmp(there, name, len);

        if (order == 0 && there[len])
            order = 1;
        if (order == 0) {
            *at = mid;
            return folder->child[mid];
        }
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *at = lo;
    return NULL;
}

rsi_node *rsi_ram_parent(const rsi_ram *mem, const char *name, const char **last, rsd_error *err)
{
    rsi_node   *at = mem->top;
    const char *part = name, *slash;
    size_t      place;

    while ((slash = strchr(part, '/'))) {
        at = rsi_ram_child(at, part, (size_t)(slash - part), &place);
        if (!at || !at->folder) {
            rsi_fail(err, RSD_E_NOTFOUND, "could not find the folder of \"%s\"", name);
            return NULL;
        }
        part = slash + 1;
    }
    *last = part;
    return at;
}

rsi_node *rsi_ram_find(const rsi_ram *mem, const char *name, rsd_error *err)
{
    const char *last;
    rsi_node   *node = rsi_ram_parent(mem, name, &last, err);
    size_t      at;

    if (!node || !last[0])
        return node;
    node = rsi_ram_child(node, last, strlen(last), &at);
    if (!node)
        rsi_fail(err, RSD_E_NOTFOUND, "could not find \"%s\"", name);
    return node;
}

static void free_node(rsi_node *node)
{
    rsi_free(node->name);
    rsi_free(node->child);
    rsi_free(node->bytes);
    rsi_free(node);
}

/* Inserts it in name order; there is room. */
static void link_node(rsi_node *folder, rsi_node *node)
{
    size_t at;

    rsi_ram_child(folder, node->name, strlen(node->name), &at);
    memmove(folder->child + at + 1, folder->child + at,
            (folder->n - at) * sizeof(folder->child[0]));
    folder->child[at] = node;
    folder->n++;
    node->parent = folder;
}

rsi_node *rsi_ram_add(rsi_node *folder, const char *name, size_t len, bool is_folder)
{
    rsi_node *node = rsi_calloc(1, sizeof(*node));

    if (!node)
        return NULL;
    node->name = rsi_calloc(len + 1, 1);
    node->folder = is_folder;
    if (!node->name || !rsi_grow(&folder->child, folder->n, &folder->room, sizeof(node))) {
        free_node(node);
        return NULL;
    }
    memcpy(node->name, name, len);
    link_node(folder, node);
    return node;
}

static void unlink_node(rsi_node *node)
{
    rsi_node *folder = node->parent;
    size_t    at;

    rsi_ram_child(folder, node->name, strlen(node->name), &at);
    folder->n--;
    memmove(folder->child + at, folder->child + at + 1,
            (folder->n - at) * sizeof(folder->child[0]));
    node->parent = NULL;
}

void rsi_ram_rename(rsi_node *node, char *name)
{
    rsi_node *folder = node->parent;

    unlink_node(node);
    rsi_free(node->name);
    node->name = name;
    link_node(folder, node);
}

/* Descends to a leaf, drops it and goes back up: deep trees need no stack. A file in use lives on
 * without a name, a folder in use without its contents. */
void rsi_ram_drop(rsi_node *node)
{
    rsi_node *at = node;

    for (;;) {
        rsi_node *folder;

        while (at->n > 0)
            at = at->child[at->n - 1];
        folder = at->parent;
        unlink_node(at);
        if (at->users == 0 && at->writers == 0)
            free_node(at);
        if (at == node)
            return;
        at = folder;
    }
}

void rsi_ram_let_go(rsi_node *node)
{
    node->users--;
    if (node->users == 0 && node->writers == 0 && !node->parent)
        free_node(node);
}

/* ---- files ---- */

typedef struct mem_file {
    rsi_node *node;
    bool      writing;
} mem_file;

/* Refuses more than the machine has, before an attempt to allocate it makes the system kill the
 * process. */
static bool too_much(size_t bytes)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 && bytes / (size_t)page > (size_t)pages;
}

/* Allocates `bytes`; the lock is held exclusively. */
static rsd_err grow(rsi_node *node, size_t bytes)
{
    unsigned char *p;

    if (bytes <= node->cap)
        return RSD_OK;
    if (too_much(bytes))
        return RSD_E_NOMEM;
    if (bytes < 2 * node->cap)
        bytes = 2 * node->cap;
    p = rsi_realloc(node->bytes, bytes, 1);
    if (!p)
        return RSD_E_NOMEM;
    memset(p + node->cap, 0, bytes - node->cap);
    node->bytes = p;
    node->cap = bytes;
    return RSD_OK;
}

static rsd_err open_node(rsi_ram *mem, const char *name, uint32_t flags, uint64_t bytes,
                         rsi_node **out, rsd_error *err)
{
    const char *last;
    rsi_node   *folder = rsi_ram_parent(mem, name, &last, err), *node;
    size_t      at;

    if (!folder)
        return RSD_E_NOTFOUND;
    node = rsi_ram_child(folder, last, strlen(last), &at);
    if (node && (flags & RSD_OPEN_CREATE))
        return rsi_fail(err, RSD_E_EXISTS, "could not create \"%s\": it exists already", name);
    if (node && node->folder)
        return rsi_fail(err, RSD_E_INVALID, "\"%s\" is not a regular file", name);
    if (!node && !(flags & RSD_OPEN_CREATE))
        return rsi_fail(err, RSD_E_NOTFOUND, "could not find \"%s\"", name);
    if (!node) {
        node = rsi_ram_add(folder, last, strlen(last), false);
        if (!node)
            return rsi_fail(err, RSD_E_NOMEM, "no memory to create \"%s\"", name);
        if (bytes > SIZE_MAX / 4 || grow(node, (size_t)bytes)) {
            rsi_ram_drop(node);
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the %" PRIu64 " bytes of \"%s\"",
                            bytes, name);
        }
        atomic_store(&node->size, (size_t)bytes);
    }
    *out = node;
    return RSD_OK;
}

static rsd_err mem_open(void *self, const char *name, uint32_t flags, uint64_t bytes,
                        rsd_opened *out, rsd_error *err)
{
    rsi_ram  *mem = self;
    mem_file *f = rsi_calloc(1, sizeof(*f));
    rsd_err   rc;

    if (!f)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to open \"%s\"", name);
    pthread_rwlock_wrlock(&mem->lock);
    rc = open_node(mem, name, flags, bytes, &f->node, err);
    if (!rc) {
        f->node->users++;
        f->writing = !(flags & RSD_OPEN_READ);
        *out = (rsd_opened){ .file = f, .size = f->node->size, .align = 1 };
    }
    pthread_rwlock_unlock(&mem->lock);
    if (rc)
        rsi_free(f);
    return rc;
}

static void mem_read(const rsi_node *node, rsd_io *io)
{
    size_t size = atomic_load(&node->size);

    if (io->off >= size)
        return;
    io->done = io->len < size - (size_t)io->off ? io->len : size - (size_t)io->off;
    memcpy(io->buf, node->bytes + io->off, io->done);
}

static void mem_write(rsi_node *node, rsd_io *io)
{
    size_t end = (size_t)io->off + io->len, size = atomic_load(&node->size);

    memcpy(node->bytes + io->off, io->buf, io->len);
    while (size < end && !atomic_compare_exchange_weak(&node->size, &size, end))
        ;
    io->done = io->len;
}

static void mem_transfer(void *self, rsd_io *io)
{
    rsi_ram  *mem = self;
    mem_file *f = io->file;
    bool      write = io->op == RSD_IO_WRITE;

    if (rsi_io_begin(io) && f->writing != write)
        io->rc = RSD_E_INVALID;
    if (io->rc || io->len == 0)
        return;
    pthread_rwlock_rdlock(&mem->lock);
    if (write && io->off + io->len > f->node->cap) {
        /* Allocated memory stays, so nothing is lost between the two locks. */
        pthread_rwlock_unlock(&mem->lock);
        pthread_rwlock_wrlock(&mem->lock);
        io->rc = grow(f->node, (size_t)(io->off + io->len));
    }
    if (!io->rc && write)
        mem_write(f->node, io);
    else if (!io->rc)
        mem_read(f->node, io);
    pthread_rwlock_unlock(&mem->lock);
}

static rsd_err mem_sync(void *self, void *file, rsd_error *err)
{
    (void)self;
    (void)file;
    (void)err;
    return RSD_OK; /* as durable as it gets */
}

static rsd_err mem_close(void *self, void *file, rsd_error *err)
{
    rsi_ram  *mem = self;
    mem_file *f = file;

    (void)err;
    pthread_rwlock_wrlock(&mem->lock);
    rsi_ram_let_go(f->node);
    pthread_rwlock_unlock(&mem->lock);
    rsi_free(f);
    return RSD_OK;
}

/* ---- the store ---- */

static void mem_destroy(void *self)
{
    rsi_ram *mem = self;

    while (mem->top && mem->top->n > 0)
        rsi_ram_drop(mem->top->child[0]);
    if (mem->top)
        free_node(mem->top);
    pthread_rwlock_destroy(&mem->lock);
    rsi_free(mem);
}

static const rsd_store_ops mem_ops = {
    .size = sizeof(rsd_store_ops),
    .name = "memory",
    .flags = RSD_STORE_RANDOM_WRITE | RSD_STORE_EXCHANGE,
    .threads = 1, /* copying never waits */
    .destroy = mem_destroy,
    .open = mem_open,
    .transfer = mem_transfer,
    .sync = mem_sync,
    .close = mem_close,
    .list = rsi_ram_list,
    .stat = rsi_ram_stat,
    .make_folder = rsi_ram_make_folder,
    .remove = rsi_ram_remove,
    .begin = rsi_ram_begin,
    .attach = rsi_ram_attach,
    .commit = rsi_ram_commit,
    .abort = rsi_ram_abort,
};

rsd_err rsi_memory_store_open(rsd_store **out, rsd_error *err)
{
    rsi_ram *mem = rsi_calloc(1, sizeof(*mem));
    rsd_err  rc;

    if (!mem)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a store");
    pthread_rwlock_init(&mem->lock, NULL);
    mem->top = rsi_calloc(1, sizeof(*mem->top));
    if (mem->top) {
        mem->top->folder = true;
        rc = rsd_store_open_custom(&mem_ops, mem, out, err);
    } else {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a store");
    }
    if (rc)
        mem_destroy(mem);
    return rc;
}
