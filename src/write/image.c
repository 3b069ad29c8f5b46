/* SPDX-License-Identifier: Apache-2.0 */
/* Builds images: their lists of files, items and parts. stored_chunks.c says which chunks a tensor
 * is stored as, the formats decide the contents of files. */
#include "write/image.h"
#include "base/crc32.h"
#include "base/digest.h"
#include "base/mem.h"
#include "format/transform.h"

#include <inttypes.h>
#include <string.h>

enum { IMAGE_ALIGN = 64 }; /* of data in files */

static rsd_err no_memory(rsd_error *err)
{
    return rsi_fail(err, RSD_E_NOMEM, "no memory for the image of a checkpoint");
}

rsd_err rsi_image_file(rsi_image *image, const char *name, int32_t owner, rsd_error *err)
{
    if (!rsi_grow(&image->file, image->nfiles, &image->file_cap, sizeof(image->file[0])))
        return no_memory(err);
    image->file[image->nfiles++] =
        (rsi_out_file){ .name = name, .owner = owner, .first = image->nitems };
    return RSD_OK;
}

bool rsi_image_keeps(const rsi_image *image)
{
    return image->keep < 0 || image->file[image->nfiles - 1].owner == image->keep;
}

rsd_err rsi_image_item(rsi_image *image, rsi_dcp_row *row, rsd_error *err)
{
    if (!rsi_image_keeps(image))
        return RSD_OK;
    if (!rsi_grow(&image->item, image->nitems, &image->item_cap, sizeof(image->item[0])))
        return no_memory(err);
    image->item[image->nitems++] = (rsi_out_item){ .first = image->nparts, .row = row };
    image->file[image->nfiles - 1].nitems++;
    return RSD_OK;
}

rsd_err rsi_image_part(rsi_image *image, const rsi_out_part *part, rsd_error *err)
{
    rsi_out_file *file = &image->file[image->nfiles - 1];
    rsi_out_part *kept;

    if (rsi_image_keeps(image)) {
        if (!rsi_grow(&image->part, image->nparts, &image->part_cap, sizeof(image->part[0])))
            return no_memory(err);
        kept = &image->part[image->nparts++];
        *kept = *part;
        kept->at = file->bytes;
        kept->opens = image->item[image->nitems - 1].nparts++ == 0;
    }
    file->bytes += part->len;
    return RSD_OK;
}

rsd_box rsi_part_box(const rsd_state *state, const rsi_out_part *part)
{
    rsd_box box = { .ndim = state->tensor[part->tensor].ndim };
    size_t  bytes = (size_t)box.ndim * sizeof(box.off[0]);

    memcpy(box.off, part->box, bytes);
    memcpy(box.len, part->box + box.ndim, bytes);
    return box;
}

const int64_t *rsi_image_box(rsi_image *image, const rsd_box *box)
{
    size_t   bytes = (size_t)box->ndim * sizeof(box->off[0]);
    int64_t *kept = rsi_arena_array(&image->mem, 2, bytes);

    if (!kept)
        return NULL;
    memcpy(kept, box->off, bytes);
    memcpy(kept + box->ndim, box->len, bytes);
    return kept;
}

/* With several storages torch computes their places itself, so such an archive starts at an aligned
 * offset. */
static rsd_err align_file(rsi_image *image, rsd_error *err)
{
    static const unsigned char zeros[IMAGE_ALIGN];
    uint64_t                   over = image->file[image->nfiles - 1].bytes % sizeof(zeros);
    rsi_out_part               part = { .kind = RSI_PART_BYTES, .bytes = zeros };
    rsd_err                    rc;

    if (over == 0 || image->transform)
        return RSD_OK;
    part.len = sizeof(zeros) - over;
    rc = rsi_image_item(image, NULL, err);
    return rc ? rc : rsi_image_part(image, &part, err);
}

/* Everything shared by archives that differ only in their data. */
typedef struct archive_key {
    const void *pickle;
    uint64_t    bytes, skew; /* of the one storage; of the start, from an aligned place */
} archive_key;

static rsd_err make_archive(rsi_image *image, rsi_zip_spec *spec, const rsi_out_part *storage,
                            rsi_zip_plan **out, rsd_error *err)
{
    uint64_t     *size = rsi_arena_array(&image->mem, spec->n + 1, sizeof(size[0]));
    rsi_zip_plan *zip = rsi_arena_array(&image->mem, 1, sizeof(*zip));
    rsd_err       rc = size && zip ? RSD_OK : no_memory(err);

    for (size_t i = 0; i < spec->n && !rc; i++)
        size[i] = storage[i].len;
    spec->size = size;
    if (!rc)
        rc = rsi_zip_plan_make(spec, &image->mem, zip, err);
    *out = zip;
    return rc;
}

/* The plan of an archive with one storage: found, or made and kept for reuse. */
static rsd_err find_archive(rsi_image *image, rsi_zip_spec *spec, const rsi_out_part *storage,
                            rsi_zip_plan **out, rsd_error *err)
{
    archive_key key = { spec->pickle, storage->len, spec->start % IMAGE_ALIGN }, *kept;
    uint64_t    found;
    bool        was;
    rsd_err     rc;

    if (rsi_map_get(&image->archives, &key, sizeof(key), &found)) {
        *out = (rsi_zip_plan *)(uintptr_t)found;
        return RSD_OK;
    }
    rc = make_archive(image, spec, storage, out, err);
    if (!rc)
        rc = rsi_zip_plan_keep(*out, &image->mem, err);
    kept = rc ? NULL : rsi_arena_array(&image->mem, 1, sizeof(*kept));
    if (rc || !kept)
        return rc ? rc : no_memory(err);
    *kept = key;
    found = (uint64_t)(uintptr_t)*out;
    return rsi_map_add(&image->archives, kept, sizeof(*kept), &found, &was) ? RSD_OK
                                                                            : no_memory(err);
}

/* The parts of an archive: alternating gaps and storages. */
static rsd_err add_archive(rsi_image *image, rsi_zip_plan *zip, size_t n,
                           const rsi_out_part *storage, rsd_error *err)
{
    uint32_t *crc =
        rsi_image_keeps(image) ? rsi_arena_array(&image->mem, n + 1, sizeof(crc[0])) : NULL;
    rsd_err rc = crc || !rsi_image_keeps(image) ? RSD_OK : no_memory(err);

    for (size_t i = 0; i < n && crc; i++)
        if (storage[i].kind == RSI_PART_BYTES)
            crc[i] = rsi_crc32(0, storage[i].bytes, (size_t)storage[i].len);
    for (size_t i = 0; i <= n && !rc; i++) {
        rsi_out_part part = { .kind = RSI_PART_GAP, .nth = (uint32_t)i, .zip = zip, .crc = crc };

        part.len = rsi_zip_gap_size(zip, i);
        rc = rsi_image_part(image, &part, err);
        if (rc || i == n)
            break;
        part = storage[i];
        part.zip = zip;
        part.nth = (uint32_t)i;
        part.crc = crc;
        rc = rsi_image_part(image, &part, err);
    }
    return rc;
}

rsd_err rsi_image_archive(rsi_image *image, rsi_dcp_row *row, const void *pickle, size_t pickle_len,
                          size_t n, const rsi_out_part *storage, rsd_error *err)
{
    rsi_zip_spec  spec = { .pickle = pickle, .pickle_len = pickle_len, .n = n };
    rsi_zip_plan *zip;
    rsd_err       rc = n > 1 ? align_file(image, err) : RSD_OK;

    if (rc)
        return rc;
    /* A compressed item has no fixed place in the file to align. */
    spec.start = image->transform ? 0 : image->file[image->nfiles - 1].bytes;
    rc = n == 1 ? find_archive(image, &spec, storage, &zip, err)
                : make_archive(image, &spec, storage, &zip, err);
    if (!rc)
        rc = rsi_image_item(image, row, err);
    if (!rc && row && !image->transform) { /* else known only once written */
        row->offset = (int64_t)spec.start;
        row->length = (int64_t)zip->size;
    }
    return rc ? rc : add_archive(image, zip, n, storage, err);
}

rsd_err rsi_image_archive_bytes(rsi_image *image, const void *pickle, size_t pickle_len,
                                uint64_t storage, uint64_t start, uint64_t *out, rsd_error *err)
{
    rsi_zip_spec  spec = { .pickle = pickle, .pickle_len = pickle_len, .n = 1, .start = start };
    rsi_out_part  part = { .len = storage };
    rsi_zip_plan *zip;
    rsd_err       rc = find_archive(image, &spec, &part, &zip, err);

    *out = rc ? 0 : zip->size;
    return rc;
}

rsd_err rsi_image_storages(rsi_image *image, const rsi_storages *from, rsi_out_part **out,
                           rsd_error *err)
{
    rsi_out_part *part = rsi_arena_array(&image->mem, from->n, sizeof(part[0]));

    if (!part)
        return no_memory(err);
    for (size_t i = 0; i < from->n; i++) {
        const rsd_value_tensor *t = from->tensor[i];

        if (!t->bytes && t->storage_bytes > 0)
            return rsi_fail(err, RSD_E_UNSUPPORTED,
                            "a tensor of %" PRId64 " bytes in it has not been read",
                            t->storage_bytes);
        part[i] = (rsi_out_part){ .kind = RSI_PART_BYTES,
                                  .len = (uint64_t)t->storage_bytes,
                                  .bytes = t->bytes };
    }
    *out = part;
    return RSD_OK;
}

void rsi_image_release(rsi_image *image)
{
    rsi_free(image->file);
    rsi_free(image->item);
    rsi_free(image->part);
    rsi_free(image->row);
    rsi_free(image->box);
    rsi_free(image->packed.at);
    for (size_t i = 0; i < image->npickles; i++)
        rsi_free(image->pickle[i]);
    rsi_free(image->pickle);
    rsi_map_release(&image->pickles);
    rsi_map_release(&image->archives);
    rsi_arena_release(&image->mem);
    *image = (rsi_image){ 0 };
}

rsd_err rsi_image_transform(rsi_image *image, const char *name, rsd_error *err)
{
    const rsd_transform *transform;
    char                *text;
    size_t               len;
    rsd_err              rc;

    if (image->format != RSD_FORMAT_DCP)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "only DCP checkpoints can be transformed");
    rc = rsi_transform_find(name, &transform, err);
    if (rc)
        return rc;
    len = rsi_transform_descriptor(transform, NULL, 0);
    text = rsi_arena_array(&image->mem, len + 1, 1);
    if (!text)
        return no_memory(err);
    rsi_transform_descriptor(transform, text, len + 1);
    image->transform = text;
    image->encode = rsi_arena_text(&image->mem, name, strlen(name));
    return image->encode ? RSD_OK : no_memory(err);
}

rsd_err rsi_image_make(rsi_image *image, const rsd_state *state, const rsi_image_spec *spec,
                       rsd_error *err)
{
    rsd_err rc;

    *image = (rsi_image){ .format = spec->format,
                          .keep = spec->own_only ? spec->rank : -1,
                          .uneven = spec->uneven };
    rc = spec->transform ? rsi_image_transform(image, spec->transform, err) : RSD_OK;
    if (rc) {
        rsi_image_release(image);
        return rc;
    }
    switch (spec->format) {
    case RSD_FORMAT_DCP:
        rc = spec->one_file
                 ? rsi_fail(err, RSD_E_INVALID, "a DCP checkpoint is a folder, not a file")
                 : rsi_image_dcp(image, state, err);
        break;
    case RSD_FORMAT_SAFETENSORS:
        rc = rsi_image_st(image, state, spec, err);
        break;
    case RSD_FORMAT_TORCH:
        rc = rsi_image_torch(image, state, err);
        break;
    case RSD_FORMAT_ZERO:
        rc = spec->one_file ? rsi_fail(err, RSD_E_INVALID,
                                       "DeepSpeed's universal form is a folder, not a file")
                            : rsi_image_universal(image, state, err);
        break;
    case RSD_FORMAT_RANKS:
        rc = rsi_fail(err, RSD_E_UNSUPPORTED, "files of ranks can only be read");
        break;
    default:
        rc = rsi_fail(err, RSD_E_INVALID, "no output format given");
    }
    if (rc)
        rsi_image_release(image);
    for (size_t i = 0; i < image->nfiles; i++)
        if (image->transform || image->file[i].guessed)
            image->file[i].bytes = 0;
    return rc;
}

uint64_t rsi_image_digest(const rsi_image *image, const rsd_state *state, uint64_t d)
{
    for (size_t i = 0; i < image->nparts; i++) {
        const rsi_out_part *part = &image->part[i];
        uint64_t            fact[] = { part->kind, part->len, part->tensor, part->nth };

        d = rsi_digest(d, fact, sizeof(fact));
        if (part->kind == RSI_PART_DATA) {
            rsd_box box = rsi_part_box(state, part);

            d = rsi_digest(d, box.off, 2 * sizeof(box.off));
        } else if (part->kind == RSI_PART_BYTES) {
            d = rsi_digest(d, part->bytes, (size_t)part->len);
        } else if (part->nth == 0) {
            d = rsi_digest(d, part->zip->spec.pickle, part->zip->spec.pickle_len);
        }
    }
    return d;
}
