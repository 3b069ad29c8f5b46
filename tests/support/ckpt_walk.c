/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, reads, decodes and verifies a checkpoint. */
#include "ckpt_walk.h"
#include "base/crc32.h"
#include "base/mem.h"
#include "format/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_name(ckpt_walk *w, const void *bytes, size_t len)
{
    w->content = rsi_crc32(w->content, bytes, len);
}

static void add(ckpt_walk *w, const void *bytes, size_t len)
{
    add_name(w, bytes, len);
    w->elements = rsi_crc32(w->elements, bytes, len);
}

/* The first failure is the one that counts. */
static rsd_err note(ckpt_walk *w, rsd_err rc, const rsd_error *err)
{
    if (rc && !w->opened && !w->read && !w->verified)
        w->error = *err;
    return rc;
}

static void add_path(ckpt_walk *w, const rsd_ckpt *ckpt, const char *name)
{
    rsd_path_part part[8] = { 0 };
    size_t        n = rsd_ckpt_path(ckpt, name, part, 8);

    for (size_t i = 0; i < n && i < 8; i++)
        if (part[i].key)
            add_name(w, part[i].key, strlen(part[i].key) + 1);
        else
            add_name(w, &part[i].index, sizeof(part[i].index));
}

/* All of a tensor, or its first element if it is large. The memory is exactly as large as needed,
 * so that a sanitizer sees a byte too many. */
static void read_tensor(ckpt_walk *w, rsd_ckpt *ckpt, size_t t, int64_t most)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .threads = 1 };
    rsd_error           err = { .rank = -1 };
    rsd_tensor_info     info = { .size = sizeof(info) };
    rsd_view            view = { 0 };
    size_t              bytes;
    rsd_err             rc = rsd_ckpt_tensor(ckpt, t, &info, &err);

    if (!rc) {
        view.box.ndim = info.ndim;
        for (int d = 0; d < info.ndim; d++)
            view.box.len[d] = info.bytes > most ? 1 : info.shape[d];
        bytes = info.bytes > most ? rsd_dtype_size(info.dtype) : (size_t)info.bytes;
        view.data = malloc(bytes ? bytes : 1);
        if (!view.data)
            abort();
        rc = rsd_ckpt_read(ckpt, t, &view, &opts, &err);
        add_name(w, info.name, strlen(info.name) + 1);
        add(w, &info.dtype, sizeof(info.dtype));
        add(w, info.shape, (size_t)info.ndim * sizeof(info.shape[0]));
        add_path(w, ckpt, info.name);
        if (!rc)
            add(w, view.data, bytes);
        free(view.data);
    }
    if (note(w, rc, &err) && !w->read)
        w->read = rc;
}

/* Opaque objects in a value; what nests deeper than this is not looked at. */
static void count_opaque(ckpt_walk *w, const rsd_value *v, int depth, size_t *left)
{
    size_t n = rsd_value_count(v);

    if (rsd_value_type_of(v) == RSD_VALUE_OPAQUE && w->opaque++ == 0)
        snprintf(w->opaque_name, sizeof(w->opaque_name), "%s", rsd_value_bytes(v, NULL));
    for (size_t i = 0; i < n && depth < 16 && *left > 0; i++) {
        (*left)--;
        if (rsd_value_type_of(v) == RSD_VALUE_DICT)
            count_opaque(w, rsd_value_key(v, i), depth + 1, left);
        count_opaque(w, rsd_value_item(v, i), depth + 1, left);
    }
}

static void read_object(ckpt_walk *w, rsd_ckpt *ckpt, size_t i)
{
    rsd_error        err = { .rank = -1 };
    rsd_values      *owner = NULL;
    const rsd_value *value = NULL;
    const char      *name = NULL;
    char             text[4096];
    size_t           left = 10000;
    rsd_err          rc = rsd_values_create(&owner, &err);

    if (!rc)
        rc = rsd_ckpt_object(ckpt, i, &name, owner, &value, &err);
    if (name) {
        add_name(w, name, strlen(name) + 1);
        add_path(w, ckpt, name);
    }
    if (!rc) {
        size_t len = rsd_value_text(value, text, sizeof(text));

        add(w, text, len < sizeof(text) ? len : sizeof(text) - 1);
        rsd_value_json(value, text, sizeof(text));
        count_opaque(w, value, 0, &left);
    }
    rsd_values_free(owner);
    if (note(w, rc, &err) && !w->read)
        w->read = rc;
}

static void on_damage(void *arg, const rsd_error *what)
{
    ckpt_walk *w = arg;

    if (w->damages < CKPT_WALK_DAMAGES)
        w->damage[w->damages] = *what;
    w->damages++;
}

void ckpt_walk_run(rsd_store *store, const char *path, int64_t most, ckpt_walk *w)
{
    const rsd_read_opts opts = { .size = sizeof(opts), .threads = 1 };
    rsd_error           err = { .rank = -1 };
    rsd_ckpt           *ckpt = NULL;
    size_t              count = 0;
    int64_t             before;
    rsd_err             rc;

    *w = (ckpt_walk){ .error.rank = -1 };
    rsi_mem_fail_at(0, 0);
    before = rsi_mem_stats_get().bytes;
    rc = rsd_ckpt_open(store, path, &ckpt, &err);
    w->open_peak = rsi_mem_stats_get().peak - before;
    w->opened = note(w, rc, &err);
    if (rc)
        return;
    rsi_mem_fail_at(0, 0);
    for (size_t t = 0; t < rsd_ckpt_tensors(ckpt); t++)
        read_tensor(w, ckpt, t, most);
    for (size_t i = 0; i < rsd_ckpt_objects(ckpt); i++)
        read_object(w, ckpt, i);
    rc = rsd_ckpt_verify(ckpt, &opts, on_damage, w, &count, &err);
    w->verified = note(w, rc, &err);
    if (!rc && count != w->damages)
        abort();
    w->read_peak = rsi_mem_stats_get().peak - before;
    rsd_ckpt_close(ckpt);
}

bool ckpt_walk_noticed(const ckpt_walk *w)
{
    return w->opened || w->read || w->verified || w->damages;
}

rsd_err ckpt_walk_put(rsd_store *store, const char *name, const void *bytes, size_t len)
{
    rsi_file *file;
    rsd_err   rc = rsi_file_open(store, name, RSD_OPEN_CREATE, len, &file, NULL);

    if (rc)
        return rc;
    if (len > 0)
        rc = rsi_file_write(file, 0, bytes, len, NULL);
    if (rc) {
        rsi_file_close(file, NULL);
        return rc;
    }
    return rsi_file_close(file, NULL);
}
