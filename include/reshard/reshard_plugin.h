/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_plugin.h - tables of functions for custom comms, stores and transforms. The rules at the
 * top of reshard.h apply here too. */
#ifndef RESHARD_PLUGIN_H
#define RESHARD_PLUGIN_H

#include <reshard/reshard.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- comm: custom transports ---- */

/* A piece of one rank's memory as a plain value that can be sent to others. */
typedef struct rsd_exposed {
    uint64_t word[4];
} rsd_exposed;

#define RSD_COMM_ALONE 1u /* the other ranks are absent */
#define RSD_COMM_THREADS                                                                           \
    2u /* ranks are threads of one process, which none of them can fork alone */

/* Moves bytes between ranks. `self` is one rank's end; all calls with it come from one thread at a
 * time, and nothing is called after close. Functions return RSD_OK or fill *err (never NULL) with
 * one line; `err->rank` stays -1 for errors that only this rank knows of.
 *
 * A request is a pointer chosen by the transport. NULL is a finished one, so arrays of requests
 * need no compaction.
 *
 * While ranks wait or work for long, the library occasionally sends a few bytes as heartbeats; some
 * of them may never be received. */
typedef struct rsd_comm_ops {
    size_t      size;  /* sizeof(rsd_comm_ops) */
    const char *name;  /* "mpi", for error messages */
    uint32_t    flags; /* RSD_COMM_* */

    /* Constant for the life of `self`. */
    int32_t (*rank)(void *self);
    int32_t (*count)(void *self); /* number of ranks */

    /* Starts to send `bytes` bytes, which may be 0 or more than 4 GiB, to rank `to`, which may be
     * this one. `tag` is 0 to 32767. The caller keeps the bytes unchanged until the request has
     * finished; that may be before the receiver has asked for them (short messages must not wait
     * for it) or only when it has them. Messages from one rank to another with the same tag are
     * received in the order in which they were started. Never waits for the other side. */
    rsd_err (*send)(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                    void **request, rsd_error *err);
    /* Starts to receive the next message with that tag from rank `from`. Both ends know its size: a
     * message of another size is RSD_E_MISMATCH if the transport notices, otherwise a timeout. The
     * memory belongs to the transport until the request has finished. Never waits. */
    rsd_err (*recv)(void *self, int32_t from, int32_t tag, void *data, size_t bytes, void **request,
                    rsd_error *err);

    /* Sets *request to NULL if it has finished. Never waits, but does advance messages. Errors are
     * reported as in wait_some. */
    rsd_err (*test)(void *self, void **request, rsd_error *err);
    /* Waits until at least one of request[0 .. n-1] has finished and sets the finished ones to
     * NULL; returns at once if all are NULL already. RSD_E_TIMEOUT, with nothing changed, after
     * `timeout_ms` (0: checks once). A request that failed becomes NULL too and its error is
     * returned; after any error those that are not NULL are still in progress. Must yield the
     * processor to other threads and processes while it waits. */
    rsd_err (*wait_some)(void *self, size_t n, void **request, int64_t timeout_ms, rsd_error *err);
    /* Withdraws a request. True: it is gone, *request is NULL and its memory is the caller's again;
     * a receive may have written to it, and its message may be lost. False: it can't be withdrawn;
     * it may finish through wait_some, and its memory must stay until then. Waits at most for a
     * copy in progress. Works on a broken comm too. */
    bool (*cancel)(void *self, void **request);

    /* Breaks the comm for good: on every rank of it and of all comms that it was split from or
     * into, send, recv, test, wait_some, split and alloc fail from now on with *why as their error,
     * and those that are waiting wake up. Requests that had finished are still reported first. The
     * first *why wins; further calls do nothing. Does not wait. */
    void (*stop)(void *self, const rsd_error *why);

    /* Called on every rank with the list of the group it will be in; the lists have been checked
     * and are disjoint. n == 0: *out becomes NULL. Fails on all ranks or on none, except for lack
     * of memory. */
    rsd_err (*split)(void *self, int32_t n, const int32_t *ranks, void **out, rsd_error *err);

    /* Page-aligned memory for expose; called on every rank, with any size. Fails on all ranks or on
     * none. NULL: ordinary memory is as good. */
    rsd_err (*alloc)(void *self, size_t bytes, void **out, rsd_error *err);
    /* Called on every rank, with what the same call of alloc returned. NULL if alloc is. */
    void (*dealloc)(void *self, void *data);

    /* A value through which other ranks can reach this memory while it exists; the two ranks agree
     * on when. RSD_E_UNSUPPORTED: not this memory. Local. NULL: never. */
    rsd_err (*expose)(void *self, const void *data, size_t bytes, rsd_exposed *out, rsd_error *err);
    /* Where this rank finds what rank `owner` exposed: an address to copy from and to. Receiving a
     * message that the owner sent after writing makes its writes visible. RSD_E_UNSUPPORTED: not
     * from here. Local. NULL if expose is. */
    rsd_err (*reach)(void *self, int32_t owner, const rsd_exposed *what, void **out,
                     rsd_error *err);

    /* The last call. All requests have finished or been cancelled, except on a broken comm. */
    void (*close)(void *self);

    /* Called before close: waits until every rank that close would wait for has arrived;
     * RSD_E_TIMEOUT after `timeout_ms`. After an error the comm is stopped, and close must not
     * wait. NULL, or a table that ends before this field: close never waits. */
    rsd_err (*meet)(void *self, int64_t timeout_ms, rsd_error *err);

    /* A number that the ranks of one machine share with no others. Local. NULL, or a table that
     * ends before this field: the library asks the system. */
    uint64_t (*host)(void *self);
} rsd_comm_ops;

/* A comm on a custom transport. The table is copied. rsd_comm_free closes `self`; after an error
 * here it is still the caller's. [local] */
RSD_API rsd_err rsd_comm_create_custom(const rsd_comm_ops *ops, void *self, rsd_comm **out,
                                       rsd_error *err);

/* ---- ranks that are processes ---- */

/* Where ranks that know only their number find each other: bytes under keys, seen by all of them,
 * as torch.distributed's Store, a folder on a shared file system or a server can hold them. Keys
 * are short and made of letters, digits and dots; every comm needs a place of its own for them. The
 * functions are called while the comm is created, from the thread that creates it; dial and hangup
 * as they say. They return RSD_OK or fill *err. */
typedef struct rsd_meeting {
    size_t size; /* sizeof(rsd_meeting) */
    void  *arg;  /* for the functions */
    /* Stores bytes under a key that was not used before. */
    rsd_err (*put)(void *arg, const char *key, const void *data, size_t bytes, rsd_error *err);
    /* Waits until a key is present and calls take(to, its bytes) once. RSD_E_TIMEOUT: it was not
     * within `timeout_ms`. */
    rsd_err (*get)(void *arg, const char *key, int64_t timeout_ms,
                   void (*take)(void *to, const void *data, size_t bytes), void *to,
                   rsd_error *err);
    /* The link between machines. Called on every rank if any two of them are not on one machine:
     * fd[i] becomes a connected stream socket whose other end is the fd that rank[i] gets for this
     * rank. `n` is 0 on a rank that needs none. The comm closes them. NULL: all ranks must be on
     * one machine. */
    rsd_err (*dial)(void *arg, int32_t n, const int32_t *rank, int *fd, rsd_error *err);
    /* The last call: the comm has been freed, after an error if `broken`. NULL: nothing to do. Not
     * called if the comm could not be created. */
    void (*hangup)(void *arg, bool broken);
    int64_t    timeout_ms; /* until all ranks have come; 0: 300 s */
    rsd_choice near; /* NEVER: dial connects all ranks, as if each were on a machine of its own */
} rsd_meeting;

/* A meeting place in a folder that all ranks see, on a shared file system if they are on several
 * machines; the first rank creates it. Fills put, get, hangup and arg of *out, whose size the
 * caller has set. hangup removes what this rank put, and the folder with the last of it; call it if
 * no comm was created. A folder in which files of another meeting are left is refused. [local] */
RSD_API rsd_err rsd_meeting_in_folder(const char *path, rsd_meeting *out, rsd_error *err);

/* A comm of `count` processes, of which this is number `rank`. Ranks of one machine use Unix
 * sockets and read each other's memory where the system allows it; which ranks are on one machine
 * is tried out. A rank that ends without freeing the comm breaks it: the others name it. A comm,
 * and those split from it, may be used by different threads; a forked child can't use it.
 * [collective]
 */
RSD_API rsd_err rsd_comm_create_processes(int32_t rank, int32_t count, const rsd_meeting *with,
                                          rsd_comm **out, rsd_error *err);

/* The same on UCX (InfiniBand, RoCE, TCP), for ranks of any number of machines; `dial` and `near`
 * of the meeting are not used. Memory from rsd_comm_alloc is reached directly by ranks of the same
 * machine, which is tried out. RSD_E_UNSUPPORTED: libreshard_ucx or libucp can't be loaded. The
 * last rsd_comm_free of a rank waits until all ranks are freeing theirs. UCX's variables (UCX_TLS,
 * UCX_NET_DEVICES and others) apply; without UCX_LOG_LEVEL it prints nothing for this comm.
 * [collective]
 */
RSD_API rsd_err rsd_comm_create_ucx(int32_t rank, int32_t count, const rsd_meeting *with,
                                    rsd_comm **out, rsd_error *err);

/* ---- store: custom backends ---- */

/* What a store can do. */
enum {
    RSD_STORE_RANDOM_WRITE = 1, /* writes may come in any order; otherwise rising, without gaps */
    RSD_STORE_EXCHANGE = 2, /* commit can replace an existing name, with no moment without it; if
                               this depends on the file system, begin may refuse */
    RSD_STORE_SHARED = 8    /* other processes can open what this one wrote */
};

/* How a file is opened: one of the first three, and hints. */
enum {
    RSD_OPEN_READ = 1,
    RSD_OPEN_CREATE = 2, /* for writing; it must not exist */
    RSD_OPEN_WRITE = 4,  /* for writing; it must exist, and keeps its contents */

    RSD_OPEN_DIRECT = 16, /* large aligned pieces may bypass the cache: they won't be read soon */
    RSD_OPEN_FOLLOW = 32 /* follow symbolic links: only for names given by the user, never for names
                            found in a file */
};

/* How a tree is begun. */
enum {
    RSD_TREE_FILE = 1,     /* it is one file, not a folder */
    RSD_TREE_OVERWRITE = 2 /* replace whatever has that name at commit */
};

/* How a name is held. */
enum {
    RSD_HOLD_FILES = 1 /* open the files of a folder at once, as far as sensible: they will be
                          needed, and the folder may be removed soon */
};

/* How a file is claimed. */
typedef enum rsd_claim {
    RSD_CLAIM_NEW = 1,    /* create it, empty, for writing: RSD_E_EXISTS if the name is taken */
    RSD_CLAIM_SHARED = 2, /* as others may too; RSD_E_NOTFOUND: missing or about to be removed */
    RSD_CLAIM_ALONE = 3,  /* to remove it: RSD_E_EXISTS while another claim exists, and
                             RSD_E_UNSUPPORTED where claims of other machines may be invisible */
    RSD_CLAIM_OLD = 4     /* the same for a file that is known to be obsolete: claims that can't be
                             seen don't count */
} rsd_claim;

/* What a held name stands for now. */
typedef enum rsd_held {
    RSD_HELD_CURRENT = 0,  /* the same */
    RSD_HELD_REPLACED = 1, /* something else, but all files exist */
    RSD_HELD_LOST = 2      /* something else, and files may be missing */
} rsd_held;

typedef enum rsd_io_op { RSD_IO_READ = 1, RSD_IO_WRITE = 2 } rsd_io_op;

/* One request. It and its buffer belong to the store from submit until reap gives it back. */
typedef struct rsd_io {
    rsd_io_op op;
    void     *file; /* the handle from open */
    uint64_t  off;  /* bytes from the file's start */
    void     *buf;  /* only read by a write */
    size_t    len;
    void     *tag; /* the caller's; the store ignores it */

    /* The result. RSD_OK with `done` less than `len`: a read reached the end of the file. A write
     * that is RSD_OK is complete. */
    rsd_err rc;
    int32_t sys_errno; /* if `rc` is set; 0: no system call failed */
    size_t  done;      /* bytes */

    void *own[2]; /* for the store while it has the request */
} rsd_io;

typedef enum rsd_entry_kind {
    RSD_ENTRY_FILE = 1,
    RSD_ENTRY_FOLDER,
    RSD_ENTRY_OTHER
} rsd_entry_kind;

typedef struct rsd_entry {
    const char    *name;    /* within its folder; valid during the visit */
    rsd_entry_kind kind;    /* other: symbolic link, device, socket, FIFO */
    uint64_t       size;    /* bytes of a file, else 0 */
    uint64_t       version; /* of a file, see rsd_opened; 0: unknown */
} rsd_entry;

typedef struct rsd_opened {
    void    *file;  /* the handle */
    uint64_t size;  /* bytes that the file has now */
    uint32_t align; /* pieces whose address, offset and length are multiples of this bypass the
                       cache; 1: no difference */
    /* A number that is the same on every host and changes when the file is written to or replaced:
     * made of its size and time, for example. Nonzero also means that the file may be closed and
     * reopened while in use. 0: unknown. */
    uint64_t version;
    bool     scarce; /* handles are running out: close others before opening more */
    /* For a file open for reading: a number that changes when anything about the file changes,
     * including names and permissions: made of its change time, for example. 0: unknown. */
    uint64_t touched;
    uint32_t mode; /* of a file open for reading: st_mode, for its permissions; 0: unknown */
} rsd_opened;

/* The functions of a backend. Names passed to it have been checked and are never NULL; "" is the
 * root and is passed to `list` and `stat` only. Outputs are set only on success. Every function may
 * be called by any thread at any time, except that a handle, queue or tree is no longer used once
 * it is being closed. A function that returns rsd_err explains a failure in *err, which is never
 * NULL here. RSD_E_NOTFOUND, RSD_E_EXISTS and RSD_E_UNSUPPORTED must mean what they say; callers
 * rely on them. */
typedef struct rsd_store_ops {
    size_t      size;    /* sizeof(rsd_store_ops) */
    const char *name;    /* one word for error messages, "file"; lives as long as the store */
    uint32_t    flags;   /* RSD_STORE_... */
    int32_t     threads; /* maximum inside `transfer` at once when the library makes the queues,
                            including the caller of reap; 0: the library chooses, 1: no others */

    /* Called when everything is closed. NULL: nothing to do. */
    void (*destroy)(void *self);

    /* -- files -- */

    /* Opens a file. `flags` has exactly one of READ, CREATE and WRITE. `bytes` is the final size of
     * a created file, so that space can be reserved at once; 0: unknown. Refuses everything that is
     * not a regular file, and symbolic links without RSD_OPEN_FOLLOW. Others can open a created
     * file at once. */
    rsd_err (*open)(void *self, const char *name, uint32_t flags, uint64_t bytes, rsd_opened *out,
                    rsd_error *err);
    /* Carries out one request: short transfers are continued, interrupted ones repeated. Reports
     * errors only in io->rc. Concurrent requests don't share bytes unless all of them read. An end
     * (off + len) above INT64_MAX is RSD_E_INVALID. */
    void (*transfer)(void *self, rsd_io *io);
    /* On success, what was written so far survives a power cut (C3 in docs/commit.md). A failure is
     * final: the bytes may be gone although a second try would succeed, so every later call fails
     * in the same way. */
    rsd_err (*sync)(void *self, void *file, rsd_error *err);
    /* The handle is gone whatever this returns. A failure means that unsynced bytes may be lost. */
    rsd_err (*close)(void *self, void *file, rsd_error *err);

    /* -- queues: several requests in progress. Optional, all four or none: without them the library
     *    calls `transfer` from threads. A queue has one user at a time -- */

    /* `depth`, at least 1, is the usual number of requests in progress; more must work too.
     * RSD_E_UNSUPPORTED: the library makes this queue, as if these functions were missing. */
    rsd_err (*queue_open)(void *self, size_t depth, void **out, rsd_error *err);
    /* Waits for the requests in progress; their results are dropped. */
    void (*queue_close)(void *self, void *queue);
    /* Accepts n requests and starts them in any order. Does not wait for them and can't fail:
     * problems show in each request's result. */
    void (*submit)(void *self, void *queue, rsd_io *io, size_t n);
    /* Returns up to `cap` finished requests and their number; waits until there are `min` of them
     * or nothing is left in progress. min <= cap. */
    size_t (*reap)(void *self, void *queue, size_t min, size_t cap, rsd_io **out);

    /* -- names -- */

    /* Visits the entries of a folder, in any order, including temporary names of trees. Stops at
     * the first visit that returns an error and returns that error. */
    rsd_err (*list)(void *self, const char                                                    *name,
                    rsd_err (*visit)(void *arg, const rsd_entry *entry, rsd_error *err), void *arg,
                    rsd_error *err);
    /* What a name is; symbolic links are not followed. out->name is `name`. */
    rsd_err (*stat)(void *self, const char *name, rsd_entry *out, rsd_error *err);
    /* Makes a folder and its missing parents; an existing one is fine. Durable on return. */
    rsd_err (*make_folder)(void *self, const char *name, rsd_error *err);
    /* Removes a file, durably, or a folder with everything in it. A folder's name goes first and at
     * once: no reader finds half of it under its name. */
    rsd_err (*remove)(void *self, const char *name, rsd_error *err);

    /* -- trees: written under a temporary name, published at once (C1 to C5 in docs/commit.md).
     *    Stores without a rename keep the temporary names internal and publish with the last thing
     *    they write -- */

    /* Begins to write the future `name`. *temp (owned by the tree, lives as long) is a new name
     * beside it, ".<last part>.tmp-<16 hex digits>": an empty folder, or with RSD_TREE_FILE an
     * empty file, which is written to with the functions above. Removes what dead writers of `name`
     * left behind, never what a living one still writes to. Without RSD_TREE_OVERWRITE:
     * RSD_E_EXISTS if the name exists. With it: RSD_E_EXISTS if the name is of another kind,
     * RSD_E_UNSUPPORTED if it can't be replaced without a gap. The folder that contains `name` must
     * exist. */
    rsd_err (*begin)(void *self, const char *name, uint32_t flags, void **tree, const char **temp,
                     rsd_error *err);
    /* For the other writers of a tree, in this or another process: as long as one of them or the
     * writer that began it lives, the tree does not count as abandoned. */
    rsd_err (*attach)(void *self, const char *temp, void **tree, rsd_error *err);
    /* Called by the writer that began, when all files are synced and closed (C3, C4): syncs the
     * folders, makes `name` refer to this tree, all or nothing, makes that durable and removes what
     * it replaced. Ends the handle on success. After a failure `name` is unchanged, and the handle
     * can only be aborted. RSD_E_EXISTS: another writer was first. */
    rsd_err (*commit)(void *self, void *tree, rsd_error *err);
    /* Ends the handle; removes what was begun with it, but not what it was attached to. A failure
     * means that something is left for the next begin to remove. */
    rsd_err (*abort)(void *self, void *tree, rsd_error *err);

    /* -- optional -- */

    /* A number for a file open for reading that changes when it is written to, truncated or
     * extended. NULL: not available. */
    rsd_err (*stamp)(void *self, void *file, uint64_t *out, rsd_error *err);
    /* Like begin, but the tree is what has the name `from`, a file or folder written over several
     * runs. It stays there until commit: after abort, or a failure, even of commit, it is where it
     * was. What commit replaces may be left there. NULL: not available. */
    rsd_err (*adopt)(void *self, const char *name, uint32_t flags, const char *from, void **tree,
                     const char **temp, rsd_error *err);
    /* Makes a folder, in an existing one, that only this user may write to; an existing one is fine
     * if that holds for it, otherwise RSD_E_EXISTS. Durable on return. NULL: make_folder is
     * used. */
    rsd_err (*make_private)(void *self, const char *name, rsd_error *err);
    /* Holds what `name` is now: *out is a store with the same names in which it stays the same,
     * whatever is published meanwhile. It holds a folder with all files in it, except that a file
     * not opened before the folder was removed is RSD_E_NOTFOUND; or a file, together with the one
     * whose name is `name` followed by `tail`, if it exists: both as one writer published them (see
     * lock). *out is NULL if `name` is neither. It is closed before this store. NULL: not
     * available, so readers can at best detect a change. */
    rsd_err (*hold)(void *self, const char *name, const char *tail, uint32_t flags, rsd_store **out,
                    rsd_error *err);
    /* For a store that hold made: whether the name now stands for something else and, because of
     * that, files may be missing. Present if hold is. */
    rsd_held (*replaced)(void *self);
    /* Both or none: from lock to unlock no other writer that locks publishes in the folder of
     * `name`, and hold does not see a file there without its second one. Not nested. For a store
     * that hold made, and the name it holds: the name is not replaced for about a second;
     * RSD_E_NOTFOUND if it is too late for that. */
    rsd_err (*lock)(void *self, const char *name, void **out, rsd_error *err);
    void (*unlock)(void *self, void *lock);
    /* Removes permissions from a created file: it keeps at most those of `mode`, as in rsd_opened.
     * Durable on return. NULL: there are no permissions. */
    rsd_err (*protect)(void *self, const char *name, uint32_t mode, rsd_error *err);

    /* -- publishing inside a folder (C8 in docs/commit.md): all three or none -- */

    /* Claims a file until unclaim, or until this process ends in whatever way. A claimed file can
     * be opened and removed as usual: claims only keep RSD_CLAIM_ALONE out. */
    rsd_err (*claim)(void *self, const char *name, rsd_claim how, void **out, rsd_error *err);
    void (*unclaim)(void *self, void *claim);
    /* On success the names in the folder `name` survive a power cut. */
    rsd_err (*sync_names)(void *self, const char *name, rsd_error *err);
} rsd_store_ops;

/* A custom store. The table is copied; `self` is passed to its functions, and belongs to the store
 * once this call succeeds. [local] */
RSD_API rsd_err rsd_store_open_custom(const rsd_store_ops *ops, void *self, rsd_store **out,
                                      rsd_error *err);

/* ---- transforms: encoding and decoding the bytes of an item ---- */

/* A transform makes streams; each stream either encodes or decodes. The calls for one stream come
 * one after the other: begin, feed as long as there is input, end until it is done, free. Different
 * streams may run in different threads at the same time. A stream uses a bounded amount of memory,
 * whatever its input contains and however long it is. Functions that fail fill *err and return its
 * code (RSD_E_FORMAT: the input is not the output of encoding); after that only free is called.
 * None of them may block or call back into this library. */
typedef struct rsd_transform {
    size_t      size; /* sizeof(rsd_transform) */
    const char *name; /* "stream.zstd", "mine@example.org": the part of a descriptor before '/' */
    const char *version; /* "1": the version written; all with the same number before the first '.'
                            are read */
    void *arg;           /* for begin */
    /* Makes a stream; `encode` is false for one that decodes. */
    rsd_err (*begin)(void *arg, bool encode, void **stream, rsd_error *err);
    /* Consumes *used of `in_len` > 0 bytes and produces *made of at most `out_cap` > 0. It consumes
     * all of the input or fills `out`. */
    rsd_err (*feed)(void *stream, const void *in, size_t in_len, size_t *used, void *out,
                    size_t out_cap, size_t *made, rsd_error *err);
    /* There is no more input. Produces *made of at most `out_cap` > 0 bytes; *done: these were the
     * last. A call that is not done produces at least one byte. Decoding truncated input is
     * RSD_E_FORMAT. */
    rsd_err (*end)(void *stream, void *out, size_t out_cap, size_t *made, bool *done,
                   rsd_error *err);
    void (*free)(void *stream); /* also called before the end and after a failure */
} rsd_transform;

/* Adds a transform for the lifetime of the process. The struct is copied; its strings and functions
 * must stay. RSD_E_EXISTS if the name is taken. Any thread may call it. */
RSD_API rsd_err rsd_transform_register(const rsd_transform *transform, rsd_error *err);

#ifdef __cplusplus
}
#endif
#endif
