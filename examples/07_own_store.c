/* SPDX-License-Identifier: Apache-2.0 */
/* A custom store, here a read-only one that counts requests, as one over an object service might:
 * the program finds a tensor in it and reads one row. A writable store also implements begin,
 * attach, commit and abort; reshard_plugin.h says what they must do. */
#include <reshard/reshard_plugin.h>

#include <stdio.h>
#include <string.h>

/* The only object: a safetensors file whose 61-byte header describes a matrix of 4 x 4 bytes. */
static const char text[] = "\x3d\0\0\0\0\0\0\0"
                           "{\"weight\":{\"dtype\":\"U8\",\"shape\":[4,4],"
                           "\"data_offsets\":[0,16]}}"
                           "ABCDEFGHIJKLMNOP";
enum { SIZE = sizeof(text) - 1 };
static size_t requests, bytes_read;

static rsd_err refuse(rsd_error *err, rsd_err code, const char *why)
{
    *err = (rsd_error){ .code = (int32_t)code, .rank = -1 };
    snprintf(err->msg, sizeof(err->msg), "%s", why);
    return code;
}

static rsd_err own_open(void *self, const char *name, uint32_t flags, uint64_t bytes,
                        rsd_opened *out, rsd_error *err)
{
    (void)self, (void)bytes;
    if (!(flags & RSD_OPEN_READ) || strcmp(name, "model.safetensors") != 0)
        return refuse(err, RSD_E_NOTFOUND, "there is only model.safetensors, to be read");
    *out = (rsd_opened){ .file = (void *)text, .size = SIZE, .align = 1 };
    return RSD_OK;
}

static void own_transfer(void *self, rsd_io *io)
{
    (void)self; /* everything is static here */
    io->rc = io->op == RSD_IO_READ ? RSD_OK : RSD_E_UNSUPPORTED;
    io->done = io->off >= SIZE ? 0 : io->len;
    if (io->done > SIZE - io->off)
        io->done = (size_t)(SIZE - io->off);
    memcpy(io->buf, text + io->off, io->done);
    requests++;
    bytes_read += io->done;
}

static rsd_err own_stat(void *self, const char *name, rsd_entry *out, rsd_error *err)
{
    if (strcmp(name, "model.safetensors") != 0)
        return (void)self, refuse(err, RSD_E_NOTFOUND, "there is only model.safetensors");
    *out = (rsd_entry){ .name = name, .kind = RSD_ENTRY_FILE, .size = SIZE };
    return RSD_OK;
}

static rsd_err own_list(void *self, const char *name,
                        rsd_err (*visit)(void *arg, const rsd_entry *entry, rsd_error *err),
                        void *arg, rsd_error *err)
{
    rsd_entry entry = { .name = "model.safetensors", .kind = RSD_ENTRY_FILE, .size = SIZE };

    (void)self, (void)name;
    return visit(arg, &entry, err);
}

static rsd_err own_close(void *self, void *file, rsd_error *err)
{
    return (void)self, (void)file, (void)err, RSD_OK;
}

/* What a read-only store never does. */
static rsd_err own_change(void *self, const char *name, rsd_error *err)
{
    return (void)self, (void)name, refuse(err, RSD_E_UNSUPPORTED, "it can only be read");
}

static rsd_err own_begin(void *self, const char *name, uint32_t flags, void **tree,
                         const char **temp, rsd_error *err)
{
    return (void)flags, (void)tree, (void)temp, own_change(self, name, err);
}

static rsd_err own_attach(void *self, const char *temp, void **tree, rsd_error *err)
{
    return (void)tree, own_change(self, temp, err);
}

int main(void)
{
    const rsd_store_ops ops = { .size = sizeof(ops),
                                .threads = 1,
                                .open = own_open,
                                .transfer = own_transfer,
                                .sync = own_close,
                                .close = own_close,
                                .list = own_list,
                                .stat = own_stat,
                                .make_folder = own_change,
                                .remove = own_change,
                                .begin = own_begin,
                                .attach = own_attach,
                                .commit = own_close,
                                .abort = own_close };
    char                row[4] = "";
    rsd_view            view = { .box = { 2, { 2, 0 }, { 1, 4 } }, .data = row };
    rsd_store          *store = NULL;
    rsd_ckpt           *ckpt = NULL;
    rsd_error           err = { .msg = "" };
    rsd_err             rc = rsd_store_open_custom(&ops, NULL, &store, &err);

    if (!rc)
        rc = rsd_ckpt_open(store, "model.safetensors", &ckpt, &err);
    if (!rc)
        rc = rsd_ckpt_read(ckpt, 0, &view, NULL, &err);
    if (rc)
        fprintf(stderr, "07_own_store: %s\n", err.msg);
    else
        printf("row 2 is %.4s: %zu requests, %zu of %d bytes\n", row, requests, bytes_read, SIZE);
    rsd_ckpt_close(ckpt);
    rsd_store_close(store);
    return rc || memcmp(row, "IJKL", 4) != 0 ? 1 : 0;
}
