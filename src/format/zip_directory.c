/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a zip archive and its directory: the half of the reader that runs first. zip_read.c
 * lists the rules, and checks the records' own headers afterwards. */
#include "format/zip_reader.h"
#include "base/checked.h"
#include "base/text.h"

/* ---- the end of the archive ----------------------------------------------------------------- */

/* The last bytes are not an end record. Reports what they are instead. */
static rsd_err refuse_end(const rsi_zip_reader *r, rsd_error *err)
{
    const rsi_zip_window *tail = &r->tail;

    for (size_t back = RSI_ZIP_END; back <= tail->len; back++) {
        const unsigned char *p = tail->bytes + tail->len - back;
        uint64_t             at = rsi_zip_place(r, r->source->size - back);

        if (rsi_le32(p) != RSI_ZIP_END_SIG)
            continue;
        if (rsi_le16(p + 20) && (size_t)rsi_le16(p + 20) + RSI_ZIP_END == back)
            return rsi_fail(err, RSD_E_FORMAT,
                            "the end record at byte %" PRIu64 " has a comment of %d bytes", at,
                            rsi_le16(p + 20));
        return rsi_fail(err, RSD_E_FORMAT,
                        "the archive ends at byte %" PRIu64 ", but %zu bytes follow it",
                        at + RSI_ZIP_END, back - RSI_ZIP_END);
    }
    return rsi_fail(err, RSD_E_FORMAT,
                    "no end record at byte %" PRIu64
                    ": this is not a zip archive, or it was cut short",
                    rsi_zip_place(r, r->source->size - RSI_ZIP_END));
}

static rsd_err refuse_disks(const rsi_zip_reader *r, uint64_t off, rsd_error *err)
{
    return rsi_fail(err, RSD_E_UNSUPPORTED,
                    "the record at byte %" PRIu64 " describes an archive on several disks",
                    rsi_zip_place(r, off));
}

/* True if a field of the plain end record equals the zip64 one, or defers to it. */
static bool agrees(uint64_t narrow, uint64_t wide, uint64_t full)
{
    return narrow == wide || narrow == full;
}

/* The zip64 records before the end record `end`. */
static rsd_err read_end64(rsi_zip_reader *r, const unsigned char *end, uint64_t *dir_size,
                          rsd_error *err)
{
    uint64_t             end_at = r->source->size - RSI_ZIP_END;
    uint64_t             at = end_at - RSI_ZIP_LOCATOR - RSI_ZIP_END64;
    const unsigned char *p;
    const unsigned char *locator = end - RSI_ZIP_LOCATOR;

    if (rsi_le32(locator + 4) != 0 || rsi_le32(locator + 16) != 1)
        return refuse_disks(r, end_at - RSI_ZIP_LOCATOR, err);
    if (end_at < RSI_ZIP_LOCATOR + RSI_ZIP_END64 || rsi_le64(locator + 8) != at)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the zip64 locator at byte %" PRIu64 " points to byte %" PRIu64
                        " of the archive, not to the record before it",
                        rsi_zip_place(r, end_at - RSI_ZIP_LOCATOR), rsi_le64(locator + 8));
    p = locator - RSI_ZIP_END64;
    if (rsi_le32(p) != RSI_ZIP_END64_SIG || rsi_le64(p + 4) != RSI_ZIP_END64 - 12)
        return rsi_fail(err, RSD_E_FORMAT, "no zip64 end record at byte %" PRIu64,
                        rsi_zip_place(r, at));
    if (rsi_le32(p + 16) != 0 || rsi_le32(p + 20) != 0 || rsi_le64(p + 24) != rsi_le64(p + 32))
        return refuse_disks(r, at, err);
    r->count = rsi_le64(p + 32);
    *dir_size = rsi_le64(p + 40);
    r->dir_at = rsi_le64(p + 48);
    r->dir_end = at;
    if (!agrees(rsi_le16(end + 10), r->count, UINT16_MAX) ||
        !agrees(rsi_le32(end + 12), *dir_size, UINT32_MAX) ||
        !agrees(rsi_le32(end + 16), r->dir_at, UINT32_MAX))
        return rsi_fail(err, RSD_E_FORMAT,
                        "the end record at byte %" PRIu64 " and the zip64 one at byte %" PRIu64
                        " don't agree",
                        rsi_zip_place(r, end_at), rsi_zip_place(r, at));
    return RSD_OK;
}

static rsd_err read_end32(rsi_zip_reader *r, const unsigned char *end, uint64_t *dir_size,
                          rsd_error *err)
{
    r->dir_end = r->source->size - RSI_ZIP_END;
    r->count = rsi_le16(end + 10);
    *dir_size = rsi_le32(end + 12);
    r->dir_at = rsi_le32(end + 16);
    if (r->count == UINT16_MAX || *dir_size == UINT32_MAX || r->dir_at == UINT32_MAX)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the end record at byte %" PRIu64 " points to a missing zip64 record",
                        rsi_zip_place(r, r->dir_end));
    return RSD_OK;
}

rsd_err rsi_zip_read_end(rsi_zip_reader *r, rsd_error *err)
{
    const rsi_zip_window *tail = &r->tail;
    const unsigned char  *end = tail->bytes + tail->len - RSI_ZIP_END;
    uint64_t              dir_size = 0, past;
    rsd_err               rc;

    if (rsi_le32(end) != RSI_ZIP_END_SIG || rsi_le16(end + 20) != 0)
        return refuse_end(r, err);
    if (rsi_le16(end + 4) != 0 || rsi_le16(end + 6) != 0 || rsi_le16(end + 8) != rsi_le16(end + 10))
        return refuse_disks(r, r->source->size - RSI_ZIP_END, err);
    if (tail->len >= RSI_ZIP_END + RSI_ZIP_LOCATOR &&
        rsi_le32(end - RSI_ZIP_LOCATOR) == RSI_ZIP_LOCATOR_SIG)
        rc = read_end64(r, end, &dir_size, err);
    else
        rc = read_end32(r, end, &dir_size, err);
    if (rc)
        return rc;
    if (!rsi_add_u64(r->dir_at, dir_size, &past) || past > r->dir_end)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the directory claims to have %" PRIu64 " bytes from byte %" PRIu64
                        " of the archive on, but the end records begin at byte %" PRIu64,
                        dir_size, r->dir_at, rsi_zip_place(r, r->dir_end));
    if (past < r->dir_end)
        return rsi_fail(err, RSD_E_FORMAT,
                        "%" PRIu64 " bytes too many before the end records at byte %" PRIu64
                        ": in front of the archive or after its directory",
                        r->dir_end - past, rsi_zip_place(r, r->dir_end));
    if (r->count > dir_size / RSI_ZIP_CENTRAL || r->count > UINT32_MAX)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the directory claims %" PRIu64 " records in %" PRIu64 " bytes", r->count,
                        dir_size);
    return RSD_OK;
}

/* ---- the directory -------------------------------------------------------------------------- */

/* What is wrong with a name; NULL: nothing. */
static const char *name_fault(const unsigned char *name, size_t len)
{
    size_t   part = 0; /* where the current part between slashes begins */
    uint32_t code;

    for (size_t i = 0, n; i < len; i += n) {
        n = name[i] < 0x80 ? 1 : rsi_utf8((const char *)name + i, len - i, &code);
        if (n == 0)
            return "is not UTF-8";
        if (name[i] == 0)
            return "holds a NUL";
        if (name[i] == '\\')
            return "contains a backslash";
    }
    for (size_t i = 0; i <= len; i++) {
        if (i < len && name[i] != '/')
            continue;
        if (i == 0 && len > 0)
            return "is absolute";
        if (i == part)
            return "has an empty part";
        if (i - part == 2 && name[part] == '.' && name[part + 1] == '.')
            return "leads out of its folder with \"..\"";
        part = i + 1;
    }
    return NULL;
}

static rsd_err check_name(rsi_zip_reader *r, const rsi_zip_entry *e, const unsigned char *name,
                          rsd_error *err)
{
    const unsigned char *first = r->dir.bytes + RSI_ZIP_CENTRAL;
    const char          *fault = name_fault(name, e->name_len);

    if (fault)
        return rsi_fail(err, RSD_E_FORMAT, "the name at byte %" PRIu64 " %s",
                        rsi_zip_place(r, e->name), fault);
    if (!r->folder_len) {
        const unsigned char *slash = memchr(name, '/', e->name_len);

        r->folder_len = slash ? (size_t)(slash - name) + 1 : 0;
    }
    if (!r->folder_len || e->name_len <= r->folder_len || memcmp(name, first, r->folder_len) != 0)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the name at byte %" PRIu64 " is not in the archive's one folder \"%.*s\"",
                        rsi_zip_place(r, e->name), (int)r->folder_len, (const char *)first);
    return RSD_OK;
}

/* Walks the extra fields of a header and keeps the one with 64-bit sizes. Others, mostly padding,
 * are skipped. */
rsd_err rsi_zip_read_extra(rsi_zip_reader *r, uint64_t at, size_t len, rsi_zip_extra *out,
                           rsd_error *err)
{
    *out = (rsi_zip_extra){ 0 };
    while (len > 0) {
        const unsigned char *p;
        size_t               id, n;
        rsd_err              rc;

        if (len < 4)
            return rsi_fail(err, RSD_E_FORMAT, "broken extra field at byte %" PRIu64,
                            rsi_zip_place(r, at));
        rc = rsi_zip_view(r, at, 4, &p, err);
        if (rc)
            return rc;
        id = rsi_le16(p);
        n = rsi_le16(p + 2);
        if (n > len - 4 || (id == RSI_ZIP_EXTRA64 && (out->found || n > sizeof(out->bytes))))
            return rsi_fail(err, RSD_E_FORMAT, "broken extra field at byte %" PRIu64,
                            rsi_zip_place(r, at));
        if (id == RSI_ZIP_EXTRA64) {
            rc = rsi_zip_view(r, at + 4, n, &p, err);
            if (rc)
                return rc;
            memcpy(out->bytes, p, n);
            out->len = n;
            out->found = true;
        }
        at += 4 + n;
        len -= 4 + n;
    }
    return RSD_OK;
}

/* A 32-bit field of the directory or, if it is full, the next 64-bit one. False: missing. */
static bool widen(uint32_t narrow, const rsi_zip_extra *extra, size_t *used, uint64_t *out)
{
    *out = narrow;
    if (narrow != UINT32_MAX)
        return true;
    if (extra->len - *used < 8)
        return false;
    *out = rsi_le64(extra->bytes + *used);
    *used += 8;
    return true;
}

rsd_err rsi_zip_check_kind(const rsi_zip_reader *r, uint64_t at, unsigned flags, unsigned method,
                           rsd_error *err)
{
    if (flags & 0x2041) /* encrypted, strongly encrypted, masked */
        return rsi_fail(err, RSD_E_UNSUPPORTED, "encrypted (flags 0x%x at byte %" PRIu64 ")", flags,
                        rsi_zip_place(r, at));
    if (method != 0)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "compressed (method %u at byte %" PRIu64 ")",
                        method, rsi_zip_place(r, at + 2));
    if (flags & ~(unsigned)(RSI_ZIP_FLAG_AFTER | RSI_ZIP_FLAG_UTF8 | 6)) /* 6: deflate options */
        return rsi_fail(err, RSD_E_UNSUPPORTED, "unknown flags 0x%x at byte %" PRIu64, flags,
                        rsi_zip_place(r, at));
    return RSD_OK;
}

/* Reads the entry at `at`; *next is set to its end. */
static rsd_err read_entry(rsi_zip_reader *r, uint64_t at, rsi_zip_entry *e, uint64_t *next,
                          rsd_error *err)
{
    const unsigned char *p = rsi_zip_look(&r->dir, at, RSI_ZIP_CENTRAL), *name;
    rsi_zip_extra        extra;
    size_t               used = 0, extra_len;
    uint64_t             packed;
    rsd_err              rc;

    if (!p || rsi_le32(p) != RSI_ZIP_CENTRAL_SIG)
        return rsi_fail(err, RSD_E_FORMAT, "no directory entry at byte %" PRIu64,
                        rsi_zip_place(r, at));
    e->flags = rsi_le16(p + 8);
    e->crc = rsi_le32(p + 16);
    e->name_len = rsi_le16(p + 28);
    e->name = at + RSI_ZIP_CENTRAL;
    extra_len = rsi_le16(p + 30);
    name = rsi_zip_look(&r->dir, e->name, e->name_len + extra_len);
    if (!name)
        return rsi_fail(err, RSD_E_FORMAT, "the entry at byte %" PRIu64 " leaves the directory",
                        rsi_zip_place(r, at));
    if (e->name_len > RSI_ZIP_NAME_MAX || rsi_le16(p + 32) != 0)
        return rsi_fail(err, RSD_E_UNSUPPORTED,
                        "the entry at byte %" PRIu64 " has a name of %u bytes, a comment of %u",
                        rsi_zip_place(r, at), e->name_len, rsi_le16(p + 32));
    if (rsi_le16(p + 34) != 0)
        return refuse_disks(r, at, err);
    rc = check_name(r, e, name, err);
    if (!rc)
        rc = rsi_zip_check_kind(r, at + 2, e->flags, rsi_le16(p + 10),
                                err); /* one field after a local header's */
    if (!rc)
        rc = rsi_zip_read_extra(r, e->name + e->name_len, extra_len, &extra, err);
    if (rc == RSD_E_UNSUPPORTED && memmem(name, e->name_len, "/code/__torch__", 15))
        return rsi_fail(err, rc,
                        "it is a TorchScript program, not a checkpoint: torch.jit.load it, and "
                        "torch.save its state_dict()");
    if (rc)
        return rsi_while(err, rc, "record \"%.*s\"", (int)e->name_len, (const char *)name);
    if (!widen(rsi_le32(p + 24), &extra, &used, &e->size) ||
        !widen(rsi_le32(p + 20), &extra, &used, &packed) ||
        !widen(rsi_le32(p + 42), &extra, &used, &e->at) || used != extra.len || packed != e->size)
        return rsi_fail(err, RSD_E_FORMAT, "record \"%.*s\": sizes don't agree at byte %" PRIu64,
                        (int)e->name_len, (const char *)name, rsi_zip_place(r, at));
    *next = e->name + e->name_len + extra_len;
    return RSD_OK;
}

/* Refuses a second end record hidden in the directory, which another reader could mistake for the
 * real one. */
static rsd_err refuse_second_end(const rsi_zip_reader *r, rsd_error *err)
{
    const unsigned char sig[] = { 'P', 'K', 5, 6 };
    size_t              from = 0;

    while (from < r->dir.len) {
        const unsigned char *hit = memmem(r->dir.bytes + from, r->dir.len - from, sig, sizeof(sig));
        uint64_t             at, behind;

        if (!hit)
            break;
        from = (size_t)(hit - r->dir.bytes) + 1;
        at = r->dir.at + from - 1;
        behind = r->source->size - at - RSI_ZIP_END;
        /* A CRC can look like the signature; one whose comment ends exactly at the end of the file
         * is no accident. */
        if (rsi_zip_look(&r->dir, at, RSI_ZIP_END) && rsi_le16(hit + 20) == behind)
            return rsi_fail(err, RSD_E_FORMAT, "a second end record at byte %" PRIu64,
                            rsi_zip_place(r, at));
    }
    return RSD_OK;
}

rsd_err rsi_zip_read_directory(rsi_zip_reader *r, rsd_error *err)
{
    uint64_t at = r->dir_at;
    rsd_err  rc;

    r->entry = rsi_arena_array(r->mem, (size_t)r->count, sizeof(r->entry[0]));
    if (!r->entry)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %" PRIu64 " records", r->count);
    for (uint64_t i = 0; i < r->count; i++) {
        rc = read_entry(r, at, &r->entry[i], &at, err);
        if (rc)
            return rc;
    }
    if (at != r->dir_end)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the directory's %" PRIu64 " entries end at byte %" PRIu64
                        ", the directory at byte %" PRIu64,
                        r->count, rsi_zip_place(r, at), rsi_zip_place(r, r->dir_end));
    return refuse_second_end(r, err);
}
