/* SPDX-License-Identifier: Apache-2.0 */
/* From the pickle of a `.metadata` file to records: each object of torch's classes is replaced by a
 * few numbers as soon as it is complete, so that half a million chunks fit in memory.
 * dcp_meta_link.c joins related records. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/dcp_meta_core.h"

enum { MAX_STEPS = 16, MAX_TRANSFORMS = 256, MAX_SKIPPED = 64 };
#define MAX_RECORDS (1u << 24) /* 28 bits of a user value, 3 of which give the kind */

static const char *const key_names[NKEYS] = {
    [KEY_OFFSETS] = "offsets",
    [KEY_SIZES] = "sizes",
    [KEY_PROPERTIES] = "properties",
    [KEY_SIZE] = "size",
    [KEY_CHUNKS] = "chunks",
    [KEY_FQN] = "fqn",
    [KEY_INDEX] = "index",
    [KEY_OFFSET] = "offset",
    [KEY_PATH] = "relative_path",
    [KEY_START] = "offset",
    [KEY_LENGTH] = "length",
    [KEY_TRANSFORMS] = "transform_descriptors",
    [KEY_DTYPE] = "dtype",
    [KEY_REQUIRES_GRAD] = "requires_grad",
    [KEY_TENSORS] = "state_dict_metadata",
    [KEY_PLANNER] = "planner_data",
    [KEY_STORAGE] = "storage_data",
    [KEY_STORAGE_META] = "storage_meta",
    [KEY_VERSION] = "version",
    [KEY_MCORE] = "mcore_data",
    [KEY_CHECKPOINT_ID] = "checkpoint_id",
    [KEY_SAVE_ID] = "save_id",
    [KEY_TRUE_SHAPE] = "nd_reformulated_orig_global_shape",
};

/* ---- Records ---- */

/* Makes room for n more records. */
static rsd_err more_records(dcp_reading *r, records *list, size_t n, size_t size, rsd_error *err)
{
    size_t need = list->n + n, cap = list->cap + list->cap / 2 + 16;
    void  *more;

    cap = cap < need ? need : cap;
    if (r->memory + rsi_pickle_memory(r->p) + (cap - list->cap) * size > r->limit)
        return rsi_fail(err, RSD_E_FORMAT,
                        "the objects take more than %zu bytes of memory, which is the limit for "
                        "%" PRIu64 " bytes",
                        r->limit, r->size);
    more = rsi_realloc(list->at, cap, size);
    if (!more)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the metadata");
    r->memory += (cap - list->cap) * size;
    list->at = more;
    list->cap = cap;
    return RSD_OK;
}

/* Adds n records; *out is the first, NULL for n == 0. */
static rsd_err add_records(dcp_reading *r, records *list, size_t n, size_t size, void **out,
                           rsd_error *err)
{
    rsd_err rc = list->cap - list->n < n ? more_records(r, list, n, size, err) : RSD_OK;

    *out = NULL;
    if (rc || n == 0)
        return rc;
    *out = (char *)list->at + list->n * size;
    list->n += n;
    return RSD_OK;
}

/* Adds a record and makes it the object's value. */
static inline rsd_err fold_to(dcp_reading *r, records *list, enum record what, const void *record,
                              size_t size, rsi_pv *out, rsd_error *err)
{
    rsd_err rc;

    if (list->n == MAX_RECORDS)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "more than %u objects of one class", MAX_RECORDS);
    if (list->n == list->cap) {
        rc = more_records(r, list, 1, size, err);
        if (rc)
            return rc;
    }
    memcpy((char *)list->at + list->n * size, record, size);
    *out = rsi_pickle_user((uint32_t)list->n++ << 3 | (uint32_t)what);
    return RSD_OK;
}

/* The attributes in a state: of a class with slots it is (None, attributes). */
static rsi_pv attributes_of(const dcp_reading *r, rsi_pv state)
{
    rsi_pv part[2];

    if (rsi_pickle_kind_of(r->p, state) != RSI_PICKLE_TUPLE ||
        rsi_pickle_items(r->p, state, part, 2) != 2 ||
        rsi_pickle_kind_of(r->p, part[0]) != RSI_PICKLE_NONE)
        return state;
    return part[1];
}

/* rsi_dcp_attributes; *all is set if there are no others. */
static bool attributes(const dcp_reading *r, rsi_pv state, int first, int n, rsi_pv *value,
                       bool *all)
{
    size_t others;
    bool   is_dict;

    for (int i = 0; i < n; i++)
        value[i] = NO_VALUE;
    is_dict = rsi_pickle_lookup(r->p, attributes_of(r, state), n, &r->key[first], value, &others);
    *all = is_dict && others == 0;
    return is_dict;
}

bool rsi_dcp_attributes(const dcp_reading *r, rsi_pv state, int first, int n, rsi_pv *value)
{
    bool all;

    return attributes(r, state, first, n, value, &all);
}

static rsd_err skip(dcp_reading *r, const char *class, rsi_pv key, rsd_error *err)
{
    const skipped_record  record = { .class = class, .key = key };
    const skipped_record *seen = r->skipped.at;
    void                 *at;
    rsd_err               rc;

    for (size_t i = 0; i < r->skipped.n; i++)
        if (seen[i].class == class && seen[i].key == key)
            return RSD_OK;
    if (r->skipped.n == MAX_SKIPPED)
        return RSD_OK;
    rc = add_records(r, &r->skipped, 1, sizeof(record), &at, err);
    if (!rc)
        memcpy(at, &record, sizeof(record));
    return rc;
}

/* The attributes that a class is known to have. */
typedef struct known {
    const char *class;
    int         first, n; /* key[first .. first + n - 1] are read */
    const char *more[5];  /* and these are not; NULL ends them */
    bool        strict;   /* others are refused, else skipped and listed */
} known;

static const known known_meta = { .class = "Metadata",
                                  .first = KEY_TENSORS,
                                  .n = KEY_MCORE - KEY_TENSORS + 1 };
static const known known_tensor = { .class = "TensorStorageMetadata",
                                    .first = KEY_PROPERTIES,
                                    .n = 3 };
static const known known_storage_meta = {
    .class = "StorageMeta", .first = KEY_CHECKPOINT_ID, .n = 2, .more = { "load_id", "modules" }
};
static const known known_bytes = { .class = "BytesStorageMetadata" };
static const known known_chunk = { .class = "ChunkStorageMetadata", .first = KEY_OFFSETS, .n = 2 };
static const known known_properties = { .class = "TensorProperties",
                                        .first = KEY_DTYPE,
                                        .n = 2,
                                        .more = { "layout", "memory_format", "pin_memory",
                                                  "strides" } };
/* Rows and their keys say where bytes lie and how: an unknown field may change that. */
static const known known_index = {
    .class = "MetadataIndex", .first = KEY_FQN, .n = 3, .strict = true
};
static const known known_info = {
    .class = "_StorageInfo", .first = KEY_PATH, .n = 4, .strict = true
};

static bool is_known(const dcp_reading *r, const known *k, rsi_pv key)
{
    for (int i = 0; i < k->n; i++)
        if (key == r->key[k->first + i])
            return true;
    for (size_t i = 0; k->more[i]; i++)
        if (strcmp(rsi_pickle_text(r->p, key), k->more[i]) == 0)
            return true;
    return false;
}

/* Lists or refuses the attributes that the class is not known to have. */
static rsd_err check_others(dcp_reading *r, const known *k, rsi_pv state, rsd_error *err)
{
    rsi_pickle_iter it;
    rsi_pv          key, v;
    rsd_err         rc = RSD_OK;

    state = attributes_of(r, state);
    if (rsi_pickle_kind_of(r->p, state) != RSI_PICKLE_DICT)
        return RSD_OK;
    it = rsi_pickle_each(r->p, state);
    while (!rc && rsi_pickle_next(r->p, &it, &key) && rsi_pickle_next(r->p, &it, &v)) {
        if (is_known(r, k, key))
            continue;
        if (k->strict)
            rc = rsi_fail(err, RSD_E_UNSUPPORTED,
                          "%s has the unknown field \"%s\", which may change where or how its "
                          "bytes lie",
                          k->class, rsi_pickle_text(r->p, key));
        else if (rsi_pickle_kind_of(r->p, key) == RSI_PICKLE_STR)
            rc = skip(r, k->class, key, err);
    }
    return rc;
}

static bool is_kind(const dcp_reading *r, rsi_pv v, rsi_pickle_kind kind)
{
    return v != NO_VALUE && rsi_pickle_kind_of(r->p, v) == kind;
}

/* ---- Objects ---- */

static rsd_err fold_chunk(dcp_reading *r, rsi_pv state, rsi_pv *out, rsd_error *err)
{
    rsi_pv       v[2];
    chunk_record chunk;
    bool         all;
    rsd_err      rc;

    if (!attributes(r, state, KEY_OFFSETS, 2, v, &all) || !rsi_pickle_is_ints(v[0]) ||
        !rsi_pickle_is_ints(v[1]))
        return rsi_fail(err, RSD_E_FORMAT, "a chunk has no offsets or no sizes");
    chunk = (chunk_record){ .offsets = v[0], .sizes = v[1] };
    rc = all ? RSD_OK : check_others(r, &known_chunk, state, err);
    return rc ? rc : fold_to(r, &r->chunk, REC_CHUNK, &chunk, sizeof(chunk), out, err);
}

/* The state is a dict or a tuple (dtype, layout, requires_grad, memory format, pin_memory); later
 * versions append more. */
static rsd_err fold_properties(dcp_reading *r, rsi_pv state, rsi_pv *out, rsd_error *err)
{
    rsi_pv            v[2] = { NO_VALUE, NO_VALUE }, part[PROPERTIES];
    properties_record properties;
    rsd_err           rc = RSD_OK;
    size_t            n = rsi_pickle_items(r->p, state, part, PROPERTIES);

    if (is_kind(r, state, RSI_PICKLE_TUPLE) && n >= PROPERTIES) {
        v[0] = part[0];
        v[1] = part[2];
        if (n > PROPERTIES + 1) /* strides, which the items have too */
            rc = skip(r, known_properties.class, NO_VALUE, err);
    } else {
        rsi_dcp_attributes(r, state, KEY_DTYPE, 2, v);
        rc = check_others(r, &known_properties, state, err);
    }
    if (rc)
        return rc;
    if (!is_kind(r, v[0], RSI_PICKLE_CLASS))
        return rsi_fail(err, RSD_E_FORMAT, "a tensor's properties have no dtype");
    properties =
        (properties_record){ .dtype = v[0], .requires_grad = is_kind(r, v[1], RSI_PICKLE_TRUE) };
    return fold_to(r, &r->properties, REC_PROPERTIES, &properties, sizeof(properties), out, err);
}

static rsd_err fold_tensor(dcp_reading *r, rsi_pv state, rsi_pv *out, rsd_error *err)
{
    rsi_pv          v[3], chunk;
    rsi_pickle_iter it;
    tensor_record   tensor;
    size_t          n;
    void           *at;
    bool            all;
    const bool      has = attributes(r, state, KEY_PROPERTIES, 3, v, &all);
    rsd_err         rc = all ? RSD_OK : check_others(r, &known_tensor, state, err);

    if (rc)
        return rc;
    if (!has || !is_record(v[0], REC_PROPERTIES, &tensor.properties) || !rsi_pickle_is_ints(v[1]) ||
        !is_kind(r, v[2], RSI_PICKLE_LIST))
        return rsi_fail(err, RSD_E_FORMAT, "a tensor lacks its properties, size or chunks");
    n = rsi_pickle_count(r->p, v[2]);
    /* Many tensors may share one list: allow no more chunks than there are bytes. */
    if (n > r->size - r->listed.n)
        return rsi_fail(err, RSD_E_FORMAT, "more chunks are listed than the file has bytes");
    tensor.size = v[1];
    tensor.first = (uint32_t)r->listed.n;
    tensor.n = (uint32_t)n;
    rc = add_records(r, &r->listed, n, sizeof(uint32_t), &at, err);
    if (rc)
        return rc;
    it = rsi_pickle_each(r->p, v[2]);
    for (size_t i = 0; rsi_pickle_next(r->p, &it, &chunk); i++)
        if (!is_record(chunk, REC_CHUNK, &((uint32_t *)at)[i]))
            return rsi_fail(err, RSD_E_FORMAT, "chunk %zu of a tensor has the wrong type", i);
    return fold_to(r, &r->tensor, REC_TENSOR, &tensor, sizeof(tensor), out, err);
}

static rsd_err fold_index(dcp_reading *r, rsi_pv state, rsi_pv *out, rsd_error *err)
{
    rsi_pv       v[3], field[4];
    index_record index;
    bool         all, has = attributes(r, state, KEY_FQN, 3, v, &all);
    rsd_err      rc = all ? RSD_OK : check_others(r, &known_index, state, err);

    if (rc)
        return rc;
    if (is_kind(r, state, RSI_PICKLE_LIST) && rsi_pickle_items(r->p, state, field, 4) == 3) {
        has = true; /* a frozen class with slots has a list of its fields: name, offset, number */
        v[0] = field[0];
        v[2] = field[1];
    }
    if (!has || !rsi_pickle_is_str(v[0]))
        return rsi_fail(err, RSD_E_FORMAT, "a storage key has no name");
    if (is_kind(r, v[2], RSI_PICKLE_NONE))
        v[2] = NO_VALUE;
    if (v[2] != NO_VALUE && !rsi_pickle_is_ints(v[2]))
        return rsi_fail(err, RSD_E_FORMAT, "the offset of a storage key is not a list of integers");
    index = (index_record){ .fqn = v[0], .offset = v[2] };
    return fold_to(r, &r->index, REC_INDEX, &index, sizeof(index), out, err);
}

/* The number of a list of transforms among those seen; a new one is added. The list is not
 * empty. */
static rsd_err find_transforms(dcp_reading *r, rsi_pv list, uint32_t *out, rsd_error *err)
{
    rsi_pv    name[MAX_STEPS];
    size_t    n = rsi_pickle_items(r->p, list, name, MAX_STEPS), first = 0;
    uint32_t *end = r->steps_end.at;
    void     *at;
    rsd_err   rc;

    if (n > MAX_STEPS || r->steps_end.n == MAX_TRANSFORMS)
        return rsi_fail(err, RSD_E_UNSUPPORTED, "too many transforms");
    for (size_t i = 0; i < n; i++)
        if (!is_kind(r, name[i], RSI_PICKLE_STR))
            return rsi_fail(err, RSD_E_FORMAT, "the name of a transform is not a str");
    for (uint32_t i = 0; i < r->steps_end.n; first = end[i++])
        if (end[i] - first == n &&
            memcmp((rsi_pv *)r->step.at + first, name, n * sizeof(name[0])) == 0) {
            *out = i;
            return RSD_OK;
        }
    rc = add_records(r, &r->step, n, sizeof(rsi_pv), &at, err);
    if (rc)
        return rc;
    memcpy(at, name, n * sizeof(name[0]));
    rc = add_records(r, &r->steps_end, 1, sizeof(uint32_t), &at, err);
    if (rc)
        return rc;
    *(uint32_t *)at = (uint32_t)r->step.n;
    *out = (uint32_t)r->steps_end.n - 1;
    return RSD_OK;
}

static rsd_err fold_info(dcp_reading *r, rsi_pickle_object *object, rsi_pv *out, rsd_error *err)
{
    rsi_pv      v[4];
    info_record info = { .transforms = RSI_DCP_NO_TRANSFORMS };
    int64_t     end;
    bool        all;
    const bool  has = attributes(r, object->state, KEY_PATH, 4, v, &all);
    rsd_err     rc = all ? RSD_OK : check_others(r, &known_info, object->state, err);

    if (rc)
        return rc;
    if (!has || !rsi_pickle_is_str(v[0]) || v[1] == NO_VALUE ||
        !rsi_pickle_int(r->p, v[1], &info.offset) || v[2] == NO_VALUE ||
        !rsi_pickle_int(r->p, v[2], &info.length))
        return rsi_fail(err, RSD_E_FORMAT, "a storage row lacks its file, offset or length");
    info.path = v[0];
    if (info.offset < 0 || info.length < 0 || !rsi_add(info.offset, info.length, &end))
        return rsi_fail(err, RSD_E_FORMAT,
                        "an impossible range: %" PRId64 " bytes at byte %" PRId64 " of file \"%s\"",
                        info.length, info.offset, rsi_pickle_text(r->p, v[0]));
    if (is_kind(r, v[3], RSI_PICKLE_LIST) || is_kind(r, v[3], RSI_PICKLE_TUPLE)) {
        object->keep = true; /* several rows may share the list */
        if (rsi_pickle_count(r->p, v[3]) > 0)
            rc = find_transforms(r, v[3], &info.transforms, err);
    } else if (v[3] != NO_VALUE && !is_kind(r, v[3], RSI_PICKLE_NONE)) {
        rc = rsi_fail(err, RSD_E_FORMAT, "the transforms of a storage row are not a list");
    }
    return rc ? rc : fold_to(r, &r->info, REC_INFO, &info, sizeof(info), out, err);
}

static bool is_memory_format(const char *name)
{
    static const char *const member[] = { "TORCH_CONTIGUOUS_FORMAT", "TORCH_CHANNELS_LAST",
                                          "TORCH_PRESERVE_FORMAT" };

    for (size_t i = 0; i < sizeof(member) / sizeof(member[0]); i++)
        if (strcmp(name, member[i]) == 0)
            return true;
    return false;
}

/* Python 3.11.0 to 3.11.3 writes a member of an enum as getattr(class, name). It becomes None:
 * nobody asks for it, and a text could stand for a name. */
static rsd_err fold_member(const dcp_reading *r, rsi_pv args, rsi_pv *out, rsd_error *err)
{
    const char *module, *name;
    rsi_pv      part[2];

    if (rsi_pickle_items(r->p, args, part, 2) != 2 || !rsi_pickle_is_str(part[1]) ||
        rsi_pickle_class_of(r->p, part[0], &module, &name) != CLS_MEMORY_FORMAT ||
        !is_memory_format(rsi_pickle_text(r->p, part[1])))
        return rsi_fail(err, RSD_E_FORMAT,
                        "refused, because loading it would call \"builtins.getattr\" for something "
                        "other than a memory format");
    *out = rsi_pickle_none();
    return RSD_OK;
}

/* torch.Size((2, 3)) becomes (2, 3), a layout becomes its name, a memory format its number.
 */
static rsd_err fold_call(dcp_reading *r, const rsi_pickle_object *object, rsi_pv *out,
                         rsd_error *err)
{
    rsi_pv arg = NO_VALUE;

    if (object->id == CLS_GETATTR)
        return fold_member(r, object->args, out, err);
    if (object->id == CLS_MEMORY_FORMAT && rsi_pickle_is_ints(object->args)) {
        *out = object->args;
        return RSD_OK;
    }
    if (rsi_pickle_items(r->p, object->args, &arg, 1) != 1)
        arg = NO_VALUE;
    if (object->id == CLS_SIZE ? !rsi_pickle_is_ints(arg) : !rsi_pickle_is_str(arg))
        return rsi_fail(err, RSD_E_FORMAT, "%s with invalid arguments",
                        object->id == CLS_SIZE ? "torch.Size" : "a layout or memory format");
    *out = arg;
    return RSD_OK;
}

static rsd_err fold(void *arg, const rsi_pickle *p, rsi_pickle_object *object, rsi_pv *out,
                    rsd_error *err)
{
    dcp_reading *r = arg;

    (void)p;
    switch (object->id) {
    case CLS_CHUNK:
        return fold_chunk(r, object->state, out, err);
    case CLS_PROPERTIES:
        return fold_properties(r, object->state, out, err);
    case CLS_TENSOR:
        return fold_tensor(r, object->state, out, err);
    case CLS_INDEX:
        return fold_index(r, object->state, out, err);
    case CLS_INFO:
        return fold_info(r, object, out, err);
    default:
        return fold_call(r, object, out, err);
    }
}

/* ---- The file ---- */

static rsd_err refuse_unlisted(const dcp_reading *r, const rsi_source *source, rsd_error *err)
{
    rsi_pickle_unlisted bad;

    if (rsi_pickle_calls_unlisted(r->p, &bad))
        return rsi_fail(err, RSD_E_FORMAT,
                        "byte %" PRIu64 ": refused, because loading it would call \"%s.%s\"",
                        source->start + bad.at, bad.module, bad.name);
    if (rsi_pickle_names_unlisted(r->p, &bad))
        return rsi_fail(err, RSD_E_FORMAT,
                        "byte %" PRIu64 ": refused, because it names \"%s.%s\", which does not "
                        "belong in a checkpoint's metadata",
                        source->start + bad.at, bad.module, bad.name);
    return RSD_OK;
}

static rsd_err read_records(dcp_reading *r, const rsi_source *source, rsi_pv *root, rsd_error *err)
{
    uint64_t used = 0;
    rsd_err  rc;

    for (int i = 0; i < NKEYS; i++) {
        r->key[i] = rsi_pickle_intern(r->p, key_names[i]);
        if (rsi_pickle_kind_of(r->p, r->key[i]) == RSI_PICKLE_GONE)
            return rsi_fail(err, RSD_E_NOMEM, "no memory for a pickle reader");
    }
    rc = rsi_pickle_read(r->p, source, root, &used, err);
    if (!rc)
        rc = refuse_unlisted(r, source, err);
    if (!rc && used != source->size)
        rc = rsi_fail(err, RSD_E_FORMAT,
                      "%" PRIu64 " bytes after the end of the pickle at byte %" PRIu64,
                      source->size - used, source->start + used);
    rsi_pickle_trim(r->p);
    return rc;
}

static void release(dcp_reading *r)
{
    records *const all[] = { &r->chunk,  &r->tensor, &r->properties, &r->index,  &r->info,
                             &r->listed, &r->step,   &r->steps_end,  &r->skipped };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        rsi_free(all[i]->at);
    rsi_free(r->copied);
    rsi_pickle_free(r->p);
}

/* Objects that are not folded to records. */
static rsd_err check_objects(dcp_reading *r, rsi_pv root, rsd_error *err)
{
    const rsi_pv    state = rsi_pickle_object_of(r->p, root).state;
    rsi_pickle_iter it;
    rsi_pv          dict, meta, key, v;
    rsd_err         rc = check_others(r, &known_meta, state, err);

    if (rc || !rsi_dcp_attributes(r, state, KEY_TENSORS, 1, &dict) ||
        !is_kind(r, dict, RSI_PICKLE_DICT))
        return rc; /* linking refuses it */
    rsi_dcp_attributes(r, state, KEY_STORAGE_META, 1, &meta);
    if (is_kind(r, meta, RSI_PICKLE_OBJECT) &&
        rsi_pickle_object_of(r->p, meta).id == CLS_STORAGE_META)
        rc = check_others(r, &known_storage_meta, rsi_pickle_object_of(r->p, meta).state, err);
    it = rsi_pickle_each(r->p, dict);
    while (!rc && rsi_pickle_next(r->p, &it, &key) && rsi_pickle_next(r->p, &it, &v)) {
        const rsi_pickle_object object = rsi_pickle_object_of(r->p, v);

        if (object.id == CLS_BYTES)
            rc = check_others(r, &known_bytes, object.state, err);
    }
    return rc;
}

rsd_err rsi_dcp_meta_read(const rsi_source *source, rsi_dcp_meta **out, rsd_error *err)
{
    dcp_reading        r = { .size = source->size };
    rsi_pickle_options options = { .fold = fold, .arg = &r };
    rsi_dcp_meta      *meta = rsi_calloc(1, sizeof(*meta));
    rsi_pv             root = NO_VALUE;
    rsd_err            rc;

    if (!meta)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for the metadata");
    options.classes = rsi_dcp_classes(&options.nclasses);
    rc = rsi_pickle_create(&options, &r.p, err);
    /* The pickle reader refuses sizes for which this could overflow. */
    r.limit = rsi_pickle_limit(source->size);
    if (!rc)
        rc = read_records(&r, source, &root, err);
    if (!rc) {
        size_t held = rsi_pickle_memory(r.p) + r.memory;

        meta->mem.limit = held < r.limit ? r.limit - held : 1;
        r.copied = rsi_calloc(rsi_pickle_nshared(r.p), sizeof(r.copied[0]));
        rc = r.copied ? check_objects(&r, root, err)
                      : rsi_fail(err, RSD_E_NOMEM, "no memory for the metadata");
        rc = rc ? rc : rsi_dcp_link(&r, root, meta, err);
    }
    release(&r);
    if (rc) {
        rsi_dcp_meta_free(meta);
        return rsi_while(err, rc, "file \"%s\"", source->name ? source->name : "");
    }
    *out = meta;
    return RSD_OK;
}
