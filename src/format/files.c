/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the open files of a checkpoint. */
#include "format/files.h"
#include "base/mem.h"
#include "format/sums.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static rsd_err keep_file(rsi_files *files, rsi_file *file, uint32_t *out, rsd_error *err)
{
    if (!rsi_grow(&files->file, files->n, &files->cap, sizeof(files->file[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", files->n + 1);
    *out = (uint32_t)files->n;
    files->file[files->n++] = file;
    return RSD_OK;
}

rsd_err rsi_files_local(const char *path, rsd_store **store, char **name, rsd_error *err)
{
    char real[PATH_MAX];

    if (!realpath(path, real))
        return rsi_fail_errno(err, errno == ENOENT ? RSD_E_NOTFOUND : RSD_E_IO, errno,
                              "could not find \"%s\"", path);
    return rsi_store_open_beside(real, false, store, name, err);
}

static rsd_err find_local(rsi_files *files, const char *path, rsd_error *err)
{
    char   *name;
    rsd_err rc = rsi_files_local(path, &files->base, &name, err);

    if (rc)
        return rc;
    files->store = files->base;
    files->own_store = true;
    files->top = rsi_arena_text(&files->mem, name, strlen(name));
    rsi_free(name);
    return files->top ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
}

static rsd_err hold(rsi_files *files, uint32_t flags, rsd_error *err)
{
    rsd_store *held;
    rsd_err    rc = rsi_store_hold(files->base, files->top, RSI_SUMS_NAME, flags, &held, err);

    files->held = !rc && held;
    if (files->held)
        files->store = held;
    return rc;
}

rsd_err rsi_files_open_held(rsi_files *files, rsd_store *store, const char *path, uint32_t flags,
                            rsd_error *err)
{
    rsd_entry entry = { .kind = RSD_ENTRY_FOLDER };
    rsi_file *file;
    uint32_t  number;
    rsd_err   rc = RSD_OK;

    *files = (rsi_files){ .store = store, .base = store };
    if (store) {
        files->top = rsi_arena_text(&files->mem, path, strlen(path));
        if (!files->top)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for a path");
    } else {
        rc = find_local(files, path, err);
    }
    if (!rc && *files->top)
        rc = hold(files, flags, err);
    if (!rc && *files->top)
        rc = rsi_store_stat(files->store, files->top, &entry, err);
    if (rc || entry.kind == RSD_ENTRY_FOLDER)
        return rc;
    if (entry.kind == RSD_ENTRY_OTHER)
        return rsi_fail(err, RSD_E_FORMAT, "\"%s\" is neither a file nor a folder", path);
    files->single = true;
    rc = rsi_file_open(files->store, files->top, RSD_OPEN_READ, 0, &file, err);
    if (rc)
        return rc;
    rc = keep_file(files, file, &number, err);
    if (rc)
        rsi_file_close(file, NULL);
    return rc;
}

void rsi_files_close(rsi_files *files)
{
    for (size_t i = 0; i < files->n; i++)
        rsi_file_close(files->file[i], NULL);
    rsi_free(files->file);
    rsi_map_release(&files->by_name);
    rsi_map_release(&files->seen);
    if (files->held)
        rsd_store_close(files->store);
    if (files->own_store)
        rsd_store_close(files->base);
    rsi_arena_release(&files->mem);
    *files = (rsi_files){ 0 };
}

rsd_err rsi_files_unchanged(const rsi_files *files, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < files->n && !rc; i++)
        if (atomic_load(&files->file[i]->read))
            rc = rsi_file_unchanged(files->file[i], err);
    return rc;
}

rsd_err rsi_files_there(const rsi_files *files, rsd_error *err)
{
    return rsi_store_replaced(files->store) == RSD_HELD_LOST
               ? rsi_fail(err, RSD_E_NOTFOUND, "\"%s\" was replaced while it was read", files->top)
               : RSD_OK;
}

bool rsi_files_republished(const rsi_files *files)
{
    static const char meta[] = ".metadata";
    char             *name = rsi_files_name_beside(files, meta);
    rsd_entry         now = { .version = 0 };
    uint64_t          seen = 0;
    bool              is = false;

    if (name && !files->single && rsi_map_get(&files->seen, meta, strlen(meta), &seen))
        is = rsi_store_stat(files->base, name, &now, NULL) == RSD_OK && now.version != seen;
    rsi_free(name);
    return is;
}

/* "<top>/<name>" at `to`, which has room for two bytes more than both names; after the name of a
 * single file the '/' is left out. */
static void join_name(const rsi_files *files, const char *name, char *to)
{
    size_t top = strlen(files->top), slash = top && !files->single ? 1 : 0;

    memcpy(to, files->top, top);
    to[top] = '/';
    memcpy(to + top + slash, name, strlen(name) + 1);
}

/* In the arena. */
static char *full_name(rsi_files *files, const char *name)
{
    char *full = rsi_arena_array(&files->mem, strlen(files->top) + strlen(name) + 2, 1);

    if (full)
        join_name(files, name, full);
    return full;
}

rsd_err rsi_files_add(rsi_files *files, const char *name, bool follow, uint32_t *out,
                      rsd_error *err)
{
    char     *full;
    rsi_file *file;
    uint64_t  number = files->n, seen = 0;
    uint32_t  flags = RSD_OPEN_READ | (follow ? RSD_OPEN_FOLLOW : 0);
    rsd_err   rc;

    if (rsi_map_get(&files->by_name, name, strlen(name), &number)) {
        *out = (uint32_t)number;
        return RSD_OK;
    }
    full = full_name(files, name);
    if (!full)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the name of a file");
    rc = rsi_file_open(files->store, full, flags, 0, &file, err);
    if (rc == RSD_E_NOTFOUND && files->salvage)
        rc = rsi_file_missing(files->store, full, flags, &file, err);
    if (rc == RSD_E_INVALID) /* the name comes from the checkpoint, not from the caller */
        return rsi_while(err, RSD_E_FORMAT, "a file of the checkpoint");
    if (rc)
        return rc;
    if (rsi_map_get(&files->seen, name, strlen(name), &seen) && seen && file->version &&
        seen != file->version)
        rc = rsi_fail(err, RSD_E_MISMATCH, "file \"%s\" was changed while the folder was read",
                      full);
    if (!rc)
        rc = keep_file(files, file, out, err);
    if (rc) {
        rsi_file_close(file, NULL);
        return rc;
    }
    full += *files->top ? strlen(files->top) + 1 : 0;
    if (!rsi_map_add(&files->by_name, full, strlen(full), &number, NULL))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the name of a file");
    return RSD_OK;
}

char *rsi_files_name_beside(const rsi_files *files, const char *name)
{
    char *full;

    if (files->single)
        return rsi_name_behind(files->top, name);
    full = rsi_calloc(strlen(files->top) + strlen(name) + 2, 1);

    if (full)
        join_name(files, name, full);
    return full;
}

rsd_err rsi_files_open_beside(const rsi_files *files, const char *name, bool follow, rsi_file **out,
                              rsd_error *err)
{
    char   *full = rsi_files_name_beside(files, name);
    rsd_err rc;

    if (!full)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the name of a file");
    rc = rsi_file_open(files->store, full, RSD_OPEN_READ | (follow ? RSD_OPEN_FOLLOW : 0), 0, out,
                       err);
    rsi_free(full);
    return rc;
}

typedef struct listing {
    rsi_files *files;
    char     **name;
    size_t     n, cap;
} listing;

/* Adds the name, and the file's version before anything was read. */
static rsd_err add_name(void *arg, const rsd_entry *entry, rsd_error *err)
{
    listing   *l = arg;
    rsi_files *files = l->files;
    size_t     len = strlen(entry->name);
    uint64_t   version = entry->version;
    char      *name = rsi_arena_text(&files->mem, entry->name, len);

    if (!name || !rsi_grow(&l->name, l->n, &l->cap, sizeof(l->name[0])) ||
        (version && !rsi_map_add(&files->seen, name, len, &version, NULL)))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the names of %zu files", l->n + 1);
    l->name[l->n++] = name;
    return RSD_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static rsd_err list_once(rsi_files *files, rsd_error *err)
{
    listing l = { .files = files };
    char  **kept;
    rsd_err rc = rsi_store_list(files->store, files->top, add_name, &l, err);

    if (!rc)
        rc = rsi_files_there(files, err); /* else some may already have been removed */
    kept = rc ? NULL : rsi_arena_array(&files->mem, l.n + 1, sizeof(kept[0]));
    if (!rc && !kept)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the names of %zu files", l.n);
    if (!rc) {
        if (l.n)
            memcpy(kept, l.name, l.n * sizeof(kept[0]));
        qsort(kept, l.n, sizeof(kept[0]), by_name);
        files->name = kept;
        files->nnames = l.n;
    }
    rsi_free(l.name);
    return rc;
}

rsd_err rsi_files_list(rsi_files *files, char ***names, size_t *n, rsd_error *err)
{
    rsd_err rc = files->name ? RSD_OK : list_once(files, err);

    if (rc)
        return rc;
    *names = files->name;
    *n = files->nnames;
    return RSD_OK;
}

rsd_err rsi_files_enter(rsi_files *files, const char *name, rsd_error *err)
{
    char *top;

    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return rsi_fail(err, RSD_E_FORMAT, "\"%s\" is not the name of a folder", name);
    top = full_name(files, name);
    if (!top)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the name of a folder");
    for (size_t i = 0; i < files->n; i++)
        rsi_file_close(files->file[i], NULL);
    files->n = 0;
    rsi_map_release(&files->by_name);
    rsi_map_release(&files->seen);
    files->by_name = files->seen = (rsi_map){ 0 };
    files->top = top;
    files->name = NULL;
    return RSD_OK;
}

rsd_err rsi_files_read(const rsi_files *files, uint32_t file, uint64_t off, void *buf, size_t len,
                       rsd_error *err)
{
    return rsi_file_read(files->file[file], off, buf, len, err);
}

static rsd_err source_read(void *arg, uint64_t off, void *buf, size_t len, rsd_error *err)
{
    return rsi_file_read(arg, off, buf, len, err);
}

rsi_source rsi_files_source_of(rsi_file *file, const char *name)
{
    return (rsi_source){ .read = source_read, .arg = file, .size = file->size, .name = name };
}

rsi_source rsi_files_source(const rsi_files *files, uint32_t file, uint64_t start, uint64_t size)
{
    return (rsi_source){ .read = source_read,
                         .arg = files->file[file],
                         .start = start,
                         .size = size,
                         .name = rsi_files_name(files, file) };
}

const char *rsi_files_name(const rsi_files *files, uint32_t file)
{
    const char *name = files->file[file]->name;
    size_t      top = strlen(files->top);

    if (files->single || top == 0)
        return files->single ? rsi_last_part(name) : name;
    return name + top + 1;
}
