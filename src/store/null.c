/* SPDX-License-Identifier: Apache-2.0 */
/* A store that discards everything: shows how long a save takes if writing costs nothing. Nothing
 * can be read, and no name ever exists. */
#include "base/mem.h"
#include "store/io_queue.h"
#include "store/store.h"

#include <string.h>

static rsd_err none(const char *name, rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOTFOUND, "a null store keeps nothing, so no \"%s\"", name);
}

static rsd_err null_open(void *self, const char *name, uint32_t flags, uint64_t bytes,
                         rsd_opened *out, rsd_error *err)
{
    (void)self;
    (void)bytes;
    if (flags & RSD_OPEN_READ)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "a null store has nothing to read in \"%s\"", name);
    *out = (rsd_opened){ .align = 1 };
    return RSD_OK;
}

static void null_transfer(void *self, rsd_io *io)
{
    (void)self;
    rsi_io_begin(io);
    if (io->op != RSD_IO_WRITE)
        io->rc = RSD_E_UNSUPPORTED;
    if (io->rc)
        return;
    io->done = io->len;
}

/* For sync and close. */
static rsd_err null_done(void *self, void *file, rsd_error *err)
{
    (void)self;
    (void)file;
    (void)err;
    return RSD_OK;
}

static rsd_err null_list(void *self, const char *name, rsi_visit visit, void *arg, rsd_error *err)
{
    (void)self;
    (void)visit;
    (void)arg;
    return name[0] ? none(name, err) : RSD_OK;
}

static rsd_err null_stat(void *self, const char *name, rsd_entry *out, rsd_error *err)
{
    (void)self;
    if (name[0])
        return none(name, err);
    *out = (rsd_entry){ .name = name, .kind = RSD_ENTRY_FOLDER };
    return RSD_OK;
}

static rsd_err null_make_folder(void *self, const char *name, rsd_error *err)
{
    (void)self;
    (void)name;
    (void)err;
    return RSD_OK;
}

static rsd_err null_remove(void *self, const char *name, rsd_error *err)
{
    (void)self;
    return none(name, err);
}

/* The tree handle is its temporary name. */
static rsd_err null_begin(void *self, const char *name, uint32_t flags, void **tree,
                          const char **temp, rsd_error *err)
{
    const char *last = rsi_last_part(name);
    char       *text = rsi_calloc(strlen(name) + RSI_TEMP_EXTRA + 1, 1);

    (void)self;
    (void)flags;
    if (!text)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to write \"%s\"", name);
    memcpy(text, name, (size_t)(last - name));
    rsi_temp_name(last, 0, text + (last - name));
    *tree = text;
    *temp = text;
    return RSD_OK;
}

static rsd_err null_attach(void *self, const char *temp, void **tree, rsd_error *err)
{
    char *text = rsi_strdup(temp);

    (void)self;
    if (!text)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to write \"%s\"", temp);
    *tree = text;
    return RSD_OK;
}

/* For commit and abort. */
static rsd_err null_end(void *self, void *tree, rsd_error *err)
{
    (void)self;
    (void)err;
    rsi_free(tree);
    return RSD_OK;
}

static const rsd_store_ops null_ops = {
    .size = sizeof(rsd_store_ops),
    .name = "null",
    .flags = RSD_STORE_RANDOM_WRITE | RSD_STORE_EXCHANGE,
    .threads = 1,
    .open = null_open,
    .transfer = null_transfer,
    .sync = null_done,
    .close = null_done,
    .list = null_list,
    .stat = null_stat,
    .make_folder = null_make_folder,
    .remove = null_remove,
    .begin = null_begin,
    .attach = null_attach,
    .commit = null_end,
    .abort = null_end,
};

rsd_err rsi_null_store_open(rsd_store **out, rsd_error *err)
{
    return rsd_store_open_custom(&null_ops, NULL, out, err);
}
