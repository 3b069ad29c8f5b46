/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of the file store: file.c (open, transfer, sync), file_folder.c (names),
 * file_tree.c (begin), file_publish.c (commit), file_hold.c (hold, lock), file_claim.c (claims) and
 * file_uring.c (queues). */
#ifndef RSI_FILE_H
#define RSI_FILE_H

#include "base/error.h"
#include "store/sys.h"

#include <reshard/reshard_plugin.h>
#include <stdatomic.h>

typedef enum rsi_file_io {
    RSI_FILE_IO_BEST = 0,
    RSI_FILE_IO_THREADS,
    RSI_FILE_IO_URING
} rsi_file_io;

/* For tests and benchmarks; zero selects the defaults. */
typedef struct rsi_file_opts {
    const rsi_sys *sys;        /* NULL: the real one */
    rsi_file_io    io;         /* uring falls back to threads if unavailable */
    size_t         direct_min; /* shortest request that bypasses the cache; 0: 1 MiB */
    int32_t        threads;    /* 0: 4 */
} rsi_file_opts;

/* Opens a store for the files below the folder `path`. `opts` NULL: the defaults. */
rsd_err rsi_file_store_open(const char *path, const rsi_file_opts *opts, rsd_store **out,
                            rsd_error *err);
/* Creates the folder at a path from the user, and its parents; durable on return. `sys` NULL: the
 * real calls. */
rsd_err rsi_file_store_make_top(const char *path, const rsi_sys *sys, rsd_error *err);

/* A name's file at the time it was held: file_hold.c. */
typedef struct rsi_fs_held_file {
    char *name; /* relative to the top */
    int   fd;   /* open for reading; -1: there was no such file; -2: not held */
} rsi_fs_held_file;

typedef struct rsi_fs_held {
    char             *name;   /* NULL: nothing is held */
    bool              single; /* a file, not a folder: file[0], with its checksum file in file[1] */
    int               folder; /* O_PATH; single: -1 */
    rsi_fs_held_file *file;   /* [n] the files already open */
    size_t            n, cap;
    bool              complete; /* these are all files of the folder */
} rsi_fs_held;

typedef struct rsi_fs {
    const rsi_sys *sys;
    int            top; /* the folder, O_PATH */
    rsi_file_opts  opts;
    char          *path; /* the folder's, for messages */
    rsi_fs_held    held; /* if set, `top` and `path` belong to another store */
} rsi_fs;

/* Makes a store from an initialised file system; on success it owns `fs`. */
rsd_err rsi_file_store_make(rsi_fs *fs, rsd_store **out, rsd_error *err);

/* ---- errors ---- */

/* Maps a system call's errno to the code that says who can act on it. */
rsd_err rsi_errno_code(int sys_errno);
/* rsi_fail_errno with that code: 'could not <verb> "<name>" in "<top>": <reason>'. */
rsd_err rsi_fs_fail(const rsi_fs *fs, rsd_error *err, int sys_errno, const char *verb,
                    const char *name);

/* ---- file_call.c: calls repeated when a signal interrupts them; -1 and errno ---- */

/* If descriptors have run out, closes idle files first (handles.h). */
int     rsi_fs_openat(const rsi_fs *fs, int dir, const char *name, int flags, mode_t mode);
int     rsi_fs_setfl(const rsi_fs *fs, int fd, int flags);
int     rsi_fs_statx(const rsi_fs *fs, int dir, const char *name, int flags, unsigned mask,
                     struct statx *out);
ssize_t rsi_fs_getdents(const rsi_fs *fs, int fd, void *buf, size_t cap);
int     rsi_fs_fsync(const rsi_fs *fs, int fd); /* repeated on EINTR only (C3) */
int     rsi_fs_mkdirat(const rsi_fs *fs, int dir, const char *name, mode_t mode);
int     rsi_fs_fchmod(const rsi_fs *fs, int fd, mode_t mode);
int     rsi_fs_unlinkat(const rsi_fs *fs, int dir, const char *name, int flags);
int     rsi_fs_rename(const rsi_fs *fs, int dir, const char *name, int to_dir, const char *to,
                      unsigned flags);
int     rsi_fs_linkat(const rsi_fs *fs, int dir, const char *name, int to_dir, const char *to);
int     rsi_fs_flock(const rsi_fs *fs, int fd, int how);
/* True: descriptors are running out; only indispensable ones are opened. */
bool rsi_fs_scarce(int fd);
/* True: file sizes are limited (RLIMIT_FSIZE). Writing beyond the limit raises SIGXFSZ, which ends
 * a process; the two calls below suppress it and fail with EFBIG. */
bool    rsi_fs_limited(void);
ssize_t rsi_fs_pwrite(const rsi_fs *fs, int fd, const void *buf, size_t len, off_t off);
/* Reserves `bytes` from the start of the file, or on tmpfs only checks that there is room for them;
 * 0 if the file system lacks the call. */
int rsi_fs_fallocate(const rsi_fs *fs, int fd, uint64_t bytes);
int rsi_fs_random(const rsi_fs *fs, uint64_t *out); /* 64 random bits */
/* For descriptors that were only read; -1 is fine; preserves errno. */
void rsi_fs_close(const rsi_fs *fs, int fd);

/* ---- file_folder.c ---- */

/* Opens the folder that contains a name with O_PATH; *last points into `name`, and is "" for a held
 * folder. Symbolic links on the way are refused unless `follow`. To be released with rsi_fs_leave,
 * which keeps the store's own descriptors open. */
rsd_err rsi_fs_enter(const rsi_fs *fs, const char *name, bool follow, int *dir, const char **last,
                     rsd_error *err);
void    rsi_fs_leave(const rsi_fs *fs, int dir);
/* Removes an entry of `dir` with everything in it; it may already be gone. -1 and errno. */
int rsi_fs_remove_tree(const rsi_fs *fs, int dir, const char *name);
/* Syncs the folder `dir`/`name` and every folder below it. -1 and errno. */
int rsi_fs_sync_folders(const rsi_fs *fs, int dir, const char *name);
/* Calls visit(arg, dir, name, type) for the entries of an open folder, from its start; `type` is
 * one of DT_..., possibly DT_UNKNOWN. A nonzero result stops. -1 and errno if the folder can't be
 * read. */
int rsi_fs_entries(const rsi_fs *fs, int dir,
                   int (*visit)(void *arg, int dir, const char *name, unsigned char type),
                   void *arg);

rsd_err rsi_fs_list(void *self, const char                                                    *name,
                    rsd_err (*visit)(void *arg, const rsd_entry *entry, rsd_error *err), void *arg,
                    rsd_error *err);
rsd_err rsi_fs_stat(void *self, const char *name, rsd_entry *out, rsd_error *err);
rsd_err rsi_fs_make_folder(void *self, const char *name, rsd_error *err);
rsd_err rsi_fs_protect(void *self, const char *name, uint32_t mode, rsd_error *err);
rsd_err rsi_fs_make_private(void *self, const char *name, rsd_error *err);
rsd_err rsi_fs_remove(void *self, const char *name, rsd_error *err);

/* ---- file_tree.c, file_publish.c ---- */

rsd_err rsi_fs_begin(void *self, const char *name, uint32_t flags, void **tree, const char **temp,
                     rsd_error *err);
rsd_err rsi_fs_adopt(void *self, const char *name, uint32_t flags, const char *from, void **tree,
                     const char **temp, rsd_error *err);
rsd_err rsi_fs_attach(void *self, const char *temp, void **tree, rsd_error *err);
rsd_err rsi_fs_commit(void *self, void *tree, rsd_error *err);
rsd_err rsi_fs_abort(void *self, void *tree, rsd_error *err);

/* ---- file_hold.c ---- */

rsd_err rsi_fs_hold(void *self, const char *name, const char *tail, uint32_t flags, rsd_store **out,
                    rsd_error *err);
void    rsi_fs_let_go(rsi_fs *fs); /* releases what is held */
rsd_held rsi_fs_replaced(void *self);
rsd_err  rsi_fs_lock(void *self, const char *name, void **out, rsd_error *err);
void     rsi_fs_unlock(void *self, void *lock);
/* 1: locked; 0: another process still has the lock after `most_ms`; -1: locks are unsupported. */
int rsi_fs_lock_wait(const rsi_fs *fs, int fd, int how, int most_ms);
/* How long a writer waits for readers that are about to hold, on all ranks, what it replaces. */
enum { RSI_READERS_MS = 2000 };
/* Lists the files of a folder that is held completely. */
rsd_err rsi_fs_list_held(const rsi_fs *fs,
                         rsd_err (*visit)(void *arg, const char *name, int fd, rsd_error *err),
                         void *arg, rsd_error *err);
/* Descriptor of the held file of this name; -1: known not to exist; -2: not held. */
int rsi_fs_find_held(const rsi_fs *fs, const char *name);

/* ---- file_claim.c ---- */

rsd_err rsi_fs_claim(void *self, const char *name, rsd_claim how, void **out, rsd_error *err);
void    rsi_fs_unclaim(void *self, void *claim);
rsd_err rsi_fs_sync_names(void *self, const char *name, rsd_error *err);

/* ---- file.c: a thread or io_uring moves one request in pieces ---- */

typedef struct rsi_fs_file {
    int         fd;
    int         direct_fd; /* the same file with O_DIRECT; -1: not requested or refused */
    uint32_t    align;     /* of offset and length on direct_fd; at least a page */
    uint32_t    mem_align; /* of the address; divides `align` */
    bool        writing;
    bool        borrowed;   /* fd belongs to the store */
    atomic_bool direct;     /* direct_fd is open and the file system still accepts it */
    atomic_int  sync_errno; /* of the first failed sync; 0: none failed (C3: final) */
} rsi_fs_file;

typedef struct rsi_io_piece {
    int    fd;
    bool   direct;
    off_t  off;
    void  *buf;
    size_t len;
} rsi_io_piece;

/* False, with the result set, if the request can't start. */
bool rsi_fs_io_begin(rsd_io *io);
/* The next piece: from io->done on. */
rsi_io_piece rsi_fs_piece(const rsi_fs *fs, const rsd_io *io);
/* Records a piece's result, in bytes or as a negative errno. True: the request has ended. */
bool rsi_fs_piece_done(rsd_io *io, const rsi_io_piece *piece, ssize_t res);
void rsi_fs_transfer(void *self, rsd_io *io);

/* One number for size and modification time, which `st` must have; never 0. */
uint64_t rsi_fs_version(const struct statx *st);

/* ---- file_uring.c ---- */

/* RSD_E_UNSUPPORTED if io_uring is unavailable or forbidden. */
rsd_err rsi_fs_ring_open(rsi_fs *fs, size_t depth, void **out, rsd_error *err);
void    rsi_fs_ring_close(void *self, void *queue);
void    rsi_fs_ring_submit(void *self, void *queue, rsd_io *io, size_t n);
size_t  rsi_fs_ring_reap(void *self, void *queue, size_t min, size_t cap, rsd_io **out);

#endif
