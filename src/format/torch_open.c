/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a torch.save file: one archive with nested dicts and lists of tensors and values. Tensors
 * may share storages. Readers of folders of such files (torch_bins.c, torch_ranks.c, zero_open.c)
 * add their files and use the operations here too. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/torch_core.h"
#include "format/torch_legacy.h"
#include "format/value_digest.h"
#include "shape/box.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

rsd_err rsi_torch_no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the names of a checkpoint");
}

/* ---- answers ---- */

/* Piece i of tensor t as a tensor in its file; returns the file. */
static const rsi_torch_file *view_of(const rsi_torch *self, size_t t, size_t i,
                                     rsi_tensor_pickle *facts)
{
    const rsi_torch_entry *e = &self->tensors.at[t];
    rsd_value_tensor       view;

    if (!e->whole) {
        rsi_torch_tensor_of(rsd_value_tensor_of(e->value), facts);
        return &self->file[e->file];
    }
    rsi_torch_piece_view(&e->whole->piece[i], &view);
    rsi_torch_tensor_of(&view, facts);
    return &self->file[e->whole->piece[i].file];
}

static void torch_tensor(const rsd_ckpt *ckpt, size_t t, rsd_tensor_info *out)
{
    const rsi_torch        *self = ckpt->self;
    const rsi_torch_entry  *e = &self->tensors.at[t];
    const rsi_torch_whole  *w = e->whole;
    const rsd_value_tensor *tensor = w ? NULL : rsd_value_tensor_of(e->value);

    *out = (rsd_tensor_info){ .name = e->name,
                              .dtype = w ? w->dtype : tensor->dtype,
                              .ndim = w ? w->ndim : tensor->ndim,
                              .chunks = w ? w->n : 1 };
    memcpy(out->shape, w ? w->shape : tensor->shape, sizeof(out->shape));
    rsi_product(out->ndim, out->shape, (int64_t)rsd_dtype_size(out->dtype), &out->bytes);
}

static rsd_err torch_locate(rsd_ckpt *ckpt, size_t t, size_t i, bool all, rsi_extent *out,
                            rsd_error *err)
{
    rsi_tensor_pickle     facts;
    const rsi_torch_file *f = view_of(ckpt->self, t, i, &facts);

    (void)all; /* the other records belong to other tensors */
    return rsi_torch_extent(&f->source, &f->zip, &facts, out, err);
}

static void torch_chunk(const rsd_ckpt *ckpt, size_t t, size_t i, rsd_chunk *out, uint32_t *file)
{
    const rsi_torch       *self = ckpt->self;
    const rsi_torch_whole *w = self->tensors.at[t].whole;
    rsi_tensor_pickle      facts;
    const rsi_torch_file  *f = view_of(self, t, i, &facts);
    rsi_extent             extent = { 0 };

    rsi_torch_extent(&f->source, &f->zip, &facts, &extent, NULL); /* checked on opening */
    *out = (rsd_chunk){ .box.ndim = facts.ndim,
                        .file = rsi_files_name(&ckpt->files, f->number),
                        .offset = extent.record,
                        .length = extent.record_bytes };
    if (w)
        out->box = w->piece[i].box;
    else
        memcpy(out->box.len, facts.size, sizeof(out->box.len));
    *file = f->number;
}

static bool torch_find(const rsd_ckpt *ckpt, const char *name, size_t *out)
{
    const rsi_torch *self = ckpt->self;
    uint64_t         number;

    if (!rsi_map_get(&self->names, name, strlen(name), &number) || number >= self->tensors.n)
        return false;
    *out = (size_t)number;
    return true;
}

static const rsi_torch_entry *entry_of(const rsi_torch *self, uint64_t number)
{
    return number < self->tensors.n ? &self->tensors.at[number] : &self->objects.at[~number];
}

static size_t torch_path(const rsd_ckpt *ckpt, const char *name, rsd_path_part *out, size_t cap)
{
    const rsi_torch       *self = ckpt->self;
    const rsi_torch_entry *e;
    uint64_t               number;

    if (!rsi_map_get(&self->names, name, strlen(name), &number))
        return 0;
    e = entry_of(self, number);
    if (cap)
        memcpy(out, e->part, (e->nparts < cap ? e->nparts : cap) * sizeof(out[0]));
    return e->nparts;
}

static rsd_err copy_out(const rsi_torch_file *f, const rsd_value *value, rsd_values *owner,
                        const rsd_value **out, rsd_error *err)
{
    const rsd_value *copy;
    rsd_err          rc;

    if (owner->borrows && !rsi_torch_has_tensor(value)) {
        *out = value;
        return RSD_OK;
    }
    rc = rsi_value_copy(value, owner, &copy, err);
    if (!rc)
        rc = rsi_torch_read_tensors(&f->source, &f->zip, owner, copy, err);
    if (!rc)
        *out = copy;
    return rc;
}

static rsd_err torch_object(rsd_ckpt *ckpt, size_t i, const char **name, rsd_values *owner,
                            const rsd_value **out, rsd_error *err)
{
    const rsi_torch       *self = ckpt->self;
    const rsi_torch_entry *e = &self->objects.at[i];

    *name = e->name;
    return owner ? copy_out(&self->file[e->file], e->value, owner, out, err) : RSD_OK;
}

static const rsd_value *torch_dict(const rsd_ckpt *ckpt, size_t i, size_t *parts)
{
    const rsi_torch *self = ckpt->self;

    *parts = self->objects.at[i].above;
    return self->objects.at[i].dict;
}

/* With several files, it is unknown which one has the whole container. */
static rsd_err torch_inner(rsd_ckpt *ckpt, const char *name, rsd_values *owner,
                           const rsd_value **out, rsd_error *err)
{
    const rsi_torch *self = ckpt->self;
    const rsd_value *found = self->nfiles == 1 ? rsi_torch_find_inner(self->file, name) : NULL;

    if (!found)
        return rsi_fail(err, RSD_E_NOTFOUND, "the checkpoint has no \"%s\"", name);
    return owner ? copy_out(self->file, found, owner, out, err) : RSD_OK;
}

static rsi_archive archive_of(const rsi_torch_file *f)
{
    return (rsi_archive){ .source = f->source, .zip = f->zip, .file = f->number };
}

static rsd_err torch_archive(rsd_ckpt *ckpt, size_t i, rsi_archive *out, rsd_error *err)
{
    const rsi_torch *self = ckpt->self;
    const bool       object = i < self->objects.n;

    (void)err;
    *out = archive_of(&self->file[object ? self->objects.at[i].file : i - self->objects.n]);
    out->value = object ? self->objects.at[i].value : NULL;
    return RSD_OK;
}

/* For each file its pickle, and the directory after the last record. The headers before the records
 * were compared with the directory. */
static bool torch_span(const rsd_ckpt *ckpt, size_t k, rsi_item *out)
{
    const rsi_torch      *self = ckpt->self;
    const rsi_torch_file *f = k / 2 < self->nfiles ? &self->file[k / 2] : NULL;
    const rsi_zip_record *r = f ? &f->zip.record[f->zip.n - 1] : NULL;

    if (!f)
        return false;
    *out = (rsi_item){ .file = f->number, .what = k % 2 ? "directory" : "pickle" };
    if (k % 2) {
        out->off = r->data + r->size;
        out->len = f->source.size - out->off;
    } else {
        r = rsi_zip_find(&f->zip, "data.pkl");
        out->off = r->data;
        out->len = r->size;
    }
    return true;
}

/* ---- replicas ---- */

static rsd_err piece_digest(const rsi_torch *self, const rsi_torch_piece *piece, uint64_t out[2],
                            rsd_error *err)
{
    const rsi_archive a = archive_of(&self->file[piece->file]);
    rsd_value_tensor  view;
    rsd_value         v = { .kind = RSD_VALUE_TENSOR, .as.tensor = &view };

    rsi_torch_piece_view(piece, &view);
    return rsi_value_digest(&a, &v, out, err);
}

static rsd_err value_digest(const rsi_torch *self, uint32_t file, const rsd_value *v,
                            uint64_t out[2], rsd_error *err)
{
    const rsi_archive a = archive_of(&self->file[file]);

    return rsi_value_digest(&a, v, out, err);
}

static rsd_err torch_replica(rsd_ckpt *ckpt, size_t k, rsd_error *err)
{
    const rsi_torch         *self = ckpt->self;
    const rsi_torch_replica *r = &self->replica[k];
    const rsi_torch_entry   *e = entry_of(self, r->entry);
    uint32_t                 file = e->file;
    uint64_t                 mine[2], other[2];
    rsd_err                  rc;

    if (r->own)
        return RSD_OK;
    if (r->value) {
        rc = value_digest(self, e->file, e->value, mine, err);
        rc = rc ? rc : value_digest(self, r->file, r->value, other, err);
    } else {
        size_t i = 0;

        while (!rsi_box_equal(&e->whole->piece[i].box, &r->piece.box))
            i++;
        file = e->whole->piece[i].file;
        rc = piece_digest(self, &e->whole->piece[i], mine, err);
        rc = rc ? rc : piece_digest(self, &r->piece, other, err);
    }
    if (rc == RSD_E_UNSUPPORTED) /* can't be compared */
        return RSD_OK;
    if (!rc && memcmp(mine, other, sizeof(mine)) != 0)
        rc = rsi_fail(err, RSD_E_CORRUPT,
                      "replicas of \"%s\" differ: that of file \"%s\" is loaded, file \"%s\" has "
                      "another",
                      e->name, rsi_files_name(&ckpt->files, self->file[file].number),
                      rsi_files_name(&ckpt->files, self->file[r->file].number));
    return rc;
}

/* ---- opening ---- */

static void torch_close(rsd_ckpt *ckpt)
{
    rsi_torch *self = ckpt->self;

    if (!self)
        return;
    for (size_t i = 0; i < self->nfiles; i++)
        rsd_values_free(self->file[i].values);
    for (size_t t = 0; t < self->tensors.n; t++)
        if (self->tensors.at[t].whole)
            rsi_free(self->tensors.at[t].whole->piece);
    rsi_free(self->file);
    rsi_free(self->tensors.at);
    rsi_free(self->objects.at);
    rsi_free(self->replica);
    rsi_map_release(&self->names);
    rsi_arena_release(&self->mem);
}

static const rsi_ckpt_ops torch_ops = {
    .tensor = torch_tensor,
    .chunk = torch_chunk,
    .locate = torch_locate,
    .find = torch_find,
    .object = torch_object,
    .inner = torch_inner,
    .dict = torch_dict,
    .archive = torch_archive,
    .replica = torch_replica,
    .path = torch_path,
    .span = torch_span,
    .close = torch_close,
};

rsd_err rsi_torch_begin(rsd_ckpt *ckpt, rsi_torch **out, rsd_error *err)
{
    rsi_torch *self = rsi_arena_array(&ckpt->mem, 1, sizeof(*self));

    if (!self)
        return rsi_torch_no_memory(err);
    ckpt->self = self;
    ckpt->ops = &torch_ops;
    *out = self;
    return RSD_OK;
}

/* The part of the pickle's budget that the values leave, but at least enough for ordinary names. */
static size_t names_limit(const rsi_torch_file *f)
{
    size_t all = rsi_pickle_limit(rsi_zip_find(&f->zip, "data.pkl")->size);
    size_t used = f->values->mem.used, least = (size_t)1 << 20;

    return used + least < all ? all - used : least;
}

/* The records of an archive, or of a file in the legacy form, which starts with a pickle. */
static rsd_err read_records(rsi_torch_file *f, rsi_arena *mem, bool *legacy, rsd_error *err)
{
    unsigned char first = 0;
    rsd_err       rc = RSD_OK;

    *legacy = false;
    if (f->source.size > 0)
        rc = rsi_source_read(&f->source, 0, &first, 1, err);
    if (rc || first == 'P')
        return rc ? rc : rsi_zip_read(&f->source, mem, &f->zip, err);
    if (first != 0x80)
        return rsi_fail(err, RSD_E_FORMAT, "it is not a torch.save file");
    *legacy = true;
    return rsi_legacy_read(&f->source, mem, &f->zip, err);
}

rsd_err rsi_torch_is_sharded(rsd_ckpt *ckpt, const char *name, bool *out, rsd_error *err)
{
    rsi_torch_file   f = { .number = 0 };
    rsi_value_pickle pickle;
    rsi_arena        mem = { 0 };
    rsi_file        *file;
    bool             legacy;
    rsd_err          rc = rsi_files_open_beside(&ckpt->files, name, true, &file, err);

    if (rc)
        return rc;
    f.source = rsi_files_source_of(file, name);
    rc = rsd_values_create(&f.values, err);
    if (!rc)
        rc = read_records(&f, &mem, &legacy, err);
    if (!rc)
        rc = rsi_torch_value(&f.source, &f.zip, f.values, &pickle, err);
    if (!rc)
        *out = rsi_torch_has_part(pickle.root);
    else
        rsi_while(err, rc, "file \"%s\"", name);
    rsd_values_free(f.values);
    rsi_arena_release(&mem);
    rsi_file_close(file, NULL);
    return rc;
}

static rsd_err add_file(rsd_ckpt *ckpt, uint32_t number, rsd_error *err)
{
    rsi_torch       *self = ckpt->self;
    rsi_torch_file  *f;
    rsi_value_pickle pickle;
    bool             legacy;
    rsd_err          rc;

    if (!rsi_grow(&self->file, self->nfiles, &self->files_cap, sizeof(self->file[0])))
        return rsi_torch_no_memory(err);
    f = &self->file[self->nfiles];
    *f = (rsi_torch_file){ .number = number };
    f->source = rsi_files_source(&ckpt->files, number, 0, ckpt->files.file[number]->size);
    rc = rsd_values_create(&f->values, err);
    if (rc)
        return rc;
    self->nfiles++;
    rc = read_records(f, &ckpt->mem, &legacy, err);
    if (legacy)
        ckpt->kind = "legacy form";
    if (!rc)
        rc = rsi_torch_value(&f->source, &f->zip, f->values, &pickle, err);
    if (rc)
        return ckpt->files.single ? rc : rsi_while(err, rc, "file \"%s\"", f->source.name);
    f->root = pickle.root;
    if (ckpt->lost_attributes.n == 0)
        ckpt->lost_attributes = f->values->lost;
    if (ckpt->classes.n == 0)
        ckpt->classes = f->values->classes;
    self->mem.limit += names_limit(f);
    return RSD_OK;
}

rsd_err rsi_torch_add_file(rsd_ckpt *ckpt, const char *name, rsd_error *err)
{
    uint32_t number;
    rsd_err  rc = rsi_files_add(&ckpt->files, name, true, &number, err);

    if (!rc && ckpt->files.file[number]->missing)
        rc = rsi_fail(err, RSD_E_NOTFOUND, "file \"%s\" is missing", name);
    return rc ? rc : add_file(ckpt, number, err);
}

rsd_err rsi_torch_end(rsd_ckpt *ckpt, rsd_error *err)
{
    const rsi_torch *self = ckpt->self;
    rsd_err          rc = rsi_torch_check_pieces(self, 0, err);

    for (size_t t = 0; t < self->tensors.n && !rc; t++) {
        const rsi_torch_whole *w = self->tensors.at[t].whole;
        rsi_extent             extent;

        for (size_t i = 0; i < (w ? w->n : 1) && !rc; i++)
            rc = torch_locate(ckpt, t, i, false, &extent, err);
        if (rc)
            rsi_while(err, rc, "tensor \"%s\"", self->tensors.at[t].name);
    }
    ckpt->ntensors = self->tensors.n;
    ckpt->nobjects = self->objects.n;
    ckpt->narchives = self->nfiles;
    ckpt->nreplicas = self->nreplicas;
    return rc;
}

/* A DTensor in a single file is one rank's part: its folder has the whole. */
static rsd_err tell_rank(rsd_ckpt *ckpt, rsd_error *err)
{
    const rsi_torch *self = ckpt->self;
    int64_t          ranks = 0;
    char            *kind;

    for (size_t i = 0; i < self->objects.n && ranks <= 1; i++) {
        const rsi_opaque *opaque = rsi_value_opaque(self->objects.at[i].value);

        if (opaque && opaque->dtensor)
            ranks = opaque->dtensor->ranks;
    }
    if (ranks == 0)
        return RSD_OK;
    kind = rsi_arena_array(&ckpt->mem, 96, 1);
    if (!kind)
        return rsi_torch_no_memory(err);
    snprintf(kind, 96, "the file of one of %" PRId64 " rank%s: open its folder for whole tensors",
             ranks, ranks == 1 ? "" : "s");
    ckpt->kind = kind;
    return RSD_OK;
}

rsd_err rsi_torch_open(rsd_ckpt *ckpt, rsd_error *err)
{
    rsi_torch *self = NULL;
    rsd_err    rc;

    if (!ckpt->files.single)
        return rsi_bins_open(ckpt, err);
    rc = rsi_torch_begin(ckpt, &self, err);
    if (!rc)
        rc = add_file(ckpt, 0, err);
    if (!rc)
        rc = rsi_torch_flatten(self, 0, NULL, rsi_torch_add, self, err);
    if (!rc)
        rc = tell_rank(ckpt, err);
    return rc ? rc : rsi_torch_end(ckpt, err);
}
