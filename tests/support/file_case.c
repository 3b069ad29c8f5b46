/* SPDX-License-Identifier: Apache-2.0 */
/* Stores of files whose system calls can be made to fail, in folders of their own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "file_case.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_below(void **state, const char *top)
{
    file_case    *f = calloc(1, sizeof(*f));
    rsi_file_opts plain = { .sys = sys_quick() };
    rsi_file_opts opts = {
        .sys = &rsi_sys_faulty, .io = RSI_FILE_IO_THREADS, .threads = 1, .direct_min = 4096
    };

    faults = (sys_faults){ 0 };
    *state = f;
    snprintf(f->dir, sizeof(f->dir), "%s/rsd_file_XXXXXX", top);
    if (!mkdtemp(f->dir))
        return -1;
    if (rsi_file_store_open(f->dir, &plain, &f->plain, &f->err))
        return -1;
    return (int)rsi_file_store_open(f->dir, &opts, &f->store, &f->err);
}

int file_case_open(void **state)
{
    return open_below(state, "/tmp");
}

int file_case_open_fast(void **state)
{
    return open_below(state, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
}

static rsd_err remove_it(void *arg, const rsd_entry *entry, rsd_error *err)
{
    return rsi_store_remove(arg, entry->name, err);
}

int file_case_close(void **state)
{
    file_case *f = *state;
    int        rc;

    faults = (sys_faults){ 0 };
    rc = (int)rsi_store_list(f->plain, "", remove_it, f->plain, NULL);
    rsd_store_close(f->store);
    rsd_store_close(f->plain);
    rc |= rmdir(f->dir);
    free(f);
    return rc;
}

rsd_store *file_another(file_case *f, rsi_file_io io)
{
    rsi_file_opts opts = { .sys = &rsi_sys_faulty, .io = io, .threads = 1, .direct_min = 4096 };
    rsd_store    *store;

    assert_int_equal(rsi_file_store_open(f->dir, &opts, &store, &f->err), RSD_OK);
    return store;
}

void file_in_dir(const file_case *f, const char *name, char *path, size_t cap)
{
    snprintf(path, cap, "%s/%s", f->dir, name);
}

rsd_err file_put(rsd_store *store, const char *name, const char *text, rsd_error *err)
{
    rsi_file *file;
    rsd_err   rc = rsi_file_open(store, name, RSD_OPEN_CREATE, 0, &file, err);

    if (rc)
        return rc;
    rc = rsi_file_write(file, 0, text, strlen(text), err);
    if (!rc)
        rc = rsi_file_sync(file, err);
    if (rc)
        rsi_file_close(file, NULL);
    return rc ? rc : rsi_file_close(file, err);
}

rsd_err file_put_in(rsd_store *store, const rsi_tree *tree, const char *name, const char *text,
                    rsd_error *err)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", tree->temp, name);
    return file_put(store, path, text, err);
}

bool file_holds(rsd_store *store, const char *name, const char *text)
{
    char     buf[64] = "";
    uint64_t size;

    return rsi_store_file_size(store, name, &size, NULL) == RSD_OK && size == strlen(text) &&
           rsi_store_read_all(store, name, 0, buf, (size_t)size, NULL) == RSD_OK &&
           strcmp(buf, text) == 0;
}

rsd_err file_count(void *arg, const rsd_entry *entry, rsd_error *err)
{
    (void)entry;
    (void)err;
    ++*(int *)arg;
    return RSD_OK;
}

int file_entries(const file_case *f)
{
    int n = 0;

    assert_int_equal(rsi_store_list(f->plain, "", file_count, &n, NULL), RSD_OK);
    return n;
}

int file_open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int  n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

rsd_err file_publish(rsd_store *store, const char *text, uint32_t flags, rsd_error *err)
{
    rsi_tree *tree;
    rsd_err   rc = rsi_tree_begin(store, "ck", flags, &tree, err);

    if (rc)
        return rc;
    rc = file_put_in(store, tree, "x", text, err);
    if (!rc)
        rc = rsi_tree_commit(tree, err);
    if (rc)
        rsi_tree_abort(tree, NULL);
    return rc;
}
