/* SPDX-License-Identifier: Apache-2.0 */
/* torch.save archives as arithmetic: where each record begins, and the bytes between the data. The
 * fields are those that torch's copy of miniz writes. tensor_pickle.c makes the pickle. */
#include "format/zip_write.h"
#include "base/checked.h"
#include "base/crc32.h"
#include "format/zip.h"
#include "format/zip_id.h"

#include <stdio.h>
#include <string.h>

/* Records in torch's order. Storage i is record STORAGE + i; the last two come after all
 * storages. */
enum { PICKLE, FORMAT, ALIGNMENT, BYTEORDER, STORAGE };
enum { LAST = 2, EVERY = STORAGE + LAST }; /* records besides storages */
enum { TORCH_ALIGN = 64 };

/* A record: its name inside the folder and, unless it is a storage, its bytes. */
typedef struct record {
    char                 name[32];
    size_t               name_len; /* including folder and slash */
    uint64_t             size;
    const unsigned char *bytes;
    unsigned char        word[RSI_ZIP_ID_LEN + 1]; /* holds short records */
} record;

static void set_word(record *rec, const char *name, const char *word)
{
    memcpy(rec->name, name, strlen(name) + 1);
    rec->size = strlen(word);
    memcpy(rec->word, word, (size_t)rec->size);
    rec->bytes = rec->word;
}

/* The serialization id is left blank: its length is known before its value. */
static void get_record(const rsi_zip_plan *plan, size_t r, record *rec)
{
    const rsi_zip_spec *spec = &plan->spec;
    char                align[16];

    memset(rec, 0, sizeof(*rec));
    if (r == PICKLE) {
        set_word(rec, "data.pkl", "");
        rec->size = spec->pickle_len;
        rec->bytes = spec->pickle;
    } else if (r == FORMAT) {
        set_word(rec, ".format_version", "1");
    } else if (r == ALIGNMENT) {
        snprintf(align, sizeof(align), "%u", (unsigned)spec->align);
        set_word(rec, ".storage_alignment", align);
    } else if (r == BYTEORDER) {
        set_word(rec, "byteorder", "little");
    } else if (r == STORAGE + spec->n) {
        set_word(rec, "version", "3\n");
    } else if (r > STORAGE + spec->n) {
        set_word(rec, ".data/serialization_id", "");
        rec->size = RSI_ZIP_ID_LEN;
        rec->bytes = rec->word;
    } else {
        snprintf(rec->name, sizeof(rec->name), "data/%zu", r - STORAGE);
        rec->size = spec->size[r - STORAGE];
    }
    rec->name_len = plan->folder_len + 1 + strlen(rec->name);
}

/* ---- places ---------------------------------------------------------------------------------- */

static bool is_full(const rsi_zip_plan *plan, uint64_t value)
{
    return value >= plan->spec.full;
}

/* Size of the zip64 field of a record that begins at `at`, 0 if not needed. */
static size_t wide_size(const rsi_zip_plan *plan, uint64_t at, uint64_t size)
{
    size_t len = (is_full(plan, size) ? 16u : 0u) + (is_full(plan, at) ? 8u : 0u);

    return len ? 4 + len : 0;
}

/* Bytes of padding after the other extra fields, so that the data start at a multiple of `align` in
 * the file. */
static size_t pad_size(const rsi_zip_plan *plan, uint64_t at, const record *rec)
{
    uint64_t end =
        plan->spec.start + at + RSI_ZIP_LOCAL + rec->name_len + 4 + wide_size(plan, at, rec->size);

    return (size_t)(-end & (plan->spec.align - 1));
}

static uint64_t header_size(const rsi_zip_plan *plan, uint64_t at, const record *rec)
{
    return RSI_ZIP_LOCAL + rec->name_len + wide_size(plan, at, rec->size) + 4 +
           pad_size(plan, at, rec);
}

static uint64_t descriptor_size(const rsi_zip_plan *plan, uint64_t at, uint64_t size)
{
    if (size == 0)
        return 0;
    return wide_size(plan, at, size) ? RSI_ZIP_DESCRIPTOR64 : RSI_ZIP_DESCRIPTOR;
}

static rsd_err check_spec(const rsi_zip_spec *spec, rsd_error *err)
{
    size_t len = strlen(spec->folder);

    if (len == 0 || len + 32 > RSI_ZIP_NAME_MAX || memchr(spec->folder, '/', len))
        return rsi_fail(err, RSD_E_INVALID, "the folder of an archive can't be named \"%s\"",
                        spec->folder);
    if (spec->align < 2 || spec->align > 32768 || (spec->align & (spec->align - 1)))
        return rsi_fail(err, RSD_E_INVALID, "data can't be aligned to %u bytes",
                        (unsigned)spec->align);
    if (spec->n > 1 && spec->start % spec->align)
        return rsi_fail(err, RSD_E_INVALID,
                        "an archive of %zu storages can't begin at byte %" PRIu64
                        ", which is not a multiple of %u",
                        spec->n, spec->start, (unsigned)spec->align);
    return RSD_OK;
}

/* Fills plan->at and plan->size. The caller provides the sizes, so their sum is checked on the
 * way. */
static rsd_err place_records(rsi_zip_plan *plan, rsd_error *err)
{
    const uint64_t most = INT64_MAX / 2; /* leaves room for headers and padding */
    uint64_t       at = 0, dir = 0;
    record         rec;

    for (size_t r = 0; r < plan->spec.n + EVERY; r++) {
        get_record(plan, r, &rec);
        plan->at[r] = at;
        if (rec.size > most || at > most || plan->spec.start > most)
            return rsi_fail(err, RSD_E_INVALID, "record \"%s\" of %" PRIu64 " bytes does not fit",
                            rec.name, rec.size);
        dir += RSI_ZIP_CENTRAL + rec.name_len + wide_size(plan, at, rec.size);
        at += header_size(plan, at, &rec) + rec.size + descriptor_size(plan, at, rec.size);
    }
    plan->at[plan->spec.n + EVERY] = at;
    plan->size = at + dir + RSI_ZIP_END64 + RSI_ZIP_LOCATOR + RSI_ZIP_END;
    return RSD_OK;
}

rsd_err rsi_zip_plan_make(const rsi_zip_spec *spec, rsi_arena *mem, rsi_zip_plan *out,
                          rsd_error *err)
{
    rsi_zip_plan plan = { .spec = *spec };
    rsd_err      rc;

    if (!plan.spec.folder)
        plan.spec.folder = "archive";
    if (!plan.spec.align)
        plan.spec.align = TORCH_ALIGN;
    if (!plan.spec.full)
        plan.spec.full = UINT32_MAX;
    rc = check_spec(&plan.spec, err);
    if (rc)
        return rc;
    plan.folder_len = strlen(plan.spec.folder);
    rc = rsi_zip_id_names(spec->n, &plan.names_id, err);
    if (rc)
        return rc;
    plan.at = rsi_arena_array(mem, spec->n + EVERY + 1, sizeof(plan.at[0]));
    if (!plan.at)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for an archive of %zu storages", spec->n);
    rc = place_records(&plan, err);
    if (rc)
        return rc;
    plan.pickle_crc = rsi_crc32(0, spec->pickle, spec->pickle_len);
    *out = plan;
    return RSD_OK;
}

uint64_t rsi_zip_data_at(const rsi_zip_plan *plan, size_t i)
{
    record rec;

    get_record(plan, STORAGE + i, &rec);
    return plan->at[STORAGE + i] + header_size(plan, plan->at[STORAGE + i], &rec);
}

uint64_t rsi_zip_gap_at(const rsi_zip_plan *plan, size_t i)
{
    return i ? rsi_zip_data_at(plan, i - 1) + plan->spec.size[i - 1] : 0;
}

uint64_t rsi_zip_gap_size(const rsi_zip_plan *plan, size_t i)
{
    uint64_t end;

    if (plan->kept[0])
        return plan->kept_len[i];
    end = i < plan->spec.n ? rsi_zip_data_at(plan, i) : plan->size;
    return end - rsi_zip_gap_at(plan, i);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The wanted bytes of a gap, from `lo` on; `at` is how far it has been written. */
typedef struct window {
    uint64_t       at, lo, hi;
    unsigned char *out; /* [hi - lo] */
} window;

/* Each appends something; bytes outside the window are dropped. */
static void put_bytes(window *w, const void *bytes, uint64_t len)
{
    uint64_t from = w->at > w->lo ? w->at : w->lo;
    uint64_t to = w->at + len < w->hi ? w->at + len : w->hi;

    if (from < to)
        memcpy(w->out + (from - w->lo), (const unsigned char *)bytes + (from - w->at),
               (size_t)(to - from));
    w->at += len;
}

static void put(window *w, uint64_t value, int bytes)
{
    unsigned char little[8];

    for (int i = 0; i < bytes; i++)
        little[i] = (unsigned char)(value >> (8 * i));
    put_bytes(w, little, (uint64_t)bytes);
}

static void put_name(window *w, const rsi_zip_plan *plan, const record *rec)
{
    put_bytes(w, plan->spec.folder, plan->folder_len);
    put_bytes(w, "/", 1);
    put_bytes(w, rec->name, rec->name_len - plan->folder_len - 1);
}

/* The zip64 field, if needed. `packed` is the second size: before the data, miniz does not know it
 * yet. */
static void put_wide(window *w, const rsi_zip_plan *plan, uint64_t at, const record *rec,
                     uint64_t packed)
{
    size_t len = wide_size(plan, at, rec->size);

    if (!len)
        return;
    put(w, RSI_ZIP_EXTRA64, 2);
    put(w, len - 4, 2);
    if (is_full(plan, rec->size)) {
        put(w, rec->size, 8);
        put(w, packed, 8);
    }
    if (is_full(plan, at))
        put(w, at, 8);
}

static uint64_t flags_of(const record *rec)
{
    return RSI_ZIP_FLAG_UTF8 | (rec->size ? RSI_ZIP_FLAG_AFTER : 0);
}

static void put_header(window *w, const rsi_zip_plan *plan, uint64_t at, const record *rec)
{
    static const char zs[64] = "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ"
                               "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ";
    size_t            pad = pad_size(plan, at, rec);

    put(w, RSI_ZIP_LOCAL_SIG, 4);
    put(w, 0, 2); /* version needed */
    put(w, flags_of(rec), 2);
    put(w, 0, 2); /* stored */
    put(w, 0, 4); /* time, date */
    put(w, 0, 4); /* CRC and sizes follow the data */
    put(w, 0, 8);
    put(w, rec->name_len, 2);
    put(w, wide_size(plan, at, rec->size) + 4 + pad, 2);
    put_name(w, plan, rec);
    put_wide(w, plan, at, rec, 0);
    put_bytes(w, "FB", 2);
    put(w, pad, 2);
    for (size_t left = pad; left > 0; left -= left < sizeof(zs) ? left : sizeof(zs))
        put_bytes(w, zs, left < sizeof(zs) ? left : sizeof(zs));
}

static void put_descriptor(window *w, const rsi_zip_plan *plan, uint64_t at, uint64_t size,
                           uint32_t crc)
{
    int width = wide_size(plan, at, size) ? 8 : 4;

    if (size == 0)
        return;
    put(w, RSI_ZIP_DESCRIPTOR_SIG, 4);
    put(w, crc, 4);
    put(w, size, width);
    put(w, size, width);
}

/* A record whose bytes are known here. */
static void put_record(window *w, const rsi_zip_plan *plan, uint64_t at, const record *rec,
                       uint32_t crc)
{
    put_header(w, plan, at, rec);
    put_bytes(w, rec->bytes, rec->size);
    put_descriptor(w, plan, at, rec->size, crc);
}

static void put_entry(window *w, const rsi_zip_plan *plan, uint64_t at, const record *rec,
                      uint32_t crc)
{
    uint64_t size = is_full(plan, rec->size) ? UINT32_MAX : rec->size;

    put(w, RSI_ZIP_CENTRAL_SIG, 4);
    put(w, 0, 4); /* versions: made by, needed */
    put(w, flags_of(rec), 2);
    put(w, 0, 2); /* stored */
    put(w, 0, 4); /* time, date */
    put(w, crc, 4);
    put(w, size, 4);
    put(w, size, 4);
    put(w, rec->name_len, 2);
    put(w, wide_size(plan, at, rec->size), 2);
    put(w, 0, 2); /* comment */
    put(w, 0, 2); /* disk */
    put(w, 0, 6); /* attributes */
    put(w, is_full(plan, at) ? UINT32_MAX : at, 4);
    put_name(w, plan, rec);
    put_wide(w, plan, at, rec, rec->size);
}

static void put_end(window *w, const rsi_zip_plan *plan)
{
    uint64_t n = plan->spec.n + EVERY;
    uint64_t dir_at = plan->at[n];
    uint64_t end_at = plan->size - RSI_ZIP_END64 - RSI_ZIP_LOCATOR - RSI_ZIP_END;
    uint64_t dir_size = end_at - dir_at;
    uint64_t n16 = n < UINT16_MAX ? n : UINT16_MAX;

    put(w, RSI_ZIP_END64_SIG, 4);
    put(w, RSI_ZIP_END64 - 12, 8);
    put(w, 0x031e, 2); /* made by */
    put(w, 0x2d, 2);   /* needed */
    put(w, 0, 8);      /* disks */
    put(w, n, 8);
    put(w, n, 8);
    put(w, dir_size, 8);
    put(w, dir_at, 8);
    put(w, RSI_ZIP_LOCATOR_SIG, 4);
    put(w, 0, 4); /* disk */
    put(w, end_at, 8);
    put(w, 1, 4); /* disks */
    put(w, RSI_ZIP_END_SIG, 4);
    put(w, 0, 4); /* disks */
    put(w, n16, 2);
    put(w, n16, 2);
    put(w, is_full(plan, dir_size) ? UINT32_MAX : dir_size, 4);
    put(w, is_full(plan, dir_at) ? UINT32_MAX : dir_at, 4);
    put(w, 0, 2); /* comment */
}

/* ---- gaps ------------------------------------------------------------------------------------ */

static uint32_t crc_of(const rsi_zip_plan *plan, size_t r, const record *rec, const uint32_t *crc)
{
    if (r == PICKLE)
        return plan->pickle_crc;
    if (r >= STORAGE && r < STORAGE + plan->spec.n)
        return crc[r - STORAGE];
    return rsi_crc32(0, rec->bytes, (size_t)rec->size);
}

/* The id is a fold over the CRCs of all records before it that have a descriptor. */
static void set_id(const rsi_zip_plan *plan, const uint32_t *crc, record *id)
{
    uint64_t fold = 0;
    record   rec;
    char     text[RSI_ZIP_ID_LEN + 1];

    for (size_t r = 0; r < plan->spec.n + EVERY - 1; r++) {
        get_record(plan, r, &rec);
        if (rec.size)
            fold = rsi_zip_id_fold(fold, crc_of(plan, r, &rec, crc));
    }
    rsi_zip_id_text(plan->names_id, fold, text);
    memcpy(id->word, text, RSI_ZIP_ID_LEN);
}

/* The records after the last storage, the directory and the end. */
static void put_tail(window *w, const rsi_zip_plan *plan, const uint32_t *crc)
{
    size_t n = plan->spec.n + EVERY;
    record rec, id;

    get_record(plan, n - 1, &id);
    set_id(plan, crc, &id);
    get_record(plan, n - 2, &rec);
    put_record(w, plan, plan->at[n - 2], &rec, crc_of(plan, n - 2, &rec, crc));
    put_record(w, plan, plan->at[n - 1], &id, crc_of(plan, n - 1, &id, crc));
    for (size_t r = 0; r < n - 1 && w->at < w->hi; r++) {
        get_record(plan, r, &rec);
        put_entry(w, plan, plan->at[r], &rec, crc_of(plan, r, &rec, crc));
    }
    if (w->at >= w->hi)
        return;
    put_entry(w, plan, plan->at[n - 1], &id, crc_of(plan, n - 1, &id, crc));
    put_end(w, plan);
}

static void make_gap(const rsi_zip_plan *plan, size_t i, const uint32_t *crc, window *w)
{
    record rec;

    for (size_t r = 0; i == 0 && r < STORAGE; r++) {
        get_record(plan, r, &rec);
        put_record(w, plan, plan->at[r], &rec, crc_of(plan, r, &rec, crc));
    }
    if (i > 0)
        put_descriptor(w, plan, plan->at[STORAGE + i - 1], plan->spec.size[i - 1], crc[i - 1]);
    if (i < plan->spec.n) {
        get_record(plan, STORAGE + i, &rec);
        put_header(w, plan, plan->at[STORAGE + i], &rec);
    } else {
        put_tail(w, plan, crc);
    }
}

/* ---- prepared gaps ---- */

enum { DATA_CRC, ID, ID_CRC, DATA_ENTRY, ID_ENTRY }; /* in plan->patch */
enum { ENTRY_CRC = 16 };                             /* from the start of an entry */

/* Finds the fields of the last gap that depend on the CRC of the data, counted from its start. */
static void find_patches(rsi_zip_plan *plan)
{
    uint64_t start = rsi_zip_gap_at(plan, 1), entry = plan->at[1 + EVERY];
    record   rec;

    plan->patch[DATA_CRC] = 4;
    for (size_t r = 0; r < 1 + EVERY; r++) {
        get_record(plan, r, &rec);
        if (r == STORAGE)
            plan->patch[DATA_ENTRY] = (size_t)(entry - start) + ENTRY_CRC;
        if (r == EVERY) {
            plan->patch[ID_ENTRY] = (size_t)(entry - start) + ENTRY_CRC;
            plan->patch[ID] = (size_t)(plan->at[r] - start + header_size(plan, plan->at[r], &rec));
            plan->patch[ID_CRC] = plan->patch[ID] + RSI_ZIP_ID_LEN + 4;
        }
        if (r < STORAGE && rec.size)
            plan->fold = rsi_zip_id_fold(plan->fold, crc_of(plan, r, &rec, NULL));
        entry += RSI_ZIP_CENTRAL + rec.name_len + wide_size(plan, plan->at[r], rec.size);
    }
}

rsd_err rsi_zip_plan_keep(rsi_zip_plan *plan, rsi_arena *mem, rsd_error *err)
{
    const uint32_t none = 0;
    unsigned char *gap[2];

    if (plan->spec.n != 1)
        return RSD_OK;
    for (size_t i = 0; i < 2; i++) {
        plan->kept_len[i] = (size_t)rsi_zip_gap_size(plan, i);
        gap[i] = rsi_arena_array(mem, plan->kept_len[i], 1);
        if (!gap[i])
            return rsi_fail(err, RSD_E_NOMEM, "no memory for the headers of an archive");
        make_gap(plan, i, &none, &(window){ .hi = plan->kept_len[i], .out = gap[i] });
    }
    find_patches(plan);
    plan->kept[0] = gap[0];
    plan->kept[1] = gap[1];
    return RSD_OK;
}

/* The last gap of an archive of one storage, already prepared for the CRC 0. */
static void patch_gap(const rsi_zip_plan *plan, uint32_t crc, window *w)
{
    const size_t *at = plan->patch;
    uint64_t      fold = rsi_zip_id_fold(plan->fold, crc);
    char          id[RSI_ZIP_ID_LEN + 1];
    uint32_t      id_crc;

    fold = rsi_zip_id_fold(fold, rsi_crc32(0, "3\n", 2)); /* "version" */
    rsi_zip_id_text(plan->names_id, fold, id);
    id_crc = rsi_crc32(0, id, RSI_ZIP_ID_LEN);
    w->at = at[DATA_CRC];
    put(w, crc, 4);
    w->at = at[ID];
    put_bytes(w, id, RSI_ZIP_ID_LEN);
    w->at = at[ID_CRC];
    put(w, id_crc, 4);
    w->at = at[DATA_ENTRY];
    put(w, crc, 4);
    w->at = at[ID_ENTRY];
    put(w, id_crc, 4);
}

void rsi_zip_gap_write(const rsi_zip_plan *plan, size_t i, const uint32_t *crc, uint64_t off,
                       size_t len, unsigned char *out)
{
    window w = { .lo = off, .hi = off + len, .out = out };

    if (!plan->kept[0]) {
        make_gap(plan, i, crc, &w);
        return;
    }
    put_bytes(&w, plan->kept[i], plan->kept_len[i]);
    if (i == 1 && plan->spec.size[0] > 0)
        patch_gap(plan, crc[0], &w);
}
