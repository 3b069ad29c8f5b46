/* SPDX-License-Identifier: Apache-2.0 */
/* Local files: opens them, moves bytes, syncs. file_folder.c handles names, file_tree.c
 * trees, io_queue.c or file_uring.c queues.
 *
 * A file opened for direct I/O has two descriptors: large aligned pieces bypass the cache through
 * one, the rest goes through the other. That is safe because `align` is at least a page, so that no
 * page is accessed both ways. */
#include "store/file.h"
#include "base/digest.h"
#include "base/mem.h"
#include "store/handles.h"
#include "store/io_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    DEFAULT_ALIGN = 4096,     /* the minimum, and the value if statx has none */
    DIRECT_MIN = 1024 * 1024, /* shorter requests gain nothing from direct I/O */
    PIECE_MAX = 1 << 30,      /* bytes per call; the kernel stops a little short of 2 GiB */
    EXTRA_FLAGS = O_CLOEXEC | O_NOCTTY | O_NONBLOCK /* opening a FIFO must not block */
};

/* ---- errors ---- */

rsd_err rsi_errno_code(int sys_errno)
{
    switch (sys_errno) {
    case ENOENT:
    case ENOTDIR:
    case ESTALE: /* NFS: removed by another client while open */
        return RSD_E_NOTFOUND;
    case EEXIST:
    case ENOTEMPTY:
        return RSD_E_EXISTS;
    case ENOMEM:
        return RSD_E_NOMEM;
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO: /* open of a socket, or of a FIFO without a reader */
        return RSD_E_INVALID;
    case ENOSYS:
    case EOPNOTSUPP:
        return RSD_E_UNSUPPORTED;
    default:
        return RSD_E_IO;
    }
}

rsd_err rsi_fs_fail(const rsi_fs *fs, rsd_error *err, int sys_errno, const char *verb,
                    const char *name)
{
    if (sys_errno == ELOOP)
        return rsi_fail(err, RSD_E_INVALID, "could not %s \"%s\" in \"%s\": it is a symbolic link",
                        verb, name, fs->path);
    return rsi_fail_errno(err, rsi_errno_code(sys_errno), sys_errno,
                          "could not %s \"%s\" in \"%s\"", verb, name, fs->path);
}

/* ---- moving bytes ---- */

bool rsi_fs_io_begin(rsd_io *io)
{
    const rsi_fs_file *f = io->file;

    if (rsi_io_begin(io) && f->writing != (io->op == RSD_IO_WRITE))
        io->rc = RSD_E_INVALID;
    return !io->rc && io->len > 0;
}

rsi_io_piece rsi_fs_piece(const rsi_fs *fs, const rsd_io *io)
{
    const rsi_fs_file *f = io->file;
    size_t             left = io->len - io->done, skew;
    rsi_io_piece       p = { .fd = f->fd,
                             .off = (off_t)(io->off + io->done),
                             .buf = (char *)io->buf + io->done,
                             .len = left < PIECE_MAX ? left : PIECE_MAX };

    if (io->len < fs->opts.direct_min || !atomic_load(&f->direct) ||
        ((uintptr_t)p.buf - (uintptr_t)p.off) % f->mem_align != 0)
        return p;
    skew = (size_t)p.off % f->align;
    if (skew > 0) {
        p.len = left < f->align - skew ? left : f->align - skew;
    } else if (left >= f->align) {
        p.fd = f->direct_fd;
        p.direct = true;
        p.len -= p.len % f->align;
    }
    return p;
}

bool rsi_fs_piece_done(rsd_io *io, const rsi_io_piece *piece, ssize_t res)
{
    rsi_fs_file *f = io->file;

    if (res > 0) {
        io->done += (size_t)res;
        return io->done == io->len;
    }
    if (res == 0 && io->op == RSD_IO_READ)
        return true; /* the end of the file */
    if (res == -EINTR || res == -EAGAIN)
        return false;
    if (piece->direct && (res == -EINVAL || res == -EOPNOTSUPP)) {
        atomic_store(&f->direct, false); /* the file system only claimed to support it */
        return false;
    }
    io->sys_errno = res == 0 ? ENOSPC : (int32_t)-res; /* a write of 0 bytes: no space is left */
    io->rc = rsi_errno_code(io->sys_errno);
    return true;
}

void rsi_fs_transfer(void *self, rsd_io *io)
{
    const rsi_fs *fs = self;
    rsi_io_piece  p;
    ssize_t       res;

    if (!rsi_fs_io_begin(io))
        return;
    do {
        p = rsi_fs_piece(fs, io);
        res = io->op == RSD_IO_READ ? fs->sys->pread(p.fd, p.buf, p.len, p.off)
                                    : rsi_fs_pwrite(fs, p.fd, p.buf, p.len, p.off);
    } while (!rsi_fs_piece_done(io, &p, res < 0 ? -errno : res));
}

/* ---- opening ---- */

#ifdef STATX_DIOALIGN
enum { ASK_ALIGN = STATX_DIOALIGN };

/* False: the file system reports that it lacks direct I/O. */
static bool direct_align(const struct statx *st, rsi_fs_file *f)
{
    if (!(st->stx_mask & STATX_DIOALIGN))
        return true;
    if (st->stx_dio_offset_align == 0 || st->stx_dio_mem_align == 0)
        return false;
    if (st->stx_dio_offset_align > f->align)
        f->align = st->stx_dio_offset_align;
    f->mem_align = st->stx_dio_mem_align;
    return (f->align & (f->align - 1)) == 0 && f->align % f->mem_align == 0;
}
#else
enum { ASK_ALIGN = 0 };

static bool direct_align(const struct statx *st, rsi_fs_file *f)
{
    (void)st;
    (void)f;
    return true;
}
#endif

/* Opens the second descriptor. Without one everything goes through the cache, which is fine. */
static void open_direct(const rsi_fs *fs, int dir, const char *last, int flags,
                        const struct statx *st, rsi_fs_file *f)
{
    struct statx again;
    int          fd;

    f->align = DEFAULT_ALIGN;
    f->mem_align = DEFAULT_ALIGN;
    if (rsi_fs_scarce(f->fd) || !direct_align(st, f))
        return;
    fd = rsi_fs_openat(fs, dir, last, (flags & ~(O_CREAT | O_EXCL)) | O_DIRECT, 0);
    if (fd < 0)
        return;
    if (rsi_fs_statx(fs, fd, "", AT_EMPTY_PATH, STATX_INO, &again) < 0 ||
        again.stx_ino != st->stx_ino || again.stx_dev_major != st->stx_dev_major ||
        again.stx_dev_minor != st->stx_dev_minor ||
        rsi_fs_setfl(fs, fd, (flags & O_ACCMODE) | O_DIRECT) < 0) {
        rsi_fs_close(fs, fd);
        return;
    }
    f->direct_fd = fd;
    atomic_store(&f->direct, true);
}

/* Fills *f, whose fd may be set, and *st; -1 and errno. *irregular: it exists but is not a regular
 * file. */
static int open_both(const rsi_fs *fs, int dir, const char *last, uint32_t how, uint64_t bytes,
                     rsi_fs_file *f, struct statx *st, bool *irregular)
{
    int flags = EXTRA_FLAGS | (how & RSD_OPEN_READ ? O_RDONLY : O_WRONLY) |
                (how & RSD_OPEN_CREATE ? O_CREAT | O_EXCL : 0) |
                (how & RSD_OPEN_FOLLOW ? 0 : O_NOFOLLOW);

    if (f->fd < 0)
        f->fd = rsi_fs_openat(fs, dir, last, flags, 0666);
    if (f->fd < 0)
        return -1;
    if (rsi_fs_statx(fs, f->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | ASK_ALIGN, st) < 0)
        return -1;
    if (!S_ISREG(st->stx_mode)) {
        *irregular = true;
        return -1;
    }
    /* To io_uring, O_NONBLOCK would mean "give up if it is not in the cache". */
    if (rsi_fs_setfl(fs, f->fd, flags & O_ACCMODE) < 0)
        return -1;
    if ((how & RSD_OPEN_CREATE) && rsi_fs_fallocate(fs, f->fd, bytes) < 0)
        return -1;
    if ((how & RSD_OPEN_DIRECT) && !f->borrowed)
        open_direct(fs, dir, last, flags, st, f);
    return 0;
}

uint64_t rsi_fs_version(const struct statx *st)
{
    uint64_t facts[] = { st->stx_size, (uint64_t)st->stx_mtime.tv_sec, st->stx_mtime.tv_nsec };
    uint64_t version = rsi_digest(0, facts, sizeof(facts));

    return version ? version : 1;
}

/* Unlinking a file changes its change time, so a reader that has it open must not compare this,
 * only one that opens the file later. */
static uint64_t touched(const struct statx *st)
{
    uint64_t facts[] = { (uint64_t)st->stx_ctime.tv_sec, st->stx_ctime.tv_nsec, st->stx_ino };

    return rsi_digest(0, facts, sizeof(facts));
}

static rsd_err open_named(rsi_fs *fs, const char *name, uint32_t flags, uint64_t bytes,
                          rsd_opened *out, rsd_error *err)
{
    const char  *verb = flags & RSD_OPEN_CREATE ? "create" : "open";
    rsi_fs_file *f;
    struct statx st;
    bool         irregular = false;
    const char  *last;
    int          dir, sys_errno;
    rsd_err      rc = rsi_fs_enter(fs, name, flags & RSD_OPEN_FOLLOW, &dir, &last, err);

    if (rc)
        return rc;
    f = rsi_calloc(1, sizeof(*f));
    if (!f) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to open \"%s\"", name);
        goto out;
    }
    f->direct_fd = -1;
    f->fd = flags & RSD_OPEN_READ ? rsi_fs_find_held(fs, name) : -2;
    f->borrowed = f->fd >= 0;
    f->writing = !(flags & RSD_OPEN_READ);
    if (f->fd == -1) {
        rc = rsi_fs_fail(fs, err, ENOENT, verb, name);
        rsi_free(f);
        goto out;
    }
    if (open_both(fs, dir, last, flags, bytes, f, &st, &irregular) < 0) {
        sys_errno = errno;
        rc = irregular ? rsi_fail(err, RSD_E_INVALID, "\"%s\" in \"%s\" is not a regular file",
                                  name, fs->path)
                       : rsi_fs_fail(fs, err, sys_errno, verb, name);
        if (f->fd >= 0 && (flags & RSD_OPEN_CREATE))
            rsi_fs_unlinkat(fs, dir, last, 0);
        if (!f->borrowed)
            rsi_fs_close(fs, f->fd);
        rsi_free(f);
        goto out;
    }
    out->file = f;
    out->size = flags & RSD_OPEN_CREATE ? bytes : st.stx_size;
    out->version = flags & RSD_OPEN_READ ? rsi_fs_version(&st) : 0;
    out->touched = touched(&st);
    out->mode = st.stx_mode;
    out->align = atomic_load(&f->direct) ? f->align : 1;
    out->scarce = rsi_fs_scarce(f->fd);
out:
    rsi_fs_leave(fs, dir);
    return rc;
}

static rsd_err fs_open(void *self, const char *name, uint32_t flags, uint64_t bytes,
                       rsd_opened *out, rsd_error *err)
{
    rsd_err rc;

    rsi_handles_turn_begin(!(flags & RSD_OPEN_READ));
    rc = open_named(self, name, flags, bytes, out, err);
    rsi_handles_turn_end();
    return rc;
}

static rsd_err fs_sync(void *self, void *file, rsd_error *err)
{
    const rsi_fs *fs = self;
    rsi_fs_file  *f = file;
    int           before = atomic_load(&f->sync_errno);

    if (before)
        return rsi_fail_errno(err, RSD_E_IO, before, "a sync of this file failed before");
    if (rsi_fs_fsync(fs, f->fd) == 0)
        return RSD_OK;
    before = errno;
    atomic_store(&f->sync_errno, before);
    return rsi_fail_errno(err, RSD_E_IO, before, "could not sync");
}

static rsd_err fs_close(void *self, void *file, rsd_error *err)
{
    const rsi_fs *fs = self;
    rsi_fs_file  *f = file;
    rsd_err       rc = RSD_OK;

    rsi_fs_close(fs, f->direct_fd);
    if (!f->borrowed && fs->sys->close(f->fd) < 0 && errno != EINTR &&
        f->writing) /* on EINTR Linux has closed it */
        rc = rsi_fail_errno(err, RSD_E_IO, errno, "could not close");
    rsi_free(f);
    return rc;
}

/* Size, modification time and inode: a changed file differs in one of them. */
static rsd_err fs_stamp(void *self, void *file, uint64_t *out, rsd_error *err)
{
    const rsi_fs      *fs = self;
    const rsi_fs_file *f = file;
    struct statx       st;
    uint64_t           facts[4];

    if (rsi_fs_statx(fs, f->fd, "", AT_EMPTY_PATH, STATX_SIZE | STATX_MTIME | STATX_INO, &st) < 0)
        return rsi_fail_errno(err, RSD_E_IO, errno, "could not read its modification time");
    facts[0] = st.stx_size;
    facts[1] = (uint64_t)st.stx_mtime.tv_sec;
    facts[2] = st.stx_mtime.tv_nsec;
    facts[3] = st.stx_ino;
    *out = rsi_digest(0, facts, sizeof(facts));
    return RSD_OK;
}

/* ---- the store ---- */

static rsd_err fs_queue_open(void *self, size_t depth, void **out, rsd_error *err)
{
    rsi_fs *fs = self;

    if (fs->opts.io == RSI_FILE_IO_THREADS)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "threads were asked for");
    return rsi_fs_ring_open(fs, depth, out, err);
}

static void fs_destroy(void *self)
{
    rsi_fs *fs = self;

    if (fs->held.name) {
        rsi_fs_let_go(fs);
    } else {
        rsi_fs_close(fs, fs->top);
        rsi_free(fs->path);
    }
    rsi_free(fs);
}

static const rsd_store_ops fs_ops = {
    .size = sizeof(rsd_store_ops),
    .name = "file",
    .flags = RSD_STORE_RANDOM_WRITE | RSD_STORE_EXCHANGE | RSD_STORE_SHARED,
    .destroy = fs_destroy,
    .open = fs_open,
    .transfer = rsi_fs_transfer,
    .sync = fs_sync,
    .close = fs_close,
    .queue_open = fs_queue_open,
    .queue_close = rsi_fs_ring_close,
    .submit = rsi_fs_ring_submit,
    .reap = rsi_fs_ring_reap,
    .list = rsi_fs_list,
    .stat = rsi_fs_stat,
    .make_folder = rsi_fs_make_folder,
    .remove = rsi_fs_remove,
    .begin = rsi_fs_begin,
    .attach = rsi_fs_attach,
    .commit = rsi_fs_commit,
    .abort = rsi_fs_abort,
    .stamp = fs_stamp,
    .adopt = rsi_fs_adopt,
    .make_private = rsi_fs_make_private,
    .hold = rsi_fs_hold,
    .replaced = rsi_fs_replaced,
    .lock = rsi_fs_lock,
    .unlock = rsi_fs_unlock,
    .protect = rsi_fs_protect,
    .claim = rsi_fs_claim,
    .unclaim = rsi_fs_unclaim,
    .sync_names = rsi_fs_sync_names,
};

rsd_err rsi_file_store_make(rsi_fs *fs, rsd_store **out, rsd_error *err)
{
    rsd_store_ops ops = fs_ops;

    ops.threads = fs->opts.threads;
    return rsd_store_open_custom(&ops, fs, out, err);
}

rsd_err rsi_file_store_open(const char *path, const rsi_file_opts *opts, rsd_store **out,
                            rsd_error *err)
{
    rsi_fs *fs = rsi_calloc(1, sizeof(*fs));
    rsd_err rc = RSD_OK;

    if (!fs)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a store");
    fs->top = -1;
    if (opts)
        fs->opts = *opts;
    fs->sys = fs->opts.sys ? fs->opts.sys : &rsi_sys_real;
    if (fs->opts.direct_min == 0)
        fs->opts.direct_min = DIRECT_MIN;
    fs->path = rsi_strdup(path);
    if (!fs->path) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a store");
        goto out;
    }
    fs->top = rsi_fs_openat(fs, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (fs->top < 0) {
        rc = rsi_fail_errno(err, rsi_errno_code(errno), errno, "could not open the folder \"%s\"",
                            path);
        goto out;
    }
    rc = rsi_file_store_make(fs, out, err);
out:
    if (rc)
        fs_destroy(fs);
    return rc;
}
