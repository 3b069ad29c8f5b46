/* SPDX-License-Identifier: Apache-2.0 */
/* From records to the table of a checkpoint: which row of storage_data belongs to which chunk, and
 * whether everything is consistent. Equal text and equal offsets have equal numbers, so lookups are
 * arrays. dcp_meta_extra.c adds planner_data and the rest. */
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/dcp_meta_core.h"

/* Arrays over the pickle's shared text and integer tuples; 0: not seen. */
typedef struct linking {
    const dcp_reading *r;
    rsi_dcp_meta      *meta;
    uint32_t          *name;         /* tensor + 1, or item + 1 with IS_ITEM */
    uint32_t          *file;         /* file + 1 */
    uint32_t          *stamp;        /* tensor + 1 of the tensor with a chunk at this offset */
    uint32_t          *chunk;        /* and that chunk */
    uint32_t          *row_info;     /* [nrows] rows grouped by tensor: their info */
    rsi_pv            *row_offset;   /* [nrows] and their offset */
    size_t            *first_row;    /* [ntensors + 1] */
    uint32_t          *first_listed; /* [ntensors] the tensor's first chunk in r->listed */
} linking;

#define IS_ITEM UINT32_C(0x80000000)

rsd_err rsi_dcp_no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the table of a checkpoint");
}

rsd_err rsi_dcp_text(const dcp_reading *r, rsi_pv v, rsi_dcp_meta *meta, const char **out,
                     rsd_error *err)
{
    size_t       len = 0;
    const char  *text = rsi_pickle_bytes(r->p, v, &len);
    const char **copy;

    if (rsi_pickle_kind_of(r->p, v) != RSI_PICKLE_STR)
        return rsi_fail(err, RSD_E_FORMAT, "expected a str, found something else");
    if (memchr(text, '\0', len))
        return rsi_fail(err, RSD_E_FORMAT, "NUL in the name \"%s\"", text);
    copy = &r->copied[rsi_pickle_shared(v)];
    if (!*copy)
        *copy = rsi_arena_text(&meta->mem, text, len);
    if (!*copy)
        return rsi_dcp_no_memory(err);
    *out = *copy;
    return RSD_OK;
}

/* "[0, 16]" */
static const char *ints_text(int n, const int64_t *x, char *buf, size_t cap)
{
    rsi_text text = rsi_text_begin(buf, cap);

    rsi_text_add(&text, "[");
    for (int i = 0; i < n; i++)
        rsi_text_add(&text, "%s%" PRId64, i ? ", " : "", x[i]);
    rsi_text_add(&text, "]");
    return buf;
}

static const char *pv_text(const rsi_pickle *p, rsi_pv v, char *buf, size_t cap)
{
    int64_t x[RSD_MAX_NDIM];
    int     n = rsi_pickle_ints(p, v, x, RSD_MAX_NDIM);

    return ints_text(n < RSD_MAX_NDIM ? n : RSD_MAX_NDIM, x, buf, cap);
}

/* The pairs of a dict or OrderedDict; false if it is neither. */
static bool pairs_of(const dcp_reading *r, rsi_pv v, rsi_pickle_iter *it, size_t *n)
{
    if (v != NO_VALUE && rsi_pickle_kind_of(r->p, v) == RSI_PICKLE_OBJECT) {
        rsi_pickle_object object = rsi_pickle_object_of(r->p, v);

        if (object.id != CLS_ORDERED_DICT)
            return false;
        v = object.items;
        if (rsi_pickle_kind_of(r->p, v) == RSI_PICKLE_GONE) { /* empty */
            *it = (rsi_pickle_iter){ 0 };
            *n = 0;
            return true;
        }
    }
    if (v == NO_VALUE || rsi_pickle_kind_of(r->p, v) != RSI_PICKLE_DICT)
        return false;
    *it = rsi_pickle_each(r->p, v);
    *n = rsi_pickle_count(r->p, v) / 2;
    return true;
}

/* ---- Names, dtypes and shapes ---- */

static rsd_err set_dtype(const dcp_reading *r, rsi_dcp_tensor *t, const properties_record *from,
                         rsd_error *err)
{
    const char *module, *name;
    int         id = rsi_pickle_class_of(r->p, from->dtype, &module, &name);

    if (id != CLS_TORCH || rsd_dtype_parse(name, &t->dtype, NULL))
        return rsi_fail(err, RSD_E_UNSUPPORTED, "the dtype \"%s.%s\" is not supported", module,
                        name);
    t->requires_grad = from->requires_grad;
    return RSD_OK;
}

static rsd_err set_tensor(linking *l, rsi_dcp_tensor *t, const tensor_record *from, rsd_error *err)
{
    const properties_record *properties = l->r->properties.at;
    int64_t                  size[RSD_MAX_NDIM], bytes, *shape;
    char                     text[256];
    rsd_err                  rc = set_dtype(l->r, t, &properties[from->properties], err);

    if (rc)
        return rc;
    t->ndim = rsi_pickle_ints(l->r->p, from->size, size, RSD_MAX_NDIM);
    if (t->ndim > RSD_MAX_NDIM)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "%d dimensions, the limit is %d", t->ndim,
                        RSD_MAX_NDIM);
    for (int d = 0; d < t->ndim; d++)
        if (size[d] < 0)
            return rsi_fail(err, RSD_E_FORMAT, "the shape %s has a negative size",
                            ints_text(t->ndim, size, text, sizeof(text)));
    if (!rsi_product(t->ndim, size, (int64_t)rsd_dtype_size(t->dtype), &bytes))
        return rsi_fail(err, RSD_E_FORMAT, "the shape %s is too large",
                        ints_text(t->ndim, size, text, sizeof(text)));
    shape = rsi_arena_array(&l->meta->mem, (size_t)t->ndim, sizeof(size[0]));
    if (!shape)
        return rsi_dcp_no_memory(err);
    memcpy(shape, size, (size_t)t->ndim * sizeof(size[0]));
    t->shape = shape;
    t->first = l->meta->nchunks;
    t->nchunks = from->n;
    l->first_listed[t - l->meta->tensor] = from->first;
    l->meta->nchunks += from->n;
    if (l->meta->nchunks > l->r->size)
        return rsi_fail(err, RSD_E_FORMAT, "more chunks are listed than the file has bytes");
    return RSD_OK;
}

/* One entry of state_dict_metadata. */
static rsd_err add_name(linking *l, rsi_pv key, rsi_pv v, rsd_error *err)
{
    const tensor_record *tensor = l->r->tensor.at;
    rsi_dcp_meta        *meta = l->meta;
    uint32_t             record, *name;
    const char          *text = NULL;
    rsd_err              rc = rsi_dcp_text(l->r, key, meta, &text, err);

    if (rc)
        return rc;
    name = &l->name[rsi_pickle_shared(key)];
    if (*name)
        return rsi_fail(err, RSD_E_FORMAT, "\"%s\" is a duplicate", text);
    if (is_record(v, REC_TENSOR, &record)) {
        rsi_dcp_tensor *t = &meta->tensor[meta->ntensors];

        t->name = text;
        rc = set_tensor(l, t, &tensor[record], err);
        *name = (uint32_t)++meta->ntensors;
        return rc ? rsi_while(err, rc, "tensor \"%s\"", text) : RSD_OK;
    }
    if (rsi_pickle_object_of(l->r->p, v).id != CLS_BYTES)
        return rsi_fail(err, RSD_E_FORMAT, "\"%s\" is neither a tensor nor bytes", text);
    meta->item[meta->nitems] = (rsi_dcp_item){ .name = text, .row = { .file = UINT32_MAX } };
    *name = (uint32_t)++meta->nitems | IS_ITEM;
    return RSD_OK;
}

static rsd_err add_names(linking *l, rsi_pv dict, rsd_error *err)
{
    rsi_pickle_iter it, count;
    rsi_pv          key, v;
    size_t          n, ntensors = 0;
    uint32_t        record;
    rsd_err         rc = RSD_OK;

    if (!pairs_of(l->r, dict, &it, &n))
        return rsi_fail(err, RSD_E_FORMAT, "state_dict_metadata is missing or not a dict");
    count = it;
    while (rsi_pickle_next(l->r->p, &count, &key) && rsi_pickle_next(l->r->p, &count, &v))
        ntensors += is_record(v, REC_TENSOR, &record);
    l->meta->tensor = rsi_arena_array(&l->meta->mem, ntensors, sizeof(l->meta->tensor[0]));
    l->meta->item = rsi_arena_array(&l->meta->mem, n - ntensors, sizeof(l->meta->item[0]));
    l->first_listed = rsi_calloc(ntensors, sizeof(l->first_listed[0]));
    if (!l->meta->tensor || !l->meta->item || !l->first_listed)
        return rsi_dcp_no_memory(err);
    while (!rc && rsi_pickle_next(l->r->p, &it, &key) && rsi_pickle_next(l->r->p, &it, &v))
        rc = add_name(l, key, v, err);
    return rc;
}

/* ---- Rows of storage_data ---- */

/* The table of file names, in the order in which rows first name them. */
static rsd_err add_files(linking *l, rsd_error *err)
{
    const info_record *info = l->r->info.at;
    size_t             n = 0, len;

    for (size_t i = 0; i < l->r->info.n; i++) {
        uint32_t *file = &l->file[rsi_pickle_shared(info[i].path)];

        if (*file == 0)
            *file = (uint32_t)++n;
    }
    l->meta->file = rsi_arena_array(&l->meta->mem, n, sizeof(l->meta->file[0]));
    if (!l->meta->file)
        return rsi_dcp_no_memory(err);
    for (size_t i = 0; i < l->r->info.n && l->meta->nfiles < n; i++) {
        const char *name = rsi_pickle_bytes(l->r->p, info[i].path, &len);
        rsd_err     rc;

        if (l->file[rsi_pickle_shared(info[i].path)] != l->meta->nfiles + 1)
            continue;
        rc = rsi_dcp_file_check(name, len, err);
        if (!rc)
            rc = rsi_dcp_text(l->r, info[i].path, l->meta, &l->meta->file[l->meta->nfiles], err);
        if (rc)
            return rc;
        l->meta->nfiles++;
    }
    return RSD_OK;
}

static void set_row(const linking *l, const info_record *from, rsi_dcp_row *row)
{
    *row = (rsi_dcp_row){ .file = l->file[rsi_pickle_shared(from->path)] - 1,
                          .transforms = from->transforms,
                          .offset = from->offset,
                          .length = from->length };
}

/* An item's row is set at once; a tensor's rows are counted. */
static rsd_err take_row(linking *l, const index_record *index, const info_record *info,
                        rsd_error *err)
{
    uint32_t name = l->name[rsi_pickle_shared(index->fqn)];
    char     offset[256];

    if (name == 0)
        return rsi_fail(err, RSD_E_FORMAT,
                        "storage_data has a row for \"%s\", which does not exist",
                        rsi_pickle_text(l->r->p, index->fqn));
    if (name & IS_ITEM) {
        rsi_dcp_row *row = &l->meta->item[(name & ~IS_ITEM) - 1].row;

        if (index->offset != NO_VALUE)
            return rsi_fail(err, RSD_E_FORMAT,
                            "storage_data has a row at %s for \"%s\", which is not a tensor",
                            pv_text(l->r->p, index->offset, offset, sizeof(offset)),
                            rsi_pickle_text(l->r->p, index->fqn));
        if (row->file != UINT32_MAX)
            return rsi_fail(err, RSD_E_FORMAT, "storage_data has two rows for \"%s\"",
                            rsi_pickle_text(l->r->p, index->fqn));
        set_row(l, info, row);
        return RSD_OK;
    }
    if (index->offset == NO_VALUE)
        return rsi_fail(err, RSD_E_FORMAT,
                        "storage_data has a row without offset for the tensor \"%s\"",
                        rsi_pickle_text(l->r->p, index->fqn));
    l->first_row[name]++;
    return RSD_OK;
}

/* Counts the rows of each tensor, then groups them. */
static rsd_err group_rows(linking *l, rsi_pv dict, rsd_error *err)
{
    const index_record *index = l->r->index.at;
    const info_record  *info = l->r->info.at;
    rsi_pickle_iter     it, again;
    rsi_pv              key, v;
    uint32_t            i = 0, j = 0;
    size_t              n, nt = l->meta->ntensors;
    rsd_err             rc = RSD_OK;

    if (!pairs_of(l->r, dict, &it, &n))
        return rsi_fail(err, RSD_E_FORMAT, "storage_data is missing or not a dict");
    l->first_row = rsi_calloc(nt + 2, sizeof(l->first_row[0]));
    l->row_info = rsi_calloc(n, sizeof(l->row_info[0]));
    l->row_offset = rsi_calloc(n, sizeof(l->row_offset[0]));
    if (!l->first_row || !l->row_info || !l->row_offset)
        return rsi_dcp_no_memory(err);
    again = it;
    while (!rc && rsi_pickle_next(l->r->p, &it, &key) && rsi_pickle_next(l->r->p, &it, &v)) {
        if (!is_record(key, REC_INDEX, &i) || !is_record(v, REC_INFO, &j))
            return rsi_fail(err, RSD_E_FORMAT, "storage_data has a row of the wrong type");
        rc = take_row(l, &index[i], &info[j], err);
    }
    if (rc)
        return rc;
    for (size_t t = 0; t < nt; t++)
        l->first_row[t + 1] += l->first_row[t];
    while (rsi_pickle_next(l->r->p, &again, &key) && rsi_pickle_next(l->r->p, &again, &v)) {
        uint32_t name;
        size_t   at;

        is_record(key, REC_INDEX, &i);
        is_record(v, REC_INFO, &j);
        name = l->name[rsi_pickle_shared(index[i].fqn)];
        if (name & IS_ITEM)
            continue;
        at = l->first_row[name - 1]++;
        l->row_info[at] = j;
        l->row_offset[at] = index[i].offset;
    }
    /* Each start has moved to the next tensor's; move them back. */
    memmove(l->first_row + 1, l->first_row, nt * sizeof(l->first_row[0]));
    l->first_row[0] = 0;
    return RSD_OK;
}

/* ---- Chunks ---- */

static rsd_err set_box(const linking *l, const rsi_dcp_tensor *t, const chunk_record *from,
                       int64_t *box, rsd_error *err)
{
    char     offset[256], size[256], shape[256];
    int64_t *len = box + t->ndim;
    bool     inside = true;

    if (rsi_pickle_ints(l->r->p, from->offsets, box, t->ndim) != t->ndim ||
        rsi_pickle_ints(l->r->p, from->sizes, len, t->ndim) != t->ndim)
        return rsi_fail(err, RSD_E_FORMAT, "a chunk at %s of size %s in a tensor of %d dimensions",
                        pv_text(l->r->p, from->offsets, offset, sizeof(offset)),
                        pv_text(l->r->p, from->sizes, size, sizeof(size)), t->ndim);
    for (int d = 0; d < t->ndim; d++)
        inside = inside && box[d] >= 0 && len[d] >= 0 && box[d] <= t->shape[d] &&
                 len[d] <= t->shape[d] - box[d];
    if (!inside)
        return rsi_fail(err, RSD_E_FORMAT, "the chunk at %s of size %s lies outside the shape %s",
                        ints_text(t->ndim, box, offset, sizeof(offset)),
                        ints_text(t->ndim, len, size, sizeof(size)),
                        ints_text(t->ndim, t->shape, shape, sizeof(shape)));
    return RSD_OK;
}

/* Sets the boxes of a tensor's chunks, and notes which chunk is at which offset. */
static rsd_err set_chunks(linking *l, uint32_t number, rsd_error *err)
{
    const chunk_record *chunk = l->r->chunk.at;
    const uint32_t     *listed = l->r->listed.at;
    size_t              first = l->first_listed[number];
    rsi_dcp_tensor     *t = &l->meta->tensor[number];
    char                offset[256];

    for (size_t i = 0; i < t->nchunks; i++) {
        const chunk_record *from = &chunk[listed[first + i]];
        uint32_t            at = rsi_pickle_shared(from->offsets);
        rsd_err             rc;

        if (l->stamp[at] == number + 1)
            return rsi_fail(err, RSD_E_FORMAT, "two chunks at %s",
                            pv_text(l->r->p, from->offsets, offset, sizeof(offset)));
        l->stamp[at] = number + 1;
        l->chunk[at] = (uint32_t)i;
        rc = set_box(l, t, from, l->meta->box + t->box + i * 2 * (size_t)t->ndim, err);
        if (rc)
            return rc;
        l->meta->row[t->first + i].file = UINT32_MAX;
    }
    return RSD_OK;
}

/* Assigns each row of a tensor to its chunk. */
static rsd_err join_rows(linking *l, uint32_t number, rsd_error *err)
{
    const info_record    *info = l->r->info.at;
    const rsi_dcp_tensor *t = &l->meta->tensor[number];
    rsi_dcp_row          *row = l->meta->row + t->first;
    char                  text[256];

    for (size_t i = l->first_row[number]; i < l->first_row[number + 1]; i++) {
        uint32_t at = rsi_pickle_shared(l->row_offset[i]);

        if (l->stamp[at] != number + 1)
            return rsi_fail(err, RSD_E_FORMAT,
                            "storage_data has a row at %s, where there is no chunk",
                            pv_text(l->r->p, l->row_offset[i], text, sizeof(text)));
        if (row[l->chunk[at]].file != UINT32_MAX)
            return rsi_fail(err, RSD_E_FORMAT, "storage_data has two rows at %s",
                            pv_text(l->r->p, l->row_offset[i], text, sizeof(text)));
        set_row(l, &info[l->row_info[i]], &row[l->chunk[at]]);
    }
    for (size_t i = 0; i < t->nchunks; i++)
        if (row[i].file == UINT32_MAX)
            return rsi_fail(
                err, RSD_E_FORMAT, "the chunk at %s has no row in storage_data",
                ints_text(t->ndim, rsi_dcp_chunk_offset(l->meta, t, i), text, sizeof(text)));
    return RSD_OK;
}

static rsd_err link_chunks(linking *l, rsd_error *err)
{
    rsi_dcp_meta *meta = l->meta;
    size_t        words = 0;

    for (size_t t = 0; t < meta->ntensors; t++) {
        meta->tensor[t].box = words;
        words += meta->tensor[t].nchunks * 2 * (size_t)meta->tensor[t].ndim;
    }
    meta->box = rsi_arena_array(&meta->mem, words, sizeof(meta->box[0]));
    meta->row = rsi_arena_array(&meta->mem, meta->nchunks, sizeof(meta->row[0]));
    if (!meta->box || !meta->row)
        return rsi_dcp_no_memory(err);
    for (uint32_t t = 0; t < meta->ntensors; t++) {
        rsd_err rc = set_chunks(l, t, err);

        if (!rc)
            rc = join_rows(l, t, err);
        if (rc)
            return rsi_while(err, rc, "tensor \"%s\"", meta->tensor[t].name);
    }
    for (size_t i = 0; i < meta->nitems; i++)
        if (meta->item[i].row.file == UINT32_MAX)
            return rsi_fail(err, RSD_E_FORMAT, "\"%s\" has no row in storage_data",
                            meta->item[i].name);
    return RSD_OK;
}

rsd_err rsi_dcp_link(const dcp_reading *r, rsi_pv root, rsi_dcp_meta *meta, rsd_error *err)
{
    linking           l = { .r = r, .meta = meta };
    rsi_pickle_object object = rsi_pickle_object_of(r->p, root);
    size_t            n = rsi_pickle_nshared(r->p);
    rsi_pv            v[6];
    rsd_err           rc = RSD_OK;

    if (object.id != CLS_META || !rsi_dcp_attributes(r, object.state, KEY_TENSORS, 6, v))
        return rsi_fail(err, RSD_E_FORMAT, "the pickle holds no object of torch's class Metadata");
    l.name = rsi_calloc(n, sizeof(l.name[0]));
    l.file = rsi_calloc(n, sizeof(l.file[0]));
    l.stamp = rsi_calloc(n, sizeof(l.stamp[0]));
    l.chunk = rsi_calloc(n, sizeof(l.chunk[0]));
    if (!l.name || !l.file || !l.stamp || !l.chunk)
        rc = rsi_dcp_no_memory(err);
    if (!rc)
        rc = add_names(&l, v[0], err);
    if (!rc)
        rc = add_files(&l, err);
    if (!rc)
        rc = group_rows(&l, v[1], err);
    if (!rc)
        rc = link_chunks(&l, err);
    if (!rc)
        rc = rsi_dcp_link_extras(r, v + 2, l.name, meta, err);
    rsi_free(l.name);
    rsi_free(l.file);
    rsi_free(l.stamp);
    rsi_free(l.chunk);
    rsi_free(l.first_listed);
    rsi_free(l.first_row);
    rsi_free(l.row_info);
    rsi_free(l.row_offset);
    return rc;
}
