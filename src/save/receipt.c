/* SPDX-License-Identifier: Apache-2.0 */
/* Receipts of parts: plain bytes that go from the writing rank to the publishing one, so nothing in
 * them is trusted. In order: a header, the file's name, rows of checksums as they are, the metadata
 * of the items as a pickle, a digest of all that. Next: publish_parts.c. */
#include "save/save_part.h"
#include "base/digest.h"
#include "base/mem.h"
#include "format/dcp.h"

#include <string.h>

typedef struct header {
    char     magic[16];
    uint64_t name, bytes, nrows, about; /* lengths; the file's size */
    uint64_t has_sums, has_about;
} header;

static const char magic[16] = "reshard part 1\n";

static rsd_err put(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    return rsi_bytes_add(arg, bytes, len) ? RSD_OK
                                          : rsi_fail(err, RSD_E_NOMEM, "no memory for a receipt");
}

static rsd_err describe_items(const rsd_part *p, rsi_bytes *out, rsd_error *err)
{
    rsi_dcp_meta *meta = NULL;
    rsd_err       rc = rsi_items_meta(&p->image, p->state, p->n, p->item, p->file, &meta, err);

    if (!rc)
        rc = rsi_dcp_meta_write(meta, put, out, err);
    rsi_dcp_meta_free(meta);
    return rc;
}

rsd_err rsi_part_tell(rsd_part *p, bool describe, rsd_error *err)
{
    header    h = { .name = strlen(p->file), .bytes = p->bytes, .nrows = p->sums.n };
    rsi_bytes about = { 0 }, *out = &p->receipt;
    uint64_t  digest;
    rsd_err   rc = describe ? describe_items(p, &about, err) : RSD_OK;

    memcpy(h.magic, magic, sizeof(magic));
    h.has_sums = p->sums_wanted;
    h.has_about = describe;
    h.about = about.len;
    out->len = 0;
    if (!rc) {
        rsi_bytes_add(out, &h, sizeof(h));
        rsi_bytes_add(out, p->file, strlen(p->file) + 1);
        rsi_bytes_add(out, p->sums.row, p->sums.n * sizeof(p->sums.row[0]));
        rsi_bytes_add(out, about.at, about.len);
        digest = out->lost ? 0 : rsi_digest(0, out->at, out->len);
        if (!rsi_bytes_add(out, &digest, sizeof(digest)))
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a receipt");
    }
    rsi_free(about.at);
    return rc;
}

rsd_err rsi_part_told(const rsd_receipt *receipt, rsi_receipt *out, rsd_error *err)
{
    const unsigned char *bytes = receipt->bytes;
    size_t               len = receipt->len, body = len - sizeof(uint64_t);
    rsi_reader           r = { .at = bytes, .end = bytes ? bytes + len : bytes };
    uint64_t             said, digest;
    header               h;
    int32_t              rank;
    int64_t              number;

    if (!bytes || !rsi_read_copy(&r, &h, sizeof(h)) || memcmp(h.magic, magic, sizeof(magic)) != 0 ||
        len < sizeof(h) + sizeof(said) || h.nrows > len / sizeof(rsi_sum_row))
        return rsi_fail(err, RSD_E_INVALID, "not the receipt of a part");
    memcpy(&said, bytes + body, sizeof(said));
    digest = rsi_digest(0, bytes, body);
    r.end = bytes + body;
    *out = (rsi_receipt){ .bytes = h.bytes, .has_sums = h.has_sums, .nrows = (size_t)h.nrows };
    out->file = rsi_read_text(&r);
    out->row = rsi_read_next(&r, out->nrows * sizeof(rsi_sum_row));
    out->about_len = (size_t)h.about;
    out->about = h.has_about ? rsi_read_next(&r, out->about_len) : NULL;
    if (said != digest || r.cut || r.at != r.end ||
        (*out->file && !rsi_dcp_data_name(out->file, &rank, &number)) ||
        strlen(out->file) >= RSI_DATA_NAME)
        return rsi_fail(err, RSD_E_CORRUPT, "the receipt of a part has been changed");
    return RSD_OK;
}
