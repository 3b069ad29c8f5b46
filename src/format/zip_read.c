/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the structure of a torch.save archive. Written by hand, because zip libraries hide where
 * the data lie and let the directory contradict the headers before the data. The rules:
 *
 *   - the archive is the whole source: no byte before, after or between its parts, no comment;
 *   - one end record; zip64 records, if any, agree with it; the directory is directly before them;
 *   - one disk, no encryption, nothing compressed;
 *   - each record's own header and what follows its data agree with the directory;
 *   - names are UTF-8, relative, distinct, and inside one folder;
 *   - a record `version` says 1 to 10; `byteorder`, if present, says little or big.
 *
 * Data are not read and their CRC is not checked: that is up to the code that reads them. Only the
 * CRCs of the small records read here are checked. The pickle inside is left to tensor_pickle.c and
 * the general reader. The first half of the work is in zip_directory.c. */
#include "base/crc32.h"
#include "base/mem.h"
#include "format/zip_reader.h"

#include <stdlib.h>

/* ---- windows -------------------------------------------------------------------------------- */

static rsd_err load(const rsi_zip_reader *r, rsi_zip_window *w, uint64_t at, size_t len,
                    rsd_error *err)
{
    rsd_err rc;

    w->len = 0;
    rc = rsi_source_read(r->source, at, w->bytes, len, err);
    if (rc)
        return rc;
    w->at = at;
    w->len = len;
    return RSD_OK;
}

rsd_err rsi_zip_view(rsi_zip_reader *r, uint64_t off, size_t len, const unsigned char **out,
                     rsd_error *err)
{
    const rsi_zip_window *known[] = { &r->dir, &r->tail, &r->head, &r->roam };
    rsi_zip_window       *w = &r->roam;
    uint64_t              rest = off < r->source->size ? r->source->size - off : 0;
    uint64_t              at = off;
    size_t                take = len > RSI_ZIP_ROAM ? len : RSI_ZIP_ROAM;
    rsd_err               rc;

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        *out = rsi_zip_look(known[i], off, len);
        if (*out)
            return RSD_OK;
    }
    if (!r->head.len && off < RSI_ZIP_EDGE && len <= RSI_ZIP_EDGE - off) {
        w = &r->head;
        at = 0;
        take = RSI_ZIP_EDGE;
    } else if (take > rest) {
        take = rest > len ? (size_t)rest : len; /* rest < len: the read reports the error */
    }
    rc = load(r, w, at, take, err);
    if (rc)
        return rc;
    *out = w->bytes + (off - at);
    return RSD_OK;
}

/* Loads what is needed first: all of a small source, the tail of a large one. */
static rsd_err load_tail(rsi_zip_reader *r, rsd_error *err)
{
    uint64_t size = r->source->size;
    size_t   take = size <= RSI_ZIP_WHOLE ? (size_t)size : RSI_ZIP_EDGE;

    if (size < RSI_ZIP_END)
        return rsi_fail(err, RSD_E_FORMAT,
                        "%" PRIu64 " bytes at byte %" PRIu64 " are too few for a zip archive", size,
                        r->source->start);
    r->tail.bytes = r->buf;
    r->head.bytes = r->buf + RSI_ZIP_EDGE;
    r->roam.bytes = r->buf + 2 * RSI_ZIP_EDGE;
    return load(r, &r->tail, size - take, take, err);
}

/* The directory, if already in the tail, or in memory of its own. */
static rsd_err load_directory(rsi_zip_reader *r, unsigned char **own, rsd_error *err)
{
    uint64_t             len = r->dir_end - r->dir_at; /* at most the source's size */
    const unsigned char *known = rsi_zip_look(&r->tail, r->dir_at, (size_t)len);

    if (known) {
        r->dir = (rsi_zip_window){ .at = r->dir_at,
                                   .len = (size_t)len,
                                   .bytes = r->tail.bytes + (known - r->tail.bytes) };
        return RSD_OK;
    }
    *own = len <= SIZE_MAX ? rsi_alloc_aligned(1, (size_t)len) : NULL;
    if (!*own)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a directory of %" PRIu64 " bytes", len);
    r->dir.bytes = *own;
    return load(r, &r->dir, r->dir_at, (size_t)len, err);
}

/* ---- records -------------------------------------------------------------------------------- */

/* A size in a record's header: as in the directory, or left open because it follows the data. */
static bool size_agrees(const rsi_zip_entry *e, uint64_t told)
{
    return told == e->size || (told == 0 && (e->flags & RSI_ZIP_FLAG_AFTER));
}

/* Compares the sizes and the CRC in the header `p` with the directory. */
static bool header_agrees(const rsi_zip_entry *e, const unsigned char *p, const rsi_zip_extra *wide)
{
    uint32_t crc = rsi_le32(p + 14), packed = rsi_le32(p + 18), size = rsi_le32(p + 22);

    if (crc != e->crc && !(crc == 0 && (e->flags & RSI_ZIP_FLAG_AFTER)))
        return false;
    if (wide->len >= 16 &&
        !(size_agrees(e, rsi_le64(wide->bytes)) && size_agrees(e, rsi_le64(wide->bytes + 8))))
        return false;
    if (size == UINT32_MAX && packed == UINT32_MAX && wide->len >= 16)
        return true;
    return size_agrees(e, size) && size_agrees(e, packed);
}

/* Checks the header of a record; `limit` is where the next record or the directory begins. *data:
 * where the record's data begin. */
static rsd_err check_header(rsi_zip_reader *r, const rsi_zip_entry *e, uint64_t limit,
                            uint64_t *data, rsd_error *err)
{
    const unsigned char *name = rsi_zip_look(&r->dir, e->name, e->name_len);
    size_t               len = (size_t)RSI_ZIP_LOCAL + e->name_len;
    const unsigned char *p;
    unsigned char        head[RSI_ZIP_LOCAL];
    rsi_zip_extra        wide;
    rsd_err              rc;

    if (limit - e->at < len)
        return rsi_fail(err, RSD_E_FORMAT,
                        "its header at byte %" PRIu64 " overlaps what begins at byte %" PRIu64,
                        rsi_zip_place(r, e->at), rsi_zip_place(r, limit));
    rc = rsi_zip_view(r, e->at, len, &p, err);
    if (rc)
        return rc;
    if (rsi_le32(p) != RSI_ZIP_LOCAL_SIG)
        return rsi_fail(err, RSD_E_FORMAT, "no header at byte %" PRIu64, rsi_zip_place(r, e->at));
    rc = rsi_zip_check_kind(r, e->at + 6, rsi_le16(p + 6), rsi_le16(p + 8), err);
    if (rc)
        return rc;
    if (rsi_le16(p + 26) != e->name_len || memcmp(p + RSI_ZIP_LOCAL, name, e->name_len) != 0)
        return rsi_fail(err, RSD_E_FORMAT, "the header at byte %" PRIu64 " has a different name",
                        rsi_zip_place(r, e->at));
    if (rsi_le16(p + 6) != e->flags)
        return rsi_fail(err, RSD_E_FORMAT,
                        "flags 0x%x in the header at byte %" PRIu64 ", 0x%x in the directory",
                        rsi_le16(p + 6), rsi_zip_place(r, e->at), e->flags);
    memcpy(head, p, sizeof(head)); /* reading the extra fields may move the window */
    *data = e->at + len + rsi_le16(head + 28);
    if (*data > limit || e->size > limit - *data)
        return rsi_fail(err, RSD_E_FORMAT,
                        "its %" PRIu64 " bytes from byte %" PRIu64
                        " on overlap what begins at byte %" PRIu64,
                        e->size, rsi_zip_place(r, *data), rsi_zip_place(r, limit));
    rc = rsi_zip_read_extra(r, e->at + len, rsi_le16(head + 28), &wide, err);
    if (rc)
        return rc;
    if (!header_agrees(e, head, &wide))
        return rsi_fail(err, RSD_E_FORMAT,
                        "the header at byte %" PRIu64
                        " and the directory don't agree on its size or CRC",
                        rsi_zip_place(r, e->at));
    return RSD_OK;
}

/* Checks the bytes between the end of the data, `at`, and `limit`: the descriptor if the flags
 * announce one, else nothing. Its length tells whether it has a signature and 64-bit sizes. */
static rsd_err check_descriptor(rsi_zip_reader *r, const rsi_zip_entry *e, uint64_t at,
                                uint64_t limit, rsd_error *err)
{
    uint64_t             len = limit - at;
    bool                 wide = len == 20 || len == RSI_ZIP_DESCRIPTOR64;
    bool                 sig = len == RSI_ZIP_DESCRIPTOR || len == RSI_ZIP_DESCRIPTOR64;
    const unsigned char *p;
    rsd_err              rc;

    if (!(e->flags & RSI_ZIP_FLAG_AFTER) && len == 0)
        return RSD_OK;
    if (!(e->flags & RSI_ZIP_FLAG_AFTER) || !(len == 12 || wide || sig))
        return rsi_fail(err, RSD_E_FORMAT, "%" PRIu64 " bytes at byte %" PRIu64 " after its data%s",
                        len, rsi_zip_place(r, at),
                        e->flags & RSI_ZIP_FLAG_AFTER ? " are not a descriptor"
                                                      : " belong to nothing");
    rc = rsi_zip_view(r, at, (size_t)len, &p, err);
    if (rc)
        return rc;
    if (sig && rsi_le32(p) != RSI_ZIP_DESCRIPTOR_SIG)
        return rsi_fail(err, RSD_E_FORMAT, "no descriptor at byte %" PRIu64, rsi_zip_place(r, at));
    p += sig ? 4 : 0;
    if (rsi_le32(p) != e->crc || (wide ? rsi_le64(p + 4) : rsi_le32(p + 4)) != e->size ||
        (wide ? rsi_le64(p + 12) : rsi_le32(p + 8)) != e->size)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the descriptor at byte %" PRIu64
                        " and the directory don't agree on its size or CRC",
                        rsi_zip_place(r, at));
    return RSD_OK;
}

static int by_place(const void *a, const void *b)
{
    const rsi_zip_entry *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

static rsd_err check_record(rsi_zip_reader *r, size_t i, uint64_t *behind, uint64_t *data,
                            rsd_error *err)
{
    const rsi_zip_entry *e = &r->entry[i];
    uint64_t             limit = i + 1 < r->count ? r->entry[i + 1].at : r->dir_at;
    rsd_err              rc;

    if (e->at != *behind)
        return rsi_fail(err, RSD_E_FORMAT, "%" PRIu64 " bytes lie before the first record",
                        e->at - *behind);
    if (limit > r->dir_at || limit < e->at)
        return rsi_fail(err, RSD_E_FORMAT,
                        "a record claims to begin at byte %" PRIu64
                        " of the archive, but the directory begins at byte %" PRIu64,
                        limit, rsi_zip_place(r, r->dir_at));
    rc = check_header(r, e, limit, data, err);
    if (!rc)
        rc = check_descriptor(r, e, *data + e->size, limit, err);
    *behind = limit;
    return rc;
}

/* Checks the records in the order of the file and fills out->record. */
static rsd_err check_records(rsi_zip_reader *r, rsi_zip *out, rsd_error *err)
{
    uint64_t behind = 0; /* end of the previous record */

    qsort(r->entry, out->n, sizeof(r->entry[0]), by_place);
    for (size_t i = 0; i < out->n; i++) {
        const rsi_zip_entry *e = &r->entry[i];
        rsi_zip_record      *record = &out->record[i];
        const char          *name;
        rsd_err              rc;

        name = (const char *)rsi_zip_look(&r->dir, e->name, e->name_len);
        rc = check_record(r, i, &behind, &record->data, err);
        if (rc)
            return rsi_while(err, rc, "record \"%.*s\"", (int)e->name_len, name);
        record->name =
            rsi_arena_text(r->mem, name + r->folder_len, (size_t)e->name_len - r->folder_len);
        if (!record->name)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu records", out->n);
        record->size = e->size;
        record->crc32 = e->crc;
    }
    return RSD_OK;
}

static int by_name(const void *a, const void *b, void *arg)
{
    const rsi_zip_record *record = arg;

    return strcmp(record[*(const uint32_t *)a].name, record[*(const uint32_t *)b].name);
}

rsd_err rsi_zip_sort(const rsi_source *source, rsi_zip *out, rsd_error *err)
{
    for (size_t i = 0; i < out->n; i++)
        out->sorted[i] = (uint32_t)i;
    qsort_r(out->sorted, out->n, sizeof(out->sorted[0]), by_name, out->record);
    for (size_t i = 1; i < out->n; i++) {
        const rsi_zip_record *a = &out->record[out->sorted[i - 1]];
        const rsi_zip_record *b = &out->record[out->sorted[i]];

        if (strcmp(a->name, b->name) == 0)
            return rsi_fail(err, RSD_E_FORMAT,
                            "two records \"%s\", with data at bytes %" PRIu64 " and %" PRIu64,
                            a->name, source->start + a->data, source->start + b->data);
    }
    return RSD_OK;
}

const rsi_zip_record *rsi_zip_find(const rsi_zip *zip, const char *name)
{
    size_t low = 0, high = zip->n;

    while (low < high) {
        size_t                mid = low + (high - low) / 2;
        const rsi_zip_record *record = &zip->record[zip->sorted[mid]];
        int                   order = strcmp(name, record->name);

        if (order == 0)
            return record;
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

/* ---- torch's records --------------------------------------------------------------------- */

/* torch can be told to omit CRCs, which are then 0. */
static rsd_err check_crc(const rsi_zip_reader *r, const rsi_zip_record *record,
                         const unsigned char *bytes, rsd_error *err)
{
    uint32_t crc = rsi_crc32(0, bytes, (size_t)record->size);

    if (record->crc32 != 0 && record->crc32 != crc)
        return rsi_fail(err, RSD_E_CORRUPT,
                        "record \"%s\" at byte %" PRIu64 " has the CRC %08" PRIx32
                        ", not %08" PRIx32,
                        record->name, rsi_zip_place(r, record->data), crc, record->crc32);
    return RSD_OK;
}

/* A record of a few characters as text, without a final newline. */
static rsd_err read_word(rsi_zip_reader *r, const rsi_zip_record *record, char word[16],
                         rsd_error *err)
{
    const unsigned char *p;
    size_t               len;
    rsd_err              rc;

    if (record->size >= 16)
        return rsi_fail(err, RSD_E_FORMAT,
                        "record \"%s\" has %" PRIu64 " bytes, a word is expected", record->name,
                        record->size);
    len = (size_t)record->size;
    rc = rsi_zip_view(r, record->data, len, &p, err);
    if (!rc)
        rc = check_crc(r, record, p, err);
    if (rc)
        return rc;
    memcpy(word, p, len);
    if (len > 0 && word[len - 1] == '\n')
        len--;
    word[len] = 0;
    return RSD_OK;
}

static rsd_err read_version(rsi_zip_reader *r, rsi_zip *out, rsd_error *err)
{
    const rsi_zip_record *record = rsi_zip_find(out, "version");
    char                  word[16];
    rsd_err               rc;

    if (!record)
        record = rsi_zip_find(out, ".data/version");
    if (!record)
        return rsi_fail(err, RSD_E_FORMAT, "no record \"version\" in the archive at byte %" PRIu64,
                        r->source->start);
    rc = read_word(r, record, word, err);
    if (rc)
        return rc;
    for (int v = 1; v <= 10; v++) {
        char text[4] = { (char)('0' + v), 0 };

        if (strcmp(word, v == 10 ? "10" : text) == 0)
            out->version = v;
    }
    if (!out->version)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "record \"version\" at byte %" PRIu64 " says \"%s\", not 1 to 10",
                        rsi_zip_place(r, record->data), word);
    return RSD_OK;
}

static rsd_err read_byteorder(rsi_zip_reader *r, rsi_zip *out, rsd_error *err)
{
    const rsi_zip_record *record = rsi_zip_find(out, "byteorder");
    char                  word[16];
    rsd_err               rc;

    if (!record)
        return RSD_OK;
    rc = read_word(r, record, word, err);
    if (rc)
        return rc;
    out->big_endian = record->size == 3 && strcmp(word, "big") == 0;
    if (!out->big_endian && (record->size != 6 || strcmp(word, "little") != 0))
        return rsi_fail(err, RSD_E_FORMAT,
                        "record \"byteorder\" at byte %" PRIu64 " says \"%s\", not little or big",
                        rsi_zip_place(r, record->data), word);
    return RSD_OK;
}

/* Keeps the pickle if it is already in memory. */
static rsd_err keep_pickle(const rsi_zip_reader *r, rsi_zip *out, rsd_error *err)
{
    const rsi_zip_record *record = rsi_zip_find(out, "data.pkl");
    const unsigned char  *p = NULL;
    rsd_err               rc;

    if (record && record->size <= RSI_ZIP_WHOLE) {
        p = rsi_zip_look(&r->tail, record->data, (size_t)record->size);
        if (!p)
            p = rsi_zip_look(&r->head, record->data, (size_t)record->size);
    }
    if (!p)
        return RSD_OK;
    rc = check_crc(r, record, p, err);
    if (rc)
        return rc;
    out->pickle_len = (size_t)record->size;
    out->pickle = (const unsigned char *)rsi_arena_text(r->mem, (const char *)p, out->pickle_len);
    if (!out->pickle)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a pickle of %zu bytes", out->pickle_len);
    return RSD_OK;
}

static rsd_err fill(rsi_zip_reader *r, rsi_zip *out, rsd_error *err)
{
    rsd_err rc = rsi_zip_read_directory(r, err);

    if (rc)
        return rc;
    out->n = (size_t)r->count;
    out->record = rsi_arena_array(r->mem, out->n, sizeof(out->record[0]));
    out->sorted = rsi_arena_array(r->mem, out->n, sizeof(out->sorted[0]));
    out->folder = rsi_arena_text(r->mem, (const char *)r->dir.bytes + RSI_ZIP_CENTRAL,
                                 r->folder_len ? r->folder_len - 1 : 0);
    if (!out->record || !out->sorted || !out->folder)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu records", out->n);
    rc = check_records(r, out, err);
    if (!rc)
        rc = rsi_zip_sort(r->source, out, err);
    if (!rc)
        rc = read_version(r, out, err);
    if (!rc)
        rc = read_byteorder(r, out, err);
    if (!rc)
        rc = keep_pickle(r, out, err);
    return rc;
}

rsd_err rsi_zip_read(const rsi_source *source, rsi_arena *mem, rsi_zip *out, rsd_error *err)
{
    rsi_zip_reader r;
    rsi_zip        zip = { 0 };
    unsigned char *own = NULL;
    rsd_err        rc;

    memset(&r, 0, offsetof(rsi_zip_reader, buf)); /* the buffer is filled before it is read */
    r.source = source;
    r.mem = mem;
    rc = load_tail(&r, err);
    if (!rc)
        rc = rsi_zip_read_end(&r, err);
    if (!rc)
        rc = load_directory(&r, &own, err);
    if (!rc)
        rc = fill(&r, &zip, err);
    rsi_free(own);
    if (rc)
        return rsi_while(err, rc, "file \"%s\"", source->name);
    *out = zip;
    return RSD_OK;
}
