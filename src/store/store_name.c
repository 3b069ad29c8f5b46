/* SPDX-License-Identifier: Apache-2.0 */
/* The rules for names in a store, and the temporary names of trees being written. Names in
 * checkpoints are untrusted: one that leaves the store's folder must be refused here. */
#include "store/store.h"
#include "base/digest.h"
#include "base/mem.h"
#include "store/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_LIMIT = 4096 };

rsd_err rsi_store_name_check(const char *name, rsd_error *err)
{
    const char *part = name, *end;

    if (!name || !name[0])
        return rsi_fail(err, RSD_E_INVALID, "an empty name");
    if (strnlen(name, NAME_LIMIT) == NAME_LIMIT)
        return rsi_fail(err, RSD_E_INVALID, "a name of %d bytes or more", NAME_LIMIT);
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return rsi_fail(err, RSD_E_INVALID, "the name \"%s\" has a control character", name);
    for (;;) {
        size_t len;

        end = strchrnul(part, '/');
        len = (size_t)(end - part);
        if (len == 0)
            return rsi_fail(err, RSD_E_INVALID,
                            "the name \"%s\" has an empty part or starts with '/'", name);
        if ((len == 1 && part[0] == '.') || (len == 2 && part[0] == '.' && part[1] == '.'))
            return rsi_fail(err, RSD_E_INVALID, "the name \"%s\" has a part \"%.*s\"", name,
                            (int)len, part);
        if (!*end)
            return RSD_OK;
        part = end + 1;
    }
}

const char *rsi_last_part(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash ? slash + 1 : name;
}

void rsi_name_stem(const char *last, size_t extra, char stem[RSI_NAME_MAX + 1])
{
    size_t len = strlen(last), cut = RSI_NAME_MAX - extra - 17;

    if (len + extra <= RSI_NAME_MAX) {
        memcpy(stem, last, len + 1);
        return;
    }
    while (cut > 0 && ((unsigned char)last[cut] & 0xc0) == 0x80)
        cut--; /* don't split a character */
    snprintf(stem, RSI_NAME_MAX + 1, "%.*s~%016" PRIx64, (int)cut, last, rsi_digest(0, last, len));
}

char *rsi_name_behind(const char *name, const char *end)
{
    const char *last = rsi_last_part(name);
    size_t      top = (size_t)(last - name), len = top + RSI_NAME_MAX + strlen(end) + 1;
    char        stem[RSI_NAME_MAX + 1], *full = rsi_calloc(len, 1);

    if (!full)
        return NULL;
    rsi_name_stem(last, strlen(end), stem);
    snprintf(full, len, "%.*s%s%s", (int)top, name, stem, end);
    return full;
}

char *rsi_name_below(const char *folder, const char *name)
{
    size_t len = strlen(folder) + strlen(name) + 2;
    char  *full = rsi_calloc(len, 1);

    if (full)
        snprintf(full, len, "%s/%s", folder, name);
    return full;
}

void rsi_temp_name(const char *last, uint64_t random, char *buf)
{
    char stem[RSI_NAME_MAX + 1];

    rsi_name_stem(last, RSI_TEMP_EXTRA, stem);
    snprintf(buf, strlen(stem) + RSI_TEMP_EXTRA + 1, ".%s.tmp-%016" PRIx64, stem, random);
}

bool rsi_temp_match(const char *entry, const char *last)
{
    char   stem[RSI_NAME_MAX + 1];
    size_t len;

    rsi_name_stem(last, RSI_TEMP_EXTRA, stem);
    len = strlen(stem);
    return strlen(entry) == len + RSI_TEMP_EXTRA && entry[0] == '.' &&
           memcmp(entry + 1, stem, len) == 0 && memcmp(entry + 1 + len, ".tmp-", 5) == 0 &&
           strspn(entry + 6 + len, "0123456789abcdef") == 16;
}

rsd_err rsi_store_open_beside(const char *path, bool make, rsd_store **out, char **name,
                              rsd_error *err)
{
    char   *folder = NULL, *last = NULL;
    size_t  len = path ? strlen(path) : 0, start;
    rsd_err rc;

    while (len > 1 && path[len - 1] == '/')
        len--;
    for (start = len; start > 0 && path[start - 1] != '/'; start--)
        ;
    folder = rsi_calloc(start + 2, 1);
    last = rsi_calloc(len - start + 1, 1);
    if (!folder || !last) {
        rc = rsi_fail(err, RSD_E_NOMEM, "no memory for a path of %zu bytes", len);
        goto out;
    }
    if (start > 0)
        memcpy(folder, path, start);
    else
        folder[0] = '.';
    if (len > start)
        memcpy(last, path + start, len - start);
    rc = rsi_store_name_check(last, err);
    if (rc) {
        rsi_while(err, rc, "path \"%s\"", path ? path : "");
        goto out;
    }
    rc = make ? rsi_file_store_make_top(folder, NULL, err) : RSD_OK;
    if (!rc)
        rc = rsi_file_store_open(folder, NULL, out, err);
    if (!rc) {
        *name = last;
        last = NULL;
    }
out:
    rsi_free(folder);
    rsi_free(last);
    return rc;
}
