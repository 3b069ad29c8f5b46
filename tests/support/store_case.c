/* SPDX-License-Identifier: Apache-2.0 */
/* Stores of every kind for the tests that all of them have to pass. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "store_case.h"
#include "base/mem.h"
#include "store/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int store_case_open(void **state)
{
    const store_backend *b = *state;
    store_case          *f = calloc(1, sizeof(*f));
    rsi_file_opts        opts = { .io = (rsi_file_io)b->kind, .direct_min = 8192 };

    f->bytes = rsi_mem_stats_get().bytes;
    *state = f;
    if (!b->kind)
        return (int)rsd_store_open("mem:", &f->store, &f->err);
    snprintf(f->dir, sizeof(f->dir), "/tmp/rsd_store_XXXXXX");
    if (!mkdtemp(f->dir))
        return -1;
    return (int)rsi_file_store_open(f->dir, &opts, &f->store, &f->err);
}

static rsd_err remove_it(void *arg, const rsd_entry *entry, rsd_error *err)
{
    return rsi_store_remove(arg, entry->name, err);
}

int store_case_close(void **state)
{
    store_case *f = *state;
    int         rc = 0;

    if (f->dir[0] && rsi_store_list(f->store, "", remove_it, f->store, NULL) != RSD_OK)
        rc = -1;
    rsd_store_close(f->store);
    if (f->dir[0] && rmdir(f->dir) != 0)
        rc = -1;
    if (rsi_mem_stats_get().bytes != f->bytes)
        rc = -1;
    free(f);
    return rc;
}

void store_assert_ok(rsd_err rc, const store_case *f)
{
    if (rc)
        print_error("%s\n", f->err.msg);
    assert_int_equal(rc, RSD_OK);
}

void store_put(store_case *f, const char *name, const void *bytes, size_t len)
{
    rsi_file *file;

    ok(rsi_file_open(f->store, name, RSD_OPEN_CREATE, 0, &file, &f->err));
    ok(rsi_file_write(file, 0, bytes, len, &f->err));
    ok(rsi_file_sync(file, &f->err));
    ok(rsi_file_close(file, &f->err));
}

void store_put_text(store_case *f, const char *name, const char *text)
{
    store_put(f, name, text, strlen(text));
}

void store_put_in(store_case *f, const rsi_tree *tree, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", tree->temp, name);
    store_put_text(f, path, text);
}

void store_assert_text(store_case *f, const char *name, const char *text)
{
    char     buf[256] = "";
    uint64_t size;

    ok(rsi_store_file_size(f->store, name, &size, &f->err));
    assert_int_equal(size, strlen(text));
    ok(rsi_store_read_all(f->store, name, 0, buf, (size_t)size, &f->err));
    assert_string_equal(buf, text);
}

void store_assert_missing(store_case *f, const char *name)
{
    rsd_entry entry;

    assert_int_equal(rsi_store_stat(f->store, name, &entry, &f->err), RSD_E_NOTFOUND);
}

static rsd_err count_it(void *arg, const rsd_entry *entry, rsd_error *err)
{
    (void)entry;
    (void)err;
    ++*(size_t *)arg;
    return RSD_OK;
}

size_t store_entries(store_case *f, const char *folder)
{
    size_t n = 0;

    ok(rsi_store_list(f->store, folder, count_it, &n, &f->err));
    return n;
}

unsigned char store_pattern(uint64_t at)
{
    return (unsigned char)(at * 167 >> 3 ^ at);
}

unsigned char *store_pattern_bytes(uint64_t from, size_t len)
{
    unsigned char *bytes = rsi_alloc_aligned(4096, len);

    for (size_t i = 0; i < len; i++)
        bytes[i] = store_pattern(from + i);
    return bytes;
}

int store_each_backend(int (*run)(const store_backend *b))
{
    static const store_backend backends[] = { { "memory", 0 },
                                              { "files, threads", RSI_FILE_IO_THREADS },
                                              { "files, io_uring", RSI_FILE_IO_URING } };
    int                        failed = 0;

    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        failed += run(&backends[i]);
    return failed;
}
