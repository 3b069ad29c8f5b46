/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the header of a safetensors file and refuses whatever the format does not allow, even
 * where the reference library is lenient: duplicate keys, unknown fields, null as metadata, NULs in
 * names. check_tiling below ensures that the tensors tile the data exactly. Next: st_dcp.c finds
 * which parts of tensors these are. */
#include "format/st_header.h"
#include "base/checked.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };

typedef struct parser {
    rsi_json       json;
    rsi_st_header *head;
    size_t         tensor_cap, dim_cap, meta_cap;
    bool           cut; /* the file may be shorter than its header says */
    rsd_error     *err;
    struct {
        const char *name;
        size_t      len;
    } dtype[RSI_ST_DTYPES];
} parser;

const rsd_dtype rsi_st_dtypes[RSI_ST_DTYPES] = {
    RSD_U64,       RSD_I64,     RSD_F64, RSD_C64, RSD_F32,          RSD_U32,         RSD_I32,
    RSD_BF16,      RSD_F16,     RSD_U16, RSD_I16, RSD_F8_E5M2FNUZ,  RSD_F8_E4M3FNUZ, RSD_F8_E8M0FNU,
    RSD_F8_E4M3FN, RSD_F8_E5M2, RSD_I8,  RSD_U8,  RSD_F4_E2M1FN_X2, RSD_BOOL,
};

static rsd_err no_memory(const parser *p)
{
    return rsi_fail(p->err, RSD_E_NOMEM, "no memory for a header of %zu bytes", p->json.len);
}

/* The value at the token is well formed, but the format does not allow it there. */
static rsd_err refuse(const parser *p, const rsi_json_token *token, const char *why)
{
    return rsi_fail(p->err, RSD_E_FORMAT, "byte %" PRIu64 ": %s", p->json.base + token->at, why);
}

/* ---- one tensor ---- */

static rsd_err take_dtype(parser *p, rsi_st_tensor *tensor)
{
    rsi_json_token token;
    rsd_err rc = rsi_json_want(&p->json, RSI_JSON_STRING, "a dtype as a string", &token, p->err);

    if (rc)
        return rc;
    for (size_t i = 0; i < RSI_ST_DTYPES; i++)
        if (p->dtype[i].len == token.len && memcmp(p->dtype[i].name, token.text, token.len) == 0) {
            tensor->dtype = (uint8_t)rsi_st_dtypes[i];
            return RSD_OK;
        }
    tensor->listed = true;
    tensor->dtype = rsi_json_is(&token, "F6_E2M3") ? RSI_ST_F6_E2M3 : RSI_ST_F6_E3M2;
    if (tensor->dtype == RSI_ST_F6_E2M3 || rsi_json_is(&token, "F6_E3M2"))
        return RSD_OK;
    return rsi_fail(p->err, RSD_E_FORMAT, "byte %" PRIu64 ": unknown dtype \"%.*s\"",
                    p->json.base + token.at, rsi_json_shown(token.text, token.len), token.text);
}

/* The next element of an array, a whole number that is not negative; *more is false at the array's
 * end. */
static rsd_err take_u64(parser *p, const char *what, uint64_t *out, bool *more)
{
    rsi_json_token token;
    rsd_err        rc = rsi_json_next(&p->json, &token, p->err);

    if (rc)
        return rc;
    *more = token.kind != RSI_JSON_ARRAY_END;
    if (*more && (token.kind != RSI_JSON_INTEGER || token.negative))
        return rsi_json_expected(&p->json, &token, what, p->err);
    *out = token.number;
    return RSD_OK;
}

static rsd_err take_shape(parser *p, rsi_st_tensor *tensor)
{
    static const char what[] = "a size as a whole number from 0 to 2^64-1";
    rsi_st_header    *head = p->head;
    rsi_json_token    token;
    uint64_t          size = 0;
    size_t            n = 0;
    bool              more;
    rsd_err rc = rsi_json_want(&p->json, RSI_JSON_ARRAY, "an array of sizes", &token, p->err);

    for (; !rc; n++) {
        rc = take_u64(p, what, &size, &more);
        if (rc || !more)
            break;
        if (n == UINT8_MAX)
            return rsi_fail(p->err, RSD_E_UNSUPPORTED,
                            "byte %" PRIu64
                            ": it has more than %d dimensions, which is not supported",
                            p->json.base + token.at, UINT8_MAX);
        if (size > INT64_MAX)
            return refuse(p, &token, "a size in the shape is more than 2^63-1");
        if (!rsi_grow(&head->dim, head->ndims + n, &p->dim_cap, sizeof(head->dim[0])))
            return no_memory(p);
        head->dim[head->ndims + n] = (int64_t)size;
    }
    if (rc)
        return rc;
    tensor->shape = (uint32_t)head->ndims;
    tensor->ndim = (uint8_t)n;
    tensor->listed = tensor->listed || n > RSD_MAX_NDIM;
    head->ndims += n;
    return RSD_OK;
}

static rsd_err take_offsets(parser *p, rsi_st_tensor *tensor)
{
    static const char what[] = "an offset as a whole number from 0 to 2^64-1";
    rsi_json_token    token;
    uint64_t          at[2] = { 0, 0 }, third;
    bool              more = true;
    rsd_err rc = rsi_json_want(&p->json, RSI_JSON_ARRAY, "an array of two offsets", &token, p->err);

    for (int i = 0; i < 2 && !rc && more; i++)
        rc = take_u64(p, what, &at[i], &more);
    if (!rc && !more)
        return refuse(p, &token, "data_offsets has fewer than two numbers");
    if (!rc)
        rc = take_u64(p, what, &third, &more);
    if (!rc && more)
        return refuse(p, &token, "data_offsets has more than two numbers");
    tensor->begin = at[0];
    tensor->end = at[1];
    return rc;
}

static rsd_err take_field(parser *p, const rsi_json_token *key, rsi_st_tensor *tensor, int *seen)
{
    int field = rsi_json_is(key, "dtype")          ? DTYPE
                : rsi_json_is(key, "shape")        ? SHAPE
                : rsi_json_is(key, "data_offsets") ? OFFSETS
                                                   : 0;

    if (!field)
        return rsi_fail(p->err, RSD_E_FORMAT,
                        "byte %" PRIu64 ": unknown field \"%.*s\", only dtype, shape and "
                        "data_offsets are allowed",
                        p->json.base + key->at, rsi_json_shown(key->text, key->len), key->text);
    if (*seen & field)
        return rsi_fail(p->err, RSD_E_FORMAT, "byte %" PRIu64 ": the field \"%.*s\" is a duplicate",
                        p->json.base + key->at, (int)key->len, key->text);
    *seen |= field;
    return field == DTYPE   ? take_dtype(p, tensor)
           : field == SHAPE ? take_shape(p, tensor)
                            : take_offsets(p, tensor);
}

void rsi_st_describe(const rsi_st_header *header, const rsi_st_tensor *tensor, char *buf,
                     size_t cap)
{
    const int64_t *shape = rsi_st_shape(header, tensor);
    rsi_text       text = rsi_text_begin(buf, cap);

    rsi_text_add(&text, "%s [",
                 tensor->dtype == RSI_ST_F6_E2M3 ? "F6_E2M3"
                 : tensor->dtype == RSI_ST_F6_E3M2
                     ? "F6_E3M2"
                     : rsd_dtype_safetensors_name((rsd_dtype)tensor->dtype));
    for (int d = 0; d < tensor->ndim; d++)
        rsi_text_add(&text, "%s%" PRId64, d ? ", " : "", shape[d]);
    rsi_text_add(&text, "]");
}

/* Of one value as the header counts them. */
static int64_t bits_of(const rsi_st_tensor *tensor)
{
    if (tensor->dtype == RSI_ST_F6_E2M3 || tensor->dtype == RSI_ST_F6_E3M2)
        return 6;
    if (tensor->dtype == RSD_F4_E2M1FN_X2)
        return 4;
    return 8 * (int64_t)rsd_dtype_size((rsd_dtype)tensor->dtype);
}

/* F4 counts values and packs two into a byte; this library, like torch, counts the bytes of the
 * last dimension. */
static void halve_last(rsi_st_tensor *tensor, int64_t *shape)
{
    if (tensor->ndim == 0 || shape[tensor->ndim - 1] % 2 != 0)
        tensor->listed = true;
    else
        shape[tensor->ndim - 1] /= 2;
}

/* Checks its fields against each other and against the data. */
static rsd_err check_tensor(const parser *p, rsi_st_tensor *tensor)
{
    int64_t      *shape = p->head->dim + tensor->shape;
    const int64_t bits = bits_of(tensor), few = bits % 8 ? 8 : 1; /* values that fill bytes */
    int64_t       bytes;
    char          what[RSD_MAX_NDIM * 22 + 32];

    if (tensor->begin > tensor->end)
        return rsi_fail(p->err, RSD_E_FORMAT,
                        "data_offsets [%" PRIu64 ", %" PRIu64 "] end before they begin",
                        tensor->begin, tensor->end);
    if (tensor->end > (p->cut ? (uint64_t)INT64_MAX : p->head->data_bytes))
        return rsi_fail(p->err, RSD_E_FORMAT,
                        "data_offsets [%" PRIu64 ", %" PRIu64 "] end after the %" PRIu64
                        " bytes of data that the file has",
                        tensor->begin, tensor->end, p->head->data_bytes);
    if (rsi_product(tensor->ndim, shape, bits * few / 8, &bytes) && bytes % few == 0 &&
        (uint64_t)(bytes / few) == tensor->end - tensor->begin) {
        if (tensor->dtype == RSD_F4_E2M1FN_X2 && !tensor->listed)
            halve_last(tensor, shape);
        return RSD_OK;
    }
    rsi_st_describe(p->head, tensor, what, sizeof(what));
    if (!rsi_product(tensor->ndim, shape, bits * few / 8, &bytes))
        return rsi_fail(p->err, RSD_E_FORMAT, "%s: the size does not fit into 64 bits", what);
    if (bytes % few != 0)
        return rsi_fail(p->err, RSD_E_FORMAT,
                        "%s: %" PRId64 " values of %" PRId64
                        " bits are not a whole number of bytes",
                        what, bytes / bits, bits);
    return rsi_fail(p->err, RSD_E_FORMAT,
                    "%s takes %" PRId64 " bytes, but data_offsets [%" PRIu64 ", %" PRIu64
                    "] hold %" PRIu64,
                    what, bytes / few, tensor->begin, tensor->end, tensor->end - tensor->begin);
}

static rsd_err take_fields(parser *p, rsi_st_tensor *tensor)
{
    rsi_json_token token;
    int            seen = 0;
    rsd_err        rc;

    rc = rsi_json_want(&p->json, RSI_JSON_OBJECT, "an object with dtype, shape and data_offsets",
                       &token, p->err);
    while (rsi_json_each(&p->json, &token, &rc, p->err))
        rc = take_field(p, &token, tensor, &seen);
    if (rc)
        return rc;
    if (seen != ALL)
        return rsi_fail(p->err, RSD_E_FORMAT, "byte %" PRIu64 ": the field \"%s\" is missing",
                        p->json.base + token.at,
                        !(seen & DTYPE)   ? "dtype"
                        : !(seen & SHAPE) ? "shape"
                                          : "data_offsets");
    return check_tensor(p, tensor);
}

static rsd_err take_tensor(parser *p, const rsi_json_token *key)
{
    rsi_st_header *head = p->head;
    rsi_st_tensor  tensor = { 0 };
    rsd_err        rc = rsi_json_name(&p->json, key, &tensor.name, p->err);

    if (rc)
        return rc;
    if (!rsi_grow(&head->tensor, head->ntensors, &p->tensor_cap, sizeof(head->tensor[0])))
        return no_memory(p);
    rc = take_fields(p, &tensor);
    if (rc)
        return rsi_while(p->err, rc, "tensor \"%.*s\"",
                         rsi_json_shown(tensor.name.text, tensor.name.len), tensor.name.text);
    head->tensor[head->ntensors++] = tensor;
    head->nlisted += tensor.listed;
    return RSD_OK;
}

/* ---- __metadata__ ---- */

static rsd_err take_metadata(parser *p, const rsi_json_token *key)
{
    static const char what[] = "an object of strings as __metadata__";
    rsi_st_header    *head = p->head;
    rsi_json_token    token;
    rsi_st_meta       meta;
    rsd_err           rc;

    if (head->has_meta)
        return refuse(p, key, "\"__metadata__\" is a duplicate");
    head->has_meta = true;
    rc = rsi_json_next(&p->json, &token, p->err);
    if (!rc && token.kind == RSI_JSON_NULL) /* none; some writers write null */
        return RSD_OK;
    if (!rc && token.kind != RSI_JSON_OBJECT)
        rc = rsi_json_expected(&p->json, &token, what, p->err);
    while (rsi_json_each(&p->json, &token, &rc, p->err)) {
        rc = rsi_json_name(&p->json, &token, &meta.key, p->err);
        if (!rc)
            rc = rsi_json_want(&p->json, RSI_JSON_STRING, what, &token, p->err);
        if (rc)
            break;
        if (!rsi_grow(&head->meta, head->nmeta, &p->meta_cap, sizeof(head->meta[0])))
            return no_memory(p);
        meta.value = rsi_json_keep(&p->json, &token);
        meta.value_len = (uint32_t)token.len;
        head->meta[head->nmeta++] = meta;
    }
    return rc;
}

/* ---- the whole ---- */

/* Moves the tensors that can only be listed to the end. */
static rsd_err put_listed_last(parser *p)
{
    rsi_st_header *head = p->head;
    rsi_st_tensor *listed;
    size_t         kept = 0, moved = 0;

    if (head->nlisted == 0)
        return RSD_OK;
    listed = rsi_calloc(head->nlisted, sizeof(listed[0]));
    if (!listed)
        return no_memory(p);
    for (size_t i = 0; i < head->ntensors; i++)
        if (head->tensor[i].listed)
            listed[moved++] = head->tensor[i];
        else
            head->tensor[kept++] = head->tensor[i];
    memcpy(head->tensor + kept, listed, moved * sizeof(listed[0]));
    rsi_free(listed);
    return RSD_OK;
}

static rsd_err check_twice(parser *p)
{
    rsi_st_header  *head = p->head;
    const rsi_name *name;
    size_t          tensor, key;

    if (!rsi_names_build(&head->names, head->tensor, sizeof(head->tensor[0]), head->ntensors,
                         &tensor) ||
        !rsi_names_build(&head->keys, head->meta, sizeof(head->meta[0]), head->nmeta, &key))
        return no_memory(p);
    if (tensor == head->ntensors && key == head->nmeta)
        return RSD_OK;
    name = tensor < head->ntensors ? &head->tensor[tensor].name : &head->meta[key].key;
    return rsi_fail(p->err, RSD_E_FORMAT, "byte %" PRIu32 ": %s \"%.*s\" is a duplicate", name->at,
                    tensor < head->ntensors ? "tensor" : "the metadata key",
                    rsi_json_shown(name->text, name->len), name->text);
}

typedef struct place {
    uint64_t begin, end;
    uint32_t tensor;
} place;

static int by_place(const void *left, const void *right)
{
    const place *a = left, *b = right;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) /* empty ones first */
        return a->end < b->end ? -1 : 1;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

/* Sets head->order, unless the tensors are in the order of their data, as they usually are. */
static rsd_err sort_by_place(parser *p)
{
    rsi_st_header *head = p->head;
    place         *places;
    size_t         i = 1;

    while (i < head->ntensors && head->tensor[i].begin >= head->tensor[i - 1].end)
        i++;
    if (i >= head->ntensors)
        return RSD_OK;
    places = rsi_calloc(head->ntensors, sizeof(places[0]));
    head->order = rsi_calloc(head->ntensors, sizeof(head->order[0]));
    if (!places || !head->order) {
        rsi_free(places);
        return no_memory(p);
    }
    for (i = 0; i < head->ntensors; i++)
        places[i] = (place){ head->tensor[i].begin, head->tensor[i].end, (uint32_t)i };
    qsort(places, head->ntensors, sizeof(places[0]), by_place);
    for (i = 0; i < head->ntensors; i++)
        head->order[i] = places[i].tensor;
    rsi_free(places);
    return RSD_OK;
}

/* Every byte of the data belongs to exactly one tensor. */
static rsd_err check_tiling(const parser *p)
{
    const rsi_st_header *head = p->head;
    const rsi_st_tensor *last = NULL;
    uint64_t             end = 0;

    for (size_t i = 0; i < head->ntensors; i++) {
        const rsi_st_tensor *tensor = rsi_st_nth(head, i);
        const rsi_name      *name = &tensor->name;

        if (tensor->begin > end)
            return rsi_fail(p->err, RSD_E_FORMAT,
                            "byte %" PRIu32 ": tensor \"%.*s\" begins at %" PRIu64
                            " of the data, which leaves a hole after %" PRIu64,
                            name->at, rsi_json_shown(name->text, name->len), name->text,
                            tensor->begin, end);
        if (tensor->begin < end) /* so `last` is set */
            return rsi_fail(p->err, RSD_E_FORMAT,
                            "byte %" PRIu32 ": tensor \"%.*s\" begins at %" PRIu64
                            " of the data and overlaps \"%.*s\", which ends at %" PRIu64,
                            name->at, rsi_json_shown(name->text, name->len), name->text,
                            tensor->begin, rsi_json_shown(last->name.text, last->name.len),
                            last->name.text, end);
        end = tensor->end;
        last = tensor;
    }
    if (p->cut && end > head->data_bytes)
        p->head->data_bytes = end;
    if (end != head->data_bytes)
        return rsi_fail(p->err, RSD_E_FORMAT,
                        "the tensors end at byte %" PRIu64 " of the file, which has %" PRIu64
                        " bytes more",
                        head->data_start + end, head->data_bytes - end);
    return RSD_OK;
}

static rsd_err take_all(parser *p)
{
    static const char space[] =
        " \t\r\n"; /* allowed around the JSON, as in safetensors' own readers */
    rsi_json_token token;
    size_t         end = 0;
    rsd_err        rc;

    while (end < p->json.len && memchr(space, p->json.text[end], sizeof(space) - 1))
        end++;
    if (end == p->json.len || p->json.text[end] != '{')
        return rsi_fail(p->err, RSD_E_FORMAT, "byte %d: the header does not start with \"{\"",
                        RSI_ST_PREFIX);
    rc = rsi_json_next(&p->json, &token, p->err);
    while (rsi_json_each(&p->json, &token, &rc, p->err))
        rc = rsi_json_is(&token, RSI_ST_METADATA) ? take_metadata(p, &token)
                                                  : take_tensor(p, &token);
    if (rc)
        return rc;
    end = token.at + 1;
    while (end < p->json.len && memchr(space, p->json.text[end], sizeof(space) - 1))
        end++;
    if (end < p->json.len)
        return rsi_fail(p->err, RSD_E_FORMAT,
                        "byte %" PRIu64 ": 0x%02x after the JSON, only white space is allowed",
                        p->json.base + end, (unsigned char)p->json.text[end]);
    rc = put_listed_last(p);
    if (!rc)
        rc = check_twice(p);
    if (!rc)
        rc = sort_by_place(p);
    if (!rc)
        rc = check_tiling(p);
    p->head->ntensors -= p->head->nlisted;
    return rc;
}

rsd_err rsi_st_length(const unsigned char prefix[RSI_ST_PREFIX], uint64_t file_bytes, size_t *out,
                      rsd_error *err)
{
    uint64_t len = 0;

    if (file_bytes < RSI_ST_PREFIX || file_bytes > INT64_MAX)
        return rsi_fail(err, RSD_E_FORMAT, "a file of %" PRIu64 " bytes is not a safetensors file",
                        file_bytes);
    for (int i = RSI_ST_PREFIX - 1; i >= 0; i--)
        len = len << 8 | prefix[i];
    if (len > RSI_ST_HEADER_MAX)
        return rsi_fail(err, RSD_E_FORMAT,
                        "byte 0: the header claims %" PRIu64 " bytes, the maximum is %d", len,
                        RSI_ST_HEADER_MAX);
    if (len > file_bytes - RSI_ST_PREFIX)
        return rsi_fail(err, RSD_E_FORMAT,
                        "byte 0: the header claims %" PRIu64 " bytes, the file has %" PRIu64
                        " after the length",
                        len, file_bytes - RSI_ST_PREFIX);
    *out = (size_t)len;
    return RSD_OK;
}

rsd_err rsi_st_parse_cut(char *json, size_t len, uint64_t file_bytes, bool cut, rsi_st_header *out,
                         rsd_error *err)
{
    rsi_st_header head = { 0 };
    parser        p = { .head = &head, .cut = cut, .err = err };
    rsd_err       rc;

    if (len > RSI_ST_HEADER_MAX || file_bytes > INT64_MAX || len + RSI_ST_PREFIX > file_bytes)
        return rsi_fail(err, RSD_E_INVALID, "a header of %zu bytes does not fit into the file",
                        len);
    for (size_t i = 0; i < RSI_ST_DTYPES; i++) {
        p.dtype[i].name = rsd_dtype_safetensors_name(rsi_st_dtypes[i]);
        p.dtype[i].len = strlen(p.dtype[i].name);
    }
    rsi_json_begin(&p.json, json, len, RSI_ST_PREFIX, &head.mem);
    head.data_start = len + RSI_ST_PREFIX;
    head.data_bytes = file_bytes - head.data_start;
    /* so that dim is not NULL even if no tensor has a dimension */
    rc = rsi_grow(&head.dim, 0, &p.dim_cap, sizeof(head.dim[0])) ? take_all(&p) : no_memory(&p);
    if (rc)
        rsi_st_release(&head);
    else
        *out = head;
    return rc;
}

void rsi_st_release(rsi_st_header *header)
{
    rsi_free(header->tensor);
    rsi_free(header->dim);
    rsi_free(header->order);
    rsi_free(header->meta);
    rsi_names_release(&header->names);
    rsi_names_release(&header->keys);
    rsi_arena_release(&header->mem);
    *header = (rsi_st_header){ 0 };
}

const rsi_st_tensor *rsi_st_find(const rsi_st_header *header, const char *name, size_t len)
{
    size_t i = rsi_names_find(&header->names, name, len);

    return i == SIZE_MAX ? NULL : &header->tensor[i];
}

const rsi_st_meta *rsi_st_meta_find(const rsi_st_header *header, const char *key)
{
    size_t i = rsi_names_find(&header->keys, key, strlen(key));

    return i == SIZE_MAX ? NULL : &header->meta[i];
}
