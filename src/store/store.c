/* SPDX-License-Identifier: Apache-2.0 */
/* Checks names and calls the backend. store_open.c handles files. Next: file.c, the most common
 * backend. */
#include "store/store_core.h"
#include "base/mem.h"
#include "base/opts.h"
#include "base/pulse.h"
#include "store/file.h"
#include "store/io_queue.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

enum { DEFAULT_THREADS = 4 };

struct rsi_queue {
    rsd_store    *store;
    rsi_io_queue *threads; /* NULL: the queue is the backend's */
    void         *handle;
};

/* ---- opening ---- */

static const char *missing_op(const rsd_store_ops *o)
{
    bool queue = o->queue_open || o->queue_close || o->submit || o->reap;

    if (!o->open || !o->transfer || !o->sync || !o->close)
        return "open, transfer, sync or close";
    if (!o->list || !o->stat || !o->make_folder || !o->remove)
        return "list, stat, make_folder or remove";
    if (!o->begin || !o->attach || !o->commit || !o->abort)
        return "begin, attach, commit or abort";
    if (!o->hold != !o->replaced || !o->lock != !o->unlock)
        return "hold, replaced, lock or unlock";
    if (!o->claim != !o->unclaim || !o->claim != !o->sync_names)
        return "claim, unclaim or sync_names";
    if (queue && (!o->queue_open || !o->queue_close || !o->submit || !o->reap))
        return "queue_open, queue_close, submit or reap";
    return NULL;
}

rsd_err rsd_store_open_custom(const rsd_store_ops *ops, void *self, rsd_store **out, rsd_error *err)
{
    rsd_store_ops known = { .size = 0 };
    rsd_store    *store;
    const char   *missing;
    rsd_err       rc = rsi_opts_take(&known, sizeof(known), ops, "rsd_store_ops", err);

    if (rc)
        return rc;
    if (!ops || !out)
        return rsi_fail(err, RSD_E_INVALID,
                        "missing argument: the store's table or output pointer");
    missing = missing_op(&known);
    if (missing)
        return rsi_fail(err, RSD_E_INVALID, "the store's table has no %s", missing);
    store = rsi_calloc(1, sizeof(*store));
    if (!store)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a store");
    store->ops = known;
    store->self = self;
    if (!store->ops.name)
        store->ops.name = "own";
    if (store->ops.threads < 1)
        store->ops.threads = DEFAULT_THREADS;
    pthread_mutex_init(&store->lock, NULL);
    *out = store;
    return RSD_OK;
}

void rsd_store_close(rsd_store *store)
{
    if (!store)
        return;
    rsi_io_threads_free(store->threads);
    if (store->ops.destroy)
        store->ops.destroy(store->self);
    pthread_mutex_destroy(&store->lock);
    rsi_free(store);
}

/* The length of "scheme" in "scheme:rest"; 0 if the text is a plain path. */
static size_t scheme_length(const char *url)
{
    size_t n = 0;

    while ((url[n] >= 'a' && url[n] <= 'z') || (n > 0 && url[n] >= '0' && url[n] <= '9'))
        n++;
    return url[n] == ':' ? n : 0;
}

rsd_err rsd_store_open(const char *url, rsd_store **out, rsd_error *err)
{
    size_t      n;
    const char *rest;

    if (!url || !url[0] || !out)
        return rsi_fail(err, RSD_E_INVALID, "no store named");
    n = scheme_length(url);
    rest = url + n + 1;
    if (n == 0)
        return rsi_file_store_open(url, NULL, out, err);
    if (n == 4 && strncmp(url, "file", n) == 0) {
        if (strncmp(rest, "///", 3) == 0) /* file:///path */
            rest += 2;
        return rsi_file_store_open(rest[0] ? rest : ".", NULL, out, err);
    }
    if (n == 3 && strncmp(url, "mem", n) == 0 && !rest[0])
        return rsi_memory_store_open(out, err);
    if (n == 4 && strncmp(url, "null", n) == 0 && !rest[0])
        return rsi_null_store_open(out, err);
    return rsi_fail(err, RSD_E_UNSUPPORTED,
                    "unknown store \"%s\": use a path, \"file:/path\", \"mem:\" or \"null:\"", url);
}

void *rsi_store_self(const rsd_store *store)
{
    return store->self;
}

uint32_t rsi_store_flags(const rsd_store *store)
{
    return store->ops.flags;
}

const char *rsi_store_kind(const rsd_store *store)
{
    return store->ops.name;
}

/* ---- queues ---- */

static rsd_err threads_of(rsd_store *store, rsi_io_threads **out, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    pthread_mutex_lock(&store->lock);
    if (!store->threads)
        rc = rsi_io_threads_create(store->ops.threads, store->ops.transfer, store->self,
                                   &store->threads, err);
    *out = store->threads;
    pthread_mutex_unlock(&store->lock);
    return rc;
}

rsd_err rsi_queue_open(rsd_store *store, size_t depth, rsi_queue **out, rsd_error *err)
{
    rsi_queue      *queue = rsi_calloc(1, sizeof(*queue));
    rsd_err         rc = RSD_E_UNSUPPORTED;
    rsi_io_threads *threads;

    if (!queue)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a queue");
    queue->store = store;
    if (store->ops.queue_open)
        rc = store->ops.queue_open(store->self, depth ? depth : 1, &queue->handle, RSI_PLACE(err));
    if (rc == RSD_E_UNSUPPORTED) {
        rc = threads_of(store, &threads, err);
        if (!rc)
            rc = rsi_io_queue_open(threads, &queue->threads, err);
    }
    if (rc) {
        rsi_free(queue);
        return rc;
    }
    *out = queue;
    return RSD_OK;
}

void rsi_queue_close(rsi_queue *queue)
{
    if (!queue)
        return;
    if (queue->threads)
        rsi_io_queue_close(queue->threads);
    else
        queue->store->ops.queue_close(queue->store->self, queue->handle);
    rsi_free(queue);
}

void rsi_queue_submit(rsi_queue *queue, rsd_io *io, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        io[i].rc = RSD_OK;
        io[i].sys_errno = 0;
        io[i].done = 0;
    }
    if (queue->threads)
        rsi_io_queue_submit(queue->threads, io, n);
    else
        queue->store->ops.submit(queue->store->self, queue->handle, io, n);
    rsi_beat();
}

size_t rsi_queue_reap(rsi_queue *queue, size_t min, size_t cap, rsd_io **out)
{
    size_t n;

    if (min > cap)
        min = cap;
    if (queue->threads)
        n = rsi_io_queue_reap(queue->threads, min, cap, out);
    else
        n = queue->store->ops.reap(queue->store->self, queue->handle, min, cap, out);
    rsi_beat();
    return n;
}

/* ---- readers alongside writers ---- */

rsd_err rsi_store_hold(rsd_store *store, const char *name, const char *tail, uint32_t flags,
                       rsd_store **out, rsd_error *err)
{
    rsd_err rc = rsi_store_name_check(name, err);

    *out = NULL;
    if (rc || !store->ops.hold)
        return rc;
    return store->ops.hold(store->self, name, tail, flags, out, RSI_PLACE(err));
}

rsd_held rsi_store_replaced(const rsd_store *store)
{
    return store->ops.replaced ? store->ops.replaced(store->self) : RSD_HELD_CURRENT;
}

rsd_err rsi_store_lock(rsd_store *store, const char *name, void **out, rsd_error *err)
{
    rsd_err rc = rsi_store_name_check(name, err);

    *out = NULL;
    if (rc || !store->ops.lock)
        return rc;
    return store->ops.lock(store->self, name, out, RSI_PLACE(err));
}

void rsi_store_unlock(rsd_store *store, void *lock)
{
    if (lock)
        store->ops.unlock(store->self, lock);
}

/* ---- claims ---- */

static rsd_err no_claims(const rsd_store *store, rsd_error *err)
{
    return rsi_fail(err, RSD_E_UNSUPPORTED, "a %s store can't publish inside an existing folder",
                    store->ops.name);
}

rsd_err rsi_store_claim(rsd_store *store, const char *name, rsd_claim how, void **out,
                        rsd_error *err)
{
    rsd_err rc = rsi_store_name_check(name, err);

    if (rc)
        return rc;
    return store->ops.claim ? store->ops.claim(store->self, name, how, out, RSI_PLACE(err))
                            : no_claims(store, err);
}

void rsi_store_unclaim(rsd_store *store, void *claim)
{
    if (claim)
        store->ops.unclaim(store->self, claim);
}

rsd_err rsi_store_sync_names(rsd_store *store, const char *name, rsd_error *err)
{
    rsd_err rc = rsi_store_name_check(name, err);

    if (rc)
        return rc;
    return store->ops.sync_names ? store->ops.sync_names(store->self, name, RSI_PLACE(err))
                                 : no_claims(store, err);
}

/* ---- names and trees: store_name.c has the rules ---- */

rsd_err rsi_store_list(rsd_store *store, const char *name, rsi_visit visit, void *arg,
                       rsd_error *err)
{
    rsd_err rc = name && !name[0] ? RSD_OK : rsi_store_name_check(name, err);

    return rc ? rc : store->ops.list(store->self, name, visit, arg, RSI_PLACE(err));
}

rsd_err rsi_store_stat(rsd_store *store, const char *name, rsd_entry *out, rsd_error *err)
{
    rsd_err rc = name && !name[0] ? RSD_OK : rsi_store_name_check(name, err);

    return rc ? rc : store->ops.stat(store->self, name, out, RSI_PLACE(err));
}

rsd_err rsi_store_make_folder(rsd_store *store, const char *name, rsd_error *err)
{
    rsd_err rc = rsi_store_name_check(name, err);

    return rc ? rc : store->ops.make_folder(store->self, name, RSI_PLACE(err));
}

rsd_err rsi_store_make_private(rsd_store *store, const char *name, rsd_error *err)
{
    rsd_err rc = rsi_store_name_check(name, err);

    if (!store->ops.make_private)
        return rsi_store_make_folder(store, name, err);
    return rc ? rc : store->ops.make_private(store->self, name, RSI_PLACE(err));
}

rsd_err rsi_store_remove(rsd_store *store, const char *name, rsd_error *err)
{
    rsd_err rc = rsi_store_name_check(name, err);

    return rc ? rc : store->ops.remove(store->self, name, RSI_PLACE(err));
}

rsd_err rsi_store_protect(rsd_store *store, const char *name, uint32_t mode, rsd_error *err)
{
    rsd_err rc = rsi_store_name_check(name, err);

    return rc || !store->ops.protect ? rc
                                     : store->ops.protect(store->self, name, mode, RSI_PLACE(err));
}

bool rsi_store_adopts(const rsd_store *store)
{
    return store->ops.adopt != NULL;
}

/* `from` NULL: a new one. */
static rsd_err open_tree(rsd_store *store, const char *name, bool begin, uint32_t flags,
                         const char *from, rsi_tree **out, rsd_error *err)
{
    rsi_tree *tree;
    size_t    len;
    rsd_err   rc = rsi_store_name_check(name, err);

    if (rc)
        return rc;
    len = strlen(name) + 1;
    tree = rsi_calloc(1, sizeof(*tree) + len); /* an attached tree keeps its own copy of the name */
    if (!tree)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to write \"%s\"", name);
    tree->store = store;
    if (from) {
        rc = store->ops.adopt(store->self, name, flags, from, &tree->handle, &tree->temp,
                              RSI_PLACE(err));
    } else if (begin) {
        rc = store->ops.begin(store->self, name, flags, &tree->handle, &tree->temp, RSI_PLACE(err));
    } else {
        memcpy(tree + 1, name, len);
        tree->temp = (const char *)(tree + 1);
        rc = store->ops.attach(store->self, name, &tree->handle, RSI_PLACE(err));
    }
    if (rc) {
        rsi_free(tree);
        return rc;
    }
    *out = tree;
    return RSD_OK;
}

rsd_err rsi_tree_begin(rsd_store *store, const char *name, uint32_t flags, rsi_tree **out,
                       rsd_error *err)
{
    return open_tree(store, name, true, flags, NULL, out, err);
}

rsd_err rsi_tree_adopt(rsd_store *store, const char *name, uint32_t flags, const char *from,
                       rsi_tree **out, rsd_error *err)
{
    rsd_err rc = rsi_store_name_check(from, err);

    if (!rc && !store->ops.adopt)
        rc = rsi_fail(err, RSD_E_UNSUPPORTED, "a %s store can't replace what already has a name",
                      store->ops.name);
    return rc ? rc : open_tree(store, name, true, flags, from, out, err);
}

rsd_err rsi_tree_attach(rsd_store *store, const char *temp, rsi_tree **out, rsd_error *err)
{
    return open_tree(store, temp, false, 0, NULL, out, err);
}

rsd_err rsi_tree_commit(rsi_tree *tree, rsd_error *err)
{
    rsd_err rc = tree->store->ops.commit(tree->store->self, tree->handle, RSI_PLACE(err));

    if (!rc)
        rsi_free(tree);
    return rc;
}

rsd_err rsi_tree_abort(rsi_tree *tree, rsd_error *err)
{
    rsd_err rc;

    if (!tree)
        return RSD_OK;
    rc = (tree->store->ops.abort)(tree->store->self, tree->handle, RSI_PLACE(err));
    rsi_free(tree);
    return rc;
}
