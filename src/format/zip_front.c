/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the records at the front of an archive without its directory, which is at the end: what a
 * stream can be asked while its bytes pass. zip_read.c then confirms it. */
#include "format/zip_reader.h"

enum { RECORDS = 16 }; /* before the first storage; torch writes up to four */

/* The size of a record whose size follows its data; *behind: where the next header is. False: its
 * end is not among the known bytes. */
static bool find_end(const unsigned char *bytes, size_t len, size_t data, size_t *size,
                     size_t *behind)
{
    const unsigned char sig[] = { 'P', 'K', 7, 8 };
    size_t              at = data;

    while (at < len) {
        const unsigned char *hit = memmem(bytes + at, len - at, sig, sizeof(sig));
        size_t               rest;

        if (!hit)
            return false;
        at = (size_t)(hit - bytes);
        rest = len - at;
        if (rest >= RSI_ZIP_DESCRIPTOR + 4 && rsi_le32(hit + 12) == at - data &&
            rsi_le32(hit + RSI_ZIP_DESCRIPTOR) == RSI_ZIP_LOCAL_SIG) {
            *size = at - data;
            *behind = at + RSI_ZIP_DESCRIPTOR;
            return true;
        }
        if (rest >= RSI_ZIP_DESCRIPTOR64 + 4 && rsi_le64(hit + 16) == at - data &&
            rsi_le32(hit + RSI_ZIP_DESCRIPTOR64) == RSI_ZIP_LOCAL_SIG) {
            *size = at - data;
            *behind = at + RSI_ZIP_DESCRIPTOR64;
            return true;
        }
        at++;
    }
    return false;
}

/* Reads the header at *at and goes to the next one. */
static bool next_record(const unsigned char *bytes, size_t len, rsi_arena *mem, size_t *at,
                        rsi_zip_record *out)
{
    const unsigned char *p = bytes + *at, *name = p + RSI_ZIP_LOCAL, *slash;
    size_t               rest = *at < len ? len - *at : 0, name_len, data, size;

    if (rest < RSI_ZIP_LOCAL || rsi_le32(p) != RSI_ZIP_LOCAL_SIG || rsi_le16(p + 8) != 0)
        return false;
    name_len = rsi_le16(p + 26);
    data = *at + RSI_ZIP_LOCAL + name_len + rsi_le16(p + 28);
    slash = data <= len ? memchr(name, '/', name_len) : NULL;
    if (!slash)
        return false;
    *out = (rsi_zip_record){ .data = data };
    out->name = rsi_arena_text(mem, (const char *)slash + 1, name_len - (size_t)(slash + 1 - name));
    if (!out->name)
        return false;
    if (strncmp(out->name, "data/", 5) == 0)
        return true;
    size = rsi_le32(p + 22);
    *at = data + size;
    if (rsi_le16(p + 6) & RSI_ZIP_FLAG_AFTER && !find_end(bytes, len, data, &size, at))
        return false;
    out->size = size;
    return size <= len - data;
}

bool rsi_zip_front(const unsigned char *bytes, size_t len, rsi_arena *mem, rsi_zip *out)
{
    const rsi_source source = { .name = "" };
    rsi_zip          zip = { 0 };
    size_t           at = 0;

    zip.record = rsi_arena_array(mem, RECORDS, sizeof(zip.record[0]));
    zip.sorted = rsi_arena_array(mem, RECORDS, sizeof(zip.sorted[0]));
    if (!zip.record || !zip.sorted)
        return false;
    for (bool data = false; !data;) {
        rsi_zip_record *r = &zip.record[zip.n];

        if (zip.n++ == RECORDS || !next_record(bytes, len, mem, &at, r))
            return false;
        data = strncmp(r->name, "data/", 5) == 0;
        if (strcmp(r->name, "byteorder") == 0)
            zip.big_endian = r->size == 3 && memcmp(bytes + r->data, "big", 3) == 0;
    }
    if (rsi_zip_sort(&source, &zip, NULL))
        return false;
    *out = zip;
    return true;
}
