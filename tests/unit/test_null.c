/* SPDX-License-Identifier: Apache-2.0 */
/* test_null.c - the null store, store addresses, and tables that come from outside. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "store/store.h"

#include <stdatomic.h>
#include <string.h>

/* ---- null ---- */

static void the_null_store_takes_what_a_save_gives_it(void **state)
{
    rsd_store *store;
    rsi_tree  *tree, *other;
    rsi_file  *file;
    rsi_queue *queue;
    rsd_io     io[3], *got[3];
    char       bytes[100] = "";

    (void)state;
    assert_int_equal(rsd_store_open("null:", &store, NULL), RSD_OK);
    assert_int_equal(rsi_tree_begin(store, "a/ck", 0, &tree, NULL), RSD_OK);
    assert_string_equal(tree->temp, "a/.ck.tmp-0000000000000000");
    assert_int_equal(rsi_tree_attach(store, tree->temp, &other, NULL), RSD_OK);
    assert_int_equal(rsi_tree_abort(other, NULL), RSD_OK);
    assert_int_equal(rsi_file_open(store, "x", RSD_OPEN_CREATE, 0, &file, NULL), RSD_OK);
    assert_int_equal(rsi_queue_open(store, 3, &queue, NULL), RSD_OK);
    for (size_t i = 0; i < 3; i++)
        io[i] = (rsd_io){ .op = RSD_IO_WRITE, .file = file->handle, .buf = bytes, .len = 10 * i };
    rsi_queue_submit(queue, io, 3);
    assert_int_equal(rsi_queue_reap(queue, 3, 3, got), 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(rsi_io_check(file, &io[i], NULL), RSD_OK);
    rsi_queue_close(queue);
    assert_int_equal(rsi_file_sync(file, NULL), RSD_OK);
    assert_int_equal(rsi_file_close(file, NULL), RSD_OK);
    assert_int_equal(rsi_tree_commit(tree, NULL), RSD_OK);
    rsd_store_close(store);
}

static void the_null_store_has_nothing_to_read(void **state)
{
    rsd_store *store;
    rsi_file  *file;
    rsd_entry  entry;
    rsd_error  err;
    char       c;

    (void)state;
    assert_int_equal(rsd_store_open("null:", &store, NULL), RSD_OK);
    assert_int_equal(rsi_file_open(store, "x", RSD_OPEN_READ, 0, &file, &err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_store_stat(store, "x", &entry, &err), RSD_E_NOTFOUND);
    assert_int_equal(rsi_store_remove(store, "x", &err), RSD_E_NOTFOUND);
    assert_int_equal(rsi_file_open(store, "x", RSD_OPEN_CREATE, 0, &file, &err), RSD_OK);
    assert_int_equal(rsi_file_read(file, 0, &c, 1, &err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsi_file_close(file, &err), RSD_OK);
    rsd_store_close(store);
}

/* ---- addresses ---- */

static void an_address_chooses_the_store(void **state)
{
    static const char *const url[][2] = { { "/tmp", "file" },      { ".", "file" },
                                          { "file:/tmp", "file" }, { "file:///tmp", "file" },
                                          { "file:", "file" },     { "mem:", "memory" },
                                          { "null:", "null" } };
    rsd_store               *store;

    (void)state;
    for (size_t i = 0; i < sizeof(url) / sizeof(url[0]); i++) {
        assert_int_equal(rsd_store_open(url[i][0], &store, NULL), RSD_OK);
        assert_string_equal(rsi_store_kind(store), url[i][1]);
        rsd_store_close(store);
    }
}

static void an_unknown_address_is_refused(void **state)
{
    rsd_store *store;
    rsd_error  err;

    (void)state;
    assert_int_equal(rsd_store_open("s3://bucket/x", &store, &err), RSD_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "s3://bucket/x"));
    assert_int_equal(rsd_store_open("mem:x", &store, &err), RSD_E_UNSUPPORTED);
    assert_int_equal(rsd_store_open("", &store, &err), RSD_E_INVALID);
    assert_int_equal(rsd_store_open(NULL, &store, &err), RSD_E_INVALID);
}

static void opening_without_memory_says_so(void **state)
{
    static const char *const url[] = { "/tmp", "mem:", "null:" };
    rsd_store               *store;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        rsd_err rc = RSD_E_NOMEM;

        for (uint64_t n = 1; rc; n++) {
            rsi_mem_fail_at(n, 0);
            rc = rsd_store_open(url[i], &store, NULL);
            rsi_mem_fail_at(0, 0);
            assert_true(rc == RSD_OK || rc == RSD_E_NOMEM);
            assert_true(n < 20);
        }
        rsd_store_close(store);
    }
}

/* ---- a store from outside: 256 bytes, the same whatever the name ---- */

typedef struct own_store {
    atomic_int inside, most; /* threads in transfer */
    atomic_int destroyed;
} own_store;

static rsd_err own_open(void *self, const char *name, uint32_t flags, uint64_t bytes,
                        rsd_opened *out, rsd_error *err)
{
    (void)name;
    (void)flags;
    (void)bytes;
    (void)err;
    *out = (rsd_opened){ .file = self, .size = 256, .align = 1 };
    return RSD_OK;
}

static void own_transfer(void *self, rsd_io *io)
{
    own_store *own = self;
    int        now = atomic_fetch_add(&own->inside, 1) + 1, most = own->most;

    while (now > most && !atomic_compare_exchange_weak(&own->most, &most, now))
        ;
    for (; io->done < io->len; io->done++)
        ((unsigned char *)io->buf)[io->done] = (unsigned char)(io->off + io->done);
    atomic_fetch_sub(&own->inside, 1);
}

static rsd_err own_done(void *self, void *handle, rsd_error *err)
{
    (void)self;
    (void)handle;
    (void)err;
    return RSD_OK;
}

static rsd_err own_no_name(void *self, const char *name, rsd_error *err)
{
    (void)self;
    (void)name;
    return err ? RSD_E_UNSUPPORTED : RSD_E_BUG; /* a table's functions never get NULL */
}

static rsd_err own_list(void *self, const char                                         *name,
                        rsd_err (*visit)(void *, const rsd_entry *, rsd_error *), void *arg,
                        rsd_error *err)
{
    (void)visit;
    (void)arg;
    return own_no_name(self, name, err);
}

static rsd_err own_stat(void *self, const char *name, rsd_entry *out, rsd_error *err)
{
    (void)out;
    return own_no_name(self, name, err);
}

static rsd_err own_begin(void *self, const char *name, uint32_t flags, void **tree,
                         const char **temp, rsd_error *err)
{
    (void)flags;
    (void)tree;
    (void)temp;
    return own_no_name(self, name, err);
}

static rsd_err own_attach(void *self, const char *temp, void **tree, rsd_error *err)
{
    (void)tree;
    return own_no_name(self, temp, err);
}

static void own_destroy(void *self)
{
    ((own_store *)self)->destroyed++;
}

static void own_submit(void *self, void *queue, rsd_io *io, size_t n)
{
    (void)self;
    (void)queue;
    (void)io;
    (void)n;
}

static const rsd_store_ops own_ops = { .size = sizeof(rsd_store_ops),
                                       .threads = 3,
                                       .destroy = own_destroy,
                                       .open = own_open,
                                       .transfer = own_transfer,
                                       .sync = own_done,
                                       .close = own_done,
                                       .list = own_list,
                                       .stat = own_stat,
                                       .make_folder = own_no_name,
                                       .remove = own_no_name,
                                       .begin = own_begin,
                                       .attach = own_attach,
                                       .commit = own_done,
                                       .abort = own_done };

static void a_table_without_queues_gets_threads(void **state)
{
    own_store     own = { 0 };
    rsd_store    *store;
    rsi_file     *file;
    rsi_queue    *queue;
    unsigned char buf[256];
    rsd_io        io[64], *got[64];

    (void)state;
    assert_int_equal(rsd_store_open_custom(&own_ops, &own, &store, NULL), RSD_OK);
    assert_int_equal(rsi_file_open(store, "x", RSD_OPEN_READ, 0, &file, NULL), RSD_OK);
    assert_int_equal(rsi_queue_open(store, 8, &queue, NULL), RSD_OK);
    for (int round = 0; round < 50; round++) {
        memset(buf, 0, sizeof(buf));
        for (size_t i = 0; i < 64; i++)
            io[i] = (rsd_io){
                .op = RSD_IO_READ, .file = file->handle, .off = 4 * i, .buf = buf + 4 * i, .len = 4
            };
        rsi_queue_submit(queue, io, 64);
        assert_int_equal(rsi_queue_reap(queue, 64, 64, got), 64);
        for (size_t i = 0; i < 256; i++)
            assert_int_equal(buf[i], i);
    }
    assert_in_range(own.most, 1, 3);
    rsi_queue_close(queue);
    assert_int_equal(rsi_file_close(file, NULL), RSD_OK);
    assert_int_equal(rsi_store_make_folder(store, "d", NULL), RSD_E_UNSUPPORTED);
    rsd_store_close(store);
    assert_int_equal(own.destroyed, 1);
}

static void a_table_with_a_hole_is_refused(void **state)
{
    own_store     own = { 0 };
    rsd_store_ops ops = own_ops;
    rsd_store    *store;
    rsd_error     err;

    (void)state;
    ops.size = 0;
    assert_int_equal(rsd_store_open_custom(&ops, &own, &store, &err), RSD_E_INVALID);
    ops = own_ops;
    ops.transfer = NULL;
    assert_int_equal(rsd_store_open_custom(&ops, &own, &store, &err), RSD_E_INVALID);
    assert_non_null(strstr(err.msg, "transfer"));
    ops = own_ops;
    ops.commit = NULL;
    assert_int_equal(rsd_store_open_custom(&ops, &own, &store, &err), RSD_E_INVALID);
    ops = own_ops;
    ops.list = NULL;
    assert_int_equal(rsd_store_open_custom(&ops, &own, &store, &err), RSD_E_INVALID);
    ops = own_ops;
    ops.submit = own_submit; /* and no reap */
    assert_int_equal(rsd_store_open_custom(&ops, &own, &store, &err), RSD_E_INVALID);
    assert_int_equal(rsd_store_open_custom(NULL, &own, &store, &err), RSD_E_INVALID);
    assert_int_equal(own.destroyed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_null_store_takes_what_a_save_gives_it),
        cmocka_unit_test(the_null_store_has_nothing_to_read),
        cmocka_unit_test(an_address_chooses_the_store),
        cmocka_unit_test(an_unknown_address_is_refused),
        cmocka_unit_test(opening_without_memory_says_so),
        cmocka_unit_test(a_table_without_queues_gets_threads),
        cmocka_unit_test(a_table_with_a_hole_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
