/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a DCP checkpoint: reads `.metadata` (or every rank's, or the catalogue), finds the files
 * and checks the two against each other. Items are inspected when they are read: dcp_item.c. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/dcp.h"
#include "format/dcp_catalogue.h"
#include "shape/box.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rsd_err read_meta(rsd_ckpt *ckpt, const char *name, rsi_dcp_meta **out, rsd_error *err)
{
    uint32_t   file;
    rsi_source source;
    rsd_err    rc = rsi_files_add(&ckpt->files, name, false, &file, err);

    if (rc)
        return rc;
    source = rsi_files_source(&ckpt->files, file, 0, ckpt->files.file[file]->size);
    rc = rsi_dcp_meta_read(&source, out, err);
    return rc ? rsi_while(err, rc, "file \"%s\"", name) : RSD_OK;
}

/* Whatever is wrong with a catalogue, the metadata say it all; `verify` names it. */
static rsd_err read_shared(rsd_ckpt *ckpt, bool catalogue, rsi_dcp_meta **out, rsd_error *err)
{
    if (catalogue && rsi_hash128_available() && rsi_dcp_read_catalogue(ckpt, out, NULL) == RSD_OK)
        return RSD_OK;
    return read_meta(ckpt, ".metadata", out, err);
}

/* "__12.metadata" */
bool rsi_dcp_is_rank_metadata(const char *name)
{
    size_t digits = strncmp(name, "__", 2) == 0 ? strspn(name + 2, "0123456789") : 0;

    return digits > 0 && strcmp(name + 2 + digits, ".metadata") == 0;
}

/* A decimal number without superfluous zeros; false if it is something else or larger. */
static bool take_number(const char **at, int64_t most, int64_t *out)
{
    size_t digits = strspn(*at, "0123456789");

    *out = 0;
    if (digits == 0 || digits > 18 || (digits > 1 && **at == '0'))
        return false;
    for (size_t i = 0; i < digits; i++)
        *out = *out * 10 + (*at)[i] - '0';
    *at += digits;
    return *out <= most;
}

bool rsi_dcp_data_name(const char *name, int32_t *rank, int64_t *number)
{
    const char *at = name + 2;
    int64_t     r;

    if (strncmp(name, "__", 2) != 0 || !take_number(&at, INT32_MAX, &r) || *at++ != '_' ||
        !take_number(&at, INT64_MAX, number) || strcmp(at, ".distcp") != 0)
        return false;
    *rank = (int32_t)r;
    return true;
}

const char *rsi_dcp_key_file(const rsi_dcp_meta *meta, int32_t *rank, int64_t *number)
{
    const char *key = NULL;

    for (size_t i = 0; i < meta->nfiles; i++) {
        int32_t r;
        int64_t n;

        if (!rsi_dcp_data_name(meta->file[i], &r, &n) ||
            (key && (r > *rank || (r == *rank && n >= *number))))
            continue;
        key = meta->file[i];
        *rank = r;
        *number = n;
    }
    return key;
}

static rsd_err read_rank_metas(rsd_ckpt *ckpt, char **names, size_t n, rsi_dcp_meta **out,
                               rsd_error *err)
{
    rsi_dcp_meta **part = rsi_calloc(n, sizeof(part[0]));
    size_t         found = 0;
    rsd_err        rc = RSD_OK;

    if (!part)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the metadata of %zu ranks", n);
    for (size_t i = 0; i < n && !rc; i++)
        if (rsi_dcp_is_rank_metadata(names[i])) {
            rc = read_meta(ckpt, names[i], &part[found], err);
            found += !rc;
        }
    if (!rc)
        rc = rsi_dcp_meta_merge(found, (const rsi_dcp_meta *const *)part, out, err);
    for (size_t i = 0; i < found; i++)
        rsi_dcp_meta_free(part[i]);
    rsi_free(part);
    return rc;
}

static rsd_err read_own_meta(rsd_ckpt *ckpt, rsi_dcp_meta **out, rsd_error *err)
{
    char name[32];

    snprintf(name, sizeof(name), "__%" PRId32 ".metadata", ckpt->rank);
    return read_meta(ckpt, name, out, err);
}

static rsd_err find_meta(rsd_ckpt *ckpt, rsi_dcp_meta **out, rsd_error *err)
{
    char  **names;
    size_t  n;
    bool    shared = false, catalogue = false;
    rsd_err rc = rsi_files_list(&ckpt->files, &names, &n, err);

    if (!rc && ckpt->alone)
        return read_own_meta(ckpt, out, err);
    for (size_t i = 0; !rc && i < n; i++) {
        shared = shared || strcmp(names[i], ".metadata") == 0;
        catalogue = catalogue || strcmp(names[i], RSI_CATALOGUE_NAME) == 0;
    }
    if (!rc)
        rc = shared ? read_shared(ckpt, catalogue, out, err)
                    : read_rank_metas(ckpt, names, n, out, err);
    return rc;
}

/* Opens every file that the metadata name. */
static rsd_err open_files(rsd_ckpt *ckpt, rsi_dcp *dcp, rsd_error *err)
{
    const rsi_dcp_meta *meta = dcp->meta;

    dcp->file = rsi_arena_array(&ckpt->mem, meta->nfiles, sizeof(dcp->file[0]));
    if (!dcp->file)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu files", meta->nfiles);
    for (size_t i = 0; i < meta->nfiles; i++) {
        rsd_err rc = rsi_files_add(&ckpt->files, meta->file[i], false, &dcp->file[i], err);

        if (rc)
            return rc;
    }
    return RSD_OK;
}

/* ---- items must lie inside their files and apart from each other ---- */

typedef struct place {
    int64_t offset, length;
} place;

static int by_offset(const void *a, const void *b)
{
    const place *x = a, *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

static rsd_err check_file(const rsi_file *file, bool salvage, place *at, size_t n, rsd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t size = salvage ? (uint64_t)INT64_MAX : file->size; /* may be cut short */

        if ((uint64_t)at[i].offset > size || (uint64_t)at[i].length > size - (uint64_t)at[i].offset)
            return rsi_fail(err, RSD_E_FORMAT,
                            "file \"%s\": an item of %" PRId64 " bytes from byte %" PRId64
                            " on is listed, the file has %" PRIu64,
                            file->name, at[i].length, at[i].offset, file->size);
    }
    qsort(at, n, sizeof(at[0]), by_offset);
    for (size_t i = 1; i < n; i++)
        if (at[i].offset < at[i - 1].offset + at[i - 1].length)
            return rsi_fail(err, RSD_E_FORMAT,
                            "file \"%s\": the item at byte %" PRId64
                            " begins before the one at byte %" PRId64 " ends",
                            file->name, at[i].offset, at[i - 1].offset);
    return RSD_OK;
}

static const rsi_dcp_row *row_of(const rsi_dcp_meta *meta, size_t i)
{
    return i < meta->nchunks ? &meta->row[i] : &meta->item[i - meta->nchunks].row;
}

/* Of tensors from a catalogue, whose places the metadata's reader compared when it was made: that
 * they lie inside their files. Looks at single chunks only if the smallest file is too short for
 * them. */
static rsd_err check_ends(rsd_ckpt *ckpt, const rsi_dcp *dcp, rsd_error *err)
{
    const rsi_dcp_meta *meta = dcp->meta;
    uint64_t            least = UINT64_MAX;
    rsd_err             rc = RSD_OK;

    for (size_t f = 0; f < meta->nfiles; f++) {
        const uint64_t size = ckpt->files.file[dcp->file[f]]->size;

        least = size < least ? size : least;
    }
    for (size_t t = 0; t < meta->ntensors && !rc; t++) {
        const rsi_dcp_tensor *tensor = &meta->tensor[t];
        int64_t               min, at = 0, len = 0;

        if (tensor->nchunks == 0 ||
            (rsi_packed_range(&tensor->column[RSI_DCP_OFFSET], &min, &at) &&
             rsi_packed_range(&tensor->column[RSI_DCP_LENGTH], &min, &len) &&
             (uint64_t)at <= least && (uint64_t)len <= least - (uint64_t)at))
            continue;
        for (size_t i = 0; i < tensor->nchunks && !rc; i++) {
            const rsi_dcp_row row = rsi_dcp_row_of(meta, tensor, i);
            place             one = { .offset = row.offset, .length = row.length };

            rc = check_file(ckpt->files.file[dcp->file[row.file]], false, &one, 1, err);
        }
    }
    for (size_t i = 0; i < meta->nitems && !rc; i++) {
        const rsi_dcp_row *row = &meta->item[i].row;
        place              one = { .offset = row->offset, .length = row->length };

        rc = check_file(ckpt->files.file[dcp->file[row->file]], false, &one, 1, err);
    }
    ckpt->inside = !rc;
    return ckpt->salvage ? RSD_OK : rc;
}

/* True if the items of each file follow each other in the table's order, inside the file: the usual
 * case, which needs no sorting. end[f] is where the last one so far ends. */
static bool are_in_order(const rsd_ckpt *ckpt, const rsi_dcp *dcp, int64_t *end)
{
    const rsi_dcp_meta *meta = dcp->meta;

    for (size_t i = 0; i < meta->nchunks + meta->nitems; i++) {
        const rsi_dcp_row *row = row_of(meta, i);

        if (row->offset < end[row->file])
            return false;
        end[row->file] = row->offset + row->length; /* the metadata's reader checked the sum */
    }
    for (size_t f = 0; f < meta->nfiles; f++)
        if ((uint64_t)end[f] > ckpt->files.file[dcp->file[f]]->size)
            return false;
    return true;
}

/* Sorts the items by file in one pass. */
static rsd_err sort_places(rsd_ckpt *ckpt, const rsi_dcp *dcp, rsd_error *err)
{
    const rsi_dcp_meta *meta = dcp->meta;
    size_t              n = meta->nchunks + meta->nitems;
    size_t             *first = rsi_calloc(meta->nfiles + 2, sizeof(first[0]));
    place              *at = rsi_calloc(n, sizeof(at[0]));
    rsd_err             rc = RSD_OK;

    if (!first || !at)
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory to check %zu items", n);
    for (size_t i = 0; !rc && i < n; i++)
        first[row_of(meta, i)->file + 2]++;
    for (size_t f = 2; !rc && f < meta->nfiles + 2; f++)
        first[f] += first[f - 1];
    for (size_t i = 0; !rc && i < n; i++) {
        const rsi_dcp_row *row = row_of(meta, i);

        at[first[row->file + 1]++] = (place){ .offset = row->offset, .length = row->length };
    }
    for (size_t f = 0; !rc && f < meta->nfiles; f++)
        rc = check_file(ckpt->files.file[dcp->file[f]], ckpt->salvage, at + first[f],
                        first[f + 1] - first[f], err);
    rsi_free(first);
    rsi_free(at);
    return rc;
}

static rsd_err check_places(rsd_ckpt *ckpt, const rsi_dcp *dcp, rsd_error *err)
{
    int64_t *end = rsi_calloc(dcp->meta->nfiles, sizeof(end[0]));
    bool     good;

    if (!end)
        return rsi_fail(err, RSD_E_NOMEM, "no memory to check %zu files", dcp->meta->nfiles);
    good = are_in_order(ckpt, dcp, end);
    rsi_free(end);
    return good ? RSD_OK : sort_places(ckpt, dcp, err);
}

rsd_err rsi_dcp_check_files(rsd_ckpt *ckpt, rsi_dcp_meta *meta, rsd_error *err)
{
    rsi_dcp dcp = { .meta = meta };
    rsd_err rc = open_files(ckpt, &dcp, err);

    return rc ? rc : check_places(ckpt, &dcp, err);
}

/* ---- chunks must tile their tensors ---- */

typedef struct chunks {
    const rsi_dcp_meta   *meta;
    const rsi_dcp_tensor *tensor;
} chunks;

static void get_chunk(const void *arg, size_t i, rsd_box *out)
{
    const chunks *c = arg;
    const size_t  n = (size_t)c->tensor->ndim;
    int64_t       box[2 * RSD_MAX_NDIM];

    rsi_dcp_box_of(c->meta, c->tensor, i, box);
    out->ndim = c->tensor->ndim;
    memcpy(out->off, box, n * sizeof(box[0]));
    memcpy(out->len, box + n, n * sizeof(box[0]));
}

/* The boxes of a tensor from a catalogue lie inside it. The metadata's reader checks its own. */
static rsd_err check_boxes(const chunks *c, rsd_error *err)
{
    rsd_err rc = RSD_OK;
    rsd_box box;

    for (size_t i = 0; c->tensor->column && i < c->tensor->nchunks && !rc; i++) {
        get_chunk(c, i, &box);
        rc = rsi_box_check(&box, c->tensor->ndim, c->tensor->shape, err);
    }
    return rc;
}

static rsd_err check_tensor(const rsi_dcp_meta *meta, const rsi_dcp_tensor *tensor, bool partial,
                            rsd_error *err)
{
    chunks  c = { .meta = meta, .tensor = tensor };
    int64_t elems;
    rsd_err rc = rsi_shape_check(tensor->dtype, tensor->ndim, tensor->shape, &elems, err);

    if (!rc)
        rc = check_boxes(&c, err);
    if (!rc && elems > 0 && !partial)
        rc = rsi_refuse_bad_tiles(tensor->ndim, tensor->shape, tensor->nchunks, get_chunk, &c, err);
    return rc;
}

/* Tensors from a catalogue with the same shape and boxes are checked once. */
rsd_err rsi_dcp_check_tensors(const rsi_dcp_meta *meta, bool partial, rsd_error *err)
{
    rsi_map good = { 0 };
    rsd_err rc = RSD_OK;

    for (size_t t = 0; t < meta->ntensors && !rc; t++) {
        const rsi_dcp_tensor *tensor = &meta->tensor[t];
        uint64_t              bytes = rsd_dtype_size(tensor->dtype);
        bool                  was = false;

        if (tensor->same && rsi_map_get(&good, tensor->same, tensor->same_len, &bytes) &&
            bytes >= rsd_dtype_size(tensor->dtype))
            continue;
        rc = check_tensor(meta, tensor, partial, err);
        if (rc)
            rsi_while(err, rc = rc == RSD_E_INVALID ? RSD_E_FORMAT : rc, "tensor \"%s\"",
                      tensor->name);
        else if (tensor->same && !rsi_map_add(&good, tensor->same, tensor->same_len, &bytes, &was))
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory to check %zu tensors", meta->ntensors);
    }
    rsi_map_release(&good);
    return rc;
}

/* ---- answers ---- */

static void dcp_tensor(const rsd_ckpt *ckpt, size_t t, rsd_tensor_info *out)
{
    const rsi_dcp        *dcp = ckpt->self;
    const rsi_dcp_tensor *tensor = &dcp->meta->tensor[t];
    const bool            flat = tensor->whole;

    *out = (rsd_tensor_info){ .name = tensor->name,
                              .dtype = tensor->dtype,
                              .ndim = flat ? tensor->ndim - 1 : tensor->ndim,
                              .chunks = flat ? dcp->first_piece[t + 1] - dcp->first_piece[t]
                                             : tensor->nchunks,
                              .requires_grad = tensor->requires_grad };
    memcpy(out->shape, flat ? tensor->whole : tensor->shape,
           (size_t)out->ndim * sizeof(out->shape[0]));
    rsi_product(out->ndim, out->shape, (int64_t)rsd_dtype_size(tensor->dtype), &out->bytes);
}

static void dcp_chunk(const rsd_ckpt *ckpt, size_t t, size_t i, rsd_chunk *out, uint32_t *file)
{
    const rsi_dcp        *dcp = ckpt->self;
    const rsi_dcp_tensor *tensor = &dcp->meta->tensor[t];
    const rsi_dcp_piece  *piece = rsi_dcp_piece_of(dcp, t, i);
    const rsi_dcp_row     row = rsi_dcp_row_of(dcp->meta, tensor, piece ? piece->chunk : i);
    chunks                c = { .meta = dcp->meta, .tensor = tensor };

    *out = (rsd_chunk){ .file = dcp->meta->file[row.file],
                        .offset = (uint64_t)row.offset,
                        .length = (uint64_t)row.length };
    if (piece)
        rsi_dcp_piece_box(dcp, tensor, piece, &out->box);
    else
        get_chunk(&c, i, &out->box);
    if (row.transforms != RSI_DCP_NO_TRANSFORMS) {
        out->ntransforms = dcp->meta->transforms[row.transforms].n;
        out->transforms = dcp->meta->transforms[row.transforms].name;
    }
    *file = dcp->file[row.file];
}

static bool dcp_find(const rsd_ckpt *ckpt, const char *name, size_t *out)
{
    const rsi_dcp *dcp = ckpt->self;
    uint64_t       t;

    if (!rsi_map_get(&dcp->names, name, strlen(name), &t))
        return false;
    *out = (size_t)t;
    return true;
}

static size_t dcp_path(const rsd_ckpt *ckpt, const char *name, rsd_path_part *out, size_t cap)
{
    const rsi_dcp      *dcp = ckpt->self;
    const rsi_dcp_path *path;
    uint64_t            p;

    if (!rsi_map_get(&dcp->paths, name, strlen(name), &p))
        return 0;
    path = &dcp->meta->path[p];
    for (size_t i = 0; i < path->nparts && i < cap; i++)
        out[i] = (rsd_path_part){ .key = path->part[i].key, .index = path->part[i].index };
    return path->nparts;
}

static bool dcp_span(const rsd_ckpt *ckpt, size_t k, rsi_item *out)
{
    const rsi_dcp      *dcp = ckpt->self;
    const rsi_dcp_item *item;

    if (k < dcp->nmetas) {
        *out =
            (rsi_item){ .file = (uint32_t)k, .len = ckpt->files.file[k]->size, .what = "metadata" };
        return true;
    }
    if (k - dcp->nmetas >= dcp->meta->nitems)
        return false;
    item = &dcp->meta->item[k - dcp->nmetas];
    *out = (rsi_item){ .file = dcp->file[item->row.file],
                       .off = (uint64_t)item->row.offset,
                       .len = (uint64_t)item->row.length,
                       .object = item->name };
    return true;
}

static void dcp_close(rsd_ckpt *ckpt)
{
    rsi_dcp *dcp = ckpt->self;

    if (!dcp)
        return;
    rsi_map_release(&dcp->names);
    rsi_map_release(&dcp->paths);
    rsi_dcp_meta_free(dcp->meta);
    rsi_free(dcp->piece);
}

static const rsi_ckpt_ops dcp_ops = {
    .tensor = dcp_tensor,
    .chunk = dcp_chunk,
    .locate = rsi_dcp_locate,
    .prove = rsi_dcp_prove,
    .find = dcp_find,
    .object = rsi_dcp_object,
    .archive = rsi_dcp_archive,
    .path = dcp_path,
    .span = dcp_span,
    .close = dcp_close,
};

static rsd_err index_names(rsi_dcp *dcp, rsd_error *err)
{
    const rsi_dcp_meta *meta = dcp->meta;
    bool                ok = true;

    for (size_t t = 0; ok && t < meta->ntensors; t++) {
        uint64_t value = t;

        ok = rsi_map_add(&dcp->names, meta->tensor[t].name, strlen(meta->tensor[t].name), &value,
                         NULL);
    }
    for (size_t p = 0; ok && p < meta->npaths; p++) {
        uint64_t value = p;

        ok = rsi_map_add(&dcp->paths, meta->path[p].name, strlen(meta->path[p].name), &value, NULL);
    }
    return ok ? RSD_OK : rsi_fail(err, RSD_E_NOMEM, "no memory for %zu names", meta->ntensors);
}

/* A number above 0 comes from a save inside a folder, which never uses the plain name; that one may
 * then be left from an earlier checkpoint. */
static rsd_err name_sums(rsd_ckpt *ckpt, const rsi_dcp_meta *meta, rsd_error *err)
{
    int32_t rank = 0;
    int64_t number = 0;
    char   *name;

    ckpt->sums.key = rsi_dcp_key_file(meta, &rank, &number);
    if (!ckpt->sums.key)
        return RSD_OK;
    name = rsi_arena_array(&ckpt->mem, RSI_SUMS_BOUND, 1);
    if (!name)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a name");
    rsi_sums_bound(rank, number, name);
    ckpt->sums.bound = name;
    ckpt->sums.only_bound = number > 0;
    return RSD_OK;
}

rsd_err rsi_dcp_open(rsd_ckpt *ckpt, rsd_error *err)
{
    rsi_dcp *dcp = rsi_arena_array(&ckpt->mem, 1, sizeof(*dcp));
    rsd_err  rc;

    if (!dcp)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a checkpoint");
    ckpt->self = dcp;
    ckpt->ops = &dcp_ops;
    rc = find_meta(ckpt, &dcp->meta, err);
    dcp->nmetas = ckpt->files.n;
    if (!rc)
        rc = open_files(ckpt, dcp, err);
    if (!rc)
        rc = dcp->meta->row ? check_places(ckpt, dcp, err)
                            : check_ends(ckpt, dcp, ckpt->salvage ? NULL : err);
    if (!rc)
        rc = rsi_dcp_check_tensors(dcp->meta, ckpt->alone, err);
    if (!rc)
        rc = rsi_dcp_unflatten(dcp, &ckpt->mem, err);
    if (!rc)
        rc = index_names(dcp, err);
    if (rc)
        return rc;
    ckpt->ntensors = dcp->meta->ntensors;
    ckpt->nobjects = dcp->meta->nitems;
    ckpt->skipped = dcp->meta->skipped;
    ckpt->nskipped = dcp->meta->nskipped;
    rc = rsi_dcp_describe(ckpt, err);
    return rc ? rc : name_sums(ckpt, dcp->meta, err);
}
