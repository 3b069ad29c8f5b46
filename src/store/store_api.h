/* SPDX-License-Identifier: Apache-2.0 */
/* store_api.h - the store section of the public header, written as it stands there: bytes under
 * names, no tensors. Own backends (object stores, archives) fill in rsd_store_ops. */
#ifndef RESHARD_STORE_API_H
#define RESHARD_STORE_API_H

#include <reshard/reshard.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- store: bytes under names ---- */

/* Files in folders, and trees of them that are published whole or not at all. A name is relative to
 * the store's top: components between single '/', none of them empty, "." or ".."; no control
 * characters. May be shared by threads. */
typedef struct rsd_store rsd_store;

/* What a store can do. */
enum {
    RSD_STORE_RANDOM_WRITE = 1, /* writes may come in any order; else rising, without holes */
    RSD_STORE_EXCHANGE = 2,     /* a commit may replace a name that exists, with no moment without
                                   it; where this depends on the file system, begin can refuse */
    RSD_STORE_MAP = 4,          /* there is map */
    RSD_STORE_SHARED = 8        /* other processes can open what this one wrote */
};

/* How a file is opened: one of the first three, and hints. */
enum {
    RSD_OPEN_READ = 1,
    RSD_OPEN_CREATE = 2, /* for writing; it must not exist */
    RSD_OPEN_WRITE = 4,  /* for writing; it must exist, and keeps what it has */

    RSD_OPEN_DIRECT = 16, /* large aligned pieces may go past the cache: nobody reads them soon */
    RSD_OPEN_FOLLOW = 32  /* follow symbolic links: only for names that the user himself gave,
                             never for names found in a file */
};

/* How a tree is begun. */
enum {
    RSD_TREE_FILE = 1,     /* it is one file, not a folder */
    RSD_TREE_OVERWRITE = 2 /* replace what has the name by then */
};

typedef enum rsd_io_op { RSD_IO_READ = 1, RSD_IO_WRITE = 2 } rsd_io_op;

/* One request. It and its buffer belong to the store from submit until reap gives it back. */
typedef struct rsd_io {
    rsd_io_op op;
    void     *file; /* the handle from open */
    uint64_t  off;  /* bytes from the file's start */
    void     *buf;  /* a write only reads it */
    size_t    len;
    void     *tag; /* the caller's; the store never looks */

    /* The result. Less `done` than `len` with RSD_OK: a read met the end of the file. A write that
     * is RSD_OK is complete. */
    rsd_err rc;
    int32_t sys_errno; /* why, when `rc` is set; 0: no system call was to blame */
    size_t  done;      /* bytes */

    void *own[2]; /* the store's while it has the request */
} rsd_io;

typedef enum rsd_entry_kind {
    RSD_ENTRY_FILE = 1,
    RSD_ENTRY_FOLDER,
    RSD_ENTRY_OTHER
} rsd_entry_kind;

typedef struct rsd_entry {
    const char    *name; /* within its folder; valid during the call that shows it */
    rsd_entry_kind kind; /* other: symbolic link, device, socket, FIFO */
    uint64_t       size; /* bytes of a file, else 0 */
} rsd_entry;

typedef struct rsd_opened {
    void    *file;  /* the handle */
    uint64_t size;  /* bytes that the file has now */
    uint32_t align; /* pieces whose address, offset and length are multiples of this go past the
                       cache; 1: it makes no difference */
} rsd_opened;

/* The table of a backend. Names that it gets have been checked and are never NULL; "" is the top
 * and is given to `list` and `stat` only. Outputs are set only on success. Every function may be
 * called by any thread at any time, except that a handle, queue or tree is not used any more once
 * it is being closed. A function that returns rsd_err explains itself in *err, which is never NULL
 * here. RSD_E_NOTFOUND, RSD_E_EXISTS and RSD_E_UNSUPPORTED mean what they say; callers rely on
 * them. */
typedef struct rsd_store_ops {
    size_t      size;    /* sizeof(rsd_store_ops) */
    const char *kind;    /* one word for messages, "file"; lives as long as the store */
    uint32_t    flags;   /* RSD_STORE_... */
    int32_t     threads; /* that may be inside `transfer` at once when the library makes the queues,
                            the caller of reap included; 0: choose well, 1: make none */

    /* Everything is closed by now. NULL: nothing to do. */
    void (*destroy)(void *self);

    /* -- files -- */

    /* Opens a file. `flags` has exactly one of READ, CREATE and WRITE. `bytes` is the size that a
     * created file will have in the end, so that room can be made at once; 0: not known. Refuses
     * everything that is not a regular file, and symbolic links unless RSD_OPEN_FOLLOW is there. A
     * created file can be opened by others at once. */
    rsd_err (*open)(void *self, const char *name, uint32_t flags, uint64_t bytes, rsd_opened *out,
                    rsd_error *err);
    /* Does one request and returns when it is done: short transfers are continued, interruptions
     * repeated. Never fails but in io->rc. Requests under way at the same time don't share bytes
     * unless all of them read. An end (off + len) above INT64_MAX is RSD_E_INVALID. */
    void (*transfer)(void *self, rsd_io *io);
    /* What was written so far survives a power cut (C3). A failure is final: the bytes may be gone
     * although a second try would succeed, so every later call fails in the same way. */
    rsd_err (*sync)(void *self, void *file, rsd_error *err);
    /* The handle is gone whatever this returns. A failure means that bytes which were not synced
     * may be lost. */
    rsd_err (*close)(void *self, void *file, rsd_error *err);

    /* Optional, both or none. `len` > 0 bytes from `off` on, all within the file, to be read at
     * *out. Only for files that nobody changes: touching a mapped byte of a file that was cut short
     * ends the process. */
    rsd_err (*map)(void *self, void *file, uint64_t off, size_t len, const void **out,
                   rsd_error *err);
    void (*unmap)(void *self, void *file, const void *at, size_t len);

    /* -- queues: several requests under way. Optional, all four or none: without them the library
     *    calls `transfer` from threads. A queue has one user at a time -- */

    /* `depth` requests are usually under way, at least 1; more must work too. RSD_E_UNSUPPORTED:
     * the library makes this queue, as if there were none of these functions. */
    rsd_err (*queue_open)(void *self, size_t depth, void **out, rsd_error *err);
    /* Waits for what is under way; the results are dropped. */
    void (*queue_close)(void *self, void *queue);
    /* Takes n requests and starts on them in any order. Does not wait for them and can't fail:
     * troubles show in each request's result. */
    void (*submit)(void *self, void *queue, rsd_io *io, size_t n);
    /* Gives back up to `cap` finished requests and returns how many; waits until there are `min` of
     * them or nothing is under way any more. min <= cap. */
    size_t (*reap)(void *self, void *queue, size_t min, size_t cap, rsd_io **out);

    /* -- names -- */

    /* Visits what is in a folder, in any order, temporary names of trees too. Stops at the first
     * visit that returns an error and returns that. */
    rsd_err (*list)(void *self, const char                                                    *name,
                    rsd_err (*visit)(void *arg, const rsd_entry *entry, rsd_error *err), void *arg,
                    rsd_error *err);
    /* What a name is, symbolic links not followed; out->name is `name`. */
    rsd_err (*stat)(void *self, const char *name, rsd_entry *out, rsd_error *err);
    /* Makes a folder and those above it that are missing; fine if it is there. Durable on return.
     */
    rsd_err (*make_folder)(void *self, const char *name, rsd_error *err);
    /* Removes a file, or a folder with all that is in it. A folder's name goes first and at once:
     * nobody finds half of it under its name. */
    rsd_err (*remove)(void *self, const char *name, rsd_error *err);

    /* -- trees: written under a temporary name, published at once (C1 to C5). Stores without a
     *    rename keep the temporary names to themselves and publish by what they write last -- */

    /* Begins to write what will be `name`. *temp (the tree's, lives as long) is a new name beside
     * it, ".<last part>.tmp-<16 hex digits>": an empty folder, or an empty file for RSD_TREE_FILE.
     * It is written to with the functions above. Removes what earlier writers of `name` left when
     * they died, never what a living one still writes to. Without RSD_TREE_OVERWRITE: RSD_E_EXISTS
     * if there is something of that name. With it: RSD_E_UNSUPPORTED if there is and it can't be
     * replaced without a gap. The folder that `name` is in must exist. */
    rsd_err (*begin)(void *self, const char *name, uint32_t flags, void **tree, const char **temp,
                     rsd_error *err);
    /* For the other writers of a tree, in this or another process: as long as one of them or the
     * one who began lives, nobody takes the tree for a dead one's. */
    rsd_err (*attach)(void *self, const char *temp, void **tree, rsd_error *err);
    /* By the one who began, when all files are synced and closed (C3, C4): syncs the folders, makes
     * `name` be this tree, all or nothing, makes that durable and removes what it replaced. Ends
     * the handle on success. After a failure `name` is what it was, the handle is only good for
     * abort. RSD_E_EXISTS: someone else was first. */
    rsd_err (*commit)(void *self, void *tree, rsd_error *err);
    /* Ends the handle; removes what was begun with it, leaves alone what it was attached to. A
     * failure means that something is left for the next begin to remove. */
    rsd_err (*abort)(void *self, void *tree, rsd_error *err);
} rsd_store_ops;

/* "/path", "path" or "file:/path": files below that folder, which must exist. "mem:": a new and
 * empty store in memory. "null:": takes everything and keeps nothing, for measurements. [local] */
RSD_API rsd_err rsd_store_open(const char *url, rsd_store **out, rsd_error *err);
/* A store of one's own. The table is copied; `self` is handed to its functions, and belongs to the
 * store once this succeeded. [local] */
RSD_API rsd_err rsd_store_create(const rsd_store_ops *ops, void *self, rsd_store **out,
                                 rsd_error *err);
/* Every file, queue and tree has been closed. */
RSD_API void rsd_store_free(rsd_store *store);

#ifdef __cplusplus
}
#endif
#endif
