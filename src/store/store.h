/* SPDX-License-Identifier: Apache-2.0 */
/* The store as the rest of the library uses it: handles that know their names, so that messages can
 * say which file and which byte. store.c forwards the calls to a backend: file.c, memory.c, null.c
 * or a custom one. */
#ifndef RSI_STORE_H
#define RSI_STORE_H

#include "base/error.h"

#include <reshard/reshard_plugin.h>
#include <pthread.h>
#include <stdatomic.h>

struct rsi_io_threads;

uint32_t    rsi_store_flags(const rsd_store *store); /* RSD_STORE_... */
const char *rsi_store_kind(const rsd_store *store);

/* Checks that a name may be used below the store's top; RSD_E_INVALID says what is wrong with it.
 */
rsd_err rsi_store_name_check(const char *name, rsd_error *err);

/* ---- files ---- */

typedef struct rsi_file {
    rsd_store *store;
    void      *handle;  /* what rsd_io.file takes */
    uint64_t   size;    /* bytes when it was opened */
    uint32_t   align;   /* see rsd_opened */
    bool       scarce;  /* the same */
    uint64_t   stamp;   /* of a file to read, when it was opened; 0: unknown */
    uint64_t   version; /* see rsd_opened */
    uint64_t   touched; /* the same */
    uint32_t   mode;    /* the same */
    /* Of a file to read: see handles.h. */
    bool             missing; /* the file does not exist */
    uint32_t         flags;   /* it was opened with */
    atomic_int       users;   /* requests that need `handle` right now; -1: it is closed */
    atomic_bool      recent;  /* used since last checked */
    atomic_bool      read;    /* something has been read */
    atomic_bool      changed; /* detected when it was closed */
    pthread_mutex_t  opening;
    struct rsi_file *next, *prev; /* NULL: it stays open */
    char             name[];      /* for messages */
} rsi_file;

rsd_err rsi_file_open(rsd_store *store, const char *name, uint32_t flags, uint64_t bytes,
                      rsi_file **out, rsd_error *err);
/* Represents a missing file: it has no bytes, and reading any fails as opening would. */
rsd_err rsi_file_missing(rsd_store *store, const char *name, uint32_t flags, rsi_file **out,
                         rsd_error *err);
/* NULL is fine. The handle is freed whatever this returns; err may be NULL. */
rsd_err rsi_file_close(rsi_file *file, rsd_error *err);
rsd_err rsi_file_sync(rsi_file *file, rsd_error *err);
/* Exactly `len` bytes, on the caller's thread. RSD_E_FORMAT: the file ends too early. */
rsd_err rsi_file_read(rsi_file *file, uint64_t off, void *buf, size_t len, rsd_error *err);
rsd_err rsi_file_write(rsi_file *file, uint64_t off, const void *buf, size_t len, rsd_error *err);
/* Writes a file front to back: what rsi_sums_write and its like call. `tail` is an
 * rsi_file_tail. */
typedef struct rsi_file_tail {
    rsi_file *file;
    uint64_t  at;
} rsi_file_tail;
rsd_err rsi_file_append(void *tail, const void *bytes, size_t len, rsd_error *err);
/* One request on the caller's thread; this sets its `file`. */
void rsi_file_transfer(rsi_file *file, rsd_io *io);
/* RSD_E_MISMATCH if a file to read has changed since it was opened, or, if it was closed for lack
 * of descriptors, before the last byte was read. RSD_OK if changes can't be detected. */
rsd_err rsi_file_unchanged(rsi_file *file, rsd_error *err);

/* Opens, reads and closes. */
rsd_err rsi_store_read_all(rsd_store *store, const char *name, uint64_t off, void *buf, size_t len,
                           rsd_error *err);
/* RSD_E_INVALID if it is not a file. */
rsd_err rsi_store_file_size(rsd_store *store, const char *name, uint64_t *out, rsd_error *err);

/* ---- queues: several pending requests; one user at a time ---- */

typedef struct rsi_queue rsi_queue;

rsd_err rsi_queue_open(rsd_store *store, size_t depth, rsi_queue **out, rsd_error *err);
void    rsi_queue_close(rsi_queue *queue); /* waits for pending requests */
void    rsi_queue_submit(rsi_queue *queue, rsd_io *io, size_t n);
size_t  rsi_queue_reap(rsi_queue *queue, size_t min, size_t cap, rsd_io **out);
/* Turns the result of a finished request of `file` into an error: RSD_OK only if all bytes were
 * moved. */
rsd_err rsi_io_check(const rsi_file *file, const rsd_io *io, rsd_error *err);

/* ---- readers alongside writers ---- */

/* See rsd_store_ops. *out is NULL if holding is unsupported. */
rsd_err rsi_store_hold(rsd_store *store, const char *name, const char *tail, uint32_t flags,
                       rsd_store **out, rsd_error *err);
/* RSD_HELD_CURRENT if unknown. */
rsd_held rsi_store_replaced(const rsd_store *store);
/* Does nothing if locks are unsupported. */
rsd_err rsi_store_lock(rsd_store *store, const char *name, void **out, rsd_error *err);
void    rsi_store_unlock(rsd_store *store, void *lock);

/* ---- claims: files of a writer that is still alive ---- */

/* See rsd_store_ops; RSD_E_UNSUPPORTED if the store lacks them. */
rsd_err rsi_store_claim(rsd_store *store, const char *name, rsd_claim how, void **out,
                        rsd_error *err);
void    rsi_store_unclaim(rsd_store *store, void *claim); /* NULL is fine */
rsd_err rsi_store_sync_names(rsd_store *store, const char *name, rsd_error *err);

/* ---- names; `name` may be "" for the top in list and stat ---- */

typedef rsd_err (*rsi_visit)(void *arg, const rsd_entry *entry, rsd_error *err);

rsd_err rsi_store_list(rsd_store *store, const char *name, rsi_visit visit, void *arg,
                       rsd_error *err);
rsd_err rsi_store_stat(rsd_store *store, const char *name, rsd_entry *out, rsd_error *err);
rsd_err rsi_store_make_folder(rsd_store *store, const char *name, rsd_error *err);
rsd_err rsi_store_make_private(rsd_store *store, const char *name, rsd_error *err);
rsd_err rsi_store_remove(rsd_store *store, const char *name, rsd_error *err);
/* Does nothing if permissions are unsupported. */
rsd_err rsi_store_protect(rsd_store *store, const char *name, uint32_t mode, rsd_error *err);

/* ---- trees ---- */

typedef struct rsi_tree {
    rsd_store  *store;
    void       *handle;
    const char *temp; /* the name to write to; other ranks learn it and attach */
} rsi_tree;

/* The message of RSD_E_EXISTS; callers add the name. */
#define RSI_EXISTS_ALREADY "it exists already, and overwrite was not asked for"
rsd_err rsi_tree_begin(rsd_store *store, const char *name, uint32_t flags, rsi_tree **out,
                       rsd_error *err);
/* See rsd_store_ops; RSD_E_UNSUPPORTED if the store lacks the function. */
rsd_err rsi_tree_adopt(rsd_store *store, const char *name, uint32_t flags, const char *from,
                       rsi_tree **out, rsd_error *err);
bool    rsi_store_adopts(const rsd_store *store);
rsd_err rsi_tree_attach(rsd_store *store, const char *temp, rsi_tree **out, rsd_error *err);
/* Frees the tree only on success; after a failure it must be aborted. */
rsd_err rsi_tree_commit(rsi_tree *tree, rsd_error *err);
/* Frees the tree; NULL is fine, err may be NULL. */
rsd_err rsi_tree_abort(rsi_tree *tree, rsd_error *err);

/* ---- temporary names, the same in all built-in stores ---- */

enum {
    RSI_NAME_MAX = 255,  /* longest part of a name in file systems, in bytes */
    RSI_TEMP_EXTRA = 22, /* characters added to the name: ".", ".tmp-", 16 */
};
/* The last part of a name, to which `extra` characters will be added: unchanged, or if that would
 * be too long its beginning, '~' and 16 digits that represent all of it. */
void rsi_name_stem(const char *last, size_t extra, char stem[RSI_NAME_MAX + 1]);
/* `name` with `end` after its stem; for rsi_free. NULL: no memory. */
char *rsi_name_behind(const char *name, const char *end);
/* "<folder>/<name>"; for rsi_free. NULL: no memory. */
char *rsi_name_below(const char *folder, const char *name);
/* buf has strlen(last) + RSI_TEMP_EXTRA + 1 bytes. */
void rsi_temp_name(const char *last, uint64_t random, char *buf);
/* True if `entry` is a temporary name of `last`. */
bool rsi_temp_match(const char *entry, const char *last);
/* The part of a name after the last '/'. */
const char *rsi_last_part(const char *name);

/* ---- the backends ---- */

rsd_err rsi_memory_store_open(rsd_store **out, rsd_error *err);
rsd_err rsi_null_store_open(rsd_store **out, rsd_error *err);

/* Opens a file store at the folder that contains `path`, and gets `path`'s last part: turns a
 * user's path into a name. `make`: creates that folder if it does not exist. Free *name with
 * rsi_free. RSD_E_INVALID for paths whose last part is empty, "." or "..". */
rsd_err rsi_store_open_beside(const char *path, bool make, rsd_store **out, char **name,
                              rsd_error *err);

/* The backend's own state; for backends and tests. */
void *rsi_store_self(const rsd_store *store);

#endif
