/* SPDX-License-Identifier: Apache-2.0 */
/* Opens safetensors: one file, a Hugging Face folder with its index, or the files of many ranks,
 * where a tensor consists of parts (DCP_SHARDING_INFO). Whole tensors are answered straight from
 * the headers, so a million of them need no second table. */
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/st_dcp.h"
#include "format/st_header.h"
#include "format/st_index.h"
#include "format/st_listed.h"
#include "format/st_meta.h"
#include "format/st_nanotron.h"
#include "format/torch_archive.h"
#include "format/weights.h"
#include "shape/box.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { REPLICA_BLOCK = 256 << 10 }; /* bytes compared at a time */

typedef struct st_file {
    uint32_t      number; /* in ckpt->files */
    char         *json;
    rsi_st_header header;
    rsi_st_dcp    dcp;
    bool          lost; /* its header is unreadable */
} st_file;

typedef struct st {
    st_file      *file; /* [n] */
    size_t        n, most;
    size_t       *first; /* [n + 1] whole tensors: number of each file's first one */
    bool          indexed;
    uint32_t      index;  /* number of the index in ckpt->files */
    bool          joined; /* `all` has the tensors */
    rsi_st_joined all;
    rsi_map       names; /* of the tensors in `all` */
    rsi_st_listed listed;
} st;

static rsd_err read_header(rsd_ckpt *ckpt, st_file *file, rsd_error *err)
{
    unsigned char prefix[RSI_ST_PREFIX];
    uint64_t      size = ckpt->files.file[file->number]->size;
    size_t        len;
    rsd_err       rc;

    if (size < sizeof(prefix))
        return rsi_fail(err, RSD_E_FORMAT, "it has %" PRIu64 " bytes, but a header needs 8", size);
    rc = rsi_files_read(&ckpt->files, file->number, 0, prefix, sizeof(prefix), err);
    if (!rc)
        rc = rsi_st_length(prefix, size, &len, err);
    if (rc)
        return rc;
    file->json = rsi_calloc(len + 1, 1);
    if (!file->json)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a header of %zu bytes", len);
    rc = rsi_files_read(&ckpt->files, file->number, sizeof(prefix), file->json, len, err);
    if (!rc)
        rc = rsi_st_parse_cut(file->json, len, size, ckpt->salvage, &file->header, err);
    return rc ? rc : rsi_st_dcp_read(&file->header, &file->dcp, err);
}

/* Keeps the reason why a header can't be read, for the report of what is damaged. */
static rsd_err note_broken(rsd_ckpt *ckpt, const st *s, const rsd_error *why, rsd_error *err)
{
    if (!ckpt->broken)
        ckpt->broken = rsi_arena_array(&ckpt->mem, s->most, sizeof(ckpt->broken[0]));
    if (!ckpt->broken)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", s->most);
    ckpt->broken[ckpt->nbroken++] = *why;
    return RSD_OK;
}

static rsd_err add_file(rsd_ckpt *ckpt, st *s, const char *name, rsd_error *err)
{
    st_file  *file = &s->file[s->n];
    rsd_error why = { .rank = -1 };
    rsd_err   rc = RSD_OK;

    if (name)
        rc = rsi_files_add(&ckpt->files, name, true, &file->number, err);
    if (rc)
        return rc;
    s->n++;
    rc = read_header(ckpt, file, &why);
    if (!rc)
        return RSD_OK;
    rsi_while(&why, rc, "file \"%s\"", rsi_files_name(&ckpt->files, file->number));
    if (rc != RSD_E_NOMEM && ckpt->salvage &&
        (s->indexed || ckpt->files.file[file->number]->missing)) {
        file->lost = true; /* an index still has the names of its tensors */
        return ckpt->files.file[file->number]->missing ? RSD_OK : note_broken(ckpt, s, &why, err);
    }
    if (err)
        *err = why;
    return rc;
}

/* ---- the index and the files must agree ---- */

static rsd_err note_lost(rsd_ckpt *ckpt, const rsi_st_weight *w, size_t most, rsd_error *err)
{
    char *name = rsi_arena_text(&ckpt->mem, w->name.text, w->name.len);

    if (!ckpt->lost)
        ckpt->lost = rsi_arena_array(&ckpt->mem, most, sizeof(ckpt->lost[0]));
    if (!name || !ckpt->lost)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the names of %zu tensors", most);
    ckpt->lost[ckpt->nlost++] = name;
    return RSD_OK;
}

static rsd_err check_index(rsd_ckpt *ckpt, const st *s, const rsi_st_index *index, rsd_error *err)
{
    size_t  held = 0; /* tensors that the index lists: files may have more */
    rsd_err rc = RSD_OK;

    for (size_t f = 0; f < s->n; f++) {
        const rsi_st_header *header = &s->file[f].header;

        for (size_t i = 0; i < header->ntensors + header->nlisted; i++) {
            const rsi_name *name = &header->tensor[i].name;
            const char     *where = rsi_st_index_file(index, name->text, name->len);

            held += where != NULL;
            if (where && strcmp(where, index->file[f]) != 0)
                return rsi_fail(err, RSD_E_FORMAT,
                                "tensor \"%s\" is in file \"%s\", the index says \"%s\"",
                                name->text, index->file[f], where);
        }
    }
    if (held == index->nweights)
        return RSD_OK;
    for (size_t i = 0; i < index->nweights && !rc; i++) {
        const rsi_st_weight *w = &index->weight[i];

        if (s->file[w->file].lost)
            rc = note_lost(ckpt, w, index->nweights, err);
        else if (!rsi_st_find(&s->file[w->file].header, w->name.text, w->name.len))
            return rsi_fail(err, RSD_E_FORMAT,
                            "the index says that tensor \"%s\" is in file \"%s\", but it is not",
                            w->name.text, index->file[w->file]);
    }
    return rc;
}

static rsd_err open_indexed(rsd_ckpt *ckpt, st *s, const char *name, rsd_error *err)
{
    rsi_st_index index = { 0 };
    rsd_err      rc = rsi_st_index_load(&ckpt->files, name, &s->index, &index, err);

    s->indexed = true;
    if (!rc) {
        s->most = index.nfiles;
        s->file = rsi_arena_array(&ckpt->mem, s->most, sizeof(s->file[0]));
        rc = s->file ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", index.nfiles);
    }
    for (size_t i = 0; i < index.nfiles && !rc; i++)
        rc = add_file(ckpt, s, index.file[i], err);
    if (!rc)
        rc = check_index(ckpt, s, &index, err);
    rsi_st_index_release(&index);
    return rc;
}

/* Without an index nothing tells which tensors a missing file of a numbered set had. */
static rsd_err tell_missing(rsd_ckpt *ckpt, const st *s, rsd_error *err)
{
    enum { LEN = 64 };
    size_t missing = 0;
    char  *kind;

    for (size_t i = 0; i < s->n; i++)
        missing += s->file[i].lost;
    if (missing == 0)
        return RSD_OK;
    kind = rsi_arena_array(&ckpt->mem, LEN, 1);
    if (!kind)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", s->n);
    snprintf(kind, LEN, "%zu of %zu files missing", missing, s->n);
    ckpt->kind = kind;
    return RSD_OK;
}

static rsd_err open_all(rsd_ckpt *ckpt, st *s, char **names, size_t n, rsd_error *err)
{
    rsd_err rc =
        rsi_weights_choose(names, n, ".safetensors", &ckpt->mem, &names, &n, &ckpt->kind, err);

    if (rc)
        return rc;
    s->most = n;
    s->file = rsi_arena_array(&ckpt->mem, n, sizeof(s->file[0]));
    if (!s->file)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", n);
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_file(ckpt, s, names[i], err);
    s->joined = s->n > 1;
    return rc ? rc : tell_missing(ckpt, s, err);
}

static rsd_err open_nanotron(rsd_ckpt *ckpt, st *s, rsd_error *err)
{
    char  **names;
    size_t  n;
    rsd_err rc = rsi_nanotron_list(&ckpt->files, &names, &n, err);

    if (rc)
        return rc;
    ckpt->kind = "nanotron, its optimizer's state is in the folder optimizer";
    s->joined = true;
    s->file = rsi_arena_array(&ckpt->mem, n, sizeof(s->file[0]));
    if (!s->file)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", n);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = add_file(ckpt, s, names[i], err);
        if (rc)
            return rc;
        rsi_st_dcp_release(&s->file[i].dcp);
        rc = rsi_nanotron_parts(names[i], &s->file[i].header, &s->file[i].dcp, err);
        s->file[i].header.nmeta = 0; /* of the part, not of the checkpoint */
        if (rc)
            rsi_while(err, rc, "file \"%s\"", names[i]);
    }
    return rc;
}

static rsd_err open_folder(rsd_ckpt *ckpt, st *s, rsd_error *err)
{
    char      **names;
    size_t      n;
    const char *index = NULL;
    rsd_err     rc = rsi_files_list(&ckpt->files, &names, &n, err);

    if (!rc && !ckpt->files.index && rsi_nanotron_is(names, n))
        return open_nanotron(ckpt, s, err);
    if (!rc)
        rc = rsi_st_index_choose(&ckpt->files, rsi_st_is_index, RSI_ST_INDEX_NAME, &index, err);
    if (!rc)
        rc = index ? open_indexed(ckpt, s, index, err) : open_all(ckpt, s, names, n, err);
    return rc;
}

/* ---- tensors made of parts ---- */

static const rsi_st_tensor *part_of(const st *s, const rsi_st_whole *whole, size_t i,
                                    const st_file **file)
{
    const rsi_st_part *part = &s->all.part[whole->first + i];

    *file = &s->file[part->file];
    return &(*file)->header.tensor[part->tensor];
}

typedef struct parts {
    const st           *s;
    const rsi_st_whole *whole;
} parts;

static void get_part(const void *arg, size_t i, rsd_box *out)
{
    const parts         *p = arg;
    const st_file       *file;
    const rsi_st_tensor *tensor = part_of(p->s, p->whole, i, &file);
    size_t               bytes = tensor->ndim * sizeof(int64_t);

    *out = (rsd_box){ .ndim = tensor->ndim };
    memcpy(out->off, file->dcp.off + tensor->shape, bytes);
    memcpy(out->len, rsi_st_shape(&file->header, tensor), bytes);
}

static rsd_err join_files(rsd_ckpt *ckpt, st *s, rsd_error *err)
{
    rsi_st_file *file = rsi_calloc(s->n, sizeof(file[0]));
    rsd_err      rc;

    if (!file)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", s->n);
    for (size_t i = 0; i < s->n; i++)
        file[i] = (rsi_st_file){ .path = rsi_files_name(&ckpt->files, s->file[i].number),
                                 .header = &s->file[i].header,
                                 .dcp = &s->file[i].dcp };
    rc = rsi_st_join(s->n, file, &s->all, err);
    rsi_free(file);
    if (!rc && ckpt->salvage) {
        ckpt->health =
            rsi_arena_array(&ckpt->mem, s->all.nwholes + ckpt->nobjects, sizeof(ckpt->health[0]));
        rc = ckpt->health ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for a checkpoint");
    }
    for (size_t t = 0; t < s->all.nwholes && !rc; t++) {
        const rsi_st_whole *whole = &s->all.whole[t];
        parts               p = { .s = s, .whole = whole };
        int64_t             elems;
        uint64_t            value = t;

        rc = rsi_product(whole->ndim, whole->shape, (int64_t)rsd_dtype_size(whole->dtype), &elems)
                 ? RSD_OK
                 : rsi_fail(err, RSD_E_FORMAT, "the bytes of the tensor don't fit into 64 bits");
        if (!rc && elems > 0)
            rc = rsi_refuse_bad_tiles(whole->ndim, whole->shape, whole->parts, get_part, &p, err);
        if (rc == RSD_E_FORMAT && ckpt->salvage) { /* a file with part of it is missing */
            ckpt->health[t] = RSD_DAMAGED;
            rc = RSD_OK;
        }
        if (!rc && rsi_map_get(&s->listed.names, whole->name->text, whole->name->len, &value))
            rc = rsi_fail(err, RSD_E_FORMAT, "the dtypes or numbers of dimensions of files differ");
        if (rc)
            return rsi_while(err, rc, "tensor \"%s\"", whole->name->text);
        if (!rsi_map_add(&s->names, whole->name->text, whole->name->len, &value, NULL))
            return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu names", s->all.nwholes);
    }
    ckpt->ntensors = s->all.nwholes;
    ckpt->nreplicas = s->all.nreplicas;
    return rc;
}

/* ---- answers ---- */

/* The file of whole tensor t and its entry there. */
static const rsi_st_tensor *whole_tensor(const st *s, size_t t, const st_file **file)
{
    size_t lo = 0, hi = s->n;

    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        if (s->first[mid] <= t)
            lo = mid;
        else
            hi = mid;
    }
    *file = &s->file[lo];
    return &(*file)->header.tensor[t - s->first[lo]];
}

static const rsi_st_tensor *tensor_at(const st *s, size_t t, size_t i, const st_file **file)
{
    return s->joined ? part_of(s, &s->all.whole[t], i, file) : whole_tensor(s, t, file);
}

static void st_tensor(const rsd_ckpt *ckpt, size_t t, rsd_tensor_info *out)
{
    const st            *s = ckpt->self;
    const st_file       *file;
    const rsi_st_tensor *tensor;

    *out = (rsd_tensor_info){ .chunks = 1 };
    if (s->joined) {
        const rsi_st_whole *whole = &s->all.whole[t];

        out->name = whole->name->text;
        out->dtype = whole->dtype;
        out->ndim = whole->ndim;
        out->chunks = whole->parts;
        memcpy(out->shape, whole->shape, sizeof(out->shape));
    } else {
        tensor = whole_tensor(s, t, &file);
        out->name = tensor->name.text;
        out->dtype = (rsd_dtype)tensor->dtype;
        out->ndim = tensor->ndim;
        memcpy(out->shape, rsi_st_shape(&file->header, tensor), tensor->ndim * sizeof(int64_t));
    }
    rsi_product(out->ndim, out->shape, (int64_t)rsd_dtype_size(out->dtype), &out->bytes);
}

static void st_chunk(const rsd_ckpt *ckpt, size_t t, size_t i, rsd_chunk *out, uint32_t *number)
{
    const st            *s = ckpt->self;
    const st_file       *file;
    const rsi_st_tensor *tensor = tensor_at(s, t, i, &file);
    size_t               bytes = tensor->ndim * sizeof(int64_t);

    *out = (rsd_chunk){ .box.ndim = tensor->ndim,
                        .file = rsi_files_name(&ckpt->files, file->number),
                        .offset = file->header.data_start + tensor->begin,
                        .length = tensor->end - tensor->begin };
    memcpy(out->box.len, rsi_st_shape(&file->header, tensor), bytes);
    if (s->joined)
        memcpy(out->box.off, file->dcp.off + tensor->shape, bytes);
    *number = file->number;
}

static rsd_err st_locate(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *out,
                         rsd_error *err)
{
    rsd_chunk       chunk;
    rsd_tensor_info info;
    uint32_t        number;

    (void)all, (void)err;
    st_tensor(ckpt, t, &info);
    st_chunk(ckpt, t, i, &chunk, &number);
    *out = (rsi_extent){ .offset = chunk.offset,
                         .record = chunk.offset,
                         .record_bytes = chunk.length };
    rsi_strides(info.ndim, chunk.box.len, (int64_t)rsd_dtype_size(info.dtype), out->stride);
    return RSD_OK;
}

static bool st_find(const rsd_ckpt *ckpt, const char *name, size_t *out)
{
    const st *s = ckpt->self;
    uint64_t  t;

    if (s->joined) {
        if (!rsi_map_get(&s->names, name, strlen(name), &t))
            return false;
        *out = (size_t)t;
        return true;
    }
    for (size_t f = 0; f < s->n; f++) {
        const rsi_st_header *header = &s->file[f].header;
        const rsi_st_tensor *tensor = rsi_st_find(header, name, strlen(name));

        if (tensor && !tensor->listed) {
            *out = s->first[f] + (size_t)(tensor - header->tensor);
            return true;
        }
    }
    return false;
}

static rsd_err st_object(rsd_ckpt *ckpt, size_t i, const char **name, rsd_values *owner,
                         const rsd_value **out, rsd_error *err)
{
    const st *s = ckpt->self;

    *name = s->listed.at[i].tensor->name.text;
    return owner ? rsi_st_listed_value(&s->listed, i,
                                       rsi_files_name(&ckpt->files, s->listed.at[i].file), owner,
                                       out, err)
                 : RSD_OK;
}

static rsd_err st_archive(rsd_ckpt *ckpt, size_t i, rsi_archive *out, rsd_error *err)
{
    (void)ckpt, (void)i, (void)err;
    *out = (rsi_archive){ 0 };
    return RSD_OK;
}

static size_t st_path(const rsd_ckpt *ckpt, const char *name, rsd_path_part *out, size_t cap)
{
    (void)ckpt, (void)name, (void)out, (void)cap;
    return 0;
}

static bool st_span(const rsd_ckpt *ckpt, size_t k, rsi_item *out)
{
    const st    *s = ckpt->self;
    const size_t own = s->n + s->indexed;

    if (k < s->n)
        *out = (rsi_item){ .file = s->file[k].number,
                           .len = s->file[k].header.data_start,
                           .what = "header" };
    else if (k < own)
        *out = (rsi_item){ .file = s->index,
                           .len = ckpt->files.file[s->index]->size,
                           .what = "index" };
    else if (k - own < s->listed.n)
        rsi_st_listed_span(&s->listed, k - own, out);
    else
        return false;
    return true;
}

static void st_close(rsd_ckpt *ckpt)
{
    st *s = ckpt->self;

    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        rsi_st_dcp_release(&s->file[i].dcp);
        rsi_st_release(&s->file[i].header);
        rsi_free(s->file[i].json);
    }
    rsi_st_joined_release(&s->all);
    rsi_map_release(&s->names);
    rsi_st_listed_release(&s->listed);
}

/* ---- replicas ---- */

static rsi_item replica_place(const st *s, const rsi_st_part *part)
{
    const st_file       *file = &s->file[part->file];
    const rsi_st_tensor *tensor = &file->header.tensor[part->tensor];

    return (rsi_item){ .file = file->number,
                       .off = file->header.data_start + tensor->begin,
                       .len = tensor->end - tensor->begin };
}

static rsd_err st_replica(rsd_ckpt *ckpt, size_t k, rsd_error *err)
{
    const st             *s = ckpt->self;
    const rsi_st_replica *r = &s->all.replica[k];
    const rsi_item        mine = replica_place(s, &r->loaded), other = replica_place(s, &r->part);
    char                 *buf = rsi_calloc(2, REPLICA_BLOCK);
    rsd_err               rc = buf ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for replicas");

    for (uint64_t at = 0; at < mine.len && !rc; at += REPLICA_BLOCK) {
        size_t n = (size_t)rsi_min((int64_t)(mine.len - at), REPLICA_BLOCK);

        rc = rsi_files_read(&ckpt->files, mine.file, mine.off + at, buf, n, err);
        if (!rc)
            rc = rsi_files_read(&ckpt->files, other.file, other.off + at, buf + REPLICA_BLOCK, n,
                                err);
        if (!rc && memcmp(buf, buf + REPLICA_BLOCK, n) != 0)
            rc = rsi_fail(err, RSD_E_CORRUPT,
                          "replicas of \"%s\" differ: that of file \"%s\" is loaded, file \"%s\" "
                          "has another",
                          s->file[r->part.file].header.tensor[r->part.tensor].name.text,
                          rsi_files_name(&ckpt->files, mine.file),
                          rsi_files_name(&ckpt->files, other.file));
    }
    rsi_free(buf);
    return rc;
}

static const rsi_ckpt_ops st_ops = {
    .tensor = st_tensor,
    .chunk = st_chunk,
    .locate = st_locate,
    .find = st_find,
    .object = st_object,
    .archive = st_archive,
    .replica = st_replica,
    .path = st_path,
    .span = st_span,
    .close = st_close,
};

static rsd_err read_metas(rsd_ckpt *ckpt, const st *s, rsd_error *err)
{
    rsi_map known = { 0 };
    size_t  n = 0;
    rsd_err rc = RSD_OK;

    for (size_t i = 0; i < s->n; i++)
        n += s->file[i].header.nmeta;
    ckpt->meta = rsi_arena_array(&ckpt->mem, n, sizeof(ckpt->meta[0]));
    if (!ckpt->meta)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for metadata");
    for (size_t i = 0; i < s->n && !rc; i++)
        rc = rsi_st_meta_add(ckpt, &s->file[i].header, &known, err);
    rsi_map_release(&known);
    return rc;
}

rsd_err rsi_st_open(rsd_ckpt *ckpt, rsd_error *err)
{
    st     *s = rsi_arena_array(&ckpt->mem, 1, sizeof(*s));
    rsd_err rc;

    if (!s)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a checkpoint");
    ckpt->self = s;
    ckpt->ops = &st_ops;
    if (ckpt->files.single) {
        s->file = rsi_arena_array(&ckpt->mem, 1, sizeof(s->file[0]));
        rc = s->file ? add_file(ckpt, s, NULL, err)
                     : rsi_fail(err, RSD_E_NOMEM, "no memory for a file");
    } else {
        rc = open_folder(ckpt, s, err);
    }
    if (!rc)
        rc = read_metas(ckpt, s, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < s->n && !rc; i++) {
        s->joined = s->joined || s->file[i].dcp.sharded;
        rc = rsi_st_listed_add(&s->listed, &s->file[i].header, s->file[i].number, err);
    }
    if (rc)
        return rc;
    ckpt->nobjects = s->listed.n;
    if (s->joined)
        return join_files(ckpt, s, err);
    s->first = rsi_arena_array(&ckpt->mem, s->n + 1, sizeof(s->first[0]));
    if (!s->first)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a checkpoint");
    for (size_t i = 0; i < s->n; i++)
        s->first[i + 1] = s->first[i] + s->file[i].header.ntensors;
    ckpt->ntensors = s->first[s->n];
    return RSD_OK;
}
