/* SPDX-License-Identifier: Apache-2.0 */
/* Reads catalogues, as dcp_catalogue.c writes them. They may come from anywhere: nothing is
 * believed before the hashes match, and even then all numbers are checked. Next: dcp_open.c. */
#include "base/mem.h"
#include "format/dcp.h"
#include "format/dcp_catalogue.h"
#include "store/record.h"

#include <string.h>

enum { WORD = 8, HEAD = 3 * WORD + RSI_HASH128_BYTES };
enum { LEAST_CHUNK = 32 }; /* bytes of metadata that a chunk takes at the very least */

typedef struct reading {
    rsi_reader    in;
    rsi_dcp_meta *meta;
    bool          nomem;
} reading;

static uint64_t take_word(reading *r)
{
    const unsigned char *at = rsi_read_next(&r->in, WORD);

    return at ? rsi_le64(at) : 0;
}

/* In place; NULL: malformed. */
static const char *take_text(reading *r)
{
    const uint64_t len = take_word(r);
    const char    *text;

    if (len >= (uint64_t)(r->in.end - r->in.at))
        return NULL;
    text = rsi_read_next(&r->in, (size_t)(len / WORD + 1) * WORD);
    return text && text[len] == '\0' && strlen(text) == len ? text : NULL;
}

/* *out stays NULL if there is none. */
static bool take_choice(reading *r, const char **out)
{
    const uint64_t any = take_word(r);

    *out = any == 1 ? take_text(r) : NULL;
    return any == 0 || *out;
}

/* Memory for n things of at least a word each; NULL: the catalogue can't have as many. */
static void *take_room(reading *r, uint64_t n, size_t size)
{
    void *room;

    if (n > (uint64_t)(r->in.end - r->in.at) / WORD)
        return NULL;
    room = rsi_arena_array(&r->meta->mem, (size_t)n, size);
    r->nomem = r->nomem || !room;
    return room;
}

static bool take_texts(reading *r, size_t n, const char ***out)
{
    const char **text = take_room(r, n, sizeof(text[0]));

    for (size_t i = 0; text && i < n; i++) {
        text[i] = take_text(r);
        if (!text[i])
            return false;
    }
    *out = text;
    return text;
}

static bool take_transforms(reading *r)
{
    rsi_dcp_meta *meta = r->meta;

    meta->transforms = take_room(r, meta->ntransforms, sizeof(meta->transforms[0]));
    for (size_t i = 0; meta->transforms && i < meta->ntransforms; i++) {
        const char **name;

        meta->transforms[i].n = (size_t)take_word(r);
        if (!take_texts(r, meta->transforms[i].n, &name))
            return false;
        meta->transforms[i].name = name;
    }
    return meta->transforms;
}

static bool row_fits(const rsi_dcp_meta *meta, int64_t file, int64_t transforms, int64_t offset,
                     int64_t length)
{
    return file >= 0 && file < (int64_t)meta->nfiles && transforms >= -1 &&
           transforms < (int64_t)meta->ntransforms && offset >= 0 && length >= 0 &&
           length <= INT64_MAX - offset;
}

static bool take_items(reading *r)
{
    rsi_dcp_meta *meta = r->meta;

    meta->item = take_room(r, meta->nitems, sizeof(meta->item[0]));
    for (size_t i = 0; meta->item && i < meta->nitems; i++) {
        const char *name = take_text(r);
        int64_t     word[RSI_DCP_BOX];

        for (int k = 0; k < RSI_DCP_BOX; k++)
            word[k] = (int64_t)take_word(r);
        if (!name || !row_fits(meta, word[0], word[1], word[2], word[3]))
            return false;
        meta->item[i] = (rsi_dcp_item){ .name = name,
                                        .row = { .file = (uint32_t)word[RSI_DCP_FILE],
                                                 .transforms = (uint32_t)word[RSI_DCP_TRANSFORMS],
                                                 .offset = word[RSI_DCP_OFFSET],
                                                 .length = word[RSI_DCP_LENGTH] } };
    }
    return meta->item;
}

static bool take_paths(reading *r)
{
    rsi_dcp_meta *meta = r->meta;

    meta->path = take_room(r, meta->npaths, sizeof(meta->path[0]));
    for (size_t i = 0; meta->path && i < meta->npaths; i++) {
        const char    *name = take_text(r);
        const uint64_t n = take_word(r);
        rsi_dcp_part  *part = take_room(r, n, sizeof(part[0]));

        if (!name || !part)
            return false;
        for (size_t k = 0; k < n; k++) {
            part[k].index = (int64_t)take_word(r);
            if (!take_choice(r, &part[k].key))
                return false;
        }
        meta->path[i] = (rsi_dcp_path){ .name = name, .part = part, .nparts = (size_t)n };
    }
    return meta->path;
}

static const int64_t *take_sizes(reading *r, int n)
{
    int64_t *size = take_room(r, (uint64_t)n, sizeof(size[0]));

    for (int d = 0; size && d < n; d++)
        size[d] = (int64_t)take_word(r);
    return size;
}

/* The smallest and largest values of a tensor's rows; boxes are checked with the tensors. */
static bool rows_fit(const rsi_dcp_meta *meta, const rsi_dcp_tensor *t)
{
    int64_t min[RSI_DCP_BOX], max[RSI_DCP_BOX];

    for (int c = 0; c < RSI_DCP_BOX; c++)
        if (t->nchunks && !rsi_packed_range(&t->column[c], &min[c], &max[c]))
            return false;
    return !t->nchunks || (row_fits(meta, min[0], min[1], min[2], min[3]) &&
                           row_fits(meta, max[0], max[1], max[2], max[3]));
}

static bool take_tensor(reading *r, rsi_dcp_tensor *t)
{
    rsi_packed *column;
    uint64_t    ndim;

    t->name = take_text(r);
    t->dtype = (rsd_dtype)take_word(r);
    t->requires_grad = take_word(r);
    t->same = r->in.at;
    t->nchunks = (size_t)take_word(r);
    ndim = take_word(r);
    if (!t->name || rsd_dtype_size(t->dtype) == 0 || ndim > RSD_MAX_NDIM || t->nchunks > UINT32_MAX)
        return false;
    t->ndim = (int)ndim;
    t->shape = take_sizes(r, t->ndim);
    column = take_room(r, RSI_DCP_BOX + 2 * ndim, sizeof(column[0]));
    if (!t->shape || !column)
        return false;
    t->column = column;
    for (int c = RSI_DCP_BOX; c < RSI_DCP_BOX + 2 * t->ndim; c++)
        if (!rsi_packed_take(&r->in, t->nchunks, &column[c]))
            return false;
    t->same_len = (size_t)(r->in.at - (const unsigned char *)t->same);
    for (int c = 0; c < RSI_DCP_BOX; c++)
        if (!rsi_packed_take(&r->in, t->nchunks, &column[c]))
            return false;
    return rows_fit(r->meta, t);
}

static bool take_tensors(reading *r, uint64_t metadata)
{
    rsi_dcp_meta *meta = r->meta;

    meta->tensor = take_room(r, meta->ntensors, sizeof(meta->tensor[0]));
    for (size_t i = 0; meta->tensor && i < meta->ntensors; i++) {
        if (!take_tensor(r, &meta->tensor[i]))
            return false;
        meta->tensor[i].first = meta->nchunks;
        meta->nchunks += meta->tensor[i].nchunks;
        if (meta->nchunks > metadata / LEAST_CHUNK)
            return false;
    }
    return meta->tensor;
}

static bool take_all(reading *r, uint64_t metadata)
{
    rsi_dcp_meta *meta = r->meta;

    meta->nfiles = (size_t)take_word(r);
    meta->ntransforms = (size_t)take_word(r);
    meta->nitems = (size_t)take_word(r);
    meta->npaths = (size_t)take_word(r);
    meta->nskipped = (size_t)take_word(r);
    meta->ntensors = (size_t)take_word(r);
    meta->has_paths = take_word(r);
    if (meta->nfiles > UINT32_MAX || !take_choice(r, &meta->checkpoint_id) ||
        !take_choice(r, &meta->save_id) || !take_choice(r, &meta->version) ||
        !take_texts(r, meta->nfiles, &meta->file) || !take_transforms(r) || !take_items(r) ||
        !take_paths(r) || !take_texts(r, meta->nskipped, &meta->skipped) ||
        !take_tensors(r, metadata))
        return false;
    for (size_t i = 0; i < meta->nfiles; i++)
        if (rsi_dcp_file_check(meta->file[i], strlen(meta->file[i]), NULL))
            return false;
    return !r->in.cut && r->in.at == r->in.end;
}

/* The cheapest test first: most that is wrong ends here. */
static rsd_err check_head(const rsi_source *source, const rsi_source *metadata, rsd_error *err)
{
    unsigned char head[HEAD];
    rsd_err       rc = rsi_source_read(source, 0, head, sizeof(head), err);

    if (rc)
        return rc;
    if (rsi_le64(head) != RSI_CATALOGUE_MAGIC || rsi_le64(head + WORD) != source->size)
        return rsi_fail(err, RSD_E_CORRUPT, "it is not a catalogue, or truncated");
    if (rsi_le64(head + 2 * WORD) != metadata->size || source->size > metadata->size)
        return rsi_fail(err, RSD_E_MISMATCH, "it was made for other metadata");
    return RSD_OK;
}

typedef struct identifying {
    const rsi_source *metadata;
    rsi_sums         *rows;
    rsi_meta_id       id;
} identifying;

static rsd_err identify(void *arg, rsd_error *err)
{
    identifying *k = arg;

    return rsi_meta_identify(k->metadata, k->rows, &k->id, err);
}

/* Its own hash, then that of the metadata. */
static rsd_err check_hashes(const unsigned char *bytes, size_t len, const rsi_source *metadata,
                            rsd_store *store, rsi_sums *rows, rsd_error *err)
{
    unsigned char own[RSI_HASH128_BYTES];
    identifying   k = { .metadata = metadata, .rows = rows };
    rsd_err       rc;

    rsi_hash128(bytes, len - sizeof(own), own);
    if (memcmp(own, bytes + len - sizeof(own), sizeof(own)) != 0)
        return rsi_fail(err, RSD_E_CORRUPT, "its own checksum does not match");
    rc = rsi_record_fact(store, metadata->name, identify, &k, &k.id, sizeof(k.id), err);
    if (!rc && (k.id.bytes != metadata->size ||
                memcmp(k.id.hash, bytes + 3 * WORD, sizeof(k.id.hash)) != 0))
        rc = rsi_fail(err, RSD_E_MISMATCH, "it was made for other metadata");
    return rc;
}

rsd_err rsi_catalogue_read(const rsi_source *source, const rsi_source *metadata, rsd_store *store,
                           rsi_sums *rows, rsi_dcp_meta **out, rsd_error *err)
{
    const size_t   len = (size_t)source->size;
    reading        r = { .nomem = false };
    unsigned char *bytes;
    rsd_err        rc = check_head(source, metadata, err);

    if (rc)
        return rc;
    r.meta = rsi_calloc(1, sizeof(*r.meta));
    bytes = r.meta ? rsi_arena_array(&r.meta->mem, len, 1) : NULL;
    if (!bytes)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a catalogue of %zu bytes", len);
    if (!rc)
        rc = rsi_source_read(source, 0, bytes, len, err);
    if (!rc && len < HEAD + RSI_HASH128_BYTES)
        rc = rsi_fail(err, RSD_E_CORRUPT, "it is truncated");
    if (!rc)
        rc = check_hashes(bytes, len, metadata, store, rows, err);
    if (!rc) {
        r.in = (rsi_reader){ .at = bytes + HEAD, .end = bytes + len - RSI_HASH128_BYTES };
        if (!take_all(&r, metadata->size))
            rc = r.nomem ? rsi_fail(err, RSD_E_NOMEM, "no memory for a catalogue")
                         : rsi_fail(err, RSD_E_FORMAT, "its contents are malformed");
    }
    if (rc)
        rsi_dcp_meta_free(r.meta);
    else
        *out = r.meta;
    return rc;
}

/* ---- of an open checkpoint ---- */

rsd_err rsi_dcp_read_catalogue(rsd_ckpt *ckpt, rsi_dcp_meta **out, rsd_error *err)
{
    rsi_file  *file = NULL;
    uint32_t   meta;
    rsi_source metadata, source;
    rsd_err    rc = rsi_files_add(&ckpt->files, ".metadata", false, &meta, err);

    if (!rc)
        rc = rsi_files_open_beside(&ckpt->files, RSI_CATALOGUE_NAME, false, &file, err);
    if (rc)
        return rc;
    metadata = rsi_files_source(&ckpt->files, meta, 0, ckpt->files.file[meta]->size);
    source = rsi_files_source_of(file, file->name);
    rc = rsi_catalogue_read(&source, &metadata, ckpt->files.store, &ckpt->sums.opened, out, err);
    if (rc)
        rsi_sums_release(&ckpt->sums.opened);
    rsi_file_close(file, NULL);
    return rc;
}

rsd_err rsi_dcp_make_catalogue(rsd_ckpt *ckpt, rsi_bytes *out, rsd_error *err)
{
    rsi_dcp_meta *meta = NULL;
    rsi_meta_id   id;
    rsi_source    source;
    uint64_t      file;
    rsd_err       rc;

    if (ckpt->format != RSD_FORMAT_DCP || !rsi_hash128_available() ||
        !rsi_map_get(&ckpt->files.by_name, ".metadata", strlen(".metadata"), &file) ||
        ckpt->files.file[file]->size < RSI_CATALOGUE_LEAST)
        return RSD_OK;
    source = rsi_files_source(&ckpt->files, (uint32_t)file, 0, ckpt->files.file[file]->size);
    rc = rsi_dcp_meta_read(&source, &meta, err);
    if (!rc)
        rc = rsi_dcp_check_files(ckpt, meta, err);
    if (!rc)
        rc = rsi_dcp_check_tensors(meta, false, err);
    if (!rc)
        rc = rsi_meta_identify(&source, NULL, &id, err);
    if (!rc && rsi_catalogue_worth(meta, source.size) && !rsi_catalogue_make(meta, &id, out))
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a catalogue");
    rsi_dcp_meta_free(meta);
    return rc;
}
