/* SPDX-License-Identifier: Apache-2.0 */
/* Joins the metadata that each rank wrote by itself (`__{rank}.metadata`) into one table. Ranks do
 * not communicate in that mode, so a replicated chunk is in several tables: the bytes of the first
 * are used. Whether the chunks then cover their tensors is checked elsewhere. */
#include "base/map.h"
#include "base/mem.h"
#include "format/dcp_meta.h"

#include <stdlib.h>

#define IS_ITEM ((uint64_t)1 << 63)

/* A tensor of one part, and the tensor of the result that it belongs to. */
typedef struct source_tensor {
    const rsi_dcp_meta   *part;
    const rsi_dcp_tensor *tensor;
    const uint32_t       *file, *transforms; /* from the part's numbers to the result's */
} source_tensor;

/* A chunk of one of the parts, while searching for equal ones. */
typedef struct candidate {
    const source_tensor *from;
    size_t               i; /* chunk of the tensor */
    size_t               order;
    bool                 again; /* an earlier chunk has the same offset */
} candidate;

typedef struct merging {
    size_t                     n;
    const rsi_dcp_meta *const *part;
    rsi_dcp_meta              *out;
    rsi_map                    names, files, paths;
    source_tensor             *source; /* grouped by tensor of the result */
    size_t                    *first;  /* [ntensors + 1] of `source` */
    uint32_t                 **file;   /* [n] from each part's file numbers to the result's */
    uint32_t                 **transforms;
    candidate                 *candidate;
} merging;

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory to join metadata");
}

static char *copy_text(merging *m, const char *text)
{
    return rsi_arena_text(&m->out->mem, text, strlen(text));
}

/* ---- Names ---- */

static rsd_err add_tensor(merging *m, const rsi_dcp_tensor *t, rsd_error *err)
{
    rsi_dcp_meta   *out = m->out;
    uint64_t        number = out->ntensors;
    rsi_dcp_tensor *known = &out->tensor[number];
    int64_t        *shape;
    bool            was;

    if (!rsi_map_add(&m->names, t->name, strlen(t->name), &number, &was))
        return no_memory(err);
    if (was && number & IS_ITEM)
        return rsi_fail(err, RSD_E_FORMAT, "\"%s\" is a tensor for one rank and bytes for another",
                        t->name);
    if (was) {
        known = &out->tensor[number];
        if (known->dtype != t->dtype || known->ndim != t->ndim ||
            memcmp(known->shape, t->shape, (size_t)t->ndim * sizeof(t->shape[0])) != 0)
            return rsi_fail(err, RSD_E_FORMAT,
                            "tensor \"%s\" has different dtypes or shapes on different ranks",
                            t->name);
        known->nchunks += t->nchunks;
        return RSD_OK;
    }
    shape = rsi_arena_array(&out->mem, (size_t)t->ndim, sizeof(shape[0]));
    *known = *t;
    known->name = copy_text(m, t->name);
    if (!shape || !known->name)
        return no_memory(err);
    memcpy(shape, t->shape, (size_t)t->ndim * sizeof(shape[0]));
    known->shape = shape;
    out->ntensors++;
    return RSD_OK;
}

static rsd_err add_item(merging *m, size_t part, const rsi_dcp_item *item, rsd_error *err)
{
    rsi_dcp_meta *out = m->out;
    uint64_t      number = out->nitems | IS_ITEM;
    rsi_dcp_item *new = &out->item[out->nitems];
    bool was;

    if (!rsi_map_add(&m->names, item->name, strlen(item->name), &number, &was))
        return no_memory(err);
    if (was && !(number & IS_ITEM))
        return rsi_fail(err, RSD_E_FORMAT, "\"%s\" is a tensor for one rank and bytes for another",
                        item->name);
    if (was)
        return RSD_OK;
    *new = *item;
    new->name = copy_text(m, item->name);
    if (!new->name)
        return no_memory(err);
    new->row.file = m->file[part][item->row.file];
    if (item->row.transforms != RSI_DCP_NO_TRANSFORMS)
        new->row.transforms = m->transforms[part][item->row.transforms];
    out->nitems++;
    return RSD_OK;
}

/* ---- Files and transforms ---- */

static rsd_err add_files(merging *m, size_t part, rsd_error *err)
{
    const rsi_dcp_meta *from = m->part[part];
    rsi_dcp_meta       *out = m->out;

    m->file[part] = rsi_arena_array(&out->mem, from->nfiles, sizeof(uint32_t));
    if (!m->file[part])
        return no_memory(err);
    for (size_t i = 0; i < from->nfiles; i++) {
        uint64_t number = out->nfiles;
        bool     was;

        if (!rsi_map_add(&m->files, from->file[i], strlen(from->file[i]), &number, &was))
            return no_memory(err);
        m->file[part][i] = (uint32_t)number;
        if (was)
            continue;
        out->file[out->nfiles] = copy_text(m, from->file[i]);
        if (!out->file[out->nfiles++])
            return no_memory(err);
    }
    return RSD_OK;
}

static bool same_transforms(const rsi_dcp_transforms *a, const rsi_dcp_transforms *b)
{
    bool same = a->n == b->n;

    for (size_t i = 0; i < a->n && same; i++)
        same = strcmp(a->name[i], b->name[i]) == 0;
    return same;
}

static rsd_err add_transforms(merging *m, size_t part, rsd_error *err)
{
    const rsi_dcp_meta *from = m->part[part];
    rsi_dcp_meta       *out = m->out;

    m->transforms[part] = rsi_arena_array(&out->mem, from->ntransforms, sizeof(uint32_t));
    if (!m->transforms[part])
        return no_memory(err);
    for (size_t i = 0; i < from->ntransforms; i++) {
        const rsi_dcp_transforms *list = &from->transforms[i];
        const char              **name;
        size_t                    k = 0;

        while (k < out->ntransforms && !same_transforms(&out->transforms[k], list))
            k++;
        m->transforms[part][i] = (uint32_t)k;
        if (k < out->ntransforms)
            continue;
        name = rsi_arena_array(&out->mem, list->n, sizeof(name[0]));
        if (!name)
            return no_memory(err);
        out->transforms[out->ntransforms++] = (rsi_dcp_transforms){ .n = list->n, .name = name };
        for (size_t s = 0; s < list->n; s++) {
            name[s] = copy_text(m, list->name[s]);
            if (!name[s])
                return no_memory(err);
        }
    }
    return RSD_OK;
}

/* ---- planner_data ---- */

static rsd_err add_path(merging *m, const rsi_dcp_path *path, rsd_error *err)
{
    rsi_dcp_meta *out = m->out;
    rsi_dcp_part *part;
    uint64_t      number = 0;
    bool          was;

    if (!rsi_map_add(&m->paths, path->name, strlen(path->name), &number, &was))
        return no_memory(err);
    if (was)
        return RSD_OK;
    part = rsi_arena_array(&out->mem, path->nparts, sizeof(part[0]));
    if (!part)
        return no_memory(err);
    for (size_t i = 0; i < path->nparts; i++) {
        part[i] = path->part[i];
        if (part[i].key)
            part[i].key = copy_text(m, part[i].key);
        if (path->part[i].key && !part[i].key)
            return no_memory(err);
    }
    out->path[out->npaths] = (rsi_dcp_path){ copy_text(m, path->name), part, path->nparts };
    return out->path[out->npaths++].name ? RSD_OK : no_memory(err);
}

/* ---- Chunks ---- */

static int by_offset(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    const int64_t   *p = rsi_dcp_chunk_offset(x->from->part, x->from->tensor, x->i);
    const int64_t   *q = rsi_dcp_chunk_offset(y->from->part, y->from->tensor, y->i);

    for (int d = 0; d < x->from->tensor->ndim; d++)
        if (p[d] != q[d])
            return p[d] < q[d] ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static int by_order(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    return (x->order > y->order) - (x->order < y->order);
}

/* Marks chunks that an earlier part also has; equal offsets with different sizes are an error. */
static rsd_err mark_again(candidate *c, size_t n, rsd_error *err)
{
    if (n)
        qsort(c, n, sizeof(c[0]), by_offset);
    for (size_t i = 1; i < n; i++) {
        const rsi_dcp_tensor *t = c[i].from->tensor, *u = c[i - 1].from->tensor;
        size_t                bytes = (size_t)t->ndim * sizeof(int64_t);

        if (memcmp(rsi_dcp_chunk_offset(c[i].from->part, t, c[i].i),
                   rsi_dcp_chunk_offset(c[i - 1].from->part, u, c[i - 1].i), bytes) != 0)
            continue;
        if (memcmp(rsi_dcp_chunk_size(c[i].from->part, t, c[i].i),
                   rsi_dcp_chunk_size(c[i - 1].from->part, u, c[i - 1].i), bytes) != 0)
            return rsi_fail(err, RSD_E_FORMAT,
                            "tensor \"%s\": two ranks have chunks of different sizes at one offset",
                            t->name);
        c[i].again = true;
    }
    if (n)
        qsort(c, n, sizeof(c[0]), by_order);
    return RSD_OK;
}

static void put_chunk(rsi_dcp_meta *out, rsi_dcp_tensor *t, const candidate *c)
{
    const source_tensor *from = c->from;
    size_t               bytes = 2 * (size_t)t->ndim * sizeof(out->box[0]);
    rsi_dcp_row         *row = &out->row[out->nchunks];

    *row = from->part->row[from->tensor->first + c->i];
    row->file = from->file[row->file];
    if (row->transforms != RSI_DCP_NO_TRANSFORMS)
        row->transforms = from->transforms[row->transforms];
    memcpy(out->box + t->box + t->nchunks * 2 * (size_t)t->ndim,
           rsi_dcp_chunk_offset(from->part, from->tensor, c->i), bytes);
    t->nchunks++;
    out->nchunks++;
}

static rsd_err join_chunks(merging *m, size_t tensor, size_t *box, rsd_error *err)
{
    rsi_dcp_tensor *t = &m->out->tensor[tensor];
    size_t          n = 0;
    rsd_err         rc;

    for (size_t s = m->first[tensor]; s < m->first[tensor + 1]; s++)
        for (size_t i = 0; i < m->source[s].tensor->nchunks; i++, n++)
            m->candidate[n] = (candidate){ .from = &m->source[s], .i = i, .order = n };
    rc = mark_again(m->candidate, n, err);
    if (rc)
        return rc;
    t->first = m->out->nchunks;
    t->nchunks = 0;
    t->box = *box;
    for (size_t i = 0; i < n; i++)
        if (!m->candidate[i].again)
            put_chunk(m->out, t, &m->candidate[i]);
    *box += t->nchunks * 2 * (size_t)t->ndim;
    return RSD_OK;
}

/* The parts' tensors, grouped by the tensor of the result that they belong to. */
static void group_sources(merging *m)
{
    uint64_t number = 0;

    for (size_t p = 0; p < m->n; p++)
        for (size_t t = 0; t < m->part[p]->ntensors; t++) {
            const rsi_dcp_tensor *from = &m->part[p]->tensor[t];

            rsi_map_get(&m->names, from->name, strlen(from->name), &number);
            m->source[m->first[number]++] = (source_tensor){ .part = m->part[p],
                                                             .tensor = from,
                                                             .file = m->file[p],
                                                             .transforms = m->transforms[p] };
        }
    /* Each start has moved to the next tensor's; move them back. */
    memmove(m->first + 1, m->first, m->out->ntensors * sizeof(m->first[0]));
    m->first[0] = 0;
}

static rsd_err join_tensors(merging *m, size_t nsources, rsd_error *err)
{
    rsi_dcp_meta *out = m->out;
    size_t        rows = 0, words = 0, most = 0, box = 0;
    uint64_t      number = 0;
    rsd_err       rc = RSD_OK;

    for (size_t t = 0; t < out->ntensors; t++) {
        rows += out->tensor[t].nchunks;
        words += out->tensor[t].nchunks * 2 * (size_t)out->tensor[t].ndim;
        most = out->tensor[t].nchunks > most ? out->tensor[t].nchunks : most;
    }
    m->source = rsi_calloc(nsources, sizeof(m->source[0]));
    m->first = rsi_calloc(out->ntensors + 2, sizeof(m->first[0]));
    m->candidate = rsi_calloc(most, sizeof(m->candidate[0]));
    out->box = rsi_arena_array(&out->mem, words, sizeof(out->box[0]));
    out->row = rsi_arena_array(&out->mem, rows, sizeof(out->row[0]));
    if (!m->source || !m->first || !m->candidate || !out->box || !out->row)
        return no_memory(err);
    for (size_t p = 0; p < m->n; p++)
        for (size_t t = 0; t < m->part[p]->ntensors; t++) {
            const char *name = m->part[p]->tensor[t].name;

            rsi_map_get(&m->names, name, strlen(name), &number);
            m->first[number + 1]++;
        }
    for (size_t t = 0; t < out->ntensors; t++)
        m->first[t + 1] += m->first[t];
    group_sources(m);
    for (size_t t = 0; t < out->ntensors && !rc; t++)
        rc = join_chunks(m, t, &box, err);
    return rc;
}

/* ---- The whole ---- */

static rsd_err take_lists(merging *m, size_t *nsources, rsd_error *err)
{
    rsi_dcp_meta *out = m->out;
    size_t        items = 0, files = 0, lists = 0, paths = 0;

    for (size_t p = 0; p < m->n; p++) {
        *nsources += m->part[p]->ntensors;
        items += m->part[p]->nitems;
        files += m->part[p]->nfiles;
        lists += m->part[p]->ntransforms;
        paths += m->part[p]->npaths;
    }
    /* `tensor` has one element more, so that a pointer to the next tensor is always valid. */
    out->tensor = rsi_arena_array(&out->mem, *nsources + 1, sizeof(out->tensor[0]));
    out->item = rsi_arena_array(&out->mem, items + 1, sizeof(out->item[0]));
    out->file = rsi_arena_array(&out->mem, files, sizeof(out->file[0]));
    out->transforms = rsi_arena_array(&out->mem, lists, sizeof(out->transforms[0]));
    out->path = rsi_arena_array(&out->mem, paths, sizeof(out->path[0]));
    m->file = rsi_calloc(m->n, sizeof(m->file[0]));
    m->transforms = rsi_calloc(m->n, sizeof(m->transforms[0]));
    if (!out->tensor || !out->item || !out->file || !out->transforms || !out->path || !m->file ||
        !m->transforms)
        return no_memory(err);
    return RSD_OK;
}

static rsd_err take_ids(merging *m, const rsi_dcp_meta *from, rsd_error *err)
{
    const char  *have[] = { from->checkpoint_id, from->save_id, from->version };
    const char **want[] = { &m->out->checkpoint_id, &m->out->save_id, &m->out->version };

    for (int i = 0; i < 3; i++)
        if (have[i] && !*want[i]) {
            *want[i] = copy_text(m, have[i]);
            if (!*want[i])
                return no_memory(err);
        }
    return RSD_OK;
}

static rsd_err add_part(merging *m, size_t p, rsd_error *err)
{
    const rsi_dcp_meta *from = m->part[p];
    rsd_err             rc = add_files(m, p, err);

    if (!rc)
        rc = add_transforms(m, p, err);
    if (!rc)
        rc = take_ids(m, from, err);
    for (size_t i = 0; i < from->ntensors && !rc; i++)
        rc = add_tensor(m, &from->tensor[i], err);
    for (size_t i = 0; i < from->nitems && !rc; i++)
        rc = add_item(m, p, &from->item[i], err);
    for (size_t i = 0; i < from->npaths && !rc; i++)
        rc = add_path(m, &from->path[i], err);
    m->out->has_paths = m->out->has_paths || from->has_paths;
    return rc;
}

rsd_err rsi_dcp_meta_merge(size_t n, const rsi_dcp_meta *const *part, rsi_dcp_meta **out,
                           rsd_error *err)
{
    merging m = { .n = n, .part = part };
    size_t  nsources = 0;
    rsd_err rc;

    m.out = rsi_calloc(1, sizeof(*m.out));
    rc = m.out ? take_lists(&m, &nsources, err) : no_memory(err);
    for (size_t p = 0; p < n && !rc; p++)
        rc = add_part(&m, p, err);
    if (!rc)
        rc = join_tensors(&m, nsources, err);
    rsi_map_release(&m.names);
    rsi_map_release(&m.files);
    rsi_map_release(&m.paths);
    rsi_free(m.source);
    rsi_free(m.first);
    rsi_free(m.file);
    rsi_free(m.transforms);
    rsi_free(m.candidate);
    if (rc)
        rsi_dcp_meta_free(m.out);
    else
        *out = m.out;
    return rc;
}
