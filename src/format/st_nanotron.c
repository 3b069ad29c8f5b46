/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of nanotron's checkpoints, and reads which part of which parameter each has;
 * st_join.c joins them. */
#include "format/st_nanotron.h"
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOP      "model"
#define METADATA "checkpoint_metadata.json"
#define SLICES   RSI_NANOTRON_SLICES
#define SHAPE    "unsharded_shape"

enum { MOST_LEVELS = 32, MOST_PARTS = 65536 };

bool rsi_nanotron_is(char *const *names, size_t n)
{
    bool metadata = false, model = false;

    for (size_t i = 0; i < n; i++) {
        metadata = metadata || strcmp(names[i], METADATA) == 0;
        model = model || strcmp(names[i], TOP) == 0;
    }
    return metadata && model;
}

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the parts of a checkpoint");
}

/* ---- the files ---- */

typedef struct listing {
    rsi_files  *files;
    const char *below; /* the folder being listed */
    char      **name, **folder;
    size_t      n, cap, nfolders, folders_cap;
} listing;

static rsd_err note_entry(void *arg, const rsd_entry *entry, rsd_error *err)
{
    listing     *l = arg;
    const size_t len = strlen(l->below) + strlen(entry->name) + 2;
    char        *path = rsi_arena_array(&l->files->mem, len, 1);

    if (!path)
        return no_memory(err);
    snprintf(path, len, "%s/%s", l->below, entry->name);
    if (rsi_text_ends(path, ".safetensors")) {
        if (!rsi_grow(&l->name, l->n, &l->cap, sizeof(l->name[0])))
            return no_memory(err);
        l->name[l->n++] = path;
    } else if (entry->kind == RSD_ENTRY_FOLDER) {
        if (!rsi_grow(&l->folder, l->nfolders, &l->folders_cap, sizeof(l->folder[0])))
            return no_memory(err);
        l->folder[l->nfolders++] = path;
    }
    return RSD_OK;
}

static size_t levels(const char *path)
{
    size_t n = 0;

    for (; *path; path++)
        n += *path == '/';
    return n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

rsd_err rsi_nanotron_list(rsi_files *files, char ***out, size_t *n, rsd_error *err)
{
    listing l = { .files = files, .below = TOP };
    size_t  next = 0;
    rsd_err rc = RSD_OK;

    while (!rc && l.below) {
        char *full = rsi_files_name_beside(files, l.below);

        rc = full ? rsi_store_list(files->store, full, note_entry, &l, err) : no_memory(err);
        rsi_free(full);
        l.below = next < l.nfolders ? l.folder[next++] : NULL;
        if (!rc && l.below && levels(l.below) > MOST_LEVELS)
            rc = rsi_fail(err, RSD_E_FORMAT, "folders nest deeper than %d", MOST_LEVELS);
    }
    if (!rc && l.n == 0)
        rc = rsi_fail(err, RSD_E_FORMAT,
                      "it has nanotron's \"" METADATA "\", but no safetensors file below \"" TOP
                      "\"");
    *out = rc ? NULL : rsi_arena_array(&files->mem, l.n, sizeof((*out)[0]));
    if (!rc && !*out)
        rc = no_memory(err);
    if (!rc) {
        memcpy(*out, l.name, l.n * sizeof(l.name[0]));
        qsort(*out, l.n, sizeof((*out)[0]), by_name);
    }
    *n = l.n;
    rsi_free(l.name);
    rsi_free(l.folder);
    return rc;
}

/* ---- names ---- */

/* "a.b.weight" of "model/a/b/model_weight_pp-rank-0-of-1_tp-rank-0-of-2.safetensors" */
static rsd_err name_of(const char *path, rsi_arena *mem, rsi_name *out, rsd_error *err)
{
    const char *start = path + strlen(TOP "/"), *last = strrchr(path, '/') + 1, *end;
    char       *text;
    size_t      folders = (size_t)(last - start), len;

    if (strncmp(last, TOP "_", strlen(TOP "_")) != 0)
        return rsi_fail(err, RSD_E_FORMAT, "its name does not begin with \"" TOP "_\"");
    last += strlen(TOP "_");
    end = strstr(last, "_pp-rank-");
    end = end ? end : last + strlen(last) - strlen(".safetensors");
    if (end <= last)
        return rsi_fail(err, RSD_E_FORMAT, "its name has no parameter");
    len = folders + (size_t)(end - last);
    text = rsi_arena_array(mem, len + 1, 1);
    if (!text)
        return no_memory(err);
    memcpy(text, start, folders);
    memcpy(text + folders, last, (size_t)(end - last));
    for (size_t i = 0; i < folders; i++)
        if (text[i] == '/')
            text[i] = '.';
    *out = (rsi_name){ .text = text, .len = (uint32_t)len };
    return RSD_OK;
}

/* ---- slices ---- */

static bool take_char(const char **at, char c)
{
    if (**at != c)
        return false;
    ++*at;
    return true;
}

static bool take_number(const char **at, int64_t none, int64_t *out)
{
    char *end;

    if (strncmp(*at, "None", 4) == 0) {
        *at += 4;
        *out = none;
        return true;
    }
    if (!isdigit((unsigned char)**at))
        return false;
    *out = strtoll(*at, &end, 10);
    *at = end;
    return *out < INT64_MAX;
}

/* "0,10,None" for each dimension, with '|' between; dimensions without one are whole. */
static bool take_box(const char **at, int ndim, const int64_t *shape, rsd_box *out)
{
    int     d = 0;
    int64_t end, step;

    *out = (rsd_box){ .ndim = ndim };
    memcpy(out->len, shape, (size_t)ndim * sizeof(shape[0]));
    do {
        if (d == ndim || !take_number(at, 0, &out->off[d]) || !take_char(at, ',') ||
            !take_number(at, shape[d], &end) || !take_char(at, ',') || !take_number(at, 1, &step) ||
            step != 1 || out->off[d] > end || end > shape[d])
            return false;
        out->len[d] = end - out->off[d];
        d++;
    } while (take_char(at, '|'));
    return true;
}

/* "(64, 32)", "(64,)", "(np.int64(64), 32)" */
static bool take_shape(const char *at, int ndim, int64_t *out)
{
    bool good = take_char(&at, '(');

    for (int d = 0; d < ndim && good; d++) {
        bool wrapped = strncmp(at, "np.int", 6) == 0 && strchr(at, '(');

        at = wrapped ? strchr(at, '(') + 1 : at;
        good = take_number(&at, -1, &out[d]) && out[d] >= 0 && (!wrapped || take_char(&at, ')')) &&
               (take_char(&at, ',') || d == ndim - 1);
        take_char(&at, ' ');
    }
    return good && strcmp(at, ")") == 0;
}

/* Rows of the file's tensor, or all of it: other parts don't lie in one piece. */
static bool set_part(const rsi_st_tensor *all, const int64_t *shape, const rsd_box *local,
                     rsi_st_tensor *out)
{
    const uint64_t row = shape[0] > 0 ? (all->end - all->begin) / (uint64_t)shape[0] : 0;

    for (int d = 1; d < local->ndim; d++)
        if (local->len[d] != shape[d])
            return false;
    *out = *all;
    out->begin = all->begin + (uint64_t)local->off[0] * row;
    out->end = out->begin + (uint64_t)local->len[0] * row;
    return true;
}

/* The arrays that replace those of a header with one tensor. */
typedef struct cut {
    rsi_st_tensor *part;              /* [n] */
    int64_t       *len, *off, *whole; /* [n * ndim] */
    size_t         n;
} cut;

static rsd_err cut_tensor(const rsi_st_header *header, const char *slices, const char *size, cut *c,
                          rsd_error *err)
{
    const rsi_st_tensor *all = &header->tensor[0];
    const int64_t       *shape = rsi_st_shape(header, all);
    const char          *at = slices;
    int64_t              whole[RSD_MAX_NDIM];

    if (all->ndim == 0 || !size || !take_shape(size, all->ndim, whole))
        return rsi_fail(err, RSD_E_FORMAT, "its " SHAPE " is not the shape of its tensor's whole");
    for (size_t i = 0; i < c->n; i++) {
        const size_t first = i * all->ndim, bytes = all->ndim * sizeof(int64_t);
        rsd_box      local, global;

        if (!take_box(&at, all->ndim, shape, &local) || !take_char(&at, '#') ||
            !take_box(&at, all->ndim, whole, &global) || (*at && !take_char(&at, ';')) ||
            memcmp(local.len, global.len, bytes) != 0)
            return rsi_fail(err, RSD_E_FORMAT, SLICES " are not understood: \"%.80s\"", slices);
        if (!set_part(all, shape, &local, &c->part[i]))
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            SLICES " cut another dimension than the first into several parts");
        c->part[i].shape = (uint32_t)first;
        memcpy(c->len + first, local.len, bytes);
        memcpy(c->off + first, global.off, bytes);
        memcpy(c->whole + first, whole, bytes);
    }
    return RSD_OK;
}

static rsd_err replace(rsi_st_header *header, rsi_st_dcp *dcp, const char *slices, const char *size,
                       rsd_error *err)
{
    const size_t ndim = header->tensor[0].ndim;
    cut          c = { .n = 1 };
    rsd_err      rc;

    for (const char *at = slices; *at; at++)
        c.n += *at == ';';
    if (c.n > MOST_PARTS)
        return rsi_fail(err, RSD_E_UNSUPPORTED, SLICES " list %zu parts", c.n);
    c.part = rsi_calloc(c.n, sizeof(c.part[0]));
    c.len = rsi_calloc(c.n * ndim, sizeof(c.len[0]));
    c.off = rsi_calloc(c.n * ndim, sizeof(c.off[0]));
    c.whole = rsi_calloc(c.n * ndim, sizeof(c.whole[0]));
    rc = c.part && c.len && c.off && c.whole ? cut_tensor(header, slices, size, &c, err)
                                             : no_memory(err);
    if (rc) {
        rsi_free(c.part);
        rsi_free(c.len);
        rsi_free(c.off);
        rsi_free(c.whole);
        return rc;
    }
    rsi_free(header->tensor);
    rsi_free(header->dim);
    rsi_free(header->order);
    header->order = NULL;
    header->tensor = c.part;
    header->ntensors = c.n;
    header->dim = c.len;
    header->ndims = c.n * ndim;
    *dcp = (rsi_st_dcp){ .sharded = true, .off = c.off, .whole = c.whole };
    return RSD_OK;
}

rsd_err rsi_nanotron_parts(const char *path, rsi_st_header *header, rsi_st_dcp *dcp, rsd_error *err)
{
    const rsi_st_meta *slices = rsi_st_meta_find(header, SLICES);
    const rsi_st_meta *size = rsi_st_meta_find(header, SHAPE);
    rsd_err            rc;

    if (header->ntensors != 1 || header->nlisted > 0 ||
        strcmp(header->tensor[0].name.text, "data") != 0)
        return rsi_fail(err, RSD_E_FORMAT, "it does not hold one tensor with the name \"data\"");
    rc = name_of(path, &header->mem, &header->tensor[0].name, err);
    if (rc)
        return rc;
    if (slices)
        return replace(header, dcp, slices->value, size ? size->value : NULL, err);
    dcp->off = rsi_calloc(header->ndims, sizeof(dcp->off[0]));
    return dcp->off ? RSD_OK : no_memory(err);
}
