/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts images. The gap after the data of a torch.save archive contains their CRC, so the order of
 * writing is restricted: a storage that fits into one cut shares it with the gap after it; a longer
 * one is cut into separate pieces, and the gap after it is late, as is the directory of an archive
 * with several storages. */
#include "convert/convert_blocks.h"
#include "base/checked.h"
#include "base/crc32.h"
#include "base/mem.h"

#define MOST_BYTES ((uint64_t)64 << 40)

typedef struct cutting {
    rsi_convert_blocks *cuts;
    const rsi_image    *image;
    rsi_cut_end         end;
    void               *arg;
    uint32_t            file;
    uint64_t            off;  /* in the file */
    bool                open; /* the last cut takes more */
} cutting;

static bool is_stored(const rsi_out_part *part)
{
    return part->kind == RSI_PART_DATA && part->crc;
}

/* Bytes of the gap after a storage. */
static uint64_t gap_behind(const rsi_out_part *part)
{
    return rsi_zip_gap_size(part->zip, part->nth + 1);
}

/* Storage and gap together don't fit into one cut. */
static bool is_long(const rsi_out_part *part)
{
    return is_stored(part) && (part->len > RSI_CONVERT_BLOCK_BYTES ||
                               gap_behind(part) > RSI_CONVERT_BLOCK_BYTES - part->len);
}

static bool is_late(const rsi_image *image, size_t p)
{
    const rsi_out_part *gap = &image->part[p];

    if (gap->kind != RSI_PART_GAP || gap->nth == 0)
        return false;
    return (gap->nth == gap->zip->spec.n && gap->nth > 1) || is_long(&image->part[p - 1]);
}

static rsd_err open_cut(cutting *c, size_t part, uint64_t part_off, rsd_error *err)
{
    rsi_convert_blocks *cuts = c->cuts;

    if (c->open)
        return RSD_OK;
    if (!rsi_grow(&cuts->at, cuts->n, &cuts->cap, sizeof(cuts->at[0])))
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu blocks", cuts->n + 1);
    cuts->at[cuts->n++] =
        (rsi_convert_block){ .file = c->file, .off = c->off, .part = part, .part_off = part_off };
    c->open = true;
    return RSD_OK;
}

/* Adds all of a part, in one or more cuts. */
static rsd_err add_part(cutting *c, size_t p, bool piece, bool late, rsd_error *err)
{
    const rsi_out_part *part = &c->image->part[p];
    const uint64_t      len = part->len;

    for (uint64_t done = 0; done < len;) {
        rsd_err            rc = open_cut(c, p, done, err);
        rsi_convert_block *cut;
        uint64_t           fits, more;

        if (rc)
            return rc;
        cut = &c->cuts->at[c->cuts->n - 1];
        fits =
            (uint64_t)rsi_min((int64_t)(len - done), (int64_t)(RSI_CONVERT_BLOCK_BYTES - cut->len));
        more = fits;
        if (c->end && part->kind == RSI_PART_DATA && fits < len)
            more = c->end(c->arg, part, done, fits);
        cut->piece = piece;
        cut->late = late;
        cut->len += (uint32_t)more;
        c->off += more;
        done += more;
        c->open = more == fits && cut->len < RSI_CONVERT_BLOCK_BYTES;
        if (late && cut->len == more)
            c->cuts->nlate++;
    }
    return RSD_OK;
}

static rsd_err cut_item(cutting *c, const rsi_out_item *item, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    c->open = false;
    for (size_t p = item->first; p < item->first + item->nparts && !rc; p++) {
        const rsi_out_part *part = &c->image->part[p];
        bool                piece = is_long(part), late = is_late(c->image, p);
        uint64_t room = c->open ? RSI_CONVERT_BLOCK_BYTES - c->cuts->at[c->cuts->n - 1].len : 0;

        if (piece || late || (is_stored(part) && part->len + gap_behind(part) > room))
            c->open = false;
        rc = add_part(c, p, piece, late, err);
        if (piece || late)
            c->open = false;
    }
    return rc;
}

/* A number in a recipe or config may ask for any size; the list of blocks has to fit into memory.
 */
static rsd_err check_size(const rsi_image *image, rsd_error *err)
{
    uint64_t bytes = 0;

    for (size_t p = 0; p < image->nparts && bytes <= MOST_BYTES; p++)
        bytes = image->part[p].len > MOST_BYTES ? MOST_BYTES + 1 : bytes + image->part[p].len;
    return bytes <= MOST_BYTES ? RSD_OK
                               : rsi_fail(err, RSD_E_UNSUPPORTED,
                                          "it would have more than 64 TiB, the most that a "
                                          "conversion writes");
}

rsd_err rsi_convert_blocks_make(rsi_convert_blocks *cuts, const rsi_image *image, rsi_cut_end end,
                                void *arg, rsd_error *err)
{
    cutting c = { .cuts = cuts, .image = image, .end = end, .arg = arg };
    rsd_err rc = check_size(image, err);

    *cuts = (rsi_convert_blocks){ 0 };
    for (size_t f = 0; f < image->nfiles && !rc; f++) {
        const rsi_out_file *file = &image->file[f];

        c.file = (uint32_t)f;
        c.off = 0;
        for (size_t i = 0; i < file->nitems && !rc; i++)
            rc = cut_item(&c, &image->item[file->first + i], err);
    }
    if (rc)
        rsi_convert_blocks_release(cuts);
    return rc;
}

void rsi_convert_blocks_release(rsi_convert_blocks *cuts)
{
    rsi_free(cuts->at);
    *cuts = (rsi_convert_blocks){ 0 };
}

void rsi_convert_blocks_join_crcs(const rsi_convert_blocks *cuts, const rsi_image *image)
{
    for (size_t i = 0; i < cuts->n; i++) {
        const rsi_convert_block *cut = &cuts->at[i];
        const rsi_out_part      *part = &image->part[cut->part];
        uint32_t                *crc = cut->piece ? &part->crc[part->nth] : NULL;

        if (crc)
            *crc = cut->part_off == 0 ? cut->crc : rsi_crc32_combine(*crc, cut->crc, cut->len);
    }
}
