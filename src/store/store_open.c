/* SPDX-License-Identifier: Apache-2.0 */
/* A store's files: opens them, puts file and byte into messages, and reopens files that handles.c
 * closed for lack of descriptors. Next: file.c. */
#include "store/store_core.h"
#include "base/mem.h"
#include "base/pulse.h"
#include "store/handles.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

static rsi_file *new_file(rsd_store *store, const char *name, uint32_t flags, rsd_error *err)
{
    size_t    len = strlen(name) + 1;
    rsi_file *file = rsi_calloc(1, sizeof(*file) + len);

    if (!file) {
        rsi_fail(err, RSD_E_NOMEM, "no memory to open \"%s\"", name);
        return NULL;
    }
    file->store = store;
    file->flags = flags;
    pthread_mutex_init(&file->opening, NULL);
    memcpy(file->name, name, len);
    return file;
}

static void free_file(rsi_file *file)
{
    pthread_mutex_destroy(&file->opening);
    rsi_free(file);
}

rsd_err rsi_file_open(rsd_store *store, const char *name, uint32_t flags, uint64_t bytes,
                      rsi_file **out, rsd_error *err)
{
    const uint32_t how = flags & (RSD_OPEN_READ | RSD_OPEN_CREATE | RSD_OPEN_WRITE);
    rsd_opened     opened = { .align = 1 };
    rsi_file      *file;
    rsd_err        rc = rsi_store_name_check(name, err);

    if (rc)
        return rc;
    if (how != RSD_OPEN_READ && how != RSD_OPEN_CREATE && how != RSD_OPEN_WRITE)
        return rsi_fail(err, RSD_E_BUG, "\"%s\" is opened neither to read nor to write", name);
    if (bytes > INT64_MAX)
        return rsi_fail(err, RSD_E_INVALID, "\"%s\" can't become %" PRIu64 " bytes long", name,
                        bytes);
    file = new_file(store, name, flags, err);
    if (!file)
        return RSD_E_NOMEM;
    rc = store->ops.open(store->self, name, flags, bytes, &opened, RSI_PLACE(err));
    rsi_beat();
    if (rc) {
        free_file(file);
        return rc;
    }
    file->handle = opened.file;
    file->size = opened.size;
    file->align = opened.align;
    file->version = how == RSD_OPEN_READ ? opened.version : 0;
    file->touched = opened.touched;
    file->mode = opened.mode;
    file->scarce = opened.scarce;
    if (how == RSD_OPEN_READ && store->ops.stamp)
        rc = store->ops.stamp(store->self, file->handle, &file->stamp, RSI_PLACE(err));
    if (rc) {
        rsi_file_close(file, NULL);
        return rc;
    }
    if (file->version)
        rsi_handles_add(file);
    if (how != RSD_OPEN_READ)
        rsi_handles_writing(1);
    *out = file;
    return RSD_OK;
}

static rsd_err changed(const rsi_file *file, rsd_error *err)
{
    return rsi_fail(err, RSD_E_MISMATCH, "file \"%s\" was changed while it was read", file->name);
}

rsd_err rsi_file_missing(rsd_store *store, const char *name, uint32_t flags, rsi_file **out,
                         rsd_error *err)
{
    rsi_file *file = new_file(store, name, flags, err);

    if (!file)
        return RSD_E_NOMEM;
    file->missing = true;
    atomic_init(&file->users, -1); /* closed, and reopening it fails */
    *out = file;
    return RSD_OK;
}

/* The file must be open. */
static rsd_err compare_stamp(rsi_file *file, rsd_error *err)
{
    const rsd_store_ops *ops = &file->store->ops;
    uint64_t             now = file->stamp;
    rsd_err              rc = RSD_OK;

    if (ops->stamp)
        rc = ops->stamp(file->store->self, file->handle, &now, RSI_PLACE(err));
    return !rc && now != file->stamp ? changed(file, err) : rc;
}

void rsi_file_shut(rsi_file *file)
{
    rsd_error spare;

    if (atomic_load(&file->read) && compare_stamp(file, NULL) == RSD_E_MISMATCH)
        atomic_store(&file->changed, true);
    file->store->ops.close(file->store->self, file->handle, &spare);
    file->handle = NULL;
}

/* Under the file's lock. The name must still refer to the file that was opened first. */
static rsd_err reopen(rsi_file *file, rsd_error *err)
{
    rsd_store *store = file->store;
    rsd_opened opened = { .align = 1 };
    rsd_error  spare;
    rsd_err    rc;

    rc = store->ops.open(store->self, file->name, file->flags, 0, &opened, RSI_PLACE(err));
    if (rc == RSD_E_NOTFOUND)
        return rsi_fail(err, RSD_E_MISMATCH,
                        "file \"%s\" is gone: the checkpoint was replaced or removed while it was "
                        "read",
                        file->name);
    if (rc)
        return rc;
    file->handle = opened.file;
    rc = opened.version != file->version ? changed(file, err) : compare_stamp(file, err);
    if (rc) {
        atomic_store(&file->changed, rc == RSD_E_MISMATCH);
        store->ops.close(store->self, file->handle, &spare);
        file->handle = NULL;
        return rc;
    }
    rsi_handles_add(file);
    atomic_store(&file->users, 1);
    return RSD_OK;
}

/* Keeps the file open until rsi_handle_leave. */
static rsd_err take(rsi_file *file, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    if (!rsi_handle_take(file)) {
        pthread_mutex_lock(&file->opening);
        if (!rsi_handle_take(file))
            rc = reopen(file, err);
        pthread_mutex_unlock(&file->opening);
    }
    if (!rc && !atomic_load_explicit(&file->read, memory_order_relaxed))
        atomic_store(&file->read, true);
    return rc;
}

rsd_err rsi_file_unchanged(rsi_file *file, rsd_error *err)
{
    rsd_err rc;

    if (!rsi_handle_take(file)) /* compared when it was closed */
        return atomic_load(&file->changed) ? changed(file, err) : RSD_OK;
    rc = compare_stamp(file, err);
    rsi_handle_leave(file);
    return rc;
}

rsd_err rsi_file_close(rsi_file *file, rsd_error *err)
{
    rsd_err rc;

    if (!file)
        return RSD_OK;
    if (file->version)
        rsi_handles_drop(file);
    if (file->flags & (RSD_OPEN_CREATE | RSD_OPEN_WRITE))
        rsi_handles_writing(-1);
    rc = atomic_load(&file->users) >= 0
             ? file->store->ops.close(file->store->self, file->handle, RSI_PLACE(err))
             : RSD_OK; /* already closed */
    rsi_beat();
    if (rc)
        rsi_while(err, rc, "file \"%s\"", file->name);
    free_file(file);
    return rc;
}

rsd_err rsi_file_sync(rsi_file *file, rsd_error *err)
{
    rsd_err rc = file->store->ops.sync(file->store->self, file->handle, RSI_PLACE(err));

    rsi_beat();
    return rc ? rsi_while(err, rc, "file \"%s\"", file->name) : RSD_OK;
}

rsd_err rsi_io_check(const rsi_file *file, const rsd_io *io, rsd_error *err)
{
    const char *verb = io->op == RSD_IO_READ ? "read" : "write";
    uint64_t    at = io->off + io->done;

    if (io->rc && io->sys_errno)
        return rsi_fail_errno(err, io->rc, io->sys_errno, "file \"%s\": could not %s byte %" PRIu64,
                              file->name, verb, at);
    if (io->rc)
        return rsi_fail(err, io->rc, "file \"%s\": could not %s byte %" PRIu64, file->name, verb,
                        at);
    if (io->done < io->len)
        return rsi_fail(err, RSD_E_FORMAT,
                        "file \"%s\": ends at byte %" PRIu64 ", %zu bytes are needed at byte "
                        "%" PRIu64,
                        file->name, at, io->len, io->off);
    return RSD_OK;
}

/* Fails if the file can no longer be used; the result of the request is in *io. */
static rsd_err transfer(rsi_file *file, rsd_io *io, rsd_error *err)
{
    rsd_err rc = take(file, err);

    if (rc)
        return rc;
    io->file = file->handle;
    file->store->ops.transfer(file->store->self, io);
    rsi_handle_leave(file);
    rsi_beat();
    return RSD_OK;
}

void rsi_file_transfer(rsi_file *file, rsd_io *io)
{
    rsd_error why = { .rank = -1 };
    rsd_err   rc;

    io->rc = RSD_OK;
    io->sys_errno = 0;
    io->done = 0;
    rc = transfer(file, io, &why);
    if (rc) {
        io->rc = rc;
        io->sys_errno = why.sys_errno;
    }
}

rsd_err rsi_file_read(rsi_file *file, uint64_t off, void *buf, size_t len, rsd_error *err)
{
    rsd_io  io = { .op = RSD_IO_READ, .off = off, .buf = buf, .len = len };
    rsd_err rc = transfer(file, &io, err);

    return rc ? rc : rsi_io_check(file, &io, err);
}

rsd_err rsi_file_write(rsi_file *file, uint64_t off, const void *buf, size_t len, rsd_error *err)
{
    rsd_io io = { .op = RSD_IO_WRITE,
                  .file = file->handle,
                  .off = off,
                  .buf = (void *)(uintptr_t)buf,
                  .len = len };

    rsi_file_transfer(file, &io);
    return rsi_io_check(file, &io, err);
}

rsd_err rsi_file_append(void *tail, const void *bytes, size_t len, rsd_error *err)
{
    rsi_file_tail *to = tail;
    rsd_err        rc = rsi_file_write(to->file, to->at, bytes, len, err);

    to->at += len;
    return rc;
}

rsd_err rsi_store_read_all(rsd_store *store, const char *name, uint64_t off, void *buf, size_t len,
                           rsd_error *err)
{
    rsi_file *file;
    rsd_err   rc = rsi_file_open(store, name, RSD_OPEN_READ, 0, &file, err);

    if (rc)
        return rc;
    rc = rsi_file_read(file, off, buf, len, err);
    rsi_file_close(file, NULL); /* nothing written could be lost */
    return rc;
}

rsd_err rsi_store_file_size(rsd_store *store, const char *name, uint64_t *out, rsd_error *err)
{
    rsd_entry entry;
    rsd_err   rc = rsi_store_stat(store, name, &entry, err);

    if (rc)
        return rc;
    if (entry.kind != RSD_ENTRY_FILE)
        return rsi_fail(err, RSD_E_INVALID, "\"%s\" is not a regular file", name);
    *out = entry.size;
    return RSD_OK;
}
