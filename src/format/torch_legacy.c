/* SPDX-License-Identifier: Apache-2.0 */
/* The legacy form of torch.save: five pickles (magic number, version, system, the object, the keys
 * of its storages), then for each key the number of elements in 8 bytes and the elements. Only the
 * object tells the size of an element. The result looks like an archive: torch_archive.c and
 * torch_open.c continue from there. */
#include "format/torch_legacy.h"
#include "base/map.h"
#include "base/mem.h"
#include "format/value_core.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    MAGIC,
    VERSION,
    SYSTEM,
    OBJECT,
    KEYS,
    PICKLES,
    COUNT = 8,    /* bytes before a storage */
    LARGEST = 16, /* maximum bytes of an element */
    STEPS = 2,    /* allowed for each byte of the object */
    FREE_STEPS = 8192
};
#define FIRST_TRY ((uint64_t)64 << 10)
#define MOST      ((uint64_t)1 << 30) /* maximum bytes of a pickle */

typedef struct legacy {
    const rsi_source *source;
    rsi_arena        *mem;
    rsi_pickle       *p;
    uint64_t          at;    /* in the source: end of what was read */
    rsi_map           bytes; /* of each storage that the object names */
    rsi_zip          *out;
} legacy;

/* Reads the pickle at `at`, whose end only the pickle reader finds. The reader's memory limit
 * depends on the size of its input, so it gets more input until it succeeds. */
static rsd_err next_pickle(legacy *l, rsi_pv *root, uint64_t *len, rsd_error *err)
{
    const uint64_t rest = l->source->size - l->at, most = rest < MOST ? rest : MOST;
    rsi_source     part = *l->source;
    rsd_err        rc;

    part.start += l->at;
    for (uint64_t size = FIRST_TRY;; size *= 8) {
        part.size = size < most ? size : most;
        rc = rsi_pickle_read(l->p, &part, root, len, err);
        if (!rc || rc == RSD_E_NOMEM || part.size == most)
            break;
    }
    if (!rc)
        l->at += *len;
    return rc;
}

static rsd_err check_magic(const legacy *l, rsi_pv v, rsd_error *err)
{
    static const unsigned char magic[] = { 0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                           0x20, 0x6a, 0xa8, 0x50, 0x19 };
    size_t                     len = 0;
    const char                *bytes = rsi_pickle_bytes(l->p, v, &len);

    if (rsi_pickle_kind_of(l->p, v) == RSI_PICKLE_BIGINT && len == sizeof(magic) &&
        memcmp(bytes, magic, sizeof(magic)) == 0)
        return RSD_OK;
    return rsi_fail(err, RSD_E_UNSUPPORTED,
                    "it is a bare pickle that torch.save did not write: load it in Python and save "
                    "it with torch.save");
}

static rsd_err check_version(const legacy *l, rsi_pv v, rsd_error *err)
{
    int64_t version;

    if (rsi_pickle_int(l->p, v, &version) && version == 1001)
        return RSD_OK;
    return rsi_fail(err, RSD_E_UNSUPPORTED,
                    "a legacy torch.save file of a version other than 1001");
}

/* Finds the object's storages and their sizes. */
static rsd_err take_object(legacy *l, rsi_pv v, uint64_t len, rsd_error *err)
{
    rsi_opaque facts = { 0 };
    uint64_t   left = STEPS * len + FREE_STEPS;
    rsd_err    rc = rsi_value_opaque_read(l->p, v, &left, &facts, err);

    if (!rc && !facts.known)
        rc = rsi_fail(err, RSD_E_FORMAT, "a pickle that keeps referring to its own parts");
    for (size_t i = 0; i < facts.n && !rc; i++) {
        const rsd_value_tensor *t = &facts.storage[i];
        const size_t            key_len = strlen(t->storage);
        const char             *key = rsi_arena_text(l->mem, t->storage, key_len);
        uint64_t                size = (uint64_t)t->storage_bytes;

        if (!key || !rsi_map_add(&l->bytes, key, key_len, &size, NULL))
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for %zu storages", facts.n);
    }
    rsi_free(facts.storage);
    return rc;
}

/* Adds the storage at `at`. */
static rsd_err add_record(legacy *l, const char *key, rsd_error *err)
{
    unsigned char   le[COUNT];
    uint64_t        count = 0, size;
    const size_t    len = strlen(key) + sizeof("data/");
    char           *name = rsi_arena_array(l->mem, len, 1);
    rsi_zip_record *record = &l->out->record[l->out->n];
    rsd_err         rc = rsi_source_read(l->source, l->at, le, COUNT, err);

    if (rc)
        return rsi_while(err, rc, "storage \"%s\"", key);
    if (!name)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the name of a storage");
    if (!rsi_map_get(&l->bytes, key, strlen(key), &size))
        return rsi_fail(err, RSD_E_FORMAT, "storage \"%s\" is listed, but no tensor uses it", key);
    for (int i = COUNT - 1; i >= 0; i--)
        count = count << 8 | le[i];
    l->at += COUNT;
    if (count ? size % count != 0 || size / count == 0 || size / count > LARGEST : size != 0)
        return rsi_fail(err, RSD_E_FORMAT,
                        "storage \"%s\" at byte %" PRIu64 " has %" PRIu64
                        " elements, which can't be the %" PRIu64 " bytes that its tensors say",
                        key, l->source->start + l->at, count, size);
    if (size > l->source->size - l->at)
        return rsi_fail(err, RSD_E_FORMAT,
                        "storage \"%s\" at byte %" PRIu64 " has %" PRIu64
                        " bytes, the file ends before",
                        key, l->source->start + l->at, size);
    snprintf(name, len, "data/%s", key);
    *record = (rsi_zip_record){ .name = name, .data = l->at, .size = size };
    l->at += size;
    l->out->n++;
    return RSD_OK;
}

static rsd_err take_keys(legacy *l, rsi_pv keys, uint64_t pickle_at, uint64_t pickle_len,
                         rsd_error *err)
{
    rsi_pickle_iter it = rsi_pickle_each(l->p, keys);
    const size_t    n = rsi_pickle_count(l->p, keys);
    rsi_zip        *out = l->out;
    rsi_pv          key;
    rsd_err         rc = RSD_OK;

    if (rsi_pickle_kind_of(l->p, keys) != RSI_PICKLE_LIST || n != l->bytes.count)
        return rsi_fail(err, RSD_E_FORMAT, "%zu storages are listed, but its tensors use %zu", n,
                        l->bytes.count);
    out->record = rsi_arena_array(l->mem, n + 1, sizeof(out->record[0]));
    out->sorted = rsi_arena_array(l->mem, n + 1, sizeof(out->sorted[0]));
    if (!out->record || !out->sorted)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for %zu storages", n);
    out->record[out->n++] =
        (rsi_zip_record){ .name = "data.pkl", .data = pickle_at, .size = pickle_len };
    while (!rc && rsi_pickle_next(l->p, &it, &key)) {
        if (rsi_pickle_kind_of(l->p, key) != RSI_PICKLE_STR)
            return rsi_fail(err, RSD_E_FORMAT, "the key of a storage is not text");
        rc = add_record(l, rsi_pickle_text(l->p, key), err);
    }
    if (!rc && l->at != l->source->size)
        rc = rsi_fail(err, RSD_E_FORMAT, "%" PRIu64 " bytes after the last storage",
                      l->source->size - l->at);
    return rc ? rc : rsi_zip_sort(l->source, out, err);
}

static rsd_err read_all(legacy *l, rsd_error *err)
{
    uint64_t object_at = 0, object_len = 0;
    rsd_err  rc = RSD_OK;

    for (int i = MAGIC; i < PICKLES && !rc; i++) {
        rsi_pv   root = 0;
        uint64_t len = 0, at = l->at;

        rc = next_pickle(l, &root, &len, err);
        if (rc)
            break;
        if (i == MAGIC)
            rc = check_magic(l, root, err);
        if (i == VERSION)
            rc = check_version(l, root, err);
        if (i == OBJECT) {
            object_at = at;
            object_len = len;
            rc = take_object(l, root, len, err);
        }
        if (i == KEYS)
            rc = take_keys(l, root, object_at, object_len, err);
    }
    return rc;
}

rsd_err rsi_legacy_read(const rsi_source *source, rsi_arena *mem, rsi_zip *out, rsd_error *err)
{
    rsi_zip            made = { .folder = "", .version = 1 };
    legacy             l = { .source = source, .mem = mem, .out = &made };
    rsi_pickle_options options = { .max_stack = SIZE_MAX, .max_text = RSI_VALUE_BYTES };
    rsd_err            rc;

    options.classes = rsi_value_classes(&options.nclasses);
    rc = rsi_pickle_create(&options, &l.p, err);
    if (!rc)
        rc = read_all(&l, err);
    if (!rc)
        *out = made;
    rsi_map_release(&l.bytes);
    rsi_pickle_free(l.p);
    return rc;
}
