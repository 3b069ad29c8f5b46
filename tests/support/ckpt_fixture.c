/* SPDX-License-Identifier: Apache-2.0 */
/* Stores, files, archives and states for tests of checkpoints. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "format/sums.h"
#include "format/transform.h"
#include "format/value_pickle.h"
#include "format/zip_write.h"
#include "save/image_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- stores and files ---- */

rsd_store *fix_store(void)
{
    rsd_store *store;

    assert_int_equal(rsd_store_open("mem:", &store, NULL), RSD_OK);
    return store;
}

void fix_put(rsd_store *store, const char *name, const void *bytes, size_t len)
{
    const char *slash = strrchr(name, '/');
    char        folder[256] = { 0 };
    rsi_file   *file;

    if (slash) {
        assert_true((size_t)(slash - name) < sizeof(folder));
        memcpy(folder, name, (size_t)(slash - name));
        assert_int_equal(rsi_store_make_folder(store, folder, NULL), RSD_OK);
    }
    assert_int_equal(rsi_file_open(store, name, RSD_OPEN_CREATE, len, &file, NULL), RSD_OK);
    if (len > 0)
        assert_int_equal(rsi_file_write(file, 0, bytes, len, NULL), RSD_OK);
    assert_int_equal(rsi_file_close(file, NULL), RSD_OK);
}

void fix_put_text(rsd_store *store, const char *name, const char *text)
{
    fix_put(store, name, text, strlen(text));
}

unsigned char *fix_get(rsd_store *store, const char *name, size_t *len)
{
    unsigned char *bytes;
    uint64_t       size;

    assert_int_equal(rsi_store_file_size(store, name, &size, NULL), RSD_OK);
    bytes = calloc((size_t)size + 1, 1);
    assert_non_null(bytes);
    if (size > 0)
        assert_int_equal(rsi_store_read_all(store, name, 0, bytes, (size_t)size, NULL), RSD_OK);
    *len = (size_t)size;
    return bytes;
}

rsd_err fix_remove(rsd_store *store, const char *name)
{
    return rsi_store_remove(store, name, NULL);
}

void fix_xor(rsd_store *store, const char *name, uint64_t at, unsigned char bits)
{
    unsigned char byte;
    rsi_file     *file;

    assert_int_equal(rsi_store_read_all(store, name, at, &byte, 1, NULL), RSD_OK);
    byte = (unsigned char)(byte ^ bits);
    assert_int_equal(rsi_file_open(store, name, RSD_OPEN_WRITE, 0, &file, NULL), RSD_OK);
    assert_int_equal(rsi_file_write(file, at, &byte, 1, NULL), RSD_OK);
    assert_int_equal(rsi_file_close(file, NULL), RSD_OK);
}

void fix_flip(rsd_store *store, const char *name, uint64_t at)
{
    fix_xor(store, name, at, 0xff);
}

enum { NAMES = 64, NAME = 128 };

typedef struct names {
    char   name[NAMES][NAME];
    size_t n;
} names;

static rsd_err note_name(void *arg, const rsd_entry *entry, rsd_error *err)
{
    names *all = arg;

    (void)err;
    assert_true(all->n < NAMES && strlen(entry->name) < NAME);
    strncpy(all->name[all->n++], entry->name, NAME - 1);
    return RSD_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void list_names(rsd_store *store, const char *folder, names *all)
{
    memset(all, 0, sizeof(*all));
    assert_int_equal(rsi_store_list(store, folder, note_name, all, NULL), RSD_OK);
    qsort(all->name, all->n, NAME, by_text);
}

const char *fix_list(rsd_store *store, const char *folder)
{
    static char text[NAMES * NAME];
    names       all;

    list_names(store, folder, &all);
    text[0] = 0;
    for (size_t i = 0; i < all.n; i++) {
        strncat(text, i ? " " : "", sizeof(text) - strlen(text) - 1);
        strncat(text, all.name[i], sizeof(text) - strlen(text) - 1);
    }
    return text;
}

uint32_t fix_sum(rsd_store *store, const char *folder)
{
    uint32_t crc = 0;
    names    all;

    list_names(store, folder, &all);
    for (size_t i = 0; i < all.n; i++) {
        char           path[2 * NAME + 2];
        unsigned char *bytes;
        size_t         len;

        snprintf(path, sizeof(path), "%s%s%s", folder, *folder ? "/" : "", all.name[i]);
        bytes = fix_get(store, path, &len);
        crc = rsi_crc32(crc, all.name[i], strlen(all.name[i]));
        crc = rsi_crc32(crc, bytes, len);
        free(bytes);
    }
    return crc;
}

rsd_ckpt *fix_open(rsd_store *store, const char *path)
{
    rsd_error err;
    rsd_ckpt *ckpt;

    if (rsd_ckpt_open(store, path, &ckpt, &err))
        fail_msg("%s", err.msg);
    return ckpt;
}

void fix_refused(rsd_store *store, const char *path, rsd_err code, const char *text)
{
    rsd_error err = { 0 };
    rsd_ckpt *ckpt = NULL;
    rsd_err   rc = rsd_ckpt_open(store, path, &ckpt, &err);

    assert_null(ckpt);
    if (rc != code || !strstr(err.msg, text))
        fail_msg("expected %s \"%s\", found %s \"%s\"", rsd_err_name(code), text, rsd_err_name(rc),
                 err.msg);
    assert_int_equal(err.code, code);
}

/* ---- the counting store ---- */

typedef struct counting {
    rsd_store  *inner;
    fix_counts *counts;
} counting;

static rsd_err count_open(void *self, const char *name, uint32_t flags, uint64_t bytes,
                          rsd_opened *out, rsd_error *err)
{
    counting *c = self;
    rsi_file *file;
    rsd_err   rc = rsi_file_open(c->inner, name, flags, bytes, &file, err);

    if (!rc)
        *out = (rsd_opened){ .file = file, .size = file->size, .align = 1 };
    return rc;
}

static void count_transfer(void *self, rsd_io *io)
{
    counting   *c = self;
    rsi_file   *file = io->file;
    fix_counts *counts = c->counts;
    size_t      there = io->off < file->size ? (size_t)(file->size - io->off) : 0;

    assert_int_equal(io->op, RSD_IO_READ);
    if (counts->before)
        counts->before(counts->arg);
    io->done = io->len < there ? io->len : there;
    counts->reads++;
    counts->data_files += !atomic_load(&file->read) && strstr(file->name, ".distcp");
    counts->bytes += io->done;
    io->rc = (int64_t)counts->reads == counts->fail_at
                 ? RSD_E_IO
                 : rsi_file_read(file, io->off, io->buf, io->done, NULL);
    io->sys_errno = io->rc ? 5 : 0;
}

static rsd_err count_close(void *self, void *file, rsd_error *err)
{
    (void)self;
    return rsi_file_close(file, err);
}

static rsd_err count_sync(void *self, void *file, rsd_error *err)
{
    (void)self;
    return rsi_file_sync(file, err);
}

static rsd_err count_list(void *self, const char *name, rsi_visit visit, void *arg, rsd_error *err)
{
    counting *c = self;

    return rsi_store_list(c->inner, name, visit, arg, err);
}

static rsd_err count_stat(void *self, const char *name, rsd_entry *out, rsd_error *err)
{
    counting *c = self;

    return rsi_store_stat(c->inner, name, out, err);
}

static rsd_err count_name(void *self, const char *name, rsd_error *err)
{
    (void)self, (void)name;
    return rsi_fail(err, RSD_E_UNSUPPORTED, "only reading is counted");
}

static rsd_err count_begin(void *self, const char *name, uint32_t flags, void **tree,
                           const char **temp, rsd_error *err)
{
    (void)flags, (void)tree, (void)temp;
    return count_name(self, name, err);
}

static rsd_err count_attach(void *self, const char *temp, void **tree, rsd_error *err)
{
    (void)tree;
    return count_name(self, temp, err);
}

static rsd_err count_end(void *self, void *tree, rsd_error *err)
{
    (void)tree;
    return count_name(self, "", err);
}

static void count_destroy(void *self)
{
    free(self);
}

rsd_store *fix_counting_store(rsd_store *inner, fix_counts *counts)
{
    const rsd_store_ops ops = { .size = sizeof(ops),
                                .name = "counting",
                                .threads = 1,
                                .destroy = count_destroy,
                                .open = count_open,
                                .transfer = count_transfer,
                                .sync = count_sync,
                                .close = count_close,
                                .list = count_list,
                                .stat = count_stat,
                                .make_folder = count_name,
                                .remove = count_name,
                                .begin = count_begin,
                                .attach = count_attach,
                                .commit = count_end,
                                .abort = count_end };
    counting           *c = calloc(1, sizeof(*c));
    rsd_store          *store;

    assert_non_null(c);
    *c = (counting){ .inner = inner, .counts = counts };
    assert_int_equal(rsd_store_open_custom(&ops, c, &store, NULL), RSD_OK);
    return store;
}

/* ---- archives and DCP folders by hand ---- */

fix_bytes fix_archive(const void *pickle, size_t pickle_len, size_t n, const void *const *storage,
                      const uint64_t *bytes)
{
    rsi_zip_spec spec = { .pickle = pickle, .pickle_len = pickle_len, .n = n, .size = bytes };
    rsi_arena    mem = { 0 };
    uint32_t     crc[16] = { 0 };
    rsi_zip_plan plan;
    fix_bytes    out;

    assert_true(n <= 16);
    assert_int_equal(rsi_zip_plan_make(&spec, &mem, &plan, NULL), RSD_OK);
    out.len = (size_t)plan.size;
    out.at = calloc(out.len, 1);
    assert_non_null(out.at);
    for (size_t i = 0; i < n; i++) {
        crc[i] = rsi_crc32(0, storage[i], (size_t)bytes[i]);
        if (bytes[i])
            memcpy(out.at + rsi_zip_data_at(&plan, i), storage[i], (size_t)bytes[i]);
    }
    for (size_t i = 0; i <= n; i++)
        rsi_zip_gap_write(&plan, i, crc, 0, (size_t)rsi_zip_gap_size(&plan, i),
                          out.at + rsi_zip_gap_at(&plan, i));
    rsi_arena_release(&mem);
    return out;
}

fix_bytes fix_tensor_item(const rsi_tensor_pickle *tensor, const void *storage)
{
    unsigned char pickle[RSI_TENSOR_PICKLE_MAX];
    uint64_t      bytes = (uint64_t)tensor->storage_bytes;
    size_t        len;

    assert_int_equal(rsi_tensor_pickle_write(tensor, pickle, &len, NULL), RSD_OK);
    return fix_archive(pickle, len, 1, &storage, &bytes);
}

/* The writer numbers storages; here all are number 0. */
static void share_storage(rsi_bytes *pickle)
{
    static const char word[] = "storage", key[] = "X\1\0\0";
    unsigned char    *at = pickle->at, *end = at + pickle->len;

    while ((at = memmem(at, (size_t)(end - at), word, sizeof(word) - 1)) != NULL) {
        at = memmem(at, (size_t)(end - at), key, sizeof(key));
        assert_non_null(at);
        at[sizeof(key)] = '0';
    }
}

fix_bytes fix_value_item(const rsd_value *value, const void *storage, uint64_t bytes)
{
    rsi_bytes    pickle = { 0 };
    rsi_storages storages = { 0 };
    fix_bytes    out;

    assert_int_equal(rsi_value_to_pickle(value, &pickle, &storages, NULL), RSD_OK);
    share_storage(&pickle);
    out = fix_archive(pickle.at, pickle.len, storage ? 1 : 0, &storage, &bytes);
    rsi_free(pickle.at);
    rsi_free(storages.tensor);
    return out;
}

static rsd_err collect(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    (void)err;
    assert_true(rsi_bytes_add(arg, bytes, len));
    return RSD_OK;
}

void fix_put_metadata(rsd_store *store, const char *name, const rsi_dcp_meta *meta)
{
    rsi_bytes bytes = { 0 };

    assert_int_equal(rsi_dcp_meta_write(meta, collect, &bytes, NULL), RSD_OK);
    fix_put(store, name, bytes.at, bytes.len);
    rsi_free(bytes.at);
}

/* ---- states ---- */

rsd_view fix_whole(int ndim, const int64_t *shape, const void *data)
{
    rsd_view view = { .box.ndim = ndim, .data = (void *)(uintptr_t)data }; /* only read */

    if (ndim > 0)
        memcpy(view.box.len, shape, (size_t)ndim * sizeof(shape[0]));
    return view;
}

rsd_box fix_box1(int64_t off, int64_t len)
{
    return (rsd_box){ .ndim = 1, .off = { off }, .len = { len } };
}

rsd_box fix_box2(int64_t off0, int64_t off1, int64_t len0, int64_t len1)
{
    return (rsd_box){ .ndim = 2, .off = { off0, off1 }, .len = { len0, len1 } };
}

rsd_box fix_box3(const int64_t off[3], const int64_t len[3])
{
    return (
        rsd_box){ .ndim = 3, .off = { off[0], off[1], off[2] }, .len = { len[0], len[1], len[2] } };
}

void fix_add_ramp(rsd_state *state, const char *name, rsd_layout *layout, int ndim,
                  const int64_t *shape, int32_t *data)
{
    rsd_view view = fix_whole(ndim, shape, data);
    int64_t  n = rsd_box_count(&view.box);

    for (int64_t i = 0; i < n; i++)
        data[i] = (int32_t)i;
    assert_int_equal(rsd_state_tensor(state, name, layout, RSD_I32, ndim, shape, 1, &view, NULL),
                     RSD_OK);
    rsd_layout_free(layout);
}

void fix_save_ramps(rsd_store *store, const char *path, int tensors, int64_t rows, int64_t cols)
{
    const int64_t shape[] = { rows, cols };
    rsd_save_opts opts = {
        .size = sizeof(opts), .store = store, .threads = 1, .checksum = RSD_NEVER
    };
    int32_t   *data = malloc((size_t)(rows * cols) * sizeof(data[0]));
    rsd_state *state;

    assert_non_null(data);
    assert_int_equal(rsd_state_create(&state, NULL), RSD_OK);
    for (int i = 0; i < tensors; i++) {
        char name[16];

        snprintf(name, sizeof(name), "t%d", i);
        fix_add_ramp(state, name, fix_layout("mesh n=4; * shard(0)@n", RSD_I32, 2, shape), 2, shape,
                     data);
    }
    assert_int_equal(rsd_save(path, NULL, state, &opts, NULL), RSD_OK);
    rsd_state_free(state);
    free(data);
}

rsd_layout *fix_layout(const char *rules, rsd_dtype dtype, int ndim, const int64_t *shape)
{
    rsd_rules  *parsed;
    rsd_layout *layout;

    assert_int_equal(rsd_rules_parse(rules, &parsed, NULL), RSD_OK);
    assert_int_equal(rsd_rules_layout(parsed, "x", dtype, ndim, shape, &layout, NULL), RSD_OK);
    rsd_rules_free(parsed);
    return layout;
}

/* ---- the library from inside ---- */

bool fix_has_sums(void)
{
    return rsi_sums_available();
}

bool fix_has_zstd(void)
{
    return rsi_transform_zstd(0) != NULL;
}

int64_t fix_memory(void)
{
    return rsi_mem_stats_get().bytes;
}

uint64_t fix_images_reused(void)
{
    return rsi_image_cache_reused();
}

void fix_forget_image(const rsd_state *state)
{
    rsi_image_cache_forget(state);
}

rsd_err fix_fails(rsd_error *err, const char *file, int line, const char *what)
{
    rsd_error was = *err;

    return rsi_fail(err, RSD_E_BUG, "%s:%d: %s: %s", file, line, what, was.msg);
}

/* ---- the nth allocation fails ---- */

void fix_every_allocation(rsd_err (*run)(void *arg, rsd_error *err),
                          void (*after)(void *arg, rsd_err rc), void *arg)
{
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        uint64_t failures = 0;

        for (uint64_t nth = 1;; nth++) {
            rsd_error     err = { 0 };
            rsi_mem_stats stats;
            rsd_err       rc;

            rsi_mem_fail_at(nth, for_ever);
            rc = run(arg, &err);
            stats = rsi_mem_stats_get();
            rsi_mem_fail_at(0, 0);
            if (rc && rc != RSD_E_NOMEM)
                fail_msg("allocation %d%s: %s: %s", (int)nth, for_ever ? " and all after it" : "",
                         rsd_err_name(rc), err.msg);
            assert_int_equal(err.code, rc);
            failures += rc != RSD_OK;
            if (after)
                after(arg, rc);
            if (stats.calls < nth)
                break;
        }
        assert_true(failures > 0);
    }
}
