/* SPDX-License-Identifier: Apache-2.0 */
/* A store in front of the real one: files are made at once, and opened again when what was kept in
 * memory is written to them, each from its first write to its last. Only what shared.c asks of a
 * store is here. Next: async.c. */
#include "save/capture.h"
#include "base/mem.h"
#include "write/fill.h"
#include "write/shared.h"

#include <string.h>

/* A file as shared.c sees it. */
struct rsi_captured_file {
    rsi_file *real; /* while it is written */
    uint32_t  flags;
    size_t    left; /* writes that are kept; none: it is gone when shared.c closes it */
    char      name[];
};

/* ---- the store ---- */

static rsd_err open_file(void *self, const char *name, uint32_t flags, uint64_t bytes,
                         rsd_opened *out, rsd_error *err)
{
    rsi_capture       *c = self;
    size_t             len = strlen(name) + 1;
    rsi_captured_file *file = rsi_calloc(1, sizeof(*file) + len);
    rsd_err            rc = RSD_OK;

    if (!file || !rsi_grow(&c->file, c->nfiles, &c->file_cap, sizeof(c->file[0]))) {
        rsi_free(file);
        return rsi_fail(err, RSD_E_NOMEM, "no memory to open \"%s\"", name);
    }
    if (flags & RSD_OPEN_CREATE) {
        rc = rsi_file_open(c->real, name, flags, bytes, &file->real, err);
        if (!rc)
            rc = rsi_file_close(file->real, err);
        file->real = NULL;
    }
    if (rc) {
        rsi_free(file);
        return rc;
    }
    memcpy(file->name, name, len);
    file->flags = (flags & RSD_OPEN_DIRECT) | RSD_OPEN_WRITE;
    c->file[c->nfiles++] = file;
    *out = (rsd_opened){ .file = file, .size = bytes, .align = 1 };
    return RSD_OK;
}

/* All requests come from the thread that gathers. */
static void keep_write(void *self, rsd_io *io)
{
    rsi_capture *c = self;

    io->rc = RSD_OK;
    io->sys_errno = 0;
    io->done = 0;
    if (io->op != RSD_IO_WRITE || io->len > c->mem->bytes - c->used) {
        io->rc = RSD_E_BUG;
        return;
    }
    if (!rsi_grow(&c->write, c->n, &c->cap, sizeof(c->write[0]))) {
        io->rc = RSD_E_NOMEM;
        return;
    }
    memcpy(c->mem->at + c->used, io->buf, io->len);
    c->write[c->n++] =
        (rsi_captured){ .file = io->file, .off = io->off, .at = c->used, .len = io->len };
    ((rsi_captured_file *)io->file)->left++;
    /* Congruent with the file, so that large pieces can go past the cache. */
    c->used += (io->len + RSI_BLOCK_BYTES - 1) / RSI_BLOCK_BYTES * RSI_BLOCK_BYTES;
    io->done = io->len;
}

static rsd_err sync_later(void *self, void *file, rsd_error *err)
{
    (void)self;
    (void)file;
    (void)err;
    return RSD_OK;
}

static rsd_err close_file(void *self, void *handle, rsd_error *err)
{
    rsi_capture       *c = self;
    rsi_captured_file *file = handle;

    (void)err;
    if (file->left)
        return RSD_OK;
    for (size_t i = 0; i < c->nfiles; i++)
        if (c->file[i] == file)
            c->file[i] = c->file[--c->nfiles];
    rsi_free(file);
    return RSD_OK;
}

static rsd_err no_list(void *self, const char *name,
                       rsd_err (*visit)(void *arg, const rsd_entry *entry, rsd_error *err),
                       void *arg, rsd_error *err)
{
    (void)self;
    (void)visit;
    (void)arg;
    return rsi_fail(err, RSD_E_BUG, "\"%s\" is asked for while a save is staged", name);
}

static rsd_err no_stat(void *self, const char *name, rsd_entry *out, rsd_error *err)
{
    (void)out;
    return no_list(self, name, NULL, NULL, err);
}

static rsd_err no_name(void *self, const char *name, rsd_error *err)
{
    return no_list(self, name, NULL, NULL, err);
}

static rsd_err no_begin(void *self, const char *name, uint32_t flags, void **tree,
                        const char **temp, rsd_error *err)
{
    (void)flags;
    (void)tree;
    (void)temp;
    return no_list(self, name, NULL, NULL, err);
}

static rsd_err no_attach(void *self, const char *temp, void **tree, rsd_error *err)
{
    (void)tree;
    return no_list(self, temp, NULL, NULL, err);
}

static rsd_err no_tree(void *self, void *tree, rsd_error *err)
{
    (void)tree;
    return no_list(self, "a tree", NULL, NULL, err);
}

static rsd_err make_store(rsi_capture *c, rsd_store **out, rsd_error *err)
{
    const rsd_store_ops ops = { .size = sizeof(ops),
                                .kind = rsi_store_kind(c->real),
                                .flags = rsi_store_flags(c->real) & RSD_STORE_RANDOM_WRITE,
                                .threads = 1,
                                .open = open_file,
                                .transfer = keep_write,
                                .sync = sync_later,
                                .close = close_file,
                                .list = no_list,
                                .stat = no_stat,
                                .make_folder = no_name,
                                .remove = no_name,
                                .begin = no_begin,
                                .attach = no_attach,
                                .commit = no_tree,
                                .abort = no_tree };

    return rsd_store_create(&ops, c, out, err);
}

/* ---- from gathering to writing ---- */

/* What a rank writes at most: its share of the blocks of all files. */
static size_t share(const rsi_save_job *job)
{
    uint64_t blocks = 0, ranks = (uint64_t)job->commit.comm->size;

    for (size_t i = 0; i < job->commit.image.nfiles; i++)
        blocks += (job->commit.image.file[i].bytes + RSI_BLOCK_BYTES - 1) / RSI_BLOCK_BYTES;
    return (size_t)(blocks / ranks + 1) * RSI_BLOCK_BYTES;
}

rsd_err rsi_capture_make(rsi_capture *c, rsi_save_job *job, const rsd_state *home, rsd_error *err)
{
    rsi_flush_opts flush = job->commit.flush;
    rsd_store     *store = NULL;
    rsd_err        rc;

    *c = (rsi_capture){ .real = job->commit.store, .sync = job->commit.flush.sync };
    flush.on_progress = NULL; /* it is told while the files are written */
    rc = rsi_stage_take(home, share(job), &c->mem, err);
    if (!rc)
        rc = make_store(c, &store, err);
    rc = rsi_agree(job->commit.comm, rc, err);
    if (!rc)
        rc = rsi_shared_flush(&job->commit.image, job->state, job->commit.comm, store, &flush, err);
    rsd_store_free(store);
    return rc;
}

static rsd_err write_one(rsi_capture *c, const rsi_captured *w, rsd_error *err)
{
    rsi_captured_file *file = w->file;
    rsd_err            rc = RSD_OK, closed;

    if (!file->real)
        rc = rsi_file_open(c->real, file->name, file->flags, 0, &file->real, err);
    if (!rc)
        rc = rsi_file_write(file->real, w->off, c->mem->at + w->at, w->len, err);
    if (rc || --file->left > 0)
        return rc;
    rc = c->sync ? rsi_file_sync(file->real, err) : RSD_OK; /* C3 */
    closed = rsi_file_close(file->real, rc ? NULL : err);
    file->real = NULL;
    return rc ? rc : closed;
}

rsd_err rsi_capture_write(rsi_capture *c,
                          int (*on_progress)(void *arg, int64_t done, int64_t total), void *arg,
                          rsd_error *err)
{
    int64_t total = 0, done = 0;
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < c->n; i++)
        total += (int64_t)c->write[i].len;
    for (size_t i = 0; i < c->n && !rc; i++) {
        rc = write_one(c, &c->write[i], err);
        done += (int64_t)c->write[i].len;
        if (!rc && on_progress(arg, done, total))
            rc = rsi_fail(err, RSD_E_CANCELED, "canceled by the caller");
    }
    return rc;
}

void rsi_capture_end(rsi_capture *c, const rsd_state *home)
{
    for (size_t i = 0; i < c->nfiles; i++) {
        rsi_file_close(c->file[i]->real, NULL); /* of those that a failure left open */
        rsi_free(c->file[i]);
    }
    rsi_free(c->file);
    rsi_free(c->write);
    rsi_stage_give(home, c->mem);
    *c = (rsi_capture){ 0 };
}
